/* fused.c; whole models of families with fused tensors are compared with transformers in
 * golden/test_families. */
#include "arch/config.h"
#include "arch/fused.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/tensors.h"

#include <stdio.h>
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

/* ---- LoRA ---- */

enum { RANK = 2, C = 36, Q = 36, KV = 12, ROWS = Q + 2 * KV };

static void read_phi3(config *c)
{
    json_t *json = NULL;
    const char *file = golden_path("phi3/config.json");
    must(json_read(&json, file, 1 << 20));
    must(config_read(c, &(config_source){ .json = json, .file = file }));
    json_decref(json);
}

/* A PEFT directory with LoRA on qkv_proj of layer 1, whose B has `rows` rows. */
static const char *put_adapter(int rows, float *a, float *b)
{
    static const char name[] = "base_model.model.model.layers.1.self_attn.qkv_proj";
    char a_name[128], b_name[128];
    snprintf(a_name, sizeof a_name, "%s.lora_A.weight", name);
    snprintf(b_name, sizeof b_name, "%s.lora_B.weight", name);
    const test_tensor t[] = { { a_name, "F32", RANK, C, a, RANK * C * sizeof *a },
                              { b_name, "F32", rows, RANK, b, (size_t)rows * RANK * sizeof *b } };
    tensors_put("adapter_model.safetensors", t, 2);
    files_text("adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,"
                                      "\"target_modules\":[\"qkv_proj\"]}");
    return files_path("");
}

static void test_splits_a_lora(void **state)
{
    static const char *const parts[] = { "q", "k", "v" };
    static const int64_t rows[] = { Q, KV, KV };
    float a[RANK * C] = { 0 }, b[ROWS * RANK], got[Q * RANK];
    config c;
    peft *p = NULL;
    char module[128];
    int64_t before = 0;
    (void)state;
    for (int i = 0; i < ROWS * RANK; i++)
        b[i] = (float)i;
    read_phi3(&c);
    must(fused_open_lora(&p, put_adapter(ROWS, a, b), &c));
    assert_int_equal(p->n, 3);
    for (size_t i = 0; i < 3; before += rows[i++]) {
        const peft_lora *l = &p->loras[i];
        snprintf(module, sizeof module, "model.layers.1.self_attn.%s_proj", parts[i]);
        assert_string_equal(l->module, module);
        assert_true(l->scale == 3 && l->b->ne[0] == rows[i] && l->b->ne[1] == RANK);
        must(weights_read_f32(l->b, 0, rows[i] * RANK, got));
        assert_memory_equal(got, b + before * RANK, (size_t)(rows[i] * RANK) * sizeof *got);
    }
    peft_close(p);
    config_free(&c);
}

static void test_refuses_a_lora_of_another_shape(void **state)
{
    float a[RANK * C] = { 0 }, b[ROWS * RANK] = { 0 };
    config c;
    peft *p = NULL;
    (void)state;
    read_phi3(&c);
    must_fail(fused_open_lora(&p, put_adapter(ROWS - 1, a, b), &c), PESC_SHAPE,
              "qkv_proj: lora_B has 59 rows, expected 60");
    assert_null(p);
    config_free(&c);
}

/* LoRA of rank 2 on the down_proj of all five experts of layer 1 of granitemoe: in 20, out 64. */
static void test_splits_a_stack(void **state)
{
    enum { E = 5, R = 2, IN = 20, OUT = 64 };
    static const char name[] = "base_model.model.model.layers.1.block_sparse_moe.experts";
    static float a[E * R * IN], b[OUT * E * R], got[OUT * R];
    char a_name[128], b_name[128], module[128];
    json_t *json = NULL;
    config c;
    peft *p = NULL;
    (void)state;
    for (int i = 0; i < E * R * IN; i++)
        a[i] = (float)i;
    for (int i = 0; i < OUT * E * R; i++)
        b[i] = (float)i;
    snprintf(a_name, sizeof a_name, "%s.lora_A.weight", name);
    snprintf(b_name, sizeof b_name, "%s.lora_B.weight", name);
    const test_tensor t[] = { { a_name, "F32", E * R, IN, a, sizeof a },
                              { b_name, "F32", OUT, E * R, b, sizeof b } };
    tensors_put("adapter_model.safetensors", t, 2);
    files_text("adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":6,"
                                      "\"target_parameters\":[\"experts.down_proj\"]}");
    const char *file = golden_path("granitemoe/config.json");
    must(json_read(&json, file, 1 << 20));
    must(config_read(&c, &(config_source){ .json = json, .file = file }));
    json_decref(json);
    must(fused_open_lora(&p, files_path(""), &c));
    assert_int_equal(p->n, E);
    for (int e = 0; e < E; e++) {
        const peft_lora *l = &p->loras[e];
        snprintf(module, sizeof module, "model.layers.1.block_sparse_moe.experts.%d.down_proj", e);
        assert_string_equal(l->module, module);
        assert_true(l->scale == 3 && l->a->ne[0] == R && l->b->ne[0] == OUT);
        must(weights_read_f32(l->a, 0, R * IN, got));
        assert_memory_equal(got, a + e * R * IN, R * IN * sizeof *got);
        must(weights_read_f32(l->b, 0, OUT * R, got));
        for (int o = 0; o < OUT; o++)
            for (int j = 0; j < R; j++)
                assert_true(got[o * R + j] == b[o * E * R + j * E + e]);
    }
    peft_close(p);
    config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_refuses_shapes),
        cmocka_unit_test(test_splits_a_lora),
        cmocka_unit_test(test_splits_a_stack),
        cmocka_unit_test(test_refuses_a_lora_of_another_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
