/* cases_linear: products. t rows, I = c inputs, O = n outputs. k: inner dimension of a second pair;
 * e: a, b and out are the first columns of matrices that are e columns wider. */
#include "ops/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OUT, A, B, BIAS, OFFSETS, A2 = 4, B2 };

static const float nf4_values[16] = { -1.0f,
                                      -0.6961928009986877f,
                                      -0.5250730514526367f,
                                      -0.39491748809814453f,
                                      -0.28444138169288635f,
                                      -0.18477343022823334f,
                                      -0.09105003625154495f,
                                      0.0f,
                                      0.07958029955625534f,
                                      0.16093020141124725f,
                                      0.24611230194568634f,
                                      0.33791524171829224f,
                                      0.44070982933044434f,
                                      0.5626170039176941f,
                                      0.7229568362236023f,
                                      1.0f };

i64 nf4_bytes(i64 n)
{
    return ((n + 1) / 2 + 3) / 4 * 4 + (n + 63) / 64 * 4;
}

/* With bf16 activations the weights are rounded to bf16 too. */
static double round_bf16(double value)
{
    float x = (float)value;
    uint32_t u;
    memcpy(&u, &x, 4);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&x, &u, 4);
    return x;
}

void decode_nf4(double *out, const double *bytes, i64 n, bool rounded)
{
    for (i64 i = 0; i < n; i++) {
        unsigned char raw[4];
        float scale;
        for (int b = 0; b < 4; b++)
            raw[b] = (unsigned char)bytes[((n + 1) / 2 + 3) / 4 * 4 + i / 64 * 4 + b];
        memcpy(&scale, raw, 4);
        int byte = (int)bytes[i / 2];
        out[i] = (double)(nf4_values[i % 2 ? byte & 15 : byte >> 4] * scale);
        if (rounded)
            out[i] = round_bf16(out[i]);
    }
}

static int matmul_slots(const params *p, slot *s)
{
    bool nf4 = p->w == DT_NF4, inner = p->layout == MM_NT;
    i64 rows = p->layout == MM_TN ? p->n : p->t, cols = inner ? p->n : p->c;
    s[OUT] = (slot){ "out", p->flag ? SLOT_INOUT : SLOT_OUT, p->o, .ne = { rows, cols } };
    s[A] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->layout == MM_NT ? p->c : p->n } };
    s[B] = p->layout == MM_TN ? (slot){ "b", SLOT_IN, p->w, .ne = { p->t, p->c } }
           : nf4 ? (slot){ "b", SLOT_IN, DT_U8, .ne = { nf4_bytes(p->n * p->c) }, FILL_INDEX, 256 }
                 : (slot){ "b", SLOT_IN, p->w, .ne = { p->n, p->c } };
    s[BIAS] = (slot){ "bias", SLOT_IN, p->x, .ne = { p->bias ? p->n : 0 } };
    bool first_t = p->layout == MM_TN;
    i64 second = inner ? p->n : p->c;
    s[A2] = (slot){ "a2", SLOT_IN, p->x, .ne = { first_t ? p->k : rows, first_t ? rows : p->k } };
    s[B2] = (slot){ "b2", SLOT_IN, p->x, .ne = { inner ? second : p->k, inner ? p->k : second } };
    for (int i = 0; i < 3 && p->e; i++)
        s[i].ne[1] += nf4 && i == B ? 0 : p->e;
    if (p->e)
        s[OUT].role = SLOT_INOUT;
    if (!p->k)
        s[A2].ne[0] = s[B2].ne[0] = 0;
    return 6;
}

void set_nf4_scales(double *bytes, i64 n, float factor)
{
    for (i64 block = 0; block < (n + 63) / 64; block++) {
        float scale = (0.25f + (float)(block % 7) * 0.125f) * factor;
        unsigned char raw[4];
        memcpy(raw, &scale, 4);
        for (int b = 0; b < 4; b++)
            bytes[((n + 1) / 2 + 3) / 4 * 4 + block * 4 + b] = raw[b];
    }
}

static void nf4_arrange(const params *p, double **x, i64 matrices)
{
    i64 n = p->n * p->c;
    for (i64 m = 0; m < matrices && p->w == DT_NF4; m++)
        set_nf4_scales(x[B] + m * nf4_bytes(n), n, 1);
}

/* A second pair contributes little, as LoRA does: a device may round it before the rest is added.
 */
static void matmul_arrange(const params *p, double **x)
{
    nf4_arrange(p, x, 1);
    for (i64 i = 0; i < p->k * (p->layout == MM_TN ? p->n : p->t); i++)
        x[A2][i] /= 64;
}

static tensor first_columns(const params *p, tensor t)
{
    t.ne[1] -= p->e;
    return t;
}

static void matmul_call(device *d, const params *p, const tensor *t)
{
    mm_pair second = { .a = t[A2], .b = t[B2] };
    mm a = { .layout = (mm_layout)p->layout,
             .out = first_columns(p, t[OUT]),
             .a = first_columns(p, t[A]),
             .b = first_columns(p, t[B]),
             .out_ld = p->e ? t[OUT].ne[1] : 0,
             .a_ld = p->e ? t[A].ne[1] : 0,
             .b_ld = p->e ? t[B].ne[1] : 0,
             .more = &second,
             .n_more = p->k > 0,
             .bias = t[BIAS],
             .scale = p->scale,
             .accumulate = p->flag,
             .fp8_terms = (int)p->fp8 };
    if (p->w == DT_NF4) {
        a.b = (tensor){ t[B].data, DT_NF4, 2, { p->n, p->c } };
        a.b_ld = 0;
    }
    d->op->matmul(d, &a);
}

/* A copy of x without its last `extra` columns; freed by the caller. */
static double *without(const double *x, i64 rows, i64 cols, i64 extra)
{
    double *out = malloc((size_t)(rows * cols) * sizeof *out);
    for (i64 i = 0; i < rows * cols; i++)
        out[i] = x[i / cols * (cols + extra) + i % cols];
    return out;
}

static void product(const params *p, double *out, const double *a, const double *b, i64 rows)
{
    const oracle_matrices layouts[] = {
        [MM_NT] = { out, a, b, rows, p->n, p->c, .b_transposed = true },
        [MM_NN] = { out, a, b, rows, p->c, p->n },
        [MM_TN] = { out, a, b, p->n, p->c, rows, .a_transposed = true },
    };
    oracle_product(&layouts[p->layout]);
}

static void matmul_oracle(const params *p, double **x)
{
    bool inner = p->layout == MM_NT;
    i64 rows = p->layout == MM_TN ? p->n : p->t, cols = inner ? p->n : p->c;
    bool first_t = p->layout == MM_TN;
    i64 a_cols = inner ? p->c : p->n;
    double *sum = malloc((size_t)(rows * cols) * sizeof *sum), *b;
    double *more = calloc((size_t)(rows * cols), sizeof *more);
    double *a = without(x[A], p->t, a_cols, p->e);
    if (p->w == DT_NF4) {
        b = malloc((size_t)(p->n * p->c) * sizeof *b);
        decode_nf4(b, x[B], p->n * p->c, p->x == DT_BF16);
    } else {
        i64 b_rows = p->layout == MM_TN ? p->t : p->n;
        b = without(x[B], b_rows, p->c, p->e);
        for (i64 i = 0; p->x == DT_BF16 && i < b_rows * p->c; i++)
            b[i] = round_bf16(b[i]); /* of f32 weights */
    }
    product(p, sum, a, b, p->t);
    if (p->k)
        oracle_product(&(oracle_matrices){ more, x[A2], x[B2], rows, cols, p->k, first_t, inner });
    for (i64 i = 0; i < rows * cols; i++) {
        double *out = &x[OUT][i / cols * (cols + p->e) + i % cols];
        *out = (p->flag ? *out : 0) + p->scale * (sum[i] + more[i]) +
               (p->bias ? x[BIAS][i % cols] : 0);
    }
    free(a);
    free(b);
    free(sum);
    free(more);
}

/* clang-format off */
const op_test test_matmul = {
    "matmul", matmul_slots, matmul_arrange, matmul_call, matmul_oracle, 2e-5,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .scale = 1 },
        { .t = 1, .c = 100, .n = 77, .scale = 1, .bias = true },
        { .t = 33, .c = 65, .n = 31, .scale = 0.5f, .flag = true },
        { .t = 33, .c = 65, .n = 31, .scale = 1, .layout = MM_NN },
        { .t = 33, .c = 65, .n = 31, .scale = 1, .layout = MM_TN, .flag = true },
        { .t = 1, .c = 100, .n = 77, .scale = 1, .x = DT_BF16, .w = DT_BF16, .o = DT_BF16,
          .bias = true },
        { .t = 50, .c = 128, .n = 96, .scale = 1, .x = DT_BF16, .w = DT_BF16 },
        { .t = 50, .c = 33, .n = 17, .scale = 1, .x = DT_BF16, .w = DT_BF16, .layout = MM_NN,
          .flag = true },
        { .t = 50, .c = 33, .n = 17, .scale = 2, .x = DT_BF16, .w = DT_BF16, .layout = MM_TN,
          .flag = true },
        { .t = 20, .c = 64, .n = 40, .scale = 1, .w = DT_BF16 },
        { .t = 1, .c = 64, .n = 40, .scale = 1, .w = DT_NF4 },
        { .t = 20, .c = 70, .n = 41, .scale = 1, .w = DT_NF4 },
        { .t = 20, .c = 70, .n = 41, .scale = 1, .w = DT_NF4, .layout = MM_NN },
        { .t = 1, .c = 256, .n = 64, .scale = 1, .x = DT_BF16, .w = DT_NF4 },
        { .t = 20, .c = 128, .n = 64, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 8, .c = 192, .n = 50, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .flag = true },
        { .t = 3, .c = 320, .n = 50, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .flag = true,
          .bias = true },
        { .t = 50, .c = 704, .n = 300, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .flag = true, .bias = true },
        { .t = 5, .c = 1160, .n = 33, .scale = 0.5f, .x = DT_BF16, .w = DT_BF16, .flag = true,
          .bias = true },
        { .t = 301, .c = 516, .n = 8, .scale = 1 },
        { .t = 301, .c = 516, .n = 5, .scale = 0.5f, .layout = MM_NN, .flag = true },
        { .t = 301, .c = 516, .n = 8, .scale = 1, .o = DT_BF16, .layout = MM_NN, .flag = true },
        { .t = 301, .c = 516, .n = 13, .scale = 1, .layout = MM_TN, .flag = true },
        { .t = 1, .c = 33, .n = 19, .scale = 1, .layout = MM_NN },
        { .t = 1, .c = 33, .n = 19, .scale = 1, .layout = MM_TN, .x = DT_BF16, .w = DT_BF16 },
        { .t = 9, .c = 37, .n = 1030, .scale = 1, .x = DT_BF16, .w = DT_NF4, .layout = MM_NN,
          .flag = true },
        { .t = 20, .c = 65, .n = 41, .scale = 1, .x = DT_BF16, .o = DT_BF16 },
        { .t = 2, .c = 600, .n = 41, .scale = 1, .x = DT_BF16, .layout = MM_NN },
        { .t = 5, .c = 768, .n = 301, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .flag = true, .bias = true },
        { .t = 8, .c = 4352, .n = 50, .scale = 1, .x = DT_BF16, .w = DT_NF4 },
    }
};
/* Many rows of NF4: where the choice of kernel, and of tokens a block has, changes. */
const op_test test_matmul_nf4 = {
    "matmul_nf4", matmul_slots, matmul_arrange, matmul_call, matmul_oracle, 2e-5,
    .cases = {
        { .t = 1, .c = 33, .n = 19, .scale = 1 },
        { .t = 33, .c = 128, .n = 64, .scale = 1, .x = DT_BF16, .w = DT_NF4 },
        { .t = 50, .c = 896, .n = 300, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .flag = true, .bias = true },
        { .t = 64, .c = 2176, .n = 520, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 60, .c = 256, .n = 388, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 40, .c = 12288, .n = 68, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 37, .c = 10880, .n = 50, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .flag = true },
        { .t = 65, .c = 2176, .n = 520, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 96, .c = 896, .n = 300, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .flag = true, .bias = true },
        { .t = 97, .c = 256, .n = 388, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 127, .c = 5504, .n = 50, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .flag = true },
        { .t = 128, .c = 2176, .n = 520, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 129, .c = 896, .n = 300, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .flag = true, .bias = true },
        { .t = 192, .c = 384, .n = 520, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 193, .c = 128, .n = 197, .scale = 1, .x = DT_BF16, .w = DT_NF4 },
        { .t = 256, .c = 256, .n = 388, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 257, .c = 256, .n = 388, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
    }
};
/* Sums of two products, and columns of wider matrices. */
const op_test test_matmul_sum = {
    "matmul_sum", matmul_slots, matmul_arrange, matmul_call, matmul_oracle, 2e-5,
    .bf16_tolerance = 2e-2, /* the first product may be rounded before the second is added */
    .cases = {
        { .t = 33, .c = 65, .n = 31, .k = 7, .e = 3, .scale = 0.5f, .bias = true },
        { .t = 33, .c = 65, .n = 31, .k = 7, .e = 3, .scale = 0.5f, .layout = MM_TN, .flag = true },
        { .t = 33, .c = 31, .n = 65, .k = 7, .scale = 1, .layout = MM_TN },
        { .t = 1050, .c = 24, .n = 3000, .k = 16, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16 },
        { .t = 1050, .c = 3000, .n = 24, .k = 8, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .layout = MM_NN, .flag = true },
        { .t = 1050, .c = 72, .n = 3000, .k = 16, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .o = DT_BF16 },
        { .t = 1050, .c = 3000, .n = 24, .k = 72, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .o = DT_BF16, .layout = MM_NN },
        { .t = 1, .c = 70, .n = 51, .k = 3, .scale = 1 },
        { .t = 4, .c = 576, .n = 51, .k = 16, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16,
          .bias = true },
    }
};
/* clang-format on */

/* Values that e4m3 holds: a device that rounds to fp8 gives the same products as one that does not.
 * Rows and weights have different largest magnitudes, hence different scales. */
static void fp8_arrange(const params *p, double **x)
{
    matmul_arrange(p, x);
    for (i64 i = 0; i < p->t * p->n; i++)
        x[A][i] = fmod(rint(x[A][i] * 2), 8) / (double)(2 << i / p->n % 5);
    for (i64 i = 0; p->w != DT_NF4 && i < p->n * p->c; i++)
        x[B][i] = fmod(rint(x[B][i] * 2), 8) / 64;
    for (i64 i = 0; i < p->t * p->k; i++)
        x[A2][i] = fmod(rint(x[A2][i] * 128), 8) / 64;
    for (i64 i = 0; i < p->k * p->c; i++)
        x[B2][i] = fmod(rint(x[B2][i] * 2), 8) / 16;
}

/* clang-format off */
const op_test test_matmul_fp8 = {
    "matmul_fp8", matmul_slots, fp8_arrange, matmul_call, matmul_oracle, 2e-5,
    .bf16_tolerance = 2e-2,
    .cases = {
        { .t = 1, .c = 33, .n = 19, .fp8 = 1, .scale = 1, .layout = MM_NN },
        { .t = 300, .c = 320, .n = 272, .fp8 = 1, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .layout = MM_NN },
        { .t = 1050, .c = 704, .n = 1040, .k = 72, .fp8 = 1, .scale = 1, .x = DT_BF16,
          .w = DT_BF16, .o = DT_BF16, .layout = MM_NN, .flag = true },
        { .t = 257, .c = 64, .n = 16, .k = 144, .fp8 = 2, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .layout = MM_NN },
        { .t = 300, .c = 72, .n = 24, .k = 8, .fp8 = 2, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .layout = MM_NN },
    }
};
/* The values of NF4 are none of e4m3: products of 256 numbers below 1 differ by up to some 0.3. */
const op_test test_matmul_fp8_nf4 = {
    "matmul_fp8_nf4", matmul_slots, fp8_arrange, matmul_call, matmul_oracle, 2e-5,
    .bf16_tolerance = 0.5,
    .cases = {
        { .t = 1, .c = 33, .n = 19, .fp8 = 1, .scale = 1, .layout = MM_NN },
        { .t = 300, .c = 320, .n = 272, .fp8 = 1, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .o = DT_BF16, .layout = MM_NN },
        { .t = 700, .c = 192, .n = 400, .k = 64, .fp8 = 1, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .o = DT_BF16, .layout = MM_NN, .flag = true },
    }
};
/* clang-format on */

/* ---- matmuls: two products of one input, of n and of n + 3 outputs; each with a term of rank k,
 * whose activations are columns of one matrix, as LoRA's are ---- */

enum { MANY_OUT, MANY_OUT2, MANY_A, MANY_B, MANY_B2, MANY_LOW, MANY_LORA, MANY_LORA2 };

static int matmuls_slots(const params *p, slot *s)
{
    for (int i = 0; i < 2; i++) {
        i64 n = p->n + 3 * i;
        s[MANY_OUT + i] = (slot){ "out", SLOT_OUT, p->o, .ne = { p->t, n } };
        s[MANY_B + i] =
            p->w == DT_NF4
                ? (slot){ "b", SLOT_IN, DT_U8, .ne = { nf4_bytes(n * p->c) }, FILL_INDEX, 256 }
                : (slot){ "b", SLOT_IN, p->w, .ne = { n, p->c } };
        s[MANY_LORA + i] = (slot){ "lora", SLOT_IN, p->x, .ne = { p->k ? n : 0, p->k } };
    }
    s[MANY_A] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->c } };
    s[MANY_LOW] = (slot){ "low", SLOT_IN, p->x, .ne = { p->k ? p->t : 0, 2 * p->k } };
    return 8;
}

static void matmuls_arrange(const params *p, double **x)
{
    for (int i = 0; i < 2 && p->w == DT_NF4; i++)
        set_nf4_scales(x[MANY_B + i], (p->n + 3 * i) * p->c, 1);
    for (i64 i = 0; i < p->t * 2 * p->k; i++)
        x[MANY_LOW][i] /= 4; /* terms as large as the products */
}

static void matmuls_call(device *d, const params *p, const tensor *t)
{
    mm a[2];
    mm_pair more[2];
    for (int i = 0; i < 2; i++) {
        more[i] = (mm_pair){ .a = t[MANY_LOW], .b = t[MANY_LORA + i], .a_ld = 2 * p->k };
        more[i].a.data = (char *)more[i].a.data + (size_t)(i * p->k) * dtype_block_bytes(p->x);
        more[i].a.ne[1] = p->k;
        a[i] = (mm){ .out = t[MANY_OUT + i],
                     .a = t[MANY_A],
                     .b = t[MANY_B + i],
                     .more = &more[i],
                     .n_more = p->k > 0,
                     .scale = p->scale };
        if (p->w == DT_NF4)
            a[i].b = (tensor){ t[MANY_B + i].data, DT_NF4, 2, { p->n + 3 * i, p->c } };
    }
    d->op->matmuls(d, a, 2);
}

/* Adds the term of rank k. */
static void add_low_rank(const params *p, double **x, int which)
{
    i64 n = p->n + 3 * which;
    for (i64 j = 0; j < p->t * n; j++)
        for (i64 r = 0; r < p->k; r++)
            x[MANY_OUT + which][j] += x[MANY_LOW][j / n * 2 * p->k + which * p->k + r] *
                                      x[MANY_LORA + which][j % n * p->k + r];
}

static void matmuls_oracle(const params *p, double **x)
{
    for (int i = 0; i < 2; i++) {
        i64 n = p->n + 3 * i;
        double *b = malloc((size_t)(n * p->c) * sizeof *b);
        if (p->w == DT_NF4)
            decode_nf4(b, x[MANY_B + i], n * p->c, p->x == DT_BF16);
        else
            memcpy(b, x[MANY_B + i], (size_t)(n * p->c) * sizeof *b);
        oracle_product(&(oracle_matrices){ x[MANY_OUT + i], x[MANY_A], b, p->t, n, p->c,
                                           .b_transposed = true });
        add_low_rank(p, x, i);
        for (i64 j = 0; j < p->t * n; j++)
            x[MANY_OUT + i][j] *= p->scale;
        free(b);
    }
}

/* clang-format off */
const op_test test_matmuls = {
    "matmuls", matmuls_slots, matmuls_arrange, matmuls_call, matmuls_oracle, 2e-5,
    .bf16_tolerance = 5e-2, /* as for matmul, with larger terms */
    .cases = {
        { .t = 1, .c = 65, .n = 31, .scale = 1 },
        { .t = 33, .c = 65, .n = 31, .scale = 0.5f },
        { .t = 3, .c = 65, .n = 31, .k = 5, .scale = 0.5f },
        { .t = 1, .c = 576, .n = 192, .scale = 1, .x = DT_BF16, .w = DT_BF16, .o = DT_BF16 },
        { .t = 70, .c = 128, .n = 96, .scale = 1, .x = DT_BF16, .w = DT_BF16, .o = DT_BF16 },
        { .t = 1, .c = 256, .n = 93, .k = 64, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 7, .c = 256, .n = 93, .k = 8, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 9, .c = 256, .n = 77, .k = 136, .scale = 0.5f, .x = DT_BF16, .w = DT_BF16, .o = DT_BF16 },
        { .t = 31, .c = 256, .n = 61, .k = 16, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_F32 },
        { .t = 64, .c = 256, .n = 128, .k = 40, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 65, .c = 256, .n = 61, .k = 16, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 65, .c = 640, .n = 260, .scale = 1, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 128, .c = 256, .n = 384, .scale = 0.5f, .x = DT_BF16, .w = DT_NF4, .o = DT_BF16 },
        { .t = 129, .c = 256, .n = 189, .scale = 1, .x = DT_BF16, .w = DT_NF4 },
    }
};
/* clang-format on */

/* ---- grouped: t rows over e experts; after: dW overwrites instead of accumulating ---- */

static int grouped_slots(const params *p, slot *s)
{
    i64 in = p->layout == MM_NT ? p->c : p->n, out = p->layout == MM_NT ? p->n : p->c;
    if (p->layout == MM_TN) {
        slot_role role = p->after ? SLOT_OUT : SLOT_INOUT;
        s[OUT] = (slot){ "out", role, p->o, .ne = { p->e, p->n, p->c } };
        s[A] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, p->n } };
        s[B] = (slot){ "b", SLOT_IN, p->w, .ne = { p->t, p->c } };
    } else {
        slot_role role = p->flag ? SLOT_INOUT : SLOT_OUT;
        s[OUT] = (slot){ "out", role, p->o, .ne = { p->t, out } };
        s[A] = (slot){ "a", SLOT_IN, p->x, .ne = { p->t, in } };
        s[B] = p->w == DT_NF4
                   ? (slot){ "b",        SLOT_IN, DT_U8, .ne = { p->e, nf4_bytes(p->n * p->c) },
                             FILL_INDEX, 256 }
                   : (slot){ "b", SLOT_IN, p->w, .ne = { p->e, p->n, p->c } };
    }
    s[BIAS] = (slot){ "none", SLOT_IN, DT_F32, .ne = { 0 } };
    s[OFFSETS] = (slot){ "offsets", SLOT_IN, DT_I32, .ne = { p->e + 1 }, FILL_INDEX, 1 };
    return 5;
}

/* Uneven shares; expert 1 gets no rows. flag: the experts are a slice of more, so that rows before
 * the first and after the last belong to others. */
static void grouped_arrange(const params *p, double **x)
{
    i64 before = p->flag ? p->t / 4 : 0, rows = p->flag ? p->t / 2 : p->t;
    for (i64 e = 0; e <= p->e; e++)
        x[OFFSETS][e] = (double)(before + (e == p->e ? rows : rows * e * e / (p->e * p->e)));
    if (p->e > 2)
        x[OFFSETS][1] = x[OFFSETS][2];
    nf4_arrange(p, x, p->e);
}

static void grouped_call(device *d, const params *p, const tensor *t)
{
    grouped_mm a = { .layout = (mm_layout)p->layout,
                     .out = t[OUT],
                     .a = t[A],
                     .b = t[B],
                     .offsets = t[OFFSETS],
                     .scale = p->scale,
                     .fresh = p->after };
    if (p->w == DT_NF4)
        a.b = (tensor){ t[B].data, DT_NF4, 3, { p->e, p->n, p->c } };
    d->op->grouped_matmul(d, &a);
}

static void grouped_oracle(const params *p, double **x)
{
    i64 in = p->layout == MM_NT ? p->c : p->n, out = p->layout == MM_NT ? p->n : p->c;
    i64 most = p->t * out > p->n * p->c ? p->t * out : p->n * p->c;
    double *sum = malloc((size_t)most * sizeof *sum);
    double *b = malloc((size_t)(p->n * p->c) * sizeof *b);
    for (i64 e = 0; e < p->e; e++) {
        i64 first = (i64)x[OFFSETS][e], rows = (i64)x[OFFSETS][e + 1] - first;
        if (p->layout == MM_TN) {
            product(p, sum, x[A] + first * p->n, x[B] + first * p->c, rows);
            for (i64 i = 0; i < p->n * p->c; i++)
                x[OUT][e * p->n * p->c + i] =
                    p->scale * sum[i] + (p->after ? 0 : x[OUT][e * p->n * p->c + i]);
            continue;
        }
        if (p->w == DT_NF4)
            decode_nf4(b, x[B] + e * nf4_bytes(p->n * p->c), p->n * p->c, p->x == DT_BF16);
        else
            memcpy(b, x[B] + e * p->n * p->c, (size_t)(p->n * p->c) * sizeof *b);
        for (i64 i = 0; p->x == DT_BF16 && p->w == DT_F32 && i < p->n * p->c; i++)
            b[i] = round_bf16(b[i]);
        product(p, sum, x[A] + first * in, b, rows);
        for (i64 i = 0; i < rows * out; i++)
            x[OUT][first * out + i] = p->scale * sum[i];
    }
    free(sum);
    free(b);
}

/* clang-format off */
const op_test test_grouped_matmul = {
    "grouped_matmul", grouped_slots, grouped_arrange, grouped_call, grouped_oracle, 2e-5,
    .cases = {
        { .t = 1, .c = 1, .n = 1, .e = 1, .scale = 1 },
        { .t = 40, .c = 65, .n = 33, .e = 5, .scale = 0.5f },
        { .t = 40, .c = 65, .n = 33, .e = 5, .scale = 1, .layout = MM_NN },
        { .t = 40, .c = 65, .n = 33, .e = 5, .scale = 1, .layout = MM_TN },
        { .t = 100, .c = 64, .n = 32, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16 },
        { .t = 100, .c = 64, .n = 32, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .layout = MM_NN },
        { .t = 100, .c = 64, .n = 32, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .layout = MM_TN },
        { .t = 40, .c = 65, .n = 33, .e = 3, .scale = 1, .layout = MM_TN, .flag = true },
        { .t = 100, .c = 64, .n = 32, .e = 1, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .layout = MM_TN, .flag = true },
        { .t = 2, .c = 64, .n = 32, .e = 64, .scale = 1, .x = DT_BF16, .w = DT_BF16 },
        { .t = 100, .c = 64, .n = 32, .e = 8, .scale = 1, .x = DT_BF16, .o = DT_BF16 },
        { .t = 100, .c = 65, .n = 33, .e = 8, .scale = 1, .x = DT_BF16, .layout = MM_NN },
        { .t = 30, .c = 70, .n = 31, .e = 4, .scale = 1, .w = DT_NF4 },
        { .t = 30, .c = 128, .n = 64, .e = 4, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .layout = MM_NN },
        { .t = 40, .c = 65, .n = 33, .e = 5, .scale = 1, .layout = MM_TN, .after = true },
        { .t = 100, .c = 64, .n = 32, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .layout = MM_TN, .after = true },
        { .t = 1, .c = 65, .n = 33, .e = 8, .scale = 1, .x = DT_BF16, .w = DT_BF16 },
        { .t = 1, .c = 65, .n = 33, .e = 8, .scale = 1, .layout = MM_TN, .after = true },
        { .t = 30, .c = 70, .n = 31, .e = 4, .scale = 1, .w = DT_NF4, .layout = MM_NN },
        { .t = 30, .c = 192, .n = 33, .e = 4, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .o = DT_BF16 },
        { .t = 40, .c = 65, .n = 33, .e = 5, .scale = 1, .w = DT_BF16 },
        { .t = 40, .c = 65, .n = 33, .e = 3, .scale = 1, .flag = true },
        { .t = 300, .c = 64, .n = 32, .e = 3, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .flag = true },
        { .t = 8, .c = 64, .n = 32, .e = 3, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .o = DT_BF16, .flag = true },
        { .t = 12, .c = 192, .n = 33, .e = 4, .scale = 1, .x = DT_BF16, .w = DT_NF4,
          .flag = true },
        { .t = 100, .c = 64, .n = 32, .e = 3, .scale = 1, .x = DT_BF16, .w = DT_BF16,
          .layout = MM_NN, .flag = true },
    }
};
/* clang-format on */
