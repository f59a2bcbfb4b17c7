/* cases_experts: full experts of a few tokens. t tokens, C = c, M = n, k of e experts a token. The
 * second expert gets no token. flag: all tokens choose the first expert. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>

enum {
    X,
    H,
    GATE,
    UP,
    DOWN,
    GATES,
    ORDER,
    INVERSE,
    OFFSETS,
    IN,
    OUT,
    GATE_OUT,
    UP_OUT,
    MID,
    SLOTS
};

static slot weights_slot(const params *p, const char *name, i64 rows, i64 cols)
{
    if (p->w == DT_NF4)
        return (
            slot){ name, SLOT_IN, DT_U8, .ne = { p->e, nf4_bytes(rows * cols) }, FILL_INDEX, 256 };
    return (slot){ name, SLOT_IN, p->w, .ne = { p->e, rows, cols } };
}

static int experts_slots(const params *p, slot *s)
{
    i64 rows = p->t * p->k;
    s[X] = (slot){ "x", SLOT_INOUT, DT_F32, .ne = { p->t, p->c } };
    s[H] = (slot){ "h", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[GATE] = weights_slot(p, "gate", p->n, p->c);
    s[UP] = weights_slot(p, "up", p->n, p->c);
    s[DOWN] = weights_slot(p, "down", p->c, p->n);
    s[GATES] = (slot){ "gates", SLOT_IN, DT_F32, .ne = { p->t, p->k } };
    s[ORDER] = (slot){ "order", SLOT_IN, DT_I32, .ne = { rows } };
    s[INVERSE] = (slot){ "inverse", SLOT_IN, DT_I32, .ne = { rows } };
    s[OFFSETS] = (slot){ "offsets", SLOT_IN, DT_I32, .ne = { p->e + 1 } };
    s[IN] = (slot){ "in", SLOT_USED, p->x, .ne = { rows, p->c } };
    s[OUT] = (slot){ "out", SLOT_USED, p->x, .ne = { rows, p->c } };
    s[GATE_OUT] = (slot){ "gate_out", SLOT_USED, p->x, .ne = { rows, p->n } };
    s[UP_OUT] = (slot){ "up_out", SLOT_USED, p->x, .ne = { rows, p->n } };
    s[MID] = (slot){ "mid", SLOT_USED, p->x, .ne = { rows, p->n } };
    return SLOTS;
}

/* The expert of a choice: k different ones a token, never expert 1 where there are enough. */
static i64 expert_of(const params *p, i64 choice)
{
    i64 t = choice / p->k, j = choice % p->k, n = p->e > p->k ? p->e - 1 : p->e;
    i64 e = p->flag && j == 0 ? 0 : p->flag ? 1 + (t + j - 1) % (n - 1) : (t * 3 + j) % n;
    return n < p->e && e >= 1 ? e + 1 : e;
}

/* Weights such that results are about as large as inputs. */
static void arrange_weights(const params *p, double *w, i64 cols)
{
    i64 n = p->n * p->c;
    for (i64 e = 0; e < p->e && p->w == DT_NF4; e++)
        set_nf4_scales(w + e * nf4_bytes(n), n, 2 / sqrtf((float)cols));
    for (i64 i = 0; i < p->e * n && p->w != DT_NF4; i++)
        w[i] /= sqrt((double)cols);
}

static void experts_arrange(const params *p, double **x)
{
    i64 at = 0;
    arrange_weights(p, x[GATE], p->c);
    arrange_weights(p, x[UP], p->c);
    arrange_weights(p, x[DOWN], p->n);
    for (i64 e = 0; e < p->e; e++) {
        x[OFFSETS][e] = (double)at;
        for (i64 i = 0; i < p->t * p->k; i++)
            if (expert_of(p, i) == e) {
                x[INVERSE][i] = (double)at;
                x[ORDER][at++] = (double)i;
            }
    }
    x[OFFSETS][p->e] = (double)at;
    for (i64 i = 0; i < p->t * p->k; i++)
        x[GATES][i] = (1 + x[GATES][i] / 4) / (double)p->k;
}

static tensor stack(const params *p, tensor t, i64 rows, i64 cols)
{
    return p->w == DT_NF4 ? (tensor){ t.data, DT_NF4, 3, { p->e, rows, cols } } : t;
}

static void experts_call(device *d, const params *p, const tensor *t)
{
    d->op->experts_fwd(d, &(experts_fwd){ .x = t[X],
                                          .h = t[H],
                                          .gate = stack(p, t[GATE], p->n, p->c),
                                          .up = stack(p, t[UP], p->n, p->c),
                                          .down = stack(p, t[DOWN], p->c, p->n),
                                          .gates = t[GATES],
                                          .order = t[ORDER],
                                          .inverse = t[INVERSE],
                                          .offsets = t[OFFSETS],
                                          .in = t[IN],
                                          .out = t[OUT],
                                          .gate_out = t[GATE_OUT],
                                          .up_out = t[UP_OUT],
                                          .mid = t[MID],
                                          .act = p->act });
}

/* Expert e of a stack, as numbers. */
static void matrix_of(const params *p, double *out, const double *stack, i64 e)
{
    i64 n = p->n * p->c;
    if (p->w == DT_NF4)
        decode_nf4(out, stack + e * nf4_bytes(n), n, false);
    for (i64 i = 0; i < n && p->w != DT_NF4; i++)
        out[i] = stack[e * n + i];
}

static double dot(const double *a, const double *b, i64 n)
{
    double sum = 0;
    for (i64 i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

static void experts_oracle(const params *p, double **x)
{
    i64 n = p->n * p->c;
    double *w = malloc((size_t)(3 * n + p->n) * sizeof *w), *mid = w + 3 * n;
    for (i64 e = 0; e < p->e; e++) {
        matrix_of(p, w, x[GATE], e);
        matrix_of(p, w + n, x[UP], e);
        matrix_of(p, w + 2 * n, x[DOWN], e);
        for (i64 i = 0; i < p->t * p->k; i++) {
            i64 t = i / p->k;
            if (expert_of(p, i) != e)
                continue;
            for (i64 j = 0; j < p->n; j++)
                mid[j] = oracle_act(p->act, dot(w + j * p->c, x[H] + t * p->c, p->c)) *
                         dot(w + n + j * p->c, x[H] + t * p->c, p->c);
            for (i64 j = 0; j < p->c; j++)
                x[X][t * p->c + j] += x[GATES][i] * dot(w + 2 * n + j * p->n, mid, p->n);
        }
    }
    free(w);
}

/* The GPU's kernels serve both sizes when they are multiples of 256: one piece of k or several, one
 * or several tiles of a stage, more than 8 rows of an expert, up to 512 rows. */
/* clang-format off */
const op_test test_experts_fwd = {
    "experts_fwd", experts_slots, experts_arrange, experts_call, experts_oracle, 1.2e-2,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .e = 1, .k = 1 },
        { .t = 1, .c = 256, .n = 256, .e = 4, .k = 2, .x = DT_BF16, .w = DT_NF4 },
        { .t = 1, .c = 512, .n = 768, .e = 16, .k = 8, .x = DT_BF16, .w = DT_NF4 },
        { .t = 3, .c = 65, .n = 33, .e = 5, .k = 2 },
        { .t = 5, .c = 65, .n = 33, .e = 5, .k = 2, .x = DT_BF16, .w = DT_BF16 },
        { .t = 7, .c = 256, .n = 4608, .e = 3, .k = 2, .x = DT_BF16, .w = DT_NF4, .flag = true },
        { .t = 8, .c = 4864, .n = 256, .e = 3, .k = 1, .x = DT_BF16, .w = DT_NF4 },
        { .t = 9, .c = 192, .n = 128, .e = 4, .k = 2, .x = DT_BF16, .w = DT_NF4 },
        { .t = 17, .c = 768, .n = 512, .e = 5, .k = 2, .x = DT_BF16, .w = DT_NF4, .flag = true,
          .act = ACT_GELU_TANH },
        { .t = 33, .c = 64, .n = 48, .e = 8, .k = 2, .w = DT_NF4 },
        { .t = 64, .c = 512, .n = 256, .e = 8, .k = 2, .x = DT_BF16, .w = DT_NF4 },
        { .t = 64, .c = 256, .n = 256, .e = 40, .k = 8, .x = DT_BF16, .w = DT_NF4, .flag = true },
        { .t = 65, .c = 256, .n = 256, .e = 4, .k = 2, .x = DT_BF16, .w = DT_NF4 },
        { .t = 40, .c = 72, .n = 40, .e = 4, .k = 2, .x = DT_BF16, .act = ACT_GELU },
    }
};
/* clang-format on */
