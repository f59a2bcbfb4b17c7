/* product: dense products of bf16 on Hopper, each the sum of several. */
#ifndef PESC_BACKEND_CUDA_PRODUCT_CUH
#define PESC_BACKEND_CUDA_PRODUCT_CUH

#include "backend/cuda/cuda.h"

enum { PRODUCT_TERMS = MATMUL_TERMS };

/* Rows lie `ld` numbers apart. */
struct product_term {
    const void *a, *b; /* NT: [M,K] [N,K]; NN: [M,K] [K,N] */
    int64_t k, a_ld, b_ld;
};

/* out [M,N] (+)= the sum of all terms. M, N and K are any, but everything is aligned to 16 bytes:
 * memory, and so N, K and the lds to 8. */
struct product_problem {
    mm_layout layout; /* NT or NN, of all terms */
    void *out;
    int64_t m, n, ld;
    int n_terms;
    product_term term[PRODUCT_TERMS];
    bool accumulate;
};

void product_wgmma(cuda_device *d, const product_problem &p);

#endif
