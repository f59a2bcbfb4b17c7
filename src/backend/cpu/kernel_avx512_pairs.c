/* kernel_avx512_pairs: words of two bf16, multiplied and summed by vdpbf16ps. AMX takes the same
 * words: its rows are packed as tiles, its lanes are the same. */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define PAIRS 1
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/kernel_body.h"
#include "backend/cpu/kernel_along.h"

/* Vectors of NF4, for few rows on the other side. */
INLINE void tiles_of_nf4(mm_word *dst, const mm_side *x, mm_box box)
{
    for (int64_t i = 0; i < box.n; i++) {
        int64_t at = (box.i + i) * x->ld + box.w * PER_WORD;
        const char *codes = (const char *)x->data + at / 2;
        const float *scales = x->scales + at / NF4_BLOCK;
        for (int64_t w = 0; w < box.nw; w += 2 * TILE, codes += 2 * TILE) {
            vec first, later;
            nf4_block(codes, *scales++, &first, &later);
            store_words(row_at(true, dst, i, w), first);
            store_words(row_at(true, dst, i, w + TILE), later);
        }
    }
}

TARGET static void tiles(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (x->dt == DT_NF4) {
        tiles_of_nf4(dst, x, box);
        return;
    }
    rows_any(true, dst, x, MM_BF16_PAIR, box);
    if (words == MM_BF16_FOURTH)
        spread_rows(true, dst, box);
}

const mm_engine kernel_avx512_pairs = { .words = MM_BF16_PAIR,
                                        .few_words = MM_BF16_ALONG,
                                        .nf4_words = MM_BF16_FOURTH,
                                        .rows = ROWS,
                                        .row_pad = 1,
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
                               .row_pad = TILE,
                               .pack_rows = tiles,
                               .pack_lanes = lanes,
                               .tile = kernel_amx_tile,
                               .takes = kernel_amx_takes,
                               .pack_few = tiles,
                               .few = kernel_amx_few,
                               .store = store };
