/* attention_sm90: attention forward on Hopper: bf16, common head sizes, no pages.
 *
 * Tiles of 128 query rows by blocks of 128 keys; keys and values are double buffered. Bound: the
 * tensor cores, if the exponentials are hidden behind them. So while a warpgroup turns a block of
 * scores into weights, the tensor cores compute its next scores and the products of the other
 * warpgroup: the scores of block j + 1 are issued before the weights of block j multiply the
 * values. Blocks go from the diagonal down to the first key, so masked ones come first.
 *
 * Rows of a block past the end of the sequence belong to the next sequence, or are zeros after the
 * last one; the causal mask hides them. */
#include "backend/cuda/attention_sm90.cuh"

enum { FWD_KEYS = 128, STAGES = 2, CONSUMER_WARPS = 8 };

typedef struct fwd_maps {
    CUtensorMap q, k, v;
} fwd_maps;

template <int DK, int DV> struct fwd_smem {
    static constexpr int Q_STAGES = DK > 128 ? 1 : 2; /* what fits into shared memory */
    unsigned char q[Q_STAGES][TILE_ROWS * sm90_columns<DK> * 2];
    unsigned char k[STAGES][FWD_KEYS * sm90_columns<DK> * 2];
    unsigned char v[STAGES][FWD_KEYS * sm90_columns<DV> * 2];
    uint64_t q_full[Q_STAGES], q_free[Q_STAGES], k_full[STAGES], k_free[STAGES], v_full[STAGES],
        v_free[STAGES];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* The blocks [begin, end) of keys that a tile sees. */
typedef struct key_blocks {
    int32_t begin, end;
} key_blocks;

__device__ static inline key_blocks blocks_of(const attn_args &a, const attn_tile &t)
{
    int32_t low = a.window > 0 ? max(0, t.first - a.window + 1) : 0;
    int32_t last = min(t.first + TILE_ROWS, t.length) - 1;
    return key_blocks{ low / FWD_KEYS, last / FWD_KEYS + 1 };
}

template <int DK, int DV>
__device__ static void produce(fwd_smem<DK, DV> &s, const attn_args &a, const fwd_maps &maps,
                               const sm90_work &work)
{
    sm90_scheduler scheduler = { 0 };
    sm90_item item;
    sm90_ring<STAGES> k = { 0 }, v = { 0 };
    sm90_ring<fwd_smem<DK, DV>::Q_STAGES> q = { 0 };
    for (; scheduler.next(work, &item); q.n++) {
        const attn_tile &t = item.tile;
        key_blocks blocks = blocks_of(a, t);
        int kv_head = item.head / a.group;
        auto load_v = [&](int block) {
            hopper_wait(&s.v_free[v.stage()], v.parity() ^ 1);
            hopper_arrive_expecting(&s.v_full[v.stage()], (int)sizeof s.v[0]);
            sm90_load<DV, FWD_KEYS>(s.v[v.stage()], &maps.v, &s.v_full[v.stage()], kv_head * DV,
                                    t.start + block * FWD_KEYS);
            v.n++;
        };
        hopper_wait(&s.q_free[q.stage()], q.parity() ^ 1);
        hopper_arrive_expecting(&s.q_full[q.stage()], (int)sizeof s.q[0]);
        sm90_load<DK, TILE_ROWS>(s.q[q.stage()], &maps.q, &s.q_full[q.stage()], item.head * DK,
                                 t.start + t.first);
        for (int block = blocks.end - 1; block >= blocks.begin; block--) {
            hopper_wait(&s.k_free[k.stage()], k.parity() ^ 1);
            hopper_arrive_expecting(&s.k_full[k.stage()], (int)sizeof s.k[0]);
            sm90_load<DK, FWD_KEYS>(s.k[k.stage()], &maps.k, &s.k_full[k.stage()], kv_head * DK,
                                    t.start + block * FWD_KEYS);
            k.n++;
            if (block + 1 < blocks.end)
                load_v(block + 1);
        }
        load_v(blocks.begin);
    }
}

/* One warpgroup's 64 rows. */
typedef struct softmax_state {
    float max[2], sum[2], rescale[2];
} softmax_state;

__device__ static inline void mask(float (&s)[FWD_KEYS / 2], int32_t ahead, int32_t window)
{
    int lane = threadIdx.x & 31;
    ahead += lane / 4 - (lane & 3) * 2;
#pragma unroll
    for (int i = 0; i < FWD_KEYS / 2; i++) {
        int32_t back = ahead + (i & 2) * 4 - i / 4 * 8 - (i & 1);
        if (back < 0 || back >= window)
            s[i] = -INFINITY;
    }
}

__device__ static inline void online_softmax(float (&s)[FWD_KEYS / 2], softmax_state &state,
                                             float scale)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float top = state.max[r];
#pragma unroll
        for (int i = 2 * r; i < FWD_KEYS / 2; i += 4)
            top = fmaxf(top, fmaxf(s[i], s[i + 1]));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
        top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
        float zero = top == -INFINITY ? 0.0f : top * scale, sum = 0.0f;
        state.rescale[r] = exp2_fast(state.max[r] * scale - zero);
        state.max[r] = top;
#pragma unroll
        for (int i = 2 * r; i < FWD_KEYS / 2; i += 4) {
            s[i] = exp2_fast(s[i] * scale - zero);
            s[i + 1] = exp2_fast(s[i + 1] * scale - zero);
            sum += s[i] + s[i + 1];
        }
        state.sum[r] = state.sum[r] * state.rescale[r] + sum;
    }
}

template <int DK, int DV>
__device__ static void consume(fwd_smem<DK, DV> &sm, const attn_args &a, const sm90_work &work)
{
    int group = threadIdx.x / 128, lane = threadIdx.x & 31, warp = threadIdx.x / 32 & 3;
    int own = group * 64 + warp * 16; /* the warp's first row in the tile */
    int32_t window = a.window > 0 ? a.window : INT32_MAX;
    float scale = a.scale * LOG2E;
    sm90_scheduler scheduler = { 0 };
    sm90_item item;
    sm90_ring<STAGES> k = { 0 }, v = { 0 };
    sm90_ring<fwd_smem<DK, DV>::Q_STAGES> q = { 0 };
    auto release = [&](uint64_t *bar) {
        if (lane == 0)
            hopper_arrive(bar);
    };
    for (; scheduler.next(work, &item); q.n++) {
        const attn_tile &t = item.tile;
        key_blocks blocks = blocks_of(a, t);
        softmax_state state = { { -INFINITY, -INFINITY }, { 0.0f, 0.0f } };
        float s[FWD_KEYS / 2], acc[DV / 2];
        uint32_t weights[FWD_KEYS / 4];
        auto to_weights = [&](int block) {
            int32_t ahead = t.first + own - block * FWD_KEYS; /* of the warp, of the first key */
            if (ahead < FWD_KEYS - 1 || ahead + 15 >= window)
                mask(s, ahead, window);
            online_softmax(s, state, scale);
        };
#pragma unroll
        for (int i = 0; i < DV / 2; i++)
            acc[i] = 0.0f;
        const unsigned char *rows = sm.q[q.stage()] + group * 64 * PANEL_ROW;
        /* the first block: scores, then weights */
        hopper_wait(&sm.q_full[q.stage()], q.parity());
        hopper_wait(&sm.k_full[k.stage()], k.parity());
        hopper_multiply_begin();
        sm90_row_products<DK, FWD_KEYS, TILE_ROWS>(s, rows, sm.k[k.stage()]);
        hopper_multiply_commit();
        hopper_multiply_wait<0>();
        sm90_written(s);
        release(&sm.k_free[k.stage()]);
        k.n++;
        to_weights(blocks.end - 1);
        sm90_pack(weights, s);
        /* main loop: scores of this block, and meanwhile the weighted sum of the one before */
        for (int block = blocks.end - 2; block >= blocks.begin; block--) {
            hopper_wait(&sm.k_full[k.stage()], k.parity());
            hopper_multiply_begin();
            sm90_row_products<DK, FWD_KEYS, TILE_ROWS>(s, rows, sm.k[k.stage()]);
            hopper_multiply_commit();
            hopper_wait(&sm.v_full[v.stage()], v.parity());
            hopper_multiply_begin();
            sm90_weighted_sum<DV, FWD_KEYS>(acc, weights, sm.v[v.stage()]);
            hopper_multiply_commit();
            hopper_multiply_wait<1>();
            sm90_written(s);
            release(&sm.k_free[k.stage()]);
            k.n++;
            to_weights(block);
            hopper_multiply_wait<0>();
            sm90_written(acc);
            release(&sm.v_free[v.stage()]);
            v.n++;
            sm90_pack(weights, s);
#pragma unroll
            for (int i = 0; i < DV / 2; i++)
                acc[i] *= state.rescale[i / 2 & 1];
        }
        /* the weighted sum of the last block */
        release(&sm.q_free[q.stage()]);
        hopper_wait(&sm.v_full[v.stage()], v.parity());
        hopper_multiply_begin();
        sm90_weighted_sum<DV, FWD_KEYS>(acc, weights, sm.v[v.stage()]);
        hopper_multiply_commit();
        hopper_multiply_wait<0>();
        sm90_written(acc);
        release(&sm.v_free[v.stage()]);
        v.n++;
        /* epilogue: divide by the sum of weights, store, and keep the log-sum-exp for backward */
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float l = state.sum[r];
            l += __shfl_xor_sync(~0u, l, 1);
            l += __shfl_xor_sync(~0u, l, 2);
            int row = t.first + own + r * 8 + lane / 4;
            int64_t at = (int64_t)(t.start + row) * a.n_heads + item.head;
            store_row<DV / 8>((bf16 *)a.out + at * DV, (const float(*)[4])acc, 2 * r, 1.0f / l,
                              row < t.length);
            if (a.lse && row < t.length && (lane & 3) == 0)
                a.lse[at] = state.max[r] * a.scale + logf(l);
        }
    }
}

#endif

template <int DK, int DV>
static __global__ void __launch_bounds__(SM90_THREADS, 1)
    sm90_fwd(attn_args a, const __grid_constant__ fwd_maps maps, sm90_work work)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) unsigned char smem[];
    fwd_smem<DK, DV> &s = *(fwd_smem<DK, DV> *)smem;
    if (threadIdx.x == 0) {
        for (int i = 0; i < s.Q_STAGES; i++) {
            hopper_barrier_init(&s.q_full[i], 1);
            hopper_barrier_init(&s.q_free[i], CONSUMER_WARPS);
        }
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&s.k_full[i], 1);
            hopper_barrier_init(&s.v_full[i], 1);
            hopper_barrier_init(&s.k_free[i], CONSUMER_WARPS);
            hopper_barrier_init(&s.v_free[i], CONSUMER_WARPS);
        }
        hopper_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x >= 256) {
        hopper_registers_release<24>();
        if (threadIdx.x == 256)
            produce(s, a, maps, work);
    } else {
        hopper_registers_acquire<240>();
        consume(s, a, work);
    }
#endif
}

template <int DK, int DV> static void launch(cuda_device *c, const attn_args *a)
{
    fwd_maps maps;
    cudaError_t e = hopper_map(&maps.q, a->q, 1, a->n_tokens, (int64_t)a->n_heads * DK);
    if (e == cudaSuccess)
        e = hopper_map(&maps.k, a->k, 1, a->n_tokens, (int64_t)a->n_kv_heads * DK);
    if (e == cudaSuccess)
        e = hopper_map(&maps.v, a->v, 1, a->n_tokens, (int64_t)a->n_kv_heads * DV);
    if (e != cudaSuccess) {
        cuda_fail(c, e, "attention_fwd: tensor map");
        return;
    }
    void *scratch = cuda_scratch(c, "attention_fwd", scratch_tiles(a->n_tokens, a->n_seq));
    if (!scratch)
        return;
    attn_tiles tiles = attn_tiles_list(c, a, 1, scratch);
    constexpr size_t smem = sizeof(fwd_smem<DK, DV>);
    attn_allow_smem(c, sm90_fwd<DK, DV>, smem);
    sm90_work work = { tiles.list, tiles.max, a->n_heads, false };
    sm90_fwd<DK, DV><<<(unsigned)c->n_sm, SM90_THREADS, smem, c->stream>>>(*a, maps, work);
}

typedef struct sm90_shape {
    int32_t qk_dim, v_dim;
    void (*launch)(cuda_device *, const attn_args *);
} sm90_shape;

static const sm90_shape sm90_shapes[] = {
    { 64, 64, launch<64, 64> },     { 80, 80, launch<80, 80> },     { 96, 96, launch<96, 96> },
    { 128, 128, launch<128, 128> }, { 192, 128, launch<192, 128> },
};

bool attn_sm90_fwd(cuda_device *c, const attn_args *a)
{
    for (const sm90_shape &s : sm90_shapes)
        if (attn_all_bf16(a) && !a->table && s.qk_dim == a->qk_dim && s.v_dim == a->v_dim) {
            s.launch(c, a);
            return true;
        }
    return false;
}
