#include "format/fp8.h"

#include "base/mem.h"
#include "base/str.h"
#include "tensor/bf16.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char weight_tail[] = ".weight", scale_tail[] = "_scale_inv";

/* ---- one byte a number ---- */

static float e4m3(unsigned char code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    float x =
        exponent ? ldexpf(8.0F + (float)fraction, exponent - 10) : ldexpf((float)fraction, -9);
    if ((code & 0x7F) == 0x7F)
        x = NAN;
    return code & 0x80 ? -x : x;
}

pesc_status fp8_read_e4m3(const weight *w, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = e4m3(w->data[first + i]);
    return PESC_OK;
}

pesc_status fp8_read_e8m0(const weight *w, int64_t first, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = w->data[first + i] == 255 ? NAN : ldexpf(1, w->data[first + i] - 127);
    return PESC_OK;
}

/* ---- with scales ---- */

typedef struct scaled {
    weight codes, scales;
    int64_t rows, cols; /* of a block */
} scaled;

static int64_t blocks(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

/* A run of numbers that share a scale at a time. */
static pesc_status read_scaled(const weight *w, int64_t first, int64_t n, float *out)
{
    const scaled *s = w->parts;
    const int64_t cols = w->ne[1], across = blocks(cols, s->cols);
    while (n > 0) {
        int64_t i = first / cols, j = first % cols, end = (j / s->cols + 1) * s->cols;
        int64_t take = (end < cols ? end : cols) - j;
        float scale;
        take = take < n ? take : n;
        TRY(weights_read_f32(&s->scales, i / s->rows * across + j / s->cols, 1, &scale));
        TRY(fp8_read_e4m3(&s->codes, first, take, out));
        for (int64_t k = 0; k < take; k++)
            out[k] = bf16_to_f32(bf16_from_f32(out[k] * scale));
        first += take;
        out += take;
        n -= take;
    }
    return PESC_OK;
}

/* Rows and columns of a block, from quantization_config; 0: the file has one scale a matrix. */
static pesc_status block_size(const json_t *config, const char *file, int64_t out[2])
{
    const json_t *q = json_value(config, "quantization_config");
    const json_t *size = json_value(q, "weight_block_size");
    out[0] = out[1] = 0;
    if (!size)
        return PESC_OK;
    for (size_t i = 0; i < 2; i++) {
        out[i] = json_integer_value(json_array_get(size, i));
        if (json_array_size(size) != 2 || out[i] < 1 || out[i] > INT32_MAX)
            return fail(PESC_FORMAT,
                        "%s: quantization_config.weight_block_size: expected two numbers above 0, "
                        "rows and columns",
                        file);
    }
    return PESC_OK;
}

static bool fits(const weight *w, const weight *scale, scaled *s)
{
    if (weights_elements(scale) == 1) {
        s->rows = w->ne[0] > 0 ? w->ne[0] : 1;
        s->cols = w->ne[1] > 0 ? w->ne[1] : 1;
        return true;
    }
    return s->rows && scale->nd == 2 && scale->ne[0] == blocks(w->ne[0], s->rows) &&
           scale->ne[1] == blocks(w->ne[1], s->cols);
}

static pesc_status join(weights *ws, unsigned char *drop, size_t i, const int64_t block[2])
{
    weight *w = weights_edit(ws, i);
    char name[WEIGHTS_MAX_NAME + 16];
    snprintf(name, sizeof name, "%s%s", w->name, scale_tail);
    const weight *scale = weights_find(ws, name);
    if (!scale)
        return fail(PESC_FORMAT, "%s: tensor %s: is F8_E4M3, but there is no %s", w->file, w->name,
                    name);
    scaled *s = weights_take(ws, sizeof *s);
    if (!s)
        return fail_nomem(w->file, sizeof *s);
    *s = (scaled){ *w, *scale, block[0], block[1] };
    if (w->nd != 2 || !fits(w, scale, s))
        return fail(PESC_FORMAT,
                    "%s: tensor %s: expected a matrix, and in %s one scale or one for each block "
                    "of %lld x %lld (quantization_config.weight_block_size)",
                    w->file, w->name, name, (long long)block[0], (long long)block[1]);
    drop[scale - weights_at(ws, 0)] = 1;
    w->read = read_scaled;
    w->parts = s;
    return PESC_OK;
}

pesc_status fp8_group(weights *ws, const json_t *config, const char *file)
{
    size_t n = weights_count(ws), groups = 0;
    int64_t block[2];
    for (size_t i = 0; i < n; i++)
        groups += weights_at(ws, i)->read == fp8_read_e4m3;
    if (!groups)
        return PESC_OK;
    TRY(block_size(config, file, block));
    unsigned char *drop = mem_zalloc(n, 1);
    if (!drop)
        return fail_nomem("a table of weights", n);
    pesc_status s = PESC_OK;
    for (size_t i = 0; i < n && s == PESC_OK; i++) {
        const weight *w = weights_at(ws, i);
        if (w->read == fp8_read_e4m3 && str_ends(w->name, weight_tail))
            s = join(ws, drop, i, block);
        drop[i] |= str_ends(w->name, ".activation_scale") || str_ends(w->name, ".input_scale");
    }
    if (s == PESC_OK)
        weights_drop(ws, drop);
    mem_free(drop);
    return s;
}
