/* kernel_amx: bf16 pairs on tiles. The packed forms are those of AVX-512: sixteen words of
 * sixteen lanes are a tile on the right. Rows are packed so that a tile on the left, sixteen rows
 * of sixteen words, is one run of memory: [rows / 16][MM_K / 16][16][16].
 *
 * Many rows stand on the left; each strip of 32 keeps 2 x 2 tiles of sums while both sides stream
 * past. Few rows stand on the right, and the weights on the left: they lie in memory as tiles want
 * them, so they need no packing at all.
 *
 * A tile operation sums the even and the odd elements of its sixteen words apart, then both into
 * the sums, which are carried from block to block; which side is left makes no difference. Rows do
 * not meet, so padding rows may hold anything, and a row has the same bits in any batch. */
#include "backend/cpu/kernel.h"
#include "tensor/nf4.h"

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("amx-tile,amx-bf16")))

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

TARGET static void strip32(const mm_tile *t, float *sums, const mm_word *rows)
{
    int64_t ld = t->ld * 4;
    float *lower = sums + SIDE * t->ld;
    if (t->add) {
        _tile_loadd(0, sums, ld);
        _tile_loadd(1, sums + SIDE, ld);
        _tile_loadd(2, lower, ld);
        _tile_loadd(3, lower + SIDE, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t w = 0; w < t->nw; w += SIDE) {
        _tile_loadd(6, t->lanes + w * MM_LANES, LANE_BYTES);
        _tile_loadd(7, t->lanes + w * MM_LANES + SIDE, LANE_BYTES);
        _tile_loadd(4, rows + w * SIDE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, rows + SIDE * MM_K + w * SIDE, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, ld);
    _tile_stored(1, sums + SIDE, ld);
    _tile_stored(2, lower, ld);
    _tile_stored(3, lower + SIDE, ld);
}

TARGET static void strip16(const mm_tile *t, float *sums, const mm_word *rows)
{
    int64_t ld = t->ld * 4;
    if (t->add) {
        _tile_loadd(0, sums, ld);
        _tile_loadd(1, sums + SIDE, ld);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    for (int64_t w = 0; w < t->nw; w += SIDE) {
        _tile_loadd(4, rows + w * SIDE, 64);
        _tile_loadd(6, t->lanes + w * MM_LANES, LANE_BYTES);
        _tile_loadd(7, t->lanes + w * MM_LANES + SIDE, LANE_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
    }
    _tile_stored(0, sums, ld);
    _tile_stored(1, sums + SIDE, ld);
}

TARGET void kernel_amx_tile(const mm_tile *t)
{
    _tile_loadconfig(whole_tiles);
    int64_t row = 0;
    for (; row + SIDE < t->n_rows; row += 2 * SIDE)
        strip32(t, t->sums + row * t->ld, t->rows + row * MM_K);
    if (row < t->n_rows)
        strip16(t, t->sums + row * t->ld, t->rows + row * MM_K);
    _tile_release();
}

/* ---- few rows */

/* 32 vectors on the left: two tiles, `lower` bytes apart, for each sixteen words. */
typedef struct vectors {
    const char *at;
    int64_t row_bytes, tile_bytes, lower;
    const char *next; /* what follows them in memory, to be fetched meanwhile; NULL: nothing */
} vectors;

/* Adds a block of them to tiles 0 and 1; right [nw][n_rows]. */
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

/* [words][n_rows] of packed rows, block after block. */
static void stand_rows(mm_word *dst, const mm_tile *t, int64_t nw)
{
    const mm_word *rows = t->rows;
    for (int64_t w = 0; w < nw; w += t->block, rows += SIDE * MM_K)
        for (int64_t j = 0; j < t->block; j++)
            for (int64_t i = 0; i < t->n_rows; i++)
                *dst++ = rows[j / SIDE * TILE + i * SIDE + j % SIDE];
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
    mm_word *left = t->scratch, *right = left + 2 * SIDE * MM_K;
    stand_rows(right, t, box.nw);
    configure_lanes((int)t->n_rows);
    for (int64_t lane = 0; lane < box.n; lane += 2 * SIDE) {
        int64_t n = box.n - lane < 2 * SIDE ? box.n - lane : 2 * SIDE;
        _tile_zero(0);
        _tile_zero(1);
        for (int64_t w = 0; w < box.nw; w += t->block) {
            mm_box part = { .i = box.i + lane, .n = n, .w = box.w + w };
            part.nw = box.nw - w < t->block ? box.nw - w : t->block;
            vectors v = vectors_of(x, words, part, lane + n == box.n, left);
            add_vectors(&v, right + w * t->n_rows, t->n_rows, part.nw);
        }
        float sums[2 * SIDE][MM_FEW];
        _tile_stored(0, sums[0], sizeof sums[0]);
        _tile_stored(1, sums[SIDE], sizeof sums[0]);
        for (int64_t i = 0; i < t->n_rows; i++)
            for (int64_t j = 0; j < n; j++)
                t->sums[i * t->ld + lane + j] = sums[j][i];
    }
    _tile_release();
}
