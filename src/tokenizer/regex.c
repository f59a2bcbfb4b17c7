#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include "base/mem.h"
#include "base/str.h"
#include "tokenizer/newchars.h"
#include "tokenizer/onig.h"

#include <pcre2.h>

#define PATTERN_MAX 65536
#define JIT_STACK_MAX (8u << 20)
#define HEAP_MAX_KIB (64u << 10)
#define WINDOW 64u        /* bytes a match is first sought in */
#define WINDOW_STEPS 256u /* at each start in the window */
#define ITEM_STEPS 2u     /* what an item costs, in characters passed over */

typedef struct program {
    pcre2_code *code;
    pcre2_code *counted; /* the same, with a callout before each item */
    bool jit;
} program;

struct regex {
    program plain;
    program newer; /* for texts with characters newer than PCRE2; code NULL: the plain one */
    char *where;
};

struct regex_scratch {
    pcre2_match_data *data;
    pcre2_match_context *limits;  /* of matches in a window */
    pcre2_match_context *counted; /* of matches that are counted: by this callout's state */
    pcre2_jit_stack *stack;
    budget *work;
    size_t at; /* where the last callout was */
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

static pesc_status cannot_compile(const char *where, int error, size_t at)
{
    char text[160];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return fail(PESC_UNSUPPORTED,
                "%s: the regular expression cannot be compiled: %s (near byte %zu)", where, text,
                at);
}

static pesc_status compile(program *r, const str *p, const char *where)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_general_context *g = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    pcre2_compile_context *c = g ? pcre2_compile_context_create(g) : NULL;
    PCRE2_SPTR pattern = (PCRE2_SPTR)(p->p ? p->p : "");
    int error = PCRE2_ERROR_HEAP_FAILED, jit = 0;
    PCRE2_SIZE at = 0;
    if (c) {
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(c, PATTERN_MAX);
        r->code = pcre2_compile(pattern, p->n, options, &error, &at, c);
        if (r->code)
            r->counted = pcre2_compile(pattern, p->n, options | PCRE2_AUTO_CALLOUT, &error, &at, c);
    }
    if (r->counted)
        jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    if (error == PCRE2_ERROR_HEAP_FAILED || jit == PCRE2_ERROR_NOMEMORY)
        return fail_nomem("compiling a regular expression", p->n);
    r->jit = jit == 0;
    return r->counted ? PESC_OK : cannot_compile(where, error, at);
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
    pcre2_code_free(r->plain.counted);
    pcre2_code_free(r->newer.code);
    pcre2_code_free(r->newer.counted);
    mem_free(r->where);
    mem_free(r);
}

/* Called before each item of a pattern: it costs ITEM_STEPS, and the characters passed over since,
 * which are cheaper. */
static int count_item(pcre2_callout_block *block, void *scratch)
{
    regex_scratch *s = scratch;
    size_t at = block->current_position;
    size_t passed = at > s->at ? at - s->at : s->at - at;
    s->at = at;
    return budget_take_steps(s->work, ITEM_STEPS + passed) ? 0 : PCRE2_ERROR_CALLOUT;
}

pesc_status regex_scratch_open(regex_scratch **out)
{
    *out = NULL;
    regex_scratch *s = mem_zalloc(1, sizeof *s);
    pcre2_general_context *g = pcre2_general_context_create(pcre2_take, pcre2_give, NULL);
    if (s && g) {
        s->data = pcre2_match_data_create(1, g);
        s->limits = pcre2_match_context_create(g);
        s->counted = pcre2_match_context_create(g);
        s->stack = pcre2_jit_stack_create(32u << 10, JIT_STACK_MAX, g);
    }
    pcre2_general_context_free(g);
    if (!s || !s->data || !s->limits || !s->counted || !s->stack) {
        regex_scratch_close(s);
        return fail_nomem("matching a regular expression", sizeof *s);
    }
    pcre2_set_match_limit(s->limits, WINDOW_STEPS);
    pcre2_set_heap_limit(s->limits, HEAP_MAX_KIB);
    pcre2_set_match_limit(s->counted, UINT32_MAX);
    pcre2_set_heap_limit(s->counted, HEAP_MAX_KIB);
    pcre2_set_callout(s->counted, count_item, s);
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
    pcre2_match_context_free(s->counted);
    pcre2_jit_stack_free(s->stack);
    mem_free(s);
}

static pesc_status overrun(const regex_walk *w, int error)
{
    if (error == PCRE2_ERROR_NOMEMORY)
        return fail_nomem("matching a regular expression", w->n);
    if (error == PCRE2_ERROR_CALLOUT)
        return fail(PESC_UNSUPPORTED,
                    "%s: the regular expression takes too many steps for a text of %zu bytes "
                    "(at byte %zu of %zu): refused",
                    w->r->where, w->work->input, w->from, w->n);
    char text[160];
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return fail(PESC_UNSUPPORTED,
                "%s: the regular expression cannot be matched with this text (byte %zu of %zu): %s",
                w->r->where, w->from, w->n, text);
}

static size_t char_length(const char *p)
{
    unsigned char c = (unsigned char)*p;
    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

static const program *program_of(const regex_walk *w)
{
    return w->newer ? &w->r->newer : &w->r->plain;
}

/* Where a window from w->from ends: between two characters. */
static size_t window_end(const regex_walk *w)
{
    size_t end = w->from + WINDOW;
    if (end >= w->n)
        return w->n;
    while (((unsigned char)w->text[end] & 0xC0) == 0x80)
        end--;
    return end;
}

/* The first match in text[from..end). Where the rest of the text could change the answer it is
 * PCRE2_ERROR_PARTIAL, with the start in question. */
static int match_window(const regex_walk *w, size_t end)
{
    const program *p = program_of(w);
    regex_scratch *s = w->scratch;
    PCRE2_SPTR text = (PCRE2_SPTR)w->text;
    uint32_t options = PCRE2_NO_UTF_CHECK | (end < w->n ? PCRE2_PARTIAL_HARD : 0);
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (p->jit)
        rc = pcre2_jit_match(p->code, text, end, w->from, options, s->data, s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, text, end, w->from, options | PCRE2_NO_JIT, s->data, s->limits);
    return rc;
}

/* The match that begins at w->from in the whole text, every step counted. */
static int match_counted(const regex_walk *w)
{
    regex_scratch *s = w->scratch;
    s->work = w->work;
    s->at = w->from;
    return pcre2_match(program_of(w)->counted, (PCRE2_SPTR)w->text, w->n, w->from,
                       PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, s->data, s->counted);
}

static size_t next_start(const regex_walk *w)
{
    return w->from + (w->from < w->n ? char_length(w->text + w->from) : 1);
}

/* The next match at or after w->from, as PCRE2's code; w->from then is where it was sought last. */
static int search(regex_walk *w)
{
    while (w->from <= w->n) {
        if (w->from >= w->counted) {
            size_t end = window_end(w);
            int rc = match_window(w, end);
            if (rc == PCRE2_ERROR_NOMATCH && end < w->n) {
                w->from = end;
                continue;
            }
            if (rc == PCRE2_ERROR_PARTIAL)
                w->from = pcre2_get_ovector_pointer(w->scratch->data)[0];
            else if (rc == PCRE2_ERROR_MATCHLIMIT)
                w->counted = end + 1; /* which start it was is not known */
            else
                return rc;
        }
        int rc = match_counted(w);
        if (rc != PCRE2_ERROR_NOMATCH)
            return rc;
        w->from = next_start(w);
    }
    return PCRE2_ERROR_NOMATCH;
}

pesc_status regex_next(regex_walk *w, bool *found)
{
    *found = false;
    if (!w->begun) {
        w->begun = true;
        w->newer = w->r->newer.code && newchars_in(w->text, w->n);
    }
    while (w->from <= w->n) {
        int rc = search(w);
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
        w->from = next_start(w);
    }
    return PESC_OK;
}
