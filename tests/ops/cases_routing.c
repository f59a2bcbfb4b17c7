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
                       .scale = p->scale,
                       .n_groups = p->groups ? (int32_t)p->groups : 1,
                       .k_groups = p->groups ? (int32_t)p->k_groups : 1 };
    d->op->topk_fwd(d, t[0], t[1], t[2], &rule, t[3]);
}

static void topk_oracle(const params *p, double **x)
{
    oracle_topk a = {
        x[2],    p->bias ? x[3] : NULL,     x[0],        x[1],       p->t,     p->e,
        p->k,    p->groups ? p->groups : 1, p->k_groups, p->sigmoid, p->after, p->renormalise,
        p->scale
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
        { .t = 33, .e = 17, .k = 17, .sigmoid = true, .after = true, .scale = 1 },
        { .t = 33, .e = 9, .k = 3, .groups = 9, .k_groups = 3, .scale = 1, .bias = true },
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
