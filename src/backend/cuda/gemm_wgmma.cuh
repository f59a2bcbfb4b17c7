/* gemm_wgmma: dense products of bf16 on Hopper, each the sum of up to six terms, the first of which
 * may be fp8. */
#ifndef PESC_BACKEND_CUDA_GEMM_WGMMA_CUH
#define PESC_BACKEND_CUDA_GEMM_WGMMA_CUH

#include "backend/cuda/products.h"

struct gemm_term {
    const void *a, *b;     /* NT and fp8: [M,K] [N,K]; NN: [M,K] [K,N] */
    int64_t k, a_ld, b_ld; /* ld: elements from one row to the next */
};

/* out [M,N] (+)= the sum of all terms. TMA needs addresses and row pitches that are multiples of 16
 * bytes: N, K and every ld are multiples of 8, of fp8 of 16.
 *
 * The first n_fp8 terms (NN only) have operands of e4m3; row m of their sum is multiplied by
 * row_scale[m] weight_scale[0]. */
struct gemm_problem {
    mm_layout layout; /* NT or NN, of all terms */
    void *out;
    int64_t m, n, ld;
    int n_terms;
    gemm_term term[MATMUL_TERMS];
    bool accumulate;
    int n_fp8;
    const float *row_scale, *weight_scale; /* device memory, f32 [M] [1] */
};

void gemm_wgmma(cuda_device *d, const gemm_problem &p);

/* Term i of a product: those of `more`, then a b. */
mm_pair gemm_term_of(const mm *a, int i);

/* Whether TMA can read t, and whether a term has types and alignment that the kernel can read. */
bool gemm_aligned(const tensor *t, int64_t ld);
bool gemm_term_fits(const mm_pair &p);

#endif
