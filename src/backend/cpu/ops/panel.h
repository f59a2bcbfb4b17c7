/* panel: small products for attention through the engine (matmul.h), which gives a row the same
 * bits whatever is computed with it.
 *
 * Rows are packed as blocks [words / MM_K][room for `most` rows][MM_K], columns as panels of 32
 * lanes [columns / 32][words][32], both with zeros after the last word. */
#ifndef PESC_BACKEND_CPU_OPS_PANEL_H
#define PESC_BACKEND_CPU_OPS_PANEL_H

#include "backend/cpu/matmul.h"
#include "backend/cpu/pack.h"

static inline int64_t panel_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* n vectors of k numbers, one after the other. */
static inline mm_side panel_side(const void *data, dtype dt, int64_t n, int64_t k)
{
    return (mm_side){ .data = data, .dt = dt, .k_last = true, .ld = k, .n = n, .k = k };
}

/* The same memory the other way round: its vectors become the numbers of k vectors. */
static inline mm_side panel_turned(mm_side x)
{
    int64_t n = x.n;
    x.k_last = !x.k_last;
    x.n = x.k;
    x.k = n;
    return x;
}

/* Words that n numbers take. */
static inline int64_t panel_words(const mm_engine *e, int64_t n)
{
    int64_t per_word = pack_per_word(e->words);
    return pack_round_up((n + per_word - 1) / per_word, MM_WORDS);
}

/* Words that rows and columns of `words` words take when packed. */
static inline int64_t panel_rows_room(int64_t most, int64_t words)
{
    return pack_round_up(words, MM_K) * most;
}

static inline int64_t panel_lanes_room(int64_t columns, int64_t words)
{
    return pack_round_up(columns, MM_LANES) * words;
}

static inline void panel_rows(const mm_engine *e, mm_word *dst, const mm_side *x, int64_t most,
                              int64_t words)
{
    for (int64_t w = 0; w < words; w += MM_K)
        for (int64_t r = 0; r < x->n; r += 16)
            e->pack_rows(dst + (w / MM_K * most + r) * MM_K, x, e->words,
                         (mm_box){ r, panel_least(16, x->n - r), w, panel_least(MM_K, words - w) });
}

static inline void panel_lanes(const mm_engine *e, mm_word *dst, const mm_side *x, int64_t words)
{
    for (int64_t c = 0; c < x->n; c += MM_LANES)
        for (int64_t w = 0; w < words; w += MM_K)
            e->pack_lanes(
                dst + (c * words + w * MM_LANES), x, e->words,
                (mm_box){ c, panel_least(MM_LANES, x->n - c), w, panel_least(MM_K, words - w) });
}

/* Around the products of one range of work, by the thread that runs it. */
static inline void panel_begin(const mm_engine *e)
{
    if (e->begin)
        e->begin();
}

static inline void panel_end(const mm_engine *e)
{
    if (e->end)
        e->end();
}

/* sums [n_rows][ld], whole panels of columns, (+)= rows times columns, both of nw words. */
static inline void panel_multiply(const mm_engine *e, mm_tile t, int64_t most, int64_t columns)
{
    mm_tile part = t;
    part.words = e->words;
    for (int64_t c = 0; c < columns; c += MM_LANES)
        for (int64_t w = 0; w < t.nw; w += MM_K)
            for (int64_t r = 0; r < t.n_rows; r += e->rows) {
                part.sums = t.sums + r * t.ld + c;
                part.rows = t.rows + (w / MM_K * most + r) * MM_K;
                part.lanes = t.lanes + (c * t.nw + w * MM_LANES);
                part.row = MM_K;
                part.n_rows = panel_least(e->rows, t.n_rows - r);
                part.n_lanes = panel_least(MM_LANES, columns - c);
                part.nw = panel_least(MM_K, t.nw - w);
                part.add = t.add || w > 0;
                e->tile(&part);
            }
}

#endif
