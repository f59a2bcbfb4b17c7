/* tile: small products that live in registers, for attention.
 *
 * out[r][c] (+)= sum_i a[r][i] b[i][c], the i in order, one chain of multiply-adds for each
 * element: so an element's bits do not depend on how many rows or columns are computed with it.
 * That is what lets one decoded row equal the same row inside a prefill tile. */
#ifndef PESC_BACKEND_CPU_OPS_TILE_H
#define PESC_BACKEND_CPU_OPS_TILE_H

#include "backend/cpu/ops/vec.h"

enum {
    TILE_ROWS = 6,                        /* rows kept in registers together */
    TILE_PANEL = VEC_BYTES == 64 ? 4 : 2, /* by so many vectors: 24 of 32, or 12 of 16 registers */
};

typedef struct tile {
    float *out;
    const float *a, *b;
    int64_t out_stride, a_stride, b_stride; /* in floats */
    int64_t rows, n, cols;                  /* cols: whole vectors; out and b are 64-byte aligned */
    bool fresh;                             /* out starts from zero, not from what it holds */
} tile;

static inline __attribute__((always_inline)) void tile_panel(const tile *t, int64_t row,
                                                             int64_t col, int rows, int vecs)
{
    vf sum[TILE_ROWS][TILE_PANEL] = { 0 };
    float *out = t->out + row * t->out_stride + col;
    const float *a = t->a + row * t->a_stride, *b = t->b + col;
    for (int r = 0; r < rows && !t->fresh; r++)
        for (int v = 0; v < vecs; v++)
            sum[r][v] = *(const vf *)(out + r * t->out_stride + v * VEC_LANES);
    for (int64_t i = 0; i < t->n; i++, b += t->b_stride)
        for (int r = 0; r < rows; r++) {
            vf x = vec_set(a[r * t->a_stride + i]);
            for (int v = 0; v < vecs; v++)
                sum[r][v] = vec_fma(x, *(const vf *)(b + v * VEC_LANES), sum[r][v]);
        }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < vecs; v++)
            *(vf *)(out + r * t->out_stride + v * VEC_LANES) = sum[r][v];
}

static inline __attribute__((always_inline)) void tile_rows(const tile *t, int64_t row, int rows)
{
    int64_t col = 0;
    for (; col + TILE_PANEL * VEC_LANES <= t->cols; col += TILE_PANEL * VEC_LANES)
        tile_panel(t, row, col, rows, TILE_PANEL);
    for (; col < t->cols; col += VEC_LANES)
        tile_panel(t, row, col, rows, 1);
}

static inline void tile_product(const tile *t)
{
    for (int64_t row = 0; row < t->rows; row += TILE_ROWS)
        switch (t->rows - row) {
        case 1:
            tile_rows(t, row, 1);
            break;
        case 2:
            tile_rows(t, row, 2);
            break;
        case 3:
            tile_rows(t, row, 3);
            break;
        case 4:
            tile_rows(t, row, 4);
            break;
        case 5:
            tile_rows(t, row, 5);
            break;
        default:
            tile_rows(t, row, TILE_ROWS);
        }
}

/* ---- transposing ---- */

typedef float v4 __attribute__((vector_size(16)));
typedef uint32_t v4u __attribute__((vector_size(16)));
typedef uint16_t v4h __attribute__((vector_size(8)));
typedef float v4_any __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint16_t v4h_any __attribute__((vector_size(8), aligned(2), may_alias));

static inline v4 tile_load4(const void *row, int64_t i, int64_t left, dtype dt)
{
    v4 x = { 0 };
    v4h h = { 0 };
    if (dt == DT_F32) {
        if (left >= 4)
            return *(const v4_any *)((const float *)row + i);
        memcpy(&x, (const float *)row + i, (size_t)left * 4);
        return x;
    }
    if (left >= 4)
        h = *(const v4h_any *)((const uint16_t *)row + i);
    else
        memcpy(&h, (const uint16_t *)row + i, (size_t)left * 2);
    return (v4)(__builtin_convertvector(h, v4u) << 16);
}

static inline __attribute__((always_inline)) void tile_four_by_four(float *out, int64_t stride,
                                                                    const void *const rows[4],
                                                                    int64_t i, int64_t left,
                                                                    dtype dt)
{
    v4 a = tile_load4(rows[0], i, left, dt), b = tile_load4(rows[1], i, left, dt);
    v4 c = tile_load4(rows[2], i, left, dt), d = tile_load4(rows[3], i, left, dt);
    v4 ab0 = __builtin_shufflevector(a, b, 0, 4, 1, 5),
       ab1 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    v4 cd0 = __builtin_shufflevector(c, d, 0, 4, 1, 5),
       cd1 = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(v4 *)out = __builtin_shufflevector(ab0, cd0, 0, 1, 4, 5);
    *(v4 *)(out + stride) = __builtin_shufflevector(ab0, cd0, 2, 3, 6, 7);
    *(v4 *)(out + 2 * stride) = __builtin_shufflevector(ab1, cd1, 0, 1, 4, 5);
    *(v4 *)(out + 3 * stride) = __builtin_shufflevector(ab1, cd1, 2, 3, 6, 7);
}

/* Four rows of n numbers become columns 0..3 of out [n rounded up to 4][stride], in f32. */
static inline __attribute__((always_inline)) void
tile_transpose4(float *out, int64_t stride, const void *const rows[4], int64_t n, dtype dt)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        tile_four_by_four(out + i * stride, stride, rows, i, 4, dt);
    if (i < n)
        tile_four_by_four(out + i * stride, stride, rows, i, n - i, dt);
}

#endif
