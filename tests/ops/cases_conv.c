/* cases_conv: causal depthwise convolutions with gates or silu, their state, and their gradients.
 * Parameters: n taps, flag: gated, page: with a state of that many rows, where `past` tokens of a
 * sequence went before. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static i64 x_cols(const params *p)
{
    return p->flag ? 3 * p->c : p->c;
}

/* Row r of z of the sequence that begins at row `begin`; before: rows of its past, or NULL. */
static double z_of(const params *p, const double *x, i64 begin, i64 r, i64 j, const double *before)
{
    if (r < begin)
        return before ? before[(p->n - 1 - (begin - r)) * p->c + j] : 0;
    const double *row = x + r * x_cols(p);
    return p->flag ? row[j] * row[2 * p->c + j] : row[j];
}

typedef struct inputs {
    const double *x, *w, *bias, *before;
    i64 begin;
} inputs;

static double sum_of(const params *p, const inputs *in, i64 t, i64 j)
{
    double s = p->bias ? in->bias[j] : 0;
    for (i64 i = 0; i < p->n; i++)
        s += in->w[j * p->n + i] * z_of(p, in->x, in->begin, t - p->n + 1 + i, j, in->before);
    return s;
}

static double out_of(const params *p, const inputs *in, i64 t, i64 j)
{
    double s = sum_of(p, in, t, j);
    return p->flag ? s * in->x[t * x_cols(p) + p->c + j] : oracle_act(p->act, s);
}

static void arrange_rows(const params *p, double *starts, double *pos)
{
    i64 row = 0;
    for (i64 s = 0; s < p->seqs; s++) {
        starts[s] = (double)row;
        for (i64 i = 0; i < p->len[s]; i++)
            pos[row++] = (double)(p->past[s] + i);
    }
    starts[p->seqs] = (double)row;
}

/* ---- forward ---- */

enum { OUT, X, W, BIAS, STARTS, POS, STATE, SLOTS };

static int fwd_slots(const params *p, slot *s)
{
    i64 state = p->page ? (p->n - 1) * p->c : 0;
    s[OUT] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->c } };
    s[X] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, x_cols(p) } };
    s[W] = (slot){ "w", SLOT_IN, DT_F32, .ne = { p->c, 1, p->n } };
    s[BIAS] = (slot){ "bias", SLOT_IN, DT_F32, .ne = { p->bias ? p->c : 0 } };
    s[STARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[POS] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, 1 };
    s[STATE] = (slot){ "state", SLOT_INOUT, DT_F32, .ne = { p->page, state } };
    s[SLOTS] = (slot){ "slots", SLOT_IN, DT_I32, .ne = { p->page ? p->seqs : 0 }, FILL_INDEX, 1 };
    return 8;
}

/* Sequences have rows of the state from its end on. */
static void fwd_arrange(const params *p, double **x)
{
    arrange_rows(p, x[STARTS], x[POS]);
    for (i64 s = 0; p->page && s < p->seqs; s++)
        x[SLOTS][s] = (double)(p->page - 1 - s);
    for (i64 i = 0; i < p->t * x_cols(p); i++)
        x[X][i] = round_to(p->x, x[X][i]);
}

static void fwd_call(device *d, const params *p, const tensor *t)
{
    d->op->conv_fwd(d, &(conv){ .out = t[OUT],
                                .x = t[X],
                                .w = t[W],
                                .bias = t[BIAS],
                                .starts = t[STARTS],
                                .pos = t[POS],
                                .state = t[STATE],
                                .slots = t[SLOTS],
                                .gated = p->flag,
                                .act = p->act });
}

static void fwd_oracle(const params *p, double **x)
{
    i64 width = (p->n - 1) * p->c;
    double *kept = malloc((size_t)width * sizeof *kept);
    for (i64 s = 0; s < p->seqs; s++) {
        i64 begin = (i64)x[STARTS][s], end = (i64)x[STARTS][s + 1];
        double *state = p->page ? x[STATE] + (i64)x[SLOTS][s] * width : NULL;
        inputs in = { x[X], x[W], x[BIAS], p->past[s] ? state : NULL, begin };
        for (i64 i = begin * p->c; i < end * p->c; i++)
            x[OUT][i] = out_of(p, &in, i / p->c, i % p->c);
        for (i64 i = 0; i < width; i++)
            kept[i] = z_of(p, x[X], begin, end - p->n + 1 + i / p->c, i % p->c, in.before);
        if (state && end > begin)
            memcpy(state, kept, (size_t)width * sizeof *kept);
    }
    free(kept);
}

/* clang-format off */
const op_test test_conv_fwd = {
    "conv_fwd", fwd_slots, fwd_arrange, fwd_call, fwd_oracle, 2e-6,
    .cases = {
        { .t = 1, .c = 1, .n = 2, .seqs = 1, .len = { 1 } },
        { .t = 40, .c = 67, .n = 3, .seqs = 3, .len = { 1, 9, 30 }, .flag = true },
        { .t = 40, .c = 67, .n = 4, .seqs = 3, .len = { 1, 9, 30 }, .bias = true },
        { .t = 33, .c = 130, .n = 3, .seqs = 2, .len = { 32, 1 }, .flag = true, .bias = true,
          .x = DT_BF16, .o = DT_BF16 },
        { .t = 17, .c = 67, .n = 5, .seqs = 4, .len = { 1, 2, 9, 5 }, .past = { 3, 0, 7, 1 },
          .page = 6, .flag = true },
        { .t = 4, .c = 64, .n = 4, .seqs = 4, .len = { 1, 1, 1, 1 }, .past = { 3, 40, 0, 9 },
          .page = 4, .x = DT_BF16, .o = DT_BF16 },
        { .t = 20, .c = 33, .n = 4, .seqs = 1, .len = { 20 }, .act = ACT_GELU },
        { .t = 3, .c = 9, .n = 16, .seqs = 2, .len = { 2, 1 }, .past = { 1, 0 }, .page = 2,
          .bias = true },
    }
};
/* clang-format on */

/* ---- backward ---- */

enum { DX, DW, DBIAS, BX, BW, BBIAS, DOUT, BSTARTS, BPOS };

static int bwd_slots(const params *p, slot *s)
{
    s[DX] = (slot){ "dx", SLOT_OUT, p->o, .ne = { p->t, x_cols(p) } };
    s[DW] = (slot){ "dw", SLOT_INOUT, DT_F32, .ne = { p->c, 1, p->n } };
    s[DBIAS] = (slot){ "dbias", SLOT_INOUT, DT_F32, .ne = { p->bias ? p->c : 0 } };
    s[BX] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t, x_cols(p) } };
    s[BW] = (slot){ "w", SLOT_IN, DT_F32, .ne = { p->c, 1, p->n } };
    s[BBIAS] = (slot){ "bias", SLOT_IN, DT_F32, .ne = { p->bias ? p->c : 0 } };
    s[DOUT] = (slot){ "dout", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[BSTARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[BPOS] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, 1 };
    return 9;
}

static void bwd_arrange(const params *p, double **x)
{
    arrange_rows(p, x[BSTARTS], x[BPOS]);
}

static void bwd_call(device *d, const params *p, const tensor *t)
{
    d->op->conv_bwd(d, &(conv_bwd){ .fwd = { .x = t[BX],
                                             .w = t[BW],
                                             .bias = t[BBIAS],
                                             .starts = t[BSTARTS],
                                             .pos = t[BPOS],
                                             .gated = p->flag,
                                             .act = p->act },
                                    .dout = t[DOUT],
                                    .dx = t[DX],
                                    .dw = t[DW],
                                    .dbias = t[DBIAS] });
}

/* Spreads the gradient of the sum ds over the taps and the rows they read. */
static void spread(const params *p, double **x, i64 begin, i64 t, i64 j, double ds)
{
    if (p->bias)
        x[DBIAS][j] += ds;
    for (i64 i = 0; i < p->n; i++) {
        i64 r = t - p->n + 1 + i;
        if (r < begin)
            continue;
        double *dx = x[DX] + r * x_cols(p), dz = x[BW][j * p->n + i] * ds;
        const double *row = x[BX] + r * x_cols(p);
        x[DW][j * p->n + i] += ds * z_of(p, x[BX], begin, r, j, NULL);
        dx[j] += p->flag ? dz * row[2 * p->c + j] : dz;
        if (p->flag)
            dx[2 * p->c + j] += dz * row[j];
    }
}

static void bwd_oracle(const params *p, double **x)
{
    memset(x[DX], 0, (size_t)(p->t * x_cols(p)) * sizeof(double));
    for (i64 s = 0; s < p->seqs; s++) {
        inputs in = { x[BX], x[BW], x[BBIAS], NULL, (i64)x[BSTARTS][s] };
        for (i64 t = in.begin; t < (i64)x[BSTARTS][s + 1]; t++)
            for (i64 j = 0; j < p->c; j++) {
                double sum = sum_of(p, &in, t, j), dy = x[DOUT][t * p->c + j];
                double h = 1e-6;
                double slope =
                    (oracle_act(p->act, sum + h) - oracle_act(p->act, sum - h)) / (2 * h);
                if (p->flag)
                    x[DX][t * x_cols(p) + p->c + j] = dy * sum;
                spread(p, x, in.begin, t, j,
                       p->flag ? dy * x[BX][t * x_cols(p) + p->c + j] : dy * slope);
            }
    }
}

static double bwd_loss(const params *p, double **x)
{
    double total = 0;
    for (i64 s = 0; s < p->seqs; s++) {
        inputs in = { x[BX], x[BW], x[BBIAS], NULL, (i64)x[BSTARTS][s] };
        for (i64 t = in.begin; t < (i64)x[BSTARTS][s + 1]; t++)
            for (i64 j = 0; j < p->c; j++)
                total += out_of(p, &in, t, j) * x[DOUT][t * p->c + j];
    }
    return total;
}

/* clang-format off */
const op_test test_conv_bwd = {
    "conv_bwd", bwd_slots, bwd_arrange, bwd_call, bwd_oracle, 1e-5,
    .cases = {
        { .t = 1, .c = 1, .n = 2, .seqs = 1, .len = { 1 }, .bias = true },
        { .t = 40, .c = 67, .n = 3, .seqs = 3, .len = { 1, 9, 30 }, .flag = true },
        { .t = 40, .c = 67, .n = 4, .seqs = 4, .len = { 1, 9, 0, 30 }, .bias = true },
        { .t = 20, .c = 33, .n = 4, .seqs = 1, .len = { 20 }, .act = ACT_GELU },
        { .t = 33, .c = 130, .n = 3, .seqs = 2, .len = { 32, 1 }, .flag = true, .bias = true,
          .x = DT_BF16, .o = DT_BF16 },
        { .t = 20, .c = 9, .n = 16, .seqs = 1, .len = { 20 }, .bias = true },
    },
    .loss = bwd_loss, .gradients = { { DX, BX }, { DW, BW }, { DBIAS, BBIAS } }
};
/* clang-format on */
