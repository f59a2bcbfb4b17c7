/* pack: words of a side, one by one: the plain form of what engines do with vectors. It takes every
 * layout and dtype at any alignment, and serves the engines that have nothing faster. */
#ifndef PESC_BACKEND_CPU_PACK_H
#define PESC_BACKEND_CPU_PACK_H

#include "backend/cpu/matmul.h"

void pack_rows(mm_word *dst, const mm_side *x, mm_words words, mm_box box);
void pack_lanes(mm_word *dst, const mm_side *x, mm_words words, mm_box box);

static inline int64_t pack_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t pack_divide_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static inline int64_t pack_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Elements of k in a word. */
static inline int64_t pack_per_word(mm_words words)
{
    return words >= MM_BF16_PAIR ? 2 : 1;
}

/* Memory to be fetched piece by piece while something else is computed: rows `stride` apart. */
typedef struct pack_ahead {
    const char *at;
    int64_t stride, bytes, rows, row;
} pack_ahead;

/* The memory of a box of a side. */
pack_ahead pack_ahead_of(const mm_side *x, mm_words words, mm_box box);
void pack_fetch(pack_ahead *a, int64_t n_rows); /* the next of them */

#endif
