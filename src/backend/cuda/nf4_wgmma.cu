/* nf4_wgmma: 33 to 256 rows of bf16 activations against NF4 matrices on Hopper. Up to three
 * matrices that multiply the same activations are one launch.
 *
 * Tiles: a block has 192 (or 128) rows of w by up to 64, 96 or 128 tokens, of each of which there
 * is a kernel. Above 128 tokens, two blocks that are launched one after the other share the tokens
 * of a tile. A step is 128 elements of k, two quantisation blocks.
 *
 * Who does what (warp specialisation): four warpgroups. Of the last, one thread has TMA copy codes
 * and activations into a ring of three to five stages and one warp copies scales; it gives its
 * registers to the others. Each of the three consumer warpgroups has 64 rows: its lanes decode
 * codes to pairs of bf16 in registers, wgmma's first operand; the activations are the second, in
 * shared memory. The sum of each quantisation block is scaled in f32. While the tensor cores
 * multiply half of a block, the warpgroup decodes the next half. Consumers synchronise with the
 * producers only.
 *
 * Split-K: where w has too few rows, the blocks of a cluster (up to 8) share k. Each adds up, in
 * order, the sums of all for its part of the rows, which it reads from their shared memory
 * (distributed shared memory).
 *
 * Bound: shared memory, through which codes are decoded, and the time from a read of codes to the
 * product that needs them. For 64 rows of a quantisation block and 64 tokens the look-ups, the
 * reads of codes and wgmma's reads of activations take 64 cycles each, and what is copied there
 * some 40; the tensor cores need 128. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"

namespace
{

enum { LANES = 32, GROUP = 4 * LANES, GROUPS = 3 }; /* GROUP: threads of a warpgroup */
enum { CONSUMERS = GROUPS * GROUP, THREADS = CONSUMERS + GROUP };
enum { GROUP_ROWS = 64, STEP = 2 * NF4_BLOCK };
enum { PRODUCER_REGISTERS = 24, CONSUMER_REGISTERS = 160 };
enum { MATRICES = 3, MOST_CLUSTER = 8, MOST_TOKENS = 128 };

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
    int slice, slices; /* tokens of a block; blocks that share the tokens */
    nf4_values values;
};

/* Scales have a ring of their own: a set has those of four steps, 32 bytes of a row, which is a
 * sector of memory. */
struct scale_set {
    static constexpr int STEPS = 4, ROW = STEPS * STEP / 64 * 4, BYTES = GROUPS * GROUP_ROWS * ROW;
};

/* Shared memory of a kernel for up to TOKENS tokens: table, ring of stages, two sets of scales,
 * barriers. A stage has codes, 64 bytes a row; then x, for each quantisation block 128 bytes a
 * token. TMA swizzles the 16-byte pieces of both. */
template <int TOKENS> struct layout {
    static constexpr int STAGES = TOKENS <= 64 ? 5 : TOKENS <= 96 ? 4 : 3, BOX = TOKENS * 128;
    static constexpr int X = GROUPS * GROUP_ROWS * STEP / 2, STAGE = X + STEP / 64 * BOX;
    static constexpr int RING = NF4_TABLE_BYTES, SETS = RING + STAGES * STAGE;
    static constexpr int BARRIERS = SETS + 2 * scale_set::BYTES;
    static constexpr int BYTES = BARRIERS + 2 * STAGES * (int)sizeof(uint64_t);
    /* The consumers' sums, [token][row], reuse the ring; the padding spreads lanes over banks. */
    static constexpr int SUMS_STRIDE = GROUPS * GROUP_ROWS + 4;
    static_assert(X % 1024 == 0 && STAGE % 1024 == 0,
                  "the swizzle pattern repeats every 1024 bytes");
    static_assert(STAGES <= scale_set::STEPS + 1,
                  "when step 4 q has its stage, step 4 q - 5, the last of set q - 2, is released");
    static_assert(TOKENS * SUMS_STRIDE * 4 <= STAGES * STAGE, "sums reuse the ring's memory");
};

struct barriers {
    uint64_t *full, *empty; /* of each stage */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(GROUPS * GROUP) : "memory");
}

/* What a block computes: rows from `first` on of a matrix, steps [begin, end) of k, `tokens` tokens
 * from `token` on. */
struct share {
    int matrix, first, begin, end, token, tokens;
};

__device__ __forceinline__ share share_of(const problem &p)
{
    int nth = blockIdx.x / p.cluster, rank = blockIdx.x % p.cluster, i = 0, steps = p.k / STEP;
    int tile = nth / p.slices, token = nth % p.slices * p.slice;
    while (i + 1 < p.n_matrices && tile >= p.matrices[i + 1].first_tile)
        i++;
    return share{ i,
                  (tile - p.matrices[i].first_tile) * p.rows,
                  steps * rank / p.cluster,
                  steps * (rank + 1) / p.cluster,
                  token,
                  min(p.slice, p.tokens - token) };
}

/* ---- producers ---- */

/* One thread: codes and activations by TMA. Codes are loaded before the wait for the kernel before
 * this one, which does not write them. */
template <int TOKENS>
__device__ __forceinline__ void produce(const problem &p, const share &s, unsigned char *ring,
                                        const barriers &bar)
{
    typedef layout<TOKENS> in;
    constexpr int STAGES = in::STAGES;
    auto load_codes = [&](int step) {
        int at = (step - s.begin) % STAGES;
        hopper_arrive_expecting(&bar.full[at], p.rows * STEP / 2 + STEP / 64 * in::BOX);
        hopper_load(ring + at * in::STAGE, &p.codes[s.matrix], &bar.full[at], step * (STEP / 4),
                    s.first, 0);
    };
    auto load_activations = [&](int step) {
        int at = (step - s.begin) % STAGES;
        for (int i = 0; i < STEP / 64; i++)
            hopper_load(ring + at * in::STAGE + in::X + i * in::BOX, &p.x, &bar.full[at],
                        step * STEP + i * 64, s.token, 0);
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
template <int STAGES>
__device__ __forceinline__ void produce_scales(const problem &p, const share &s,
                                               unsigned char *sets, const barriers &bar)
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

/* A lane's place. The compiler would compute these again in every step, did they not look unknown
 * to it. */
struct place {
    uint32_t offset, select; /* in the table; of the lane's byte of a word */
    uint32_t row, swizzle;   /* its first row of the tile; of 16-byte pieces of codes */
};

__device__ __forceinline__ place make_place()
{
    uint32_t lane = threadIdx.x % LANES, g = lane / 4;
    place l = { lane * 4, 0x5504 | lane % 4 << 4, threadIdx.x / LANES * 16 + g, (g >> 1) * 16 };
    asm volatile("" : "+r"(l.offset), "+r"(l.select), "+r"(l.row), "+r"(l.swizzle));
    return l;
}

/* Reads the codes of a lane's two rows in a quarter of a stage, 32 elements of k. */
__device__ __forceinline__ void fetch(uint4 (&w)[2], const place &l, const unsigned char *stage,
                                      int quarter)
{
    const unsigned char *at = stage + l.row * (STEP / 2) + (quarter * 16 ^ l.swizzle);
    w[0] = *(const uint4 *)at;
    w[1] = *(const uint4 *)(at + 8 * (STEP / 2));
}

/* Decodes them: half of a block's operand, 16 elements of k at a time. Of each 8 bytes a lane uses
 * its own and the one four further on, which is what wgmma's register layout asks for. */
__device__ __forceinline__ void decode(uint32_t (&a)[4][4], int half, const place &l,
                                       const unsigned char *table, const uint4 (&w)[2])
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t words[4] = { w[h].x, w[h].y, w[h].z, w[h].w };
#pragma unroll
        for (int i = 0; i < 4; i++)
            a[half * 2 + i / 2][h + i % 2 * 2] =
                *(const uint32_t *)(table + __byte_perm(words[i], l.offset, l.select));
    }
}

/* Where the scales of a step are. */
__device__ __forceinline__ const unsigned char *scales_of(const unsigned char *sets, int step)
{
    return sets + step / scale_set::STEPS % 2 * scale_set::BYTES +
           step % scale_set::STEPS * (STEP / 64) * 4;
}

/* Starts the products of half a block with the activations x. */
template <int N>
__device__ __forceinline__ void multiply_half(float (&part)[N], const uint32_t (&a)[4][4], int half,
                                              uint64_t x)
{
    hopper_multiply_begin();
#pragma unroll
    for (int s = half * 2; s < half * 2 + 2; s++)
        hopper_multiply(part, a[s], x + 2 * s, s);
    hopper_multiply_commit();
}

/* Waits for a block's products and adds them, scaled. */
template <int N>
__device__ __forceinline__ void add_block(float (&sum)[N], float (&part)[N], float low, float high)
{
    hopper_multiply_wait<0>();
    hopper_multiplied(part);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = fmaf(i & 2 ? high : low, part[i], sum[i]);
}

/* All steps of a warpgroup's rows. Half of a block's operand is decoded while the tensor cores
 * multiply the other half, from codes that were read before; with 128 tokens the registers do not
 * suffice for that, and they are read then. After the last step what is read ahead is not used. */
template <int TOKENS>
__device__ __forceinline__ void multiply_steps(float (&sum)[TOKENS / 2], const share &s,
                                               unsigned char *table, const barriers &bar)
{
    typedef layout<TOKENS> in;
    constexpr bool AHEAD = TOKENS < 128;
    place l = make_place();
    const unsigned char *ring = table + in::RING, *stage = ring;
    const unsigned char *sets = table + in::SETS + l.row * scale_set::ROW;
    uint32_t a[4][4];
    uint4 w[2];
    float part[TOKENS / 2];
    int at = 0, parity = 0;
    auto decode_quarter = [&](int quarter) { /* and reads the next one */
                                             if (!AHEAD)
                                                 fetch(w, l, stage, quarter);
                                             decode(a, quarter % 2, l, table, w);
                                             if (AHEAD && quarter < 3)
                                                 fetch(w, l, stage, quarter + 1);
    };
    hopper_wait(&bar.full[0], 0);
    fetch(w, l, stage, 0);
    decode_quarter(0);
    for (int step = s.begin; step < s.end; step++) {
        const unsigned char *scales = scales_of(sets, step);
        uint64_t *done = &bar.empty[at], x = hopper_operand(stage + in::X, 0);
        multiply_half(part, a, 0, x);
        decode_quarter(1);
        multiply_half(part, a, 1, x);
        float2 low = *(const float2 *)scales, high = *(const float2 *)(scales + 8 * scale_set::ROW);
        hopper_multiply_wait<1>(); /* the operand's first half is free */
        decode_quarter(2);
        add_block(sum, part, low.x, high.x);

        x += in::BOX >> 4;
        multiply_half(part, a, 0, x);
        decode_quarter(3);
        at = at + 1 == in::STAGES ? 0 : at + 1;
        parity ^= at == 0;
        stage = ring + at * in::STAGE;
        if (AHEAD && step + 1 < s.end)
            hopper_wait(&bar.full[at], parity);
        if (AHEAD)
            fetch(w, l, stage, 0);
        multiply_half(part, a, 1, x);
        hopper_multiply_wait<1>();
        if (!AHEAD && step + 1 < s.end)
            hopper_wait(&bar.full[at], parity);
        decode_quarter(0);
        add_block(sum, part, low.y, high.y);
        __syncwarp(); /* every lane has read the stage */
        if (l.offset == 0)
            hopper_arrive(done);
    }
}

/* All steps of the block; then the sums are left in shared memory. */
template <int TOKENS>
__device__ __forceinline__ void consume(const problem &p, const share &s, int warp,
                                        unsigned char *table, const barriers &bar)
{
    float *sums = (float *)(table + layout<TOKENS>::RING), sum[TOKENS / 2] = {};
    int lane = threadIdx.x % LANES;
    bool mine = warp * 16 < p.rows;
    if (mine && s.begin < s.end)
        multiply_steps<TOKENS>(sum, s, table, bar);
    consumers_sync(); /* all have read the last stage, so the ring's memory is free */
    if (mine)
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            sums[(i / 4 * 8 + lane % 4 * 2 + i % 2) * layout<TOKENS>::SUMS_STRIDE + warp * 16 +
                 (i & 2) * 4 + lane / 4] = sum[i];
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
template <int RANKS, int BATCH, int STRIDE>
__device__ __forceinline__ void reduce_fours(const problem &p, const epilogue &end, const share &s,
                                             const float *sums)
{
    fours mine = fours_of(p);
    int all = s.tokens * mine.n;
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
                    of[i][r] = load_from(sums + token[i] * STRIDE + row[i], r);
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
            int64_t to = (s.token + token[i]) * (int64_t)end.n + s.first + row[i];
            if (at + i * CONSUMERS < all && s.first + row[i] < end.n)
                *(uint2 *)((__nv_bfloat16 *)end.out + to) =
                    make_uint2(*(uint32_t *)&low, *(uint32_t *)&high);
        }
    }
}

/* The same for all results, an element at a time. */
template <int STRIDE>
__device__ __forceinline__ void reduce_any(const problem &p, const epilogue &end, const share &s,
                                           const float *sums)
{
    fours mine = fours_of(p);
#pragma unroll 1
    for (int at = threadIdx.x; at < s.tokens * mine.n * 4; at += CONSUMERS) {
        int token = at / (mine.n * 4), row = mine.from * 4 + at % (mine.n * 4);
        float y = 0;
#pragma unroll 1
        for (int r = 0; r < p.cluster; r++) {
            float4 x = load_from(sums + token * STRIDE + row / 4 * 4, r);
            y += row % 4 == 0 ? x.x : row % 4 == 1 ? x.y : row % 4 == 2 ? x.z : x.w;
        }
        if (s.first + row < end.n)
            epilogue_store(end, s.token + token, s.first + row, y);
    }
}

/* This block's part of the rows. */
template <int STRIDE>
__device__ __forceinline__ void reduce_cluster(const problem &p, const share &s, const float *sums)
{
    epilogue end = p.matrices[s.matrix].end;
    bool plain = !end.bias && !end.accumulate && !end.out_f32 && end.n % 4 == 0 &&
                 (uintptr_t)end.out % 8 == 0;
    if (!plain)
        reduce_any<STRIDE>(p, end, s, sums);
    else if (p.cluster <= 2)
        reduce_fours<2, 4, STRIDE>(p, end, s, sums);
    else
        reduce_fours<MOST_CLUSTER, 1, STRIDE>(p, end, s, sums);
}

#endif

template <int TOKENS>
__global__ void __launch_bounds__(THREADS, 1) nf4_wgmma_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef layout<TOKENS> in;
    extern __shared__ __align__(1024) unsigned char table[];
    uint64_t *first_barrier = (uint64_t *)(table + in::BARRIERS);
    barriers bar = { first_barrier, first_barrier + in::STAGES };
    int warp = __shfl_sync(~0u, threadIdx.x / LANES, 0); /* the compiler sees one value a warp */
    share s = share_of(p);
    overlap_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < in::STAGES; i++) {
            hopper_barrier_init(&bar.full[i], 1 + LANES);
            hopper_barrier_init(&bar.empty[i], p.rows / 16);
        }
        hopper_barrier_publish();
    }
    __syncthreads();

    /* producers: the last warpgroup, which gives registers to the consumers */
    if (warp >= CONSUMERS / LANES) {
        hopper_registers_release<PRODUCER_REGISTERS>();
        if (threadIdx.x == CONSUMERS)
            produce<TOKENS>(p, s, table + in::RING, bar);
        else if (warp == CONSUMERS / LANES + 1)
            produce_scales<in::STAGES>(p, s, table + in::SETS, bar);
        __syncwarp();
        hopper_cluster_sync();
        hopper_cluster_sync();
        return;
    }

    /* consumers */
    hopper_registers_acquire<CONSUMER_REGISTERS>();
    nf4_table_fill<CONSUMERS>(table, p.values);
    consumers_sync();
    consume<TOKENS>(p, s, warp, table, bar);
    overlap_wait(); /* what the epilogue adds to is written by then */
    hopper_cluster_sync();
    reduce_cluster<in::SUMS_STRIDE>(p, s, (const float *)(table + in::RING));
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

/* A kernel, for up to `tokens` tokens a block. */
struct variant {
    void (*kernel)(problem);
    int tokens, smem;
};

template <int TOKENS> variant variant_of()
{
    return variant{ nf4_wgmma_kernel<TOKENS>, TOKENS, layout<TOKENS>::BYTES };
}

/* How many blocks are resident at once, in clusters of this size. */
int resident_blocks(const cuda_device *d, const variant &v, int cluster)
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
    config.dynamicSmemBytes = (size_t)v.smem;
    config.attrs = &attr;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&n, v.kernel, &config) != cudaSuccess)
        cudaGetLastError();
    return n * cluster;
}

/* The rows of a tile and the size of a cluster that give the busiest multiprocessor the least to
 * do. Costs are counted in steps of one row; STARTUP is what a tile costs beside its steps,
 * `activations` what a step costs beside its rows. */
void choose_tiles(problem *p, const cuda_device *d, const variant &v)
{
    enum { STARTUP = 8 * 64 };
    int best = 0, steps = p->k / STEP, activations = v.tokens / 2;
    for (int cluster = 1; cluster <= MOST_CLUSTER && cluster <= steps; cluster++) {
        int resident = resident_blocks(d, v, cluster);
        for (int rows = GROUPS * GROUP_ROWS; resident && rows >= 128; rows -= 64) {
            int blocks = tiles_of(*p, rows) * cluster * p->slices,
                waves = (blocks + resident - 1) / resident;
            int cost = waves * ((steps + cluster - 1) / cluster * (rows + activations) + STARTUP);
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
    cudaError_t e = hopper_map_of(
        &p->x, hopper_matrix{ a->a.data, 1, p->tokens, p->k, p->k, (unsigned)p->slice });
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
    p.slices = (p.tokens + MOST_TOKENS - 1) / MOST_TOKENS;
    int each = (p.tokens + p.slices - 1) / p.slices;
    variant v = each <= 64 ? variant_of<64>() : each <= 96 ? variant_of<96>() : variant_of<128>();
    cudaError_t e =
        cudaFuncSetAttribute(v.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, v.smem);
    p.slice = v.tokens;
    choose_tiles(&p, d, v);
    if (e == cudaSuccess)
        e = make_maps(&p, a);
    if (e != cudaSuccess)
        cuda_fail(d, e, "matmul of nf4");
    else
        overlap_launch(d, "matmul of nf4",
                       { dim3((unsigned)(p.tiles * p.slices * p.cluster)), THREADS, v.smem,
                         (unsigned)p.cluster },
                       v.kernel, p);
}
