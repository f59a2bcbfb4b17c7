/* Adapters beside the experts of a mixture: crafting changes no logit of any family, leaves every
 * tensor of the mixture as it is and says what was added in keys of pesc's own; what is refused.
 * That they compute what PyTorch does, and gradients, are in tests/golden. */
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <stdio.h>
#include <string.h>

static pesc_craft_options small(void)
{
    pesc_craft_options o = pesc_craft_defaults();
    o.experts = 4;
    o.adapter_dim = 6;
    o.adapter_scale = 0.25;
    o.seed = 7;
    return o;
}

static void changes_no_logit(void **state)
{
    (void)state;
    static const char *const names[] = {
        "mixtral",          "qwen2_moe",        "qwen3_moe",      "olmoe",
        "deepseek_v2-yarn", "deepseek_v3",      "dots1",          "glm4_moe_lite",
        "ernie4_5_moe",     "solar_open",       "deepseek",       "gpt_oss",
        "granitemoe",       "granitemoehybrid", "hunyuan_v1_moe", "glm4_moe",
        "minimax_m2",       "mellum",           "flex_olmo",      "afmoe",
        "bailing_moe_v2",   "lfm2_moe",         "qwen3_5_moe",    "qwen3_next",
        "deepseek_v3-fp8",  "gpt_oss-mxfp4",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char from[512];
        pesc_craft_options o = small();
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_model_info was = PESC_INIT(pesc_model_info), is = PESC_INIT(pesc_model_info);
        files_clear();
        must(pesc_craft(modeldirs_device(), modeldirs_golden(from, names[i]), files_path("out"), &o,
                        &check));
        if (check.logits == 0 ||
            (check.differ && !strstr(names[i], "-fp8") && !strstr(names[i], "mxfp4")))
            fail_msg("%s: %llu of %llu logits differ", names[i], (unsigned long long)check.differ,
                     (unsigned long long)check.logits);
        must(pesc_info(from, NULL, NULL, &was));
        must(pesc_info(files_path("out"), NULL, NULL, &is));
        assert_string_equal(is.family, was.family);
        assert_int_equal(is.experts, 4);
        assert_int_equal(is.top_k, 2);
        assert_int_equal(is.ffn_experts, was.experts);
        assert_int_equal(is.ffn_top_k, was.top_k);
        assert_int_equal(is.expert_dim, was.expert_dim);
        assert_int_equal(is.shared_experts, was.shared_experts);
        assert_int_equal(is.sparse_layers, was.sparse_layers);
        const int64_t expert = 2 * 6 * is.dim, layers = is.sparse_layers;
        assert_int_equal(is.params_total - was.params_total, layers * (4 * expert + 4 * is.dim));
        assert_int_equal(is.params_activated - was.params_activated,
                         layers * (2 * expert + 4 * is.dim));
        assert_int_equal(is.params_trainable, layers * (4 * expert + 4 * is.dim));
    }
}

static void adds_to_the_files(void **state)
{
    (void)state;
    char from[512];
    pesc_craft_options o = small();
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, "deepseek_v3"), files_path("out"),
                    &o, NULL));
    hfdir *was = modeldirs_open(from), *is = modeldirs_open(files_path("out"));
    modeldirs_same_all(was, is);
    assert_string_equal(modeldirs_text(is, "model_type"), "deepseek_v3");
    assert_int_equal(modeldirs_int(is, "n_routed_experts"), modeldirs_int(was, "n_routed_experts"));
    assert_int_equal(modeldirs_int(is, "adapter_experts"), 4);
    assert_int_equal(modeldirs_int(is, "adapter_top_k"), 2);
    assert_int_equal(modeldirs_int(is, "adapter_dim"), 6);
    assert_null(weights_find(is->ws, "model.layers.0.mlp.moe_adapter.router.weight")); /* dense */
    assert_non_null(weights_find(is->ws, "model.layers.1.mlp.moe_adapter.router.weight"));
    hfdir_close(was);
    hfdir_close(is);
}

static void refuses(void **state)
{
    (void)state;
    char from[512], again[512];
    pesc_craft_options o = small();
    files_clear();
    modeldirs_golden(from, "qwen3_moe");
    const char *out = files_path("out");
    o.layers = "1";
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE, "layers: found 1");
    o = small();
    o.kind = "upcycle";
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "--kind pesc puts adapters beside the experts of a mixture");
    o = small();
    o.top_k = 5;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE, "top_k: found 5");
    o = small();
    must(pesc_craft(modeldirs_device(), from, out, &o, NULL));
    snprintf(again, sizeof again, "%s", files_path("again"));
    must_fail(pesc_craft(modeldirs_device(), out, again, &o, NULL), PESC_USAGE,
              "is sparse already");
    assert_false(files_there("again"));
    must_fail(pesc_craft(modeldirs_device(), modeldirs_golden(from, "gemma4-moe"), again, &o, NULL),
              PESC_UNSUPPORTED, "its experts have a plain FFN beside them");
}

/* The one of config.json's four keys that is missing is named, and so is one that is too large. */
static void refuses_configurations(void **state)
{
    (void)state;
    static const char mixture[] =
        "{\"model_type\":\"mixtral\",\"num_hidden_layers\":1,\"num_experts_per_tok\":2,"
        "\"num_local_experts\":5,\"hidden_size\":36,\"num_attention_heads\":6,"
        "\"intermediate_size\":52,\"vocab_size\":67,%s}";
    static const struct {
        const char *keys, *says;
    } rows[] = {
        { "\"adapter_dim\":6", "adapter_experts: is missing" },
        { "\"adapter_dim\":6,\"adapter_experts\":4", "adapter_top_k: is missing" },
        { "\"adapter_dim\":6,\"adapter_experts\":4,\"adapter_top_k\":2",
          "moe_scaling: is missing" },
        { "\"adapter_dim\":6,\"adapter_experts\":4,\"adapter_top_k\":5,\"moe_scaling\":1",
          "adapter_top_k: found 5, expected 1 to 4" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        files_clear();
        snprintf(text, sizeof text, mixture, rows[i].keys);
        must_fail(
            pesc_new(files_text("config.json", text), files_path("out"), NULL, "f32", 7, NULL),
            PESC_FORMAT, rows[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(changes_no_logit),
        cmocka_unit_test(adds_to_the_files),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
