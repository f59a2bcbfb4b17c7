/* grouped: what the kernels of grouped products share.
 *
 * Every layout is one form, C [M,N] = A [M,K] B [N,K]^T for each expert:
 *        M      N   K      A                  B
 *   NT   rows   O   I      a [M,K]            b[e] [N,K]
 *   NN   rows   I   O      a [M,K]            b[e] [K,N]
 *   TN   O      I   rows   a [K,M]            b [K,N]; C is added to out[e], or written there
 * where rows are the expert's own, found on the device from its offsets. */
#ifndef PESC_BACKEND_CUDA_GROUPED_CUH
#define PESC_BACKEND_CUDA_GROUPED_CUH

#include "backend/cuda/cuda.h"

struct grouped_problem {
    mm_layout layout;
    dtype a_dt, b_dt, out_dt;
    const void *a, *b;
    void *out;
    const int *offsets; /* [experts + 1], on the device */
    int experts, rows;  /* rows of all experts */
    int o, i;           /* of one expert's w [O,I] */
    float scale;
    bool add; /* to what C holds */
};

/* A tile of C: its expert's rows begin at `row` of the sorted rows, itself at m, n. */
struct grouped_tile {
    int expert, row, rows, m, n;
};

static inline __host__ __device__ int grouped_up(int a, int b)
{
    return (a + b - 1) / b;
}

static inline __host__ __device__ int grouped_width(const grouped_problem &p)
{
    return p.layout == MM_NT ? p.o : p.i;
}

/* M and K of an expert with `rows` rows. */
static inline __host__ __device__ int grouped_height(const grouped_problem &p, int rows)
{
    return p.layout == MM_TN ? p.o : rows;
}

static inline __host__ __device__ int grouped_depth(const grouped_problem &p, int rows)
{
    return p.layout == MM_TN ? rows : p.layout == MM_NT ? p.i : p.o;
}

/* At most this many tiles of tile_m x tile_n, whatever the offsets say. */
static inline int grouped_tiles(const grouped_problem &p, int tile_m, int tile_n)
{
    int busy = p.experts < p.rows ? p.experts : p.rows;
    int down = p.layout == MM_TN ? p.experts * grouped_up(p.o, tile_m) : p.rows / tile_m + busy;
    return down * grouped_up(grouped_width(p), tile_n);
}

/* Tile number `index` counted through all experts; false past the last. */
static inline __device__ bool grouped_find(const grouped_problem &p, int index, int tile_m,
                                           int tile_n, grouped_tile *t)
{
    int across = grouped_up(grouped_width(p), tile_n), down = index / across, row = p.offsets[0];
    for (int e = 0; e < p.experts; e++) {
        int end = p.offsets[e + 1], tiles = grouped_up(grouped_height(p, end - row), tile_m);
        if (down < tiles) {
            *t = { e, row, end - row, down * tile_m, index % across * tile_n };
            return true;
        }
        down -= tiles;
        row = end;
    }
    return false;
}

/* What the tensor-core kernels take: bf16 (out: either; f32 where it accumulates), and whole pieces
 * of 16 bytes in every row. */
static inline bool grouped_aligned(const grouped_problem &p)
{
    uintptr_t together = (uintptr_t)p.a | (uintptr_t)p.b | (uintptr_t)p.out;
    bool types = p.a_dt == DT_BF16 && p.b_dt == DT_BF16;
    bool out = p.layout == MM_TN ? p.out_dt == DT_F32 : true;
    return types && out && p.o % 8 == 0 && p.i % 8 == 0 && together % 16 == 0;
}

/* Each launches its work, or returns false and does nothing. grouped_few: NT of a few rows, the one
 * that reads NF4 too. */
bool grouped_few(cuda_device *d, const grouped_problem &p);
bool grouped_mma(cuda_device *d, const grouped_problem &p);
bool grouped_wgmma(cuda_device *d, const grouped_problem &p);

/* For everything: plain f32 arithmetic. */
bool grouped_plain(cuda_device *d, const grouped_problem &p);

#endif
