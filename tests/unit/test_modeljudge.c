/* What a judge is shown, and what is read of its verdicts. (tests/serve/evals.py has the requests.)
 */
#include "eval/modeljudge.h"

#include "support/check.h"

#include <string.h>

static void verdicts_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool fine;
        double scores[JUDGE_ORDERS];
    } rows[] = {
        { "Answer 1: 7\nAnswer 2: 8", true, { 7, 8 } },
        { "Because.\nAnswer 1: 7.5\nAnswer 2: 8.\n", true, { 7.5, 8 } },
        { "**Answer 1:** 10/10\n**Answer 2:** 0/10", true, { 10, 0 } },
        { "answer 2: 3\nANSWER 1 : 4", true, { 4, 3 } },
        { "Answer 1: 2, or so.\nAnswer 1: 6\nAnswer 2: 5", true, { 6, 5 } },
        { "Answer 1: **9**\n- Answer 2: \"1\"", true, { 9, 1 } },
        { "Answer 1: 11\nAnswer 2: 5", false, { 0 } },
        { "Answer 1: -1\nAnswer 2: 5", false, { 0 } },
        { "Answer 1: 7", false, { 0 } },
        { "Answer 1: good\nAnswer 2: bad", false, { 0 } },
        { "Answer 1: 7\nAnswer 2:", false, { 0 } },
        { "Answer 1: 7\nAnswer 2: 1.2.3", false, { 0 } },
        { "Answer 1: 7\nAnswer 2: 0000000000000000005", false, { 0 } },
        { "", false, { 0 } },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double scores[JUDGE_ORDERS] = { -1, -1 };
        if (modeljudge_read(rows[i].text, scores) != rows[i].fine)
            fail_msg("\"%s\": expected it to be %s", rows[i].text,
                     rows[i].fine ? "read" : "refused");
        for (int k = 0; rows[i].fine && k < JUDGE_ORDERS; k++)
            assert_true(scores[k] == rows[i].scores[k]);
    }
}

static void answers_change_places(void **state)
{
    (void)state;
    static const char *const parts[] = { "[Task]\nthe task\n", "[What matters]\nthe rubric\n" };
    for (int first = 0; first < 2; first++) {
        json_t *v = modeljudge_messages(
            &(judge_question){ "the task", "the rubric", "a reference", "an answer", first });
        const json_t *message = json_array_get(v, 0);
        const char *text = json_string_value(json_object_get(message, "content"));
        assert_int_equal(json_array_size(v), 1);
        assert_string_equal(json_string_value(json_object_get(message, "role")), "user");
        for (int i = 0; i < 2; i++)
            assert_non_null(strstr(text, parts[i]));
        assert_non_null(strstr(text, first ? "[Answer 1]\nan answer\n\n[Answer 2]\na reference\n"
                                           : "[Answer 1]\na reference\n\n[Answer 2]\nan answer\n"));
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdicts_are_read),
        cmocka_unit_test(answers_change_places),
    };
    return cmocka_run_group_tests_name("modeljudge", tests, NULL, NULL);
}
