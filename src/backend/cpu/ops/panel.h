/* panel: the small products of attention, by the micro-kernel of the engine (matmul.h), which gives
 * a row the same bits whatever other rows are computed with it.
 *
 * Rows are packed as [k blocks][capacity][MM_KC], where `capacity` rows fit; columns as panels
 * [columns / MM_NR][n_elements][MM_NR]. Both have zeros after the last element. */
#ifndef PESC_BACKEND_CPU_OPS_PANEL_H
#define PESC_BACKEND_CPU_OPS_PANEL_H

#include "backend/cpu/matmul.h"
#include "backend/cpu/packing.h"

/* n contiguous rows of k values. */
static inline mm_operand panel_operand(const void *data, dtype dt, int64_t n, int64_t k)
{
    return (mm_operand){ .data = data, .dt = dt, .k_contiguous = true, .ld = k, .n = n, .k = k };
}

/* The transposed matrix in the same memory. */
static inline mm_operand panel_transposed(mm_operand x)
{
    int64_t n = x.n;
    x.k_contiguous = !x.k_contiguous;
    x.n = x.k;
    x.k = n;
    return x;
}

/* Elements of k values, padded. */
static inline int64_t panel_elements(const mm_engine *engine, int64_t k)
{
    return num_round_up(packing_elements(engine->format, k), MM_K_GROUP);
}

/* The sizes of packed rows and columns, in elements. */
static inline int64_t panel_rows_size(int64_t capacity, int64_t n_elements)
{
    return num_round_up(n_elements, MM_KC) * capacity;
}

static inline int64_t panel_columns_size(int64_t columns, int64_t n_elements)
{
    return num_round_up(columns, MM_NR) * n_elements;
}

static inline void panel_pack_rows(const mm_engine *engine, mm_element *dst, const mm_operand *x,
                                   int64_t capacity, int64_t n_elements)
{
    for (int64_t e = 0; e < n_elements; e += MM_KC)
        for (int64_t r = 0; r < x->n; r += 16)
            engine->pack_rows(
                dst + (e / MM_KC * capacity + r) * MM_KC, x, engine->format,
                (mm_block){ r, num_min(16, x->n - r), e, num_min(MM_KC, n_elements - e) });
}

static inline void panel_pack_columns(const mm_engine *engine, mm_element *dst, const mm_operand *x,
                                      int64_t n_elements)
{
    for (int64_t c = 0; c < x->n; c += MM_NR)
        for (int64_t e = 0; e < n_elements; e += MM_KC)
            engine->pack_panel(
                dst + (c * n_elements + e * MM_NR), x, engine->format,
                (mm_block){ c, num_min(MM_NR, x->n - c), e, num_min(MM_KC, n_elements - e) });
}

/* Called by a thread before and after the products of one range of work. */
static inline void panel_configure(const mm_engine *engine)
{
    if (engine->configure)
        engine->configure();
}

static inline void panel_release(const mm_engine *engine)
{
    if (engine->release)
        engine->release();
}

/* t.sums [n_rows][ld] (+)= rows times columns, in whole panels; rows as panel_pack_rows packs them,
 * t.panel as panel_pack_columns does. */
static inline void panel_multiply(const mm_engine *engine, mm_tile t, int64_t capacity,
                                  int64_t columns)
{
    mm_tile part = t;
    part.format = engine->format;
    for (int64_t c = 0; c < columns; c += MM_NR)
        for (int64_t e = 0; e < t.n_elements; e += MM_KC)
            for (int64_t r = 0; r < t.n_rows; r += engine->tile_rows) {
                part.sums = t.sums + r * t.ld + c;
                part.rows = t.rows + (e / MM_KC * capacity + r) * MM_KC;
                part.panel = t.panel + (c * t.n_elements + e * MM_NR);
                part.row_stride = MM_KC;
                part.n_rows = num_min(engine->tile_rows, t.n_rows - r);
                part.n_columns = num_min(MM_NR, columns - c);
                part.n_elements = num_min(MM_KC, t.n_elements - e);
                part.add = t.add || e > 0;
                engine->micro_kernel(&part);
            }
}

/* Whether few rows can be multiplied by columns that are not packed: the engine's few-rows kernel
 * reads rows as panel_pack_rows packs them, of one k block. */
static inline bool panel_not_needed(const mm_engine *engine, int64_t n_rows, int64_t n_elements)
{
    return engine->pack_few_rows == engine->pack_rows && n_rows <= MM_FEW_ROWS &&
           n_elements <= MM_KC;
}

/* t.sums [n_rows][ld] (+)= rows times the rows of x, in whole panels, with the bits of
 * panel_multiply; x is packed into `panel` where that is needed. */
static inline void panel_product(const mm_engine *engine, mm_tile t, int64_t capacity,
                                 const mm_operand *x, mm_element *panel)
{
    if (panel_not_needed(engine, t.n_rows, t.n_elements)) {
        t.block_elements = t.n_elements;
        engine->few_rows(&t, x, engine->format, (mm_block){ 0, x->n, 0, t.n_elements });
        return;
    }
    panel_pack_columns(engine, panel, x, t.n_elements);
    t.panel = panel;
    panel_multiply(engine, t, capacity, x->n);
}

#endif
