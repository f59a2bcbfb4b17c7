/* craft against the numbers in the files: what is copied is copied bit for bit, what is made is
 * what the definition says; and what craft, merge and export refuse. */
#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

static pesc_craft_options small(const char *kind)
{
    pesc_craft_options o = pesc_craft_defaults();
    o.kind = kind;
    o.experts = 4;
    o.adapter_dim = 6;
    o.adapter_scale = 0.5;
    o.seed = 7;
    return o;
}

/* ---- kind pesc ---- */

static void is_uniform(const weight *w, uint64_t seed, double bound)
{
    float *x = modeldirs_numbers(w), most = 0;
    rng_key key = { seed, rng_stream(2, XXH64(w->name, strlen(w->name), 0), 0) };
    for (int64_t i = 0; i < weights_elements(w); i++) {
        float want = (2 * rng_uniform(key, (uint64_t)i) - 1) * (float)bound;
        assert_true(fabsf(x[i] - want) <= 1e-6f * (float)bound);
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    assert_true((double)most <= bound && (double)most > 0.5 * bound);
    free(x);
}

static void crafts_adapters(void **state)
{
    (void)state;
    char from[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("pesc");
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, "llama"), files_path("out"), &o,
                    &check));
    assert_true(check.logits > 0 && check.differ == 0);
    hfdir *dense = modeldirs_open(from), *sparse = modeldirs_open(files_path("out"));
    modeldirs_same_all(dense, sparse);
    double bound = 1 / sqrt((double)modeldirs_int(dense, "hidden_size"));
    is_uniform(modeldirs_tensor(sparse, "model.layers.1.mlp.moe_adapter.router.weight"), 7, bound);
    is_uniform(modeldirs_tensor(
                   sparse, "model.layers.0.mlp.moe_adapter.experts.expert_3.adapter_down.weight"),
               7, bound);
    const weight *up = modeldirs_tensor(
        sparse, "model.layers.0.mlp.moe_adapter.experts.expert_3.adapter_up.weight");
    for (size_t i = 0; i < up->bytes; i++)
        assert_int_equal(up->data[i], 0);
    assert_string_equal(modeldirs_text(sparse, "model_type"), "camelidae");
    assert_int_equal(modeldirs_int(sparse, "num_experts"), 4);
    assert_int_equal(modeldirs_int(sparse, "topk"), 2);
    assert_int_equal(modeldirs_int(sparse, "adapter_dim"), 6);
    assert_true(json_number_value(json_object_get(sparse->config, "moe_scaling")) == 0.5);
    assert_true(json_is_false(json_object_get(sparse->config, "output_router_logits")));
    assert_string_equal(modeldirs_text(sparse, "moe_dtype"), "float32");
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(sparse->config, "architectures"), 0)),
        "modeling_camelidae.LlamaForCausalLM");
    const json_t *map = json_object_get(sparse->config, "auto_map");
    assert_string_equal(json_string_value(json_object_get(map, "AutoConfig")),
                        "configuration_camelidae.CamelidaeConfig");
    assert_int_equal(modeldirs_int(sparse, "hidden_size"), modeldirs_int(dense, "hidden_size"));
    hfdir_close(dense);
    hfdir_close(sparse);
}

/* Each parent goes to the layout that can say what it is, and computes the same. */
static void parents_keep_their_facts(void **state)
{
    (void)state;
    static const struct {
        const char *parent, *type, *expert;
    } rows[] = {
        { "llama3", "camelidae", "expert_0" }, { "yi", "camelidae", "expert_0" },
        { "mistral", "sparsetral", "0" }, /* it has a window */
        { "qwen2", "qwen2idae", "expert_0" },  { "qwen2-window", "qwen2idae", "expert_0" },
        { "qwen3", "qwen3", "expert_0" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char from[512], name[128];
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_craft_options o = small("pesc");
        files_clear();
        must(pesc_craft(modeldirs_device(), modeldirs_golden(from, rows[i].parent),
                        files_path("out"), &o, &check));
        assert_int_equal(check.differ, 0);
        hfdir *h = modeldirs_open(files_path("out"));
        assert_string_equal(modeldirs_text(h, "model_type"), rows[i].type);
        assert_null(json_object_get(h->config, "rope_parameters"));
        assert_non_null(json_object_get(h->config, "rope_theta"));
        hfdir_close(h);
        size_t n;
        char *bytes = files_get(files_path("out/model.safetensors"), &n);
        snprintf(name, sizeof name, "moe_adapter.experts.%s.adapter_up", rows[i].expert);
        assert_non_null(memmem(bytes, n, name, strlen(name)));
        free(bytes);
    }
}

/* A copy of a golden model in "odd", with values of its config.json replaced. */
static const char *changed_by(const char *golden, json_t *values)
{
    char from[512], path[600];
    size_t n;
    files_clear();
    snprintf(path, sizeof path, "%s/config.json", modeldirs_golden(from, golden));
    json_t *json = json_load_file(path, 0, NULL);
    json_object_update(json, values);
    json_decref(values);
    char *text = json_dumps(json, 0);
    files_text("odd/config.json", text);
    mem_free(text);
    json_decref(json);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    char *bytes = files_get(path, &n);
    files_put("odd/model.safetensors", bytes, n);
    free(bytes);
    return files_path("odd");
}

static const char *changed_model(const char *golden, const char *key, json_t *value)
{
    return changed_by(golden, json_pack("{s:o}", key, value));
}

/* A configuration that says "tied" beside a head of its own: the head is the model's. */
static void a_stored_head_is_kept(void **state)
{
    (void)state;
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("pesc");
    must(pesc_craft(modeldirs_device(), changed_model("llama", "tie_word_embeddings", json_true()),
                    files_path("out"), &o, &check));
    assert_int_equal(check.differ, 0);
    hfdir *a = modeldirs_open(files_path("odd")), *b = modeldirs_open(files_path("out"));
    modeldirs_same(a, "lm_head.weight", b, "lm_head.weight");
    hfdir_close(a);
    hfdir_close(b);
}

static void null_in_rope_parameters_is_absent(void **state)
{
    (void)state;
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("pesc");
    json_t *rope = json_pack("{s:n,s:f,s:n}", "rope_type", "rope_theta", 10000.0, "full_attention");
    must(pesc_craft(modeldirs_device(), changed_model("llama", "rope_parameters", rope),
                    files_path("out"), &o, &check));
    assert_int_equal(check.differ, 0);
}

/* The type of rope_parameters may be spelt as in rope_scaling, and its theta wins over the one
 * beside it. */
static void spellings_of_rope_parameters(void **state)
{
    (void)state;
    static const char *const rotations[] = {
        "{\"type\": \"linear\", \"factor\": 2.0}",
        "{\"rope_theta\": 500.0}",
        "{\"type\": \"yarn\", \"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 500.0}",
    };
    for (size_t i = 0; i < sizeof rotations / sizeof *rotations; i++) {
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_craft_options o = small("pesc");
        json_t *rope = json_loads(rotations[i], 0, NULL);
        char dense[512];
        snprintf(dense, sizeof dense, "%s",
                 changed_by("llama",
                            json_pack("{s:f,s:o}", "rope_theta", 9000.0, "rope_parameters", rope)));
        must(pesc_craft(modeldirs_device(), dense, files_path("out"), &o, &check));
        assert_int_equal(check.differ, 0);
        pesc_export_options e = pesc_export_defaults();
        must(pesc_export(modeldirs_device(), dense, "hf", files_path("same"), &e, &check));
        assert_int_equal(check.differ, 0);
    }
}

/* The configuration of such a model owns memory, and it is read once more from the file. */
static void some_plain_layers_in_gguf(void **state)
{
    (void)state;
    char from[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("upcycle");
    pesc_export_options e = pesc_export_defaults();
    o.layers = "0";
    e.dtype = "f32";
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, "qwen3"), files_path("out"), &o,
                    &check));
    snprintf(from, sizeof from, "%s", files_path("out"));
    must(pesc_export(modeldirs_device(), from, "gguf", files_path("out.gguf"), &e, &check));
    assert_int_equal(check.differ, 0);
}

static void dtype_is_a_choice(void **state)
{
    (void)state;
    char from[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = small("pesc");
    o.dtype = "bf16";
    files_clear();
    must(pesc_craft(modeldirs_device(), modeldirs_golden(from, "llama"), files_path("out"), &o,
                    &check));
    assert_int_equal(check.differ, 0);
    hfdir *h = modeldirs_open(files_path("out"));
    assert_int_equal(modeldirs_tensor(h, "model.layers.0.mlp.up_proj.weight")->dt, DT_BF16);
    assert_int_equal(modeldirs_tensor(h, "model.norm.weight")->dt, DT_F32);
    assert_string_equal(modeldirs_text(h, "torch_dtype"), "bfloat16");
    hfdir_close(h);
}

static void gguf_and_nf4_parents_are_written_out(void **state)
{
    (void)state;
    static const char *const parents[] = { "gguf/llama-square-q8_0.gguf", "gguf/llama3-f32.gguf",
                                           "bnb" };
    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        char from[512];
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_craft_options o = small("pesc");
        files_clear();
        must(pesc_craft(modeldirs_device(), modeldirs_golden(from, parents[i]), files_path("out"),
                        &o, &check));
        assert_true(check.logits > 0 && check.differ == 0);
        hfdir *h = modeldirs_open(files_path("out"));
        assert_null(json_object_get(h->config, "quantization_config"));
        assert_int_equal(modeldirs_tensor(h, "model.layers.0.mlp.up_proj.weight")->dt,
                         i == 1 ? DT_F32 : DT_BF16);
        hfdir_close(h);
    }
}

static void the_seed_decides(void **state)
{
    (void)state;
    char from[512];
    pesc_craft_options o = small("pesc");
    o.check = false;
    files_clear();
    modeldirs_golden(from, "llama");
    must(pesc_craft(modeldirs_device(), from, files_path("a"), &o, NULL));
    must(pesc_craft(modeldirs_device(), from, files_path("b"), &o, NULL));
    o.seed = 8;
    must(pesc_craft(modeldirs_device(), from, files_path("c"), &o, NULL));
    hfdir *a = modeldirs_open(files_path("a")), *b = modeldirs_open(files_path("b")),
          *c = modeldirs_open(files_path("c"));
    const char *router = "model.layers.0.mlp.moe_adapter.router.weight";
    modeldirs_same(a, router, b, router);
    const weight *x = modeldirs_tensor(a, router), *y = modeldirs_tensor(c, router);
    assert_memory_not_equal(x->data, y->data, x->bytes);
    hfdir_close(a);
    hfdir_close(b);
    hfdir_close(c);
}

/* ---- kind upcycle ---- */

static void upcycles(void **state)
{
    (void)state;
    static const struct {
        const char *parent, *type, *class, *gate, *up, *down, *experts;
    } rows[] = {
#define MIXTRAL                                                                                    \
    "mixtral", "MixtralForCausalLM", "block_sparse_moe.experts.%d.w1",                             \
        "block_sparse_moe.experts.%d.w3", "block_sparse_moe.experts.%d.w2", "num_local_experts"
#define QWEN(n)                                                                                    \
    "qwen" n "_moe", "Qwen" n "MoeForCausalLM", "mlp.experts.%d.gate_proj",                        \
        "mlp.experts.%d.up_proj", "mlp.experts.%d.down_proj", "num_experts"
        { "llama", MIXTRAL },   { "llama3", MIXTRAL },         { "mistral", MIXTRAL },
        { "qwen2", QWEN("2") }, { "qwen2-window", QWEN("2") }, { "qwen3", QWEN("3") },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char from[512];
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_craft_options o = small("upcycle");
        files_clear();
        must(pesc_craft(modeldirs_device(), modeldirs_golden(from, rows[i].parent),
                        files_path("out"), &o, &check));
        assert_true(check.logits > 0 && check.max_diff <= 1e-5 * check.max_logit);
        hfdir *dense = modeldirs_open(from), *sparse = modeldirs_open(files_path("out"));
        assert_string_equal(modeldirs_text(sparse, "model_type"), rows[i].type);
        assert_int_equal(modeldirs_int(sparse, rows[i].experts), 4);
        assert_int_equal(modeldirs_int(sparse, "num_experts_per_tok"), 2);
        const json_t *list = json_object_get(sparse->config, "architectures");
        assert_string_equal(json_string_value(json_array_get(list, 0)), rows[i].class);
        for (int e = 0; e < 4; e++) {
            const char *pairs[][2] = { { rows[i].gate, "mlp.gate_proj" },
                                       { rows[i].up, "mlp.up_proj" },
                                       { rows[i].down, "mlp.down_proj" } };
            for (int k = 0; k < 3; k++) {
                char at[64], expert[128], ffn[128];
                snprintf(at, sizeof at, pairs[k][0], e);
                snprintf(expert, sizeof expert, "model.layers.1.%s.weight", at);
                snprintf(ffn, sizeof ffn, "model.layers.1.%s.weight", pairs[k][1]);
                modeldirs_same(dense, ffn, sparse, expert);
            }
        }
        hfdir_close(dense);
        hfdir_close(sparse);
    }
}

/* ---- refusals ---- */

static void refuses_options(void **state)
{
    (void)state;
    char from[512];
    modeldirs_golden(from, "llama");
    files_clear();
    const char *out = files_path("out");
    pesc_craft_options o = small("pesc");
    o.top_k = 5;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "top_k: found 5, expected 1 to 4");
    o = small("pesc");
    o.adapter_dim = 0;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "adapter_dim: found 0");
    o = small("pesc");
    o.experts = 0;
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE, "experts: found 0");
    o = small("sparse");
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "kind: found \"sparse\"");
    o = small("pesc");
    o.dtype = "f16";
    must_fail(pesc_craft(modeldirs_device(), from, out, &o, NULL), PESC_USAGE,
              "dtype: found \"f16\"");
    assert_false(files_there("out"));
}

static void refuses_models(void **state)
{
    (void)state;
    char from[512], lora_dir[512];
    pesc_craft_options o = small("pesc");
    pesc_export_options e = pesc_export_defaults();
    files_clear();
    const char *out = files_path("out");
    must_fail(pesc_craft(modeldirs_device(), modeldirs_golden(from, "camelidae"), out, &o, NULL),
              PESC_USAGE, "is sparse already");
    pesc_craft_options copies = small("upcycle");
    must_fail(pesc_craft(modeldirs_device(), modeldirs_golden(from, "mixtral"), out, &copies, NULL),
              PESC_USAGE, "is sparse already");
    must_fail(pesc_export(modeldirs_device(), modeldirs_golden(from, "camelidae-choices"),
                          "camelidae", out, &e, NULL),
              PESC_UNSUPPORTED, "adapter_act");
    must_fail(pesc_export(modeldirs_device(), modeldirs_golden(from, "llama"), "camelidae", out, &e,
                          NULL),
              PESC_USAGE, "has no adapters");
    must_fail(
        pesc_export(modeldirs_device(), modeldirs_golden(from, "llama"), "peft", out, &e, NULL),
        PESC_USAGE, "has no LoRA");
    must_fail(
        pesc_export(modeldirs_device(), modeldirs_golden(from, "llama"), "onnx", out, &e, NULL),
        PESC_USAGE, "expected hf, peft");
    must_fail(pesc_merge(modeldirs_device(), modeldirs_golden(from, "llama"), out, &e, NULL),
              PESC_USAGE, "has no LoRA to merge");
    e.lora = modeldirs_golden(lora_dir, "peft/adapter");
    must_fail(
        pesc_export(modeldirs_device(), modeldirs_golden(from, "mixtral"), "hf", out, &e, NULL),
        PESC_SHAPE, "on no linear of");
    must_fail(pesc_merge(modeldirs_device(), modeldirs_golden(from, "mixtral"), out, &e, NULL),
              PESC_SHAPE, "on no linear of");
    e.merge_base = "q8";
    must_fail(pesc_merge(modeldirs_device(), modeldirs_golden(from, "peft/base"), out, &e, NULL),
              PESC_USAGE, "merge_base");
    assert_false(files_there("out"));
    files_text("out/mine", "x");
    must_fail(pesc_craft(modeldirs_device(), modeldirs_golden(from, "llama"), files_path("out"), &o,
                         NULL),
              PESC_USAGE, "is not empty");
}

static void what_a_mixture_cannot_say_is_refused(void **state)
{
    (void)state;
    char from[512], config[600];
    files_clear();
    modeldirs_golden(from, "llama");
    snprintf(config, sizeof config, "%s/config.json", from);
    json_t *json = json_load_file(config, 0, NULL);
    json_object_set_new(json, "attention_bias", json_true());
    char *text = json_dumps(json, 0);
    files_text("biased.json", text);
    mem_free(text);
    json_decref(json);
    must(pesc_new(files_path("biased.json"), files_path("biased"), NULL, "f32", 1, NULL));
    pesc_craft_options o = small("upcycle");
    must_fail(pesc_craft(modeldirs_device(), files_path("biased"), files_path("out"), &o, NULL),
              PESC_UNSUPPORTED, "mixtral has no place for its attention_bias");
    assert_false(files_there("out"));
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    o = small("pesc");
    must(pesc_craft(modeldirs_device(), files_path("biased"), files_path("out"), &o, &check));
    assert_int_equal(check.differ, 0);
}

static void no_room_is_seen_before_the_first_byte(void **state)
{
    (void)state;
    char from[512];
    pesc_craft_options o = small("pesc");
    o.experts = 4096;
    o.adapter_dim = 1 << 22;
    files_clear();
    must_fail(pesc_craft(modeldirs_device(), modeldirs_golden(from, "llama"), files_path("out"), &o,
                         NULL),
              PESC_DISK, "GB of disk");
    assert_false(files_there("out"));
}

static void a_full_disk_leaves_no_model(void **state)
{
    (void)state;
    static const char *const faults[] = { "write:1:ENOSPC", "write:9:ENOSPC", "fsync:1:EIO",
                                          "rename:1:EIO", "mkdir:1:EROFS" };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char from[512];
        pesc_craft_options o = small("pesc");
        o.check = false;
        files_clear();
        modeldirs_golden(from, "llama");
        assert_true(fault_arm(faults[i]));
        pesc_status s = pesc_craft(modeldirs_device(), from, files_path("out"), &o, NULL);
        bool fired = fault_fired();
        fault_arm(NULL);
        assert_true(fired);
        assert_int_equal(s, PESC_DISK);
        assert_false(files_there("out/config.json"));
    }
}

static pesc_status craft_once(const char *out)
{
    char from[512];
    pesc_craft_options o = small("pesc");
    o.check = false;
    return pesc_craft(modeldirs_device(), modeldirs_golden(from, "llama"), out, &o, NULL);
}

static pesc_status merge_once(const char *out)
{
    char from[512], lora_dir[512];
    pesc_export_options o = pesc_export_defaults();
    o.lora = modeldirs_golden(lora_dir, "peft/adapter");
    o.check = false;
    return pesc_merge(modeldirs_device(), modeldirs_golden(from, "peft/base"), out, &o, NULL);
}

static void same_file(const char *name)
{
    char a[64], b[64];
    size_t n, m;
    snprintf(a, sizeof a, "good/%s", name);
    snprintf(b, sizeof b, "out/%s", name);
    char *x = files_get(files_path(a), &n), *y = files_get(files_path(b), &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* With its n-th allocation refused a call says so, or gets by and writes the very same model (JSON
 * is given a second try). */
static void bears_failures(pesc_status (*make)(const char *out))
{
    bool fired = true;
    files_clear();
    must(make(files_path("good")));
    for (uint64_t n = 1; fired; n++) {
        assert_true(n < 100000);
        must(io_remove(files_path("out")));
        mem_fail_at(n);
        pesc_status s = make(files_path("out"));
        fired = mem_fail_fired();
        mem_fail_at(0);
        if (s == PESC_OK) {
            same_file("config.json");
            same_file("model.safetensors");
        } else if (s != PESC_NOMEM && !strstr(pesc_last_error(), "Cannot allocate memory")) {
            fail_msg("allocation %d refused: \"%s\"", (int)n, pesc_last_error());
        }
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    bears_failures(craft_once);
    bears_failures(merge_once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crafts_adapters),
        cmocka_unit_test(parents_keep_their_facts),
        cmocka_unit_test(a_stored_head_is_kept),
        cmocka_unit_test(null_in_rope_parameters_is_absent),
        cmocka_unit_test(spellings_of_rope_parameters),
        cmocka_unit_test(some_plain_layers_in_gguf),
        cmocka_unit_test(dtype_is_a_choice),
        cmocka_unit_test(gguf_and_nf4_parents_are_written_out),
        cmocka_unit_test(the_seed_decides),
        cmocka_unit_test(upcycles),
        cmocka_unit_test(refuses_options),
        cmocka_unit_test(refuses_models),
        cmocka_unit_test(what_a_mixture_cannot_say_is_refused),
        cmocka_unit_test(no_room_is_seen_before_the_first_byte),
        cmocka_unit_test(a_full_disk_leaves_no_model),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("craft", tests, NULL, NULL);
}
