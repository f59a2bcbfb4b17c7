#include "eval/taskrun.h"

#include "base/log.h"
#include "base/mem.h"
#include "eval/chatprompt.h"
#include "eval/loglik.h"
#include "eval/program.h"
#include "eval/evalresults.h"
#include "eval/stoptext.h"

#include <string.h>

enum { DEFAULT_SLOTS = 64, HOST_FORWARD = 4 /* tokens, in units of head_rows */ };

typedef struct work work;

/* A document that is not judged yet. */
typedef struct pending {
    program code; /* of a task whose answers are programs; the first member, see judge_programs() */
    work *w;
    samples *of;
    size_t doc, n_left;
    json_t *tools;   /* of a turn in which they may be called; else NULL */
    stop_text *text; /* of a generated text, from its first token on; else NULL */
    str forms[2];    /* of it, when it is complete */
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
    chatprompt chat;
    sandbox *box;           /* NULL: no task has programs */
    thread_queue *programs; /* that are judged: the `code` of a pending document */
    request *requests;
    size_t n, cap;
    int32_t longest;
    peers *peers; /* that of m's device: each process answers every size-th document; NULL: one */
    uint64_t n_seen;         /* documents */
    uint64_t n_docs, n_done; /* of this process */
};

static pesc_status build_document(work *w, const samples *of, size_t i, task_doc *out)
{
    TRY(task_doc_build(out, of->task, i));
    bool chat = w->opt->chat || out->tools;
    pesc_status s = chat ? chatprompt_apply(&w->chat, out) : PESC_OK;
    if (s != PESC_OK)
        task_doc_free(out);
    return s;
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

static pesc_status add_text(const pending *p, const task_doc *d, task_verdict *verdicts)
{
    TRY(judge_forms(p, d, verdicts));
    json_t *responses = json_pack("[s%]", p->forms[0].p, p->forms[0].n);
    if (!responses)
        return fail_nomem("a response", p->forms[0].n);
    samples_verdicts v = { responses, verdicts, verdicts + p->of->about->n_filters };
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
        s = samples_add(p->of, d, &(samples_verdicts){ responses, verdicts, NULL });
    json_decref(responses);
    mem_free(logprobs);
    return s;
}

static void pending_free(pending *p)
{
    if (!p)
        return;
    stop_text_close(p->text);
    json_decref(p->tools);
    str_free(&p->forms[0]);
    str_free(&p->forms[1]);
    mem_free(p->scores);
    mem_free(p);
}

static pesc_status judge_pending(pending *p)
{
    task_doc d = { 0 };
    size_t n = 2 * p->of->about->n_filters;
    task_verdict *verdicts = mem_zalloc(n, sizeof *verdicts);
    pesc_status s = verdicts ? build_document(p->w, p->of, p->doc, &d)
                             : fail_nomem("verdicts", n * sizeof *verdicts);
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
    pending_free((pending *)job);
}

/* Judges the documents whose programs have run; with `wait`, until none is left. */
static pesc_status judge_programs(work *w, bool wait)
{
    thread_job *job;
    while (w->programs && (job = thread_queue_take(w->programs, wait))) {
        pending *p = (pending *)job;
        pesc_status s =
            p->code.status == PESC_OK ? judge_pending(p) : fail(p->code.status, "%s", p->code.why);
        pending_free(p);
        TRY(s);
    }
    return PESC_OK;
}

/* Takes the document, whose requests are all answered; not when it fails. */
static pesc_status finish_pending(pending *p)
{
    if (p->text)
        TRY(stop_text_forms(p->text, &p->forms[0], &p->forms[1]));
    stop_text_close(p->text);
    p->text = NULL;
    if (p->of->about->kind == TASK_CODE) {
        p->code.box = p->w->box;
        p->code.row = task_doc_row(p->of->task, p->doc);
        p->code.text[0] = p->forms[0].p;
        p->code.text[1] = p->forms[1].p;
        thread_queue_add(p->w->programs, &p->code.job);
        return PESC_OK;
    }
    TRY(judge_pending(p));
    pending_free(p);
    return PESC_OK;
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
    pesc_status s = finish_pending(p);
    if (s != PESC_OK)
        pending_free(p);
    return s;
}

/* Opened here, so that no more texts are open than are being generated: decoding takes memory. */
static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    request *q = ud;
    pending *p = q->of;
    const task_about *a = p->of->about;
    if (!p->text) {
        turn_rules turn = p->w->chat.turn;
        turn.tools = p->tools;
        TRY(stop_text_open(&p->text, p->w->m, (stop_strings){ a->stops, a->n_stops },
                           p->tools ? &turn : NULL, q->ids.ids, (int32_t)q->ids.n));
        mem_free(q->ids.ids);
        q->ids.ids = NULL;
    }
    return stop_text_token(p->text, id, more);
}

/* ---- requests ---- */

static pesc_status keep_request(work *w, pending *p, size_t i, loglik_tokens t)
{
    if (!mem_room((void **)&w->requests, &w->cap, w->n, sizeof *w->requests))
        return fail_nomem("requests", 2 * w->cap * sizeof *w->requests);
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
    p->tools = json_incref(d->tools);
    TRY(loglik_prompt(&w->text, d->contexts[0], (int32_t)a->max_tokens, &t));
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
        TRY(build_document(w, of, i, &d));
        bool known = samples_has(of, &d);
        bool ours = (int32_t)(w->n_seen++ % (uint64_t)peers_size(w->peers)) == peers_rank(w->peers);
        pesc_status s = known || !ours ? PESC_OK : keep_document(w, of, &d);
        task_doc_free(&d);
        TRY(s);
        w->n_docs += ours;
        w->n_done += known && ours;
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
        if (q->first) { /* a text is decoded after its prompt: see take_token() */
            mem_free(q->ids.ids);
            q->ids.ids = NULL;
        }
    }
    return scheduler_sort(s);
}

static pesc_status answer_all(work *w)
{
    scheduler *s = NULL;
    scheduler_options o = { .slots = w->opt->slots ? w->opt->slots : DEFAULT_SLOTS,
                            .context = w->longest,
                            .guesses = PESC_AUTO };
    if (w->n == 0)
        return PESC_OK;
    device *dev = w->m->dev;
    if (dev->op->host_memory(dev)) /* longer forwards than by default: latency does not matter */
        o.max_tokens = HOST_FORWARD * dev->head_rows;
    pesc_status st = scheduler_open(&s, w->m, &o);
    if (st == PESC_OK)
        st = add_all(w, s);
    for (bool more = true; st == PESC_OK && more;) {
        st = scheduler_step(s, &more);
        if (st == PESC_OK)
            st = judge_programs(w, false);
    }
    if (st == PESC_OK)
        st = judge_programs(w, true);
    if (s)
        w->out->count = scheduler_count(s);
    scheduler_close(s);
    return st;
}

static void close_work(work *w)
{
    thread_queue_close(w->programs, drop_program);
    for (size_t i = 0; i < w->n; i++) {
        pending *p = w->requests[i].of;
        mem_free(w->requests[i].ids.ids);
        if (p && --p->n_left == 0)
            pending_free(p);
    }
    mem_free(w->requests);
    loglik_close(&w->text);
    chatprompt_close(&w->chat);
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

static bool has_kind(const task_set *set, task_kind kind)
{
    for (size_t i = 0; i < task_count(set); i++)
        if (task_describe(task_at(set, i))->kind == kind)
            return true;
    return false;
}

/* Opened before anything is computed, since it may be refused. */
static pesc_status open_sandbox(work *w, const task_set *set)
{
    if (!has_kind(set, TASK_CODE))
        return PESC_OK;
    TRY(sandbox_open(&w->box, &w->opt->code));
    snprintf(w->out->sandbox, sizeof w->out->sandbox, "%s", sandbox_describe(w->box));
    return program_queue_open(&w->programs);
}

static pesc_status share_all(work *w, pesc_status st)
{
    st = peers_agree(w->peers, "an evaluation", st);
    for (size_t i = 0; st == PESC_OK && i < w->out->n; i++)
        st = samples_share(&w->out->tasks[i], w->peers);
    return st;
}

static pesc_status begin_work(work *w, const task_set *set, const char *dir)
{
    int32_t most = w->opt->max_length ? w->opt->max_length : w->m->shape.cfg.context;
    bool calls = has_kind(set, TASK_CALLS);
    if (w->opt->chat || calls)
        TRY(chatprompt_open(&w->chat, w->m, calls));
    TRY(open_sandbox(w, set));
    if (dir)
        TRY(evalresults_begin(w->out, w->m, set, w->opt));
    TRY(loglik_open(&w->text, w->m->tok, most));
    return open_tasks(w->out, set, w->opt, dir);
}

static pesc_status answer(work *w)
{
    for (size_t i = 0; i < w->out->n; i++)
        TRY(keep_task(w, &w->out->tasks[i]));
    return answer_all(w);
}

pesc_status taskrun_evaluate(taskrun *out, pesc_model *m, const task_set *set,
                             const taskrun_options *opt)
{
    work w = { .m = m, .peers = m->dev->peers, .opt = opt, .out = out };
    *out = (taskrun){ 0 };
    const char *dir = peers_lead(w.peers) ? opt->dir : NULL;
    pesc_status s = share_all(&w, begin_work(&w, set, dir));
    if (s == PESC_OK)
        s = share_all(&w, answer(&w));
    if (s == PESC_OK) {
        for (size_t i = 0; s == PESC_OK && dir && i < out->n; i++)
            s = samples_finish(&out->tasks[i]);
        if (s == PESC_OK && dir)
            s = evalresults_write(out, m, set, opt);
        s = peers_agree(w.peers, "an evaluation", s);
    }
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
    metric_score *tasks = mem_alloc(g->n_tasks, sizeof *tasks);
    for (size_t i = 0; tasks && i < g->n_tasks; i++)
        tasks[i] = samples_score(&r->tasks[g->tasks[i]], value);
    metric_score s = metric_pool(tasks, tasks ? g->n_tasks : 0);
    mem_free(tasks);
    return s;
}
