/* rope: rotary position embeddings. The tables of cosines and sines are computed once for a pass;
 * the rotation is applied in place. Bound: memory; a row of all heads belongs to a team. */
#include "backend/cuda/vec.cuh"

namespace
{

/* The angle is rounded to f32; its sine and cosine are computed in double, so that positions in the
 * millions are as precise as small ones. */
__global__ void table_kernel(float *cosine, float *sine, const int32_t *pos, const float *inv_freq,
                             int64_t count, int32_t n, float scale)
{
    int64_t i = (int64_t)blockIdx.x * VEC_THREADS + threadIdx.x;
    if (i >= count)
        return;
    double s, c;
    sincos((double)((float)pos[i / n] * inv_freq[i % n]), &s, &c);
    cosine[i] = (float)(c * scale);
    sine[i] = (float)(s * scale);
}

struct rope_shape {
    int64_t rows;
    int32_t n_heads, head_dim, offset, half;
    float sign;
};

/* (a, b) -> (a cos - b sin, b cos + a sin) for spans of W pairs: a in the first half of a head and
 * b in the second, or interleaved a0 b0 a1 b1 ... */
template <int TEAM, bool INTERLEAVED, class X>
__global__ void rope_kernel(X *x, const float *cosine, const float *sine, rope_shape s, bool wide)
{
    constexpr int W = vec_width<X>;
    int64_t t = vec_row<TEAM>();
    if (t >= s.rows)
        return;
    cosine += t * s.half;
    sine += t * s.half;
    x += t * s.n_heads * s.head_dim + s.offset;
    int32_t spans = (s.half + W - 1) / W;
    for (int32_t item = threadIdx.x % TEAM; item < s.n_heads * spans; item += TEAM) {
        X *head = x + (int64_t)(item / spans) * s.head_dim;
        vec_at<W>(item % spans * W, s.half, wide, [&](auto at) {
            float a[W], b[W], c[W], n[W];
            at.load(c, cosine);
            at.load(n, sine);
            if constexpr (INTERLEAVED) {
                for (int j = 0; j < W; j++)
                    if (j < at.left) {
                        a[j] = vec_get(head + 2 * (at.i + j));
                        b[j] = vec_get(head + 2 * (at.i + j) + 1);
                    }
            } else {
                at.load(a, head);
                at.load(b, head, s.half);
            }
            for (int j = 0; j < W; j++) {
                float sn = n[j] * s.sign, first = a[j];
                a[j] = __fsub_rn(__fmul_rn(first, c[j]), __fmul_rn(b[j], sn));
                b[j] = __fadd_rn(__fmul_rn(b[j], c[j]), __fmul_rn(first, sn));
            }
            if constexpr (INTERLEAVED) {
                for (int j = 0; j < W; j++)
                    if (j < at.left) {
                        vec_put(head + 2 * (at.i + j), a[j]);
                        vec_put(head + 2 * (at.i + j) + 1, b[j]);
                    }
            } else {
                at.store(head, a);
                at.store(head, b, s.half);
            }
        });
    }
}

} // namespace

extern "C" void cuda_rope_table(device *d, tensor cos, tensor sin, tensor pos, tensor inv_freq,
                                float scale)
{
    int64_t count = tensor_count(&cos);
    vec_launch(d, "rope_table", vec_blocks(count, VEC_THREADS), table_kernel, (float *)cos.data,
               (float *)sin.data, (int32_t *)pos.data, (float *)inv_freq.data, count,
               (int32_t)tensor_cols(&cos), scale);
}

extern "C" void cuda_rope(device *d, const rope *a)
{
    rope_shape s = { tensor_rows(&a->cos),     a->n_heads, a->head_dim, a->offset, a->rot_dim / 2,
                     a->inverse ? -1.0f : 1.0f };
    vec_typed(a->x.dt, [&](auto v) {
        typedef decltype(v) X;
        constexpr int W = vec_width<X>;
        bool wide = vec_aligned(a->x, a->cos, a->sin) && s.half % W == 0 && s.offset % W == 0 &&
                    s.head_dim % W == 0;
        vec_teamed((int64_t)s.n_heads * s.half, [&](auto team) {
            constexpr int TEAM = decltype(team)::size;
            vec_launch(d, "rope", vec_blocks(s.rows, VEC_THREADS / TEAM),
                       a->interleaved ? rope_kernel<TEAM, true, X> : rope_kernel<TEAM, false, X>,
                       (X *)a->x.data, (float *)a->cos.data, (float *)a->sin.data, s, wide);
        });
    });
}
