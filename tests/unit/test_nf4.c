#include "support/check.h"
#include "tensor/dtype.h"
#include "tensor/nf4.h"

#include <math.h>
#include <stdlib.h>

/* bitsandbytes' quantize_4bit (nf4, blocks of 64) of ((37 i) mod 101 - 50) / 64, i = 0..130. */
enum { ODD = 131 };
static const uint8_t odd_codes[(ODD + 1) / 2] = {
    0x04, 0xc1, 0x6e, 0x29, 0xf3, 0xb0, 0x5d, 0x17, 0xe2, 0x9f, 0x3c, 0x05, 0xd1, 0x8e,
    0x2a, 0xf4, 0xc1, 0x6e, 0x18, 0xe3, 0xb0, 0x5d, 0x17, 0xe2, 0x9f, 0x3b, 0x05, 0xd1,
    0x8e, 0x2a, 0xf4, 0xc1, 0x6d, 0x18, 0xe3, 0xb0, 0x4c, 0x17, 0xe2, 0x9f, 0x3b, 0x05,
    0xd1, 0x7e, 0x2a, 0xf4, 0xc0, 0x6d, 0x18, 0xe2, 0xa0, 0x4c, 0x16, 0xe2, 0x9f, 0x3b,
    0x05, 0xd1, 0x7e, 0x29, 0xf3, 0xc0, 0x5d, 0x18, 0xf2, 0xb7,
};
static const float odd_scales[3] = { 0x1.9p-1f, 0x1.9p-1f, 0x1.4p-1f };

/* Its double quantisation of 300 blocks whose absmax is ((71 b) mod 257 + 1) / 256. */
enum { SCALES = 300 };
static const uint8_t nested_codes[SCALES] = {
    0x00, 0x28, 0xc0, 0xe7, 0x0f, 0x36, 0xce, 0xf6, 0x1e, 0x5d, 0xdd, 0x06, 0x2d, 0xc5, 0xec, 0x15,
    0x3c, 0xd4, 0xfb, 0x24, 0xb1, 0xe3, 0x0b, 0x33, 0xcb, 0xf2, 0x1a, 0x4a, 0xda, 0x02, 0x29, 0xc1,
    0xe8, 0x11, 0x38, 0xd0, 0xf7, 0x20, 0x98, 0xdf, 0x08, 0x2f, 0xc7, 0xee, 0x16, 0x3e, 0xd6, 0xfd,
    0x25, 0xb9, 0xe5, 0x0d, 0x34, 0xcc, 0xf3, 0x1c, 0x52, 0xdb, 0x04, 0x2b, 0xc3, 0xea, 0x13, 0x3a,
    0xd2, 0xf9, 0x22, 0xa5, 0xe1, 0x09, 0x30, 0xc8, 0xf0, 0x18, 0x40, 0xd7, 0xff, 0x27, 0xbf, 0xe6,
    0x0f, 0x36, 0xce, 0xf5, 0x1e, 0x5a, 0xdd, 0x05, 0x2d, 0xc5, 0xec, 0x14, 0x3b, 0xd3, 0xfb, 0x23,
    0xae, 0xe2, 0x0b, 0x32, 0xca, 0xf1, 0x1a, 0x47, 0xd9, 0x02, 0x29, 0xc1, 0xe8, 0x10, 0x38, 0xd0,
    0xf7, 0x1f, 0x6f, 0xde, 0x07, 0x2e, 0xc6, 0xed, 0x16, 0x3d, 0xd5, 0xfc, 0x25, 0xb6, 0xe4, 0x0d,
    0x34, 0xcc, 0xf3, 0x1b, 0x4f, 0xdb, 0x03, 0x2a, 0xc2, 0xea, 0x12, 0x39, 0xd1, 0xf8, 0x21, 0xa3,
    0xe0, 0x09, 0x30, 0xc8, 0xef, 0x18, 0x3f, 0xd7, 0xfe, 0x26, 0xbe, 0xe6, 0x0e, 0x35, 0xcd, 0xf5,
    0x1d, 0x57, 0xdc, 0x05, 0x2c, 0xc4, 0xeb, 0x14, 0x3b, 0xd3, 0xfa, 0x23, 0xab, 0xe2, 0x0a, 0x32,
    0xca, 0xf1, 0x19, 0x44, 0xd8, 0x01, 0x28, 0xc0, 0xe7, 0x10, 0x37, 0xcf, 0xf6, 0x1f, 0x61, 0xde,
    0x06, 0x2e, 0xc6, 0xed, 0x15, 0x3d, 0xd5, 0xfc, 0x24, 0xb3, 0xe3, 0x0c, 0x33, 0xcb, 0xf2, 0x1b,
    0x4c, 0xda, 0x03, 0x2a, 0xc2, 0xe9, 0x12, 0x39, 0xd1, 0xf8, 0x20, 0xa0, 0xe0, 0x08, 0x2f, 0xc7,
    0xee, 0x17, 0x3e, 0xd6, 0xfd, 0x26, 0xbc, 0xe5, 0x0e, 0x35, 0xcd, 0xf4, 0x1d, 0x55, 0xdc, 0x04,
    0x2b, 0xc3, 0xeb, 0x13, 0x3a, 0xd2, 0xfa, 0x22, 0xa8, 0xe1, 0x0a, 0x31, 0xc9, 0xf0, 0x19, 0x41,
    0xd8, 0x00, 0x27, 0xc0, 0xe7, 0x0f, 0x36, 0xcf, 0xf6, 0x1e, 0x5d, 0xde, 0x05, 0x2d, 0xc5, 0xed,
    0x14, 0x3c, 0xd4, 0xfc, 0x23, 0xb1, 0xe3, 0x0b, 0x32, 0xcb, 0xf3, 0x1a, 0x49, 0xda, 0x01, 0x29,
    0xc1, 0xe9, 0x10, 0x38, 0xd0, 0xf8, 0x1f, 0x98, 0xe0, 0x07, 0x2e, 0xc7
};
static const float nested_offset = 0x1.005f92p-1f;
static const float nested_scales[2] = { 0x1.01a06ep-1f, 0x1.fcbf24p-2f };
static const struct {
    int at;
    float scale;
} given_back[] = { { 0, 0x1.1dbep-10f },   { 1, 0x1.22f238p-2f }, { 2, 0x1.1f92p-1f },
                   { 255, 0x1.cf652p-2f }, { 256, 0x1.7507p-1f }, { 299, 0x1.38375ap-1f } };

static void *span_of(int64_t n)
{
    size_t bytes;
    assert_true(dtype_bytes(DT_NF4, (uint64_t)n, &bytes));
    unsigned char *span = malloc(bytes ? bytes : 1);
    assert_non_null(span);
    memset(span, 0xEE, bytes);
    return span;
}

static void equals_bitsandbytes(void **state)
{
    (void)state;
    float x[ODD], back[ODD];
    for (int i = 0; i < ODD; i++)
        x[i] = (float)(i * 37 % 101 - 50) / 64.0f;
    unsigned char *span = span_of(ODD);
    nf4_quantize(span, x, ODD);
    assert_memory_equal(span, odd_codes, sizeof odd_codes);
    assert_memory_equal(nf4_scales(span, ODD), odd_scales, sizeof odd_scales);
    for (size_t i = sizeof odd_codes; i < nf4_codes_bytes(ODD); i++)
        assert_int_equal(span[i], 0);
    nf4_dequantize(back, span, ODD, 0, ODD);
    for (int i = 0; i < ODD; i++) {
        int code = odd_codes[i / 2] >> (i % 2 ? 0 : 4) & 15;
        assert_true(back[i] == nf4_code[code] * odd_scales[i / 64]);
    }
    free(span);
}

static void double_quantisation_equals_bitsandbytes(void **state)
{
    (void)state;
    const int64_t n = SCALES * NF4_BLOCK;
    float *x = calloc((size_t)n, sizeof *x), absmax[2], offset;
    assert_non_null(x);
    for (int b = 0; b < SCALES; b++)
        x[NF4_BLOCK * b + b % NF4_BLOCK] = -(float)(b * 71 % 257 + 1) / 256.0f;
    uint8_t nested[SCALES];
    void *span = span_of(n);
    nf4_quantize(span, x, n);
    nf4_double_quantize(span, n, nested, absmax, &offset);
    assert_memory_equal(nested, nested_codes, SCALES);
    assert_memory_equal(absmax, nested_scales, sizeof absmax);
    assert_true(offset == nested_offset);
    for (size_t i = 0; i < sizeof given_back / sizeof *given_back; i++)
        assert_true(nf4_scales(span, n)[given_back[i].at] == given_back[i].scale);

    /* the parts are optional */
    void *other = span_of(n);
    nf4_quantize(other, x, n);
    nf4_double_quantize(other, n, NULL, NULL, NULL);
    assert_memory_equal(nf4_scales(other, n), nf4_scales(span, n), SCALES * sizeof(float));
    free(other);
    free(span);
    free(x);
}

/* -1.832 / 3 and -1.832 * (1 / 3) lie on two sides of a threshold: bitsandbytes divides in a
 * partial block and multiplies in a full one. */
static void partial_blocks_are_divided(void **state)
{
    (void)state;
    float x[64] = { 3.0f, -0x1.d4f74ep+0f };
    unsigned char *span = span_of(64);
    nf4_quantize(span, x, 64);
    assert_int_equal(span[0], 0xf1);
    nf4_quantize(span, x, 2);
    assert_int_equal(span[0], 0xf2);
    free(span);
}

/* Eight scales of which the fifth is nearest to value 8 of the map, but its grid point to value 7.
 */
static void double_quantisation_goes_over_the_grid(void **state)
{
    (void)state;
    static const float scales[8] = { 59392, 19973, 28873, 2343, 1715, 61875, 14081, 65536 };
    static const uint8_t expected[8] = { 242, 46, 69, 9, 7, 247, 34, 255 };
    float x[8 * 64] = { 0 }, offset;
    uint8_t nested[8];
    for (int i = 0; i < 8; i++)
        x[64 * i] = scales[i] / 65536;
    void *span = span_of(8 * 64);
    nf4_quantize(span, x, 8 * 64);
    nf4_double_quantize(span, 8 * 64, nested, NULL, &offset);
    assert_true(offset == 0x1.efaep-2f);
    assert_memory_equal(nested, expected, 8);
    free(span);
}

/* Every threshold and its two neighbours, in a block with absmax 1. */
static void thresholds_belong_to_the_lower_code(void **state)
{
    (void)state;
    for (int i = 0; i < 15; i++) {
        float t = (nf4_code[i] + nf4_code[i + 1]) / 2, x[64] = { 1.0f };
        x[1] = t;
        x[2] = nextafterf(t, 2);
        x[3] = nextafterf(t, -2);
        unsigned char *span = span_of(64);
        nf4_quantize(span, x, 64);
        assert_int_equal(span[0], 15 << 4 | i);
        assert_int_equal(span[1], (i + 1) << 4 | i);
        free(span);
    }
}

/* What the file formats can hold: nothing, zeros, subnormals, NaN, infinity. */
static void strange_blocks(void **state)
{
    (void)state;
    float x[65] = { 0 }, back[65];
    unsigned char *span = span_of(65);
    nf4_quantize(span, x, 65);
    assert_true(nf4_scales(span, 65)[0] == 0.0f && nf4_scales(span, 65)[1] == 1e-38f);
    assert_int_equal(span[0], 0x77);
    assert_int_equal(span[32], 0x77);
    nf4_dequantize(back, span, 65, 0, 65);
    for (int i = 0; i < 65; i++)
        assert_true(back[i] == 0.0f);

    x[3] = 1e-41f; /* too small to divide by: kept as scale, coded as zero */
    nf4_quantize(span, x, 65);
    assert_true(nf4_scales(span, 65)[0] == 1e-41f);
    assert_int_equal(span[1], 0x77);

    x[3] = NAN;
    x[5] = 2.0f;
    nf4_quantize(span, x, 65);
    assert_true(isnan(nf4_scales(span, 65)[0]) && nf4_scales(span, 65)[1] == 1e-38f);
    x[3] = -INFINITY;
    nf4_quantize(span, x, 65);
    assert_true(isinf(nf4_scales(span, 65)[0]));
    nf4_quantize(span, x, 0);
    free(span);
}

static void any_range_equals_the_whole(void **state)
{
    (void)state;
    enum { N = 3 * 64 + 7 };
    float x[N], whole[N], part[N + 1];
    for (int i = 0; i < N; i++)
        x[i] = sinf((float)i);
    void *span = span_of(N);
    nf4_quantize(span, x, N);
    nf4_dequantize(whole, span, N, 0, N);
    for (int first = 0; first < N; first++)
        for (int n = 0; first + n <= N; n += 1 + n / 9) {
            part[n] = 42.0f;
            nf4_dequantize(part, span, N, first, n);
            assert_memory_equal(part, whole + first, (size_t)n * sizeof *part);
            assert_true(part[n] == 42.0f);
        }
    for (int i = 0; i < N; i++) /* no code is further off than half the widest gap */
        assert_true(fabsf(whole[i] - x[i]) <= 0.16f);
    free(span);
}

static void the_dynamic_map_is_what_it_says(void **state)
{
    (void)state;
    const float *map = nf4_dynamic_map();
    for (int i = 1; i < 256; i++)
        assert_true(map[i] > map[i - 1]);
    assert_true(map[127] == 0.0f && map[255] == 1.0f);
    for (int i = 0; i < 127; i++)
        assert_true(map[i] == -map[254 - i]);
    /* ten to the i - 6, times the middles of 2^i even parts of [0.1, 1] */
    for (int i = 0, at = 128; i < 7; i++)
        for (int k = 0; k < 1 << i; k++, at++) {
            double middle = 0.1 + 0.9 * (k + 0.5) / (1 << i), value = pow(10, i - 6) * middle;
            assert_true(fabs((double)map[at] - value) <= 2e-7 * value);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_bitsandbytes),
        cmocka_unit_test(double_quantisation_equals_bitsandbytes),
        cmocka_unit_test(partial_blocks_are_divided),
        cmocka_unit_test(double_quantisation_goes_over_the_grid),
        cmocka_unit_test(thresholds_belong_to_the_lower_code),
        cmocka_unit_test(strange_blocks),
        cmocka_unit_test(any_range_equals_the_whole),
        cmocka_unit_test(the_dynamic_map_is_what_it_says),
    };
    return cmocka_run_group_tests_name("nf4", tests, NULL, NULL);
}
