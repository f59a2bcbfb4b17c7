/* nf4_wide: 33 to 64 rows of activations against matrices of NF4, read as they lie: as many as meet
 * the same rows in one launch. (Fewer are nf4_few's and nf4_stream's.)
 * A thread block takes 256 (or 192, or 128) rows of w by all tokens. Steps are 128 of k: one warp
 * fetches codes and x, another scales, four steps ahead. A warpgroup has 64 rows: its lanes look
 * codes up as pairs of bf16, which are the first operand of the tensor cores; x is the second,
 * where it lies. The sum of each 64 of k is scaled in f32. Warpgroups wait for nobody but the
 * fetching warps, so while one multiplies the others look up or add.
 *
 * Where rows are few, the blocks of a cluster split k, and each adds up what all have for a part of
 * the rows, in order, from each other's shared memory. */
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/nf4_pairs.cuh"
#include "backend/cuda/overlap.cuh"

namespace
{

enum { LANES = 32, TEAM = 4 * LANES, TEAMS = 4, WORKERS = TEAMS * TEAM, THREADS = WORKERS + TEAM };
enum { TEAM_ROWS = 64, TOKENS = 64, LEAST_TOKENS = 33, STEP = 2 * NF4_BLOCK, STAGES = 4 };
enum { PARTS = 3, MOST_CLUSTER = 8 }; /* products of one x: of q, k and v */

typedef __nv_bfloat16 bf16;

struct part {
    void *out;
    const float *scales;
    const void *bias;
    int n, first_tile;
    float scale;
    bool out_f32, bias_f32, accumulate;
};

struct problem {
    CUtensorMap codes[PARTS], x;
    part parts[PARTS];
    int n_parts, k, tokens, tiles;
    int rows, cluster; /* of a thread block; blocks that split k */
    uint16_t code[16]; /* bf16 */
};

/* Rows of codes, 64 bytes; x, 128 bytes of a token and block; scales. 16-byte pieces of the first
 * two are permuted as TMA does it. */
struct stage {
    static constexpr int MOST_ROWS = TEAMS * TEAM_ROWS, BOX = TOKENS * 128;
    static constexpr int X = MOST_ROWS * STEP / 2, SCALES = X + STEP / 64 * BOX,
                         BYTES = SCALES + MOST_ROWS * STEP / 16;
    static_assert(BYTES % 1024 == 0, "stages begin where permutations do");
};

struct desk {
    uint64_t full[STAGES], empty[STAGES];
};

constexpr int SMEM = NF4_PAIRS_BYTES + STAGES * stage::BYTES + (int)sizeof(desk);

/* What the warps' sums look like in shared memory: [token][row], so that lanes meet all banks. */
enum { ROOM = TEAMS * TEAM_ROWS + 4 };
static_assert(TOKENS * ROOM * 4 <= STAGES * stage::BYTES, "sums fit where codes were");

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ void meet_workers()
{
    asm volatile("bar.sync 1, %0;" ::"n"(TEAMS * TEAM) : "memory");
}

/* What a block has: rows from `first` on of a part, steps [begin, end). */
struct share {
    int part, first, begin, end;
};

__device__ __forceinline__ share share_of(const problem &p)
{
    int tile = blockIdx.x / p.cluster, rank = blockIdx.x % p.cluster, i = 0, steps = p.k / STEP;
    while (i + 1 < p.n_parts && tile >= p.parts[i + 1].first_tile)
        i++;
    return share{ i, (tile - p.parts[i].first_tile) * p.rows, steps * rank / p.cluster,
                  steps * (rank + 1) / p.cluster };
}

/* One lane fetches codes and x. Codes are there before the kernel before this one ends. */
__device__ __forceinline__ void fetch(const problem &p, const share &s, unsigned char *ring,
                                      desk &d)
{
    auto codes = [&](int step) {
        int at = (step - s.begin) % STAGES;
        hopper_arrive_expecting(&d.full[at], p.rows * STEP / 2 + STEP / 64 * stage::BOX);
        hopper_load(ring + at * stage::BYTES, &p.codes[s.part], &d.full[at], step * (STEP / 4),
                    s.first, 0);
    };
    auto x = [&](int step) {
        int at = (step - s.begin) % STAGES;
        for (int i = 0; i < STEP / 64; i++)
            hopper_load(ring + at * stage::BYTES + stage::X + i * stage::BOX, &p.x, &d.full[at],
                        step * STEP + i * 64, 0, 0);
    };
    for (int step = s.begin; step < min(s.begin + STAGES, s.end); step++)
        codes(step);
    overlap_wait();
    for (int step = s.begin; step < s.end; step++) {
        int nth = step - s.begin;
        if (nth >= STAGES) {
            hopper_wait(&d.empty[nth % STAGES], (nth / STAGES - 1) & 1);
            codes(step);
        }
        x(step);
    }
}

/* A warp fetches scales: two of each row. */
__device__ __forceinline__ void fetch_scales(const problem &p, const share &s, unsigned char *ring,
                                             desk &d)
{
    const part &of = p.parts[s.part];
    int blocks = p.k / NF4_BLOCK;
    for (int step = s.begin; step < s.end; step++) {
        int nth = step - s.begin, at = nth % STAGES;
        if (nth >= STAGES)
            hopper_wait(&d.empty[at], (nth / STAGES - 1) & 1);
        uint32_t to = hopper_address(ring + at * stage::BYTES + stage::SCALES);
        for (int row = threadIdx.x % LANES; row < p.rows; row += LANES) {
            const float *from =
                of.scales + (int64_t)min(s.first + row, of.n - 1) * blocks + step * (STEP / 64);
            asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to + row * 8), "l"(from)
                         : "memory");
        }
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                         hopper_address(&d.full[at]))
                     : "memory");
    }
}

#define R8(how, d, i)                                                                              \
    how(d[i]), how(d[i + 1]), how(d[i + 2]), how(d[i + 3]), how(d[i + 4]), how(d[i + 5]),          \
        how(d[i + 6]), how(d[i + 7])

/* d [64 rows, 64 tokens] (+)= a [64, 16] x [64, 16]^T; `more`: not the first. */
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t x,
                                         int more)
{
    asm volatile("{\n.reg .pred more;\nsetp.ne.b32 more, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, more, 1, 1, 0;\n}"
                 : R8("+f", d, 0), R8("+f", d, 8), R8("+f", d, 16), R8("+f", d, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(more));
}

#undef R8

/* Block b of a step for a warp's 16 rows from `row` on: a lane's part of the first operand, 16 of k
 * at a time. Of each 8 bytes a lane takes its own and the fourth behind. */
__device__ __forceinline__ void look_up(uint32_t (&a)[4][4], const unsigned char *table,
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

/* A step of a warpgroup. */
__device__ __forceinline__ void use(float (&sum)[32], const unsigned char *table,
                                    const unsigned char *from)
{
    int row = threadIdx.x / LANES * 16, g = threadIdx.x % LANES / 4;
#pragma unroll
    for (int b = 0; b < STEP / 64; b++) {
        uint32_t a[4][4];
        float block[32];
        uint64_t x = hopper_operand(from + stage::X + b * stage::BOX, 0);
        const float *scales = (const float *)(from + stage::SCALES) + b;
        look_up(a, table, from, row, b);
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

__device__ __forceinline__ void work(const problem &p, const share &s, unsigned char *table,
                                     desk &d)
{
    unsigned char *ring = table + NF4_PAIRS_BYTES;
    float *room = (float *)ring, sum[32] = {};
    int warp = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    bool mine = warp * 16 < p.rows;
    for (int step = s.begin; mine && step < s.end; step++) {
        int nth = step - s.begin, at = nth % STAGES;
        hopper_wait(&d.full[at], nth / STAGES & 1);
        use(sum, table, ring + at * stage::BYTES);
        __syncwarp();
        if (lane == 0)
            hopper_arrive(&d.empty[at]);
    }
    meet_workers(); /* nobody reads codes any more */
    if (mine)
#pragma unroll
        for (int i = 0; i < 32; i++)
            room[(i / 4 * 8 + lane % 4 * 2 + i % 2) * ROOM + warp * 16 + (i & 2) * 4 + lane / 4] =
                sum[i];
}

/* Four numbers of shared memory as they are in another block of the cluster. */
__device__ __forceinline__ float4 numbers_at(const float *here, int rank)
{
    float4 x;
    asm volatile("{\n.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(hopper_address(here)), "r"(rank));
    return x;
}

/* This block's rows of the sums of all. */
__device__ __forceinline__ void add_up(const problem &p, const share &s, const float *room)
{
    int each = p.rows / p.cluster, from = blockIdx.x % p.cluster * each;
    const part &to = p.parts[s.part];
    for (int i = threadIdx.x * 4; i < p.tokens * each; i += WORKERS * 4) {
        int token = i / each, row = from + i % each;
        float y[4] = {};
        float4 of[MOST_CLUSTER];
#pragma unroll
        for (int rank = 0; rank < MOST_CLUSTER; rank++) /* all on their way before one is used */
            if (rank < p.cluster)
                of[rank] = numbers_at(room + token * ROOM + row, rank);
#pragma unroll
        for (int rank = 0; rank < MOST_CLUSTER; rank++)
            if (rank < p.cluster)
                y[0] += of[rank].x, y[1] += of[rank].y, y[2] += of[rank].z, y[3] += of[rank].w;
        for (int j = 0; j < 4; j++)
            if (s.first + row + j < to.n)
                nf4_pairs_store(to, token, s.first + row + j, y[j]);
    }
}

#endif

__global__ void __launch_bounds__(THREADS, 1) wide_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char table[];
    unsigned char *ring = table + NF4_PAIRS_BYTES;
    desk &d = *(desk *)(ring + STAGES * stage::BYTES);
    int warp = threadIdx.x / LANES;
    share s = share_of(p);
    overlap_next();
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&d.full[i], 1 + LANES);
            hopper_barrier_init(&d.empty[i], p.rows / 16);
        }
        hopper_barrier_publish();
    }
    __syncthreads();
    if (warp >= WORKERS / LANES) { /* registers go from the last four warps to the others */
        hopper_registers_drop<64>();
        if (threadIdx.x == WORKERS)
            fetch(p, s, ring, d);
        else if (warp == WORKERS / LANES + 1)
            fetch_scales(p, s, ring, d);
        __syncwarp();
        hopper_cluster_meet();
        hopper_cluster_meet();
        return;
    }
    hopper_registers_take<104>();
    nf4_pairs_fill<WORKERS>(table, p.code);
    meet_workers();
    work(p, s, table, d);
    overlap_wait(); /* what is added to, if anything, is there */
    hopper_cluster_meet();
    add_up(p, s, (const float *)ring);
    hopper_cluster_meet(); /* nobody leaves while another reads here */
#endif
}

/* ---- the host's side ---- */

/* Whether this is for here, and of the same x as the one before it. */
bool fits(const mm *a, const mm *before)
{
    int64_t k = tensor_cols(&a->b), n = tensor_rows(&a->b), tokens = tensor_rows(&a->a);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return a->layout == MM_NT && !a->n_more && !a->a_ld && !a->out_ld && a->b.dt == DT_NF4 &&
           a->a.dt == DT_BF16 && k % STEP == 0 && at % 16 == 0 && k < 1 << 24 && n < 1 << 24 &&
           tokens >= LEAST_TOKENS && tokens <= TOKENS &&
           (!before || (a->a.data == before->a.data && tensor_cols(&before->b) == k));
}

part part_from(const mm *a)
{
    int64_t n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    return part{ a->out.data, nf4_scales(a->b.data, n * k), a->bias.data,         (int)n,       0,
                 a->scale,    a->out.dt == DT_F32,          a->bias.dt == DT_F32, a->accumulate };
}

int tiles_of(const problem &p, int rows)
{
    int tiles = 0;
    for (int i = 0; i < p.n_parts; i++)
        tiles += (p.parts[i].n + rows - 1) / rows;
    return tiles;
}

/* The attributes of a launch whose blocks are `cluster` and `cluster` together. */
struct launch_of {
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t config = {};

    explicit launch_of(int blocks, int cluster)
    {
        attr.id = cudaLaunchAttributeClusterDimension;
        attr.val.clusterDim.x = (unsigned)cluster;
        attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
        config.gridDim = dim3((unsigned)blocks);
        config.blockDim = dim3(THREADS);
        config.dynamicSmemBytes = SMEM;
        config.attrs = &attr;
        config.numAttrs = 1;
    }
};

/* How many blocks run at a time. */
int at_a_time(const cuda_device *d, int cluster)
{
    int n = 0;
    launch_of l(d->n_sm / cluster * cluster, cluster);
    if (cluster == 1)
        return d->n_sm;
    if (cudaOccupancyMaxActiveClusters(&n, wide_kernel, &l.config) != cudaSuccess)
        cudaGetLastError();
    return n * cluster;
}

/* Rows of a block and blocks of a cluster, so that the longest multiprocessor has the least. */
void choose(problem *p, const cuda_device *d)
{
    enum { START = 8 * 64 }; /* what it takes to begin and end, in steps of 64 rows */
    int best = 0, steps = p->k / STEP;
    for (int cluster = 1; cluster <= MOST_CLUSTER && cluster <= steps; cluster *= 2) {
        int room = at_a_time(d, cluster);
        for (int rows = 256; room && rows >= 128; rows -= 64) {
            int blocks = tiles_of(*p, rows) * cluster, waves = (blocks + room - 1) / room;
            int cost = waves * ((steps + cluster - 1) / cluster * rows + START);
            if (best && cost >= best)
                continue;
            best = cost;
            p->rows = rows;
            p->cluster = cluster;
        }
    }
    p->tiles = 0;
    for (int i = 0; i < p->n_parts; i++) {
        p->parts[i].first_tile = p->tiles;
        p->tiles += (p->parts[i].n + p->rows - 1) / p->rows;
    }
}

cudaError_t make_maps(problem *p, const mm *a)
{
    cudaError_t e = hopper_map(&p->x, a->a.data, 1, p->tokens, p->k);
    for (int i = 0; e == cudaSuccess && i < p->n_parts; i++) /* bytes, as pairs of them */
        e = hopper_map_of(&p->codes[i], hopper_matrix{ a[i].b.data, 1, p->parts[i].n, p->k / 4,
                                                       p->k / 4, (unsigned)p->rows, true });
    return e;
}

} // namespace

extern "C" int cuda_nf4_wide(cuda_device *d, const mm *a, int n)
{
    problem p = {};
    while (d->cc >= 90 && p.n_parts < n && p.n_parts < PARTS &&
           fits(a + p.n_parts, p.n_parts ? a + p.n_parts - 1 : NULL)) {
        p.parts[p.n_parts] = part_from(a + p.n_parts);
        p.n_parts++;
    }
    if (p.n_parts == 0)
        return 0;
    p.k = (int)tensor_cols(&a->b);
    p.tokens = (int)tensor_rows(&a->a);
    cudaError_t e =
        cudaFuncSetAttribute(wide_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
    choose(&p, d);
    nf4_pairs_codes(p.code);
    if (e == cudaSuccess)
        e = make_maps(&p, a);
    if (e != cudaSuccess)
        cuda_fail(d, e, "matmul of nf4");
    else
        overlap_launch(
            d, "matmul of nf4",
            { dim3((unsigned)(p.tiles * p.cluster)), THREADS, SMEM, (unsigned)p.cluster },
            wide_kernel, p);
    return p.n_parts;
}
