/* nf4_wgmma: 33 to 64 rows of bf16 activations against NF4 matrices on Hopper. Up to three matrices
 * that multiply the same activations are one launch.
 *
 * Tiles: a block has 256 (or 192, or 128) rows of w by all tokens (64). A step is 128 elements of
 * k, two quantisation blocks.
 *
 * Who does what (warp specialisation): five warpgroups. Of the last, one thread has TMA copy codes
 * and activations into a ring of four stages and one warp copies scales; it gives its registers to
 * the others. Each of the four consumer warpgroups has 64 rows: its lanes decode codes to pairs of
 * bf16 in registers, wgmma's first operand; the activations are the second, in shared memory. The
 * sum of each quantisation block is scaled in f32. Consumers synchronise with the producers only,
 * so while one multiplies the others decode or scale.
 *
 * Split-K: where w has too few rows, the blocks of a cluster (up to 8) share k. Each adds up, in
 * order, the sums of all for its part of the rows, which it reads from their shared memory
 * (distributed shared memory).
 *
 * Bound: reading the weights, if decoding keeps up. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"

namespace
{

enum { LANES = 32, GROUP = 4 * LANES, GROUPS = 4 }; /* GROUP: threads of a warpgroup */
enum { CONSUMERS = GROUPS * GROUP, THREADS = CONSUMERS + GROUP };
enum { GROUP_ROWS = 64, TOKENS = 64, STEP = 2 * NF4_BLOCK, STAGES = 4 };
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

/* One stage of the ring: codes, 64 bytes a row; x, for each quantisation block 128 bytes a token;
 * scales, two a row. TMA swizzles the 16-byte pieces of the first two. */
struct stage {
    static constexpr int MOST_ROWS = GROUPS * GROUP_ROWS, BOX = TOKENS * 128;
    static constexpr int X = MOST_ROWS * STEP / 2, SCALES = X + STEP / 64 * BOX,
                         BYTES = SCALES + MOST_ROWS * STEP / 16;
    static_assert(BYTES % 1024 == 0, "the swizzle pattern repeats every 1024 bytes");
};

struct barriers {
    uint64_t full[STAGES], empty[STAGES];
};

constexpr int SMEM = NF4_TABLE_BYTES + STAGES * stage::BYTES + (int)sizeof(barriers);

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

/* One warp: two scales of each row, by cp.async. */
__device__ __forceinline__ void produce_scales(const problem &p, const share &s,
                                               unsigned char *ring, barriers &bar)
{
    const matrix &of = p.matrices[s.matrix];
    int blocks = p.k / NF4_BLOCK;
    for (int step = s.begin; step < s.end; step++) {
        int nth = step - s.begin, at = nth % STAGES;
        if (nth >= STAGES)
            hopper_wait(&bar.empty[at], (nth / STAGES - 1) & 1);
        uint32_t to = hopper_address(ring + at * stage::BYTES + stage::SCALES);
        for (int row = threadIdx.x % LANES; row < p.rows; row += LANES) {
            const float *from =
                of.scales + (int64_t)min(s.first + row, of.end.n - 1) * blocks + step * (STEP / 64);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + row * 8), "l"(from)
                         : "memory");
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

/* One stage of a warpgroup: decode, multiply, scale, for each quantisation block. */
__device__ __forceinline__ void multiply_stage(float (&sum)[32], const unsigned char *table,
                                               const unsigned char *from)
{
    int row = threadIdx.x / LANES * 16, g = threadIdx.x % LANES / 4;
#pragma unroll
    for (int b = 0; b < STEP / 64; b++) {
        uint32_t a[4][4];
        float block[32];
        uint64_t x = hopper_operand(from + stage::X + b * stage::BOX, 0);
        const float *scales = (const float *)(from + stage::SCALES) + b;
        decode(a, table, from, row, b);
        float low = scales[(row + g) * (STEP / 64)], high = scales[(row + 8 + g) * (STEP / 64)];
        hopper_multiply_begin();
#pragma unroll
        for (int s = 0; s < 4; s++)
            multiply(block, a[s], x + 2 * s, s);
        hopper_multiply_commit();
        hopper_multiply_wait<0>();
#pragma unroll
        for (int i = 0; i < 32; i++)
            sum[i] = fmaf(i & 2 ? high : low, block[i], sum[i]);
    }
}

/* All steps of the block; then the sums are left in shared memory. */
__device__ __forceinline__ void consume(const problem &p, const share &s, unsigned char *table,
                                        barriers &bar)
{
    unsigned char *ring = table + NF4_TABLE_BYTES;
    float *sums = (float *)ring, sum[32] = {};
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    bool mine = warp * 16 < p.rows;
    for (int step = s.begin; mine && step < s.end; step++) {
        int nth = step - s.begin, at = nth % STAGES;
        hopper_wait(&bar.full[at], nth / STAGES & 1);
        multiply_stage(sum, table, ring + at * stage::BYTES);
        __syncwarp();
        if (lane == 0)
            hopper_arrive(&bar.empty[at]);
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

/* This block's part of the rows: the sums of all blocks of the cluster in order, then the epilogue.
 */
__device__ __forceinline__ void reduce_cluster(const problem &p, const share &s, const float *sums)
{
    int each = p.rows / p.cluster, from = blockIdx.x % p.cluster * each;
    const epilogue &end = p.matrices[s.matrix].end;
    for (int i = threadIdx.x * 4; i < p.tokens * each; i += CONSUMERS * 4) {
        int token = i / each, row = from + i % each;
        float y[4] = {};
        float4 of[MOST_CLUSTER];
#pragma unroll
        for (int rank = 0; rank < MOST_CLUSTER; rank++) /* all loads before the first use */
            if (rank < p.cluster)
                of[rank] = load_from(sums + token * SUMS_STRIDE + row, rank);
#pragma unroll
        for (int rank = 0; rank < MOST_CLUSTER; rank++)
            if (rank < p.cluster)
                y[0] += of[rank].x, y[1] += of[rank].y, y[2] += of[rank].z, y[3] += of[rank].w;
        for (int j = 0; j < 4; j++)
            if (s.first + row + j < end.n)
                epilogue_store(end, token, s.first + row + j, y[j]);
    }
}

#endif

__global__ void __launch_bounds__(THREADS, 1) nf4_wgmma_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char table[]; /* table, ring, barriers */
    unsigned char *ring = table + NF4_TABLE_BYTES;
    barriers &bar = *(barriers *)(ring + STAGES * stage::BYTES);
    int warp = threadIdx.x / LANES;
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
        hopper_registers_release<64>();
        if (threadIdx.x == CONSUMERS)
            produce(p, s, ring, bar);
        else if (warp == CONSUMERS / LANES + 1)
            produce_scales(p, s, ring, bar);
        __syncwarp();
        hopper_cluster_sync();
        hopper_cluster_sync();
        return;
    }

    /* consumers */
    hopper_registers_acquire<104>();
    nf4_table_fill<CONSUMERS>(table, p.values);
    consumers_sync();
    consume(p, s, table, bar);
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
 * do. Costs are counted in steps of one row; STARTUP is what a tile costs beside its steps. */
void choose_tiles(problem *p, const cuda_device *d)
{
    enum { STARTUP = 8 * 64 };
    int best = 0, steps = p->k / STEP;
    for (int cluster = 1; cluster <= MOST_CLUSTER && cluster <= steps; cluster *= 2) {
        int resident = resident_blocks(d, cluster);
        for (int rows = 256; resident && rows >= 128; rows -= 64) {
            int blocks = tiles_of(*p, rows) * cluster, waves = (blocks + resident - 1) / resident;
            int cost = waves * ((steps + cluster - 1) / cluster * rows + STARTUP);
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
