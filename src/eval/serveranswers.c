#include "eval/serveranswers.h"

#include "base/log.h"
#include "base/mem.h"
#include "eval/digest.h"
#include "eval/loglik.h"
#include "eval/modelserver.h"

#include <math.h>
#include <string.h>

/* A server of OpenAI takes no more stop strings; the text is cut at all of them here. */
enum { MAX_STOPS = 4 };

static const char completions[] = "/completions", chat_completions[] = "/chat/completions";

typedef struct serveranswers {
    const taskrun_options *opt;
    model_server server;
    bool chat;         /* texts are asked as conversations */
    bool bare;         /* a prompt begins with a token of its own text, of which nothing is said */
    pending **waiting; /* that are not asked yet; NULL: those before `next` */
    size_t n, cap, next;
} serveranswers;

/* A request for a text; for the tokens of the context that choices from i to i + n share; or for
 * choice i. */
typedef struct asked {
    serveranswers *a;
    pending *of;
    size_t i, n;
    size_t n_context; /* tokens before the choice */
} asked;

/* ---- log-probabilities ---- */

/* The tokens of a prompt that was echoed: their log-probabilities, and whether each was the most
 * likely one. Completions have four arrays; llama.cpp has one of objects. */
typedef struct echo {
    const json_t *values, *tops; /* arrays */
    const json_t *content;       /* else: an array of objects */
    size_t n;                    /* tokens of the prompt */
    size_t there;                /* in the arrays, with what was generated */
} echo;

static bool find_echo(const json_t *answer, echo *out)
{
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const json_t *all = json_object_get(choice, "logprobs");
    const json_t *used = json_object_get(answer, "usage");
    json_int_t n = json_integer_value(json_object_get(used, "prompt_tokens"));
    *out = (echo){ .values = json_object_get(all, "token_logprobs"),
                   .tops = json_object_get(all, "top_logprobs"),
                   .content = json_object_get(all, "content"),
                   .n = n > 0 ? (size_t)n : 0 };
    out->there = json_array_size(out->values ? out->values : out->content);
    return n > 0 && out->there >= out->n;
}

/* NAN: it has none, as the first token of a text. */
static double value_at(const echo *e, size_t i)
{
    const json_t *v = e->values ? json_array_get(e->values, i)
                                : json_object_get(json_array_get(e->content, i), "logprob");
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static bool is_greedy(const echo *e, size_t i, double value)
{
    const char *key;
    json_t *v;
    size_t k;
    double best = -INFINITY;
    json_t *top = e->values ? json_array_get(e->tops, i)
                            : json_object_get(json_array_get(e->content, i), "top_logprobs");
    if (e->values)
        json_object_foreach(top, key, v) best = fmax(best, json_number_value(v));
    else
        json_array_foreach(top, k, v) best =
            fmax(best, json_number_value(json_object_get(v, "logprob")));
    return isfinite(best) && value >= best;
}

/* Tokens from `first` on; false: one of them has no log-probability. */
static bool score_of(const echo *e, size_t first, choice_score *out)
{
    *out = (choice_score){ .greedy = true };
    for (size_t i = first; i < e->n; i++) {
        double value = value_at(e, i);
        if (isnan(value) && i > 0)
            return false;
        if (i == 0 && isnan(value))
            continue;
        out->logprob += value;
        out->greedy = out->greedy && is_greedy(e, i, value);
    }
    return first < e->n;
}

/* One token more than the prompt is asked for, since some servers refuse 0. */
static json_t *echo_body(const serveranswers *a, const char *prompt, bool logprobs)
{
    json_t *body = modelserver_body(&a->server, 1);
    json_object_set_new(body, "prompt", json_string(prompt));
    if (logprobs) {
        json_object_set_new(body, "echo", json_true());
        json_object_set_new(body, "logprobs", json_integer(1));
    }
    return body;
}

static pesc_status no_logprobs(const serveranswers *a, const char *why)
{
    return fail(PESC_UNSUPPORTED,
                "%s: gives no log-probabilities of a prompt (/v1/completions with echo and "
                "logprobs), which multiple choice needs%s%.300s; evaluate tasks that generate, or "
                "serve the model with pesc serve or vLLM",
                webclient_address(a->server.web), why[0] ? ": " : "", why);
}

/* Whether each token of the prompt that is counted is echoed: llama-cpp-python leaves BOS out, and
 * then it is not certain which token a figure is of. */
static bool is_whole(const json_t *answer, const echo *e)
{
    const json_t *made = json_object_get(json_object_get(answer, "usage"), "completion_tokens");
    return json_is_integer(made) ? e->there == e->n + (size_t)json_integer_value(made)
                                 : e->there <= e->n + 1;
}

/* Whether the first token of the echo is one of the prompt, and not one that begins every text. */
static bool begins_bare(const json_t *answer, const char *prompt)
{
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0);
    const json_t *all = json_object_get(choice, "logprobs");
    const json_t *first = json_array_get(json_object_get(all, "content"), 0);
    const char *text = json_string_value(first ? json_object_get(first, "token")
                                               : json_array_get(json_object_get(all, "tokens"), 0));
    return text && *text && str_starts(prompt, text);
}

/* Asked before anything else, so that hours of work are not lost. */
static pesc_status probe_logprobs(serveranswers *a)
{
    static const char prompt[] = "one two three";
    char why[400] = "";
    json_t *answer = NULL;
    choice_score score;
    echo e;
    json_t *body = echo_body(a, prompt, true);
    pesc_status s = body ? webclient_ask(a->server.web, completions, body, &answer)
                         : fail_nomem("a request", 0);
    if (s == PESC_OK &&
        (!find_echo(answer, &e) || !is_whole(answer, &e) || !score_of(&e, e.n - 1, &score)))
        s = no_logprobs(a, "");
    else if (s != PESC_OK && s != PESC_NOMEM) {
        snprintf(why, sizeof why, "%s", pesc_last_error());
        s = no_logprobs(a, why);
    }
    a->bare = s == PESC_OK && begins_bare(answer, prompt);
    json_decref(answer);
    return s;
}

/* ---- the answerer ---- */

/* Models for conversations alone have no completions: OpenAI's since GPT-3.5. */
static pesc_status find_interface(serveranswers *a, const task_set *set)
{
    json_t *answer = NULL;
    a->chat = a->opt->chat;
    if (a->chat || (!task_has_kind(set, TASK_TEXT) && !task_has_kind(set, TASK_CODE)))
        return PESC_OK;
    json_t *body = echo_body(a, "one two three", false);
    pesc_status s = body ? webclient_ask(a->server.web, completions, body, &answer)
                         : fail_nomem("a request", 0);
    json_decref(answer);
    long status = webclient_status(a->server.web);
    if (s != PESC_IO || (status != 404 && status != 405 && status != 501))
        return s;
    log_notice("%s: has no /v1/completions, so texts are asked as conversations, as with --chat",
               webclient_address(a->server.web));
    a->chat = true;
    return PESC_OK;
}

static pesc_status begin_server(void *own, const task_set *set, taskrun *run)
{
    serveranswers *a = own;
    bool choices = task_has_kind(set, TASK_CHOICE);
    if (choices && a->opt->chat)
        return fail(PESC_USAGE, "--chat: a server does not say how likely an answer of a "
                                "conversation is, which multiple choice needs; leave --chat out, "
                                "or evaluate tasks that generate");
    TRY(modelserver_open(&a->server, &a->opt->server, a->opt->served_model));
    TRY(choices ? probe_logprobs(a) : find_interface(a, set));
    bool completed = choices || task_has_kind(set, TASK_TEXT) || task_has_kind(set, TASK_CODE);
    run->model = json_pack("{ss ss ss ss}", "model", webclient_address(a->server.web),
                           "served_model", a->server.model, "interface",
                           a->chat || !completed ? "chat/completions" : "completions",
                           "pesc_version", PESC_VERSION);
    run->chat = json_pack("{sn sn sb}", "chat_template", "chat_template_sha",
                          "fewshot_as_multiturn", a->chat);
    return PESC_OK;
}

static bool is_chat(const serveranswers *a, const task_doc *d)
{
    return a->chat || d->tools;
}

static json_t *messages_of(const task_doc *d)
{
    json_t *all = json_array();
    for (size_t i = 0; i < d->n_turns; i++)
        json_array_append_new(
            all, json_pack("{ss ss}", "role", d->turns[i].role, "content", d->turns[i].text));
    json_array_append_new(all, json_pack("{ss ss}", "role", "user", "content", d->questions[0]));
    return all;
}

/* The prompt of a conversation is its messages: the server has the template. */
static pesc_status prepare(void *own, task_doc *d)
{
    str text = { 0 };
    if (!is_chat(own, d))
        return PESC_OK;
    json_t *messages = messages_of(d);
    json_put(&text, messages, JSON_COMPACT);
    json_decref(messages);
    str_puts(&text, "");
    if (!str_ok(&text)) {
        str_free(&text);
        return fail_nomem("a conversation", text.n);
    }
    mem_free(d->contexts[0]);
    d->contexts[0] = text.p;
    digest_text(d->prompt_hash, text.p, text.n);
    return PESC_OK;
}

static pesc_status keep(void *own, pending *p, const task_doc *d)
{
    serveranswers *a = own;
    (void)d;
    if (!mem_room((void **)&a->waiting, &a->cap, a->n, sizeof *a->waiting)) {
        taskrun_drop(p);
        return fail_nomem("documents", 2 * a->cap * sizeof *a->waiting);
    }
    a->waiting[a->n++] = p;
    return PESC_OK;
}

/* A document goes with the last of its requests. */
static void release(pending *p)
{
    if (--p->n_left == 0)
        taskrun_drop(p);
}

static void drop_asked(void *ud)
{
    asked *q = ud;
    release(q->of);
    mem_free(q);
}

/* Takes q. `s`: what became of it. */
static pesc_status finish_asked(asked *q, pesc_status s)
{
    pending *p = q->of;
    mem_free(q);
    return taskrun_answered(p, s);
}

/* Sends a request; takes the body. */
static pesc_status send(const asked *what, const char *path, json_t *body,
                        pesc_status (*done)(void *ud, const json_t *answer))
{
    asked *q = mem_alloc(1, sizeof *q);
    if (!q || !body) {
        mem_free(q);
        json_decref(body);
        return fail_nomem("a request", 0);
    }
    *q = *what;
    pesc_status s =
        webclient_add(q->a->server.web, (web_request){ path, body, done, drop_asked, q });
    if (s == PESC_OK)
        q->of->n_left++;
    else
        mem_free(q);
    return s;
}

/* ---- choices ---- */

static pesc_status take_choice(void *ud, const json_t *answer)
{
    asked *q = ud;
    echo e;
    bool fine = find_echo(answer, &e) && score_of(&e, q->n_context, &q->of->scores[q->i]);
    return finish_asked(q, fine ? PESC_OK : no_logprobs(q->a, ""));
}

static pesc_status send_choices(const asked *q, const task_doc *d)
{
    pesc_status s = PESC_OK;
    for (size_t i = q->i; s == PESC_OK && i < q->i + q->n; i++) {
        str whole = { 0 };
        str_puts(&whole, d->contexts[i]);
        str_puts(&whole, d->continuations[i]);
        json_t *body = str_ok(&whole) ? echo_body(q->a, whole.p, true) : NULL;
        str_free(&whole);
        s = send(&(asked){ q->a, q->of, i, 1, q->n_context }, completions, body, take_choice);
    }
    return s;
}

static pesc_status take_count(void *ud, const json_t *answer)
{
    asked *q = ud;
    task_doc d;
    json_int_t n =
        json_integer_value(json_object_get(json_object_get(answer, "usage"), "prompt_tokens"));
    q->n_context = n > 0 ? (size_t)n : 0;
    pesc_status s = n > 0 ? pending_document(q->of, &d) : no_logprobs(q->a, "");
    if (s == PESC_OK) {
        s = send_choices(q, &d);
        task_doc_free(&d);
    }
    return finish_asked(q, s);
}

static pesc_status ask_choices(serveranswers *a, pending *p, const task_doc *d)
{
    TRY(pending_choices(p));
    size_t shared = d->n_requests / d->n_questions;
    for (size_t i = 0; i < d->n_requests; i += shared) {
        asked q = { a, p, i, shared, 0 };
        slice context = loglik_context((slice){ d->contexts[i], strlen(d->contexts[i]) });
        if (context.n == 0 && a->bare)
            return fail(PESC_UNSUPPORTED,
                        "%s: document %zu has no context, and the server does not say how likely "
                        "the first token of a text is; evaluate tasks with contexts",
                        p->of->about->name, p->doc);
        char *text = context.n ? mem_strndup(context.p, context.n) : NULL;
        json_t *body = text ? echo_body(a, text, false) : NULL;
        mem_free(text);
        TRY(context.n ? send(&q, completions, body, take_count) : send_choices(&q, d));
    }
    return PESC_OK;
}

/* ---- texts ---- */

/* Cuts at each stop string, in the order of the list, as stoptext.h does. */
static size_t cut(const task_about *about, const char *text, size_t n)
{
    for (size_t i = 0; i < about->n_stops; i++) {
        size_t n_stop = strlen(about->stops[i]);
        const char *at = n_stop ? memmem(text, n, about->stops[i], n_stop) : NULL;
        n = at ? (size_t)(at - text) : n;
    }
    return n;
}

static pesc_status take_forms(pending *p, const char *text, size_t n)
{
    n = cut(p->of->about, text, n);
    for (int i = 0; i < 2; i++) {
        str_add(&p->forms[i], text, n);
        str_puts(&p->forms[i], "");
        if (!str_ok(&p->forms[i]))
            return fail_nomem("an answer", n);
    }
    return PESC_OK;
}

/* A turn with calls is judged as the message that it is. */
static pesc_status take_message(pending *p, const model_server *s, const json_t *answer)
{
    const json_t *choice;
    TRY(modelserver_choice(s, answer, &choice));
    if (!json_is_object(json_object_get(choice, "message")))
        return fail(PESC_FORMAT, "%s: found a choice without \"message\", expected a turn",
                    webclient_address(s->web));
    for (int i = 0; i < 2; i++) {
        json_put(&p->forms[i], json_object_get(choice, "message"), JSON_COMPACT);
        str_puts(&p->forms[i], "");
        if (!str_ok(&p->forms[i]))
            return fail_nomem("an answer", p->forms[i].n);
    }
    return PESC_OK;
}

static pesc_status take_completion(pending *p, const model_server *s, const json_t *answer)
{
    const json_t *choice;
    TRY(modelserver_choice(s, answer, &choice));
    const json_t *text = json_object_get(choice, "text");
    if (!json_is_string(text))
        return fail(PESC_FORMAT, "%s: found a choice without \"text\", expected a completion",
                    webclient_address(s->web));
    return take_forms(p, json_string_value(text), json_string_length(text));
}

static pesc_status take_text(void *ud, const json_t *answer)
{
    asked *q = ud;
    const model_server *server = &q->a->server;
    const char *text;
    size_t n;
    pesc_status s;
    if (q->of->of->about->kind == TASK_CALLS)
        s = take_message(q->of, server, answer);
    else if (q->a->chat) {
        s = modelserver_content(server, answer, &text, &n);
        if (s == PESC_OK)
            s = take_forms(q->of, text, n);
    } else
        s = take_completion(q->of, server, answer);
    return finish_asked(q, s);
}

static json_t *text_body(const serveranswers *a, const pending *p, const task_doc *d)
{
    const task_about *about = p->of->about;
    json_t *body = modelserver_body(&a->server, about->max_tokens), *stops = json_array();
    for (size_t i = 0; i < about->n_stops && i < MAX_STOPS; i++)
        json_array_append_new(stops, json_string(about->stops[i]));
    if (json_array_size(stops))
        json_object_set(body, "stop", stops);
    json_decref(stops);
    if (d->tools)
        json_object_set(body, "tools", d->tools);
    if (is_chat(a, d))
        json_object_set_new(body, "messages", messages_of(d));
    else
        json_object_set_new(body, "prompt", json_string(d->contexts[0]));
    return body;
}

/* ---- all of them ---- */

/* The document is held while its requests are made. */
static pesc_status ask(serveranswers *a, pending *p)
{
    task_doc d;
    p->n_left = 1;
    pesc_status s = pending_document(p, &d);
    if (s == PESC_OK) {
        s = p->of->about->kind == TASK_CHOICE
                ? ask_choices(a, p, &d)
                : send(&(asked){ .a = a, .of = p }, is_chat(a, &d) ? chat_completions : completions,
                       text_body(a, p, &d), take_text);
        task_doc_free(&d);
    }
    if (s == PESC_OK)
        p->n_left--;
    else
        release(p);
    return s;
}

static pesc_status answer(void *own, work *w, taskrun *run)
{
    serveranswers *a = own;
    webclient *web = a->server.web;
    size_t streams = (size_t)a->opt->server.streams;
    (void)run;
    while (a->next < a->n || webclient_left(web)) {
        while (a->next < a->n && webclient_left(web) < streams)
            TRY(ask(a, a->waiting[a->next++]));
        TRY(webclient_step(web, 0.1));
        TRY(taskrun_settle(w, false));
    }
    return PESC_OK;
}

static void close_answers(void *own)
{
    serveranswers *a = own;
    modelserver_close(&a->server);
    for (; a->next < a->n; a->next++)
        taskrun_drop(a->waiting[a->next]);
    mem_free(a->waiting);
    mem_free(a);
}

pesc_status serveranswers_open(answerer *out, const taskrun_options *opt)
{
    serveranswers *a = mem_zalloc(1, sizeof *a);
    if (!a)
        return fail_nomem("an evaluation", sizeof *a);
    a->opt = opt;
    *out = (answerer){ .own = a,
                       .begin = begin_server,
                       .prepare = prepare,
                       .keep = keep,
                       .answer = answer,
                       .close = close_answers };
    return PESC_OK;
}
