/* cases_routing: choosing experts, sorting rows by them, adding them up. */
#include "ops/cases.h"

#include <math.h>

static int topk_slots(const params *p, slot *s)
{
    s[0] = (slot){ "ids", SLOT_OUT, DT_I32, .ne = { p->t, p->k } };
    s[1] = (slot){ "gates", SLOT_OUT, DT_F32, .ne = { p->t, p->k } };
    s[2] = (slot){ "logits", SLOT_IN, DT_F32, .ne = { p->t, p->e },
                   p->flag ? FILL_COARSE : FILL_NORMAL };
    s[3] = (slot){ "bias", SLOT_IN, DT_F32, .ne = { p->bias ? p->e : 0 } };
    return 4;
}

static void topk_call(device *d, const params *p, const tensor *t)
{
    topk_rule rule = { .n_experts = (int32_t)p->e,
                       .k = (int32_t)p->k,
                       .score = p->sigmoid ? SCORE_SIGMOID : SCORE_SOFTMAX,
                       .score_after_topk = p->after,
                       .renormalise = p->renormalise,
                       .sum_floor = p->floor,
                       .sum_more = p->more,
                       .scale = p->scale,
                       .n_groups = p->groups ? (int32_t)p->groups : 1,
                       .k_groups = p->groups ? (int32_t)p->k_groups : 1 };
    d->op->topk_fwd(d, t[0], t[1], t[2], &rule, t[3]);
}

static void topk_oracle(const params *p, double **x)
{
    oracle_topk a = {
        x[2],     p->bias ? x[3] : NULL,     x[0],           x[1],       p->t,     p->e,
        p->k,     p->groups ? p->groups : 1, p->k_groups,    p->sigmoid, p->after, p->renormalise,
        p->scale, (double)p->floor,          (double)p->more
    };
    oracle_route(&a);
}

/* clang-format off */
const op_test test_topk_fwd = {
    "topk_fwd", topk_slots, NULL, topk_call, topk_oracle, 4e-7,
    .cases = {
        { .t = 1, .e = 1, .k = 1, .after = true, .scale = 1 },
        { .t = 50, .e = 8, .k = 2, .after = true, .scale = 1 },
        { .t = 50, .e = 8, .k = 2, .after = true, .scale = 1, .flag = true },
        { .t = 33, .e = 60, .k = 4, .scale = 1 },
        { .t = 33, .e = 60, .k = 4, .scale = 1, .renormalise = true, .flag = true },
        { .t = 33, .e = 64, .k = 6, .groups = 8, .k_groups = 3, .scale = 16, .flag = true },
        { .t = 33, .e = 64, .k = 6, .groups = 8, .k_groups = 3, .scale = 16 },
        { .t = 33, .e = 256, .k = 8, .groups = 8, .k_groups = 4, .scale = 2.5f, .sigmoid = true,
          .renormalise = true, .bias = true },
        { .t = 33, .e = 64, .k = 6, .scale = 1, .renormalise = true, .bias = true, .floor = 0.2f },
        { .t = 33, .e = 64, .k = 4, .scale = 1, .sigmoid = true, .renormalise = true, .bias = true,
          .more = 0.5f },
        { .t = 33, .e = 17, .k = 17, .sigmoid = true, .after = true, .scale = 1 },
        { .t = 33, .e = 9, .k = 3, .groups = 9, .k_groups = 3, .scale = 1, .bias = true },
    }
};
/* clang-format on */

/* The choices of a token are looked up in its row of a table of n rows. */
static int remap_slots(const params *p, slot *s)
{
    s[0] = (slot){ "out", SLOT_OUT, DT_I32, .ne = { p->t, p->k } };
    s[1] = (slot){ "ids", SLOT_IN, DT_I32, .ne = { p->t, p->k }, FILL_INDEX, p->e };
    s[2] = (slot){ "table", SLOT_IN, DT_I32, .ne = { p->n, p->e }, FILL_INDEX, 3 * p->e };
    s[3] = (slot){ "rows", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->n };
    return 4;
}

static void remap_call(device *d, const params *p, const tensor *t)
{
    (void)p;
    d->op->expert_remap(d, t[0], t[1], t[2], t[3]);
}

static void remap_oracle(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->k; i++)
        x[0][i] = x[2][(i64)x[3][i / p->k] * p->e + (i64)x[1][i]];
}

/* clang-format off */
const op_test test_expert_remap = {
    "expert_remap", remap_slots, NULL, remap_call, remap_oracle, 0,
    .cases = {
        { .t = 1, .k = 1, .e = 1, .n = 1 },
        { .t = 1, .k = 6, .e = 64, .n = 3 },
        { .t = 57, .k = 2, .e = 8, .n = 4 },
        { .t = 1000, .k = 3, .e = 13, .n = 17 },
    }
};
/* clang-format on */

static int sort_slots(const params *p, slot *s)
{
    s[0] = (slot){ "order", SLOT_OUT, DT_I32, .ne = { p->t * p->k } };
    s[1] = (slot){ "inverse", SLOT_OUT, DT_I32, .ne = { p->t * p->k } };
    s[2] = (slot){ "offsets", SLOT_OUT, DT_I32, .ne = { p->e + 1 } };
    s[3] = (slot){ "ids", SLOT_IN, DT_I32, .ne = { p->t, p->k }, FILL_INDEX, p->e };
    return 4;
}

/* Every third expert gets no token. */
static void sort_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->t * p->k && p->e > 3; i++)
        if ((i64)x[3][i] % 3 == 1)
            x[3][i] -= 1;
}

static void sort_call(device *d, const params *p, const tensor *t)
{
    d->op->expert_sort(d, t[0], t[1], t[2], t[3], (int32_t)p->e);
}

static void sort_oracle(const params *p, double **x)
{
    i64 n = 0;
    for (i64 e = 0; e < p->e; e++) {
        x[2][e] = (double)n;
        for (i64 i = 0; i < p->t * p->k; i++)
            if ((i64)x[3][i] == e) {
                x[1][i] = (double)n;
                x[0][n++] = (double)i;
            }
    }
    x[2][p->e] = (double)n;
}

/* clang-format off */
const op_test test_expert_sort = {
    "expert_sort", sort_slots, sort_arrange, sort_call, sort_oracle, 0,
    .cases = {
        { .t = 1, .k = 1, .e = 1 },
        { .t = 1, .k = 2, .e = 8 },
        { .t = 57, .k = 2, .e = 8 },
        { .t = 57, .k = 6, .e = 64 },
        { .t = 3, .k = 4, .e = 100 },
    }
};
/* clang-format on */

static int scatter_slots(const params *p, slot *s)
{
    s[0] = (slot){ "y", SLOT_INOUT, p->o, .ne = { p->t, p->c } };
    s[1] = (slot){ "x", SLOT_IN, p->x, .ne = { p->t * p->k, p->c } };
    s[2] = (slot){ "gates", SLOT_IN, DT_F32, .ne = { p->t, p->k } };
    s[3] = (slot){ "inverse", SLOT_IN, DT_I32, .ne = { p->t * p->k }, FILL_INDEX, p->t * p->k };
    return 4;
}

static void scatter_call(device *d, const params *p, const tensor *t)
{
    d->op->scatter_add(d, t[0], t[1], t[2], t[3], p->scale);
}

static void scatter_oracle(const params *p, double **x)
{
    for (i64 t = 0; t < p->t; t++)
        for (i64 i = 0; i < p->c; i++)
            for (i64 j = t * p->k; j < (t + 1) * p->k; j++)
                x[0][t * p->c + i] += p->scale * x[2][j] * x[1][(i64)x[3][j] * p->c + i];
}

/* clang-format off */
const op_test test_scatter_add = {
    "scatter_add", scatter_slots, NULL, scatter_call, scatter_oracle, 1e-6,
    .cases = {
        { .t = 1, .k = 1, .c = 1, .scale = 1 },
        { .t = 13, .k = 2, .c = 100, .scale = 0.25f, .x = DT_BF16 },
        { .t = 5, .k = 8, .c = 257, .scale = 1 },
        { .t = 5, .k = 3, .c = 64, .scale = 2, .x = DT_BF16, .o = DT_BF16 },
    }
};
/* clang-format on */

/* ---- adapters ---- */

enum { A_X, A_F, A_LOGITS, A_DOWN, A_UP, A_MID, A_SLOTS };

static int adapters_slots(const params *p, slot *s)
{
    slot_fill fill = p->flag ? FILL_COARSE : FILL_NORMAL;
    s[A_X] = (slot){ "x", SLOT_INOUT, DT_F32, .ne = { p->t, p->c } };
    s[A_F] = (slot){ "f", SLOT_IN, DT_BF16, .ne = { p->t, p->c } };
    s[A_LOGITS] = (slot){ "logits", SLOT_IN, DT_F32, .ne = { p->t, p->e }, fill };
    s[A_DOWN] = (slot){ "down", SLOT_IN, p->w, .ne = { p->e, p->n, p->c } };
    s[A_UP] = (slot){ "up", SLOT_IN, p->w, .ne = { p->e, p->c, p->n } };
    s[A_MID] = (slot){ "mid", SLOT_OUT, DT_BF16, .ne = { p->t * p->k, p->n } };
    return A_SLOTS;
}

/* Weights such that results are about as large as inputs. */
static void adapters_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->e * p->n * p->c; i++) {
        x[A_DOWN][i] /= sqrt((double)p->c);
        x[A_UP][i] /= sqrt((double)p->n);
    }
}

static void adapters_call(device *d, const params *p, const tensor *t)
{
    d->op->adapters_fwd(d, &(adapters_fwd){ .x = t[A_X],
                                            .f = t[A_F],
                                            .logits = t[A_LOGITS],
                                            .down = t[A_DOWN],
                                            .up = t[A_UP],
                                            .mid = t[A_MID],
                                            .k = (int32_t)p->k,
                                            .scale = p->scale });
}

/* The output of one choice, from its row of mid, is added to a row of x. */
static void adapter_oracle(const params *p, double **x, i64 choice, i64 e, double gate)
{
    i64 t = choice / p->k;
    double *mid = x[A_MID] + choice * p->n;
    for (i64 i = 0; i < p->n; i++) {
        double sum = 0;
        for (i64 j = 0; j < p->c; j++)
            sum += x[A_DOWN][(e * p->n + i) * p->c + j] * x[A_F][t * p->c + j];
        mid[i] = round_to(DT_BF16, p->scale * gate * oracle_act(ACT_GELU, sum));
    }
    for (i64 j = 0; j < p->c; j++)
        for (i64 i = 0; i < p->n; i++)
            x[A_X][t * p->c + j] += x[A_UP][(e * p->c + j) * p->n + i] * mid[i];
}

static void adapters_oracle(const params *p, double **x)
{
    double ids[ADAPTER_CHOICES], gates[ADAPTER_CHOICES];
    oracle_route(&(oracle_topk){ .logits = x[A_LOGITS],
                                 .ids = ids,
                                 .gates = gates,
                                 .rows = p->t,
                                 .n = p->e,
                                 .k = p->k,
                                 .groups = 1,
                                 .k_groups = 1,
                                 .after = true,
                                 .scale = 1 });
    for (i64 i = 0; i < p->t * p->c; i++)
        x[A_X][i] += x[A_F][i];
    for (i64 i = 0; i < p->t * p->k; i++)
        adapter_oracle(p, x, i, (i64)ids[i], gates[i]);
}

/* More than 8 and more than 64 choices of one expert are other cases of the GPU's kernel. With 75
 * choices its shared memory, static and dynamic together, is just over 48 KiB. */
/* clang-format off */
const op_test test_adapters_fwd = {
    "adapters_fwd", adapters_slots, adapters_arrange, adapters_call, adapters_oracle, 2e-3, 4e-3,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .e = 1, .k = 1, .scale = 1, .w = DT_BF16 },
        { .t = 1, .c = 576, .n = 256, .e = 8, .k = 2, .scale = 1, .w = DT_BF16 },
        { .t = 1, .c = 1024, .n = 64, .e = 40, .k = 8, .scale = 0.25f, .w = DT_BF16 },
        { .t = 3, .c = 100, .n = 36, .e = 5, .k = 2, .scale = 1 },
        { .t = 5, .c = 33, .n = 17, .e = 8, .k = 3, .scale = 0.25f, .w = DT_BF16, .flag = true },
        { .t = 7, .c = 33, .n = 17, .e = 8, .k = 2, .scale = 1, .flag = true },
        { .t = 8, .c = 256, .n = 200, .e = 8, .k = 2, .scale = 1, .w = DT_BF16 },
        { .t = 8, .c = 256, .n = 64, .e = 3, .k = 3, .scale = 1 },
        { .t = 9, .c = 104, .n = 72, .e = 8, .k = 2, .scale = 1, .w = DT_BF16 },
        { .t = 30, .c = 65, .n = 33, .e = 4, .k = 2, .scale = 2 },
        { .t = 64, .c = 192, .n = 128, .e = 8, .k = 2, .scale = 1, .w = DT_BF16 },
        { .t = 64, .c = 64, .n = 48, .e = 64, .k = 2, .scale = 1, .w = DT_BF16 },
        { .t = 64, .c = 64, .n = 40, .e = 2, .k = 2, .scale = 1 },
        { .t = 75, .c = 64, .n = 48, .e = 8, .k = 1, .scale = 1, .w = DT_BF16 },
        { .t = 128, .c = 72, .n = 24, .e = 1, .k = 1, .scale = 1, .w = DT_BF16 },
        { .t = 128, .c = 40, .n = 8, .e = 7, .k = 1, .scale = 1, .flag = true },
    }
};
/* clang-format on */
