/* nf4: decodes NF4 matrices to f32 or bf16, for kernels that cannot read codes.
 *
 * Bound: memory. A thread has four words of eight codes each in flight, and writes each as one or
 * two vectors; neighbouring threads have neighbouring words. A matrix is a span: its codes, a word
 * for each eight, then its scales, one for each 64. */
#include "backend/cuda/products.h"

#include <cuda_bf16.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

enum { THREADS = 256, WORDS = 4 }; /* words of a thread */

struct code_table {
    float value[16];
};

/* Eight elements of a word: the earlier of two is in the high nibble of its byte. */
__device__ __forceinline__ void decode_word(float *x, uint32_t word, float scale, const float *code)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = code[word >> (i / 2 * 8 + (1 - i % 2) * 4) & 15] * scale;
}

__device__ __forceinline__ void store(__nv_bfloat16 *out, const float *x)
{
    __nv_bfloat162 pair[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair[i] = __floats2bfloat162_rn(x[2 * i], x[2 * i + 1]);
    *(uint4 *)out = *(const uint4 *)pair;
}

__device__ __forceinline__ void store(float *out, const float *x)
{
    ((float4 *)out)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)out)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* Matrix number blockIdx.y of a stack: a span of `bytes` becomes n elements. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    decode_kernel(T *__restrict__ out, const unsigned char *__restrict__ spans, int64_t n,
                  int64_t bytes, code_table table)
{
    __shared__ float code[16]; /* in 16 different banks */
    if (threadIdx.x < 16)
        code[threadIdx.x] = table.value[threadIdx.x];
    __syncthreads();
    int64_t words = (n + 7) / 8, first = (int64_t)blockIdx.x * THREADS * WORDS + threadIdx.x;
    const uint32_t *codes = (const uint32_t *)(spans + blockIdx.y * bytes);
    const float *scales = (const float *)(codes + words);
    out += blockIdx.y * n;
    uint32_t word[WORDS];
    float scale[WORDS];
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int64_t at = first + i * THREADS;
        if (at < words) {
            word[i] = codes[at];
            scale[i] = scales[at / 8];
        }
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        int64_t at = first + i * THREADS;
        float x[8];
        if (at >= words)
            return;
        decode_word(x, word[i], scale[i], code);
        if (at * 8 + 8 <= n && n % 8 == 0)
            store(out + at * 8, x);
        else
#pragma unroll
            for (int j = 0; j < 8; j++)
                if (at * 8 + j < n)
                    out[at * 8 + j] = (T)x[j];
    }
}

} // namespace

void nf4_decode(cuda_device *d, void *dst, dtype dt, const tensor *w)
{
    int64_t stack = w->nd == 3 ? w->ne[0] : 1;
    if (tensor_count(w) == 0)
        return;
    int64_t n = tensor_count(w) / stack, bytes = (int64_t)tensor_bytes(w) / stack;
    int64_t words = (n + 7) / 8;
    dim3 grid((unsigned)((words + THREADS * WORDS - 1) / (THREADS * WORDS)), (unsigned)stack);
    const unsigned char *spans = (const unsigned char *)w->data;
    code_table table;
    memcpy(table.value, nf4_code, sizeof table.value);
    if (dt == DT_BF16)
        decode_kernel<<<grid, THREADS, 0, d->stream>>>((__nv_bfloat16 *)dst, spans, n, bytes,
                                                       table);
    else
        decode_kernel<<<grid, THREADS, 0, d->stream>>>((float *)dst, spans, n, bytes, table);
    cuda_launched(d, "decoding nf4");
}
