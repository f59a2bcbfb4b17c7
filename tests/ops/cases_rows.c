/* cases_rows: pointwise ops, norms, gathers, losses, quantisation. */
#include "ops/cases.h"

#include <math.h>

/* ---- glu, act, add, convert ---- */

static int glu_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "gate", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "up", SLOT_IN, p->x, .ne = { p->t, p->c } };
    return 3;
}

/* Numbers on both sides of the limits of a clamped GLU. */
static void glu_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c && p->act == ACT_CLAMPED; i++) {
        x[1][i] *= 6;
        x[2][i] *= 6;
    }
}

static void glu_call(device *d, const params *p, const tensor *t)
{
    d->op->glu_fwd(d, t[0], t[1], t[2], p->act);
}

static void glu_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] = oracle_act(p->act, x[1][i]) * oracle_glu_up(p->act, x[2][i]);
}

/* clang-format off */
const op_test test_glu_fwd = {
    "glu_fwd", glu_slots, glu_arrange, glu_call, glu_oracle, 4e-7,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 3, .c = 17, .act = ACT_GELU },
        { .t = 1, .c = 100, .act = ACT_GELU_TANH, .x = DT_BF16 },
        { .t = 5, .c = 33, .act = ACT_RELU, .o = DT_BF16 },
        { .t = 7, .c = 1536, .x = DT_BF16, .o = DT_BF16 },
        { .t = 9, .c = 1000, .act = ACT_SILU },
        { .t = 9, .c = 1000, .act = ACT_CLAMPED },
        { .t = 9, .c = 100, .act = ACT_SIGMOID },
        { .t = 3, .c = 65, .act = ACT_CLAMPED, .x = DT_BF16, .o = DT_BF16 },
        { .t = 5, .c = 99, .act = ACT_SIGMOID },
        { .t = 3, .c = 64, .act = ACT_SIGMOID, .x = DT_BF16, .o = DT_BF16 },
    }
};
/* clang-format on */

/* k > 0: rows are gated, k rows for each of t / k tokens */
static int act_slots(const params *p, slot *s)
{
    i64 tokens = p->k ? p->t / p->k : 0;
    s[0] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "gates", SLOT_IN, DT_F32, .ne = { tokens, p->k } };
    s[3] = (slot){ "order", SLOT_IN, DT_I32, .ne = { tokens * p->k }, FILL_INDEX, 1 };
    return 4;
}

static void act_call(device *d, const params *p, const tensor *t)
{
    row_gates g = { .gates = t[2], .order = t[3], .scale = p->scale };
    d->op->act_fwd(d, t[0], t[1], p->act, p->k ? &g : NULL);
}

/* Normal numbers times 8, which reach the tails; the rows are permuted. */
static void act_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[1][i] *= 8;
    for (i64 r = 0; r < p->t && p->k; r++)
        x[3][r] = (double)(p->t - 1 - r);
}

static void act_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] = oracle_act(p->act, x[1][i]) * (p->k ? p->scale * x[2][(i64)x[3][i / p->c]] : 1);
}

/* clang-format off */
const op_test test_act_fwd = {
    "act_fwd", act_slots, act_arrange, act_call, act_oracle, 4e-7,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 64, .c = 65, .act = ACT_SILU },
        { .t = 64, .c = 65, .act = ACT_GELU },
        { .t = 64, .c = 65, .act = ACT_GELU_TANH },
        { .t = 3, .c = 65, .act = ACT_RELU },
        { .t = 31, .c = 31, .act = ACT_GELU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 26, .k = 2, .c = 65, .scale = 0.25f, .act = ACT_GELU },
        { .t = 12, .k = 3, .c = 512, .scale = 1, .act = ACT_GELU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 2, .k = 1, .c = 2049, .scale = 2, .act = ACT_SILU },
        { .t = 1, .k = 1, .c = 33, .scale = 0.5f, .act = ACT_RELU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 12, .k = 3, .c = 512, .scale = 1, .act = ACT_SILU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 5, .c = 77, .act = ACT_GELU_TANH, .x = DT_BF16, .o = DT_BF16 },
    }
};
/* clang-format on */

/* y and x of one shape */
static int pair_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    return 2;
}

static int add_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    return 2;
}

static void add_call(device *d, const params *p, const tensor *t)
{
    d->op->add(d, t[0], t[1], p->scale);
}

static void add_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] += p->scale * x[1][i];
}

/* clang-format off */
const op_test test_add = {
    "add", add_slots, NULL, add_call, add_oracle, 2e-7,
    .cases = {
        { .t = 1, .c = 1, .scale = 1 },
        { .t = 3, .c = 333, .scale = 0.25f, .x = DT_BF16 },
        { .t = 9, .c = 576, .scale = -2, .x = DT_BF16, .o = DT_BF16 },
        { .t = 20, .c = 1001, .scale = 1 },
        { .t = 1, .c = 65, .scale = 0.5f, .o = DT_BF16 },
    }
};
/* clang-format on */

static int gated_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "logit", SLOT_IN, p->w, .ne = { p->t, 1 } };
    return 3;
}

static void gated_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->add_gated(d, t[0], t[1], t[2]);
}

static void gated_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] += x[1][i] / (1 + exp(-x[2][i / p->c]));
}

/* clang-format off */
const op_test test_add_gated = {
    "add_gated", gated_slots, NULL, gated_call, gated_oracle, 4e-7,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 13, .c = 100, .x = DT_BF16, .w = DT_BF16 },
        { .t = 5, .c = 2049, .o = DT_BF16 },
    }
};
/* clang-format on */

static void convert_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->convert(d, t[0], t[1]);
}

/* Halves between two bf16 numbers, to be rounded to even; and the ends of the range. */
static void convert_arrange(const params *p, double **x)
{
    const double ends[] = { NAN, INFINITY, -INFINITY, 3.4028234e38, 1e-40, -0.0 };
    i64 n = p->t * p->c;
    for (i64 i = 0; i < n; i += 3)
        x[1][i] = 1 + (double)(2 * (i % 100) + 1) / 256;
    for (i64 i = 0; i < 6 && n > 6; i++)
        x[1][n - 1 - i] = ends[i];
}

static void copy_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] = x[1][i];
}

/* clang-format off */
const op_test test_convert = {
    "convert", pair_slots, convert_arrange, convert_call, copy_oracle, 0,
    .cases = {
        { .t = 1, .c = 1, .o = DT_BF16 },
        { .t = 3, .c = 1777, .o = DT_BF16 },
        { .t = 3, .c = 1777, .x = DT_BF16 },
        { .t = 2, .c = 65 },
        { .t = 2, .c = 65, .x = DT_BF16, .o = DT_BF16 },
    }
};
/* clang-format on */

/* ---- rows ---- */

/* norm: t tokens of n heads of width c. after: a residual sum is fused before it, with k > 0 also
 * the rows of k experts, with bias without `add`; e > 0: a router of e experts is fused after it.
 */
enum { N_OUT, N_RSTD, N_SUM, N_LOGITS, N_X, N_W, N_ADD, N_ROWS, N_INVERSE, N_ROUTER };

static int norm_slots(const params *p, slot *s)
{
    i64 width = p->n * p->c, sum = p->after ? p->t : 0, slots = p->after ? p->t * p->k : 0;
    s[N_OUT] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, width } };
    s[N_RSTD] = (slot){ "rstd", SLOT_OUT, DT_F32, .ne = { p->flag ? p->t * p->n : 0 } };
    s[N_SUM] = (slot){ "sum", SLOT_OUT, DT_F32, .ne = { sum, width } };
    s[N_LOGITS] = (slot){ "logits", SLOT_OUT, DT_F32, .ne = { p->e ? p->t : 0, p->e } };
    s[N_X] = (slot){ "x", SLOT_IN, p->after ? DT_F32 : p->x, .ne = { p->t, width } };
    s[N_W] = (slot){ "w", SLOT_IN, p->w, .ne = { p->c } };
    s[N_ADD] = (slot){ "add", SLOT_IN, p->x, .ne = { p->bias ? 0 : sum, width } };
    s[N_ROWS] = (slot){ "rows", SLOT_IN, p->x, .ne = { slots, width } };
    s[N_INVERSE] = (slot){ "inverse", SLOT_IN, DT_I32, .ne = { slots }, FILL_INDEX, slots };
    s[N_ROUTER] = (slot){ "router", SLOT_IN, DT_F32, .ne = { p->e, p->c } };
    return 10;
}

/* Logits of the size that routers produce. */
static void norm_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->e * p->c; i++)
        x[N_ROUTER][i] /= sqrt((double)p->c);
}

static void norm_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->rmsnorm_fwd(d, &(norm_fwd){ .out = t[N_OUT],
                                       .x = t[N_X],
                                       .w = t[N_W],
                                       .rstd = t[N_RSTD],
                                       .eps = 1e-5f,
                                       .shift = p->scale,
                                       .sum = t[N_SUM],
                                       .add = t[N_ADD],
                                       .rows = t[N_ROWS],
                                       .inverse = t[N_INVERSE],
                                       .logits = t[N_LOGITS],
                                       .router = t[N_ROUTER] });
}

static void norm_sum(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++) {
        x[N_SUM][i] = x[N_X][i] + (p->bias ? 0 : x[N_ADD][i]);
        for (i64 j = i / p->c * p->k; j < (i / p->c + 1) * p->k; j++)
            x[N_SUM][i] += x[N_ROWS][(i64)x[N_INVERSE][j] * p->c + i % p->c];
    }
}

static void norm_oracle(const params *p, double **x)
{
    const double *from = x[p->after ? N_SUM : N_X];
    if (p->after)
        norm_sum(p, x);
    for (i64 i = 0; i < p->c; i++)
        x[N_W][i] += p->scale;
    oracle_rmsnorm(x[N_OUT], p->flag ? x[N_RSTD] : NULL, from, x[N_W], p->t * p->n, p->c, 1e-5);
    for (i64 i = 0; i < p->t * p->e; i++) {
        x[N_LOGITS][i] = 0;
        for (i64 j = 0; j < p->c; j++)
            x[N_LOGITS][i] += x[N_OUT][i / p->e * p->c + j] * x[N_ROUTER][i % p->e * p->c + j];
    }
}

/* clang-format off */
const op_test test_rmsnorm_fwd = {
    "rmsnorm_fwd", norm_slots, norm_arrange, norm_call, norm_oracle, 2e-6,
    .cases = {
        { .t = 1, .n = 1, .c = 1 },
        { .t = 1, .n = 1, .c = 576, .flag = true },
        { .t = 5, .n = 3, .c = 33, .flag = true },
        { .t = 31, .n = 1, .c = 288, .x = DT_BF16, .o = DT_BF16, .w = DT_BF16, .flag = true },
        { .t = 3, .n = 1, .c = 4096, .o = DT_BF16 },
        { .t = 2, .n = 1, .c = 63, .w = DT_BF16 },
        { .t = 7, .n = 1, .c = 100, .after = true, .flag = true },
        { .t = 9, .n = 1, .c = 4096, .after = true, .x = DT_BF16, .o = DT_BF16, .flag = true },
        { .t = 5, .n = 1, .c = 5000, .after = true, .k = 2, .x = DT_BF16, .o = DT_BF16 },
        { .t = 6, .n = 1, .c = 65, .after = true, .k = 3, .e = 5 },
        { .t = 13, .n = 1, .c = 256, .after = true, .k = 2, .e = 8, .x = DT_BF16, .o = DT_BF16,
          .flag = true },
        { .t = 3, .n = 1, .c = 576, .e = 64, .o = DT_BF16 },
        { .t = 3, .n = 1, .c = 4100, .e = 9, .o = DT_BF16, .flag = true },
        { .t = 2, .n = 1, .c = 8200, .e = 3 },
        { .t = 1, .n = 1, .c = 65, .after = true, .k = 2, .e = 5, .bias = true, .x = DT_BF16,
          .o = DT_BF16, .flag = true },
        { .t = 5, .n = 1, .c = 100, .after = true, .bias = true },
        { .t = 5, .n = 3, .c = 33, .flag = true, .scale = 1 },
        { .t = 6, .n = 1, .c = 65, .after = true, .k = 3, .e = 5, .scale = 1 },
        { .t = 3, .n = 1, .c = 576, .e = 4, .o = DT_BF16, .scale = 1 },
        { .t = 9, .n = 1, .c = 4096, .after = true, .x = DT_BF16, .o = DT_BF16, .scale = 1 },
    }
};
/* clang-format on */

static int gather_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->n, p->c } };
    s[2] = (slot){ "rows", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->n * p->k };
    return 3;
}

static void gather_call(device *d, const params *p, const tensor *t)
{
    d->op->gather_rows(d, t[0], t[1], t[2], (int32_t)p->k);
}

static void gather_oracle(const params *p, double **x)
{
    for (i64 r = 0; r < p->t; r++)
        for (i64 i = 0; i < p->c; i++)
            x[0][r * p->c + i] = x[1][(i64)x[2][r] / p->k * p->c + i];
}

/* clang-format off */
const op_test test_gather_rows = {
    "gather_rows", gather_slots, NULL, gather_call, gather_oracle, 0,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .k = 1 },
        { .t = 26, .c = 100, .n = 13, .k = 2 },
        { .t = 9, .c = 65, .n = 4, .k = 3, .x = DT_BF16, .o = DT_BF16 },
        { .t = 9, .c = 65, .n = 4, .k = 3, .o = DT_BF16 },
        { .t = 7, .c = 33, .n = 4, .k = 3, .x = DT_BF16 },
    }
};
/* clang-format on */

static int embed_slots(const params *p, slot *s)
{
    int n = gather_slots(p, s);
    s[0].dt = DT_F32; /* the residual stream */
    return n;
}

static void embed_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->embed(d, t[0], t[1], t[2]);
}

/* clang-format off */
const op_test test_embed = {
    "embed", embed_slots, NULL, embed_call, gather_oracle, 0,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .k = 1 },
        { .t = 77, .c = 100, .n = 51, .k = 1 },
        { .t = 5, .c = 576, .n = 300, .k = 1, .x = DT_BF16 },
    }
};
/* clang-format on */

/* copy_heads: n columns for each head; flag: all heads read the same columns (MLA); after: summed
 * over heads, its backward; bias: accumulated, but not summed over heads */
static int heads_slots(const params *p, slot *s)
{
    s[0] = (slot){ "dst", SLOT_INOUT, p->o, .ne = { p->t, p->heads * p->qk + p->c } };
    s[1] = (slot){ "src", SLOT_IN, p->x, .ne = { p->t, p->heads * p->v + p->c } };
    return 2;
}

static copy_heads heads_args(const params *p)
{
    return (copy_heads){ .n_heads = (int32_t)p->heads,
                         .n = (int32_t)p->n,
                         .dst_head = p->after ? 0 : (int32_t)p->qk,
                         .dst_col = (int32_t)p->c,
                         .src_head = p->flag ? 0 : (int32_t)p->v,
                         .src_col = (int32_t)p->c / 2,
                         .accumulate = p->after || p->bias };
}

static void heads_call(device *d, const params *p, const tensor *t)
{
    copy_heads a = heads_args(p);
    a.dst = t[0];
    a.src = t[1];
    d->op->copy_heads(d, &a);
}

static void heads_oracle(const params *p, double **x)
{
    copy_heads a = heads_args(p);
    i64 dst_width = p->heads * p->qk + p->c, src_width = p->heads * p->v + p->c;
    for (i64 t = 0; t < p->t; t++)
        for (i64 h = 0; h < p->heads; h++)
            for (i64 i = 0; i < p->n; i++) {
                double *dst = &x[0][t * dst_width + h * a.dst_head + a.dst_col + i];
                *dst = (a.accumulate ? *dst : 0) +
                       x[1][t * src_width + h * a.src_head + a.src_col + i];
            }
}

/* clang-format off */
const op_test test_copy_heads = {
    "copy_heads", heads_slots, NULL, heads_call, heads_oracle, 1e-6,
    .cases = {
        { .t = 1, .heads = 1, .n = 1, .qk = 1, .v = 1 },
        { .t = 5, .heads = 3, .n = 24, .qk = 40, .v = 56, .c = 8 },
        { .t = 5, .heads = 3, .n = 16, .qk = 40, .v = 16, .c = 24, .flag = true, .x = DT_BF16,
          .o = DT_BF16 },
        { .t = 5, .heads = 3, .n = 16, .qk = 16, .v = 40, .c = 24, .after = true },
        { .t = 5, .heads = 3, .n = 16, .qk = 16, .v = 40, .after = true, .x = DT_BF16,
          .o = DT_BF16 },
        { .t = 1, .heads = 3, .n = 17, .qk = 41, .v = 23, .c = 9, .bias = true, .x = DT_BF16 },
        { .t = 4, .heads = 2, .n = 33, .qk = 35, .v = 37, .c = 3, .o = DT_BF16 },
    }
};
/* clang-format on */

/* ---- loss, quantisation ---- */

static int xent_slots(const params *p, slot *s)
{
    s[0] = (slot){ "loss", SLOT_OUT, DT_F32, .ne = { p->t } };
    s[1] = (slot){ "logits", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "targets", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->c };
    return 3;
}

static void xent_arrange(const params *p, double **x)
{
    for (i64 r = 2; r < p->t; r += 3)
        x[2][r] = -100;
    for (i64 i = 0; i < p->t * p->c; i++)
        /* far above and far below 0: the maximum must be subtracted, and padding lanes must not be
         * the maximum */
        x[1][i] = x[1][i] * 4 + (i / p->c % 2 ? -50 : 50);
}

static void xent_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->xent_fwd(d, t[0], t[1], t[2]);
}

static void xent_oracle(const params *p, double **x)
{
    for (i64 r = 0; r < p->t; r++)
        x[0][r] = oracle_xent(x[1] + r * p->c, p->c, x[2][r]);
}

/* clang-format off */
const op_test test_xent_fwd = {
    "xent_fwd", xent_slots, xent_arrange, xent_call, xent_oracle, 2e-6,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 7, .c = 17 },
        { .t = 5, .c = 1000, .x = DT_BF16 },
        { .t = 3, .c = 49152 },
        { .t = 1, .c = 33, .x = DT_BF16 },
    }
};
/* clang-format on */

static int score_slots(const params *p, slot *s)
{
    s[0] = (slot){ "logprob", SLOT_OUT, DT_F32, .ne = { p->n } };
    s[1] = (slot){ "best", SLOT_OUT, DT_I32, .ne = { p->n } };
    s[2] = (slot){ "logits", SLOT_IN, DT_F32, .ne = { p->t, p->c },
                   p->flag ? FILL_COARSE : FILL_NORMAL };
    s[3] = (slot){ "pairs", SLOT_IN, DT_I32, .ne = { p->n, 2 }, FILL_INDEX, p->c };
    return 4;
}

static void score_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->n; i++)
        x[3][2 * i] = (double)(i % p->t);
    for (i64 i = 0; i < p->t * p->c; i++)
        x[2][i] = x[2][i] * 4 + (i / p->c % 2 ? -50 : 50);
}

static void score_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->token_score(d, t[0], t[1], t[2], t[3]);
}

static void score_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->n; i++) {
        const double *row = x[2] + (i64)x[3][2 * i] * p->c;
        i64 best = 0;
        for (i64 j = 1; j < p->c; j++)
            best = row[j] > row[best] ? j : best;
        x[0][i] = -oracle_xent(row, p->c, x[3][2 * i + 1]);
        x[1][i] = (double)best;
    }
}

/* clang-format off */
const op_test test_token_score = {
    "token_score", score_slots, score_arrange, score_call, score_oracle, 3e-7,
    .cases = {
        { .t = 1, .c = 1, .n = 1 },
        { .t = 3, .c = 17, .n = 7 },
        { .t = 2, .c = 1001, .n = 5, .flag = true },
        { .t = 3, .c = 49152, .n = 4 },
        { .t = 3, .c = 151936, .n = 4, .flag = true },
    }
};
/* clang-format on */

static int quant_slots(const params *p, slot *s)
{
    i64 n = p->t * p->c, bytes = ((n + 1) / 2 + 3) / 4 * 4 + (n + 63) / 64 * 4;
    s[0] = (slot){ "storage", SLOT_OUT, DT_U8, .ne = { p->n, bytes } };
    s[1] = (slot){ "w", SLOT_IN, DT_F32, .ne = { p->n, p->t, p->c } };
    return 2;
}

static void quant_call(device *d, const params *p, const tensor *t)
{
    tensor storage = { t[0].data, DT_NF4, 3, { p->n, p->t, p->c } };
    d->op->quantize_nf4(d, storage, t[1], false);
}

static void quant_oracle(const params *p, double **x)
{
    i64 n = p->t * p->c, bytes = ((n + 1) / 2 + 3) / 4 * 4 + (n + 63) / 64 * 4;
    for (i64 m = 0; m < p->n; m++)
        oracle_nf4(x[0] + m * bytes, x[1] + m * n, n);
}

/* flag: the first block is all zeros. */
static void quant_arrange(const params *p, double **x)
{
    for (int i = 0; i < 64 && p->flag; i++)
        x[1][i] = 0;
}

/* clang-format off */
const op_test test_quantize_nf4 = {
    "quantize_nf4", quant_slots, quant_arrange, quant_call, quant_oracle, 0,
    .cases = {
        { .t = 1, .c = 64, .n = 1 },
        { .t = 1, .c = 1, .n = 1 },
        { .t = 3, .c = 100, .n = 2 },
        { .t = 129, .c = 320, .n = 1 },
        { .t = 3, .c = 65, .n = 1, .flag = true },
    }
};
/* clang-format on */
