/* simd: what the SIMD primitives of every instruction set share.
 *
 * A .c file sets TARGET (the instructions) and PAIRS (whether an element is two bf16), includes one
 * simd_*.h, which includes this file, and then kernel_simd.h. A vector has VECTOR 32-bit lanes:
 * `vec` holds elements, or the bits of f32 values; `vecf` holds f32 sums. SIMD(name) is the
 * intrinsic of that name for whole vectors, or what does the same elsewhere; EVEN_PARTS and
 * ODD_PARTS join the even (odd) 128-bit parts of two vectors. MANY_REGISTERS: there are 32 of them
 * instead of 16. TABLE_OF_16: a vector is a table of sixteen values, which a permutation looks up.
 */
#ifndef PESC_BACKEND_CPU_SIMD_H
#define PESC_BACKEND_CPU_SIMD_H

#include "backend/cpu/matmul.h"
#include "base/num.h"
#include "tensor/nf4.h"

#define INLINE TARGET static inline __attribute__((always_inline))

enum {
    VALUES = PAIRS ? 2 : 1,               /* of k in an element */
    NF4_VECTORS = NF4_BLOCK / 2 / VECTOR, /* of a block of NF4 as pairs */
    DWORDS = 8,                           /* 32-bit words of each row that are transposed at once */
    HIGH_HALF = (int)0xFFFF0000
};

INLINE int64_t bytes_of(dtype dt, int64_t n)
{
    return dt == DT_F32 ? n * 4 : dt == DT_BF16 ? n * 2 : n / 2;
}

/* How far code i, in order of k, of the eight codes in a dword is from its low end, in bits. */
INLINE int nf4_shift(int i)
{
    return i / 2 * 8 + (i % 2 ? 0 : 4);
}

/* Rows of an operand, one for each lane. */
typedef struct row_pointers {
    const char *row[VECTOR];
} row_pointers;

/* Rows first, first + 1, ...; the last row of the operand stands in for those from `end` on. */
INLINE row_pointers rows_from(const void *data, int64_t row_bytes, int64_t first, int64_t end)
{
    row_pointers v;
    for (int i = 0; i < VECTOR; i++)
        v.row[i] = (const char *)data + num_min(first + i, end - 1) * row_bytes;
    return v;
}

/* out[j] = dword j of all rows, in order, where in[i] holds eight dwords of one row (AVX2) or of
 * two (AVX-512, see there). Two steps within each 128-bit part collect equal dwords of four
 * vectors; the last joins the parts of two vectors. */
INLINE void transpose(const vec in[DWORDS], vec out[DWORDS])
{
    vec quads[DWORDS];
#pragma GCC unroll 64
    for (int g = 0; g < DWORDS; g += 4) {
        vec a = SIMD(unpacklo_epi32)(in[g], in[g + 1]);
        vec b = SIMD(unpackhi_epi32)(in[g], in[g + 1]);
        vec c = SIMD(unpacklo_epi32)(in[g + 2], in[g + 3]);
        vec d = SIMD(unpackhi_epi32)(in[g + 2], in[g + 3]);
        quads[g] = SIMD(unpacklo_epi64)(a, c);
        quads[g + 1] = SIMD(unpackhi_epi64)(a, c);
        quads[g + 2] = SIMD(unpacklo_epi64)(b, d);
        quads[g + 3] = SIMD(unpackhi_epi64)(b, d);
    }
#pragma GCC unroll 64
    for (int j = 0; j < 4; j++) {
        out[j] = EVEN_PARTS(quads[j], quads[j + 4]);
        out[j + 4] = ODD_PARTS(quads[j], quads[j + 4]);
    }
}

#endif
