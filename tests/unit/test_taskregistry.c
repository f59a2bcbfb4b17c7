#include "eval/taskregistry.h"

#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"

static pesc_status parse(task_registry *b, const char *text)
{
    return registry_parse(b, text, strlen(text), "made.json");
}

/* The embedded files are right, and their groups have the tasks that the benchmarks have. */
static void reads_the_builtin_tasks(void **state)
{
    (void)state;
    static const struct {
        const char *group;
        size_t n;
        int64_t documents;
    } rows[] = {
        { "mmlu_stem", 19, 3153 },
        { "mmlu_humanities", 13, 4705 },
        { "mmlu_social_sciences", 12, 3077 },
        { "mmlu_other", 13, 3107 },
        { "minerva_math", 7, 5000 },
        { "hendrycks_math", 7, 5000 },
    };
    task_registry b = { 0 };
    must(registry_builtin(&b));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n = 0;
        int64_t documents = 0;
        for (size_t k = 0; k < b.n_tasks; k++)
            if (b.tasks[k]->group && strcmp(b.tasks[k]->group, rows[i].group) == 0) {
                n++;
                documents += b.tasks[k]->documents;
            }
        assert_int_equal(n, rows[i].n);
        assert_int_equal(documents, rows[i].documents);
    }
    const registry_group *paper = registry_group_named(&b, "paper12");
    assert_int_equal(json_array_size(paper->members), 12);
    for (size_t i = 0; i < 12; i++) {
        const char *name = json_string_value(json_array_get(paper->members, i));
        assert_true(registry_task(&b, name) || registry_group_named(&b, name));
    }
    assert_int_equal(registry_task(&b, "gsm8k_cot")->shots, 8);
    assert_int_equal(registry_task(&b, "mmlu_anatomy")->shots, 0);
    registry_free(&b);
}

static void reads_families_and_groups(void **state)
{
    (void)state;
    task_registry b = { 0 };
    must(parse(&b,
               "{\"kind\": \"text\", \"split\": \"test\", \"columns\": {\"q\": \"text\"},"
               " \"question\": \"{{ q }}\", \"target\": \"{{ q }}\", \"metrics\": \"exact_match\","
               " \"shot_delimiter\": \"-\", \"groups\": [{\"group\": \"g\", \"version\": 2}],"
               " \"variants\": [{\"task\": \"a\", \"group\": \"g\"},"
               " {\"task\": \"b\", \"shot_delimiter\": \"+\"}]}"));
    assert_int_equal(b.n_tasks, 2);
    assert_string_equal(registry_task(&b, "a")->shot_delimiter, "-");
    assert_string_equal(registry_task(&b, "b")->shot_delimiter, "+");
    assert_null(registry_task(&b, "b")->group);
    assert_true(registry_group_named(&b, "g")->version == 2);
    assert_null(registry_task(&b, "c"));
    registry_free(&b);
}

static void refuses_mistakes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "[]", "found an array, expected an object" },
        { "{\"variants\": 1}", "groups and variants are lists" },
        { "{\"variants\": [1]}", "variants: found an integer, expected an object" },
        { "{\"groups\": [{}]}", "group" },
        { "{\"groups\": [{\"group\": \"g\", \"members\": 1}]}", "expected a list of names" },
        { "{\"groups\": [{\"group\": \"g\"}, {\"group\": \"g\"}]}", "\"g\" already" },
        { "{", "made.json" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        task_registry b = { 0 };
        must_fail(parse(&b, rows[i][0]), PESC_FORMAT, rows[i][1]);
        registry_free(&b);
    }
    task_registry b = { 0 };
    must(registry_read(&b, files_text("t.json", taskmade_choice)));
    must_fail(registry_read(&b, files_path("t.json")), PESC_FORMAT, "\"made_choice\" already");
    must_fail(registry_read(&b, files_path("none.json")), PESC_IO, "none.json");
    assert_int_equal(b.n_tasks, 1);
    registry_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_builtin_tasks),
        cmocka_unit_test(reads_families_and_groups),
        cmocka_unit_test(refuses_mistakes),
    };
    return cmocka_run_group_tests_name("taskregistry", tests, NULL, NULL);
}
