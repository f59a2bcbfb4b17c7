/* cases_grad: backward of pointwise ops, norms, rows and the loss. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>

/* ---- rmsnorm ---- */

/* e > 0: with a fused router of e experts, whose gradient is computed too; k > 0: dx is not wanted
 */
enum { N_DX, N_DW, N_DROUTER, N_COPY, N_DY, N_X, N_W, N_RSTD, N_DLOGITS, N_ROUTER };

static int norm_slots(const params *p, slot *s)
{
    i64 rows = p->t * p->n, width = p->n * p->c;
    s[N_DX] =
        (slot){ "dx", p->flag ? SLOT_INOUT : SLOT_OUT, p->o, .ne = { p->k ? 0 : p->t, width } };
    s[N_DW] = (slot){ "dw", SLOT_INOUT, DT_F32, .ne = { p->bias ? p->c : 0 } };
    s[N_DROUTER] = (slot){ "drouter", SLOT_INOUT, DT_F32, .ne = { p->e, p->c } };
    s[N_COPY] = (slot){ "copy", SLOT_OUT, DT_BF16, .ne = { p->after ? p->t : 0, width } };
    slot_role read = p->e ? SLOT_USED : SLOT_IN; /* with a router, dy may be overwritten */
    s[N_DY] = (slot){ "dy", read, p->after ? DT_BF16 : p->x, .ne = { p->t, width } };
    s[N_X] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, width } };
    s[N_W] = (slot){ "w", SLOT_IN, p->w, .ne = { p->c } };
    s[N_RSTD] = (slot){ "rstd", SLOT_IN, DT_F32, .ne = { rows } };
    s[N_DLOGITS] = (slot){ "dlogits", SLOT_IN, DT_F32, .ne = { p->e ? p->t : 0, p->e } };
    s[N_ROUTER] = (slot){ "router", SLOT_IN, DT_F32, .ne = { p->e, p->c } };
    return 10;
}

static double row_rstd(const params *p, const double *x)
{
    double sum = 0;
    for (i64 i = 0; i < p->c; i++)
        sum += x[i] * x[i];
    return 1 / sqrt(sum / (double)p->c + 1e-5);
}

static void norm_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->n * p->c; i++)
        x[N_X][i] = round_to(p->x, x[N_X][i]);
    for (i64 r = 0; r < p->t * p->n; r++)
        x[N_RSTD][r] = row_rstd(p, x[N_X] + r * p->c);
}

static void norm_call(device *d, const params *p, const tensor *t)
{
    norm_bwd a = { .dx = t[N_DX],
                   .dy = t[N_DY],
                   .x = t[N_X],
                   .w = t[N_W],
                   .rstd = t[N_RSTD],
                   .dw = t[N_DW],
                   .dlogits = t[N_DLOGITS],
                   .router = t[N_ROUTER],
                   .drouter = t[N_DROUTER],
                   .copy = t[N_COPY],
                   .accumulate = p->flag,
                   .shift = p->scale };
    d->op->rmsnorm_bwd(d, &a);
}

/* The gradient of element i of the norm's output. */
static double norm_slope(const params *p, double **x, i64 i)
{
    double d = x[N_DY][i];
    for (i64 e = 0; e < p->e; e++)
        d += x[N_DLOGITS][i / p->c * p->e + e] * x[N_ROUTER][e * p->c + i % p->c];
    return d;
}

static double norm_gain(const params *p, double **x, i64 i)
{
    return x[N_W][i] + p->scale;
}

static void norm_oracle(const params *p, double **x)
{
    for (i64 r = 0; r < p->t * p->n; r++) {
        const double *v = x[N_X] + r * p->c;
        double rstd = row_rstd(p, v), dot = 0;
        for (i64 i = 0; i < p->c; i++)
            dot += norm_slope(p, x, r * p->c + i) * norm_gain(p, x, i) * v[i];
        for (i64 i = 0; i < p->c; i++) {
            double d = norm_slope(p, x, r * p->c + i);
            double dx =
                rstd * d * norm_gain(p, x, i) - rstd * rstd * rstd * v[i] * dot / (double)p->c;
            if (!p->k)
                x[N_DX][r * p->c + i] = dx + (p->flag ? x[N_DX][r * p->c + i] : 0);
            if (p->after)
                x[N_COPY][r * p->c + i] = x[N_DX][r * p->c + i];
            if (p->bias)
                x[N_DW][i] += d * v[i] * rstd;
            for (i64 e = 0; e < p->e; e++)
                x[N_DROUTER][e * p->c + i] +=
                    x[N_DLOGITS][r * p->e + e] * v[i] * rstd * norm_gain(p, x, i);
        }
    }
}

static double norm_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->n * p->c; i++)
        sum += norm_slope(p, x, i) * x[N_X][i] * norm_gain(p, x, i % p->c) *
               row_rstd(p, x[N_X] + i / p->c * p->c);
    return sum;
}

/* clang-format off */
const op_test test_rmsnorm_bwd = {
    "rmsnorm_bwd", norm_slots, norm_arrange, norm_call, norm_oracle, 4e-6,
    .cases = {
        { .t = 1, .n = 1, .c = 1, .bias = true },
        { .t = 5, .n = 3, .c = 33, .bias = true },
        { .t = 31, .n = 1, .c = 100, .flag = true },
        { .t = 7, .n = 1, .c = 200, .x = DT_BF16, .o = DT_BF16, .w = DT_BF16, .bias = true },
        { .t = 3, .n = 1, .c = 576, .x = DT_BF16, .flag = true },
        { .t = 9, .n = 1, .c = 5000, .flag = true, .after = true },
        { .t = 6, .n = 1, .c = 65, .flag = true, .bias = true, .e = 3 },
        { .t = 70, .n = 1, .c = 256, .flag = true, .after = true, .e = 8 },
        { .t = 5, .n = 1, .c = 2048, .flag = true, .after = true, .e = 11 },
        { .t = 7, .n = 1, .c = 300, .after = true, .e = 64 },
        { .t = 5, .n = 1, .c = 65, .k = 1, .bias = true, .e = 3 },
        { .t = 1, .n = 2, .c = 33, .x = DT_BF16, .o = DT_BF16, .flag = true },
        { .t = 5, .n = 3, .c = 33, .bias = true, .scale = 1 },
        { .t = 9, .n = 1, .c = 65, .e = 5, .bias = true, .flag = true, .scale = 1 },
    },
    .loss = norm_loss,
    .gradients = { { N_DX, N_X }, { N_DW, N_W }, { N_DROUTER, N_ROUTER } }
};
/* clang-format on */

/* ---- glu, act ---- */

static double act_slope(int act, double x)
{
    double h = 1e-5;
    return act == ACT_RELU ? x > 0 : (oracle_act(act, x + h) - oracle_act(act, x - h)) / (2 * h);
}

static int glu_slots(const params *p, slot *s)
{
    static const char *const names[] = { "dgate", "dup", "dy", "gate", "up" };
    for (int i = 0; i < 5; i++)
        s[i] = (slot){ names[i], i < 2 ? SLOT_OUT : SLOT_IN, i < 2 ? p->o : p->x,
                       .ne = { p->t, p->c } };
    s[5] = (slot){ "glu", SLOT_OUT, p->o, .ne = { p->flag ? p->t : 0, p->c } };
    return 6;
}

/* Numbers on both sides of the limits of a clamped GLU. */
static void glu_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c && p->act == ACT_CLAMPED; i++) {
        x[3][i] *= 6;
        x[4][i] *= 6;
    }
}

static void glu_call(device *d, const params *p, const tensor *t)
{
    glu_bwd a = {
        .dgate = t[0], .dup = t[1], .dy = t[2], .gate = t[3], .up = t[4], .glu = t[5], .act = p->act
    };
    d->op->glu_bwd(d, &a);
}

static void glu_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++) {
        bool flat = p->act == ACT_CLAMPED && fabs(x[4][i]) > 7;
        double up = oracle_glu_up(p->act, x[4][i]);
        x[0][i] = x[2][i] * up * act_slope(p->act, x[3][i]);
        x[1][i] = flat ? 0 : x[2][i] * oracle_act(p->act, x[3][i]);
        if (p->flag)
            x[5][i] = oracle_act(p->act, x[3][i]) * up;
    }
}

static double glu_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[2][i] * oracle_act(p->act, x[3][i]) * oracle_glu_up(p->act, x[4][i]);
    return sum;
}

/* clang-format off */
const op_test test_glu_bwd = {
    "glu_bwd", glu_slots, glu_arrange, glu_call, glu_oracle, 2e-6,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 9, .c = 65, .act = ACT_GELU },
        { .t = 3, .c = 100, .act = ACT_GELU_TANH, .x = DT_BF16 },
        { .t = 3, .c = 1000, .act = ACT_RELU },
        { .t = 7, .c = 1536, .flag = true, .x = DT_BF16, .o = DT_BF16 },
        { .t = 2, .c = 35, .flag = true },
        { .t = 3, .c = 65, .act = ACT_CLAMPED, .flag = true },
        { .t = 5, .c = 99, .act = ACT_SIGMOID },
        { .t = 3, .c = 64, .act = ACT_SIGMOID, .flag = true, .x = DT_BF16, .o = DT_BF16 },
        { .t = 1, .c = 77, .act = ACT_RELU, .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = glu_loss, .gradients = { { 0, 3 }, { 1, 4 } }
};
/* clang-format on */

/* k > 0: rows were gated, k rows for each of t / k tokens */
enum { A_DX, A_DGATES, A_DY, A_X, A_GATES, A_ORDER };

static int act_slots(const params *p, slot *s)
{
    i64 tokens = p->k ? p->t / p->k : 0;
    s[A_DX] = (slot){ "dx", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[A_DGATES] = (slot){ "dgates", SLOT_OUT, DT_F32, .ne = { tokens, p->k } };
    s[A_DY] = (slot){ "dy", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[A_X] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[A_GATES] = (slot){ "gates", SLOT_IN, DT_F32, .ne = { tokens, p->k } };
    s[A_ORDER] = (slot){ "order", SLOT_IN, DT_I32, .ne = { tokens * p->k }, FILL_INDEX, 1 };
    return 6;
}

static void act_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++) {
        x[A_X][i] *= p->k ? 1 : 6;
        x[A_DY][i] /= p->k ? sqrt((double)p->c) : 1;
    }
    for (i64 r = 0; r < p->t && p->k; r++)
        x[A_ORDER][r] = (double)(p->t - 1 - r);
}

static void act_call(device *d, const params *p, const tensor *t)
{
    row_gates g = {
        .gates = t[A_GATES], .order = t[A_ORDER], .scale = p->scale, .dgates = t[A_DGATES]
    };
    d->op->act_bwd(d, t[A_DX], t[A_DY], t[A_X], p->act, p->k ? &g : NULL);
}

static double act_gate(const params *p, double **x, i64 row)
{
    return p->k ? p->scale * x[A_GATES][(i64)x[A_ORDER][row]] : 1;
}

static void act_oracle(const params *p, double **x)
{
    for (i64 r = 0; r < p->t; r++) {
        double dot = 0;
        for (i64 i = r * p->c; i < (r + 1) * p->c; i++) {
            x[A_DX][i] = act_gate(p, x, r) * x[A_DY][i] * act_slope(p->act, x[A_X][i]);
            dot += x[A_DY][i] * oracle_act(p->act, x[A_X][i]);
        }
        if (p->k)
            x[A_DGATES][(i64)x[A_ORDER][r]] = p->scale * dot;
    }
}

static double act_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += act_gate(p, x, i / p->c) * x[A_DY][i] * oracle_act(p->act, x[A_X][i]);
    return sum;
}

/* clang-format off */
const op_test test_act_bwd = {
    "act_bwd", act_slots, act_arrange, act_call, act_oracle, 2e-6,
    .cases = {
        { .t = 1, .c = 1, .act = ACT_GELU },
        { .t = 31, .c = 65, .act = ACT_SILU },
        { .t = 31, .c = 65, .act = ACT_GELU },
        { .t = 31, .c = 65, .act = ACT_GELU_TANH },
        { .t = 31, .c = 65, .act = ACT_GELU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 26, .k = 2, .c = 65, .scale = 0.25f, .act = ACT_GELU },
        { .t = 12, .k = 3, .c = 512, .scale = 1, .act = ACT_GELU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 4, .k = 2, .c = 2049, .scale = 1, .act = ACT_GELU },
        { .t = 3, .c = 65, .act = ACT_RELU },
        { .t = 1, .k = 1, .c = 33, .scale = 0.5f, .act = ACT_SILU, .x = DT_BF16, .o = DT_BF16 },
        { .t = 26, .k = 2, .c = 65, .scale = 0.25f, .act = ACT_RELU },
    },
    .loss = act_loss, .gradients = { { A_DX, A_X }, { A_DGATES, A_GATES } }
};
/* clang-format on */

/* ---- add_gated ---- */

static int gated_slots(const params *p, slot *s)
{
    s[0] = (slot){ "dx", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "dlogit", SLOT_OUT, p->w, .ne = { p->t, 1 } };
    s[2] = (slot){ "dy", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[3] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[4] = (slot){ "logit", SLOT_IN, p->w, .ne = { p->t, 1 } };
    return 5;
}

static void gated_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->add_gated_bwd(d, t[0], t[1], t[2], t[3], t[4]);
}

static void gated_oracle(const params *p, double **x)
{
    for (i64 t = 0; t < p->t; t++) {
        double gate = 1 / (1 + exp(-x[4][t])), dot = 0;
        for (i64 i = t * p->c; i < (t + 1) * p->c; i++) {
            x[0][i] = gate * x[2][i];
            dot += x[2][i] * x[3][i];
        }
        x[1][t] = gate * (1 - gate) * dot;
    }
}

static double gated_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[2][i] * x[3][i] / (1 + exp(-x[4][i / p->c]));
    return sum;
}

/* clang-format off */
const op_test test_add_gated_bwd = {
    "add_gated_bwd", gated_slots, NULL, gated_call, gated_oracle, 4e-6,
    .cases = {
        { .t = 1, .c = 1 },
        { .t = 13, .c = 100 },
        { .t = 5, .c = 257, .x = DT_BF16, .o = DT_BF16 },
        { .t = 1, .c = 33, .x = DT_BF16, .w = DT_BF16, .o = DT_BF16 },
    },
    .loss = gated_loss, .gradients = { { 0, 3 }, { 1, 4 } }
};
/* clang-format on */

/* ---- rows: ops that are linear. The input of forward is a slot that only the loss reads. ---- */

static int embed_slots(const params *p, slot *s)
{
    s[0] = (slot){ "dtable", SLOT_INOUT, DT_F32, .ne = { p->n, p->c } };
    s[1] = (slot){ "dout", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[2] = (slot){ "ids", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->n };
    s[3] = (slot){ "table", SLOT_IN, DT_F32, .ne = { p->n, p->c } };
    return 4;
}

static void embed_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->embed_bwd(d, t[0], t[1], t[2]);
}

static void embed_oracle(const params *p, double **x)
{
    for (i64 r = 0; r < p->t; r++)
        for (i64 i = 0; i < p->c; i++)
            x[0][(i64)x[2][r] * p->c + i] += x[1][r * p->c + i];
}

static double embed_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 i = 0; i < p->t * p->c; i++)
        sum += x[1][i] * x[3][(i64)x[2][i / p->c] * p->c + i % p->c];
    return sum;
}

/* clang-format off */
const op_test test_embed_bwd = {
    "embed_bwd", embed_slots, NULL, embed_call, embed_oracle, 2e-6,
    .cases = {
        { .t = 1, .c = 1, .n = 1 },
        { .t = 77, .c = 100, .n = 13 },
        { .t = 50, .c = 333, .n = 3, .x = DT_BF16 },
    },
    .loss = embed_loss, .gradients = { { 0, 3 } }
};
/* clang-format on */

/* A permutation of t*k rows, as expert_sort makes one. */
static void permute(double *x, i64 n)
{
    for (i64 i = 0; i < n; i++)
        x[i] = (double)((i * 7 + 3) % n);
    for (i64 i = 0; n % 7 == 0 && i < n; i++)
        x[i] = (double)(n - 1 - i);
}

static int gather_slots(const params *p, slot *s)
{
    s[0] = (slot){ "dx", p->flag ? SLOT_INOUT : SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "dout", SLOT_IN, p->x, .ne = { p->t * p->k, p->c } };
    s[2] = (slot){ "inverse", SLOT_IN, DT_I32, .ne = { p->t * p->k }, FILL_INDEX, 1 };
    s[3] = (slot){ "x", SLOT_IN, DT_F32, .ne = { p->t, p->c } };
    return 4;
}

static void gather_arrange(const params *p, double **x)
{
    permute(x[2], p->t * p->k);
}

static void gather_call(device *d, const params *p, const tensor *t)
{
    d->op->gather_rows_bwd(d, t[0], t[1], t[2], (int32_t)p->k, p->flag);
}

static void gather_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->c; i++) {
        double sum = p->flag ? x[0][i] : 0;
        for (i64 j = 0; j < p->k; j++)
            sum += x[1][(i64)x[2][i / p->c * p->k + j] * p->c + i % p->c];
        x[0][i] = sum;
    }
}

/* Forward copied token j / k to row inverse[j]. */
static double gather_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 j = 0; j < p->t * p->k; j++)
        for (i64 i = 0; i < p->c; i++)
            sum += x[1][(i64)x[2][j] * p->c + i] * x[3][j / p->k * p->c + i];
    return sum;
}

/* clang-format off */
const op_test test_gather_rows_bwd = {
    "gather_rows_bwd", gather_slots, gather_arrange, gather_call, gather_oracle, 1e-6,
    .cases = {
        { .t = 1, .c = 1, .k = 1 },
        { .t = 13, .c = 100, .k = 2, .flag = true },
        { .t = 14, .c = 65, .k = 3, .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = gather_loss, .gradients = { { 0, 3 } }
};
/* clang-format on */

enum { S_DX, S_DGATES, S_DY, S_X, S_GATES, S_INVERSE };

static int scatter_slots(const params *p, slot *s)
{
    i64 rows = p->t * p->k;
    s[S_DX] = (slot){ "dx", SLOT_OUT, p->o, .ne = { rows, p->c } };
    s[S_DGATES] = (slot){ "dgates", SLOT_OUT, DT_F32, .ne = { p->t, p->k } };
    s[S_DY] = (slot){ "dy", SLOT_IN, DT_F32, .ne = { p->t, p->c } };
    s[S_X] = (slot){ "x", SLOT_IN, p->x, .ne = { rows, p->c } };
    s[S_GATES] = (slot){ "gates", SLOT_IN, DT_F32, .ne = { p->t, p->k } };
    s[S_INVERSE] = (slot){ "inverse", SLOT_IN, DT_I32, .ne = { rows }, FILL_INDEX, 1 };
    return 6;
}

static void scatter_arrange(const params *p, double **x)
{
    permute(x[S_INVERSE], p->t * p->k);
}

static void scatter_call(device *d, const params *p, const tensor *t)
{
    scatter_bwd a = { .dx = t[S_DX],
                      .dgates = t[S_DGATES],
                      .dy = t[S_DY],
                      .x = t[S_X],
                      .gates = t[S_GATES],
                      .inverse = t[S_INVERSE],
                      .scale = p->scale };
    d->op->scatter_add_bwd(d, &a);
}

static void scatter_oracle(const params *p, double **x)
{
    for (i64 j = 0; j < p->t * p->k; j++) {
        i64 row = (i64)x[S_INVERSE][j];
        double dot = 0;
        for (i64 i = 0; i < p->c; i++) {
            double dy = x[S_DY][j / p->k * p->c + i];
            x[S_DX][row * p->c + i] = p->scale * x[S_GATES][j] * dy;
            dot += dy * x[S_X][row * p->c + i];
        }
        x[S_DGATES][j] = p->scale * dot;
    }
}

static double scatter_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 j = 0; j < p->t * p->k; j++)
        for (i64 i = 0; i < p->c; i++)
            sum += x[S_DY][j / p->k * p->c + i] * p->scale * x[S_GATES][j] *
                   x[S_X][(i64)x[S_INVERSE][j] * p->c + i];
    return sum;
}

/* clang-format off */
const op_test test_scatter_add_bwd = {
    "scatter_add_bwd", scatter_slots, scatter_arrange, scatter_call, scatter_oracle, 4e-6,
    .cases = {
        { .t = 1, .k = 1, .c = 1, .scale = 1 },
        { .t = 13, .k = 2, .c = 100, .scale = 0.25f },
        { .t = 14, .k = 3, .c = 257, .scale = 1, .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = scatter_loss, .gradients = { { S_DX, S_X }, { S_DGATES, S_GATES } }
};
/* clang-format on */

/* ---- loss; flag: the gradient is written where the logits were ---- */

enum { L_LOSS, L_LOGITS, L_TARGETS, L_WEIGHT, L_DLOGITS };

static int xent_slots(const params *p, slot *s)
{
    s[L_LOSS] = (slot){ "loss", SLOT_OUT, DT_F32, .ne = { p->t } };
    slot_role role = p->flag ? SLOT_INOUT : SLOT_IN;
    s[L_LOGITS] = (slot){ "logits", role, p->x, .ne = { p->t, p->c } };
    s[L_TARGETS] = (slot){ "targets", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->c };
    s[L_WEIGHT] = (slot){ "weight", SLOT_IN, DT_F32, .ne = { p->t } };
    s[L_DLOGITS] = (slot){ "dlogits", SLOT_OUT, p->o, .ne = { p->flag ? 0 : p->t, p->c } };
    return 5;
}

static void xent_arrange(const params *p, double **x)
{
    for (i64 r = 2; r < p->t; r += 3)
        x[L_TARGETS][r] = -100;
    for (i64 i = 0; i < p->t * p->c; i++)
        x[L_LOGITS][i] = x[L_LOGITS][i] * 4 + (i / p->c % 2 ? -50 : 50);
}

static void xent_call(device *d, const params *p, const tensor *t)
{
    tensor to = t[p->flag ? L_LOGITS : L_DLOGITS];
    d->op->xent_bwd(d, t[L_LOSS], to, t[L_LOGITS], t[L_TARGETS], t[L_WEIGHT]);
}

/* The gradient is the difference quotient itself: there is no second formula to get wrong. */
static void xent_oracle(const params *p, double **x)
{
    const double h = 1e-4;
    double *g = malloc((size_t)p->c * sizeof *g);
    for (i64 r = 0; r < p->t; r++) {
        double *z = x[L_LOGITS] + r * p->c, target = x[L_TARGETS][r];
        x[L_LOSS][r] = oracle_xent(z, p->c, target);
        for (i64 i = 0; i < p->c; i++) {
            double was = z[i];
            z[i] = was + h;
            double up = oracle_xent(z, p->c, target);
            z[i] = was - h;
            g[i] = (up - oracle_xent(z, p->c, target)) / (2 * h) * x[L_WEIGHT][r];
            z[i] = was;
        }
        for (i64 i = 0; i < p->c; i++)
            x[p->flag ? L_LOGITS : L_DLOGITS][r * p->c + i] = g[i];
    }
    free(g);
}

static double xent_loss(const params *p, double **x)
{
    double sum = 0;
    for (i64 r = 0; r < p->t; r++)
        sum += x[L_WEIGHT][r] * oracle_xent(x[L_LOGITS] + r * p->c, p->c, x[L_TARGETS][r]);
    return sum;
}

/* clang-format off */
const op_test test_xent_bwd = {
    "xent_bwd", xent_slots, xent_arrange, xent_call, xent_oracle, 4e-6,
    .cases = {
        { .t = 1, .c = 1, .flag = true },
        { .t = 7, .c = 17, .flag = true },
        { .t = 5, .c = 300, .flag = true, .x = DT_BF16 },
        { .t = 4, .c = 777 },
        { .t = 4, .c = 800, .o = DT_BF16 },
        { .t = 3, .c = 33, .o = DT_BF16 },
        { .t = 1, .c = 33, .x = DT_BF16, .o = DT_BF16 },
    },
    .loss = xent_loss, .gradients = { { L_DLOGITS, L_LOGITS } }
};
/* clang-format on */
