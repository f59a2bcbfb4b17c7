/* product: large products of bf16 on Hopper (sm_90a), as fast as cuBLASLt's, in one pass over `out`
 * however many terms they are the sum of: a base and its LoRA, or the gradients that meet in one x.
 *
 * Blocks of threads stay on the multiprocessors and walk through tiles of 128x256. A thread is the
 * producer: TMA copies operands, 64 deep, into a ring of stages in shared memory. Two warpgroups
 * are consumers: each multiplies 64 of the rows with wgmma. All terms are one long sum to them,
 * only the producer sees where one ends. A tile leaves through shared memory, by TMA, while the
 * next one is multiplied: rounded, it waits in registers.
 *
 * Two blocks make a cluster, one tile above the other. They need the same columns of B: each loads
 * half of them for both, so a stage is free when the consumers of both blocks have used it. */
#include "backend/cuda/hopper.cuh"
#include "backend/cuda/product.cuh"

#include <cuda_bf16.h>

namespace
{

enum {
    TILE_M = 128,
    TILE_N = 256,
    DEPTH = 64,
    CLUSTER = 2,
    SHARE = TILE_N / CLUSTER, /* columns of B that a block loads */
    ROW = DEPTH * 2,          /* bytes */
    BOX = 64 * ROW,
    A_BYTES = TILE_M * ROW,
    STAGE_BYTES = A_BYTES + TILE_N * ROW,
    STAGES = 4,
    PARTS = TILE_N / 64,
    CONSUMERS = 2,
    THREADS = 128 * (1 + CONSUMERS),
    TOGETHER = 8 /* rows of tiles that are walked through together: what they load stays in L2 */
};

struct ring {
    unsigned char stage[STAGES][STAGE_BYTES];
    unsigned char out[CONSUMERS][2][BOX]; /* sums on their way out */
    uint64_t full[STAGES], empty[STAGES];
};
enum { SHARED = sizeof(ring) + 1024 }; /* stages begin at multiples of 1024 */

struct plan {
    CUtensorMap a[PRODUCT_TERMS], b[PRODUCT_TERMS], out;
    int blocks[PRODUCT_TERMS]; /* of DEPTH */
    int n_terms, all_blocks;
    int down, across; /* tiles of a cluster */
    bool accumulate;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/* A place in the ring, and the parity of the lap. */
struct turn {
    int stage = 0, phase = 0;
    __device__ void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

struct place {
    int row, col; /* the first of this block's tile */
};

/* Tile number i of a cluster. */
__device__ place place_of(const plan &p, int i, int rank)
{
    int whole = TOGETHER * p.across, first = i / whole * TOGETHER, rest = i % whole;
    int rows = p.down - first < TOGETHER ? p.down - first : TOGETHER;
    return { ((first + rest % rows) * CLUSTER + rank) * TILE_M, rest / rows * TILE_N };
}

template <mm_layout LAYOUT>
__device__ void load_stage(const plan &p, int term, int k, place at, int rank, unsigned char *stage,
                           uint64_t *full)
{
    constexpr uint16_t ALL = (1 << CLUSTER) - 1;
    unsigned char *b = stage + A_BYTES + rank * SHARE * ROW;
    int col = at.col + rank * SHARE;
    hopper_arrive_expecting(full, STAGE_BYTES);
    hopper_load(stage, &p.a[term], full, k, at.row, 0);
    if (LAYOUT == MM_NT)
        hopper_load_shared(b, &p.b[term], full, k, col, ALL);
    else
        for (int i = 0; i < SHARE / 64; i++)
            hopper_load_shared(b + i * BOX, &p.b[term], full, col + i * 64, k, ALL);
}

template <mm_layout LAYOUT> __device__ void produce(const plan &p, ring *r)
{
    int rank = hopper_cluster_rank();
    turn at;
    for (int i = blockIdx.x / CLUSTER; i < p.down * p.across; i += gridDim.x / CLUSTER) {
        place tile = place_of(p, i, rank);
        for (int t = 0; t < p.n_terms; t++)
            for (int k = 0; k < p.blocks[t]; k++, at.next()) {
                hopper_wait(&r->empty[at.stage], at.phase ^ 1);
                load_stage<LAYOUT>(p, t, k * DEPTH, tile, rank, r->stage[at.stage],
                                   &r->full[at.stage]);
            }
    }
}

__device__ uint32_t pack(float x, float y)
{
    __nv_bfloat162 two = __floats2bfloat162_rn(x, y);
    return *(uint32_t *)&two;
}

__device__ void group_meets(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

/* A warpgroup's finished tile, rounded, on its way out 64 columns at a time: two boxes take turns.
 */
struct result {
    uint32_t x[64];
    place at;
    int left = 0; /* columns still here, in 64s */

    __device__ void take(const float (&d)[128], place tile)
    {
#pragma unroll
        for (int i = 0; i < 64; i++)
            x[i] = pack(d[2 * i], d[2 * i + 1]);
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
        group_meets(group);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t *v = &x[PART * 16 + j * 4];
            int piece = 2 * j + lane / 16;
            hopper_store_matrices(box + line * ROW + ((piece ^ line % 8) << 4), v[0], v[1], v[2],
                                  v[3]);
        }
        hopper_fence_async();
        group_meets(group);
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

/* To both blocks: either may fill this stage. */
__device__ void release(uint64_t *empty)
{
    if (threadIdx.x % 128 < CLUSTER)
        hopper_arrive_at(empty, threadIdx.x % 128);
}

/* One consumer: a warpgroup, and where it is. */
template <mm_layout LAYOUT> struct consumer {
    const plan &p;
    ring *r;
    int group;
    turn at;
    uint64_t *used; /* the stage before */

    template <bool FIRST> __device__ void multiply(float (&d)[128])
    {
        hopper_wait(&r->full[at.stage], at.phase);
        multiply_stage<LAYOUT, FIRST>(d, r->stage[at.stage], group);
        if (!FIRST) {
            hopper_multiply_wait<1>(); /* the stage before is used up */
            release(used);
        }
        used = &r->empty[at.stage];
        at.next();
    }

    /* A tile; the one before leaves meanwhile. */
    __device__ void multiply_tile(float (&d)[128], result &before)
    {
        int k = 1;
        multiply<true>(d);
        if (p.all_blocks > PARTS) {
            multiply<false>(d);
            before.store<0>(p, r, group);
            multiply<false>(d);
            before.store<1>(p, r, group);
            multiply<false>(d);
            before.store<2>(p, r, group);
            multiply<false>(d);
            before.store<3>(p, r, group);
            k += PARTS;
        }
        for (; k < p.all_blocks; k++)
            multiply<false>(d);
        hopper_multiply_wait<0>();
        release(used);
    }
};

template <mm_layout LAYOUT> __device__ void consume(const plan &p, ring *r)
{
    int rank = hopper_cluster_rank();
    int group = __shfl_sync(~0u, threadIdx.x / 128, 0); /* the compiler must know: it is uniform */
    consumer<LAYOUT> c = { p, r, group };
    result done;
    for (int i = blockIdx.x / CLUSTER; i < p.down * p.across; i += gridDim.x / CLUSTER) {
        float d[128];
        c.multiply_tile(d, done);
        done.store_rest(p, r, group);
        done.take(d, place_of(p, i, rank));
    }
    done.store_rest(p, r, group);
    if (threadIdx.x % 128 == 0)
        hopper_store_wait<0>();
}

#endif

template <mm_layout LAYOUT>
__global__ void __launch_bounds__(THREADS, 1) product_kernel(const __grid_constant__ plan p)
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
    hopper_cluster_meet();
    if (threadIdx.x < 128 * CONSUMERS) {
        hopper_registers_take<240>();
        consume<LAYOUT>(p, r);
    } else {
        hopper_registers_drop<24>();
        if (threadIdx.x == 128 * CONSUMERS)
            produce<LAYOUT>(p, r);
    }
    hopper_cluster_meet(); /* nobody leaves while the other block writes here */
#endif
}

template <mm_layout LAYOUT> cudaError_t launch(cuda_device *d, const plan &p)
{
    cudaError_t e = cudaFuncSetAttribute(product_kernel<LAYOUT>,
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
    return cudaLaunchKernelEx(&c, product_kernel<LAYOUT>, p);
}

int divide_up(int64_t a, int b)
{
    return (int)((a + b - 1) / b);
}

cudaError_t map_term(plan *p, int i, const product_problem &q)
{
    const product_term &t = q.term[i];
    hopper_matrix a = { t.a, 1, q.m, t.k, t.a_ld, TILE_M }, b = { t.b, 1, q.n, t.k, t.b_ld, SHARE };
    if (q.layout == MM_NN)
        b = { t.b, 1, t.k, q.n, t.b_ld, DEPTH };
    p->blocks[i] = divide_up(t.k, DEPTH);
    p->all_blocks += p->blocks[i];
    cudaError_t e = hopper_map_of(&p->a[i], a);
    return e == cudaSuccess ? hopper_map_of(&p->b[i], b) : e;
}

} // namespace

void product_wgmma(cuda_device *d, const product_problem &q)
{
    plan p;
    p.n_terms = q.n_terms;
    p.all_blocks = 0;
    p.down = divide_up(q.m, TILE_M * CLUSTER);
    p.across = divide_up(q.n, TILE_N);
    p.accumulate = q.accumulate;
    cudaError_t e = hopper_map_of(&p.out, { q.out, 1, q.m, q.n, q.ld, 64 });
    for (int i = 0; i < q.n_terms && e == cudaSuccess; i++)
        e = map_term(&p, i, q);
    if (e == cudaSuccess)
        e = q.layout == MM_NT ? launch<MM_NT>(d, p) : launch<MM_NN>(d, p);
    if (e != cudaSuccess)
        cuda_fail(d, e, "matmul");
}

/* ---- the op ---- */

static int64_t ld_of(const tensor *t, int64_t ld)
{
    return ld ? ld : tensor_cols(t);
}

static bool aligned(const tensor *t, int64_t ld)
{
    return (uintptr_t)t->data % 16 == 0 && tensor_cols(t) % 8 == 0 && ld % 8 == 0;
}

static bool fits(const mm_pair *p)
{
    return p->a.dt == DT_BF16 && (p->b.dt == DT_BF16 || p->b.dt == DT_NF4) &&
           aligned(&p->a, p->a_ld) && aligned(&p->b, p->b_ld);
}

/* Tiles are large: whether they keep the chip busy. */
static bool worth(const cuda_device *d, const tensor *out)
{
    int64_t tiles =
        (int64_t)divide_up(tensor_rows(out), TILE_M) * divide_up(tensor_cols(out), TILE_N);
    return tiles * 10 >= 8 * ((tiles + d->n_sm - 1) / d->n_sm * d->n_sm);
}

static size_t unpacked_bytes(const mm_pair *p)
{
    return p->b.dt == DT_NF4 ? scratch_converted(tensor_count(&p->b), DT_BF16) : 0;
}

extern "C" bool cuda_product(cuda_device *d, const mm *a)
{
    mm_pair pairs[PRODUCT_TERMS];
    size_t bytes = 0;
    if (d->cc != 90 || (a->layout != MM_NT && a->layout != MM_NN) || a->n_more >= PRODUCT_TERMS ||
        a->out.dt != DT_BF16 || a->bias.data || a->scale != 1 || !aligned(&a->out, a->out_ld) ||
        !worth(d, &a->out))
        return false;
    for (int i = 0; i <= a->n_more; i++) {
        pairs[i] = i < a->n_more ? a->more[i] : mm_pair{ a->a, a->b, a->a_ld, a->b_ld };
        if (!fits(&pairs[i]))
            return false;
        bytes += unpacked_bytes(&pairs[i]);
    }
    unsigned char *at = (unsigned char *)cuda_scratch(d, "matmul", bytes);
    if (bytes && !at)
        return true; /* kept as a failure */
    product_problem p = { a->layout, a->out.data, tensor_rows(&a->out), tensor_cols(&a->out) };
    p.ld = ld_of(&a->out, a->out_ld);
    p.accumulate = a->accumulate;
    p.n_terms = a->n_more + 1;
    for (int i = 0; i < p.n_terms; i++) {
        const mm_pair *x = &pairs[i];
        p.term[i] = { x->a.data, x->b.data, tensor_cols(&x->a), ld_of(&x->a, x->a_ld),
                      ld_of(&x->b, x->b_ld) };
        if (x->b.dt == DT_NF4) {
            cuda_nf4_unpack(d, at, DT_BF16, &x->b);
            p.term[i].b = at;
            at += unpacked_bytes(x);
        }
    }
    product_wgmma(d, p);
    return true;
}
