/* cmd_eval: how good a model is: benchmark tasks by name, and files of records. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/processes.h"
#include "cli/show/progress.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The words of --tasks: names of benchmark tasks, joined by commas, and files of records. */
typedef struct words {
    char *text; /* of the files */
    const char **files;
    bool *pairs; /* of each file: it holds pairs of answers */
    size_t n_files;
    char *tasks;
    size_t n_tasks; /* letters of it */
} words;

static void sort_word(words *w, char *word)
{
    if (!pesc_benchmark_known(word)) {
        w->files[w->n_files++] = word;
        return;
    }
    size_t n = strlen(word);
    if (w->n_tasks)
        w->tasks[w->n_tasks++] = ',';
    memcpy(w->tasks + w->n_tasks, word, n + 1);
    w->n_tasks += n;
}

static pesc_status read_words(words *w, const options *o)
{
    size_t bytes = 1;
    char *rest = NULL;
    for (size_t i = 0; i < o->n_tasks; i++)
        bytes += strlen(o->tasks[i]) + 1;
    w->text = malloc(bytes);
    w->tasks = calloc(bytes, 1);
    w->files = calloc(bytes, sizeof *w->files); /* there cannot be more words than letters */
    w->pairs = calloc(bytes, sizeof *w->pairs);
    if (!w->text || !w->tasks || !w->files || !w->pairs)
        return out_nomem("the tasks");
    char *at = w->text;
    for (size_t i = 0; i < o->n_tasks; i++) {
        size_t n = strlen(o->tasks[i]) + 1;
        memcpy(at, o->tasks[i], n);
        for (char *word = strtok_r(at, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
            sort_word(w, word);
        at += n;
    }
    return PESC_OK;
}

/* Whether a file holds pairs of answers: then which one a model prefers is measured. */
static pesc_status check_file(const options *o, const char *file, bool *pairs)
{
    pesc_data *d = NULL;
    pesc_data_options p = o->data;
    if (access(file, F_OK) != 0 && !strpbrk(file, "./"))
        return out_fail(PESC_USAGE,
                        "eval: \"%s\" is neither a task nor a file of records; `pesc eval --list` "
                        "prints the tasks",
                        file);
    p.data = &file;
    p.n_data = 1;
    p.format = o->eval.format;
    p.chat_template = o->eval.chat_template;
    p.base = o->load.base;
    p.unpack_ratio = o->eval.unpack_ratio;
    pesc_status st = pesc_data_open(&d, o->models[0], &p, NULL);
    *pairs = st == PESC_OK && strncmp(pesc_data_format(d, 0), "preference", 10) == 0;
    pesc_data_close(d);
    return st;
}

/* What cannot be opened is found before the first model is evaluated, which may take hours. */
static pesc_status check_inputs(const options *o, const words *w)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    for (size_t i = 0; i < o->n_models; i++)
        if (!pesc_benchmark_is_server(o->models[i]))
            TRY(pesc_info(o->models[i], o->load.base, NULL, &info));
    for (size_t i = 0; i < w->n_files; i++)
        TRY(check_file(o, w->files[i], &w->pairs[i]));
    return PESC_OK;
}

/* ---- files of records: loss and exact match by domain ---- */

/* The result of one task. */
typedef struct result {
    const char *task;
    bool is_pairs;
    pesc_pairs_report pairs; /* of a file of pairs; else: */
    pesc_eval_report report;
    const options *o;
    const char *computes;      /* the dtype of the model's activations */
    pesc_eval_sample *samples; /* with --json or -o; the strings are copies */
    size_t n, cap;
    bool short_of_memory;
} result;

/* Samples are printed at once as text, and written at the end as JSON. */
static void print_sample(const pesc_eval_sample *s)
{
    const struct {
        const char *name, *text;
    } rows[] = { { "prompt", s->prompt }, { "expected", s->expected }, { "answer", s->answer } };
    progress_clear();
    printf("-- record %llu, %s: %s\n", (unsigned long long)s->record + 1, s->domain,
           s->correct ? "correct" : "wrong");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("%-9s ", rows[i].name);
        out_write(rows[i].text, strlen(rows[i].text));
        putchar('\n');
    }
}

static void keep_sample(result *r, const pesc_eval_sample *s)
{
    if (r->n == r->cap) {
        size_t cap = 2 * r->cap + 64;
        pesc_eval_sample *p = realloc(r->samples, cap * sizeof *p);
        r->short_of_memory = r->short_of_memory || !p;
        if (!p)
            return;
        r->samples = p;
        r->cap = cap;
    }
    pesc_eval_sample *to = &r->samples[r->n++];
    *to = *s;
    const char **texts[] = { &to->domain, &to->prompt, &to->expected, &to->answer };
    for (int i = 0; i < 4; i++)
        r->short_of_memory = !(*texts[i] = strdup(*texts[i])) || r->short_of_memory;
}

static void take_sample(void *ud, const pesc_eval_sample *s)
{
    result *r = ud;
    if (r->o->json || r->o->output)
        keep_sample(r, s);
    if (!r->o->json)
        print_sample(s);
}

static void json_samples(const result *r)
{
    out_begin("samples", '[');
    for (size_t i = 0; i < r->n; i++) {
        const pesc_eval_sample *s = &r->samples[i];
        out_begin(NULL, '{');
        out_fields("record=%ld domain=%s prompt=%s expected=%s answer=%s", s->record, s->domain,
                   s->prompt, s->expected, s->answer);
        out_bool("correct", s->correct);
        out_end();
    }
    out_end();
}

static void json_score(const char *key, const pesc_eval_score *s)
{
    out_begin(key, '{');
    if (s->domain)
        out_text("domain", s->domain);
    out_fields(
        "records=%ld tokens=%ld loss=%g asked=%ld correct=%ld exact_match=%g exact_match_stderr=%g",
        s->records, s->tokens, s->loss, s->asked, s->correct, s->exact_match,
        s->exact_match_stderr);
    out_end();
}

static void json_pairs(const result *t)
{
    const pesc_pairs_report *r = &t->pairs;
    out_fields("pairs=%ld accuracy=%g accuracy_stderr=%g margin=%g accuracy_norm=%g "
               "margin_norm=%g logp_chosen=%g logp_rejected=%g too_long=%ld seconds=%.6g",
               r->pairs, r->accuracy, r->accuracy_stderr, r->margin, r->accuracy_norm,
               r->margin_norm, r->logp_chosen, r->logp_rejected, r->too_long, r->seconds);
    out_end();
}

static void json_result(const result *t)
{
    const pesc_eval_report *r = &t->report;
    out_begin(NULL, '{');
    out_text("task", t->task);
    if (t->is_pairs) {
        json_pairs(t);
        return;
    }
    json_score("all", &r->all);
    out_begin("domains", '[');
    for (size_t i = 0; i < r->n_domains; i++)
        json_score(NULL, &r->domains[i]);
    out_end();
    out_fields("too_long=%ld generated=%ld seconds=%.6g", r->too_long, r->generated, r->seconds);
    if (t->o->samples)
        json_samples(t);
    out_end();
}

static void print_score(const char *name, const pesc_eval_score *s)
{
    char exact[48] = "-", loss[32] = "-";
    if (s->asked)
        snprintf(exact, sizeof exact, "%5.1f %% \u00B1 %.1f", 100 * s->exact_match,
                 100 * s->exact_match_stderr);
    if (s->tokens)
        snprintf(loss, sizeof loss, "%.4f", s->loss);
    printf("  %-20s %8llu %10s   %s\n", name, (unsigned long long)s->records, loss, exact);
}

/* Some of them do not fit the session. */
static void print_too_long(uint64_t n, const char *of)
{
    if (n)
        printf("  %llu %s are longer than the session and were left out; --ctx makes room\n",
               (unsigned long long)n, of);
}

static void print_report(const options *o, const char *task, const pesc_eval_report *r)
{
    out_name(task);
    if (o->n_models > 1) {
        fputs(", model ", stdout);
        out_name(o->model);
    }
    printf("\n  %-20s %8s %10s   %s\n", "domain", "records", "loss", "exact match");
    for (size_t i = 0; i < r->n_domains; i++)
        print_score(r->domains[i].domain, &r->domains[i]);
    if (r->n_domains != 1)
        print_score("all", &r->all);
    print_too_long(r->too_long, "records");
}

static void print_pairs(const options *o, const char *task, const pesc_pairs_report *r)
{
    out_name(task);
    if (o->n_models > 1) {
        fputs(", model ", stdout);
        out_name(o->model);
    }
    printf("\n  %8s %18s %10s %18s %10s\n", "pairs", "accuracy", "margin", "of means: accuracy",
           "margin");
    printf("  %8llu %10.1f %% \u00B1 %.1f %10.4f %16.1f %% %10.4f\n", (unsigned long long)r->pairs,
           100 * r->accuracy, 100 * r->accuracy_stderr, r->margin, 100 * r->accuracy_norm,
           r->margin_norm);
    print_too_long(r->too_long, "pairs");
}

static pesc_status run_pairs(const options *o, pesc_session *s, result *r, bool leads)
{
    r->pairs = PESC_INIT(pesc_pairs_report);
    TRY(pesc_eval_pairs(s, r->task, &o->eval, &r->pairs));
    progress_clear();
    if (!o->json && leads)
        print_pairs(o, r->task, &r->pairs);
    return PESC_OK;
}

static pesc_status run_task(const options *o, pesc_session *s, result *r, bool leads)
{
    pesc_eval_options e = o->eval;
    e.each = o->samples ? take_sample : NULL;
    e.ud = r;
    r->o = o;
    r->report = PESC_INIT(pesc_eval_report);
    TRY(pesc_eval(s, r->task, &e, &r->report));
    progress_clear();
    if (!o->json && leads)
        print_report(o, r->task, &r->report);
    return r->short_of_memory ? out_nomem("the samples") : PESC_OK;
}

static void print_pairs_of_models(const options *o, const result *results, size_t n_files,
                                  size_t file)
{
    printf(", all models\n  %10s %10s  model\n", "accuracy", "margin");
    for (size_t i = 0; i < o->n_models; i++) {
        const pesc_pairs_report *r = &results[i * n_files + file].pairs;
        printf("  %8.1f %% %10.4f  ", 100 * r->accuracy, r->margin);
        out_name(o->models[i]);
        putchar('\n');
    }
}

/* Several models on one file: what each makes of all records. */
static void print_models(const options *o, const result *results, size_t n_files, size_t file)
{
    out_name(results[file].task);
    if (results[file].is_pairs) {
        print_pairs_of_models(o, results, n_files, file);
        return;
    }
    printf(", all models\n  %10s %10s   %-13s  model\n", "loss", "to first", "exact match");
    for (size_t i = 0; i < o->n_models; i++) {
        const pesc_eval_score *first = &results[file].report.all;
        const pesc_eval_score *s = &results[i * n_files + file].report.all;
        char exact[32] = "-";
        if (s->asked)
            snprintf(exact, sizeof exact, "%5.1f %% \u00B1 %.1f", 100 * s->exact_match,
                     100 * s->exact_match_stderr);
        printf("  %10.4f %+10.4f   %-13s  ", s->loss, s->loss - first->loss, exact);
        out_name(o->models[i]);
        putchar('\n');
    }
}

static void free_result(result *r)
{
    for (size_t i = 0; i < r->n; i++) {
        const pesc_eval_sample *s = &r->samples[i];
        const char *texts[] = { s->domain, s->prompt, s->expected, s->answer };
        for (int k = 0; k < 4; k++)
            free((char *)texts[k]);
    }
    free(r->samples);
    pesc_eval_free(&r->report);
}

/* One model on all files. */
static pesc_status eval_model(const options *o, const words *w, pesc_comm *all, result *results)
{
    open_model m = { 0 };
    pesc_session *s = NULL;
    pesc_status st = open_among(&m, o, all);
    if (st == PESC_OK)
        st = open_computes(&m, o, &results[0].computes);
    if (st == PESC_OK)
        st = pesc_session_open(&s, m.model, (int32_t)o->ctx);
    for (size_t i = 0; st == PESC_OK && i < w->n_files; i++) {
        results[i].task = w->files[i];
        results[i].is_pairs = w->pairs[i];
        st = (w->pairs[i] ? run_pairs : run_task)(o, s, &results[i], pesc_comm_rank(all) == 0);
    }
    pesc_session_close(s);
    open_free(&m);
    return st;
}

/* An object, or of several models a list of them. */
static void json_results(const options *o, const result *results, size_t n_files)
{
    if (o->n_models > 1)
        out_begin(NULL, '[');
    for (size_t i = 0; i < o->n_models; i++) {
        out_begin(NULL, '{');
        out_text("model", o->models[i]);
        out_text("compute_dtype", results[i * n_files].computes);
        out_begin("tasks", '[');
        for (size_t k = 0; k < n_files; k++)
            json_result(&results[i * n_files + k]);
        out_end();
        out_end();
    }
    if (o->n_models > 1)
        out_end();
}

/* -o DIR: what --json prints, in a file. */
static pesc_status results_path(const options *o, char *out, size_t cap)
{
    int n = snprintf(out, cap, "%s/records.json", o->output);
    if (n < 0 || (size_t)n >= cap)
        return out_fail(PESC_USAGE, "eval: --output: %s: is too long", o->output);
    return PESC_OK;
}

static pesc_status write_results(const options *o, const result *results, size_t n_files)
{
    char path[PATH_MAX];
    TRY(results_path(o, path, sizeof path));
    FILE *f = fopen(path, "wx");
    bool fine = f != NULL;
    if (f) {
        out_json_to(f);
        json_results(o, results, n_files);
        out_json_to(NULL);
        fine = !ferror(f);
        fine = fclose(f) == 0 && fine;
        if (!fine)
            unlink(path);
    }
    return fine ? PESC_OK : out_fail(PESC_DISK, "%s: cannot be written: %s", path, strerror(errno));
}

static pesc_status eval_records(const options *o, const words *w, pesc_comm *all)
{
    options one = *o; /* the results keep pointers to it */
    size_t n = o->n_models * w->n_files;
    result *results = calloc(n, sizeof *results); /* [models, files] */
    pesc_status st = results ? PESC_OK : out_nomem("the results");
    for (size_t i = 0; st == PESC_OK && i < o->n_models; i++) {
        one.model = o->models[i];
        st = eval_model(&one, w, all, results + i * w->n_files);
    }
    bool leads = pesc_comm_rank(all) == 0;
    if (st == PESC_OK && o->json && leads)
        json_results(o, results, w->n_files);
    if (st == PESC_OK && o->output && leads)
        st = write_results(o, results, w->n_files);
    for (size_t i = 0; st == PESC_OK && !o->json && leads && o->n_models > 1 && i < w->n_files; i++)
        print_models(o, results, w->n_files, i);
    for (size_t i = 0; results && i < n; i++)
        free_result(&results[i]);
    free(results);
    return st;
}

/* ---- the command ---- */

/* In several processes, if there are several. */
static pesc_status run_all(const options *o, const words *w)
{
    options own = *o; /* a rank has its own device */
    pesc_comm *all = NULL;
    pesc_status st = PESC_OK;
    TRY(processes_start(o, NULL));
    TRY(open_in_one_dtype(&own));
    TRY(processes_join(&all, &own));
    if (w->tasks[0])
        st = eval_tasks(&own, w->tasks, all);
    if (st == PESC_OK && w->n_files)
        st = eval_records(&own, w, all);
    processes_leave(all, st);
    return st;
}

/* Found before hours of work. */
static pesc_status check_output(const options *o, const words *w)
{
    char path[PATH_MAX];
    if (!o->output || !w->n_files)
        return PESC_OK;
    TRY(results_path(o, path, sizeof path));
    bool there = mkdir(o->output, 0777) == 0 || errno == EEXIST;
    if (!there || access(o->output, W_OK | X_OK) != 0)
        return out_fail(PESC_DISK, "%s: cannot be written: %s", o->output, strerror(errno));
    return access(path, F_OK) != 0 && errno == ENOENT
               ? PESC_OK
               : out_fail(PESC_USAGE, "%s: exists already; give another -o, or remove it", path);
}

/* Options of models that are opened here mean nothing to a server. */
static pesc_status check_server(const options *o, const words *w, size_t n_servers)
{
    opt_name flag;
    for (const pesc_option *r = NULL; (r = opt_next(o->cmd, r));) {
        const unsigned group = r->flags >> PESC_OPTION_GROUP;
        bool local = group == PESC_OPTION_MODEL || group == PESC_OPTION_MACHINE ||
                     strcmp(r->key, "ctx") == 0;
        bool alone = strcmp(r->key, "gpus") == 0;
        if (local && opt_given(o, r->key) && (alone || n_servers == o->n_models))
            return out_fail(PESC_USAGE,
                            "eval: --%s is for models that are opened here, found the address of "
                            "a server; leave it out",
                            opt_flag(flag, r->key));
    }
    return w->n_files ? out_fail(PESC_USAGE,
                                 "eval: %s: a file of records needs a model that is opened here, "
                                 "found the address of a server; give benchmark tasks",
                                 w->files[0])
                      : PESC_OK;
}

static pesc_status check_servers(const options *o, const words *w)
{
    size_t n = 0;
    for (size_t i = 0; i < o->n_models; i++)
        n += pesc_benchmark_is_server(o->models[i]);
    if (n == 0 && opt_given(o, "served_model"))
        return out_fail(PESC_USAGE, "eval: --served-model is for the address of a server, found "
                                    "none among the models");
    if (!o->benchmark.judge && opt_given(o, "judge_model"))
        return out_fail(PESC_USAGE, "eval: --judge-model needs --judge URL");
    return n ? check_server(o, w, n) : PESC_OK;
}

static pesc_status run_checked(const options *o, const words *w)
{
    if (!w->n_files && !w->tasks[0])
        return out_fail(PESC_USAGE, "eval: --tasks: found only commas, expected TASK");
    if (w->n_files && w->tasks[0] && o->json)
        return out_fail(PESC_USAGE, "eval: --json takes benchmark tasks or files of records, found "
                                    "both");
    if (w->tasks[0] && opt_given(o, "max_tokens"))
        return out_fail(
            PESC_USAGE,
            "eval: --max-tokens is for files of records, found the task %.*s; a task says "
            "itself how long its answers may be (max_tokens in its file)",
            (int)strcspn(w->tasks, ","), w->tasks);
    TRY(check_servers(o, w));
    TRY(check_output(o, w));
    TRY(check_inputs(o, w));
    return run_all(o, w);
}

static pesc_status eval_words(const options *o)
{
    words w = { 0 };
    pesc_status st = read_words(&w, o);
    if (st == PESC_OK)
        st = run_checked(o, &w);
    free(w.text);
    free(w.files);
    free(w.tasks);
    free(w.pairs);
    return st;
}

pesc_status cmd_eval(const options *o)
{
    options own = *o;
    if (o->list)
        return eval_list(o);
    if (o->model && o->n_models)
        return out_fail(PESC_USAGE, "eval: found MODEL and --model, expected one of them");
    if (o->model) {
        own.models = &o->model;
        own.n_models = 1;
    }
    if (!own.n_models)
        return opt_missing(o, "MODEL");
    if (!o->n_tasks)
        return opt_missing(o, "--tasks TASK");
    return eval_words(&own);
}
