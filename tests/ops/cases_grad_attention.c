/* cases_grad_attention: backward of attention, without pages. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DQ, DK, DV, DELTA, Q, K, V, OUT, LSE, DOUT, STARTS, POS };

static int grad_slots(const params *p, slot *s)
{
    i64 h = p->heads, kv = p->kv;
    s[DQ] = (slot){ "dq", SLOT_OUT, p->o, .ne = { p->t, h * p->qk } };
    s[DK] = (slot){ "dk", SLOT_OUT, p->o, .ne = { p->t, kv * p->qk } };
    s[DV] = (slot){ "dv", SLOT_OUT, p->o, .ne = { p->t, kv * p->v } };
    s[DELTA] = (slot){ "delta", SLOT_OUT, DT_F32, .ne = { p->t, h } };
    s[Q] = (slot){ "q", SLOT_IN, p->x, .ne = { p->t, h * p->qk } };
    s[K] = (slot){ "k", SLOT_IN, p->x, .ne = { p->t, kv * p->qk } };
    s[V] = (slot){ "v", SLOT_IN, p->x, .ne = { p->t, kv * p->v } };
    s[OUT] = (slot){ "out", SLOT_IN, p->x, .ne = { p->t, h * p->v } };
    s[LSE] = (slot){ "lse", SLOT_IN, DT_F32, .ne = { p->t, h } };
    s[DOUT] = (slot){ "dout", SLOT_IN, p->x, .ne = { p->t, h * p->v } };
    s[STARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[POS] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, 1 };
    return 12;
}

/* The scaled score of key row u for query row t of head h. */
static double score(const params *p, double **x, i64 t, i64 h, i64 u)
{
    double dot = 0;
    i64 kvh = h / (p->heads / p->kv);
    for (i64 i = 0; i < p->qk; i++)
        dot += x[Q][(t * p->heads + h) * p->qk + i] * x[K][(u * p->kv + kvh) * p->qk + i];
    dot *= p->scale;
    return p->cap > 0 ? p->cap * tanh(dot / p->cap) : dot;
}

static i64 first_key(const params *p, double **x, i64 t)
{
    i64 s = 0;
    while ((i64)x[STARTS][s + 1] <= t)
        s++;
    i64 low = p->window > 0 ? t - p->window + 1 : 0;
    return low > (i64)x[STARTS][s] ? low : (i64)x[STARTS][s];
}

static void forward_row(const params *p, double **x, i64 t, i64 h, double *out, double *lse)
{
    i64 low = first_key(p, x, t), kvh = h / (p->heads / p->kv);
    double max = -INFINITY, sum = 0;
    for (i64 u = low; u <= t; u++)
        max = fmax(max, score(p, x, t, h, u));
    memset(out, 0, (size_t)p->v * sizeof *out);
    for (i64 u = low; u <= t; u++) {
        double e = exp(score(p, x, t, h, u) - max);
        sum += e;
        for (i64 i = 0; i < p->v; i++)
            out[i] += e * x[V][(u * p->kv + kvh) * p->v + i];
    }
    for (i64 i = 0; i < p->v; i++)
        out[i] /= sum;
    *lse = max + log(sum);
}

static void grad_arrange(const params *p, double **x)
{
    static const int rounded[] = { Q, K, V };
    const i64 counts[] = { p->heads * p->qk, p->kv * p->qk, p->kv * p->v };
    i64 row = 0;
    for (i64 s = 0; s < p->seqs; s++) {
        x[STARTS][s] = (double)row;
        for (i64 i = 0; i < p->len[s]; i++)
            x[POS][row++] = (double)i;
    }
    x[STARTS][p->seqs] = (double)row;
    for (int k = 0; k < 3; k++)
        for (i64 i = 0; i < p->t * counts[k]; i++)
            x[rounded[k]][i] = round_to(p->x, x[rounded[k]][i]);
    for (i64 t = 0; t < p->t; t++)
        for (i64 h = 0; h < p->heads; h++)
            forward_row(p, x, t, h, x[OUT] + (t * p->heads + h) * p->v, &x[LSE][t * p->heads + h]);
}

static void grad_call(device *d, const params *p, const tensor *t)
{
    attention_bwd a = { .fwd = { .q = t[Q],
                                 .k = t[K],
                                 .v = t[V],
                                 .out = t[OUT],
                                 .starts = t[STARTS],
                                 .pos = t[POS],
                                 .lse = t[LSE],
                                 .n_heads = (int32_t)p->heads,
                                 .n_kv_heads = (int32_t)p->kv,
                                 .qk_dim = (int32_t)p->qk,
                                 .v_dim = (int32_t)p->v,
                                 .window = (int32_t)p->window,
                                 .scale = p->scale,
                                 .softcap = p->cap },
                        .dout = t[DOUT],
                        .dq = t[DQ],
                        .dk = t[DK],
                        .dv = t[DV],
                        .delta = t[DELTA] };
    d->op->attention_bwd(d, &a);
}

static void grad_row(const params *p, double **x, i64 t, i64 h)
{
    i64 kvh = h / (p->heads / p->kv), q = (t * p->heads + h) * p->qk, o = (t * p->heads + h) * p->v;
    double delta = 0;
    for (i64 i = 0; i < p->v; i++)
        delta += x[OUT][o + i] * x[DOUT][o + i];
    x[DELTA][t * p->heads + h] = delta;
    for (i64 u = first_key(p, x, t); u <= t; u++) {
        i64 k = (u * p->kv + kvh) * p->qk, v = (u * p->kv + kvh) * p->v;
        double s = score(p, x, t, h, u), prob = exp(s - x[LSE][t * p->heads + h]), dp = 0;
        double slope = p->cap > 0 ? 1 - s / p->cap * (s / p->cap) : 1;
        for (i64 i = 0; i < p->v; i++) {
            dp += x[DOUT][o + i] * x[V][v + i];
            x[DV][v + i] += prob * x[DOUT][o + i];
        }
        double ds = prob * (dp - delta) * p->scale * slope;
        for (i64 i = 0; i < p->qk; i++) {
            x[DQ][q + i] += ds * x[K][k + i];
            x[DK][k + i] += ds * x[Q][q + i];
        }
    }
}

static void grad_oracle(const params *p, double **x)
{
    memset(x[DQ], 0, (size_t)(p->t * p->heads * p->qk) * sizeof(double));
    memset(x[DK], 0, (size_t)(p->t * p->kv * p->qk) * sizeof(double));
    memset(x[DV], 0, (size_t)(p->t * p->kv * p->v) * sizeof(double));
    for (i64 t = 0; t < p->t; t++)
        for (i64 h = 0; h < p->heads; h++)
            grad_row(p, x, t, h);
}

static double grad_loss(const params *p, double **x)
{
    double sum = 0, lse, *out = malloc((size_t)p->v * sizeof *out);
    for (i64 t = 0; t < p->t; t++)
        for (i64 h = 0; h < p->heads; h++) {
            forward_row(p, x, t, h, out, &lse);
            for (i64 i = 0; i < p->v; i++)
                sum += out[i] * x[DOUT][(t * p->heads + h) * p->v + i];
        }
    free(out);
    return sum;
}

/* clang-format off */
const op_test test_attention_bwd = {
    "attention_bwd", grad_slots, grad_arrange, grad_call, grad_oracle, 1e-5,
    .bf16_tolerance = 8e-3, /* P and dS are rounded to bf16 */
    .cases = {
        { .t = 1, .seqs = 1, .len = { 1 }, .heads = 1, .kv = 1, .qk = 1, .v = 1, .scale = 1 },
        { .t = 7, .seqs = 1, .len = { 7 }, .heads = 3, .kv = 3, .qk = 17, .v = 9, .scale = 0.3f },
        { .t = 70, .seqs = 1, .len = { 70 }, .heads = 6, .kv = 2, .qk = 64, .v = 64,
          .scale = 0.125f },
        { .t = 140, .seqs = 1, .len = { 140 }, .heads = 4, .kv = 1, .qk = 24, .v = 40,
          .scale = 0.2f },
        { .t = 150, .seqs = 1, .len = { 150 }, .heads = 3, .kv = 1, .qk = 16, .v = 16,
          .scale = 0.25f, .window = 65 },
        { .t = 150, .seqs = 1, .len = { 150 }, .heads = 2, .kv = 2, .qk = 16, .v = 16,
          .scale = 0.25f, .window = 7 },
        { .t = 110, .seqs = 4, .len = { 1, 65, 0, 44 }, .heads = 4, .kv = 2, .qk = 20, .v = 36,
          .scale = 0.2f },
        { .t = 90, .seqs = 2, .len = { 50, 40 }, .heads = 6, .kv = 2, .qk = 32, .v = 32,
          .scale = 0.125f, .x = DT_BF16, .o = DT_BF16 },
        { .t = 210, .seqs = 2, .len = { 140, 70 }, .heads = 6, .kv = 3, .qk = 64, .v = 48,
          .scale = 0.125f, .x = DT_BF16, .o = DT_BF16 },
        { .t = 1, .seqs = 1, .len = { 1 }, .heads = 4, .kv = 2, .qk = 33, .v = 17, .scale = 0.2f,
          .x = DT_BF16, .o = DT_BF16 },
        { .t = 90, .seqs = 2, .len = { 50, 40 }, .heads = 6, .kv = 2, .qk = 32, .v = 32,
          .scale = 0.3f, .cap = 1.5f, .window = 20 },
        { .t = 90, .seqs = 2, .len = { 50, 40 }, .heads = 6, .kv = 2, .qk = 32, .v = 32,
          .scale = 0.2f, .cap = 3, .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = grad_loss, .gradients = { { DQ, Q }, { DK, K }, { DV, V } }
};
/* clang-format on */
