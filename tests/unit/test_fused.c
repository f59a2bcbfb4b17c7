/* fused.c; whole models of families with fused tensors are compared with transformers in
 * golden/test_families. */
#include "arch/config.h"
#include "arch/fused.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/tensors.h"

#include <string.h>

/* The biases of gpt_oss' experts: [5,40], gate and up of width 20 in turn. */
static pesc_status open_split(config *c, weights **ws, const test_tensor *t, size_t n)
{
    json_t *json = NULL;
    const char *file = golden_path("gpt_oss/config.json");
    must(json_read(&json, file, 1 << 20));
    must(weights_new(ws));
    must(safetensors_read(*ws, tensors_put("m.safetensors", t, n)));
    pesc_status s = config_read(c, &(config_source){ .json = json, .file = file, .ws = *ws });
    json_decref(json);
    return s;
}

static void test_splits(void **state)
{
    static float bias[200], own[100];
    const char *gate = "model.layers.1.mlp.experts.gate_proj_bias";
    const char *up = "model.layers.1.mlp.experts.up_proj_bias";
    config c;
    weights *ws;
    float x[100];
    (void)state;
    for (int i = 0; i < 200; i++)
        bias[i] = (float)i;
    const test_tensor t[] = {
        { "model.layers.1.mlp.experts.gate_up_proj_bias", "F32", 5, 40, bias, sizeof bias },
        { up, "F32", 5, 20, own, sizeof own }, /* as of a run that trained it */
        { "model.layers.7.mlp.experts.gate_up_proj_bias", "F32", 5, 40, NULL, sizeof bias },
    };
    must(open_split(&c, &ws, t, 3));
    assert_int_equal(weights_count(ws), 3); /* the model has no layer 7 */
    assert_int_equal(weights_stored_count(ws), 3);
    assert_string_equal(weights_stored_at(ws, 0)->name, t[0].name);
    assert_null(weights_find(ws, t[0].name));
    must(weights_read_f32(weights_find(ws, gate), 0, 100, x));
    for (int i = 0; i < 100; i++)
        assert_true(x[i] == (float)(2 * i));
    must(weights_read_f32(weights_find(ws, gate), 21, 1, x));
    assert_true(x[0] == 42);
    must(weights_read_f32(weights_find(ws, up), 0, 100, x));
    assert_true(x[99] == 0);
    config_free(&c);
    weights_close(ws);
    must(open_split(&c, &ws, t, 1));
    must(weights_read_f32(weights_find(ws, up), 0, 100, x));
    for (int i = 0; i < 100; i++)
        assert_true(x[i] == (float)(2 * i + 1));
    config_free(&c);
    weights_close(ws);
}

static void test_refuses_shapes(void **state)
{
    const test_tensor t[] = {
        { "model.layers.1.mlp.experts.gate_up_proj_bias", "F32", 5, 41, NULL, 820 },
    };
    config c;
    weights *ws;
    (void)state;
    must_fail(open_split(&c, &ws, t, 1), PESC_SHAPE,
              "gate_up_proj_bias: is f32 [5,41], expected plain numbers [5,40]");
    weights_close(ws);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_refuses_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
