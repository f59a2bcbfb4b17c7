/* peft.c. The golden adapter is written by PEFT. */
#include "format/peft.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/tensors.h"
#include "support/torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static pesc_status open_and_close(const char *dir)
{
    peft *p;
    pesc_status s = peft_open(&p, dir);
    peft_close(p);
    return s;
}

/* r 4, lora_alpha 6, rank_pattern q_proj 2, alpha_pattern down_proj 3 */
static void test_reads_what_peft_wrote(void **state)
{
    peft *p;
    (void)state;
    must(peft_open(&p, golden_path("peft/adapter")));
    assert_int_equal(p->n * 2, weights_count(p->ws));
    assert_null(p->base);
    size_t special = 0;
    for (size_t i = 0; i < p->n; i++) {
        const peft_lora *l = &p->loras[i];
        assert_memory_equal(l->module, "model.layers.", 13);
        const char *last = strrchr(l->module, '.') + 1;
        float want = 6.0f / 4;
        if (strcmp(last, "q_proj") == 0)
            want = 6.0f / 2;
        else if (strcmp(last, "down_proj") == 0)
            want = 3.0f / 4;
        special += want != 1.5f;
        assert_true(l->scale == want);
        assert_true(l->a->ne[0] == l->b->ne[1]);
    }
    assert_true(special >= 2);
    peft_close(p);
}

/* ---- adapters of our own: q_proj of layer 0, rank 2, 3 -> 5 ---- */

#define PATH "base_model.model.model.layers.0.self_attn.q_proj"
#define CONFIG(more) "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8" more "}"

static const test_tensor good[] = {
    { PATH ".lora_A.weight", "F32", 2, 3, NULL, 24 },
    { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 },
};

static const char *put(const char *config, const test_tensor *tensors, size_t n)
{
    files_text("adapter/adapter_config.json", config);
    tensors_put("adapter/adapter_model.safetensors", tensors, n);
    return files_path("adapter");
}

static float scale_with(const char *config)
{
    peft *p;
    must(peft_open(&p, put(config, good, 2)));
    assert_int_equal(p->n, 1);
    assert_string_equal(p->loras[0].module, "model.layers.0.self_attn.q_proj");
    float scale = p->loras[0].scale;
    peft_close(p);
    return scale;
}

static void test_computes_the_scale(void **state)
{
    (void)state;
    assert_true(scale_with(CONFIG("")) == 4);
    assert_true(scale_with(CONFIG(",\"use_rslora\":true")) == (float)(8 / sqrt(2)));
    assert_true(scale_with(CONFIG(",\"alpha_pattern\":{\"q_proj\":1}")) == 0.5f);
    assert_true(scale_with(CONFIG(",\"alpha_pattern\":{\"self_attn.q_proj\":1.5}")) == 0.75f);
    assert_true(scale_with(CONFIG(",\"alpha_pattern\":{\"xq_proj\":1,\"proj\":2}")) == 4);
    assert_true(scale_with(CONFIG(",\"alpha_pattern\":{\"^model.layers.0.self_attn.q_proj\":2}")) ==
                1);
    assert_true(scale_with("{\"peft_type\":\"LORA\",\"r\":16,\"lora_alpha\":8,"
                           "\"rank_pattern\":{\"layers.0.self_attn.q_proj\":2}}") == 4);
    assert_true(scale_with(CONFIG(",\"bias\":\"none\",\"use_dora\":false,\"modules_to_save\":null,"
                                  "\"rank_pattern\":{},\"target_modules\":\"all-linear\"")) == 4);
}

static void test_refuses_settings(void **state)
{
    static const struct {
        const char *config;
        pesc_status status;
        const char *part;
    } rows[] = {
        { "", PESC_FORMAT, "is not JSON" },
        { "[]", PESC_FORMAT, "found an array, expected an object" },
        { "{}", PESC_FORMAT, "peft_type" },
        { "{\"peft_type\":\"IA3\"}", PESC_UNSUPPORTED, "peft_type: found IA3" },
        { "{\"peft_type\":\"LORA\",\"lora_alpha\":8}", PESC_FORMAT, "r:" },
        { "{\"peft_type\":\"LORA\",\"r\":0,\"lora_alpha\":8}", PESC_FORMAT, "r: found 0" },
        { "{\"peft_type\":\"LORA\",\"r\":-1,\"lora_alpha\":8}", PESC_FORMAT, "r: found -1" },
        { "{\"peft_type\":\"LORA\",\"r\":2147483648,\"lora_alpha\":8}", PESC_FORMAT, "r: found" },
        { "{\"peft_type\":\"LORA\",\"r\":2.0,\"lora_alpha\":8}", PESC_FORMAT, "r: found" },
        { "{\"peft_type\":\"LORA\",\"r\":null,\"lora_alpha\":8}", PESC_FORMAT, "r: is missing" },
        { "{\"peft_type\":\"LORA\",\"r\":2}", PESC_FORMAT, "lora_alpha: found nothing" },
        { "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":null}", PESC_FORMAT, "found nothing" },
        { "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":0}", PESC_FORMAT, "lora_alpha: found" },
        { "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":-3}", PESC_FORMAT, "lora_alpha: found" },
        { "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":NaN}", PESC_FORMAT, "is not JSON" },
        { "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":\"8\"}", PESC_FORMAT, "found a string" },
        { CONFIG(",\"use_dora\":true"), PESC_UNSUPPORTED, "use_dora: pesc does not apply DoRA" },
        { CONFIG(",\"bias\":\"all\""), PESC_UNSUPPORTED, "bias: pesc does not apply" },
        { CONFIG(",\"bias\":\"lora_only\""), PESC_UNSUPPORTED, "bias: pesc does not apply" },
        { CONFIG(",\"modules_to_save\":[\"lm_head\"]"), PESC_UNSUPPORTED, "modules_to_save" },
        { CONFIG(",\"fan_in_fan_out\":true"), PESC_UNSUPPORTED, "fan_in_fan_out" },
        { CONFIG(",\"target_parameters\":[\"x\"]"), PESC_UNSUPPORTED, "target_parameters" },
        { CONFIG(",\"layer_replication\":[[0,1]]"), PESC_UNSUPPORTED, "layer_replication" },
        { CONFIG(",\"use_rslora\":1"), PESC_FORMAT, "use_rslora" },
        { CONFIG(",\"rank_pattern\":[]"), PESC_FORMAT, "rank_pattern: found an array" },
        { CONFIG(",\"rank_pattern\":{\"q_proj\":0}"), PESC_FORMAT, "rank_pattern: the rank of" },
        { CONFIG(",\"rank_pattern\":{\"q_proj\":3}"), PESC_SHAPE, "expected the rank 3" },
        { CONFIG(",\"rank_pattern\":{\".*proj\":2}"), PESC_UNSUPPORTED, "is a regular expression" },
        { CONFIG(",\"alpha_pattern\":{\"q_proj\":0}"), PESC_FORMAT, "alpha_pattern: found" },
        { CONFIG(",\"r\":2"), PESC_FORMAT, "is not JSON" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        must_fail(open_and_close(put(rows[i].config, good, 2)), rows[i].status, rows[i].part);
}

/* Every field of LoraConfig, as PEFT 0.21 has it, with a value that is not its default. */
static const struct {
    const char *field, *refused; /* NULL: the adapter is applied */
} every_field[] = {
    { "\"task_type\":\"SEQ_CLS\"", NULL },
    { "\"auto_mapping\":{\"base_model_class\":\"X\"}", NULL },
    { "\"peft_version\":\"0.21.2\"", NULL },
    { "\"revision\":\"main\"", NULL },
    { "\"inference_mode\":true", NULL },
    { "\"lora_dropout\":0.5", NULL },
    { "\"megatron_core\":\"megatron.core\"", NULL },
    { "\"runtime_config\":{\"ephemeral_gpu_offload\":true}", NULL },
    { "\"qalora_group_size\":16", NULL },
    { "\"loftq_config\":{\"loftq_bits\":4}", NULL },
    { "\"eva_config\":{\"rho\":2.0}", NULL },
    { "\"corda_config\":{\"verbose\":false}", NULL },
    { "\"lora_ga_config\":{\"scale\":\"stable\"}", NULL },
    { "\"init_lora_weights\":true", NULL },
    { "\"init_lora_weights\":false", NULL },
    { "\"init_lora_weights\":null", NULL },
    { "\"init_lora_weights\":\"gaussian\"", NULL },
    { "\"init_lora_weights\":\"Gaussian\"", NULL },
    { "\"init_lora_weights\":\"eva\"", NULL },
    { "\"init_lora_weights\":\"orthogonal\"", NULL },
    { "\"init_lora_weights\":\"mica\"", NULL },
    { "\"init_lora_weights\":\"pissa\"", "found \"pissa\", with which the base" },
    { "\"init_lora_weights\":\"pissa_niter_16\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"olora\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"OLoRA\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"corda\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"loftq\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"lora_ga\"", "with which the base model was changed" },
    { "\"init_lora_weights\":\"newer\"", "found \"newer\", expected true, false" },
    { "\"init_lora_weights\":\"\"", "found \"\", expected true" },
    { "\"init_lora_weights\":1", "found an integer, expected true" },
    { "\"target_modules\":[\"q_proj\",\"x\"]", NULL },
    { "\"target_modules\":[\"model.layers.0.self_attn.q_proj\"]", NULL },
    { "\"target_modules\":[\"self_attn.q_proj\"]", NULL },
    { "\"target_modules\":\".*\\\\.(q|k)_proj\"", NULL },
    { "\"target_modules\":\"all-linear\"", NULL },
    { "\"target_modules\":null", NULL },
    { "\"target_modules\":[\"k_proj\",\"_proj\"]", "target_modules: the adapter has a LoRA" },
    { "\"target_modules\":\".*k_proj\"", "target_modules: the adapter has a LoRA" },
    { "\"target_modules\":\"layers.0.*q_proj\"", "target_modules: the adapter has a LoRA" },
    { "\"target_modules\":{\"a\":1}", "found an object, expected a list" },
    { "\"target_modules\":[1]", "entry 0: found an integer, expected a name" },
    { "\"exclude_modules\":[\"k_proj\"]", NULL },
    { "\"exclude_modules\":\"\"", NULL },
    { "\"exclude_modules\":\"q_proj\"", NULL },
    { "\"exclude_modules\":[\"q_proj\"]", "exclude_modules: the adapter has a LoRA" },
    { "\"exclude_modules\":\".*layers.0.*\"", "exclude_modules: the adapter has a LoRA" },
    { "\"layers_to_transform\":[0,3]", NULL },
    { "\"layers_to_transform\":0", NULL },
    { "\"layers_to_transform\":[]", NULL },
    { "\"layers_to_transform\":[0],\"layers_pattern\":\"layers\"", NULL },
    { "\"layers_to_transform\":[0],\"layers_pattern\":[\"h\",\"layers\"]", NULL },
    { "\"layers_to_transform\":[1]", "layers_to_transform: the adapter has a LoRA" },
    { "\"layers_to_transform\":3", "layers_to_transform: the adapter has a LoRA" },
    { "\"layers_to_transform\":[0],\"layers_pattern\":\"h\"", "layers_to_transform: the" },
    { "\"use_dora\":true", "use_dora: pesc does not apply DoRA" },
    { "\"bias\":\"all\"", "bias: pesc does not apply" },
    { "\"lora_bias\":true", "lora_bias: pesc does not apply" },
    { "\"modules_to_save\":[\"lm_head\"]", "modules_to_save: pesc does not apply" },
    { "\"fan_in_fan_out\":true", "fan_in_fan_out: pesc does not apply" },
    { "\"target_parameters\":[\"x\"]", "target_parameters: pesc does not apply" },
    { "\"layer_replication\":[[0,1]]", "layer_replication: pesc does not apply" },
    { "\"trainable_token_indices\":[1]", "trainable_token_indices: pesc does not apply" },
    { "\"trainable_token_indices\":{\"e\":[1]}", "trainable_token_indices: pesc does not" },
    { "\"alora_invocation_tokens\":[1]", "alora_invocation_tokens: pesc does not apply" },
    { "\"use_qalora\":true", "use_qalora: pesc does not apply" },
    { "\"use_bdlora\":{\"nblocks\":2}", "use_bdlora: pesc does not apply" },
    { "\"kasa_config\":{\"beta\":1}", "kasa_config: pesc does not apply" },
    { "\"velora_config\":{\"scale\":1}", "velora_config: pesc does not apply" },
    { "\"arrow_config\":{\"top_k\":1}", "arrow_config: pesc does not apply" },
    { "\"monteclora_config\":{\"num_samples\":1}", "monteclora_config: pesc does not apply" },
    { "\"megatron_config\":{\"a\":1}", "megatron_config: pesc does not apply" },
    { "\"ensure_weight_tying\":true", "ensure_weight_tying: pesc does not apply" },
    { "\"use_newer\":true", "\"use_newer\": pesc does not know this field" },
    { "\"newer_config\":{\"a\":1}", "\"newer_config\": pesc does not know this field" },
    { "\"newer_list\":[1]", "\"newer_list\": pesc does not know this field" },
    { "\"use_newer\":false,\"newer_config\":null,\"newer_size\":16,\"newer_kind\":\"a\"", NULL },
};

static void test_walks_every_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof every_field / sizeof *every_field; i++) {
        char config[512];
        snprintf(config, sizeof config, "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,%s}",
                 every_field[i].field);
        pesc_status s = open_and_close(put(config, good, 2));
        if (!every_field[i].refused)
            must(s);
        else
            must_fail(s,
                      strstr(every_field[i].refused, "found an object") ||
                              strstr(every_field[i].refused, "entry 0")
                          ? PESC_FORMAT
                          : PESC_UNSUPPORTED,
                      every_field[i].refused);
    }
}

static const struct {
    test_tensor t[3];
    size_t n;
    pesc_status status;
    const char *part;
} bad_tensors[] = {
    { { { NULL, NULL, 0, 0, NULL, 0 } }, 1, PESC_FORMAT, "holds no lora_A and lora_B" },
    { { { PATH ".lora_A.weight", "F32", 2, 3, NULL, 24 } },
      1,
      PESC_FORMAT,
      "a lora_A without its lora_B" },
    { { { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 } },
      1,
      PESC_FORMAT,
      "a lora_B without its lora_A" },
    { { { PATH ".lora_A.weight", "F32", 3, 2, NULL, 24 },
        { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 } },
      2,
      PESC_SHAPE,
      "lora_A has 3 rows and lora_B 2 columns, expected the rank 2" },
    { { { PATH ".lora_A.weight", "F32", 2, 3, NULL, 24 },
        { PATH ".lora_B.weight", "F32", 2, 5, NULL, 40 } },
      2,
      PESC_SHAPE,
      "lora_B 5 columns" },
    { { { PATH ".lora_A.weight", "F32", 0, 6, NULL, 24 },
        { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 } },
      2,
      PESC_SHAPE,
      "expected the rank" },
    { { { PATH ".lora_A.weight", "U8", 2, 3, NULL, 6 },
        { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 } },
      2,
      PESC_FORMAT,
      "is stored as u8" },
    { { { PATH ".lora_A.weight", "F32", 2, 3, NULL, 24 },
        { PATH ".lora_B.weight", "F32", 5, 2, NULL, 40 },
        { PATH ".lora_magnitude_vector", "F32", 0, 5, NULL, 20 } },
      3,
      PESC_UNSUPPORTED,
      "is neither lora_A.weight nor lora_B.weight" },
    { { { "base_model.model.model.embed_tokens.lora_embedding_A", "F32", 2, 3, NULL, 24 } },
      1,
      PESC_UNSUPPORTED,
      "is neither lora_A.weight nor lora_B.weight" },
};

static void test_refuses_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_tensors / sizeof *bad_tensors; i++)
        must_fail(open_and_close(put(CONFIG(""), bad_tensors[i].t, bad_tensors[i].n)),
                  bad_tensors[i].status, bad_tensors[i].part);
}

static void test_finds_its_files(void **state)
{
    (void)state;
    files_clear();
    must_fail(open_and_close(files_path("absent")), PESC_IO,
              "adapter_config.json: cannot be opened");
    files_text("adapter/adapter_config.json", CONFIG(",\"base_model_name_or_path\":\"some/base\""));
    must_fail(open_and_close(files_path("adapter")), PESC_IO,
              "has neither adapter_model.safetensors");
    char *base = NULL;
    must(peft_base(&base, files_path("adapter")));
    assert_string_equal(base, "some/base");
    free(base);
    size_t n;
    char *bytes = files_get(golden_path("formats/sample.bin"), &n);
    files_put("adapter/adapter_model.bin", bytes, n);
    free(bytes);
    must_fail(open_and_close(files_path("adapter")), PESC_UNSUPPORTED, "tensor p: is neither");
}

static pesc_status reread(const char *path)
{
    (void)path;
    return open_and_close(files_path("adapter"));
}

static void test_bears_torture(void **state)
{
    static const char config[] = CONFIG(",\"rank_pattern\":{\"q_proj\":2}");
    (void)state;
    files_clear();
    put(config, good, 2);
    torture_memory("", reread);
    torture_cuts("adapter/adapter_config.json", config, sizeof config - 1, reread);
    torture_flips("adapter/adapter_config.json", config, sizeof config - 1, 0, sizeof config - 1,
                  reread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_peft_wrote), cmocka_unit_test(test_computes_the_scale),
        cmocka_unit_test(test_refuses_settings),      cmocka_unit_test(test_walks_every_field),
        cmocka_unit_test(test_refuses_tensors),       cmocka_unit_test(test_finds_its_files),
        cmocka_unit_test(test_bears_torture),
    };
    return cmocka_run_group_tests_name("peft", tests, NULL, NULL);
}
