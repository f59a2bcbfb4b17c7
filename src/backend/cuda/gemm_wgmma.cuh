/* gemm_wgmma: dense products of bf16 on Hopper, each the sum of up to six terms. */
#ifndef PESC_BACKEND_CUDA_GEMM_WGMMA_CUH
#define PESC_BACKEND_CUDA_GEMM_WGMMA_CUH

#include "backend/cuda/products.h"

struct gemm_term {
    const void *a, *b;     /* NT: [M,K] [N,K]; NN: [M,K] [K,N]; bf16 */
    int64_t k, a_ld, b_ld; /* ld: elements from one row to the next */
};

/* out [M,N] (+)= the sum of all terms. TMA needs addresses and row pitches that are multiples of 16
 * bytes: N, K and every ld are multiples of 8. */
struct gemm_problem {
    mm_layout layout; /* NT or NN, of all terms */
    void *out;
    int64_t m, n, ld;
    int n_terms;
    gemm_term term[MATMUL_TERMS];
    bool accumulate;
};

void gemm_wgmma(cuda_device *d, const gemm_problem &p);

#endif
