/* Against tests/golden/esft_intent, which Python made (tests/golden/make/golden_esft_intent.py). */
#include "base/json.h"
#include "eval/judge.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/golden.h"

static bool match(const char *prediction, const char *expected)
{
    bool out;
    must(pesc_eval_intent(prediction, strlen(prediction), expected, strlen(expected), &out));
    return out;
}

static void scores_as_python_does(void **state)
{
    (void)state;
    json_t *cases, *c;
    size_t i, wrong = 0;
    must(json_read(&cases, golden_path("esft_intent/cases.json"), 1 << 20));
    assert_true(json_array_size(cases) > 200);
    json_array_foreach(cases, i, c)
    {
        const char *prediction = json_string_value(json_object_get(c, "prediction"));
        const char *expected = json_string_value(json_object_get(c, "expected"));
        bool wanted = json_is_true(json_object_get(c, "match"));
        if (match(prediction, expected) != wanted) {
            print_error("case %zu: %s\n  expected %s: Python says %d\n", i, prediction, expected,
                        wanted);
            wrong++;
        }
    }
    json_decref(cases);
    assert_int_equal(wrong, 0);
}

static void finds_the_answer(void **state)
{
    (void)state;
    static const struct {
        const char *text, *answer;
    } rows[] = {
        { "", "" },
        { " . {} . ", " {} " },
        { "a\nb", "a" },
        { "\n\nb.", "b" },
        { "x ```json\n{1}.\n``` y", "{1}" },
        { "x ```json\n{1}", "{}" },
        { "\u3000a\u3002.\u3002", "a" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = strlen(rows[i].text);
        const char *p = intent_answer(rows[i].text, &n);
        assert_int_equal(n, strlen(rows[i].answer));
        assert_memory_equal(p, rows[i].answer, n);
    }
}

static void refuses_an_expected_answer_that_is_none(void **state)
{
    (void)state;
    bool out;
    static const char *const bad[] = { "", "[]", "x", "{\"slots\": []}",
                                       "{\"slots\": {\"a\": {}}}" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        must_fail(pesc_eval_intent("{}", 2, bad[i], strlen(bad[i]), &out), PESC_FORMAT,
                  "the expected answer");
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    static const char text[] = "{\"intent\": \"a\", \"slots\": {\"x\": [\"b\", [1.5, \"c\"]]}}";
    for (uint64_t n = 1;; n++) {
        bool out = false;
        mem_fail_at(n);
        pesc_status st = pesc_eval_intent(text, strlen(text), text, strlen(text), &out);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(st);
            assert_false(out); /* a space in the expected answer's inner list */
            return;
        }
        assert_int_equal(st, PESC_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_as_python_does),
        cmocka_unit_test(finds_the_answer),
        cmocka_unit_test(refuses_an_expected_answer_that_is_none),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("intent", tests, NULL, NULL);
}
