/* kernel_avx512: words of f32. bf16 products are those of the widened values. */
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define PAIRS 0
#include "backend/cpu/simd_avx512.h"

#include "backend/cpu/kernel_body.h"
#include "backend/cpu/kernel_few.h"

const mm_engine kernel_avx512_f32 = { ORDERED(MM_F32), KERNEL };
const mm_engine kernel_avx512_bf16 = { ORDERED(MM_BF16_AS_F32), KERNEL };
