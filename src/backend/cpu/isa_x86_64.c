/* isa_x86_64: the levels of x86-64.
 *
 * AMX counts only if the kernel grants the tile state and a tile operation runs without a fault:
 * some virtual machines advertise it and then raise SIGILL. */
#include "backend/cpu/isa.h"
#include "backend/cpu/kernel.h"

#include <cpuid.h>
#include <immintrin.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const ops cpu_ops_base, cpu_ops_avx2, cpu_ops_avx512, cpu_ops_avx512_bf16;

static sigjmp_buf illegal;

static void on_illegal(int sig)
{
    (void)sig;
    siglongjmp(illegal, 1);
}

__attribute__((target("amx-tile,amx-bf16"))) static void run_tile_operation(void)
{
    uint8_t config[64] = { [0] = 1, [16] = 64, [48] = 16 };
    /* gcc 12 believes that ldtilecfg reads 8 bytes, and would drop the other stores. */
    __asm__ volatile("" : : "r"(config) : "memory");
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_release();
}

/* Runs one tile operation; false if it raises SIGILL. The handler is installed for these few
 * instructions only, once per process. */
static bool tiles_usable(void)
{
    struct sigaction mine = { .sa_handler = on_illegal }, old;
    sigemptyset(&mine.sa_mask);
    if (sigaction(SIGILL, &mine, &old) != 0)
        return false;
    volatile bool ok = false;
    if (sigsetjmp(illegal, 1) == 0) {
        run_tile_operation();
        ok = true;
    }
    sigaction(SIGILL, &old, NULL);
    return ok;
}

static bool has_amx(void)
{
    enum { BF16 = 1 << 22, TILE = 1 << 24, XTILEDATA = 18, ARCH_REQ_XCOMP_PERM = 0x1023 };
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (BF16 | TILE)) != (BF16 | TILE))
        return false;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 && tiles_usable();
}

/* clang's __builtin_cpu_supports() does not know this name. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c();
}

static bool has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

static bool has_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16");
}

const cpu_level cpu_levels[] = {
    { "sse2", &cpu_ops_base, { &kernel_base_f32, &kernel_base_bf16 }, false, NULL },
    /* x86-64-v3: with FMA, F16C, BMI */
    { "avx2", &cpu_ops_avx2, { &kernel_avx2_f32, &kernel_avx2_bf16 }, false, has_avx2 },
    /* x86-64-v4: F, BW, CD, DQ, VL */
    { "avx512", &cpu_ops_avx512, { &kernel_avx512_f32, &kernel_avx512_bf16 }, false, has_avx512 },
    /* vdpbf16ps */
    { "avx512_bf16",
      &cpu_ops_avx512_bf16,
      { &kernel_avx512_f32, &kernel_avx512_pairs },
      true,
      has_avx512_bf16 },
    /* bf16 tiles */
    { "amx_bf16", &cpu_ops_avx512_bf16, { &kernel_avx512_f32, &kernel_amx }, true, has_amx },
};
const int cpu_level_count = sizeof cpu_levels / sizeof *cpu_levels;
_Static_assert(sizeof cpu_levels / sizeof *cpu_levels <= CPU_ISA_MOST, "see CPU_ISA_MOST");
