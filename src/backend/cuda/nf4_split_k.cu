/* nf4_split_k: 9 to 32 rows of bf16 activations against an NF4 matrix.
 *
 * Bound: reading the weights, if enough bytes are in flight. A block has 256 rows of w, 32 for each
 * of its 8 warps, by all tokens (16 or 32). A step is 128 elements of k, two quantisation blocks:
 * codes, scales and activations come to shared memory with cp.async, three steps ahead (a ring of
 * four stages), and every warp multiplies with mma.m16n8k16.
 *
 * Split-K: where w has too few rows to give every multiprocessor a block, the blocks along y of the
 * grid share k. Each leaves partial sums in scratch, and a second kernel adds them in order.
 *
 * Numbers: codes are decoded to bf16, their products with the activations summed in f32 over a
 * quantisation block of 64, and that sum is scaled in f32. Which element of k stands where in an
 * mma is free as long as both operands agree: so a lane uses the 8 bytes it loaded (16 elements) as
 * they are, and reads the same elements of x.
 *
 * Shared memory: 16-byte pieces of a row are permuted (XOR swizzle), so that the lanes of a warp
 * reach different banks. */
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/nf4_table.cuh"
#include "backend/cuda/overlap.cuh"
#include "backend/cuda/products.h"

namespace
{

enum { LANES = 32, WARPS = 8, THREADS = WARPS * LANES, MMA_ROWS = 16 };
enum { ROWS = SPLIT_K_ROWS, STEP = SPLIT_K_DEPTH, STAGES = 4 };
static_assert(ROWS == 32 * WARPS, "a warp has 32 rows of w: two mma");
static_assert(STEP == 2 * NF4_BLOCK, "a step is two quantisation blocks");

typedef __nv_bfloat16 bf16;

struct problem {
    epilogue end;
    const unsigned char *codes; /* [n, k / 2] */
    const float *scales;        /* [n, blocks] */
    const bf16 *x;              /* [tokens, k] */
    int k, tokens, blocks;      /* blocks: quantisation blocks of a row */
    nf4_values values;
};

/* One stage of the ring, in bytes. */
template <int TOKENS> struct stage {
    static constexpr int CODES = ROWS * 64, SCALES = ROWS * 8, X = TOKENS * STEP * 2,
                         BYTES = CODES + SCALES + X;
};

/* ---- copies to shared memory; zeros where nothing exists ---- */

__device__ __forceinline__ void copy16(uint32_t to, const void *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(exists ? 16 : 0));
}

__device__ __forceinline__ void copy4(uint32_t to, const void *from, bool exists)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(exists ? 4 : 0));
}

/* Where a 16-byte piece of a row is in a stage. */
__device__ __forceinline__ int codes_at(int row, int piece)
{
    return row * 64 + (piece ^ (row & 2)) * 16;
}

__device__ __forceinline__ int x_at(int token, int piece)
{
    return token * STEP * 2 + (piece ^ (token & 1)) * 16;
}

/* Codes and scales of a step; nothing from step `end` on. */
template <int TOKENS>
__device__ __forceinline__ void load_weights(uint32_t to, const problem &p, int first, int step,
                                             int end)
{
    typedef stage<TOKENS> S;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int row = i * (THREADS / 4) + threadIdx.x / 4, piece = threadIdx.x % 4;
        bool exists = step < end && step * 2 + piece / 2 < p.blocks;
        const unsigned char *from =
            p.codes + (int64_t)min(first + row, p.end.n - 1) * (p.k / 2) + step * 64 + piece * 16;
        copy16(to + codes_at(row, piece), exists ? from : p.codes, exists);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = i * (THREADS / 2) + threadIdx.x / 2, block = step * 2 + threadIdx.x % 2;
        bool exists = step < end && block < p.blocks;
        const float *from = p.scales + (int64_t)min(first + row, p.end.n - 1) * p.blocks + block;
        copy4(to + S::CODES + row * 8 + threadIdx.x % 2 * 4, exists ? from : p.scales, exists);
    }
}

template <int TOKENS>
__device__ __forceinline__ void load_activations(uint32_t to, const problem &p, int step, int end)
{
    typedef stage<TOKENS> S;
#pragma unroll
    for (int i = 0; i < TOKENS * 16 / THREADS; i++) {
        int token = i * (THREADS / 16) + threadIdx.x / 16, piece = threadIdx.x % 16;
        bool exists = step < end && step * 2 + piece / 8 < p.blocks && token < p.tokens;
        const bf16 *from = p.x + token * (int64_t)p.k + step * STEP + piece * 8;
        copy16(to + S::CODES + S::SCALES + x_at(token, piece), exists ? from : p.x, exists);
    }
}

/* ---- products ---- */

/* Quantisation block b (0 or 1) of a stage. */
template <int TOKENS>
__device__ __forceinline__ void multiply_block(float (&sum)[2][TOKENS / 8][4],
                                               const unsigned char *table,
                                               const unsigned char *from, int b)
{
    typedef stage<TOKENS> S;
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
    uint32_t at = lane * 4;
    uint2 w[2][2];
    float block[2][TOKENS / 8][4] = {};
    /* the lane's codes: 8 bytes of rows g and g + 8 of both mma */
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            w[m][h] =
                *(const uint2 *)(from +
                                 codes_at(warp * 32 + m * MMA_ROWS + h * 8 + g, b * 2 + t / 2) +
                                 t % 2 * 8);
            /* decode one word of them (8 elements of k) at a time, and multiply with all tokens */
#pragma unroll
    for (int q = 0; q < 2; q++) {
        uint32_t a[2][2][4];
#pragma unroll
        for (int m = 0; m < 2; m++) {
            uint32_t w0 = q ? w[m][0].y : w[m][0].x, w1 = q ? w[m][1].y : w[m][1].x;
            a[m][0][0] = nf4_table_pair<0>(table, w0, at),
            a[m][0][1] = nf4_table_pair<0>(table, w1, at);
            a[m][0][2] = nf4_table_pair<1>(table, w0, at),
            a[m][0][3] = nf4_table_pair<1>(table, w1, at);
            a[m][1][0] = nf4_table_pair<2>(table, w0, at),
            a[m][1][1] = nf4_table_pair<2>(table, w1, at);
            a[m][1][2] = nf4_table_pair<3>(table, w0, at),
            a[m][1][3] = nf4_table_pair<3>(table, w1, at);
        }
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++) {
            uint4 x =
                *(const uint4 *)(from + S::CODES + S::SCALES + x_at(n * 8 + g, b * 8 + t * 2 + q));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                warp_mma_bf16(block[m][n], a[m][0], x.x, x.y);
                warp_mma_bf16(block[m][n], a[m][1], x.z, x.w);
            }
        }
    }
    /* scale the block's sums */
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = warp * 32 + m * MMA_ROWS + h * 8 + g;
            float scale = *(const float *)(from + S::CODES + row * 8 + b * 4);
#pragma unroll
            for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
                for (int i = 2 * h; i < 2 * h + 2; i++)
                    sum[m][n][i] = fmaf(scale, block[m][n][i], sum[m][n][i]);
        }
}

/* Rows of w along x of the grid, parts of k along y: partial [part][token][row]. */
template <int TOKENS>
__global__ void __launch_bounds__(THREADS, 1)
    nf4_partial_kernel(const __grid_constant__ problem p, float *partial)
{
    typedef stage<TOKENS> S;
    extern __shared__ __align__(1024) unsigned char smem[]; /* table, ring */
    const unsigned char *ring = smem + NF4_TABLE_BYTES;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(ring);
    int steps = (p.blocks + 1) / 2, begin = (int)((int64_t)steps * blockIdx.y / gridDim.y);
    int end = (int)((int64_t)steps * (blockIdx.y + 1) / gridDim.y);
    int first = blockIdx.x * ROWS;
    overlap_next();

    /* prologue: weights before the wait, since no kernel writes them; activations after it */
    for (int s = 0; s < STAGES - 1; s++)
        load_weights<TOKENS>(to + s * S::BYTES, p, first, begin + s, end);
    nf4_table_fill<THREADS>(smem, p.values);
    overlap_wait();
    for (int s = 0; s < STAGES - 1; s++) { /* the first group holds the weights of all stages */
        load_activations<TOKENS>(to + s * S::BYTES, p, begin + s, end);
        asm volatile("cp.async.commit_group;");
    }

    /* main loop: one stage is multiplied while three are on their way */
    float sum[2][TOKENS / 8][4] = {};
    for (int step = begin; step < end; step++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        int ahead = step + STAGES - 1;
        uint32_t next = to + (ahead - begin) % STAGES * S::BYTES;
        load_weights<TOKENS>(next, p, first, ahead, end);
        load_activations<TOKENS>(next, p, ahead, end);
        asm volatile("cp.async.commit_group;");
        const unsigned char *from = ring + (step - begin) % STAGES * S::BYTES;
        multiply_block<TOKENS>(sum, smem, from, 0);
        multiply_block<TOKENS>(sum, smem, from, 1);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");

    /* partial sums to scratch */
    int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < TOKENS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int token = n * 8 + t * 2 + i % 2;
                int row = first + warp * 32 + m * MMA_ROWS + i / 2 * 8 + g;
                if (token < p.tokens && row < p.end.n)
                    partial[((int64_t)blockIdx.y * p.tokens + token) * p.end.n + row] =
                        sum[m][n][i];
            }
}

/* One element of the output a thread: its partial sums in order. */
__global__ void __launch_bounds__(THREADS)
    nf4_reduce_kernel(const __grid_constant__ problem p, const float *partial, int parts)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, count = p.tokens * (int64_t)p.end.n;
    overlap_next();
    overlap_wait();
    if (i >= count)
        return;
    float y = 0;
#pragma unroll 8
    for (int s = 0; s < parts; s++)
        y += partial[s * count + i];
    epilogue_store(p.end, (int)(i / p.end.n), (int)(i % p.end.n), y);
}

/* ---- host ---- */

template <int TOKENS> void launch(cuda_device *d, const problem &p)
{
    int64_t n = p.end.n, count = n * p.tokens, parts = scratch_split_k(d->n_sm, n, p.k);
    size_t bytes = scratch_split_k_bytes(d->n_sm, p.tokens, n);
    float *partial = (float *)cuda_scratch(d, "matmul of nf4", bytes);
    if (!partial)
        return;
    overlap_grid products = { dim3((unsigned)((n + ROWS - 1) / ROWS), (unsigned)parts), THREADS,
                              NF4_TABLE_BYTES + STAGES * stage<TOKENS>::BYTES };
    overlap_grid reduction = { dim3((unsigned)((count + THREADS - 1) / THREADS)), THREADS, 0 };
    overlap_launch(d, "matmul of nf4", products, nf4_partial_kernel<TOKENS>, p, partial);
    overlap_launch(d, "matmul of nf4", reduction, nf4_reduce_kernel, p, (const float *)partial,
                   (int)parts);
}

} // namespace

bool nf4_split_k_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    int64_t n = tensor_rows(&a->b), k = tensor_cols(&a->b);
    uintptr_t at = (uintptr_t)a->a.data | (uintptr_t)a->b.data;
    return product_whole(a) && k % NF4_BLOCK == 0 && at % 16 == 0 && k < 1 << 24 && n < 1 << 30;
}

void nf4_split_k_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    int k = (int)tensor_cols(&a->b), tokens = (int)tensor_rows(&a->a);
    problem p = { epilogue_of(a),
                  (const unsigned char *)a->b.data,
                  nf4_scales(a->b.data, tensor_count(&a->b)),
                  (const bf16 *)a->a.data,
                  k,
                  tokens,
                  k / NF4_BLOCK,
                  nf4_table_values() };
    if (tokens <= 16)
        launch<16>(d, p);
    else
        launch<32>(d, p);
}
