/* nf4_pairs: codes of NF4 as operands of the tensor cores, and the ends of such products.
 *
 * A byte of codes is two neighbours of a row, and two neighbours are what a register of the tensor
 * cores' first operand holds: so a byte becomes a register by one look into a table of 256 pairs of
 * bf16. Each lane has its own copy of the table in its own bank, entries 256 bytes apart, so that
 * an address is two bytes put side by side: the code's and the lane's. */
#ifndef PESC_BACKEND_CUDA_NF4_PAIRS_CUH
#define PESC_BACKEND_CUDA_NF4_PAIRS_CUH

#include <cuda_bf16.h>
#include <stdint.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

enum { NF4_PAIRS_ENTRY = 256, NF4_PAIRS_BYTES = 256 * NF4_PAIRS_ENTRY };

/* Eight lanes fill the copies of an entry with 16 bytes each; the codes are in the first 16. */
template <int THREADS>
__device__ __forceinline__ void nf4_pairs_fill(unsigned char *table, const uint16_t (&codes)[16])
{
    int lane = threadIdx.x % 32;
    uint32_t code = codes[lane % 16];
#pragma unroll
    for (int i = 0; i < 256 * 8 / THREADS; i++) {
        int entry = i * (THREADS / 8) + threadIdx.x / 8;
        uint32_t pair = __shfl_sync(~0u, code, entry >> 4) | __shfl_sync(~0u, code, entry & 15)
                                                                 << 16;
        *(uint4 *)(table + entry * NF4_PAIRS_ENTRY + lane % 8 * 16) =
            make_uint4(pair, pair, pair, pair);
    }
}

/* The pair that byte number BYTE of a word stands for; the earlier element is in its high nibble,
 * and comes first. */
template <int BYTE>
__device__ __forceinline__ uint32_t nf4_pairs_of(const unsigned char *table, uint32_t word,
                                                 uint32_t at)
{
    return *(const uint32_t *)(table + __byte_perm(word, at, 0x5504 | BYTE << 4));
}

/* c += a b, 16x8 from 16x16 and 16x8. */
__device__ __forceinline__ void nf4_pairs_multiply(float (&c)[4], const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- the end of a product: out (+)= scale sum (+ bias) ---- */

__device__ __forceinline__ float nf4_pairs_read(const void *p, bool is_f32, int64_t i)
{
    return is_f32 ? ((const float *)p)[i] : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

/* `to` says what out and bias are, as the kernels' problems do. */
template <class To>
__device__ __forceinline__ void nf4_pairs_store(const To &to, int token, int row, float sum)
{
    int64_t at = token * (int64_t)to.n + row;
    float y = sum * to.scale;
    if (to.bias)
        y += nf4_pairs_read(to.bias, to.bias_f32, row);
    if (to.accumulate)
        y += nf4_pairs_read(to.out, to.out_f32, at);
    if (to.out_f32)
        ((float *)to.out)[at] = y;
    else
        ((__nv_bfloat16 *)to.out)[at] = __float2bfloat16(y);
}

/* ---- the host's side ---- */

/* The code's values, rounded to bf16. */
static inline void nf4_pairs_codes(uint16_t (&codes)[16])
{
    for (int i = 0; i < 16; i++) {
        uint32_t u;
        memcpy(&u, &nf4_code[i], sizeof u);
        codes[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}

#endif
