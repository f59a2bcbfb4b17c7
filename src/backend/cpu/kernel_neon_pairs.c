/* kernel_neon_pairs: elements are pairs of bf16, multiplied and summed by bfdot. */
#define TARGET __attribute__((target("arch=armv8.2-a+bf16")))
#define PAIRS 1
#include "backend/cpu/simd_neon.h"

#include "backend/cpu/kernel_simd.h"
#include "backend/cpu/kernel_few_pairs.h"
#include "tensor/quants.h"

const mm_engine kernel_neon_pairs = { .format = MM_BF16_PAIR,
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
                                      .epilogue = epilogue,
                                      .unpack = quants_unpack };
