/* gemm_wgmma: large products of bf16 on Hopper (sm_90a), each the sum of several terms in one pass
 * over `out`: a base weight and its LoRA, or the gradients of all linears that read the same x.
 *
 * Bound: the tensor cores.
 *
 * Tiles of 128x256, 64 elements of k at a time. Persistent blocks, one on each multiprocessor, take
 * tiles in a grid-stride loop, eight rows of tiles together, so that what they load stays in L2.
 *
 * Who does what (warp specialisation): one thread of the third warpgroup is the producer; TMA
 * copies operands into a ring of four stages in shared memory. Two warpgroups are consumers, each
 * multiplies 64 of the tile's rows with wgmma. The terms of a sum are one long k to the consumers;
 * only the producer knows where one ends.
 *
 * A sum may begin with terms of fp8 (gemm_fp8.cu). A row of a stage is 128 bytes whatever its type,
 * so their stages differ in the coordinates that the producer loads and in the instruction that
 * multiplies them. The consumers apply the scales of fp8 to their sums before the first term of
 * bf16 is added.
 *
 * Epilogue: a finished tile, rounded to bf16, stays in registers and is stored through shared
 * memory by TMA, 64 columns at a time, between the first products of the next tile.
 *
 * Clusters of two blocks have tiles one above the other, which need the same columns of B: each
 * block loads half of them for both (multicast), so a stage is empty when the consumers of both
 * blocks have released it. */
#include "backend/cuda/gemm_wgmma.cuh"
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/warp.cuh"

#include <cuda_bf16.h>

namespace
{

enum {
    TILE_M = 128,
    TILE_N = 256,
    DEPTH = 64,
    CLUSTER = 2,
    SHARE = TILE_N / CLUSTER, /* columns of B that a block loads for the cluster */
    ROW = DEPTH * 2,          /* bytes of a row of a stage: one swizzle span; of k in fp8 */
    BOX = 64 * ROW,
    A_BYTES = TILE_M * ROW,
    STAGE_BYTES = A_BYTES + TILE_N * ROW,
    STAGES = 4,
    PARTS = TILE_N / 64,
    CONSUMERS = 2,
    THREADS = 128 * (1 + CONSUMERS),
    TOGETHER = 8 /* rows of tiles that are taken together */
};

struct ring {
    unsigned char stage[STAGES][STAGE_BYTES];
    unsigned char out[CONSUMERS][2][BOX]; /* double buffer of the epilogue */
    uint64_t full[STAGES], empty[STAGES];
};
enum { SHARED = sizeof(ring) + 1024 }; /* the ring begins at a multiple of 1024, for the swizzle */

struct plan {
    CUtensorMap a[MATMUL_TERMS], b[MATMUL_TERMS], out;
    int blocks[MATMUL_TERMS]; /* stages of each term */
    int n_terms, all_blocks;
    int down, across; /* cluster tiles (256x256) in both directions */
    bool accumulate;
    int n_fp8, fp8_blocks, last_row;
    const float *row_scale, *weight_scale;
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

struct tile_origin {
    int row, col; /* of this block's tile */
};

/* Tile number i of a cluster. */
__device__ tile_origin origin_of(const plan &p, int i, int rank)
{
    int whole = TOGETHER * p.across, first = i / whole * TOGETHER, rest = i % whole;
    int rows = p.down - first < TOGETHER ? p.down - first : TOGETHER;
    return { ((first + rest % rows) * CLUSTER + rank) * TILE_M, rest / rows * TILE_N };
}

/* Stage number `block` of a term. */
template <mm_layout LAYOUT, bool FP8>
__device__ void load_stage(const plan &p, int term, int block, tile_origin at, int rank,
                           unsigned char *stage, uint64_t *full)
{
    constexpr uint16_t ALL = (1 << CLUSTER) - 1;
    unsigned char *b = stage + A_BYTES + rank * SHARE * ROW;
    bool fp8 = FP8 && term < p.n_fp8;
    int k = block * (fp8 ? ROW : DEPTH), col = at.col + rank * SHARE;
    hopper_arrive_expecting(full, STAGE_BYTES);
    hopper_load(stage, &p.a[term], full, k, at.row, 0);
    if (LAYOUT == MM_NT || fp8)
        hopper_load_multicast(b, &p.b[term], full, k, col, ALL);
    else
        for (int i = 0; i < SHARE / 64; i++)
            hopper_load_multicast(b + i * BOX, &p.b[term], full, col + i * 64, k, ALL);
}

template <mm_layout LAYOUT, bool FP8> __device__ void produce(const plan &p, ring *r)
{
    int rank = hopper_cluster_rank();
    ring_position at;
    for (int i = blockIdx.x / CLUSTER; i < p.down * p.across; i += gridDim.x / CLUSTER) {
        tile_origin tile = origin_of(p, i, rank);
        for (int t = 0; t < p.n_terms; t++)
            for (int k = 0; k < p.blocks[t]; k++, at.next()) {
                hopper_wait(&r->empty[at.stage], at.phase ^ 1);
                load_stage<LAYOUT, FP8>(p, t, k, tile, rank, r->stage[at.stage],
                                        &r->full[at.stage]);
            }
    }
}

/* The 128 threads of a warpgroup. */
__device__ void group_sync(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

/* The epilogue: a warpgroup's finished tile, rounded, which is stored 64 columns at a time through
 * two alternating buffers. */
struct pending_tile {
    uint32_t x[64];
    tile_origin at;
    int left = 0; /* parts of 64 columns that are not stored yet */

    __device__ void round_from(const float (&d)[128], tile_origin tile)
    {
#pragma unroll
        for (int i = 0; i < 64; i++)
            x[i] = warp_pack_bf16(d[2 * i], d[2 * i + 1]);
        at = tile;
        left = PARTS;
    }

    template <int PART> __device__ void store(const plan &p, ring *r, int group)
    {
        if (left != PARTS - PART)
            return;
        int lane = threadIdx.x % 32, line = threadIdx.x % 128 / 32 * 16 + lane % 16;
        bool leader = threadIdx.x % 128 == 0;
        unsigned char *box = r->out[group][PART % 2];
        if (leader)
            hopper_store_wait<1>();
        group_sync(group);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t *v = &x[PART * 16 + j * 4];
            int piece = 2 * j + lane / 16;
            hopper_store_matrices(box + line * ROW + ((piece ^ line % 8) << 4), v[0], v[1], v[2],
                                  v[3]);
        }
        hopper_fence_async();
        group_sync(group);
        if (leader) {
            if (p.accumulate)
                hopper_store_add(&p.out, box, at.col + PART * 64, at.row + group * 64);
            else
                hopper_store(&p.out, box, at.col + PART * 64, at.row + group * 64);
            hopper_store_commit();
        }
        left--;
    }

    __device__ void store_rest(const plan &p, ring *r, int group)
    {
        store<0>(p, r, group);
        store<1>(p, r, group);
        store<2>(p, r, group);
        store<3>(p, r, group);
    }
};

template <mm_layout LAYOUT, bool FIRST>
__device__ void multiply_stage(float (&d)[128], unsigned char *stage, int group)
{
    constexpr int B_T = LAYOUT != MM_NT, A_STEP = 32 >> 4, B_STEP = (B_T ? 2048 : 32) >> 4;
    uint64_t a = hopper_operand(stage + group * BOX, BOX);
    uint64_t b = hopper_operand(stage + A_BYTES, BOX);
    hopper_multiply_begin();
    hopper_multiply<FIRST, 0, B_T>(d, a, b);
#pragma unroll
    for (int k = 1; k < DEPTH / 16; k++)
        hopper_multiply<false, 0, B_T>(d, a + k * A_STEP, b + k * B_STEP);
    hopper_multiply_commit();
}

template <bool FIRST>
__device__ void multiply_stage_fp8(float (&d)[128], unsigned char *stage, int group)
{
    uint64_t a = hopper_operand(stage + group * BOX, BOX);
    uint64_t b = hopper_operand(stage + A_BYTES, BOX);
    hopper_multiply_begin();
    hopper_multiply_fp8<FIRST>(d, a, b);
#pragma unroll
    for (int k = 1; k < ROW / 32; k++)
        hopper_multiply_fp8<false>(d, a + k * (32 >> 4), b + k * (32 >> 4));
    hopper_multiply_commit();
}

/* Multiplies the sums of fp8 by their scales. A thread has two rows, eight apart: pairs of columns
 * of the one and of the other in turn. */
__device__ void apply_scales(float (&d)[128], const plan &p, int row)
{
    float weight = *p.weight_scale, scale[2];
    row += threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
    for (int i = 0; i < 2; i++)
        scale[i] = p.row_scale[min(row + 8 * i, p.last_row)] * weight;
#pragma unroll
    for (int i = 0; i < 128; i++)
        d[i] *= scale[i / 2 % 2];
}

/* In both blocks, because the producers of both fill this stage. */
__device__ void release(uint64_t *empty)
{
    if (threadIdx.x % 128 < CLUSTER)
        hopper_arrive_at(empty, threadIdx.x % 128);
}

/* One consumer warpgroup and its position in the ring. */
template <mm_layout LAYOUT, bool FP8> struct consumer {
    const plan &p;
    ring *r;
    int group;
    ring_position at;
    uint64_t *used; /* `empty` barrier of the stage before */

    template <bool FIRST, bool STAGE_FP8 = FP8> __device__ void multiply_next(float (&d)[128])
    {
        hopper_wait(&r->full[at.stage], at.phase);
        if constexpr (STAGE_FP8)
            multiply_stage_fp8<FIRST>(d, r->stage[at.stage], group);
        else
            multiply_stage<LAYOUT, FIRST>(d, r->stage[at.stage], group);
        if (!FIRST) {
            hopper_multiply_wait<1>(); /* products of the stage before have read it */
            release(used);
        }
        used = &r->empty[at.stage];
        at.next();
    }

    /* Multiplies a tile; the one before is stored between its first products. */
    __device__ void multiply_tile(float (&d)[128], pending_tile &before, tile_origin tile)
    {
        int k = 1, alike = FP8 ? p.fp8_blocks : p.all_blocks;
        multiply_next<true>(d);
        if (alike > PARTS) {
            multiply_next<false>(d);
            before.store<0>(p, r, group);
            multiply_next<false>(d);
            before.store<1>(p, r, group);
            multiply_next<false>(d);
            before.store<2>(p, r, group);
            multiply_next<false>(d);
            before.store<3>(p, r, group);
            k += PARTS;
        }
        for (; k < alike; k++)
            multiply_next<false>(d);
        if constexpr (FP8) {
            hopper_multiply_wait<0>();
            apply_scales(d, p, tile.row + group * 64);
            for (; k < p.all_blocks; k++)
                multiply_next<false, false>(d);
        }
        hopper_multiply_wait<0>();
        release(used);
    }
};

template <mm_layout LAYOUT, bool FP8> __device__ void consume(const plan &p, ring *r)
{
    int rank = hopper_cluster_rank();
    int group =
        __shfl_sync(~0u, threadIdx.x / 128, 0); /* so that the compiler knows it is uniform */
    consumer<LAYOUT, FP8> c = { p, r, group };
    pending_tile done;
    for (int i = blockIdx.x / CLUSTER; i < p.down * p.across; i += gridDim.x / CLUSTER) {
        float d[128];
        tile_origin tile = origin_of(p, i, rank);
        c.multiply_tile(d, done, tile);
        done.store_rest(p, r, group);
        done.round_from(d, tile);
    }
    done.store_rest(p, r, group);
    if (threadIdx.x % 128 == 0)
        hopper_store_wait<0>();
}

#endif

template <mm_layout LAYOUT, bool FP8>
__global__ void __launch_bounds__(THREADS, 1) gemm_kernel(const __grid_constant__ plan p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ unsigned char shared[];
    ring *r = (ring *)(((uintptr_t)shared + 1023) & ~(uintptr_t)1023);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&r->full[i], 1);
            hopper_barrier_init(&r->empty[i], CONSUMERS * CLUSTER);
        }
        hopper_barrier_publish();
    }
    hopper_cluster_sync();
    if (threadIdx.x < 128 * CONSUMERS) {
        hopper_registers_acquire<240>();
        consume<LAYOUT, FP8>(p, r);
    } else {
        hopper_registers_release<24>();
        if (threadIdx.x == 128 * CONSUMERS)
            produce<LAYOUT, FP8>(p, r);
    }
    hopper_cluster_sync(); /* no block exits while the other writes to its shared memory */
#endif
}

template <mm_layout LAYOUT, bool FP8> cudaError_t launch(cuda_device *d, const plan &p)
{
    cudaError_t e = cudaFuncSetAttribute(gemm_kernel<LAYOUT, FP8>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (e != cudaSuccess)
        return e;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = dim3((unsigned)(d->n_sm / CLUSTER * CLUSTER));
    c.blockDim = dim3(THREADS);
    c.dynamicSmemBytes = SHARED;
    c.stream = d->stream;
    c.attrs = &cluster;
    c.numAttrs = 1;
    return cudaLaunchKernelEx(&c, gemm_kernel<LAYOUT, FP8>, p);
}

int divide_up(int64_t a, int b)
{
    return (int)((a + b - 1) / b);
}

cudaError_t map_term(plan *p, int i, const gemm_problem &q)
{
    const gemm_term &t = q.term[i];
    bool fp8 = i < q.n_fp8;
    hopper_matrix a = { t.a, 1, q.m, t.k, t.a_ld, TILE_M }, b = { t.b, 1, q.n, t.k, t.b_ld, SHARE };
    if (q.layout == MM_NN && !fp8)
        b = { t.b, 1, t.k, q.n, t.b_ld, DEPTH };
    a.bytes = b.bytes = fp8;
    p->blocks[i] = divide_up(t.k, fp8 ? ROW : DEPTH);
    p->all_blocks += p->blocks[i];
    p->fp8_blocks += fp8 ? p->blocks[i] : 0;
    cudaError_t e = hopper_map_of(&p->a[i], a);
    return e == cudaSuccess ? hopper_map_of(&p->b[i], b) : e;
}

} // namespace

void gemm_wgmma(cuda_device *d, const gemm_problem &q)
{
    plan p;
    p.n_terms = q.n_terms;
    p.all_blocks = 0;
    p.down = divide_up(q.m, TILE_M * CLUSTER);
    p.across = divide_up(q.n, TILE_N);
    p.accumulate = q.accumulate;
    p.n_fp8 = q.n_fp8;
    p.fp8_blocks = 0;
    p.last_row = (int)q.m - 1;
    p.row_scale = q.row_scale;
    p.weight_scale = q.weight_scale;
    cudaError_t e = hopper_map_of(&p.out, { q.out, 1, q.m, q.n, q.ld, 64 });
    for (int i = 0; i < q.n_terms && e == cudaSuccess; i++)
        e = map_term(&p, i, q);
    if (e == cudaSuccess && q.n_fp8)
        e = launch<MM_NN, true>(d, p);
    else if (e == cudaSuccess)
        e = q.layout == MM_NT ? launch<MM_NT, false>(d, p) : launch<MM_NN, false>(d, p);
    if (e != cudaSuccess)
        cuda_fail(d, e, "matmul");
}

/* ---- the row of the table ---- */

static int64_t ld_of(const tensor *t, int64_t ld)
{
    return ld ? ld : tensor_cols(t);
}

bool gemm_aligned(const tensor *t, int64_t ld)
{
    return (uintptr_t)t->data % 16 == 0 && tensor_cols(t) % 8 == 0 && ld % 8 == 0;
}

mm_pair gemm_term_of(const mm *a, int i)
{
    return i < a->n_more ? a->more[i] : mm_pair{ a->a, a->b, a->a_ld, a->b_ld };
}

bool gemm_term_fits(const mm_pair &p)
{
    return p.a.dt == DT_BF16 && (p.b.dt == DT_BF16 || p.b.dt == DT_NF4) &&
           gemm_aligned(&p.a, p.a_ld) && gemm_aligned(&p.b, p.b_ld);
}

/* Tiles are large: whether at least 80 % of the multiprocessors have one in every round. */
static bool fills_gpu(const cuda_device *d, const tensor *out)
{
    int64_t tiles =
        (int64_t)divide_up(tensor_rows(out), TILE_M) * divide_up(tensor_cols(out), TILE_N);
    return tiles * 10 >= 8 * ((tiles + d->n_sm - 1) / d->n_sm * d->n_sm);
}

bool gemm_wgmma_fits(const cuda_device *d, const mm *a)
{
    bool fits = a->n_more < MATMUL_TERMS && !a->bias.data && a->scale == 1 &&
                gemm_aligned(&a->out, a->out_ld) && fills_gpu(d, &a->out);
    for (int i = 0; fits && i <= a->n_more; i++)
        fits = gemm_term_fits(gemm_term_of(a, i));
    return fits;
}

static size_t decoded_bytes(const tensor *b)
{
    return b->dt == DT_NF4 ? scratch_converted(tensor_count(b), DT_BF16) : 0;
}

/* NF4 terms are decoded to scratch first. */
void gemm_wgmma_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    size_t bytes = 0;
    for (int i = 0; i <= a->n_more; i++)
        bytes += decoded_bytes(i < a->n_more ? &a->more[i].b : &a->b);
    unsigned char *at = (unsigned char *)cuda_scratch(d, "matmul", bytes);
    if (bytes && !at)
        return;
    gemm_problem p = { a->layout, a->out.data, tensor_rows(&a->out), tensor_cols(&a->out) };
    p.ld = ld_of(&a->out, a->out_ld);
    p.accumulate = a->accumulate;
    p.n_terms = a->n_more + 1;
    for (int i = 0; i < p.n_terms; i++) {
        mm_pair x = gemm_term_of(a, i);
        p.term[i] = { x.a.data, x.b.data, tensor_cols(&x.a), ld_of(&x.a, x.a_ld),
                      ld_of(&x.b, x.b_ld) };
        if (x.b.dt == DT_NF4) {
            nf4_decode(d, at, DT_BF16, &x.b);
            p.term[i].b = at;
            at += decoded_bytes(&x.b);
        }
    }
    gemm_wgmma(d, p);
}
