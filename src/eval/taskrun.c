#include "eval/taskrun.h"

#include "base/log.h"
#include "base/mem.h"
#include "eval/evalresults.h"
#include "eval/modelanswers.h"
#include "eval/modeljudge.h"
#include "eval/serveranswers.h"

#include <string.h>

struct work {
    const taskrun_options *opt;
    taskrun *out;
    answerer by;
    modeljudge *judge;       /* NULL: no model judges */
    sandbox *box;            /* NULL: no task has programs */
    thread_queue *programs;  /* that are judged: the `code` of a pending document */
    uint64_t n_seen;         /* documents */
    uint64_t n_docs, n_done; /* of this process */
};

static pesc_status build_document(work *w, const samples *of, size_t i, task_doc *out)
{
    TRY(task_doc_build(out, of->task, i));
    pesc_status s = w->by.prepare(w->by.own, out);
    if (s != PESC_OK)
        task_doc_free(out);
    return s;
}

pesc_status pending_document(const pending *p, task_doc *out)
{
    return build_document(p->w, p->of, p->doc, out);
}

pesc_status pending_choices(pending *p)
{
    p->scores = mem_zalloc(p->n, sizeof *p->scores);
    return p->scores ? PESC_OK : fail_nomem("scores", p->n * sizeof *p->scores);
}

/* ---- judging ---- */

static pesc_status judge_forms(const pending *p, const task_doc *d, task_verdict *verdicts)
{
    for (int i = 0; i < 2; i++) {
        const str *form = &p->forms[i];
        task_answer a = { .text = form->p, .n_text = form->n, .passed = p->code.passed[i] };
        TRY(task_judge(p->of->task, d, &a, verdicts + (size_t)i * p->of->about->n_filters));
    }
    return PESC_OK;
}

/* The mean of the scores that a model gave; one that cannot be read is 0. */
static void add_mark(const pending *p, task_verdict *verdicts)
{
    double sum = 0;
    size_t n = json_array_size(p->verdicts);
    const task_about *about = p->of->about;
    for (size_t i = 0; i < n; i++)
        sum += json_number_value(json_object_get(json_array_get(p->verdicts, i), "score"));
    for (size_t i = 0; n && i < 2 * about->n_filters; i++)
        verdicts[i].values[about->n_metrics - 1] = sum / (double)n;
}

static pesc_status add_text(const pending *p, const task_doc *d, task_verdict *verdicts)
{
    TRY(judge_forms(p, d, verdicts));
    add_mark(p, verdicts);
    json_t *responses = json_pack("[s%]", p->forms[0].p, p->forms[0].n);
    if (!responses)
        return fail_nomem("a response", p->forms[0].n);
    samples_verdicts v = { responses, verdicts, verdicts + p->of->about->n_filters, p->verdicts };
    pesc_status s = samples_add(p->of, d, &v);
    json_decref(responses);
    return s;
}

static pesc_status add_choice(const pending *p, const task_doc *d, task_verdict *verdicts)
{
    double *logprobs = mem_alloc(p->n, sizeof *logprobs);
    json_t *responses = json_array();
    bool ok = logprobs && responses;
    for (size_t i = 0; ok && i < p->n; i++) {
        logprobs[i] = p->scores[i].logprob;
        ok = json_array_append_new(
                 responses, json_pack("[f b]", p->scores[i].logprob, p->scores[i].greedy)) == 0;
    }
    pesc_status s = ok ? PESC_OK : fail_nomem("a response", p->n * sizeof *logprobs);
    task_answer a = { .logprobs = logprobs };
    if (s == PESC_OK)
        s = task_judge(p->of->task, d, &a, verdicts);
    if (s == PESC_OK)
        s = samples_add(p->of, d, &(samples_verdicts){ .responses = responses, .text = verdicts });
    json_decref(responses);
    mem_free(logprobs);
    return s;
}

void taskrun_drop(pending *p)
{
    if (!p)
        return;
    str_free(&p->forms[0]);
    str_free(&p->forms[1]);
    json_decref(p->verdicts);
    mem_free(p->scores);
    mem_free(p);
}

static pesc_status judge_pending(pending *p)
{
    task_doc d = { 0 };
    size_t n = 2 * p->of->about->n_filters;
    task_verdict *verdicts = mem_zalloc(n, sizeof *verdicts);
    pesc_status s =
        verdicts ? pending_document(p, &d) : fail_nomem("verdicts", n * sizeof *verdicts);
    if (s == PESC_OK)
        s = p->scores ? add_choice(p, &d, verdicts) : add_text(p, &d, verdicts);
    for (size_t i = 0; verdicts && i < n; i++)
        task_verdict_free(&verdicts[i]);
    mem_free(verdicts);
    task_doc_free(&d);
    log_progress("evaluating", ++p->w->n_done, p->w->n_docs);
    return s;
}

static void drop_program(thread_job *job)
{
    taskrun_drop((pending *)job);
}

/* ---- a model that judges ---- */

static void drop_verdict(void *ud)
{
    pending *p = ud;
    if (--p->n_left == 0)
        taskrun_drop(p);
}

static pesc_status take_verdict(void *ud, json_t *verdict)
{
    pending *p = ud;
    bool first = json_integer_value(json_object_get(verdict, "place")) == 1;
    size_t at = first ? 0 : json_array_size(p->verdicts);
    if (json_array_insert_new(p->verdicts, at, verdict) != 0) {
        drop_verdict(p);
        return fail_nomem("a verdict", 0);
    }
    if (--p->n_left > 0)
        return PESC_OK;
    pesc_status s = judge_pending(p);
    taskrun_drop(p);
    return s;
}

/* The answer beside the first reference. */
static pesc_status ask_document(pending *p, const task_doc *d)
{
    const json_t *first = json_is_array(d->target) ? json_array_get(d->target, 0) : d->target;
    const char *reference = json_string_value(first);
    judge_question q = { .task = d->questions[0],
                         .rubric = p->of->about->rubric,
                         .reference = reference ? reference : "",
                         .answer = p->forms[0].p };
    return modeljudge_ask(p->w->judge, q, (judge_asker){ take_verdict, drop_verdict, p });
}

/* Takes p. */
static pesc_status ask_judge(pending *p)
{
    task_doc d;
    p->n_left = 1 + JUDGE_ORDERS;
    p->verdicts = json_array();
    pesc_status s = p->verdicts ? pending_document(p, &d) : fail_nomem("verdicts", 0);
    if (s != PESC_OK) {
        taskrun_drop(p);
        return s;
    }
    s = ask_document(p, &d);
    task_doc_free(&d);
    drop_verdict(p);
    return s;
}

/* ---- documents that are answered ---- */

static pesc_status settle_judge(modeljudge *j, bool wait)
{
    bool more = j != NULL;
    while (more && webclient_left(j->server.web)) {
        TRY(webclient_step(j->server.web, wait ? 1 : 0));
        more = wait;
    }
    return PESC_OK;
}

pesc_status taskrun_settle(work *w, bool wait)
{
    thread_job *job;
    while (w->programs && (job = thread_queue_take(w->programs, wait))) {
        pending *p = (pending *)job;
        pesc_status s =
            p->code.status == PESC_OK ? judge_pending(p) : fail(p->code.status, "%s", p->code.why);
        taskrun_drop(p);
        TRY(s);
    }
    return settle_judge(w->judge, wait);
}

pesc_status taskrun_answered(pending *p, pesc_status s)
{
    if (--p->n_left > 0)
        return s;
    if (s != PESC_OK) {
        taskrun_drop(p);
        return s;
    }
    if (p->of->about->kind == TASK_CODE) {
        p->code.box = p->w->box;
        p->code.row = task_doc_row(p->of->task, p->doc);
        p->code.text[0] = p->forms[0].p;
        p->code.text[1] = p->forms[1].p;
        thread_queue_add(p->w->programs, &p->code.job);
        return PESC_OK;
    }
    if (p->of->about->rubric)
        return ask_judge(p);
    s = judge_pending(p);
    taskrun_drop(p);
    return s;
}

/* ---- documents ---- */

static pesc_status keep_document(work *w, samples *of, const task_doc *d)
{
    pending *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("a document", sizeof *p);
    *p = (pending){ .w = w, .of = of, .doc = d->id, .n = d->n_requests };
    return w->by.keep(w->by.own, p, d);
}

static pesc_status keep_task(work *w, samples *of)
{
    for (size_t i = 0; i < of->about->n_docs; i++) {
        task_doc d;
        TRY(build_document(w, of, i, &d));
        bool known = samples_has(of, &d);
        bool ours =
            (int32_t)(w->n_seen++ % (uint64_t)peers_size(w->by.peers)) == peers_rank(w->by.peers);
        pesc_status s = known || !ours ? PESC_OK : keep_document(w, of, &d);
        task_doc_free(&d);
        TRY(s);
        w->n_docs += ours;
        w->n_done += known && ours;
        log_progress("building prompts", i + 1, of->about->n_docs);
    }
    return PESC_OK;
}

static void close_work(work *w)
{
    thread_queue_close(w->programs, drop_program);
    if (w->judge)
        modeljudge_close(w->judge);
    mem_free(w->judge);
    w->by.close(w->by.own);
    sandbox_close(w->box);
}

/* ---- a run ---- */

/* dir: of the files; NULL in processes that write none. */
static pesc_status open_tasks(taskrun *r, const task_set *set, const taskrun_options *opt,
                              const char *dir)
{
    size_t n = task_count(set);
    r->tasks = mem_zalloc(n, sizeof *r->tasks);
    if (!r->tasks)
        return fail_nomem("tasks", n * sizeof *r->tasks);
    for (; r->n < n; r->n++) {
        pesc_status s = samples_open(&r->tasks[r->n], task_at(set, r->n), dir, opt->samples);
        if (s != PESC_OK) {
            samples_close(&r->tasks[r->n]);
            return s;
        }
    }
    return PESC_OK;
}

/* Opened before anything is computed, since it may be refused. */
static pesc_status open_sandbox(work *w, const task_set *set)
{
    if (!task_has_kind(set, TASK_CODE))
        return PESC_OK;
    TRY(sandbox_open(&w->box, &w->opt->code));
    snprintf(w->out->sandbox, sizeof w->out->sandbox, "%s", sandbox_describe(w->box));
    return program_queue_open(&w->programs);
}

/* The judge is part of what is evaluated, as the model is. */
static pesc_status open_judge(work *w, const task_set *set)
{
    bool any = false;
    for (size_t i = 0; i < task_count(set); i++)
        any = any || task_describe(task_at(set, i))->rubric;
    if (!w->opt->judge.url)
        return PESC_OK;
    if (!any)
        return fail(PESC_USAGE, "--judge: none of the tasks has a rubric, by which a model could "
                                "judge; esft_summary, esft_law and esft_translation have one");
    w->judge = mem_zalloc(1, sizeof *w->judge);
    if (!w->judge)
        return fail_nomem("a judge", sizeof *w->judge);
    TRY(modeljudge_open(w->judge, &w->opt->judge, w->opt->judge_model));
    json_t *about = json_pack("{ss ss ss}", "url", webclient_address(w->judge->server.web), "model",
                              w->judge->server.model, "prompt_hash", w->judge->prompt_hash);
    return json_object_set_new(w->out->model, "judge", about) == 0 ? PESC_OK
                                                                   : fail_nomem("a judge", 0);
}

static pesc_status share_all(work *w, pesc_status st)
{
    st = peers_agree(w->by.peers, "an evaluation", st);
    for (size_t i = 0; st == PESC_OK && i < w->out->n; i++)
        st = samples_share(&w->out->tasks[i], w->by.peers);
    return st;
}

static pesc_status begin_work(work *w, const task_set *set, const char *dir)
{
    TRY(w->by.begin(w->by.own, set, w->out));
    TRY(open_sandbox(w, set));
    TRY(open_judge(w, set));
    if (dir)
        TRY(evalresults_begin(w->out, set, w->opt));
    return open_tasks(w->out, set, w->opt, dir);
}

static pesc_status answer(work *w)
{
    for (size_t i = 0; i < w->out->n; i++)
        TRY(keep_task(w, &w->out->tasks[i]));
    TRY(w->by.answer(w->by.own, w, w->out));
    return taskrun_settle(w, true);
}

/* Takes the answerer. */
static pesc_status evaluate(taskrun *out, answerer by, const task_set *set,
                            const taskrun_options *opt)
{
    work w = { .by = by, .opt = opt, .out = out };
    const char *dir = peers_lead(by.peers) ? opt->dir : NULL;
    pesc_status s = share_all(&w, begin_work(&w, set, dir));
    if (s == PESC_OK)
        s = share_all(&w, answer(&w));
    if (s == PESC_OK) {
        for (size_t i = 0; s == PESC_OK && dir && i < out->n; i++)
            s = samples_finish(&out->tasks[i]);
        if (s == PESC_OK && dir)
            s = evalresults_write(out, set, opt);
        s = peers_agree(by.peers, "an evaluation", s);
    }
    close_work(&w);
    return s;
}

pesc_status taskrun_evaluate(taskrun *out, pesc_model *m, const task_set *set,
                             const taskrun_options *opt)
{
    answerer by;
    *out = (taskrun){ 0 };
    TRY(modelanswers_open(&by, m, opt));
    return evaluate(out, by, set, opt);
}

pesc_status taskrun_evaluate_server(taskrun *out, const task_set *set, const taskrun_options *opt)
{
    answerer by;
    *out = (taskrun){ 0 };
    TRY(serveranswers_open(&by, opt));
    return evaluate(out, by, set, opt);
}

void taskrun_close(taskrun *r)
{
    for (size_t i = 0; i < r->n; i++)
        samples_close(&r->tasks[i]);
    mem_free(r->tasks);
    json_decref(r->model);
    json_decref(r->chat);
    *r = (taskrun){ 0 };
}

metric_score taskrun_group_score(const taskrun *r, const task_group *g, size_t value)
{
    metric_score *tasks = mem_alloc(g->n_tasks, sizeof *tasks);
    for (size_t i = 0; tasks && i < g->n_tasks; i++)
        tasks[i] = samples_score(&r->tasks[g->tasks[i]], value);
    metric_score s = metric_pool(tasks, tasks ? g->n_tasks : 0);
    mem_free(tasks);
    return s;
}
