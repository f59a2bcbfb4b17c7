/* The base of a run: where it is looked for, when it counts as changed, and how the run held it. */
#include "run/runbase.h"

#include "base/log.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>

static char notices[1024];

static void keep_notice(void *ud, const char *sentence)
{
    (void)ud;
    snprintf(notices + strlen(notices), sizeof notices - strlen(notices), "%s\n", sentence);
}

/* ---- where it is ---- */

static void relative(const char *from, const char *to, const char *want)
{
    char *got = NULL;
    must(runbase_relative(&got, from, to));
    assert_string_equal(got, want);
    mem_free(got);
}

static void paths_between_directories(void **state)
{
    (void)state;
    relative("/a/b/run", "/a/m", "../../m");
    relative("/a/run", "/a/m", "../m");
    relative("/a", "/a/m/n", "m/n");
    relative("/a/b", "/a", "..");
    relative("/a/runs", "/a/run", "../run");
    relative("/a/run", "/a/runs", "../runs");
    relative("/a", "/a", ".");
    relative("/x", "/y/z", "../y/z");
    relative("/", "/y", "y");
}

/* Which path is found for a run in work/run, and whether a notice told of it. */
static void found(const char *path, const char *rel, const char *want)
{
    char run[512], expected[512];
    char *got = NULL;
    pesc_events ev = { .size = sizeof ev, .notice = keep_notice };
    notices[0] = '\0';
    const pesc_events *outer = log_swap(&ev);
    snprintf(run, sizeof run, "%s", files_path("work/run"));
    must(runbase_find(&got, &(runbase_place){ run, path, rel }));
    (void)log_swap(outer);
    if (!want) {
        assert_null(got);
        assert_string_equal(notices, "");
        return;
    }
    snprintf(expected, sizeof expected, "%s", files_path(want));
    assert_string_equal(got, expected);
    if (strcmp(got, path) == 0)
        assert_string_equal(notices, "");
    else
        assert_non_null(strstr(notices, "its base is not at"));
    mem_free(got);
}

static void looks_beside_the_run(void **state)
{
    (void)state;
    files_clear();
    files_text("work/run/run.json", "{}");
    files_text("there/model/config.json", "{}");
    files_text("near/model/config.json", "{}");
    found(files_path("there/model"), "../../near/model", "there/model"); /* as recorded */
    found("/gone/model", "../../near/model", "near/model");
    found("/gone/model", "", NULL);
    found("/gone/model", "../nowhere/model", NULL);
    files_text("work/model/config.json", "{}");
    found("/gone/model", "", "work/model");
    found("/gone/model", "../../near/model", "near/model"); /* the recorded one comes first */
    files_text("work/first/checkpoint-20/manifest.json", "{}");
    found("/gone/first/checkpoint-20", "", "work/first/checkpoint-20");
    found("/gone/other/checkpoint-20", "", NULL);
}

/* ---- whether it is the same ---- */

enum { ROWS = 40, COLS = 30 };

static void write_model(float first, float last, int rows)
{
    safetensors_spec specs[] = { { "a", DT_F32, 2, { rows, COLS } }, { "b", DT_F32, 1, { 4 } } };
    safetensors_writer *w = NULL;
    files_clear();
    files_text("m/x", "");
    must(safetensors_writer_open(
        &w,
        &(safetensors_plan){ .dir = files_path("m"), .stem = "model", .specs = specs, .n = 2 }));
    for (int i = 0; i < rows * COLS + 4; i++) {
        float x = i == 0 ? first : i == rows * COLS + 3 ? last : (float)i;
        must(safetensors_write(w, &x, sizeof x));
    }
    must(safetensors_writer_finish(w));
}

static runbase_identity identity(const char *config)
{
    weights *ws = NULL;
    json_t *json = NULL;
    runbase_identity out;
    must(json_parse(&json, config, strlen(config), "test"));
    must(weights_new(&ws));
    must(safetensors_read(ws, files_path("m/model.safetensors")));
    runbase_identify(&out, json, ws);
    weights_close(ws);
    json_decref(json);
    return out;
}

static void changes_are_seen(void **state)
{
    (void)state;
    write_model(1, 2, ROWS);
    runbase_identity then = identity("{\"a\":1}"), now = identity("{ \"a\" : 1 }");
    assert_memory_equal(&then, &now, sizeof then); /* spelling does not matter */
    must(runbase_check(&then, &now, "run", "base"));
    write_model(-1, 2, ROWS);
    now = identity("{\"a\":1}");
    must_fail(
        runbase_check(&then, &now, "run", "base"), PESC_FORMAT,
        "run: its base base has changed since it was trained: the tensors have other numbers");
    write_model(1, 3, ROWS);
    now = identity("{\"a\":1}");
    must_fail(runbase_check(&then, &now, "run", "base"), PESC_FORMAT, "other numbers");
    write_model(1, 2, ROWS + 1);
    now = identity("{\"a\":1}");
    must_fail(runbase_check(&then, &now, "run", "base"), PESC_FORMAT, "names, shapes or dtypes");
}

static void smaller_things_are_notices(void **state)
{
    (void)state;
    pesc_events ev = { .size = sizeof ev, .notice = keep_notice };
    const pesc_events *outer = log_swap(&ev);
    write_model(1, 2, ROWS);
    runbase_identity then = identity("{\"a\":1}"), now = identity("{\"a\":2}"), none = { 0 };
    notices[0] = '\0';
    must(runbase_check(&then, &now, "run", "base"));
    assert_non_null(strstr(notices, "the configuration of its base base has changed"));
    notices[0] = '\0';
    must(runbase_check(&none, &now, "run", "base"));
    assert_non_null(strstr(notices, "run: was saved by an earlier version"));
    (void)log_swap(outer);
}

/* ---- how it was held ---- */

static void reads_the_options_of_the_run(void **state)
{
    (void)state;
    runbase_held h;
    files_clear();
    files_text("c/run.yaml", "model: \"/m\"\nmethod: \"qlora\"\nbase_dtype: \"nf4\"\n"
                             "double_quant: false\ncompute_dtype: \"bf16\"\n");
    must(runbase_read_held(&h, files_path("c")));
    assert_string_equal(h.base_dtype, "nf4");
    assert_string_equal(h.compute_dtype, "bf16");
    assert_false(h.double_quant || h.whole_experts);
    files_text("c/run.yaml", "method: \"upcycle\"\nbase_dtype: nf4\n");
    must(runbase_read_held(&h, files_path("c")));
    assert_string_equal(h.base_dtype, "nf4");
    assert_string_equal(h.compute_dtype, "");
    assert_true(h.double_quant && h.whole_experts);
    must(runbase_read_held(&h, files_path("nothing")));
    assert_string_equal(h.base_dtype, "");
    assert_true(h.double_quant && !h.whole_experts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_between_directories),
        cmocka_unit_test(looks_beside_the_run),
        cmocka_unit_test(changes_are_seen),
        cmocka_unit_test(smaller_things_are_notices),
        cmocka_unit_test(reads_the_options_of_the_run),
    };
    return cmocka_run_group_tests_name("runbase", tests, NULL, NULL);
}
