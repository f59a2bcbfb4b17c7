/* benchmark: the public face of tasks: one report of all scores of a model. */
#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "eval/evalresults.h"
#include "eval/taskrun.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a report points into. */
typedef struct owned {
    task_set *set;
    taskrun run;
    double **columns; /* of each score: its values */
    size_t n;
} owned;

bool pesc_benchmark_known(const char *tasks)
{
    return tasks && *tasks && task_knows(tasks);
}

/* ---- scores ---- */

typedef struct builder {
    pesc_benchmark_report *out;
    owned *own;
} builder;

/* The smallest group that a task is in. */
static const char *group_of(const builder *b, size_t task)
{
    const task_group *best = NULL;
    for (size_t i = 0; i < task_group_count(b->own->set); i++) {
        const task_group *g = task_group_at(b->own->set, i);
        for (size_t k = 0; k < g->n_tasks; k++)
            if (g->tasks[k] == task && (!best || g->n_tasks < best->n_tasks))
                best = g;
    }
    return best ? best->name : "";
}

/* The values of one metric over the documents of some tasks, in order. */
static pesc_status take_column(builder *b, const size_t *tasks, size_t n_tasks, size_t value,
                               pesc_benchmark_score *to)
{
    owned *own = b->own;
    size_t n = 0, at = 0;
    for (size_t i = 0; i < n_tasks; i++)
        n += own->run.tasks[tasks[i]].about->n_docs;
    double *column = mem_alloc(n + 1, sizeof *column);
    double **all = column ? mem_grow(own->columns, own->n + 1, sizeof *all) : NULL;
    if (!all) {
        mem_free(column);
        return fail_nomem("the scores", n * sizeof *column);
    }
    own->columns = all;
    own->columns[own->n++] = column;
    for (size_t i = 0; i < n_tasks; i++) {
        const samples *s = &own->run.tasks[tasks[i]];
        for (size_t d = 0; d < s->about->n_docs; d++)
            column[at++] = s->values[value * s->about->n_docs + d];
    }
    to->each = column;
    to->n = n;
    return PESC_OK;
}

static pesc_status add_score(builder *b, pesc_benchmark_score s)
{
    pesc_benchmark_report *r = b->out;
    pesc_benchmark_score *all = mem_grow(r->scores, r->n_scores + 1, sizeof *all);
    if (!all)
        return fail_nomem("the scores", sizeof *all);
    r->scores = all;
    r->scores[r->n_scores++] = s;
    return PESC_OK;
}

/* What a row of the report is of. */
typedef struct subject {
    pesc_benchmark_score like; /* names */
    const size_t *tasks;
    size_t n_tasks;
    const task_group *group; /* NULL: a task */
} subject;

static pesc_status add_metric(builder *b, const subject *of, size_t value)
{
    pesc_benchmark_score s = of->like;
    TRY(take_column(b, of->tasks, of->n_tasks, value, &s));
    const taskrun *r = &b->own->run;
    metric_score m = of->group ? taskrun_group_score(r, of->group, value)
                               : samples_score(&r->tasks[of->tasks[0]], value);
    s.mean = m.mean;
    s.error = m.error;
    return add_score(b, s);
}

static pesc_status add_subject(builder *b, subject of)
{
    const samples *s = &b->own->run.tasks[of.tasks[0]];
    const task_about *a = s->about;
    int forms = a->kind == TASK_CHOICE ? 1 : 2;
    for (int form = 0; form < forms; form++)
        for (size_t f = 0; f < a->n_filters; f++)
            for (size_t m = 0; m < a->n_metrics; m++) {
                of.like.reference = form == 1;
                of.like.filter = task_filter_name(s->task, f);
                of.like.metric = task_metric_name(s->task, m);
                of.like.full = metric_full(of.like.metric);
                TRY(add_metric(b, &of, samples_value(s, form == 1, f, m)));
            }
    return PESC_OK;
}

static pesc_status add_all(builder *b)
{
    owned *own = b->own;
    for (size_t i = 0; i < own->run.n; i++) {
        subject s = { .tasks = &i, .n_tasks = 1 };
        s.like.task = own->run.tasks[i].about->label;
        s.like.group = group_of(b, i);
        s.like.shots = own->run.tasks[i].about->shots;
        TRY(add_subject(b, s));
    }
    for (size_t i = 0; i < task_group_count(own->set); i++) {
        const task_group *g = task_group_at(own->set, i);
        subject s = { .tasks = g->tasks, .n_tasks = g->n_tasks, .group = g };
        s.like.task = g->name;
        s.like.group = g->parent ? g->parent : "";
        s.like.is_group = true;
        s.like.shots = own->run.tasks[g->tasks[0]].about->shots;
        if (evalresults_has_score(&own->run, g))
            TRY(add_subject(b, s));
    }
    return PESC_OK;
}

/* ---- the calls ---- */

static web_options server_at(const char *url, const char *key, const pesc_benchmark_options *o)
{
    return (web_options){ .url = url && *url ? url : NULL,
                          .key = key,
                          .streams = o->slots,
                          .retries = o->retries,
                          .timeout = o->request_timeout };
}

/* m NULL: the server of `url` answers. */
static taskrun_options how(const pesc_model *m, const char *url, const pesc_benchmark_options *o)
{
    const char *key = getenv("OPENAI_API_KEY"), *judge_key = getenv("PESC_JUDGE_API_KEY");
    return (taskrun_options){
        .dir = o->output && *o->output ? o->output : NULL,
        .model = m ? m->dir->path : url,
        .tasks = { .data_dir = o->data_dir && *o->data_dir ? o->data_dir : NULL,
                   .unpack_ratio = o->unpack_ratio,
                   .shots = o->shots == PESC_AUTO ? -1 : o->shots,
                   .limit = o->limit,
                   .seed = (uint32_t)o->seed,
                   .suite = o->suite,
                   .judge = o->judge && *o->judge },
        .slots = (int32_t)o->slots,
        .max_length = (int32_t)o->max_length,
        .chat = o->chat,
        .samples = o->samples,
        .code = { .unsafe = o->unsafe_code },
        .server = server_at(url, key, o),
        .served_model = o->served_model,
        .judge = server_at(o->judge, judge_key ? judge_key : key, o),
        .judge_model = o->judge_model,
    };
}

static void tell_labels(const task_set *set)
{
    for (size_t i = 0; i < task_count(set); i++) {
        const task_about *a = task_describe(task_at(set, i));
        if (a->note[0])
            log_notice("%s: %s", a->name, a->note);
        if (a->remark[0])
            log_notice("%s: %s", a->name, a->remark);
    }
}

/* Exact rational arithmetic decides most answers in mathematics, not all. */
static void tell_undecided(const taskrun *r)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t n = samples_undecided(&r->tasks[i]);
        if (n)
            log_notice("%s: %zu of %zu answers could be right, which only an algebra system can "
                       "decide; they count as wrong",
                       r->tasks[i].about->name, n, r->tasks[i].about->n_docs);
    }
}

/* By a model that is open, or by a server. */
typedef struct answers_of {
    pesc_model *m;
    const char *url;
} answers_of;

static void tell_unreadable(const taskrun *r)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t n = samples_unreadable(&r->tasks[i]);
        if (n)
            log_notice("%s: of %zu of %zu answers a verdict of the judge has no scores, which "
                       "counts 0",
                       r->tasks[i].about->name, n, r->tasks[i].about->n_docs);
    }
}

static pesc_status evaluate(answers_of by, const char *tasks, const pesc_benchmark_options *o,
                            pesc_benchmark_report *r)
{
    owned *own = r->owner = mem_zalloc(1, sizeof *own);
    str json = { 0 };
    if (!own)
        return fail_nomem("an evaluation", sizeof *own);
    taskrun_options opt = how(by.m, by.url, o);
    TRY(task_open(&own->set, tasks, &opt.tasks));
    tell_labels(own->set);
    TRY(by.m ? taskrun_evaluate(&own->run, by.m, own->set, &opt)
             : taskrun_evaluate_server(&own->run, own->set, &opt));
    tell_undecided(&own->run);
    tell_unreadable(&own->run);
    TRY(add_all(&(builder){ r, own }));
    pesc_status s = evalresults_text(&json, &own->run, own->set, &opt);
    r->json = json.p;
    r->tokens_requested = own->run.count.requested;
    r->tokens_computed = own->run.count.computed;
    return s;
}

static pesc_status report(answers_of by, const char *tasks, const pesc_benchmark_options *opt,
                          pesc_benchmark_report *out)
{
    pesc_benchmark_options o;
    pesc_benchmark_report r = { 0 };
    TRY(options_take(PESC_OPTIONS_BENCHMARK, &o, opt));
    double began = clock_seconds();
    pesc_status s = evaluate(by, tasks, &o, &r);
    r.seconds = clock_seconds() - began;
    ARGS_WRITE(out, &r);
    return s;
}

pesc_status pesc_benchmark(pesc_model *m, const char *tasks, const pesc_benchmark_options *opt,
                           pesc_benchmark_report *out)
{
    status_clear();
    NEED(m);
    NEED(tasks);
    NEED_SIZED(out);
    DEVICE_CALL(m->dev);
    ARGS_CLEAR(out);
    if (!m->tok)
        return fail(PESC_UNSUPPORTED, "%s: has no tokenizer, so it cannot read the tasks",
                    m->dir->path);
    return report((answers_of){ .m = m }, tasks, opt, out);
}

bool pesc_benchmark_is_server(const char *model)
{
    return model && (str_starts(model, "http://") || str_starts(model, "https://"));
}

pesc_status pesc_benchmark_server(const char *url, const char *tasks,
                                  const pesc_benchmark_options *opt, const pesc_events *ev,
                                  pesc_benchmark_report *out)
{
    status_clear();
    NEED(url);
    NEED(tasks);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    ARGS_CLEAR(out);
    return report((answers_of){ .url = url }, tasks, opt, out);
}

void pesc_benchmark_free(pesc_benchmark_report *r)
{
    if (!r)
        return;
    owned *own = r->owner;
    if (own) {
        for (size_t i = 0; i < own->n; i++)
            mem_free(own->columns[i]);
        mem_free(own->columns);
        taskrun_close(&own->run);
        task_close(own->set);
        mem_free(own);
    }
    mem_free(r->scores);
    mem_free(r->json);
    ARGS_CLEAR(r);
}

pesc_status pesc_benchmark_difference(const pesc_benchmark_score *a, const pesc_benchmark_score *b,
                                      double *mean, double *error)
{
    status_clear();
    NEED(a);
    NEED(b);
    NEED(mean);
    NEED(error);
    NEED(a->each);
    NEED(b->each);
    if (a->n != b->n || strcmp(a->task, b->task) != 0)
        return fail(PESC_USAGE,
                    "the scores are of %s with %llu documents and %s with %llu; expected the same",
                    a->task, (unsigned long long)a->n, b->task, (unsigned long long)b->n);
    metric_score d = metric_difference(a->each, b->each, (size_t)a->n);
    *mean = d.mean;
    *error = d.error;
    return PESC_OK;
}

pesc_status pesc_benchmark_list(const char *data_dir,
                                void (*row)(void *ud, const pesc_benchmark_task *t), void *ud)
{
    status_clear();
    NEED(row);
    task_list list = { 0 };
    pesc_status s = task_list_open(&list, data_dir && *data_dir ? data_dir : NULL);
    for (size_t i = 0; s == PESC_OK && i < list.n; i++) {
        const task_row *t = &list.rows[i];
        row(ud, &(pesc_benchmark_task){ .name = t->name,
                                        .group = t->parent ? t->parent : "",
                                        .metric = t->metric ? t->metric : "",
                                        .is_group = t->group,
                                        .present = t->present,
                                        .version = t->version,
                                        .documents = t->documents,
                                        .shots = t->shots });
    }
    task_list_free(&list);
    return s;
}
