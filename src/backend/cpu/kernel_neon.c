/* kernel_neon: elements are f32 values. Products of bf16 are those of the widened values. */
#define TARGET
#define PAIRS 0
#include "backend/cpu/simd_neon.h"

#include "backend/cpu/kernel_simd.h"
#include "backend/cpu/kernel_few_f32.h"
#include "tensor/quants.h"

const mm_engine kernel_neon_f32 = { FORMAT(MM_F32), .blocks_format = MM_F32_SPLIT, KERNEL,
                                    .unpack = quants_unpack };
const mm_engine kernel_neon_bf16 = { FORMAT(MM_BF16_WIDENED), .blocks_format = MM_BF16_WIDENED,
                                     KERNEL, .unpack = quants_unpack };
