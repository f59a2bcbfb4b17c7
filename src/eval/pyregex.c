#define PCRE2_CODE_UNIT_WIDTH 8
#include "eval/pyregex.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <pcre2.h>
#include <string.h>

#define PATTERN_MAX 65536
#define SEARCH_COST 16 /* steps that take as long as what a search sets up */
#define HEAP_MAX_KIB (64u << 10)

struct pyregex {
    pcre2_code *code;
    allowance *work;
    char *where;
    bool refers_back;
};

/* The state of a search: PCRE2's own limits count neither the characters that one item passes over
 * nor what earlier searches took. */
typedef struct counter {
    uint64_t steps, most, each;
    size_t at; /* where the last callout was */
} counter;

/* Called before each item of a pattern: it costs `each`, and the characters passed over since. */
static int count_item(pcre2_callout_block *block, void *state)
{
    counter *n = state;
    size_t at = block->current_position;
    n->steps += n->each + (at > n->at ? at - n->at : n->at - at);
    n->at = at;
    return n->steps <= n->most ? 0 : PCRE2_ERROR_CALLOUT;
}

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

pesc_status pyregex_open(pyregex **out, const char *pattern, const char *where, allowance *work)
{
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C;
    *out = NULL;
    pyregex *r = mem_zalloc(1, sizeof *r);
    pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *c = g ? pcre2_compile_context_create(g) : NULL;
    int error = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE at = 0;
    uint32_t groups = 0;
    if (r && c && (r->where = mem_strdup(where))) {
        r->work = work;
        pcre2_set_newline(c, PCRE2_NEWLINE_LF);
        pcre2_set_max_pattern_length(c, PATTERN_MAX);
        r->code =
            pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, options, &error, &at, c);
    }
    pcre2_compile_context_free(c);
    pcre2_general_context_free(g);
    pesc_status s = r && r->code ? PESC_OK : cannot("compiled", where, error);
    if (s == PESC_OK) {
        pcre2_pattern_info(r->code, PCRE2_INFO_BACKREFMAX, &groups);
        r->refers_back = groups > 0;
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

static pesc_status search(const pyregex *r, slice text, size_t from, pyregex_match *m, bool *found)
{
    pcre2_general_context *g = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_match_data *data = g ? pcre2_match_data_create(PYREGEX_GROUPS, g) : NULL;
    pcre2_match_context *limits = g ? pcre2_match_context_create(g) : NULL;
    counter n = { .most = allowance_left(r->work), .each = 1, .at = from };
    if (r->refers_back) /* a comparison that fails may have passed over much */
        n.each += text.n / 16;
    int rc = PCRE2_ERROR_NOMEMORY;
    if (data && limits) {
        pcre2_set_match_limit(limits, UINT32_MAX);
        pcre2_set_heap_limit(limits, HEAP_MAX_KIB);
        pcre2_set_callout(limits, count_item, &n);
        rc = pcre2_match(r->code, (PCRE2_SPTR)text.p, text.n, from, PCRE2_NO_UTF_CHECK, data,
                         limits);
    }
    *found = rc >= 0;
    if (*found)
        read_groups(r, text, data, m);
    /* Without a callout nothing was tried after the last place: the rest was only looked through.
     */
    allowance_take(r->work, n.steps + SEARCH_COST + ((*found ? m->end : text.n) - from) / 16);
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    pcre2_general_context_free(g);
    if (rc == PCRE2_ERROR_CALLOUT || n.most == 0)
        return allowance_spent(r->where);
    return rc >= 0 || rc == PCRE2_ERROR_NOMATCH ? PESC_OK : cannot("matched", r->where, rc);
}

static size_t next_character(slice text, size_t at)
{
    at++;
    while (at < text.n && ((unsigned char)text.p[at] & 0xC0) == 0x80)
        at++;
    return at;
}

pesc_status pyregex_next(pyregex_walk *w, pyregex_match *m, bool *found)
{
    *found = false;
    if (w->from == 0 && !utf8_valid(w->text.p, w->text.n))
        return fail(PESC_FORMAT, "%s: the text is not UTF-8", w->r->where);
    if (w->from > w->text.n)
        return PESC_OK;
    TRY(search(w->r, w->text, w->from, m, found));
    if (*found)
        w->from = m->start == m->end ? next_character(w->text, m->end) : m->end;
    return PESC_OK;
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

/* What an empty match stands before is copied. */
pesc_status pyregex_sub(const pyregex *r, slice text, const char *replacement, str *out)
{
    pyregex_walk w = { .r = r, .text = text };
    pyregex_match m;
    size_t copied = 0;
    bool found = true;
    while (str_ok(out)) {
        TRY(pyregex_next(&w, &m, &found));
        if (!found)
            break;
        str_add(out, text.p + copied, m.start - copied);
        put_replacement(out, replacement, &m);
        copied = m.end;
    }
    str_add(out, text.p + copied, text.n - copied);
    return str_ok(out) ? PESC_OK : fail_nomem("replacing text", out->n);
}
