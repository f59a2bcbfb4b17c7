/* attention_bwd_sm90: the passes of attention_bwd.cu on Hopper: bf16, heads of 64 to 128 columns.
 *
 * A tile owns 128 rows (queries, or keys) and goes through blocks of the other kind; each consumer
 * warpgroup has 64 of the rows, with its sums in registers. For every block: scores and dP on the
 * tensor cores; P while dP is computed; dS; then the products of P and dS are added to the sums. A
 * tile of keys goes through all query heads of its key head, one after the other. Bound: the tensor
 * cores. */
#include "backend/cuda/attention_sm90.cuh"

enum { CONSUMER_WARPS = 8 };

typedef struct bwd_maps {
    CUtensorMap own1, own2, other1, other2; /* q, dO, k, v; or k, v, q, dO */
    CUtensorMap stats;
} bwd_maps;

template <int D, bool OWN_KEYS> struct bwd_shape {
    /* with two sums there are registers for scores of 64 columns only */
    static constexpr int OTHER = OWN_KEYS ? 64 : 128, STAGES = OWN_KEYS ? 4 : 2;
};

template <int D, bool OWN_KEYS> struct bwd_smem {
    using shape = bwd_shape<D, OWN_KEYS>;
    static constexpr int ROW = sm90_columns<D> * 2;
    unsigned char own1[TILE_ROWS * ROW], own2[TILE_ROWS * ROW];
    unsigned char other1[shape::STAGES][shape::OTHER * ROW],
        other2[shape::STAGES][shape::OTHER * ROW];
    float4 stats[shape::STAGES][shape::OTHER]; /* lse and D of the other rows, if queries */
    uint64_t own_full, own_free, full[shape::STAGES], free[shape::STAGES];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The blocks a tile goes through: for each of `heads` heads, n of them from `begin` on. */
typedef struct other_blocks {
    int32_t begin, n, heads;
} other_blocks;

template <int D, bool OWN_KEYS>
__device__ static inline other_blocks blocks_of(const attn_args &a, const attn_tile &t)
{
    constexpr int OTHER = bwd_shape<D, OWN_KEYS>::OTHER;
    int32_t end = min(t.first + TILE_ROWS, t.length); /* of the owned rows */
    int32_t low = t.first, high = end;
    if (!OWN_KEYS)
        low = a.window > 0 ? max(0, t.first - a.window + 1) : 0;
    else
        high = a.window > 0 && t.length - (end - 1) > a.window ? end - 1 + a.window : t.length;
    int32_t begin = low / OTHER;
    return other_blocks{ begin, (high + OTHER - 1) / OTHER - begin, OWN_KEYS ? a.group : 1 };
}

template <int D, bool OWN_KEYS>
__device__ static void produce(bwd_smem<D, OWN_KEYS> &s, const attn_bwd_args &b,
                               const bwd_maps &maps, const sm90_work &work)
{
    constexpr int OTHER = bwd_shape<D, OWN_KEYS>::OTHER, STAGES = bwd_shape<D, OWN_KEYS>::STAGES;
    const attn_args &a = b.f;
    sm90_scheduler scheduler = { 0 };
    sm90_item item;
    sm90_ring<STAGES> at = { 0 };
    int bytes = (int)(sizeof s.other1[0] + sizeof s.other2[0] + (OWN_KEYS ? sizeof s.stats[0] : 0));
    for (int n = 0; scheduler.next(work, &item); n++) {
        const attn_tile &t = item.tile;
        other_blocks blocks = blocks_of<D, OWN_KEYS>(a, t);
        int other_head = OWN_KEYS ? item.head * a.group : item.head / a.group;
        hopper_wait(&s.own_free, (n & 1) ^ 1);
        hopper_arrive_expecting(&s.own_full, (int)(sizeof s.own1 + sizeof s.own2));
        sm90_load<D, TILE_ROWS>(s.own1, &maps.own1, &s.own_full, item.head * D, t.start + t.first);
        sm90_load<D, TILE_ROWS>(s.own2, &maps.own2, &s.own_full, item.head * D, t.start + t.first);
        for (int head = other_head; head < other_head + blocks.heads; head++)
            for (int block = blocks.begin; block < blocks.begin + blocks.n; block++, at.n++) {
                int stage = at.stage(), row = t.start + block * OTHER;
                uint64_t *full = &s.full[stage];
                hopper_wait(&s.free[stage], at.parity() ^ 1);
                hopper_arrive_expecting(full, bytes);
                sm90_load<D, OTHER>(s.other1[stage], &maps.other1, full, head * D, row);
                sm90_load<D, OTHER>(s.other2[stage], &maps.other2, full, head * D, row);
                if (OWN_KEYS)
                    hopper_load(s.stats[stage], &maps.stats, full, head * 4, row, 0);
            }
    }
}

/* The mask: no weight where the query is before the key, or a window or more after it, or where the
 * other row is not one of the `n` left in the sequence. `ahead`: positions from the first other row
 * to the warp's first own row. */
template <bool OWN_KEYS, int OTHER>
__device__ static inline void mask(float (&s)[OTHER / 2], int32_t ahead, int32_t window, int32_t n)
{
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < OTHER / 2; i++) {
        int32_t own = ahead + lane / 4 + (i & 2) * 4, other = i / 4 * 8 + (lane & 3) * 2 + (i & 1);
        int32_t back = OWN_KEYS ? other - own : own - other;
        if (back < 0 || back >= window || other >= n)
            s[i] = -INFINITY;
    }
}

template <int D, bool OWN_KEYS>
__device__ static void consume(bwd_smem<D, OWN_KEYS> &sm, const attn_bwd_args &b,
                               const sm90_work &work)
{
    constexpr int OTHER = bwd_shape<D, OWN_KEYS>::OTHER, STAGES = bwd_shape<D, OWN_KEYS>::STAGES;
    const attn_args &a = b.f;
    int group = threadIdx.x / 128, lane = threadIdx.x & 31, warp = threadIdx.x / 32 & 3;
    int own = group * 64 + warp * 16, own_heads = OWN_KEYS ? a.n_kv_heads : a.n_heads;
    int32_t window = a.window > 0 ? a.window : INT32_MAX;
    float scale = a.scale * LOG2E;
    const unsigned char *own1 = sm.own1 + group * 64 * PANEL_ROW,
                        *own2 = sm.own2 + group * 64 * PANEL_ROW;
    sm90_scheduler scheduler = { 0 };
    sm90_item item;
    sm90_ring<STAGES> at = { 0 };
    auto release = [&](uint64_t *bar) {
        if (lane == 0)
            hopper_arrive(bar);
    };
    for (int n = 0; scheduler.next(work, &item); n++) {
        const attn_tile &t = item.tile;
        other_blocks blocks = blocks_of<D, OWN_KEYS>(a, t);
        float sum1[D / 2], sum2[OWN_KEYS ? D / 2 : 1];
        float2 own_stats[2]; /* of the lane's two rows, where they are queries */
#pragma unroll
        for (int i = 0; i < D / 2; i++) {
            sum1[i] = 0.0f;
            if (OWN_KEYS)
                sum2[i] = 0.0f;
        }
#pragma unroll
        for (int r = 0; r < 2 && !OWN_KEYS; r++) {
            int row = t.first + own + r * 8 + lane / 4;
            const float4 *stats = b.stats + (int64_t)(t.start + row) * a.n_heads + item.head;
            own_stats[r] = row < t.length ? *(const float2 *)stats : make_float2(0.0f, 0.0f);
        }
        hopper_wait(&sm.own_full, n & 1);
        int steps = blocks.n * blocks.heads;
        for (int step = 0, block = blocks.begin; step < steps; step++, at.n++) {
            int stage = at.stage();
            float s[OTHER / 2], dp[OTHER / 2];
            uint32_t p[OWN_KEYS ? OTHER / 4 : 1], ds[OTHER / 4];
            /* scores and dP */
            hopper_wait(&sm.full[stage], at.parity());
            hopper_multiply_begin();
            sm90_row_products<D, OTHER, TILE_ROWS>(s, own1, sm.other1[stage]);
            hopper_multiply_commit();
            sm90_row_products<D, OTHER, TILE_ROWS>(dp, own2, sm.other2[stage]);
            hopper_multiply_commit();
            hopper_multiply_wait<1>();
            sm90_written(s);
            /* mask, P, dS */
            int32_t ahead = t.first + own - block * OTHER, left = t.length - block * OTHER;
            int32_t near = OWN_KEYS ? -ahead - 15 : ahead - (OTHER - 1),
                    far = OWN_KEYS ? OTHER - 1 - ahead : ahead + 15;
            if (near < 0 || far >= window || left < OTHER)
                mask<OWN_KEYS, OTHER>(s, ahead, window, left);
            auto stats_at =
                [&](int i) { /* of the query of register i: its row's, or its column's */
                             if (!OWN_KEYS)
                                 return own_stats[i / 2 & 1];
                             return *(const float2 *)&sm
                                         .stats[stage][i / 4 * 8 + (lane & 3) * 2 + (i & 1)];
                };
#pragma unroll
            for (int i = 0; i < OTHER / 2; i++)
                s[i] = exp2_fast(s[i] * scale - stats_at(i).x);
            hopper_multiply_wait<0>();
            sm90_written(dp);
#pragma unroll
            for (int i = 0; i < OTHER / 2; i += 2) {
                ds[i / 2] = warp_pack_bf16(s[i] * (dp[i] - stats_at(i).y),
                                           s[i + 1] * (dp[i + 1] - stats_at(i + 1).y));
                if (OWN_KEYS)
                    p[i / 2] = warp_pack_bf16(s[i], s[i + 1]);
            }
            /* dV += P^T dO; dQ or dK += dS times the other rows */
            hopper_multiply_begin();
            if constexpr (OWN_KEYS)
                sm90_weighted_sum<D, OTHER>(sum2, p, sm.other2[stage]);
            sm90_weighted_sum<D, OTHER>(sum1, ds, sm.other1[stage]);
            hopper_multiply_commit();
            hopper_multiply_wait<0>();
            sm90_written(sum1);
            if constexpr (OWN_KEYS)
                sm90_written(sum2);
            release(&sm.free[stage]);
            block = block + 1 < blocks.begin + blocks.n ? block + 1 : blocks.begin;
        }
        /* epilogue */
        release(&sm.own_free);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = t.first + own + r * 8 + lane / 4;
            int64_t to = ((int64_t)(t.start + row) * own_heads + item.head) * D;
            bool valid = row < t.length;
            store_row<D / 8>((bf16 *)(OWN_KEYS ? b.dk : b.dq) + to, (const float(*)[4])sum1, 2 * r,
                             a.scale, valid);
            if constexpr (OWN_KEYS)
                store_row<D / 8>((bf16 *)b.dv + to, (const float(*)[4])sum2, 2 * r, 1.0f, valid);
        }
    }
}

#endif

template <int D, bool OWN_KEYS>
static __global__ void __launch_bounds__(SM90_THREADS, 1)
    sm90_bwd(attn_bwd_args b, const __grid_constant__ bwd_maps maps, sm90_work work)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char smem[];
    bwd_smem<D, OWN_KEYS> &s = *(bwd_smem<D, OWN_KEYS> *)smem;
    if (threadIdx.x == 0) {
        hopper_barrier_init(&s.own_full, 1);
        hopper_barrier_init(&s.own_free, CONSUMER_WARPS);
        for (int i = 0; i < bwd_shape<D, OWN_KEYS>::STAGES; i++) {
            hopper_barrier_init(&s.full[i], 1);
            hopper_barrier_init(&s.free[i], CONSUMER_WARPS);
        }
        hopper_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        hopper_registers_release<24>();
        if (threadIdx.x == 256)
            produce<D, OWN_KEYS>(s, b, maps, work);
    } else {
        hopper_registers_acquire<240>();
        consume<D, OWN_KEYS>(s, b, work);
    }
#endif
}

/* ---- launching ---- */

/* The map of b->stats, for boxes of 64 queries of a head. */
static cudaError_t map_stats(CUtensorMap *map, const attn_bwd_args *b)
{
    void *encode = NULL;
    cudaDriverEntryPointQueryResult result;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                                     cudaEnableDefault, &result);
    if (e != cudaSuccess || !encode)
        return e != cudaSuccess ? e : cudaErrorNotSupported;
    cuuint64_t rows = (cuuint64_t)b->f.n_tokens, cols = (cuuint64_t)b->f.n_heads * 4;
    cuuint64_t sizes[3] = { cols, rows, 1 }, strides[2] = { cols * 4, rows * cols * 4 };
    cuuint32_t box[3] = { 4, 64, 1 }, steps[3] = { 1, 1, 1 };
    CUresult r = ((decltype(&cuTensorMapEncodeTiled))encode)(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, b->stats, sizes, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

typedef struct bwd_inputs {
    CUtensorMap q, k, v, dout, stats;
} bwd_inputs;

static bool map_inputs(cuda_device *c, const attn_bwd_args *b, bwd_inputs *in)
{
    const attn_args *a = &b->f;
    int64_t q_width = (int64_t)a->n_heads * a->qk_dim, k_width = (int64_t)a->n_kv_heads * a->qk_dim;
    const struct {
        CUtensorMap *map;
        const void *data;
        int64_t width;
    } each[] = { { &in->q, a->q, q_width },
                 { &in->k, a->k, k_width },
                 { &in->v, a->v, k_width },
                 { &in->dout, b->dout, q_width } };
    cudaError_t e = map_stats(&in->stats, b);
    for (const auto &m : each)
        if (e == cudaSuccess)
            e = hopper_map(m.map, m.data, 1, a->n_tokens, m.width);
    if (e != cudaSuccess)
        cuda_fail(c, e, "attention_bwd: tensor map");
    return e == cudaSuccess;
}

template <int D, bool OWN_KEYS>
static void launch_pass(cuda_device *c, const attn_bwd_args *b, const bwd_inputs *in,
                        attn_tiles tiles)
{
    constexpr size_t smem = sizeof(bwd_smem<D, OWN_KEYS>);
    bwd_maps maps = OWN_KEYS ? bwd_maps{ in->k, in->v, in->q, in->dout, in->stats }
                             : bwd_maps{ in->q, in->dout, in->k, in->v, in->stats };
    sm90_work work = { tiles.list, tiles.max, OWN_KEYS ? b->f.n_kv_heads : b->f.n_heads, OWN_KEYS };
    attn_allow_smem(c, sm90_bwd<D, OWN_KEYS>, smem);
    sm90_bwd<D, OWN_KEYS><<<(unsigned)c->n_sm, SM90_THREADS, smem, c->stream>>>(*b, maps, work);
}

template <int D>
static void launch_both(cuda_device *c, const attn_bwd_args *b, const bwd_inputs *in,
                        attn_tiles tiles)
{
    launch_pass<D, false>(c, b, in, tiles);
    launch_pass<D, true>(c, b, in, tiles);
}

typedef struct sm90_shape {
    int32_t dim;
    void (*launch)(cuda_device *, const attn_bwd_args *, const bwd_inputs *, attn_tiles);
} sm90_shape;

static const sm90_shape sm90_shapes[] = { { 64, launch_both<64> },
                                          { 80, launch_both<80> },
                                          { 96, launch_both<96> },
                                          { 128, launch_both<128> } };

static const sm90_shape *find_shape(const attn_bwd_args *b)
{
    for (const sm90_shape &s : sm90_shapes)
        if (s.dim == b->f.qk_dim && s.dim == b->f.v_dim)
            return &s;
    return NULL;
}

bool attn_sm90_bwd_fits(const attn_bwd_args *b)
{
    return attn_all_bf16(&b->f) && b->dout_bf16 && b->grad_bf16 && find_shape(b);
}

void attn_sm90_bwd(cuda_device *c, const attn_bwd_args *b, attn_tiles tiles)
{
    bwd_inputs in;
    if (map_inputs(c, b, &in))
        find_shape(b)->launch(c, b, &in, tiles);
}
