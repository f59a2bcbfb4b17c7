/* isa_aarch64: the levels of 64-bit Arm under Linux. */
#include "backend/cpu/isa.h"
#include "backend/cpu/kernel.h"

#include <sys/auxv.h>

extern const ops cpu_ops_base;

static bool has_bf16(void)
{
    enum { BF16 = 1 << 14 };
    return getauxval(AT_HWCAP2) & BF16;
}

const cpu_level cpu_levels[] = {
    { "neon", &cpu_ops_base, { &kernel_neon_f32, &kernel_neon_bf16 }, false, NULL },
    /* Armv8.6: bfdot */
    { "neon_bf16", &cpu_ops_base, { &kernel_neon_f32, &kernel_neon_pairs }, true, has_bf16 },
};
const int cpu_level_count = sizeof cpu_levels / sizeof *cpu_levels;
_Static_assert(sizeof cpu_levels / sizeof *cpu_levels <= CPU_ISA_MOST, "see CPU_ISA_MOST");
