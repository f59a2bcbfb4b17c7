/* kernel_few_blocks: the few-rows kernel for weights in GGUF's block formats, included after
 * simd_blocks.h. Format MM_F32_SPLIT.
 *
 * A row of weights is decoded in registers and multiplied along k, VECTOR values at a time: lane s
 * of the sum is partial sum s of the k block, and the partial sums of VECTOR outputs are then added
 * in order, as the micro-kernel adds them. A chain of multiply-adds in one sum would wait for each
 * result, so several weight rows are multiplied in turn, while the memory of the next ones is
 * prefetched. For more rows of activations the weight rows are decoded into L1 once, and multiplied
 * from there. */

enum {
    FEW_OUTPUTS = 4,              /* weight rows with sums in registers */
    FEW_TOGETHER = 4,             /* activation rows likewise */
    FEW_EACH = VECTOR * PARTIALS, /* partial sums of a row and k block, for VECTOR outputs */
    FEW_DECODED = 3,              /* the same of weights that were decoded before */
    FEW_BLOCKS = 64,              /* most k blocks of one call */
    FEW_K = FEW_BLOCKS * MM_KC,   /* most values of k, and their groups: */
    FEW_GROUPS =
        FEW_K / QUANTS_GROUP + 8, /* whole blocks, which may begin before the first value */
    FEW_STRIDE = FEW_K + 16       /* from row to row of decoded values: other sets of L1 */
};

/* The scratch of a call. */
typedef struct few_scratch {
    float partials[FEW_BLOCKS * MM_FEW_ROWS * FEW_EACH]; /* [k blocks][rows][FEW_EACH] */
    float scale[FEW_OUTPUTS][2 * FEW_GROUPS], minimum[FEW_OUTPUTS][FEW_GROUPS];
    float values[FEW_OUTPUTS][FEW_STRIDE]; /* of weights that are not decoded in registers */
} few_scratch;

_Static_assert(sizeof(few_scratch) <= 2 << 20, "it fits mm_tile.scratch");

/* `outputs` weight rows from the block that holds the first value of a call on. */
typedef struct block_rows {
    const uint8_t *row[FEW_OUTPUTS];
    const float *scale[FEW_OUTPUTS], *minimum[FEW_OUTPUTS];
    const char *next;    /* the memory after these rows, as long as they are together */
    const mm_element *a; /* [.][MM_KC]: the activations they are multiplied with */
} block_rows;

/* partials [n_rows][VECTOR outputs][PARTIALS] of groups [first, first + n). */
INLINE void block_sums(int n_rows, int outputs, dtype dt, const block_rows *w, int64_t first,
                       int64_t n, float *partials)
{
    const mm_element *a = w->a;
    vecf sum[FEW_TOGETHER][FEW_OUTPUTS];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            sum[i][j] = zero_sums();
    for (int64_t g = first; g < first + n; g++, a += QUANTS_GROUP) {
#pragma GCC unroll 64
        for (int i = 0; i < outputs * group_bytes(dt); i += 64)
            __builtin_prefetch(w->next + g * outputs * group_bytes(dt) + i, 0, 2);
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++) {
            vecf b[GROUP_VECTORS];
            group_values(dt, w->row[j], g, w->scale[j], w->minimum[j], b);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int v = 0; v < GROUP_VECTORS; v++)
                    sum[i][j] = _mm256_fmadd_ps(
                        as_floats(load_elements(a + i * MM_KC + v * VECTOR)), b[v], sum[i][j]);
        }
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            _mm256_storeu_ps(partials + (i * VECTOR + j) * PARTIALS, sum[i][j]);
}

/* out [VECTOR] (+)= the partial sums of each output, in order. */
INLINE void add_partials(float *out, const float *partials, bool add)
{
    vec part[PARTIALS];
    row_pointers v = rows_from(partials, PARTIALS * 4, 0, VECTOR);
    load_transposed(&v, 0, DWORDS * 4, part);
    vecf sum = as_floats(part[0]);
    if (add)
        sum = _mm256_add_ps(_mm256_loadu_ps(out), sum);
#pragma GCC unroll 64
    for (int i = 1; i < PARTIALS; i++)
        sum = _mm256_add_ps(sum, as_floats(part[i]));
    _mm256_storeu_ps(out, sum);
}

/* Weight rows [row, row + outputs), their factors or values in scratch; the last row of the block
 * stands in for those after it. */
INLINE block_rows block_rows_at(int outputs, dtype dt, const mm_operand *x, mm_block block,
                                int64_t column, few_scratch *scratch)
{
    block_rows w = { 0 };
    const char *data = x->data;
    int64_t per = block_groups(dt), first = block.e / QUANTS_GROUP / per;
    int64_t n = num_divide_up(block.e + block.n_elements, per * QUANTS_GROUP) - first;
    int64_t row_bytes = x->ld / (int64_t)dtype_block(x->dt) * (int64_t)dtype_block_bytes(x->dt);
#pragma GCC unroll 64
    for (int j = 0; j < outputs; j++) {
        int64_t at = block.row + num_min(column + j, block.n_rows - 1);
        const uint8_t *row = (const uint8_t *)data + at * row_bytes;
        w.row[j] = row + first * block_bytes(dt);
        w.scale[j] = scratch->scale[j];
        w.minimum[j] = scratch->minimum[j];
        if (dt == DT_F32) {
            quants_unpack(x->dt, row, block.e, block.n_elements, scratch->values[j]);
            w.row[j] = (const uint8_t *)scratch->values[j];
        } else {
            row_factors(dt, row, first, n, scratch->scale[j], scratch->minimum[j]);
        }
    }
    w.next = data + (block.row + column + outputs) * row_bytes;
    return w;
}

/* Rows [row, row + n_rows) of the activations times VECTOR outputs from `column` on. */
INLINE void multiply_blocks(int n_rows, dtype dt, const mm_tile *t, const mm_operand *x,
                            mm_block block, int64_t column, int64_t row)
{
    const int outputs = n_rows <= 2 ? FEW_OUTPUTS : FEW_OUTPUTS / 2;
    few_scratch *scratch = (few_scratch *)(void *)t->scratch;
    int64_t skipped = dt == DT_F32 ? 0 : block.e / QUANTS_GROUP % block_groups(dt);
    for (int64_t j = 0; j < num_min(VECTOR, block.n_rows - column); j += outputs) {
        block_rows w = block_rows_at(outputs, dt, x, block, column + j, scratch);
        w.a = t->rows + row * MM_KC;
        float *to = scratch->partials + j * PARTIALS;
        for (int64_t e = 0; e < block.n_elements; e += t->block_elements) {
            int64_t n = num_min(t->block_elements, block.n_elements - e);
            block_sums(n_rows, outputs, dt, &w, skipped + e / QUANTS_GROUP, n / QUANTS_GROUP, to);
            w.a += t->n_rows * MM_KC;
            to += n_rows * FEW_EACH;
        }
    }
    const float *partials = scratch->partials;
    for (int64_t e = 0; e < block.n_elements; e += t->block_elements)
        for (int i = 0; i < n_rows; i++, partials += FEW_EACH)
            add_partials(t->sums + (row + i) * t->ld + column, partials, e > 0);
}

/* partials [n_rows][VECTOR outputs][PARTIALS] of n values of FEW_OUTPUTS decoded weight rows. */
INLINE void decoded_sums(int n_rows, const mm_element *a, const float *b, int64_t n,
                         float *partials)
{
    vecf sum[FEW_DECODED][FEW_OUTPUTS], x[FEW_DECODED];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++)
            sum[i][j] = zero_sums();
    for (int64_t e = 0; e < n; e += VECTOR) {
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
            x[i] = as_floats(load_elements(a + i * MM_KC + e));
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++) {
            vecf w = _mm256_loadu_ps(b + j * FEW_STRIDE + e);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
                sum[i][j] = _mm256_fmadd_ps(x[i], w, sum[i][j]);
        }
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++)
            _mm256_storeu_ps(partials + (i * VECTOR + j) * PARTIALS, sum[i][j]);
}

/* Decodes FEW_OUTPUTS weight rows from `column` on, the last row of the block in place of those
 * after it, and prefetches as many after them. */
TARGET static void decode_rows(const mm_operand *x, mm_block block, int64_t column,
                               few_scratch *scratch)
{
    int64_t row_bytes = x->ld / (int64_t)dtype_block(x->dt) * (int64_t)dtype_block_bytes(x->dt);
    const char *first = (const char *)x->data + (block.row + column) * row_bytes;
    for (int64_t j = 0; j < FEW_OUTPUTS; j++)
        kernel_avx2_unpack(x->dt, first + num_min(j, block.n_rows - column - 1) * row_bytes,
                           block.e, block.n_elements, scratch->values[j]);
    for (int64_t i = 0; i < FEW_OUTPUTS * row_bytes; i += 64)
        __builtin_prefetch(first + FEW_OUTPUTS * row_bytes + i, 0, 2);
}

/* All rows of the activations times VECTOR outputs from `column` on, which are decoded once. */
TARGET static void multiply_decoded(const mm_tile *t, const mm_operand *x, mm_block block,
                                    int64_t column)
{
    few_scratch *scratch = (few_scratch *)(void *)t->scratch;
    for (int64_t j = 0; j < num_min(VECTOR, block.n_rows - column); j += FEW_OUTPUTS) {
        float *to = scratch->partials + j * PARTIALS;
        decode_rows(x, block, column + j, scratch);
        const mm_element *a = t->rows;
        for (int64_t e = 0; e < block.n_elements; e += t->block_elements) {
            int64_t n = num_min(t->block_elements, block.n_elements - e), row = 0;
            const float *b = scratch->values[0] + e;
            for (; row + FEW_DECODED <= t->n_rows; row += FEW_DECODED)
                decoded_sums(FEW_DECODED, a + row * MM_KC, b, n, to + row * FEW_EACH);
            for (; row < t->n_rows; row++)
                decoded_sums(1, a + row * MM_KC, b, n, to + row * FEW_EACH);
            a += t->n_rows * MM_KC;
            to += t->n_rows * FEW_EACH;
        }
    }
    const float *partials = scratch->partials;
    for (int64_t e = 0; e < block.n_elements; e += t->block_elements)
        for (int64_t i = 0; i < t->n_rows; i++, partials += FEW_EACH)
            add_partials(t->sums + i * t->ld + column, partials, e > 0);
}

INLINE void few_rows_of_blocks(dtype dt, const mm_tile *t, const mm_operand *x, mm_block block)
{
    for (int64_t column = 0; column < block.n_rows; column += VECTOR)
        for (int64_t row = 0; row < t->n_rows; row += FEW_TOGETHER)
            switch (t->n_rows - row) {
            case 1:
                multiply_blocks(1, dt, t, x, block, column, row);
                break;
            case 2:
                multiply_blocks(2, dt, t, x, block, column, row);
                break;
            case 3:
                multiply_blocks(3, dt, t, x, block, column, row);
                break;
            default:
                multiply_blocks(FEW_TOGETHER, dt, t, x, block, column, row);
            }
}

INLINE void few_rows_of_unpacked(dtype dt, const mm_tile *t, const mm_operand *x, mm_block block)
{
    (void)dt;
    few_rows_of_blocks(DT_F32, t, x, block);
}

TARGET static void few_rows_blocks(const mm_tile *t, const mm_operand *x, mm_format format,
                                   mm_block block)
{
    (void)format;
    if (t->n_rows > FEW_TOGETHER) {
        for (int64_t column = 0; column < block.n_rows; column += VECTOR)
            multiply_decoded(t, x, block, column);
        return;
    }
    WITH_BLOCK_FORMAT(x->dt, few_rows_of_blocks, few_rows_of_unpacked, t, x, block)
}
