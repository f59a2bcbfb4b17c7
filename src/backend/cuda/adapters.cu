/* adapters: the op adapters_fwd: PESC's adapters on a few tokens, as decoding has them, in two
 * launches.
 *
 *   down   mid[choice] = scale gate gelu(down[e] f[t])
 *   up     x[t] += f[t] + sum over the choices of t: up[e] mid[choice]
 *
 * A choice is an expert e that a token t has chosen; token t has the choices [t k, (t + 1) k).
 *
 * Bound: reading the weights of the chosen experts once, and the latency of two launches. Products
 * are those of gemv.cu: mma.m16n8k16 takes 16 rows of w by 16 of k by 8 choices; every lane loads 8
 * neighbours of k of both operands straight into registers. Which of them stands where in the 16 is
 * free as long as both operands agree. The code must stay small: a kernel runs once a layer, so its
 * instructions are fetched each time, and 50 KiB of them took longer than the weights.
 *
 * Routing costs no launch: every block ranks the experts of all tokens itself, a thread a token.
 *   down   A block has 16 rows of one expert; its warps split k. Where nothing chose the expert, it
 *          ends.
 *   up     A block has 16 rows of all experts. Its warps take turns at pairs of an expert that was
 *          chosen and a part of k.
 * A warp leaves its sums in shared memory; a thread adds up those of an element, parts and slots in
 * order. So results repeat bit for bit. */
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/vec.cuh"
#include "backend/cuda/vmath.cuh"

namespace
{

enum { LOG_WARPS = 3, WARPS = 1 << LOG_WARPS, THREADS = WARPS * WARP };
enum { ROWS = 16, STRIDE = ROWS + 4 }; /* of w; from row to row of sums, without bank conflicts */
enum { STEP = 32, COLUMNS = 8 };       /* of k in two mma, and choices */
enum { CHOICES = ADAPTER_CHOICES, EXPERTS = 2048, EARLY_TOKENS = 4 };

struct problem {
    const void *w;       /* [experts,rows,depth] */
    const bf16 *in;      /* f [tokens,depth], or mid [choices,depth] */
    const float *logits; /* [tokens,experts] */
    const bf16 *f;       /* up: [tokens,rows] */
    bf16 *mid;           /* down: the result, [choices,rows] */
    float *x;            /* up: the result, [tokens,rows] */
    int tokens, k, experts, rows, depth;
    int log_parts; /* of k: 1 << log_parts of them */
    float scale;
};

/* ---- routing ---- */

struct choices {
    float gate[CHOICES];
    short expert[CHOICES];
    unsigned char token[CHOICES];
    unsigned chosen[EXPERTS / WARP]; /* a bit for each expert */
};

/* An integer that ranks an expert as topk_fwd does: by logit, NaN last, then by lowest index. */
__device__ uint64_t rank_of(float logit, int e)
{
    uint32_t bits = __float_as_uint(logit + 0.0f); /* -0 is 0 */
    bits ^= bits >> 31 ? ~0u : 1u << 31;           /* now in the order of the numbers */
    return (uint64_t)(logit == logit ? bits : 0) << 32 | (uint32_t)~e;
}

/* The k best experts of each token, and with GATES the softmax of their logits. A thread has a
 * token. */
template <bool GATES> __device__ void choose(choices &c, const problem &p)
{
    if (threadIdx.x < EXPERTS / WARP)
        c.chosen[threadIdx.x] = 0;
    __syncthreads();
    if ((int)threadIdx.x < p.tokens) {
        const float *logits = p.logits + threadIdx.x * p.experts;
        int first = threadIdx.x * p.k;
        uint64_t last = ~(uint64_t)0;
        float max = -CUDART_INF_F, sum = 0.0f;
#pragma unroll 1
        for (int slot = first; slot < first + p.k; slot++) {
            uint64_t top = 0;
#pragma unroll 4
            for (int e = 0; e < p.experts; e++) {
                uint64_t rank = rank_of(__ldcg(logits + e), e);
                top = rank < last && rank > top ? rank : top;
            }
            last = top;
            int e = (int)~(uint32_t)top;
            c.expert[slot] = (short)e;
            c.token[slot] = (unsigned char)threadIdx.x;
            atomicOr(&c.chosen[e / WARP], 1u << e % WARP);
            if (GATES) {
                c.gate[slot] = __ldcg(logits + e);
                max = fmaxf(c.gate[slot], max);
            }
        }
#pragma unroll 1
        for (int slot = first; GATES && slot < first + p.k; slot++)
            sum += c.gate[slot] = vmath_exp(c.gate[slot] - max);
#pragma unroll 1
        for (int slot = first; GATES && slot < first + p.k; slot++)
            c.gate[slot] = __fdividef(c.gate[slot], sum);
    }
    __syncthreads();
}

/* The choices of expert e in order, listed by a warp; how many they are. */
__device__ int list_choices(unsigned char *list, const choices &c, const problem &p, int e)
{
    int n = 0, lane = threadIdx.x % WARP;
    __syncwarp(); /* the list before has been read */
#pragma unroll 1
    for (int base = 0; base < p.tokens * p.k; base += WARP) {
        int i = base + lane;
        bool mine = i < p.tokens * p.k && c.expert[i] == e;
        unsigned all = __ballot_sync(~0u, mine);
        if (mine)
            list[n + __popc(all & ((1u << lane) - 1))] = (unsigned char)i;
        n += __popc(all);
    }
    __syncwarp();
    return n;
}

/* ---- operands ---- */

/* Eight neighbours of a row as they are stored. */
template <class W> struct eight {
    uint4 v[sizeof(W) / 2];
};

/* Volatile asm, so that the compiler keeps several loads in flight before the first use. */
__device__ __forceinline__ uint4 stream16(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* Eight elements, of which `left`, at least one, exist. WIDE: all do, and are aligned. */
template <bool WIDE, class W> __device__ __forceinline__ eight<W> load_eight(const W *p, int left)
{
    eight<W> to = {};
    if constexpr (WIDE) {
#pragma unroll
        for (int j = 0; j < (int)sizeof(W) / 2; j++)
            to.v[j] = stream16((const uint4 *)p + j);
    } else {
#pragma unroll 1
        for (int i = 0; i < left && i < 8; i++)
            ((W *)&to)[i] = p[i];
    }
    return to;
}

__device__ __forceinline__ uint4 as_bf16(const eight<bf16> &x)
{
    return x.v[0];
}

__device__ __forceinline__ uint4 as_bf16(const eight<float> &x)
{
    const float *v = (const float *)&x;
    return make_uint4(warp_pack_bf16(v[0], v[1]), warp_pack_bf16(v[2], v[3]),
                      warp_pack_bf16(v[4], v[5]), warp_pack_bf16(v[6], v[7]));
}

/* ---- a product: 16 rows of one expert by up to COUNTS x 8 of its choices ---- */

/* DOWN: the first kernel. AHEAD steps of k are a group, whose weights are in flight together; of
 * activations, LEAD steps are. WIDE: rows of both can be loaded 16 bytes at a time. */
template <class W, int COUNTS, bool WIDE, bool DOWN> struct product {
    static constexpr int BYTES = !DOWN ? 8 : COUNTS == 4 ? 12 : 16; /* as registers allow */
    static constexpr int AHEAD = BYTES / (int)sizeof(W), GROUP = AHEAD * STEP;
    static constexpr int LEAD = COUNTS == 1 ? AHEAD : 2;

    const problem &p;
    const W *w[2]; /* a lane's rows; past the last row that row again */
    const unsigned char *list;
    int n;          /* choices from list on, at most COUNTS COLUMNS of them count */
    int in[COUNTS]; /* where a lane reads the activations of its choice of each column; -1: none */
    float sum[COUNTS][4] = {}; /* as mma leaves them */

    __device__ product(const problem &of, const choices &c, int e, int first,
                       const unsigned char *its, int many)
        : p(of), list(its), n(many)
    {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int row = min(first + r * 8 + (int)threadIdx.x % WARP / 4, p.rows - 1);
            w[r] = (const W *)p.w + ((int64_t)e * p.rows + row) * p.depth;
        }
#pragma unroll
        for (int i = 0; i < COUNTS; i++) {
            int nth = i * COLUMNS + threadIdx.x % WARP / 4, choice = nth < n ? list[nth] : -1;
            in[i] = choice < 0 ? -1 : (DOWN ? c.token[choice] : choice) * p.depth;
        }
    }

    /* Past the end of k any weights, because the activations are 0 there. */
    __device__ __forceinline__ void load(eight<W> (&to)[AHEAD][2], int group)
    {
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            int k = (group * AHEAD + i) * STEP + threadIdx.x % 4 * 8;
            k = k < p.depth ? k : 0;
#pragma unroll
            for (int r = 0; r < 2; r++)
                to[i][r] = load_eight<WIDE>(w[r] + k, p.depth - k);
        }
    }

    __device__ __forceinline__ void load_in(uint4 (&to)[COUNTS], int k)
    {
#pragma unroll
        for (int c = 0; c < COUNTS; c++) {
            const bf16 *from = p.in + in[c] + k;
            to[c] = make_uint4(0, 0, 0, 0);
            if (in[c] >= 0 && k < p.depth) {
                if constexpr (WIDE)
                    to[c] = *(const uint4 *)from;
                else
                    to[c] = load_eight<false>(from, p.depth - k).v[0];
            }
        }
    }

    __device__ __forceinline__ void use(const eight<W> (&from)[AHEAD][2], int group)
    {
        uint4 x[LEAD][COUNTS];
        int k = group * GROUP + threadIdx.x % 4 * 8;
#pragma unroll
        for (int i = 0; i < LEAD; i++)
            load_in(x[i], k + i * STEP);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            uint4 a = as_bf16(from[i][0]), b = as_bf16(from[i][1]);
            uint32_t low[4] = { a.x, b.x, a.y, b.y }, high[4] = { a.z, b.z, a.w, b.w };
#pragma unroll
            for (int c = 0; c < COUNTS; c++)
                if (c * COLUMNS < n) {
                    const uint4 &v = x[i % LEAD][c];
                    warp_mma_bf16(sum[c], low, v.x, v.y);
                    warp_mma_bf16(sum[c], high, v.z, v.w);
                }
            if (i + LEAD < AHEAD)
                load_in(x[i % LEAD], k + (i + LEAD) * STEP);
        }
    }

    /* Groups [group, end) of k. */
    __device__ __forceinline__ void run(int group, int end)
    {
#pragma unroll 1
        for (; group < end; group++) {
            eight<W> weights[AHEAD][2];
            load(weights, group);
            if (!DOWN)
                overlap_wait(); /* for `mid` */
            use(weights, group);
        }
    }

    /* sums[choice][row]: in the list's order, or where the choices' own numbers say. */
    __device__ __forceinline__ void store(float *sums, int first)
    {
        int lane = threadIdx.x % WARP;
#pragma unroll
        for (int c = 0; c < COUNTS; c++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int nth = c * COLUMNS + lane % 4 * 2 + i;
                if (nth >= n)
                    continue;
                float *to = sums + (DOWN ? first + nth : list[nth]) * STRIDE + lane / 4;
                to[0] = sum[c][i];
                to[8] = sum[c][2 + i];
            }
    }

    /* Part `part` of the products of expert e with its n choices. */
    __device__ static void part(const problem &p, const choices &c, float *sums, int e, int first,
                                int part, const unsigned char *list, int n)
    {
        int groups = (p.depth + GROUP - 1) / GROUP;
#pragma unroll 1
        for (int at = 0; at < n; at += COUNTS * COLUMNS) {
            product one(p, c, e, first, list + at, n - at);
            one.run(groups * part >> p.log_parts, groups * (part + 1) >> p.log_parts);
            one.store(sums, at);
        }
    }
};

/* ---- the kernels ---- */

/* Asks for memory to be brought to the L2 cache; `from` and `bytes` are multiples of 16. */
__device__ void prefetch(const void *from, int64_t bytes)
{
#if __CUDA_ARCH__ >= 900
    enum { PIECE = 2048 };
#pragma unroll 1
    for (int64_t at = threadIdx.x * PIECE; at < bytes; at += THREADS * PIECE)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((const char *)from + at),
                     "r"((int)min((int64_t)PIECE, bytes - at))
                     : "memory");
#endif
}

template <class W, int COUNTS, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2) down_kernel(const __grid_constant__ problem p)
{
    typedef product<W, COUNTS, WIDE, true> tile;
    extern __shared__ float sums[]; /* [WARPS][n][STRIDE] */
    __shared__ choices c;
    __shared__ unsigned char lists[WARPS][CHOICES];
    int e = blockIdx.y, first = blockIdx.x * ROWS, warp = threadIdx.x / WARP;
    int own = min(ROWS, p.rows - first);
    if (WIDE && p.tokens >= EARLY_TOKENS) /* some token is likely to choose e */
        prefetch((const W *)p.w + ((int64_t)e * p.rows + first) * p.depth,
                 (int64_t)own * p.depth * (int)sizeof(W));
    overlap_wait();
    overlap_next(); /* not before the wait: see up_kernel */

    choose<true>(c, p);
    int n = list_choices(lists[warp], c, p, e);
    if (n == 0)
        return;
    tile::part(p, c, sums + warp * n * STRIDE, e, first, warp, lists[warp], n);
    __syncthreads();

#pragma unroll 1
    for (int i = threadIdx.x; i < n * ROWS; i += THREADS) {
        int nth = i / ROWS, row = i % ROWS, choice = lists[0][nth];
        float y = 0.0f, slope;
        for (int part = 0; part < WARPS; part++)
            y += sums[(part * n + nth) * STRIDE + row];
        y = vmath_act<ACT_GELU, true>(y, slope) * (p.scale * c.gate[choice]);
        if (row < own)
            p.mid[(int64_t)choice * p.rows + first + row] = __float2bfloat16_rn(y);
    }
}

/* The experts that were chosen, in order; how many they are. */
__device__ int list_experts(short *list, const choices &c, const problem &p)
{
    int words = (p.experts + WARP - 1) / WARP, n = 0;
#pragma unroll 1
    for (int e = threadIdx.x; e < p.experts; e += THREADS)
        if (c.chosen[e / WARP] >> e % WARP & 1) {
            int at = __popc(c.chosen[e / WARP] & ((1u << e % WARP) - 1));
#pragma unroll 1
            for (int i = 0; i < e / WARP; i++)
                at += __popc(c.chosen[i]);
            list[at] = (short)e;
        }
#pragma unroll 1
    for (int i = 0; i < words; i++)
        n += __popc(c.chosen[i]);
    __syncthreads();
    return n;
}

/* It starts when every block of down_kernel has waited for the kernels before that one. So the
 * logits are there, and routing and the first loads of weights need not wait for down_kernel. */
template <class W, int COUNTS, bool WIDE>
__global__ void __launch_bounds__(THREADS, 2) up_kernel(const __grid_constant__ problem p)
{
    typedef product<W, COUNTS, WIDE, false> tile;
    extern __shared__ float sums[]; /* [parts][choices][STRIDE] */
    __shared__ choices c;
    __shared__ short experts[CHOICES];
    __shared__ unsigned char lists[WARPS][CHOICES];
    int first = blockIdx.x * ROWS, warp = threadIdx.x / WARP, all = p.tokens * p.k;
    int own = min(ROWS, p.rows - first);
    overlap_next();

    /* x + f of an element; the first one is loaded ahead */
    auto before = [&](int i) {
        int64_t at = (int64_t)(i / ROWS) * p.rows + first + i % ROWS;
        bool mine = i < p.tokens * ROWS && i % ROWS < own;
        return mine ? __ldcg(p.x + at) + __bfloat162float(__ldcg(p.f + at)) : 0.0f;
    };
    float ahead = before(threadIdx.x);
    choose<false>(c, p);
    int n = list_experts(experts, c, p);
#pragma unroll 1
    for (int i = warp; i < n << p.log_parts; i += WARPS) {
        int e = experts[i >> p.log_parts], part = i & ((1 << p.log_parts) - 1);
        int many = list_choices(lists[warp], c, p, e);
        tile::part(p, c, sums + part * all * STRIDE, e, first, part, lists[warp], many);
    }
    overlap_wait(); /* for warps without a turn */
    __syncthreads();

#pragma unroll 1
    for (int i = threadIdx.x; i < p.tokens * ROWS; i += THREADS) {
        int t = i / ROWS, row = i % ROWS;
        float x = i < THREADS ? ahead : before(i), y = 0.0f;
#pragma unroll 1
        for (int slot = 0; slot < p.k; slot++)
#pragma unroll 1
            for (int part = 0; part < 1 << p.log_parts; part++)
                y += sums[(part * all + t * p.k + slot) * STRIDE + row];
        if (row < own)
            p.x[(int64_t)t * p.rows + first + row] = x + y;
    }
}

/* ---- host ---- */

/* Parts of k in `up`: as many as give all warps work, if each has a group. */
int log_parts_of(const problem &p, int group)
{
    int all = p.tokens * p.k, experts = all < p.experts ? all : p.experts, log = 0;
    while (experts << (log + 1) <= WARPS && group << (log + 1) <= p.depth)
        log++;
    return log;
}

template <class W, int COUNTS, bool WIDE>
void launch(cuda_device *d, const problem &down, const problem &up)
{
    problem first = down, second = up;
    int row = STRIDE * (int)sizeof(float);
    first.log_parts = LOG_WARPS;
    second.log_parts = log_parts_of(up, product<W, COUNTS, WIDE, false>::GROUP);
    unsigned x = (unsigned)((down.rows + ROWS - 1) / ROWS);
    overlap_launch(d, "adapters_fwd",
                   { dim3(x, (unsigned)down.experts), THREADS, WARPS * down.tokens * row, 0 },
                   down_kernel<W, COUNTS, WIDE>, first);
    x = (unsigned)((up.rows + ROWS - 1) / ROWS);
    overlap_launch(d, "adapters_fwd",
                   { dim3(x), THREADS, (up.tokens * up.k << second.log_parts) * row, 0 },
                   up_kernel<W, COUNTS, WIDE>, second);
}

/* An expert is rarely chosen by more than half of many tokens; if it is, its weights are read again
 * for the others. */
template <class W>
void launch_for(cuda_device *d, const problem &down, const problem &up, bool wide)
{
    if (!wide)
        launch<W, 1, false>(d, down, up);
    else if (down.tokens <= COLUMNS)
        launch<W, 1, true>(d, down, up);
    else if (down.tokens <= 2 * COLUMNS)
        launch<W, 2, true>(d, down, up);
    else
        launch<W, 4, true>(d, down, up);
}

} // namespace

extern "C" void cuda_adapters_fwd(device *dev, const adapters_fwd *a)
{
    int tokens = (int)tensor_rows(&a->f), width = (int)a->down.ne[1], dim = (int)a->down.ne[2];
    int experts = (int)a->down.ne[0];
    ASSERT(tokens * a->k <= CHOICES && experts <= EXPERTS && a->k <= experts);
    ASSERT(a->f.dt == DT_BF16 && a->mid.dt == DT_BF16 && a->down.dt == a->up.dt);
    problem down = {};
    down.w = a->down.data;
    down.in = (const bf16 *)a->f.data;
    down.logits = (const float *)a->logits.data;
    down.mid = (bf16 *)a->mid.data;
    down.tokens = tokens;
    down.k = a->k;
    down.experts = experts;
    down.rows = width;
    down.depth = dim;
    down.scale = a->scale;
    bool wide = vec_aligned(a->f, a->down, a->up, a->mid) && width % 8 == 0 && dim % 8 == 0;
    problem up = down;
    up.w = a->up.data;
    up.in = (const bf16 *)a->mid.data;
    up.f = (const bf16 *)a->f.data;
    up.x = (float *)a->x.data;
    up.rows = dim;
    up.depth = width;
    if (tokens == 0)
        return;
    if (a->down.dt == DT_F32)
        launch_for<float>(cuda_of(dev), down, up, wide);
    else
        launch_for<bf16>(cuda_of(dev), down, up, wide);
}
