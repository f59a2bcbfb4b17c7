/* nf4_gemv: 1 to 8 rows of bf16 activations against NF4 matrices, as decoding has them. Up to three
 * matrices that multiply the same activations (q, k and v, or gate and up) are one launch.
 *
 * Bound: reading the weights once. So codes and scales go from global memory straight to registers,
 * several loads ahead of their use, and nothing else may cost time.
 *
 * Work: persistent blocks, 16 warps on each multiprocessor; a block takes tiles of 16 rows of w in
 * a grid-stride loop. Its warps split k between them: one of 16 has every 16th group of 256
 * elements of k, keeps the activations of the group in registers, and goes through the block's
 * tiles. A tile by a group is a chunk: four quantisation blocks of 64, each with its own scale. The
 * warps' sums are added in order at the end, so results repeat bit for bit. These 16 warps are one
 * block; with more than four tokens two blocks of eight warps are faster, with one token slower.
 *
 * A chunk: the four lanes of a row read 64 bytes in one load, two lanes a quantisation block, and
 * twice that. The tensor cores sum over all four lanes, over two quantisation blocks that is. To
 * keep their sums apart the activations stand in two columns of the second operand: one is zero in
 * the lanes of the one quantisation block, one in those of the other. With the second 64 bytes a
 * token takes four of the eight columns. Each sum, in f32 of products of bf16, is then scaled in
 * f32. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"

namespace
{

enum { LANES = 32, ALL_WARPS = 16, TILE = 16, GROUP = 4 * NF4_BLOCK };
enum {
    MOST_TOKENS = 8,
    MOST_SUMS = 64
}; /* sums: tiles of a block times tokens, in shared memory */
enum { MATRICES = 3 };

typedef __nv_bfloat16 bf16;

/* One of the matrices that multiply x. Tiles are counted through all of them. */
struct matrix {
    epilogue end;
    const unsigned char *codes; /* [n, k / 2] */
    const float *scales;        /* [n, blocks] */
    int first_tile;
};

struct problem {
    matrix matrices[MATRICES];
    const bf16 *x; /* [tokens, k] */
    int n_matrices, k, tokens;
    int blocks, groups, tiles; /* quantisation blocks of a row, groups of them, tiles of all */
    nf4_values values;
};

/* ---- tiles: 16 rows of one of the matrices ---- */

struct tile {
    const unsigned char *codes;
    const float *scales;
    int matrix, first, last; /* first row, and index in the tile of the last row that exists */
};

/* The nth tile of this block. */
__device__ __forceinline__ tile tile_of(const problem &p, int nth)
{
    int number = blockIdx.x + nth * gridDim.x, i = 0;
    while (i + 1 < p.n_matrices && number >= p.matrices[i + 1].first_tile)
        i++;
    const matrix &m = p.matrices[i];
    int64_t first = (int64_t)(number - m.first_tile) * TILE;
    return tile{ m.codes + first * (p.k / 2), m.scales + first * p.blocks, i, (int)first,
                 min(TILE, m.end.n - (int)first) - 1 };
}

/* ---- chunks: a tile by a group of k ---- */

/* What a lane holds of a chunk: rows g and g + 8, 16 bytes of each 64, and two scales of each. */
struct chunk {
    uint4 codes[2][2];
    float2 scales[2];
};

/* Loads are volatile asm, so that the compiler keeps several in flight before the first use. */
__device__ __forceinline__ uint4 stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

__device__ __forceinline__ float2 stream8(const float *p)
{
    float2 v;
    asm volatile("ld.global.nc.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    return v;
}

/* Where in a row a lane reads its part of a group: bytes of codes, elements of scales. Past the
 * last quantisation block: the row's first, because the activations are 0 there. */
struct lane_offsets {
    uint32_t codes[2], scales[2];
};

__device__ __forceinline__ lane_offsets offsets_of(const problem &p, int group)
{
    int t = threadIdx.x % 4, left = p.blocks - group * 4, scale = t % 2 * 2;
    return lane_offsets{ { (uint32_t)(t / 2 < left ? group * 128 + t * 16 : 0),
                           (uint32_t)(t / 2 + 2 < left ? group * 128 + 64 + t * 16 : 0) },
                         { (uint32_t)(scale < left ? group * 4 + scale : 0),
                           (uint32_t)(scale + 1 < left ? group * 4 + scale + 1 : 0) } };
}

/* Past the last row: that row again; the epilogue leaves its sums out. */
__device__ __forceinline__ void load_chunk(chunk &to, const problem &p, const tile &from,
                                           const lane_offsets &r)
{
    int g = threadIdx.x % LANES / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t row = min(h * 8 + g, from.last), blocks = p.blocks;
        const unsigned char *codes = from.codes + row * (blocks * 32);
        const float *scales = from.scales + row * blocks;
        to.codes[h][0] = stream16(codes + r.codes[0]);
        to.codes[h][1] = stream16(codes + r.codes[1]);
        to.scales[h] = blocks % 2
                           ? make_float2(__ldg(scales + r.scales[0]), __ldg(scales + r.scales[1]))
                           : stream8(scales + r.scales[0]);
    }
}

/* The activations of a group, for pairs of tokens: of each token the columns of its four
 * quantisation blocks, zero but for the lanes of that block. */
template <int PAIRS>
__device__ __forceinline__ void load_activations(uint32_t (&x)[PAIRS][16], const problem &p,
                                                 int group)
{
    int lane = threadIdx.x % LANES, g = lane / 4, t = lane % 4, block = group * 4 + g % 4;
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        int token = i * 2 + g / 4;
        bool mine = g % 2 == t / 2 && token < p.tokens && block < p.blocks;
        const uint4 *from =
            (const uint4 *)(p.x + token * (int64_t)p.k + block * NF4_BLOCK) + t % 2 * 4;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            uint4 v = mine ? from[j] : make_uint4(0, 0, 0, 0);
            x[i][4 * j] = v.x, x[i][4 * j + 1] = v.y, x[i][4 * j + 2] = v.z, x[i][4 * j + 3] = v.w;
        }
    }
}

__device__ __forceinline__ uint32_t word_of(const uint4 &v, int i)
{
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Adds a chunk to the warp's sums [token][row] of its tile. The even lanes hold those of rows g and
 * g + 8 of token t / 2 of each pair. */
template <int PAIRS>
__device__ __forceinline__ void multiply_chunk(float *sums, const chunk &q,
                                               const uint32_t (&x)[PAIRS][16],
                                               const unsigned char *table, int tokens)
{
    int lane = threadIdx.x % LANES;
    uint32_t at = lane * 4;
    float block[PAIRS][2][4] = {};
    /* decode a pair of codes into each register of the first operand, and multiply */
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w0 = word_of(q.codes[0][h], j / 2), w1 = word_of(q.codes[1][h], j / 2), a[4];
            a[0] = j % 2 ? nf4_table_pair<2>(table, w0, at) : nf4_table_pair<0>(table, w0, at);
            a[1] = j % 2 ? nf4_table_pair<2>(table, w1, at) : nf4_table_pair<0>(table, w1, at);
            a[2] = j % 2 ? nf4_table_pair<3>(table, w0, at) : nf4_table_pair<1>(table, w0, at);
            a[3] = j % 2 ? nf4_table_pair<3>(table, w1, at) : nf4_table_pair<1>(table, w1, at);
#pragma unroll
            for (int i = 0; i < PAIRS; i++)
                warp_mma_bf16(block[i][h], a, x[i][2 * j], x[i][2 * j + 1]);
        }
        /* scale the sum of each quantisation block, and add the four of a row */
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float y[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = lane % 2 ? block[i][1][2 * r] : block[i][0][2 * r];
            float b = lane % 2 ? block[i][1][2 * r + 1] : block[i][0][2 * r + 1];
            y[r] = fmaf(q.scales[r].x, a, q.scales[r].y * b);
            y[r] += __shfl_xor_sync(~0u, y[r], 1);
        }
        if (lane % 2 == 0 && (i * 2 + lane % 4 / 2) < tokens) {
            float *to = sums + (i * 2 + lane % 4 / 2) * TILE + lane / 4;
            to[0] += y[0];
            to[8] += y[1];
        }
    }
}

/* Adds the warps' sums [tile][warp][token][row] in order and stores the results. */
template <int WARPS>
__device__ __forceinline__ void store_tiles(const float *sums, const problem &p, const tile *tiles,
                                            int n_tiles)
{
    int each = p.tokens * TILE;
    for (int i = threadIdx.x; i < n_tiles * each; i += WARPS * LANES) {
        int token = i / TILE % p.tokens, row = i % TILE;
        const tile &of = tiles[i / each];
        const float *from = sums + i / each * WARPS * each + token * TILE + row;
        float y = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            y += from[w * each];
        if (row <= of.last)
            epilogue_store(p.matrices[of.matrix].end, token, of.first + row, y);
    }
}

/* The order in which a warp takes its chunks: all tiles of the block for each of its groups. */
template <int WARPS> struct chunk_order {
    int group, nth;

    __device__ __forceinline__ bool next(int n_tiles) /* true: another group */
    {
        bool last = ++nth == n_tiles;
        nth = last ? 0 : nth;
        group += last ? WARPS : 0;
        return last;
    }
};

/* PAIRS pairs of tokens; AHEAD chunks are in flight. */
template <int PAIRS, int AHEAD, int WARPS>
__global__ void __launch_bounds__(WARPS *LANES, ALL_WARPS / WARPS)
    nf4_gemv_kernel(const __grid_constant__ problem p)
{
    constexpr int THREADS = WARPS * LANES;
    extern __shared__ __align__(1024) unsigned char smem[]; /* table, tiles, sums */
    tile *tiles = (tile *)(smem + NF4_TABLE_BYTES);
    int n_tiles = (p.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    int warp = threadIdx.x / LANES, each = p.tokens * TILE;
    float *sums = (float *)(tiles + n_tiles), *mine = sums + warp * each;
    overlap_next();

    /* prologue: weights depend on no other kernel, so their first loads start before the wait */
    for (int i = threadIdx.x; i < n_tiles; i += THREADS)
        tiles[i] = tile_of(p, i);
    __syncthreads();
    chunk_order<WARPS> loaded = { warp, 0 }, used = loaded;
    lane_offsets r = offsets_of(p, warp);
    chunk ahead[AHEAD];
    auto prefetch = [&](chunk &to) {
        if (loaded.group < p.groups) {
            load_chunk(to, p, tiles[loaded.nth], r);
            if (loaded.next(n_tiles))
                r = offsets_of(p, loaded.group);
        }
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        prefetch(ahead[i]);
    nf4_table_fill<THREADS>(smem, p.values);
    for (int i = threadIdx.x; i < n_tiles * WARPS * each; i += THREADS)
        sums[i] = 0;
    __syncthreads();
    overlap_wait();

    /* main loop: multiply a chunk, then load the next one into its registers */
    uint32_t x[PAIRS][16];
    while (used.group < p.groups) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (used.group < p.groups) {
                if (used.nth == 0)
                    load_activations(x, p, used.group);
                multiply_chunk(mine + used.nth * WARPS * each, ahead[i], x, smem, p.tokens);
                prefetch(ahead[i]);
                used.next(n_tiles);
            }
    }
    __syncthreads();
    store_tiles<WARPS>(sums, p, tiles, n_tiles);
}

/* ---- host ---- */

/* As many blocks as are resident, or more where their sums would not fit into shared memory. */
template <int PAIRS, int AHEAD, int WARPS> void launch(cuda_device *d, const problem &p)
{
    int tile_bytes = (int)sizeof(tile) + WARPS * p.tokens * TILE * (int)sizeof(float);
    int fit = (d->most_smem - NF4_TABLE_BYTES) / tile_bytes;
    int most = min(MOST_SUMS / p.tokens, fit), needed = (p.tiles + most - 1) / most;
    int resident = d->n_sm * (ALL_WARPS / WARPS), blocks = p.tiles < resident ? p.tiles : resident;
    blocks = blocks < needed ? needed : blocks;
    int tiles = (p.tiles + blocks - 1) / blocks;
    overlap_grid grid = { dim3((unsigned)blocks), WARPS * LANES,
                          NF4_TABLE_BYTES + tiles * tile_bytes };
    overlap_launch(d, "matmul of nf4", grid, nf4_gemv_kernel<PAIRS, AHEAD, WARPS>, p);
}

} // namespace

bool nf4_gemv_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    int64_t k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return !a->a_ld && !a->out_ld && k % NF4_BLOCK == 0 && at % 16 == 0 && k < 1 << 24 &&
           tensor_rows(&a->b) < 1 << 24;
}

void nf4_gemv_launch(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    p.x = (const bf16 *)a->a.data;
    p.k = (int)tensor_cols(&a->b);
    p.tokens = (int)tensor_rows(&a->a);
    p.blocks = p.k / NF4_BLOCK;
    p.groups = (p.k + GROUP - 1) / GROUP;
    p.values = nf4_table_values();
    for (p.n_matrices = 0; p.n_matrices < n; p.n_matrices++) {
        const mm *of = a + p.n_matrices;
        epilogue end = epilogue_of(of);
        p.matrices[p.n_matrices] = matrix{ end, (const unsigned char *)of->b.data,
                                           nf4_scales(of->b.data, (int64_t)end.n * p.k), p.tiles };
        p.tiles += (end.n + TILE - 1) / TILE;
    }
    if (p.tokens <= 2)
        launch<1, 2, 16>(d, p);
    else if (p.tokens <= 4)
        launch<2, 2, 16>(d, p);
    else
        launch<4, 1, 8>(d, p);
}
