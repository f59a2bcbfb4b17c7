/* grouped_wgmma: grouped products on Hopper (sm_90a).
 *
 * Bound: the tensor cores. Tiles of 128 rows and 64, 128 or 256 columns, 64 elements of k at a
 * time.
 *
 * Who does what (warp specialisation): persistent blocks, one on each multiprocessor. One thread of
 * the third warpgroup is the producer: it finds the next tile and has TMA copy its operands into a
 * ring of four stages in shared memory. Two warpgroups are consumers: each multiplies 64 of the
 * rows with wgmma and stores them. The first stage of a tile carries the tile's description (a
 * job), so only the producer knows the order of tiles.
 *
 * Operands are copied in boxes of 64x64 in either layout. Rows of a box that belong to another
 * expert are computed and not stored (NT, NN), or zeroed before they are summed (TN).
 *
 * The order of tiles. NT, NN: all tiles cost the same, so the blocks take them in a grid-stride
 * loop; the last, partial round is cut into narrower tiles where that occupies more of the GPU. TN:
 * a tile costs as much as its expert has rows, so order_kernel sorts experts by rows and blocks
 * draw tiles from a counter, long ones first. Which block computes a tile does not change its sum.
 */
#include "backend/cuda/grouped.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/warp.cuh"

#include <cuda_bf16.h>

namespace
{

enum {
    TILE_M = 128,
    TILE_N = 256, /* the widest */
    DEPTH = 64,
    BOX = 64 * 64 * 2, /* bytes */
    STAGES = 4,
    A_BOXES = TILE_M / 64,
    STAGE_BOXES = A_BOXES + TILE_N / 64,
    CONSUMERS = 2,
    THREADS = 128 * (1 + CONSUMERS),
    MOST_EXPERTS = GROUPED_EXPERTS
};

/* A tile, for the consumers. */
struct job {
    int expert;          /* negative: no more tiles */
    int row, rows, m, n; /* as in grouped_tile */
    int live;            /* rows of C in the tile */
    int blocks;          /* of DEPTH */
    int width;           /* columns of the tile */
};

struct ring {
    unsigned char stage[STAGES][STAGE_BOXES][BOX];
    uint64_t full[STAGES], empty[STAGES];
    job jobs[STAGES];
};
enum { SHARED = sizeof(ring) + 1024 }; /* the ring begins at a multiple of 1024, for the swizzle */

/* TN: the order of tiles, from order_kernel. */
struct expert_order {
    int drawn; /* tiles that blocks have drawn */
    int experts[MOST_EXPERTS];
};
static_assert(sizeof(expert_order) == (1 + GROUPED_EXPERTS) * 4, "scratch_expert_order()");

struct problem {
    grouped_problem g;
    expert_order *order; /* TN */
    int width;           /* of a full tile */
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A position in the ring: the stage, and the parity that its barriers have this time around. */
struct ring_position {
    int stage = 0, phase = 0;
    __device__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* ---- the producer ---- */

__device__ void describe(const problem &p, job *j)
{
    int height = grouped_height(p.g, j->rows) - j->m;
    j->live = height < TILE_M ? height : TILE_M;
    j->blocks = grouped_up(grouped_depth(p.g, j->rows), DEPTH);
}

template <mm_layout LAYOUT>
__device__ void load_stage(const job &j, int k, unsigned char (*to)[BOX], uint64_t *full,
                           const CUtensorMap *a, const CUtensorMap *b)
{
    int halves = j.live > 64 ? 2 : 1;
    hopper_arrive_expecting(full, (halves + j.width / 64) * BOX);
    for (int h = 0; h < halves; h++) {
        if (LAYOUT == MM_TN)
            hopper_load(to[h], a, full, j.m + h * 64, j.row + k, 0);
        else
            hopper_load(to[h], a, full, k, j.row + j.m + h * 64, 0);
    }
    for (int n = 0; n < j.width; n += 64) {
        unsigned char *box = to[A_BOXES + n / 64];
        if (LAYOUT == MM_NT)
            hopper_load(box, b, full, k, j.n + n, j.expert);
        else if (LAYOUT == MM_NN)
            hopper_load(box, b, full, j.n + n, k, j.expert);
        else
            hopper_load(box, b, full, j.n + n, j.row + k, 0);
    }
}

struct producer {
    const problem &p;
    ring *r;
    const CUtensorMap *a, *b;
    ring_position at;

    template <mm_layout LAYOUT> __device__ void load_tile(const job &j)
    {
        for (int k = 0; k < j.blocks; k++, at.next()) {
            hopper_wait(&r->empty[at.stage], at.phase ^ 1);
            if (k == 0)
                r->jobs[at.stage] = j;
            load_stage<LAYOUT>(j, k * DEPTH, r->stage[at.stage], &r->full[at.stage], a, b);
        }
    }

    __device__ void stop()
    {
        hopper_wait(&r->empty[at.stage], at.phase ^ 1);
        r->jobs[at.stage].expert = -1;
        hopper_arrive(&r->full[at.stage]);
    }

    template <mm_layout LAYOUT> __device__ void load_in_rounds();
    __device__ void load_by_drawing();
};

/* How many rows of tiles all experts have. */
__device__ int tiles_down(const grouped_problem &g)
{
    int sum = 0;
    for (int e = 0; e < g.experts; e++)
        sum += grouped_up(g.offsets[e + 1] - g.offsets[e], TILE_M);
    return sum;
}

template <mm_layout LAYOUT> __device__ void producer::load_in_rounds()
{
    const grouped_problem &g = p.g;
    int width = grouped_width(g), across = grouped_up(width, p.width), blocks = gridDim.x;
    int tiles = tiles_down(g) * across, rest = tiles % blocks, whole = tiles - rest;
    int parts = 1;
    while (rest * parts * 2 <= blocks && p.width / parts > 64)
        parts *= 2;
    job j = { .expert = 0, .row = g.offsets[0] };
    j.rows = g.offsets[1] - j.row;
    int before = 0; /* rows of tiles of the experts before this one */
    for (int i = blockIdx.x; i < whole + rest * parts; i += blocks) {
        int tile = i < whole ? i : whole + (i - whole) / parts;
        int part = i < whole ? 0 : (i - whole) % parts, down = tile / across;
        while (down - before >= grouped_up(j.rows, TILE_M)) {
            before += grouped_up(j.rows, TILE_M);
            j.row += j.rows;
            j.expert++;
            j.rows = g.offsets[j.expert + 1] - j.row;
        }
        j.width = i < whole ? p.width : p.width / parts;
        j.m = (down - before) * TILE_M;
        j.n = tile % across * p.width + part * j.width;
        describe(p, &j);
        if (j.n < width)
            load_tile<LAYOUT>(j);
    }
}

__device__ void producer::load_by_drawing()
{
    const grouped_problem &g = p.g;
    int across = grouped_up(g.i, p.width), each = grouped_up(g.o, TILE_M) * across;
    job j = { .width = p.width };
    for (int i = blockIdx.x; i < each * g.experts; i = gridDim.x + atomicAdd(&p.order->drawn, 1)) {
        j.expert = p.order->experts[i / each];
        j.row = g.offsets[j.expert];
        j.rows = g.offsets[j.expert + 1] - j.row;
        j.m = i % each / across * TILE_M;
        j.n = i % across * p.width;
        describe(p, &j);
        load_tile<MM_TN>(j);
    }
}

/* ---- the consumers ---- */

__device__ void consumers_sync()
{
    asm volatile("bar.sync 1, %0;" ::"n"(128 * CONSUMERS) : "memory");
}

/* Zeros rows [from, 64) of the first boxes of a stage: elements of k that belong to other experts.
 */
__device__ void clear_rows(unsigned char (*stage)[BOX], int boxes, int from)
{
    int pieces = (64 - from) * 8;
    for (int i = threadIdx.x; i < boxes * pieces; i += 128 * CONSUMERS)
        ((uint4 *)stage[i / pieces])[from * 8 + i % pieces] = uint4{ 0, 0, 0, 0 };
    hopper_fence_async();
    consumers_sync();
}

/* Stores row h of a thread's sums. Four lanes have a row, two of each eight columns; they transpose
 * until each has eight neighbours (16 bytes). `left`: columns that exist. Streaming stores keep the
 * cache for operands. */
template <int N>
__device__ void store_bf16(const float (&d)[N / 2], __nv_bfloat16 *row, int h, int left,
                           float scale)
{
    int q = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < N / 8; j += 4) {
        uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            v[i] =
                warp_pack_bf16(scale * d[(j + i) * 4 + h * 2], scale * d[(j + i) * 4 + h * 2 + 1]);
        warp_transpose4(v);
        if ((j + q) * 8 < left)
            __stcs((uint4 *)(row + (j + q) * 8), uint4{ v[0], v[1], v[2], v[3] });
    }
}

/* The same for f32: pairs of lanes exchange until each has four neighbours. ADD: to `row`. */
template <int N, bool ADD>
__device__ void store_f32(const float (&d)[N / 2], float *row, int h, int left, float scale)
{
    constexpr int BATCH = N / 16 < 8 ? N / 16 : 8; /* loads in flight */
    bool odd = threadIdx.x % 2;
    int first = (odd ? 8 : 0) + threadIdx.x % 4 / 2 * 4;
#pragma unroll
    for (int j = 0; j < N / 16; j += BATCH) {
        float4 old[BATCH];
#pragma unroll
        for (int i = 0; ADD && i < BATCH; i++)
            if ((j + i) * 16 + first < left)
                old[i] = *(float4 *)(row + (j + i) * 16 + first);
#pragma unroll
        for (int i = 0; i < BATCH; i++) {
            const float *x = &d[(j + i) * 8 + h * 2];
            float gx = __shfl_xor_sync(~0u, odd ? x[0] : x[4], 1);
            float gy = __shfl_xor_sync(~0u, odd ? x[1] : x[5], 1);
            float4 v = odd ? float4{ gx, gy, x[4], x[5] } : float4{ x[0], x[1], gx, gy };
            v = float4{ v.x * scale, v.y * scale, v.z * scale, v.w * scale };
            if (ADD)
                v = float4{ old[i].x + v.x, old[i].y + v.y, old[i].z + v.z, old[i].w + v.w };
            if ((j + i) * 16 + first < left)
                *(float4 *)(row + (j + i) * 16 + first) = v;
        }
    }
}

template <mm_layout LAYOUT, int N>
__device__ void store_tile(const grouped_problem &g, const job &j, const float (&d)[N / 2])
{
    int warp = threadIdx.x / 32, width = grouped_width(g), left = width - j.n;
    int64_t first = LAYOUT == MM_TN ? (int64_t)j.expert * g.o : j.row;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int m = warp * 16 + h * 8 + threadIdx.x % 32 / 4, mine = m < j.live ? left : 0;
        int64_t at = (first + j.m + m) * width + j.n;
        if (LAYOUT == MM_TN && g.add)
            store_f32<N, true>(d, (float *)g.out + at, h, mine, g.scale);
        else if (LAYOUT == MM_TN || g.out_dt == DT_F32)
            store_f32<N, false>(d, (float *)g.out + at, h, mine, g.scale);
        else
            store_bf16<N>(d, (__nv_bfloat16 *)g.out + at, h, mine, g.scale);
    }
}

/* One stage: 64 rows of A, N columns, 64 deep. */
template <mm_layout LAYOUT, bool FIRST, int N>
__device__ void multiply_stage(float (&d)[N], unsigned char (*stage)[BOX], int group)
{
    constexpr int A_T = LAYOUT == MM_TN, B_T = LAYOUT != MM_NT;
    uint64_t a = hopper_operand(stage[group], BOX), b = hopper_operand(stage[A_BOXES], BOX);
    constexpr int A_STEP = (A_T ? 2048 : 32) >> 4, B_STEP = (B_T ? 2048 : 32) >> 4;
    hopper_multiply_begin();
    hopper_multiply<FIRST, A_T, B_T>(d, a, b);
#pragma unroll
    for (int k = 1; k < DEPTH / 16; k++)
        hopper_multiply<false, A_T, B_T>(d, a + k * A_STEP, b + k * B_STEP);
    hopper_multiply_commit();
}

/* A value that is the same in all lanes, so that the compiler knows it: wgmma must not be in a
 * branch that could diverge. */
__device__ int uniform(int x)
{
    return __shfl_sync(~0u, x, 0);
}

/* A warpgroup without rows in the tile only releases the stages. */
template <mm_layout LAYOUT> __device__ void skip_tile(ring *r, ring_position &at, const job &j)
{
    int tail = j.rows % DEPTH;
    for (int k = 0; k < j.blocks; k++, at.next()) {
        hopper_wait(&r->full[at.stage], at.phase);
        if (LAYOUT == MM_TN && tail && k == j.blocks - 1)
            clear_rows(r->stage[at.stage], A_BOXES + j.width / 64, tail);
        __syncwarp(); /* no lane still waits for this stage when it is filled again */
        if (threadIdx.x % 32 == 0)
            hopper_arrive(&r->empty[at.stage]);
    }
}

template <mm_layout LAYOUT, int N>
__device__ void consume_tile(const grouped_problem &g, ring *r, ring_position &at, const job &j)
{
    int tail = j.rows % DEPTH, group = uniform(threadIdx.x / 128);
    bool first_lane = threadIdx.x % 32 == 0;
    auto wait = [&](int k) {
        hopper_wait(&r->full[at.stage], at.phase);
        if (LAYOUT == MM_TN && tail && k == j.blocks - 1)
            clear_rows(r->stage[at.stage], A_BOXES + N / 64, tail);
    };
    float d[N / 2];
    wait(0);
    multiply_stage<LAYOUT, true>(d, r->stage[at.stage], group);
    uint64_t *used = &r->empty[at.stage];
    at.next();
    for (int k = 1; k < j.blocks; k++, at.next()) {
        wait(k);
        multiply_stage<LAYOUT, false>(d, r->stage[at.stage], group);
        hopper_multiply_wait<1>(); /* products of the stage before have read it */
        if (first_lane)
            hopper_arrive(used);
        used = &r->empty[at.stage];
    }
    hopper_multiply_wait<0>();
    if (first_lane)
        hopper_arrive(used);
    store_tile<LAYOUT, N>(g, j, d);
}

template <mm_layout LAYOUT> __device__ void consume(const grouped_problem &g, ring *r)
{
    int group = threadIdx.x / 128;
    for (ring_position at;;) {
        hopper_wait(&r->full[at.stage], at.phase);
        job j = r->jobs[at.stage];
        int width = uniform(j.expert < 0 ? 0 : group * 64 < j.live ? j.width : 1);
        j.blocks = uniform(j.blocks);
        j.rows = uniform(j.rows);
        if (width == 0)
            return;
        if (width == 256)
            consume_tile<LAYOUT, 256>(g, r, at, j);
        else if (width == 128)
            consume_tile<LAYOUT, 128>(g, r, at, j);
        else if (width == 64)
            consume_tile<LAYOUT, 64>(g, r, at, j);
        else
            skip_tile<LAYOUT>(r, at, j);
    }
}

#endif

template <mm_layout LAYOUT>
__global__ void __launch_bounds__(THREADS, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    ring *r = (ring *)(((uintptr_t)shared + 1023) & ~(uintptr_t)1023);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&r->full[i], 1);
            hopper_barrier_init(&r->empty[i], CONSUMERS * 4);
        }
        hopper_barrier_publish();
    }
    __syncthreads();
    if (threadIdx.x < 128 * CONSUMERS) {
        hopper_registers_acquire<224>();
        consume<LAYOUT>(p.g, r);
    } else {
        hopper_registers_release<56>();
        if (threadIdx.x == 128 * CONSUMERS) {
            producer f = { p, r, &a, &b };
            if (LAYOUT == MM_TN)
                f.load_by_drawing();
            else
                f.load_in_rounds<LAYOUT>();
            f.stop();
        }
    }
#endif
}

/* Sorts experts by rows, most first, ties by number: a thread for each expert counts those before
 * it. */
__global__ void order_kernel(const grouped_problem g, expert_order *p)
{
    __shared__ int rows[MOST_EXPERTS];
    int e = threadIdx.x, before = 0;
    if (e < g.experts)
        rows[e] = g.offsets[e + 1] - g.offsets[e];
    __syncthreads();
    for (int other = 0; other < g.experts && e < g.experts; other++)
        before += rows[other] > rows[e] || (rows[other] == rows[e] && other < e);
    if (e < g.experts)
        p->experts[before] = e;
    if (e == 0)
        p->drawn = 0;
}

template <mm_layout LAYOUT>
cudaError_t launch(cuda_device *d, const problem &p, const CUtensorMap &a, const CUtensorMap &b)
{
    cudaError_t e = cudaFuncSetAttribute(wgmma_kernel<LAYOUT>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (e != cudaSuccess)
        return e;
    wgmma_kernel<LAYOUT><<<d->n_sm, THREADS, SHARED, d->stream>>>(a, b, p);
    return cudaPeekAtLastError();
}

/* The widest tile that is not half empty; for TN also one that gives every multiprocessor work. */
int tile_width(const cuda_device *d, const grouped_problem &g)
{
    int width = TILE_N;
    while (width > 64 && width / 2 >= grouped_width(g))
        width /= 2;
    while (g.layout == MM_TN && width > 64 && grouped_tiles(g, TILE_M, width) * 2 <= d->n_sm)
        width /= 2;
    return width;
}

} // namespace

bool grouped_wgmma_fits(const grouped_problem &g)
{
    return grouped_aligned(g) && g.experts <= MOST_EXPERTS;
}

void grouped_wgmma_launch(cuda_device *d, const grouped_problem &g)
{
    bool tn = g.layout == MM_TN;
    problem p = { g, NULL, tile_width(d, g) };
    CUtensorMap a, b;
    cudaError_t e = hopper_map(&a, g.a, 1, g.rows, g.layout == MM_NT ? g.i : g.o);
    if (e == cudaSuccess)
        e = tn ? hopper_map(&b, g.b, 1, g.rows, g.i) : hopper_map(&b, g.b, g.experts, g.o, g.i);
    if (e == cudaSuccess && tn) {
        p.order = (expert_order *)cuda_scratch(d, "grouped_matmul", scratch_expert_order());
        if (!p.order)
            return;
        order_kernel<<<1, grouped_up(g.experts, 32) * 32, 0, d->stream>>>(g, p.order);
    }
    if (e == cudaSuccess)
        e = tn                  ? launch<MM_TN>(d, p, a, b)
            : g.layout == MM_NT ? launch<MM_NT>(d, p, a, b)
                                : launch<MM_NN>(d, p, a, b);
    if (e != cudaSuccess)
        cuda_fail(d, e, "grouped_matmul");
}
