/* opmap: every op that returns void, as X(name, parameters, arguments), for devices that forward to
 * another: `d` is the outer device, `in` the inner one. */
#ifndef PESC_BACKEND_OPMAP_H
#define PESC_BACKEND_OPMAP_H

#include "backend/backend.h"

/* clang-format off */
#define OPMAP(X)                                                                                   \
    X(copy, (device *d, void *y, const void *x, size_t n), (in, y, x, n))                          \
    X(zero, (device *d, void *y, size_t n), (in, y, n))                                            \
    X(upload, (device *d, void *y, const void *x, size_t n), (in, y, x, n))                        \
    X(matmul, (device *d, const mm *a), (in, a))                                                   \
    X(matmuls, (device *d, const mm *a, int n), (in, a, n))                                        \
    X(grouped_matmul, (device *d, const grouped_mm *a), (in, a))                                   \
    X(rope_table, (device *d, tensor c, tensor s, tensor p, tensor f, float k),                    \
      (in, c, s, p, f, k))                                                                         \
    X(rope, (device *d, const rope *a), (in, a))                                                   \
    X(attention_fwd, (device *d, const attention *a), (in, a))                                     \
    X(copy_heads, (device *d, const copy_heads *a), (in, a))                                       \
    X(sink_fwd, (device *d, tensor y, tensor l, tensor s), (in, y, l, s))                          \
    X(conv_fwd, (device *d, const conv *a), (in, a))                                               \
    X(conv_bwd, (device *d, const conv_bwd *a), (in, a))                                           \
    X(delta_fwd, (device *d, const delta_rule *a), (in, a))                                        \
    X(delta_bwd, (device *d, const delta_bwd *a), (in, a))                                         \
    X(add_bias, (device *d, tensor y, tensor b, tensor o), (in, y, b, o))                          \
    X(sink_bwd, (device *d, tensor ds, tensor e, tensor l, tensor s), (in, ds, e, l, s))           \
    X(add_bias_bwd, (device *d, tensor db, tensor dy, tensor o), (in, db, dy, o))                  \
    X(embed, (device *d, tensor y, tensor t, tensor i), (in, y, t, i))                             \
    X(rmsnorm_fwd, (device *d, const norm_fwd *a), (in, a))                                        \
    X(glu_fwd, (device *d, tensor y, tensor g, tensor u, act_kind k), (in, y, g, u, k))            \
    X(act_fwd, (device *d, tensor y, tensor x, act_kind k, const row_gates *g), (in, y, x, k, g))  \
    X(add, (device *d, tensor y, tensor x, float k), (in, y, x, k))                                \
    X(scale_rows, (device *d, tensor y, tensor r, float k), (in, y, r, k))                         \
    X(add_gated, (device *d, tensor y, tensor x, tensor l), (in, y, x, l))                         \
    X(convert, (device *d, tensor y, tensor x), (in, y, x))                                        \
    X(gather_rows, (device *d, tensor y, tensor x, tensor r, int32_t k), (in, y, x, r, k))         \
    X(topk_fwd, (device *d, tensor i, tensor g, tensor l, const topk_rule *r, tensor b),           \
      (in, i, g, l, r, b))                                                                         \
    X(expert_remap, (device *d, tensor y, tensor i, tensor t, tensor r), (in, y, i, t, r))         \
    X(expert_sort, (device *d, tensor o, tensor v, tensor f, tensor i, int32_t n),                 \
      (in, o, v, f, i, n))                                                                         \
    X(scatter_add, (device *d, tensor y, tensor x, tensor g, tensor i, float k),                   \
      (in, y, x, g, i, k))                                                                         \
    X(adapters_fwd, (device *d, const adapters_fwd *a), (in, a))                                   \
    X(experts_fwd, (device *d, const experts_fwd *a), (in, a))                                     \
    X(softcap, (device *d, tensor y, float k), (in, y, k))                                         \
    X(softcap_bwd, (device *d, tensor x, tensor dy, tensor y, float k), (in, x, dy, y, k))         \
    X(xent_fwd, (device *d, tensor y, tensor l, tensor t), (in, y, l, t))                          \
    X(token_score, (device *d, tensor y, tensor b, tensor l, tensor p), (in, y, b, l, p))          \
    X(rmsnorm_bwd, (device *d, const norm_bwd *a), (in, a))                                        \
    X(glu_bwd, (device *d, const glu_bwd *a), (in, a))                                             \
    X(act_bwd, (device *d, tensor dx, tensor dy, tensor x, act_kind k, const row_gates *g),        \
      (in, dx, dy, x, k, g))                                                                       \
    X(attention_bwd, (device *d, const attention_bwd *a), (in, a))                                 \
    X(embed_bwd, (device *d, tensor t, tensor dy, tensor i), (in, t, dy, i))                       \
    X(gather_rows_bwd, (device *d, tensor x, tensor y, tensor i, int32_t k, bool a),               \
      (in, x, y, i, k, a))                                                                         \
    X(add_gated_bwd, (device *d, tensor dx, tensor dl, tensor dy, tensor x, tensor l),             \
      (in, dx, dl, dy, x, l))                                                                      \
    X(sum_rows, (device *d, tensor y, tensor x), (in, y, x))                                       \
    X(topk_bwd, (device *d, const topk_bwd *a), (in, a))                                           \
    X(scatter_add_bwd, (device *d, const scatter_bwd *a), (in, a))                                 \
    X(balance, (device *d, tensor s, tensor a, tensor l, tensor i), (in, s, a, l, i))              \
    X(dot_rows, (device *d, tensor y, tensor a, tensor b, int32_t c, float k), (in, y, a, b, c, k)) \
    X(xent_bwd, (device *d, tensor y, tensor g, tensor l, tensor t, tensor w),                     \
      (in, y, g, l, t, w))                                                                         \
    X(dropout, (device *d, tensor y, tensor x, rng_key k, float p), (in, y, x, k, p))              \
    X(sumsq, (device *d, tensor y, tensor x), (in, y, x))                                          \
    X(adamw, (device *d, const adamw *a), (in, a))                                                 \
    X(quantize_nf4, (device *d, tensor q, tensor w, bool twice), (in, q, w, twice))

/* The entries that concern memory and the device itself, as X(type, name, parameters, arguments). */
#define OPMAP_MEMORY(X)                                                                            \
    X(pesc_status, alloc, (device *d, size_t n, void **p), (in, n, p))                             \
    X(pesc_status, alloc_host, (device *d, size_t n, void **p), (in, n, p))                        \
    X(void, free, (device *d, void *p), (in, p))                                                   \
    X(bool, host_memory, (const device *d), (in))                                                  \
    X(uint64_t, room, (device *d), (in))                                                           \
    X(size_t, scratch_bytes, (const device *d, const work_limits *w), (in, w))                     \
    X(pesc_status, reserve, (device *d, size_t n), (in, n))                                        \
    X(void, close, (device *d), (in))
/* clang-format on */

#endif
