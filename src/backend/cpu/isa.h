/* isa: which instructions this CPU has, as ascending levels: each includes those before it.
 *
 * AMX counts only if the kernel grants the tile state and a tile operation runs without a fault:
 * some virtual machines advertise it and then raise SIGILL. */
#ifndef PESC_BACKEND_CPU_ISA_H
#define PESC_BACKEND_CPU_ISA_H

typedef enum cpu_isa {
    CPU_BASE,        /* x86-64: SSE2 */
    CPU_AVX2,        /* x86-64-v3: with FMA, F16C, BMI */
    CPU_AVX512,      /* x86-64-v4: F, BW, CD, DQ, VL */
    CPU_AVX512_BF16, /* vdpbf16ps */
    CPU_AMX,         /* bf16 tiles */
    CPU_ISA_COUNT
} cpu_isa;

cpu_isa cpu_isa_best(void); /* the highest level of this machine; detected once per process */
const char *cpu_isa_name(cpu_isa isa);

#endif
