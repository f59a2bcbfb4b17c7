/* attention_parts: the keys of a row in parts, each of which other blocks compute (flash decoding),
 * and the join of their results in order. Where parts begin depends on shapes alone, so a row gets
 * the same bits whatever is computed beside it. */
#ifndef PESC_BACKEND_CUDA_ATTENTION_PARTS_CUH
#define PESC_BACKEND_CUDA_ATTENTION_PARTS_CUH

#include "backend/cuda/attention.cuh"

/* The result of a part, for a slot of a row, and a head: maximum, sum, and values weighted by
 * e^(s - max). */
typedef struct parts {
    float2 *stats; /* [slots * heads][n] */
    float *acc;    /* [slots * heads][n][v_dim] */
    int32_t n, keys;
    unsigned *counts; /* decoding: [slots * heads]: blocks of a slot and key head that have written
                         theirs; 0 between ops: the last one, which joins the parts, sets it back */
} parts;

/* Parts of that many keys each, of all that the cache has room for; their results in scratch. One
 * part where there is no cache. */
static inline parts parts_of(const attn_args *a, int64_t keys, int64_t slots, void *scratch)
{
    int64_t n = (attn_cached(a) + keys - 1) / keys;
    parts p = { (float2 *)scratch, NULL, n > 1 ? (int32_t)n : 1, (int32_t)keys, NULL };
    p.acc = (float *)(p.stats + slots * a->n_heads * p.n);
    return p;
}

/* Keys [low, last] that a row sees, or of those the ones in a part; empty where low > last. */
typedef struct range {
    int32_t low, last;
} range;

__device__ static inline range seen_by(const attn_args &a, int32_t t)
{
    int32_t last = a.pos[t];
    return range{ a.window > 0 ? max(0, last - a.window + 1) : 0, last };
}

__device__ static inline range seen_in(range seen, const parts &p, int32_t part)
{
    return range{ max(seen.low, part * p.keys), min(seen.last, part * p.keys + p.keys - 1) };
}

/* ---- joining the parts of a row and head: a warp, with a lane for each part ---- */

__device__ static inline void join(const attn_args &a, const parts &p, int32_t slot, int32_t t,
                                   int32_t head)
{
    int lane = threadIdx.x & 31;
    range seen = seen_by(a, t);
    int32_t begin = seen.low / p.keys, end = seen.last / p.keys + 1;
    int64_t from = ((int64_t)slot * a.n_heads + head) * p.n, row = (int64_t)t * a.n_heads + head;
    bool mine = lane >= begin && lane < end;
    float2 stats = mine ? __ldcg(p.stats + from + lane) : make_float2(-INFINITY, 0.0f);
    float top = warp_max(stats.x), weight = expf(stats.x - top);
    float sum = warp_sum(weight * stats.y);
    for (int c = lane; c < (a.v_dim + 31) / 32 * 32; c += 32) {
        float x = 0.0f;
        const float *acc = p.acc + from * a.v_dim + min(c, a.v_dim - 1);
#pragma unroll 8
        for (int32_t i = begin; i < end; i++)
            x += __shfl_sync(~0u, weight, i) * __ldcg(acc + (int64_t)i * a.v_dim);
        if (c < a.v_dim)
            attn_store(a.out, row * a.v_dim + c, a.out_bf16, x / sum);
    }
    if (a.lse && lane == 0)
        a.lse[row] = top + logf(sum);
}

#endif
