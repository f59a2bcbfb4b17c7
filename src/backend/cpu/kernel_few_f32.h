/* kernel_few_f32: the few-rows kernel of engines whose elements are single f32 values, included
 * after kernel_simd.h. Columns are transposed in registers and multiplied at once instead of being
 * packed; each sum takes its elements in the order of the micro-kernel. Attention calls it for
 * values as well, which are f32 or bf16 and have a strided k. */
INLINE void few_rows_transposed(int n_rows, dtype dt, mm_format format, const mm_tile *t,
                                const mm_operand *x, mm_block block)
{
    /* NF4 is bound by arithmetic and needs more independent sums; the other dtypes by memory. */
    const int n_vectors = dt == DT_NF4 && n_rows <= 4 ? TILE_VECTORS : 1;
    int64_t row_bytes = bytes_of(dt, x->ld), end = block.row + block.n_rows;
    for (int64_t column = 0; column < block.n_rows; column += n_vectors * VECTOR) {
        column_source from = columns_from(n_vectors, dt, x, block.row + column, end);
        if (column + n_vectors * VECTOR < block.n_rows)
            from.next = from.rows[0].row[0] + row_bytes * n_vectors * VECTOR;
        const mm_element *rows = t->rows;
        for (int64_t e = 0; e < block.n_elements; e += t->block_elements, rows += n_rows * MM_KC) {
            column_sink to = { .rows = rows };
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
                to.sum[i][0] = to.sum[i][1] = zero_sums();
            mm_block part = { .e = block.e + e,
                              .n_elements = num_min(t->block_elements, block.n_elements - e) };
            transpose_columns(n_rows, n_vectors, dt, format, &from, part, &to);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int v = 0; v < n_vectors; v++)
                    put_sums(t->sums + i * t->ld + column + v * VECTOR, to.sum[i][v],
                             t->add || e > 0);
        }
    }
}

/* The same where k is strided: the columns are neighbours in memory. */
INLINE void few_rows_strided(int n_rows, dtype dt, const mm_tile *t, const mm_operand *x,
                             mm_block block)
{
    enum { MOST = 4 }; /* vectors of columns; up to 12 sums stay in registers */
    const int n_vectors = n_rows <= 3 ? MOST : n_rows <= 6 ? 2 : 1;
    int64_t n = num_min(block.n_elements, x->k - block.e);
    for (int64_t column = 0; column < block.n_rows; column += n_vectors * VECTOR) {
        vecf sum[MM_FEW_ROWS][MOST];
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = zero_sums();
        for (int64_t e = 0; e < n; e++)
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++) {
                vec b = column_values(dt, x, block.row + column + v * VECTOR, block.e + e);
#pragma GCC unroll 64
                for (int i = 0; i < n_rows; i++)
                    sum[i][v] = multiply_add(sum[i][v], t->rows[i * MM_KC + e], b);
            }
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++)
                put_sums(t->sums + i * t->ld + column + v * VECTOR, sum[i][v], t->add);
    }
}

static bool few_rows_supports(const mm_operand *x, mm_format format)
{
    /* NF4 is decoded in registers, where rounding costs less than packing; f32 is only loaded. */
    bool rounds = format == MM_BF16_WIDENED && x->dt != DT_BF16 && x->dt != DT_NF4;
    return x->k_contiguous && rows_are_whole_blocks(x) && !rounds;
}

TARGET static void few_rows(const mm_tile *t, const mm_operand *x, mm_format format, mm_block block)
{
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (!x->k_contiguous && x->dt == DT_F32)                                                   \
            few_rows_strided(n, DT_F32, t, x, block);                                              \
        else if (!x->k_contiguous)                                                                 \
            few_rows_strided(n, DT_BF16, t, x, block);                                             \
        else if (x->dt == DT_F32)                                                                  \
            few_rows_transposed(n, DT_F32, MM_F32, t, x, block);                                   \
        else if (x->dt == DT_BF16)                                                                 \
            few_rows_transposed(n, DT_BF16, MM_F32, t, x, block);                                  \
        else if (format == MM_BF16_WIDENED)                                                        \
            few_rows_transposed(n, DT_NF4, MM_BF16_WIDENED, t, x, block);                          \
        else                                                                                       \
            few_rows_transposed(n, DT_NF4, MM_F32, t, x, block);                                   \
        break;
    switch (t->n_rows) {
        CASES_TO_8
    }
#undef CASE
}

TARGET static void pack_rows(mm_element *dst, const mm_operand *x, mm_format format, mm_block block)
{
    pack_rows_in_order(false, dst, x, format, block);
}

#define FORMAT(f) .format = f, .few_rows_format = f, .nf4_format = f
#define KERNEL                                                                                     \
    .tile_rows = TILE_ROWS, .pack_rows = pack_rows, .pack_panel = pack_panel,                      \
    .micro_kernel = micro_kernel, .few_rows_supports = few_rows_supports,                          \
    .pack_few_rows = pack_rows, .few_rows = few_rows, .epilogue = epilogue
