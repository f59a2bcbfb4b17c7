#include "eval/modelanswers.h"

#include "arch/bind.h"
#include "attach/attached.h"
#include "attach/patched.h"
#include "base/mem.h"
#include "eval/chatprompt.h"
#include "eval/loglik.h"
#include "eval/stoptext.h"
#include "infer/scheduler.h"

#include <string.h>

enum { DEFAULT_SLOTS = 64, HOST_FORWARD = 4 /* tokens, in units of head_rows */ };

typedef struct modelanswers modelanswers;

/* A request with its tokens. */
typedef struct request {
    const modelanswers *by;
    id_list ids;
    int32_t first, max_tokens;
    pending *of;
    size_t i;        /* among the requests of the document */
    json_t *tools;   /* of a turn in which they may be called; else NULL */
    stop_text *text; /* of a generated text, from its first token on; else NULL */
} request;

struct modelanswers {
    pesc_model *m;
    const taskrun_options *opt;
    loglik text;
    chatprompt chat;
    request *requests;
    size_t n, cap;
    int32_t longest;
};

/* ---- what the model is ---- */

/* How prompts are written, under the names of the harness; NULL: out of memory. */
static json_t *chat_config(const modelanswers *a)
{
    char hash[DIGEST_TEXT];
    str text = { 0 };
    json_t *o = NULL;
    if (!a->opt->chat)
        return json_pack("{sn sn sb}", "chat_template", "chat_template_sha", "fewshot_as_multiturn",
                         false);
    if (chatprompt_template(a->m, &text) == PESC_OK) {
        digest_text(hash, text.p, text.n);
        o = json_pack("{ss% ss sb}", "chat_template", text.p, text.n, "chat_template_sha", hash,
                      "fewshot_as_multiturn", true);
    }
    str_free(&text);
    return o;
}

/* How many tensors of the base are held in each dtype. */
static json_t *held_dtypes(const pesc_model *m)
{
    json_t *o = json_object();
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        const char *dt = dtype_name(bind_tensor(&m->shape.w, &s).dt);
        json_int_t n = json_integer_value(json_object_get(o, dt));
        json_object_set_new(o, dt, json_integer(n + 1));
    }
    return o;
}

static int32_t longest_of(const modelanswers *a)
{
    return a->opt->max_length ? a->opt->max_length : a->m->shape.cfg.context;
}

/* The model as it computes: its files, what was added to them, and in which dtypes. */
static json_t *model_config(const modelanswers *a)
{
    char hash[17];
    const pesc_model *m = a->m;
    patched_base_hash(&m->shape.cfg, m->dir->ws, hash);
    return json_pack("{ss ss ss so sb ss sb ss ss sI}", "model", a->opt->model ? a->opt->model : "",
                     "model_hash", hash, "dtype", dtype_name(m->shape.act_dt), "base_dtype",
                     held_dtypes(m), "double_quant", m->double_quant, "lora",
                     m->attached->lora_hash, "lora_merged", m->attached->folded, "patch",
                     m->attached->patch_hash, "pesc_version", PESC_VERSION, "max_length",
                     (json_int_t)longest_of(a));
}

static pesc_status begin_model(void *own, const task_set *set, taskrun *run)
{
    modelanswers *a = own;
    bool calls = task_has_kind(set, TASK_CALLS);
    if (a->opt->chat || calls)
        TRY(chatprompt_open(&a->chat, a->m, calls));
    TRY(loglik_open(&a->text, a->m->tok, longest_of(a)));
    run->model = model_config(a);
    run->chat = chat_config(a);
    return PESC_OK;
}

static pesc_status prepare(void *own, task_doc *d)
{
    modelanswers *a = own;
    return a->opt->chat || d->tools ? chatprompt_apply(&a->chat, d) : PESC_OK;
}

/* ---- requests ---- */

static pesc_status keep_request(modelanswers *a, pending *p, size_t i, loglik_tokens t)
{
    if (!mem_room((void **)&a->requests, &a->cap, a->n, sizeof *a->requests))
        return fail_nomem("requests", 2 * a->cap * sizeof *a->requests);
    int32_t max_tokens = t.first ? 0 : (int32_t)p->of->about->max_tokens;
    request q = { .by = a, .first = t.first, .max_tokens = max_tokens, .of = p, .i = i };
    q.ids.ids = mem_alloc((size_t)t.n, sizeof *t.ids);
    if (!q.ids.ids)
        return fail_nomem("a request", (size_t)t.n * sizeof *t.ids);
    memcpy(q.ids.ids, t.ids, (size_t)t.n * sizeof *t.ids);
    q.ids.n = (size_t)t.n;
    a->requests[a->n++] = q;
    p->n_left++;
    if (t.n + max_tokens > a->longest)
        a->longest = t.n + max_tokens;
    return PESC_OK;
}

static pesc_status keep_choice(modelanswers *a, pending *p, const task_doc *d)
{
    loglik_tokens t;
    TRY(pending_choices(p));
    for (size_t i = 0; i < d->n_requests; i++) {
        TRY(loglik_pair(&a->text, d->contexts[i], d->continuations[i], &t));
        TRY(keep_request(a, p, i, t));
    }
    return PESC_OK;
}

static pesc_status keep_text(modelanswers *a, pending *p, const task_doc *d)
{
    loglik_tokens t;
    TRY(loglik_prompt(&a->text, d->contexts[0], (int32_t)p->of->about->max_tokens, &t));
    TRY(keep_request(a, p, 0, t));
    a->requests[a->n - 1].tools = json_incref(d->tools);
    return PESC_OK;
}

static pesc_status keep(void *own, pending *p, const task_doc *d)
{
    modelanswers *a = own;
    pesc_status s = p->of->about->kind == TASK_CHOICE ? keep_choice(a, p, d) : keep_text(a, p, d);
    if (p->n_left == 0) /* no request has it */
        taskrun_drop(p);
    return s;
}

/* ---- answers ---- */

static pesc_status finish_text(request *q)
{
    pending *p = q->of;
    pesc_status s = q->text ? stop_text_forms(q->text, &p->forms[0], &p->forms[1]) : PESC_OK;
    stop_text_close(q->text);
    q->text = NULL;
    return s;
}

static pesc_status take_result(void *ud, const sched_result *r)
{
    request *q = ud;
    pending *p = q->of;
    if (p->scores)
        p->scores[q->i] = (choice_score){ r->logprob, r->greedy };
    pesc_status s = finish_text(q);
    q->of = NULL;
    return taskrun_answered(p, s);
}

/* Opened here, so that no more texts are open than are being generated: decoding takes memory. */
static pesc_status take_token(void *ud, int32_t id, bool *more)
{
    request *q = ud;
    const task_about *about = q->of->of->about;
    if (!q->text) {
        turn_rules turn = q->by->chat.turn;
        turn.tools = q->tools;
        TRY(stop_text_open(&q->text, q->by->m, (stop_strings){ about->stops, about->n_stops },
                           q->tools ? &turn : NULL, q->ids.ids, (int32_t)q->ids.n));
        mem_free(q->ids.ids);
        q->ids.ids = NULL;
    }
    return stop_text_token(q->text, id, more);
}

static pesc_status add_all(modelanswers *a, scheduler *s)
{
    for (size_t i = 0; i < a->n; i++) {
        request *q = &a->requests[i];
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

static pesc_status answer(void *own, work *w, taskrun *run)
{
    modelanswers *a = own;
    scheduler *s = NULL;
    scheduler_options o = { .slots = a->opt->slots ? a->opt->slots : DEFAULT_SLOTS,
                            .context = a->longest,
                            .guesses = PESC_AUTO };
    if (a->n == 0)
        return PESC_OK;
    device *dev = a->m->dev;
    if (dev->op->host_memory(dev)) /* longer forwards than by default: latency does not matter */
        o.max_tokens = HOST_FORWARD * dev->head_rows;
    pesc_status st = scheduler_open(&s, a->m, &o);
    if (st == PESC_OK)
        st = add_all(a, s);
    for (bool more = true; st == PESC_OK && more;) {
        st = scheduler_step(s, &more);
        if (st == PESC_OK)
            st = taskrun_settle(w, false);
    }
    if (s)
        run->count = scheduler_count(s);
    scheduler_close(s);
    return st;
}

static void close_answers(void *own)
{
    modelanswers *a = own;
    for (size_t i = 0; i < a->n; i++) {
        request *q = &a->requests[i];
        mem_free(q->ids.ids);
        json_decref(q->tools);
        stop_text_close(q->text);
        if (q->of && --q->of->n_left == 0)
            taskrun_drop(q->of);
    }
    mem_free(a->requests);
    loglik_close(&a->text);
    chatprompt_close(&a->chat);
    mem_free(a);
}

pesc_status modelanswers_open(answerer *out, pesc_model *m, const taskrun_options *opt)
{
    modelanswers *a = mem_zalloc(1, sizeof *a);
    if (!a)
        return fail_nomem("an evaluation", sizeof *a);
    a->m = m;
    a->opt = opt;
    *out = (answerer){ .own = a,
                       .peers = m->dev->peers,
                       .begin = begin_model,
                       .prepare = prepare,
                       .keep = keep,
                       .answer = answer,
                       .close = close_answers };
    return PESC_OK;
}
