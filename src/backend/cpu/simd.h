/* simd: what the primitives of every instruction set share. A .c file sets TARGET (the
 * instructions) and PAIRS (whether a word is two bf16), includes one simd_*.h, then kernel_body.h.
 *
 * Values are f32 in 32-bit lanes; `vec` holds their bits, `vecf` sums. */
#ifndef PESC_BACKEND_CPU_SIMD_H
#define PESC_BACKEND_CPU_SIMD_H

#include "backend/cpu/matmul.h"
#include "tensor/nf4.h"

#include <immintrin.h>

#define INLINE TARGET static inline __attribute__((always_inline))

enum {
    PER_WORD = PAIRS ? 2 : 1, /* elements of k */
    MEMORY = 8,               /* 32-bit words of memory transposed at once */
    HIGH_HALF = (int)0xFFFF0000
};

INLINE int64_t bytes_of(dtype dt, int64_t n)
{
    return dt == DT_F32 ? n * 4 : dt == DT_BF16 ? n * 2 : n / 2;
}

/* How far element e of eight codes, in order of k, is from the low end of their 32-bit word. */
INLINE int nf4_shift(int e)
{
    return e / 2 * 8 + (e % 2 ? 0 : 4);
}

#endif
