/* Compiling and rendering from the outside; see jinja.h. */
#include "jinja/jinja.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/jinja_exec.h"
#include "jinja/jinja_parse.h"
#include "jinja/jinja_print.h"

#include <string.h>

enum { SOURCE_MAX = 1 << 20 };

/* The source with \r\n and \r as \n, without the newline that ends it unless that is kept. */
static pesc_status take_source(jinja_template *t, const char *source, size_t n)
{
    if (n > SOURCE_MAX)
        return fail(PESC_FORMAT, "%s: is %zu bytes long; a template has at most %d", t->where, n,
                    SOURCE_MAX);
    if (!utf8_valid(source, n) || memchr(source, '\0', n))
        return fail(PESC_FORMAT, "%s: is not UTF-8 text", t->where);
    t->source = jpool_take(&t->pool, n + 1, 1);
    if (!t->source)
        return fail_nomem("a chat template", n);
    for (size_t i = 0; i < n; i++)
        if (source[i] != '\r')
            t->source[t->n++] = source[i];
        else if (i + 1 == n || source[i + 1] != '\n')
            t->source[t->n++] = '\n';
    if (!t->plain && t->n && t->source[t->n - 1] == '\n')
        t->n--;
    return PESC_OK;
}

static pesc_status compile(jinja_template *t, const char *source, size_t n)
{
    jtoken *tokens = NULL;
    TRY(take_source(t, source, n));
    TRY(jlex_tokens(t, &tokens));
    return jparse(t, tokens);
}

pesc_status jinja_compile(jinja_template **out, const char *source, size_t n, const char *where)
{
    return jinja_compile_as(out, source, n, where, &(jinja_settings){ 0 });
}

pesc_status jinja_compile_as(jinja_template **out, const char *source, size_t n, const char *where,
                             const jinja_settings *as)
{
    *out = NULL;
    jinja_template *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("a chat template", sizeof *t);
    t->where = where;
    t->plain = as->plain;
    t->strict = as->strict;
    t->filters = as->filters;
    pesc_status s = compile(t, source, n);
    if (s == PESC_OK)
        *out = t;
    else
        jinja_free(t);
    return s;
}

void jinja_free(jinja_template *t)
{
    if (!t)
        return;
    jpool_free(&t->pool);
    mem_free(t);
}

bool jinja_has_generation(const jinja_template *t)
{
    return t->has_generation;
}

bool jinja_uses(const jinja_template *t, const char *name)
{
    const jname *n = t->names;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    return n != NULL;
}

/* ---- rendering ---- */

static pesc_status copy_out(const jbuf *b, jinja_text *out)
{
    out->text = mem_strndup(b->p ? b->p : "", b->n);
    out->origin = mem_zalloc(b->n ? b->n : 1, sizeof *out->origin);
    if (!out->text || !out->origin) {
        jinja_text_free(out);
        return fail_nomem("a rendered chat template", b->n);
    }
    out->n = b->n;
    if (b->origin)
        memcpy(out->origin, b->origin, b->n * sizeof *out->origin);
    return PESC_OK;
}

static uint64_t steps_of(const jinja_input *in)
{
    return in->limits.steps ? in->limits.steps : 20000000;
}

static void open_context(jctx *c, const jinja_template *t, const jinja_input *in)
{
    const jinja_limits *l = &in->limits;
    *c = (jctx){ .t = t,
                 .in = in,
                 .line = 1,
                 .steps = steps_of(in),
                 .output_max = l->output ? l->output : (size_t)32 << 20,
                 .pool = { .max = l->memory ? l->memory : (size_t)256 << 20 } };
}

static void close_context(jctx *c)
{
    if (c->in->steps)
        *c->in->steps += steps_of(c->in) - c->steps;
    jpool_free(&c->pool);
}

pesc_status jinja_render(const jinja_template *t, const jinja_input *in, jinja_text *out)
{
    jctx c;
    *out = (jinja_text){ 0 };
    open_context(&c, t, in);
    jbuf b = { .c = &c };
    c.out = &b;
    jexec_template(&c);
    pesc_status s = jctx_failed(&c) ? c.status : copy_out(&b, out);
    close_context(&c);
    return s;
}

/* The expression of a template that is nothing else; NULL: it is more, or less. */
static const jnode *only_expression(const jinja_template *t)
{
    const jnode *n = t->body;
    return n && n->kind == N_OUTPUT && !n->next && n->list && !n->list->next ? n->list : NULL;
}

static json_t *text_json(const jctx *c, const jbuf *b)
{
    return jctx_failed(c) ? NULL : json_stringn(b->p ? b->p : "", b->n);
}

/* NULL where memory ran out or c has failed. */
static json_t *value_json(jctx *c, jvalue v)
{
    jbuf b = { .c = c };
    json_t *list = NULL;
    bool ok = true;
    if (!jctx_step(c, 1) || !jctx_enter(c))
        return NULL;
    if (v.kind == J_NONE || v.kind == J_BOOL) {
        list = v.kind == J_NONE ? json_null() : json_boolean(v.b);
    } else if (v.kind == J_INT || v.kind == J_FLOAT) {
        list = v.kind == J_INT ? json_integer(v.i) : json_real(v.f);
    } else if (v.kind == J_DICT) {
        list = json_object();
        for (size_t i = 0; ok && i < v.dict->n; i++) {
            jvalue key = jprint_value(c, v.dict->v[i].key);
            ok = !jctx_failed(c) && json_object_setn_new(list, key.str->p, key.str->n,
                                                         value_json(c, v.dict->v[i].value)) == 0;
        }
    } else if (jvalue_is_seq(v)) {
        jseq items = jvalue_iterate(c, v);
        list = json_array();
        for (size_t i = 0; ok && i < items.n; i++)
            ok = json_array_append_new(list, value_json(c, items.v[i])) == 0;
    } else {
        jprint_str(&b, v);
        list = text_json(c, &b);
    }
    c->depth--;
    if (ok)
        return list;
    json_decref(list);
    return NULL;
}

pesc_status jinja_value(const jinja_template *t, const jinja_input *in, json_t **out)
{
    jctx c;
    const jnode *only = only_expression(t);
    open_context(&c, t, in);
    jbuf b = { .c = &c };
    c.out = &b;
    jvalue v = jundefined("");
    if (only)
        v = jexec_expression(&c, only);
    else
        jexec_template(&c);
    *out = only && !jctx_failed(&c) ? value_json(&c, v) : text_json(&c, &b);
    pesc_status s = jctx_failed(&c) ? c.status : PESC_OK;
    if (s == PESC_OK && !*out)
        s = fail_nomem("the value of a template", b.n);
    if (s != PESC_OK)
        json_decref(*out);
    if (s != PESC_OK)
        *out = NULL;
    close_context(&c);
    return s;
}

void jinja_text_free(jinja_text *text)
{
    mem_free(text->text);
    mem_free(text->origin);
    *text = (jinja_text){ 0 };
}
