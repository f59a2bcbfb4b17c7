/* patch.c: what a directory of an expert patch may hold, and what it may not. */
#include "format/patch.h"
#include "support/check.h"
#include "support/files.h"
#include "support/tensors.h"
#include "support/torture.h"

#define EXPERT "layers.1.mlp.experts.3.gate_proj.weight"
#define CFG "{\"experts\": {\"1\": [3]}, \"shared_experts\": false, \"non_expert_modules\": false}"
#define ABOUT "{\"format\":\"pesc-expert-patch\",\"version\":1,\"base\":\"0123456789abcdef\"}"

static pesc_status open_and_close(const char *dir)
{
    patch *p;
    pesc_status s = patch_open(&p, dir, NULL);
    patch_close(p);
    return s;
}

static const char *put(const char *name, size_t bytes)
{
    files_clear();
    files_text("p/expert_cfg.json", CFG);
    tensors_put("p/model.safetensors", &(test_tensor){ name, "F32", 2, 3, NULL, bytes }, 1);
    return files_path("p");
}

static void names_are_the_bases(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "model." EXPERT, "model." EXPERT },
        { EXPERT, "model." EXPERT }, /* as the first release wrote it */
        { "embed_tokens.weight", "model.embed_tokens.weight" },
        { "norm.weight", "model.norm.weight" },
        { "lm_head.weight", "lm_head.weight" },
        { "base_model.model.model." EXPERT, "model." EXPERT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        patch *p;
        must(patch_open(&p, put(rows[i][0], 24), NULL));
        assert_int_equal(weights_count(p->ws), 1);
        assert_non_null(weights_find(p->ws, rows[i][1]));
        assert_true(expertcfg_has(&p->cfg, 1, 3));
        assert_string_equal(p->base, "");
        patch_close(p);
    }
}

static void all_files_of_a_published_patch(void **state)
{
    (void)state;
    patch *p;
    const char *dir = put("model." EXPERT, 24);
    tensors_put("p/a.safetensors", &(test_tensor){ "model.norm.weight", "F32", 2, 3, NULL, 24 }, 1);
    files_text("p/README.md", "whatever");
    must(patch_open(&p, dir, NULL));
    assert_int_equal(weights_count(p->ws), 2);
    patch_close(p);
    tensors_put("p/b.safetensors", &(test_tensor){ EXPERT, "F32", 2, 3, NULL, 24 }, 1);
    must_fail(open_and_close(dir), PESC_FORMAT, "is given twice");
}

static void what_it_was_made_for(void **state)
{
    (void)state;
    patch *p;
    const char *dir = put(EXPERT, 24);
    must(patch_describe(dir, "00ff00ff00ff00ff"));
    must(patch_open(&p, dir, NULL));
    assert_string_equal(p->base, "00ff00ff00ff00ff");
    patch_close(p);

    static const struct {
        const char *about, *said;
        pesc_status status;
    } rows[] = {
        { "[]", "expected an object", PESC_FORMAT },
        { "{}", "format", PESC_FORMAT },
        { "{\"format\":\"x\",\"version\":1,\"base\":\"\"}", "found \"x\"", PESC_UNSUPPORTED },
        { "{\"format\":\"pesc-expert-patch\",\"version\":9,\"base\":\"\"}", "version 9",
          PESC_UNSUPPORTED },
        { "{\"format\":\"pesc-expert-patch\",\"version\":1,\"base\":\"12\"}",
          "expected 16 hexadecimal digits", PESC_FORMAT },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_text("p/patch.json", rows[i].about);
        must_fail(open_and_close(dir), rows[i].status, rows[i].said);
    }
}

static void what_is_no_patch(void **state)
{
    (void)state;
    files_clear();
    must_fail(open_and_close(files_path("nothing")), PESC_IO, "is not a directory");
    files_text("p/config.json", "{}");
    must_fail(open_and_close(files_path("p")), PESC_IO, "has no expert_cfg.json");
    files_text("p/expert_cfg.json", CFG);
    must_fail(open_and_close(files_path("p")), PESC_IO, "has no safetensors");
    files_text("p/expert_cfg.json", "{\"experts\": 3}");
    must_fail(open_and_close(files_path("p")), PESC_FORMAT, "expert_cfg.json");
}

static pesc_status read_about(const char *path)
{
    (void)path;
    return open_and_close(files_path("p"));
}

static void no_byte_and_no_memory_may_be_missing(void **state)
{
    (void)state;
    const char *dir = put(EXPERT, 24);
    torture_cuts("p/patch.json", ABOUT, sizeof ABOUT - 1, read_about);
    files_text("p/patch.json", ABOUT);
    torture_memory(dir, open_and_close);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_the_bases),
        cmocka_unit_test(all_files_of_a_published_patch),
        cmocka_unit_test(what_it_was_made_for),
        cmocka_unit_test(what_is_no_patch),
        cmocka_unit_test(no_byte_and_no_memory_may_be_missing),
    };
    return cmocka_run_group_tests_name("patch", tests, NULL, NULL);
}
