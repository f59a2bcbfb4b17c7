/* attention_bwd: gradients of attention, from the log-sum-exp that forward kept.
 *
 * With P_ij = e^(scale q_i.k_j - lse_i), D_i = dO_i.O_i and dS_ij = P_ij (dO_i.v_j - D_i):
 *     dq_i = scale sum_j dS_ij k_j    dk_j = scale sum_i dS_ij q_i    dv_j = sum_i P_ij dO_i
 * P is computed twice: in a pass whose tiles own query rows and in one whose tiles own keys. So
 * every gradient is summed by one owner in a fixed order: seven products instead of five, but no
 * atomics and no inter-block synchronisation, and weights stay in registers.
 *
 * Both passes are one kernel: a tile owns rows (queries, or keys) and goes through blocks of the
 * other kind. The kernels correspond to those of attention.cu: attention_bwd_sm90.cu on Hopper,
 * mma_bwd with mma.sync (8 warps with 16 own rows each, other rows double buffered with cp.async),
 * row_bwd for any type and size. */
#include "backend/cuda/attention.cuh"

/* ---- D_i: a power of two of lanes for a row and head ---- */

__device__ static inline float dot2(uint32_t x, uint32_t y)
{
    float2 a = __bfloat1622float2(*(__nv_bfloat162 *)&x),
           b = __bfloat1622float2(*(__nv_bfloat162 *)&y);
    return a.x * b.x + a.y * b.y;
}

static __global__ void delta_rows(attn_bwd_args b, int lanes, bool wide)
{
    int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, index = thread / lanes;
    int lane = (int)(thread % lanes), dim = b.f.v_dim;
    bool there = index < (int64_t)b.f.n_tokens * b.f.n_heads;
    float sum = 0.0f;
    if (wide) { /* bf16, 16 bytes at a time */
        const uint4 *x = (const uint4 *)b.dout + index * (dim / 8),
                    *y = (const uint4 *)b.f.out + index * (dim / 8);
        for (int i = lane; there && i < dim / 8; i += lanes)
            sum += dot2(x[i].x, y[i].x) + dot2(x[i].y, y[i].y) + dot2(x[i].z, y[i].z) +
                   dot2(x[i].w, y[i].w);
    } else {
        for (int i = lane; there && i < dim; i += lanes)
            sum += attn_load(b.dout, index * dim + i, b.dout_bf16) *
                   attn_load(b.f.out, index * dim + i, b.f.out_bf16);
    }
    for (int i = lanes / 2; i; i >>= 1)
        sum += __shfl_xor_sync(~0u, sum, i);
    if (!there || lane != 0)
        return;
    b.delta[index] = sum;
    if (b.stats)
        b.stats[index] = make_float4(b.f.lse[index] * LOG2E, sum, 0.0f, 0.0f);
}

static void delta_launch(cuda_device *c, const attn_bwd_args *b)
{
    bool wide = b->dout_bf16 && b->f.out_bf16 && b->f.v_dim % 8 == 0;
    int lanes = 1, most = wide ? b->f.v_dim / 8 : b->f.v_dim;
    while (lanes < 32 && lanes < most)
        lanes *= 2;
    int64_t threads = (int64_t)b->f.n_tokens * b->f.n_heads * lanes;
    delta_rows<<<(unsigned)((threads + 255) / 256), 256, 0, c->stream>>>(*b, lanes, wide);
}

/* ---- row_bwd: any type, any size; a warp owns a query row and head, or a key and its head ---- */

enum { ROW_WARPS = 4 };

/* A head of a row of x. */
typedef struct row_of {
    const void *x;
    int64_t at;
    bool is_bf16;
} row_of;

__device__ static inline row_of row_at(const void *x, int64_t t, int n_heads, int head, int dim,
                                       bool is_bf16)
{
    return row_of{ x, (t * n_heads + head) * dim, is_bf16 };
}

__device__ static float dot_row(const float *a, row_of b, int dim)
{
    float sum = 0.0f;
    for (int i = 0; i < dim; i++)
        sum += a[i] * attn_load(b.x, b.at + i, b.is_bf16);
    return sum;
}

/* sum[0..dim) += the n lanes' weights times their rows. */
__device__ static void add_rows(float *sum, float weight, row_of b, int dim, int n)
{
    int lane = threadIdx.x & 31;
    for (int i = lane; i < (dim + 31) / 32 * 32; i += 32) {
        float x = i < dim ? sum[i] : 0.0f;
        for (int j = 0; j < n; j++) {
            float w = __shfl_sync(~0u, weight, j);
            int64_t at = __shfl_sync(~0u, b.at, j);
            if (i < dim)
                x += w * attn_load(b.x, at + i, b.is_bf16);
        }
        if (i < dim)
            sum[i] = x;
    }
}

__device__ static void fetch_row(float *to, row_of b, int dim)
{
    for (int i = threadIdx.x & 31; i < dim; i += 32)
        to[i] = attn_load(b.x, b.at + i, b.is_bf16);
}

__device__ static void write_row(void *to, int64_t at, const float *x, int dim, float scale,
                                 bool is_bf16)
{
    for (int i = threadIdx.x & 31; i < dim; i += 32)
        attn_store(to, at + i, is_bf16, x[i] * scale);
}

template <bool KEYS>
static __global__ void __launch_bounds__(ROW_WARPS * 32) row_bwd(attn_bwd_args b)
{
    extern __shared__ float room[];
    const attn_args &a = b.f;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, dims = a.qk_dim + a.v_dim;
    float *x1 = room + warp * 2 * dims, *x2 = x1 + a.qk_dim, *sum1 = x1 + dims, *sum2 = x2 + dims;
    int heads = KEYS ? a.n_kv_heads : a.n_heads;
    int64_t index = (int64_t)blockIdx.x * ROW_WARPS + warp;
    if (index >= (int64_t)a.n_tokens * heads)
        return;
    int32_t t = (int32_t)(index / heads), head = (int32_t)(index % heads);
    int32_t seq = attn_seq_of(a, t), start = a.starts[seq], end = a.starts[seq + 1];
    /* the other rows: queries from the key on, for all heads that share it; or keys */
    int32_t low = KEYS ? t : a.window > 0 ? max(start, t - a.window + 1) : start;
    int32_t high = !KEYS ? t + 1 : a.window > 0 ? min((int64_t)end, (int64_t)t + a.window) : end;
    int32_t per_token = KEYS ? a.group : 1, n_other = (high - low) * per_token;
    fetch_row(x1, row_at(KEYS ? a.k : a.q, t, heads, head, a.qk_dim, a.q_bf16), a.qk_dim);
    fetch_row(x2,
              row_at(KEYS ? a.v : b.dout, t, heads, head, a.v_dim, KEYS ? a.q_bf16 : b.dout_bf16),
              a.v_dim);
    for (int i = lane; i < dims; i += 32)
        sum1[i] = 0.0f;
    __syncwarp();
    for (int32_t base = 0; base < n_other; base += 32) {
        int32_t n = min(32, n_other - base), other = base + min(lane, n - 1);
        int32_t u = low + other / per_token, other_heads = KEYS ? a.n_heads : a.n_kv_heads;
        int32_t other_head = KEYS ? head * a.group + other % per_token : head / a.group;
        row_of y1 = row_at(KEYS ? a.q : a.k, u, other_heads, other_head, a.qk_dim, a.q_bf16);
        row_of y2 = row_at(KEYS ? b.dout : a.v, u, other_heads, other_head, a.v_dim,
                           KEYS ? b.dout_bf16 : a.q_bf16);
        int64_t query = KEYS ? (int64_t)u * a.n_heads + other_head : index;
        float s = dot_row(x1, y1, a.qk_dim) * a.scale, slope = 1.0f;
        if (a.softcap > 0) {
            float capped = tanhf(s / a.softcap);
            s = a.softcap * capped;
            slope = 1.0f - capped * capped;
        }
        float p = expf(s - a.lse[query]);
        float ds = p * (dot_row(x2, y2, a.v_dim) - b.delta[query]) * slope;
        add_rows(sum1, ds, y1, a.qk_dim, n);
        if (KEYS)
            add_rows(sum2, p, y2, a.v_dim, n);
    }
    write_row(KEYS ? b.dk : b.dq, index * a.qk_dim, sum1, a.qk_dim, a.scale, b.grad_bf16);
    if (KEYS)
        write_row(b.dv, index * a.v_dim, sum2, a.v_dim, 1.0f, b.grad_bf16);
}

static void row_launch(cuda_device *c, const attn_bwd_args *b)
{
    size_t smem = (size_t)ROW_WARPS * 2 * (size_t)(b->f.qk_dim + b->f.v_dim) * sizeof(float);
    int64_t rows = (int64_t)b->f.n_tokens * b->f.n_heads,
            keys = (int64_t)b->f.n_tokens * b->f.n_kv_heads;
    attn_allow_smem(c, row_bwd<false>, smem);
    attn_allow_smem(c, row_bwd<true>, smem);
    row_bwd<false>
        <<<(unsigned)((rows + ROW_WARPS - 1) / ROW_WARPS), ROW_WARPS * 32, smem, c->stream>>>(*b);
    row_bwd<true>
        <<<(unsigned)((keys + ROW_WARPS - 1) / ROW_WARPS), ROW_WARPS * 32, smem, c->stream>>>(*b);
}

/* ---- mma_bwd: tensor cores ---- */

enum { OWN_ROWS = ATTENTION_ROWS, BWD_THREADS = 256 };

/* Blocks of OTHER other rows; fewer where the accumulators of wide heads leave few registers. */
template <int DK, int DV> struct bwd_smem {
    static constexpr int OTHER = DK > 128 ? 32 : 64, OWN1 = OWN_ROWS * attn_rows<DK>::BYTES,
                         OWN2 = OWN_ROWS * attn_rows<DV>::BYTES,
                         OTHER1 = OTHER * attn_rows<DK>::BYTES,
                         OTHER2 = OTHER * attn_rows<DV>::BYTES, STATS = OTHER * 8,
                         BYTES = OWN1 + OWN2 + 2 * (OTHER1 + OTHER2 + STATS);
};

/* Scores and dP of 16 own rows by NB * 8 other ones become P and dS. lse (times log2 e) and D
 * belong to queries: to rows, or to columns where keys are owned. */
template <bool KEYS, int NB>
__device__ static inline void softmax_grads(float (*s)[4], float (*dp)[4], const float *lse,
                                            const float *delta, float scale)
{
    int column = (threadIdx.x & 3) * 2;
#pragma unroll
    for (int n = 0; n < NB; n++) {
        float2 l = make_float2(0, 0), d = l;
        if (KEYS) {
            l = *(const float2 *)(lse + n * 8 + column);
            d = *(const float2 *)(delta + n * 8 + column);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float li = !KEYS ? lse[i / 2] : i & 1 ? l.y * LOG2E : l.x * LOG2E;
            float di = !KEYS ? delta[i / 2] : i & 1 ? d.y : d.x;
            s[n][i] = exp2_fast(s[n][i] * scale - li);
            dp[n][i] = s[n][i] * (dp[n][i] - di);
        }
    }
}

/* The mask: no weight where the query is before the key, or a window or more after it. `ahead`:
 * positions from the first other row to the first own row. */
template <bool KEYS, int NB>
__device__ static inline void mask_scores(float (*s)[4], int ahead, int window)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < NB; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int own = ahead + lane / 4 + i / 2 * 8, other = n * 8 + (lane & 3) * 2 + (i & 1);
            int back = KEYS ? other - own : own - other;
            if (back < 0 || back >= window)
                s[n][i] = -INFINITY;
        }
}

template <int DK, int DV, bool KEYS>
static __global__ void __launch_bounds__(BWD_THREADS, 1)
    mma_bwd(attn_bwd_args b, const attn_tile *tiles)
{
    using smem_t = bwd_smem<DK, DV>;
    constexpr int OTHER = smem_t::OTHER, NB = OTHER / 8;
    extern __shared__ __align__(128) unsigned char smem[];
    const attn_args &a = b.f;
    attn_tile t = tiles[KEYS ? gridDim.y - 1 - blockIdx.y : blockIdx.y];
    if (t.length == 0)
        return;
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, head = blockIdx.x;
    int own_heads = KEYS ? a.n_kv_heads : a.n_heads, other_heads = KEYS ? a.n_heads : a.n_kv_heads;
    int rows = min(OWN_ROWS, t.length - t.first), window = a.window > 0 ? a.window : INT32_MAX;
    int low = KEYS ? t.first : a.window > 0 ? max(0, t.first - a.window + 1) : 0;
    int high = !KEYS          ? t.first + rows
               : a.window > 0 ? min((int64_t)t.length, (int64_t)t.first + rows - 1 + a.window)
                              : t.length;
    int begin = low / OTHER, blocks = (high + OTHER - 1) / OTHER - begin;
    int other_head = KEYS ? head * a.group : head / a.group, steps = blocks * (KEYS ? a.group : 1);
    const bf16 *own1 = (const bf16 *)(KEYS ? a.k : a.q),
               *own2 = (const bf16 *)(KEYS ? a.v : b.dout);
    const bf16 *other1 = (const bf16 *)(KEYS ? a.q : a.k),
               *other2 = (const bf16 *)(KEYS ? b.dout : a.v);
    attn_keys at = { nullptr, 0, t.start };

    uint32_t own1_at = smem_address(smem), own2_at = own1_at + smem_t::OWN1,
             other1_at = own2_at + smem_t::OWN2, other2_at = other1_at + 2 * smem_t::OTHER1,
             stats_at = other2_at + 2 * smem_t::OTHER2;
    const float *stats = (const float *)(smem + (stats_at - own1_at));
    attn_rows<DK>::template load<OWN_ROWS, BWD_THREADS>(
        own1_at, own1 + head * DK, (int64_t)own_heads * DK, at, t.first, t.length);
    attn_rows<DV>::template load<OWN_ROWS, BWD_THREADS>(
        own2_at, own2 + head * DV, (int64_t)own_heads * DV, at, t.first, t.length);
    auto load_block = [&](int step, int stage) {
        int h = other_head + step / blocks, first = (begin + step % blocks) * OTHER;
        attn_rows<DK>::template load<OTHER, BWD_THREADS>(other1_at + stage * smem_t::OTHER1,
                                                         other1 + h * DK, (int64_t)other_heads * DK,
                                                         at, first, t.length);
        attn_rows<DV>::template load<OTHER, BWD_THREADS>(other2_at + stage * smem_t::OTHER2,
                                                         other2 + h * DV, (int64_t)other_heads * DV,
                                                         at, first, t.length);
        if (KEYS && threadIdx.x < 2 * OTHER) {
            int i = threadIdx.x % OTHER;
            const float *from = threadIdx.x < OTHER ? a.lse : b.delta;
            bool valid = first + i < t.length;
            int64_t row = valid ? (int64_t)(t.start + first + i) * a.n_heads + h : 0;
            cp_async4(stats_at + stage * smem_t::STATS + threadIdx.x * 4, from + row, valid);
        }
        cp_async_commit();
    };
    load_block(0, 0);

    /* lse and D of the own rows, where they are queries */
    float lse[2] = {}, delta[2] = {};
#pragma unroll
    for (int r = 0; r < 2 && !KEYS; r++) {
        int row = warp * 16 + r * 8 + lane / 4;
        int64_t query = (int64_t)(t.start + t.first + row) * a.n_heads + head;
        lse[r] = row < rows ? a.lse[query] * LOG2E : 0.0f;
        delta[r] = row < rows ? b.delta[query] : 0.0f;
    }
    /* main loop: load the next block, then scores and dP, mask, P and dS, sums */
    float sum1[1][DK / 8][4] = {}, sum2[1][DV / 8][4] = {};
    for (int step = 0; step < steps; step++) {
        int stage = step & 1, first = (begin + step % blocks) * OTHER;
        cp_async_wait<0>();
        __syncthreads();
        if (step + 1 < steps)
            load_block(step + 1, stage ^ 1);
        uint32_t m1 = other1_at + stage * smem_t::OTHER1, m2 = other2_at + stage * smem_t::OTHER2;
        float s[1][NB][4] = {}, dp[1][NB][4] = {};
        mma_row_products<DK, NB, 1>(s, own1_at, warp * 16, m1);
        mma_row_products<DV, NB, 1>(dp, own2_at, warp * 16, m2);
        int ahead = t.first + warp * 16 - first; /* of the warp's first row */
        int near = KEYS ? -ahead - 15 : ahead - (OTHER - 1),
            far = KEYS ? OTHER - 1 - ahead : ahead + 15;
        if (near < 0 || far >= window)
            mask_scores<KEYS, NB>(s[0], ahead, window);
        const float *l = KEYS ? stats + stage * 2 * OTHER : lse, *d = KEYS ? l + OTHER : delta;
        softmax_grads<KEYS, NB>(s[0], dp[0], l, d, a.scale * LOG2E);
        if (KEYS)
            mma_weighted_sum<DV, NB, 1>(sum2, s, m2);
        mma_weighted_sum<DK, NB, 1>(sum1, dp, m1);
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = warp * 16 + r * 8 + lane / 4;
        int64_t to = (int64_t)(t.start + t.first + row) * own_heads + head;
        store_row<DK / 8>((bf16 *)(KEYS ? b.dk : b.dq) + to * DK, sum1[0], 2 * r, a.scale,
                          row < rows);
        if (KEYS)
            store_row<DV / 8>((bf16 *)b.dv + to * DV, sum2[0], 2 * r, 1.0f, row < rows);
    }
}

template <int DK, int DV>
static void mma_launch(cuda_device *c, const attn_bwd_args *b, attn_tiles tiles)
{
    constexpr size_t smem = bwd_smem<DK, DV>::BYTES;
    dim3 rows((unsigned)b->f.n_heads, (unsigned)tiles.max),
        keys((unsigned)b->f.n_kv_heads, (unsigned)tiles.max);
    attn_allow_smem(c, mma_bwd<DK, DV, false>, smem);
    attn_allow_smem(c, mma_bwd<DK, DV, true>, smem);
    mma_bwd<DK, DV, false><<<rows, BWD_THREADS, smem, c->stream>>>(*b, tiles.list);
    mma_bwd<DK, DV, true><<<keys, BWD_THREADS, smem, c->stream>>>(*b, tiles.list);
}

typedef struct mma_shape {
    int32_t qk_dim, v_dim;
    int smem; /* bytes of a block; GPUs of 8.6 and 8.9 have too few for wide heads */
    void (*launch)(cuda_device *, const attn_bwd_args *, attn_tiles);
} mma_shape;

static const mma_shape mma_shapes[] = {
    { 64, 64, bwd_smem<64, 64>::BYTES, mma_launch<64, 64> },
    { 80, 80, bwd_smem<80, 80>::BYTES, mma_launch<80, 80> },
    { 96, 96, bwd_smem<96, 96>::BYTES, mma_launch<96, 96> },
    { 128, 128, bwd_smem<128, 128>::BYTES, mma_launch<128, 128> },
    { 192, 128, bwd_smem<192, 128>::BYTES, mma_launch<192, 128> },
};

static const mma_shape *find_shape(const cuda_device *c, const attn_bwd_args *b)
{
    if (!attn_all_bf16(&b->f) || !b->dout_bf16 || !b->grad_bf16)
        return NULL;
    for (const mma_shape &s : mma_shapes)
        if (s.qk_dim == b->f.qk_dim && s.v_dim == b->f.v_dim && s.smem <= c->most_smem)
            return &s;
    return NULL;
}

/* ---- the op ---- */

extern "C" void cuda_attention_bwd(device *d, const attention_bwd *op)
{
    cuda_device *c = cuda_of(d);
    attn_bwd_args b = {};
    b.f = attn_args_of(&op->fwd);
    b.dout = op->dout.data;
    b.dq = op->dq.data;
    b.dk = op->dk.data;
    b.dv = op->dv.data;
    b.delta = (float *)op->delta.data;
    b.dout_bf16 = op->dout.dt == DT_BF16;
    b.grad_bf16 = op->dq.dt == DT_BF16;
    if (b.f.n_tokens == 0)
        return;
    const mma_shape *shape = b.f.softcap > 0 ? NULL : find_shape(c, &b);
    bool hopper = c->cc >= 90 && b.f.softcap == 0 && attn_sm90_bwd_fits(&b);
    size_t list = scratch_tiles(b.f.n_tokens, b.f.n_seq),
           stats = hopper ? scratch_attention_stats(b.f.n_tokens, b.f.n_heads) : 0;
    unsigned char *scratch = NULL;
    if (shape && !(scratch = (unsigned char *)cuda_scratch(c, "attention_bwd", list + stats)))
        return;
    b.stats = hopper ? (float4 *)(scratch + list) : NULL;
    delta_launch(c, &b);
    if (hopper)
        attn_sm90_bwd(c, &b, attn_tiles_list(c, &b.f, 1, scratch));
    else if (shape)
        shape->launch(c, &b, attn_tiles_list(c, &b.f, 1, scratch));
    else
        row_launch(c, &b);
    cuda_launched(c, "attention_bwd");
}
