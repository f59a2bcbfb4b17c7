/* packing: copies a block of an operand into the form a micro-kernel reads, one element at a time.
 * The engines pack with SIMD; this plain form takes every layout and dtype at any alignment,
 * defines what they must produce, and serves the cases they have no faster way for. */
#ifndef PESC_BACKEND_CPU_PACKING_H
#define PESC_BACKEND_CPU_PACKING_H

#include "backend/cpu/matmul.h"
#include "base/num.h"

/* See mm_engine: pack_rows and pack_panel. */
void packing_rows(mm_element *dst, const mm_operand *x, mm_format format, mm_block block);
void packing_panel(mm_element *dst, const mm_operand *x, mm_format format, mm_block block);

/* An operand in a block format as f32: the block of it that is asked for, in `values`
 * [MM_UNPACKED], to which *block then refers. Any other operand is returned as it is. The block has
 * at most MM_NR rows and MM_KC elements, and begins at multiples of 32 values. */
mm_operand packing_unpacked(const mm_engine *engine, const mm_operand *x, mm_format format,
                            mm_block *block, float *values);

/* Values of k in an element. */
static inline int64_t packing_values(mm_format format)
{
    return format >= MM_BF16_PAIR ? 2 : 1;
}

/* Elements that k values take, the last perhaps half empty. */
static inline int64_t packing_elements(mm_format format, int64_t k)
{
    return num_divide_up(k, packing_values(format));
}

/* The memory of a block, prefetched piece by piece while something else is computed: rows of the
 * operand if k is contiguous, else columns. */
typedef struct packing_prefetch {
    const char *row;
    int64_t stride, bytes; /* of a row */
    int64_t n_rows, at;    /* rows that are left; the next byte of the first of them */
} packing_prefetch;

packing_prefetch packing_prefetch_of(const mm_operand *x, mm_format format, mm_block block);
void packing_prefetch_rows(packing_prefetch *p, int64_t n); /* the next n */

/* Cache lines that are left. */
static inline int64_t packing_prefetch_left(const packing_prefetch *p)
{
    return p->n_rows * num_divide_up(p->bytes, MM_CACHE_LINE);
}

/* The next n cache lines. */
static inline __attribute__((always_inline)) void packing_prefetch_lines(packing_prefetch *p,
                                                                         int64_t n)
{
    for (; n > 0 && p->n_rows > 0; n--) {
        __builtin_prefetch(p->row + p->at, 0, 2);
        p->at += MM_CACHE_LINE;
        if (p->at >= p->bytes) {
            p->row += p->stride;
            p->n_rows--;
            p->at = 0;
        }
    }
}

#endif
