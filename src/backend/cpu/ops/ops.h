/* ops: how one source becomes a table of ops for each instruction set.
 *
 * Every .c file of this folder is compiled once for each instruction set (ISA is base or another
 * name, see the Makefile) and defines its ops as OP(name). So the compiler may use the whole
 * instruction set everywhere, and nothing is dispatched inside an op: cpu_open() chooses a table.
 * Declarations use the types of the table's fields, so an op with another signature does not
 * compile. */
#ifndef PESC_BACKEND_CPU_OPS_OPS_H
#define PESC_BACKEND_CPU_OPS_OPS_H

#include "backend/cpu/cpu.h"

/* clang-format off */
/* memory: cpu.c */
#define CPU_MEMORY_MAP(X)                                                                          \
    X(alloc) X(alloc_host) X(free) X(upload) X(download) X(copy) X(zero) X(sync) X(host_memory)    \
    X(room) X(close) X(begin) X(end) X(scratch_bytes) X(reserve) X(open_side) X(mark) X(wait_mark) \
    X(follow)
/* products choose their own instructions: matmul.c */
#define CPU_PRODUCT_MAP(X) X(matmul) X(matmuls) X(grouped_matmul) X(experts_fwd)
/* the ops of this folder */
#define CPU_OP_MAP(X)                                                                              \
    X(rope_table) X(rope) X(attention_fwd) X(copy_heads) X(conv_fwd) X(conv_bwd)                   \
    X(delta_fwd) X(delta_bwd)                                                                      \
    X(embed) X(rmsnorm_fwd) X(glu_fwd) X(act_fwd) X(add) X(scale_rows) X(add_gated) X(convert)     \
    X(gather_rows) X(sink_fwd) X(sink_bwd) X(add_bias) X(add_bias_bwd) X(softcap) X(softcap_bwd)   \
    X(topk_fwd) X(expert_remap) X(expert_sort) X(scatter_add) X(adapters_fwd) X(xent_fwd)          \
    X(token_score) X(quantize_nf4)                                                                 \
    X(rmsnorm_bwd) X(glu_bwd) X(act_bwd) X(attention_bwd) X(embed_bwd) X(gather_rows_bwd)          \
    X(add_gated_bwd) X(sum_rows) X(topk_bwd) X(scatter_add_bwd) X(balance) X(dot_rows) X(xent_bwd) \
    X(dropout) X(sumsq) X(adamw)
/* clang-format on */

#define CPU_DECLARE_PLAIN(name) __typeof__(*((const ops *)0)->name) cpu_##name;
CPU_MEMORY_MAP(CPU_DECLARE_PLAIN)
CPU_PRODUCT_MAP(CPU_DECLARE_PLAIN)

#ifdef ISA
#define OP_JOIN(name, isa) cpu_##name##_##isa
#define OP_EXPAND(name, isa) OP_JOIN(name, isa)
#define OP(name) OP_EXPAND(name, ISA)
#define CPU_DECLARE_OP(name) __typeof__(*((const ops *)0)->name) OP(name);
CPU_OP_MAP(CPU_DECLARE_OP)
#endif

#endif
