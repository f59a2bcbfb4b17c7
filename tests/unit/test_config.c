/* config.json in both spellings, what each family makes of it, and the sentences that refuse the
 * rest. Rotation is checked against formulas in double precision written here. */
#include "arch/config.h"
#include "arch/family.h"
#include "arch/rope_freq.h"
#include "base/json.h"

#include "support/check.h"

#include <math.h>
#include <stdio.h>

static const char llama[] =
    "{'model_type':'llama','hidden_size':36,'num_hidden_layers':3,'num_attention_heads':6,"
    "'num_key_value_heads':3,'intermediate_size':52,'vocab_size':67,"
    "'max_position_embeddings':128,'rms_norm_eps':1e-5,'bos_token_id':1,'eos_token_id':2}";

/* Single quotes for JSON's double ones; `changes` (may be NULL) is an object laid over it, in which
 * the string "DELETE" removes a key. */
static json_t *object(const char *text, const char *changes)
{
    char quoted[4096];
    size_t n = strlen(text);
    assert_true(n < sizeof quoted);
    for (size_t i = 0; i <= n; i++)
        quoted[i] = text[i] == '\'' ? '"' : text[i];
    json_t *o = NULL;
    must(json_parse(&o, quoted, n, "test"));
    if (changes) {
        json_t *c = object(changes, NULL), *v;
        const char *key;
        json_object_foreach(c, key, v)
        {
            if (json_is_string(v) && strcmp(json_string_value(v), "DELETE") == 0)
                json_object_del(o, key);
            else
                json_object_set(o, key, v);
        }
        json_decref(c);
    }
    return o;
}

static pesc_status read(config *c, const char *text, const char *changes)
{
    json_t *o = object(text, changes);
    pesc_status s = config_read(c, &(config_source){ .json = o, .file = "config.json" });
    json_decref(o);
    return s;
}

static void reads_the_common_keys(void **state)
{
    (void)state;
    config c;
    must(read(&c, llama, NULL));
    assert_string_equal(c.family, "llama");
    assert_int_equal(c.dim, 36);
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(c.head_dim, 6);
    assert_int_equal(c.n_kv_heads, 3);
    assert_int_equal(c.vocab, 67);
    assert_int_equal(c.context, 128);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos[0], 2);
    assert_int_equal(c.pad, -1);
    assert_int_equal(c.act, ACT_SILU);
    assert_true(c.norm_eps == 1e-5F);
    assert_false(config_layer_sparse(&c, 0));
    assert_int_equal(config_layer_window(&c, 0), 0);
    config_free(&c);
}

static void reads_both_spellings(void **state)
{
    (void)state;
    config four, five;
    must(read(&four, llama,
              "{'torch_dtype':'bfloat16','rope_theta':5e5,'rope_scaling':{'type':'llama3',"
              "'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,"
              "'original_max_position_embeddings':16}}"));
    must(read(&five, llama,
              "{'dtype':'bfloat16','rope_parameters':{'rope_theta':5e5,'rope_type':'llama3',"
              "'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,"
              "'original_max_position_embeddings':16}}"));
    assert_memory_equal(&four, &five, sizeof four);
    assert_string_equal(four.dtype, "bfloat16");
    assert_int_equal(four.ropes[0].kind, ROPE_LLAMA3);
    config_free(&four);
    config_free(&five);
}

static void reads_end_tokens(void **state)
{
    (void)state;
    config c;
    must(read(&c, llama, "{'eos_token_id':[2,5,600],'bos_token_id':null,'pad_token_id':0}"));
    assert_int_equal(c.n_eos, 2); /* 600 is beyond the vocabulary */
    assert_int_equal(c.eos[1], 5);
    assert_int_equal(c.bos, -1);
    assert_int_equal(c.pad, 0);
    config_free(&c);

    json_t *o = object(llama, NULL), *g = object("{'eos_token_id':[7,8]}", NULL);
    must(config_read(&c, &(config_source){ .json = o, .generation = g, .file = "config.json" }));
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos[0], 7);
    config_free(&c);
    json_decref(o);
    json_decref(g);
}

static void windows_follow_the_family(void **state)
{
    (void)state;
    config c;
    must(read(&c, llama, "{'model_type':'mistral'}"));
    assert_int_equal(config_layer_window(&c, 2), 4096); /* the class' default */
    config_free(&c);
    must(read(&c, llama, "{'model_type':'mistral','sliding_window':null}"));
    assert_int_equal(config_layer_window(&c, 2), 0);
    config_free(&c);
    must(read(&c, llama,
              "{'model_type':'qwen2','use_sliding_window':true,'sliding_window':5,"
              "'max_window_layers':1}"));
    assert_int_equal(config_layer_window(&c, 0), 0);
    assert_int_equal(config_layer_window(&c, 1), 5);
    config_free(&c);
    must(read(&c, llama, "{'model_type':'qwen2','sliding_window':5,'max_window_layers':1}"));
    assert_int_equal(config_layer_window(&c, 1), 0);
    config_free(&c);
    must(read(&c, llama,
              "{'model_type':'qwen2','use_sliding_window':true,'sliding_window':5,"
              "'layer_types':['sliding_attention','full_attention','full_attention']}"));
    assert_int_equal(config_layer_window(&c, 0), 5);
    assert_int_equal(config_layer_window(&c, 2), 0);
    config_free(&c);
}

static const char qwen_moe[] = "{'model_type':'qwen2_moe','num_experts':5,'num_experts_per_tok':2,"
                               "'moe_intermediate_size':20,'shared_expert_intermediate_size':28";
static const char deepseek[] =
    "{'model_type':'deepseek_v2','num_key_value_heads':6,'n_routed_experts':6,"
    "'num_experts_per_tok':2,'moe_intermediate_size':20,'n_shared_experts':2,"
    "'first_k_dense_replace':1,'q_lora_rank':null,'kv_lora_rank':16,'qk_nope_head_dim':10,"
    "'qk_rope_head_dim':6,'v_head_dim':8";

static void sparse_layers(void **state)
{
    (void)state;
    config c;
    char text[1024];
    snprintf(text, sizeof text, "%s,'decoder_sparse_step':2}", qwen_moe);
    must(read(&c, llama, text));
    assert_false(config_layer_sparse(&c, 0));
    assert_true(config_layer_sparse(&c, 1));
    assert_false(config_layer_sparse(&c, 2));
    config_free(&c);
    snprintf(text, sizeof text, "%s,'mlp_only_layers':[1]}", qwen_moe);
    must(read(&c, llama, text));
    assert_true(config_layer_sparse(&c, 0));
    assert_false(config_layer_sparse(&c, 1));
    config_free(&c);
    snprintf(text, sizeof text, "%s}", deepseek);
    must(read(&c, llama, text));
    assert_false(config_layer_sparse(&c, 0));
    assert_true(config_layer_sparse(&c, 1));
    assert_int_equal(c.moe.shared_dim, 40);
    assert_int_equal(config_qk_dim(&c), 16);
    assert_int_equal(config_rot_dim(&c), 6);
    config_free(&c);
}

static void adapters_are_never_dense(void **state)
{
    (void)state;
    static const char keys[] = "'num_experts':8,'topk':2,'adapter_dim':12,'moe_scaling':0.25}";
    config c;
    char text[256];
    snprintf(text, sizeof text, "{%s", keys);
    must(read(&c, llama, text)); /* model_type llama, as the official merge writes it */
    assert_string_equal(c.family, "camelidae");
    assert_int_equal(c.moe.kind, EXPERT_ADAPTER);
    assert_int_equal(c.moe.topk.n_experts, 8);
    assert_int_equal(c.moe.topk.k, 2);
    assert_int_equal(c.moe.expert_dim, 12);
    assert_true(c.moe.adapter_scale == 0.25F && c.moe.topk.score_after_topk);
    config_free(&c);
    snprintf(text, sizeof text, "{'model_type':'camelidae',%s", keys);
    must(read(&c, llama, text));
    config_free(&c);
    must_fail(read(&c, llama, "{'model_type':'camelidae'}"), PESC_FORMAT,
              "num_experts: is missing");
    must_fail(read(&c, llama, "{'moe_scaling':0.25,'num_experts':8,'topk':2}"), PESC_FORMAT,
              "adapter_dim: is missing; the model has adapters");
}

/* ---- refusals ---- */

static const struct {
    const char *changes;
    pesc_status status;
    const char *part;
} refused[] = {
    { "{'hidden_size':'DELETE'}", PESC_FORMAT, "config.json: hidden_size: is missing" },
    { "{'hidden_size':null}", PESC_FORMAT, "hidden_size: is missing" },
    { "{'hidden_size':'36'}", PESC_FORMAT, "hidden_size: found a string, expected an integer" },
    { "{'hidden_size':36.5}", PESC_FORMAT, "hidden_size: found a fraction" },
    { "{'hidden_size':true}", PESC_FORMAT, "hidden_size: found a boolean" },
    { "{'hidden_size':35}", PESC_FORMAT, "6 heads do not divide hidden_size 35" },
    { "{'num_attention_heads':0}", PESC_FORMAT, "num_attention_heads: found 0, expected 1" },
    { "{'num_key_value_heads':4}", PESC_FORMAT, "4 does not divide num_attention_heads 6" },
    { "{'num_key_value_heads':0}", PESC_FORMAT, "num_key_value_heads: found 0, expected 1" },
    { "{'head_dim':7}", PESC_FORMAT, "head_dim: found 7, expected an even number" },
    { "{'num_hidden_layers':0}", PESC_FORMAT, "num_hidden_layers: found 0" },
    { "{'num_hidden_layers':-1}", PESC_FORMAT, "num_hidden_layers: found -1" },
    { "{'num_hidden_layers':1000000000}", PESC_FORMAT, "num_hidden_layers: found 1000000000" },
    { "{'vocab_size':0}", PESC_FORMAT, "vocab_size: found 0" },
    { "{'vocab_size':2147483648}", PESC_FORMAT, "vocab_size: found 2147483648" },
    { "{'intermediate_size':0}", PESC_FORMAT, "intermediate_size: found 0" },
    { "{'max_position_embeddings':0}", PESC_FORMAT, "max_position_embeddings: found 0" },
    { "{'max_position_embeddings':4611686018427387904}", PESC_FORMAT, "max_position_embeddings" },
    { "{'rms_norm_eps':0}", PESC_FORMAT, "rms_norm_eps: found 0" },
    { "{'rms_norm_eps':-1e-5}", PESC_FORMAT, "rms_norm_eps: found -1e-05" },
    { "{'rms_norm_eps':'1e-5'}", PESC_FORMAT, "rms_norm_eps: found a string" },
    { "{'rope_theta':0}", PESC_FORMAT, "rope_theta: found 0, expected a number above 0" },
    { "{'rope_scaling':5}", PESC_FORMAT, "rope_scaling: found an integer, expected an object" },
    { "{'rope_scaling':{'type':'ntk'}}", PESC_UNSUPPORTED, "rope_type: found \"ntk\", expected" },
    { "{'rope_scaling':{'type':'su'}}", PESC_FORMAT, "short_factor: found nothing of 0" },
    { "{'rope_scaling':{'type':'longrope','short_factor':[1,2,3],'long_factor':[1,2]}}",
      PESC_FORMAT, "long_factor: found an array of 2, expected an array of 3 numbers" },
    { "{'rope_scaling':{'type':'longrope','short_factor':[1,0,3],'long_factor':[1,2,3]}}",
      PESC_FORMAT, "short_factor[1]: expected a number above 0" },
    { "{'rope_scaling':{'type':'linear'}}", PESC_FORMAT, "factor: is missing" },
    { "{'rope_scaling':{'type':'linear','factor':0}}", PESC_FORMAT, "factor: found 0" },
    { "{'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4}}",
      PESC_FORMAT, "high_freq_factor: found 4, expected more than 4" },
    { "{'rope_parameters':{'partial_rotary_factor':0.5}}", PESC_UNSUPPORTED,
      "partial_rotary_factor: found 0.5" },
    { "{'rope_parameters':{'full_attention':{'rope_theta':1e4},'sliding_attention':"
      "{'rope_theta':1e6}}}",
      PESC_UNSUPPORTED, "rotate differently" },
    { "{'partial_rotary_factor':0.25}", PESC_UNSUPPORTED, "partial_rotary_factor: is set" },
    { "{'hidden_act':'quick_gelu'}", PESC_UNSUPPORTED, "hidden_act: found \"quick_gelu\"" },
    { "{'clip_qkv':8.0}", PESC_UNSUPPORTED, "clip_qkv: is set" },
    { "{'final_logit_softcapping':30.0}", PESC_UNSUPPORTED, "final_logit_softcapping: is set" },
    { "{'model_type':'mistral','attention_bias':true}", PESC_UNSUPPORTED,
      "attention_bias: is set" },
    { "{'torch_dtype':'int3'}", PESC_UNSUPPORTED, "torch_dtype: found \"int3\"" },
    { "{'model_type':'gpt2'}", PESC_UNSUPPORTED, "model_type: found \"gpt2\"" },
    { "{'model_type':'DELETE'}", PESC_FORMAT, "model_type: is missing" },
    { "{'model_type':7}", PESC_FORMAT, "model_type: found an integer, expected a string" },
    { "{'tie_word_embeddings':1}", PESC_FORMAT, "tie_word_embeddings: found an integer" },
    { "{'eos_token_id':'2'}", PESC_FORMAT, "eos_token_id: found a string" },
    { "{'eos_token_id':[2,'x']}", PESC_FORMAT, "eos_token_id: found a string" },
    { "{'quantization_config':{'quant_method':'gptq'}}", PESC_UNSUPPORTED,
      "quant_method \"gptq\"" },
    { "{'quantization_config':{'quant_method':'bitsandbytes','load_in_4bit':false}}",
      PESC_UNSUPPORTED, "found 8-bit" },
    { "{'layer_types':['full_attention']}", PESC_FORMAT, "layer_types: found an array of 1" },
    { "{'model_type':'mistral','sliding_window':0}", PESC_FORMAT, "sliding_window: found 0" },
    { "{'model_type':'mixtral'}", PESC_FORMAT, "num_experts: is missing" },
    { "{'model_type':'mixtral','num_local_experts':0}", PESC_FORMAT, "num_local_experts: found 0" },
    { "{'model_type':'mixtral','num_local_experts':1000000}", PESC_FORMAT, "found 1000000" },
    { "{'model_type':'mixtral','num_local_experts':4,'num_experts_per_tok':5}", PESC_FORMAT,
      "num_experts_per_tok: found 5, expected 1 to 4" },
    { "{'model_type':'mixtral','num_local_experts':4,'num_experts_per_tok':0}", PESC_FORMAT,
      "num_experts_per_tok: found 0" },
    { "{'model_type':'mixtral','num_local_experts':4,'num_experts':5}", PESC_FORMAT,
      "num_local_experts: found 4, but num_experts says 5" },
    { "{'num_experts':8,'topk':9,'adapter_dim':12,'moe_scaling':1}", PESC_FORMAT,
      "topk: found 9, expected 1 to 8" },
};

static void refuses_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        config c;
        must_fail(read(&c, llama, refused[i].changes), refused[i].status, refused[i].part);
    }
}

static void refuses_what_deepseek_cannot_mean(void **state)
{
    (void)state;
    static const struct {
        const char *more, *part;
    } rows[] = {
        { "'topk_method':'noaux_tc'", "topk_method: found \"noaux_tc\"" },
        { "'scoring_func':'sigmoid'", "scoring_func: found \"sigmoid\"" },
        { "'topk_method':'group_limited_greedy','n_group':4,'topk_group':1",
          "4 groups do not divide 6 experts" },
        { "'topk_method':'group_limited_greedy','n_group':6,'topk_group':1",
          "topk_group: 1 of 6 groups of 1 experts cannot give 2" },
        { "'num_key_value_heads':3", "num_key_value_heads: found 3, expected 6" },
        { "'qk_rope_head_dim':5", "qk_rope_head_dim: found 5, expected an even number" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[1024], more[256];
        config c;
        snprintf(text, sizeof text, "%s}", deepseek);
        snprintf(more, sizeof more, "{%s}", rows[i].more);
        json_t *o = object(llama, text), *m = object(more, NULL);
        json_object_update(o, m);
        pesc_status s = config_read(&c, &(config_source){ .json = o, .file = "config.json" });
        assert_int_not_equal(s, PESC_OK);
        if (!strstr(pesc_last_error(), rows[i].part))
            fail_msg("got %s, expected %s", pesc_last_error(), rows[i].part);
        json_decref(o);
        json_decref(m);
    }
}

/* ---- null ---- */

/* A configuration of each family with every key it needs. */
static json_t *whole_config(const family *f)
{
    json_t *o = object(
        llama,
        "{'num_experts':8,'moe_intermediate_size':20,'shared_expert_intermediate_size':28,"
        "'topk':2,'adapter_dim':12,'moe_scaling':0.5,'kv_lora_rank':16,'qk_nope_head_dim':10,"
        "'qk_rope_head_dim':6,'v_head_dim':8,'num_key_value_heads':6,'num_experts_per_tok':2,"
        "'decoder_sparse_step':2,'moe_layer_freq':2,'partial_rotary_factor':1,'sliding_window':4,"
        "'rms_norm_eps':0.5,'routed_scaling_factor':3,'hidden_act':'gelu','rope_theta':500,"
        "'dtype':'bfloat16','layer_types':['attention','attention','attention']}");
    json_object_set_new(o, "model_type", json_string(f->model_type));
    if (!f->adapters) /* their keys make a mixture of any family */
        for (const config_key *k = adapter_keys + 1; k->names; k++)
            json_object_del(o, k->names);
    return o;
}

typedef struct outcome {
    pesc_status status;
    config c;
    char sentence[256];
} outcome;

static outcome outcome_of(const json_t *o)
{
    outcome r = { 0 };
    r.status = config_read(&r.c, &(config_source){ .json = o, .file = "config.json" });
    if (r.status != PESC_OK) {
        snprintf(r.sentence, sizeof r.sentence, "%s", pesc_last_error());
        memset(&r.c, 0, sizeof r.c);
    }
    config_free(&r.c);
    return r;
}

/* A key that is null and a key that is not there: the same configuration or the same sentence. */
static void null_is_absent(json_t *o, json_t *in, const char *family_name, const char *key)
{
    json_t *before = json_incref(json_object_get(in, key));
    json_object_set_new(in, key, json_null());
    outcome null = outcome_of(o);
    json_object_del(in, key);
    outcome absent = outcome_of(o);
    if (memcmp(&null, &absent, sizeof null) != 0)
        fail_msg("%s: %s: null gives %d \"%s\", absent %d \"%s\"", family_name, key, null.status,
                 null.sentence, absent.status, absent.sentence);
    if (before)
        json_object_set_new(in, key, before);
}

/* The few keys whose null says "none" in transformers, where absence is a default. */
static void null_is_off(json_t *o, const family *f, const config_key *k)
{
    json_t *with = json_deep_copy(o);
    json_object_set_new(with, k->names, json_null());
    outcome r = outcome_of(with);
    json_decref(with);
    if (r.status != PESC_OK)
        fail_msg("%s: %s: null gives \"%s\"", f->name, k->names, r.sentence);
    assert_int_equal(*(const int32_t *)(const void *)((const char *)&r.c + k->offset), 0);
}

static int null_in_table(json_t *o, const family *f, const config_key *keys)
{
    int n = 0;
    for (const config_key *k = keys; k && k->names; k++) {
        char names[128];
        snprintf(names, sizeof names, "%s", k->names);
        for (char *rest = names, *name; (name = strtok_r(rest, "|", &rest)); n++)
            if (k->absence == KEY_NULLABLE)
                null_is_off(o, f, k);
            else
                null_is_absent(o, o, f->name, name);
    }
    return n;
}

static void null_means_absent(void **state)
{
    (void)state;
    static const char *const others[] = {
        "model_type",      "hidden_act",
        "dtype",           "torch_dtype",
        "topk_method",     "scoring_func",
        "rope_theta",      "rope_scaling",
        "rope_parameters", "quantization_config",
        "layer_types",     "mlp_only_layers",
        "bos_token_id",    "eos_token_id",
        "molora_experts",  "original_max_position_embeddings",
        "attention_bias",  "clip_qkv",
        "norm_topk_prob",  "auto_map",
    };
    int n = 0;
    const family *f;
    for (size_t i = 0; (f = family_at(i)); i++) {
        json_t *o = whole_config(f);
        outcome r = outcome_of(o);
        if (r.status != PESC_OK)
            fail_msg("%s: %s", f->name, r.sentence);
        for (int t = 0; t < FAMILY_MAX_TABLES; t++)
            n += null_in_table(o, f, f->keys[t]);
        if (f->adapters)
            n += null_in_table(o, f, adapter_keys);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            null_is_absent(o, o, f->name, others[k]);
        json_decref(o);
    }
    assert_true(n > 150);
}

static void null_inside_objects(void **state)
{
    (void)state;
    static const char *const rotations[] = {
        "{'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4}}",
        "{'rope_parameters':{'rope_type':'yarn','rope_theta':900,'factor':4,'beta_fast':30,"
        "'beta_slow':2,'attention_factor':0.5,'mscale':2,'mscale_all_dim':3,'truncate':false,"
        "'original_max_position_embeddings':16,'partial_rotary_factor':1}}",
        "{'rope_parameters':{'full_attention':{'rope_theta':900},'sliding_attention':"
        "{'rope_theta':900}}}",
        "{'quantization_config':{'quant_method':'bitsandbytes','load_in_4bit':true,"
        "'bnb_4bit_quant_type':'nf4'}}",
    };
    for (size_t i = 0; i < sizeof rotations / sizeof *rotations; i++) {
        json_t *o = object(llama, rotations[i]), *all = object(rotations[i], NULL);
        const char *outer, *key;
        json_t *inner, *v;
        json_object_foreach(all, outer, inner)
        {
            json_object_foreach(inner, key, v)
                null_is_absent(o, json_object_get(o, outer), outer, key);
        }
        json_decref(o);
        json_decref(all);
    }
}

static void zero_is_refused_where_it_divides(void **state)
{
    (void)state;
    static const struct {
        const char *family, *key;
    } rows[] = { { "qwen2_moe", "decoder_sparse_step" },
                 { "qwen3_moe", "decoder_sparse_step" },
                 { "deepseek_v2", "moe_layer_freq" },
                 { "deepseek_v2", "n_group" },
                 { "llama", "num_attention_heads" },
                 { "llama", "num_key_value_heads" },
                 { "llama", "head_dim" } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const family *f;
        must(family_find(&f, rows[i].family, "test"));
        json_t *o = whole_config(f);
        json_object_set_new(o, rows[i].key, json_integer(0));
        outcome r = outcome_of(o);
        char part[64];
        snprintf(part, sizeof part, "%s: found 0, expected 1", rows[i].key);
        assert_int_equal(r.status, PESC_FORMAT);
        assert_non_null(strstr(r.sentence, part));
        json_decref(o);
    }
}

/* ---- rotation ---- */

static void check_freq(const char *changes, int64_t length, double (*want)(int i, int dim))
{
    config c;
    float got[64];
    must(read(&c, llama, changes));
    int dim = config_rot_dim(&c);
    rope_frequencies(&c, 0, length, got);
    for (int i = 0; i < dim / 2; i++)
        assert_true(fabs((double)got[i] / want(i, dim) - 1) < 1e-6);
    config_free(&c);
}

static double plain(int i, int dim)
{
    return pow(1e4, -2.0 * i / dim);
}
static double by_four(int i, int dim)
{
    return plain(i, dim) / 4;
}
static double stretched(int i, int dim) /* dynamic, factor 3, 256 tokens of 128 */
{
    double theta = 1e4 * pow(3 * 256 / 128.0 - 2, dim / (dim - 2.0));
    return pow(theta, -2.0 * i / dim);
}
static double banded(int i, int dim) /* llama3: factor 8, 1 to 4, 64 */
{
    double f = plain(i, dim), turns = 64 * f / (2 * M_PI);
    if (turns > 4)
        return f;
    if (turns < 1)
        return f / 8;
    double t = (turns - 1) / 3;
    return (1 - t) * f / 8 + t * f;
}
static double ramped(int i, int dim) /* yarn: factor 4, 32, betas 32 and 1 */
{
    double f = plain(i, dim);
    double low = floor(dim * log(32 / (32 * 2 * M_PI)) / (2 * log(1e4)));
    double high = ceil(dim * log(32 / (2 * M_PI)) / (2 * log(1e4)));
    low = fmax(low, 0);
    high = fmin(high, dim - 1);
    double t = fmin(fmax((i - low) / (high - low), 0), 1);
    return f / 4 * t + f * (1 - t);
}

static double by_short(int i, int dim)
{
    return plain(i, dim) / (1 + i);
}
static double by_long(int i, int dim)
{
    return plain(i, dim) / (4 + i);
}

static void frequencies(void **state)
{
    (void)state;
    static const char longrope[] =
        "{'rope_scaling':{'type':'longrope','short_factor':[1,2,3],'long_factor':[4,5,6],"
        "'original_max_position_embeddings':32}}";
    check_freq(longrope, 32, by_short);
    check_freq(longrope, 33, by_long);
    check_freq(NULL, 1, plain);
    check_freq("{'rope_scaling':{'type':'linear','factor':4}}", 1, by_four);
    check_freq("{'head_dim':10,'rope_scaling':{'type':'dynamic','factor':3}}", 128, plain);
    check_freq("{'head_dim':10,'rope_scaling':{'type':'dynamic','factor':3}}", 256, stretched);
    check_freq("{'head_dim':64,'rope_scaling':{'type':'llama3','factor':8,'low_freq_factor':1,"
               "'high_freq_factor':4,'original_max_position_embeddings':64}}",
               1, banded);
    check_freq("{'head_dim':64,'rope_scaling':{'type':'yarn','factor':4,"
               "'original_max_position_embeddings':32}}",
               1, ramped);
    /* without a factor it is that of the contexts, 128 of 32 */
    check_freq("{'head_dim':64,'rope_scaling':{'type':'yarn',"
               "'original_max_position_embeddings':32}}",
               1, ramped);
}

static void yarn_scales(void **state)
{
    (void)state;
    config c;
    must(read(&c, llama, "{'rope_scaling':{'type':'yarn','factor':4}}"));
    assert_true(fabs((double)rope_table_scale(&c.ropes[0]) - (0.1 * log(4) + 1)) < 1e-6);
    assert_true(fabs((double)rope_attention_scale(&c) - 1 / sqrt(6)) < 1e-6);
    config_free(&c);
    char text[1024];
    snprintf(text, sizeof text,
             "%s,'rope_scaling':{'type':'yarn','factor':40,'mscale':0.707,'mscale_all_dim':1.0}}",
             deepseek);
    must(read(&c, llama, text));
    double m = 0.1 * log(40) + 1, small = 0.0707 * log(40) + 1;
    assert_true(fabs((double)rope_table_scale(&c.ropes[0]) - small / m) < 1e-6);
    assert_true(fabs((double)rope_attention_scale(&c) - m * m / sqrt(16)) < 1e-6);
    config_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_common_keys),
        cmocka_unit_test(reads_both_spellings),
        cmocka_unit_test(reads_end_tokens),
        cmocka_unit_test(windows_follow_the_family),
        cmocka_unit_test(sparse_layers),
        cmocka_unit_test(adapters_are_never_dense),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(refuses_what_deepseek_cannot_mean),
        cmocka_unit_test(null_means_absent),
        cmocka_unit_test(null_inside_objects),
        cmocka_unit_test(zero_is_refused_where_it_divides),
        cmocka_unit_test(frequencies),
        cmocka_unit_test(yarn_scales),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
