/* attention: causal attention of packed sequences, with or without pages of past keys (KV cache).
 *
 * Five kernels, chosen by types, sizes, pages and GPU, not by what else is in the batch:
 *   - attention_decode.cu: sequences of a single row, with pages;
 *   - attention_sm90.cu: Hopper, bf16, common head sizes, no pages;
 *   - mma_fwd below: the same types and sizes on other GPUs, and with pages, by mma.sync;
 *   - attention_tile.cu: any type, heads of at most 256, in f32 arithmetic;
 *   - row_fwd below: any type and size, a warp for each query row and head; slow.
 *
 * All compute online softmax: a running maximum, sum and weighted sum of values over blocks of
 * keys, in f32. The tensor-core kernels round the weights to bf16 before they multiply the values.
 *
 * mma_fwd: a block has a tile of up to 128 query rows, 16 or 32 for each of four warps, and goes
 * through blocks of 64 keys. All threads load: keys and values are double buffered with cp.async.
 * Bound: the tensor cores, behind the exponentials. A few rows after a long past are few tiles:
 * then several blocks share the keys of a tile (attention_parts.cuh). */
#include "backend/cuda/attention_parts.cuh"

/* ---- arguments and tiles ---- */

attn_args attn_args_of(const attention *a)
{
    attn_args r = {};
    r.q = a->q.data;
    r.k = a->kv ? a->kv->k.data : a->k.data;
    r.v = a->kv ? a->kv->v.data : a->v.data;
    r.out = a->out.data;
    r.lse = (float *)a->lse.data;
    r.starts = (const int32_t *)a->starts.data;
    r.pos = (const int32_t *)a->pos.data;
    if (a->kv) {
        r.table = (const int32_t *)a->kv->table.data;
        r.max_pages = (int32_t)a->kv->table.ne[1];
        r.page_tokens = (int32_t)a->kv->k.ne[1];
    }
    r.n_tokens = (int32_t)a->q.ne[0];
    r.n_seq = (int32_t)a->starts.ne[0] - 1;
    r.n_heads = a->n_heads;
    r.n_kv_heads = a->n_kv_heads;
    r.group = a->n_heads / a->n_kv_heads;
    r.qk_dim = a->qk_dim;
    r.v_dim = a->v_dim;
    r.window = a->window;
    r.scale = a->scale;
    r.softcap = a->softcap;
    r.q_bf16 = a->q.dt == DT_BF16;
    r.kv_bf16 = (a->kv ? a->kv->k.dt : a->k.dt) == DT_BF16;
    r.out_bf16 = a->out.dt == DT_BF16;
    return r;
}

/* Lists tiles by level (their number within the sequence), highest level first, then by sequence. A
 * warp takes a level at a time, its lanes 32 sequences at a time. Three phases: count the tiles of
 * each level; prefix sums over the levels; write the list. */
__device__ static int tiles_of(const int32_t *starts, int s, int n_seq, int block, int min_rows)
{
    int rows = s < n_seq ? starts[s + 1] - starts[s] : 0;
    return rows < min_rows ? 0 : (rows + block - 1) / block;
}

static __global__ void __launch_bounds__(1024)
    list_tiles(const int32_t *starts, int n_seq, int block, int min_rows, int levels, int max,
               attn_tile *list)
{
    extern __shared__ int counts[];
    __shared__ int total;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    for (int level = warp; level < levels; level += 32) {
        int n = 0;
        for (int s = 0; s < n_seq; s += 32)
            n += __popc(
                __ballot_sync(~0u, tiles_of(starts, s + lane, n_seq, block, min_rows) > level));
        if (lane == 0)
            counts[level] = n;
    }
    __syncthreads();
    if (warp == 0) { /* counts become the offsets of the levels */
        int before = 0;
        for (int top = levels - 1; top >= 0; top -= 32) {
            int own = top - lane >= 0 ? counts[top - lane] : 0, sum = own;
            for (int i = 1; i < 32; i *= 2) {
                int x = __shfl_up_sync(~0u, sum, i);
                sum += lane >= i ? x : 0;
            }
            if (top - lane >= 0)
                counts[top - lane] = before + sum - own;
            before += __shfl_sync(~0u, sum, 31);
        }
        total = before;
    }
    __syncthreads();
    for (int level = warp; level < levels; level += 32) {
        int at = counts[level];
        for (int s = 0; s < n_seq; s += 32) {
            int seq = s + lane;
            bool has = tiles_of(starts, seq, n_seq, block, min_rows) > level;
            unsigned who = __ballot_sync(~0u, has);
            if (has)
                list[at + __popc(who & ((1u << lane) - 1))] =
                    attn_tile{ starts[seq], starts[seq + 1] - starts[seq], level * block, seq };
            at += __popc(who);
        }
    }
    for (int i = total + threadIdx.x; i < max; i += blockDim.x)
        list[i] = attn_tile{ 0, 0, 0, 0 };
}

attn_tiles attn_tiles_list(cuda_device *c, const attn_args *a, int32_t min_rows, void *scratch)
{
    static_assert(sizeof(attn_tile) == 16, "scratch_tiles() counts on it");
    int32_t levels = (a->n_tokens + ATTENTION_ROWS - 1) / ATTENTION_ROWS;
    attn_tiles t = { (attn_tile *)scratch, levels + a->n_seq };
    size_t smem = (size_t)levels * sizeof(int32_t);
    attn_allow_smem(c, list_tiles, smem);
    list_tiles<<<1, 1024, smem, c->stream>>>(a->starts, a->n_seq, ATTENTION_ROWS, min_rows, levels,
                                             t.max, t.list);
    return t;
}

/* ---- pages ---- */

/* Copies row `from` of x, n elements wide, to row `to` of the pages. */
__device__ static void store_wide(void *pages, int64_t to, bool to_bf16, const void *x,
                                  int64_t from, bool from_bf16, int n)
{
    if (to_bf16 && from_bf16 && n % 8 == 0) { /* 16 bytes at a time */
        uint4 *out = (uint4 *)pages + to * (n / 8);
        const uint4 *in = (const uint4 *)x + from * (n / 8);
        for (int i = threadIdx.x; i < n / 8; i += blockDim.x)
            out[i] = in[i];
        return;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        attn_store(pages, to * n + i, to_bf16, attn_load(x, from * n + i, from_bf16));
}

static __global__ void store_pages(attn_args a, attn_new_kv rows)
{
    int32_t t = blockIdx.x, seq = attn_seq_of(a, t);
    int64_t row = attn_keys_of(a, seq, 0).row(a.pos[t]);
    store_wide((void *)a.k, row, a.kv_bf16, rows.k, t, rows.is_bf16, a.n_kv_heads * a.qk_dim);
    store_wide((void *)a.v, row, a.kv_bf16, rows.v, t, rows.is_bf16, a.n_kv_heads * a.v_dim);
}

void attn_store_pages(cuda_device *c, const attn_args *a, attn_new_kv rows)
{
    store_pages<<<(unsigned)a->n_tokens, 256, 0, c->stream>>>(*a, rows);
}

/* ---- row_fwd: any type, any size ---- */

enum { ROW_WARPS = 4 };

static __global__ void __launch_bounds__(ROW_WARPS * 32) row_fwd(attn_args a, int32_t min_rows)
{
    extern __shared__ float room[];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    float *q = room + warp * (a.qk_dim + a.v_dim), *acc = q + a.qk_dim;
    int64_t index = (int64_t)blockIdx.x * ROW_WARPS + warp;
    if (index >= (int64_t)a.n_tokens * a.n_heads)
        return;
    int32_t t = (int32_t)(index / a.n_heads), head = (int32_t)(index % a.n_heads);
    int32_t seq = attn_seq_of(a, t), start = a.starts[seq];
    if (a.starts[seq + 1] - start < min_rows)
        return;
    attn_keys keys = attn_keys_of(a, seq, start);
    int32_t last = a.table ? a.pos[t] : t - start;
    int32_t low = a.window > 0 && last - a.window + 1 > 0 ? last - a.window + 1 : 0;
    for (int i = lane; i < a.qk_dim; i += 32)
        q[i] = attn_load(a.q, index * a.qk_dim + i, a.q_bf16);
    __syncwarp();
    attn_row r = attn_row_online_softmax(a, keys, head / a.group, low, last, q, acc);
    for (int i = lane; i < a.v_dim; i += 32)
        attn_store(a.out, index * a.v_dim + i, a.out_bf16, acc[i] / r.sum);
    if (a.lse && lane == 0)
        a.lse[index] = r.max + logf(r.sum);
}

static void row_launch(cuda_device *c, const attn_args *a, int32_t min_rows)
{
    size_t smem = (size_t)ROW_WARPS * (size_t)(a->qk_dim + a->v_dim) * sizeof(float);
    int64_t rows = (int64_t)a->n_tokens * a->n_heads;
    attn_allow_smem(c, row_fwd, smem);
    row_fwd<<<(unsigned)((rows + ROW_WARPS - 1) / ROW_WARPS), ROW_WARPS * 32, smem, c->stream>>>(
        *a, min_rows);
}

/* ---- mma_fwd: tensor cores ---- */

enum { FWD_ROWS = ATTENTION_ROWS, FWD_KEYS = 64, FWD_THREADS = 128 };

template <int DK, int DV> struct fwd_smem {
    static constexpr int K_BYTES = FWD_KEYS * attn_rows<DK>::BYTES,
                         V_BYTES = FWD_KEYS * attn_rows<DV>::BYTES,
                         Q_BYTES = FWD_ROWS * attn_rows<DK>::BYTES,
                         BYTES = Q_BYTES + 2 * (K_BYTES + V_BYTES);
};

/* The result of a part of the keys: registers r and r + 1 of each 8 columns. */
template <int NB>
__device__ static inline void store_part(const parts &p, int64_t at, const float (*x)[4], int r,
                                         float2 stats)
{
    int lane = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < NB; n++)
        *(float2 *)(p.acc + at * NB * 8 + n * 8 + lane * 2) = make_float2(x[n][r], x[n][r + 1]);
    if (lane == 0)
        p.stats[at] = stats;
}

/* Online softmax of 16 rows by 64 keys: scores become weights; `rescale` is the factor of the sums
 * so far. */
__device__ static inline void online_softmax(float (*s)[4], float max[2], float sum[2],
                                             float rescale[2], float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = max[r];
#pragma unroll
        for (int n = 0; n < FWD_KEYS / 8; n++)
            top = fmaxf(top, fmaxf(s[n][2 * r], s[n][2 * r + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float zero = top == -INFINITY ? 0.0f : top * scale, part = 0.0f;
        /* exactly 1 where the block is masked for the row: which blocks a tile visits depends on
         * its other rows */
        rescale[r] = max[r] == top ? 1.0f : exp2_fast(max[r] * scale - zero);
        max[r] = top;
#pragma unroll
        for (int n = 0; n < FWD_KEYS / 8; n++)
#pragma unroll
            for (int i = 2 * r; i < 2 * r + 2; i++) {
                s[n][i] = exp2_fast(s[n][i] * scale - zero);
                part += s[n][i];
            }
        sum[r] = sum[r] * rescale[r] + part;
    }
}

__device__ static inline void mask_block(float (*s)[4], int32_t row, int32_t key, int32_t window)
{
    int lane = threadIdx.x & 31;
    row += lane / 4;
    key += (lane & 3) * 2;
#pragma unroll
    for (int n = 0; n < FWD_KEYS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t back = row + (i / 2) * 8 - (key + n * 8 + (i & 1));
            if (back < 0 || back >= window)
                s[n][i] = -INFINITY;
        }
}

/* A tile and head, and a part of its keys: of at most 64 MT rows, 16 MT for each warp. */
template <int DK, int DV, int MT>
__device__ static void mma_tile(const attn_args &a, const attn_tile &t, const parts &p)
{
    using smem_t = fwd_smem<DK, DV>;
    extern __shared__ __align__(128) unsigned char smem[];
    int head = blockIdx.x, part = blockIdx.z, kv_head = head / a.group, warp = threadIdx.x / 32;
    int64_t q_width = (int64_t)a.n_heads * DK, k_width = (int64_t)a.n_kv_heads * DK,
            v_width = (int64_t)a.n_kv_heads * DV;
    const bf16 *q = (const bf16 *)a.q + head * DK, *k = (const bf16 *)a.k + kv_head * DK,
               *v = (const bf16 *)a.v + kv_head * DV;
    int past = a.table ? a.pos[t.start] : 0, window = a.window > 0 ? a.window : INT32_MAX;
    int rows = min(FWD_ROWS, t.length - t.first), first = past + t.first; /* position of row 0 */
    int low = a.window > 0 ? max(0, first - a.window + 1) : 0, end = past + t.length;
    int begin_block = low / FWD_KEYS, end_block = (first + rows - 1) / FWD_KEYS + 1;
    if (p.n > 1) {
        int each = p.keys / FWD_KEYS;
        begin_block = max(begin_block, part * each);
        end_block = min(end_block, (part + 1) * each);
        if (begin_block >= end_block)
            return;
    }
    attn_keys keys = attn_keys_of(a, t.seq, t.start);

    /* prologue: queries, and the first block of keys and values */
    uint32_t q_at = smem_address(smem), k_at = q_at + smem_t::Q_BYTES,
             v_at = k_at + 2 * smem_t::K_BYTES;
    attn_rows<DK>::template load<64 * MT, FWD_THREADS>(
        q_at, q, q_width, attn_keys{ nullptr, 0, t.start }, t.first, t.length);
    auto load_block = [&](int block, int stage) {
        attn_rows<DK>::template load<FWD_KEYS, FWD_THREADS>(k_at + stage * smem_t::K_BYTES, k,
                                                            k_width, keys, block * FWD_KEYS, end);
        attn_rows<DV>::template load<FWD_KEYS, FWD_THREADS>(v_at + stage * smem_t::V_BYTES, v,
                                                            v_width, keys, block * FWD_KEYS, end);
        cp_async_commit();
    };
    load_block(begin_block, 0);

    /* main loop: load the next block, then scores, mask, softmax, weighted sum of this one */
    float acc[MT][DV / 8][4] = {}, max[MT][2], sum[MT][2] = {};
#pragma unroll
    for (int m = 0; m < MT; m++)
        max[m][0] = max[m][1] = -INFINITY;
    for (int block = begin_block; block < end_block; block++) {
        int stage = (block - begin_block) & 1, key = block * FWD_KEYS;
        cp_async_wait<0>();
        __syncthreads();
        if (block + 1 < end_block)
            load_block(block + 1, stage ^ 1);
        float s[MT][FWD_KEYS / 8][4] = {};
        mma_row_products<DK, FWD_KEYS / 8, MT>(s, q_at, warp * 16 * MT,
                                               k_at + stage * smem_t::K_BYTES);
        bool edge = key + FWD_KEYS - 1 > first + warp * 16 * MT || first + rows - 1 - key >= window;
#pragma unroll
        for (int m = 0; m < MT; m++) {
            float rescale[2];
            if (edge)
                mask_block(s[m], first + warp * 16 * MT + m * 16, key, window);
            online_softmax(s[m], max[m], sum[m], rescale, a.scale * LOG2E);
#pragma unroll
            for (int n = 0; n < DV / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    acc[m][n][i] *= rescale[i / 2];
        }
        mma_weighted_sum<DV, FWD_KEYS / 8, MT>(acc, s, v_at + stage * smem_t::V_BYTES);
    }

    /* epilogue: divide by the sum of weights, store, and keep the log-sum-exp for backward; or
     * store the part */
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float l = sum[m][r];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
            int row = warp * 16 * MT + m * 16 + r * 8 + lane / 4;
            int64_t at = (int64_t)(t.start + t.first + row) * a.n_heads + head;
            if (p.n > 1) {
                if (row < rows)
                    store_part<DV / 8>(p, at * p.n + part, acc[m], 2 * r,
                                       make_float2(max[m][r] * a.scale, l));
                continue;
            }
            store_row<DV / 8>((bf16 *)a.out + at * DV, acc[m], 2 * r, 1.0f / l, row < rows);
            if (a.lse && row < rows && (lane & 3) == 0)
                a.lse[at] = max[m][r] * a.scale + logf(l);
        }
}

template <int DK, int DV>
static __global__ void __launch_bounds__(FWD_THREADS)
    mma_fwd(attn_args a, const attn_tile *tiles, int32_t n_tiles, parts p)
{
    for (int i = blockIdx.y; i < n_tiles && tiles[i].length; i += gridDim.y) {
        attn_tile t = tiles[i];
        if (t.length - t.first <= 64) /* so that all warps have rows */
            mma_tile<DK, DV, 1>(a, t, p);
        else
            mma_tile<DK, DV, 2>(a, t, p);
        __syncthreads(); /* the next tile reuses the shared memory */
    }
}

/* A warp for a row of a tile and a head. */
static __global__ void __launch_bounds__(FWD_THREADS)
    join_parts(attn_args a, const attn_tile *tiles, int32_t n_tiles, parts p)
{
    int32_t row = blockIdx.y, head = blockIdx.x * (FWD_THREADS / 32) + threadIdx.x / 32;
    for (int i = blockIdx.z; i < n_tiles && tiles[i].length; i += gridDim.z) {
        attn_tile t = tiles[i];
        int32_t at = t.start + t.first + row;
        if (head < a.n_heads && t.first + row < t.length)
            join(a, p, at, at, head);
    }
}

/* Few tiles leave multiprocessors idle, so there the keys are cut into parts. Most entries of the
 * list are empty where most sequences have one row, so a few blocks go through all of it. */
template <int DK, int DV>
static void mma_launch(cuda_device *c, const attn_args *a, attn_tiles tiles, void *scratch)
{
    constexpr size_t smem = fwd_smem<DK, DV>::BYTES;
    attn_allow_smem(c, mma_fwd<DK, DV>, smem);
    int64_t keys = scratch_tile_keys(c->n_sm, a->n_tokens, a->n_heads, attn_cached(a));
    parts p = parts_of(a, keys, a->n_tokens, scratch);
    int32_t full = (a->n_tokens + FWD_ROWS - 1) / FWD_ROWS,
            some = max(full, 4 * c->n_sm / (a->n_heads * p.n));
    dim3 grid((unsigned)a->n_heads, (unsigned)min(some, tiles.max), (unsigned)p.n);
    mma_fwd<DK, DV><<<grid, FWD_THREADS, smem, c->stream>>>(*a, tiles.list, tiles.max, p);
    dim3 rows((unsigned)(a->n_heads + 3) / 4, FWD_ROWS, grid.y);
    if (p.n > 1)
        join_parts<<<rows, FWD_THREADS, 0, c->stream>>>(*a, tiles.list, tiles.max, p);
}

typedef struct mma_shape {
    int32_t qk_dim, v_dim;
    int smem; /* bytes of a block; GPUs of 8.6 and 8.9 have too few for wide heads */
    void (*launch)(cuda_device *, const attn_args *, attn_tiles, void *);
} mma_shape;

static const mma_shape mma_shapes[] = {
    { 64, 64, fwd_smem<64, 64>::BYTES, mma_launch<64, 64> },
    { 80, 80, fwd_smem<80, 80>::BYTES, mma_launch<80, 80> },
    { 96, 96, fwd_smem<96, 96>::BYTES, mma_launch<96, 96> },
    { 128, 128, fwd_smem<128, 128>::BYTES, mma_launch<128, 128> },
    { 192, 128, fwd_smem<192, 128>::BYTES, mma_launch<192, 128> },
};

static size_t mma_parts_bytes(const cuda_device *c, const attn_args *a)
{
    return scratch_tile_parts(c->n_sm, a->n_tokens, a->n_heads, a->v_dim, attn_cached(a));
}

static const mma_shape *find_shape(const cuda_device *c, const attn_args *a)
{
    if (!attn_all_bf16(a))
        return NULL;
    for (const mma_shape &s : mma_shapes)
        if (s.qk_dim == a->qk_dim && s.v_dim == a->v_dim && s.smem <= c->most_smem)
            return &s;
    return NULL;
}

/* ---- the op ---- */

/* Applies RoPE to q and k in place, unless the decoding kernel does it while it loads them. */
static void rotate(device *d, const attention *op, attn_args *a)
{
    attn_new_kv rows = { op->k.data, op->v.data, op->k.dt == DT_BF16 };
    rope r = {
        op->q,           op->cos, op->sin, op->n_heads, op->qk_dim, 0, 2 * (int32_t)op->cos.ne[1],
        op->interleaved, false
    };
    if (attn_decode_rotates(a, rows)) {
        a->rope = attn_rope{ (float *)op->cos.data, (float *)op->sin.data, r.rot_dim / 2,
                             op->interleaved };
        return;
    }
    cuda_rope(d, &r);
    r.x = op->k;
    r.n_heads = op->n_kv_heads;
    cuda_rope(d, &r);
}

extern "C" void cuda_attention_fwd(device *d, const attention *op)
{
    cuda_device *c = cuda_of(d);
    attn_args a = attn_args_of(op);
    if (a.n_tokens == 0)
        return;
    if (op->cos.data)
        rotate(d, op, &a);
    const mma_shape *shape = a.softcap > 0 ? NULL : find_shape(c, &a);
    int32_t min_rows = a.table ? 2 : 1; /* with pages a single row is attn_decode's */
    bool tiled = shape || (a.softcap == 0 && attn_tile_fits(c, &a));
    size_t list = tiled ? scratch_tiles(a.n_tokens, a.n_seq) : 0;
    unsigned char *scratch = NULL;
    if (a.table) {
        attn_new_kv rows = { op->k.data, op->v.data, op->k.dt == DT_BF16 };
        size_t decode = attn_decode_bytes(&a), parts = shape ? mma_parts_bytes(c, &a) : 0;
        scratch = (unsigned char *)cuda_scratch(c, "attention_fwd",
                                                list + (decode > parts ? decode : parts));
        if (!scratch)
            return;
        if (!attn_decode_only(&a))
            attn_store_pages(c, &a, rows);
        attn_decode(c, &a, rows, scratch + list);
        if (attn_decode_only(&a))
            return cuda_launched(c, "attention_fwd");
    } else if (c->cc >= 90 && a.softcap == 0 && attn_sm90_fwd(c, &a)) {
        return cuda_launched(c, "attention_fwd");
    }
    if (tiled) {
        scratch = scratch ? scratch : (unsigned char *)cuda_scratch(c, "attention_fwd", list);
        if (!scratch)
            return;
        attn_tiles tiles = attn_tiles_list(c, &a, min_rows, scratch);
        if (shape)
            shape->launch(c, &a, tiles, scratch + list);
        else
            attn_tile_fwd(c, &a, tiles);
    } else {
        row_launch(c, &a, min_rows);
    }
    cuda_launched(c, "attention_fwd");
}
