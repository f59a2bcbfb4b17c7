/* kernel_few_pairs: the few-rows kernel and the row packing of the engine of bf16 pairs, included
 * after kernel_simd.h.
 *
 * A row of weights with contiguous k is multiplied as it is in memory, VECTOR elements at a time:
 * lane s of the sum is partial sum s of the k block (kernel_split.h). The partial sums of VECTOR
 * outputs are then transposed and added in order, as the micro-kernel adds them.
 *
 * One row of activations is bound by memory, and the hardware prefetcher of a core is fastest with
 * one ordered stream: one weight row is read after the other, each from end to end. Where
 * arithmetic is the bound (more rows, NF4), OUTPUTS weight rows share the loads of the activations,
 * and the memory after them is prefetched in the order of addresses, not in the order of its use.
 */

#include <string.h>

enum {
    /* weight rows, and most activation rows, with sums in registers */
    OUTPUTS = MANY_REGISTERS ? 4 : 2,
    PREFETCH_BYTES = 8 << 10, /* from what is read to what is prefetched */
};

/* `outputs` weight rows, from the first element of a k block on. */
typedef struct weight_rows {
    const char *row[OUTPUTS];
    const float *scales[OUTPUTS];
    int64_t n_elements, k_left; /* elements of the block; values from here to the end of the row */
    const char *prefetch;       /* PREFETCH_BYTES ahead of all of them */
    const mm_element *a;        /* [.][MM_KC]: the activations they are multiplied with */
} weight_rows;

INLINE weight_rows weight_rows_at(int outputs, dtype dt, const mm_operand *x, mm_block some,
                                  mm_block part)
{
    int64_t k = part.e * VALUES;
    weight_rows w = { .n_elements = part.n_elements, .k_left = x->k - k };
    for (int j = 0; j < outputs; j++) {
        int64_t at = (some.row + num_min(j, some.n_rows - 1)) * x->ld + k;
        w.row[j] = (const char *)x->data + bytes_of(dt, at);
        w.scales[j] = dt == DT_NF4 ? x->scales + at / NF4_BLOCK : NULL;
    }
    w.prefetch = w.row[0] + PREFETCH_BYTES + bytes_of(dt, k * (outputs - 1));
    return w;
}

/* Multiplies elements e ... of each weight row: a vector, or a block of NF4. n: values that exist.
 */
INLINE void add_products(int n_rows, int outputs, dtype dt, const weight_rows *w, int64_t e,
                         int64_t n, vecf sum[OUTPUTS][OUTPUTS])
{
    const int parts = dt == DT_NF4 ? NF4_VECTORS : 1;
    vec b[OUTPUTS][NF4_VECTORS];
    int64_t byte = bytes_of(dt, e * VALUES);
#pragma GCC unroll 64
    for (int j = 0; j < outputs; j++)
        if (dt == DT_NF4)
            nf4_block(w->row[j] + byte, w->scales[j][e * VALUES / NF4_BLOCK], b[j]);
        else
            b[j][0] = load_row_elements(dt, MM_BF16_PAIR, w->row[j] + byte, n);
    if (outputs > 1)
#pragma GCC unroll 64
        for (int i = 0; i < outputs * bytes_of(dt, parts * VECTOR * VALUES); i += 64)
            __builtin_prefetch(w->prefetch + byte * outputs + i, 0, 2);
#pragma GCC unroll 64
    for (int part = 0; part < parts; part++)
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++) {
            vec a = load_elements(w->a + i * MM_KC + e + part * VECTOR);
#pragma GCC unroll 64
            for (int j = 0; j < outputs; j++)
                sum[i][j] = multiply_elements(sum[i][j], a, b[j][part]);
        }
}

/* partials [n_rows][VECTOR outputs][PARTIALS] of `outputs` outputs over a k block. */
INLINE void partial_sums(int n_rows, int outputs, dtype dt, const weight_rows *w, float *partials)
{
    const int step = dt == DT_NF4 ? NF4_BLOCK / VALUES : VECTOR;
    vecf sum[OUTPUTS][OUTPUTS];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            sum[i][j] = zero_sums();
    int64_t e = 0, whole = num_min(w->n_elements, w->k_left / VALUES);
    for (; e + step <= whole; e += step)
        add_products(n_rows, outputs, dt, w, e, step * VALUES, sum);
    if (e < w->n_elements)
        add_products(n_rows, outputs, dt, w, e, w->k_left - e * VALUES, sum);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            put_sums(partials + (i * VECTOR + j) * PARTIALS, sum[i][j], false);
}

/* Rows [row, row + n_rows) times VECTOR outputs from `column` on. */
INLINE void multiply_outputs(int n_rows, dtype dt, const mm_tile *t, const mm_operand *x,
                             mm_block block, int64_t column, int64_t row)
{
    enum { EACH = VECTOR * PARTIALS };     /* partial sums of a row and k block */
    float *partials = (float *)t->scratch; /* [blocks][n_rows][VECTOR outputs][PARTIALS] */
    const int outputs = n_rows == 1 && dt != DT_NF4 ? 1 : OUTPUTS;
    for (int64_t j = 0; j < num_min(VECTOR, block.n_rows - column); j += outputs) {
        mm_block some = { .row = block.row + column + j, .n_rows = block.n_rows - column - j };
        const mm_element *a = t->rows + row * MM_KC;
        float *to = partials + j * PARTIALS;
        for (int64_t e = 0; e < block.n_elements; e += t->block_elements) {
            mm_block part = { .e = block.e + e,
                              .n_elements = num_min(t->block_elements, block.n_elements - e) };
            weight_rows w = weight_rows_at(outputs, dt, x, some, part);
            w.a = a;
            partial_sums(n_rows, outputs, dt, &w, to);
            a += t->n_rows * MM_KC;
            to += n_rows * EACH;
        }
    }
    for (int64_t e = 0; e < block.n_elements; e += t->block_elements)
        for (int i = 0; i < n_rows; i++, partials += EACH)
            reduce_partials(t->sums + (row + i) * t->ld + column, partials, t->add || e > 0);
}

INLINE void few_rows_dtype(dtype dt, const mm_tile *t, const mm_operand *x, mm_block block)
{
    for (int64_t column = 0; column < block.n_rows; column += VECTOR)
        for (int64_t row = 0; row < t->n_rows; row += OUTPUTS)
            switch (num_min(OUTPUTS, t->n_rows - row)) {
            case 1:
                multiply_outputs(1, dt, t, x, block, column, row);
                break;
            case 2:
                multiply_outputs(2, dt, t, x, block, column, row);
                break;
            case 3:
                multiply_outputs(3 <= OUTPUTS ? 3 : 1, dt, t, x, block, column, row);
                break;
            default:
                multiply_outputs(OUTPUTS, dt, t, x, block, column, row);
            }
}

static bool few_rows_supports(const mm_operand *x, mm_format format)
{
    enum { LONG = 256 }; /* values of k: a shorter product is not worth PARTIALS sums */
    (void)format;
    return x->k_contiguous && x->k >= LONG && rows_are_whole_blocks(x);
}

TARGET static void few_rows(const mm_tile *t, const mm_operand *x, mm_format format, mm_block block)
{
    (void)format;
    if (x->dt == DT_F32)
        few_rows_dtype(DT_F32, t, x, block);
    else if (x->dt == DT_BF16)
        few_rows_dtype(DT_BF16, t, x, block);
    else
        few_rows_dtype(DT_NF4, t, x, block);
}

/* ---- packing: rows for few_rows, with elements in order; then grouped for the micro-kernel */

INLINE void reorder_rows_as_nf4(bool as_tiles, mm_element *dst, mm_block block)
{
    enum { EACH = NF4_BLOCK / VALUES };
    for (int64_t i = 0; i < block.n_rows; i++)
        for (int64_t e = 0; e < block.n_elements; e += EACH)
            reorder_as_nf4(packed_row(as_tiles, dst, i, e),
                           packed_row(as_tiles, dst, i, e + EACH / 2));
}

TARGET static void pack_few_rows(mm_element *dst, const mm_operand *x, mm_format format,
                                 mm_block block)
{
    pack_rows_in_order(false, dst, x, MM_BF16_PAIR, block);
    if (format == MM_BF16_PAIR_NF4)
        reorder_rows_as_nf4(false, dst, block);
}

TARGET static void pack_panel_split(mm_element *dst, const mm_operand *x, mm_format format,
                                    mm_block block)
{
    if (format == MM_BF16_PAIR)
        pack_panel(dst, x, format, block);
    else
        pack_panel_grouped(PARTIALS, dst, x, format, block);
}

#if MANY_REGISTERS
/* Groups a row of elements by partial sum, n elements each. */
INLINE void group_row(mm_element *dst, const mm_element *row, int64_t n)
{
    for (int64_t i = 0; i < n; i += VECTOR) {
        row_pointers v = rows_from(row, PARTIALS * 4, i, n);
        vec sums[PARTIALS];
#pragma GCC unroll 64
        for (int j = 0; j < PARTIALS; j += DWORDS)
            load_transposed(&v, j * 4, DWORDS * 4, sums + j);
#pragma GCC unroll 64
        for (int j = 0; j < PARTIALS; j++)
            store_some_elements(dst + j * n + i, sums[j], n - i);
    }
}

TARGET static void pack_rows_split(mm_element *dst, const mm_operand *x, mm_format format,
                                   mm_block block)
{
    mm_element row[MM_KC];
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP);
    pack_few_rows(dst, x, format, block);
    for (int64_t i = 0; i < block.n_rows && format != MM_BF16_PAIR; i++) {
        memcpy(row, dst + i * MM_KC, (size_t)n * sizeof *row);
        group_row(dst + i * MM_KC, row, n / PARTIALS);
    }
}
#else
/* The micro-kernel reads rows in order (tile_partial_sum). */
TARGET static void pack_rows_split(mm_element *dst, const mm_operand *x, mm_format format,
                                   mm_block block)
{
    pack_few_rows(dst, x, format, block);
}
#endif
