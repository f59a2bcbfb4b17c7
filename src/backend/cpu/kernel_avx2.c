/* kernel_avx2: words of f32. bf16 products are those of the widened values. */
#define TARGET __attribute__((target("avx2,fma")))
#define PAIRS 0
#include "backend/cpu/simd_avx2.h"

#include "backend/cpu/kernel_body.h"
#include "backend/cpu/kernel_few.h"

const mm_engine kernel_avx2_f32 = { ORDERED(MM_F32), KERNEL };
const mm_engine kernel_avx2_bf16 = { ORDERED(MM_BF16_AS_F32), KERNEL };
