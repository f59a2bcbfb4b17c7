#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include "base/mem.h"
#include "base/str.h"
#include "text/newchars.h"
#include "text/onig.h"

#include <pcre2.h>

#define PATTERN_MAX 65536
#define JIT_STACK_MAX (8u << 20)
#define HEAP_MAX_KIB (64u << 10)
#define STEPS_MIN 1000000u
#define STEPS_PER_BYTE 64u

typedef struct program {
    pcre2_code *code;
    bool jit;
} program;

struct regex {
    program plain;
    program newer; /* for texts with characters newer than PCRE2; code NULL: the plain one */
    char *where;
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

static void *pcre2_take(PCRE2_SIZE n, void *unused)
{
    (void)unused;
    return mem_alloc(n, 1);
}

static void pcre2_give(void *p, void *unused)
{
    (void)unused;
    mem_free(p);
}

static pesc_status compile(program *r, const str *p, const char *where)
{
    pcre2_general_context *g = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    pcre2_compile_context *c = g ? pcre2_compile_context_create(g) : NULL;
    int error = PCRE2_ERROR_HEAP_FAILED;
    PCRE2_SIZE at = 0;
    if (c) {
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(c, PATTERN_MAX);
        r->code = pcre2_compile((PCRE2_SPTR)(p->p ? p->p : ""), p->n,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                                &error, &at, c);
    }
    int jit = r->code ? pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) : 0;
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    if (error == PCRE2_ERROR_HEAP_FAILED || jit == PCRE2_ERROR_NOMEMORY)
        return fail_nomem("compiling a regular expression", p->n);
    r->jit = jit == 0;
    if (r->code)
        return PESC_OK;
    char text[160];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return fail(PESC_UNSUPPORTED,
                "%s: the regular expression cannot be compiled: %s (near byte %zu)", where, text,
                (size_t)at);
}

pesc_status regex_open(regex **out, const char *pattern, size_t n, const char *where)
{
    *out = NULL;
    if (n > PATTERN_MAX)
        return fail(PESC_UNSUPPORTED,
                    "%s: the regular expression is %zu bytes; at most %d are read", where, n,
                    PATTERN_MAX);
    regex *r = mem_zalloc(1, sizeof *r);
    if (!r)
        return fail_nomem("a regular expression", sizeof *r);
    str plain = { 0 }, newer = { 0 };
    pesc_status s = onig_to_pcre2(pattern, n, false, where, &plain);
    if (s == PESC_OK)
        s = onig_to_pcre2(pattern, n, true, where, &newer);
    if (s == PESC_OK)
        s = compile(&r->plain, &plain, where);
    if (s == PESC_OK && newer.n != plain.n)
        s = compile(&r->newer, &newer, where);
    if (s == PESC_OK && !(r->where = mem_strdup(where)))
        s = fail_nomem("a regular expression", 0);
    str_free(&plain);
    str_free(&newer);
    if (s == PESC_OK)
        *out = r;
    else
        regex_close(r);
    return s;
}

void regex_close(regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->plain.code);
    pcre2_code_free(r->newer.code);
    mem_free(r->where);
    mem_free(r);
}

pesc_status regex_scratch_open(regex_scratch **out)
{
    *out = NULL;
    regex_scratch *s = mem_zalloc(1, sizeof *s);
    pcre2_general_context *g = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    if (s && g) {
        s->data = pcre2_match_data_create(1, g);
        s->limits = pcre2_match_context_create(g);
        s->stack = pcre2_jit_stack_create(32u << 10, JIT_STACK_MAX, g);
    }
    pcre2_general_context_free(g);
    if (!s || !s->data || !s->limits || !s->stack) {
        regex_scratch_close(s);
        return fail_nomem("matching a regular expression", sizeof *s);
    }
    pcre2_set_heap_limit(s->limits, HEAP_MAX_KIB);
    pcre2_jit_stack_assign(s->limits, NULL, s->stack);
    *out = s;
    return PESC_OK;
}

void regex_scratch_close(regex_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->limits);
    pcre2_jit_stack_free(s->stack);
    mem_free(s);
}

static pesc_status overrun(const regex_walk *w, int error)
{
    if (error == PCRE2_ERROR_NOMEMORY)
        return fail_nomem("matching a regular expression", w->n);
    char text[160];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return fail(PESC_UNSUPPORTED,
                "%s: the regular expression takes too long on this text (byte %zu of %zu): %s",
                w->r->where, w->from, w->n, text);
}

/* The step limit grows with the text: an honest pattern may backtrack over a run of blanks. */
static int match(const regex_walk *w)
{
    const program *r = w->newer ? &w->r->newer : &w->r->plain;
    regex_scratch *s = w->scratch;
    PCRE2_SPTR text = (PCRE2_SPTR)w->text;
    size_t left = w->n - w->from;
    uint32_t steps = UINT32_MAX;
    if (left < (UINT32_MAX - STEPS_MIN) / STEPS_PER_BYTE)
        steps = STEPS_MIN + STEPS_PER_BYTE * (uint32_t)left;
    pcre2_set_match_limit(s->limits, steps);
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->jit)
        rc = pcre2_jit_match(r->code, text, w->n, w->from, PCRE2_NO_UTF_CHECK, s->data, s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, text, w->n, w->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data,
                         s->limits);
    return rc;
}

static size_t char_length(const char *p)
{
    unsigned char c = (unsigned char)*p;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

pesc_status regex_next(regex_walk *w, bool *found)
{
    *found = false;
    if (!w->begun) {
        w->begun = true;
        w->newer = w->r->newer.code && newchars_in(w->text, w->n);
    }
    while (w->from <= w->n) {
        int rc = match(w);
        if (rc == PCRE2_ERROR_NOMATCH) {
            w->from = w->n + 1;
            return PESC_OK;
        }
        if (rc < 0)
            return overrun(w, rc);
        const PCRE2_SIZE *at = pcre2_get_ovector_pointer(w->scratch->data);
        bool again = at[0] == at[1] && w->any && at[1] == w->end;
        if (!again) {
            w->start = at[0];
            w->end = w->from = at[1];
            w->any = *found = true;
            return PESC_OK;
        }
        w->from += w->from < w->n ? char_length(w->text + w->from) : 1;
    }
    return PESC_OK;
}
