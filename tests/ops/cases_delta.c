/* cases_delta: the gated delta rule and its gradients. Parameters: kv key heads of qk columns,
 * heads value heads of v; page: a state of that many rows, where `past` tokens of a sequence went
 * before; scale: how far softplus is in its tail, with the same decays. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static i64 x_cols(const params *p)
{
    return 2 * p->kv * p->qk + p->heads * p->v;
}

typedef struct inputs {
    const double *x, *b, *a, *a_log, *dt;
} inputs;

/* The query (which 0) or key (1) of value head h in row t, divided by its length. */
static void unit(const params *p, const inputs *in, i64 t, i64 h, int which, double *out)
{
    const double *z = in->x + t * x_cols(p) + (which * p->kv + h / (p->heads / p->kv)) * p->qk;
    double squared = 1e-6;
    for (i64 i = 0; i < p->qk; i++)
        squared += z[i] * z[i];
    for (i64 i = 0; i < p->qk; i++)
        out[i] = z[i] / sqrt(squared) / (which ? 1 : sqrt((double)p->qk));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double log_decay(const params *p, const inputs *in, i64 t, i64 h)
{
    return -exp(in->a_log[h]) * log1p(exp(in->a[t * p->heads + h] + in->dt[h]));
}

/* The state s [qk,v] of head h after row t; out [v]. q: workspace for a query and a key. */
static void advance(const params *p, const inputs *in, i64 t, i64 h, double *s, double *out,
                    double *q)
{
    double *k = q + p->qk;
    const double *v = in->x + t * x_cols(p) + 2 * p->kv * p->qk + h * p->v;
    double decay = exp(log_decay(p, in, t, h)), beta = sigmoid(in->b[t * p->heads + h]);
    unit(p, in, t, h, 0, q);
    unit(p, in, t, h, 1, k);
    for (i64 j = 0; j < p->v; j++) {
        double told = 0;
        for (i64 i = 0; i < p->qk; i++)
            told += decay * s[i * p->v + j] * k[i];
        out[j] = 0;
        for (i64 i = 0; i < p->qk; i++) {
            s[i * p->v + j] = decay * s[i * p->v + j] + k[i] * beta * (v[j] - told);
            out[j] += s[i * p->v + j] * q[i];
        }
    }
}

/* ---- forward ---- */

enum { OUT, X, B, A, A_LOG, DT, STARTS, POS, STATE, SLOTS };

static int fwd_slots(const params *p, slot *s)
{
    s[OUT] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->heads * p->v } };
    s[X] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, x_cols(p) } };
    s[B] = (slot){ "b", SLOT_IN, p->x, .ne = { p->t, p->heads } };
    s[A] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->heads } };
    s[A_LOG] = (slot){ "a_log", SLOT_IN, DT_F32, .ne = { p->heads } };
    s[DT] = (slot){ "dt_bias", SLOT_IN, DT_F32, .ne = { p->heads } };
    s[STARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[POS] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, 1 };
    s[STATE] = (slot){ "state", SLOT_INOUT, DT_F32,
                       .ne = { p->page, p->page ? p->heads * p->qk * p->v : 0 } };
    s[SLOTS] = (slot){ "slots", SLOT_IN, DT_I32, .ne = { p->page ? p->seqs : 0 }, FILL_INDEX, 1 };
    return 10;
}

static void fill_starts(const params *p, double *starts, double *pos)
{
    i64 row = 0;
    for (i64 s = 0; s < p->seqs; s++) {
        starts[s] = (double)row;
        for (i64 i = 0; i < p->len[s]; i++, row++)
            if (pos)
                pos[row] = (double)(p->past[s] + i);
    }
    starts[p->seqs] = (double)row;
}

static void move_to_tail(const params *p, double *a_log, double *dt)
{
    for (i64 h = 0; h < p->heads; h++) {
        a_log[h] += (double)p->scale;
        dt[h] -= (double)p->scale;
    }
}

static void fwd_arrange(const params *p, double **x)
{
    fill_starts(p, x[STARTS], x[POS]);
    move_to_tail(p, x[A_LOG], x[DT]);
    for (i64 s = 0; p->page && s < p->seqs; s++)
        x[SLOTS][s] = (double)(p->page - 1 - s);
}

static void fwd_call(device *d, const params *p, const tensor *t)
{
    d->op->delta_fwd(d, &(delta_rule){ .out = t[OUT],
                                       .x = t[X],
                                       .b = t[B],
                                       .a = t[A],
                                       .a_log = t[A_LOG],
                                       .dt_bias = t[DT],
                                       .starts = t[STARTS],
                                       .pos = t[POS],
                                       .state = t[STATE],
                                       .slots = t[SLOTS],
                                       .k_heads = (int32_t)p->kv,
                                       .v_heads = (int32_t)p->heads,
                                       .k_dim = (int32_t)p->qk,
                                       .v_dim = (int32_t)p->v });
}

static void fwd_oracle(const params *p, double **x)
{
    const inputs in = { x[X], x[B], x[A], x[A_LOG], x[DT] };
    const i64 size = p->qk * p->v;
    double *s = malloc((size_t)(size + 2 * p->qk) * sizeof *s), *q = s + size;
    for (i64 seq = 0; seq < p->seqs; seq++)
        for (i64 h = 0; h < p->heads; h++) {
            i64 begin = (i64)x[STARTS][seq], end = (i64)x[STARTS][seq + 1];
            double *kept = p->page ? x[STATE] + ((i64)x[SLOTS][seq] * p->heads + h) * size : NULL;
            for (i64 i = 0; i < size; i++)
                s[i] = kept && p->past[seq] ? kept[i] : 0;
            for (i64 t = begin; t < end; t++)
                advance(p, &in, t, h, s, x[OUT] + (t * p->heads + h) * p->v, q);
            if (kept && end > begin)
                memcpy(kept, s, (size_t)size * sizeof *s);
        }
    free(s);
}

/* clang-format off */
const op_test test_delta_fwd = {
    "delta_fwd", fwd_slots, fwd_arrange, fwd_call, fwd_oracle, 4e-6,
    .cases = {
        { .t = 1, .seqs = 1, .len = { 1 }, .heads = 1, .kv = 1, .qk = 1, .v = 1 },
        { .t = 40, .seqs = 3, .len = { 1, 9, 30 }, .heads = 4, .kv = 2, .qk = 12, .v = 20 },
        { .t = 70, .seqs = 1, .len = { 70 }, .heads = 3, .kv = 3, .qk = 33, .v = 67 },
        { .t = 30, .seqs = 1, .len = { 30 }, .heads = 3, .kv = 1, .qk = 5, .v = 6, .scale = 11 },
        { .t = 20, .seqs = 4, .len = { 1, 2, 0, 17 }, .past = { 3, 0, 7, 1 }, .heads = 6, .kv = 2,
          .qk = 16, .v = 24, .page = 6 },
        { .t = 4, .seqs = 4, .len = { 1, 1, 1, 1 }, .past = { 3, 40, 0, 9 }, .heads = 2, .kv = 1,
          .qk = 128, .v = 128, .page = 4, .x = DT_BF16, .o = DT_BF16 },
    }
};
/* clang-format on */

/* ---- backward ---- */

enum { DX, DB, DA, DA_LOG, DDT, BX, BB, BA, BA_LOG, BDT, DOUT, BSTARTS, WORK, DQK };

static int bwd_slots(const params *p, slot *s)
{
    i64 states = delta_states(p->t);
    s[DX] = (slot){ "dx", SLOT_OUT, p->o, .ne = { p->t, x_cols(p) } };
    s[DB] = (slot){ "db", SLOT_OUT, p->o, .ne = { p->t, p->heads } };
    s[DA] = (slot){ "da", SLOT_OUT, p->o, .ne = { p->t, p->heads } };
    s[DA_LOG] = (slot){ "da_log", SLOT_INOUT, DT_F32, .ne = { p->heads } };
    s[DDT] = (slot){ "ddt_bias", SLOT_INOUT, DT_F32, .ne = { p->heads } };
    s[BX] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, x_cols(p) } };
    s[BB] = (slot){ "b", SLOT_IN, p->x, .ne = { p->t, p->heads } };
    s[BA] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->heads } };
    s[BA_LOG] = (slot){ "a_log", SLOT_IN, DT_F32, .ne = { p->heads } };
    s[BDT] = (slot){ "dt_bias", SLOT_IN, DT_F32, .ne = { p->heads } };
    s[DOUT] = (slot){ "dout", SLOT_IN, p->x, .ne = { p->t, p->heads * p->v } };
    s[BSTARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[WORK] = (slot){ "work", SLOT_USED, DT_F32, .ne = { states, p->heads * p->qk * p->v } };
    s[DQK] = (slot){ "dqk", SLOT_USED, DT_F32, .ne = { p->t, p->heads * 2 * p->qk } };
    return 14;
}

static void bwd_arrange(const params *p, double **x)
{
    fill_starts(p, x[BSTARTS], NULL);
    move_to_tail(p, x[BA_LOG], x[BDT]);
}

static void bwd_call(device *d, const params *p, const tensor *t)
{
    d->op->delta_bwd(d, &(delta_bwd){ .fwd = { .x = t[BX],
                                               .b = t[BB],
                                               .a = t[BA],
                                               .a_log = t[BA_LOG],
                                               .dt_bias = t[BDT],
                                               .starts = t[BSTARTS],
                                               .k_heads = (int32_t)p->kv,
                                               .v_heads = (int32_t)p->heads,
                                               .k_dim = (int32_t)p->qk,
                                               .v_dim = (int32_t)p->v },
                                      .dout = t[DOUT],
                                      .dx = t[DX],
                                      .db = t[DB],
                                      .da = t[DA],
                                      .da_log = t[DA_LOG],
                                      .ddt_bias = t[DDT],
                                      .work = t[WORK],
                                      .dqk = t[DQK] });
}

/* Adds the gradient of a unit vector to that of what was divided by its length. */
static void unit_bwd(const params *p, double **x, i64 t, i64 h, int which, const double *d)
{
    i64 at = t * x_cols(p) + (which * p->kv + h / (p->heads / p->kv)) * p->qk;
    double squared = 1e-6, dot = 0, scale = which ? 1 : sqrt((double)p->qk);
    for (i64 i = 0; i < p->qk; i++) {
        squared += x[BX][at + i] * x[BX][at + i];
        dot += x[BX][at + i] * d[i];
    }
    for (i64 i = 0; i < p->qk; i++)
        x[DX][at + i] += (d[i] / sqrt(squared) - x[BX][at + i] * dot / pow(squared, 1.5)) / scale;
}

/* Row t: s the state before it, ds the gradient of that after it, which becomes that of s. */
static void row_bwd(const params *p, double **x, i64 t, i64 h, const double *s, double *ds)
{
    const inputs in = { x[BX], x[BB], x[BA], x[BA_LOG], x[BDT] };
    const i64 n = p->qk, value = t * x_cols(p) + 2 * p->kv * n + h * p->v, i_h = t * p->heads + h;
    double g = log_decay(p, &in, t, h), decay = exp(g), beta = sigmoid(x[BB][i_h]), dbeta = 0;
    double ddecay = 0, *q = calloc((size_t)n * 4, sizeof *q), *k = q + n, *dq = q + 2 * n;
    double *dk = q + 3 * n;
    unit(p, &in, t, h, 0, q);
    unit(p, &in, t, h, 1, k);
    for (i64 j = 0; j < p->v; j++) {
        double e = x[BX][value + j], du = 0, dy = x[DOUT][i_h * p->v + j];
        for (i64 i = 0; i < n; i++)
            e -= decay * s[i * p->v + j] * k[i];
        for (i64 i = 0; i < n; i++) {
            double *d = &ds[i * p->v + j];
            dq[i] += (decay * s[i * p->v + j] + k[i] * beta * e) * dy;
            *d += q[i] * dy;
            dk[i] += *d * beta * e;
            du += *d * k[i];
        }
        dbeta += du * e;
        x[DX][value + j] = beta * du;
        for (i64 i = 0; i < n; i++) {
            double *d = &ds[i * p->v + j];
            dk[i] -= decay * s[i * p->v + j] * beta * du;
            *d -= k[i] * beta * du;
            ddecay += *d * s[i * p->v + j];
            *d *= decay;
        }
    }
    double da = -ddecay * decay * exp(x[BA_LOG][h]) * sigmoid(x[BA][i_h] + x[BDT][h]);
    x[DB][i_h] = dbeta * beta * (1 - beta);
    x[DA][i_h] = da;
    x[DDT][h] += da;
    x[DA_LOG][h] += ddecay * decay * g;
    unit_bwd(p, x, t, h, 0, dq);
    unit_bwd(p, x, t, h, 1, dk);
    free(q);
}

static void bwd_oracle(const params *p, double **x)
{
    const inputs in = { x[BX], x[BB], x[BA], x[BA_LOG], x[BDT] };
    const i64 size = p->qk * p->v;
    double *s = malloc((size_t)((p->t + 2) * size + p->v + 2 * p->qk) * sizeof *s);
    double *ds = s + (p->t + 1) * size, *out = ds + size, *q = out + p->v;
    memset(x[DX], 0, (size_t)(p->t * x_cols(p)) * sizeof(double));
    for (i64 seq = 0; seq < p->seqs; seq++)
        for (i64 h = 0; h < p->heads; h++) {
            i64 begin = (i64)x[BSTARTS][seq], end = (i64)x[BSTARTS][seq + 1];
            memset(s, 0, (size_t)size * sizeof *s);
            memset(ds, 0, (size_t)size * sizeof *ds);
            for (i64 t = begin; t < end; t++) {
                double *after = s + (t + 1 - begin) * size;
                memcpy(after, after - size, (size_t)size * sizeof *s);
                advance(p, &in, t, h, after, out, q);
            }
            for (i64 t = end - 1; t >= begin; t--)
                row_bwd(p, x, t, h, s + (t - begin) * size, ds);
        }
    free(s);
}

static double bwd_loss(const params *p, double **x)
{
    const inputs in = { x[BX], x[BB], x[BA], x[BA_LOG], x[BDT] };
    const i64 size = p->qk * p->v;
    double total = 0, *s = malloc((size_t)(size + p->v + 2 * p->qk) * sizeof *s), *out = s + size;
    for (i64 seq = 0; seq < p->seqs; seq++)
        for (i64 h = 0; h < p->heads; h++) {
            memset(s, 0, (size_t)size * sizeof *s);
            for (i64 t = (i64)x[BSTARTS][seq]; t < (i64)x[BSTARTS][seq + 1]; t++) {
                advance(p, &in, t, h, s, out, out + p->v);
                for (i64 j = 0; j < p->v; j++)
                    total += out[j] * x[DOUT][(t * p->heads + h) * p->v + j];
            }
        }
    free(s);
    return total;
}

/* clang-format off */
const op_test test_delta_bwd = {
    "delta_bwd", bwd_slots, bwd_arrange, bwd_call, bwd_oracle, 2e-5,
    .bf16_tolerance = 8e-3,
    .cases = {
        { .t = 1, .seqs = 1, .len = { 1 }, .heads = 1, .kv = 1, .qk = 2, .v = 1 },
        { .t = 40, .seqs = 4, .len = { 1, 9, 0, 30 }, .heads = 4, .kv = 2, .qk = 12, .v = 20 },
        { .t = 50, .seqs = 1, .len = { 50 }, .heads = 3, .kv = 1, .qk = 33, .v = 37 },
        { .t = 30, .seqs = 1, .len = { 30 }, .heads = 3, .kv = 1, .qk = 5, .v = 6, .scale = 11 },
        { .t = 17, .seqs = 2, .len = { 16, 1 }, .heads = 2, .kv = 2, .qk = 64, .v = 64,
          .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = bwd_loss,
    .gradients = { { DX, BX }, { DB, BB }, { DA, BA }, { DA_LOG, BA_LOG }, { DDT, BDT } }
};
/* clang-format on */
