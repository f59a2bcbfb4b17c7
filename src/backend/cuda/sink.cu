/* sink: a logit that joins the softmax of each head and is dropped; the formulas are in
 * cpu/ops/sink.c.
 *
 * Bound: memory. Forward: a warp for each token and head. Backward: a block for each head, whose
 * threads add every 256th token and whose sums are added in order. */
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

template <class O>
__global__ void sink_kernel(O *out, float *lse, const float *sinks, int64_t count, int64_t heads,
                            int64_t n)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    if (i >= count)
        return;
    float l = lse[i], s = sinks[i % heads], top = fmaxf(l, s);
    float both = top + vmath_log(vmath_exp(l - top) + vmath_exp(s - top));
    float part = vmath_exp(l - both);
    __syncwarp();
    if (threadIdx.x % WARP == 0)
        lse[i] = both;
    out += i * n;
    for (int64_t j = threadIdx.x % WARP; j < n; j += WARP)
        out[j] = (O)(part * (float)out[j]);
}

__global__ void sink_bwd_kernel(float *dsinks, const float *delta, const float *lse,
                                const float *sinks, int64_t rows, int64_t heads)
{
    __shared__ float parts[VEC_THREADS];
    int64_t h = blockIdx.x;
    float sum = 0.0f;
    for (int64_t t = threadIdx.x; t < rows; t += VEC_THREADS)
        sum = fmaf(delta[t * heads + h], vmath_exp(sinks[h] - lse[t * heads + h]), sum);
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    sum = 0.0f;
    for (int i = 0; i < VEC_THREADS; i++)
        sum += parts[i];
    dsinks[h] -= sum;
}

} // namespace

extern "C" void cuda_sink_fwd(device *d, tensor out, tensor lse, tensor sinks)
{
    int64_t heads = tensor_count(&sinks), count = tensor_rows(&out) * heads;
    int64_t n = tensor_cols(&out) / heads;
    vec_typed(out.dt, [&](auto o) {
        typedef decltype(o) O;
        vec_launch(d, "sink_fwd", vec_blocks(count, VEC_THREADS / WARP), sink_kernel<O>,
                   (O *)out.data, (float *)lse.data, (const float *)sinks.data, count, heads, n);
    });
}

extern "C" void cuda_sink_bwd(device *d, tensor dsinks, tensor delta, tensor lse, tensor sinks)
{
    int64_t heads = tensor_count(&sinks);
    vec_launch(d, "sink_bwd", (unsigned)heads, sink_bwd_kernel, (float *)dsinks.data,
               (const float *)delta.data, (const float *)lse.data, (const float *)sinks.data,
               tensor_rows(&lse), heads);
}
