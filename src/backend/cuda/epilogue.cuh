/* epilogue: the end of a product, out (+)= scale sum (+ bias), for kernels that finish one element
 * at a time. */
#ifndef PESC_BACKEND_CUDA_EPILOGUE_CUH
#define PESC_BACKEND_CUDA_EPILOGUE_CUH

#include "backend/cuda/cuda.h"

#include <cuda_bf16.h>

struct epilogue {
    void *out;        /* [T,n] f32 or bf16 */
    const void *bias; /* [n] f32 or bf16; NULL: none */
    int n;
    float scale;
    bool out_f32, bias_f32, accumulate;
};

static inline epilogue epilogue_of(const mm *a)
{
    return epilogue{ a->out.data,  a->bias.data,        (int)tensor_rows(&a->b),
                     a->scale,     a->out.dt == DT_F32, a->bias.dt == DT_F32,
                     a->accumulate };
}

__device__ __forceinline__ float epilogue_load(const void *p, bool is_f32, int64_t i)
{
    return is_f32 ? ((const float *)p)[i] : __bfloat162float(((const __nv_bfloat16 *)p)[i]);
}

__device__ __forceinline__ void epilogue_store(const epilogue &e, int token, int column, float sum)
{
    int64_t at = token * (int64_t)e.n + column;
    float y = sum * e.scale;
    if (e.bias)
        y += epilogue_load(e.bias, e.bias_f32, column);
    if (e.accumulate)
        y += epilogue_load(e.out, e.out_f32, at);
    if (e.out_f32)
        ((float *)e.out)[at] = y;
    else
        ((__nv_bfloat16 *)e.out)[at] = __float2bfloat16(y);
}

#endif
