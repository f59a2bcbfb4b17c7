#include "eval/overlap.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- ROUGE-L ---- */

typedef struct words {
    str text; /* lower case */
    slice *at;
    size_t n;
} words;

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

static pesc_status split_words(words *w, slice s)
{
    pytext_lower(&w->text, s);
    w->at = mem_alloc(w->text.n / 2 + 1, sizeof *w->at);
    if (!w->at || !str_ok(&w->text))
        return fail_nomem("ROUGE-L", s.n);
    for (size_t i = 0; i < w->text.n; i++) {
        size_t from = i;
        while (i < w->text.n && is_word_byte(w->text.p[i]))
            i++;
        if (i > from)
            w->at[w->n++] = (slice){ w->text.p + from, i - from };
    }
    return PESC_OK;
}

static void free_words(words *w)
{
    str_free(&w->text);
    mem_free(w->at);
}

static bool same(slice a, slice b)
{
    return a.n == b.n && memcmp(a.p, b.p, a.n) == 0;
}

/* The length of the longest common subsequence; one row of the table is kept. */
static pesc_status common_length(const words *a, const words *b, size_t *out)
{
    size_t *row = mem_zalloc(b->n + 1, sizeof *row);
    if (!row)
        return fail_nomem("ROUGE-L", b->n * sizeof *row);
    for (size_t i = 0; i < a->n; i++) {
        size_t diagonal = 0;
        for (size_t j = 1; j <= b->n; j++) {
            size_t above = row[j];
            if (same(a->at[i], b->at[j - 1]))
                row[j] = diagonal + 1;
            else if (row[j - 1] > above)
                row[j] = row[j - 1];
            diagonal = above;
        }
    }
    *out = row[b->n];
    mem_free(row);
    return PESC_OK;
}

pesc_status overlap_rouge_l(slice prediction, slice reference, double *out)
{
    words have = { 0 }, want = { 0 };
    size_t common = 0;
    *out = 0;
    pesc_status s = split_words(&have, prediction);
    if (s == PESC_OK)
        s = split_words(&want, reference);
    if (s == PESC_OK && have.n && want.n)
        s = common_length(&want, &have, &common);
    if (s == PESC_OK && common > 0) {
        double precision = (double)common / (double)have.n;
        double recall = (double)common / (double)want.n;
        *out = 2 * precision * recall / (precision + recall);
    }
    free_words(&have);
    free_words(&want);
    return s;
}

/* ---- chrF ---- */

enum { ORDERS = 6, BETA_SQUARED = 4 };

/* The characters of a text that are not white space, and where its n-grams start, sorted. */
typedef struct grams {
    uint32_t *text;
    size_t n;
    const uint32_t **starts;
} grams;

static pesc_status read_characters(grams *g, slice s)
{
    g->text = mem_alloc(s.n + 1, sizeof *g->text);
    g->starts = mem_alloc(s.n + 1, sizeof *g->starts);
    if (!g->text || !g->starts)
        return fail_nomem("chrF", s.n * sizeof *g->text);
    for (size_t at = 0; at < s.n;) {
        uint32_t cp = (unsigned char)s.p[at];
        int len = utf8_decode(s.p + at, s.n - at, &cp);
        at += len > 0 ? (size_t)len : 1;
        if (!pytext_is_space(cp))
            g->text[g->n++] = cp;
    }
    return PESC_OK;
}

static int compare(const void *a, const void *b, void *order)
{
    const uint32_t *x = *(const uint32_t *const *)a, *y = *(const uint32_t *const *)b;
    for (size_t i = 0; i < *(const size_t *)order; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Sorts the n-grams of this order and returns how many there are. */
static size_t sort_grams(grams *g, size_t order)
{
    size_t n = g->n >= order ? g->n - order + 1 : 0;
    for (size_t i = 0; i < n; i++)
        g->starts[i] = g->text + i;
    qsort_r(g->starts, n, sizeof *g->starts, compare, &order);
    return n;
}

/* How many n-grams of two sorted lists are the same, each counted as often as both have it. */
static size_t count_common(const grams *a, size_t n, const grams *b, size_t m, size_t order)
{
    size_t common = 0;
    for (size_t i = 0, j = 0; i < n && j < m;) {
        int c = compare(&a->starts[i], &b->starts[j], &order);
        common += c == 0;
        i += c <= 0;
        j += c >= 0;
    }
    return common;
}

static double f_score(grams *have, grams *want)
{
    double precision = 0, recall = 0;
    int orders = 0;
    for (size_t order = 1; order <= ORDERS; order++) {
        size_t n = sort_grams(have, order), m = sort_grams(want, order);
        if (n == 0 || m == 0)
            continue;
        double common = (double)count_common(have, n, want, m, order);
        precision += common / (double)n;
        recall += common / (double)m;
        orders++;
    }
    if (orders == 0 || precision + recall == 0)
        return 0;
    precision /= orders;
    recall /= orders;
    return 100 * (1 + BETA_SQUARED) * precision * recall / (BETA_SQUARED * precision + recall);
}

pesc_status overlap_chrf(slice prediction, slice reference, double *out)
{
    grams have = { 0 }, want = { 0 };
    *out = 0;
    pesc_status s = read_characters(&have, prediction);
    if (s == PESC_OK)
        s = read_characters(&want, reference);
    if (s == PESC_OK)
        *out = f_score(&have, &want);
    mem_free(have.text);
    mem_free(have.starts);
    mem_free(want.text);
    mem_free(want.starts);
    return s;
}
