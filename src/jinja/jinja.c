/* Compiling and rendering from the outside; see jinja.h. */
#include "jinja/jinja.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "jinja/jinja_exec.h"
#include "jinja/jinja_parse.h"

#include <string.h>

enum { SOURCE_MAX = 1 << 20 };

/* The source with \r\n and \r as \n, without the newline that ends it. */
static pesc_status take_source(jinja_template *t, const char *source, size_t n)
{
    if (n > SOURCE_MAX)
        return fail(PESC_FORMAT, "%s: is %zu bytes long; a chat template has at most %d", t->where,
                    n, SOURCE_MAX);
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
    if (t->n && t->source[t->n - 1] == '\n')
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
    *out = NULL;
    jinja_template *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("a chat template", sizeof *t);
    t->where = where;
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

pesc_status jinja_render(const jinja_template *t, const jinja_input *in, jinja_text *out)
{
    const jinja_limits *l = &in->limits;
    *out = (jinja_text){ 0 };
    jctx c = { .t = t,
               .in = in,
               .line = 1,
               .steps = l->steps ? l->steps : 20000000,
               .output_max = l->output ? l->output : (size_t)32 << 20,
               .pool = { .max = l->memory ? l->memory : (size_t)256 << 20 } };
    jbuf b = { .c = &c };
    c.out = &b;
    jexec_template(&c);
    pesc_status s = jctx_failed(&c) ? c.status : copy_out(&b, out);
    jpool_free(&c.pool);
    return s;
}

void jinja_text_free(jinja_text *text)
{
    mem_free(text->text);
    mem_free(text->origin);
    *text = (jinja_text){ 0 };
}
