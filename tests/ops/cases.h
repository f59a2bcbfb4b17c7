/* cases: every op, the shapes it is tested with, and how to call it.
 *
 * An op_test names its tensors as slots and says how to call the op on a device and the oracle on
 * doubles. A case is a row of parameters. Runners know neither ops nor shapes: they fill the slots,
 * call the op and compare. So a runner that compares two devices, or with finite differences, is
 * one loop over the same table. */
#ifndef PESC_TESTS_OPS_CASES_H
#define PESC_TESTS_OPS_CASES_H

#include "backend/backend.h"
#include "ops/oracle.h"

enum { MAX_SLOTS = 14, MAX_CASES = 36, MAX_SEQS = 4 };

/* Sizes by the letters of backend.h; unused ones stay 0. Types default to f32. */
typedef struct params {
    i64 t, c, n;                        /* tokens, width, one more size */
    i64 heads, kv, qk, v, window, page; /* attention; page > 0: with a cache */
    i64 e, k, groups, k_groups;         /* routing */
    i64 seqs, len[MAX_SEQS], past[MAX_SEQS];
    dtype x, w, o; /* of activations, weights (or the second operand), output */
    act_kind act;
    i64 layout, fp8; /* of products; terms that may be rounded to fp8 */
    float scale, floor, more, cap;
    bool bias, flag, sigmoid, after, renormalise;
} params;

/* USED: an input that the op may overwrite. */
typedef enum slot_role { SLOT_IN, SLOT_USED, SLOT_OUT, SLOT_INOUT } slot_role;
/* NORMAL: N(0,1). COARSE: multiples of 1/2, full of ties. INDEX: integers below `limit`. */
typedef enum slot_fill { FILL_NORMAL, FILL_COARSE, FILL_INDEX } slot_fill;

typedef struct slot {
    const char *name;
    slot_role role;
    dtype dt;
    i64 ne[4]; /* trailing zeros: fewer dimensions; all zero: absent */
    slot_fill fill;
    i64 limit;
} slot;

typedef struct op_test {
    const char *name;
    int (*slots)(const params *p, slot *s);
    void (*arrange)(const params *p,
                    double **x); /* fills slots whose values depend on others; NULL: none */
    void (*call)(device *d, const params *p, const tensor *t);
    void (*oracle)(const params *p, double **x); /* inputs in, outputs overwritten */
    double tolerance;                            /* of f32 results, relative to 1 + |expected| */
    double bf16_tolerance;                       /* added to it where results are stored in bf16 */
    params cases[MAX_CASES];                     /* ends at the first with t == 0 */
    /* Of a backward op: the function of the inputs whose gradient it computes, and which slot holds
     * the gradient of which. */
    double (*loss)(const params *p, double **x);
    struct {
        int gradient, of;
    } gradients[6]; /* ends where both are 0 */
} op_test;

double round_to(dtype dt, double x); /* x as a tensor of type dt holds it */

/* A slot of n numbers in NF4 is made of bytes. set_nf4_scales() makes its scales sensible floats
 * times `factor`; random bytes do for the codes. decode_nf4(): `rounded`, to bf16, as products with
 * bf16 activations may round weights. */
i64 nf4_bytes(i64 n);
void set_nf4_scales(double *bytes, i64 n, float factor);
void decode_nf4(double *out, const double *bytes, i64 n, bool rounded);

/* clang-format off */
#define OP_TEST_MAP(X)                                                                             \
    X(matmul) X(matmul_nf4) X(matmul_sum) X(matmul_fp8) X(matmul_fp8_nf4) X(matmuls)               \
    X(grouped_matmul)                                                                              \
    X(rope_table) X(rope) X(attention_fwd) X(copy_heads) X(conv_fwd) X(conv_bwd)                   \
    X(delta_fwd) X(delta_bwd)                                                                      \
    X(embed) X(rmsnorm_fwd) X(glu_fwd) X(act_fwd) X(add) X(scale_rows) X(add_gated) X(convert)     \
    X(gather_rows) X(sink_fwd) X(sink_bwd) X(add_bias) X(add_bias_bwd) X(softcap) X(softcap_bwd)   \
    X(topk_fwd) X(expert_remap) X(expert_sort) X(scatter_add) X(adapters_fwd) X(experts_fwd)       \
    X(xent_fwd) X(token_score) X(quantize_nf4)                                                     \
    X(rmsnorm_bwd) X(glu_bwd) X(act_bwd) X(attention_bwd) X(embed_bwd) X(gather_rows_bwd)          \
    X(add_gated_bwd) X(sum_rows) X(topk_bwd) X(topk_bwd_all) X(scatter_add_bwd) X(balance)         \
    X(dot_rows) X(xent_bwd) X(dropout) X(sumsq) X(adamw)
/* clang-format on */
#define OP_TEST_DECLARE(name) extern const op_test test_##name;
OP_TEST_MAP(OP_TEST_DECLARE)

extern const op_test *const op_tests[];
extern const int n_op_tests;

#endif
