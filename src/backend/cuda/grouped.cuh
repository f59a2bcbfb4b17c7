/* grouped: what the kernels of grouped products (grouped GEMM) share.
 *
 * Every layout is C [M,N] = A [M,K] B [N,K]^T for each expert:
 *        M      N   K      A                  B
 *   NT   rows   O   I      a [M,K]            b[e] [N,K]
 *   NN   rows   I   O      a [M,K]            b[e] [K,N]
 *   TN   O      I   rows   a [K,M]            b [K,N]; C is added to out[e], or written there
 * where `rows` are those of the expert, which the device reads from the offsets. The host knows
 * only their total, so a kernel launches as many tiles as there can be. */
#ifndef PESC_BACKEND_CUDA_GROUPED_CUH
#define PESC_BACKEND_CUDA_GROUPED_CUH

#include "backend/cuda/products.h"

struct grouped_problem {
    mm_layout layout;
    dtype a_dt, b_dt, out_dt;
    const void *a, *b;
    void *out;
    const int *offsets; /* [experts + 1], on the device */
    int experts, rows;  /* rows of all experts */
    int o, i;           /* of one expert's w [O,I] */
    float scale;
    bool add; /* C is added to `out` */
};

/* A tile of C at (m, n); its expert has `rows` of the sorted rows, from `row` on. */
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

/* Whether the tensor-core kernels can load all operands: whole 16-byte pieces in every row; and TN
 * accumulates in f32. */
static inline bool grouped_aligned(const grouped_problem &p)
{
    uintptr_t together = (uintptr_t)p.a | (uintptr_t)p.b | (uintptr_t)p.out;
    bool out = p.layout == MM_TN ? p.out_dt == DT_F32 : true;
    return out && p.o % 8 == 0 && p.i % 8 == 0 && together % 16 == 0;
}

/* ---- the table: CUDA_GROUPED of cuda_kernels.h ---- */

struct grouped_kernel {
    kernel_traits traits;
    bool (*fits)(const grouped_problem &p); /* NULL: whatever the traits allow */
    void (*launch)(cuda_device *d, const grouped_problem &p);
};

extern const grouped_kernel grouped_kernels[];
extern const int n_grouped_kernels;

bool grouped_serves(const grouped_kernel &k, const cuda_device *d, const grouped_problem &p);

/* A few rows, NT: a warp for each output, which reads NF4 as it is. */
bool grouped_gemv_fits(const grouped_problem &p);
void grouped_gemv_launch(cuda_device *d, const grouped_problem &p);

/* Tensor cores, with Hopper's wgmma and with mma.sync. */
bool grouped_wgmma_fits(const grouped_problem &p);
void grouped_wgmma_launch(cuda_device *d, const grouped_problem &p);
void grouped_mma_launch(cuda_device *d, const grouped_problem &p);

/* Everything: f32 arithmetic without tensor cores. */
void grouped_plain_launch(cuda_device *d, const grouped_problem &p);

#endif
