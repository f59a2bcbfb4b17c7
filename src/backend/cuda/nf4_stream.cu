/* nf4_stream: 1 to 8 rows of activations against matrices of NF4, as decoding does it: reading the
 * weights once is all the time there is. (More rows are nf4_few's.)
 *
 * A warp takes 16 rows by 256 of k at a time: four blocks of 64, each with a scale. The four lanes
 * on a row read 64 bytes in one go, two lanes a block, straight into registers, several such items
 * ahead. A product sums over all four lanes, over two blocks that is; so that their sums stay apart
 * x is put into two columns of the second operand, one that is zero in the lanes of the one block,
 * one in those of the other. With the second 64 bytes a token takes four columns of eight. The
 * block's sum in f32 of products of codes rounded to bf16 is then scaled in f32.
 *
 * A thread block stays on its multiprocessor and takes every so-many-th 16 rows. Its warps split k,
 * each keeps the x of its part in registers, and their sums are added in order at the end. */
#include "backend/cuda/nf4_pairs.cuh"
#include "backend/cuda/overlap.cuh"

namespace
{

enum { LANES = 32, WARPS = 16, THREADS = WARPS * LANES, TILE = 16, GROUP = 4 * NF4_BLOCK };
enum { PER_SM = 1 };                      /* thread blocks on a multiprocessor */
enum { MOST_TOKENS = 8, MOST_SUMS = 64 }; /* tiles a thread block has, by one token */
enum { PARTS = 3 };                       /* products of one x: of q, k and v */

typedef __nv_bfloat16 bf16;

/* One of the matrices that meet x. Tiles of 16 rows are counted through all of them. */
struct part {
    void *out;
    const unsigned char *codes;
    const float *scales;
    const void *bias;
    int n, first_tile;
    float scale;
    bool out_f32, bias_f32, accumulate;
};

struct problem {
    part parts[PARTS];
    const bf16 *x;
    int n_parts, k, tokens, blocks, groups, tiles;
    uint16_t code[16]; /* bf16 */
};

/* ---- tiles: 16 rows of one of the matrices ---- */

struct tile {
    const unsigned char *codes;
    const float *scales;
    int part, first, last; /* rows: the first, and the number of the last in here */
};

/* The nth tile of this thread block. */
__device__ __forceinline__ tile tile_of(const problem &p, int nth)
{
    int number = blockIdx.x + nth * gridDim.x, i = 0;
    while (i + 1 < p.n_parts && number >= p.parts[i + 1].first_tile)
        i++;
    const part &of = p.parts[i];
    int64_t first = (int64_t)(number - of.first_tile) * TILE;
    return tile{ of.codes + first * (p.k / 2), of.scales + first * p.blocks, i, (int)first,
                 min(TILE, of.n - (int)first) - 1 };
}

/* ---- items: a tile by 256 of k ---- */

/* Of an item, what a lane has: rows g and g + 8, 16 bytes of each 64, and the two scales that its
 * sums will need. */
struct item {
    uint4 w[2][2];
    float2 s[2];
};

/* Volatile, so that several are on their way before the first is used. */
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

/* What of a group a lane reads, in a row: bytes of codes and numbers of scales. Behind the last
 * block: the row's first, since x is 0 there. */
struct reach {
    uint32_t codes[2], scales[2];
};

__device__ __forceinline__ reach reach_of(const problem &p, int group)
{
    int t = threadIdx.x % 4, left = p.blocks - group * 4, scale = t % 2 * 2;
    return reach{ { (uint32_t)(t / 2 < left ? group * 128 + t * 16 : 0),
                    (uint32_t)(t / 2 + 2 < left ? group * 128 + 64 + t * 16 : 0) },
                  { (uint32_t)(scale < left ? group * 4 + scale : 0),
                    (uint32_t)(scale + 1 < left ? group * 4 + scale + 1 : 0) } };
}

/* Behind the last row: that row, nobody asks for its sums. */
__device__ __forceinline__ void load(item &to, const problem &p, const tile &from, const reach &r)
{
    int g = threadIdx.x % LANES / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t row = min(h * 8 + g, from.last), blocks = p.blocks;
        const unsigned char *codes = from.codes + row * (blocks * 32);
        const float *scales = from.scales + row * blocks;
        to.w[h][0] = stream16(codes + r.codes[0]);
        to.w[h][1] = stream16(codes + r.codes[1]);
        to.s[h] = blocks % 2 ? make_float2(__ldg(scales + r.scales[0]), __ldg(scales + r.scales[1]))
                             : stream8(scales + r.scales[0]);
    }
}

/* x of a group, for pairs of tokens: of each token, the columns of its four blocks. */
template <int PAIRS>
__device__ __forceinline__ void load_x(uint32_t (&x)[PAIRS][16], const problem &p, int group)
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

/* Adds an item to the warp's sums [token][row] of its tile. The even lanes have those of rows g and
 * g + 8 of token t / 2 of each pair. */
template <int PAIRS>
__device__ __forceinline__ void use(float *sums, const item &q, const uint32_t (&x)[PAIRS][16],
                                    const unsigned char *table, int tokens)
{
    int lane = threadIdx.x % LANES;
    uint32_t at = lane * 4;
    float block[PAIRS][2][4] = {};
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint32_t w0 = word_of(q.w[0][h], j / 2), w1 = word_of(q.w[1][h], j / 2), a[4];
            a[0] = j % 2 ? nf4_pairs_of<2>(table, w0, at) : nf4_pairs_of<0>(table, w0, at);
            a[1] = j % 2 ? nf4_pairs_of<2>(table, w1, at) : nf4_pairs_of<0>(table, w1, at);
            a[2] = j % 2 ? nf4_pairs_of<3>(table, w0, at) : nf4_pairs_of<1>(table, w0, at);
            a[3] = j % 2 ? nf4_pairs_of<3>(table, w1, at) : nf4_pairs_of<1>(table, w1, at);
#pragma unroll
            for (int i = 0; i < PAIRS; i++)
                nf4_pairs_multiply(block[i][h], a, x[i][2 * j], x[i][2 * j + 1]);
        }
#pragma unroll
    for (int i = 0; i < PAIRS; i++) {
        float y[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float a = lane % 2 ? block[i][1][2 * r] : block[i][0][2 * r];
            float b = lane % 2 ? block[i][1][2 * r + 1] : block[i][0][2 * r + 1];
            y[r] = fmaf(q.s[r].x, a, q.s[r].y * b);
            y[r] += __shfl_xor_sync(~0u, y[r], 1);
        }
        if (lane % 2 == 0 && (i * 2 + lane % 4 / 2) < tokens) {
            float *to = sums + (i * 2 + lane % 4 / 2) * TILE + lane / 4;
            to[0] += y[0];
            to[8] += y[1];
        }
    }
}

/* sums [tile][warp][token][row]: the warps' are added in order. */
__device__ __forceinline__ void finish(const float *sums, const problem &p, const tile *tiles,
                                       int n_tiles)
{
    int each = p.tokens * TILE;
    for (int i = threadIdx.x; i < n_tiles * each; i += THREADS) {
        int token = i / TILE % p.tokens, row = i % TILE;
        const tile &of = tiles[i / each];
        const part &to = p.parts[of.part];
        const float *from = sums + i / each * WARPS * each + token * TILE + row;
        int64_t at = (int64_t)token * to.n + of.first + row;
        float y = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            y += from[w * each];
        y *= to.scale;
        if (row > of.last)
            continue;
        if (to.bias)
            y += nf4_pairs_read(to.bias, to.bias_f32, of.first + row);
        if (to.accumulate)
            y += nf4_pairs_read(to.out, to.out_f32, at);
        if (to.out_f32)
            ((float *)to.out)[at] = y;
        else
            ((bf16 *)to.out)[at] = __float2bfloat16(y);
    }
}

/* Items go by groups of k, of which a warp has every WARPSth, then by tiles. */
struct walk {
    int group, nth;

    __device__ __forceinline__ bool next(int n_tiles) /* true: another group */
    {
        bool last = ++nth == n_tiles;
        nth = last ? 0 : nth;
        group += last ? WARPS : 0;
        return last;
    }
};

template <int PAIRS, int AHEAD>
__global__ void __launch_bounds__(THREADS, PER_SM) few_nf4(const __grid_constant__ problem p)
{
    extern __shared__ __align__(1024) unsigned char smem[];
    tile *tiles = (tile *)(smem + NF4_PAIRS_BYTES);
    int n_tiles = (p.tiles - (int)blockIdx.x + (int)gridDim.x - 1) / (int)gridDim.x;
    int warp = threadIdx.x / LANES, each = p.tokens * TILE;
    float *sums = (float *)(tiles + n_tiles), *mine = sums + warp * each;
    overlap_next();
    for (int i = threadIdx.x; i < n_tiles; i += THREADS)
        tiles[i] = tile_of(p, i);
    __syncthreads();
    walk then = { warp, 0 }, now = then;
    reach r = reach_of(p, warp);
    item ahead[AHEAD];
    auto fetch = [&](item &to) {
        if (then.group < p.groups) {
            load(to, p, tiles[then.nth], r);
            if (then.next(n_tiles))
                r = reach_of(p, then.group);
        }
    };
#pragma unroll
    for (int i = 0; i < AHEAD; i++)
        fetch(ahead[i]);
    nf4_pairs_fill<THREADS>(smem, p.code);
    for (int i = threadIdx.x; i < n_tiles * WARPS * each; i += THREADS)
        sums[i] = 0;
    __syncthreads();
    overlap_wait();
    uint32_t x[PAIRS][16];
    while (now.group < p.groups) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (now.group < p.groups) {
                if (now.nth == 0)
                    load_x(x, p, now.group);
                use(mine + now.nth * WARPS * each, ahead[i], x, smem, p.tokens);
                fetch(ahead[i]);
                now.next(n_tiles);
            }
    }
    __syncthreads();
    finish(sums, p, tiles, n_tiles);
}

template <int PAIRS, int AHEAD> void launch(cuda_device *d, const problem &p)
{
    int most = MOST_SUMS / p.tokens, least = (p.tiles + most - 1) / most;
    int room = d->n_sm * PER_SM, blocks = p.tiles < room ? p.tiles : room;
    blocks = blocks < least ? least : blocks;
    int tiles = (p.tiles + blocks - 1) / blocks;
    overlap_grid grid = { dim3((unsigned)blocks), THREADS,
                          NF4_PAIRS_BYTES + tiles * ((int)sizeof(tile) + WARPS * p.tokens * TILE *
                                                                             (int)sizeof(float)) };
    overlap_launch(d, "matmul of nf4", grid, few_nf4<PAIRS, AHEAD>, p);
}

/* Whether this is for here, and of the same x as the one before it. */
bool fits(const mm *a, const mm *before)
{
    int64_t k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return a->layout == MM_NT && !a->n_more && !a->a_ld && !a->out_ld && a->b.dt == DT_NF4 &&
           a->a.dt == DT_BF16 && k % NF4_BLOCK == 0 && at % 16 == 0 && k < 1 << 24 &&
           tensor_rows(&a->b) < 1 << 24 && tensor_rows(&a->a) <= MOST_TOKENS &&
           (!before || (a->a.data == before->a.data && tensor_cols(&before->b) == k));
}

part part_from(const mm *a, int first_tile)
{
    int64_t n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    return part{ a->out.data,
                 (const unsigned char *)a->b.data,
                 nf4_scales(a->b.data, n * k),
                 a->bias.data,
                 (int)n,
                 first_tile,
                 a->scale,
                 a->out.dt == DT_F32,
                 a->bias.dt == DT_F32,
                 a->accumulate };
}

} // namespace

extern "C" int cuda_nf4_stream(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    while (p.n_parts < n && p.n_parts < PARTS &&
           fits(a + p.n_parts, p.n_parts ? a + p.n_parts - 1 : NULL)) {
        part of = part_from(a + p.n_parts, p.tiles);
        p.tiles += (of.n + TILE - 1) / TILE;
        p.parts[p.n_parts++] = of;
    }
    if (p.n_parts == 0)
        return 0;
    p.x = (const bf16 *)a->a.data;
    p.k = (int)tensor_cols(&a->b);
    p.tokens = (int)tensor_rows(&a->a);
    p.blocks = p.k / NF4_BLOCK;
    p.groups = (p.k + GROUP - 1) / GROUP;
    nf4_pairs_codes(p.code);
    if (p.tokens <= 2)
        launch<1, 2>(d, p);
    else if (p.tokens <= 4)
        launch<2, 2>(d, p);
    else
        launch<4, 1>(d, p);
    return p.n_parts;
}
