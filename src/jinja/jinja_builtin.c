#include "jinja/jinja_builtin.h"

#include "jinja/jinja_template.h"

#include <string.h>

const jbuiltin *jbuiltin_find(const jbuiltin *table, const char *name, size_t n)
{
    for (; table->name; table++)
        if (strlen(table->name) == n && memcmp(table->name, name, n) == 0)
            return table;
    return NULL;
}

const jbuiltin *jbuiltin_filter(const jinja_template *t, const char *name, size_t n)
{
    const jbuiltin *f = t->filters ? jbuiltin_find(t->filters, name, n) : NULL;
    f = f ? f : jbuiltin_find(jinja_filters_text, name, n);
    f = f ? f : jbuiltin_find(jinja_filters_seq, name, n);
    return f ? f : jbuiltin_find(jinja_filters_value, name, n);
}

const jbuiltin *jbuiltin_test(const char *name, size_t n)
{
    return jbuiltin_find(jinja_tests, name, n);
}

const jbuiltin *jbuiltin_method(jvalue self, const char *name, size_t n)
{
    switch (self.kind) {
    case J_STR:
        return jbuiltin_find(jinja_methods_str, name, n);
    case J_DICT:
        return jbuiltin_find(jinja_methods_dict, name, n);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
        return jbuiltin_find(jinja_methods_list, name, n);
    case J_LOOP:
        return jbuiltin_find(jinja_methods_loop, name, n);
    default:
        return NULL;
    }
}

static bool is_one_of(const char *const *names, const char *name, size_t n)
{
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0)
            return true;
    return false;
}

bool jbuiltin_method_unsupported(const char *name)
{
    static const char *const names[] = { "encode",      "decode",   "translate",  "maketrans",
                                         "format_map",  "fromkeys", "expandtabs", "isidentifier",
                                         "isprintable", "isascii",  "casefold",   "swapcase",
                                         "istitle",     NULL };
    return is_one_of(names, name, strlen(name));
}

bool jbuiltin_function_unsupported(const char *name)
{
    static const char *const names[] = { "lipsum", "cycler", "joiner", NULL };
    return is_one_of(names, name, strlen(name));
}

bool jbuiltin_filter_unsupported(const char *name)
{
    static const char *const names[] = { "filesizeformat", "forceescape", "groupby",   "pprint",
                                         "random",         "slice",       "striptags", "urlize",
                                         "wordwrap",       "xmlattr",     NULL };
    return is_one_of(names, name, strlen(name));
}

bool jbuiltin_changes(jvalue self, const char *name, size_t n)
{
    static const char *const list[] = { "append", "clear",   "extend", "insert", "pop",
                                        "remove", "reverse", "sort",   NULL };
    static const char *const dict[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
    return (self.kind == J_LIST && is_one_of(list, name, n)) ||
           (self.kind == J_DICT && is_one_of(dict, name, n));
}

/* ---- calling ---- */

/* The number of the parameter of that name; -1: none. *count receives how many there are. */
static int find_param(const char *params, const jstr *name, int *count)
{
    int found = -1, i = 0;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (name && name->n == n && memcmp(name->p, p, n) == 0)
            found = i;
        p += n + (p[n] == ' ');
    }
    *count = i;
    return found;
}

static bool bind(jctx *c, const jbuiltin *fn, const jargs *args, jvalue *a)
{
    int count;
    find_param(fn->params, NULL, &count);
    if (args->n > (size_t)count) {
        jctx_fail(c, "%s takes at most %d arguments, found %zu", fn->name, count, args->n);
        return false;
    }
    for (size_t i = 0; i < args->n; i++)
        a[i] = args->v[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        const jstr *name = args->kw[i].key.str;
        int at = find_param(fn->params, name, &count);
        if (at < 0 || a[at].kind != J_MISSING) {
            jctx_fail(c, "%s %s '%.*s'", fn->name,
                      at < 0 ? "has no parameter" : "is given twice its parameter",
                      (int)(name->n < 60 ? name->n : 60), name->p);
            return false;
        }
        a[at] = args->kw[i].value;
    }
    for (int i = 0; i < fn->required; i++)
        if (a[i].kind == J_MISSING) {
            jctx_fail(c, "%s needs at least %d arguments", fn->name, fn->required);
            return false;
        }
    return true;
}

static size_t bytes_of(jvalue v)
{
    return v.kind == J_STR ? v.str->n : 0;
}

/* Whatever a function does, it may look at every byte it is given. One that does more for each
 * takes further steps. */
static bool take_steps(jctx *c, jvalue self, const jargs *args)
{
    size_t bytes = bytes_of(self);
    for (size_t i = 0; i < args->n; i++)
        bytes += bytes_of(args->v[i]);
    for (size_t i = 0; i < args->n_kw; i++)
        bytes += bytes_of(args->kw[i].value);
    return jctx_step(c, 1 + bytes / 16);
}

/* The elements up to a failure, which comes when the next one is read. */
static jvalue defer(jctx *c, jvalue v)
{
    c->status = PESC_OK;
    v = v.kind == J_ITER ? v : jvalue_seq(c, J_ITER, 0);
    const char *why = pesc_last_error();
    char *failure = jctx_alloc(c, strlen(why) + 1, 1);
    if (failure)
        v.seq->failure = memcpy(failure, why, strlen(why));
    return v;
}

jvalue jbuiltin_call(jctx *c, const jbuiltin *fn, jvalue self, const jargs *args)
{
    jvalue a[JARGS_MAX] = { { 0 } };
    if (!take_steps(c, self, args) || (fn->params[0] != '*' && !bind(c, fn, args, a)))
        return jundefined("");
    jvalue v = fn->fn(c, &(jcall){ self, a, args, fn->mode & ~JLAZY });
    return (fn->mode & JLAZY) && c->status == PESC_FORMAT ? defer(c, v) : v;
}

int64_t jbuiltin_int(jctx *c, jvalue v, int64_t other)
{
    if (v.kind == J_MISSING || jctx_failed(c))
        return other;
    if (jvalue_is_int(v))
        return jvalue_int(v);
    if (v.kind == J_UNDEFINED)
        jctx_fail(c, "%s", v.why);
    else
        jctx_fail(c, "'%s' object cannot be interpreted as an integer", jvalue_type(v));
    return other;
}

const jstr *jbuiltin_str(jctx *c, jvalue v)
{
    static const jstr empty = { .p = "" };
    if (v.kind == J_STR)
        return v.str;
    if (v.kind == J_UNDEFINED)
        jctx_fail(c, "%s", v.why);
    else
        jctx_fail(c, "found '%s', expected a string", jvalue_type(v));
    return &empty;
}
