#include "backend/cpu/isa.h"

#include <cpuid.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[CPU_ISA_COUNT] = {
    [CPU_BASE] = "sse2",     [CPU_AVX2] = "avx2",
    [CPU_AVX512] = "avx512", [CPU_AVX512_BF16] = "avx512_bf16",
    [CPU_AMX] = "amx_bf16",
};

const char *cpu_isa_name(cpu_isa isa)
{
    return names[isa];
}

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

static cpu_isa best;

static void detect(void)
{
    __builtin_cpu_init();
    const bool has[CPU_ISA_COUNT] = {
        [CPU_BASE] = true,
        [CPU_AVX2] = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                     __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && has_f16c(),
        [CPU_AVX512] = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                       __builtin_cpu_supports("avx512vl"),
        [CPU_AVX512_BF16] = __builtin_cpu_supports("avx512bf16"),
        [CPU_AMX] = has_amx(),
    };
    const char *most = getenv("PESC_ISA"); /* no level above the one that it names */
    while (best + 1 < CPU_ISA_COUNT && has[best + 1] &&
           !(most && strcmp(cpu_isa_name(best), most) == 0))
        best++;
}

cpu_isa cpu_isa_best(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, detect);
    return best;
}
