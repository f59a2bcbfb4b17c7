#include "eval/taskrun.h"

#include "base/log.h"
#include "base/mem.h"
#include "eval/loglik.h"
#include "eval/results.h"
#include "eval/until.h"

#include <string.h>

enum { DEFAULT_SLOTS = 64 };

typedef struct work work;

/* A document whose requests are not all answered. */
typedef struct pending {
    work *w;
    samples *of;
    size_t doc, n_left;
    until *text; /* of a generated text; else NULL */
    size_t n;
    sched_result *scores; /* [n] of choices */
} pending;

/* A request with its tokens. */
typedef struct request {
    id_list ids;
    int32_t first, max_tokens;
    pending *of;
    size_t i; /* among the requests of the document */
} request;

struct work {
    pesc_model *m;
    const taskrun_options *opt;
    taskrun *out;
    loglik text;
    sandbox *code; /* NULL until a program is to be run */
    request *requests;
    size_t n, cap;
    int32_t longest;
    uint64_t n_docs, n_done;
};

/* ---- judging ---- */

static const char *column(const task_doc *d, const char *name)
{
    const char *text = json_string_value(json_object_get(d->row, name));
    return text ? text : "";
}

/* HumanEval's rows name the function under test; MBPP's have a list of tests. */
static pesc_status run_program(work *w, const task_doc *d, const str *text, sandbox_verdict *out)
{
    const json_t *tests = json_object_get(d->row, "test_list");
    size_t n = json_array_size(tests);
    const char **list = mem_alloc(n + 1, sizeof *list);
    if (!list)
        return fail_nomem("the tests of a program", n);
    for (size_t i = 0; i < n; i++) {
        const char *test = json_string_value(json_array_get(tests, i));
        list[i] = test ? test : "";
    }
    sandbox_program p = { .kind = tests ? SANDBOX_MBPP : SANDBOX_HUMANEVAL,
                          .completion = text->p,
                          .prompt = column(d, "prompt"),
                          .test = column(d, "test"),
                          .entry_point = column(d, "entry_point"),
                          .tests = list,
                          .n_tests = n };
    pesc_status s = w->code ? PESC_OK : sandbox_open(&w->code, &w->opt->code);
    if (s == PESC_OK)
        s = sandbox_run(w->code, &p, out);
    mem_free(list);
    return s;
}

/* Runs both forms of a program: ours is judged by our rule, the reference's by its own. */
static pesc_status run_forms(const pending *p, const task_doc *d, const str forms[2],
                             bool passed[2])
{
    sandbox_verdict ours = { 0 }, reference;
    passed[0] = passed[1] = false;
    if (p->of->about->kind != TASK_CODE)
        return PESC_OK;
    TRY(run_program(p->w, d, &forms[0], &ours));
    reference = ours;
    if (strcmp(forms[0].p, forms[1].p) != 0)
        TRY(run_program(p->w, d, &forms[1], &reference));
    passed[0] = ours.passed;
    passed[1] = reference.reference;
    return PESC_OK;
}

static pesc_status judge_forms(const pending *p, const task_doc *d, const str forms[2],
                               task_verdict *verdicts)
{
    bool passed[2];
    TRY(run_forms(p, d, forms, passed));
    for (int i = 0; i < 2; i++) {
        task_answer a = { .text = forms[i].p, .n_text = forms[i].n, .passed = passed[i] };
        TRY(task_judge(p->of->leaf, d, &a, verdicts + (size_t)i * p->of->about->n_filters));
    }
    return PESC_OK;
}

static pesc_status add_text(const pending *p, const task_doc *d, task_verdict *verdicts)
{
    str forms[2] = { 0 };
    json_t *responses = NULL;
    pesc_status s = until_texts(p->text, &forms[0], &forms[1]);
    if (s == PESC_OK)
        s = judge_forms(p, d, forms, verdicts);
    if (s == PESC_OK && !(responses = json_pack("[s%]", forms[0].p, forms[0].n)))
        s = fail_nomem("a response", forms[0].n);
    samples_verdicts v = { responses, verdicts, verdicts + p->of->about->n_filters };
    if (s == PESC_OK)
        s = samples_add(p->of, d, &v);
    json_decref(responses);
    str_free(&forms[0]);
    str_free(&forms[1]);
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
        s = task_judge(p->of->leaf, d, &a, verdicts);
    if (s == PESC_OK)
        s = samples_add(p->of, d, &(samples_verdicts){ responses, verdicts, NULL });
    json_decref(responses);
    mem_free(logprobs);
    return s;
}

static void pending_free(pending *p)
{
    if (!p)
        return;
    until_close(p->text);
    mem_free(p->scores);
    mem_free(p);
}

static pesc_status judge(pending *p)
{
    task_doc d = { 0 };
    size_t n = 2 * p->of->about->n_filters;
    task_verdict *verdicts = mem_zalloc(n, sizeof *verdicts);
    pesc_status s = verdicts ? task_doc_build(&d, p->of->leaf, p->doc)
                             : fail_nomem("verdicts", n * sizeof *verdicts);
    if (s == PESC_OK)
        s = p->text ? add_text(p, &d, verdicts) : add_choice(p, &d, verdicts);
    for (size_t i = 0; verdicts && i < n; i++)
        task_verdict_free(&verdicts[i]);
    mem_free(verdicts);
    task_doc_free(&d);
    log_progress("evaluating", ++p->w->n_done, p->w->n_docs);
    return s;
}

static pesc_status take_result(void *ud, const sched_result *r)
{
    request *q = ud;
    pending *p = q->of;
    q->of = NULL;
    if (p->scores)
        p->scores[q->i] = *r;
    if (--p->n_left > 0)
        return PESC_OK;
    pesc_status s = judge(p);
    pending_free(p);
    return s;
}

static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    return until_token(((request *)ud)->of->text, id, more);
}

/* ---- requests ---- */

static pesc_status keep_request(work *w, pending *p, size_t i, loglik_tokens t)
{
    if (w->n == w->cap) {
        size_t cap = 2 * w->cap + 256;
        request *all = mem_grow(w->requests, cap, sizeof *all);
        if (!all)
            return fail_nomem("requests", cap * sizeof *all);
        w->requests = all;
        w->cap = cap;
    }
    int32_t max_tokens = t.first ? 0 : (int32_t)p->of->about->max_tokens;
    request q = { .first = t.first, .max_tokens = max_tokens, .of = p, .i = i };
    q.ids.ids = mem_alloc((size_t)t.n, sizeof *t.ids);
    if (!q.ids.ids)
        return fail_nomem("a request", (size_t)t.n * sizeof *t.ids);
    memcpy(q.ids.ids, t.ids, (size_t)t.n * sizeof *t.ids);
    q.ids.n = (size_t)t.n;
    w->requests[w->n++] = q;
    p->n_left++;
    if (t.n + max_tokens > w->longest)
        w->longest = t.n + max_tokens;
    return PESC_OK;
}

static pesc_status keep_choice(work *w, pending *p, const task_doc *d)
{
    loglik_tokens t;
    p->scores = mem_zalloc(d->n_requests, sizeof *p->scores);
    if (!p->scores)
        return fail_nomem("scores", d->n_requests * sizeof *p->scores);
    for (size_t i = 0; i < d->n_requests; i++) {
        TRY(loglik_pair(&w->text, d->contexts[i], d->continuations[i], &t));
        TRY(keep_request(w, p, i, t));
    }
    return PESC_OK;
}

static pesc_status keep_text(work *w, pending *p, const task_doc *d)
{
    const task_about *a = p->of->about;
    loglik_tokens t;
    TRY(loglik_prompt(&w->text, d->contexts[0], (int32_t)a->max_tokens, &t));
    TRY(until_open(&p->text, w->m, (until_stops){ a->stops, a->n_stops }, t.ids, t.n));
    return keep_request(w, p, 0, t);
}

static pesc_status keep_document(work *w, samples *of, const task_doc *d)
{
    pending *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("a document", sizeof *p);
    *p = (pending){ .w = w, .of = of, .doc = d->id, .n = d->n_requests };
    pesc_status s = of->about->kind == TASK_CHOICE ? keep_choice(w, p, d) : keep_text(w, p, d);
    if (p->n_left == 0) /* no request has it */
        pending_free(p);
    return s;
}

static pesc_status keep_task(work *w, samples *of)
{
    for (size_t i = 0; i < of->about->n_docs; i++) {
        task_doc d;
        TRY(task_doc_build(&d, of->leaf, i));
        bool known = samples_has(of, &d);
        pesc_status s = known ? PESC_OK : keep_document(w, of, &d);
        task_doc_free(&d);
        TRY(s);
        w->n_docs++;
        w->n_done += known;
        log_progress("building prompts", i + 1, of->about->n_docs);
    }
    return PESC_OK;
}

static pesc_status add_all(work *w, scheduler *s)
{
    for (size_t i = 0; i < w->n; i++) {
        request *q = &w->requests[i];
        sched_request r = { .ids = q->ids.ids,
                            .n = (int32_t)q->ids.n,
                            .first = q->first,
                            .max_tokens = q->max_tokens,
                            .token = q->first ? NULL : take_token,
                            .done = take_result,
                            .ud = q };
        TRY(scheduler_add(s, &r, NULL));
        mem_free(q->ids.ids);
        q->ids.ids = NULL;
    }
    return scheduler_sort(s);
}

static pesc_status answer_all(work *w)
{
    scheduler *s = NULL;
    scheduler_options o = { .slots = w->opt->slots ? w->opt->slots : DEFAULT_SLOTS,
                            .context = w->longest };
    if (w->n == 0)
        return PESC_OK;
    pesc_status st = scheduler_open(&s, w->m, &o);
    if (st == PESC_OK)
        st = add_all(w, s);
    if (st == PESC_OK)
        st = scheduler_run(s);
    if (s)
        w->out->count = scheduler_count(s);
    scheduler_close(s);
    return st;
}

static void close_work(work *w)
{
    for (size_t i = 0; i < w->n; i++) {
        pending *p = w->requests[i].of;
        mem_free(w->requests[i].ids.ids);
        if (p && --p->n_left == 0)
            pending_free(p);
    }
    mem_free(w->requests);
    loglik_close(&w->text);
    sandbox_close(w->code);
}

/* ---- a run ---- */

static pesc_status open_tasks(taskrun *r, const task_set *set, const taskrun_options *opt)
{
    size_t n = task_count(set);
    r->tasks = mem_zalloc(n, sizeof *r->tasks);
    if (!r->tasks)
        return fail_nomem("tasks", n * sizeof *r->tasks);
    for (; r->n < n; r->n++) {
        pesc_status s = samples_open(&r->tasks[r->n], task_at(set, r->n), opt->dir);
        if (s != PESC_OK) {
            samples_close(&r->tasks[r->n]);
            return s;
        }
    }
    return PESC_OK;
}

static pesc_status evaluate(work *w, const task_set *set)
{
    taskrun *r = w->out;
    const taskrun_options *opt = w->opt;
    int32_t most = opt->max_length ? opt->max_length : w->m->cfg.context;
    if (opt->dir)
        TRY(results_begin(w->m, set, opt));
    TRY(loglik_open(&w->text, w->m->tok, most));
    TRY(open_tasks(r, set, opt));
    for (size_t i = 0; i < r->n; i++)
        TRY(keep_task(w, &r->tasks[i]));
    TRY(answer_all(w));
    for (size_t i = 0; i < r->n; i++)
        TRY(samples_finish(&r->tasks[i]));
    return opt->dir ? results_write(r, w->m, set, opt) : PESC_OK;
}

pesc_status taskrun_evaluate(taskrun *out, pesc_model *m, const task_set *set,
                             const taskrun_options *opt)
{
    work w = { .m = m, .opt = opt, .out = out };
    *out = (taskrun){ 0 };
    pesc_status s = evaluate(&w, set);
    close_work(&w);
    return s;
}

void taskrun_close(taskrun *r)
{
    for (size_t i = 0; i < r->n; i++)
        samples_close(&r->tasks[i]);
    mem_free(r->tasks);
    *r = (taskrun){ 0 };
}

metric_score taskrun_group_score(const taskrun *r, const task_group *g, size_t value)
{
    metric_score *leaves = mem_alloc(g->n_leaves, sizeof *leaves);
    for (size_t i = 0; leaves && i < g->n_leaves; i++)
        leaves[i] = samples_score(&r->tasks[g->leaves[i]], value);
    metric_score s = metric_pool(leaves, leaves ? g->n_leaves : 0);
    mem_free(leaves);
    return s;
}
