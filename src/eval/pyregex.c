#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/pyregex.h"

#include "base/mem.h"

#include <pcre2.h>
#include <string.h>

/* Enough for patterns with one free repetition over a text of some hundred thousand characters. */
#define STEPS_MAX 50000000u
#define HEAP_MAX_KIB (64u << 10)

struct pyregex {
    pcre2_code *code;
    char *where;
};

static void *pcre_alloc(PCRE2_SIZE n, void *unused)
{
    (void)unused;
    return mem_alloc(n, 1);
}

static void pcre_free(void *p, void *unused)
{
    (void)unused;
    mem_free(p);
}

static pesc_status cannot(const char *what, const char *where, int error)
{
    char text[160];
    if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED)
        return fail_nomem("a regular expression", 0);
    pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof text);
    return fail(PESC_FORMAT, "%s: the regular expression cannot be %s: %s", where, what, text);
}

pesc_status pyregex_open(pyregex **out, const char *pattern, const char *where)
{
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    *out = NULL;
    pyregex *r = mem_zalloc(1, sizeof *r);
    pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *c = g ? pcre2_compile_context_create(g) : NULL;
    int error = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    uint32_t groups = 0;
    if (r && c && (r->where = mem_strdup(where))) {
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        r->code =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, c);
    }
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    pesc_status s = r && r->code ? PESC_OK : cannot("compiled", where, error);
    if (s == PESC_OK) {
        pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &groups);
        if (groups >= PYREGEX_GROUPS)
            s = fail(PESC_FORMAT, "%s: the regular expression has %u groups; at most %d are read",
                     where, groups, PYREGEX_GROUPS - 1);
    }
    if (s == PESC_OK)
        *out = r;
    else
        pyregex_close(r);
    return s;
}

void pyregex_close(pyregex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    mem_free(r->where);
    mem_free(r);
}

static void read_groups(const pyregex *r, slice text, const pcre2_match_data *data,
                        pyregex_match *m)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer((pcre2_match_data *)(uintptr_t)data);
    uint32_t groups = 0;
    pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    *m = (pyregex_match){ .start = at[0], .end = at[1], .n_groups = groups + 1 };
    for (size_t i = 0; i <= groups; i++)
        if (at[2 * i] != PCRE2_UNSET)
            m->groups[i] = (slice){ text.p + at[2 * i], at[2 * i + 1] - at[2 * i] };
}

pesc_status pyregex_search(const pyregex *r, slice text, size_t from, pyregex_match *m, bool *found)
{
    *found = false;
    if (from > text.n)
        return PESC_OK;
    pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_match_data *data = g ? pcre2_match_data_create(PYREGEX_GROUPS, g) : NULL;
    pcre2_match_context *limits = g ? pcre2_match_context_create(g) : NULL;
    int rc = PCRE2_ERROR_NOMEMORY;
    if (data && limits) {
        pcre2_set_match_limit(limits, STEPS_MAX);
        pcre2_set_heap_limit(limits, HEAP_MAX_KIB);
        rc = pcre2_match(r->code, (PCRE2_SPTR)text.p, text.n, from, 0, data, limits);
    }
    if (rc >= 0) {
        read_groups(r, text, data, m);
        *found = true;
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    pcre2_general_context_free(g);
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? PESC_OK : cannot("matched", r->where, rc);
}

static void put_replacement(str *out, const char *replacement, const pyregex_match *m)
{
    for (const char *p = replacement; *p; p++) {
        if (*p != '\\' || !p[1]) {
            str_putc(out, *p);
            continue;
        }
        p++;
        if (*p >= '1' && *p < '0' + PYREGEX_GROUPS)
            str_add(out, m->groups[*p - '0'].p, m->groups[*p - '0'].n);
        else
            str_putc(out, *p);
    }
}

static size_t next_character(slice text, size_t at)
{
    at++;
    while (at < text.n && ((unsigned char)text.p[at] & 0xC0) == 0x80)
        at++;
    return at;
}

/* After an empty match one character is copied. An empty match may follow a match at its end, as in
 * Python since 3.7. */
pesc_status pyregex_sub(const pyregex *r, slice text, const char *replacement, str *out)
{
    pyregex_match m;
    size_t copied = 0, from = 0;
    bool found;
    for (;;) {
        TRY(pyregex_search(r, text, from, &m, &found));
        if (!found)
            break;
        str_add(out, text.p + copied, m.start - copied);
        put_replacement(out, replacement, &m);
        copied = m.end;
        from = m.end;
        if (m.start == m.end)
            from = next_character(text, m.end);
        if (from > text.n)
            break;
    }
    str_add(out, text.p + copied, text.n - copied);
    return str_ok(out) ? PESC_OK : fail_nomem("replacing text", out->n);
}
