/* kernel_few_blocks: the few-rows kernel for weights in GGUF's block formats, included after
 * simd_blocks.h. Formats MM_F32_SPLIT and MM_BF16_PAIR_SPLIT.
 *
 * A row of weights is decoded in registers and multiplied along k, VECTOR elements at a time: lane
 * s of the sum is partial sum s of the k block, and the partial sums of VECTOR outputs are then
 * added in order, as the micro-kernel adds them (kernel_split.h). A chain of multiply-adds in one
 * sum would wait for each result, so several weight rows are multiplied in turn, while the memory
 * of the next ones is prefetched. For more rows of activations a k block of VECTOR weight rows is
 * decoded into L1, and some rows at a time are multiplied by all of it, so that those stay in L1
 * too. */

enum {
    FEW_OUTPUTS = 4,                      /* weight rows with sums in registers */
    FEW_TOGETHER = 4,                     /* activation rows, of weights decoded in registers */
    FEW_DECODED = MANY_REGISTERS ? 6 : 3, /* activation rows, of weights decoded into L1 */
    FEW_EACH = VECTOR * PARTIALS, /* partial sums of a row and k block, for VECTOR outputs */
    FEW_BLOCKS = 64,              /* most k blocks of one call for FEW_TOGETHER rows */
    FEW_PARTS = MM_KC / GROUP_ELEMENTS / 8 + 1, /* blocks of several groups that a k block meets */
    FEW_AHEAD = 4 << 10, /* bytes after the weight rows in registers that are not prefetched: short
                            rows are multiplied sooner than memory answers */
    FEW_STRIDE = MM_KC + 16 /* from row to row of decoded weights: other sets of L1 */
};

/* The scratch of a call: of FEW_TOGETHER rows at most, or of any number of them. */
typedef union few_scratch {
    float partials[FEW_BLOCKS * FEW_TOGETHER * FEW_EACH]; /* [k blocks][rows][FEW_EACH] */
    struct {
        mm_element elements[VECTOR][FEW_STRIDE]; /* a k block */
        float partials[FEW_DECODED * FEW_EACH];  /* [rows][FEW_EACH] of it */
    } decoded;
} few_scratch;

_Static_assert(sizeof(few_scratch) <= 2 << 20, "it fits mm_tile.scratch");

/* `outputs` weight rows. */
typedef struct block_rows {
    const uint8_t *row[FEW_OUTPUTS];
    const uint8_t *next; /* what is prefetched, as long as the rows are together */
    const mm_element *a; /* [.][MM_KC]: the activations they are multiplied with, */
    mm_element *decoded; /* or [outputs][FEW_STRIDE]: where their elements are stored */
} block_rows;

/* The sums of VECTOR outputs from `column` on, of all rows, from the partial sums in scratch. */
INLINE void reduce_blocks(const mm_tile *t, mm_block block, int64_t column)
{
    const float *partials = ((const few_scratch *)(const void *)t->scratch)->partials;
    for (int64_t e = 0; e < block.n_elements; e += t->block_elements)
        for (int64_t i = 0; i < t->n_rows; i++, partials += FEW_EACH)
            reduce_partials(t->sums + i * t->ld + column, partials, t->add || e > 0);
}

/* Groups of a block of each weight row: group g, or g and g + 1 where blocks have several; g is
 * even. */
typedef struct row_groups {
    const uint8_t *block[FEW_OUTPUTS];
    const block_parts *parts; /* [outputs] */
    int g;
} row_groups;

/* sum += the products of these groups with the activations. */
INLINE void add_groups(int n_rows, int outputs, dtype dt, const row_groups *w, const mm_element *a,
                       vecf sum[FEW_TOGETHER][FEW_OUTPUTS])
{
    const int n = block_groups(dt) > 1 ? 2 : 1;
#pragma GCC unroll 64
    for (int odd = 0; odd < n; odd++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++) {
            vec b[GROUP_VECTORS];
            group_at at = { w->block[j], &w->parts[j], w->g, odd };
            group_elements(dt, &at, b);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int v = 0; v < GROUP_VECTORS; v++)
                    sum[i][j] = multiply_elements(
                        sum[i][j], load_elements(a + i * MM_KC + odd * GROUP_ELEMENTS + v * VECTOR),
                        b[v]);
        }
}

/* The parts of the blocks with groups [first, end) of the rows. They are stored well before they
 * are used, because a load that needs what was just stored in another width waits. */
INLINE void take_rows_apart(int outputs, dtype dt, const block_rows *w, int64_t first, int64_t end,
                            block_parts parts[FEW_PARTS][FEW_OUTPUTS])
{
    const int per = block_groups(dt);
    for (int64_t i = first / per; per > 1 && i < num_divide_up(end, per); i++, parts++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            find_parts(dt, w->row[j] + i * block_bytes(dt), &parts[0][j]);
}

/* Stores the elements of these groups, those of each weight row FEW_STRIDE after the last row's. */
INLINE void store_groups(dtype dt, const row_groups *w, mm_element *to)
{
    const int n = block_groups(dt) > 1 ? 2 : 1;
#pragma GCC unroll 64
    for (int odd = 0; odd < n; odd++)
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++) {
            vec b[GROUP_VECTORS];
            group_at at = { w->block[j], &w->parts[j], w->g, odd };
            group_elements(dt, &at, b);
#pragma GCC unroll 64
            for (int v = 0; v < GROUP_VECTORS; v++)
                store_elements(to + j * FEW_STRIDE + odd * GROUP_ELEMENTS + v * VECTOR, b[v]);
        }
}

/* Groups [first, end) of the rows, multiplied with n_rows rows of activations and added to sum; or,
 * with n_rows 0, stored at w->decoded. */
INLINE void walk_groups(int n_rows, int outputs, dtype dt, const block_rows *w, int64_t first,
                        int64_t end, vecf sum[FEW_TOGETHER][FEW_OUTPUTS])
{
    int64_t e = 0;
    const int per = block_groups(dt), step = per > 1 ? 2 : 1;
    block_parts parts[FEW_PARTS][FEW_OUTPUTS];
    take_rows_apart(outputs, dt, w, first, end, parts);
    row_groups groups = { .parts = parts[0] };
    for (int64_t base = first / per * per; base < end; base += per, groups.parts += FEW_OUTPUTS) {
        int64_t byte = base / per * block_bytes(dt);
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            groups.block[j] = w->row[j] + byte;
#pragma GCC unroll 64
        for (int i = 0; i < outputs * block_bytes(dt); i += MM_CACHE_LINE)
            __builtin_prefetch(w->next + outputs * byte + i, 0, 2);
        int stop = per > 1 && base + per > end ? (int)(end - base) : per;
        groups.g = per > 1 && base < first ? (int)(first - base) : 0;
        for (; groups.g < stop; groups.g += step, e += step * GROUP_ELEMENTS)
            if (n_rows > 0)
                add_groups(n_rows, outputs, dt, &groups, w->a + e, sum);
            else
                store_groups(dt, &groups, w->decoded + e);
    }
}

/* partials [n_rows][VECTOR outputs][PARTIALS] of groups [first, end) of the rows. */
INLINE void block_sums(int n_rows, int outputs, dtype dt, const block_rows *w, int64_t first,
                       int64_t end, float *partials)
{
    vecf sum[FEW_TOGETHER][FEW_OUTPUTS];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            sum[i][j] = zero_sums();
    walk_groups(n_rows, outputs, dt, w, first, end, sum);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outputs; j++)
            put_sums(partials + (i * VECTOR + j) * PARTIALS, sum[i][j], false);
}

INLINE int64_t row_bytes_of(const mm_operand *x)
{
    return x->ld / (int64_t)dtype_block(x->dt) * (int64_t)dtype_block_bytes(x->dt);
}

/* Weight rows [column, column + outputs) of a block; its last row stands in for those after it. */
INLINE block_rows block_rows_at(int outputs, const mm_operand *x, mm_block block, int64_t column)
{
    block_rows w = { 0 };
    const uint8_t *data = x->data;
    int64_t bytes = row_bytes_of(x);
#pragma GCC unroll 64
    for (int j = 0; j < outputs; j++)
        w.row[j] = data + (block.row + num_min(column + j, block.n_rows - 1)) * bytes;
    w.next = data + (block.row + column + outputs) * bytes + FEW_AHEAD;
    return w;
}

/* All rows of the activations times VECTOR outputs from `column` on. */
INLINE void multiply_blocks(int n_rows, dtype dt, const mm_tile *t, const mm_operand *x,
                            mm_block block, int64_t column)
{
    const int outputs = MANY_REGISTERS || n_rows <= 2 ? FEW_OUTPUTS : FEW_OUTPUTS / 2;
    few_scratch *scratch = (few_scratch *)(void *)t->scratch;
    for (int64_t j = 0; j < num_min(VECTOR, block.n_rows - column); j += outputs) {
        block_rows w = block_rows_at(outputs, x, block, column + j);
        w.a = t->rows;
        float *to = scratch->partials + j * PARTIALS;
        for (int64_t e = 0; e < block.n_elements; e += t->block_elements) {
            int64_t n = num_min(t->block_elements, block.n_elements - e);
            block_sums(n_rows, outputs, dt, &w, (block.e + e) / GROUP_ELEMENTS,
                       (block.e + e + n) / GROUP_ELEMENTS, to);
            w.a += n_rows * MM_KC;
            to += n_rows * FEW_EACH;
        }
    }
    reduce_blocks(t, block, column);
}

/* partials [n_rows][VECTOR outputs][PARTIALS] of n elements of FEW_OUTPUTS decoded weight rows. */
INLINE void decoded_sums(int n_rows, const mm_element *a, const mm_element *b, int64_t n,
                         float *partials)
{
    vecf sum[FEW_DECODED][FEW_OUTPUTS];
    vec x[FEW_DECODED];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++)
            sum[i][j] = zero_sums();
    for (int64_t e = 0; e < n; e += VECTOR) {
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
            x[i] = load_elements(a + i * MM_KC + e);
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++) {
            vec w = load_elements(b + j * FEW_STRIDE + e);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
                sum[i][j] = multiply_elements(sum[i][j], x[i], w);
        }
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < FEW_OUTPUTS; j++)
            put_sums(partials + (i * VECTOR + j) * PARTIALS, sum[i][j], false);
}

INLINE void decode_blocks(dtype dt, const block_rows *w, int64_t first, int64_t end)
{
    walk_groups(0, FEW_OUTPUTS, dt, w, first, end, NULL);
}

/* Decodes elements [e, e + n) of a block in VECTOR weight rows from `column` on, the last row of
 * the block in place of those after it. */
TARGET static void decode_rows(const mm_operand *x, mm_block block, int64_t column, int64_t e,
                               int64_t n, few_scratch *scratch)
{
    int64_t first = (block.e + e) / GROUP_ELEMENTS, end = first + n / GROUP_ELEMENTS;
    for (int64_t j = 0; j < num_min(VECTOR, block.n_rows - column); j += FEW_OUTPUTS) {
        block_rows w = block_rows_at(FEW_OUTPUTS, x, block, column + j);
        w.next += (VECTOR - FEW_OUTPUTS) * row_bytes_of(x) - FEW_AHEAD;
        w.decoded = scratch->decoded.elements[j];
        WITH_BLOCK_FORMAT(x->dt, decode_blocks, &w, first, end)
    }
}

/* Sums of n elements of all rows times VECTOR decoded weight rows, in parts of about equal height.
 */
TARGET static void multiply_decoded(const mm_tile *t, const mm_element *a, int64_t n,
                                    int64_t outputs, float *sums, bool add)
{
    few_scratch *scratch = (few_scratch *)(void *)t->scratch;
    float *partials = scratch->decoded.partials;
    int64_t parts = num_divide_up(t->n_rows, FEW_DECODED);
    for (int64_t part = 0, row = 0, end; part < parts; part++, row = end) {
        end = t->n_rows * (part + 1) / parts;
        for (int64_t j = 0; j < outputs; j += FEW_OUTPUTS)
            switch (end - row) {
#define CASE(rows)                                                                                 \
    case rows:                                                                                     \
        decoded_sums(rows <= FEW_DECODED ? rows : 1, a + row * MM_KC,                              \
                     scratch->decoded.elements[j], n, partials + j * PARTIALS);                    \
        break;
                CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#undef CASE
            }
        for (int64_t i = row; i < end; i++)
            reduce_partials(sums + i * t->ld, partials + (i - row) * FEW_EACH, add);
    }
}

/* All rows of the activations times VECTOR outputs from `column` on, which are decoded once. */
TARGET static void decode_and_multiply(const mm_tile *t, const mm_operand *x, mm_block block,
                                       int64_t column)
{
    const mm_element *a = t->rows;
    for (int64_t e = 0; e < block.n_elements; e += t->block_elements, a += t->n_rows * MM_KC) {
        int64_t n = num_min(t->block_elements, block.n_elements - e);
        decode_rows(x, block, column, e, n, (few_scratch *)(void *)t->scratch);
        multiply_decoded(t, a, n, num_min(VECTOR, block.n_rows - column), t->sums + column,
                         t->add || e > 0);
    }
}

INLINE void few_rows_of_blocks(dtype dt, const mm_tile *t, const mm_operand *x, mm_block block)
{
    for (int64_t column = 0; column < block.n_rows; column += VECTOR)
        switch (t->n_rows) {
        case 1:
            multiply_blocks(1, dt, t, x, block, column);
            break;
        case 2:
            multiply_blocks(2, dt, t, x, block, column);
            break;
        case 3:
            multiply_blocks(3, dt, t, x, block, column);
            break;
        default:
            multiply_blocks(FEW_TOGETHER, dt, t, x, block, column);
        }
}

TARGET static void few_rows_blocks(const mm_tile *t, const mm_operand *x, mm_format format,
                                   mm_block block)
{
    (void)format;
    if (t->n_rows <= FEW_TOGETHER)
        WITH_BLOCK_FORMAT(x->dt, few_rows_of_blocks, t, x, block)
    else
        for (int64_t column = 0; column < block.n_rows; column += VECTOR)
            decode_and_multiply(t, x, block, column);
}
