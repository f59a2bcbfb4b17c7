/* gemm_fp8: the gradient of the input of frozen weights, dX [M,I] = dY [M,O] W [O,I], with both
 * operands rounded to fp8 (e4m3) on Hopper. The terms of a sum that are not frozen weights, such as
 * LoRA, stay bf16; gemm_wgmma.cu adds all of them in one pass over dX.
 *
 * Scales are powers of two, so that applying them rounds nothing: of dY one for each row, over all
 * fp8 terms of the sum, and of W one for all of them. Both can be taken out of the sum over O. A
 * value keeps e4m3's relative precision (3 bits after the first) down to 2^-15 of the largest.
 *
 * Three launches prepare a product, all bound by memory:
 *   largest    the largest magnitude in W: of NF4 the scales of its blocks have it
 *   transpose  W [O,I] in NF4 or bf16 becomes [I,O] in fp8, because wgmma reads fp8 only with k
 * (here O) last: a block has 128 rows of 64 columns, and turns them in shared memory rows       dY
 * becomes fp8, a block for each row: its largest magnitude first, then its values */
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
    PITCH = TILE_O / 4 + 4 /* words of a row of the turned tile */
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

/* A maximum is the same in any order, so that atomics do not change a bit. */
template <class T> __global__ void largest_kernel(const T *x, int64_t n, float *most)
{
    constexpr int W = vec_width<T>;
    int32_t bits = 0;
    for (int64_t i = (int64_t)(blockIdx.x * VEC_THREADS + threadIdx.x) * W; i < n;
         i += (int64_t)gridDim.x * VEC_THREADS * W) {
        float v[W];
        vec_load<W>(v, x + i);
#pragma unroll
        for (int j = 0; j < W; j++)
            bits = max(bits, magnitude(v[j]));
    }
    bits = block_max(bits);
    if (threadIdx.x == 0)
        atomicMax((int32_t *)most, bits);
}

/* most[0] becomes the scale, most[1] its inverse. */
__global__ void scale_kernel(float *most)
{
    float m = most[0];
    most[1] = inverse_for(m);
    most[0] = scale_for(m);
}

/* Eight neighbours of row o, from column i (a multiple of 8). */
struct nf4_rows {
    const uint32_t *codes;
    const float *scales;
    int64_t cols;
    float table[16];

    __device__ void load(float (&x)[8], int64_t o, int64_t i, const float *code) const
    {
        int64_t at = o * cols + i;
        uint32_t word = codes[at / 8];
        float scale = scales[at / NF4_BLOCK];
#pragma unroll
        for (int j = 0; j < 8; j++)
            x[j] = code[word >> (j / 2 * 8 + (1 - j % 2) * 4) & 15] * scale;
    }
};

struct bf16_rows {
    const bf16 *data;
    int64_t cols;
    float table[16]; /* not used */

    __device__ void load(float (&x)[8], int64_t o, int64_t i, const float *) const
    {
        vec_load<8>(x, data + o * cols + i);
    }
};

/* A thread has eight columns of four rows, and writes four rows of a column as one word. */
template <class ROWS>
__global__ void __launch_bounds__(VEC_THREADS)
    transpose_kernel(unsigned char *out, const __grid_constant__ ROWS w, int64_t rows,
                     const float *scales)
{
    __shared__ float code[16];
    __shared__ uint4 turned[TILE_I * PITCH / 4];
    uint32_t *words = (uint32_t *)turned;
    int64_t first_o = (int64_t)blockIdx.y * TILE_O, first_i = (int64_t)blockIdx.x * TILE_I;
    int four = threadIdx.x % 32, eight = threadIdx.x / 32;
    float inverse = scales[1], x[4][8];
    if (threadIdx.x < 16)
        code[threadIdx.x] = w.table[threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int64_t o = first_o + four * 4 + j;
        if (o < rows)
            w.load(x[j], o, first_i + eight * 8, code);
        else
            for (int c = 0; c < 8; c++)
                x[j][c] = 0;
    }
#pragma unroll
    for (int c = 0; c < 8; c++)
        words[(eight * 8 + c) * PITCH + four] =
            pack_fp8(x[0][c] * inverse, x[1][c] * inverse, x[2][c] * inverse, x[3][c] * inverse);
    __syncthreads();
    for (int i = threadIdx.x; i < TILE_I * TILE_O / 16; i += VEC_THREADS) {
        int col = i / (TILE_O / 16), piece = i % (TILE_O / 16);
        int64_t o = first_o + piece * 16;
        if (o < rows)
            *(uint4 *)(out + (first_i + col) * rows + o) = turned[col * (PITCH / 4) + piece];
    }
}

/* ---- dY ---- */

struct fp8_rows {
    int n;
    struct {
        const bf16 *x;
        unsigned char *out;
        int64_t ld, cols;
    } term[MAX_TERMS];
};

__global__ void __launch_bounds__(VEC_THREADS)
    rows_kernel(const __grid_constant__ fp8_rows a, float *scale)
{
    int64_t row = blockIdx.x;
    int32_t bits = 0;
    for (int t = 0; t < a.n; t++)
        for (int64_t i = threadIdx.x * 8; i < a.term[t].cols; i += VEC_THREADS * 8) {
            float v[8];
            vec_load<8>(v, a.term[t].x + row * a.term[t].ld + i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                bits = max(bits, magnitude(v[j]));
        }
    float most = __int_as_float(block_max(bits)), inverse = inverse_for(most);
    if (threadIdx.x == 0)
        scale[row] = scale_for(most);
    for (int t = 0; t < a.n; t++)
        for (int64_t i = threadIdx.x * 8; i < a.term[t].cols; i += VEC_THREADS * 8) {
            float v[8];
            vec_load<8>(v, a.term[t].x + row * a.term[t].ld + i);
#pragma unroll
            for (int j = 0; j < 8; j++)
                v[j] *= inverse;
            *(uint2 *)(a.term[t].out + row * a.term[t].cols + i) =
                make_uint2(pack_fp8(v[0], v[1], v[2], v[3]), pack_fp8(v[4], v[5], v[6], v[7]));
        }
}

/* ---- launching ---- */

void find_largest(cuda_device *d, const tensor *w, float *most)
{
    unsigned blocks = (unsigned)d->n_sm * 4;
    int64_t n = tensor_count(w);
    if (w->dt == DT_NF4) {
        const float *scales = (const float *)((const char *)w->data + nf4_codes_bytes(n));
        largest_kernel<<<blocks, VEC_THREADS, 0, d->stream>>>(scales, n / NF4_BLOCK, most);
    } else {
        largest_kernel<<<blocks, VEC_THREADS, 0, d->stream>>>((const bf16 *)w->data, n, most);
    }
}

void transpose(cuda_device *d, unsigned char *out, const tensor *w, const float *scales)
{
    int64_t rows = tensor_rows(w), cols = tensor_cols(w);
    dim3 grid((unsigned)(cols / TILE_I), (unsigned)((rows + TILE_O - 1) / TILE_O));
    if (w->dt == DT_NF4) {
        const char *codes = (const char *)w->data;
        nf4_rows from = { (const uint32_t *)codes,
                          (const float *)(codes + nf4_codes_bytes(rows * cols)), cols };
        memcpy(from.table, nf4_code, sizeof from.table);
        transpose_kernel<<<grid, VEC_THREADS, 0, d->stream>>>(out, from, rows, scales);
    } else {
        bf16_rows from = { (const bf16 *)w->data, cols };
        transpose_kernel<<<grid, VEC_THREADS, 0, d->stream>>>(out, from, rows, scales);
    }
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

static void find_scale(cuda_device *d, const fp8_product &x, float *scales)
{
    cudaMemsetAsync(scales, 0, sizeof *scales, d->stream);
    for (int i = 0; i < x.n_fp8; i++)
        find_largest(d, &x.term[i].b, scales);
    scale_kernel<<<1, 1, 0, d->stream>>>(scales);
}

/* Rounds the fp8 terms into scratch at `at`, which p's terms then point to. */
static void round_terms(cuda_device *d, const fp8_product &x, gemm_problem *p, unsigned char *at)
{
    fp8_rows rows = { x.n_fp8 };
    for (int i = 0; i < x.n_fp8; i++) {
        const mm_pair &t = x.term[i];
        int64_t o = tensor_cols(&t.a);
        unsigned char *w = at + scratch_aligned((size_t)(x.m * o));
        rows.term[i] = { (const bf16 *)t.a.data, at, t.a_ld ? t.a_ld : o, o };
        p->term[i] = { at, w, o, o, o };
        transpose(d, w, &t.b, p->weight_scale);
        at = w + scratch_aligned((size_t)(o * x.cols));
    }
    rows_kernel<<<(unsigned)x.m, VEC_THREADS, 0, d->stream>>>(rows, (float *)p->row_scale);
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
    find_scale(d, x, (float *)p.weight_scale);
    round_terms(d, x, &p, at);
    for (int i = x.n_fp8; i < x.n_terms; i++) {
        const mm_pair &t = x.term[i];
        p.term[i] = { t.a.data, t.b.data, tensor_cols(&t.a), t.a_ld ? t.a_ld : tensor_cols(&t.a),
                      t.b_ld ? t.b_ld : tensor_cols(&t.b) };
    }
    gemm_wgmma(d, p);
}
