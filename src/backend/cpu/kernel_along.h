/* kernel_along: few rows for the engine of bf16 pairs, included after kernel_body.h. A vector of a
 * side with k last is multiplied as it lies, VECTOR words at a time: a lane is one of the SUMS of a
 * block. The sums of VECTOR outputs are then transposed and added in order, as `tile` adds them.
 *
 * Few rows are bound by memory, and a core reads fastest what lies in order, without being told:
 * one row meets one vector after the other, each from end to end. Where arithmetic is the bound
 * (more rows, NF4), ALONG vectors share the loads of the rows, and what lies behind them is fetched
 * in order of addresses, not in the order of its use. */

#include <string.h>

enum {
    ALONG = 4,      /* vectors, and most rows, whose sums are in registers together */
    AHEAD = 8 << 10 /* bytes from what is read to what is fetched */
};

/* `outs` vectors of a side, from the first word of a block on. */
typedef struct along {
    const char *at[ALONG];
    const float *scales[ALONG];
    int64_t nw, left;    /* words of the block; elements from here to the end */
    const char *ahead;   /* what lies AHEAD of them all */
    const mm_word *rows; /* [.][MM_K]: what they meet */
} along;

INLINE along along_of(int outs, dtype dt, const mm_side *x, mm_box box, mm_box block)
{
    int64_t k = block.w * PER_WORD;
    along a = { .nw = block.nw, .left = x->k - k };
    for (int j = 0; j < outs; j++) {
        int64_t at = (box.i + least(j, box.n - 1)) * x->ld + k;
        a.at[j] = (const char *)x->data + bytes_of(dt, at);
        a.scales[j] = dt == DT_NF4 ? x->scales + at / NF4_BLOCK : NULL;
    }
    a.ahead = a.at[0] + AHEAD + bytes_of(dt, k * (outs - 1));
    return a;
}

/* A vector of words of each, or a block of NF4; `left` of their elements are there. */
INLINE void add_words(int n_rows, int outs, dtype dt, const along *x, int64_t w, int64_t left,
                      vecf sum[ALONG][ALONG])
{
    const int parts = dt == DT_NF4 ? 2 : 1;
    vec y[ALONG][2];
    int64_t byte = bytes_of(dt, w * PER_WORD);
#pragma GCC unroll 64
    for (int j = 0; j < outs; j++)
        if (dt == DT_NF4)
            nf4_block(x->at[j] + byte, x->scales[j][w * PER_WORD / NF4_BLOCK], &y[j][0], &y[j][1]);
        else
            y[j][0] = words_along(dt, MM_BF16_PAIR, x->at[j] + byte, left);
    if (outs > 1)
#pragma GCC unroll 64
        for (int i = 0; i < outs * bytes_of(dt, parts * VECTOR * PER_WORD); i += 64)
            __builtin_prefetch(x->ahead + byte * outs + i, 0, 2);
#pragma GCC unroll 64
    for (int part = 0; part < parts; part++)
#pragma GCC unroll 64
        for (int i = 0; i < n_rows; i++) {
            vec row = load_words(x->rows + i * MM_K + w + part * VECTOR);
#pragma GCC unroll 64
            for (int j = 0; j < outs; j++)
                sum[i][j] = multiply_words(sum[i][j], row, y[j][part]);
        }
}

/* sums [n_rows][VECTOR outputs][SUMS] of `outs` outputs over a block. */
INLINE void dots(int n_rows, int outs, dtype dt, const along *x, float *sums)
{
    const int step = dt == DT_NF4 ? NF4_BLOCK / PER_WORD : VECTOR;
    vecf sum[ALONG][ALONG];
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outs; j++)
            sum[i][j] = no_sum();
    int64_t w = 0, whole = least(x->nw, x->left / PER_WORD);
    for (; w + step <= whole; w += step)
        add_words(n_rows, outs, dt, x, w, step * PER_WORD, sum);
    if (w < x->nw)
        add_words(n_rows, outs, dt, x, w, x->left - w * PER_WORD, sum);
#pragma GCC unroll 64
    for (int i = 0; i < n_rows; i++)
#pragma GCC unroll 64
        for (int j = 0; j < outs; j++)
            _mm512_storeu_ps(sums + (i * VECTOR + j) * SUMS, sum[i][j]);
}

/* out [VECTOR] (+)= the sums of each output, in order. */
INLINE void fold(float *out, const float *sums, bool add)
{
    vec part[SUMS];
    vectors v = vectors_of(sums, SUMS * 4, 0, VECTOR);
    load_memory(&v, 0, MEMORY * 4, part);
    load_memory(&v, MEMORY * 4, MEMORY * 4, part + MEMORY);
    vecf sum = as_floats(part[0]);
    if (add)
        sum = _mm512_add_ps(_mm512_loadu_ps(out), sum);
#pragma GCC unroll 64
    for (int i = 1; i < SUMS; i++)
        sum = _mm512_add_ps(sum, as_floats(part[i]));
    _mm512_storeu_ps(out, sum);
}

/* Rows [row, row + n_rows) and VECTOR outputs from `lane` on. */
INLINE void meet(int n_rows, dtype dt, const mm_tile *t, const mm_side *x, mm_box box, int64_t lane,
                 int64_t row)
{
    enum { EACH = VECTOR * SUMS };     /* sums of a row and block */
    float *sums = (float *)t->scratch; /* [blocks][n_rows][VECTOR outputs][SUMS] */
    const int outs = n_rows == 1 && dt != DT_NF4 ? 1 : ALONG;
    for (int64_t j = 0; j < least(VECTOR, box.n - lane); j += outs) {
        mm_box some = { .i = box.i + lane + j, .n = box.n - lane - j };
        const mm_word *rows = t->rows + row * MM_K;
        float *to = sums + j * SUMS;
        for (int64_t w = 0; w < box.nw; w += t->block) {
            mm_box block = { .w = box.w + w, .nw = least(t->block, box.nw - w) };
            along a = along_of(outs, dt, x, some, block);
            a.rows = rows;
            dots(n_rows, outs, dt, &a, to);
            rows += t->n_rows * MM_K;
            to += n_rows * EACH;
        }
    }
    for (int64_t w = 0; w < box.nw; w += t->block)
        for (int i = 0; i < n_rows; i++, sums += EACH)
            fold(t->sums + (row + i) * t->ld + lane, sums, w > 0);
}

INLINE void few_along(dtype dt, const mm_tile *t, const mm_side *x, mm_box box)
{
    for (int64_t lane = 0; lane < box.n; lane += VECTOR)
        for (int64_t row = 0; row < t->n_rows; row += ALONG)
            switch (t->n_rows - row) {
            case 1:
                meet(1, dt, t, x, box, lane, row);
                break;
            case 2:
                meet(2, dt, t, x, box, lane, row);
                break;
            case 3:
                meet(3, dt, t, x, box, lane, row);
                break;
            default:
                meet(ALONG, dt, t, x, box, lane, row);
            }
}

static bool takes(const mm_side *x, mm_words words)
{
    enum { LONG = 256 }; /* many words for each sum: `tile` must add the sums */
    (void)words;
    return x->k_last && x->k >= LONG && in_blocks(x);
}

TARGET static void few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box)
{
    (void)words;
    if (x->dt == DT_F32)
        few_along(DT_F32, t, x, box);
    else if (x->dt == DT_BF16)
        few_along(DT_BF16, t, x, box);
    else
        few_along(DT_NF4, t, x, box);
}

/* ---- packing: rows for `few`, with words in order; then the words of a sum together for `tile` */

INLINE void spread_rows(bool tiled, mm_word *dst, mm_box box)
{
    for (int64_t i = 0; i < box.n; i++)
        for (int64_t w = 0; w < box.nw; w += 2 * VECTOR)
            spread_block(row_at(tiled, dst, i, w), row_at(tiled, dst, i, w + VECTOR));
}

TARGET static void rows_along(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    rows_any(false, dst, x, MM_BF16_PAIR, box);
    if (words == MM_BF16_FOURTH)
        spread_rows(false, dst, box);
}

TARGET static void lanes_apart(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (words == MM_BF16_PAIR)
        lanes(dst, x, words, box);
    else
        lanes_any(SUMS, dst, x, words, box);
}

/* A row of words in order, n for each sum. */
INLINE void part(mm_word *dst, const mm_word *row, int64_t n)
{
    for (int64_t i = 0; i < n; i += VECTOR) {
        vectors v = vectors_of(row, SUMS * 4, i, n);
        vec sums[SUMS];
        load_memory(&v, 0, MEMORY * 4, sums);
        load_memory(&v, MEMORY * 4, MEMORY * 4, sums + MEMORY);
#pragma GCC unroll 64
        for (int j = 0; j < SUMS; j++)
            _mm512_mask_storeu_epi32(dst + j * n + i, (__mmask16)first_bits(n - i), sums[j]);
    }
}

TARGET static void rows_apart(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    mm_word row[MM_K];
    int64_t nw = pack_round_up(box.nw, MM_WORDS);
    rows_along(dst, x, words, box);
    for (int64_t i = 0; i < box.n && words != MM_BF16_PAIR; i++) {
        memcpy(row, dst + i * MM_K, (size_t)nw * sizeof *row);
        part(dst + i * MM_K, row, nw / SUMS);
    }
}
