/* nf4_wgmma: 33 to 64 rows of bf16 activations against NF4 matrices on Hopper. Up to three matrices
 * that multiply the same activations are one launch.
 *
 * Tiles: a block has 192 (or 128) rows of w by all tokens (64). A step is 128 elements of k, two
 * quantisation blocks.
 *
 * Who does what (warp specialisation): four warpgroups. Of the last, one thread has TMA copy codes
 * and activations into a ring of five stages and one warp copies scales; it gives its registers to
 * the others. Each of the three consumer warpgroups has 64 rows: its lanes decode codes to pairs of
 * bf16 in registers, wgmma's first operand; the activations are the second, in shared memory. The
 * sum of each quantisation block is scaled in f32. While the tensor cores multiply one quantisation
 * block, the warpgroup scales the sum of the one before and decodes the one after it, so there are
 * two sets of these registers. Consumers synchronise with the producers only.
 *
 * Split-K: where w has too few rows, the blocks of a cluster (up to 8) share k. Each adds up, in
 * order, the sums of all for its part of the rows, which it reads from their shared memory
 * (distributed shared memory).
 *
 * Bound: shared memory, through which codes are decoded. For 64 rows of a quantisation block the
 * look-ups, the reads of codes and wgmma's reads of activations take 64 cycles each, and what is
 * copied there some 40; the tensor cores need 128. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"

namespace
{

enum { LANES = 32, GROUP = 4 * LANES, GROUPS = 3 }; /* GROUP: threads of a warpgroup */
enum { CONSUMERS = GROUPS * GROUP, THREADS = CONSUMERS + GROUP };
enum { GROUP_ROWS = 64, TOKENS = 64, STEP = 2 * NF4_BLOCK, STAGES = 5 };
enum { MATRICES = 3, MOST_CLUSTER = 8 };

/* One of the matrices that multiply x. Tiles are counted through all of them. */
struct matrix {
    epilogue end;
    const float *scales; /* [n, k / 64] */
    int first_tile;
};

struct problem {
    CUtensorMap codes[MATRICES], x;
    matrix matrices[MATRICES];
    int n_matrices, k, tokens, tiles;
    int rows, cluster; /* rows of a block's tile; blocks that split k */
    nf4_values values;
};

/* One stage of the ring: codes, 64 bytes a row; x, for each quantisation block 128 bytes a token.
 * TMA swizzles the 16-byte pieces of both. */
struct stage {
    static constexpr int MOST_ROWS = GROUPS * GROUP_ROWS, BOX = TOKENS * 128;
    static constexpr int X = MOST_ROWS * STEP / 2, BYTES = X + STEP / 64 * BOX;
    static_assert(X % 1024 == 0 && BYTES % 1024 == 0,
                  "the swizzle pattern repeats every 1024 bytes");
};

/* Scales have a ring of their own: a set has those of four steps, 32 bytes of a row, which is a
 * sector of memory. Two sets are enough: when step 4 q has its stage, step 4 q - 5 has been
 * released, so set q - 2 has been used. */
struct scale_set {
    static constexpr int STEPS = 4, ROW = STEPS * STEP / 64 * 4, BYTES = stage::MOST_ROWS * ROW;
    static_assert(STAGES > STEPS,
                  "a step's stage is free only after the set two before its own is");
};

struct barriers {
    uint64_t full[STAGES], empty[STAGES];
};

constexpr int SMEM =
    NF4_TABLE_BYTES + STAGES * stage::BYTES + 2 * scale_set::BYTES + (int)sizeof(barriers);

/* The consumers' sums in shared memory, [token][row]; the padding spreads lanes over all banks. */
enum { SUMS_STRIDE = GROUPS * GROUP_ROWS + 4 };
static_assert(TOKENS * SUMS_STRIDE * 4 <= STAGES * stage::BYTES, "sums reuse the ring's memory");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * GROUP) : "memory");
}

/* What a block computes: rows from `first` on of a matrix, steps [begin, end) of k. */
struct share {
    int matrix, first, begin, end;
};

__device__ __forceinline__ share share_of(const problem &p)
{
    int tile = blockIdx.x / p.cluster, rank = blockIdx.x % p.cluster, i = 0, steps = p.k / STEP;
    while (i + 1 < p.n_matrices && tile >= p.matrices[i + 1].first_tile)
        i++;
    return share{ i, (tile - p.matrices[i].first_tile) * p.rows, steps * rank / p.cluster,
                  steps * (rank + 1) / p.cluster };
}

/* ---- producers ---- */

/* One thread: codes and activations by TMA. Codes are loaded before the wait for the kernel before
 * this one, which does not write them. */
__device__ __forceinline__ void produce(const problem &p, const share &s, unsigned char *ring,
                                        barriers &bar)
{
    auto load_codes = [&](int step) {
        int at = (step - s.begin) % STAGES;
        hopper_arrive_expecting(&bar.full[at], p.rows * STEP / 2 + STEP / 64 * stage::BOX);
        hopper_load(ring + at * stage::BYTES, &p.codes[s.matrix], &bar.full[at], step * (STEP / 4),
                    s.first, 0);
    };
    auto load_activations = [&](int step) {
        int at = (step - s.begin) % STAGES;
        for (int i = 0; i < STEP / 64; i++)
            hopper_load(ring + at * stage::BYTES + stage::X + i * stage::BOX, &p.x, &bar.full[at],
                        step * STEP + i * 64, 0, 0);
    };
    for (int step = s.begin; step < min(s.begin + STAGES, s.end); step++)
        load_codes(step);
    overlap_wait();
    for (int step = s.begin; step < s.end; step++) {
        int nth = step - s.begin;
        if (nth >= STAGES) {
            hopper_wait(&bar.empty[nth % STAGES], (nth / STAGES - 1) & 1);
            load_codes(step);
        }
        load_activations(step);
    }
}

/* Copies set number `set` of a matrix's rows from `first` on, SIZE bytes at a time. */
template <int SIZE>
__device__ __forceinline__ void copy_scales(const problem &p, const share &s, int set, uint32_t to)
{
    enum { PIECES = scale_set::ROW / SIZE, SCALES = SIZE / 4 };
    const matrix &of = p.matrices[s.matrix];
    int blocks = p.k / NF4_BLOCK;
    for (int i = threadIdx.x % LANES; i < p.rows * PIECES; i += LANES) {
        int row = i / PIECES, at = set * (scale_set::ROW / 4) + i % PIECES * SCALES;
        const float *from = of.scales + (int64_t)min(s.first + row, of.end.n - 1) * blocks + at;
        if (at < blocks)
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to + i * SIZE),
                         "l"(from), "n"(SIZE)
                         : "memory");
    }
}

/* One warp: scales by cp.async. */
__device__ __forceinline__ void produce_scales(const problem &p, const share &s,
                                               unsigned char *sets, barriers &bar)
{
    bool wide = p.k / NF4_BLOCK % 4 == 0; /* rows of scales are 16-byte aligned */
    for (int step = s.begin; step < s.end; step++) {
        int nth = step - s.begin, at = nth % STAGES, set = step / scale_set::STEPS;
        uint32_t to = hopper_address(sets + set % 2 * scale_set::BYTES);
        if (nth >= STAGES)
            hopper_wait(&bar.empty[at], (nth / STAGES - 1) & 1);
        if (nth == 0 || step % scale_set::STEPS == 0) {
            if (wide)
                copy_scales<16>(p, s, set, to);
            else
                copy_scales<8>(p, s, set, to);
        }
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                         hopper_address(&bar.full[at]))
                     : "memory");
    }
}

/* ---- consumers ---- */

#define R8(how, d, i)                                                                              \
    how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3]), how(d[i + 4]), how(d[i + 5]),          \
        how(d[i + 6]), how(d[i + 7])

/* d [64 rows, 64 tokens] (+)= a [64, 16] x [64, 16]^T; d is only added to where `add` is not 0. */
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t x,
                                         int add)
{
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n}"
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

/* After a wait for d's products: the compiler moves no use of d before this. */
__device__ __forceinline__ void finished(float (&d)[32])
{
    asm volatile("" : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)::"memory");
}

#undef R8

/* Decodes quantisation block b of a stage for a warp's 16 rows from `row` on: a lane's part of the
 * first operand, 16 elements of k at a time. Of each 8 bytes a lane uses its own and the one four
 * further on, which is what wgmma's register layout asks for. */
__device__ __forceinline__ void decode(uint32_t (&a)[4][4], const unsigned char *table,
                                       const unsigned char *from, int row, int b)
{
    int lane = threadIdx.x % LANES, g = lane / 4;
    uint32_t at = lane * 4, which = 0x5504 | lane % 4 << 4;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint4 w = *(const uint4 *)(from + (row + h * 8 + g) * (STEP / 2) +
                                       ((b * 2 + half) ^ (g >> 1)) * 16);
            a[half * 2][h] = *(const uint32_t *)(table + __byte_perm(w.x, at, which));
            a[half * 2][h + 2] = *(const uint32_t *)(table + __byte_perm(w.y, at, which));
            a[half * 2 + 1][h] = *(const uint32_t *)(table + __byte_perm(w.z, at, which));
            a[half * 2 + 1][h + 2] = *(const uint32_t *)(table + __byte_perm(w.w, at, which));
        }
}

/* A quantisation block of 64 rows: the warpgroup's operand, the scales of a lane's two rows, and
 * the products. */
struct block {
    uint32_t a[4][4];
    float low, high, sum[32];
};

/* Operand and scales of quantisation block b of a stage. `scales`: of the step, in the first row.
 */
__device__ __forceinline__ void load_block(block &q, const unsigned char *table,
                                           const unsigned char *from, const unsigned char *scales,
                                           int b)
{
    int row = threadIdx.x / LANES * 16, g = threadIdx.x % LANES / 4;
    decode(q.a, table, from, row, b);
    q.low = *(const float *)(scales + (row + g) * scale_set::ROW + b * 4);
    q.high = *(const float *)(scales + (row + 8 + g) * scale_set::ROW + b * 4);
}

/* Where the scales of a step are. */
__device__ __forceinline__ const unsigned char *scales_of(const unsigned char *sets, int step)
{
    return sets + step / scale_set::STEPS % 2 * scale_set::BYTES +
           step % scale_set::STEPS * (STEP / 64) * 4;
}

/* Starts its products with the activations of the stage. */
__device__ __forceinline__ void multiply_block(block &q, const unsigned char *from, int b)
{
    uint64_t x = hopper_operand(from + stage::X + b * stage::BOX, 0);
    hopper_multiply_begin();
#pragma unroll
    for (int s = 0; s < 4; s++)
        multiply(q.sum, q.a[s], x + 2 * s, s);
    hopper_multiply_commit();
}

/* Waits until at most LATER blocks are unfinished, which were started after this one; then adds its
 * products. */
template <int LATER> __device__ __forceinline__ void add_block(float (&sum)[32], block &q)
{
    hopper_multiply_wait<LATER>();
    finished(q.sum);
#pragma unroll
    for (int i = 0; i < 32; i++)
        sum[i] = fmaf(i & 2 ? q.high : q.low, q.sum[i], sum[i]);
}

/* All steps of the block; then the sums are left in shared memory. The first block of a step is
 * decoded while the tensor cores multiply the last one of the step before. */
__device__ __forceinline__ void consume(const problem &p, const share &s, int warp,
                                        unsigned char *table, barriers &bar)
{
    unsigned char *ring = table + NF4_TABLE_BYTES, *sets = ring + STAGES * stage::BYTES;
    float *sums = (float *)ring, sum[32] = {};
    block even, odd;
    int lane = threadIdx.x % LANES, at = 0, parity = 0;
    bool mine = warp * 16 < p.rows && s.begin < s.end;
    if (mine) {
        hopper_wait(&bar.full[0], 0);
        load_block(even, table, ring, scales_of(sets, s.begin), 0);
    }
    for (int step = s.begin; mine && step < s.end; step++) {
        const unsigned char *from = ring + at * stage::BYTES;
        int done = at;
        multiply_block(even, from, 0);
        load_block(odd, table, from, scales_of(sets, step), 1);
        multiply_block(odd, from, 1);
        add_block<1>(sum, even);
        at = at + 1 == STAGES ? 0 : at + 1;
        parity ^= at == 0;
        if (step + 1 < s.end)
            hopper_wait(&bar.full[at], parity);
        load_block(even, table, ring + at * stage::BYTES, scales_of(sets, step + 1), 0);
        add_block<0>(sum, odd); /* after the last step the even block is not used */
        __syncwarp();           /* every lane has read the stage */
        if (lane == 0)
            hopper_arrive(&bar.empty[done]);
    }
    consumers_sync(); /* all have read the last stage, so the ring's memory is free */
    if (mine)
#pragma unroll
        for (int i = 0; i < 32; i++)
            sums[(i / 4 * 8 + lane % 4 * 2 + i % 2) * SUMS_STRIDE + warp * 16 + (i & 2) * 4 +
                 lane / 4] = sum[i];
}

/* Four floats at the address `here` in the shared memory of block `rank` of the cluster. */
__device__ __forceinline__ float4 load_from(const float *here, int rank)
{
    float4 x;
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(hopper_address(here)), "r"(rank));
    return x;
}

/* The rows of a tile that a block of the cluster finishes, in fours: [from, from + n). */
struct fours {
    int from, n;
};

__device__ __forceinline__ fours fours_of(const problem &p)
{
    int rank = blockIdx.x % p.cluster, all = p.rows / 4, from = all * rank / p.cluster;
    return fours{ from, all * (rank + 1) / p.cluster - from };
}

/* Adds the sums of all blocks of the cluster, of which there are at most RANKS, in order, and
 * stores bf16, four rows of a token at a time; a thread has BATCH of these on their way. */
template <int RANKS, int BATCH>
__device__ __forceinline__ void reduce_fours(const problem &p, const epilogue &end, int first,
                                             const float *sums)
{
    fours mine = fours_of(p);
    int all = p.tokens * mine.n;
    for (int at = threadIdx.x; at < all; at += CONSUMERS * BATCH) {
        float4 of[BATCH][RANKS];
        int token[BATCH], row[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            int which = min(at + i * CONSUMERS, all - 1);
            token[i] = which / mine.n;
            row[i] = (mine.from + which % mine.n) * 4;
#pragma unroll
            for (int r = 0; r < RANKS; r++)
                if (r < p.cluster)
                    of[i][r] = load_from(sums + token[i] * SUMS_STRIDE + row[i], r);
        }
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            float4 y = of[i][0];
#pragma unroll
            for (int r = 1; r < RANKS; r++)
                if (r < p.cluster)
                    y.x += of[i][r].x, y.y += of[i][r].y, y.z += of[i][r].z, y.w += of[i][r].w;
            __nv_bfloat162 low = __floats2bfloat162_rn(y.x * end.scale, y.y * end.scale);
            __nv_bfloat162 high = __floats2bfloat162_rn(y.z * end.scale, y.w * end.scale);
            int64_t to = token[i] * (int64_t)end.n + first + row[i];
            if (at + i * CONSUMERS < all && first + row[i] < end.n)
                *(uint2 *)((__nv_bfloat16 *)end.out + to) =
                    make_uint2(*(uint32_t *)&low, *(uint32_t *)&high);
        }
    }
}

/* The same for all results, an element at a time. */
__device__ __forceinline__ void reduce_any(const problem &p, const epilogue &end, int first,
                                           const float *sums)
{
    fours mine = fours_of(p);
#pragma unroll 1
    for (int at = threadIdx.x; at < p.tokens * mine.n * 4; at += CONSUMERS) {
        int token = at / (mine.n * 4), row = mine.from * 4 + at % (mine.n * 4);
        float y = 0;
#pragma unroll 1
        for (int r = 0; r < p.cluster; r++) {
            float4 x = load_from(sums + token * SUMS_STRIDE + row / 4 * 4, r);
            y += row % 4 == 0 ? x.x : row % 4 == 1 ? x.y : row % 4 == 2 ? x.z : x.w;
        }
        if (first + row < end.n)
            epilogue_store(end, token, first + row, y);
    }
}

/* This block's part of the rows. */
__device__ __forceinline__ void reduce_cluster(const problem &p, const share &s, const float *sums)
{
    epilogue end = p.matrices[s.matrix].end;
    bool plain = !end.bias && !end.accumulate && !end.out_f32 && end.n % 4 == 0 &&
                 (uintptr_t)end.out % 8 == 0;
    if (!plain)
        reduce_any(p, end, s.first, sums);
    else if (p.cluster <= 2)
        reduce_fours<2, 4>(p, end, s.first, sums);
    else
        reduce_fours<MOST_CLUSTER, 1>(p, end, s.first, sums);
}

#endif

__global__ void __launch_bounds__(THREADS, 1) nf4_wgmma_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char table[]; /* table, ring, barriers */
    unsigned char *ring = table + NF4_TABLE_BYTES;
    unsigned char *sets = ring + STAGES * stage::BYTES;
    barriers &bar = *(barriers *)(sets + 2 * scale_set::BYTES);
    int warp = __shfl_sync(~0u, threadIdx.x / LANES, 0); /* the compiler sees one value a warp */
    share s = share_of(p);
    overlap_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&bar.full[i], 1 + LANES);
            hopper_barrier_init(&bar.empty[i], p.rows / 16);
        }
        hopper_barrier_publish();
    }
    __syncthreads();

    /* producers: the last warpgroup, which gives registers to the consumers */
    if (warp >= CONSUMERS / LANES) {
        hopper_registers_release<40>();
        if (threadIdx.x == CONSUMERS)
            produce(p, s, ring, bar);
        else if (warp == CONSUMERS / LANES + 1)
            produce_scales(p, s, sets, bar);
        __syncwarp();
        hopper_cluster_sync();
        hopper_cluster_sync();
        return;
    }

    /* consumers */
    hopper_registers_acquire<152>();
    nf4_table_fill<CONSUMERS>(table, p.values);
    consumers_sync();
    consume(p, s, warp, table, bar);
    overlap_wait(); /* what the epilogue adds to is written by then */
    hopper_cluster_sync();
    reduce_cluster(p, s, (const float *)ring);
    hopper_cluster_sync(); /* no block exits while another reads its shared memory */
#endif
}

/* ---- host ---- */

int tiles_of(const problem &p, int rows)
{
    int tiles = 0;
    for (int i = 0; i < p.n_matrices; i++)
        tiles += (p.matrices[i].end.n + rows - 1) / rows;
    return tiles;
}

/* How many blocks are resident at once, in clusters of this size. */
int resident_blocks(const cuda_device *d, int cluster)
{
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t config = {};
    int n = 0;
    if (cluster == 1)
        return d->n_sm;
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = (unsigned)cluster;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    config.gridDim = dim3((unsigned)(d->n_sm / cluster * cluster));
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = SMEM;
    config.attrs = &attr;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&n, nf4_wgmma_kernel, &config) != cudaSuccess)
        cudaGetLastError();
    return n * cluster;
}

/* The rows of a tile and the size of a cluster that give the busiest multiprocessor the least to
 * do. Costs are counted in steps of one row; STARTUP is what a tile costs beside its steps,
 * ACTIVATIONS what a step costs beside its rows. */
void choose_tiles(problem *p, const cuda_device *d)
{
    enum { STARTUP = 8 * 64, ACTIVATIONS = 32 };
    int best = 0, steps = p->k / STEP;
    for (int cluster = 1; cluster <= MOST_CLUSTER && cluster <= steps; cluster++) {
        int resident = resident_blocks(d, cluster);
        for (int rows = GROUPS * GROUP_ROWS; resident && rows >= 128; rows -= 64) {
            int blocks = tiles_of(*p, rows) * cluster, waves = (blocks + resident - 1) / resident;
            int cost = waves * ((steps + cluster - 1) / cluster * (rows + ACTIVATIONS) + STARTUP);
            if (best && cost >= best)
                continue;
            best = cost;
            p->rows = rows;
            p->cluster = cluster;
        }
    }
    p->tiles = 0;
    for (int i = 0; i < p->n_matrices; i++) {
        p->matrices[i].first_tile = p->tiles;
        p->tiles += (p->matrices[i].end.n + p->rows - 1) / p->rows;
    }
}

cudaError_t make_maps(problem *p, const mm *a)
{
    cudaError_t e = hopper_map(&p->x, a->a.data, 1, p->tokens, p->k);
    for (int i = 0; e == cudaSuccess && i < p->n_matrices; i++) /* bytes, as 16-bit elements */
        e = hopper_map_of(&p->codes[i],
                          hopper_matrix{ a[i].b.data, 1, p->matrices[i].end.n, p->k / 4, p->k / 4,
                                         (unsigned)p->rows, true });
    return e;
}

} // namespace

bool nf4_wgmma_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    int64_t k = tensor_cols(&a->b), n = tensor_rows(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return !a->a_ld && !a->out_ld && k % STEP == 0 && at % 16 == 0 && k < 1 << 24 && n < 1 << 24;
}

void nf4_wgmma_launch(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    p.k = (int)tensor_cols(&a->b);
    p.tokens = (int)tensor_rows(&a->a);
    p.values = nf4_table_values();
    for (p.n_matrices = 0; p.n_matrices < n; p.n_matrices++) {
        const mm *of = a + p.n_matrices;
        p.matrices[p.n_matrices] =
            matrix{ epilogue_of(of), nf4_scales(of->b.data, tensor_count(&of->b)), 0 };
    }
    cudaError_t e =
        cudaFuncSetAttribute(nf4_wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
    choose_tiles(&p, d);
    if (e == cudaSuccess)
        e = make_maps(&p, a);
    if (e != cudaSuccess)
        cuda_fail(d, e, "matmul of nf4");
    else
        overlap_launch(
            d, "matmul of nf4",
            { dim3((unsigned)(p.tiles * p.cluster)), THREADS, SMEM, (unsigned)p.cluster },
            nf4_wgmma_kernel, p);
}
