/* kernel_avx512_pairs: words of two bf16, multiplied and summed by vdpbf16ps. AMX takes the same
 * words: its rows are packed as tiles, its lanes are the same. */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define PAIRS 1
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/kernel_body.h"

/* NF4 whose vectors begin with a block: 64 codes are 32 words, looked up in a table a block. */
INLINE void tiles_of_nf4(mm_word *dst, const mm_side *x, mm_box box)
{
    for (int64_t i = 0; i < box.n; i++) {
        int64_t at = (box.i + i) * x->ld + box.w * PER_WORD;
        const char *codes = (const char *)x->data + at / 2;
        const float *scales = x->scales + at / NF4_BLOCK;
        for (int64_t w = 0; w < box.nw; w += 2 * TILE, codes += 2 * TILE) {
            vec table = nf4_table(*scales++);
            store_words(row_at(true, dst, i, w), nf4_pairs(codes, table));
            store_words(row_at(true, dst, i, w + TILE), nf4_pairs(codes + TILE, table));
        }
    }
}

TARGET static void tiles(mm_word *dst, const mm_side *x, mm_words words, mm_box box)
{
    if (x->dt == DT_NF4)
        tiles_of_nf4(dst, x, box);
    else
        rows_any(true, dst, x, words, box);
}

const mm_engine kernel_avx512_pairs = { .words = MM_BF16_PAIR, KERNEL };

const mm_engine kernel_amx = { .words = MM_BF16_PAIR,
                               .rows = 128,
                               .row_pad = TILE,
                               .pack_rows = tiles,
                               .pack_lanes = lanes,
                               .tile = kernel_amx_tile,
                               .few = kernel_amx_few,
                               .store = store };
