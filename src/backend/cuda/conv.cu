/* conv: causal depthwise convolutions of a few taps; the formulas are in backend.h.
 *
 * Bound: memory. Forward: a thread for each row and column, which reads the rows of its taps
 * through the cache; a second kernel then moves the state, because the first one reads it.
 * Backward: a thread for each row and column computes the gradients of the sums that read its row
 * anew; the gradients of the taps are sums over all rows, by a block for each CONV_COLS columns. */
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

enum { CONV_COLS = 32, CONV_LANES = VEC_THREADS / CONV_COLS };

struct conv_shape {
    const float *w, *bias;
    const int32_t *starts, *pos, *slots;
    float *state;
    int64_t rows, width, stride; /* stride: of a sequence's state */
    int32_t taps, n_seqs;
    bool gated;
    act_kind act;
};

conv_shape shape_of(const conv *a)
{
    return { (const float *)a->w.data,
             (const float *)a->bias.data,
             (const int32_t *)a->starts.data,
             (const int32_t *)a->pos.data,
             (const int32_t *)a->slots.data,
             (float *)a->state.data,
             tensor_count(&a->pos),
             a->w.ne[0],
             a->state.data ? tensor_cols(&a->state) : 0,
             (int32_t)a->w.ne[2],
             (int32_t)(tensor_count(&a->starts) - 1),
             a->gated,
             a->act };
}

/* The sequence of a row: the last that begins there or before. */
__device__ int32_t sequence_of(const conv_shape &s, int64_t row)
{
    int32_t low = 0, high = s.n_seqs - 1;
    while (low < high) {
        int32_t middle = (low + high + 1) / 2;
        if (s.starts[middle] <= row)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* The state that a sequence goes on from; NULL: zeros. */
__device__ const float *past_of(const conv_shape &s, int32_t seq)
{
    return s.state && s.pos[s.starts[seq]] > 0 ? s.state + s.slots[seq] * s.stride : nullptr;
}

template <class X>
__device__ float z_of(const conv_shape &s, const X *x, const float *past, int64_t begin,
                      int64_t row, int64_t j)
{
    if (row < begin)
        return past ? past[(s.taps - 1 - (begin - row)) * s.width + j] : 0.0f;
    if (!s.gated)
        return vec_get(x + row * s.width + j);
    x += row * 3 * s.width + j;
    return __fmul_rn(vec_get(x), vec_get(x + 2 * s.width));
}

template <class X>
__device__ float sum_of(const conv_shape &s, const X *x, const float *past, int64_t begin,
                        int64_t row, int64_t j)
{
    float sum = s.bias ? s.bias[j] : 0.0f;
    for (int32_t i = 0; i < s.taps; i++)
        sum = fmaf(s.w[j * s.taps + i], z_of(s, x, past, begin, row - s.taps + 1 + i, j), sum);
    return sum;
}

template <class X> __global__ void conv_kernel(X *out, const X *x, conv_shape s)
{
    int64_t i = (int64_t)blockIdx.x * VEC_THREADS + threadIdx.x, row = i / s.width;
    if (row >= s.rows)
        return;
    int64_t j = i % s.width;
    int32_t seq = sequence_of(s, row);
    float sum = sum_of(s, x, past_of(s, seq), s.starts[seq], row, j);
    float y[1] = { sum }, slope[1];
    if (s.gated)
        y[0] = sum * vec_get(x + row * 3 * s.width + s.width + j);
    else
        vmath_acts<false>(s.act, y, slope);
    vec_put(out + i, y[0]);
}

/* In ascending order: a row that is read is not written yet. */
template <class X> __global__ void state_kernel(const X *x, conv_shape s)
{
    int64_t at = (int64_t)blockIdx.x * VEC_THREADS + threadIdx.x, j = at % s.width;
    if (at >= s.n_seqs * s.width)
        return;
    int32_t seq = (int32_t)(at / s.width);
    int64_t begin = s.starts[seq], end = s.starts[seq + 1];
    if (begin == end)
        return;
    const float *past = past_of(s, seq);
    float *to = s.state + s.slots[seq] * s.stride + j;
    for (int32_t i = 0; i < s.taps - 1; i++)
        to[i * s.width] = z_of(s, x, past, begin, end - (s.taps - 1) + i, j);
}

/* ---- backward ---- */

/* The gradient of the sum of a row. */
template <class X>
__device__ float sum_gradient(const conv_shape &s, const X *x, const X *dout, int64_t begin,
                              int64_t row, int64_t j)
{
    float dy = vec_get(dout + row * s.width + j);
    if (s.gated)
        return dy * vec_get(x + row * 3 * s.width + s.width + j);
    float y[1] = { sum_of(s, x, (const float *)nullptr, begin, row, j) }, slope[1];
    vmath_acts<false>(s.act, y, slope);
    return dy * slope[0];
}

template <class X> __global__ void dx_kernel(X *dx, const X *x, const X *dout, conv_shape s)
{
    int64_t i = (int64_t)blockIdx.x * VEC_THREADS + threadIdx.x, row = i / s.width;
    if (row >= s.rows)
        return;
    int64_t j = i % s.width;
    int32_t seq = sequence_of(s, row);
    int64_t begin = s.starts[seq], end = s.starts[seq + 1];
    float dz = 0.0f;
    for (int32_t tap = 0; tap < s.taps; tap++) {
        int64_t reads = row + s.taps - 1 - tap;
        if (reads < end)
            dz = fmaf(s.w[j * s.taps + tap], sum_gradient(s, x, dout, begin, reads, j), dz);
    }
    if (!s.gated) {
        vec_put(dx + i, dz);
        return;
    }
    int64_t at = row * 3 * s.width + j;
    vec_put(dx + at, dz * vec_get(x + at + 2 * s.width));
    vec_put(dx + at + s.width,
            vec_get(dout + i) * sum_of(s, x, (const float *)nullptr, begin, row, j));
    vec_put(dx + at + 2 * s.width, dz * vec_get(x + at));
}

/* Lane l of a column adds rows l, l + CONV_LANES, ...; the lanes are then added in order. */
template <class X>
__global__ void dw_kernel(float *dw, float *dbias, const X *x, const X *dout, conv_shape s)
{
    __shared__ float parts[CONV_LANES][CONV_COLS];
    int32_t col = threadIdx.x % CONV_COLS, lane = threadIdx.x / CONV_COLS;
    int64_t j = (int64_t)blockIdx.x * CONV_COLS + col;
    for (int32_t tap = 0; tap <= s.taps; tap++) { /* the last is the bias */
        float sum = 0.0f;
        for (int64_t row = lane; row < s.rows && j < s.width; row += CONV_LANES) {
            int64_t begin = s.starts[sequence_of(s, row)];
            float ds = sum_gradient(s, x, dout, begin, row, j);
            sum += tap < s.taps
                       ? ds * z_of(s, x, (const float *)nullptr, begin, row - s.taps + 1 + tap, j)
                       : ds;
        }
        parts[lane][col] = sum;
        __syncthreads();
        if (lane == 0 && j < s.width) {
            sum = 0.0f;
            for (int32_t l = 0; l < CONV_LANES; l++)
                sum += parts[l][col];
            if (tap < s.taps && dw)
                dw[j * s.taps + tap] += sum;
            else if (tap == s.taps && dbias)
                dbias[j] += sum;
        }
        __syncthreads();
    }
}

} // namespace

extern "C" void cuda_conv_fwd(device *d, const conv *a)
{
    conv_shape s = shape_of(a);
    vec_typed(a->x.dt, [&](auto v) {
        typedef decltype(v) X;
        vec_launch(d, "conv_fwd", vec_blocks(s.rows * s.width, VEC_THREADS), conv_kernel<X>,
                   (X *)a->out.data, (const X *)a->x.data, s);
        if (s.state)
            vec_launch(d, "conv_state", vec_blocks(s.n_seqs * s.width, VEC_THREADS),
                       state_kernel<X>, (const X *)a->x.data, s);
    });
}

extern "C" void cuda_conv_bwd(device *d, const conv_bwd *b)
{
    conv_shape s = shape_of(&b->fwd);
    vec_typed(b->fwd.x.dt, [&](auto v) {
        typedef decltype(v) X;
        const X *x = (const X *)b->fwd.x.data, *dout = (const X *)b->dout.data;
        vec_launch(d, "conv_bwd", vec_blocks(s.rows * s.width, VEC_THREADS), dx_kernel<X>,
                   (X *)b->dx.data, x, dout, s);
        if (b->dw.data || b->dbias.data)
            vec_launch(d, "conv_bwd_taps", vec_blocks(s.width, CONV_COLS), dw_kernel<X>,
                       (float *)b->dw.data, (float *)b->dbias.data, x, dout, s);
    });
}
