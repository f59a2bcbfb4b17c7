/* kernel_avx512_pairs: words of two bf16, multiplied and summed by vdpbf16ps. AMX takes the same
 * words: its rows are packed as tiles, its lanes are the same. */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define PAIRS 1
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/kernel_body.h"
#include "backend/cpu/kernel_along.h"

TARGET static void tiles(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    rows_any(true, dst, x, MM_BF16_PAIR, box);
    if (words == MM_BF16_FOURTH)
        spread_rows(true, dst, box);
}

/* Few rows stand on the right: [words][n]. */
TARGET static void standing(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    mm_word rows[MM_FEW * MM_K];
    rows_along(rows, x, words, box);
    for (int64_t w = 0; w < pack_round_up(box.nw, MM_WORDS); w++)
        for (int64_t i = 0; i < box.n; i++)
            *dst++ = rows[i * MM_K + w];
}

TARGET void kernel_amx_unpack(mm_word *dst, const mm_side *x, mm_box box, bool fetch)
{
    int64_t at = box.i * x->ld + box.w * PER_WORD, lane_bytes = bytes_of(DT_NF4, x->ld);
    const char *codes = (const char *)x->data + bytes_of(DT_NF4, at);
    const float *scales = x->scales + at / NF4_BLOCK;
    const char *next = (const char *)x->data + (box.i + MM_LANES) * lane_bytes + box.w * MM_LANES;
    for (int64_t i = 0; i < box.n; i++, codes += lane_bytes, scales += x->ld / NF4_BLOCK) {
        vec first, later;
        nf4_block(codes, *scales, &first, &later);
        store_words(dst + i * TILE, first);
        store_words(dst + (MM_LANES + i) * TILE, later);
        if (fetch && i % 2)
            __builtin_prefetch(next + i * 32, 0, 2);
    }
}

TARGET void kernel_amx_turn(float *dst, const float *src)
{
    for (int64_t row = 0; row < MM_LANES; row += VECTOR) {
        vectors v = vectors_of(src + row * MM_LANES, MM_LANES * 4, 0, VECTOR);
        for (int64_t lane = 0; lane < MM_LANES; lane += MEMORY) {
            vec turned[MEMORY];
            load_memory(&v, lane * 4, MEMORY * 4, turned);
#pragma GCC unroll 64
            for (int i = 0; i < MEMORY; i++)
                _mm512_storeu_si512(dst + (lane + i) * MM_LANES + row, turned[i]);
        }
    }
}

/* A whole panel as bf16, nothing added: half the stores. */
TARGET void kernel_amx_put(const mm_out *o)
{
    if (o->dt != DT_BF16 || o->n != MM_LANES || o->bias || o->accumulate) {
        store(o);
        return;
    }
    const vecf scale = _mm512_set1_ps(o->scale);
    for (int64_t i = 0; i < o->n_rows; i++) {
        const float *sums = o->sums + i * o->sums_ld;
        vecf low = _mm512_mul_ps(_mm512_loadu_ps(sums), scale);
        vecf high = _mm512_mul_ps(_mm512_loadu_ps(sums + VECTOR), scale);
        _mm512_storeu_si512((uint16_t *)o->out + i * o->ld, (vec)_mm512_cvtne2ps_pbh(high, low));
    }
}

const mm_engine kernel_avx512_pairs = { .words = MM_BF16_PAIR,
                                        .few_words = MM_BF16_ALONG,
                                        .nf4_words = MM_BF16_FOURTH,
                                        .rows = ROWS,
                                        .pack_rows = rows_apart,
                                        .pack_lanes = lanes_apart,
                                        .tile = tile,
                                        .takes = takes,
                                        .pack_few = rows_along,
                                        .few = few,
                                        .store = store };

const mm_engine kernel_amx = { .words = MM_BF16_PAIR,
                               .few_words = MM_BF16_PAIR,
                               .nf4_words = MM_BF16_FOURTH,
                               .rows = 128,
                               .pack_rows = tiles,
                               .pack_lanes = lanes,
                               .tile = kernel_amx_tile,
                               .takes = kernel_amx_takes,
                               .pack_few = standing,
                               .few = kernel_amx_few,
                               .store = store,
                               .strip = kernel_amx_strip,
                               .begin = kernel_amx_begin,
                               .end = kernel_amx_end };
