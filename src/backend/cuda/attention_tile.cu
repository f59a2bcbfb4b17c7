/* attention_tile: forward attention in f32 arithmetic, for what the tensor cores do not serve: f32,
 * and heads of unusual sizes, up to 256.
 *
 * A block has a tile of 128 query rows of one head, eight for each of its 16 warps, and goes
 * through blocks of 32 keys. All threads load: queries once, then keys and values of a block, to
 * shared memory as f32.
 *   scores        a lane has a key; four of its elements at a time meet those of the warp's rows
 *   softmax       online, in f32; a row's weights go to shared memory
 *   weighted sum  a lane has every 32nd column; four keys at a time
 * Keys are counted from the start of the sequence, so the order of a row's sums does not depend on
 * its tile. Bound: reading shared memory. */
#include "backend/cuda/attention.cuh"

namespace
{

enum { ROWS = 8, WARPS = ATTENTION_ROWS / ROWS, THREADS = WARPS * WARP, KEYS = WARP };
enum { MOST_DIM = 256 };

/* Shared memory, in floats. */
struct rooms {
    int q, k, v; /* from row to row of the queries, the keys and the values */
    int keys_at, values_at, weights_at, all;
};

/* Rows of keys are an odd number of 16 bytes apart, so that eight lanes reach all banks. */
rooms rooms_of(const attn_args *a, int columns)
{
    rooms r;
    r.q = (a->qk_dim + 3) / 4 * 4;
    r.k = r.q / 4 % 2 ? r.q : r.q + 4;
    r.v = columns * WARP;
    r.keys_at = ATTENTION_ROWS * r.q;
    r.values_at = r.keys_at + KEYS * r.k;
    r.weights_at = r.values_at + KEYS * r.v;
    r.all = r.weights_at + ATTENTION_ROWS * KEYS;
    return r;
}

/* Rows [first, end) of a matrix of heads become rows of `width` floats; zeros elsewhere. */
struct rows_source {
    const void *x;
    bool is_bf16;
    int64_t width; /* of a row of all heads */
    int col, n;    /* the head's columns */
};

__device__ void load_rows(float *to, int width, int count, const rows_source &from,
                          const attn_keys &keys, int first, int end)
{
    for (int i = threadIdx.x; i < count * width; i += THREADS) {
        int row = first + i / width, col = i % width;
        bool exists = row < end && col < from.n;
        to[i] = exists
                    ? attn_load(from.x, keys.row(row) * from.width + from.col + col, from.is_bf16)
                    : 0.0f;
    }
}

/* What a warp has of its rows; a lane every 32nd column. */
template <int COLUMNS> struct row_sums {
    float acc[ROWS][COLUMNS] = {}, max[ROWS], sum[ROWS] = {}; /* sum: of this lane's keys */

    __device__ row_sums()
    {
        for (int r = 0; r < ROWS; r++)
            max[r] = -INFINITY;
    }

    /* Scores of the lane's key become weights, in shared memory too. row, key: positions. */
    __device__ void weigh(float (&s)[ROWS], float *weights, int row, int key, int window,
                          float scale)
    {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int back = row + r - key;
            s[r] = back < 0 || back >= window ? -INFINITY : s[r] * scale;
            float top = fmaxf(max[r], warp_max(s[r])), zero = top == -INFINITY ? 0.0f : top;
            float rescale = expf(max[r] - zero), p = expf(s[r] - zero);
            max[r] = top;
            sum[r] = sum[r] * rescale + p;
            weights[r * KEYS + lane] = p;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                acc[r][c] *= rescale;
        }
        __syncwarp();
    }

    __device__ void add(const float *weights, const float *values)
    {
        int lane = threadIdx.x % WARP;
#pragma unroll 1
        for (int j = 0; j < KEYS; j += 4) {
            float v[COLUMNS][4];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    v[c][i] = values[(j + i) * (COLUMNS * WARP) + c * WARP + lane];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                float4 w = *(const float4 *)(weights + r * KEYS + j);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    acc[r][c] += w.x * v[c][0] + w.y * v[c][1] + w.z * v[c][2] + w.w * v[c][3];
            }
        }
        __syncwarp(); /* before the weights are overwritten */
    }
};

/* The products of the warp's rows with the lane's key. */
__device__ void score(float (&s)[ROWS], const float *q, const float *key, int width)
{
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        s[r] = 0.0f;
#pragma unroll 2
    for (int i = 0; i < width; i += 4) {
        float4 k = *(const float4 *)(key + i);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            float4 x = *(const float4 *)(q + r * width + i);
            s[r] += x.x * k.x + x.y * k.y + x.z * k.z + x.w * k.w;
        }
    }
}

template <int COLUMNS>
__global__ void __launch_bounds__(THREADS)
    tile_fwd(const attn_args a, const rooms room, const attn_tile *tiles)
{
    extern __shared__ __align__(16) float smem[];
    attn_tile t = tiles[blockIdx.y];
    if (t.length == 0)
        return;
    int head = blockIdx.x, kv_head = head / a.group, warp = threadIdx.x / WARP;
    int lane = threadIdx.x % WARP, mine = warp * ROWS;
    int past = a.table ? a.pos[t.start] : 0, window = a.window > 0 ? a.window : INT32_MAX;
    int rows = min((int)ATTENTION_ROWS, t.length - t.first), first = past + t.first;
    int low = a.window > 0 ? max(0, first - a.window + 1) : 0, end = past + t.length;
    attn_keys keys = attn_keys_of(a, t.seq, t.start);
    float *q = smem, *k = smem + room.keys_at, *v = smem + room.values_at;
    float *weights = smem + room.weights_at + mine * KEYS;
    rows_source queries = { a.q, a.q_bf16, (int64_t)a.n_heads * a.qk_dim, head * a.qk_dim,
                            a.qk_dim };
    rows_source key_rows = { a.k, a.kv_bf16, (int64_t)a.n_kv_heads * a.qk_dim, kv_head * a.qk_dim,
                             a.qk_dim };
    rows_source value_rows = { a.v, a.kv_bf16, (int64_t)a.n_kv_heads * a.v_dim, kv_head * a.v_dim,
                               a.v_dim };
    load_rows(q, room.q, ATTENTION_ROWS, queries, attn_keys{ nullptr, 0, t.start }, t.first,
              t.length);

    row_sums<COLUMNS> out;
    for (int key = low / KEYS * KEYS; key < first + rows; key += KEYS) {
        __syncthreads(); /* all have read the block before */
        load_rows(k, room.k, KEYS, key_rows, keys, key, end);
        load_rows(v, room.v, KEYS, value_rows, keys, key, end);
        __syncthreads();
        if (mine >= rows || key > first + mine + ROWS - 1)
            continue; /* later than all of the warp's rows */
        float s[ROWS];
        score(s, q + mine * room.q, k + lane * room.k, room.q);
        out.weigh(s, weights, first + mine, key + lane, window, a.scale);
        out.add(weights, v);
    }

    /* divide by the sum of weights, store, and keep the log-sum-exp for backward */
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum = warp_sum(out.sum[r]);
        int64_t at = (int64_t)(t.start + t.first + mine + r) * a.n_heads + head;
        if (mine + r >= rows)
            continue;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            if (c * WARP + lane < a.v_dim)
                attn_store(a.out, at * a.v_dim + c * WARP + lane, a.out_bf16, out.acc[r][c] / sum);
        if (a.lse && lane == 0)
            a.lse[at] = out.max[r] + logf(sum);
    }
}

template <int COLUMNS> void launch(cuda_device *c, const attn_args *a, attn_tiles tiles)
{
    rooms room = rooms_of(a, COLUMNS);
    size_t bytes = (size_t)room.all * sizeof(float);
    attn_allow_smem(c, tile_fwd<COLUMNS>, bytes);
    dim3 grid((unsigned)a->n_heads, (unsigned)tiles.max);
    tile_fwd<COLUMNS><<<grid, THREADS, bytes, c->stream>>>(*a, room, tiles.list);
}

int columns_of(const attn_args *a)
{
    return a->v_dim <= 64 ? 2 : a->v_dim <= 128 ? 4 : 8;
}

} // namespace

bool attn_tile_fits(const cuda_device *c, const attn_args *a)
{
    return a->qk_dim <= MOST_DIM && a->v_dim <= MOST_DIM &&
           rooms_of(a, columns_of(a)).all * (int)sizeof(float) <= c->most_smem;
}

void attn_tile_fwd(cuda_device *c, const attn_args *a, attn_tiles tiles)
{
    int columns = columns_of(a);
    if (columns == 2)
        launch<2>(c, a, tiles);
    else if (columns == 4)
        launch<4>(c, a, tiles);
    else
        launch<8>(c, a, tiles);
}
