/* nf4_table: NF4 codes become operands of the tensor cores by one look-up.
 *
 * A byte holds the codes of two neighbours of a row, and two neighbours (as bf16) are what one
 * register of mma's first operand holds. So a table of 256 pairs turns a byte into a register. Each
 * of the 32 lanes has its own copy of the table in its own bank of shared memory: no conflicts,
 * whatever the codes. Entries are 256 bytes apart, so that an address is two bytes side by side:
 * the codes, and the lane's offset. */
#ifndef PESC_BACKEND_CUDA_NF4_TABLE_CUH
#define PESC_BACKEND_CUDA_NF4_TABLE_CUH

#include "backend/cuda/warp.cuh"

#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

enum { NF4_TABLE_ENTRY = 256, NF4_TABLE_BYTES = 256 * NF4_TABLE_ENTRY };

/* The 16 values of the code, rounded to bf16: a kernel's parameter. */
struct nf4_values {
    uint16_t bits[16];
};

static inline nf4_values nf4_table_values(void)
{
    nf4_values v;
    for (int i = 0; i < 16; i++) {
        uint32_t u;
        memcpy(&u, &nf4_code[i], sizeof u);
        v.bits[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    return v;
}

/* THREADS threads fill the table: eight lanes write the 32 copies of an entry, 16 bytes each. The
 * caller synchronises. */
template <int THREADS>
__device__ __forceinline__ void nf4_table_fill(unsigned char *table, const nf4_values &values)
{
    int lane = threadIdx.x % 32;
    uint32_t value = values.bits[lane % 16];
#pragma unroll
    for (int i = 0; i < (256 * 8 + THREADS - 1) / THREADS; i++) {
        int entry = i * (THREADS / 8) + threadIdx.x / 8;
        uint32_t pair = __shfl_sync(~0u, value, entry >> 4) | __shfl_sync(~0u, value, entry & 15)
                                                                  << 16;
        if (256 * 8 % THREADS == 0 || entry < 256)
            *(uint4 *)(table + entry * NF4_TABLE_ENTRY + lane % 8 * 16) =
                make_uint4(pair, pair, pair, pair);
    }
}

/* The pair that byte number BYTE of a word of codes stands for. The earlier element is in the high
 * nibble, and comes first. `lane_offset`: 4 times the lane. */
template <int BYTE>
__device__ __forceinline__ uint32_t nf4_table_pair(const unsigned char *table, uint32_t word,
                                                   uint32_t lane_offset)
{
    return *(const uint32_t *)(table + __byte_perm(word, lane_offset, 0x5504 | BYTE << 4));
}

#endif
