/* kernel_avx512_pairs: elements are pairs of bf16, multiplied and summed by vdpbf16ps. The engine
 * of AMX uses the same elements and panels; its rows are packed as tiles. */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")))
#define PAIRS 1
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/kernel_simd.h"
#include "backend/cpu/kernel_few_pairs.h"
#include "backend/cpu/simd_blocks.h"
#include "backend/cpu/kernel_few_blocks.h"

TARGET static void pack_rows_as_tiles(mm_element *dst, const mm_operand *x, mm_format format,
                                      mm_block block)
{
    pack_rows_in_order(true, dst, x, MM_BF16_PAIR, block);
    if (format == MM_BF16_PAIR_NF4)
        reorder_rows_as_nf4(true, dst, block);
}

/* With few rows the weights are the left operand, and the rows a panel [elements][n_rows]. */
TARGET static void pack_few_rows_as_panel(mm_element *dst, const mm_operand *x, mm_format format,
                                          mm_block block)
{
    mm_element rows[MM_FEW_ROWS * MM_KC];
    pack_few_rows(rows, x, format, block);
    for (int64_t e = 0; e < num_round_up(block.n_elements, MM_K_GROUP); e++)
        for (int64_t i = 0; i < block.n_rows; i++)
            *dst++ = rows[i * MM_KC + e];
}

TARGET void kernel_amx_dequantize(mm_element *dst, const mm_operand *x, mm_block block,
                                  bool prefetch)
{
    int64_t at = block.row * x->ld + block.e * VALUES, row_bytes = bytes_of(DT_NF4, x->ld);
    const char *codes = (const char *)x->data + bytes_of(DT_NF4, at);
    const float *scales = x->scales + at / NF4_BLOCK;
    const char *next = (const char *)x->data + (block.row + MM_NR) * row_bytes + block.e * MM_NR;
    for (int64_t i = 0; i < block.n_rows; i++, codes += row_bytes, scales += x->ld / NF4_BLOCK) {
        vec decoded[NF4_VECTORS];
        nf4_block(codes, *scales, decoded);
        store_elements(dst + i * MM_AMX_TILE, decoded[0]);
        store_elements(dst + (MM_NR + i) * MM_AMX_TILE, decoded[1]);
        if (prefetch && i % 2)
            __builtin_prefetch(next + i * 32, 0, 2);
    }
}

TARGET void kernel_amx_transpose(float *dst, const float *src)
{
    for (int64_t row = 0; row < MM_NR; row += VECTOR) {
        row_pointers rows = rows_from(src + row * MM_NR, MM_NR * 4, 0, VECTOR);
        for (int64_t column = 0; column < MM_NR; column += DWORDS) {
            vec transposed[DWORDS];
            load_transposed(&rows, column * 4, DWORDS * 4, transposed);
#pragma GCC unroll 64
            for (int i = 0; i < DWORDS; i++)
                _mm512_storeu_si512(dst + (column + i) * MM_NR + row, transposed[i]);
        }
    }
}

/* A whole panel of bf16 with nothing to add takes half as many stores. */
TARGET void kernel_amx_epilogue(const mm_epilogue *o)
{
    if (o->dt != DT_BF16 || o->n != MM_NR || o->bias || o->accumulate) {
        epilogue(o);
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

const mm_engine kernel_avx512_pairs = { .format = MM_BF16_PAIR,
                                        .few_rows_format = MM_BF16_PAIR_SPLIT,
                                        .nf4_format = MM_BF16_PAIR_NF4,
                                        .blocks_format = MM_BF16_PAIR_SPLIT,
                                        .tile_rows = TILE_ROWS,
                                        .pack_rows = pack_rows_split,
                                        .pack_panel = pack_panel_split,
                                        .micro_kernel = micro_kernel,
                                        .few_rows_supports = few_rows_supports,
                                        .pack_few_rows = pack_few_rows,
                                        .few_rows = few_rows,
                                        .few_rows_blocks = few_rows_blocks,
                                        .epilogue = epilogue,
                                        .unpack = unpack };

const mm_engine kernel_amx = { .format = MM_BF16_PAIR,
                               .few_rows_format = MM_BF16_PAIR,
                               .nf4_format = MM_BF16_PAIR_NF4,
                               .blocks_format = MM_BF16_PAIR,
                               .tile_rows = 128,
                               .pack_rows = pack_rows_as_tiles,
                               .pack_panel = pack_panel,
                               .micro_kernel = kernel_amx_micro_kernel,
                               .few_rows_supports = kernel_amx_few_rows_supports,
                               .pack_few_rows = pack_few_rows_as_panel,
                               .few_rows = kernel_amx_few_rows,
                               .epilogue = epilogue,
                               .row_panel = kernel_amx_row_panel,
                               .configure = kernel_amx_configure,
                               .release = kernel_amx_release,
                               .unpack = unpack };
