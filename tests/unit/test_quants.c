#include "tensor/quants.h"
#include "support/check.h"

#include <math.h>

/* Three blocks of fixed bytes with the f16 scales 0.0123, -3.5 and 2^-24 (and the minima -1.7,
 * 2^-24 and 65504 where the format has one), and what the gguf package makes of them: a hash of all
 * values (FNV-1a over their bytes) and five of them. */
static const struct golden {
    dtype dt;
    int halves[2]; /* where the scale and the minimum stand in a block; -1: none */
    uint64_t hash;
    float values[5]; /* first, middle + 1, last, last of the second and of the third block */
} goldens[] = {
    { DT_Q4_0,
      { 0, -1 },
      0xe76bbd601d54e052u,
      { 0.0614929199f, -0.0860900879f, -0.036895752f, 17.5f, -4.76837158e-07f } },
    { DT_Q4_1,
      { 0, 2 },
      0xdddf9ee5f50648ccu,
      { -1.56491089f, -1.62640381f, -1.58950806f, -45.5f, 65504.0f } },
    { DT_Q5_0,
      { 0, -1 },
      0x9b051f10a6fac54du,
      { 0.110687256f, 0.135284424f, -0.012298584f, -24.5f, -5.96046448e-08f } },
    { DT_Q5_1,
      { 0, 2 },
      0xbbeaf7a56fadb2a2u,
      { -1.45422363f, -1.70019531f, -1.45422363f, -59.5f, 65504.0f } },
    { DT_Q8_0,
      { 0, -1 },
      0xe1e17e3f03baa793u,
      { 1.34054565f, -1.20526123f, -0.467346191f, -255.5f, -4.29153442e-06f } },
    { DT_Q2_K,
      { 80, 82 },
      0x4766f6c36c624edcu,
      { 1.88467407f, 10.2503662f, 0.0f, -70.0f, -851552.0f } },
    { DT_Q3_K,
      { 108, -1 },
      0x9208ac0d196231dbu,
      { -0.295166016f, -0.0737915039f, 0.0f, -73.5f, 3.21865082e-06f } },
    { DT_Q5_K,
      { 0, 2 },
      0x1648f4f26c743fa9u,
      { 82.2499084f, 35.8613281f, 30.5483398f, -1925.0f, -2227136.0f } },
    { DT_IQ4_NL,
      { 0, -1 },
      0xba2d7111c3a15a46u,
      { 0.848602295f, -1.27905273f, -0.430450439f, 227.5f, -7.56978989e-06f } },
    { DT_IQ4_XS,
      { 0, -1 },
      0xff4cf429d24ec758u,
      { 3.01315308f, 35.9241638f, 21.4364319f, -5313.0f, -1.16229057e-05f } },
    { DT_MXFP4,
      { -1, -1 },
      0xd0a67c42b4a6ff9bu,
      { 5.04870979e-29f, 5.04870979e-29f, -1.26217745e-29f, -2.13162821e-14f, 2.0f } },
    { DT_Q4_K,
      { 0, 2 },
      0x3fc5fb523e8f4c31u,
      { 67.7375793f, 29.1708984f, 29.7120361f, -798.0f, -2030624.0f } },
    { DT_Q6_K,
      { 208, -1 },
      0xb16c902b8f15a62fu,
      { 0.811706543f, -0.18447876f, 21.0305786f, -777.0f, 9.33408737e-05f } },
};
enum { BLOCKS = 3, MAX_BYTES = 210, MAX_BLOCK = 256, COUNT = sizeof goldens / sizeof *goldens };

static void fill(unsigned char *bytes, const struct golden *g)
{
    static const uint16_t halves[2][BLOCKS] = { { 0x224c, 0xc300, 0x0001 },
                                                { 0xbecd, 0x0001, 0x7bff } };
    size_t block_bytes = dtype_block_bytes(g->dt);
    for (size_t i = 0; i < BLOCKS * block_bytes; i++)
        bytes[i] = (unsigned char)(i * 167 + i / 7 * 13 + 31);
    for (int k = 0; k < 2 && g->halves[k] >= 0; k++)
        for (size_t b = 0; b < BLOCKS; b++)
            memcpy(bytes + b * block_bytes + g->halves[k], &halves[k][b], 2);
}

static uint64_t hash_of(const float *x, size_t n)
{
    const unsigned char *p = (const unsigned char *)x;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n * sizeof *x; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* One byte past an aligned address: blocks in a file lie anywhere. */
static void equals_the_gguf_package(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT; i++) {
        const struct golden *g = &goldens[i];
        unsigned char bytes[1 + BLOCKS * MAX_BYTES];
        float out[BLOCKS * MAX_BLOCK];
        size_t n = dtype_block(g->dt);
        fill(bytes + 1, g);
        assert_true(quants_dequantize(g->dt, bytes + 1, (int64_t)(BLOCKS * n), out));
        const size_t at[5] = { 0, n / 2 + 1, n - 1, 2 * n - 1, 3 * n - 1 };
        for (size_t k = 0; k < 5; k++)
            if (memcmp(&out[at[k]], &g->values[k], sizeof(float)) != 0)
                fail_msg("%s: element %zu is %.9g, expected %.9g", dtype_name(g->dt), at[k],
                         (double)out[at[k]], (double)g->values[k]);
        if (hash_of(out, BLOCKS * n) != g->hash)
            fail_msg("%s: the hash of the values is 0x%016llx", dtype_name(g->dt),
                     (unsigned long long)hash_of(out, BLOCKS * n));
    }
}

static void reports_scales_that_are_not_finite(void **state)
{
    (void)state;
    static const uint16_t bad[] = { 0x7c00, 0xfc00, 0x7e00, 0x7c01 };
    for (size_t i = 0; i < COUNT; i++) {
        const struct golden *g = &goldens[i];
        for (int k = 0; k < 2 && g->halves[k] >= 0; k++)
            for (size_t v = 0; v < 4; v++) {
                unsigned char bytes[BLOCKS * MAX_BYTES];
                float out[BLOCKS * MAX_BLOCK];
                fill(bytes, g);
                memcpy(bytes + dtype_block_bytes(g->dt) + g->halves[k], &bad[v], 2);
                int64_t n = (int64_t)dtype_block(g->dt);
                assert_true(quants_dequantize(g->dt, bytes, n, out));
                assert_false(quants_dequantize(g->dt, bytes, 2 * n, out));
            }
    }
}

/* 6 * 2^(252 - 127) is a number, 6 * 2^(253 - 127) is none. */
static void an_exponent_of_mxfp4_may_be_too_large(void **state)
{
    (void)state;
    unsigned char block[17] = { 252, 0x77 };
    float out[32];
    assert_true(quants_dequantize(DT_MXFP4, block, 32, out));
    assert_true(isfinite(out[0]) && out[0] == ldexpf(6, 125));
    block[0] = 253;
    assert_false(quants_dequantize(DT_MXFP4, block, 32, out));
    block[0] = 0; /* the smallest exponent stands for 2^-127 */
    assert_true(quants_dequantize(DT_MXFP4, block, 32, out));
    assert_true(out[0] == ldexpf(6, -127));
}

static void knows_its_formats(void **state)
{
    (void)state;
    size_t known = 0;
    for (int dt = 0; dt < DT_COUNT; dt++)
        known += quants_is((dtype)dt);
    assert_int_equal(known, COUNT);
    assert_false(quants_is(DT_F16));
    assert_false(quants_is(DT_NF4));
    assert_true(quants_dequantize(DT_Q4_K, NULL, 0, NULL));
}

/* ---- writing ---- */

enum { NUMBERS = 4 * 256 };

/* Sums of 4 uniform numbers, of different size in each block. */
static void draw(float *x)
{
    uint32_t state = 1;
    for (int i = 0; i < NUMBERS; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) {
            state = state * 1664525u + 1013904223u;
            sum += (float)(state >> 8) / (float)(1 << 24) - 0.5f;
        }
        x[i] = sum * (float)(1 + i / 32 % 5);
    }
}

/* The errors that llama.cpp's own quantiser has on these numbers, times 1.001. */
static void errors_are_not_above_those_of_llama_cpp(void **state)
{
    (void)state;
    static const struct {
        dtype dt;
        double rms;
    } rows[] = {
        { DT_Q8_0, 0.0103157 }, { DT_Q4_0, 0.159425 }, { DT_Q4_K, 0.134744 }, { DT_Q6_K, 0.0346928 }
    };
    float x[NUMBERS], y[NUMBERS];
    unsigned char blocks[NUMBERS * 2];
    draw(x);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sum = 0;
        assert_true(quants_writes(rows[i].dt));
        assert_true(quants_quantize(rows[i].dt, x, NUMBERS, blocks));
        assert_true(quants_dequantize(rows[i].dt, blocks, NUMBERS, y));
        for (int k = 0; k < NUMBERS; k++)
            sum += (double)(x[k] - y[k]) * (double)(x[k] - y[k]);
        if (!(sqrt(sum / NUMBERS) <= rows[i].rms * 1.001))
            fail_msg("%s: the error is %.6g, expected at most %.6g", dtype_name(rows[i].dt),
                     sqrt(sum / NUMBERS), rows[i].rms);
    }
}

/* Numbers that a format can hold come back: zeros, and a block written and read once before. */
static void keeps_what_it_can_hold(void **state)
{
    (void)state;
    static const dtype dts[] = { DT_Q8_0, DT_Q4_0, DT_Q4_K, DT_Q6_K };
    float x[256] = { 0 }, y[256];
    unsigned char blocks[512];
    for (size_t i = 0; i < sizeof dts / sizeof *dts; i++) {
        memset(x, 0, sizeof x);
        assert_true(quants_quantize(dts[i], x, 256, blocks));
        assert_true(quants_dequantize(dts[i], blocks, 256, y));
        for (int k = 0; k < 256; k++)
            assert_true(y[k] == 0);
        for (int k = 0; k < 256; k++)
            x[k] = (float)(k % 16 - 8) * 0.25f;
        assert_true(quants_quantize(dts[i], x, 256, blocks));
        assert_true(quants_dequantize(dts[i], blocks, 256, y));
        for (int k = 0; k < 256; k++)
            if (!(fabsf(x[k] - y[k]) <= (dts[i] == DT_Q4_K ? 0.02f : 0.01f)))
                fail_msg("%s: %g became %g", dtype_name(dts[i]), (double)x[k], (double)y[k]);
    }
}

static void refuses_what_has_no_scale(void **state)
{
    (void)state;
    static const dtype dts[] = { DT_Q8_0, DT_Q4_0, DT_Q4_K, DT_Q6_K };
    static const float bad[] = { INFINITY, NAN, 3e38f };
    for (size_t i = 0; i < sizeof dts / sizeof *dts; i++)
        for (size_t k = 0; k < 3; k++) {
            float x[256];
            unsigned char blocks[512];
            for (int j = 0; j < 256; j++)
                x[j] = (float)j;
            x[7] = bad[k];
            if (quants_quantize(dts[i], x, 256, blocks))
                fail_msg("%s: %g was written", dtype_name(dts[i]), (double)bad[k]);
        }
    assert_false(quants_writes(DT_Q5_K));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_the_gguf_package),
        cmocka_unit_test(reports_scales_that_are_not_finite),
        cmocka_unit_test(an_exponent_of_mxfp4_may_be_too_large),
        cmocka_unit_test(knows_its_formats),
        cmocka_unit_test(errors_are_not_above_those_of_llama_cpp),
        cmocka_unit_test(keeps_what_it_can_hold),
        cmocka_unit_test(refuses_what_has_no_scale),
    };
    return cmocka_run_group_tests_name("quants", tests, NULL, NULL);
}
