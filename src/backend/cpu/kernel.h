/* kernel: the engines of matmul.h; each instruction set has a file. */
#ifndef PESC_BACKEND_CPU_KERNEL_H
#define PESC_BACKEND_CPU_KERNEL_H

#include "backend/cpu/matmul.h"

extern const mm_engine kernel_base_f32, kernel_base_bf16;
extern const mm_engine kernel_avx2_f32, kernel_avx2_bf16;
extern const mm_engine kernel_avx512_f32, kernel_avx512_bf16;
extern const mm_engine kernel_avx512_pairs;
extern const mm_engine kernel_amx;
extern const mm_engine kernel_neon_f32, kernel_neon_bf16;
extern const mm_engine kernel_neon_pairs;

/* The parts of kernel_amx that use AMX tiles: kernel_amx.c. */
void kernel_amx_micro_kernel(const mm_tile *t); /* the memory of rows is padded to 16 rows */
void kernel_amx_row_panel(const mm_row_panel *s);
void kernel_amx_configure(void);
void kernel_amx_release(void);
bool kernel_amx_few_rows_supports(const mm_operand *x, mm_format format);
void kernel_amx_few_rows(const mm_tile *t, const mm_operand *x, mm_format format, mm_block block);

/* The parts that use AVX-512: kernel_avx512_pairs.c. */
/* dst [32][32] = src [32][32] transposed. */
void kernel_amx_transpose(float *dst, const float *src);
void kernel_amx_epilogue(const mm_epilogue *o); /* of one panel */
/* One NF4 block of each of up to 32 rows, from element block.e on, decoded to dst [2][32][16]: the
 * elements of two AMX tiles. prefetch: the rows after these as well. */
void kernel_amx_dequantize(mm_element *dst, const mm_operand *x, mm_block block, bool prefetch);

#endif
