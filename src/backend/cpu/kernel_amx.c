/* kernel_amx: bf16 pairs on tiles. The packed forms are those of AVX-512: sixteen words of
 * sixteen lanes are a tile on the right. Rows are packed so that a tile on the left, sixteen rows
 * of sixteen words, is one run of memory: [rows / 16][MM_K / 16][16][16].
 *
 * Many rows stand on the left, packed or where they lie in memory, if tiles can be loaded there; a
 * strip of 32 keeps 2 x 2 tiles of sums while a panel streams past, and the results go through the
 * nearest cache to where they belong. Few rows stand on the right, and the weights on the left,
 * where they lie.
 *
 * A tile operation sums the even and the odd elements of its sixteen words apart, then both into
 * the sums, which are carried from block to block; which side is left makes no difference. Rows do
 * not meet, so padding rows may hold anything, and a row has the same bits in any batch. */
#include "backend/cpu/kernel.h"
#include "tensor/nf4.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))
#define INLINE TARGET static inline __attribute__((always_inline))

enum { SIDE = 16, TILE = SIDE * SIDE, LANE_BYTES = MM_LANES * 4 };

/* Tiles 0-3: sums; 4, 5: left; 6, 7: right. All have 16 rows, of 64 bytes. */
static const uint8_t whole_tiles[64] = {
    [0] = 1,   [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64,
    [26] = 64, [28] = 64, [30] = 64, [48] = 16, [49] = 16, [50] = 16,
    [51] = 16, [52] = 16, [53] = 16, [54] = 16, [55] = 16
};

/* The same with n lanes in the sums and on the right. */
TARGET static void configure_lanes(int n)
{
    uint8_t config[64];
    memcpy(config, whole_tiles, sizeof config);
    for (int i = 0; i < 8; i++)
        if (i != 4 && i != 5)
            config[16 + 2 * i] = (uint8_t)(n * 4);
    /* gcc 12 believes that ldtilecfg reads 8 bytes, and would drop the other stores. */
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
}

/* ---- many rows */

/* Configuring takes as long as twenty tile operations: once for many tiles, if it can be. */
static _Thread_local bool begun;

TARGET void kernel_amx_begin(void)
{
    _tile_loadconfig(whole_tiles);
    begun = true;
}

TARGET void kernel_amx_end(void)
{
    _tile_release();
    begun = false;
}

/* The lines that sixteen words of 32 rows are. */
INLINE void fetch_rows(const char *at, int64_t row)
{
#pragma GCC unroll 32
    for (int i = 0; i < 2 * SIDE; i++)
        __builtin_prefetch(at + i * row, 0, 2);
}

/* How both sides are read: all rows meet these lanes now; or lanes stream past, which leaves L1 to
 * the rows; and the rows behind these are fetched meanwhile. */
typedef enum reading { STAYING, STREAMING, FETCHING } reading;

/* Adds nw words, one block at most, of 32 rows to tiles 0-3, or of 16 to tiles 0 and 1. */
INLINE void add_words(int n_rows, reading how, const mm_left *a, const char *at,
                      const mm_word *lanes, int64_t nw)
{
    for (int64_t w = 0; w < nw; w += SIDE, at += a->words, lanes += SIDE * MM_LANES) {
        if (how == STAYING) {
            _tile_loadd(6, lanes, LANE_BYTES);
            _tile_loadd(7, lanes + SIDE, LANE_BYTES);
        } else {
            _tile_stream_loadd(6, lanes, LANE_BYTES);
            _tile_stream_loadd(7, lanes + SIDE, LANE_BYTES);
        }
        _tile_loadd(4, at, a->row);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (how == FETCHING)
            fetch_rows(at + 2 * a->rows, a->row);
        if (n_rows == SIDE)
            continue;
        _tile_loadd(5, at + a->rows, a->row);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
}

INLINE void load_sums(int n_rows, const float *sums, int64_t ld)
{
    _tile_loadd(0, sums, ld * 4);
    _tile_loadd(1, sums + SIDE, ld * 4);
    if (n_rows == SIDE)
        return;
    _tile_loadd(2, sums + SIDE * ld, ld * 4);
    _tile_loadd(3, sums + SIDE * ld + SIDE, ld * 4);
}

INLINE void no_sums(int n_rows)
{
    _tile_zero(0);
    _tile_zero(1);
    if (n_rows == SIDE)
        return;
    _tile_zero(2);
    _tile_zero(3);
}

INLINE void store_sums(int n_rows, float *sums, int64_t ld)
{
    _tile_stored(0, sums, ld * 4);
    _tile_stored(1, sums + SIDE, ld * 4);
    if (n_rows == SIDE)
        return;
    _tile_stored(2, sums + SIDE * ld, ld * 4);
    _tile_stored(3, sums + SIDE * ld + SIDE, ld * 4);
}

INLINE void tile_rows(int n_rows, const mm_tile *t, int64_t row)
{
    static const mm_left packed = { .row = 64, .words = TILE * 4, .rows = SIDE * MM_K * 4 };
    float *sums = t->sums + row * t->ld;
    if (t->add)
        load_sums(n_rows, sums, t->ld);
    else
        no_sums(n_rows);
    add_words(n_rows, STAYING, &packed, (const char *)(t->rows + row * MM_K), t->lanes, t->nw);
    store_sums(n_rows, sums, t->ld);
}

TARGET void kernel_amx_tile(const mm_tile *t)
{
    bool alone = !begun;
    if (alone)
        kernel_amx_begin();
    int64_t row = 0;
    for (; row + SIDE < t->n_rows; row += 2 * SIDE)
        tile_rows(2 * SIDE, t, row);
    if (row < t->n_rows)
        tile_rows(SIDE, t, row);
    if (alone)
        kernel_amx_end();
}

/* What one panel of a strip gives, from the tiles to out. */
INLINE void put_out(int n_rows, const mm_strip *s, mm_out to)
{
    float sums[2][MM_LANES * MM_LANES];
    store_sums(n_rows, sums[0], MM_LANES);
    to.sums = sums[0];
    to.sums_ld = MM_LANES;
    to.n_rows = s->n_rows;
    if (s->turned) {
        kernel_amx_turn(sums[1], sums[0]);
        to.sums = sums[1];
        to.n_rows = to.n;
        to.n = s->n_rows;
    }
    kernel_amx_put(&to);
}

/* A term of a strip: one panel, all blocks. The first panel of a strip fetches the next strip. */
INLINE void add_term(int n_rows, const mm_term *t, int64_t lane)
{
    const mm_word *lanes = t->lanes + lane * t->nw;
    const char *at = t->left.at;
    for (int64_t w = 0; w < t->nw; w += MM_K, at += t->left.block) {
        int64_t nw = t->nw - w < MM_K ? t->nw - w : MM_K;
        if (lane == 0 && t->left.followed)
            add_words(n_rows, FETCHING, &t->left, at, lanes + w * MM_LANES, nw);
        else
            add_words(n_rows, STREAMING, &t->left, at, lanes + w * MM_LANES, nw);
    }
}

INLINE void strip_rows(int n_rows, const mm_strip *s)
{
    for (int64_t lane = 0; lane < s->n; lane += MM_LANES) {
        float *carried = s->sums + lane;
        mm_out to = s->to;
        to.n = s->n - lane < MM_LANES ? s->n - lane : MM_LANES;
        to.out = s->turned ? mm_out_at(&to, lane, 0) : mm_out_at(&to, 0, lane);
        to.bias = to.bias && !s->turned ? to.bias + lane : to.bias;
        if (s->add)
            load_sums(n_rows, carried, s->sums_ld);
        else
            no_sums(n_rows);
        for (const mm_term *t = s->terms; t < s->terms + s->n_terms; t++)
            add_term(n_rows, t, lane);
        if (s->more)
            store_sums(n_rows, carried, s->sums_ld);
        else
            put_out(n_rows, s, to);
    }
}

TARGET void kernel_amx_strip(const mm_strip *s)
{
    if (s->n_rows > SIDE)
        strip_rows(2 * SIDE, s);
    else
        strip_rows(SIDE, s);
}

/* ---- few rows */

/* 32 vectors on the left: two tiles, `lower` bytes apart, for each sixteen words. */
typedef struct vectors {
    const char *at;
    int64_t row_bytes, tile_bytes, lower;
    const char *next; /* what follows them in memory, to be fetched meanwhile; NULL: nothing */
} vectors;

/* Adds a block of them to tiles 0 and 1; right [nw][n_rows], as `standing` packs it. */
TARGET static void add_vectors(const vectors *v, const mm_word *right, int64_t n_rows, int64_t nw)
{
    for (int64_t j = 0; j * SIDE < nw; j++) {
        _tile_loadd(6, right + j * SIDE * n_rows, n_rows * 4);
        _tile_loadd(4, v->at + j * v->tile_bytes, v->row_bytes);
        _tile_loadd(5, v->at + v->lower + j * v->tile_bytes, v->row_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 5, 6);
        for (int i = 0; v->next && i < 2 * TILE * 4; i += 64)
            __builtin_prefetch(v->next + j * 2 * TILE * 4 + i, 0, 2);
    }
}

/* The same of NF4: unpacked as it goes, so that tiles are multiplied while vectors unpack. */
TARGET static void add_nf4(const mm_side *x, mm_box box, bool fetch, const mm_word *right,
                           int64_t n_rows)
{
    enum { WORDS = NF4_BLOCK / 2 };
    mm_word left[2][2][2 * SIDE][SIDE];
    for (int64_t w = 0; w < box.nw; w += WORDS) {
        mm_word(*now)[2 * SIDE][SIDE] = left[w / WORDS % 2];
        kernel_amx_unpack(now[0][0], x, (mm_box){ box.i, box.n, box.w + w, WORDS }, fetch);
        for (int half = 0; half < 2; half++) {
            _tile_loadd(6, right + (w + half * SIDE) * n_rows, n_rows * 4);
            _tile_loadd(4, now[half][0], 64);
            _tile_loadd(5, now[half][SIDE], 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 5, 6);
        }
    }
}

/* The sides that packing makes tiles of, and those that are tiles as they lie: whole words of
 * sixteen. */
bool kernel_amx_takes(const mm_side *x, mm_words words)
{
    (void)words;
    return x->dt != DT_NF4 || (x->k_last && x->ld % NF4_BLOCK == 0);
}
static bool lies_as_tiles(const mm_side *x)
{
    return x->dt == DT_BF16 && x->k_last && x->k % (2 * SIDE) == 0;
}

/* `last`: no vectors follow these. */
static vectors vectors_of(const mm_side *x, mm_words words, mm_box box, bool last, mm_word *packed)
{
    if (box.n == 2 * SIDE && lies_as_tiles(x)) {
        int64_t row_bytes = x->ld * 2;
        const char *first = (const char *)x->data + box.i * row_bytes;
        return (vectors){ .at = first + box.w * 4,
                          .row_bytes = row_bytes,
                          .tile_bytes = 64,
                          .lower = SIDE * row_bytes,
                          .next = last ? NULL : first + 2 * SIDE * (row_bytes + box.w * 4) };
    }
    kernel_amx.pack_rows(packed, x, words, box);
    return (vectors){ .at = (const char *)packed,
                      .row_bytes = 64,
                      .tile_bytes = TILE * 4,
                      .lower = SIDE * MM_K * 4 };
}

TARGET void kernel_amx_few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box)
{
    configure_lanes((int)t->n_rows);
    for (int64_t lane = 0; lane < box.n; lane += 2 * SIDE) {
        int64_t n = box.n - lane < 2 * SIDE ? box.n - lane : 2 * SIDE;
        const mm_word *right = t->rows;
        float sums[2 * SIDE][MM_FEW] = { { 0 } }, *out = t->sums + lane;
        for (int64_t j = 0; t->add && j < n; j++)
            for (int64_t i = 0; i < t->n_rows; i++)
                sums[j][i] = out[i * t->ld + j];
        if (t->add) {
            _tile_loadd(0, sums[0], sizeof sums[0]);
            _tile_loadd(1, sums[SIDE], sizeof sums[0]);
        } else {
            _tile_zero(0);
            _tile_zero(1);
        }
        for (int64_t w = 0; w < box.nw; w += t->block, right += MM_FEW * MM_K) {
            mm_box part = { .i = box.i + lane, .n = n, .w = box.w + w };
            part.nw = box.nw - w < t->block ? box.nw - w : t->block;
            bool last = lane + n == box.n;
            if (x->dt == DT_NF4) {
                add_nf4(x, part, !last, right, t->n_rows);
                continue;
            }
            vectors v = vectors_of(x, words, part, last, t->scratch);
            add_vectors(&v, right, t->n_rows, part.nw);
        }
        _tile_stored(0, sums[0], sizeof sums[0]);
        _tile_stored(1, sums[SIDE], sizeof sums[0]);
        for (int64_t i = 0; i < t->n_rows; i++)
            for (int64_t j = 0; j < n; j++)
                out[i * t->ld + j] = sums[j][i];
    }
    _tile_release();
}
