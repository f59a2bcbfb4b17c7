/* Runs programs through the sandbox: a line of JSON in, a line of JSON out, in the same order.
 *
 *   sandbox_programs [mode=auto|A|B|none] [unsafe=0|1] [cpu=S] [wall=S] [memory=BYTES] [jobs=N]
 *
 * A program is {"kind": "humaneval", "prompt", "completion", "test", "entry_point"} or {"kind":
 * "mbpp", "completion", "test_list", "setup"}. The first line out describes the sandbox. Exit code
 * 4 and one sentence: there is none. */
#include "sandbox/sandbox.h"
#include "base/clock.h"
#include "base/json.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROGRAMS = 4096, MAX_TESTS = 64, MAX_JOBS = 64 };

typedef struct work {
    sandbox *s;
    json_t *in[MAX_PROGRAMS], *out[MAX_PROGRAMS];
    int n;
    atomic_int next;
} work;

static const char *text(const json_t *row, const char *key)
{
    const char *s = json_string_value(json_object_get(row, key));
    return s ? s : "";
}

static json_t *run_one(sandbox *s, const json_t *row)
{
    const char *tests[MAX_TESTS];
    const json_t *list = json_object_get(row, "test_list");
    size_t n = json_array_size(list) < MAX_TESTS ? json_array_size(list) : MAX_TESTS;
    for (size_t i = 0; i < n; i++)
        tests[i] = json_string_value(json_array_get(list, i));
    sandbox_program p = {
        .kind = strcmp(text(row, "kind"), "mbpp") ? SANDBOX_HUMANEVAL : SANDBOX_MBPP,
        .completion = text(row, "completion"),
        .prompt = text(row, "prompt"),
        .test = text(row, "test"),
        .entry_point = text(row, "entry_point"),
        .tests = tests,
        .n_tests = n,
        .setup = text(row, "setup"),
    };
    sandbox_verdict v;
    double began = clock_seconds();
    if (sandbox_run(s, &p, &v) != PESC_OK)
        return json_pack("{ss}", "error", pesc_last_error());
    return json_pack("{sbsbsbsbsssf}", "passed", v.passed, "reference", v.reference, "not_literal",
                     v.not_literal, "timed_out", v.timed_out, "reason", v.reason, "seconds",
                     clock_seconds() - began);
}

static void *run_all(void *arg)
{
    work *w = arg;
    for (int i; (i = atomic_fetch_add(&w->next, 1)) < w->n;)
        w->out[i] = run_one(w->s, w->in[i]);
    return NULL;
}

static void read_programs(work *w)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while (w->n < MAX_PROGRAMS && (n = getline(&line, &cap, stdin)) > 0)
        if ((w->in[w->n] = json_loadb(line, (size_t)n, 0, NULL)))
            w->n++;
    free(line);
}

static void print(json_t *row)
{
    char *s = json_dumps(row, JSON_COMPACT);
    puts(s);
    free(s);
    json_decref(row);
}

static void read_options(sandbox_options *opt, int *jobs, int argc, char **argv)
{
    static const char *const modes[] = { "auto", "A", "B", "none" };
    for (int i = 1; i < argc; i++) {
        char mode[8] = "";
        int flag = 0;
        sscanf(argv[i], "cpu=%d", &opt->cpu_seconds);
        sscanf(argv[i], "wall=%lf", &opt->wall_seconds);
        sscanf(argv[i], "memory=%zu", &opt->memory_bytes);
        sscanf(argv[i], "jobs=%d", jobs);
        if (sscanf(argv[i], "unsafe=%d", &flag) == 1)
            opt->unsafe = flag;
        if (sscanf(argv[i], "mode=%7s", mode) == 1)
            for (int m = 0; m < 4; m++)
                if (!strcmp(mode, modes[m]))
                    opt->mode = (sandbox_mode)m;
    }
}

int main(int argc, char **argv)
{
    static work w;
    sandbox_options opt = { 0 };
    int jobs = 1;
    read_options(&opt, &jobs, argc, argv);
    if (sandbox_open(&w.s, &opt) != PESC_OK) {
        fprintf(stderr, "%s\n", pesc_last_error());
        return 4;
    }
    print(json_pack("{ss}", "sandbox", sandbox_describe(w.s)));
    fflush(stdout);
    read_programs(&w);
    pthread_t threads[MAX_JOBS];
    jobs = jobs < MAX_JOBS ? jobs : MAX_JOBS;
    for (int i = 0; i < jobs; i++)
        pthread_create(&threads[i], NULL, run_all, &w);
    for (int i = 0; i < jobs; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < w.n; i++) {
        print(w.out[i]);
        json_decref(w.in[i]);
    }
    sandbox_close(w.s);
    return 0;
}
