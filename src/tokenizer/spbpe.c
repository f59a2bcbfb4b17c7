#include "tokenizer/spbpe.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MERGES_MAX (1 << 24)

/* A symbol with its longest proper prefix and suffix that are symbols, as indices; -1: none. */
typedef struct affix {
    const char *text;
    size_t n;
    int32_t id;
    int32_t prefix, suffix;
} affix;

static bool takes_part(const sp_piece *p)
{
    return p->type == SP_NORMAL || p->type == SP_USER_DEFINED || p->type == SP_UNUSED;
}

static pesc_status add_symbol(vocab *v, const char *text, size_t n, int32_t id, const char *file)
{
    return vocab_add(v, text, n, id) == VOCAB_NOMEM ? fail_nomem(file, n) : PESC_OK;
}

static pesc_status collect_symbols(const spmodel *m, const char *file, vocab *v)
{
    for (size_t i = 0; i < m->n; i++)
        if (takes_part(&m->pieces[i]))
            TRY(add_symbol(v, m->pieces[i].text, m->pieces[i].n, (int32_t)i, file));
    size_t next = m->n;
    for (size_t i = 0; i < m->n; i++) {
        const sp_piece *p = &m->pieces[i];
        for (size_t k = 0; takes_part(p) && k < p->n;) {
            size_t len = (size_t)utf8_decode(p->text + k, p->n - k, NULL);
            if (len == 0)
                return fail(PESC_FORMAT, "%s: piece %zu is not UTF-8", file, i);
            if (vocab_find(v, p->text + k, len) < 0)
                TRY(add_symbol(v, p->text + k, len, (int32_t)next++, file));
            k += len;
        }
    }
    return PESC_OK;
}

static int by_start(const void *pa, const void *pb)
{
    const affix *a = pa, *b = pb;
    int c = memcmp(a->text, b->text, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

static int by_end(const void *pa, const void *pb)
{
    const affix *a = pa, *b = pb;
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 1; i <= n; i++) {
        int c = (unsigned char)a->text[a->n - i] - (unsigned char)b->text[b->n - i];
        if (c)
            return c;
    }
    return (a->n > b->n) - (a->n < b->n);
}

static int by_id(const void *pa, const void *pb)
{
    const affix *a = pa, *b = pb;
    return (a->id > b->id) - (a->id < b->id);
}

static bool begins(const affix *a, const affix *b)
{
    return a->n < b->n && memcmp(a->text, b->text, a->n) == 0;
}

static bool ends(const affix *a, const affix *b)
{
    return a->n < b->n && memcmp(a->text, b->text + b->n - a->n, a->n) == 0;
}

/* In sorted order a symbol's prefixes come before it, the longest nearest: a stack of those that
 * still may be a prefix finds it in one pass. Ids are written, since the next sort moves things. */
static void link_affixes(affix *a, size_t n, size_t *stack, bool prefix)
{
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        while (depth && !(prefix ? begins : ends)(&a[stack[depth - 1]], &a[i]))
            depth--;
        int32_t near = depth ? a[stack[depth - 1]].id : -1;
        if (prefix)
            a[i].prefix = near;
        else
            a[i].suffix = near;
        stack[depth++] = i;
    }
}

/* After this `a` is in order of ids. */
static void link_all(affix *a, size_t n, size_t *scratch)
{
    qsort(a, n, sizeof *a, by_start);
    link_affixes(a, n, scratch, true);
    qsort(a, n, sizeof *a, by_end);
    link_affixes(a, n, scratch, false);
    qsort(a, n, sizeof *a, by_id);
}

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *pa, const void *pb)
{
    const scored *a = pa, *b = pb;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->id > b->id) - (a->id < b->id);
}

/* rank[id] of every piece: 0 for the highest score, equal for equal scores. */
static pesc_status rank_pieces(const spmodel *m, const char *file, uint32_t *rank)
{
    scored *list = mem_alloc(m->n + 1, sizeof *list);
    if (!list)
        return fail_nomem(file, m->n * sizeof *list);
    for (size_t i = 0; i < m->n; i++)
        list[i] = (scored){ m->pieces[i].score, (int32_t)i };
    qsort(list, m->n, sizeof *list, by_score);
    uint32_t r = 0;
    for (size_t i = 0; i < m->n; i++) {
        r += i > 0 && list[i].score != list[i - 1].score;
        rank[list[i].id] = r;
    }
    mem_free(list);
    return PESC_OK;
}

typedef struct work {
    affix *a;
    size_t n;
    int32_t *at; /* id -> index in a */
    size_t *stack;
    int32_t *suffixes; /* of the piece being cut */
    uint32_t *rank;
    bpe_merge *merges;
    size_t n_merges, cap;
} work;

static pesc_status push(work *w, bpe_merge m, const char *file)
{
    if (w->n_merges == MERGES_MAX)
        return fail(PESC_UNSUPPORTED, "%s: the pieces can be merged in more than %d ways", file,
                    MERGES_MAX);
    if (!mem_room((void **)&w->merges, &w->cap, w->n_merges, sizeof *w->merges))
        return fail_nomem(file, w->cap * 2 * sizeof *w->merges);
    w->merges[w->n_merges++] = m;
    return PESC_OK;
}

/* Every cut of a piece into two symbols: its prefixes by falling length, its suffixes by rising
 * length (noted on the way down), until both add up. */
static pesc_status cut_piece(work *w, const spmodel *m, const affix *p, const char *file)
{
    size_t n = 0;
    for (int32_t s = p->suffix; s >= 0; s = w->a[w->at[s]].suffix)
        w->suffixes[n++] = s;
    for (int32_t left = p->prefix; left >= 0; left = w->a[w->at[left]].prefix) {
        size_t want = p->n - w->a[w->at[left]].n;
        while (n > 0 && w->a[w->at[w->suffixes[n - 1]]].n < want)
            n--;
        if (n == 0 || w->a[w->at[w->suffixes[n - 1]]].n != want)
            continue;
        if (m->pieces[p->id].type == SP_UNUSED)
            return fail(PESC_UNSUPPORTED,
                        "%s: piece %d, '%s', is unused but can be merged from others; that is not "
                        "supported",
                        file, p->id, m->pieces[p->id].text);
        TRY(push(w, (bpe_merge){ left, w->suffixes[n - 1], p->id, w->rank[p->id] }, file));
    }
    return PESC_OK;
}

static pesc_status cut_all(work *w, const spmodel *m, const vocab *symbols, const char *file)
{
    for (size_t id = 0; id < symbols->n; id++) {
        size_t n = 0;
        const char *text = vocab_text(symbols, (int64_t)id, &n);
        if (text)
            w->a[w->n++] = (affix){ text, n, (int32_t)id, -1, -1 };
    }
    TRY(rank_pieces(m, file, w->rank));
    link_all(w->a, w->n, w->stack);
    for (size_t i = 0; i < w->n; i++)
        w->at[w->a[i].id] = (int32_t)i;
    for (size_t i = 0; i < w->n && w->a[i].id < (int64_t)m->n; i++)
        TRY(cut_piece(w, m, &w->a[i], file));
    return PESC_OK;
}

pesc_status spbpe_merges(const spmodel *m, const char *file, vocab *symbols, bpe_merge **merges,
                         size_t *n)
{
    *merges = NULL;
    *n = 0;
    TRY(collect_symbols(m, file, symbols));
    work w = { 0 };
    w.a = mem_alloc(symbols->n + 1, sizeof *w.a);
    w.at = mem_alloc(symbols->n + 1, sizeof *w.at);
    w.stack = mem_alloc(symbols->n + 1, sizeof *w.stack);
    w.rank = mem_alloc(m->n + 1, sizeof *w.rank);
    w.suffixes = mem_alloc((size_t)symbols->longest + 1, sizeof *w.suffixes);
    pesc_status s = w.a && w.at && w.stack && w.rank && w.suffixes
                        ? cut_all(&w, m, symbols, file)
                        : fail_nomem(file, symbols->n * sizeof *w.a);
    mem_free(w.a);
    mem_free(w.at);
    mem_free(w.stack);
    mem_free(w.rank);
    mem_free(w.suffixes);
    if (s == PESC_OK) {
        *merges = w.merges;
        *n = w.n_merges;
    } else {
        mem_free(w.merges);
    }
    return s;
}
