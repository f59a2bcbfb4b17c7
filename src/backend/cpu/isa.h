/* isa: the instruction sets that the CPU's code is compiled for, as ascending levels of one
 * architecture: each includes those before it. The table of an architecture is in the file
 * isa_<architecture>.c; nothing else knows which levels there are. */
#ifndef PESC_BACKEND_CPU_ISA_H
#define PESC_BACKEND_CPU_ISA_H

#include <stdbool.h>

struct ops;
struct mm_engine;

typedef int cpu_isa; /* an index of cpu_levels */

enum {
    CPU_BASE = 0,    /* what every CPU of the architecture has */
    CPU_ISA_MOST = 5 /* levels of any architecture */
};

typedef struct cpu_level {
    const char *name;
    const struct ops *op;
    const struct mm_engine *engines[2]; /* for activations in f32, in bf16 */
    bool has_bf16;                      /* it multiplies bf16 faster than f32 */
    bool (*present)(void);              /* on this machine; NULL: always */
} cpu_level;

extern const cpu_level cpu_levels[];
extern const int cpu_level_count;

cpu_isa cpu_isa_best(void); /* the highest level of this machine; detected once per process */
const char *cpu_isa_name(cpu_isa isa);

#endif
