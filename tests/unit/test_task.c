/* Whole tasks from made data: names, groups, prompts, answers, programs and the list. The prompts
 * of real data are compared with the harness by tools/conformance/eval_text.py. */
#include "eval/task.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/taskmade.h"

#include <sys/resource.h>

static void put_data(void)
{
    files_text("made/test.jsonl", taskmade_rows);
    files_text("made/train.jsonl", taskmade_shots);
    files_text("made.json", taskmade_choice);
    files_text("winogrande/validation.jsonl",
               "{\"sentence\": \"so _ won. \", \"option1\": \"A\", \"option2\": \"B\", \"answer\": "
               "\"2\"}\n");
    files_text(
        "winogrande/train.jsonl",
        "{\"sentence\": \"x _ y\", \"option1\": \"C\", \"option2\": \"D\", \"answer\": \"1\"}\n"
        "{\"sentence\": \"x _ y\", \"option1\": \"C\", \"option2\": \"D\", \"answer\": \"1\"}\n");
    files_text("nq_open/validation.jsonl",
               "{\"question\": \"q\", \"answer\": [\"The Cat\", \"dog\"]}\n");
    files_text("nq_open/train.jsonl", "{\"question\": \"s\", \"answer\": [\"t\", \"u\"]}\n"
                                      "{\"question\": \"s\", \"answer\": [\"t\", \"u\"]}\n");
    files_text("gsm8k/test.jsonl", "{\"question\": \"q\", \"answer\": \"so\\n#### 1,200\"}\n");
    files_text("math/test.jsonl",
               "{\"problem\": \"p\", \"level\": \"1\", \"type\": \"Algebra\", \"solution\": "
               "\"$\\\\boxed{[2,5]}$\"}\n"
               "{\"problem\": \"p\", \"level\": \"1\", \"type\": \"Algebra\", \"solution\": "
               "\"$\\\\boxed{\\\\frac12}$\"}\n");
    files_text("humaneval/test.jsonl",
               "{\"task_id\": \"0\", \"prompt\": \"def f():\\n\", \"test\": "
               "\"T\", \"entry_point\": \"f\"}\n");
}

static task_set *open_set(const char *names, int64_t shots)
{
    task_options o = task_option_defaults;
    task_set *t;
    o.data_dir = files_path("");
    o.shots = shots;
    must(task_open(&t, names, &o));
    return t;
}

static void builds_choices(void **state)
{
    (void)state;
    char names[512];
    task_doc d;
    put_data();
    snprintf(names, sizeof names, " %s ,", files_path("made.json"));
    task_set *t = open_set(names, 1);
    assert_int_equal(task_count(t), 1);
    must(task_doc_build(&d, task_at(t, 0), 1));
    assert_int_equal(d.n_requests, 2);
    assert_ptr_equal(d.contexts[0], d.contexts[1]);
    assert_string_equal(d.continuations[1], " y");
    assert_string_equal(d.chat_continuations[1], "y");
    assert_int_equal(d.n_turns, 3);
    char want[256];
    snprintf(want, sizeof want, "About two.\n\n%s %s\n\nQ: two\nA:", d.turns[1].text,
             d.turns[2].text);
    assert_string_equal(d.contexts[0], want);
    assert_string_equal(d.turns[0].role, "system");
    assert_int_equal(json_integer_value(d.target), 0);
    task_doc_free(&d);
    task_close(t);
}

static void builds_several_inputs(void **state)
{
    (void)state;
    task_doc d;
    put_data();
    task_set *t = open_set("winogrande", 1);
    must(task_doc_build(&d, task_at(t, 0), 0));
    assert_string_equal(d.contexts[0], "x C y\n\nso A");
    assert_string_equal(d.contexts[1], "x C y\n\nso B");
    assert_string_equal(d.continuations[0], " won.");
    assert_string_equal(json_string_value(d.target), "won.");
    assert_int_equal(d.gold, 1);
    task_doc_free(&d);
    task_close(t);
}

static void builds_texts(void **state)
{
    (void)state;
    task_doc d;
    put_data();
    task_set *t = open_set("nq_open", 1);
    must(task_doc_build(&d, task_at(t, 0), 0));
    assert_string_equal(d.contexts[0], "Answer these questions:\n\nQ: s?\nA: t\nQ: q?\nA:");
    assert_null(d.continuations[0]);
    char hash[DIGEST_TEXT];
    digest_text(hash, "['The Cat', 'dog']", 18);
    assert_string_equal(d.target_hash, hash);
    task_doc_free(&d);
    task_close(t);
    /* A target that is a Python list is printed as one. */
    t = open_set("minerva_math_algebra", 0);
    must(task_doc_build(&d, task_at(t, 0), 0));
    digest_text(hash, "[2, 5]", 6);
    assert_string_equal(d.target_hash, hash);
    task_doc_free(&d);
    task_close(t);
}

/* Judges one text and returns the first value of a filter. */
static double judged(const char *name, size_t doc, const char *text, size_t filter, bool *undecided)
{
    task_set *t = open_set(name, 0);
    task_doc d;
    task_verdict v[4] = { 0 };
    task_answer a = { .text = text, .n_text = strlen(text), .passed = true };
    must(task_doc_build(&d, task_at(t, 0), doc));
    must(task_judge(task_at(t, 0), &d, &a, v));
    double value = v[filter].values[0];
    if (undecided)
        *undecided = v[filter].undecided;
    for (size_t i = 0; i < 4; i++)
        task_verdict_free(&v[i]);
    task_doc_free(&d);
    task_close(t);
    return value;
}

static void judges_texts(void **state)
{
    (void)state;
    static const struct {
        const char *task;
        size_t doc;
        const char *text;
        size_t filter;
        double value;
        bool undecided;
    } rows[] = {
        { "nq_open", 0, " a cat!", 0, 1, false },
        { "nq_open", 0, "Dog ", 0, 1, false },
        { "nq_open", 0, "dogs", 0, 0, false },
        { "gsm8k", 0, "#### $1200", 0, 0, false },
        { "gsm8k", 0, "#### 1200.", 0, 1, false },
        { "gsm8k", 0, "7, so 1200", 0, 0, false },
        { "gsm8k", 0, "7, so $1,200", 1, 1, false },
        { "gsm8k", 0, "1200 ...", 1, 0, false },
        { "minerva_math_algebra", 1, "Final Answer: The final answer is $0.5$. ", 0, 1, false },
        { "minerva_math_algebra", 1, "Final Answer: The final answer is $\\sqrt{x}$. ", 0, 0,
          true },
        { "minerva_math_algebra", 0, "Final Answer: The final answer is $[2,5]$. ", 0, 1, false },
        { "minerva_math_algebra", 1, "0.5", 0, 0, false },
        { "hendrycks_math_algebra", 1, "it is $1/2$.", 0, 1, false },
        { "hendrycks_math_algebra", 1, "it is 1/2.", 0, 0, false },
        { "humaneval", 0, "    pass", 0, 1, false },
    };
    put_data();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool undecided;
        double value = judged(rows[i].task, rows[i].doc, rows[i].text, rows[i].filter, &undecided);
        if (value != rows[i].value || undecided != rows[i].undecided)
            fail_msg("row %zu: got %g %d", i, value, undecided);
    }
}

static void judges_choices(void **state)
{
    (void)state;
    const double logprobs[] = { -3, -4, -3 };
    put_data();
    task_set *t = open_set(files_path("made.json"), 0);
    task_doc d;
    task_verdict v = { 0 };
    must(task_doc_build(&d, task_at(t, 0), 0)); /* choices "a", "bb" (right), "e" with an accent */
    must(task_judge(task_at(t, 0), &d, &(task_answer){ .logprobs = logprobs }, &v));
    assert_true(v.values[0] == 0);
    assert_true(v.values[1] == 1); /* -3 / 1, -4 / 2, -3 / 1 */
    task_doc_free(&d);
    task_close(t);
}

static void knows_names(void **state)
{
    (void)state;
    task_set *t;
    task_options o = task_option_defaults;
    assert_true(task_knows("mmlu, paper12,arc_easy,x.json"));
    assert_false(task_knows("mmlu,none"));
    o.data_dir = files_path("");
    must_fail(task_open(&t, "none", &o), PESC_USAGE, "the task \"none\" is not known");
    must_fail(task_open(&t, " , ", &o), PESC_USAGE, "the list of tasks is empty");
    o.suite = "book";
    must_fail(task_open(&t, "piqa", &o), PESC_USAGE, "the suite \"book\" is not known");
}

/* A group has a score only when all its tasks are there. */
static void finds_groups(void **state)
{
    (void)state;
    put_data();
    char rows[2048] = "";
    static const char *const types[] = { "Algebra",       "Counting & Probability", "Geometry",
                                         "Number Theory", "Intermediate Algebra",   "Prealgebra",
                                         "Precalculus" };
    for (size_t i = 0; i < 7; i++)
        snprintf(rows + strlen(rows), sizeof rows - strlen(rows),
                 "{\"problem\": \"p\", \"level\": \"1\", \"type\": \"%s\", \"solution\": "
                 "\"\\\\boxed{1}\"}\n",
                 types[i]);
    files_text("math/test.jsonl", rows);
    task_set *t = open_set("hendrycks_math,minerva_math_geometry", 0);
    assert_int_equal(task_count(t), 8);
    assert_int_equal(task_group_count(t), 1);
    assert_string_equal(task_group_at(t, 0)->name, "hendrycks_math");
    assert_int_equal(task_group_at(t, 0)->n_tasks, 7);
    assert_string_equal(task_describe(task_at(t, 7))->label, "minerva_math_geometry?");
    task_close(t);
}

static void lists_all_tasks(void **state)
{
    (void)state;
    task_list l;
    size_t present = 0, paper = 0;
    put_data();
    must(task_list_open(&l, files_path("")));
    for (size_t i = 0; i < l.n; i++) {
        present += l.rows[i].present && !l.rows[i].group;
        if (strcmp(l.rows[i].name, "paper12") == 0)
            paper = (size_t)l.rows[i].documents;
    }
    /* gsm8k_cot reads gsm8k's file, 14 tasks read math's, 4 have their rows with them */
    assert_int_equal(present, 5 + 14 + 4);
    assert_int_equal(paper, 164 + 500 + 1319 + 5000 + 1838 + 10042 + 1267 + 2376 + 1172 + 3610 +
                                17944 + 14042);
    task_list_free(&l);
}

/* Task files of at most 1 MB, with data and answers of at most 1 MB, that would take minutes or
 * gigabytes: each is answered or refused within 2 s of CPU time and 1 GB. */
typedef struct hostile {
    const char *keys;  /* of the task file, after those that all have */
    const char *piece; /* repeated in the value of the column q */
    size_t pieces, rows, patterns;
    bool refused;
} hostile;

static void put_hostile(const hostile *h)
{
    str file = { 0 }, q = { 0 }, data = { 0 };
    for (size_t i = 0; i < h->pieces; i++)
        str_puts(&q, h->piece);
    str_puts(&q, "");
    for (size_t i = 0; i < h->rows; i++)
        str_printf(&data, "{\"q\":\"%s\"}\n", q.p);
    str_puts(&file, "{\"task\": \"hard\", \"kind\": \"text\", \"data\": \"hard\", \"split\": \"s\","
                    "\"columns\": {\"q\": \"text\"}, \"metrics\": [\"exact_match\"], ");
    for (size_t i = 0; i < h->patterns; i++)
        str_puts(&file, i ? ",\"x\"" : "\"ignore\": [\"x\"");
    str_puts(&file, h->patterns ? "]," : "");
    str_puts(&file, h->keys);
    files_text("hard.json", file.p);
    files_text("hard/s.jsonl", data.p);
    str_free(&file);
    str_free(&q);
    str_free(&data);
}

/* Opens the set, builds each document and judges the row's own text as its answer. */
static pesc_status run_hostile(void)
{
    task_options o = task_option_defaults;
    task_set *t;
    char name[512];
    o.data_dir = files_path("");
    snprintf(name, sizeof name, "%s", files_path("hard.json"));
    TRY(task_open(&t, name, &o));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < task_describe(task_at(t, 0))->n_docs; i++) {
        task_doc d;
        task_verdict v[4] = { 0 };
        const json_t *q = json_object_get(task_doc_row(task_at(t, 0), i), "q");
        task_answer a = { .text = json_string_value(q), .n_text = json_string_length(q) };
        s = task_doc_build(&d, task_at(t, 0), i);
        if (s == PESC_OK)
            s = task_judge(task_at(t, 0), &d, &a, v);
        for (size_t k = 0; k < 4; k++)
            task_verdict_free(&v[k]);
        task_doc_free(&d);
    }
    task_close(t);
    return s;
}

static void bounds_the_work(void **state)
{
    (void)state;
    static const char plain[] = "\"question\": \"{{ q }}\", \"target\": \"{{ q }}\"}";
    static const hostile rows[] = {
        { plain, "a", 1, 80000, 0, false },
        { plain, "a", 1000000, 1, 0, false },
        { "\"question\": \"{{ q * 1000 }}\", \"target\": \"\"}", "a", 400000, 1, 0, true },
        { "\"question\": \"{% for i in range(99999) %}{{ q }}{% endfor %}\", \"target\": \"\"}",
          "a", 400000, 1, 0, true },
        { "\"question\": \"{{ q * 40000 }}\", \"target\": \"\"}", "a", 1, 80000, 0, true },
        { "\"add\": {\"x\": \"{{ q * 40000 }}\"}, \"question\": \"\", \"target\": \"\"}", "a", 1,
          80000, 0, true },
        { "\"question\": \"{% for i in range(9999) %}{% endfor %}\", \"target\": \"\"}", "a", 1,
          80000, 0, true },
        { "\"question\": \"\", \"target\": \"{{ range(9999) | list }}\"}", "a", 1, 80000, 0, true },
        { plain, "a", 8, 40000, 2000, true },
        { "\"ignore\": [\",\", \"\\\\$\", \"(?s).*#### \", \"\\\\.$\"], \"question\": \"\", "
          "\"target\": "
          "\"{{ q }}\"}",
          ",", 500000, 2, 0, false },
        { "\"ignore\": [\"(a+)+[bc]\"], \"question\": \"\", \"target\": \"{{ q }}\"}", "a", 20,
          20000, 0, true },
        { "\"filters\": [{\"name\": \"x\", \"regex\": \"a?[^b]*[bc]\", \"take\": \"last\"}], "
          "\"question\": \"\", \"target\": \"{{ q }}\"}",
          "a", 50000, 20, 0, true },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct rusage before, after;
        put_hostile(&rows[i]);
        getrusage(RUSAGE_SELF, &before);
        pesc_status s = run_hostile();
        getrusage(RUSAGE_SELF, &after);
        double taken = (double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec) +
                       1e-6 * (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
                       (double)(after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
                       1e-6 * (double)(after.ru_stime.tv_usec - before.ru_stime.tv_usec);
        if (taken > 2 || after.ru_maxrss > 1 << 20)
            fail_msg("case %zu: %.1f s, %ld KiB", i, taken, after.ru_maxrss);
        if (rows[i].refused)
            must_fail(s, PESC_FORMAT, "hard");
        else
            must(s);
    }
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    put_data();
    task_set *t = open_set("nq_open", 1);
    for (uint64_t n = 1;; n++) {
        task_doc d = { 0 };
        task_verdict v = { 0 };
        mem_fail_at(n);
        pesc_status s = task_doc_build(&d, task_at(t, 0), 0);
        if (s == PESC_OK)
            s = task_judge(task_at(t, 0), &d, &(task_answer){ .text = "x", .n_text = 1 }, &v);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        task_verdict_free(&v);
        task_doc_free(&d);
        if (!fired) {
            must(s);
            break;
        }
        if (s != PESC_NOMEM)
            fail_msg("allocation %d refused: got \"%s\"", (int)n, pesc_status_text(s));
    }
    task_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_choices),       cmocka_unit_test(builds_several_inputs),
        cmocka_unit_test(builds_texts),         cmocka_unit_test(judges_texts),
        cmocka_unit_test(judges_choices),       cmocka_unit_test(knows_names),
        cmocka_unit_test(finds_groups),         cmocka_unit_test(lists_all_tasks),
        cmocka_unit_test(bears_want_of_memory), cmocka_unit_test(bounds_the_work),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
