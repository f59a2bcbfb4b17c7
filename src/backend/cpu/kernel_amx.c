/* kernel_amx: pairs of bf16 on AMX tiles. A panel of 16 elements by 16 columns is the right tile of
 * an operation, as AVX-512 packs it. A left tile is 16 rows of 16 elements. Packed rows have the
 * form [rows / 16][MM_KC / 16][16][16], so that each left tile is contiguous.
 *
 * Many rows are the left operand, packed or read from the operand's memory where that consists of
 * tiles. For a row panel of 32 rows, 2 x 2 tiles of sums stay in registers while a panel streams
 * past; the sums then go through L1 to the epilogue. With few rows the weights are the left operand
 * and read from memory, and the rows are the right one.
 *
 * Order of sums: a tile operation sums the even and the odd values of its sixteen elements
 * separately, then adds both to the sums, which are carried from block to block; the result does
 * not depend on which operand is left. Rows do not affect each other, so padding rows may hold
 * anything, and a row has the same bits in any batch. */
#include "backend/cpu/kernel.h"
#include "tensor/nf4.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { T = MM_AMX_TILE, TILE_ELEMENTS = T * T, PANEL_STRIDE = MM_NR * 4 };

/* Tile registers 0-3: sums; 4, 5: left; 6, 7: right. All have 16 rows of 64 bytes. */
static const uint8_t whole_tiles[64] = {
    [0] = 1,   [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64,
    [26] = 64, [28] = 64, [30] = 64, [48] = 16, [49] = 16, [50] = 16,
    [51] = 16, [52] = 16, [53] = 16, [54] = 16, [55] = 16
};

/* The same with n columns in the sums and in the right tiles. */
TARGET static void configure_columns(int n)
{
    uint8_t config[64];
    memcpy(config, whole_tiles, sizeof config);
    for (int i = 0; i < 8; i++)
        if (i != 4 && i != 5)
            config[16 + 2 * i] = (uint8_t)(n * 4);
    /* gcc 12 believes that ldtilecfg reads 8 bytes, and would drop the other stores. */
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

/* ---- many rows */

/* Configuring takes as long as twenty tile operations, so it is done once for many tiles. */
static _Thread_local bool configured;

TARGET void kernel_amx_configure(void)
{
    _tile_loadconfig(whole_tiles);
    configured = true;
}

TARGET void kernel_amx_release(void)
{
    _tile_release();
    configured = false;
}

/* Prefetches 16 elements of 32 rows. */
INLINE void prefetch_rows(const char *at, int64_t row_stride)
{
#pragma GCC unroll 32
    for (int i = 0; i < 2 * T; i++)
        __builtin_prefetch(at + i * row_stride, 0, 2);
}

/* How the operands use the cache. PANEL_REUSED: all rows are multiplied by this panel now.
 * PANEL_STREAMED: the panel passes by and leaves L1 to the rows. ROWS_PREFETCHED: the same, and the
 * row panel after this one is prefetched. */
typedef enum cache_use { PANEL_REUSED, PANEL_STREAMED, ROWS_PREFETCHED } cache_use;

/* Adds n elements, at most one k block, of 32 rows to tiles 0-3, or of 16 rows to tiles 0 and 1. */
INLINE void add_elements(int n_rows, cache_use use, const mm_tile_rows *a, const char *at,
                         const mm_element *panel, int64_t n)
{
    for (int64_t e = 0; e < n; e += T, at += a->element_stride, panel += T * MM_NR) {
        if (use == PANEL_REUSED) {
            _tile_loadd(6, panel, PANEL_STRIDE);
            _tile_loadd(7, panel + T, PANEL_STRIDE);
        } else {
            _tile_stream_loadd(6, panel, PANEL_STRIDE);
            _tile_stream_loadd(7, panel + T, PANEL_STRIDE);
        }
        _tile_loadd(4, at, a->row_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (use == ROWS_PREFETCHED)
            prefetch_rows(at + 2 * a->tile_stride, a->row_stride);
        if (n_rows == T)
            continue;
        _tile_loadd(5, at + a->tile_stride, a->row_stride);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

INLINE void load_sums(int n_rows, const float *sums, int64_t ld)
{
    _tile_loadd(0, sums, ld * 4);
    _tile_loadd(1, sums + T, ld * 4);
    if (n_rows == T)
        return;
    _tile_loadd(2, sums + T * ld, ld * 4);
    _tile_loadd(3, sums + T * ld + T, ld * 4);
}

INLINE void zero_sums(int n_rows)
{
    _tile_zero(0);
    _tile_zero(1);
    if (n_rows == T)
        return;
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void store_sums(int n_rows, float *sums, int64_t ld)
{
    _tile_stored(0, sums, ld * 4);
    _tile_stored(1, sums + T, ld * 4);
    if (n_rows == T)
        return;
    _tile_stored(2, sums + T * ld, ld * 4);
    _tile_stored(3, sums + T * ld + T, ld * 4);
}

INLINE void multiply_tile_rows(int n_rows, const mm_tile *t, int64_t row)
{
    static const mm_tile_rows packed = { .row_stride = 64,
                                         .element_stride = TILE_ELEMENTS * 4,
                                         .tile_stride = T * MM_KC * 4 };
    float *sums = t->sums + row * t->ld;
    if (t->add)
        load_sums(n_rows, sums, t->ld);
    else
        zero_sums(n_rows);
    add_elements(n_rows, PANEL_REUSED, &packed, (const char *)(t->rows + row * MM_KC), t->panel,
                 t->n_elements);
    store_sums(n_rows, sums, t->ld);
}

TARGET void kernel_amx_micro_kernel(const mm_tile *t)
{
    bool configure = !configured;
    if (configure)
        kernel_amx_configure();
    int64_t row = 0;
    for (; row + T < t->n_rows; row += 2 * T)
        multiply_tile_rows(2 * T, t, row);
    if (row < t->n_rows)
        multiply_tile_rows(T, t, row);
    if (configure)
        kernel_amx_release();
}

/* The finished sums of a row panel and one panel, from the tiles to out. */
INLINE void store_out(int n_rows, const mm_row_panel *s, mm_epilogue to)
{
    float sums[2][MM_NR * MM_NR];
    store_sums(n_rows, sums[0], MM_NR);
    to.sums = sums[0];
    to.sums_ld = MM_NR;
    to.n_rows = s->n_rows;
    if (s->transposed) {
        kernel_amx_transpose(sums[1], sums[0]);
        to.sums = sums[1];
        to.n_rows = to.n;
        to.n = s->n_rows;
    }
    kernel_amx_epilogue(&to);
}

/* One term of a sum, for one panel: all k blocks. The first panel prefetches the next row panel. */
INLINE void add_term(int n_rows, const mm_term *t, int64_t column)
{
    const mm_element *panel = t->panels + column * t->n_elements;
    const char *at = t->rows.data;
    for (int64_t e = 0; e < t->n_elements; e += MM_KC, at += t->rows.block_stride) {
        int64_t n = t->n_elements - e < MM_KC ? t->n_elements - e : MM_KC;
        if (column == 0 && t->rows.prefetch_next)
            add_elements(n_rows, ROWS_PREFETCHED, &t->rows, at, panel + e * MM_NR, n);
        else
            add_elements(n_rows, PANEL_STREAMED, &t->rows, at, panel + e * MM_NR, n);
    }
}

INLINE void multiply_row_panel(int n_rows, const mm_row_panel *s)
{
    for (int64_t column = 0; column < s->n_columns; column += MM_NR) {
        float *carried = s->sums + column;
        mm_epilogue to = s->epilogue;
        to.n = s->n_columns - column < MM_NR ? s->n_columns - column : MM_NR;
        to.out = s->transposed ? mm_out_at(&to, column, 0) : mm_out_at(&to, 0, column);
        to.bias = to.bias && !s->transposed ? to.bias + column : to.bias;
        if (s->add)
            load_sums(n_rows, carried, s->sums_ld);
        else
            zero_sums(n_rows);
        for (const mm_term *t = s->terms; t < s->terms + s->n_terms; t++)
            add_term(n_rows, t, column);
        if (s->more)
            store_sums(n_rows, carried, s->sums_ld);
        else
            store_out(n_rows, s, to);
    }
}

TARGET void kernel_amx_row_panel(const mm_row_panel *s)
{
    if (s->n_rows > T)
        multiply_row_panel(2 * T, s);
    else
        multiply_row_panel(T, s);
}

/* ---- few rows: the weights are left, the rows right */

/* 32 weight rows: two left tiles for each sixteen elements. Strides in bytes. */
typedef struct weight_tiles {
    const char *data;
    int64_t row_stride, element_stride, tile_stride; /* as in mm_tile_rows */
    const char *next; /* the memory after these rows, to be prefetched; NULL: not */
} weight_tiles;

/* Adds a k block of them to tiles 0 and 1; right [n][n_rows], from pack_few_rows. */
TARGET static void add_weights(const weight_tiles *w, const mm_element *right, int64_t n_rows,
                               int64_t n)
{
    for (int64_t j = 0; j * T < n; j++) {
        _tile_loadd(6, right + j * T * n_rows, n_rows * 4);
        _tile_loadd(4, w->data + j * w->element_stride, w->row_stride);
        _tile_loadd(5, w->data + w->tile_stride + j * w->element_stride, w->row_stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        for (int i = 0; w->next && i < 2 * TILE_ELEMENTS * 4; i += 64)
            __builtin_prefetch(w->next + j * 2 * TILE_ELEMENTS * 4 + i, 0, 2);
    }
}

/* The same of NF4. Two buffers alternate, so that AVX-512 decodes one while the tiles of the other
 * are multiplied. */
TARGET static void add_nf4_weights(const mm_operand *x, mm_block block, bool prefetch,
                                   const mm_element *right, int64_t n_rows)
{
    enum { STEP = NF4_BLOCK / 2 }; /* elements of a block of NF4 */
    mm_element left[2][2][2 * T][T];
    for (int64_t e = 0; e < block.n_elements; e += STEP) {
        mm_element(*now)[2 * T][T] = left[e / STEP % 2];
        mm_block part = { block.row, block.n_rows, block.e + e, STEP };
        kernel_amx_dequantize(now[0][0], x, part, prefetch);
        for (int half = 0; half < 2; half++) {
            _tile_loadd(6, right + (e + half * T) * n_rows, n_rows * 4);
            _tile_loadd(4, now[half][0], 64);
            _tile_loadd(5, now[half][T], 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
        }
    }
}

bool kernel_amx_few_rows_supports(const mm_operand *x, mm_format format)
{
    (void)format;
    bool whole = x->k_contiguous && x->ld % NF4_BLOCK == 0;
    return dtype_block(x->dt) == 1 || (x->dt == DT_NF4 && whole);
}

/* Whether the operand's memory consists of left tiles: whole groups of sixteen elements. */
static bool tiles_in_place(const mm_operand *x)
{
    return x->dt == DT_BF16 && x->k_contiguous && x->k % (2 * T) == 0;
}

/* A k block of up to 32 weight rows as tiles, in place or packed. last: no rows follow these. */
static weight_tiles weight_tiles_of(const mm_operand *x, mm_format format, mm_block block,
                                    bool last, mm_element *packed)
{
    if (block.n_rows == 2 * T && tiles_in_place(x)) {
        int64_t row_bytes = x->ld * 2;
        const char *first = (const char *)x->data + block.row * row_bytes;
        return (weight_tiles){ .data = first + block.e * 4,
                               .row_stride = row_bytes,
                               .element_stride = 64,
                               .tile_stride = T * row_bytes,
                               .next = last ? NULL : first + 2 * T * (row_bytes + block.e * 4) };
    }
    kernel_amx.pack_rows(packed, x, format, block);
    return (weight_tiles){ .data = (const char *)packed,
                           .row_stride = 64,
                           .element_stride = TILE_ELEMENTS * 4,
                           .tile_stride = T * MM_KC * 4 };
}

TARGET void kernel_amx_few_rows(const mm_tile *t, const mm_operand *x, mm_format format,
                                mm_block block)
{
    configure_columns((int)t->n_rows);
    for (int64_t column = 0; column < block.n_rows; column += 2 * T) {
        int64_t n = block.n_rows - column < 2 * T ? block.n_rows - column : 2 * T;
        const mm_element *right = t->rows;
        float sums[2 * T][MM_FEW_ROWS] = { { 0 } }, *out = t->sums + column;
        for (int64_t j = 0; t->add && j < n; j++)
            for (int64_t i = 0; i < t->n_rows; i++)
                sums[j][i] = out[i * t->ld + j];
        if (t->add) {
            _tile_loadd(0, sums[0], sizeof sums[0]);
            _tile_loadd(1, sums[T], sizeof sums[0]);
        } else {
            _tile_zero(0);
            _tile_zero(1);
        }
        for (int64_t e = 0; e < block.n_elements;
             e += t->block_elements, right += MM_FEW_ROWS * MM_KC) {
            int64_t left = block.n_elements - e;
            mm_block part = { .row = block.row + column, .n_rows = n, .e = block.e + e };
            part.n_elements = left < t->block_elements ? left : t->block_elements;
            bool last = column + n == block.n_rows;
            if (x->dt == DT_NF4) {
                add_nf4_weights(x, part, !last, right, t->n_rows);
                continue;
            }
            weight_tiles w = weight_tiles_of(x, format, part, last, t->scratch);
            add_weights(&w, right, t->n_rows, part.n_elements);
        }
        _tile_stored(0, sums[0], sizeof sums[0]);
        _tile_stored(1, sums[T], sizeof sums[0]);
        for (int64_t i = 0; i < t->n_rows; i++)
            for (int64_t j = 0; j < n; j++)
                out[i * t->ld + j] = sums[j][i];
    }
    _tile_release();
}
