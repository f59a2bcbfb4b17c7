/* gemm_amx: the loops around the AMX kernel (docs/cpu-products.md, "AMX").
 *
 * The left operand is read from its own memory where that consists of AMX tiles. The right operand
 * is packed into panels once for a product, by all threads, into the shared scratch. Then threads
 * take chunks of rows and columns: a row panel stays in L1 while it is multiplied by the panels of
 * its chunk, which stay in L2. All terms of a sum are added in the tile registers, and out is
 * written once.
 *
 * Operands are swapped where that is cheaper. A product of few row panels does not share its
 * panels: each chunk packs its own, as it does where k is too long to be packed whole. */
#ifndef PESC_BACKEND_CPU_GEMM_AMX_H
#define PESC_BACKEND_CPU_GEMM_AMX_H

#include "backend/cpu/matmul.h"

void gemm_amx(cpu_device *d, const mm_group *group);

#endif
