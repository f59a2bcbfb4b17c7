/* cmd_eval: how good a model is: benchmark tasks by name, and files of records. */
#include "cli/command.h"
#include "cli/eval_records.h"
#include "cli/eval_tasks.h"
#include "cli/opt/processes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The words of --tasks: names of benchmark tasks, joined by commas, and files of records. */
typedef struct words {
    char *text; /* of the files */
    const char **files;
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
    if (!w->text || !w->tasks || !w->files)
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

static pesc_status check_file(const options *o, const char *file)
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
    pesc_status st = pesc_data_open(&d, o->models[0], &p, NULL);
    pesc_data_close(d);
    return st;
}

/* What cannot be opened is found before the first model is evaluated, which may take hours. */
static pesc_status check_inputs(const options *o, const words *w)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    for (size_t i = 0; i < o->n_models; i++)
        TRY(pesc_info(o->models[i], o->load.base, NULL, &info));
    for (size_t i = 0; i < w->n_files; i++)
        TRY(check_file(o, w->files[i]));
    return PESC_OK;
}

static pesc_status run_records(const options *o, const words *w, pesc_comm *all)
{
    eval_files files = { w->files, w->n_files };
    bool leads = pesc_comm_rank(all) == 0;
    options one = *o;
    eval_results **models = calloc(o->n_models, sizeof(eval_results *));
    pesc_status st = models ? PESC_OK : out_nomem("the results");
    for (size_t i = 0; st == PESC_OK && i < o->n_models; i++) {
        open_model m = { 0 };
        one.model = o->models[i];
        st = open_among(&m, &one, all);
        if (st == PESC_OK)
            st = eval_records(&models[i], &one, &m, files, leads);
        open_free(&m);
    }
    if (st == PESC_OK && o->json && leads)
        eval_results_json(models, o->n_models);
    for (size_t i = 0; models && i < o->n_models; i++)
        eval_results_free(models[i]);
    free(models);
    return st;
}

/* In several processes, if there are several. */
static pesc_status run_all(const options *o, const words *w)
{
    options own = *o; /* a rank has its own device */
    pesc_comm *all = NULL;
    pesc_status st = PESC_OK;
    TRY(processes_start(o));
    TRY(processes_join(&all, &own));
    if (w->tasks[0])
        st = eval_tasks(&own, w->tasks, all);
    if (st == PESC_OK && w->n_files)
        st = run_records(&own, w, all);
    processes_leave(all, st);
    return st;
}

static pesc_status run_checked(const options *o, const words *w)
{
    if (!w->n_files && !w->tasks[0])
        return out_fail(PESC_USAGE, "eval: --tasks: found only commas, expected TASK");
    if (w->n_files && w->tasks[0] && o->json)
        return out_fail(PESC_USAGE, "eval: --json takes benchmark tasks or files of records, found "
                                    "both");
    if (o->output && !w->tasks[0])
        return out_fail(PESC_USAGE,
                        "eval: -o writes the results of benchmark tasks, found files of "
                        "records alone; --json prints theirs");
    TRY(check_inputs(o, w));
    return run_all(o, w);
}

pesc_status cmd_eval(const options *o)
{
    if (o->list)
        return eval_list(o);
    if (!o->n_models)
        return out_fail(PESC_USAGE, "eval: MODEL is missing; usage: pesc eval %s",
                        o->cmd->synopsis);
    if (!o->n_tasks)
        return out_fail(PESC_USAGE, "eval: --tasks TASK is missing; usage: pesc eval %s",
                        o->cmd->synopsis);
    words w = { 0 };
    pesc_status st = read_words(&w, o);
    if (st == PESC_OK)
        st = run_checked(o, &w);
    free(w.text);
    free(w.tasks);
    free(w.files);
    return st;
}
