/* Stored numbers as f32: one row a plain dtype, blocks for the quantised ones. */
#include "format/weights.h"

#include "tensor/quants.h"
#include "tensor/bf16.h"
#include "tensor/nf4.h"

#include <math.h>
#include <string.h>

int64_t weights_elements(const weight *w)
{
    int64_t n = 1;
    for (int32_t i = 0; i < w->nd; i++)
        n *= w->ne[i];
    return n;
}

typedef void (*decode_fn)(float *out, const void *bits, int64_t n);

static void decode_f32(float *out, const void *bits, int64_t n)
{
    if (n)
        memcpy(out, bits, (size_t)n * sizeof *out);
}

/* The bytes may be at any address, hence the copy. */
#define DECODE(name, type)                                                                         \
    static void decode_##name(float *out, const void *bits, int64_t n)                             \
    {                                                                                              \
        for (int64_t i = 0; i < n; i++) {                                                          \
            type v;                                                                                \
            memcpy(&v, (const char *)bits + (size_t)i * sizeof v, sizeof v);                       \
            out[i] = (float)v;                                                                     \
        }                                                                                          \
    }
DECODE(f64, double)
DECODE(i8, int8_t)
DECODE(i16, int16_t)
DECODE(i32, int32_t)
DECODE(i64, int64_t)
DECODE(u8, uint8_t)
#undef DECODE

static const decode_fn plain[DT_COUNT] = {
    [DT_F32] = decode_f32, [DT_BF16] = bf16_decode, [DT_F16] = f16_decode, [DT_F64] = decode_f64,
    [DT_I8] = decode_i8,   [DT_I16] = decode_i16,   [DT_I32] = decode_i32, [DT_I64] = decode_i64,
    [DT_U8] = decode_u8,   [DT_BOOL] = decode_u8,
};

static float f32_at(const unsigned char *array, int64_t i)
{
    float x;
    memcpy(&x, array + (size_t)i * sizeof x, sizeof x);
    return x;
}

/* The scale of the i-th block of NF4_BLOCK elements. */
static pesc_status nf4_scale(const weight *w, int64_t i, float *out)
{
    const bnb_scales *s = w->scales;
    int64_t at = i / (s->block / NF4_BLOCK);
    float x;
    if (s->nested_absmax)
        x = s->nested_map[s->absmax[at]] * f32_at(s->nested_absmax, at / s->nested_block) +
            s->offset;
    else
        x = f32_at(s->absmax, at);
    if (!isfinite(x))
        return fail(PESC_FORMAT,
                    "%s: tensor %s: the absmax of block %lld is %f, expected a finite number",
                    w->file, w->name, (long long)at, (double)x);
    *out = x;
    return PESC_OK;
}

static pesc_status read_nf4(const weight *w, int64_t first, int64_t n, float *out)
{
    float scale = 0;
    for (int64_t i = first, end = first + n; i < end; i++) {
        if (i == first || i % NF4_BLOCK == 0)
            TRY(nf4_scale(w, i / NF4_BLOCK, &scale));
        unsigned char two = w->data[i / 2];
        *out++ = nf4_code[i % 2 ? two & 15 : two >> 4] * scale;
    }
    return PESC_OK;
}

static pesc_status fail_blocks(const weight *w)
{
    return fail(PESC_FORMAT, "%s: tensor %s: a %s block has a scale that is not finite", w->file,
                w->name, dtype_name(w->dt));
}

pesc_status weights_check_blocks(const weight *w)
{
    return quants_finite(w->dt, w->data, weights_elements(w)) ? PESC_OK : fail_blocks(w);
}

static pesc_status read_blocks(const weight *w, int64_t first, int64_t n, float *out)
{
    int64_t block = (int64_t)dtype_block(w->dt);
    size_t block_bytes = dtype_block_bytes(w->dt);
    float one[256];
    bool fine = true;
    while (n > 0) {
        const unsigned char *at = w->data + (size_t)(first / block) * block_bytes;
        int64_t skip = first % block, take = block - skip;
        if (skip == 0 && n >= block) {
            take = n - n % block;
            fine &= quants_dequantize(w->dt, at, take, out);
        } else {
            if (take > n)
                take = n;
            fine &= quants_dequantize(w->dt, at, block, one);
            memcpy(out, one + skip, (size_t)take * sizeof *out);
        }
        first += take;
        out += take;
        n -= take;
    }
    return fine ? PESC_OK : fail_blocks(w);
}

static pesc_status read_stored(const weight *w, int64_t first, int64_t n, float *out)
{
    if (w->dt == DT_NF4)
        return read_nf4(w, first, n, out);
    if (quants_is(w->dt))
        return read_blocks(w, first, n, out);
    plain[w->dt](out, w->data + (size_t)first * dtype_block_bytes(w->dt), n);
    return PESC_OK;
}

/* GGUF keeps the two halves of a head's rows interleaved: Hugging Face's row j * half + i of a head
 * is stored at row 2 * i + j. */
static int64_t stored_row(const weight *w, int64_t row)
{
    int64_t head_dim = w->ne[0] / w->unpermute_heads, half = head_dim / 2;
    int64_t head = row / head_dim, within = row % head_dim;
    return head * head_dim + within % half * 2 + within / half;
}

const unsigned char *weights_row(const weight *w, int64_t i)
{
    return w->data +
           (size_t)(w->unpermute_heads > 0 ? stored_row(w, i) : i) * (w->bytes / (size_t)w->ne[0]);
}

pesc_status weights_read_f32(const weight *w, int64_t first, int64_t n, float *out)
{
    int64_t total = weights_elements(w);
    ASSERT(first >= 0 && n >= 0 && first <= total && n <= total - first);
    if (w->read)
        return w->read(w, first, n, out);
    if (w->unpermute_heads <= 0 || n == 0)
        return n ? read_stored(w, first, n, out) : PESC_OK;
    int64_t cols = total / w->ne[0];
    while (n > 0) {
        int64_t col = first % cols, take = cols - col < n ? cols - col : n;
        TRY(read_stored(w, stored_row(w, first / cols) * cols + col, take, out));
        first += take;
        out += take;
        n -= take;
    }
    return PESC_OK;
}

pesc_status weights_read_nf4(const weight *w, void *span)
{
    ASSERT(w->dt == DT_NF4);
    int64_t n = weights_elements(w);
    size_t padded = nf4_codes_bytes(n);
    if (w->bytes)
        memcpy(span, w->data, w->bytes);
    memset((char *)span + w->bytes, 0, padded - w->bytes);
    float *scales = nf4_scales(span, n);
    for (int64_t i = 0; i < (n + NF4_BLOCK - 1) / NF4_BLOCK; i++)
        TRY(nf4_scale(w, i, &scales[i]));
    return PESC_OK;
}
