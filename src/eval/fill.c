#include "eval/fill.h"

#include "base/mem.h"
#include "eval/boxed.h"
#include "eval/minerva.h"
#include "jinja/pytext.h"

#include <string.h>

/* ---- filters ---- */

static pesc_status filter_strip(str *out, slice s, const char *arg)
{
    (void)arg;
    s = pytext_strip(s);
    str_add(out, s.p, s.n);
    return PESC_OK;
}

static pesc_status filter_capitalize(str *out, slice s, const char *arg)
{
    (void)arg;
    pytext_capitalize(out, s);
    return PESC_OK;
}

static pesc_status filter_spaces(str *out, slice s, const char *arg)
{
    (void)arg;
    pytext_replace(out, s, "_", " ");
    return PESC_OK;
}

static pesc_status mark_of(slice s, const char *arg, size_t *at)
{
    *at = pytext_find(s, arg);
    return *at < s.n ? PESC_OK : fail(PESC_FORMAT, "the text has no \"%s\"", arg);
}

static pesc_status filter_before(str *out, slice s, const char *arg)
{
    size_t at;
    TRY(mark_of(s, arg, &at));
    str_add(out, s.p, at);
    return PESC_OK;
}

static pesc_status filter_after(str *out, slice s, const char *arg)
{
    size_t at, n = strlen(arg);
    TRY(mark_of(s, arg, &at));
    str_add(out, s.p + at + n, s.n - at - n);
    return PESC_OK;
}

/* The whole text where the mark is missing, as the last piece of Python's split(). */
static pesc_status filter_after_last(str *out, slice s, const char *arg)
{
    size_t at = pytext_find_last(s, arg), n = strlen(arg);
    if (at < s.n)
        s = (slice){ s.p + at + n, s.n - at - n };
    str_add(out, s.p, s.n);
    return PESC_OK;
}

/* Deletes each [...] that ends on its line, shortest first; then halves pairs of spaces. */
static void without_brackets(str *out, slice s)
{
    for (size_t at = 0; at < s.n; at++) {
        const char *close = NULL, *from = s.p + at;
        if (*from == '[') {
            const char *line = memchr(from, '\n', s.n - at);
            close = memchr(from, ']', line ? (size_t)(line - from) : s.n - at);
        }
        if (close)
            at = (size_t)(close - s.p);
        else
            str_putc(out, *from);
    }
}

static pesc_status filter_hellaswag(str *out, slice s, const char *arg)
{
    str titled = { 0 }, bare = { 0 };
    (void)arg;
    pytext_replace(&titled, pytext_strip(s), " [title]", ". ");
    without_brackets(&bare, slice_of(&titled));
    pytext_replace(out, slice_of(&bare), "  ", " ");
    bool ok = str_ok(&titled) && str_ok(&bare);
    str_free(&titled);
    str_free(&bare);
    return ok ? PESC_OK : fail_nomem("a template", s.n);
}

static pesc_status filter_boxed(str *out, slice s, const char *arg)
{
    slice answer = { 0 };
    (void)arg;
    TRY(boxed_answer(s, &answer));
    str_add(out, answer.p, answer.n);
    return PESC_OK;
}

static pesc_status filter_minerva(str *out, slice s, const char *arg)
{
    (void)arg;
    minerva_normalize(out, s);
    return PESC_OK;
}

typedef struct filter {
    const char *name;
    pesc_status (*apply)(str *out, slice s, const char *arg);
    bool has_arg;
    bool integer; /* the text is read as a number */
} filter;
static const filter filters[] = {
    { "strip", filter_strip, false, false },
    { "capitalize", filter_capitalize, false, false },
    { "spaces", filter_spaces, false, false },
    { "before", filter_before, true, false },
    { "after", filter_after, true, false },
    { "after_last", filter_after_last, true, false },
    { "hellaswag", filter_hellaswag, false, false },
    { "boxed", filter_boxed, false, false },
    { "minerva", filter_minerva, false, false },
    { "integer", filter_strip, false, true },
};

/* ---- compiling ---- */

enum { STEPS_MAX = 4 };

typedef struct step {
    const filter *filter;
    char *arg;
} step;

typedef struct piece {
    char *text; /* literal text, or the path of a column */
    bool column;
    step steps[STEPS_MAX];
    size_t n_steps;
} piece;

struct fill {
    piece *pieces;
    size_t n;
    piece whole; /* its steps are applied to the text of all pieces */
};

static pesc_status add_piece(fill *f, const char *p, size_t n, bool column)
{
    piece *grown = mem_grow(f->pieces, f->n + 1, sizeof *grown);
    if (!grown)
        return fail_nomem("a template", n);
    f->pieces = grown;
    f->pieces[f->n] = (piece){ .text = mem_strndup(p, n), .column = column };
    return f->pieces[f->n++].text ? PESC_OK : fail_nomem("a template", n);
}

static const filter *filter_named(slice name)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (strlen(filters[i].name) == name.n && memcmp(filters[i].name, name.p, name.n) == 0)
            return &filters[i];
    return NULL;
}

static pesc_status add_step(piece *p, slice s, const char *where)
{
    size_t colon = pytext_find(s, ":");
    const filter *f = filter_named((slice){ s.p, colon });
    if (!f)
        return fail(PESC_FORMAT, "%s: the filter \"%.*s\" is not known", where, (int)colon, s.p);
    if (f->has_arg != (colon < s.n) || colon + 1 == s.n)
        return fail(PESC_FORMAT, "%s: the filter \"%s\" %s", where, f->name,
                    f->has_arg ? "needs an argument after \":\"" : "takes no argument");
    if (p->n_steps == STEPS_MAX)
        return fail(PESC_FORMAT, "%s: a column has more than %d filters", where, STEPS_MAX);
    step *next = &p->steps[p->n_steps++];
    next->filter = f;
    next->arg = f->has_arg ? mem_strndup(s.p + colon + 1, s.n - colon - 1) : mem_strdup("");
    return next->arg ? PESC_OK : fail_nomem("a template", s.n);
}

/* What stands between the braces: path|filter:arg|filter. */
static pesc_status add_column(fill *f, slice s, const char *where)
{
    size_t bar = pytext_find(s, "|");
    if (bar == 0)
        return fail(PESC_FORMAT, "%s: {} names no column; a brace itself is written {{", where);
    TRY(add_piece(f, s.p, bar, true));
    piece *p = &f->pieces[f->n - 1];
    while (bar < s.n) {
        s = (slice){ s.p + bar + 1, s.n - bar - 1 };
        bar = pytext_find(s, "|");
        TRY(add_step(p, (slice){ s.p, bar }, where));
    }
    return PESC_OK;
}

static pesc_status compile(fill *f, const char *t, const char *where)
{
    while (*t) {
        size_t n = strcspn(t, "{}");
        if (n > 0) {
            TRY(add_piece(f, t, n, false));
        } else if (t[1] == t[0]) {
            TRY(add_piece(f, t, 1, false));
            n = 2;
        } else {
            const char *end = *t == '{' ? strchr(t, '}') : NULL;
            if (!end)
                return fail(PESC_FORMAT,
                            "%s: a brace has no partner; a brace itself is written %c%c", where, *t,
                            *t);
            TRY(add_column(f, (slice){ t + 1, (size_t)(end - t) - 1 }, where));
            n = (size_t)(end - t) + 1;
        }
        t += n;
    }
    return PESC_OK;
}

pesc_status fill_open(fill **out, const char *template, const char *where)
{
    *out = NULL;
    fill *f = mem_zalloc(1, sizeof *f);
    if (!f)
        return fail_nomem("a template", sizeof *f);
    pesc_status s = compile(f, template, where);
    if (s == PESC_OK)
        *out = f;
    else
        fill_close(f);
    return s;
}

pesc_status fill_then(fill *f, const char *step_text, const char *where)
{
    return add_step(&f->whole, (slice){ step_text, strlen(step_text) }, where);
}

static void free_piece(piece *p)
{
    mem_free(p->text);
    for (size_t k = 0; k < p->n_steps; k++)
        mem_free(p->steps[k].arg);
}

void fill_close(fill *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++)
        free_piece(&f->pieces[i]);
    free_piece(&f->whole);
    mem_free(f->pieces);
    mem_free(f);
}

/* ---- filling ---- */

/* One part of a path: a name up to "." or "[", or an index up to "]". */
static const json_t *member(const json_t *v, const char **path)
{
    char name[64];
    long long index;
    bool list = **path == '[';
    *path += list;
    size_t n = strcspn(*path, list ? "]" : ".[");
    snprintf(name, sizeof name, "%.*s", (int)n, *path);
    *path += n;
    *path += **path == ']' || **path == '.';
    if (list)
        return str_to_i64(name, 0, 1 << 30, &index) ? json_array_get(v, (size_t)index) : NULL;
    return json_object_get(v, name);
}

static pesc_status find_column(const json_t *row, const char *path, const json_t **out)
{
    const json_t *v = row;
    for (const char *p = path; v && *p;)
        v = member(v, &p);
    *out = v;
    return v ? PESC_OK : fail(PESC_FORMAT, "the column \"%s\" is missing", path);
}

static pesc_status to_integer(const char *path, const str *text, json_t **out)
{
    long long number;
    if (!text->p || !str_to_i64(text->p, -(1LL << 60), 1LL << 60, &number))
        return fail(PESC_FORMAT, "the column \"%s\": found \"%s\", expected a whole number", path,
                    text->p ? text->p : "");
    *out = json_integer(number);
    return *out ? PESC_OK : fail_nomem("a template", 0);
}

static pesc_status filter_one(const piece *p, const step *by, const json_t *v, json_t **out)
{
    str in = { 0 }, text = { 0 };
    pytext_str(&in, v);
    str_puts(&text, "");
    pesc_status s = str_ok(&in) ? by->filter->apply(&text, slice_of(&in), by->arg)
                                : fail_nomem("a template", in.n);
    if (s == PESC_FORMAT) {
        char why[256];
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = fail(s, "the column \"%s\": %s", p->text ? p->text : "", why);
    }
    if (s == PESC_OK && by->filter->integer)
        s = to_integer(p->text ? p->text : "", &text, out);
    else if (s == PESC_OK)
        *out = json_stringn(text.p ? text.p : "", text.n);
    if (s == PESC_OK && (!str_ok(&text) || !*out)) {
        json_decref(*out);
        s = fail_nomem("a template", in.n);
    }
    str_free(&in);
    str_free(&text);
    return s;
}

static pesc_status filter_value(const piece *p, const step *by, const json_t *v, json_t **out)
{
    if (!json_is_array(v))
        return filter_one(p, by, v, out);
    json_t *item, *list = json_array();
    pesc_status s = list ? PESC_OK : fail_nomem("a template", 0);
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)v, i, item)
    {
        json_t *done = NULL;
        if (s == PESC_OK)
            s = filter_one(p, by, item, &done);
        if (s == PESC_OK && json_array_append_new(list, done) != 0)
            s = fail_nomem("a template", 0);
    }
    if (s == PESC_OK)
        *out = list;
    else
        json_decref(list);
    return s;
}

/* Applies the steps of a piece to a value, whose reference is taken. */
static pesc_status apply_steps(const piece *p, json_t *v, json_t **out)
{
    for (size_t i = 0; i < p->n_steps; i++) {
        json_t *next = NULL;
        pesc_status s = filter_value(p, &p->steps[i], v, &next);
        json_decref(v);
        if (s != PESC_OK)
            return s;
        v = next;
    }
    *out = v;
    return PESC_OK;
}

static pesc_status piece_value(const piece *p, const json_t *row, json_t **out)
{
    const json_t *found;
    TRY(find_column(row, p->text, &found));
    return apply_steps(p, json_incref((json_t *)(uintptr_t)found), out);
}

static pesc_status pieces_text(const fill *f, const json_t *row, str *out)
{
    for (size_t i = 0; i < f->n; i++) {
        const piece *p = &f->pieces[i];
        if (!p->column) {
            str_puts(out, p->text);
            continue;
        }
        json_t *v = NULL;
        TRY(piece_value(p, row, &v));
        pytext_str(out, v);
        json_decref(v);
    }
    return str_ok(out) ? PESC_OK : fail_nomem("a template", out->n);
}

pesc_status fill_value(const fill *f, const json_t *row, json_t **out)
{
    *out = NULL;
    json_t *v = NULL;
    if (f->n == 1 && f->pieces[0].column) {
        TRY(piece_value(&f->pieces[0], row, &v));
        return apply_steps(&f->whole, v, out);
    }
    str text = { 0 };
    pesc_status s = pieces_text(f, row, &text);
    if (s == PESC_OK && !(v = json_stringn(text.p ? text.p : "", text.n)))
        s = fail_nomem("a template", text.n);
    str_free(&text);
    return s == PESC_OK ? apply_steps(&f->whole, v, out) : s;
}

pesc_status fill_text(const fill *f, const json_t *row, str *out)
{
    if (!f)
        return PESC_OK;
    if (f->whole.n_steps == 0)
        return pieces_text(f, row, out);
    json_t *v = NULL;
    TRY(fill_value(f, row, &v));
    pytext_str(out, v);
    json_decref(v);
    return str_ok(out) ? PESC_OK : fail_nomem("a template", out->n);
}
