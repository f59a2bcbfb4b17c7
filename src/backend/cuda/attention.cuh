/* attention: what the attention kernels share.
 *
 * Every kernel works on tiles: 128 consecutive rows of one sequence, for one head. Only the device
 * knows where sequences begin, so a small kernel lists the tiles first, sorted so that those with
 * the most keys come first (longest job first). The host launches as many blocks as there can be;
 * blocks past the end of the list exit at once.
 *
 * Within a sequence rows are numbered from 0. Query row i is at position past + i, where past is 0
 * without pages, and sees the keys (past + i - window, past + i]. */
#ifndef PESC_BACKEND_CUDA_ATTENTION_CUH
#define PESC_BACKEND_CUDA_ATTENTION_CUH

#include "backend/cuda/cuda.h"
#include "backend/cuda/warp.cuh"

#include <cuda_bf16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;

/* RoPE that is still to be applied to q and k: to pairs of the first 2 half columns of a head. */
typedef struct attn_rope {
    const float *cos, *sin; /* [T, half] */
    int32_t half;           /* 0: none */
    bool interleaved;
} attn_rope;

typedef struct attn_args {
    const void *q;               /* [T, heads * qk_dim] */
    const void *k, *v;           /* rows of the pass [T, kv_heads * dim], or pages */
    void *out;                   /* [T, heads * v_dim] */
    float *lse;                  /* [T, heads]; NULL: not wanted */
    const int32_t *starts, *pos; /* [n_seq + 1] [T] */
    const int32_t *table;        /* [n_seq, max_pages]; NULL: no pages */
    int32_t max_pages, page_tokens;
    int32_t n_tokens, n_seq, n_heads, n_kv_heads, group;
    int32_t qk_dim, v_dim, window;
    float scale, softcap; /* softcap > 0: only the kernels that take one row at a time */
    bool q_bf16, kv_bf16, out_bf16;
    attn_rope rope;
} attn_args;

typedef struct attn_bwd_args {
    attn_args f;
    const void *dout;   /* like out */
    void *dq, *dk, *dv; /* like q, k, v */
    float *delta;       /* [T, heads]: D */
    float4 *stats;      /* [T, heads]: lse log2(e), D, and padding to 16 bytes; NULL: not wanted */
    bool dout_bf16, grad_bf16;
} attn_bwd_args;

/* Rows [first, first + block) of the sequence whose rows of the pass are [start, start + length).
 * length 0: no tile. */
typedef struct attn_tile {
    int32_t start, length, first, seq;
} attn_tile;

typedef struct attn_tiles {
    attn_tile *list;
    int32_t max; /* an upper bound of their number */
} attn_tiles;

attn_args attn_args_of(const attention *a);

/* Keys that the pages of a sequence have room for. */
static inline int64_t attn_cached(const attn_args *a)
{
    return (int64_t)a->max_pages * a->page_tokens;
}

/* The list of tiles of ATTENTION_ROWS rows, of sequences with at least `min_rows` rows, in
 * scratch: scratch_tiles() bytes. */
attn_tiles attn_tiles_list(cuda_device *c, const attn_args *a, int32_t min_rows, void *scratch);

/* Kernels with Hopper's TMA and wgmma. Forward returns false, and launches nothing, where it does
 * not serve these types and sizes. Backward reads b->stats. */
bool attn_sm90_fwd(cuda_device *c, const attn_args *a);
bool attn_sm90_bwd_fits(const attn_bwd_args *b);
void attn_sm90_bwd(cuda_device *c, const attn_bwd_args *b, attn_tiles tiles);

/* Forward in f32 arithmetic, for the types and sizes that it fits. */
bool attn_tile_fits(const cuda_device *c, const attn_args *a);
void attn_tile_fwd(cuda_device *c, const attn_args *a, attn_tiles tiles);

/* The new rows of k and v, which are to be stored in the pages. */
typedef struct attn_new_kv {
    const void *k, *v;
    bool is_bf16;
} attn_new_kv;

void attn_store_pages(cuda_device *c, const attn_args *a, attn_new_kv rows);

/* Decoding: sequences of one row against their pages, the keys split in parts. Where a pass has no
 * more rows than sequences it is all decoding: then attn_decode() does every row, and stores the
 * new rows too. */
size_t attn_decode_bytes(const attn_args *a);
bool attn_decode_rotates(const attn_args *a, attn_new_kv rows); /* whether it applies a->rope */
void attn_decode(cuda_device *c, const attn_args *a, attn_new_kv rows, void *scratch);
static inline bool attn_decode_only(const attn_args *a)
{
    return a->table && a->n_tokens <= a->n_seq;
}

/* More than 48 KiB of dynamic shared memory is an attribute of the kernel. */
template <typename K> static inline void attn_allow_smem(cuda_device *c, K kernel, size_t bytes)
{
    cudaError_t e =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (e != cudaSuccess)
        cuda_fail(c, e, "attention: shared memory");
}

/* Whether all tensors are bf16, as the tensor-core kernels need it. */
static inline bool attn_all_bf16(const attn_args *a)
{
    return a->q_bf16 && a->kv_bf16 && a->out_bf16;
}

#ifdef __CUDACC__

static constexpr float LOG2E = 1.4426950408889634f;

__device__ inline float attn_load(const void *p, int64_t i, bool is_bf16)
{
    return is_bf16 ? __bfloat162float(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

__device__ inline void attn_store(void *p, int64_t i, bool is_bf16, float x)
{
    if (is_bf16)
        ((bf16 *)p)[i] = __float2bfloat16(x);
    else
        ((float *)p)[i] = x;
}

/* The sequence that holds row t. Empty sequences hold none. */
__device__ inline int32_t attn_seq_of(const attn_args &a, int32_t t)
{
    int32_t low = 0, high = a.n_seq - 1;
    if (t <= high && a.starts[t] <= t && t < a.starts[t + 1])
        return t; /* one row each: decoding */
    while (low < high) {
        int32_t mid = (low + high + 1) / 2;
        if (a.starts[mid] <= t)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Finds row j of a sequence's keys and values, in pages or among the rows of the pass. */
typedef struct attn_keys {
    const int32_t *table;
    int32_t page_tokens, start;
    __device__ int64_t row(int32_t j) const
    {
        if (!table)
            return start + j;
        return (int64_t)table[j / page_tokens] * page_tokens + j % page_tokens;
    }
} attn_keys;

__device__ inline attn_keys attn_keys_of(const attn_args &a, int32_t seq, int32_t start)
{
    return attn_keys{ a.table ? a.table + (int64_t)seq * a.max_pages : nullptr, a.page_tokens,
                      start };
}

/* RoPE of columns i and j of a row, pair number n of cos and sin; columns past the rotated ones
 * stay as they are. The same bits as rope.cu. */
struct rotated_pair {
    int i, j;
    bf16 a, b;

    __device__ rotated_pair(const bf16 *row, const attn_rope &r, int32_t t, int n)
    {
        bool apart = n < r.half && !r.interleaved;
        i = apart ? n : 2 * n;
        j = apart ? n + r.half : 2 * n + 1;
        a = row[i], b = row[j];
        if (n >= r.half)
            return;
        float x = __bfloat162float(a), y = __bfloat162float(b);
        float c = r.cos[t * r.half + n], s = r.sin[t * r.half + n];
        a = __float2bfloat16_rn(__fsub_rn(__fmul_rn(x, c), __fmul_rn(y, s)));
        b = __float2bfloat16_rn(__fadd_rn(__fmul_rn(y, c), __fmul_rn(x, s)));
    }

    __device__ void store(bf16 *row) const
    {
        row[i] = a;
        row[j] = b;
    }
};

/* 2^x; subnormal results become 0. */
__device__ inline float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* One query row and head by one warp, for any type and size: online softmax over keys [low, last],
 * 32 at a time, a lane for each. q [qk_dim] and acc [v_dim] are in shared memory; acc receives the
 * weighted sum of values, not yet divided by `sum`. */
typedef struct attn_row {
    float max, sum;
} attn_row;

__device__ inline attn_row attn_row_online_softmax(const attn_args &a, attn_keys keys,
                                                   int32_t kv_head, int32_t low, int32_t last,
                                                   const float *q, float *acc)
{
    int lane = threadIdx.x & 31;
    int64_t k_width = (int64_t)a.n_kv_heads * a.qk_dim, v_width = (int64_t)a.n_kv_heads * a.v_dim;
    int64_t k_col = (int64_t)kv_head * a.qk_dim, v_col = (int64_t)kv_head * a.v_dim;
    attn_row r = { -INFINITY, 0.0f };
    for (int i = lane; i < a.v_dim; i += 32)
        acc[i] = 0.0f;
    for (int32_t base = low; base <= last; base += 32) {
        int32_t n = min(32, last + 1 - base), row = 0;
        float s = -INFINITY;
        if (lane < n) {
            row = (int32_t)keys.row(base + lane);
            s = 0.0f;
            for (int i = 0; i < a.qk_dim; i++)
                s += q[i] * attn_load(a.k, row * k_width + k_col + i, a.kv_bf16);
            s *= a.scale;
            if (a.softcap > 0)
                s = a.softcap * tanhf(s / a.softcap);
        }
        float top = fmaxf(r.max, warp_max(s)), rescale = expf(r.max - top), p = expf(s - top);
        r.sum = r.sum * rescale + warp_sum(p);
        r.max = top;
        for (int i = lane; i < (a.v_dim + 31) / 32 * 32; i += 32) {
            float x = i < a.v_dim ? acc[i] * rescale : 0.0f;
            for (int j = 0; j < n; j++) {
                float w = __shfl_sync(~0u, p, j);
                int64_t at = __shfl_sync(~0u, row, j);
                if (i < a.v_dim)
                    x += w * attn_load(a.v, at * v_width + v_col + i, a.kv_bf16);
            }
            if (i < a.v_dim)
                acc[i] = x;
        }
    }
    return r;
}

__device__ inline uint32_t smem_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* ---- cp.async: copies to shared memory; zeros where not valid ---- */

__device__ inline void cp_async16(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ inline void cp_async4(uint32_t to, const void *from, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(valid ? 4 : 0)
                 : "memory");
}

__device__ inline void cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> __device__ inline void cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- mma.m16n8k16 ----
 * Lane l holds rows l/4 and l/4 + 8 of an accumulator, columns 2(l%4) and the next. Two
 * neighbouring accumulators, rounded to bf16, have the layout of a first operand: so softmax
 * weights stay in registers between the two products of attention. */

__device__ inline void ldmatrix4(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ inline void ldmatrix4_trans(uint32_t r[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Rows of D elements in shared memory. They are an odd number of 16-byte pieces apart, so the 8
 * rows that one ldmatrix reads are in different banks. */
template <int D> struct attn_rows {
    static constexpr int STRIDE = D + 8, BYTES = STRIDE * 2;

    /* Addresses for ldmatrix4. left: a first operand at (row, col), or a second one whose k are its
     * rows (transposed). right: a second operand whose k are its columns. */
    static __device__ inline uint32_t left(uint32_t base, int row, int col)
    {
        int lane = threadIdx.x & 31;
        return base + (row + (lane & 15)) * BYTES + (col + (lane >> 4) * 8) * 2;
    }
    static __device__ inline uint32_t right(uint32_t base, int row, int col)
    {
        int lane = threadIdx.x & 31;
        return base + (row + (lane & 7) + (lane >> 4) * 8) * BYTES +
               (col + ((lane >> 3) & 1) * 8) * 2;
    }

    /* Copies rows [first, first + N) of x (which points at a head's first column; rows are `width`
     * apart); zeros from row `limit` on. first < limit, and with pages a multiple of N: then the
     * rows are in one page, unless pages have fewer than N. */
    template <int N, int THREADS>
    static __device__ inline void load(uint32_t to, const bf16 *x, int64_t width, attn_keys at,
                                       int first, int limit)
    {
        constexpr int PIECES = D / 8;
        bool together = !at.table || at.page_tokens % N == 0;
        int64_t start = together ? at.row(first) : 0;
#pragma unroll
        for (int i = 0; i < (N * PIECES + THREADS - 1) / THREADS; i++) {
            int piece = i * THREADS + threadIdx.x, row = piece / PIECES, col = piece % PIECES;
            if (N * PIECES % THREADS != 0 && piece >= N * PIECES)
                break;
            bool valid = first + row < limit;
            int64_t from_row = together ? start + row : at.row(valid ? first + row : first);
            const bf16 *from = valid ? x + from_row * width + col * 8 : x;
            cp_async16(to + row * BYTES + col * 16, from, valid);
        }
    }
};

/* out [16 MT, 8 NB] += a [16 MT, D] b [8 NB, D]^T, both in shared memory. */
template <int D, int NB, int MT>
__device__ inline void mma_row_products(float (*out)[NB][4], uint32_t a, int row, uint32_t b)
{
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t left[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
            ldmatrix4(left[m], attn_rows<D>::left(a, row + m * 16, k));
#pragma unroll
        for (int n = 0; n < NB; n += 2) {
            uint32_t right[4];
            ldmatrix4(right, attn_rows<D>::right(b, n * 8, k));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                warp_mma_bf16(out[m][n], left[m], right[0], right[1]);
                warp_mma_bf16(out[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* out [16 MT, D] += w [16 MT, 8 NB] b [8 NB, D]: w in registers, b in shared memory. */
template <int D, int NB, int MT>
__device__ inline void mma_weighted_sum(float (*out)[D / 8][4], const float (*w)[NB][4], uint32_t b)
{
#pragma unroll
    for (int k = 0; k < NB; k += 2) {
        uint32_t left[MT][4];
#pragma unroll
        for (int m = 0; m < MT; m++) {
            left[m][0] = warp_pack_bf16(w[m][k][0], w[m][k][1]);
            left[m][1] = warp_pack_bf16(w[m][k][2], w[m][k][3]);
            left[m][2] = warp_pack_bf16(w[m][k + 1][0], w[m][k + 1][1]);
            left[m][3] = warp_pack_bf16(w[m][k + 1][2], w[m][k + 1][3]);
        }
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t right[4];
            ldmatrix4_trans(right, attn_rows<D>::left(b, k * 8, n * 8));
#pragma unroll
            for (int m = 0; m < MT; m++) {
                warp_mma_bf16(out[m][n], left[m], right[0], right[1]);
                warp_mma_bf16(out[m][n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* Stores a row of a warp's accumulators, registers r and r + 1 of each 8 columns, as bf16. The four
 * lanes of a row transpose their pairs of columns, so that each stores 8 neighbours at once. */
template <int NB>
__device__ inline void store_row(bf16 *row, const float (*x)[4], int r, float scale, bool valid)
{
    int lane = threadIdx.x & 3;
#pragma unroll
    for (int n = 0; n < NB / 4 * 4; n += 4) {
        uint32_t w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = warp_pack_bf16(x[n + i][r] * scale, x[n + i][r + 1] * scale);
        warp_transpose4(w);
        if (valid)
            *(uint4 *)(row + (n + lane) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
    }
#pragma unroll
    for (int n = NB / 4 * 4; n < NB; n++)
        if (valid)
            *(uint32_t *)(row + n * 8 + lane * 2) =
                warp_pack_bf16(x[n][r] * scale, x[n][r + 1] * scale);
}

#endif
#endif
