/* attention_sm90: what the Hopper attention kernels share.
 *
 * Warp specialisation: a block is three warpgroups. Two are consumers, with 64 rows of a tile each;
 * one thread of the third is the producer and issues TMA copies. Blocks are persistent, one on each
 * multiprocessor, so that the first copies of a tile overlap the end of the tile before.
 *
 * Shared memory holds panels: 64 columns of some rows, 128 bytes a row, swizzled. A head of D
 * columns has as many panels as it needs, one after the other; columns of the next head in the last
 * one are not multiplied. Accumulators have wgmma's layout: a warp has 16 rows, as in m16n8k16. */
#ifndef PESC_BACKEND_CUDA_ATTENTION_SM90_CUH
#define PESC_BACKEND_CUDA_ATTENTION_SM90_CUH

#include "backend/cuda/attention.cuh"
#include "backend/cuda/hopper.cuh"

enum { PANEL = 64, PANEL_ROW = 128, SM90_THREADS = 384, TILE_ROWS = ATTENTION_ROWS };

/* Columns of the panels of a head. */
template <int D> constexpr int sm90_columns = (D + PANEL - 1) / PANEL *PANEL;

/* The tiles and heads of a launch. */
typedef struct sm90_work {
    const attn_tile *tiles;
    int32_t n_tiles, n_heads;
    bool reversed; /* the list's last tiles have the most work */
} sm90_work;

typedef struct sm90_item {
    attn_tile tile;
    int32_t head;
} sm90_item;

/* A block's next tile and head. The list is sorted by work; blocks take it in serpentine order
 * (every other round backwards), which balances the load. */
typedef struct sm90_scheduler {
    int32_t round;
    __device__ bool next(const sm90_work &w, sm90_item *item)
    {
        int64_t n = (int64_t)w.n_tiles * w.n_heads, blocks = gridDim.x;
        for (; round * blocks < n; round++) {
            int64_t i = round * blocks + (round & 1 ? blocks - 1 - blockIdx.x : blockIdx.x);
            if (i >= n)
                continue;
            int32_t t = (int32_t)(i / w.n_heads);
            item->tile = w.tiles[w.reversed ? w.n_tiles - 1 - t : t];
            item->head = (int32_t)(i % w.n_heads);
            if (item->tile.length == 0)
                continue;
            round++;
            return true;
        }
        return false;
    }
} sm90_scheduler;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A position in a ring of N stages: the stage, and the parity that its barriers have. */
template <int N> struct sm90_ring {
    int32_t n;
    __device__ int stage() const { return n % N; }
    __device__ int parity() const { return n / N & 1; }
};

/* Copies ROWS rows of D columns from (row, col) of a matrix. */
template <int D, int ROWS>
__device__ inline void sm90_load(unsigned char *to, const CUtensorMap *map, uint64_t *bar, int col,
                                 int row)
{
#pragma unroll
    for (int i = 0; i < sm90_columns<D> / PANEL; i++)
#pragma unroll
        for (int r = 0; r < ROWS; r += 64)
            hopper_load(to + (i * ROWS + r) * PANEL_ROW, map, bar, col + i * PANEL, row + r, 0);
}

/* d [64, N] = a [64, D] b [N, D]^T. The panels of a have A_ROWS rows. */
template <int D, int N, int A_ROWS>
__device__ inline void sm90_row_products(float (&d)[N / 2], const unsigned char *a,
                                         const unsigned char *b)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint64_t left = hopper_operand(a + k / PANEL * A_ROWS * PANEL_ROW + k % PANEL * 2, 16);
        uint64_t right = hopper_operand(b + k / PANEL * N * PANEL_ROW + k % PANEL * 2, 16);
        if (k == 0)
            hopper_multiply<true, 0, 0>(d, left, right);
        else
            hopper_multiply<false, 0, 0>(d, left, right);
    }
}

#define F8(d, i)                                                                                   \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])

/* d += a [64, 16] b [16, N]: a in registers, b transposed (a row for each of its 16). */
__device__ inline void sm90_multiply(float (&d)[32], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void sm90_multiply(float (&d)[40], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39}, "
                 "{%40, %41, %42, %43}, %44, 1, 1, 1, 1;"
                 : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24), F8(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void sm90_multiply(float (&d)[48], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
                 "{%48, %49, %50, %51}, %52, 1, 1, 1, 1;"
                 : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24), F8(d, 32), F8(d, 40)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void sm90_multiply(float (&d)[64], const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : F8(d, 0), F8(d, 8), F8(d, 16), F8(d, 24), F8(d, 32), F8(d, 40), F8(d, 48),
                   F8(d, 56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef F8

/* d [64, D] += w [64, N] b [N, D]: weights as bf16 in registers. */
template <int D, int N>
__device__ inline void sm90_weighted_sum(float (&d)[D / 2], const uint32_t (&w)[N / 4],
                                         const unsigned char *b)
{
#pragma unroll
    for (int k = 0; k < N; k += 16)
        sm90_multiply(d, w + k / 4, hopper_operand(b + k * PANEL_ROW, N * PANEL_ROW));
}

/* Accumulators [64, 2 N], rounded, as the first operand of the next product. */
template <int N> __device__ inline void sm90_pack(uint32_t (&w)[N / 2], const float (&s)[N])
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        w[i] = warp_pack_bf16(s[2 * i], s[2 * i + 1]);
}

/* Keeps the compiler from moving uses of registers that wgmma writes to before this point. */
template <int N> __device__ inline void sm90_written(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

#endif
#endif
