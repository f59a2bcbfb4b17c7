/* kernel_avx2: elements are f32 values. Products of bf16 are those of the widened values. */
#define TARGET __attribute__((target("avx2,fma,f16c")))
#define PAIRS 0
#include "backend/cpu/simd_avx2.h"

#include "backend/cpu/kernel_simd.h"
#include "backend/cpu/kernel_few_f32.h"
#include "backend/cpu/simd_blocks.h"
#include "backend/cpu/kernel_few_blocks.h"

const mm_engine kernel_avx2_f32 = { FORMAT(MM_F32), .blocks_format = MM_F32_SPLIT,
                                    .few_rows_blocks = few_rows_blocks, KERNEL, .unpack = unpack };
const mm_engine kernel_avx2_bf16 = { FORMAT(MM_BF16_WIDENED), .blocks_format = MM_BF16_WIDENED,
                                     KERNEL, .unpack = unpack };
