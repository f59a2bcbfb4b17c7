/* cuda_kernels: the kernels of matrix products on a GPU, as two tables.
 *
 * A row says which products a kernel serves: rows of activations, compute capabilities, layouts,
 * types, and further conditions, which its function fits() checks. The first row that serves a
 * product computes it. The CUDA part makes its dispatch tables from these rows (cuda/products.c,
 * cuda/grouped.cu). This file needs none of CUDA's headers, so `pesc doctor --kernels` prints the
 * tables, and tests read them, without a GPU. docs/cuda-products.md describes the kernels. */
#ifndef PESC_BACKEND_CUDA_KERNELS_H
#define PESC_BACKEND_CUDA_KERNELS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/cuda_scratch.h"

/* Sets of mm_layout and dtype: bit 1 << value. */
enum {
    KERNEL_NT = 1 << MM_NT,
    KERNEL_NN = 1 << MM_NN,
    KERNEL_TN = 1 << MM_TN,
    KERNEL_LAYOUTS = KERNEL_NT | KERNEL_NN | KERNEL_TN,
    KERNEL_F32 = 1 << DT_F32,
    KERNEL_BF16 = 1 << DT_BF16,
    KERNEL_NF4 = 1 << DT_NF4,
    KERNEL_FLOATS = KERNEL_F32 | KERNEL_BF16
};

typedef struct kernel_traits {
    const char *name, *method;   /* "nf4_gemv", "weights are streamed through registers" */
    const char *needs;           /* what fits() checks, in words; "": nothing, there is no fits() */
    int32_t rows_from, rows_to;  /* rows of activations; rows_to 0: no limit */
    int32_t cc_from, cc_to;      /* compute capabilities; cc_to 0: no limit */
    unsigned layouts, a, b, out; /* sets; a: activations, b: weights */
} kernel_traits;

/* Products (the op matmul):
 * X(name, fits, sums, together, method, needs, rows, compute capabilities, layouts, a, b, out).
 * name##_launch launches it. `sums`: one launch also adds the terms of mm.more. `together`: how
 * many products of the same activations one launch computes, at most. */
/* clang-format off */
#define CUDA_PRODUCTS(X)                                                                           \
    X(gemm_fp8, gemm_fp8_fits, true, 1,                                                            \
      "as gemm_wgmma, terms of frozen weights rounded to e4m3 with power-of-two scales",           \
      "base_grad_dtype fp8; rows of w % 16 == 0, columns % 64 == 0; scale 1; 16-byte aligned",     \
      FP8_TOKENS, 0, 90, 90, KERNEL_NN, KERNEL_BF16, KERNEL_BF16 | KERNEL_NF4, KERNEL_BF16)        \
    X(nf4_wgmma, nf4_wgmma_fits, false, 3,                                                         \
      "wgmma, codes decoded in registers, clusters split k; up to 3 matrices in one launch",       \
      "k % 128 == 0; 16-byte aligned",                                                             \
      33, 256, 90, 90, KERNEL_NT, KERNEL_BF16, KERNEL_NF4, KERNEL_FLOATS)                           \
    X(gemm_wgmma, gemm_wgmma_fits, true, 1,                                                        \
      "wgmma, persistent blocks, tiles of 128x256; sums of products in one launch",                \
      "tiles for 80 % of the multiprocessors; no bias; scale 1; 16-byte aligned rows",             \
      1, 0, 90, 90, KERNEL_NT | KERNEL_NN, KERNEL_BF16, KERNEL_BF16 | KERNEL_NF4, KERNEL_BF16)     \
    X(nf4_stream, nf4_stream_fits, false, 3,                                                       \
      "mma.sync, a warp copies codes to shared memory; up to 3 matrices in one launch",            \
      "k % 256 == 0; 16-byte aligned",                                                             \
      5, 8, 90, 90, KERNEL_NT, KERNEL_BF16, KERNEL_NF4, KERNEL_FLOATS)                             \
    X(nf4_gemv, nf4_gemv_fits, false, 3,                                                           \
      "mma.sync, codes streamed through registers; up to 3 matrices in one launch",                \
      "k % 64 == 0; 16-byte aligned",                                                              \
      1, 8, 80, 0, KERNEL_NT, KERNEL_BF16, KERNEL_NF4, KERNEL_FLOATS)                              \
    X(nf4_split_k, nf4_split_k_fits, false, 1,                                                     \
      "mma.sync, blocks split k, partial sums added in order",                                     \
      "k % 64 == 0; 16-byte aligned; matrices without gaps",                                       \
      9, SPLIT_K_TOKENS, 90, 0, KERNEL_NT, KERNEL_BF16, KERNEL_NF4, KERNEL_FLOATS)                 \
    X(gemv, gemv_fits, false, 1,                                                                   \
      "weights streamed through registers",                                                        \
      "k % 8 == 0; 16-byte aligned; matrices without gaps",                                        \
      1, 8, 80, 0, KERNEL_NT, KERNEL_BF16, KERNEL_BF16, KERNEL_FLOATS)                             \
    X(router_dx, router_dx_fits, false, 1,                                                         \
      "dX of a router: a thread has 4 columns of all experts",                                     \
      "at most 16 experts; columns % 4 == 0; 16-byte aligned; matrices without gaps",              \
      ROUTER_DX_TOKENS, 0, 80, 0, KERNEL_NN, KERNEL_F32, KERNEL_F32, KERNEL_FLOATS)                \
    X(cublaslt, NULL, false, 1,                                                                    \
      "cuBLASLt; weights of another type are converted first",                                     \
      "",                                                                                          \
      0, 0, 80, 0, KERNEL_LAYOUTS, KERNEL_FLOATS, KERNEL_FLOATS | KERNEL_NF4, KERNEL_FLOATS)

/* Grouped products (the op grouped_matmul), without the columns `sums` and `together`; rows are
 * those of all experts. Weights that no row reads as they are become a copy of the activations'
 * type first, so the rows without `needs` serve all pairs of equal types. */
#define CUDA_GROUPED(X)                                                                            \
    X(grouped_gemv, grouped_gemv_fits,                                                             \
      "a warp for each element of the result", "k % 64 == 0; 16-byte aligned",                     \
      1, 32, 80, 0, KERNEL_NT, KERNEL_FLOATS, KERNEL_NF4, KERNEL_FLOATS)                           \
    X(grouped_gemv, grouped_gemv_fits,                                                             \
      "a warp for each element of the result", "k % 8 == 0; 16-byte aligned",                      \
      1, 8, 80, 0, KERNEL_NT, KERNEL_FLOATS, KERNEL_FLOATS, KERNEL_FLOATS)                         \
    X(grouped_wgmma, grouped_wgmma_fits,                                                           \
      "wgmma, persistent blocks, tiles of 128x256",                                                \
      "both sizes of w % 8 == 0; 16-byte aligned; TN to f32; at most 1024 experts",                \
      1, 0, 90, 90, KERNEL_LAYOUTS, KERNEL_BF16, KERNEL_BF16, KERNEL_FLOATS)                       \
    X(grouped_mma, grouped_aligned,                                                                \
      "mma.sync, tiles of 128x128",                                                                \
      "both sizes of w % 8 == 0; 16-byte aligned; TN to f32",                                      \
      1, 0, 80, 0, KERNEL_LAYOUTS, KERNEL_BF16, KERNEL_BF16, KERNEL_FLOATS)                        \
    X(grouped_plain, NULL,                                                                         \
      "f32 arithmetic, tiles of 64x64", "",                                                        \
      1, 0, 80, 0, KERNEL_LAYOUTS, KERNEL_FLOATS, KERNEL_BF16, KERNEL_FLOATS)                      \
    X(grouped_plain, NULL,                                                                         \
      "f32 arithmetic, tiles of 64x64", "",                                                        \
      1, 0, 80, 0, KERNEL_LAYOUTS, KERNEL_F32, KERNEL_F32, KERNEL_FLOATS)                          \
    X(grouped_plain, NULL,                                                                         \
      "f32 arithmetic, tiles of 64x64", "",                                                        \
      1, 0, 80, 0, KERNEL_TN, KERNEL_BF16, KERNEL_F32, KERNEL_FLOATS)
/* clang-format on */

/* A product, by all that traits look at. */
typedef struct kernel_use {
    int64_t rows;
    int32_t cc;
    mm_layout layout;
    dtype a, b, out;
} kernel_use;

/* Whether the traits allow it; fits() may still refuse. */
bool kernel_serves(const kernel_traits *t, const kernel_use *u);

/* The tables' traits in order; static, nothing to free. */
const kernel_traits *kernel_products(size_t *n);
const kernel_traits *kernel_grouped(size_t *n);

#ifdef __cplusplus
}
#endif

#endif
