/* nf4_experts: the op experts_fwd for a few tokens on Hopper: full experts in NF4, in two launches
 * (stream.cuh).
 *
 *   glu   mid = act(gate h) (up h). A tile of `gate` is followed by the same tile of `up`, so a
 *         thread that finishes both sums has both numbers. Rows of h are found through `order`.
 *   sum   x += sum over a token's experts of its gates times down mid. A block has all experts of
 *         16 columns of x, one after another, so it adds up their results itself: in the order of
 *         experts, in f32, in shared memory.
 *
 * Bound: reading the weights of the chosen experts.
 *
 * The list: which experts have rows is known on the device alone. The warp that copies makes a list
 * of them from the offsets, and all tiles are counted through it. A run is up to 8 rows of an
 * expert, as many as a tile multiplies at once. An expert without rows costs nothing. Where one has
 * several runs, they are neighbours in the order of tiles, so the same weights come from the L2
 * cache. */
#include "backend/cuda/stream.cuh"
#include "backend/cuda/vmath.cuh"

extern "C" {
#include "backend/experts.h"
}

namespace
{

enum { MOST_ROWS = 512, MOST_TOKENS = 64 };

/* A stack [E, n, k] of NF4 matrices. */
struct stack {
    const unsigned char *data;
    int64_t span, codes; /* bytes of a matrix, and of its codes */
    int n;
};

struct problem {
    stream_shape shape;   /* of the rows of w */
    stack w[2];           /* gate and up, or down */
    const stream_bf16 *a; /* h [tokens,k] or mid [rows,k] */
    const int *order, *offsets;
    const float *gates;
    stream_bf16 *mid;             /* of glu: the result, [rows,n] */
    float *x;                     /* of sum: the result, [tokens,n] */
    int experts, tokens, choices; /* choices: of a token */
    act_kind act;
};

/* An expert with rows: the first of them and how many; before it are `runs` runs. */
struct entry {
    short expert, first, rows, runs;
};

/* In shared memory, after the ring. */
struct room {
    stream_barriers bar;
    int runs; /* of all experts */
    entry entries[MOST_ROWS];
    short entry_of[MOST_ROWS];      /* of each run */
    float gates[MOST_ROWS];         /* of the sorted rows */
    unsigned char token[MOST_ROWS]; /* the same */
    float sums[MOST_TOKENS * STREAM_TILE];
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

__device__ __forceinline__ int runs_of(const entry &e)
{
    return (e.rows + STREAM_TOKENS - 1) / STREAM_TOKENS;
}

/* The sum of v over the lanes before this one, and over all. */
__device__ __forceinline__ int sum_before(int v, int *all)
{
    int lane = threadIdx.x % 32, sum = v;
    for (int by = 1; by < 32; by *= 2) {
        int lower = __shfl_up_sync(~0u, sum, by);
        sum += lane >= by ? lower : 0;
    }
    *all = __shfl_sync(~0u, sum, 31);
    return sum - v;
}

/* By one warp. Offsets are loaded many at a time, because each load takes as long as all. */
__device__ __forceinline__ void make_list(const problem &p, room &list)
{
    enum { AHEAD = 4 };
    int entries = 0, runs = 0, more, lane = threadIdx.x % 32;
    for (int from = 0; from < p.experts; from += AHEAD * 32) {
        int first[AHEAD], end[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int e = min(from + i * 32 + lane, p.experts);
            first[i] = p.offsets[e];
            end[i] = p.offsets[min(e + 1, p.experts)];
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            entry own = { (short)(from + i * 32 + lane), (short)first[i],
                          (short)(end[i] - first[i]), 0 };
            int many = runs_of(own), at = entries + sum_before(own.rows > 0, &more);
            entries += more;
            own.runs = (short)(runs + sum_before(many, &more));
            runs += more;
            if (own.rows > 0)
                list.entries[at] = own;
            for (int j = 0; j < many; j++)
                list.entry_of[own.runs + j] = (short)at;
        }
    }
    if (lane == 0)
        list.runs = runs;
}

/* By all but the warp that copies: the token and the gate of every row. */
__device__ __forceinline__ void load_rows(const problem &p, room &list)
{
    static_assert(MOST_ROWS <= STREAM_MULTIPLY, "a thread for each row");
    int i = threadIdx.x;
    if (i < p.tokens * p.choices) {
        int choice = p.order[i];
        list.token[i] = (unsigned char)(choice / p.choices);
        list.gates[i] = p.gates[choice];
    }
}

__device__ __forceinline__ int tiles_of(const stack &w)
{
    return (w.n + STREAM_TILE - 1) / STREAM_TILE;
}

__device__ __forceinline__ stream_weights weights_of(const problem &p, const stack &w, int expert,
                                                     int tile)
{
    const unsigned char *matrix = w.data + expert * w.span;
    int64_t first = (int64_t)tile * STREAM_TILE;
    return { matrix + first * p.shape.row_bytes,
             (const float *)(matrix + w.codes) + first * p.shape.row_scales,
             min(STREAM_TILE, w.n - (int)first) - 1 };
}

/* ---- glu ---- */

/* Tiles of an expert: for every 16 rows, for every run, gate and then up. */
struct glu_work {
    const problem &p;
    room &list;
    int begin, end;
    float gate;

    struct cursor {
        entry e;
        int nth, tile, run; /* which entry; run: of the expert */
        bool up;
    };
    __device__ cursor at(int i) const
    {
        int tiles = 2 * tiles_of(p.w[0]), nth = list.entry_of[i / tiles]; /* tiles of a run */
        entry e = list.entries[nth];
        int own = runs_of(e), local = i - e.runs * tiles, pair = local / 2;
        return { e, nth, pair / own, pair % own, local % 2 == 1 };
    }
    __device__ void next(cursor &c) const
    {
        c.up = !c.up;
        if (c.up || ++c.run < runs_of(c.e))
            return;
        c.run = 0;
        if (++c.tile < tiles_of(p.w[0]))
            return;
        c.tile = 0;
        c.e = list.entries[++c.nth];
    }
    __device__ stream_weights weights(const cursor &c) const
    {
        return weights_of(p, p.w[c.up], c.e.expert, c.tile);
    }
    __device__ const stream_bf16 *activations(const cursor &c, int token) const
    {
        int row = c.run * STREAM_TOKENS + token;
        return row < c.e.rows ? p.a + (int64_t)list.token[c.e.first + row] * p.shape.k : nullptr;
    }
    __device__ int same(const cursor &c) const { return c.e.runs + c.run; }
    /* The kernel after this one may start when all blocks have come here: so before its own wait it
     * may read what was written before this kernel. */
    __device__ void prepare() const
    {
        overlap_wait();
        overlap_next();
        make_list(p, list);
    }
    __device__ void wait() const
    {
        overlap_wait();
        load_rows(p, list);
    }
    __device__ void ready()
    {
        int64_t pairs = (int64_t)list.runs * tiles_of(p.w[0]);
        begin = 2 * (int)(pairs * blockIdx.x / gridDim.x);
        end = 2 * (int)(pairs * (blockIdx.x + 1) / gridDim.x);
    }
    __device__ void finish(const cursor &c, int row, int token, float y)
    {
        int column = c.tile * STREAM_TILE + row, from = c.run * STREAM_TOKENS + token;
        if (c.up && from < c.e.rows && column < p.w[0].n) {
            float g[1] = { gate }, slope[1];
            vmath_acts<true>(p.act, g, slope);
            p.mid[(int64_t)(c.e.first + from) * p.w[0].n + column] = __float2bfloat16_rn(g[0] * y);
        }
        gate = y;
    }
};

/* ---- sum ---- */

/* Tiles: for every 16 columns of x, all runs of all experts. */
struct sum_work {
    const problem &p;
    room &list;
    int begin, end;

    struct cursor {
        entry e;
        int tile, run; /* run: of all */
    };
    __device__ cursor at(int i) const
    {
        int run = i % list.runs;
        return { list.entries[list.entry_of[run]], i / list.runs, run };
    }
    __device__ void next(cursor &c) const
    {
        bool last = ++c.run == list.runs;
        c.run = last ? 0 : c.run;
        c.tile += last;
        c.e = list.entries[list.entry_of[c.run]];
    }
    /* The row of mid that token number `token` of a tile has; -1: none. */
    __device__ int row_of(const cursor &c, int token) const
    {
        int row = (c.run - c.e.runs) * STREAM_TOKENS + token;
        return row < c.e.rows ? c.e.first + row : -1;
    }
    __device__ stream_weights weights(const cursor &c) const
    {
        return weights_of(p, p.w[0], c.e.expert, c.tile);
    }
    __device__ const stream_bf16 *activations(const cursor &c, int token) const
    {
        int row = row_of(c, token);
        return row < 0 ? nullptr : p.a + (int64_t)row * p.shape.k;
    }
    __device__ int same(const cursor &c) const { return c.run; }
    __device__ void prepare() const { make_list(p, list); /* before the wait: see glu_work */ }
    __device__ void wait() const
    {
        load_rows(p, list); /* the same */
        for (int i = threadIdx.x; i < p.tokens * STREAM_TILE; i += STREAM_THREADS - 32)
            list.sums[i] = 0;
        overlap_wait();
    }
    __device__ void ready()
    {
        int64_t columns = tiles_of(p.w[0]);
        begin = (int)(columns * blockIdx.x / gridDim.x) * list.runs;
        end = (int)(columns * (blockIdx.x + 1) / gridDim.x) * list.runs;
    }
    __device__ void sync() const
    {
        static_assert(STREAM_FINISH == 128, "the number below");
        asm volatile("bar.sync 2, 128;" ::: "memory");
    }
    __device__ void store(int first) const
    {
        for (int j = threadIdx.x - STREAM_MULTIPLY; j < p.tokens * STREAM_TILE;
             j += STREAM_FINISH) {
            int column = first + j % STREAM_TILE;
            if (column < p.w[0].n)
                p.x[(int64_t)(j / STREAM_TILE) * p.w[0].n + column] += list.sums[j];
            list.sums[j] = 0;
        }
    }
    /* The token of a thread is another one in every tile, so tiles are added one after another. */
    __device__ void finish(const cursor &c, int row, int token, float y) const
    {
        int from = row_of(c, token);
        sync();
        if (from >= 0)
            list.sums[list.token[from] * STREAM_TILE + row] += list.gates[from] * y;
        if (c.run != list.runs - 1)
            return;
        sync();
        store(c.tile * STREAM_TILE);
    }
};

#endif

__global__ void __launch_bounds__(STREAM_THREADS, 1) glu_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char smem[]; /* table, ring, room */
    room &list = *(room *)(smem + p.shape.room);
    glu_work work = { p, list, 0, 0, 0 };
    stream_run(p.shape, work, smem, list.bar);
#endif
}

__global__ void __launch_bounds__(STREAM_THREADS, 1) sum_kernel(const __grid_constant__ problem p)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char smem[];
    room &list = *(room *)(smem + p.shape.room);
    overlap_next();
    sum_work work = { p, list, 0, 0 };
    stream_run(p.shape, work, smem, list.bar);
#endif
}

/* ---- host ---- */

stack stack_of(const tensor &w)
{
    int64_t n = w.ne[1] * w.ne[2], codes = (int64_t)nf4_codes_bytes(n);
    return { (const unsigned char *)w.data, codes + n / NF4_BLOCK * (int64_t)sizeof(float), codes,
             (int)w.ne[1] };
}

bool fits(const cuda_device *d, const experts_fwd *a)
{
    bool nf4 = a->gate.dt == DT_NF4 && a->up.dt == DT_NF4 && a->down.dt == DT_NF4;
    uintptr_t at = (uintptr_t)a->gate.data | (uintptr_t)a->up.data | (uintptr_t)a->down.data |
                   (uintptr_t)a->h.data | (uintptr_t)a->mid.data;
    return d->cc == 90 && nf4 && a->h.dt == DT_BF16 && at % 16 == 0 &&
           tensor_count(&a->order) <= MOST_ROWS && tensor_rows(&a->h) <= MOST_TOKENS &&
           a->gate.ne[1] % STREAM_GROUP == 0 && a->gate.ne[2] % STREAM_GROUP == 0 &&
           a->gate.ne[0] < 1 << 15;
}

void launch(cuda_device *d, const problem &p, int64_t most, void (*kernel)(problem))
{
    overlap_grid grid = { dim3((unsigned)(most < d->n_sm ? most : d->n_sm)), STREAM_THREADS,
                          p.shape.smem };
    overlap_launch(d, "experts_fwd", grid, kernel, p);
}

} // namespace

extern "C" void cuda_experts_fwd(device *dev, const experts_fwd *a)
{
    cuda_device *d = cuda_of(dev);
    if (tensor_count(&a->order) == 0)
        return;
    if (!fits(d, a)) {
        experts_by_parts(dev, a);
        return;
    }
    int dim = (int)a->gate.ne[2], width = (int)a->gate.ne[1];
    problem p = {};
    p.shape = stream_shape_of(dim, sizeof(room));
    p.w[0] = stack_of(a->gate);
    p.w[1] = stack_of(a->up);
    p.a = (const stream_bf16 *)a->h.data;
    p.order = (const int *)a->order.data;
    p.offsets = (const int *)a->offsets.data;
    p.gates = (const float *)a->gates.data;
    p.mid = (stream_bf16 *)a->mid.data;
    p.x = (float *)a->x.data;
    p.experts = (int)a->gate.ne[0];
    p.tokens = (int)tensor_rows(&a->h);
    p.choices = (int)tensor_cols(&a->gates);
    p.act = a->act;
    launch(d, p, d->n_sm, glu_kernel);
    p.shape = stream_shape_of(width, sizeof(room));
    p.w[0] = stack_of(a->down);
    p.a = p.mid;
    launch(d, p, (dim + STREAM_TILE - 1) / STREAM_TILE, sum_kernel);
}
