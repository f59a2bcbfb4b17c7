/* cases_scale: factors of rows, and soft caps. */
#include "ops/cases.h"

#include <math.h>

static int scale_rows_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "rows", SLOT_IN, DT_F32, .ne = { p->flag ? p->t : p->bias ? 1 : 0 } };
    return 2;
}

static void scale_rows_call(device *d, const params *p, const tensor *t)
{
    d->op->scale_rows(d, t[0], t[1], p->scale);
}

static void scale_rows_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] *= p->scale * (p->flag ? x[1][i / p->c] : p->bias ? x[1][0] : 1);
}

/* clang-format off */
const op_test test_scale_rows = {
    "scale_rows", scale_rows_slots, NULL, scale_rows_call, scale_rows_oracle, 2e-7,
    .cases = {
        { .t = 1, .c = 1, .scale = 1, .flag = true },
        { .t = 7, .c = 131, .scale = -0.5F, .flag = true },
        { .t = 7, .c = 131, .scale = 54.5F },
        { .t = 7, .c = 131, .scale = 0.5F, .bias = true },
        { .t = 3, .c = 96, .scale = 2, .flag = true, .o = DT_BF16 },
        { .t = 5, .c = 33, .scale = 0.3F, .o = DT_BF16 },
    }
};
/* clang-format on */

static int softcap_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, DT_F32, .ne = { p->t, p->c } };
    return 1;
}

static void softcap_call(device *d, const params *p, const tensor *t)
{
    d->op->softcap(d, t[0], p->scale);
}

static void softcap_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] = p->scale * tanh(x[0][i] / p->scale);
}

/* clang-format off */
const op_test test_softcap = {
    "softcap", softcap_slots, NULL, softcap_call, softcap_oracle, 1e-6,
    .cases = {
        { .t = 1, .c = 1, .scale = 30 },
        { .t = 7, .c = 131, .scale = 0.5F },
        { .t = 3, .c = 96, .scale = 2 },
    }
};
/* clang-format on */

/* ---- soft cap: forward reads z, backward its result y ---- */

static int softcap_bwd_slots(const params *p, slot *s)
{
    s[0] = (slot){ "dx", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "dy", SLOT_IN, p->o, .ne = { p->t, p->c } };
    s[2] = (slot){ "y", SLOT_IN, DT_F32, .ne = { p->t, p->c } };
    s[3] = (slot){ "z", SLOT_IN, DT_F32, .ne = { p->t, p->c } };
    return 4;
}

static void softcap_bwd_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[2][i] = p->scale * tanh(x[3][i] / p->scale);
}

static void softcap_bwd_call(device *d, const params *p, const tensor *t)
{
    d->op->softcap_bwd(d, t[0], t[1], t[2], p->scale);
}

static void softcap_bwd_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++)
        x[0][i] = x[1][i] * (1 - x[2][i] / p->scale * (x[2][i] / p->scale));
}

static double softcap_bwd_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[1][i] * p->scale * tanh(x[3][i] / p->scale);
    return sum;
}

/* clang-format off */
const op_test test_softcap_bwd = {
    "softcap_bwd", softcap_bwd_slots, softcap_bwd_arrange, softcap_bwd_call, softcap_bwd_oracle, 1e-6,
    .cases = {
        { .t = 1, .c = 1, .scale = 30 },
        { .t = 7, .c = 131, .scale = 2 },
        { .t = 3, .c = 96, .scale = 3, .o = DT_BF16 },
    },
    .loss = softcap_bwd_loss, .gradients = { { 0, 3 } }
};
/* clang-format on */
