#include "eval/taskrows.h"

#include "base/mem.h"
#include "eval/pyrandom.h"
#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"

static task_options options(int64_t shots, int64_t limit)
{
    task_options o = task_option_defaults;
    o.shots = shots;
    o.limit = limit;
    return o;
}

static pesc_status open_task(const char *json, task_options opt, void (*look)(const eval_task *))
{
    taskdef *def;
    eval_task *l = NULL;
    task_files files = { .dir = mem_strdup(files_path("")) };
    json_t *v = json_loads(json, 0, NULL);
    must(taskdef_open(&def, v, "made.json", taskmade_work()));
    pesc_status s = task_load(&l, def, &files, &opt);
    if (s == PESC_OK && look)
        look(l);
    task_unload(l);
    task_files_free(&files);
    taskdef_close(def);
    json_decref(v);
    return s;
}

static void put_data(void)
{
    files_text("made/test.jsonl", taskmade_rows);
    files_text("made/train.jsonl", taskmade_shots);
}

static void look_at_rows(const eval_task *l)
{
    static const int32_t gold[] = { 1, 0 };
    assert_int_equal(l->about.n_docs, 2);
    assert_int_equal(l->about.n_rows, 3);
    assert_memory_equal(l->gold, gold, sizeof gold);
    assert_string_equal(l->about.label, "made_choice");
    assert_string_equal(l->about.note, "");
}

static void reads_rows_and_gold(void **state)
{
    (void)state;
    put_data();
    must(open_task(taskmade_choice, options(0, 2), look_at_rows));
}

/* The first row of the pool equals document 0 and is never its example; of the others it may be. */
static void look_at_shots(const eval_task *l)
{
    pyrandom r;
    uint32_t drawn[3];
    pyrandom_seed(&r, 1234);
    for (size_t i = 0; i < l->about.n_docs; i++) {
        uint32_t kept[2], n = 0;
        must(pyrandom_sample(&r, 3, 3, drawn));
        for (size_t k = 0; k < 3 && n < 2; k++)
            if (i > 0 || drawn[k] != 0)
                kept[n++] = drawn[k];
        assert_memory_equal(l->drawn + 2 * i, kept, sizeof kept);
    }
}

static void draws_one_more_and_drops_the_question(void **state)
{
    (void)state;
    put_data();
    must(open_task(taskmade_choice, options(2, 0), look_at_shots));
}

static void marks_unknown_data(void **state)
{
    (void)state;
    static const struct {
        const char *key, *note;
        int64_t shots;
    } rows[] = {
        { "\"documents\": 4,", "test.jsonl has 3 rows; the published data has 4", 0 },
        { "\"documents\": 4, \"subsets\": {\"3\": \"a part\"},", "4 (as many as a part)", 0 },
        { "\"sha256\": \"00\",", "its rows have another SHA-256", 0 },
        { "\"shot_documents\": 9,", "3 rows for few-shot examples; the published data has 9", 1 },
    };
    put_data();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[2048];
        taskdef *def;
        eval_task *l;
        task_files files = { .dir = mem_strdup(files_path("")) };
        task_options opt = options(rows[i].shots, 0);
        snprintf(json, sizeof json, "{%s%s", rows[i].key, taskmade_choice + 1);
        json_t *v = json_loads(json, 0, NULL);
        must(taskdef_open(&def, v, "made.json", taskmade_work()));
        must(task_load(&l, def, &files, &opt));
        assert_string_equal(l->about.label, "made_choice?");
        assert_non_null(strstr(l->about.note, rows[i].note));
        task_unload(l);
        task_files_free(&files);
        taskdef_close(def);
        json_decref(v);
    }
}

static void refuses_wrong_labels_and_shots(void **state)
{
    (void)state;
    put_data();
    must_fail(open_task(taskmade_choice, options(3, 0), NULL), PESC_USAGE,
              "made_choice: 3 shots were asked for; there are 3 examples");
    files_text("made/test.jsonl", "{\"q\": \"\", \"c\": [\"a\"], \"a\": 1}");
    must_fail(open_task(taskmade_choice, options(0, 0), NULL), PESC_FORMAT,
              "made_choice: row 1: the right answer is \"1\", expected a number from 0 to 0");
    files_text("made/test.jsonl", "{\"q\": \"\", \"c\": [], \"a\": 1}");
    must_fail(open_task(taskmade_choice, options(0, 0), NULL), PESC_FORMAT, "has no choices");
    char json[2048];
    snprintf(json, sizeof json, "{\"labels\": \"{{ c }}\",%s", taskmade_choice + 1);
    files_text("made/test.jsonl", "{\"q\": \"\", \"c\": [\"A\", \"B\"], \"a\": \"C\"}");
    must_fail(open_task(json, options(0, 0), NULL), PESC_FORMAT,
              "row 1: the right answer is \"C\", which is not a label of a choice");
    snprintf(json, sizeof json, "{\"where\": [\"q\", \"none\"],%s", taskmade_choice + 1);
    must_fail(open_task(json, options(0, 0), NULL), PESC_FORMAT, "no row has q \"none\"");
}

static void builds_no_more_than_the_data_allows(const eval_task *l)
{
    task_doc d;
    must_fail(task_doc_build(&d, l, 0), PESC_FORMAT, "made.json: the templates and regular");
}

/* Rows that all equal each other are compared with each other; a long question is encoded before
 * each of many choices. */
static void bounds_what_small_data_costs(void **state)
{
    enum { ROWS = 8000, LONG = 300000, CHOICES = 2000 };
    (void)state;
    str rows = { 0 };
    for (int i = 0; i < ROWS; i++)
        str_puts(&rows, "{\"q\": \"\", \"c\": [\"b\"], \"a\": 0}\n");
    for (int i = 0; i < 3; i++)
        str_printf(&rows, "{\"q\": \"%d\", \"c\": [\"b\"], \"a\": 0}\n", i);
    files_text("made/test.jsonl", rows.p);
    files_text("made/train.jsonl", rows.p);
    must_fail(open_task(taskmade_choice, options(3, 0), NULL), PESC_FORMAT,
              "rows that equal each other: the templates and regular expressions of these tasks");
    str_clear(&rows);
    str_puts(&rows, "{\"a\": 0, \"q\": \"");
    for (int i = 0; i < LONG; i++)
        str_putc(&rows, 'x');
    str_puts(&rows, "\", \"c\": [\"b\"");
    for (int i = 0; i < CHOICES; i++)
        str_puts(&rows, ",\"b\"");
    str_puts(&rows, "]}\n");
    files_text("made/test.jsonl", rows.p);
    must(open_task(taskmade_choice, options(0, 0), builds_no_more_than_the_data_allows));
    str_free(&rows);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    put_data();
    taskdef *def;
    json_t *v = json_loads(taskmade_choice, 0, NULL);
    must(taskdef_open(&def, v, "made.json", taskmade_work()));
    for (uint64_t n = 1;; n++) {
        eval_task *l = NULL;
        task_files files = { .dir = mem_strdup(files_path("")) };
        task_options opt = options(1, 0);
        mem_fail_at(n);
        pesc_status s = task_load(&l, def, &files, &opt);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        task_unload(l);
        task_files_free(&files);
        if (!fired) {
            must(s);
            break;
        }
        if (s != PESC_NOMEM)
            fail_msg("allocation %d refused: got \"%s\"", (int)n, pesc_status_text(s));
    }
    taskdef_close(def);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows_and_gold),
        cmocka_unit_test(draws_one_more_and_drops_the_question),
        cmocka_unit_test(marks_unknown_data),
        cmocka_unit_test(refuses_wrong_labels_and_shots),
        cmocka_unit_test(bounds_what_small_data_costs),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
