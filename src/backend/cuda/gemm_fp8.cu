/* gemm_fp8: the gradient of the input of frozen weights, dX [M,I] = dY [M,O] W [O,I], with both
 * operands rounded to fp8 (e4m3) on Hopper. The terms of a sum that are not frozen weights, such as
 * LoRA, stay bf16; gemm_wgmma.cu adds all of them in one pass over dX.
 *
 * Scales are powers of two, so that applying them rounds nothing: of dY one for each row, over all
 * fp8 terms of the sum, and of W one for all of them. Both can be taken out of the sum over O. A
 * value keeps e4m3's relative precision (3 bits after the first) down to 2^-15 of the largest.
 *
 * Three launches prepare a product, each for all of its terms, all bound by memory:
 *   largest    finds the largest magnitude in W: of NF4 the scales of its blocks have it
 *   transpose  turns W [O,I] in NF4 or bf16 into [I,O] in fp8, because wgmma reads fp8 only with k
 *              (here O) last: a block has 128 rows of 64 columns, and turns them in shared memory
 *   rows       rounds dY: a block has a row, and holds it in registers between its largest
 *              magnitude and its values */
#include "backend/cuda/gemm_wgmma.cuh"
#include "backend/cuda/vec.cuh"

#include <cuda_fp8.h>
#include <string.h>

extern "C" {
#include "tensor/nf4.h"
}

namespace
{

enum {
    MAX_TERMS = 3, /* q, k and v */
    TILE_O = 128,
    TILE_I = 64,
    PIECES = TILE_O / 16 /* of 16 bytes in a row of the turned tile */
};

/* The exponent of the power of two by which values up to `most` are divided: they are then at most
 * 448 = 1.75 * 2^8, the largest that e4m3 has. */
__device__ int exponent_for(float most)
{
    int bits = __float_as_int(most), e = (bits >> 23) - 127 - 8;
    return max((bits & 0x7fffff) > 0x600000 ? e + 1 : e, -100);
}

__device__ float power_of_two(int exponent)
{
    return __int_as_float((exponent + 127) << 23);
}

/* Not finite: NaN, so that all of the result is. */
__device__ float scale_for(float most)
{
    return most <= 3e38f ? power_of_two(exponent_for(most)) : __int_as_float(INT32_MAX);
}

__device__ float inverse_for(float most)
{
    return power_of_two(-exponent_for(most));
}

__device__ uint32_t pack_fp8(float a, float b, float c, float d)
{
    uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(a, b), __NV_SATFINITE, __NV_E4M3);
    return low | (uint32_t)__nv_cvt_float2_to_fp8x2(make_float2(c, d), __NV_SATFINITE, __NV_E4M3)
                     << 16;
}

/* The larger of all threads' bits of magnitudes, in every thread of a block of VEC_THREADS. */
__device__ int32_t block_max(int32_t bits)
{
    __shared__ int32_t warps[VEC_THREADS / WARP];
    bits = __reduce_max_sync(0xffffffffu, bits);
    if (threadIdx.x % WARP == 0)
        warps[threadIdx.x / WARP] = bits;
    __syncthreads();
    for (int w = 0; w < VEC_THREADS / WARP; w++)
        bits = max(bits, warps[w]);
    return bits;
}

__device__ int32_t magnitude(float x)
{
    return __float_as_int(x) & INT32_MAX;
}

/* ---- W ---- */

/* W of one term. */
struct frozen {
    const uint32_t *codes; /* of NF4; NULL: bf16 */
    const void *values;    /* of NF4 the scales, f32; else bf16 [rows,cols] */
    unsigned char *turned; /* [cols,rows] in fp8 */
    int64_t rows;
    int first_tile; /* tiles of rows are counted through all terms */
};

struct frozen_terms {
    frozen term[MAX_TERMS];
    int n;
    int64_t cols;
    float code[16]; /* of NF4 */
    float *scale;   /* [2]: that of W, and its inverse */
};

template <class T> __device__ int32_t largest_of(const T *x, int64_t n)
{
    constexpr int W = vec_width<T>;
    int32_t bits = 0;
#pragma unroll 4
    for (int64_t i = (int64_t)(blockIdx.x * VEC_THREADS + threadIdx.x) * W; i < n;
         i += (int64_t)gridDim.x * VEC_THREADS * W) {
        float v[W];
        vec_load<W>(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            bits = max(bits, magnitude(v[j]));
    }
    return bits;
}

/* A maximum is the same in any order, so that atomics do not change a bit. The block that arrives
 * last finds it complete, and leaves both counters at 0. */
__global__ void __launch_bounds__(VEC_THREADS)
    largest_kernel(const __grid_constant__ frozen_terms w, unsigned *most, unsigned *arrived)
{
    int32_t bits = 0;
    for (int t = 0; t < w.n; t++) {
        const frozen &f = w.term[t];
        int64_t n = f.rows * w.cols;
        bits = max(bits, f.codes ? largest_of((const float *)f.values, n / NF4_BLOCK)
                                 : largest_of((const bf16 *)f.values, n));
    }
    bits = block_max(bits);
    if (threadIdx.x != 0)
        return;
    atomicMax(most, (unsigned)bits);
    __threadfence();
    if (atomicAdd(arrived, 1) + 1 < gridDim.x)
        return;
    float largest = __uint_as_float(atomicExch(most, 0));
    *arrived = 0;
    w.scale[0] = scale_for(largest);
    w.scale[1] = inverse_for(largest);
}

/* Columns [i, i + 8) of four rows from o on, divided by W's scale; zeros past the last row. All
 * loads come first. */
__device__ void load_rows(float (&x)[4][8], const frozen_terms &w, const frozen &f, int64_t o,
                          int64_t i, const float *code)
{
    float inverse = w.scale[1];
    if (f.codes) {
        uint32_t word[4];
        float scale[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int64_t at = (o + j) * w.cols + i;
            bool there = o + j < f.rows;
            word[j] = there ? f.codes[at / 8] : 0;
            scale[j] = there ? ((const float *)f.values)[at / NF4_BLOCK] * inverse : 0;
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                x[j][c] = code[word[j] >> (c / 2 * 8 + (1 - c % 2) * 4) & 15] * scale[j];
    } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (o + j < f.rows)
                vec_load<8>(x[j], (const bf16 *)f.values + (o + j) * w.cols + i);
            else
                for (int c = 0; c < 8; c++)
                    x[j][c] = 0;
#pragma unroll
        for (int j = 0; j < 4; j++)
            for (int c = 0; c < 8; c++)
                x[j][c] *= inverse;
    }
}

/* A thread has eight columns of four rows, and writes four rows of a column as one word; the eight
 * threads of four rows read whole sectors. In shared memory the pieces of a turned row change
 * places, by the thread of eight that writes them, so that neither side has bank conflicts. */
__global__ void __launch_bounds__(VEC_THREADS)
    transpose_kernel(const __grid_constant__ frozen_terms w)
{
    __shared__ float code[16];
    __shared__ uint4 turned[TILE_I][PIECES];
    int t = 0, eight = threadIdx.x % 8, four = threadIdx.x / 8;
    while (t + 1 < w.n && (int)blockIdx.y >= w.term[t + 1].first_tile)
        t++;
    const frozen &f = w.term[t];
    int64_t first_o = (int64_t)((int)blockIdx.y - f.first_tile) * TILE_O;
    int64_t first_i = (int64_t)blockIdx.x * TILE_I;
    if (threadIdx.x < 16)
        code[threadIdx.x] = w.code[threadIdx.x];
    __syncthreads();
    float x[4][8];
    load_rows(x, w, f, first_o + four * 4, first_i + eight * 8, code);
#pragma unroll
    for (int c = 0; c < 8; c++)
        ((uint32_t *)&turned[eight * 8 + c][four / 4 ^ eight])[four % 4] =
            pack_fp8(x[0][c], x[1][c], x[2][c], x[3][c]);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_I * PIECES; i += VEC_THREADS) {
        int col = i / PIECES, piece = i % PIECES;
        int64_t o = first_o + piece * 16;
        if (o < f.rows)
            *(uint4 *)(f.turned + (first_i + col) * f.rows + o) = turned[col][piece ^ col / 8];
    }
}

/* ---- dY ---- */

/* Vectors of eight columns, counted through all terms. */
struct fp8_rows {
    struct {
        const bf16 *x;
        unsigned char *out;
        int64_t ld, cols;
        int first;
    } term[MAX_TERMS];
    int n, vectors;
    float *scale; /* [rows] */
};

__device__ int term_of(const fp8_rows &a, int vector)
{
    int t = 0;
    while (t + 1 < a.n && vector >= a.term[t + 1].first)
        t++;
    return t;
}

__device__ uint4 load_vector(const fp8_rows &a, int64_t row, int vector)
{
    const auto &t = a.term[term_of(a, vector)];
    return *(const uint4 *)(t.x + row * t.ld + (vector - t.first) * 8);
}

/* The larger magnitudes of two pairs of bf16, compared as integers. */
__device__ uint32_t larger_pair(uint32_t most, uint32_t pair)
{
    return __vmaxu2(most, pair & 0x7fff7fffu);
}

__device__ uint32_t larger_vector(uint32_t most, uint4 v)
{
    return larger_pair(larger_pair(most, v.x),
                       larger_pair(larger_pair(v.y & 0x7fff7fffu, v.z), v.w));
}

__device__ uint32_t round_pairs(uint32_t two, uint32_t more, float inverse)
{
    float x[4];
    warp_unpack_bf16(x[0], x[1], two);
    warp_unpack_bf16(x[2], x[3], more);
    return pack_fp8(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse);
}

__device__ void store_vector(const fp8_rows &a, int64_t row, int vector, uint4 v, float inverse)
{
    const auto &t = a.term[term_of(a, vector)];
    *(uint2 *)(t.out + row * t.cols + (vector - t.first) * 8) =
        make_uint2(round_pairs(v.x, v.y, inverse), round_pairs(v.z, v.w, inverse));
}

/* Each thread holds HELD vectors; those of longer rows are read a second time. */
template <int HELD>
__global__ void __launch_bounds__(VEC_THREADS) rows_kernel(const __grid_constant__ fp8_rows a)
{
    int64_t row = blockIdx.x;
    uint4 held[HELD];
    uint32_t most = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int vector = threadIdx.x + i * VEC_THREADS;
        held[i] = vector < a.vectors ? load_vector(a, row, vector) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < HELD; i++)
        most = larger_vector(most, held[i]);
    for (int v = threadIdx.x + HELD * VEC_THREADS; v < a.vectors; v += VEC_THREADS)
        most = larger_vector(most, load_vector(a, row, v));
    int32_t bits = block_max((int32_t)(max(most & 0xffffu, most >> 16) << 16));
    float largest = __int_as_float(bits), inverse = inverse_for(largest);
    if (threadIdx.x == 0)
        a.scale[row] = scale_for(largest);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int vector = threadIdx.x + i * VEC_THREADS;
        if (vector < a.vectors)
            store_vector(a, row, vector, held[i], inverse);
    }
    for (int v = threadIdx.x + HELD * VEC_THREADS; v < a.vectors; v += VEC_THREADS)
        store_vector(a, row, v, load_vector(a, row, v), inverse);
}

/* ---- launching ---- */

void round_weights(cuda_device *d, const frozen_terms &w, int tiles)
{
    largest_kernel<<<(unsigned)d->n_sm * 2, VEC_THREADS, 0, d->stream>>>(w, d->counters,
                                                                         d->counters + 1);
    dim3 grid((unsigned)(w.cols / TILE_I), (unsigned)tiles);
    transpose_kernel<<<grid, VEC_THREADS, 0, d->stream>>>(w);
}

void round_rows(cuda_device *d, const fp8_rows &a, int64_t rows)
{
    unsigned grid = (unsigned)rows;
    if (a.vectors <= 4 * VEC_THREADS)
        rows_kernel<4><<<grid, VEC_THREADS, 0, d->stream>>>(a);
    else if (a.vectors <= 12 * VEC_THREADS)
        rows_kernel<12><<<grid, VEC_THREADS, 0, d->stream>>>(a);
    else
        rows_kernel<20><<<grid, VEC_THREADS, 0, d->stream>>>(a);
}

bool fp8_term_fits(const mm_pair &p)
{
    int64_t o = tensor_cols(&p.a), i = tensor_cols(&p.b);
    return gemm_term_fits(p) && o % 16 == 0 && i % TILE_I == 0 && (!p.b_ld || p.b_ld == i);
}

} // namespace

/* ---- the row of the table ---- */

bool gemm_fp8_fits(const cuda_device *d, const mm *a)
{
    (void)d;
    bool fits = a->fp8_terms > 0 && a->fp8_terms <= MAX_TERMS && a->n_more < MATMUL_TERMS &&
                a->scale == 1 && gemm_aligned(&a->out, a->out_ld);
    for (int i = 0; fits && i <= a->n_more; i++)
        fits = i > a->n_more - a->fp8_terms
                   ? fp8_term_fits(gemm_term_of(a, i))
                   : gemm_term_fits(gemm_term_of(a, i)) && gemm_term_of(a, i).b.dt == DT_BF16;
    return fits;
}

/* A product whose fp8 terms are prepared in scratch: the two scales of W, those of dY, then dY and
 * W of each term. */
struct fp8_product {
    mm_pair term[MATMUL_TERMS]; /* of fp8 first */
    int n_fp8, n_terms;
    int64_t m, cols; /* of dX */
};

static fp8_product product_of(const mm *a)
{
    fp8_product x = {};
    int n_bf16 = a->n_more + 1 - a->fp8_terms;
    x.n_fp8 = a->fp8_terms;
    x.n_terms = a->n_more + 1;
    x.m = tensor_rows(&a->out);
    x.cols = tensor_cols(&a->out);
    for (int i = 0; i < x.n_terms; i++)
        x.term[i] = gemm_term_of(a, i < x.n_fp8 ? n_bf16 + i : i - x.n_fp8);
    return x;
}

static unsigned char *take_scratch(cuda_device *d, const fp8_product &x)
{
    int64_t columns = 0;
    for (int i = 0; i < x.n_fp8; i++)
        columns += tensor_cols(&x.term[i].a);
    return (unsigned char *)cuda_scratch(d, "matmul", scratch_fp8(x.m, columns, columns * x.cols));
}

/* Rounds the fp8 terms into scratch at `at`, which p's terms then point to. */
static void round_terms(cuda_device *d, const fp8_product &x, gemm_problem *p, unsigned char *at)
{
    fp8_rows rows = {};
    frozen_terms w = {};
    int tiles = 0;
    rows.n = w.n = x.n_fp8;
    rows.scale = (float *)p->row_scale;
    w.scale = (float *)p->weight_scale;
    w.cols = x.cols;
    memcpy(w.code, nf4_code, sizeof w.code);
    for (int i = 0; i < x.n_fp8; i++) {
        const mm_pair &t = x.term[i];
        int64_t o = tensor_cols(&t.a);
        unsigned char *turned = at + scratch_aligned((size_t)(x.m * o));
        const char *data = (const char *)t.b.data;
        bool nf4 = t.b.dt == DT_NF4;
        rows.term[i] = { (const bf16 *)t.a.data, at, t.a_ld ? t.a_ld : o, o, rows.vectors };
        rows.vectors += (int)(o / 8);
        w.term[i] = { nf4 ? (const uint32_t *)data : NULL,
                      nf4 ? data + nf4_codes_bytes(o * x.cols) : data, turned, o, tiles };
        tiles += (int)((o + TILE_O - 1) / TILE_O);
        p->term[i] = { at, turned, o, o, o };
        at = turned + scratch_aligned((size_t)(o * x.cols));
    }
    round_weights(d, w, tiles);
    round_rows(d, rows, x.m);
}

void gemm_fp8_launch(cuda_device *d, const mm *a, int n)
{
    (void)n;
    fp8_product x = product_of(a);
    unsigned char *at = take_scratch(d, x);
    if (!at)
        return;
    gemm_problem p = { MM_NN, a->out.data, x.m, x.cols };
    p.ld = a->out_ld ? a->out_ld : x.cols;
    p.accumulate = a->accumulate;
    p.n_terms = x.n_terms;
    p.n_fp8 = x.n_fp8;
    p.weight_scale = (float *)at;
    p.row_scale = (float *)(at + SCRATCH_ALIGN);
    at += SCRATCH_ALIGN + scratch_aligned((size_t)x.m * sizeof(float));
    round_terms(d, x, &p, at);
    for (int i = x.n_fp8; i < x.n_terms; i++) {
        const mm_pair &t = x.term[i];
        p.term[i] = { t.a.data, t.b.data, tensor_cols(&t.a), t.a_ld ? t.a_ld : tensor_cols(&t.a),
                      t.b_ld ? t.b_ld : tensor_cols(&t.b) };
    }
    gemm_wgmma(d, p);
}
