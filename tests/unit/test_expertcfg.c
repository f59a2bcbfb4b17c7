#include "format/expertcfg.h"

#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

static const char released[] =
    "{\"experts\": {\"1\": [44, 2, 26], \"10\": [], \"2\": [7]}, \"shared_experts\": false, "
    "\"non_expert_modules\": true}";

static pesc_status parse(expertcfg *c, const char *text)
{
    return expertcfg_parse(c, text, strlen(text), "cfg");
}

static void reads_and_writes_the_released_bytes(void **state)
{
    (void)state;
    expertcfg c;
    must(expertcfg_read(&c, files_text("cfg.json", released)));
    assert_int_equal(c.n_layers, 3);
    assert_int_equal(expertcfg_total(&c), 4);
    const expertcfg_layer *l = expertcfg_find(&c, 1);
    const int32_t listed[] = { 44, 2, 26 }, ids[] = { 2, 26, 44 };
    assert_memory_equal(l->listed, listed, sizeof listed);
    assert_memory_equal(l->ids, ids, sizeof ids);
    assert_int_equal(expertcfg_find(&c, 10)->n, 0);
    assert_null(expertcfg_find(&c, 3));
    assert_true(expertcfg_has(&c, 1, 26) && expertcfg_has(&c, 2, 7));
    assert_false(expertcfg_has(&c, 1, 7) || expertcfg_has(&c, 10, 0) || expertcfg_has(&c, 3, 0));
    assert_false(c.shared_experts);
    assert_true(c.non_expert_modules);
    must(expertcfg_write(&c, files_path("again.json")));
    files_must_be("again.json", released);
    expertcfg_free(&c);
}

static void flags_may_be_absent(void **state)
{
    (void)state;
    expertcfg c;
    must(parse(&c, " {\"experts\": {\"0\": [1]}}\n"));
    assert_false(c.shared_experts || c.non_expert_modules);
    expertcfg_free(&c);
}

static void refuses_what_no_model_can_mean(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "[]", "cfg: found an array, expected an object with experts" },
        { "{}", "cfg: experts: found nothing, expected an object of layers" },
        { "{\"experts\": []}", "cfg: experts: found an array, expected an object of layers" },
        { "{\"experts\": {\"a\": []}}", "cfg: experts: found the key \"a\", expected a layer" },
        { "{\"experts\": {\"01\": []}}", "cfg: experts: found the key \"01\"" },
        { "{\"experts\": {\"-1\": []}}", "cfg: experts: found the key \"-1\"" },
        { "{\"experts\": {\"1\": 5}}", "cfg: experts.1: found an integer, expected a list" },
        { "{\"experts\": {\"1\": [1.5]}}", "cfg: experts.1[0]: found a fraction, expected" },
        { "{\"experts\": {\"1\": [2, -1]}}", "cfg: experts.1[1]: found one out of range" },
        { "{\"experts\": {\"1\": [true]}}", "cfg: experts.1[0]: found a boolean" },
        { "{\"experts\": {\"1\": [7, 3, 7]}}", "cfg: experts.1: expert 7 is listed twice" },
        { "{\"experts\": {\"1\": [], \"1\": []}}", "duplicate object key" },
        { "{\"experts\": {\"1\": [NaN]}}", "is not JSON" },
        { "{\"experts\": {}, \"shared_expert\": true}", "cfg: shared_expert: is not known" },
        { "{\"experts\": {}, \"shared_experts\": 1}", "found an integer, expected true or false" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expertcfg c;
        must_fail(parse(&c, rows[i].text), PESC_FORMAT, rows[i].part);
        expertcfg_free(&c);
    }
}

static void must_fit_the_model(void **state)
{
    (void)state;
    const bool sparse[] = { false, true, true };
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "{\"experts\": {\"1\": [0, 7], \"2\": []}}", NULL },
        { "{\"experts\": {\"2\": [0], \"1\": []}}", NULL },
        { "{\"experts\": {\"1\": [0]}}", "layer 2 is missing; write \"2\": [] where none" },
        { "{\"experts\": {}}", "layer 1 is missing" },
        { "{\"experts\": {\"1\": [8], \"2\": []}}", "experts.1: found expert 8, expected 0 to 7" },
        { "{\"experts\": {\"0\": [], \"1\": [], \"2\": []}}",
          "experts.0: this layer of the model" },
        { "{\"experts\": {\"1\": [], \"2\": [], \"3\": []}}",
          "experts.3: the model's layers are 0 to 2" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expertcfg c;
        expertcfg_shape shape = { sparse, 3, 8 };
        must(parse(&c, rows[i].text));
        if (rows[i].part)
            must_fail(expertcfg_check(&c, shape, "m"), PESC_FORMAT, rows[i].part);
        else
            must(expertcfg_check(&c, shape, "m"));
        expertcfg_free(&c);
    }
}

static pesc_status read_one(const char *path)
{
    expertcfg c;
    pesc_status s = expertcfg_read(&c, path);
    expertcfg_free(&c);
    return s;
}

static void bears_broken_files(void **state)
{
    (void)state;
    torture_text("broken.json", released, read_one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_the_released_bytes),
        cmocka_unit_test(flags_may_be_absent),
        cmocka_unit_test(refuses_what_no_model_can_mean),
        cmocka_unit_test(must_fit_the_model),
        cmocka_unit_test(bears_broken_files),
    };
    return cmocka_run_group_tests_name("expertcfg", tests, NULL, NULL);
}
