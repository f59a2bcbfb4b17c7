/* kernel_body: one engine over vectors of VECTOR 32-bit lanes, included by a .c file after the
 * primitives of its instruction set (simd_*.h), which say how words and vectors are made.
 *
 * tile: a word of the rows is broadcast and multiplied with two vectors of lanes, ROWS x 2 sums
 * stay in registers. Weights of the forward product lie with k last, so their lanes come from a
 * transposition in registers of eight 32-bit words of memory of VECTOR vectors; a word of memory is
 * one f32, two bf16 or eight codes of NF4, which are looked up after the transposition. Packing
 * stores these lanes. Where k is first, lanes are neighbours.
 *
 * The order of a block: its words in order, where `few` multiplies lanes as they are made
 * (kernel_few.h). Where it multiplies vectors as they lie (kernel_along.h), word w belongs to sum
 * w % SUMS, each sum takes its words in order, and the sums are added in order to what the blocks
 * before gave; then packing brings the words of a sum together. */
#include "backend/cpu/kernel.h"
#include "backend/cpu/pack.h"

enum {
    SUMS = VECTOR,                        /* of a block of MM_BF16_ALONG or MM_BF16_FOURTH */
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

/* Where word w of nw is packed when the words of each sum lie together. */
INLINE int64_t place(int sums, int64_t w, int64_t nw)
{
    return w % sums * (nw / sums) + w / sums;
}

/* The number of the word that is made as number w: of a block of NF4, eight 32-bit words of memory
 * of four words each, the first of all eight, the second of all, ... */
INLINE int64_t number(mm_words words, int64_t w)
{
    return words == MM_BF16_FOURTH ? w / 32 * 32 + w % 4 * 8 + w / 4 % 8 : w;
}

/* Sum number s of a block, of n words. Rows in threes: x86 adds a register once or twice to a
 * pointer for nothing. */
INLINE void tile_sum(int n_rows, int groups, const mm_tile *t, int64_t lane, int64_t s, int64_t n)
{
    vecf sum[ROWS][GROUPS];
    vec lanes[GROUPS];
    const mm_word *right = t->lanes + s * n * MM_LANES + lane, *end = right + n * MM_LANES;
    const mm_word *left[(ROWS + 2) / 3];
    int64_t step = t->apart ? SUMS : 1;
    bool add = t->add || s > 0;
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i += 3)
        left[i / 3] = t->rows + i * t->row + (t->apart ? s : s * n);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        sum[i][0] = sum[i][1] = no_sum();
    for (; right < end; right += MM_LANES) {
#pragma GCC unroll 64
        for (int g = 0; g < groups; g++)
            lanes[g] = load_words(right + g * VECTOR);
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
            for (int g = 0; g < groups; g++)
                sum[i][g] = multiply_add(sum[i][g], left[i / 3][i % 3 * t->row], lanes[g]);
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i += 3)
            left[i / 3] += step;
    }
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int g = 0; g < groups; g++)
            put_sums(t->sums + i * t->ld + lane + g * VECTOR, sum[i][g], add);
}

/* All sums of a block, of lanes that fill two vectors or one. */
INLINE void tile_rows(int n_rows, const mm_tile *t, int64_t lane)
{
    int64_t sums = t->words > MM_BF16_PAIR ? SUMS : 1, n = t->nw / sums;
    for (int64_t s = 0; s < sums; s++)
        if (t->n_lanes - lane > VECTOR)
            tile_sum(n_rows, GROUPS, t, lane, s, n);
        else
            tile_sum(n_rows, 1, t, lane, s, n);
}

TARGET static void tile(const mm_tile *t)
{
    for (int64_t lane = 0; lane < t->n_lanes; lane += GROUPS * VECTOR)
        switch (t->n_rows) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        tile_rows(n <= ROWS ? n : 1, t, lane);                                                     \
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
    int sums; /* that `nw` words lie apart by */
    int64_t nw;
    const mm_word *rows; /* [n_rows][MM_K] */
    vecf sum[MM_FEW][GROUPS];
} sink;

INLINE void take(int n_rows, sink *to, int g, int64_t w, vec lanes)
{
    if (n_rows == 0)
        store_words(to->dst + place(to->sums, w, to->nw) * MM_LANES + g * VECTOR, lanes);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
        to->sum[i][g] = multiply_add(to->sum[i][g], to->rows[i * MM_K + w], lanes);
}

/* Word number w of eight words of memory a lane. */
INLINE vec word_of(dtype dt, mm_words words, const vec *memory, int w, vec scale)
{
#if PAIRS
    if (dt == DT_BF16)
        return memory[w];
    int even = words == MM_BF16_FOURTH ? w : 2 * w, odd = even + (words == MM_BF16_FOURTH ? 4 : 1);
    return pair_up(value_of(dt, memory, even, scale), value_of(dt, memory, odd, scale));
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
                    take(n_rows, to, g, number(words, w + part * some + j),
                         word_of(dt, words, memory[g] + part, j, s));
                }
    }
}

INLINE void pack_k_last(int sums, dtype dt, mm_words words, const mm_side *x, mm_box box,
                        mm_word *dst)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    for (int64_t lane = 0; lane < MM_LANES; lane += GROUPS * VECTOR) {
        source from = source_of(GROUPS, dt, x, box.i + lane, box.i + box.n);
        sink to = { .dst = dst + lane, .sums = sums, .nw = nw };
        make_lanes(0, GROUPS, dt, words, &from, box, &to);
    }
}

/* Rows of NF4 that begin inside a block are left to the plain code. */
static bool in_blocks(const mm_side *x)
{
    return x->dt != DT_NF4 || x->ld % NF4_BLOCK == 0;
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

INLINE void pack_k_first(int sums, dtype dt, mm_words words, const mm_side *x, mm_box box,
                         mm_word *dst)
{
    int64_t nw = pack_round_up(box.nw, MM_WORDS), w = 0;
#if PAIRS
    if (dt == DT_BF16 && box.n == MM_LANES) /* whole panels are worth a loop without conditions */
        for (; w < least(nw, x->k / 2 - box.w); w++) {
            const char *even =
                (const char *)x->data + bytes_of(dt, 2 * (box.w + w) * x->ld + box.i);
            for (int64_t lane = 0; lane < MM_LANES; lane += VECTOR)
                store_words(dst + place(sums, w, nw) * MM_LANES + lane,
                            pair_bf16(even + lane * 2, even + (x->ld + lane) * 2, VECTOR, 2));
        }
#endif
    for (; w < nw; w++)
        for (int64_t lane = 0; lane < box.n; lane += VECTOR)
            store_words(dst + place(sums, w, nw) * MM_LANES + lane,
                        word_across(dt, words, x, box.i + lane, box.w + w));
}

INLINE void pack_dtype(int sums, dtype dt, mm_words words, const mm_side *x, mm_box box,
                       mm_word *dst)
{
    if (x->k_last)
        pack_k_last(sums, dt, words, x, box, dst);
    else
        pack_k_first(sums, dt, words, x, box, dst);
}

INLINE void lanes_any(int sums, mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (x->dt == DT_F32)
        pack_dtype(sums, DT_F32, words, x, box, dst);
    else if (x->dt == DT_BF16)
        pack_dtype(sums, DT_BF16, MM_F32, x, box, dst);
    else if (words == MM_BF16_FOURTH)
        pack_dtype(sums, DT_NF4, MM_BF16_FOURTH, x, box, dst);
    else
        pack_dtype(sums, DT_NF4, words, x, box, dst);
}

/* Words in order. */
TARGET static void lanes(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (in_blocks(x))
        lanes_any(1, dst, x, words, box);
    else
        pack_lanes(dst, x, words, box);
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
    int64_t nw = pack_round_up(box.nw, MM_WORDS), k = box.w * PER_WORD;
    for (int64_t i = 0; i < box.n; i++) {
        const char *at = (const char *)x->data + bytes_of(dt, (box.i + i) * x->ld + k);
        mm_word *to = row_at(tiled, dst, i, 0);
        const int step = tiled ? TILE * VECTOR : VECTOR; /* from one vector of words to the next */
        int64_t w = 0, whole = least(nw, (x->k - k) / PER_WORD) / VECTOR * VECTOR;
        for (; w < whole; w += VECTOR, to += step)
            store_words(to,
                        words_along(dt, words, at + bytes_of(dt, w * PER_WORD), VECTOR * PER_WORD));
        for (; w < nw; w += VECTOR, to += step)
            store_words(to, words_along(dt, words, at + bytes_of(dt, w * PER_WORD),
                                        x->k - k - w * PER_WORD));
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

/* ---- out */

INLINE void store_part(dtype dt, const mm_out *o, int64_t i, int64_t j, int64_t n)
{
    char *out = (char *)o->out + bytes_of(dt, i * o->ld + j);
    const float *sums = o->sums + i * o->sums_ld + j;
    vecf y = as_floats(load_values(DT_F32, (const char *)sums, n)) * o->scale;
    if (o->bias)
        y += as_floats(load_values(DT_F32, (const char *)(o->bias + j), n));
    if (o->accumulate)
        y += as_floats(load_values(dt, out, n));
    store_values(dt, out, y, n);
}

INLINE void store_dtype(dtype dt, const mm_out *o)
{
    for (int64_t i = 0; i < o->n_rows; i++) {
        int64_t j = 0;
        for (; j + VECTOR <= o->n; j += VECTOR)
            store_part(dt, o, i, j, VECTOR);
        if (j < o->n)
            store_part(dt, o, i, j, o->n - j);
    }
}

TARGET static void store(const mm_out *o)
{
    if (o->dt == DT_F32)
        store_dtype(DT_F32, o);
    else
        store_dtype(DT_BF16, o);
}
