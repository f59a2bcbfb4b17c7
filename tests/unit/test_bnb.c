/* bnb.c. The sample and its values come from bitsandbytes. */
#include "format/bnb.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/tensors.h"
#include "support/torture.h"
#include "tensor/nf4.h"

#include <math.h>
#include <stdlib.h>

static pesc_status open_grouped(weights **ws, const char *path)
{
    *ws = NULL;
    pesc_status s = weights_new(ws);
    if (s == PESC_OK)
        s = safetensors_read(*ws, path);
    return s == PESC_OK ? bnb_group(*ws) : s;
}

static pesc_status open_and_close(const char *path)
{
    weights *ws;
    pesc_status s = open_grouped(&ws, path);
    weights_close(ws);
    return s;
}

static void test_equals_bitsandbytes(void **state)
{
    weights *ws, *values = NULL;
    (void)state;
    must(open_grouped(&ws, golden_path("formats/nf4.safetensors")));
    must(weights_new(&values));
    must(safetensors_read(values, golden_path("formats/nf4-values.safetensors")));
    assert_int_equal(weights_count(ws), 2);
    for (size_t i = 0; i < 2; i++) {
        const weight *w = weights_at(ws, i), *v = weights_find(values, w->name);
        float got[192], want[192];
        assert_non_null(v);
        assert_true(w->dt == DT_NF4 && w->nd == 2 && w->ne[0] == 3 && w->ne[1] == 64);
        must(weights_read_f32(w, 0, 192, got));
        must(weights_read_f32(v, 0, 192, want));
        for (int k = 0; k < 192; k++)
            if (!(fabsf(got[k] - want[k]) <= 1e-7f))
                fail_msg("%s[%d]: %.9g, expected %.9g", w->name, k, got[k], want[k]);
    }
    weights_close(values);
    weights_close(ws);
}

static void test_leaves_other_models_alone(void **state)
{
    weights *ws;
    (void)state;
    must(open_grouped(&ws, golden_path("formats/sample.safetensors")));
    assert_int_equal(weights_count(ws), 6);
    weights_close(ws);
}

/* ---- groups of our own: 2 x 64 elements, two scales ---- */

enum { CODES, ABSMAX, MAP, NESTED_ABSMAX, NESTED_MAP, STATE, OTHER, PARTS };

static const char good_state[] =
    "{\"quant_type\":\"nf4\",\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[2,64],"
    "\"nested_blocksize\":256,\"nested_dtype\":\"float32\",\"nested_offset\":0.5}";
static const char plain_state[] =
    "{\"quant_type\":\"nf4\",\"blocksize\":64,\"dtype\":\"bfloat16\",\"shape\":[2,64]}";

static void good_group(test_tensor t[PARTS])
{
    static const float plain[2] = { 1, 2 };
    const test_tensor good[PARTS] = {
        [CODES] = { "a.weight", "U8", 64, 1, NULL, 64 },
        [ABSMAX] = { "a.weight.absmax", "U8", 0, 2, NULL, 2 },
        [MAP] = { "a.weight.quant_map", "F32", 0, 16, nf4_code, 64 },
        [NESTED_ABSMAX] = { "a.weight.nested_absmax", "F32", 0, 1, plain, 4 },
        [NESTED_MAP] = { "a.weight.nested_quant_map", "F32", 0, 256, NULL, 1024 },
        [STATE] = { "a.weight.quant_state.bitsandbytes__nf4", "U8", 0, sizeof good_state - 1,
                    good_state, sizeof good_state - 1 },
    };
    memcpy(t, good, sizeof good);
}

static void set_state(test_tensor *t, const char *text)
{
    t->bytes = text;
    t->n = strlen(text);
    t->cols = (int64_t)t->n;
}

static void test_reads_our_groups(void **state)
{
    static const float scales[2] = { 1, 2 };
    test_tensor t[PARTS];
    (void)state;
    good_group(t);
    must(open_and_close(tensors_put("m.safetensors", t, PARTS)));
    /* codes declared as another dtype, as bnb_4bit_quant_storage does */
    t[CODES] = (test_tensor){ "a.weight", "BF16", 32, 1, NULL, 64 };
    must(open_and_close(tensors_put("m.safetensors", t, PARTS)));
    /* without double quantisation */
    set_state(&t[STATE], plain_state);
    t[ABSMAX] = (test_tensor){ "a.weight.absmax", "F32", 0, 2, scales, 8 };
    t[NESTED_ABSMAX].name = t[NESTED_MAP].name = NULL;
    weights *ws;
    must(open_grouped(&ws, tensors_put("m.safetensors", t, PARTS)));
    float x;
    must(weights_read_f32(weights_find(ws, "a.weight"), 64, 1, &x));
    assert_true(x == -2); /* code 0 is -1 */
    weights_close(ws);
}

static void test_refuses_incomplete_groups(void **state)
{
    static const struct {
        int part;
        const char *name, *dtype; /* name NULL: the part is absent */
        int64_t cols;
        const char *says;
    } rows[] = {
        { CODES, NULL, "", 0, "tensor a.weight: is missing, though its quant_state is there" },
        { CODES, "a.weight", "U8", 63, "holds 63 bytes of codes, expected 64" },
        { ABSMAX, NULL, "", 0, "tensor a.weight: has no absmax" },
        { ABSMAX, "a.weight.absmax", "U8", 1, "found 1 elements of u8, expected 2 of u8" },
        { ABSMAX, "a.weight.absmax", "F32", 2, "found 2 elements of f32, expected 2 of u8" },
        { MAP, NULL, "", 0, "has no quant_map" },
        { MAP, "a.weight.quant_map", "F32", 15, "found 15 elements" },
        { MAP, "a.weight.quant_map", "F32", 16, "quant_map is not the 16 values of NF4" },
        { NESTED_ABSMAX, NULL, "", 0, "has no nested_absmax" },
        { NESTED_ABSMAX, "a.weight.nested_absmax", "F32", 2,
          "found 2 elements of f32, expected 1" },
        { NESTED_MAP, NULL, "", 0, "has no nested_quant_map" },
        { NESTED_MAP, "a.weight.nested_quant_map", "F32", 255, "found 255 elements" },
        { STATE, "a.weight.quant_state.bitsandbytes__nf4", "F32", 8, "is not a short JSON text" },
        { STATE, "a.weight.quant_state.bitsandbytes__nf4", "U8", 5000, "is not a short JSON text" },
        { STATE, "a.weight.quant_state.bitsandbytes__nf4", "U8", 3, "is not JSON" },
    };
    test_tensor t[PARTS];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        good_group(t);
        size_t size = rows[i].dtype[0] == 'F' ? 4 : 1;
        t[rows[i].part] = (test_tensor){ rows[i].name, rows[i].dtype, 0,
                                         rows[i].cols, NULL,          (size_t)rows[i].cols * size };
        must_fail(open_and_close(tensors_put("m.safetensors", t, PARTS)), PESC_FORMAT,
                  rows[i].says);
    }
}

static void test_refuses_bad_states(void **state)
{
#define NF4(more) "{\"quant_type\":\"nf4\"," more "}"
    static const struct {
        const char *text;
        pesc_status status;
        const char *part;
    } rows[] = {
        { "{\"quant_type\":\"fp4\",\"blocksize\":64,\"shape\":[2,64]}", PESC_UNSUPPORTED,
          "tensor a.weight: is quantised as fp4" },
        { "{}", PESC_FORMAT, "quant_type" },
        { "[]", PESC_FORMAT, "quant_type" },
        { NF4("\"shape\":[2,64]"), PESC_FORMAT, "blocksize" },
        { NF4("\"blocksize\":0,\"shape\":[2,64]"), PESC_FORMAT, "blocksize" },
        { NF4("\"blocksize\":100,\"shape\":[2,64]"), PESC_FORMAT, "not a multiple of 64" },
        { NF4("\"blocksize\":64"), PESC_FORMAT, "shape is not a list" },
        { NF4("\"blocksize\":64,\"shape\":[]"), PESC_FORMAT, "shape is not a list" },
        { NF4("\"blocksize\":64,\"shape\":[2,-64]"), PESC_FORMAT, "not a size" },
        { NF4("\"blocksize\":64,\"shape\":[2,0]"), PESC_FORMAT, "not a size" },
        { NF4("\"blocksize\":64,\"shape\":[2,64.0]"), PESC_FORMAT, "not a size" },
        { NF4("\"blocksize\":64,\"shape\":[4611686018427387904,4]"), PESC_FORMAT, "not a size" },
        { NF4("\"blocksize\":64,\"shape\":[2,65]"), PESC_FORMAT, "expected 65" },
        { NF4("\"blocksize\":64,\"shape\":[2,64],\"nested_offset\":1"), PESC_FORMAT,
          "nested_blocksize" },
        { NF4("\"blocksize\":64,\"shape\":[2,64],\"nested_offset\":1,\"nested_blocksize\":0"),
          PESC_FORMAT, "nested_blocksize" },
        { NF4("\"blocksize\":64,\"shape\":[2,64],\"nested_offset\":\"1\",\"nested_blocksize\":256"),
          PESC_FORMAT, "nested_offset" },
        { NF4("\"blocksize\":64,\"shape\":[2,64],\"nested_offset\":NaN,\"nested_blocksize\":256"),
          PESC_FORMAT, "is not JSON" },
        { NF4("\"blocksize\":64,\"blocksize\":64,\"shape\":[2,64]"), PESC_FORMAT, "is not JSON" },
    };
    test_tensor t[PARTS];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        good_group(t);
        set_state(&t[STATE], rows[i].text);
        must_fail(open_and_close(tensors_put("m.safetensors", t, PARTS)), rows[i].status,
                  rows[i].part);
    }
}

static void test_refuses_eight_bit_models(void **state)
{
    test_tensor t[PARTS];
    (void)state;
    good_group(t);
    t[OTHER] = (test_tensor){ "b.SCB", "F32", 0, 2, NULL, 8 };
    must_fail(open_and_close(tensors_put("m.safetensors", t, PARTS)), PESC_UNSUPPORTED,
              "quantised to 8 bits by bitsandbytes");
}

/* A scale that is no number is found when the weight is read, by name. */
static void test_refuses_bad_scales_on_reading(void **state)
{
    static const float nested[1] = { NAN };
    test_tensor t[PARTS];
    weights *ws;
    float x;
    (void)state;
    good_group(t);
    t[NESTED_ABSMAX].bytes = nested;
    must(open_grouped(&ws, tensors_put("m.safetensors", t, PARTS)));
    must_fail(weights_read_f32(weights_at(ws, 0), 0, 1, &x), PESC_FORMAT,
              "tensor a.weight: the absmax of block 0 is nan");
    weights_close(ws);
}

static void test_bears_torture(void **state)
{
    size_t n;
    (void)state;
    char *bytes = files_get(golden_path("formats/nf4.safetensors"), &n);
    torture_cuts("m.safetensors", bytes, n, open_and_close);
    torture_flips("m.safetensors", bytes, n, 8, n, open_and_close);
    torture_memory(golden_path("formats/nf4.safetensors"), open_and_close);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_bitsandbytes),
        cmocka_unit_test(test_leaves_other_models_alone),
        cmocka_unit_test(test_reads_our_groups),
        cmocka_unit_test(test_refuses_incomplete_groups),
        cmocka_unit_test(test_refuses_bad_states),
        cmocka_unit_test(test_refuses_eight_bit_models),
        cmocka_unit_test(test_refuses_bad_scales_on_reading),
        cmocka_unit_test(test_bears_torture),
    };
    return cmocka_run_group_tests_name("bnb", tests, NULL, NULL);
}
