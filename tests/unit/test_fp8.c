/* fp8.c; whole models in this format are compared with transformers in golden/test_families. */
#include "format/fp8.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/tensors.h"

#include <math.h>

static pesc_status open_grouped(weights **ws, const test_tensor *t, int n, const char *config)
{
    json_t *json = NULL;
    must(weights_new(ws));
    must(safetensors_read(*ws, tensors_put("m.safetensors", t, n)));
    must(json_parse(&json, config, strlen(config), "config.json"));
    pesc_status s = fp8_group(*ws, json, "config.json");
    json_decref(json);
    return s;
}

static const char blocks_of_2_by_3[] = "{\"quantization_config\":{\"weight_block_size\":[2,3]}}";

/* 3 x 4 in blocks of 2 x 3: four scales, of which the last ones are for a rest. */
static void test_reads_blocks(void **state)
{
    static const unsigned char codes[12] = { 0x38, 0xB8, 0x3C, 0x40,   /* 1 -1 1.5 2 */
                                             0x00, 0x01, 0x07, 0x08,   /* 0 2^-9 7/512 2^-6 */
                                             0x7E, 0xFE, 0x30, 0x2C }; /* 448 -448 0.5 0.375 */
    static const float scales[4] = { 2, 0.3F, 1, 0.5F }; /* 0.3 is 0.30078125 in bf16 */
    const test_tensor t[2] = { { "a.weight", "F8_E4M3", 3, 4, codes, 12 },
                               { "a.weight_scale_inv", "F32", 2, 2, scales, 16 } };
    static const float want[12] = { 2,   -2,         3,           0.6015625F,
                                    0,   2.0F / 512, 14.0F / 512, 0.30078125F / 64,
                                    448, -448,       0.5F,        0.1875F };
    weights *ws;
    float x[12];
    (void)state;
    must(open_grouped(&ws, t, 2, blocks_of_2_by_3));
    const weight *w = weights_find(ws, "a.weight");
    assert_int_equal(weights_count(ws), 1);
    assert_true(w->dt == DT_BF16 && w->nd == 2 && w->ne[0] == 3 && w->ne[1] == 4);
    must(weights_read_f32(w, 0, 12, x));
    for (int i = 0; i < 12; i++)
        assert_true(x[i] == want[i]);
    must(weights_read_f32(w, 7, 2, x));
    assert_true(x[0] == want[7] && x[1] == want[8]);
    weights_close(ws);
}

/* One scale, a power of two in one byte; the scale of activations is left out. */
static void test_reads_one_scale(void **state)
{
    static const unsigned char codes[4] = { 0x38, 0x40, 0x44, 0xC8 }, scale[1] = { 128 };
    static const float activation = 3;
    const test_tensor t[3] = { { "a.weight", "F8_E4M3", 2, 2, codes, 4 },
                               { "a.weight_scale_inv", "F8_E8M0", 0, 1, scale, 1 },
                               { "a.activation_scale", "F32", 0, 1, &activation, 4 } };
    weights *ws;
    float x[4];
    (void)state;
    must(open_grouped(&ws, t, 3, "{}"));
    assert_int_equal(weights_count(ws), 1);
    must(weights_read_f32(weights_at(ws, 0), 0, 4, x));
    assert_true(x[0] == 2 && x[1] == 4 && x[2] == 6 && x[3] == -8);
    weights_close(ws);
}

static void test_refuses(void **state)
{
    static const unsigned char codes[4] = { 0x38, 0x40, 0x44, 0xC8 };
    static const float scales[4] = { 1, 1, 1, 1 };
    static const struct {
        test_tensor scales;
        const char *config, *says;
    } rows[] = {
        { { "b.weight_scale_inv", "F32", 2, 2, scales, 16 },
          blocks_of_2_by_3,
          "tensor a.weight: is F8_E4M3, but there is no a.weight_scale_inv" },
        { { "a.weight_scale_inv", "F32", 2, 2, scales, 16 },
          blocks_of_2_by_3,
          "one scale or one for each block of 2 x 3" },
        { { "a.weight_scale_inv", "F32", 2, 2, scales, 16 },
          "{}",
          "one scale or one for each block of 0 x 0" },
        { { "a.weight_scale_inv", "F32", 2, 2, scales, 16 },
          "{\"quantization_config\":{\"weight_block_size\":[0,3]}}",
          "weight_block_size: expected two numbers above 0" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const test_tensor t[2] = { { "a.weight", "F8_E4M3", 2, 2, codes, 4 }, rows[i].scales };
        weights *ws;
        must_fail(open_grouped(&ws, t, 2, rows[i].config), PESC_FORMAT, rows[i].says);
        weights_close(ws);
    }
}

/* Codes of numbers that are none stay so: loading refuses them by name. */
static void test_nan(void **state)
{
    static const unsigned char codes[2] = { 0x7F, 0xFF };
    const weight w = { .data = codes };
    float x[2];
    (void)state;
    must(fp8_read_e4m3(&w, 0, 2, x));
    assert_true(isnan(x[0]) && isnan(x[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_blocks),
        cmocka_unit_test(test_reads_one_scale),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
