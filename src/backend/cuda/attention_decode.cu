/* attention_decode: single query rows against the pages of their past (KV cache).
 *
 * Bound: reading keys and values. One row has many keys, so the keys are split in parts (flash
 * decoding); the last block of a row to finish joins the parts in order. Where parts begin depends
 * on the size of the cache alone, so a sequence gets the same bits whatever is decoded beside it,
 * if the number of rows is the same.
 * How many blocks share the parts of a row depends on the number of rows: with few rows each part
 * has its own block; with many there are blocks enough, and those of parts that a short past does
 * not have would cost more than the work. So does, in lane_part, how many warps share a part.
 *
 * Three kernels:
 *   - mma_part: tensor cores. The query heads that share a key head are the rows of an mma (16,
 * most of them empty); the four warps take 16 keys each of a block of 64. Keys and values come
 *     through a ring of two or three cp.async stages.
 *   - lane_part: one or two query heads on a key head (attention_lanes.cuh).
 *   - row_part: any type and size, a warp for each head; then join_parts.
 * The first two also apply RoPE and store the new row of k and v, and start early (PDL): the past
 * is in the pages already, only the new row is another kernel's result. */
#include "backend/cuda/attention_lanes.cuh"
#include "backend/cuda/attention_parts.cuh"
#include "backend/cuda/overlap.cuh"

enum { KEYS = DECODE_KEYS, HEADS = 16, THREADS = 128, WARPS = THREADS / 32 };
enum { BLOCKS = 512 }; /* about as many as a GPU runs at a time */

/* Slots of decoded rows: the rows, where the pass is all decoding; else the sequences, of which
 * those with one row are decoded. */
static int32_t slots_of(const attn_args *a)
{
    return attn_decode_only(a) ? a->n_tokens : a->n_seq;
}

/* A block for each of `columns` heads or groups of heads of a slot, and as many for the parts of
 * each as make BLOCKS. The first blocks are those of first parts, which every row has. */
static dim3 grid_of(const attn_args *a, const parts &p, int32_t columns)
{
    int64_t rows = (int64_t)slots_of(a) * columns, each = (BLOCKS + rows - 1) / rows;
    return dim3((unsigned)columns, (unsigned)slots_of(a), (unsigned)(each < p.n ? each : p.n));
}

size_t attn_decode_bytes(const attn_args *a)
{
    return scratch_decode(slots_of(a), a->n_heads, a->v_dim, attn_cached(a));
}

typedef struct decoded {
    int32_t t, seq; /* t < 0: the slot is not used */
} decoded;

__device__ static decoded row_in(const attn_args &a, int32_t slot)
{
    if (a.n_tokens <= a.n_seq)
        return decoded{ slot, attn_seq_of(a, slot) };
    int32_t t = a.starts[slot];
    return decoded{ a.starts[slot + 1] - t == 1 ? t : -1, slot };
}

/* ---- row_part: any type, any size, a warp for a head and part ---- */

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
    attn_row s = attn_row_online_softmax(a, attn_keys_of(a, r.seq, r.t), head / a.group, keys.low,
                                         keys.last, q, acc);
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

static void row_launch(cuda_device *c, const attn_args *a, attn_new_kv rows, parts p)
{
    if (attn_decode_only(a))
        attn_store_pages(c, a, rows);
    size_t smem = (size_t)WARPS * (size_t)(a->qk_dim + a->v_dim) * sizeof(float);
    dim3 grid((unsigned)((a->n_heads + WARPS - 1) / WARPS), (unsigned)p.n, (unsigned)slots_of(a));
    attn_allow_smem(c, row_part, smem);
    row_part<<<grid, THREADS, smem, c->stream>>>(*a, p);
    join_parts<<<dim3(grid.x, grid.z), THREADS, 0, c->stream>>>(*a, p);
}

/* ---- mma_part: tensor cores ---- */

template <int DK, int DV, int STAGES> struct part_smem {
    static constexpr int Q = HEADS * attn_rows<DK>::BYTES, K = KEYS * attn_rows<DK>::BYTES,
                         V = KEYS * attn_rows<DV>::BYTES, BYTES = Q + STAGES * (K + V);
    static_assert(BYTES >= WARPS * HEADS * (DV + 2) * 4,
                  "the warps' results reuse the memory of the keys");
};

/* Online softmax of 16 rows by 16 keys: scores become weights. */
__device__ static inline void online_softmax(float (*s)[4], float max[2], float sum[2],
                                             float rescale[2], float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = fmaxf(fmaxf(s[0][2 * r], s[0][2 * r + 1]), fmaxf(s[1][2 * r], s[1][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(max[r], fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
        float zero = top == -INFINITY ? 0.0f : top * scale;
        rescale[r] = exp2_fast(max[r] * scale - zero);
        max[r] = top;
        sum[r] *= rescale[r];
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * scale - zero);
                sum[r] += s[n][i];
            }
    }
}

/* Joins the results of the block's N warps, in shared memory as [warp][row][max, sum, DV] of ROWS
 * rows: store_value(row, column, value, sum) and store_stats(row, max, sum). */
template <int DV, int ROWS, int N, class G, class T>
__device__ static void join_warps(const float *room, int n_rows, G store_value, T store_stats)
{
    for (int row = threadIdx.x / 32; row < n_rows; row += N) {
        const float *of = room + row * (DV + 2);
        constexpr int NEXT = ROWS * (DV + 2); /* the same row of the next warp */
        float top = -INFINITY, sum = 0.0f, weight[N];
        for (int w = 0; w < N; w++)
            top = fmaxf(top, of[w * NEXT]);
        for (int w = 0; w < N; w++) {
            weight[w] = expf(of[w * NEXT] - top);
            sum += weight[w] * of[w * NEXT + 1];
        }
        for (int i = threadIdx.x & 31; i < DV; i += 32) {
            float x = 0.0f;
            for (int w = 0; w < N; w++)
                x += weight[w] * of[w * NEXT + 2 + i];
            store_value(row, i, x, sum);
        }
        if ((threadIdx.x & 31) == 0)
            store_stats(row, top, sum);
    }
}

/* Whether this is the last of n blocks to come here with the same counter. */
__device__ static bool is_last(unsigned *counter, unsigned n)
{
    __shared__ bool last;
    __threadfence(); /* what this block wrote comes before its count */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == n - 1;
        if (last)
            *counter = 0;
        __threadfence(); /* and what the others wrote before what it reads */
    }
    __syncthreads();
    return last;
}

/* The work of a block: some heads of a row, and of the parts of the keys that the row sees those
 * from `part` to last_part in steps of gridDim.z. */
struct block_work {
    decoded d;
    int32_t slot, part, last_part, kv_head, head, n_heads;
    range all; /* the keys that the row sees */
};

/* most: heads of a block. The work of a block that has none begins after its last part. */
__device__ static block_work work_of(const attn_args &a, const parts &p, int most)
{
    int chunks = (a.group + most - 1) / most, skip = blockIdx.x % chunks * most;
    block_work b = { row_in(a, blockIdx.y), (int32_t)blockIdx.y };
    b.all = seen_by(a, max(b.d.t, 0));
    b.part = b.all.low / p.keys + (int32_t)blockIdx.z;
    b.last_part = b.d.t < 0 ? -1 : b.all.last / p.keys;
    b.kv_head = blockIdx.x / chunks;
    b.head = b.kv_head * a.group + skip;
    b.n_heads = min(most, a.group - skip);
    return b;
}

/* The end of a block without work. It is enough if the blocks of first parts wait for the kernel
 * before: others would keep those that have work from starting. */
__device__ static void leave_early()
{
    if (blockIdx.z == 0)
        overlap_wait();
}

/* Stores the warps' results, which are in shared memory: to the output, where there is one part;
 * else to scratch, and the last block joins the parts. */
template <int DV, int ROWS, int N>
__device__ static void store_part(const attn_args &a, const parts &p, const float *room,
                                  const block_work &b)
{
    int n_parts = b.all.last / p.keys - b.all.low / p.keys + 1;
    int64_t first = (int64_t)b.d.t * a.n_heads + b.head;
    int64_t kept = (int64_t)b.slot * a.n_heads + b.head;
    if (n_parts == 1) {
        join_warps<DV, ROWS, N>(
            room, b.n_heads,
            [&](int row, int i, float x, float l) {
                attn_store(a.out, (first + row) * DV + i, true, x / l);
            },
            [&](int row, float top, float l) {
                if (a.lse)
                    a.lse[first + row] = top + logf(l);
            });
        return;
    }
    join_warps<DV, ROWS, N>(
        room, b.n_heads,
        [&](int row, int i, float x, float) { p.acc[((kept + row) * p.n + b.part) * DV + i] = x; },
        [&](int row, float top, float l) {
            p.stats[(kept + row) * p.n + b.part] = make_float2(top, l);
        });
    if (!is_last(p.counts + b.slot * gridDim.x + blockIdx.x, n_parts))
        return;
    for (int row = threadIdx.x / 32; row < b.n_heads; row += N)
        join(a, p, b.slot, b.d.t, b.head + row);
}

/* Stores the new rows of this part's positions: to the pages, and to shared memory, whose blocks
 * were loaded before these rows were known. (Where a sequence has several rows, several blocks may
 * store the same bits to the same place.) */
template <int DK, int DV> struct new_rows {
    const attn_new_kv &rows;
    attn_keys keys;
    range seen;
    int32_t kv_head;
    bf16 *k, *v; /* blocks in shared memory, beginning with that of key seen.low */
    int n_keys;  /* in these */

    __device__ void store(const attn_args &a, int32_t row) const
    {
        int32_t pos = a.pos[row], at = pos - seen.low / KEYS * KEYS;
        if (pos < seen.low || pos > seen.last)
            return;
        int64_t to = keys.row(pos) * a.n_kv_heads + kv_head;
        int64_t from = (int64_t)row * a.n_kv_heads + kv_head;
        for (int n = threadIdx.x; n < (DK + DV) / 2; n += blockDim.x) {
            bool is_k = n < DK / 2;
            rotated_pair x =
                is_k ? rotated_pair((const bf16 *)rows.k + from * DK, a.rope, row, n)
                     : rotated_pair((const bf16 *)rows.v + from * DV, attn_rope{}, 0, n - DK / 2);
            x.store(is_k ? (bf16 *)a.k + to * DK : (bf16 *)a.v + to * DV);
            if (at < n_keys)
                x.store(is_k ? k + at * attn_rows<DK>::STRIDE : v + at * attn_rows<DV>::STRIDE);
        }
    }
};

/* One part of the keys. */
template <int DK, int DV, int STAGES>
__device__ static void mma_one(const attn_args &a, const attn_new_kv &rows, const parts &p,
                               const block_work &b)
{
    using smem_t = part_smem<DK, DV, STAGES>;
    extern __shared__ __align__(128) unsigned char smem[];
    range seen = seen_in(b.all, p, b.part);
    decoded d = b.d;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, kv_head = b.kv_head;
    attn_keys keys = attn_keys_of(a, d.seq, d.t);
    uint32_t q_at = smem_address(smem), k_at = q_at + smem_t::Q, v_at = k_at + STAGES * smem_t::K;
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
    /* prologue: blocks of past keys, then queries and new rows. Without `rows` the kernel before
     * this one has written new keys to the pages, so none may be read before the wait. */
    if (!rows.k)
        overlap_wait();
    for (int i = 0; i < STAGES; i++)
        load_block(begin + i, i);
    overlap_wait();
    bf16 *room_q = (bf16 *)smem;
    for (int i = threadIdx.x; i < HEADS * DK / 2; i += THREADS) {
        int row = i / (DK / 2), n = i % (DK / 2);
        const bf16 *from = (const bf16 *)a.q + ((int64_t)d.t * a.n_heads + b.head + row) * DK;
        bf16 *to = room_q + row * attn_rows<DK>::STRIDE;
        if (row < b.n_heads)
            rotated_pair(from, a.rope, d.t, n).store(to);
        else
            *(uint32_t *)(to + 2 * n) = 0;
    }
    if (rows.k && a.pos[a.starts[d.seq]] <= seen.last) {
        new_rows<DK, DV> own = { rows,
                                 keys,
                                 seen,
                                 kv_head,
                                 room_q + smem_t::Q / 2,
                                 room_q + (smem_t::Q + STAGES * smem_t::K) / 2,
                                 STAGES * KEYS };
        cp_async_wait<0>();
        __syncthreads();
        for (int32_t row = a.starts[d.seq]; row <= d.t; row++)
            own.store(a, row);
        __syncthreads();
    }
    /* main loop over blocks of keys */
    float acc[1][DV / 8][4] = {}, max[2] = { -INFINITY, -INFINITY }, sum[2] = {}, rescale[2];
    for (int block = begin; block < end; block++) {
        int stage = (block - begin) % STAGES, key = block * KEYS + warp * 16;
        cp_async_wait<STAGES - 1>();
        __syncthreads();
        float s[1][2][4] = {};
        mma_row_products<DK, 2, 1>(s, q_at, 0,
                                   k_at + stage * smem_t::K + warp * 16 * attn_rows<DK>::BYTES);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            int at = key + i / 4 * 8 + (lane & 3) * 2 + (i & 1);
            if (at < seen.low || at > seen.last)
                s[0][i / 4][i & 3] = -INFINITY;
        }
        online_softmax(s[0], max, sum, rescale, a.scale * LOG2E);
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            acc[0][i / 4][i & 3] *= rescale[(i & 3) / 2];
        mma_weighted_sum<DV, 2, 1>(acc, s,
                                   v_at + stage * smem_t::V + warp * 16 * attn_rows<DV>::BYTES);
        __syncthreads();
        load_block(block + STAGES, stage);
    }
    /* the warps' results to shared memory, then out */
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
    store_part<DV, HEADS, WARPS>(a, p, room, b);
}

template <int DK, int DV, int STAGES>
static __global__ void __launch_bounds__(THREADS) mma_part(attn_args a, attn_new_kv rows, parts p)
{
    overlap_next();
    block_work b = work_of(a, p, HEADS);
    if (b.part > b.last_part)
        return leave_early();
    for (; b.part <= b.last_part; b.part += gridDim.z) {
        mma_one<DK, DV, STAGES>(a, rows, p, b);
        __syncthreads(); /* the next part reuses the shared memory */
    }
}

template <int DK, int DV, int STAGES>
static void mma_launch(cuda_device *c, const attn_args *a, attn_new_kv rows, parts p)
{
    dim3 grid = grid_of(a, p, a->n_kv_heads * ((a->group + HEADS - 1) / HEADS));
    overlap_launch(c, "attention_fwd", { grid, THREADS, part_smem<DK, DV, STAGES>::BYTES },
                   mma_part<DK, DV, STAGES>, *a, attn_decode_only(a) ? rows : attn_new_kv{}, p);
}

/* ---- lane_part: one or two query heads on a key head ---- */

/* Queries of the block's heads, rotated, times scale log2(e). */
template <int D, int N>
__device__ static void load_queries(float (&q)[N][D], const attn_args &a, const block_work &b)
{
    for (int i = threadIdx.x; i < b.n_heads * D / 2; i += blockDim.x) {
        int row = i / (D / 2);
        int64_t from = (int64_t)b.d.t * a.n_heads + b.head + row;
        rotated_pair x((const bf16 *)a.q + from * D, a.rope, b.d.t, i % (D / 2));
        q[row][x.i] = __bfloat162float(x.a) * (a.scale * LOG2E);
        q[row][x.j] = __bfloat162float(x.b) * (a.scale * LOG2E);
    }
}

/* A part of the keys for a row and a key head with N query heads: each of W warps has four keys at
 * a time, while the next AHEAD times four are being loaded. The first loads start before the wait,
 * as far as the keys are in the pages already. */
template <int D, int N, int W, int AHEAD>
__device__ static void lane_one(const attn_args &a, const attn_new_kv &rows, const parts &p,
                                const block_work &b, float (&q)[N][D], float (&room)[W][N][D + 2])
{
    typedef attn_lanes<D, N> lanes;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, kv_head = b.kv_head;
    range seen = seen_in(b.all, p, b.part);
    attn_keys keys = attn_keys_of(a, b.d.seq, b.d.t);
    int first = seen.low + warp * 4, past = rows.k ? a.pos[a.starts[b.d.seq]] : 0;
    auto load = [&](int at) {
        at = min(at + lane / 8, seen.last);
        int64_t from = (keys.row(at) * a.n_kv_heads + kv_head) * D;
        return lanes::load((const bf16 *)a.k + from, (const bf16 *)a.v + from);
    };
    auto is_past = [&](int at) { return min(at + 3, seen.last) < past; };

    /* prologue: past keys before the wait; then queries, once, and new rows */
    typename lanes::key ahead[AHEAD];
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (is_past(first + i * W * 4))
            ahead[i] = load(first + i * W * 4);
    overlap_wait();
    if (b.part == b.all.low / p.keys + (int32_t)blockIdx.z)
        load_queries<D, N>(q, a, b);
    if (rows.k && past <= seen.last) {
        new_rows<D, D> own = { rows, keys, seen, kv_head, NULL, NULL, 0 };
        for (int32_t row = a.starts[b.d.seq]; row <= b.d.t; row++)
            own.store(a, row);
    }
    __syncthreads(); /* also for the queries, and for the results of the part before */
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        if (!is_past(first + i * W * 4))
            ahead[i] = load(first + i * W * 4);

    /* main loop */
    lanes r;
    r.clear();
    for (; first <= seen.last; first += AHEAD * W * 4)
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int at = first + i * W * 4;
            if (at > seen.last)
                break;
            typename lanes::key now = ahead[i];
            if (at + AHEAD * W * 4 <= seen.last)
                ahead[i] = load(at + AHEAD * W * 4);
            r.add_keys(q, b.n_heads, now, at + lane / 8 <= seen.last);
        }
    r.finish(
        b.n_heads,
        [&](int h, float top, float sum) {
            room[warp][h][0] = top / LOG2E;
            room[warp][h][1] = sum;
        },
        [&](int h, int c, float x) { room[warp][h][2 + c] = x; });
    __syncthreads();
    store_part<D, N, W>(a, p, &room[0][0][0], b);
}

template <int D, int N, int W, int AHEAD>
static __global__ void __launch_bounds__(W * 32) lane_part(attn_args a, attn_new_kv rows, parts p)
{
    __shared__ __align__(16) float q[N][D], room[W][N][D + 2];
    overlap_next();
    block_work b = work_of(a, p, N);
    if (b.part > b.last_part)
        return leave_early();
    for (; b.part <= b.last_part; b.part += gridDim.z)
        lane_one<D, N, W, AHEAD>(a, rows, p, b, q, room);
}

/* Where there are few blocks for each multiprocessor, a block needs more warps and loads to hide
 * latency; where there are many, small ones are faster. The number of rows decides, not that of
 * sequences, because forwards of the same number of rows must give a row the same bits. */
template <int D, int N>
static void lane_launch(cuda_device *c, const attn_args *a, attn_new_kv rows, parts p)
{
    int32_t heads = a->n_kv_heads * ((a->group + N - 1) / N);
    int64_t blocks = (int64_t)a->n_tokens * heads;
    int warps = blocks <= c->n_sm ? 16 : blocks <= 2 * c->n_sm ? 8 : 4;
    overlap_launch(c, "attention_fwd", { grid_of(a, p, heads), warps * 32, 0 },
                   warps == 16  ? lane_part<D, N, 16, 1>
                   : warps == 8 ? lane_part<D, N, 8, 2>
                                : lane_part<D, N, 4, 1>,
                   *a, attn_decode_only(a) ? rows : attn_new_kv{}, p);
}

typedef void launcher(cuda_device *, const attn_args *, attn_new_kv, parts);

/* Stages of the ring: two, or three where there is shared memory for them. */
typedef struct part_shape {
    int32_t qk_dim, v_dim;
    launcher *two, *three;
} part_shape;

#define SHAPE(dk, dv)                                                                              \
    {                                                                                              \
        dk, dv, mma_launch<dk, dv, 2>, mma_launch<dk, dv, 3>                                       \
    }
static const part_shape part_shapes[] = { SHAPE(64, 64), SHAPE(80, 80), SHAPE(96, 96),
                                          SHAPE(128, 128), SHAPE(192, 128) };
#undef SHAPE

static const part_shape *shape_for(const attn_args *a, bool new_bf16)
{
    bool few = (int64_t)slots_of(a) * a->n_heads <= CUDA_COUNTERS;
    for (const part_shape &s : part_shapes)
        if (a->softcap == 0 && attn_all_bf16(a) && new_bf16 && few && s.qk_dim == a->qk_dim &&
            s.v_dim == a->v_dim)
            return &s;
    return NULL;
}

bool attn_decode_rotates(const attn_args *a, attn_new_kv rows)
{
    return attn_decode_only(a) && shape_for(a, rows.is_bf16);
}

static launcher *launcher_for(const cuda_device *c, const attn_args *a, const part_shape *s)
{
    if (!s)
        return row_launch;
    if (a->group <= 2 && s->qk_dim == s->v_dim && (s->v_dim == 64 || s->v_dim == 128))
        return s->v_dim == 64  ? a->group == 1 ? lane_launch<64, 1> : lane_launch<64, 2>
                : a->group == 1 ? lane_launch<128, 1>
                               : lane_launch<128, 2>;
    return c->cc >= 90 ? s->three : s->two;
}

void attn_decode(cuda_device *c, const attn_args *a, attn_new_kv rows, void *scratch)
{
    parts p = parts_of(a, scratch_decode_keys(attn_cached(a)), slots_of(a), scratch);
    const part_shape *shape = shape_for(a, rows.is_bf16);
    p.counts = c->counters;
    launcher_for(c, a, shape)(c, a, rows, p);
}
