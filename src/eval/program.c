#include "eval/program.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { MAX_THREADS = 8 };

static const char *column(const json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* HumanEval's rows name the function under test; MBPP's have a list of tests. */
static pesc_status run_form(const program *p, const char *text, sandbox_verdict *out)
{
    const json_t *tests = json_object_get(p->row, "test_list");
    size_t n = json_array_size(tests);
    const char **list = mem_alloc(n + 1, sizeof *list);
    if (!list)
        return fail_nomem("the tests of a program", n);
    for (size_t i = 0; i < n; i++) {
        const char *test = json_string_value(json_array_get(tests, i));
        list[i] = test ? test : "";
    }
    sandbox_program about = { .kind = tests ? SANDBOX_MBPP : SANDBOX_HUMANEVAL,
                              .completion = text,
                              .prompt = column(p->row, "prompt"),
                              .test = column(p->row, "test"),
                              .entry_point = column(p->row, "entry_point"),
                              .tests = list,
                              .n_tests = n,
                              .setup = column(p->row, "test_setup_code") };
    pesc_status s = sandbox_run(p->box, &about, out);
    mem_free(list);
    return s;
}

static pesc_status run_forms(program *p)
{
    sandbox_verdict ours = { 0 }, reference;
    TRY(run_form(p, p->text[0], &ours));
    reference = ours;
    if (strcmp(p->text[0], p->text[1]) != 0)
        TRY(run_form(p, p->text[1], &reference));
    p->passed[0] = ours.passed;
    p->passed[1] = reference.reference;
    return PESC_OK;
}

void program_run(thread_job *job)
{
    program *p = (program *)job;
    p->status = run_forms(p);
    if (p->status != PESC_OK) /* the sentence is this thread's */
        snprintf(p->why, sizeof p->why, "%s", pesc_last_error());
}

/* Half of the cores: a program is at times two processes, and the model has work too. */
pesc_status program_queue_open(thread_queue **out)
{
    int n = (thread_cores() + 1) / 2;
    return thread_queue_open(out, n < MAX_THREADS ? n : MAX_THREADS, program_run);
}
