#include "eval/tasktemplate.h"

#include "base/mem.h"
#include "eval/mathtext.h"
#include "eval/pyregex.h"
#include "jinja/pytext.h"
#include "jinja/jinja.h"
#include "jinja/jinja_builtin.h"

#include <ctype.h>
#include <string.h>

enum { OWN_MAX = 4096 };

struct task_template {
    jinja_template *jinja;
    char *source, *where;
    size_t own; /* bytes that a rendering may write for nothing: the template's */
    allowance *work;
};

/* ---- filters ---- */

/* A text in the memory of the rendering; it is freed here. */
static jvalue take_text(jctx *c, str *text)
{
    char *p = str_ok(text) && jctx_step(c, text->n / 8) ? jctx_alloc(c, text->n + 1, 1) : NULL;
    size_t n = text->n;
    if (p && n)
        memcpy(p, text->p, n);
    if (!str_ok(text) && !jctx_failed(c))
        c->status = fail_nomem("a template", n);
    str_free(text);
    return p ? jvalue_str(c, p, n, NULL) : jundefined("");
}

static slice slice_of_value(jctx *c, jvalue v)
{
    const jstr *s = jbuiltin_str(c, v);
    return jctx_step(c, s->n / 8) ? (slice){ s->p, s->n } : (slice){ "", 0 };
}

/* The harness's own: re.sub(pattern, replacement, text). */
static jvalue filter_regex_replace(jctx *c, const jcall *call)
{
    slice text = slice_of_value(c, call->self);
    const jstr *pattern = jbuiltin_str(c, call->a[0]), *by = jbuiltin_str(c, call->a[1]);
    char *texts[] = { mem_strndup(pattern->p, pattern->n), mem_strndup(by->p, by->n) };
    str out = { 0 };
    allowance steps;
    pyregex *r = NULL;
    atomic_init(&steps.left, c->steps);
    pesc_status s = c->status;
    if (s == PESC_OK)
        s = texts[0] && texts[1] ? pyregex_open(&r, texts[0], "regex_replace", &steps)
                                 : fail_nomem("a template", pattern->n);
    if (s == PESC_OK)
        s = pyregex_sub(r, text, texts[1], &out);
    c->steps = allowance_left(&steps);
    pyregex_close(r);
    mem_free(texts[0]);
    mem_free(texts[1]);
    jctx_step(c, pattern->n);
    if (s == PESC_OK)
        return take_text(c, &out);
    str_free(&out);
    return jctx_fail_as(c, s, "%s", pesc_last_error());
}

static jvalue filter_boxed(jctx *c, const jcall *call)
{
    slice text = slice_of_value(c, call->self), answer;
    if (jctx_failed(c))
        return jundefined("");
    if (boxed_answer(text, &answer) != PESC_OK)
        return jctx_fail(c, "%s", pesc_last_error());
    return jvalue_str(c, answer.p, answer.n, NULL);
}

static jvalue filter_minerva(jctx *c, const jcall *call)
{
    slice text = slice_of_value(c, call->self);
    str out = { 0 };
    minerva_normalize(&out, text);
    return take_text(c, &out);
}

static jvalue filter_integer(jctx *c, const jcall *call)
{
    char text[24];
    long long number;
    if (jvalue_is_int(call->self))
        return jint(jvalue_int(call->self));
    slice s = pytext_strip(slice_of_value(c, call->self));
    snprintf(text, sizeof text, "%.*s", (int)(s.n < sizeof text ? s.n : sizeof text), s.p);
    if (s.n >= sizeof text || !str_to_i64(text, -(1LL << 60), 1LL << 60, &number))
        return jctx_fail(c, "integer: found \"%.*s\", expected a whole number",
                         (int)(s.n < 64 ? s.n : 64), s.p);
    return jint(number);
}

static const jbuiltin filters[] = {
    { "regex_replace", filter_regex_replace, "pattern repl", 2, 0 },
    { "boxed", filter_boxed, "", 0, 0 },
    { "minerva", filter_minerva, "", 0, 0 },
    { "integer", filter_integer, "", 0, 0 },
    { 0 },
};

/* ---- templates ---- */

pesc_status task_template_open(task_template **out, const char *source, const char *where,
                               allowance *work)
{
    *out = NULL;
    task_template *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("a template", sizeof *t);
    t->work = work;
    t->own = strlen(source) < OWN_MAX ? strlen(source) : OWN_MAX;
    t->source = mem_strdup(source);
    t->where = mem_strdup(where);
    const jinja_settings as = { .plain = true, .strict = true, .filters = filters };
    pesc_status s = t->source && t->where
                        ? jinja_compile_as(&t->jinja, source, strlen(source), t->where, &as)
                        : fail_nomem("a template", strlen(source));
    if (s == PESC_OK)
        *out = t;
    else
        task_template_close(t);
    return s == PESC_UNSUPPORTED ? PESC_FORMAT : s;
}

void task_template_close(task_template *t)
{
    if (!t)
        return;
    jinja_free(t->jinja);
    mem_free(t->source);
    mem_free(t->where);
    mem_free(t);
}

/* The bytes of a value; an item of a list takes as much time as some hundred. */
static size_t weight(const json_t *v)
{
    size_t n = json_string_length(v);
    for (size_t i = 0; i < json_array_size(v); i++)
        n += 256 + weight(json_array_get(v, i));
    for (void *i = json_object_iter((json_t *)(uintptr_t)v); i;
         i = json_object_iter_next((json_t *)(uintptr_t)v, i))
        n += 256 + weight(json_object_iter_value(i));
    return n;
}

pesc_status task_template_value(const task_template *t, const json_t *row, json_t **out)
{
    const uint64_t left = allowance_left(t->work), most = 20 << 20;
    uint64_t steps = 0;
    jinja_input in = { .trusted = row, .steps = &steps };
    *out = NULL;
    if (left == 0)
        return allowance_spent(t->where);
    in.limits.steps = left < most ? left : most;
    in.limits.output = (size_t)(8 * in.limits.steps);
    pesc_status s = jinja_value(t->jinja, &in, out);
    size_t n = weight(*out);
    allowance_take(t->work, steps + (n > t->own ? n - t->own : 0) / 8);
    return s != PESC_OK && steps >= left ? allowance_spent(t->where) : s;
}

pesc_status task_template_text(const task_template *t, const json_t *row, str *out)
{
    json_t *v = NULL;
    if (!t)
        return PESC_OK;
    TRY(task_template_value(t, row, &v));
    pytext_str(out, v);
    json_decref(v);
    return str_ok(out) ? PESC_OK : fail_nomem("a template", out->n);
}

/* ---- the language before Jinja ---- */

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (isalnum((unsigned char)p[n]) || p[n] == '_')
        n++;
    return isdigit((unsigned char)*p) ? 0 : n;
}

/* Appends what the filter at p (up to a bar or brace) is in Jinja. False: there was none such. */
static bool translate(const char *p, size_t n, str *out)
{
    static const struct {
        const char *name, *before, *after;
    } rows[] = {
        { "strip", ".strip()", "" },
        { "capitalize", ".capitalize()", "" },
        { "spaces", ".replace('_', ' ')", "" },
        { "before:", ".split('", "')[0]" },
        { "after:", ".split('", "', 1)[1]" },
        { "after_last:", ".split('", "')[-1]" },
        { "boxed", " | boxed", "" },
        { "minerva", " | minerva", "" },
        { "integer", " | integer", "" },
        { "hellaswag", " (as in share/tasks/hellaswag.json)", "" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t k = strlen(rows[i].name);
        bool argument = rows[i].name[k - 1] == ':';
        if (n < k || memcmp(p, rows[i].name, k) != 0 || (n > k) != argument)
            continue;
        str_puts(out, rows[i].before);
        str_add(out, p + k, n - k);
        str_puts(out, rows[i].after);
        return true;
    }
    return false;
}

/* Whether {...} at p, which is not {{, is a column as it was written before, and then what it is
 * now. A name alone is one only if the row has it: {x} also stands in LaTeX. */
static bool old_column(const char *p, const json_t *row, size_t *length, str *now)
{
    char name[64];
    const char *at = p + 1;
    size_t n = name_length(at);
    bool filtered = false;
    if (n == 0 || n >= sizeof name)
        return false;
    memcpy(name, at, n);
    name[n] = '\0';
    n += strspn(at + n, "._[]0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    str_add(now, at, n);
    for (at += n; *at == '|'; at += n, filtered = true) {
        at++;
        n = strcspn(at, "|}");
        if (!translate(at, n, now))
            return false;
    }
    *length = (size_t)(at + 1 - p);
    return *at == '}' && (filtered || json_object_get(row, name));
}

pesc_status task_template_check(const task_template *t, const json_t *row)
{
    const char *p = t ? t->source : "";
    while ((p = strchr(p, '{'))) {
        const char *end = p[1] == '{' ? "}}" : p[1] == '%' ? "%}" : p[1] == '#' ? "#}" : NULL;
        if (end) {
            const char *close = strstr(p + 2, end);
            p = close ? close + 2 : p + strlen(p);
            continue;
        }
        str now = { 0 };
        size_t n = 1;
        pesc_status s = PESC_OK;
        if (old_column(p, row, &n, &now))
            s = fail(PESC_FORMAT,
                     "%s: found %.*s, which is how columns were written before; the fields are "
                     "Jinja templates now: write {{ %s }}, or {{ \"%.*s\" }} for the text itself",
                     t->where, (int)n, p, now.p ? now.p : "", (int)n, p);
        str_free(&now);
        TRY(s);
        p++;
    }
    return PESC_OK;
}
