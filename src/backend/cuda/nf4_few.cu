/* nf4_few: 9 to 32 rows of activations against a matrix of NF4, read as it lies. (Fewer are
 * nf4_stream's, more nf4_wide's.)
 *
 * Codes are rounded to bf16, their products summed in f32 over a block of 64, and the block's sum
 * is scaled in f32.
 *
 * Which element of k stands where in a product is free as long as both sides agree, so lanes use
 * the bytes they loaded as they lie, and read the same elements of x.
 *
 * A step is a pair of blocks, 128 of k, of 256 rows of w: codes, scales and x come to shared memory
 * some steps ahead. A warp has 32 rows and all tokens; of a block (32 bytes) each of the four lanes
 * on a row has 8 bytes. Pieces of 16 bytes are permuted within their row of shared memory, so that
 * no two lanes wait for a bank. Where rows are few, blocks split k, and a second kernel adds what
 * they have, in order. */
#include "backend/cuda/nf4_pairs.cuh"
#include "backend/cuda/overlap.cuh"

namespace
{

enum { LANES = 32, WARPS = 8, THREADS = WARPS * LANES, TILE = 16 };

typedef __nv_bfloat16 bf16;

struct problem {
    void *out;
    const unsigned char *codes;
    const float *scales;
    const bf16 *x;
    const void *bias;
    int n, k; /* of w [n,k] */
    int tokens, blocks;
    float scale;
    bool out_f32, bias_f32, accumulate;
    uint16_t code[16]; /* bf16 */
};

enum { ROWS = SPLIT_K_ROWS, STAGES = 4, PAIR = SPLIT_K_DEPTH };
enum { LEAST_TOKENS = 9, MOST_TOKENS = SPLIT_K_TOKENS };
static_assert(ROWS == 32 * WARPS, "a warp has 32 rows of w");

template <int TOKENS> struct stage {
    static constexpr int CODES = ROWS * 64, SCALES = ROWS * 8, X = TOKENS * PAIR * 2,
                         BYTES = CODES + SCALES + X;
};

__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0));
}

__device__ __forceinline__ void copy4(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 4 : 0));
}

/* Where a piece of 16 bytes of a row lies. */
__device__ __forceinline__ int codes_at(int row, int piece)
{
    return row * 64 + (piece ^ (row & 2)) * 16;
}

__device__ __forceinline__ int x_at(int token, int piece)
{
    return token * PAIR * 2 + (piece ^ (token & 1)) * 16;
}

template <int TOKENS>
__device__ __forceinline__ void load_codes(uint32_t to, const problem &p, int first, int pair,
                                           int end)
{
    typedef stage<TOKENS> S;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = i * (THREADS / 4) + threadIdx.x / 4, piece = threadIdx.x % 4;
        bool there = pair < end && pair * 2 + piece / 2 < p.blocks;
        const unsigned char *from =
            p.codes + (int64_t)min(first + row, p.n - 1) * (p.k / 2) + pair * 64 + piece * 16;
        copy16(to + codes_at(row, piece), there ? from : p.codes, there);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = i * (THREADS / 2) + threadIdx.x / 2, block = pair * 2 + threadIdx.x % 2;
        bool there = pair < end && block < p.blocks;
        const float *from = p.scales + (int64_t)min(first + row, p.n - 1) * p.blocks + block;
        copy4(to + S::CODES + row * 8 + threadIdx.x % 2 * 4, there ? from : p.scales, there);
    }
}

template <int TOKENS>
__device__ __forceinline__ void load_x(uint32_t to, const problem &p, int pair, int end)
{
    typedef stage<TOKENS> S;
#pragma unroll
    for (int i = 0; i < TOKENS * 16 / THREADS; i++) {
        int token = i * (THREADS / 16) + threadIdx.x / 16, piece = threadIdx.x % 16;
        bool there = pair < end && pair * 2 + piece / 8 < p.blocks && token < p.tokens;
        const bf16 *from = p.x + token * (int64_t)p.k + pair * PAIR + piece * 8;
        copy16(to + S::CODES + S::SCALES + x_at(token, piece), there ? from : p.x, there);
    }
}

/* One block of 64 of k: b is 0 or 1. */
template <int TOKENS>
__device__ __forceinline__ void use_block(float (&sum)[2][TOKENS / 8][4],
                                          const unsigned char *table, const unsigned char *from,
                                          int b)
{
    typedef stage<TOKENS> S;
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    uint32_t at = lane * 4;
    uint2 w[2][2];
    float block[2][TOKENS / 8][4] = {};
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            w[m][h] =
                *(const uint2 *)(from + codes_at(warp * 32 + m * TILE + h * 8 + g, b * 2 + t / 2) +
                                 t % 2 * 8);
#pragma unroll
    for (int q = 0; q < 2; q++) { /* the words of these 8 bytes, 8 of k each */
        uint32_t a[2][2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint32_t w0 = q ? w[m][0].y : w[m][0].x, w1 = q ? w[m][1].y : w[m][1].x;
            a[m][0][0] = nf4_pairs_of<0>(table, w0, at),
            a[m][0][1] = nf4_pairs_of<0>(table, w1, at);
            a[m][0][2] = nf4_pairs_of<1>(table, w0, at),
            a[m][0][3] = nf4_pairs_of<1>(table, w1, at);
            a[m][1][0] = nf4_pairs_of<2>(table, w0, at),
            a[m][1][1] = nf4_pairs_of<2>(table, w1, at);
            a[m][1][2] = nf4_pairs_of<3>(table, w0, at),
            a[m][1][3] = nf4_pairs_of<3>(table, w1, at);
        }
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++) {
            uint4 x =
                *(const uint4 *)(from + S::CODES + S::SCALES + x_at(n * 8 + g, b * 8 + t * 2 + q));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                nf4_pairs_multiply(block[m][n], a[m][0], x.x, x.y);
                nf4_pairs_multiply(block[m][n], a[m][1], x.z, x.w);
            }
        }
    }
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float scale =
                *(const float *)(from + S::CODES + (warp * 32 + m * TILE + h * 8 + g) * 8 + b * 4);
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++)
                    sum[m][n][i] = fmaf(scale, block[m][n][i], sum[m][n][i]);
        }
}

/* Rows of w along x, parts of k along y: parts [part][token][row]. */
template <int TOKENS>
__global__ void __launch_bounds__(THREADS, 1)
    product_parts(const __grid_constant__ problem p, float *parts)
{
    typedef stage<TOKENS> S;
    extern __shared__ __align__(1024) unsigned char smem[];
    const unsigned char *ring = smem + NF4_PAIRS_BYTES;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(ring);
    int pairs = (p.blocks + 1) / 2, begin = (int)((int64_t)pairs * blockIdx.y / gridDim.y);
    int end = (int)((int64_t)pairs * (blockIdx.y + 1) / gridDim.y);
    int first = blockIdx.x * ROWS;
    overlap_next();
    for (int s = 0; s < STAGES - 1; s++)
        load_codes<TOKENS>(to + s * S::BYTES, p, first, begin + s, end);
    nf4_pairs_fill<THREADS>(smem, p.code);
    overlap_wait();
    for (int s = 0; s < STAGES - 1; s++) { /* the first group has the codes of all */
        load_x<TOKENS>(to + s * S::BYTES, p, begin + s, end);
        asm volatile("cp.async.commit_group;");
    }
    float sum[2][TOKENS / 8][4] = {};
    for (int pair = begin; pair < end; pair++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        int ahead = pair + STAGES - 1;
        uint32_t next = to + (ahead - begin) % STAGES * S::BYTES;
        load_codes<TOKENS>(next, p, first, ahead, end);
        load_x<TOKENS>(next, p, ahead, end);
        asm volatile("cp.async.commit_group;");
        const unsigned char *from = ring + (pair - begin) % STAGES * S::BYTES;
        use_block<TOKENS>(sum, smem, from, 0);
        use_block<TOKENS>(sum, smem, from, 1);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = n * 8 + t * 2 + i % 2;
                int row = first + warp * 32 + m * TILE + i / 2 * 8 + g;
                if (token < p.tokens && row < p.n)
                    parts[((int64_t)blockIdx.y * p.tokens + token) * p.n + row] = sum[m][n][i];
            }
}

__global__ void __launch_bounds__(THREADS)
    join_parts(const __grid_constant__ problem p, const float *parts, int n_parts)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, count = p.tokens * (int64_t)p.n;
    overlap_next();
    overlap_wait();
    if (i >= count)
        return;
    float y = 0;
#pragma unroll 8
    for (int s = 0; s < n_parts; s++)
        y += parts[s * count + i];
    nf4_pairs_store(p, (int)(i / p.n), (int)(i % p.n), y);
}

/* ---- the host's side ---- */

unsigned parts_of(int64_t n, int64_t rows)
{
    return (unsigned)((n + rows - 1) / rows);
}

void multiply_in_parts(cuda_device *d, const problem &p, int smem, void (*kernel)(problem, float *))
{
    unsigned tiles = parts_of(p.n, ROWS), split = (unsigned)scratch_split_k(d->n_sm, p.n, p.k);
    size_t bytes = scratch_split_k_bytes(d->n_sm, p.tokens, p.n);
    float *parts = (float *)cuda_scratch(d, "matmul of nf4", bytes);
    if (!parts)
        return;
    overlap_launch(d, "matmul of nf4", { dim3(tiles, split), THREADS, smem }, kernel, p, parts);
    overlap_grid join = { dim3(parts_of((int64_t)p.tokens * p.n, THREADS)), THREADS, 0 };
    overlap_launch(d, "matmul of nf4", join, join_parts, p, (const float *)parts, (int)split);
}

} // namespace

extern "C" bool cuda_nf4_few(cuda_device *d, const mm *a)
{
    int64_t tokens = tensor_rows(&a->a), n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    if (a->layout != MM_NT || a->b.dt != DT_NF4 || a->a.dt != DT_BF16 || k % NF4_BLOCK || at % 16 ||
        k >= 1 << 24 || n >= 1 << 30 || tokens < LEAST_TOKENS || tokens > MOST_TOKENS ||
        d->cc < 90) /* its shared memory */
        return false;
    problem p = { a->out.data,
                  (const unsigned char *)a->b.data,
                  nf4_scales(a->b.data, n * k),
                  (const bf16 *)a->a.data,
                  a->bias.data,
                  (int)n,
                  (int)k,
                  (int)tokens,
                  (int)(k / NF4_BLOCK),
                  a->scale,
                  a->out.dt == DT_F32,
                  a->bias.dt == DT_F32,
                  a->accumulate,
                  {} };
    nf4_pairs_codes(p.code);
    if (tokens <= 16)
        multiply_in_parts(d, p, NF4_PAIRS_BYTES + STAGES * stage<16>::BYTES, product_parts<16>);
    else
        multiply_in_parts(d, p, NF4_PAIRS_BYTES + STAGES * stage<32>::BYTES, product_parts<32>);
    return true;
}
