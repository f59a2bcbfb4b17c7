/* Gemma 4: layers without a window have heads of their own, the last layers may share keys and
 * values, each layer may have an input. */
#include "arch/family.h"
#include "arch/shape.h"
#include "base/json.h"
#include "base/mem.h"
#include "model/kvcache.h"

#include "support/check.h"

/* Of six layers the last is without a window. */
static const char gemma4[] =
    "{'model_type':'gemma4_text','hidden_size':36,'num_hidden_layers':6,'num_attention_heads':6,"
    "'num_key_value_heads':3,'intermediate_size':52,'vocab_size':67,'head_dim':8,"
    "'global_head_dim':20,'num_global_key_value_heads':2,'attention_k_eq_v':true,"
    "'sliding_window':16}";

static pesc_status read(config *c, const char *changes)
{
    char quoted[2][1024];
    json_t *o[2] = { NULL, NULL };
    const char *text[2] = { gemma4, changes };
    for (int k = 0; k < 2; k++) {
        size_t n = strlen(text[k]);
        for (size_t i = 0; i < n; i++)
            quoted[k][i] = text[k][i] == '\'' ? '"' : text[k][i];
        must(json_parse(&o[k], quoted[k], n, "test"));
    }
    assert_int_equal(json_object_update(o[0], o[1]), 0);
    pesc_status s = config_read(c, &(config_source){ .json = o[0], .file = "config.json" });
    json_decref(o[0]);
    json_decref(o[1]);
    return s;
}

static void heads_of_layers(void **state)
{
    (void)state;
    config c;
    must(read(&c, "{}"));
    assert_int_equal(config_heads(&c, 0).qk_dim, 8);
    assert_int_equal(config_heads(&c, 0).kv_heads, 3);
    assert_int_equal(config_heads(&c, 5).qk_dim, 20);
    assert_int_equal(config_heads(&c, 5).kv_heads, 2);
    assert_int_equal(config_layer_widths(&c, 5).k, 40);
    assert_int_equal(config_widths(&c).q, 120);
    assert_false(family_facts(&c, 5) & FACT_VALUES);
    assert_true(family_facts(&c, 0) & FACT_VALUES);
    config_free(&c);
    /* keys of their own: the number of heads for keys in their place does not count */
    must(read(&c, "{'attention_k_eq_v':false}"));
    assert_int_equal(config_heads(&c, 5).kv_heads, 3);
    config_free(&c);
    must(read(&c, "{'layer_types':['full_attention','sliding_attention',"
                  "'sliding_attention','sliding_attention','sliding_attention',"
                  "'sliding_attention'],'per_layer_config':{'0':{'head_dim':10},"
                  "'5':{'head_dim':10}}}"));
    assert_int_equal(config_layer_window(&c, 5), 0);
    assert_int_equal(config_heads(&c, 0).qk_dim, 10);
    assert_int_equal(config_heads(&c, 0).kv_heads, 3);
    config_free(&c);
    must(read(&c, "{'use_bidirectional_attention':'vision'}"));
    config_free(&c);
}

/* Layers 3 to 5 have the keys of layer 1, which has a window, or of layer 2, which has none. */
static void last_layers_share_keys(void **state)
{
    (void)state;
    static const int32_t lenders[] = { 0, 1, 2, 1, 1, 2 }, places[] = { 0, 1, 2, 1, 1, 2 };
    model_shape m = { 0 };
    must(read(&m.cfg, "{'num_kv_shared_layers':3,'use_double_wide_mlp':true,'layer_types':["
                      "'sliding_attention','sliding_attention','full_attention',"
                      "'sliding_attention','sliding_attention','full_attention']}"));
    must(shape_open(&m));
    for (int32_t i = 0; i < 6; i++) {
        const block *b = &m.w.blocks[i];
        const uint32_t facts = family_facts(&m.cfg, i);
        assert_int_equal(config_layer_kv(&m.cfg, i), lenders[i]);
        assert_int_equal(b->place, places[i]);
        assert_int_equal(b->borrows_kv, i > 2);
        assert_int_equal(b->shared_kv, i == 0 ? -1 : b->window ? 1 : 0);
        assert_int_equal(b->ffn_dim, i > 2 ? 104 : 52);
        assert_int_equal((facts & FACT_KEYS) != 0, i < 3);
        assert_int_equal((facts & FACT_VALUES) != 0, i < 2);
    }
    /* keys and values of two layers of 3 heads of 8, and of one of 2 of 20 */
    assert_int_equal(kvcache_token_bytes(&m.cfg, DT_F32), 4 * 2 * (2 * 24 + 40));
    mem_free(m.w.blocks);
    config_free(&m.cfg);
}

/* A file that says nothing of them has them, as in transformers. */
static void inputs_of_layers(void **state)
{
    (void)state;
    config c;
    slot s;
    must(read(&c, "{'vocab_size_per_layer_input':70}"));
    assert_int_equal(c.layer_input_dim, 256);
    assert_true(slot_of_rule(&c, 3, "per_layer_projection.weight", &s));
    assert_int_equal(s.ne[1], 256);
    assert_true(slot_of_rule(&c, -1, "model.embed_tokens_per_layer.weight", &s));
    assert_int_equal(s.ne[0], 70);
    assert_int_equal(s.ne[1], 6 * 256);
    config_free(&c);
    must(read(&c, "{'hidden_size_per_layer_input':0}"));
    assert_false(slot_of_rule(&c, 3, "per_layer_projection.weight", &s));
    config_free(&c);
}

/* A mixture only where the file says so, with the plain FFN beside the experts. */
static void experts_beside_the_ffn(void **state)
{
    (void)state;
    config c;
    must(read(&c, "{'num_experts':4,'top_k_experts':2,'moe_intermediate_size':8}"));
    assert_int_equal(c.moe.kind, EXPERT_NONE);
    assert_int_equal(c.ffn_dim, 52);
    config_free(&c);
    must(read(&c, "{'enable_moe_block':true,'num_experts':4,'top_k_experts':2,"
                  "'moe_intermediate_size':8}"));
    assert_int_equal(c.moe.kind, EXPERT_FFN);
    assert_true(family_facts(&c, 0) & FACT_FFN && family_facts(&c, 0) & FACT_EXPERT);
    config_free(&c);
}

static void refuses_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *changes;
        pesc_status status;
        const char *part;
    } rows[] = {
        { "{'per_layer_config':{'5':{'head_dim':10},'2':{'head_dim':10}}}", PESC_UNSUPPORTED,
          "per_layer_config: layer 2 has 3 heads of 10 for keys" },
        { "{'per_layer_config':{'5':7}}", PESC_FORMAT, "found an integer for layer 5" },
        { "{'per_layer_config':{'99':{'head_dim':10}}}", PESC_FORMAT, "found layer \"99\"" },
        { "{'per_layer_config':{'0':{'sliding_window':1}}}", PESC_UNSUPPORTED,
          "layer 0 has sliding_window" },
        { "{'per_layer_config':7}", PESC_FORMAT, "found an integer, expected an object" },
        { "{'global_head_dim':4096}", PESC_UNSUPPORTED, "heads of 4096 numbers" },
        { "{'num_global_key_value_heads':4}", PESC_FORMAT, "global_head_dim: found 4 heads of 20" },
        { "{'global_head_dim':21}", PESC_FORMAT, "global_head_dim: found 2 heads of 21" },
        { "{'vocab_size_per_layer_input':66}", PESC_UNSUPPORTED,
          "vocab_size_per_layer_input: found 66, expected vocab_size 67 or more" },
        { "{'num_kv_shared_layers':1}", PESC_FORMAT,
          "layer 5 shares the keys of an earlier layer of its type, but none of the first 5 is a "
          "full_attention layer" },
        { "{'num_kv_shared_layers':6}", PESC_FORMAT,
          "num_kv_shared_layers: found 6, expected fewer than the 6 layers" },
        { "{'num_kv_shared_layers':-1}", PESC_FORMAT, "num_kv_shared_layers" },
        { "{'enable_moe_block':true,'num_experts':4}", PESC_FORMAT,
          "enable_moe_block: is true, but num_experts, top_k_experts or moe_intermediate_size" },
        { "{'enable_moe_block':true,'num_experts':4,'top_k_experts':5,'moe_intermediate_size':8}",
          PESC_FORMAT, "found 5, expected 1 to 4, the number of experts" },
        { "{'use_bidirectional_attention':'all'}", PESC_UNSUPPORTED,
          "use_bidirectional_attention: is set" },
        { "{'rope_parameters':{'full_attention':{'rope_type':'dynamic','factor':2},"
          "'sliding_attention':{'rope_type':'default'}}}",
          PESC_UNSUPPORTED, "rope_type: depends on the length of a sequence" },
    };
    config c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        must_fail(read(&c, rows[i].changes), rows[i].status, rows[i].part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_of_layers),  cmocka_unit_test(last_layers_share_keys),
        cmocka_unit_test(inputs_of_layers), cmocka_unit_test(experts_beside_the_ffn),
        cmocka_unit_test(refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
