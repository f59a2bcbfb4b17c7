#include "support/products.h"

#include "tensor/quants.h"

#include <math.h>
#include <stdlib.h>

static float random_value(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (float)((int32_t)(*state >> 32)) / 2147483648.0f;
}

static float round_to_bf16(float x)
{
    /* The nearest multiple of the last place of eight significant bits, ties to even. */
    int exponent;
    float mantissa = frexpf(x, &exponent);
    return ldexpf(nearbyintf(mantissa * 256), exponent - 8);
}

static uint16_t bits_of_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)(u >> 16);
}

static const float code_value[16] = {
    -1.0f,
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
    1.0f,
};

static int64_t span_bytes(dtype dt, int64_t n)
{
    if (quants_is(dt))
        return n / (int64_t)dtype_block(dt) * (int64_t)dtype_block_bytes(dt);
    return dt == DT_F32    ? 4 * n
           : dt == DT_BF16 ? 2 * n
                           : (n / 2 + n % 2 + 3) / 4 * 4 + (n + 63) / 64 * 4;
}

/* Random bytes, but finite and small scales and minima, which stand at these places of a block;
 * MXFP4 has an exponent instead. */
static void fill_blocks(dtype dt, unsigned char *at, double *value, int64_t n, uint64_t *state)
{
    static const int halves[DT_COUNT][2] = {
        [DT_Q4_1] = { 0, 2 },     [DT_Q5_1] = { 0, 2 }, [DT_Q2_K] = { 80, 82 },
        [DT_Q3_K] = { 108, 108 }, [DT_Q4_K] = { 0, 2 }, [DT_Q5_K] = { 0, 2 },
        [DT_Q6_K] = { 208, 208 }
    };
    int64_t bytes = span_bytes(dt, n), each = (int64_t)dtype_block_bytes(dt);
    for (int64_t i = 0; i < bytes; i++)
        at[i] = (unsigned char)(int)(random_value(state) * 127);
    for (int64_t i = 0; i < bytes; i += each)
        for (int j = 0; j < 2; j++)
            at[i + halves[dt][j] + 1] = (unsigned char)((at[i + halves[dt][j] + 1] & 0x83) | 0x14);
    for (int64_t i = 0; dt == DT_MXFP4 && i < bytes; i += each)
        at[i] = (unsigned char)(120 + at[i] % 8);
    float *x = malloc((size_t)n * sizeof *x + 4);
    assert_non_null(x);
    assert_true(quants_dequantize(dt, at, n, x));
    for (int64_t i = 0; i < n; i++)
        value[i] = (double)x[i];
    free(x);
}

static void fill(dtype dt, unsigned char *at, double *value, int64_t n, uint64_t *state)
{
    unsigned char *scales = at + (n / 2 + n % 2 + 3) / 4 * 4;
    float scale = 0;
    if (quants_is(dt)) {
        fill_blocks(dt, at, value, n, state);
        return;
    }
    if (dt == DT_NF4)
        memset(at, 0, (size_t)span_bytes(dt, n));
    for (int64_t i = 0; i < n; i++) {
        float x = random_value(state);
        if (dt == DT_F32) {
            memcpy(at + 4 * i, &x, 4);
        } else if (dt == DT_BF16) {
            x = round_to_bf16(x);
            uint16_t h = bits_of_bf16(x);
            memcpy(at + 2 * i, &h, 2);
        } else {
            if (i % 64 == 0) {
                scale = 0.5f + fabsf(random_value(state));
                memcpy(scales + i / 64 * 4, &scale, 4);
            }
            int code = (int)((x + 1) * 8) & 15;
            at[i / 2] = (unsigned char)(at[i / 2] | code << (i % 2 ? 0 : 4));
            x = code_value[code] * scale;
        }
        value[i] = (double)x;
    }
}

matrix matrix_stack(dtype dt, int64_t n, int64_t rows, int64_t cols, uint64_t seed)
{
    /* One byte off: weights of a mapped file lie at any address. NF4 spans are made by pesc. */
    int64_t each = rows * cols, bytes = span_bytes(dt, each), shift = dt == DT_NF4 ? 0 : 1;
    matrix m = { .span = malloc((size_t)(n * bytes) + 64),
                 .value = malloc((size_t)(n * each) * sizeof(double) + 8) };
    assert_non_null(m.span);
    assert_non_null(m.value);
    m.t = (tensor){ .data = (char *)m.span + shift, .dt = dt, .nd = 3, .ne = { n, rows, cols } };
    uint64_t state = seed * 2654435761u + 1;
    for (int64_t i = 0; i < n; i++)
        fill(dt, (unsigned char *)m.t.data + i * bytes, m.value + i * each, each, &state);
    return m;
}

matrix matrix_new(dtype dt, int64_t rows, int64_t cols, uint64_t seed)
{
    matrix m = matrix_stack(dt, 1, rows, cols, seed);
    m.t.nd = 2;
    m.t.ne[0] = rows;
    m.t.ne[1] = cols;
    return m;
}

void matrix_double(matrix *m, int times)
{
    for (int64_t i = 0; i < tensor_count(&m->t); i++) {
        float x = ldexpf((float)m->value[i], times);
        uint16_t h = bits_of_bf16(x);
        m->value[i] = (double)x;
        if (m->t.dt == DT_F32)
            memcpy((char *)m->t.data + 4 * i, &x, 4);
        else
            memcpy((char *)m->t.data + 2 * i, &h, 2);
    }
}

void matrix_free(matrix *m)
{
    free(m->span);
    free(m->value);
}

double matrix_get(const tensor *t, int64_t i)
{
    float f;
    uint32_t u = 0;
    if (t->dt == DT_F32) {
        memcpy(&f, (const char *)t->data + 4 * i, 4);
    } else {
        memcpy((char *)&u + 2, (const char *)t->data + 2 * i, 2);
        memcpy(&f, &u, 4);
    }
    return (double)f;
}

static int64_t oracle_depth(const oracle *o)
{
    return o->layout == MM_NT ? o->b_cols : o->layout == MM_NN ? o->b_rows : o->n;
}

int64_t oracle_rows(const oracle *o)
{
    return o->layout == MM_TN ? o->a->t.ne[1] : o->n;
}

int64_t oracle_cols(const oracle *o)
{
    return o->layout == MM_NT ? o->b_rows : o->b_cols;
}

void oracle_run(const oracle *o, double *sum, double *magnitude)
{
    int64_t rows = oracle_rows(o), cols = oracle_cols(o), depth = oracle_depth(o);
    int64_t width = o->a->t.ne[1];
    bool narrow = o->a->t.dt == DT_BF16; /* weights are rounded to what activations are */
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double s = 0, m = 0;
            for (int64_t k = 0; k < depth; k++) {
                int64_t ai =
                    o->layout == MM_TN ? (o->first + k) * width + i : (o->first + i) * width + k;
                int64_t bi = o->b_at + (o->layout == MM_NT ? j * o->b_cols + k : k * o->b_cols + j);
                double b = o->b->value[bi];
                if (narrow)
                    b = (double)round_to_bf16((float)b);
                s += o->a->value[ai] * b;
                m += fabs(o->a->value[ai] * b);
            }
            sum[i * cols + j] = s;
            magnitude[i * cols + j] = m;
        }
}

double oracle_error(int64_t k, double magnitude, double result, dtype out)
{
    /* Blocks of at most 1024 terms are summed on their own, or 32 terms at a time. */
    int64_t in_a_row = 1024 + k / 32;
    double sums = (double)((k < in_a_row ? k : in_a_row) + 4) * 0x1p-24 * magnitude +
                  0x1p-23 * fabs(result) + 1e-37;
    return out == DT_BF16 ? sums * 1.01 + 0x1p-8 * fabs(result) : sums;
}
