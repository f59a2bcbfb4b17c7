/* grouped_mma: grouped products with mma.sync, the tensor cores of every GPU since sm_80.
 *
 * Tiles of 128x128 by 8 warps, 64x32 each. All warps load and multiply: a ring of four cp.async
 * stages, 32 elements of k each, then ldmatrix and mma.m16n8k16. Bound: the tensor cores.
 *
 * An operand has in shared memory the layout it has in global memory: k-last operands as [128][32],
 * k-first ones as [32][128], which ldmatrix transposes. 16-byte pieces of a row are permuted (XOR
 * swizzle), so that the eight rows of an ldmatrix are in different banks. Elements outside the
 * matrix or the expert's rows are filled with zeros. */
#include "backend/cuda/grouped.cuh"
#include "backend/cuda/warp.cuh"

#include <cuda_bf16.h>

namespace
{

enum {
    TILE = 128,
    DEPTH = 32,
    THREADS = 256,
    STAGES = 4,
    OPERAND = TILE * DEPTH, /* elements of one operand in a stage */
    SHARED = STAGES * 2 * OPERAND * 2,
    WARP_M = 64, /* a warp's part of the tile */
    WARP_N = 32
};

typedef __nv_bfloat16 bf16;

/* One operand: element (j, k) of a k-last one at data[j * ld + k], else at data[k * ld + j]. */
struct operand {
    const bf16 *data;
    int ld, n, depth; /* j < n, k < depth */
};

/* The index of element (j, k) in a stage's operand, where a piece of 8 elements begins. */
template <bool K_LAST> __device__ int place(int j, int k)
{
    if (K_LAST)
        return j * DEPTH + (k / 8 ^ (j / 2 & 3)) * 8;
    return k * TILE + (j / 8 ^ (k & 7)) * 8;
}

__device__ void copy16(bf16 *to, const bf16 *from, bool inside)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(inside ? 16 : 0));
}

template <bool K_LAST> __device__ void load_operand(bf16 *to, const operand &s, int j0, int k0)
{
    constexpr int PER_ROW = (K_LAST ? DEPTH : TILE) / 8;
#pragma unroll
    for (int x = threadIdx.x; x < OPERAND / 8; x += THREADS) {
        int row = x / PER_ROW, piece = x % PER_ROW * 8;
        int j = K_LAST ? row : piece, k = K_LAST ? piece : row;
        bool inside = j0 + j < s.n && k0 + k < s.depth;
        int64_t at = K_LAST ? (int64_t)(j0 + j) * s.ld + k0 + k : (int64_t)(k0 + k) * s.ld + j0 + j;
        copy16(to + place<K_LAST>(j, k), s.data + (inside ? at : 0), inside);
    }
}

template <bool TRANS> __device__ void ldmatrix(unsigned (&r)[4], const bf16 *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(from);
    if (TRANS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(at));
}

typedef float warp_sums[WARP_M / 16][WARP_N / 8][4];

/* One stage: the four 8x8 blocks of an ldmatrix go m0k0 m1k0 m0k1 m1k1 for A, n0k0 n0k1 n1k0 n1k1
 * for B. */
template <bool A_K_LAST, bool B_K_LAST>
__device__ void multiply_stage(warp_sums &c, const bf16 *a, const bf16 *b, int m, int n)
{
    int lane = threadIdx.x % 32, r = lane % 8, first = lane / 8 % 2 * 8, second = lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        unsigned fa[WARP_M / 16][4], fb[WARP_N / 16][4];
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++) {
            int j = m + i * 16 + first, kk = k + second;
            ldmatrix<!A_K_LAST>(fa[i],
                                a + (A_K_LAST ? place<true>(j + r, kk) : place<false>(j, kk + r)));
        }
#pragma unroll
        for (int i = 0; i < WARP_N / 16; i++) {
            int j = n + i * 16 + second, kk = k + first;
            ldmatrix<!B_K_LAST>(fb[i],
                                b + (B_K_LAST ? place<true>(j + r, kk) : place<false>(j, kk + r)));
        }
#pragma unroll
        for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++)
                warp_mma_bf16(c[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
}

__device__ void store2(const grouped_problem &p, int64_t at, float x, float y)
{
    if (p.out_dt == DT_BF16) {
        *(__nv_bfloat162 *)((bf16 *)p.out + at) = __floats2bfloat162_rn(x, y);
        return;
    }
    float2 *out = (float2 *)((float *)p.out + at);
    float2 old = p.add ? *out : float2{ 0, 0 };
    *out = float2{ old.x + x, old.y + y };
}

__device__ void store_tile(const grouped_problem &p, const grouped_tile &t, const warp_sums &c,
                           int m, int n)
{
    int lane = threadIdx.x % 32, height = grouped_height(p, t.rows), width = grouped_width(p);
    int64_t first = p.layout == MM_TN ? (int64_t)t.expert * p.o : t.row;
#pragma unroll
    for (int i = 0; i < WARP_M / 16; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int j = 0; j < WARP_N / 8; j++) {
                int row = t.m + m + i * 16 + h * 8 + lane / 4, col = t.n + n + j * 8 + lane % 4 * 2;
                if (row < height && col < width)
                    store2(p, (first + row) * width + col, p.scale * c[i][j][h * 2],
                           p.scale * c[i][j][h * 2 + 1]);
            }
}

template <mm_layout LAYOUT>
__global__ void __launch_bounds__(THREADS, 2) mma_kernel(const grouped_problem p)
{
    constexpr bool A_K_LAST = LAYOUT != MM_TN, B_K_LAST = LAYOUT == MM_NT;
    extern __shared__ __align__(128) bf16 stages[];
    grouped_tile t;
    if (!grouped_find(p, blockIdx.x, TILE, TILE, &t) || t.rows == 0)
        return;
    int depth = grouped_depth(p, t.rows), blocks = grouped_up(depth, DEPTH);
    int a_ld = LAYOUT == MM_NT ? p.i : p.o;
    int64_t b_row = LAYOUT == MM_TN ? t.row : (int64_t)t.expert * p.o;
    operand a = { (const bf16 *)p.a + (int64_t)t.row * a_ld, a_ld, grouped_height(p, t.rows),
                  depth };
    operand b = { (const bf16 *)p.b + b_row * p.i, p.i, grouped_width(p), depth };
    int warp = threadIdx.x / 32, m = warp % 2 * WARP_M, n = warp / 2 * WARP_N;
    warp_sums c = {};
    auto load_stage = [&](int k) {
        if (k < blocks) {
            bf16 *to = stages + k % STAGES * 2 * OPERAND;
            load_operand<A_K_LAST>(to, a, t.m, k * DEPTH);
            load_operand<B_K_LAST>(to + OPERAND, b, t.n, k * DEPTH);
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int k = 0; k < STAGES - 1; k++)
        load_stage(k);
    for (int k = 0; k < blocks; k++) {
        /* after the barrier stage k has arrived, and stage k - 1, which is filled next, is read */
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        load_stage(k + STAGES - 1);
        const bf16 *from = stages + k % STAGES * 2 * OPERAND;
        multiply_stage<A_K_LAST, B_K_LAST>(c, from, from + OPERAND, m, n);
    }
    store_tile(p, t, c, m, n);
}

template <mm_layout LAYOUT> void launch(cuda_device *d, const grouped_problem &p)
{
    cudaError_t e = cudaFuncSetAttribute(mma_kernel<LAYOUT>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (e != cudaSuccess) {
        cuda_fail(d, e, "grouped_matmul");
        return;
    }
    mma_kernel<LAYOUT><<<grouped_tiles(p, TILE, TILE), THREADS, SHARED, d->stream>>>(p);
    cuda_launched(d, "grouped_matmul");
}

} // namespace

void grouped_mma_launch(cuda_device *d, const grouped_problem &p)
{
    if (p.layout == MM_NT)
        launch<MM_NT>(d, p);
    else if (p.layout == MM_NN)
        launch<MM_NN>(d, p);
    else
        launch<MM_TN>(d, p);
}
