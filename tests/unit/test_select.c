#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"

#include <math.h>
#include <stdlib.h>

/* Two layers of four experts. Layer 10 comes before 2, as in released files. */
static const char scores[] =
    "{\"token_scores\": {\"10\": {\"0\": 0.1, \"1\": 0.4, \"2\": 0.1, \"3\": 0.4}, "
    "\"2\": {\"0\": 0.0, \"1\": 0.25, \"2\": 0.75, \"3\": 0.0}}, "
    "\"gate_scores\": {\"10\": {\"0\": 0.05, \"1\": 0.02, \"2\": 0.05, \"3\": 0.0}, "
    "\"2\": {\"0\": 0.5, \"1\": 0.5, \"2\": 0.5, \"3\": 0.5}}}";

/* What a choice is written as. */
static char *chosen(const pesc_esft_select_options *opt)
{
    pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
    must(pesc_esft_select(files_text("summary.json", scores), opt, NULL, &c));
    must(pesc_esft_write(&c, files_path("cfg.json")));
    pesc_esft_choice_free(&c);
    return files_get(files_path("cfg.json"), &(size_t){ 0 });
}

static void takes_until_p_is_reached(void **state)
{
    (void)state;
    static const struct {
        pesc_esft_select_options opt;
        const char *layers;
    } rows[] = {
        { { .metric = "token", .p = -1 }, "{\"10\": [1], \"2\": [2]}" },
        { { .metric = "token", .p = 0.4 }, "{\"10\": [1], \"2\": [2]}" },     /* >=, not > */
        { { .metric = "token", .p = 0.41 }, "{\"10\": [1, 3], \"2\": [2]}" }, /* ties: lowest id */
        { { .metric = "token", .p = 0.85 }, "{\"10\": [1, 3, 0], \"2\": [2, 1]}" },
        { { .metric = "token", .p = 1e-9 }, "{\"10\": [1], \"2\": [2]}" },
        { { .metric = "gate", .p = -1 }, "{\"10\": [0, 2], \"2\": [0]}" },
        { { .metric = "gate", .p = 0.5 }, "{\"10\": [0, 2, 1, 3], \"2\": [0]}" }, /* sum < p: all */
        { { .metric = "gate", .p = 0.5, .p_relative = true }, "{\"10\": [0, 2], \"2\": [0, 1]}" },
        { { .metric = "gate", .p = -1, .p_relative = true }, "{\"10\": [0], \"2\": [0, 1]}" },
        { { .metric = "token", .p = -1, .budget = 3 }, "{\"10\": [1, 3], \"2\": [2]}" },
        { { .metric = "token", .p = -1, .budget = 2 }, "{\"10\": [1], \"2\": [2]}" },
        { { .metric = "token", .p = -1, .budget = 1 }, "{\"10\": [], \"2\": [2]}" },
        { { .metric = "token", .p = 0.2, .budget = 3 }, "{\"10\": [1], \"2\": [2]}" },
        { { .metric = "token", .p = -1, .budget = 99 }, /* what was never chosen is left out */
          "{\"10\": [1, 3, 0, 2], \"2\": [2, 1]}" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pesc_esft_select_options opt = rows[i].opt;
        opt.size = sizeof opt;
        char *text = chosen(&opt);
        char *end = strstr(text, ", \"shared_experts\": false, \"non_expert_modules\": false}");
        assert_non_null(end);
        *end = '\0';
        assert_string_equal(text + strlen("{\"experts\": "), rows[i].layers);
        free(text);
    }
}

static void refuses_what_chooses_nothing(void **state)
{
    (void)state;
    static const struct {
        pesc_esft_select_options opt;
        const char *part;
    } rows[] = {
        { { .metric = "token", .p = 0 }, "p: found 0, which selects no expert" },
        { { .metric = "token", .p = 1.01 },
          "p: found 1.01, expected auto or a number from 0 to 1" },
        { { .metric = "token", .p = NAN }, "p: found nan" },
        { { .metric = "both", .p = -1 }, "metric: found \"both\", expected token or gate" },
        { { .metric = "token", .p = -1, .budget = -1 }, "budget: found -1" },
    };
    pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pesc_esft_select_options bad = rows[i].opt;
        bad.size = sizeof bad;
        must_fail(pesc_esft_select(files_text("summary.json", scores), &bad, NULL, &c), PESC_USAGE,
                  rows[i].part);
    }
    pesc_esft_select_options opt = pesc_esft_select_defaults();
    const char *one = files_text("one.json", "{\"gate_scores\": {\"1\": {\"0\": 0.5}}}");
    must_fail(pesc_esft_select(one, &opt, NULL, &c), PESC_FORMAT, "one.json: has no token scores");
    opt.budget = 5;
    const char *zero = files_text("zero.json", "{\"token_scores\": {\"1\": {\"0\": 0.0}}}");
    must_fail(pesc_esft_select(zero, &opt, NULL, &c), PESC_FORMAT,
              "no expert is chosen: all scores are 0");
}

static void unites_tasks(void **state)
{
    (void)state;
    pesc_esft_choice tasks[2] = { PESC_INIT(pesc_esft_choice), PESC_INIT(pesc_esft_choice) };
    pesc_esft_choice all = PESC_INIT(pesc_esft_choice);
    const pesc_esft_choice *both[] = { &tasks[0], &tasks[1] };
    pesc_esft_select_options opt = pesc_esft_select_defaults();
    must(pesc_esft_select(files_text("summary.json", scores), &opt, NULL, &tasks[0]));
    opt.metric = "gate";
    must(pesc_esft_select(files_path("summary.json"), &opt, NULL, &tasks[1]));
    tasks[1].shared_experts = true;
    must(pesc_esft_unite(both, 2, &all));
    must(pesc_esft_write(&all, files_path("all.json")));
    char *text = files_get(files_path("all.json"), &(size_t){ 0 });
    assert_string_equal(text, "{\"experts\": {\"10\": [1, 0, 2], \"2\": [2, 0]}, "
                              "\"shared_experts\": true, \"non_expert_modules\": false}");
    free(text);
    assert_int_equal(all.total, 5);
    assert_true(all.scores[0] == 0.1 && all.scores[4] == 0.5 && all.scores[6] == 0.75);
    pesc_esft_choice_free(&all);
    pesc_esft_choice_free(&tasks[1]);
    opt.metric = "token";
    must(pesc_esft_select(files_text("other.json", "{\"token_scores\": {\"1\": {\"0\": 1}}}"), &opt,
                          NULL, &tasks[1]));
    must_fail(pesc_esft_unite(both, 2, &all), PESC_FORMAT, "they are not of one model");
    pesc_esft_choice_free(&tasks[0]);
    pesc_esft_choice_free(&tasks[1]);
}

/* deepseek_v2 of tests/golden: width 40, layers 1 and 2 with 6 experts of 20, shared of 2 x 20. */
static void counts_what_trains(void **state)
{
    (void)state;
    pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
    pesc_esft_counts n = PESC_INIT(pesc_esft_counts);
    pesc_esft_select_options opt = pesc_esft_select_defaults();
    opt.p = 0.3;
    must(pesc_esft_select(golden_path("esft_score/deepseek_v2.json"), &opt, NULL, &c));
    must(pesc_esft_count(golden_path("deepseek_v2"), &c, NULL, &n));
    assert_true(c.total > 2);
    assert_int_equal(n.trainable, c.total * 3 * 40 * 20);
    assert_int_equal(n.bytes, n.trainable * 4);
    uint64_t experts = n.trainable;
    c.shared_experts = true;
    must(pesc_esft_count(golden_path("deepseek_v2"), &c, NULL, &n));
    assert_int_equal(n.trainable - experts, 2 * 3 * 40 * 40);
    c.non_expert_modules = true;
    must(pesc_esft_count(golden_path("deepseek_v2"), &c, NULL, &n));
    assert_int_equal(n.total - n.trainable, (2 * 6 - c.total) * 3 * 40 * 20);
    must_fail(pesc_esft_count(golden_path("olmoe"), &c, NULL, &n), PESC_FORMAT,
              "experts.2: the model's "
              "layers are 0 to 1");
    pesc_esft_choice_free(&c);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    const char *path = files_text("summary.json", scores);
    pesc_esft_select_options opt = pesc_esft_select_defaults();
    for (uint64_t n = 1;; n++) {
        pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
        mem_fail_at(n);
        pesc_status s = pesc_esft_select(path, &opt, NULL, &c);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        pesc_esft_choice_free(&c);
        if (!fired) {
            must(s);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_until_p_is_reached),
        cmocka_unit_test(refuses_what_chooses_nothing),
        cmocka_unit_test(unites_tasks),
        cmocka_unit_test(counts_what_trains),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
