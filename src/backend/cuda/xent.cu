/* xent: cross-entropy of rows of logits, its gradient, which may overwrite them, and scores of
 * single tokens.
 *
 * Bound: memory. A block of 1024 threads has a row and reads it at most twice: once for the
 * log-sum-exp (online: a running maximum and sum in each thread), once for the gradient, in
 * reverse, so that what was read last and is still in the cache comes first. */
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

constexpr int IGNORED = -100, THREADS = 1024;

/* The sum of e^x as total e^top; empty: top is -infinity. */
struct exp_sum {
    float top, total;
};

/* What is subtracted from exponents: not -infinity, because the difference of two is NaN. */
__device__ float level(float top)
{
    return top == -CUDART_INF_F ? 0.0f : top;
}

__device__ exp_sum join(exp_sum a, exp_sum b)
{
    float top = fmaxf(a.top, b.top), base = level(top);
    return exp_sum{ top, __fadd_rn(__fmul_rn(a.total, vmath_exp_below(a.top - base)),
                                   __fmul_rn(b.total, vmath_exp_below(b.top - base))) };
}

/* Joins the sums of all threads: a tree over lanes, then over warps. */
__device__ exp_sum join_block(exp_sum s)
{
    __shared__ exp_sum part[THREADS / WARP];
    for (int round = 0; round < 2; round++) {
        for (int lane = WARP / 2; lane; lane /= 2)
            s = join(s, exp_sum{ __shfl_xor_sync(0xffffffffu, s.top, lane),
                                 __shfl_xor_sync(0xffffffffu, s.total, lane) });
        if (round)
            break;
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = s;
        __syncthreads();
        s = part[threadIdx.x % WARP];
    }
    return s;
}

template <int W, class X> __device__ exp_sum row_sum(const X *x, int64_t n, bool wide)
{
    exp_sum s = { -CUDART_INF_F, 0.0f };
    for (int64_t i = (int64_t)threadIdx.x * W; i < n; i += THREADS * W)
        vec_at<W>(i, n, wide, [&](auto at) {
            float v[W], top = s.top;
            at.load(v, x);
            for (int j = 0; j < W; j++)
                top = j < at.left ? fmaxf(top, v[j]) : top;
            float base = level(top);
            s.total *= vmath_exp_below(s.top - base);
            for (int j = 0; j < W; j++)
                s.total += j < at.left ? vmath_exp_below(v[j] - base) : 0.0f;
            s.top = top;
        });
    return join_block(s);
}

template <int W, class X> __device__ float row_lse(const X *x, int64_t n, bool wide)
{
    exp_sum s = row_sum<W>(x, n, wide);
    return s.top == -CUDART_INF_F ? CUDART_NAN_F : s.top + vmath_log(s.total);
}

template <class D, class X>
__global__ void __launch_bounds__(THREADS)
    xent_kernel(float *loss, D *dlogits, const X *logits, const int32_t *targets,
                const float *weight, int64_t n, bool wide)
{
    constexpr int W = vec_width<D, X>;
    int64_t r = blockIdx.x;
    int32_t target = targets[r];
    const X *x = logits + r * n;
    float lse = 0.0f, factor = 0.0f;
    if (target == IGNORED) {
        if (threadIdx.x == 0)
            loss[r] = 0.0f;
    } else {
        lse = row_lse<W>(x, n, wide);
        factor = weight ? weight[r] : 0.0f;
        if (threadIdx.x == 0)
            loss[r] = target >= 0 && target < n ? lse - vec_get(x + target) : CUDART_NAN_F;
    }
    if (!weight)
        return;
    __syncthreads(); /* the target's logit is read before it may be overwritten */
    int64_t rounds = (n + THREADS * W - 1) / (THREADS * W);
    for (int64_t i = ((rounds - 1) * THREADS + threadIdx.x) * W; i >= 0; i -= THREADS * W)
        vec_at<W>(i, n, wide, [&](auto at) {
            float v[W] = { 0 };
            if (target != IGNORED)
                at.load(v, x);
            for (int j = 0; j < W; j++) {
                float p = vmath_exp_below(v[j] - lse);
                p = at.i + j == target ? p - 1.0f : p;
                v[j] = target == IGNORED ? 0.0f : p * factor;
            }
            at.store(dlogits, v, r * n);
        });
}

/* The lowest of the block's numbers, for thread 0. */
__device__ int32_t lowest_of_block(int32_t v)
{
    __shared__ int32_t part[THREADS / WARP];
    v = __reduce_min_sync(0xffffffffu, v);
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = v;
    __syncthreads();
    return __reduce_min_sync(0xffffffffu, part[threadIdx.x % WARP]);
}

/* A block has a pair of a row and a token. It reads the row once for the sum of exponentials and
 * once for the first column that holds the largest value, which a thread reads in ascending order.
 */
__global__ void __launch_bounds__(THREADS)
    score_kernel(float *logprob, int32_t *best, const float *logits, const int32_t *pairs,
                 int64_t n, bool wide)
{
    constexpr int W = vec_width<float, float>;
    int32_t row = pairs[2 * (int64_t)blockIdx.x], token = pairs[2 * (int64_t)blockIdx.x + 1];
    const float *x = logits + row * n;
    exp_sum s = row_sum<W>(x, n, wide);
    int32_t first = INT32_MAX;
    bool finite = true;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) {
        float v = x[i];
        finite = finite && isfinite(v);
        if (v == s.top && first == INT32_MAX)
            first = (int32_t)i;
    }
    bool bad = __syncthreads_or(!finite);
    first = lowest_of_block(first);
    if (threadIdx.x)
        return;
    best[blockIdx.x] = bad ? -1 : first;
    logprob[blockIdx.x] = bad ? CUDART_NAN_F : (x[token] - s.top) - vmath_log(s.total);
}

void launch(device *d, const char *what, tensor loss, tensor dlogits, tensor logits, tensor targets,
            tensor weight)
{
    int64_t rows = tensor_rows(&logits), n = tensor_cols(&logits);
    if (rows == 0)
        return;
    vec_typed2(dlogits.dt, logits.dt, [&](auto o, auto v) {
        typedef decltype(o) D;
        typedef decltype(v) X;
        bool wide = vec_aligned(dlogits, logits) && n % vec_width<D, X> == 0;
        xent_kernel<D, X><<<(unsigned)rows, THREADS, 0, cuda_of(d)->stream>>>(
            (float *)loss.data, (D *)dlogits.data, (const X *)logits.data,
            (const int32_t *)targets.data, (const float *)weight.data, n, wide);
    });
    cuda_launched(cuda_of(d), what);
}

} // namespace

extern "C" void cuda_xent_fwd(device *d, tensor loss, tensor logits, tensor targets)
{
    launch(d, "xent_fwd", loss, logits, logits, targets, tensor{});
}

extern "C" void cuda_xent_bwd(device *d, tensor loss, tensor dlogits, tensor logits, tensor targets,
                              tensor weight)
{
    launch(d, "xent_bwd", loss, dlogits, logits, targets, weight);
}

extern "C" void cuda_token_score(device *d, tensor logprob, tensor best, tensor logits,
                                 tensor pairs)
{
    int64_t n = tensor_cols(&logits), count = tensor_rows(&pairs);
    bool wide = vec_aligned(logits, logits) && n % vec_width<float, float> == 0;
    if (count == 0)
        return;
    score_kernel<<<(unsigned)count, THREADS, 0, cuda_of(d)->stream>>>(
        (float *)logprob.data, (int32_t *)best.data, (const float *)logits.data,
        (const int32_t *)pairs.data, n, wide);
    cuda_launched(cuda_of(d), "token_score");
}
