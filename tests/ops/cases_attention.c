/* cases_attention: positions and attention. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rope ---- */

static int table_slots(const params *p, slot *s)
{
    s[0] = (slot){ "cos", SLOT_OUT, DT_F32, .ne = { p->t, p->c } };
    s[1] = (slot){ "sin", SLOT_OUT, DT_F32, .ne = { p->t, p->c } };
    s[2] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, p->n };
    s[3] = (slot){ "inv_freq", SLOT_IN, DT_F32, .ne = { p->c } };
    return 4;
}

static void table_arrange(const params *p, double **x)
{
    for (i64 i = 0; i < p->c; i++)
        x[3][i] = pow(10000, -(double)i / (double)p->c);
}

static void table_call(device *d, const params *p, const tensor *t)
{
    d->op->rope_table(d, t[0], t[1], t[2], t[3], p->scale);
}

/* The angle is an f32 product, as in the models' own code; sine and cosine of it are exact. */
static void table_oracle(const params *p, double **x)
{
    for (i64 t = 0; t < p->t; t++)
        for (i64 i = 0; i < p->c; i++) {
            float angle = (float)x[2][t] * (float)x[3][i];
            x[0][t * p->c + i] = cos(angle) * p->scale;
            x[1][t * p->c + i] = sin(angle) * p->scale;
        }
}

/* clang-format off */
const op_test test_rope_table = {
    "rope_table", table_slots, table_arrange, table_call, table_oracle, 6e-8,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .scale = 1 },
        { .t = 100, .c = 32, .n = 4096, .scale = 1 },
        { .t = 300, .c = 13, .n = 10000000, .scale = 0.7f },
    }
};
/* clang-format on */

static int rope_slots(const params *p, slot *s)
{
    s[0] = (slot){ "x", SLOT_INOUT, p->x, .ne = { p->t, p->heads * p->qk } };
    s[1] = (slot){ "cos", SLOT_IN, DT_F32, .ne = { p->t, p->n / 2 } };
    s[2] = (slot){ "sin", SLOT_IN, DT_F32, .ne = { p->t, p->n / 2 } };
    return 3;
}

static void rope_call(device *d, const params *p, const tensor *t)
{
    rope a = { t[0],          t[1],          t[2],    (int32_t)p->heads, (int32_t)p->qk,
               (int32_t)p->c, (int32_t)p->n, p->flag, p->after };
    d->op->rope(d, &a);
}

static void rope_oracle(const params *p, double **x)
{
    oracle_rope(&(oracle_rotation){ x[0], x[1], x[2], p->t, p->heads, p->qk, p->c, p->n, p->flag,
                                    p->after });
}

/* clang-format off */
const op_test test_rope = {
    "rope", rope_slots, NULL, rope_call, rope_oracle, 4e-7,
    .cases = {
        { .t = 1, .heads = 1, .qk = 2, .n = 2 },
        { .t = 5, .heads = 9, .qk = 64, .n = 64 },
        { .t = 5, .heads = 3, .qk = 48, .n = 24, .c = 24, .x = DT_BF16 },
        { .t = 7, .heads = 2, .qk = 30, .n = 10, .c = 20, .flag = true },
        { .t = 7, .heads = 2, .qk = 30, .n = 30, .flag = true, .after = true },
        { .t = 3, .heads = 2, .qk = 100, .n = 100, .after = true, .x = DT_BF16 },
        { .t = 7, .heads = 3, .qk = 31, .n = 10, .c = 21, .flag = true, .x = DT_BF16 },
    }
};
/* clang-format on */

/* ---- attention ---- */

enum { Q, K, V, OUT, STARTS, POS, LSE, PAGES_K, PAGES_V, TABLE, COS, SIN };

static i64 max_keys(const params *p)
{
    i64 n = 0;
    for (i64 s = 0; s < p->seqs; s++)
        n = p->past[s] + p->len[s] > n ? p->past[s] + p->len[s] : n;
    return n;
}

static i64 max_pages(const params *p)
{
    return p->page ? (max_keys(p) + p->page - 1) / p->page + 1 : 0;
}

static int attention_slots(const params *p, slot *s)
{
    i64 pages = p->seqs * max_pages(p);
    dtype cache = p->w;
    slot_role rotated = p->n ? SLOT_USED : SLOT_IN;
    s[Q] = (slot){ "q", rotated, p->x, .ne = { p->t, p->heads * p->qk } };
    s[K] = (slot){ "k", rotated, p->x, .ne = { p->t, p->kv * p->qk } };
    s[V] = (slot){ "v", SLOT_IN, p->x, .ne = { p->t, p->kv * p->v } };
    s[OUT] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, p->heads * p->v } };
    s[STARTS] = (slot){ "starts", SLOT_IN, DT_I32, .ne = { p->seqs + 1 }, FILL_INDEX, 1 };
    s[POS] = (slot){ "pos", SLOT_IN, DT_I32, .ne = { p->t }, FILL_INDEX, 1 };
    s[LSE] =
        (slot){ "lse", SLOT_OUT, DT_F32, .ne = { p->flag ? p->t : 0, p->flag ? p->heads : 0 } };
    s[PAGES_K] = (slot){ "pages_k", SLOT_INOUT, cache, .ne = { pages, p->page, p->kv * p->qk } };
    s[PAGES_V] = (slot){ "pages_v", SLOT_INOUT, cache, .ne = { pages, p->page, p->kv * p->v } };
    s[TABLE] = (slot){ "table",    SLOT_IN, DT_I32, .ne = { p->page ? p->seqs : 0, max_pages(p) },
                       FILL_INDEX, 1 };
    for (int i = COS; i <= SIN; i++)
        s[i] = (slot){ "cos, sin", SLOT_IN, DT_F32, .ne = { p->n ? p->t : 0, p->n / 2 } };
    return 12;
}

static void attention_arrange(const params *p, double **x)
{
    i64 row = 0, pages = max_pages(p);
    for (i64 s = 0; s < p->seqs; s++) {
        x[STARTS][s] = (double)row;
        for (i64 i = 0; i < p->len[s]; i++)
            x[POS][row++] = (double)(p->past[s] + i);
        for (i64 g = 0; g < pages; g++) /* pages of the sequences interleave, last first */
            x[TABLE][s * pages + g] = (double)((pages - 1 - g) * p->seqs + s);
    }
    x[STARTS][p->seqs] = (double)row;
}

static void attention_call(device *d, const params *p, const tensor *t)
{
    kv_pages pages = { t[PAGES_K], t[PAGES_V], t[TABLE] };
    attention a = { .q = t[Q],
                    .k = t[K],
                    .v = t[V],
                    .out = t[OUT],
                    .starts = t[STARTS],
                    .pos = t[POS],
                    .kv = p->page ? &pages : NULL,
                    .lse = t[LSE],
                    .cos = t[COS],
                    .sin = t[SIN],
                    .interleaved = p->after,
                    .n_heads = (int32_t)p->heads,
                    .n_kv_heads = (int32_t)p->kv,
                    .qk_dim = (int32_t)p->qk,
                    .v_dim = (int32_t)p->v,
                    .window = (int32_t)p->window,
                    .scale = p->scale,
                    .softcap = p->cap };
    d->op->attention_fwd(d, &a);
}

/* Stores the rows of the pass in the pages, rounded to their dtype, and collects the keys or values
 * of every position in `flat` [seqs][max_keys][width]. */
static void collect_positions(const params *p, double **x, int rows, int pages, i64 width,
                              double *flat)
{
    for (i64 s = 0; s < p->seqs; s++)
        for (i64 i = 0; i < p->past[s] + p->len[s]; i++) {
            i64 t = (i64)x[STARTS][s] + i - p->past[s];
            double *to = flat + (s * max_keys(p) + i) * width;
            if (!p->page) {
                if (i >= p->past[s])
                    memcpy(to, x[rows] + t * width, (size_t)width * sizeof *to);
                continue;
            }
            i64 page = (i64)x[TABLE][s * max_pages(p) + i / p->page];
            double *at = x[pages] + (page * p->page + i % p->page) * width;
            for (i64 c = 0; c < width && i >= p->past[s]; c++) {
                float value = (float)x[rows][t * width + c];
                uint32_t u;
                memcpy(&u, &value, 4);
                if (p->w == DT_BF16)
                    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
                memcpy(&value, &u, 4);
                at[c] = value;
            }
            memcpy(to, at, (size_t)width * sizeof *to);
        }
}

static void rotate(const params *p, double **x, int which, i64 heads)
{
    oracle_rope(&(oracle_rotation){ x[which], x[COS], x[SIN], p->t, heads, p->qk, .rot = p->n,
                                    .interleaved = p->after });
    for (i64 i = 0; i < p->t * heads * p->qk; i++)
        x[which][i] = round_to(p->x, x[which][i]);
}

static void attention_oracle(const params *p, double **x)
{
    if (p->n) {
        rotate(p, x, Q, p->heads);
        rotate(p, x, K, p->kv);
    }
    i64 keys = max_keys(p), first[MAX_SEQS];
    double *k = calloc((size_t)(p->seqs * keys * p->kv * p->qk), sizeof *k);
    double *v = calloc((size_t)(p->seqs * keys * p->kv * p->v), sizeof *v);
    for (i64 s = 0; s < p->seqs; s++)
        first[s] = p->page ? 0 : p->past[s];
    collect_positions(p, x, K, PAGES_K, p->kv * p->qk, k);
    collect_positions(p, x, V, PAGES_V, p->kv * p->v, v);
    oracle_attention a = {
        x[Q],    k,        v,        x[STARTS], x[POS], x[OUT], p->flag ? x[LSE] : NULL,
        p->seqs, keys,     p->heads, p->kv,     p->qk,  p->v,   p->window,
        first,   p->scale, p->cap
    };
    oracle_attend(&a);
    free(k);
    free(v);
}

/* clang-format off */
const op_test test_attention_fwd = {
    "attention_fwd", attention_slots, attention_arrange, attention_call, attention_oracle,
    3e-6, .bf16_tolerance = 4e-3, /* the softmax weights are rounded to bf16: 2^-9 of the values */
    .cases = {
        /* one token; odd sizes; grouped heads; different widths; a long row; windows */
        { .t = 1, .seqs = 1, .len = { 1 }, .heads = 1, .kv = 1, .qk = 1, .v = 1, .scale = 1 },
        { .t = 7, .seqs = 1, .len = { 7 }, .heads = 3, .kv = 3, .qk = 17, .v = 17, .scale = 0.3f,
          .flag = true },
        { .t = 70, .seqs = 1, .len = { 70 }, .heads = 9, .kv = 3, .qk = 64, .v = 64,
          .scale = 0.125f, .flag = true },
        { .t = 133, .seqs = 1, .len = { 133 }, .heads = 4, .kv = 1, .qk = 48, .v = 24,
          .scale = 0.2f },
        { .t = 300, .seqs = 1, .len = { 300 }, .heads = 2, .kv = 2, .qk = 16, .v = 16,
          .scale = 0.25f, .window = 65, .flag = true },
        { .t = 200, .seqs = 1, .len = { 200 }, .heads = 2, .kv = 1, .qk = 16, .v = 16,
          .scale = 0.25f, .window = 7, .flag = true },
        { .t = 150, .seqs = 1, .len = { 150 }, .heads = 2, .kv = 1, .qk = 128, .v = 128,
          .scale = 0.09f, .flag = true },
        { .t = 40, .seqs = 1, .len = { 40 }, .heads = 2, .kv = 1, .qk = 192, .v = 200,
          .scale = 0.07f, .flag = true },
        { .t = 9, .seqs = 1, .len = { 9 }, .heads = 2, .kv = 1, .qk = 260, .v = 258,
          .scale = 0.06f },
        /* packed sequences */
        { .t = 200, .seqs = 4, .len = { 1, 65, 130, 4 }, .heads = 4, .kv = 2, .qk = 20, .v = 36,
          .scale = 0.2f, .flag = true },
        { .t = 100, .seqs = 3, .len = { 64, 0, 36 }, .heads = 2, .kv = 2, .qk = 8, .v = 8,
          .scale = 0.3f, .window = 10 },
        { .t = 90, .seqs = 2, .len = { 50, 40 }, .heads = 6, .kv = 2, .qk = 64, .v = 64,
          .scale = 0.125f, .x = DT_BF16, .o = DT_BF16, .flag = true },
        { .t = 90, .seqs = 2, .len = { 50, 40 }, .heads = 60, .kv = 1, .qk = 8, .v = 8,
          .scale = 0.25f },
        { .t = 30, .seqs = 1, .len = { 30 }, .past = { 5 }, .heads = 2, .kv = 1, .qk = 8, .v = 8,
          .scale = 0.25f },
        /* pages: prefill, decode, both at once, cache in bf16,
         * pages smaller and larger than a block */
        { .t = 77, .seqs = 1, .len = { 77 }, .heads = 4, .kv = 2, .qk = 32, .v = 32, .scale = 0.2f,
          .page = 64 },
        { .t = 1, .seqs = 1, .len = { 1 }, .past = { 150 }, .heads = 9, .kv = 3, .qk = 64, .v = 64,
          .scale = 0.125f, .page = 64 },
        { .t = 24, .seqs = 3, .len = { 1, 22, 1 }, .past = { 99, 100, 0 }, .heads = 4, .kv = 2,
          .qk = 20, .v = 12, .scale = 0.2f, .page = 16, .flag = true },
        { .t = 24, .seqs = 3, .len = { 1, 22, 1 }, .past = { 99, 100, 0 }, .heads = 4, .kv = 2,
          .qk = 16, .v = 16, .scale = 0.2f, .page = 16, .w = DT_BF16, .x = DT_BF16, .o = DT_BF16 },
        /* the same with the rotation fused: all columns or some, halves or neighbours */
        { .t = 24, .seqs = 3, .len = { 1, 22, 1 }, .past = { 99, 100, 0 }, .heads = 4, .kv = 2,
          .qk = 20, .v = 12, .scale = 0.2f, .page = 16, .n = 20 },
        { .t = 3, .seqs = 3, .len = { 1, 1, 1 }, .past = { 300, 63, 0 }, .heads = 8, .kv = 2,
          .qk = 128, .v = 128, .scale = 0.09f, .page = 64, .n = 128, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16 },
        { .t = 3, .seqs = 4, .len = { 0, 2, 0, 1 }, .past = { 0, 191, 0, 256 }, .heads = 3, .kv = 3,
          .qk = 64, .v = 64, .scale = 0.125f, .page = 16, .n = 48, .after = true, .w = DT_BF16,
          .x = DT_BF16, .o = DT_BF16, .flag = true },
        { .t = 24, .seqs = 2, .len = { 4, 20 }, .past = { 250, 100 }, .heads = 2, .kv = 2,
          .qk = 16, .v = 16, .scale = 0.2f, .page = 128, .w = DT_BF16, .window = 90 },
        { .t = 13, .seqs = 1, .len = { 13 }, .past = { 3 }, .heads = 2, .kv = 1, .qk = 5, .v = 3,
          .scale = 0.4f, .page = 7, .window = 4 },
        /* activations in bf16 with a cache in f32 */
        { .t = 5, .seqs = 2, .len = { 1, 4 }, .past = { 70, 3 }, .heads = 4, .kv = 2, .qk = 17,
          .v = 9, .scale = 0.2f, .page = 16, .x = DT_BF16, .o = DT_BF16 },
        /* as many heads as decide how a GPU decodes */
        { .t = 3, .seqs = 3, .len = { 1, 1, 1 }, .past = { 300, 63, 0 }, .heads = 60, .kv = 60,
          .qk = 128, .v = 128, .scale = 0.09f, .page = 64, .n = 128, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16 },
        { .t = 3, .seqs = 3, .len = { 1, 1, 1 }, .past = { 40, 301, 7 }, .heads = 192, .kv = 96,
          .qk = 64, .v = 64, .scale = 0.125f, .page = 16, .n = 64, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16 },
        /* a few rows after a long past, whose keys a GPU cuts into parts, beside decoding ones */
        { .t = 40, .seqs = 3, .len = { 1, 38, 1 }, .past = { 700, 1510, 3 }, .heads = 4, .kv = 4,
          .qk = 128, .v = 128, .scale = 0.09f, .page = 64, .n = 128, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16, .flag = true },
        { .t = 150, .seqs = 4, .len = { 1, 130, 2, 17 }, .past = { 9, 1100, 1535, 0 }, .heads = 6,
          .kv = 2, .qk = 64, .v = 64, .scale = 0.125f, .page = 64, .n = 64, .w = DT_BF16,
          .x = DT_BF16, .o = DT_BF16 },
        { .t = 70, .seqs = 2, .len = { 69, 1 }, .past = { 1500, 1600 }, .heads = 3, .kv = 3,
          .qk = 192, .v = 128, .scale = 0.07f, .page = 64, .n = 64, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16, .flag = true },
        { .t = 20, .seqs = 2, .len = { 19, 1 }, .past = { 1530, 90 }, .heads = 8, .kv = 2,
          .qk = 96, .v = 96, .scale = 0.1f, .page = 16, .w = DT_BF16, .x = DT_BF16, .o = DT_BF16,
          .window = 600 },
        /* a soft cap on the scores */
        { .t = 133, .seqs = 1, .len = { 133 }, .heads = 4, .kv = 1, .qk = 48, .v = 24,
          .scale = 0.2f, .cap = 1.5f, .window = 70, .flag = true },
        { .t = 24, .seqs = 3, .len = { 1, 22, 1 }, .past = { 99, 100, 0 }, .heads = 4, .kv = 2,
          .qk = 64, .v = 64, .scale = 0.2f, .cap = 3, .page = 16, .w = DT_BF16, .x = DT_BF16,
          .o = DT_BF16, .n = 64 },
    }
};
/* clang-format on */
