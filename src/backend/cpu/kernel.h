/* kernel: the engines of matmul.h, one file an instruction set. */
#ifndef PESC_BACKEND_CPU_KERNEL_H
#define PESC_BACKEND_CPU_KERNEL_H

#include "backend/cpu/matmul.h"

extern const mm_engine kernel_base_f32, kernel_base_bf16;
extern const mm_engine kernel_avx2_f32, kernel_avx2_bf16;
extern const mm_engine kernel_avx512_f32, kernel_avx512_bf16;
extern const mm_engine kernel_avx512_pairs;
extern const mm_engine kernel_amx;

void kernel_amx_tile(const mm_tile *t); /* rows padded to 16 */
bool kernel_amx_takes(const mm_side *x, mm_words words);
void kernel_amx_few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box);

#endif
