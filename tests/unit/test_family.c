/* The rows of family.h: every name and shape a published model has, and its exact parameter count
 * (worked out by hand from the papers' shapes, or published by the authors). */
#include "arch/family.h"
#include "arch/info.h"
#include "base/json.h"

#include "support/check.h"

static void parse(config *c, const char *text)
{
    json_t *o = NULL;
    must(json_parse(&o, text, strlen(text), "test"));
    must(config_read(c, &(config_source){ .json = o, .file = "test" }));
    json_decref(o);
}

#define CAMELIDAE(dim, ffn, heads, kv, layers, vocab, experts)                                     \
    "{\"model_type\":\"camelidae\",\"hidden_size\":" dim ",\"intermediate_size\":" ffn             \
    ",\"num_attention_heads\":" heads ",\"num_key_value_heads\":" kv                               \
    ",\"num_hidden_layers\":" layers ",\"vocab_size\":" vocab ",\"num_experts\":" experts          \
    ",\"topk\":2,\"adapter_dim\":512,\"moe_scaling\":0.25}"

static const struct {
    const char *config;
    uint64_t tensors, total, activated, trainable;
} models[] = {
    { CAMELIDAE("4096", "11008", "32", "32", "32", "32000", "8"), 835, 7813206016, 7007899648,
      1073741824 + 1048576 },
    { CAMELIDAE("5120", "13824", "40", "40", "40", "32000", "8"), 1043, 14695224320, 13436933120,
      1677721600 + 1638400 },
    { CAMELIDAE("7168", "20480", "56", "8", "60", "64000", "8"), 1563, 37915573248, 35273161728,
      3523215360 + 3440640 },
    /* Mixtral 8x7B */
    { "{\"model_type\":\"mixtral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
      "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"num_hidden_layers\":32,"
      "\"vocab_size\":32000,\"num_local_experts\":8,\"num_experts_per_tok\":2}",
      995, 46702792704, 12879925248, 0 },
    /* DeepSeek-V2-Lite */
    { "{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"intermediate_size\":10944,"
      "\"num_attention_heads\":16,\"num_hidden_layers\":27,\"vocab_size\":102400,"
      "\"n_routed_experts\":64,\"num_experts_per_tok\":6,\"moe_intermediate_size\":1408,"
      "\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"q_lora_rank\":null,"
      "\"kv_lora_rank\":512,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
      "\"v_head_dim\":128}",
      5291, 15706484224, 2661150208, 0 },
};

static void counts_of_published_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        config c;
        info_counts n;
        uint64_t tensors = 0;
        parse(&c, models[i].config);
        must(info_count(&c, "test", &n));
        for (slot s = slot_first(); slot_next(&c, &s);)
            tensors++;
        assert_int_equal(tensors, models[i].tensors);
        assert_int_equal(n.total, models[i].total);
        assert_int_equal(n.activated, models[i].activated);
        assert_int_equal(n.trainable, models[i].trainable);
        config_free(&c);
    }
}

static const slot *find(const config *c, const char *name)
{
    static slot s;
    for (s = slot_first(); slot_next(c, &s);)
        if (strcmp(s.name, name) == 0)
            return &s;
    fail_msg("no slot is called %s", name);
    return NULL;
}

static void names_and_shapes(void **state)
{
    (void)state;
    config c;
    parse(&c, CAMELIDAE("64", "96", "8", "4", "2", "32", "3"));
    const slot *s = find(&c, "model.layers.1.mlp.moe_adapter.experts.expert_2.adapter_down.weight");
    assert_int_equal(s->nd, 2);
    assert_int_equal(s->ne[0], 512);
    assert_int_equal(s->ne[1], 64);
    assert_int_equal(s->layer, 1);
    assert_int_equal(s->expert, 2);
    s = find(&c, "model.layers.0.self_attn.k_proj.weight");
    assert_int_equal(s->ne[0], 32);
    s = find(&c, "model.layers.0.mlp.moe_adapter.router.weight");
    assert_int_equal(s->ne[0], 3);
    s = find(&c, "lm_head.weight");
    assert_int_equal(s->layer, -1);
    config_free(&c);
}

static void unknown_types_name_the_known(void **state)
{
    (void)state;
    const family *f = NULL;
    must(family_find(&f, "qwen3_moe", "x"));
    assert_string_equal(f->name, "qwen3_moe");
    must_fail(family_find(&f, "gpt2", "x.json"), PESC_UNSUPPORTED,
              "x.json: model_type: found \"gpt2\", which pesc does not know; the nearest is llama, "
              "which has not its learned positions, LayerNorm and an FFN without a gate; it knows "
              "llama, mistral, qwen2");
    must_fail(family_find(&f, "qwen3_max", "x"), PESC_UNSUPPORTED,
              "the nearest by name is qwen3_moe, but what differs is not known; it knows llama");
    must_fail(family_find(&f, "xyz", "x"), PESC_UNSUPPORTED,
              "found \"xyz\", which pesc does not know; it knows llama");
}

static void absurd_sizes_are_refused(void **state)
{
    (void)state;
    config c;
    info_counts n;
    parse(&c, "{\"model_type\":\"mixtral\",\"hidden_size\":1048576,\"intermediate_size\":4194304,"
              "\"num_attention_heads\":4096,\"num_hidden_layers\":4096,\"vocab_size\":16777216,"
              "\"num_local_experts\":4096,\"num_experts_per_tok\":4096}");
    must_fail(info_count(&c, "x.json", &n), PESC_FORMAT, "more than 2^62 parameters");
    config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_of_published_models),
        cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(unknown_types_name_the_known),
        cmocka_unit_test(absurd_sizes_are_refused),
    };
    return cmocka_run_group_tests_name("family", tests, NULL, NULL);
}
