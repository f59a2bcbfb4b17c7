/* kernel_simd: the micro-kernel, packing and epilogue of a SIMD engine, included by a .c file after
 * the primitives of its instruction set (simd_*.h).
 *
 * Micro-kernel: each element of a row is broadcast and multiplied by two vectors of a panel;
 * TILE_ROWS x 2 vectors of sums stay in registers. It is bound by the multiply instruction.
 *
 * Packing a panel: weights of the forward product have contiguous k, so the columns of a panel are
 * rows in memory. Eight dwords of VECTOR rows are transposed in registers; a dword is one f32, two
 * bf16 or eight codes of NF4, which are decoded after the transposition. Where k is strided, the
 * columns of a panel are neighbours in memory.
 *
 * Order of sums within a k block: the elements in order; in the split formats as kernel_split.h
 * says. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/kernel_split.h"
#include "backend/cpu/packing.h"

enum { SCALES = MM_KC * VALUES / NF4_BLOCK }; /* of NF4, for a row and k block */

_Static_assert(SCALES % DWORDS == 0, "the scales of a block are transposed DWORDS at a time");
_Static_assert(MM_K_STEP % UNROLL == 0 && MM_K_GROUP % MM_K_STEP == 0 && (!PAIRS || UNROLL == 1),
               "blocks are whole steps, as are the groups of partial sums");
_Static_assert(TILE_ROWS <= 14 && MM_FEW_ROWS == 8, "there is a case for each number of rows");

/* ---- micro-kernel */

/* The index of the element that is decoded as number e. A block of NF4 is eight dwords of four
 * elements: elements 0 of all eight come first, then elements 1, ... */
INLINE int64_t decoded_index(mm_format format, int64_t e)
{
    return format == MM_BF16_PAIR_NF4 ? e / 32 * 32 + e % 4 * 8 + e / 4 % 8 : e;
}

/* Partial sum s of a block, for the columns from `column` on; rows are in order. There is a pointer
 * for every three rows: x86 addresses reach base + stride and base + 2 stride at no cost. Steps of
 * UNROLL elements save instructions other than loads and multiply-adds: two hardware threads of a
 * core share its decoder. After every PREFETCH_STEP elements some lines of t->next are prefetched;
 * all of them at once would wait for memory. */
INLINE void tile_partial_sum(int n_rows, int n_vectors, int partials, const mm_tile *t,
                             int64_t column, int64_t s, int64_t lines)
{
    int64_t n = t->n_elements / partials;
    vecf sum[TILE_ROWS][TILE_VECTORS];
    vec b[TILE_VECTORS];
    const mm_element *panel = t->panel + s * n * MM_NR + column, *end = panel + n * MM_NR;
    const mm_element *a[(TILE_ROWS + 2) / 3];
    bool add = t->add || s > 0;
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i += 3)
        a[i / 3] = t->rows + i * t->row_stride + s;
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        sum[i][0] = sum[i][1] = zero_sums();
    while (panel < end) {
        const mm_element *stop =
            panel + PREFETCH_STEP * MM_NR < end ? panel + PREFETCH_STEP * MM_NR : end;
        if (lines > 0)
            packing_prefetch_lines(t->next, lines);
        for (; panel < stop; panel += UNROLL * MM_NR) {
#pragma GCC unroll 64
            for (int u = 0; u < UNROLL; u++) {
#pragma GCC unroll 64
                for (int v = 0; v < n_vectors; v++)
                    b[v] = load_elements(panel + u * MM_NR + v * VECTOR);
#pragma GCC unroll 64
                for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                    for (int v = 0; v < n_vectors; v++)
                        sum[i][v] = multiply_add(
                            sum[i][v], a[i / 3][u * partials + i % 3 * t->row_stride], b[v]);
            }
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i += 3)
                a[i / 3] += UNROLL * partials;
        }
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int v = 0; v < n_vectors; v++)
            put_sums(t->sums + i * t->ld + column + v * VECTOR, sum[i][v], add);
}

/* All partial sums of a block, for columns that fill two vectors or one. */
INLINE void tile_partial_sums(int n_rows, int partials, const mm_tile *t, int64_t column)
{
    int64_t lines = t->next_lines;
    if (lines > 0)
        lines = num_divide_up(lines * PREFETCH_STEP * TILE_VECTORS * VECTOR, t->n_elements * MM_NR);
    for (int64_t s = 0; s < partials; s++)
        if (t->n_columns - column > VECTOR)
            tile_partial_sum(n_rows, TILE_VECTORS, partials, t, column, s, lines);
        else
            tile_partial_sum(n_rows, 1, partials, t, column, s, lines);
}

/* A second comparison, where none is needed, makes GCC 12 copy sums between registers in the
 * unrolled loop of AVX2. */
INLINE void tile_sums(int n_rows, const mm_tile *t, int64_t column)
{
    const bool split = PAIRS ? mm_is_split(t->format) : t->format == MM_F32_SPLIT;
    if (!MANY_REGISTERS && split)
        tile_partial_sums(n_rows, PARTIALS, t, column);
    else
        tile_partial_sums(n_rows, 1, t, column);
}

/* `case n: CASE(n) break;` for n from 1 to 8: a compile-time copy for each number of rows. */
#define CASES_TO_8 CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)

TARGET static void micro_kernel(const mm_tile *t)
{
#if MANY_REGISTERS
    if (mm_is_split(t->format)) {
        split_sums(t);
        return;
    }
#endif
    for (int64_t column = 0; column < t->n_columns; column += TILE_VECTORS * VECTOR)
        switch (t->n_rows) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        tile_sums(n <= TILE_ROWS ? n : 1, t, column);                                              \
        break;
            CASES_TO_8 CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14)
#undef CASE
        }
}

/* ---- columns of an operand with contiguous k: transposition in registers */

/* One or two vectors of columns. `next` is where the columns after them begin, which are prefetched
 * in the order of memory while these are computed; NULL: nothing is prefetched. */
typedef struct column_source {
    const mm_operand *x;
    row_pointers rows[TILE_VECTORS], scales[TILE_VECTORS];
    const char *next;
} column_source;

INLINE column_source columns_from(int n_vectors, dtype dt, const mm_operand *x, int64_t column,
                                  int64_t end)
{
    column_source s = { .x = x };
#pragma GCC unroll 64
    for (int v = 0; v < n_vectors; v++) {
        s.rows[v] = rows_from(x->data, bytes_of(dt, x->ld), column + v * VECTOR, end);
        if (dt == DT_NF4)
            s.scales[v] = rows_from(x->scales, x->ld / NF4_BLOCK * 4, column + v * VECTOR, end);
    }
    return s;
}

/* Where the elements of columns go: into a panel (n_rows is 0), or multiplied into sums. */
typedef struct column_sink {
    mm_element *panel; /* [n_elements][MM_NR] */
    int partials;      /* by which the panel is grouped */
    int64_t n_elements;
    const mm_element *rows; /* [n_rows][MM_KC] */
    vecf sum[MM_FEW_ROWS][TILE_VECTORS];
} column_sink;

/* Element e of the columns of vector v. */
INLINE void put_columns(int n_rows, column_sink *to, int v, int64_t e, vec b)
{
    if (n_rows == 0) {
        int64_t at = grouped_index(to->partials, e, to->n_elements);
        store_elements(to->panel + at * MM_NR + v * VECTOR, b);
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        to->sum[i][v] = multiply_add(to->sum[i][v], to->rows[i * MM_KC + e], b);
}

/* Element e of transposed dwords. */
INLINE vec element_of(dtype dt, mm_format format, const vec *dwords, int e, vec scale)
{
#if PAIRS
    if (dt == DT_BF16)
        return dwords[e];
    bool nf4 = format == MM_BF16_PAIR_NF4;
    int even = nf4 ? e : 2 * e, odd = even + (nf4 ? 4 : 1);
    return pair_up(value_of(dt, dwords, even, scale), value_of(dt, dwords, odd, scale));
#else
    vec x = value_of(dt, dwords, e, scale);
    bool rounds = format == MM_BF16_WIDENED && dt != DT_BF16;
    return !rounds ? x : dt == DT_NF4 ? round_bf16_number(x) : round_bf16(x);
#endif
}

/* The elements of `block`, at most one k block, of all columns. */
INLINE void transpose_columns(int n_rows, int n_vectors, dtype dt, mm_format format,
                              const column_source *from, mm_block block, column_sink *to)
{
    const int parts = dt == DT_NF4 ? DWORDS : 1; /* a whole step of NF4 unrolled is too much code */
    const int step = (dt == DT_F32 ? 8 : dt == DT_BF16 ? 16 : 64) / VALUES, per_part = step / parts;
    int64_t k = block.e * VALUES, bytes = bytes_of(dt, from->x->k);
    vec scale[TILE_VECTORS][SCALES], dwords[TILE_VECTORS][DWORDS];
#pragma GCC unroll 64
    for (int v = 0; v < n_vectors; v++)
        for (int i = 0; dt == DT_NF4 && i < SCALES; i += DWORDS) /* one scale for each step */
            load_transposed(&from->scales[v], k / 16 + i * 4, bytes / 8 - k / 16 - i * 4,
                            scale[v] + i);
    for (int i = 0; dt == DT_NF4 && format == MM_BF16_WIDENED && i < n_vectors * SCALES; i++)
        scale[i / SCALES][i % SCALES] = plain_nan(scale[i / SCALES][i % SCALES]);
    for (int64_t e = 0; e < num_round_up(block.n_elements, MM_K_GROUP); e += step) {
        int64_t byte = bytes_of(dt, k + e * VALUES);
#pragma GCC unroll 64
        for (int v = 0; v < n_vectors; v++)
            load_transposed(&from->rows[v], byte, bytes - byte, dwords[v]);
        if (from->next)
#pragma GCC unroll 64
            for (int i = 0; i < n_vectors * VECTOR * DWORDS * 4; i += 64)
                __builtin_prefetch(from->next + byte * n_vectors * VECTOR + i, 0, 2);
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 64
            for (int j = 0; j < per_part; j++)
#pragma GCC unroll 64
                for (int v = 0; v < n_vectors; v++) {
                    vec s = dt == DT_NF4 ? scale[v][e / step] : zero_elements();
                    put_columns(n_rows, to, v, decoded_index(format, e + part * per_part + j),
                                element_of(dt, format, dwords[v] + part, j, s));
                }
    }
}

INLINE void pack_panel_contiguous(int partials, dtype dt, mm_format format, const mm_operand *x,
                                  mm_block block, mm_element *dst)
{
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP);
    for (int64_t column = 0; column < MM_NR; column += TILE_VECTORS * VECTOR) {
        column_source from =
            columns_from(TILE_VECTORS, dt, x, block.row + column, block.row + block.n_rows);
        column_sink to = { .panel = dst + column, .partials = partials, .n_elements = n };
        transpose_columns(0, TILE_VECTORS, dt, format, &from, block, &to);
    }
}

/* Rows of NF4 that begin inside a quantisation block are left to packing.c. */
static bool rows_are_whole_blocks(const mm_operand *x)
{
    return x->dt != DT_NF4 || x->ld % NF4_BLOCK == 0;
}

/* ---- columns of an operand with strided k: neighbours in memory */

/* Values of VECTOR columns from `column` on at one k, as f32; zeros beyond the operand. */
INLINE vec column_values(dtype dt, const mm_operand *x, int64_t column, int64_t k)
{
    if (k >= x->k)
        return zero_elements();
    int64_t at = k * x->ld + column;
    const char *memory = (const char *)x->data + bytes_of(dt, at);
    return dt == DT_NF4 ? load_nf4(memory, x->scales[at / NF4_BLOCK])
                        : load_values(dt, memory, x->n - column);
}

INLINE vec column_elements(dtype dt, mm_format format, const mm_operand *x, int64_t column,
                           int64_t e)
{
#if PAIRS
    (void)format;
    if (dt == DT_BF16) {
        const char *even = (const char *)x->data + bytes_of(dt, 2 * e * x->ld + column);
        return pair_bf16(even, even + bytes_of(dt, x->ld), x->n - column, x->k - 2 * e);
    }
    return pair_up(column_values(dt, x, column, 2 * e), column_values(dt, x, column, 2 * e + 1));
#else
    vec y = column_values(dt, x, column, e);
    return format == MM_BF16_WIDENED && dt != DT_BF16 ? round_bf16(y) : y;
#endif
}

INLINE void pack_panel_strided(int partials, dtype dt, mm_format format, const mm_operand *x,
                               mm_block block, mm_element *dst)
{
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP), e = 0;
#if PAIRS
    if (dt == DT_BF16 && block.n_rows == MM_NR) /* whole panels: a loop without conditions */
        for (; e < num_min(n, x->k / 2 - block.e); e++) {
            const char *even =
                (const char *)x->data + bytes_of(dt, 2 * (block.e + e) * x->ld + block.row);
            for (int64_t column = 0; column < MM_NR; column += VECTOR)
                store_elements(
                    dst + grouped_index(partials, e, n) * MM_NR + column,
                    pair_bf16(even + column * 2, even + (x->ld + column) * 2, VECTOR, 2));
        }
#endif
    for (; e < n; e++)
        for (int64_t column = 0; column < block.n_rows; column += VECTOR)
            store_elements(dst + grouped_index(partials, e, n) * MM_NR + column,
                           column_elements(dt, format, x, block.row + column, block.e + e));
}

INLINE void pack_panel_dtype(int partials, dtype dt, mm_format format, const mm_operand *x,
                             mm_block block, mm_element *dst)
{
    if (x->k_contiguous)
        pack_panel_contiguous(partials, dt, format, x, block, dst);
    else
        pack_panel_strided(partials, dt, format, x, block, dst);
}

INLINE void pack_panel_grouped(int partials, mm_element *dst, const mm_operand *x, mm_format format,
                               mm_block block)
{
    if (x->dt == DT_F32)
        pack_panel_dtype(partials, DT_F32, format, x, block, dst);
    else if (x->dt == DT_BF16)
        pack_panel_dtype(partials, DT_BF16, MM_F32, x, block, dst);
    else if (format == MM_BF16_PAIR_NF4)
        pack_panel_dtype(partials, DT_NF4, MM_BF16_PAIR_NF4, x, block, dst);
    else
        pack_panel_dtype(partials, DT_NF4, format, x, block, dst);
}

/* The panel with its elements in order. */
TARGET static void pack_panel(mm_element *dst, const mm_operand *x, mm_format format,
                              mm_block block)
{
    if (!PAIRS && format == MM_F32_SPLIT)
        pack_panel_dtype(PARTIALS, DT_F32, format, x, block, dst);
    else if (rows_are_whole_blocks(x))
        pack_panel_grouped(1, dst, x, format, block);
    else
        packing_panel(dst, x, format, block);
}

/* ---- rows: [n][MM_KC], or as AMX tiles: [n / 16][MM_KC / 16][16][16], each tile contiguous */

INLINE mm_element *packed_row(bool as_tiles, mm_element *dst, int64_t i, int64_t e)
{
    enum { T = MM_AMX_TILE };
    if (!as_tiles)
        return dst + i * MM_KC + e;
    return dst + i / T * T * MM_KC + (e / T * T + i % T) * T + e % T;
}

INLINE void pack_rows_strided(bool as_tiles, dtype dt, mm_element *dst, const mm_operand *x,
                              mm_format format, mm_block block)
{
    mm_element square[VECTOR][VECTOR]; /* [elements][rows] */
    row_pointers lines = rows_from(square, sizeof square[0], 0, VECTOR);
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP);
    for (int64_t first = 0; first < block.n_rows; first += VECTOR)
        for (int64_t e = 0; e < n; e += VECTOR) {
            for (int j = 0; j < VECTOR; j++)
                store_elements(square[j],
                               column_elements(dt, format, x, block.row + first, block.e + e + j));
            for (int64_t i = 0; i < num_min(VECTOR, block.n_rows - first); i += DWORDS) {
                vec row[DWORDS];
                load_transposed(&lines, i * 4, DWORDS * 4, row);
                for (int64_t j = 0; j < num_min(DWORDS, block.n_rows - first - i); j++)
                    store_elements(packed_row(as_tiles, dst, first + i + j, e), row[j]);
            }
        }
}

INLINE void pack_rows_contiguous(bool as_tiles, dtype dt, mm_element *dst, const mm_operand *x,
                                 mm_format format, mm_block block)
{
    int64_t n = num_round_up(block.n_elements, MM_K_GROUP), k = block.e * VALUES;
    for (int64_t i = 0; i < block.n_rows; i++) {
        const char *at = (const char *)x->data + bytes_of(dt, (block.row + i) * x->ld + k);
        mm_element *to = packed_row(as_tiles, dst, i, 0);
        const int step = as_tiles ? MM_AMX_TILE * VECTOR : VECTOR; /* to the next vector */
        int64_t e = 0, whole = num_min(n, (x->k - k) / VALUES) / VECTOR * VECTOR;
        for (; e < whole; e += VECTOR, to += step)
            store_elements(
                to, load_row_elements(dt, format, at + bytes_of(dt, e * VALUES), VECTOR * VALUES));
        for (; e < n; e += VECTOR, to += step)
            store_elements(to, load_row_elements(dt, format, at + bytes_of(dt, e * VALUES),
                                                 x->k - k - e * VALUES));
    }
}

INLINE void pack_rows_dtype(bool as_tiles, dtype dt, mm_element *dst, const mm_operand *x,
                            mm_format format, mm_block block)
{
    if (x->k_contiguous)
        pack_rows_contiguous(as_tiles, dt, dst, x, format, block);
    else
        pack_rows_strided(as_tiles, dt, dst, x, format, block);
}

INLINE void pack_rows_in_order(bool as_tiles, mm_element *dst, const mm_operand *x,
                               mm_format format, mm_block block)
{
    if (x->dt == DT_F32)
        pack_rows_dtype(as_tiles, DT_F32, dst, x, format, block);
    else
        pack_rows_dtype(as_tiles, DT_BF16, dst, x, format, block);
}

/* ---- epilogue */

/* Columns [j, j + n) of a row, at most VECTOR of them. */
INLINE void epilogue_vector(dtype dt, bool accumulate, const mm_epilogue *row, int64_t j, int64_t n)
{
    char *out = (char *)row->out + bytes_of(dt, j);
    vecf y = as_floats(load_values(DT_F32, (const char *)(row->sums + j), n));
    y = scale_sums(y, row->scale);
    if (row->bias)
        y = add_sums(y, as_floats(load_values(DT_F32, (const char *)(row->bias + j), n)));
    if (accumulate)
        y = add_sums(y, as_floats(load_values(dt, out, n)));
    store_values(dt, out, y, n);
}

/* The compiler keeps what a loop needs in registers only if it sees that stores to out cannot
 * change it: hence a copy of *o. */
INLINE void epilogue_dtype(dtype dt, bool accumulate, const mm_epilogue *o)
{
    mm_epilogue row = *o;
    for (int64_t i = 0; i < o->n_rows; i++) {
        int64_t j = 0;
        for (; j + VECTOR <= row.n; j += VECTOR)
            epilogue_vector(dt, accumulate, &row, j, VECTOR);
        if (j < row.n)
            epilogue_vector(dt, accumulate, &row, j, row.n - j);
        row.out = (char *)row.out + bytes_of(dt, row.ld);
        row.sums += row.sums_ld;
    }
}

TARGET static void epilogue(const mm_epilogue *o)
{
    if (o->dt == DT_F32 && o->accumulate)
        epilogue_dtype(DT_F32, true, o);
    else if (o->dt == DT_F32)
        epilogue_dtype(DT_F32, false, o);
    else if (o->accumulate)
        epilogue_dtype(DT_BF16, true, o);
    else
        epilogue_dtype(DT_BF16, false, o);
}
