#include "support/check.h"
#include "tensor/bf16.h"

#include <math.h>

/* What the 16 bits of a format with so many exponent and fraction bits mean, by the book. */
static double meaning(uint16_t h, int exponent_bits, int fraction_bits)
{
    int all = (1 << exponent_bits) - 1, e = h >> fraction_bits & all;
    int f = h & ((1 << fraction_bits) - 1), bias = all / 2;
    double x = e == all ? (f ? NAN : INFINITY)
               : e == 0 ? ldexp(f, 1 - bias - fraction_bits)
                        : ldexp(f + (1 << fraction_bits), e - bias - fraction_bits);
    return h & 0x8000 ? -x : x;
}

static bool same(float x, double y)
{
    return isnan(y) ? isnan(x) : (double)x == y && !signbit(x) == !signbit(y);
}

static void decodes_every_pattern(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        if (!same(f16_to_f32((uint16_t)h), meaning((uint16_t)h, 5, 10)))
            fail_msg("f16 0x%04x gives %g", h, (double)f16_to_f32((uint16_t)h));
        if (!same(bf16_to_f32((uint16_t)h), meaning((uint16_t)h, 8, 7)))
            fail_msg("bf16 0x%04x gives %g", h, (double)bf16_to_f32((uint16_t)h));
    }
}

/* Between each number and the next: the half goes to the even one, its neighbours to their side.
 * Beyond the largest number the next one would be infinity's place. */
static void rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint16_t (*encode)(float);
        int exponent_bits, fraction_bits;
        uint16_t infinity;
    } formats[] = { { f16_from_f32, 5, 10, 0x7c00 }, { bf16_from_f32, 8, 7, 0x7f80 } };
    for (int k = 0; k < 2; k++)
        for (uint32_t h = 0; h < formats[k].infinity; h++) {
            double low = meaning((uint16_t)h, formats[k].exponent_bits, formats[k].fraction_bits);
            double next = h + 1 == formats[k].infinity
                              ? 2 * low - meaning((uint16_t)(h - 1), formats[k].exponent_bits,
                                                  formats[k].fraction_bits)
                              : meaning((uint16_t)(h + 1), formats[k].exponent_bits,
                                        formats[k].fraction_bits);
            float half = (float)((low + next) / 2);
            uint16_t even = (uint16_t)(h & 1 ? h + 1 : h), up = (uint16_t)(h + 1);
            assert_int_equal(formats[k].encode((float)low), h);
            assert_int_equal(formats[k].encode(half), even);
            assert_int_equal(formats[k].encode(nextafterf(half, 0)), h);
            assert_int_equal(formats[k].encode(nextafterf(half, INFINITY)), up);
            assert_int_equal(formats[k].encode(-half), even | 0x8000);
        }
}

static void keeps_nan_and_infinity(void **state)
{
    (void)state;
    /* a payload that rounding would carry into infinity, and one that would be cut to nothing */
    static const uint32_t nans[] = { 0x7fffffff, 0xffffffff, 0x7f800001, 0xff800001, 0x7fc00000 };
    for (size_t i = 0; i < 5; i++) {
        float x;
        memcpy(&x, &nans[i], sizeof x);
        assert_true(isnan(bf16_to_f32(bf16_from_f32(x))));
        assert_true(isnan(f16_to_f32(f16_from_f32(x))));
        assert_int_equal(bf16_from_f32(x) >> 15, nans[i] >> 31);
        assert_int_equal(f16_from_f32(x) >> 15, nans[i] >> 31);
    }
    assert_int_equal(bf16_from_f32(INFINITY), 0x7f80);
    assert_int_equal(bf16_from_f32(-3.4e38f), 0xff80);
    assert_int_equal(f16_from_f32(-INFINITY), 0xfc00);
    assert_int_equal(f16_from_f32(1e30f), 0x7c00);
    assert_int_equal(f16_from_f32(65519.99f), 0x7bff);
    assert_int_equal(f16_from_f32(1e-40f), 0);
    assert_int_equal(f16_from_f32(-0.0f), 0x8000);
}

/* Arrays of every small length, at an odd address. */
static void arrays_equal_elements(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 70; n++) {
        float x[70], back[71];
        unsigned char bits[1 + 2 * 70 + 1];
        for (int64_t i = 0; i < n; i++)
            x[i] = (float)(i * i - 300) / 7.0f;
        struct {
            void (*encode)(void *, const float *, int64_t);
            void (*decode)(float *, const void *, int64_t);
            uint16_t (*one)(float);
            float (*one_back)(uint16_t);
        } kinds[] = { { bf16_encode, bf16_decode, bf16_from_f32, bf16_to_f32 },
                      { f16_encode, f16_decode, f16_from_f32, f16_to_f32 } };
        for (int k = 0; k < 2; k++) {
            bits[1 + 2 * n] = 0xA5;
            back[n] = 42.0f;
            kinds[k].encode(bits + 1, x, n);
            kinds[k].decode(back, bits + 1, n);
            for (int64_t i = 0; i < n; i++)
                assert_true(back[i] == kinds[k].one_back(kinds[k].one(x[i])));
            assert_int_equal(bits[1 + 2 * n], 0xA5);
            assert_true(back[n] == 42.0f);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_every_pattern),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(keeps_nan_and_infinity),
        cmocka_unit_test(arrays_equal_elements),
    };
    return cmocka_run_group_tests_name("bf16", tests, NULL, NULL);
}
