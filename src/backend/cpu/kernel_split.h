/* kernel_split: sums of a k block in PARTIALS partial sums, included by kernel_simd.h.
 *
 * A few-rows kernel that multiplies a row of weights as it is in memory, VECTOR elements at a time,
 * has in lane s of its sum every PARTIALS-th product. That is the order of the split formats:
 * element e belongs to partial sum e % PARTIALS, each partial sum takes its elements in order, and
 * the partial sums are added in order to the sum of the earlier blocks. Packing groups the elements
 * of each partial sum, so that the micro-kernel reads them in one run. */
#include "backend/cpu/packing.h"

enum {
    PARTIALS = VECTOR, /* partial sums of a block in the split formats */
    TILE_VECTORS = 2,  /* vectors of columns in a register tile */
    SPLIT_ROWS = 7     /* rows whose sums and partial sums fit 32 registers */
};

/* Where element e of n is packed when the elements of each partial sum are grouped. */
INLINE int64_t grouped_index(int partials, int64_t e, int64_t n)
{
    return e % partials * (n / partials) + e / partials;
}

/* out [VECTOR] (+)= the partial sums [VECTOR outputs][PARTIALS] of each output, in order. */
INLINE void reduce_partials(float *out, const float *partials, bool add)
{
    vec part[PARTIALS];
    row_pointers v = rows_from(partials, PARTIALS * 4, 0, VECTOR);
#pragma GCC unroll 64
    for (int i = 0; i < PARTIALS; i += DWORDS)
        load_transposed(&v, i * 4, DWORDS * 4, part + i);
    vecf sum = as_floats(part[0]);
    if (add)
        sum = add_sums(load_sums(out), sum);
#pragma GCC unroll 64
    for (int i = 1; i < PARTIALS; i++)
        sum = add_sums(sum, as_floats(part[i]));
    put_sums(out, sum, false);
}

#if MANY_REGISTERS
/* All partial sums of a block for few enough rows that their sum stays in registers as well,
 * instead of being loaded and stored for each partial sum. The compiler would keep what it
 * computed from *t in vector registers, and spill sums: the barriers make it read *t again. */
INLINE void tile_split_sums(int n_rows, int n_vectors, const mm_tile *t)
{
    vecf sum[SPLIT_ROWS][TILE_VECTORS], total[SPLIT_ROWS][TILE_VECTORS];
    vec b[TILE_VECTORS];
    const mm_element *panel = t->panel, *row = t->rows, *a[(SPLIT_ROWS + 2) / 3];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int v = 0; v < n_vectors; v++)
            total[i][v] = t->add ? load_sums(t->sums + i * t->ld + v * VECTOR) : minus_zero();
    for (int s = 0; s < PARTIALS; s++) {
        __asm__ volatile("" : : : "memory");
        if (t->next_lines > 0)
            packing_prefetch_lines(t->next, t->next_lines);
        int64_t n = t->n_elements / PARTIALS, stride = t->row_stride;
        int64_t step = t->rows_in_order ? PARTIALS : 1;
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i += 3)
            a[i / 3] = row + i * stride;
        row += t->rows_in_order ? 1 : n;
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++)
                sum[i][v] = zero_sums();
        for (int64_t e = n; e != 0; e--, panel += MM_NR) {
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++)
                b[v] = load_elements(panel + v * VECTOR);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int v = 0; v < n_vectors; v++)
                    sum[i][v] = multiply_add(sum[i][v], a[i / 3][i % 3 * stride], b[v]);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i += 3) {
                a[i / 3] += step;
                __asm__("" : "+r"(a[i / 3])); /* one pointer for three rows, not one for each */
            }
        }
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
            for (int v = 0; v < n_vectors; v++)
                total[i][v] = add_sums(total[i][v], sum[i][v]);
    }
    __asm__ volatile("" : : : "memory");
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int v = 0; v < n_vectors; v++)
            put_sums(t->sums + i * t->ld + v * VECTOR, total[i][v], false);
}

/* A function for each number of rows, in which the compiler finds registers for all sums. */
#define SPLIT_SUMS(n)                                                                              \
    TARGET static __attribute__((noinline)) void split_sums_##n(const mm_tile *t)                  \
    {                                                                                              \
        if (t->n_columns > VECTOR)                                                                 \
            tile_split_sums(n, TILE_VECTORS, t);                                                   \
        else                                                                                       \
            tile_split_sums(n, 1, t);                                                              \
    }
SPLIT_SUMS(1)
SPLIT_SUMS(2)
SPLIT_SUMS(3)
SPLIT_SUMS(4)
SPLIT_SUMS(5)
SPLIT_SUMS(6)
SPLIT_SUMS(7)
#undef SPLIT_SUMS

/* The rows of a tile in as few parts of about equal height as possible. */
static void split_sums(const mm_tile *tile)
{
    static void (*const with_rows[SPLIT_ROWS + 1])(
        const mm_tile *) = { NULL,         split_sums_1, split_sums_2, split_sums_3,
                             split_sums_4, split_sums_5, split_sums_6, split_sums_7 };
    mm_tile t = *tile;
    int64_t parts = num_divide_up(tile->n_rows, SPLIT_ROWS), row = 0;
    t.next_lines = num_divide_up(t.next_lines, parts * PARTIALS); /* for each partial sum */
    for (int64_t part = 1; part <= parts; part++, row += t.n_rows) {
        t.n_rows = tile->n_rows * part / parts - row;
        t.rows = tile->rows + row * t.row_stride;
        t.sums = tile->sums + row * t.ld;
        with_rows[t.n_rows](&t);
    }
}
#endif
