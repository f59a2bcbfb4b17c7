/* cases_grad_routing: gradients of gates, and the balance loss. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DLOGITS, DGATES, IDS, LOGITS, SHARE };

static int grad_slots(const params *p, slot *s)
{
    s[DLOGITS] = (slot){ "dlogits", SLOT_OUT, DT_F32, .ne = { p->t, p->e } };
    s[DGATES] = (slot){ "dgates", SLOT_IN, DT_F32, .ne = { p->t, p->k } };
    s[IDS] = (slot){ "ids", SLOT_IN, DT_I32, .ne = { p->t, p->k }, FILL_INDEX, 1 };
    s[LOGITS] = (slot){ "logits", SLOT_IN, DT_F32, .ne = { p->t, p->e } };
    s[SHARE] = (slot){ "share", SLOT_IN, DT_F32, .ne = { p->flag ? 2 : 0, p->e } };
    return 5;
}

static void choose(const params *p, const double *logits, double *ids)
{
    double *gates = malloc((size_t)(p->t * p->k) * sizeof *gates);
    oracle_topk a = { .logits = logits,
                      .ids = ids,
                      .gates = gates,
                      .rows = p->t,
                      .n = p->e,
                      .k = p->k,
                      .groups = 1,
                      .k_groups = 1,
                      .after = true,
                      .scale = 1 };
    oracle_route(&a);
    free(gates);
}

static void grad_arrange(const params *p, double **x)
{
    choose(p, x[LOGITS], x[IDS]);
    for (i64 i = 0; i < p->e && p->flag; i++)
        x[SHARE][i] = 0;
    for (i64 i = 0; i < p->t * p->k && p->flag; i++)
        x[SHARE][(i64)x[IDS][i]] += 1.0 / (double)(p->t * p->k);
}

static topk_rule rule_of(const params *p)
{
    return (topk_rule){ .n_experts = (int32_t)p->e,
                        .k = (int32_t)p->k,
                        .score = p->sigmoid ? SCORE_SIGMOID : SCORE_SOFTMAX,
                        .score_after_topk = p->after,
                        .renormalise = p->renormalise,
                        .sum_floor = p->floor,
                        .sum_more = p->more,
                        .scale = p->scale,
                        .n_groups = 1,
                        .k_groups = 1 };
}

static void grad_call(device *d, const params *p, const tensor *t)
{
    topk_bwd a = { .dlogits = t[DLOGITS],
                   .dgates = t[DGATES],
                   .ids = t[IDS],
                   .logits = t[LOGITS],
                   .share = t[SHARE],
                   .rule = rule_of(p),
                   .balance = 0.5f,
                   .z = p->cap };
    d->op->topk_bwd(d, &a);
}

/* sum of dgates times the gates of fixed choices, plus half the balance value and cap times the z
 * value; of row t alone */
static double row_loss(const params *p, double **x, i64 t)
{
    const double *z = x[LOGITS] + t * p->e, *ids = x[IDS] + t * p->k;
    double all = 0, chosen = 0, raw_sum = 0, sum = 0, aux = 0;
    for (i64 e = 0; e < p->e; e++)
        all += exp(z[e]);
    for (i64 j = 0; j < p->k; j++)
        chosen += exp(z[(i64)ids[j]]);
    for (int pass = 0; pass < 2; pass++)
        for (i64 j = 0; j < p->k; j++) {
            double zj = z[(i64)ids[j]];
            double raw = p->sigmoid ? 1 / (1 + exp(-zj)) : exp(zj) / (p->after ? chosen : all);
            if (pass == 0)
                raw_sum += raw;
            else
                sum += x[DGATES][t * p->k + j] * p->scale * raw /
                       (p->renormalise ? fmax(raw_sum + (double)p->more, (double)p->floor) : 1);
        }
    for (i64 e = 0; e < p->e && p->flag; e++)
        aux += x[SHARE][e] * exp(z[e]) / all / (double)p->t;
    return sum + 0.5 * (double)p->e * aux + (double)p->cap * log(all) * log(all) / (double)p->t;
}

static double grad_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 t = 0; t < p->t; t++)
        sum += row_loss(p, x, t);
    return sum;
}

/* Difference quotients of the row's own loss, element by element. */
static void grad_oracle(const params *p, double **x)
{
    const double h = 1e-5;
    for (i64 i = 0; i < p->t * p->e; i++) {
        double was = x[LOGITS][i], up;
        x[LOGITS][i] = was + h;
        up = row_loss(p, x, i / p->e);
        x[LOGITS][i] = was - h;
        x[DLOGITS][i] = (up - row_loss(p, x, i / p->e)) / (2 * h);
        x[LOGITS][i] = was;
    }
}

/* clang-format off */
const op_test test_topk_bwd = {
    "topk_bwd", grad_slots, grad_arrange, grad_call, grad_oracle, 4e-6,
    .cases = {
        { .t = 1, .e = 2, .k = 1, .after = true, .scale = 1 },
        { .t = 20, .e = 8, .k = 2, .after = true, .scale = 1 },
        { .t = 20, .e = 8, .k = 2, .after = true, .scale = 1, .flag = true },
        { .t = 20, .e = 60, .k = 4, .scale = 1, .flag = true },
        { .t = 20, .e = 16, .k = 4, .scale = 2.5f, .renormalise = true },
        { .t = 20, .e = 16, .k = 4, .scale = 2.5f, .sigmoid = true, .renormalise = true,
          .flag = true },
        { .t = 20, .e = 16, .k = 4, .scale = 1, .renormalise = true, .floor = 0.6f },
        { .t = 20, .e = 16, .k = 4, .scale = 1, .sigmoid = true, .renormalise = true,
          .more = 0.5f },
        { .t = 20, .e = 16, .k = 3, .scale = 1, .sigmoid = true },
        { .t = 20, .e = 16, .k = 3, .scale = 1, .after = true, .renormalise = true },
        { .t = 20, .e = 17, .k = 3, .scale = 1, .sigmoid = true, .after = true, .flag = true },
        { .t = 20, .e = 8, .k = 2, .after = true, .scale = 1, .cap = 0.3f },
        { .t = 7, .e = 60, .k = 4, .scale = 1, .flag = true, .cap = 2 },
    },
    .loss = grad_loss, .gradients = { { DLOGITS, LOGITS } }
};
/* clang-format on */

/* Without ids all experts are chosen. */
static void all_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->k; i++)
        x[IDS][i] = (double)(i % p->k);
}

static void all_call(device *d, const params *p, const tensor *t)
{
    topk_bwd a = { .dlogits = t[DLOGITS],
                   .dgates = t[DGATES],
                   .logits = t[LOGITS],
                   .rule = rule_of(p),
                   .z = p->cap };
    d->op->topk_bwd(d, &a);
}

/* clang-format off */
const op_test test_topk_bwd_all = {
    "topk_bwd_all", grad_slots, all_arrange, all_call, grad_oracle, 4e-6,
    .cases = {
        { .t = 1, .e = 2, .k = 2, .after = true, .scale = 1 },
        { .t = 20, .e = 8, .k = 8, .after = true, .scale = 1 },
        { .t = 20, .e = 60, .k = 60, .scale = 1, .cap = 0.1f },
        { .t = 20, .e = 16, .k = 16, .scale = 2.5f, .renormalise = true },
        { .t = 20, .e = 17, .k = 17, .scale = 2.5f, .sigmoid = true, .renormalise = true },
    },
    .loss = grad_loss, .gradients = { { DLOGITS, LOGITS } }
};
/* clang-format on */

/* ---- products of rows ---- */

static int dot_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, DT_F32, .ne = { p->t, p->e } };
    s[1] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "b", SLOT_IN, p->w, .ne = { p->t, p->c } };
    return 3;
}

static void dot_call(device *d, const params *p, const tensor *t)
{
    d->op->dot_rows(d, t[0], t[1], t[2], (int32_t)p->n, p->scale);
}

static void dot_oracle(const params *p, double **x)
{
    for (i64 t = 0; t < p->t; t++)
        for (i64 i = 0; i < p->c; i++)
            x[0][t * p->e + p->n] += (double)p->scale * x[1][t * p->c + i] * x[2][t * p->c + i];
}

/* clang-format off */
const op_test test_dot_rows = {
    "dot_rows", dot_slots, NULL, dot_call, dot_oracle, 4e-6,
    .cases = {
        { .t = 1, .e = 1, .c = 1, .scale = 1 },
        { .t = 13, .e = 8, .n = 7, .c = 100, .scale = 0.25f, .x = DT_BF16 },
        { .t = 5, .e = 3, .n = 1, .c = 257, .scale = 1, .w = DT_BF16 },
        { .t = 70, .e = 17, .c = 64, .scale = 2, .x = DT_BF16, .w = DT_BF16 },
    }
};
/* clang-format on */

/* ---- balance ---- */

static int balance_slots(const params *p, slot *s)
{
    s[0] = (slot){ "share", SLOT_OUT, DT_F32, .ne = { 2, p->e } };
    s[1] = (slot){ "aux", SLOT_OUT, DT_F32, .ne = { 2 } };
    s[2] = (slot){ "logits", SLOT_IN, DT_F32, .ne = { p->t, p->e } };
    s[3] = (slot){ "ids", SLOT_IN, DT_I32, .ne = { p->t, p->k }, FILL_INDEX, 1 };
    return 4;
}

/* flag: one expert gets everything; uniform: all logits equal, aux must be 1. */
static void balance_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->e; i++)
        x[2][i] = p->flag ? (i % p->e == 1 ? 40 : 0) : p->after ? 3 : x[2][i];
    choose(p, x[2], x[3]);
}

static void balance_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->balance(d, t[0], t[1], t[2], t[3]);
}

static void balance_oracle(const params *p, double **x)
{
    memset(x[0], 0, (size_t)(2 * p->e) * sizeof(double));
    x[1][0] = x[1][1] = 0;
    for (i64 t = 0; t < p->t; t++) {
        double sum = 0;
        for (i64 e = 0; e < p->e; e++)
            sum += exp(x[2][t * p->e + e]);
        x[1][1] += log(sum) * log(sum) / (double)p->t;
        for (i64 e = 0; e < p->e; e++)
            x[0][p->e + e] += exp(x[2][t * p->e + e]) / sum / (double)p->t;
        for (i64 j = 0; j < p->k; j++)
            x[0][(i64)x[3][t * p->k + j]] += 1.0 / (double)(p->t * p->k);
    }
    for (i64 e = 0; e < p->e; e++)
        x[1][0] += (double)p->e * x[0][e] * x[0][p->e + e];
    if (p->after)
        x[1][0] = 1;
    if (p->flag)
        x[1][0] = (double)p->e / (double)p->k;
}

/* clang-format off */
const op_test test_balance = {
    "balance", balance_slots, balance_arrange, balance_call, balance_oracle, 2e-6,
    .cases = {
        { .t = 1, .e = 1, .k = 1 },
        { .t = 300, .e = 8, .k = 2 },
        { .t = 50, .e = 60, .k = 4 },
        { .t = 50, .e = 8, .k = 2, .after = true },
        { .t = 50, .e = 8, .k = 1, .flag = true },
        { .t = 33, .e = 17, .k = 3 },
    }
};
/* clang-format on */
