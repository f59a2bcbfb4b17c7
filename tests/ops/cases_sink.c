/* cases_sink: a logit for each head that joins the softmax, and biases of rows with their
 * gradients. */
#include "ops/cases.h"

#include <math.h>

/* ---- sink_fwd ---- */

static int fwd_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_INOUT, p->o, .ne = { p->t, p->heads * p->v } };
    s[1] = (slot){ "lse", SLOT_INOUT, DT_F32, .ne = { p->t, p->heads } };
    s[2] = (slot){ "sinks", SLOT_IN, DT_F32, .ne = { p->heads } };
    return 3;
}

/* The first head's sink is far above its keys, the second's far below. */
static void fwd_arrange(const params *p, double **x)
{
    x[2][0] = 40;
    if (p->heads > 1)
        x[2][1] = -60;
}

static void fwd_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->sink_fwd(d, t[0], t[1], t[2]);
}

static void fwd_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->heads; i++) {
        double l = x[1][i], s = x[2][i % p->heads];
        for (i64 j = 0; j < p->v; j++)
            x[0][i * p->v + j] /= 1 + exp(s - l);
        x[1][i] = fmax(l, s) + log1p(exp(-fabs(l - s)));
    }
}

/* clang-format off */
const op_test test_sink_fwd = {
    "sink_fwd", fwd_slots, fwd_arrange, fwd_call, fwd_oracle, 1e-6,
    .cases = {
        { .t = 1, .heads = 1, .v = 1 },
        { .t = 33, .heads = 3, .v = 17 },
        { .t = 5, .heads = 8, .v = 64, .o = DT_BF16 },
    }
};
/* clang-format on */

/* ---- sink_bwd ---- */

/* plain: the log-sum-exp over the keys; dot: the product of dout and out without a sink. */
enum { DSINKS, DELTA, LSE, SINKS, PLAIN, DOT };

static int bwd_slots(const params *p, slot *s)
{
    static const char *const names[] = { "dsinks", "delta", "lse", "sinks", "plain", "dot" };
    for (int i = 0; i < 6; i++) {
        bool head = i == DSINKS || i == SINKS;
        s[i] = (slot){ names[i], i == DSINKS ? SLOT_INOUT : SLOT_IN, DT_F32,
                       .ne = { head ? p->heads : p->t, head ? 0 : p->heads } };
    }
    return 6;
}

static void bwd_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->heads; i++) {
        x[LSE][i] = log(exp(x[PLAIN][i]) + exp(x[SINKS][i % p->heads]));
        x[DELTA][i] = x[DOT][i] * exp(x[PLAIN][i] - x[LSE][i]);
    }
}

static void bwd_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->sink_bwd(d, t[DSINKS], t[DELTA], t[LSE], t[SINKS]);
}

static void bwd_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->heads; i++)
        x[DSINKS][i % p->heads] -= x[DELTA][i] * exp(x[SINKS][i % p->heads] - x[LSE][i]);
}

static double bwd_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->heads; i++)
        sum += x[DOT][i] / (1 + exp(x[SINKS][i % p->heads] - x[PLAIN][i]));
    return sum;
}

/* clang-format off */
const op_test test_sink_bwd = {
    "sink_bwd", bwd_slots, bwd_arrange, bwd_call, bwd_oracle, 4e-6,
    .cases = {
        { .t = 1, .heads = 1 },
        { .t = 300, .heads = 3 },
        { .t = 33, .heads = 8 },
    },
    .loss = bwd_loss, .gradients = { { DSINKS, SINKS } }
};
/* clang-format on */

/* ---- biases of all rows (e 0), or of the rows of each expert ---- */

static int bias_slots(const params *p, slot *s, bool backward)
{
    slot bias = { "bias", backward ? SLOT_INOUT : SLOT_IN, DT_F32,
                  .ne = { p->e ? p->e : p->c, p->e ? p->c : 0 } };
    slot rows = { "y", backward ? SLOT_IN : SLOT_INOUT, p->x, .ne = { p->t, p->c } };
    s[0] = backward ? bias : rows;
    s[1] = backward ? rows : bias;
    s[2] = (slot){ "offsets", SLOT_IN, DT_I32, .ne = { p->e ? p->e + 1 : 0 }, FILL_INDEX, 1 };
    s[3] = (slot){ "at", SLOT_IN, DT_F32, .ne = { backward ? (p->e ? p->e : 1) : 0, p->c } };
    return backward ? 4 : 3;
}

/* The second expert has no rows, the last the rest. */
static void offsets_arrange(const params *p, double **x)
{
    for (i64 e = 0; e < p->e + 1 && p->e; e++)
        x[2][e] = e == p->e ? (double)p->t : (double)((e - (e > 1)) * p->t / (p->e + 1));
}

static i64 expert_of(const params *p, double **x, i64 r)
{
    i64 e = 0;
    while (p->e && (double)r >= x[2][e + 1])
        e++;
    return e;
}

static int add_slots(const params *p, slot *s)
{
    return bias_slots(p, s, false);
}

static void add_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->add_bias(d, t[0], t[1], t[2]);
}

static void add_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] += x[1][expert_of(p, x, i / p->c) * p->c + i % p->c];
}

/* clang-format off */
const op_test test_add_bias = {
    "add_bias", add_slots, offsets_arrange, add_call, add_oracle, 2e-7,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 9, .c = 33 },
        { .t = 20, .c = 65, .e = 5 },
        { .t = 20, .c = 64, .e = 4, .x = DT_BF16 },
    }
};
/* clang-format on */

static int add_bwd_slots(const params *p, slot *s)
{
    return bias_slots(p, s, true);
}

static void add_bwd_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->add_bias_bwd(d, t[0], t[1], t[2]);
}

static void add_bwd_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][expert_of(p, x, i / p->c) * p->c + i % p->c] += x[1][i];
}

/* x is the gradient of rows to which the biases `at` were added. */
static double add_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[1][i] * x[3][expert_of(p, x, i / p->c) * p->c + i % p->c];
    return sum;
}

/* clang-format off */
const op_test test_add_bias_bwd = {
    "add_bias_bwd", add_bwd_slots, offsets_arrange, add_bwd_call, add_bwd_oracle, 4e-6,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 100, .c = 131 },
        { .t = 40, .c = 65, .e = 5 },
        { .t = 33, .c = 200, .e = 4, .x = DT_BF16 },
    },
    .loss = add_loss, .gradients = { { 0, 3 } }
};
/* clang-format on */

/* ---- the bias of all rows, added to what is there ---- */

static int sum_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_INOUT, DT_F32, .ne = { p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "bias", SLOT_IN, DT_F32, .ne = { p->c } };
    return 3;
}

static void sum_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->sum_rows(d, t[0], t[1]);
}

static void sum_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i % p->c] += x[1][i];
}

/* x is the gradient of rows to which a bias was added. */
static double sum_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[1][i] * x[2][i % p->c];
    return sum;
}

/* clang-format off */
const op_test test_sum_rows = {
    "sum_rows", sum_slots, NULL, sum_call, sum_oracle, 4e-6,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 100, .c = 131 },
        { .t = 33, .c = 200, .x = DT_BF16 },
    },
    .loss = sum_loss, .gradients = { { 0, 2 } }
};
/* clang-format on */
