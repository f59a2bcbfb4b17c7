#include "esft/summary.h"

#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"

static const char released[] =
    "{\"token_scores\": {\"1\": {\"0\": 0.75, \"1\": 0.25}, "
    "\"10\": {\"0\": 0.0, \"1\": 1.0}, \"2\": {\"0\": 0.0001, \"1\": "
    "0.9999}}, \"gate_scores\": {\"1\": {\"0\": 0.3, \"1\": 0.1234}, "
    "\"10\": {\"0\": 0.0, \"1\": 2.5}, \"2\": {\"0\": 0.05, \"1\": 0.2}}}";

static void reads_and_writes_the_released_bytes(void **state)
{
    (void)state;
    summary s;
    must(summary_read(&s, files_text("summary.json", released)));
    assert_int_equal(s.n_layers, 3);
    assert_int_equal(s.n_experts, 2);
    assert_int_equal(s.layers[1], 10);
    assert_true(s.score[METRIC_GATE][1] == 0.1234 && s.score[METRIC_TOKEN][5] == 0.9999);
    must(summary_write(&s, files_path("again.json")));
    files_must_be("again.json", released);
    summary_free(&s);
    must(summary_read(&s, files_path(""))); /* the directory it is in */
    summary_free(&s);
}

static void writes_layers_as_text_whatever_their_order(void **state)
{
    (void)state;
    summary s;
    must(summary_init(&s, 3, 1));
    s.layers[0] = 2;
    s.layers[1] = 10;
    s.layers[2] = 1;
    s.score[METRIC_TOKEN][0] = 0.5;
    must(summary_write(&s, files_path("order.json")));
    files_must_be("order.json", "{\"token_scores\": {\"1\": {\"0\": 0.0}, \"10\": {\"0\": 0.0}, "
                                "\"2\": {\"0\": 0.5}}, \"gate_scores\": {\"1\": {\"0\": 0.0}, "
                                "\"10\": {\"0\": 0.0}, \"2\": {\"0\": 0.0}}}");
    summary_free(&s);
}

/* The values are Python's round(x, 4). */
static void rounds_as_python_does(void **state)
{
    (void)state;
    static const struct {
        double x, rounded;
    } rows[] = {
        { 0.00005, 0.0001 }, { 0.00015, 0.0001 }, { 0.00025, 0.0003 }, { 0.12345, 0.1235 },
        { 0.12335, 0.1234 }, { 0.99995, 1.0 },    { 0.03125, 0.0312 }, { 0.09375, 0.0938 },
        { 0.000049, 0.0 },   { 1.00005, 1.0001 }, { 2.5, 2.5 },        { 0, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(summary_round(rows[i].x) == rows[i].rounded);
}

static void refuses_what_is_no_summary(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "[]", "found an array, expected an object with token_scores" },
        { "{}", "has neither token_scores nor gate_scores" },
        { "{\"token_scores\": []}", "token_scores: found an array" },
        { "{\"token_scores\": {}}", "token_scores: has no layers" },
        { "{\"token_scores\": {\"1\": {}}}", "token_scores: its layers have no experts" },
        { "{\"token_scores\": {\"1\": 5}}", "token_scores.1: found an integer" },
        { "{\"token_scores\": {\"x\": {\"0\": 1}}}", "found the key \"x\", expected a layer" },
        { "{\"token_scores\": {\"1\": {\"0\": 1}, \"2\": {\"0\": 1, \"1\": 0}}}",
          "token_scores.2: found 2 experts, expected 1" },
        { "{\"token_scores\": {\"1\": {\"1\": 1}}}", "token_scores.1: found the expert \"1\"" },
        { "{\"token_scores\": {\"1\": {\"00\": 1}}}", "token_scores.1: found the expert \"00\"" },
        { "{\"token_scores\": {\"1\": {\"0\": \"a\"}}}", "token_scores.1.0: found a string" },
        { "{\"token_scores\": {\"1\": {\"0\": -1}}}", "token_scores.1.0: found a negative number" },
        { "{\"token_scores\": {\"1\": {\"0\": NaN}}}", "byte 29: a score is NaN" },
        { "{\"token_scores\": {\"1\": {\"0\": 1, \"0\": 1}}}", "duplicate object key" },
        { "{\"token_scores\": {\"1\": {\"0\": 1}}, \"gate_scores\": {\"2\": {\"0\": 1}}}",
          "gate_scores: layer 1 is missing; token_scores has it" },
        { "{\"token_scores\": {\"1\": {\"0\": 1}}, \"gate_scores\": {\"1\": {\"0\": 1}, \"2\": "
          "{\"0\": 1}}}",
          "gate_scores: has 2 layers, token_scores has 1" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        summary s;
        must_fail(summary_read(&s, files_text("bad.json", rows[i].text)), PESC_FORMAT,
                  rows[i].part);
        summary_free(&s);
    }
}

static pesc_status read_one(const char *path)
{
    summary s;
    pesc_status st = summary_read(&s, path);
    summary_free(&s);
    return st;
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
        cmocka_unit_test(writes_layers_as_text_whatever_their_order),
        cmocka_unit_test(rounds_as_python_does),
        cmocka_unit_test(refuses_what_is_no_summary),
        cmocka_unit_test(bears_broken_files),
    };
    return cmocka_run_group_tests_name("summary", tests, NULL, NULL);
}
