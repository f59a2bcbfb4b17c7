/* products: which kernel computes a product of matrices.
 *
 * The table is CUDA_PRODUCTS of cuda_kernels.h; the first row that serves a product computes it.
 * The choice depends on the shape, the types, the alignment and the GPU alone: the same product
 * takes the same kernel in every run. */
#ifndef PESC_BACKEND_CUDA_PRODUCTS_H
#define PESC_BACKEND_CUDA_PRODUCTS_H

#ifdef __cplusplus
extern "C" {
#endif

#include "backend/cuda/cuda.h"
#include "backend/cuda_kernels.h"

typedef struct product_kernel {
    kernel_traits traits;
    bool sums;        /* it computes the terms of mm.more too, in one launch */
    int32_t together; /* products of the same activations that one launch computes, at most */
    bool (*fits)(const cuda_device *d, const mm *a);    /* NULL: whatever the traits allow */
    void (*launch)(cuda_device *d, const mm *a, int n); /* 1 <= n <= together */
} product_kernel;

/* Whether a, b and out are matrices of their own, not columns of wider ones. */
bool product_whole(const mm *a);

/* 5 to 8 rows of bf16 against NF4 on Hopper: weights are streamed through shared memory. */
bool nf4_stream_fits(const cuda_device *d, const mm *a);
void nf4_stream_launch(cuda_device *d, const mm *a, int n);

/* 1 to 8 rows of bf16 against NF4: weights are streamed through registers. */
bool nf4_gemv_fits(const cuda_device *d, const mm *a);
void nf4_gemv_launch(cuda_device *d, const mm *a, int n);

/* 9 to 32 rows of bf16 against NF4: split-K with mma.sync. */
bool nf4_split_k_fits(const cuda_device *d, const mm *a);
void nf4_split_k_launch(cuda_device *d, const mm *a, int n);

/* 33 to 256 rows of bf16 against NF4 on Hopper: wgmma with codes decoded in registers. */
bool nf4_wgmma_fits(const cuda_device *d, const mm *a);
void nf4_wgmma_launch(cuda_device *d, const mm *a, int n);

/* 1 to 8 rows of bf16 against bf16. */
bool gemv_fits(const cuda_device *d, const mm *a);
void gemv_launch(cuda_device *d, const mm *a, int n);

/* The terms of mm.more of n products of 1 to 64 rows, added to what their `out` has; bf16. */
enum { LORA_FEW_PRODUCTS = 3 };
bool lora_few_fits(const cuda_device *d, const mm *a, int n);
void lora_few_launch(cuda_device *d, const mm *a, int n);

/* Many rows of bf16 on Hopper: all terms of a sum in one pass over `out`. */
bool gemm_wgmma_fits(const cuda_device *d, const mm *a);
void gemm_wgmma_launch(cuda_device *d, const mm *a, int n);

/* Many rows of bf16 on Hopper, terms of frozen weights in fp8 where mm.fp8_terms allows it. */
bool gemm_fp8_fits(const cuda_device *d, const mm *a);
void gemm_fp8_launch(cuda_device *d, const mm *a, int n);

/* dX of a router: f32, few experts, many tokens. */
bool router_dx_fits(const cuda_device *d, const mm *a);
void router_dx_launch(cuda_device *d, const mm *a, int n);

/* cuBLASLt, for everything; operands it cannot read are converted in scratch first. */
pesc_status cublaslt_open(cuda_device *d);
void cublaslt_close(cuda_device *d);
void cublaslt_launch(cuda_device *d, const mm *a, int n);

/* An NF4 matrix, or a stack of them, as dt (f32 or bf16) at dst (16-byte aligned). */
void nf4_decode(cuda_device *d, void *dst, dtype dt, const tensor *w);

#ifdef __cplusplus
}
#endif

#endif
