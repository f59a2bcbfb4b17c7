/* kernel_body: one engine over vectors of VECTOR 32-bit lanes, included by a .c file after the
 * primitives of its instruction set (simd_*.h), which say how words and vectors are made.
 *
 * tile: a word of the rows is broadcast and multiplied with two vectors of lanes, ROWS x 2 sums
 * stay in registers. Weights of the forward product lie with k last, so their lanes come from a
 * transposition in registers of eight 32-bit words of memory of VECTOR vectors; a word of memory is
 * one f32, two bf16 or eight codes of NF4, which are looked up after the transposition. Packing
 * stores these lanes; `few` multiplies them at once. Where k is first, lanes are neighbours. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/pack.h"

enum {
    GROUPS = 2,                           /* vectors of lanes made or multiplied together */
    SCALES = MM_K * PER_WORD / NF4_BLOCK, /* of NF4, a vector and block of k: whole MEMORYs */
    TILE = 16                             /* rows, and words, of a tile of AMX */
};

_Static_assert(SCALES % MEMORY == 0, "the scales of a block are transposed MEMORY at a time");
_Static_assert(ROWS <= 14 && MM_FEW == 8, "tile() and few() have a case for each number of rows");

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- tile */

INLINE void tile_rows(int n_rows, const mm_tile *t, int64_t lane)
{
    vecf sum[ROWS][2];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        sum[i][0] = sum[i][1] = no_sum();
    for (int64_t w = 0; w < t->nw; w++) {
        vec lanes0 = load_words(t->lanes + w * MM_LANES + lane);
        vec lanes1 = load_words(t->lanes + w * MM_LANES + lane + VECTOR);
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++) {
            mm_word a = t->rows[i * MM_K + w];
            sum[i][0] = multiply_add(sum[i][0], a, lanes0);
            sum[i][1] = multiply_add(sum[i][1], a, lanes1);
        }
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++) {
        put_sums(t->sums + i * t->ld + lane, sum[i][0], t->add);
        put_sums(t->sums + i * t->ld + lane + VECTOR, sum[i][1], t->add);
    }
}

TARGET static void tile(const mm_tile *t)
{
    for (int64_t lane = 0; lane < MM_LANES; lane += GROUPS * VECTOR)
        switch (t->n_rows) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (n <= ROWS)                                                                             \
            tile_rows(n <= ROWS ? n : 1, t, lane);                                                 \
        break;
            CASE(1)
            CASE(2)
            CASE(3)
            CASE(4)
            CASE(5)
            CASE(6)
            CASE(7)
            CASE(8)
            CASE(9)
            CASE(10)
            CASE(11)
            CASE(12)
            CASE(13)
            CASE(14)
#undef CASE
        }
}

/* ---- lanes of a side with k last */

/* Where one or two vectors of lanes come from, and where the lanes after them begin: fetching those
 * in the order they lie, while these are multiplied, is what keeps the memory busy. */
typedef struct source {
    const mm_side *x;
    vectors at[GROUPS], scales[GROUPS];
    const char *next; /* NULL: nothing to fetch */
} source;

INLINE vectors vectors_of(const void *data, int64_t row_bytes, int64_t first, int64_t end)
{
    vectors v;
    for (int i = 0; i < VECTOR; i++)
        v.at[i] = (const char *)data + least(first + i, end - 1) * row_bytes;
    return v;
}

INLINE source source_of(int groups, dtype dt, const mm_side *x, int64_t lane, int64_t end)
{
    source s = { .x = x };
#pragma GCC unroll 64
    for (int g = 0; g < groups; g++) {
        s.at[g] = vectors_of(x->data, bytes_of(dt, x->ld), lane + g * VECTOR, end);
        if (dt == DT_NF4)
            s.scales[g] = vectors_of(x->scales, x->ld / NF4_BLOCK * 4, lane + g * VECTOR, end);
    }
    return s;
}

/* What becomes of lanes: stored [nw][MM_LANES] when n_rows is 0, else multiplied into sum. */
typedef struct sink {
    mm_word *dst;
    const mm_word *rows; /* [n_rows][MM_K] */
    vecf sum[MM_FEW][GROUPS];
} sink;

INLINE void take(int n_rows, sink *to, int g, int64_t w, vec lanes)
{
    if (n_rows == 0)
        store_words(to->dst + w * MM_LANES + g * VECTOR, lanes);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        to->sum[i][g] = multiply_add(to->sum[i][g], to->rows[i * MM_K + w], lanes);
}

/* Word number w of eight words of memory a lane. */
INLINE vec word_of(dtype dt, mm_words words, const vec *memory, int w, vec scale)
{
#if PAIRS
    (void)words;
    if (dt == DT_BF16)
        return memory[w];
    return pair_up(value_of(dt, memory, 2 * w, scale), value_of(dt, memory, 2 * w + 1, scale));
#else
    vec x = value_of(dt, memory, w, scale);
    return words == MM_BF16_AS_F32 ? round_bf16(x) : x;
#endif
}

/* The words of a box, one block at most, of all groups. */
INLINE void make_lanes(int n_rows, int groups, dtype dt, mm_words words, const source *from,
                       mm_box box, sink *to)
{
    const int parts = dt == DT_NF4 ? MEMORY : 1; /* a step of NF4 at once is too much code */
    const int step = (dt == DT_F32 ? 8 : dt == DT_BF16 ? 16 : 64) / PER_WORD, some = step / parts;
    int64_t k = box.w * PER_WORD, bytes = bytes_of(dt, from->x->k);
    vec scale[GROUPS][SCALES], memory[GROUPS][MEMORY];
#pragma GCC unroll 64
    for (int g = 0; g < groups; g++)
        for (int i = 0; dt == DT_NF4 && i < SCALES; i += MEMORY) /* one a step */
            load_memory(&from->scales[g], k / 16 + i * 4, bytes / 8 - k / 16 - i * 4, scale[g] + i);
    for (int64_t w = 0; w < pack_round_up(box.nw, MM_WORDS); w += step) {
        int64_t byte = bytes_of(dt, k + w * PER_WORD);
#pragma GCC unroll 64
        for (int g = 0; g < groups; g++)
            load_memory(&from->at[g], byte, bytes - byte, memory[g]);
        if (from->next)
#pragma GCC unroll 64
            for (int i = 0; i < groups * VECTOR * MEMORY * 4; i += 64)
                __builtin_prefetch(from->next + byte * groups * VECTOR + i, 0, 2);
        for (int part = 0; part < parts; part++)
#pragma GCC unroll 64
            for (int j = 0; j < some; j++)
#pragma GCC unroll 64
                for (int g = 0; g < groups; g++) {
                    vec s = dt == DT_NF4 ? scale[g][w / step] : no_words();
                    take(n_rows, to, g, w + part * some + j,
                         word_of(dt, words, memory[g] + part, j, s));
                }
    }
}

INLINE void pack_k_last(dtype dt, mm_words words, const mm_side *x, mm_box box, mm_word *dst)
{
    for (int64_t lane = 0; lane < MM_LANES; lane += GROUPS * VECTOR) {
        source from = source_of(GROUPS, dt, x, box.i + lane, box.i + box.n);
        sink to = { .dst = dst + lane };
        make_lanes(0, GROUPS, dt, words, &from, box, &to);
    }
}

INLINE void few_k_last(int n_rows, dtype dt, const mm_tile *t, const mm_side *x, mm_box box)
{
    /* NF4 is bound by arithmetic and wants more sums under way; the rest by memory. */
    const int groups = dt == DT_NF4 && n_rows <= 4 ? GROUPS : 1;
    int64_t row_bytes = bytes_of(dt, x->ld), end = box.i + box.n;
    for (int64_t lane = 0; lane < box.n; lane += groups * VECTOR) {
        source from = source_of(groups, dt, x, box.i + lane, end);
        if (lane + groups * VECTOR < box.n)
            from.next = from.at[0].at[0] + row_bytes * groups * VECTOR;
        const mm_word *rows = t->rows;
        for (int64_t w = 0; w < box.nw; w += t->block, rows += n_rows * MM_K) {
            sink to = { .rows = rows };
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
                to.sum[i][0] = to.sum[i][1] = no_sum();
            mm_box part = { .w = box.w + w, .nw = least(t->block, box.nw - w) };
            make_lanes(n_rows, groups, dt, MM_F32, &from, part, &to);
#pragma GCC unroll 64
            for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
                for (int g = 0; g < groups; g++)
                    put_sums(t->sums + i * t->ld + lane + g * VECTOR, to.sum[i][g], w > 0);
        }
    }
}

/* Rows of NF4 that begin inside a block are left to the plain code. */
static bool in_blocks(const mm_side *x)
{
    return x->dt != DT_NF4 || x->ld % NF4_BLOCK == 0;
}

TARGET static bool few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box)
{
    bool rounds = words == MM_BF16_AS_F32 && x->dt != DT_BF16;
    if (!x->k_last || !in_blocks(x) || rounds)
        return false;
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if (x->dt == DT_F32)                                                                       \
            few_k_last(n, DT_F32, t, x, box);                                                      \
        else if (x->dt == DT_BF16)                                                                 \
            few_k_last(n, DT_BF16, t, x, box);                                                     \
        else                                                                                       \
            few_k_last(n, DT_NF4, t, x, box);                                                      \
        break;
    switch (t->n_rows) {
        CASE(1)
        CASE(2)
        CASE(3)
        CASE(4)
        CASE(5)
        CASE(6)
        CASE(7)
        CASE(8)
    }
#undef CASE
    return true;
}

/* ---- sides with k first */

/* VECTOR lanes from i at one k, as f32; zeros where the side ends. */
INLINE vec values_across(dtype dt, const mm_side *x, int64_t i, int64_t k)
{
    if (k >= x->k)
        return no_words();
    int64_t at = k * x->ld + i;
    const char *memory = (const char *)x->data + bytes_of(dt, at);
    return dt == DT_NF4 ? load_nf4(memory, x->scales[at / NF4_BLOCK])
                        : load_values(dt, memory, x->n - i);
}

INLINE vec word_across(dtype dt, mm_words words, const mm_side *x, int64_t i, int64_t w)
{
#if PAIRS
    (void)words;
    if (dt == DT_BF16) {
        const char *even = (const char *)x->data + bytes_of(dt, 2 * w * x->ld + i);
        return pair_bf16(even, even + bytes_of(dt, x->ld), x->n - i, x->k - 2 * w);
    }
    return pair_up(values_across(dt, x, i, 2 * w), values_across(dt, x, i, 2 * w + 1));
#else
    vec y = values_across(dt, x, i, w);
    return words == MM_BF16_AS_F32 ? round_bf16(y) : y;
#endif
}

INLINE void pack_k_first(dtype dt, mm_words words, const mm_side *x, mm_box box, mm_word *dst)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t w = 0; w < nw; w++)
        for (int64_t lane = 0; lane < box.n; lane += VECTOR)
            store_words(dst + w * MM_LANES + lane,
                        word_across(dt, words, x, box.i + lane, box.w + w));
}

INLINE void pack_dtype(dtype dt, mm_words words, const mm_side *x, mm_box box, mm_word *dst)
{
    if (x->k_last)
        pack_k_last(dt, words, x, box, dst);
    else
        pack_k_first(dt, words, x, box, dst);
}

TARGET static void lanes(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (!in_blocks(x))
        pack_lanes(dst, x, words, box);
    else if (x->dt == DT_F32)
        pack_dtype(DT_F32, words, x, box, dst);
    else if (x->dt == DT_BF16)
        pack_dtype(DT_BF16, MM_F32, x, box, dst);
    else
        pack_dtype(DT_NF4, words, x, box, dst);
}

/* ---- rows: [n][MM_K], or `tiled`: [n / 16][MM_K / 16][16][16], each tile one run of memory */

INLINE mm_word *row_at(bool tiled, mm_word *dst, int64_t i, int64_t w)
{
    if (!tiled)
        return dst + i * MM_K + w;
    return dst + i / TILE * TILE * MM_K + (w / TILE * TILE + i % TILE) * TILE + w % TILE;
}

INLINE void rows_k_first(bool tiled, dtype dt, mm_word *dst, const mm_side *x, mm_words words,
                         mm_box box)
{
    mm_word block[VECTOR][VECTOR]; /* words, then lanes */
    vectors v = vectors_of(block, sizeof block[0], 0, VECTOR);
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t first = 0; first < box.n; first += VECTOR)
        for (int64_t w = 0; w < nw; w += VECTOR) {
            for (int j = 0; j < VECTOR; j++)
                store_words(block[j], word_across(dt, words, x, box.i + first, box.w + w + j));
            for (int64_t i = 0; i < least(VECTOR, box.n - first); i += MEMORY) {
                vec row[MEMORY];
                load_memory(&v, i * 4, MEMORY * 4, row);
                for (int64_t j = 0; j < least(MEMORY, box.n - first - i); j++)
                    store_words(row_at(tiled, dst, first + i + j, w), row[j]);
            }
        }
}

INLINE void rows_k_last(bool tiled, dtype dt, mm_word *dst, const mm_side *x, mm_words words,
                        mm_box box)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t i = 0; i < box.n; i++)
        for (int64_t w = 0; w < nw; w += VECTOR) {
            int64_t k = (box.w + w) * PER_WORD;
            const char *at = (const char *)x->data + bytes_of(dt, (box.i + i) * x->ld + k);
            store_words(row_at(tiled, dst, i, w), words_along(dt, words, at, x->k - k));
        }
}

INLINE void rows_dtype(bool tiled, dtype dt, mm_word *dst, const mm_side *x, mm_words words,
                       mm_box box)
{
    if (x->k_last)
        rows_k_last(tiled, dt, dst, x, words, box);
    else
        rows_k_first(tiled, dt, dst, x, words, box);
}

INLINE void rows_any(bool tiled, mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (x->dt == DT_F32)
        rows_dtype(tiled, DT_F32, dst, x, words, box);
    else
        rows_dtype(tiled, DT_BF16, dst, x, words, box);
}

TARGET static void rows(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    rows_any(false, dst, x, words, box);
}

/* ---- out */

INLINE void store_part(dtype dt, const mm_row *r, int64_t j, int64_t n)
{
    char *out = (char *)r->out + bytes_of(dt, j);
    vecf y = as_floats(load_values(DT_F32, (const char *)(r->sums + j), n)) * r->scale;
    if (r->bias)
        y += as_floats(load_values(DT_F32, (const char *)(r->bias + j), n));
    if (r->accumulate)
        y += as_floats(load_values(dt, out, n));
    store_values(dt, out, y, n);
}

INLINE void store_row(dtype dt, const mm_row *r)
{
    int64_t j = 0;
    for (; j + VECTOR <= r->n; j += VECTOR)
        store_part(dt, r, j, VECTOR);
    if (j < r->n)
        store_part(dt, r, j, r->n - j);
}

TARGET static void store(const mm_row *r)
{
    if (r->dt == DT_F32)
        store_row(DT_F32, r);
    else
        store_row(DT_BF16, r);
}

#define KERNEL                                                                                     \
    .rows = ROWS, .row_pad = 1, .pack_rows = rows, .pack_lanes = lanes, .tile = tile, .few = few,  \
    .store = store
