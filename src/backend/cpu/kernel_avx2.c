/* kernel_avx2: elements are f32 values. Products of bf16 are those of the widened values. */
#define TARGET __attribute__((target("avx2,fma")))
#define PAIRS 0
#include "backend/cpu/simd_avx2.h"

#include "backend/cpu/kernel_simd.h"
#include "backend/cpu/kernel_few_f32.h"

const mm_engine kernel_avx2_f32 = { FORMAT(MM_F32), KERNEL };
const mm_engine kernel_avx2_bf16 = { FORMAT(MM_BF16_WIDENED), KERNEL };
