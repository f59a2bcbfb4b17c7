/* vec: vectorised access for kernels that are bound by memory.
 *
 * A kernel is written once, for spans of W elements: 16 bytes of the widest type it uses, so that a
 * warp's access is whole sectors. A span is wide when all W elements exist and are aligned: one
 * vector load or store. Otherwise elements are accessed one by one, zeros are loaded past the end,
 * and nothing is stored there. vec_at() chooses between the two, with a branch that is uniform over
 * a block but for its last span. bf16 becomes f32 on load and is rounded to nearest even on store.
 *
 * A row is processed by a team of threads: a warp or less for short rows, a block for long ones.
 * Sums are reduced in a tree that depends on the shape alone, so results repeat bit for bit. */
#ifndef PESC_BACKEND_CUDA_VEC_CUH
#define PESC_BACKEND_CUDA_VEC_CUH

#include "backend/cuda/cuda.h"
#include "backend/cuda/warp.cuh"

typedef __nv_bfloat16 bf16;

enum { VEC_THREADS = 256 };

template <class... T> constexpr int vec_width = ((sizeof(T) == 2) && ...) ? 8 : 4;

/* ---- memory ---- */

/* A tensor whose type is chosen at run time: for small ones, and those that stay in the cache. */
struct vec_any {
    void *p;
    bool f32;
};

template <int W> __device__ inline void vec_load(float (&v)[W], const float *p)
{
#pragma unroll
    for (int j = 0; j < W; j += 4) {
        float4 q = *(const float4 *)(p + j);
        v[j] = q.x, v[j + 1] = q.y, v[j + 2] = q.z, v[j + 3] = q.w;
    }
}

template <int W> __device__ inline void vec_load(float (&v)[W], const bf16 *p)
{
    static_assert(W == 4 || W == 8, "8 or 16 bytes");
    if constexpr (W == 8) {
        uint4 q = *(const uint4 *)p;
        warp_unpack_bf16(v[0], v[1], q.x), warp_unpack_bf16(v[2], v[3], q.y);
        warp_unpack_bf16(v[4], v[5], q.z), warp_unpack_bf16(v[6], v[7], q.w);
    } else {
        uint2 q = *(const uint2 *)p;
        warp_unpack_bf16(v[0], v[1], q.x), warp_unpack_bf16(v[2], v[3], q.y);
    }
}

template <int W> __device__ inline void vec_store(float *p, const float (&v)[W])
{
#pragma unroll
    for (int j = 0; j < W; j += 4)
        *(float4 *)(p + j) = make_float4(v[j], v[j + 1], v[j + 2], v[j + 3]);
}

template <int W> __device__ inline void vec_store(bf16 *p, const float (&v)[W])
{
    static_assert(W == 4 || W == 8, "8 or 16 bytes");
    if constexpr (W == 8)
        *(uint4 *)p = make_uint4(warp_pack_bf16(v[0], v[1]), warp_pack_bf16(v[2], v[3]),
                                 warp_pack_bf16(v[4], v[5]), warp_pack_bf16(v[6], v[7]));
    else
        *(uint2 *)p = make_uint2(warp_pack_bf16(v[0], v[1]), warp_pack_bf16(v[2], v[3]));
}

__device__ inline float vec_get(const float *p)
{
    return *p;
}

__device__ inline float vec_get(const bf16 *p)
{
    return __bfloat162float(*p);
}

__device__ inline void vec_put(float *p, float x)
{
    *p = x;
}

__device__ inline void vec_put(bf16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

__device__ inline float vec_get(vec_any a, int64_t i)
{
    return a.f32 ? ((const float *)a.p)[i] : vec_get((const bf16 *)a.p + i);
}

__device__ inline void vec_put(vec_any a, int64_t i, float x)
{
    if (a.f32)
        vec_put((float *)a.p + i, x);
    else
        vec_put((bf16 *)a.p + i, x);
}

/* Elements [i, i + W) of an array, or the `left` of them that exist. */
template <int W, bool WIDE> struct vec_span {
    int64_t i;
    int64_t left;

    template <class T> __device__ void load(float (&v)[W], const T *p, int64_t shift = 0) const
    {
        p += i + shift;
        if constexpr (WIDE) {
            vec_load(v, p);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                v[j] = j < left ? vec_get(p + j) : 0.0f;
        }
    }

    __device__ void load(float (&v)[W], vec_any a, int64_t shift = 0) const
    {
        if (a.f32)
            load(v, (const float *)a.p, shift);
        else
            load(v, (const bf16 *)a.p, shift);
    }

    template <class T> __device__ void store(T *p, const float (&v)[W], int64_t shift = 0) const
    {
        p += i + shift;
        if constexpr (WIDE) {
            vec_store(p, v);
        } else {
#pragma unroll
            for (int j = 0; j < W; j++)
                if (j < left)
                    vec_put(p + j, v[j]);
        }
    }

    __device__ void store(vec_any a, const float (&v)[W], int64_t shift = 0) const
    {
        if (a.f32)
            store((float *)a.p, v, shift);
        else
            store((bf16 *)a.p, v, shift);
    }
};

/* f(span) for the elements from i on, of n; nothing when i is past the end. */
template <int W, class F> __device__ inline void vec_at(int64_t i, int64_t n, bool wide, F f)
{
    if (wide && i + W <= n)
        f(vec_span<W, true>{ i, W });
    else if (i < n)
        f(vec_span<W, false>{ i, n - i });
}

/* f(span) for this thread's span of a flat array. */
template <int W, class F> __device__ inline void vec_each(int64_t n, bool wide, F f)
{
    vec_at<W>(((int64_t)blockIdx.x * VEC_THREADS + threadIdx.x) * W, n, wide, f);
}

/* ---- teams: TEAM threads a row, VEC_THREADS / TEAM rows a block ---- */

template <int TEAM> __device__ inline int64_t vec_row(void)
{
    return (int64_t)blockIdx.x * (VEC_THREADS / TEAM) + threadIdx.x / TEAM;
}

/* f(span) for this thread's spans of a row of n elements. Wide rows are whole spans; there UNROLL
 * spans can be in flight, if f stores nothing that a later span loads. */
template <int TEAM, int W, int UNROLL = 1, class F>
__device__ inline void vec_each_of_row(int64_t n, bool wide, F f)
{
    int64_t i = threadIdx.x % TEAM * W;
    if (wide) {
#pragma unroll UNROLL
        for (; i < n; i += TEAM * W)
            f(vec_span<W, true>{ i, W });
    } else {
        for (; i < n; i += TEAM * W)
            f(vec_span<W, false>{ i, n - i });
    }
}

/* The sum over a team, in all of its threads. A team that is more than a warp is the block. */
template <int TEAM, class T> __device__ inline T vec_team_sum(T v)
{
    constexpr int LANES = TEAM < WARP ? TEAM : WARP;
    v = warp_sum<LANES>(v);
    if constexpr (TEAM > WARP) {
        __shared__ T part[TEAM / WARP];
        if (threadIdx.x % WARP == 0)
            part[threadIdx.x / WARP] = v;
        __syncthreads();
        v = part[0];
#pragma unroll
        for (int w = 1; w < TEAM / WARP; w++)
            v += part[w];
        __syncthreads(); /* before the next sum overwrites `part` */
    }
    return v;
}

/* ---- host ---- */

static inline vec_any vec_any_of(const tensor &t)
{
    return vec_any{ t.data, t.dt == DT_F32 };
}

template <class... T> bool vec_aligned(const T &...t)
{
    return (((uintptr_t)t.data % 16 == 0) && ...);
}

/* At least one: a kernel checks its own bounds. */
static inline unsigned vec_blocks(int64_t work, int64_t a_block)
{
    return work > a_block ? (unsigned)((work + a_block - 1) / a_block) : 1;
}

template <class K, class... A>
void vec_launch(device *d, const char *what, unsigned blocks, K kernel, A... args)
{
    kernel<<<blocks, VEC_THREADS, 0, cuda_of(d)->stream>>>(args...);
    cuda_launched(cuda_of(d), what);
}

/* One span a thread, over n elements of types T. */
template <class... T, class K, class... A>
void vec_launch_flat(device *d, const char *what, int64_t n, K kernel, A... args)
{
    vec_launch(d, what, vec_blocks(n, VEC_THREADS * vec_width<T...>), kernel, args...);
}

/* Whether a row of n elements gets a block. */
static inline bool vec_long(int64_t n)
{
    return n > 1024;
}

/* f(float()) or f(bf16()): from a tensor's type to a template argument. */
template <class F> void vec_typed(dtype dt, F f)
{
    if (dt == DT_F32)
        f(float());
    else
        f(bf16());
}

template <class F> void vec_typed2(dtype a, dtype b, F f)
{
    vec_typed(a, [&](auto x) { vec_typed(b, [&](auto y) { f(x, y); }); });
}

template <class F> void vec_typed3(dtype a, dtype b, dtype c, F f)
{
    vec_typed(a, [&](auto x) { vec_typed2(b, c, [&](auto y, auto z) { f(x, y, z); }); });
}

/* f(vec_team<TEAM>()) by the length of rows. */
template <int N> struct vec_team {
    static constexpr int size = N;
};

template <class F> void vec_teamed(int64_t n, F f)
{
    if (vec_long(n))
        f(vec_team<VEC_THREADS>());
    else
        f(vec_team<WARP>());
}

#endif
