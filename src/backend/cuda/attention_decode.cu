/* attention_decode: single query rows against the pages of all their past.
 *
 * There is one row for many keys, so the keys are cut in parts, each with a block of its own; the
 * last of them to finish puts all together in order. Where a part begins depends on the cache's
 * shape alone: a sequence gets the same bits whatever is decoded beside it.
 *
 * With tensor cores the heads that share a key head are the rows of a product (16, most of them
 * empty: reading keys is what takes time, not products), and the four warps take 16 keys each of a
 * block of 64. */
#include "backend/cuda/attention.cuh"

enum { KEYS = 64, HEADS = 16, THREADS = 128, WARPS = THREADS / 32, MAX_PARTS = 32, MIN_KEYS = 128 };

/* What a part says of a row and head: maximum, sum, and values weighted by e^(s - maximum). */
typedef struct parts {
    float2 *stats; /* [slots * heads][n] */
    float *acc;    /* [slots * heads][n][v_dim] */
    int32_t n, keys;
} parts;

static parts cut(const attn_args *a)
{
    int64_t most = (int64_t)a->max_pages * a->page_tokens;
    int64_t keys = ((most + MAX_PARTS - 1) / MAX_PARTS + KEYS - 1) / KEYS * KEYS;
    keys = keys < MIN_KEYS ? MIN_KEYS : keys;
    return parts{ NULL, NULL, (int32_t)((most + keys - 1) / keys), (int32_t)keys };
}

/* What is decoded has a slot: a row, when all rows are; else a sequence, used if it has one row. */
static int32_t slots_of(const attn_args *a)
{
    return attn_decode_only(a) ? a->n_tokens : a->n_seq;
}

size_t attn_decode_bytes(const attn_args *a)
{
    return (size_t)slots_of(a) * (size_t)a->n_heads * (size_t)cut(a).n *
           (sizeof(float2) + (size_t)a->v_dim * sizeof(float));
}

typedef struct decoded {
    int32_t t, seq; /* t < 0: nothing */
} decoded;

__device__ static decoded row_in(const attn_args &a, int32_t slot)
{
    if (a.n_tokens <= a.n_seq)
        return decoded{ slot, attn_seq_of(a, slot) };
    int32_t t = a.starts[slot];
    return decoded{ a.starts[slot + 1] - t == 1 ? t : -1, slot };
}

/* The keys that a row sees; of those, the ones in a part: none where low > last. */
typedef struct range {
    int32_t low, last;
} range;

__device__ static range seen_by(const attn_args &a, int32_t t)
{
    int32_t last = a.pos[t];
    return range{ a.window > 0 ? max(0, last - a.window + 1) : 0, last };
}

__device__ static range seen_in(range seen, const parts &p, int32_t part)
{
    return range{ max(seen.low, part * p.keys), min(seen.last, part * p.keys + p.keys - 1) };
}

/* ---- the parts of a row and head, put together in order by a warp: a lane for each ---- */

__device__ static void join(const attn_args &a, const parts &p, int32_t slot, int32_t t,
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
        for (int32_t i = begin; i < end; i++) {
            float w = __shfl_sync(~0u, weight, i);
            x += c < a.v_dim ? w * __ldcg(p.acc + (from + i) * a.v_dim + c) : 0.0f;
        }
        if (c < a.v_dim)
            attn_store(a.out, row * a.v_dim + c, a.out_bf16, x / sum);
    }
    if (a.lse && lane == 0)
        a.lse[row] = top + logf(sum);
}

/* ---- any type, any size: a warp for a head and part ---- */

static __global__ void __launch_bounds__(THREADS) row_part(attn_args a, parts p)
{
    extern __shared__ float room[];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    float *q = room + warp * (a.qk_dim + a.v_dim), *acc = q + a.qk_dim;
    int32_t head = blockIdx.x * WARPS + warp, part = blockIdx.y, slot = blockIdx.z;
    decoded r = row_in(a, slot);
    if (head >= a.n_heads || r.t < 0)
        return;
    range keys = seen_in(seen_by(a, r.t), p, part);
    if (keys.low > keys.last)
        return;
    int64_t row = (int64_t)r.t * a.n_heads + head,
            to = ((int64_t)slot * a.n_heads + head) * p.n + part;
    for (int i = lane; i < a.qk_dim; i += 32)
        q[i] = attn_load(a.q, row * a.qk_dim + i, a.q_bf16);
    __syncwarp();
    attn_row s =
        attn_row_meet(a, attn_keys_of(a, r.seq, r.t), head / a.group, keys.low, keys.last, q, acc);
    for (int i = lane; i < a.v_dim; i += 32)
        p.acc[to * a.v_dim + i] = acc[i];
    if (lane == 0)
        p.stats[to] = make_float2(s.max, s.sum);
}

static __global__ void join_parts(attn_args a, parts p)
{
    int32_t head = blockIdx.x * WARPS + threadIdx.x / 32, slot = blockIdx.y;
    decoded r = row_in(a, slot);
    if (head < a.n_heads && r.t >= 0)
        join(a, p, slot, r.t, head);
}

static void row_launch(cuda_device *c, const attn_args *a, attn_new rows, parts p)
{
    if (attn_decode_only(a))
        attn_store_pages(c, a, rows);
    size_t smem = (size_t)WARPS * (size_t)(a->qk_dim + a->v_dim) * sizeof(float);
    dim3 grid((unsigned)((a->n_heads + WARPS - 1) / WARPS), (unsigned)p.n, (unsigned)slots_of(a));
    attn_allow_smem(c, row_part, smem);
    row_part<<<grid, THREADS, smem, c->stream>>>(*a, p);
    join_parts<<<dim3(grid.x, grid.z), THREADS, 0, c->stream>>>(*a, p);
}

/* ---- tensor cores ---- */

template <int DK, int DV> struct part_smem {
    static constexpr int Q = HEADS * attn_rows<DK>::BYTES, K = KEYS * attn_rows<DK>::BYTES,
                         V = KEYS * attn_rows<DV>::BYTES, BYTES = Q + 2 * (K + V);
    static_assert(BYTES >= WARPS * HEADS * (DV + 2) * 4, "the warps' results fit where keys were");
};

/* Weights of 16 rows by 16 keys, and the running maximum and sum of each row. */
__device__ static inline void softmax_keys(float (*s)[4], float max[2], float sum[2],
                                           float shrink[2], float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(max[r], fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
        float zero = top == -INFINITY ? 0.0f : top * scale;
        shrink[r] = exp2_fast(max[r] * scale - zero);
        max[r] = top;
        sum[r] *= shrink[r];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * scale - zero);
                sum[r] += s[n][i];
            }
    }
}

/* The four warps' results, left in shared memory as [warp][row][max, sum, DV], become the part's.
 */
template <int DV>
__device__ static void merge_warps(const float *room, const parts &p, int64_t first_row, int n_rows,
                                   int part)
{
    for (int row = threadIdx.x / 32; row < n_rows; row += WARPS) {
        const float *of = room + row * (DV + 2);
        constexpr int NEXT = HEADS * (DV + 2); /* the same row of the next warp */
        float top = -INFINITY, sum = 0.0f, weight[WARPS];
        for (int w = 0; w < WARPS; w++)
            top = fmaxf(top, of[w * NEXT]);
        for (int w = 0; w < WARPS; w++) {
            weight[w] = expf(of[w * NEXT] - top);
            sum += weight[w] * of[w * NEXT + 1];
        }
        int64_t to = (first_row + row) * p.n + part;
        for (int i = threadIdx.x & 31; i < DV; i += 32) {
            float x = 0.0f;
            for (int w = 0; w < WARPS; w++)
                x += weight[w] * of[w * NEXT + 2 + i];
            p.acc[to * DV + i] = x;
        }
        if ((threadIdx.x & 31) == 0)
            p.stats[to] = make_float2(top, sum);
    }
}

/* How many blocks of a slot and key head have written their part. All zero between launches: the
 * last one, which puts the parts together, sets it back. */
enum { MAX_COUNTS = 1 << 16 };
static __device__ unsigned counts[MAX_COUNTS];

__device__ static bool is_last(unsigned which, unsigned n)
{
    __shared__ bool last;
    __threadfence(); /* what this block wrote comes before its count */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counts + which, 1u) == n - 1;
        if (last)
            counts[which] = 0;
        __threadfence(); /* and what the others wrote before what it reads */
    }
    __syncthreads();
    return last;
}

/* A block stores what its own keys lack: the new rows, up to row t, that fall on its part. (Where a
 * sequence has several, their blocks may store the same bits to the same place.) */
template <int DK, int DV>
__device__ static void store_own(const attn_args &a, const attn_new &rows, const attn_keys &keys,
                                 range seen, int32_t first, int32_t t, int32_t kv_head)
{
    constexpr int K_PIECES = DK / 8, PIECES = (DK + DV) / 8;
    int64_t k_width = (int64_t)a.n_kv_heads * DK, v_width = (int64_t)a.n_kv_heads * DV;
    for (int32_t row = first; row <= t; row++) {
        int32_t pos = a.pos[row], piece = threadIdx.x;
        if (pos < seen.low || pos > seen.last || piece >= PIECES)
            continue;
        bool is_k = piece < K_PIECES;
        int64_t width = is_k ? k_width : v_width;
        int64_t column = is_k ? kv_head * DK + piece * 8 : kv_head * DV + (piece - K_PIECES) * 8;
        const bf16 *from = (const bf16 *)(is_k ? rows.k : rows.v) + row * width + column;
        bf16 *to = (bf16 *)(is_k ? a.k : a.v) + keys.row(pos) * width + column;
        *(uint4 *)to = *(const uint4 *)from;
    }
    __syncthreads();
}

template <int DK, int DV>
static __global__ void __launch_bounds__(THREADS) mma_part(attn_args a, attn_new rows, parts p)
{
    using smem_t = part_smem<DK, DV>;
    extern __shared__ __align__(128) unsigned char smem[];
    int chunks = (a.group + HEADS - 1) / HEADS, kv_head = blockIdx.x / chunks;
    int skip = blockIdx.x % chunks * HEADS, n_rows = min(HEADS, a.group - skip);
    int32_t part = blockIdx.y, slot = blockIdx.z;
    decoded d = row_in(a, slot);
    if (d.t < 0)
        return;
    range all = seen_by(a, d.t), seen = seen_in(all, p, part);
    if (seen.low > seen.last)
        return;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, head = kv_head * a.group + skip;
    attn_keys keys = attn_keys_of(a, d.seq, d.t), heads = { nullptr, 0, 0 };
    uint32_t q_at = smem_address(smem), k_at = q_at + smem_t::Q, v_at = k_at + 2 * smem_t::K;
    const bf16 *q = (const bf16 *)a.q + ((int64_t)d.t * a.n_heads + head) * DK;
    const bf16 *k = (const bf16 *)a.k + kv_head * DK, *v = (const bf16 *)a.v + kv_head * DV;
    int begin = seen.low / KEYS, end = seen.last / KEYS + 1;
    auto load_block = [&](int block, int stage) {
        if (block < end) {
            attn_rows<DK>::template load<KEYS, THREADS>(k_at + stage * smem_t::K, k,
                                                        (int64_t)a.n_kv_heads * DK, keys,
                                                        block * KEYS, seen.last + 1);
            attn_rows<DV>::template load<KEYS, THREADS>(v_at + stage * smem_t::V, v,
                                                        (int64_t)a.n_kv_heads * DV, keys,
                                                        block * KEYS, seen.last + 1);
        }
        cp_async_commit();
    };
    attn_rows<DK>::template load<HEADS, THREADS>(q_at, q, DK, heads, 0, n_rows);
    if (rows.k)
        store_own<DK, DV>(a, rows, keys, seen, a.starts[d.seq], d.t, kv_head);
    load_block(begin, 0);
    load_block(begin + 1, 1);
    float acc[1][DV / 8][4] = {}, max[2] = { -INFINITY, -INFINITY }, sum[2] = {}, shrink[2];
    for (int block = begin; block < end; block++) {
        int stage = (block - begin) & 1, key = block * KEYS + warp * 16;
        cp_async_wait<1>();
        __syncthreads();
        float s[1][2][4] = {};
        mma_rows<DK, 2, 1>(s, q_at, 0, k_at + stage * smem_t::K + warp * 16 * attn_rows<DK>::BYTES);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = key + i / 4 * 8 + (lane & 3) * 2 + (i & 1);
            if (at < seen.low || at > seen.last)
                s[0][i / 4][i & 3] = -INFINITY;
        }
        softmax_keys(s[0], max, sum, shrink, a.scale * LOG2E);
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            acc[0][i / 4][i & 3] *= shrink[(i & 3) / 2];
        mma_weighted<DV, 2, 1>(acc, s, v_at + stage * smem_t::V + warp * 16 * attn_rows<DV>::BYTES);
        __syncthreads();
        load_block(block + 2, stage);
    }
    cp_async_wait<0>();
    float *room = (float *)smem;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *to = room + (warp * HEADS + r * 8 + lane / 4) * (DV + 2);
        float l = sum[r];
        l += __shfl_xor_sync(~0u, l, 1);
        l += __shfl_xor_sync(~0u, l, 2);
        if ((lane & 3) == 0)
            *(float2 *)to = make_float2(max[r] * a.scale, l);
#pragma unroll
        for (int n = 0; n < DV / 8; n++)
            *(float2 *)(to + 2 + n * 8 + (lane & 3) * 2) =
                make_float2(acc[0][n][2 * r], acc[0][n][2 * r + 1]);
    }
    __syncthreads();
    merge_warps<DV>(room, p, (int64_t)slot * a.n_heads + head, n_rows, part);
    if (!is_last(slot * gridDim.x + blockIdx.x, all.last / p.keys - all.low / p.keys + 1))
        return;
    for (int row = warp; row < n_rows; row += WARPS)
        join(a, p, slot, d.t, head + row);
}

template <int DK, int DV>
static void mma_launch(cuda_device *c, const attn_args *a, attn_new rows, parts p)
{
    constexpr size_t smem = part_smem<DK, DV>::BYTES;
    int32_t chunks = (a->group + HEADS - 1) / HEADS;
    dim3 grid((unsigned)(a->n_kv_heads * chunks), (unsigned)p.n, (unsigned)slots_of(a));
    attn_allow_smem(c, mma_part<DK, DV>, smem);
    mma_part<DK, DV>
        <<<grid, THREADS, smem, c->stream>>>(*a, attn_decode_only(a) ? rows : attn_new{}, p);
}

typedef struct part_shape {
    int32_t qk_dim, v_dim;
    void (*launch)(cuda_device *, const attn_args *, attn_new, parts);
} part_shape;

static const part_shape part_shapes[] = {
    { 64, 64, mma_launch<64, 64> },     { 80, 80, mma_launch<80, 80> },
    { 96, 96, mma_launch<96, 96> },     { 128, 128, mma_launch<128, 128> },
    { 192, 128, mma_launch<192, 128> },
};

void attn_decode(cuda_device *c, const attn_args *a, attn_new rows, void *scratch)
{
    parts p = cut(a);
    p.stats = (float2 *)scratch;
    p.acc = (float *)(p.stats + (size_t)slots_of(a) * (size_t)a->n_heads * (size_t)p.n);
    void (*launch)(cuda_device *, const attn_args *, attn_new, parts) = row_launch;
    bool few = (int64_t)slots_of(a) * a->n_heads <= MAX_COUNTS;
    for (const part_shape &s : part_shapes)
        if (attn_all_bf16(a) && rows.is_bf16 && few && s.qk_dim == a->qk_dim && s.v_dim == a->v_dim)
            launch = s.launch;
    launch(c, a, rows, p);
}
