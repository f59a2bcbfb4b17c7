#include "base/clock.h"
#include "base/mem.h"
#include "serve/api/response.h"

#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Tokens of prompts in a forward, at most; and below how many tokens in all a forward is not
 * faster: on a GPU products of several rows are computed in tiles of 64. See pace.h. */
enum { CPU_PROMPT_TOKENS = 128, GPU_PROMPT_TOKENS = 1024, CPU_ROWS = 0, GPU_ROWS = 64 };

/* Of how many forwards the routes of one are counted: on a GPU copying the choices of each layer
 * costs launches. */
enum { CPU_ROUTES_EVERY = 1, GPU_ROUTES_EVERY = 16 };

/* ---- ends ---- */

/* Sends the end of the answer. */
static void push_end(call *c)
{
    str out = { 0 };
    if (c->error.status) {
        exchange_push_error(c->x, &c->error);
        return;
    }
    responsestore_keep(c);
    if (c->x->stream)
        response_last_events(c, &out);
    else
        response_whole(c, &out);
    if (str_ok(&out) && (out.n || c->x->stream)) {
        exchange_push(c->x, out.p ? out.p : "", out.n, PUSH_LAST);
    } else {
        api_refuse(&c->error, 500, NULL, NULL, "there is not enough memory for the answer");
        exchange_push_error(c->x, &c->error);
    }
    str_free(&out);
}

/* All choices are done. */
static void end_call(pesc_server *s, call *c)
{
    exchange *x = c->x;
    call **at = &s->calls;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pthread_mutex_lock(&s->lock);
    x->call = NULL; /* a client that has its answer does not see it run */
    x->generated_tokens = call_generated(c);
    if (x->state != EXCHANGE_LEFT)
        prometheus_observe(&s->metrics.request, clock_seconds() - c->queued);
    pthread_mutex_unlock(&s->lock);
    push_end(c);
    pthread_mutex_lock(&s->lock);
    exchange_drop(x);
    pthread_mutex_unlock(&s->lock);
    call_free(c);
}

/* A choice that meets a failure of ours ends, and its call with an error. */
static bool succeeded(call *c, pesc_status st)
{
    if (st == PESC_OK || c->error.status)
        return st == PESC_OK;
    return api_failed(&c->error, st);
}

static void push_events(choice *h)
{
    str out = { 0 };
    if (!h->of->x->stream || h->of->error.status)
        return;
    bool begun = h->begun;
    response_events(h, &out);
    if (str_ok(&out) && out.n)
        exchange_push(h->of->x, out.p, out.n, h->begun && !begun ? PUSH_FIRST : PUSH_MORE);
    str_free(&out);
}

static void end_choice(pesc_server *s, choice *h, const char *finish)
{
    call *c = h->of;
    (void)succeeded(c, choice_finish(h, finish));
    pthread_mutex_lock(&s->lock);
    *(h->runs ? &s->running : &s->waiting) -= 1; /* until the scheduler's own count */
    pthread_mutex_unlock(&s->lock);
    push_events(h);
    if (--c->n_left == 0)
        end_call(s, c);
}

/* ---- callbacks of the scheduler ---- */

static void on_started(void *ud, int32_t cached)
{
    choice *h = ud;
    call *c = h->of;
    pesc_server *s = c->x->srv;
    pthread_mutex_lock(&s->lock);
    if (c->state == CALL_WAITS) {
        c->state = CALL_RUNS;
        c->began = clock_seconds();
        prometheus_observe(&s->metrics.queue, c->began - c->queued);
    }
    h->runs = true;
    s->waiting--;
    s->running++;
    if (h->index % c->api.n == 0) { /* a prompt counts once, whatever the number of choices */
        c->cached_tokens += cached;
        s->metrics.cached_tokens += (uint64_t)cached;
        s->metrics.prompt_tokens += h->prompt->ids.n;
    }
    pthread_mutex_unlock(&s->lock);
}

static pesc_status on_row(void *ud, const sched_row *r)
{
    choice *h = ud;
    (void)succeeded(h->of, choice_logprob(h, r));
    return PESC_OK;
}

static void on_routed(void *ud, const sched_routes *r)
{
    choice *h = ud;
    expertload_count(h->of, r);
    if (h->of->api.return_routes)
        (void)succeeded(h->of, choice_routed(h, r));
}

static pesc_status on_token(void *ud, int32_t id, bool *more)
{
    choice *h = ud;
    call *c = h->of;
    pesc_server *s = c->x->srv;
    double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    s->metrics.generated_tokens++;
    c->x->generated_tokens++;
    prometheus_observe(h->last > 0 ? &s->metrics.inter_token : &s->metrics.first_token,
                       now - (h->last > 0 ? h->last : c->queued));
    pthread_mutex_unlock(&s->lock);
    h->last = c->last = now;
    c->first = c->first == 0 ? now : c->first;
    *more = succeeded(c, choice_token(h, id, more)) && !c->error.status && *more;
    if (*more && (int64_t)h->answer.ids.n < h->limit) /* the last token is sent with the end */
        push_events(h);
    return PESC_OK;
}

static pesc_status on_done(void *ud, const sched_result *r)
{
    choice *h = ud;
    if (h->matcher)
        (void)succeeded(h->of, matcher_status(h->matcher));
    h->of->guessed += r->guessed;
    h->of->guesses_kept += r->guesses_kept;
    end_choice(h->of->x->srv, h, r->finish == FINISH_STOPPED ? "stop" : "length");
    return PESC_OK;
}

/* ---- calls ---- */

static void add_choice(pesc_server *s, choice *h)
{
    call *c = h->of;
    const id_list *p = &h->prompt->ids;
    bool reports = (c->api.logprobs && c->api.echo) || c->api.prompt_top >= 0;
    bool score = reports && p->n > 1;
    int32_t room = s->context - (int32_t)p->n;
    sched_request r = { .ids = p->ids,
                        .n = (int32_t)p->n,
                        .first = score ? 1 : 0,
                        .max_tokens = c->max_tokens < room ? c->max_tokens : room,
                        .sample = &h->sample,
                        .terms = c->has_terms ? &h->terms : NULL,
                        .scope = c->scope,
                        .adapter = c->model->adapter,
                        .started = on_started,
                        .row = c->api.logprobs || score ? on_row : NULL,
                        .n_top = c->n_top,
                        .rank = c->api.prompt_top >= 0,
                        .routed = c->expert_counts ? on_routed : NULL,
                        .all_routed = c->api.return_routes,
                        .token = on_token,
                        .done = on_done,
                        .ud = h };
    h->limit = r.max_tokens;
    if (r.max_tokens == 0 && !score) /* nothing to compute */
        end_choice(s, h, "length");
    else if (!succeeded(c, scheduler_add(s->sched, &r, &h->ticket)))
        end_choice(s, h, "error");
}

/* Calls leave the scheduler whose client has left, which have failed, or which have waited for too
 * long. The choices of a call were added in a row, so their tickets are a range without others. */
static void cancel_calls(pesc_server *s)
{
    double now = clock_seconds();
    pthread_mutex_lock(&s->lock);
    for (call *c = s->calls; c; c = c->next) {
        if (c->state == CALL_WAITS && !c->error.status &&
            now - c->queued > (double)s->opt.max_wait) {
            api_refuse(&c->error, 503, "queue_timeout", NULL,
                       "the request has waited for %d seconds", (int)s->opt.max_wait);
            c->error.retry_after = 5;
        }
        bool ends = c->x->state == EXCHANGE_LEFT || c->error.status;
        if (!ends || c->state == CALL_LEAVES)
            continue;
        c->state = CALL_LEAVES;
        uint64_t first = UINT64_MAX, last = 0;
        for (size_t i = 0; i < c->n_choices; i++) {
            uint64_t ticket = c->choices[i].ticket;
            if (ticket && ticket < first)
                first = ticket;
            if (ticket > last)
                last = ticket;
        }
        scheduler_cancel(s->sched, first, last);
    }
    pthread_mutex_unlock(&s->lock);
}

/* Ends everything that the scheduler has with an error. */
static void fail_calls(pesc_server *s, int status, const char *why)
{
    while (s->calls) {
        call *c = s->calls;
        if (!c->error.status)
            api_refuse(&c->error, status, NULL, NULL, "%s", why);
        c->error.retry_after = status == 503 ? 5 : 0;
        for (size_t i = 0; i < c->n_choices; i++)
            (void)choice_finish(&c->choices[i], "error");
        end_call(s, c);
    }
}

static pesc_status open_scheduler(pesc_server *s)
{
    DEVICE_CALL(s->m->dev);
    int32_t slots = (int32_t)s->opt.max_streams;
    bool gpu = s->m->dev->memory;
    s->pace = (pace){ .max = gpu ? GPU_PROMPT_TOKENS : CPU_PROMPT_TOKENS,
                      .rows = gpu ? GPU_ROWS : CPU_ROWS };
    scheduler_options o = { .slots = slots,
                            .context = s->context,
                            .max_tokens = slots + s->pace.max,
                            .batch_invariant = gpu && s->opt.deterministic,
                            .overlap = gpu,
                            .guesses = PESC_AUTO };
    TRY(scheduler_open(&s->sched, s->m, &o));
    scheduler_route_every(s->sched, gpu ? GPU_ROUTES_EVERY : CPU_ROUTES_EVERY);
    return PESC_OK;
}

static void close_scheduler(pesc_server *s)
{
    DEVICE_CALL(s->m->dev);
    scheduler_close(s->sched);
    s->sched = NULL;
    embedder_close(s->embedder);
    s->embedder = NULL;
}

static pesc_status step(pesc_server *s, bool *more)
{
    DEVICE_CALL(s->m->dev);
    double began = clock_seconds();
    scheduler_limit_prompts(s->sched, pace_limit(&s->pace, scheduler_generating(s->sched)));
    TRY(scheduler_step(s->sched, more));
    scheduler_counters n = scheduler_count(s->sched);
    pace_measure(&s->pace, clock_seconds() - began, n.decodes, n.prompt_tokens);
    return PESC_OK;
}

/* ---- warming up ----
 *
 * The first forward of a size is slow on a GPU: kernels are loaded, cuBLASLt chooses among its own,
 * and a graph is recorded the second time. Requests of the server's own meet that, not those of the
 * first clients. */

enum { WARM_ROWS = 64, WARM_TOKENS = 4 }; /* sizes of prompts in steps; tokens that are generated */

static pesc_status ignore_done(void *ud, const sched_result *r)
{
    (void)ud;
    (void)r;
    return PESC_OK;
}

/* n requests at a time; each has a scope of its own, so that nothing is shared. */
static pesc_status run_warm(pesc_server *s, int32_t n, int32_t n_prompt, int32_t tokens)
{
    bool more = true;
    int32_t *ids = mem_zalloc((size_t)n_prompt, sizeof *ids);
    if (!ids)
        return fail_nomem("the first requests", (size_t)n_prompt * sizeof *ids);
    sched_request r = { .ids = ids, .n = n_prompt, .max_tokens = tokens, .done = ignore_done };
    pesc_status st = PESC_OK;
    for (int32_t i = 0; st == PESC_OK && i < n; i++) {
        r.scope = UINT64_MAX - ++s->n_warm;
        st = scheduler_add(s->sched, &r, NULL);
    }
    mem_free(ids);
    while (st == PESC_OK && more)
        st = step(s, &more);
    return st;
}

/* Few streams come last: a device keeps the graphs that were used last. */
static pesc_status warm_up(pesc_server *s)
{
    for (int32_t rows = WARM_ROWS; rows <= s->pace.max && rows < s->context; rows += WARM_ROWS)
        TRY(run_warm(s, 1, rows, 1));
    for (int32_t n = (int32_t)s->opt.max_streams; n > 0 && s->context > 2 + WARM_TOKENS; n /= 2)
        TRY(run_warm(s, n, 2, WARM_TOKENS));
    return PESC_OK;
}

/* ---- embeddings: one text between two steps ---- */

static void embed_next(pesc_server *s)
{
    DEVICE_CALL(s->m->dev);
    call *c = s->calls;
    while (c && !c->vectors)
        c = c->next;
    if (!c)
        return;
    bool more = false;
    bool leaves = c->state == CALL_LEAVES || c->error.status;
    if (leaves || !succeeded(c, embeddings_next(c, &more)) || !more)
        end_call(s, c);
}

/* ---- the thread ---- */

/* Waits for work; NULL with *stop: the engine is to end. */
static call *take_inbox(pesc_server *s, bool *stop)
{
    pthread_mutex_lock(&s->lock);
    while (!s->inbox && !s->calls && s->state != SERVER_STOPS)
        pthread_cond_wait(&s->wake, &s->lock);
    call *all = s->inbox;
    s->inbox = NULL;
    s->inbox_end = &s->inbox;
    s->waiting += s->n_inbox;
    s->n_inbox = 0;
    *stop = s->state == SERVER_STOPS;
    pthread_mutex_unlock(&s->lock);
    return all;
}

static void publish_counts(pesc_server *s)
{
    scheduler_counters n = scheduler_count(s->sched);
    pthread_mutex_lock(&s->lock);
    s->waiting = n.waiting;
    s->running = n.running;
    s->pages = n.pages;
    s->pages_used = n.pages_used;
    s->metrics.forwards = n.forwards;
    s->metrics.computed_tokens = n.computed;
    pthread_mutex_unlock(&s->lock);
}

/* A new scheduler after one that failed; false: there is none, and the server ends. */
static bool recover(pesc_server *s, pesc_status st)
{
    char why[sizeof s->engine_error];
    snprintf(why, sizeof why, "%s", pesc_last_error());
    fail_calls(s, 500, why);
    close_scheduler(s);
    pesc_status again = st == PESC_DEVICE ? st : open_scheduler(s);
    if (again == PESC_OK)
        return true;
    pthread_mutex_lock(&s->lock);
    s->engine_status = st;
    memcpy(s->engine_error, why, sizeof why);
    if (s->state == SERVER_SERVES)
        s->state = SERVER_DRAINS;
    pthread_mutex_unlock(&s->lock);
    pesc_server_stop(s);
    return false;
}

static void *run_engine(void *ud)
{
    pesc_server *s = ud;
    for (bool stop = false, works = true;;) {
        for (call *c = take_inbox(s, &stop), *next; c; c = next) {
            next = c->next;
            c->next = s->calls;
            s->calls = c;
            size_t n = c->n_choices; /* the last choice may end the call */
            for (size_t i = 0; i < n; i++)
                add_choice(s, &c->choices[i]);
        }
        if (stop || !works) {
            fail_calls(s, 503, "the server is shutting down");
            if (stop)
                return NULL;
            continue;
        }
        cancel_calls(s);
        embed_next(s);
        pesc_status st = step(s, &(bool){ false });
        if (st != PESC_OK)
            works = recover(s, st);
        if (works)
            publish_counts(s);
    }
}

/* ---- from other threads ---- */

pesc_status engine_open(pesc_server *s)
{
    s->inbox_end = &s->inbox;
    TRY(open_scheduler(s));
    if (s->m->dev->memory)
        TRY(warm_up(s));
    publish_counts(s);
    if (pthread_create(&s->engine, NULL, run_engine, s) != 0)
        return fail(PESC_DEVICE, "cannot start the thread that generates");
    s->engine_runs = true;
    return PESC_OK;
}

void engine_close(pesc_server *s)
{
    if (s->engine_runs) {
        pthread_mutex_lock(&s->lock);
        s->state = SERVER_STOPS;
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->engine, NULL);
        s->engine_runs = false;
    }
    if (s->sched)
        close_scheduler(s);
}

bool engine_add(pesc_server *s, call *c, api_error *e)
{
    pthread_mutex_lock(&s->lock);
    bool closed = s->state != SERVER_SERVES || c->x->state == EXCHANGE_LEFT;
    bool full = s->waiting + s->n_inbox >= s->opt.max_queue + (int64_t)s->opt.max_streams ||
                (s->waiting + s->n_inbox >= s->opt.max_queue && s->running >= s->opt.max_streams);
    if (!closed && !full) {
        exchange_generate(c->x, c, c->api.stream, c->prompt_tokens);
        c->next = NULL;
        *s->inbox_end = c;
        s->inbox_end = &c->next;
        s->n_inbox += (int32_t)c->n_choices;
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    if (closed)
        return api_shutting_down(e);
    if (!full)
        return true;
    api_refuse(e, 429, "queue_full", NULL, "%d requests are waiting already; try again later",
               (int)s->opt.max_queue);
    e->retry_after = 1;
    return false;
}
