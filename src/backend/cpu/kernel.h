/* kernel: the engines of matmul.h, one file an instruction set. */
#ifndef PESC_BACKEND_CPU_KERNEL_H
#define PESC_BACKEND_CPU_KERNEL_H

#include "backend/cpu/matmul.h"

extern const mm_engine kernel_base_f32, kernel_base_bf16;
extern const mm_engine kernel_avx2_f32, kernel_avx2_bf16;
extern const mm_engine kernel_avx512_f32, kernel_avx512_bf16;
extern const mm_engine kernel_avx512_pairs;
extern const mm_engine kernel_amx;

/* Parts of kernel_amx: on tiles, in a file of its own, ... */
void kernel_amx_tile(const mm_tile *t); /* rows padded to 16 */
void kernel_amx_strip(const mm_strip *s);
void kernel_amx_begin(void);
void kernel_amx_end(void);
bool kernel_amx_takes(const mm_side *x, mm_words words);
void kernel_amx_few(const mm_tile *t, const mm_side *x, mm_words words, mm_box box);
/* ... and on vectors: [32][32] numbers with rows for columns; */
void kernel_amx_turn(float *dst, const float *src);
/* a panel of results; */
void kernel_amx_put(const mm_out *o);
/* a block of NF4, from word box.w on, of up to 32 vectors: [2][32][16], the words of two tiles side
 * by side. What lies behind these vectors may be fetched meanwhile. */
void kernel_amx_unpack(mm_word *dst, const mm_side *x, mm_box box, bool fetch);

#endif
