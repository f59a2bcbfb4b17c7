#include "base/log.h"
#include "format/hfdir.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/tensors.h"
#include "support/torture.h"
#include "support/ziparchive.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char notices[1024];

static void keep_notice(void *ud, const char *sentence)
{
    (void)ud;
    size_t n = strlen(notices);
    snprintf(notices + n, sizeof notices - n, "%s\n", sentence);
}

static pesc_status open_and_close(const char *path)
{
    hfdir *h;
    pesc_status s = hfdir_open(&h, path, 0);
    hfdir_close(h);
    return s;
}

static const test_tensor one[] = { { "model.norm.weight", "F32", 0, 2, NULL, 8 } };

static void copy(const char *golden, const char *name)
{
    size_t n;
    char *bytes = files_get(golden_path(golden), &n);
    files_put(name, bytes, n);
    free(bytes);
}

static void test_opens_every_kind(void **state)
{
    static const struct {
        const char *name, *format;
        size_t files, tensors;
    } rows[] = {
        { "llama", "safetensors", 1, 30 },
        { "camelidae-bin", "torch", 2, 63 },
        { "bnb", "safetensors", 1, 21 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        hfdir *h;
        must(hfdir_open(&h, golden_path(rows[i].name), 0));
        assert_string_equal(h->format, rows[i].format);
        assert_string_equal(h->path, golden_path(rows[i].name));
        assert_non_null(strstr(h->config_file, "/config.json"));
        assert_true(json_is_object(h->config) && h->lora_dir == NULL);
        assert_int_equal(weights_files(h->ws), rows[i].files);
        assert_int_equal(weights_count(h->ws), rows[i].tensors);
        hfdir_close(h);
    }
}

static void test_reads_no_weights_when_told(void **state)
{
    hfdir *h;
    (void)state;
    files_clear();
    files_text("m/config.json", "{}");
    files_text("m/generation_config.json", "{\"eos_token_id\":2}");
    must(hfdir_open(&h, files_path("m"), HFDIR_NO_WEIGHTS));
    assert_null(h->ws);
    assert_int_equal(json_integer_value(json_object_get(h->generation, "eos_token_id")), 2);
    hfdir_close(h);
    must_fail(open_and_close(files_path("m")), PESC_IO,
              "has no weights; expected model.safetensors");
}

/* safetensors before torch, one file before shards: as transformers chooses. */
static void test_prefers_as_transformers_does(void **state)
{
    hfdir *h;
    (void)state;
    files_clear();
    files_text("m/config.json", "{}");
    copy("formats/sample.bin", "m/pytorch_model.bin");
    must(hfdir_open(&h, files_path("m"), 0));
    assert_string_equal(h->format, "torch");
    hfdir_close(h);
    files_text("m/model.safetensors.index.json", "{\"weight_map\":{\"a\":\"absent\"}}");
    must_fail(open_and_close(files_path("m")), PESC_IO, "names the shard absent");
    tensors_put("m/model.safetensors", one, 1);
    must(hfdir_open(&h, files_path("m"), 0));
    assert_string_equal(h->format, "safetensors");
    assert_int_equal(weights_count(h->ws), 1);
    hfdir_close(h);
}

static void test_refuses_paths(void **state)
{
    (void)state;
    files_clear();
    must_fail(open_and_close(files_path("absent")), PESC_IO, "there is no such file or directory");
    must_fail(open_and_close(files_path("")), PESC_IO, "has no config.json");
    must_fail(open_and_close("/dev/null"), PESC_IO, "is neither a directory nor a regular file");
    must_fail(open_and_close(files_text("x.safetensors", "hello")), PESC_FORMAT,
              "is neither a directory nor a GGUF file");
    assert_true(open_and_close(files_text("x.gguf", "hello")) != PESC_OK);
    assert_true(open_and_close(files_text("x", "GGUF")) != PESC_OK);
}

static void test_refuses_configurations(void **state)
{
    static const struct {
        const char *text;
        pesc_status status;
        const char *part;
    } rows[] = {
        { "", PESC_FORMAT, "config.json: byte" },
        { "[]", PESC_FORMAT, "found an array, expected an object" },
        { "{\"a\":1,\"a\":1}", PESC_FORMAT, "is not JSON: duplicate" },
    };
    (void)state;
    files_clear();
    tensors_put("m/model.safetensors", one, 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_text("m/config.json", rows[i].text);
        must_fail(open_and_close(files_path("m")), rows[i].status, rows[i].part);
    }
    files_text("m/config.json", "{}");
    must(open_and_close(files_path("m")));
    files_text("m/generation_config.json", "7");
    must_fail(open_and_close(files_path("m")), PESC_FORMAT, "generation_config.json");
}

/* ---- Camelidae's training output ---- */

#define STR(n, s) "X" n "\0\0\0" s
#define ENTRY(n, name, rows, cols)                                                                 \
    STR(n, "base_model.model.model.layers.0.mlp.moe_adapter." name)                                \
    "ctorch._utils\n_rebuild_tensor_v2\n((" STR("\7", "storage") "ctorch\nFloatStorage\n" STR(     \
        "\1", "0") STR("\3", "cpu") "K\x0ctQK\0K" rows "K" cols "\x86K" cols "K\1\x86\x89}tRs"

/* A router of 3 experts and one adapter of 2, over a model of width 4. */
static void put_moe(const char *name)
{
    static const char pickle[] = "}" ENTRY("\x3d", "router.weight", "\3", "\4")
        ENTRY("\x54", "experts.expert_0.adapter_down.weight", "\2", "\4") ".";
    static const unsigned char zeros[48];
    ziparchive z = { 0 };
    ziparchive_add(&z, "archive/data.pkl", pickle, sizeof pickle - 1);
    ziparchive_add(&z, "archive/data/0", zeros, sizeof zeros);
    ziparchive_end(&z);
    files_put(name, z.p, z.n);
    free(z.p);
}

static void put_adapter(const char *name, const char *base)
{
    char text[8192];
    snprintf(text, sizeof text,
             "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8,\"base_model_name_or_path\":\"%s\"}",
             base);
    files_text(name, text);
}

static void check_camelidae(const char *lora)
{
    hfdir *h;
    notices[0] = '\0';
    log_swap(&(pesc_events){ .notice = keep_notice });
    must(hfdir_open(&h, files_path("run"), 0));
    log_swap(NULL);
    assert_non_null(weights_find(h->ws, "model.norm.weight"));
    assert_non_null(weights_find(h->ws, "model.layers.0.mlp.moe_adapter.router.weight"));
    assert_string_equal(h->lora_dir, files_path(lora));
    assert_int_equal(json_integer_value(json_object_get(h->config, "num_experts")), 3);
    assert_int_equal(json_integer_value(json_object_get(h->config, "adapter_dim")), 2);
    assert_int_equal(json_integer_value(json_object_get(h->config, "topk")), 1);
    assert_true(json_number_value(json_object_get(h->config, "moe_scaling")) == 1);
    assert_non_null(strstr(notices, "has no moe_scaling; 1 is taken"));
    assert_null(strstr(notices, "topk"));
    hfdir_close(h);
}

static void test_opens_training_output(void **state)
{
    (void)state;
    files_clear();
    put_moe("run/moe_model.bin");
    put_adapter("run/adapter_model/adapter_config.json", "hywu/none");
    must_fail(open_and_close(files_path("run")), PESC_IO,
              "adapter_config.json (hywu/none) is not a directory here");
    put_adapter("run/adapter_model/adapter_config.json", "");
    must_fail(open_and_close(files_path("run")), PESC_IO, "(none) is not a directory here");
    /* the base elsewhere */
    files_text("base/config.json", "{\"topk\":1}");
    tensors_put("base/model.safetensors", one, 1);
    put_adapter("run/adapter_model/adapter_config.json", files_path("base"));
    check_camelidae("run/adapter_model");
    /* the base beside it */
    files_text("run/config.json", "{\"topk\":1}");
    tensors_put("run/model.safetensors", one, 1);
    check_camelidae("run/adapter_model");
}

static void test_opens_a_plain_adapter(void **state)
{
    hfdir *h;
    (void)state;
    files_clear();
    files_text("base/config.json", "{}");
    tensors_put("base/model.safetensors", one, 1);
    put_adapter("lora/adapter_config.json", files_path("base"));
    must(hfdir_open(&h, files_path("lora"), 0));
    assert_string_equal(h->lora_dir, files_path("lora"));
    assert_int_equal(weights_count(h->ws), 1);
    hfdir_close(h);
    /* beside weights it is not the model's own */
    files_text("lora/config.json", "{}");
    tensors_put("lora/model.safetensors", one, 1);
    notices[0] = '\0';
    log_swap(&(pesc_events){ .notice = keep_notice });
    must(hfdir_open(&h, files_path("lora"), 0));
    log_swap(NULL);
    assert_null(h->lora_dir);
    assert_non_null(strstr(notices, "is not applied; --lora applies one"));
    hfdir_close(h);
}

static void test_refuses_other_moe_files(void **state)
{
    (void)state;
    files_clear();
    files_text("m/config.json", "{}");
    tensors_put("m/model.safetensors", one, 1);
    copy("formats/sample.bin", "m/moe_model.bin");
    must_fail(open_and_close(files_path("m")), PESC_SHAPE,
              "holds no router and adapters of layer 0");
}

static void test_bears_lack_of_memory(void **state)
{
    (void)state;
    torture_memory(golden_path("camelidae-bin"), open_and_close);
    files_clear();
    put_moe("run/moe_model.bin");
    files_text("base/config.json", "{}");
    tensors_put("base/model.safetensors", one, 1);
    put_adapter("run/adapter_model/adapter_config.json", files_path("base"));
    torture_memory(files_path("run"), open_and_close);
}

static void test_tokenizer_of_nothing(void **state)
{
    pesc_tokenizer *t;
    (void)state;
    files_clear();
    files_text("m/config.json", "{}");
    must_fail(pesc_tokenizer_open(&t, files_path("m"), NULL), PESC_IO,
              "has neither tokenizer.json nor tokenizer.model");
    must_fail(pesc_tokenizer_open(&t, files_path("absent"), NULL), PESC_IO, "cannot be opened");
    pesc_tokenizer_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_opens_every_kind),
        cmocka_unit_test(test_reads_no_weights_when_told),
        cmocka_unit_test(test_prefers_as_transformers_does),
        cmocka_unit_test(test_refuses_paths),
        cmocka_unit_test(test_refuses_configurations),
        cmocka_unit_test(test_opens_training_output),
        cmocka_unit_test(test_opens_a_plain_adapter),
        cmocka_unit_test(test_refuses_other_moe_files),
        cmocka_unit_test(test_bears_lack_of_memory),
        cmocka_unit_test(test_tokenizer_of_nothing),
    };
    return cmocka_run_group_tests_name("hfdir", tests, NULL, NULL);
}
