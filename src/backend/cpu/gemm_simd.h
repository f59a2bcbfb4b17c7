/* gemm_simd: the loops around the SIMD micro-kernels (docs/cpu-products.md, "The loop nest").
 *
 * A product is divided into chunks of rows and columns, which threads take one by one. For its
 * columns a thread packs as many panels and as much of k as stay in L2, then multiplies all rows of
 * the chunk by them, one register tile at a time. Rows are read from the operand's memory where
 * their form allows it. The sums of a tile stay in L1 until the epilogue stores them. The terms of
 * a sum accumulate in out: each is stored just before the next is added, tile by tile. */
#ifndef PESC_BACKEND_CPU_GEMM_SIMD_H
#define PESC_BACKEND_CPU_GEMM_SIMD_H

#include "backend/cpu/matmul.h"

void gemm_simd(cpu_device *d, const mm_group *group);

#endif
