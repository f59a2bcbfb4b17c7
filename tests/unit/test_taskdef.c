#include "eval/taskdef.h"

#include "support/check.h"
#include "support/taskmade.h"

static json_t *with(const char *base, const char *changes)
{
    json_t *v = json_loads(base, 0, NULL), *c = json_loads(changes, 0, NULL);
    assert_non_null(v);
    assert_non_null(c);
    const char *key;
    json_t *value;
    json_object_foreach(c, key, value)
    {
        if (json_is_null(value))
            json_object_del(v, key);
        else
            json_object_set(v, key, value);
    }
    json_decref(c);
    return v;
}

static void reads_a_definition(void **state)
{
    (void)state;
    taskdef *d;
    json_t *v = with(taskmade_choice, "{\"suites\": {\"paper\": 2}, \"stops\": \"x\"}");
    must(taskdef_open(&d, v, "made.json", taskmade_work()));
    json_decref(v);
    assert_string_equal(d->name, "made_choice");
    assert_int_equal(d->kind, TASK_CHOICE);
    assert_int_equal(d->judge, JUDGE_CHOICE);
    assert_int_equal(d->draw, DRAW_OTHER);
    assert_int_equal(d->n_columns, 3);
    assert_string_equal(d->target_delimiter, " ");
    assert_string_equal(d->shot_delimiter, "\n\n");
    assert_int_equal(d->max_tokens, 256);
    assert_int_equal(d->stops.n, 1);
    assert_int_equal(d->n_filters, 1);
    assert_string_equal(d->filters[0].name, "none");
    assert_true(d->choices.list);
    taskdef_close(d);
}

static const struct {
    const char *changes, *sentence;
} mistakes[] = {
    { "{\"task\": null}", "task: this key is missing" },
    { "{\"kind\": null}", "kind is missing; it is choice, text, code or calls" },
    { "{\"kind\": \"poem\"}", "\"poem\" is not known; it is one of choice, text, code" },
    { "{\"judge\": \"match\"}", "\"match\" does not judge tasks of the kind \"choice\"" },
    { "{\"draw\": \"none\"}", "draw: \"none\" is not known" },
    { "{\"split\": 1}", "split: found an integer, expected a text" },
    { "{\"split\": null}", "split: this key is missing" },
    { "{\"colour\": 1}", "colour: this key is not known" },
    { "{\"version\": \"1\"}", "version: found a string, expected a number" },
    { "{\"shots\": -1}", "shots: found -1, expected 0 to 1000" },
    { "{\"shots\": 1.5}", "shots: found a fraction, expected a whole number" },
    { "{\"shots\": 1001}", "shots: found 1001, expected 0 to 1000" },
    { "{\"documents\": 9223372036854775807}", "documents: found 9223372036854775807" },
    { "{\"max_tokens\": 0}", "max_tokens: found 0, expected 1 to 1048576" },
    { "{\"max_tokens\": 1048577}", "max_tokens: found 1048577, expected 1 to 1048576" },
    { "{\"max_tokens\": 4294967298}", "max_tokens: found 4294967298" },
    { "{\"max_tokens\": 9223372036854775807}", "max_tokens: found 9223372036854775807" },
    { "{\"ignore_case\": 1}", "expected true or false" },
    { "{\"shot_rows\": 1}", "shot_rows: found an integer, expected a list" },
    { "{\"suites\": {\"paper\": \"x\"}}", "suites: found a string, expected a whole number" },
    { "{\"question\": \"{{ a\"}", "question: line 1: an expression is not closed" },
    { "{\"question\": \"Q: {q}\"}", "question: found {q}, which is how columns were written" },
    { "{\"question\": null}", "question: this key is missing" },
    { "{\"choices\": []}", "choices: found an array, expected a text or a list of texts" },
    { "{\"gold\": null}", "gold: this key is missing" },
    { "{\"inputs\": [\"{{ q }}\"]}", "continuation: this key is missing" },
    { "{\"where\": [\"q\"]}", "where: found an array, expected a list of a column and a text" },
    { "{\"columns\": {}}", "columns: expected an object" },
    { "{\"columns\": {\"q\": \"picture\"}}", "the type of \"q\" is one of text" },
    { "{\"add\": {\"x\": \"{{ q | shout }}\"}}", "the filter \"shout\" is not supported" },
    { "{\"add\": {\"x\": [\"{q}\", \"strip\"]}}", "x: found an array, expected a text" },
    { "{\"metrics\": []}", "metrics: expected 1 to 4 names" },
    { "{\"metrics\": [\"bleu\"]}", "\"bleu\" is not a metric of such a task" },
    { "{\"filters\": []}", "filters: found an array, expected a list of objects" },
    { "{\"filters\": [{\"name\": \"a\", \"regex\": \"(\"}]}", "cannot be compiled" },
    { "{\"filters\": [{\"name\": \"a\", \"take\": \"all\"}]}", "\"first\" or \"last\"" },
    { "{\"filters\": [{\"name\": \"a\", \"x\": 1}]}", "the key \"x\" is not known" },
    { "{\"ignore\": [\"(\"]}", "ignore: the regular expression cannot be compiled" },
    { "{\"shots\": 2, \"shot_split\": null}", "shot_split or shot_rows: this key is missing" },
};

/* Every mistake is one sentence with the file, the task and the key. */
static void refuses_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        taskdef *d;
        json_t *v = with(taskmade_choice, mistakes[i].changes);
        must_fail(taskdef_open(&d, v, "made.json", taskmade_work()), PESC_FORMAT,
                  mistakes[i].sentence);
        assert_non_null(strstr(pesc_last_error(), "made.json: "));
        json_decref(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_definition),
        cmocka_unit_test(refuses_mistakes),
    };
    return cmocka_run_group_tests_name("taskdef", tests, NULL, NULL);
}
