#include "serve/exchange.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/http/front.h"
#include "serve/api/endpoints.h"

#include <stdio.h>
#include <sys/random.h>

exchange *exchange_open(pesc_server *s, struct connection *conn)
{
    uint64_t name;
    exchange *x = mem_zalloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->srv = s;
    x->conn = conn;
    x->holders = 1;
    x->type = "application/json";
    x->began = x->pushed = clock_seconds();
    if (getrandom(&name, sizeof name, 0) != sizeof name)
        name = 0;
    snprintf(x->id, sizeof x->id, "req-%016llx", (unsigned long long)name);
    pthread_mutex_lock(&s->lock);
    x->next = s->live;
    if (x->next)
        x->next->prev = x;
    s->live = x;
    pthread_mutex_unlock(&s->lock);
    return x;
}

void exchange_drop(exchange *x)
{
    if (--x->holders > 0)
        return;
    if (x->prev)
        x->prev->next = x->next;
    else
        x->srv->live = x->next;
    if (x->next)
        x->next->prev = x->prev;
    str_free(&x->body);
    str_free(&x->out);
    str_free(&x->ignored);
    mem_free(x->asked_headers);
    mem_free(x);
}

/* ---- states ---- */

void exchange_enter(exchange *x, exchange_state state)
{
    static const unsigned may_follow[] = {
        [EXCHANGE_READS] = 1u << EXCHANGE_HANDLED | 1u << EXCHANGE_COMPLETE | 1u << EXCHANGE_LEFT,
        [EXCHANGE_HANDLED] =
            1u << EXCHANGE_GENERATES | 1u << EXCHANGE_COMPLETE | 1u << EXCHANGE_LEFT,
        [EXCHANGE_GENERATES] = 1u << EXCHANGE_COMPLETE | 1u << EXCHANGE_LEFT,
        [EXCHANGE_COMPLETE] = 1u << EXCHANGE_LEFT,
        [EXCHANGE_LEFT] = 0,
    };
    ASSERT(may_follow[x->state] & 1u << state);
    x->state = state;
}

void exchange_leave(exchange *x)
{
    if (x->state != EXCHANGE_LEFT)
        exchange_enter(x, EXCHANGE_LEFT);
}

void exchange_detach(exchange *x)
{
    front_forget(x->srv->front, x);
    x->conn = NULL;
    exchange_drop(x);
}

/* ---- the handler ---- */

void exchange_begin_handling(exchange *x)
{
    pthread_mutex_lock(&x->srv->lock);
    exchange_enter(x, EXCHANGE_HANDLED);
    x->holders++;
    pthread_mutex_unlock(&x->srv->lock);
}

static void end_handling(exchange *x)
{
    pesc_server *s = x->srv;
    pthread_mutex_lock(&s->lock);
    if (x->state == EXCHANGE_HANDLED)
        exchange_enter(x, EXCHANGE_COMPLETE);
    bool wake = front_notify(s->front, x);
    exchange_drop(x);
    pthread_mutex_unlock(&s->lock);
    if (wake)
        front_wake(s->front);
}

void exchange_handle(exchange *x)
{
    const route *r = x->route;
    const pesc_server *s = x->srv;
    bool good = !r->body || api_parse(&x->request, r->body, x->body.p ? x->body.p : "", x->body.n,
                                      &s->rules, &x->error);
    str_free(&x->body);
    if (good) {
        x->ignored = x->request.ignored;
        x->request.ignored = (str){ 0 };
    }
    if (!good || !r->handle(x))
        exchange_fail(x, &x->error);
    api_close(&x->request); /* a slow reader of the answer holds no more than that */
    end_handling(x);
}

void exchange_refuse_handling(exchange *x)
{
    api_shutting_down(&x->error);
    exchange_fail(x, &x->error);
    end_handling(x);
}

/* ---- answers ---- */

bool exchange_reply(exchange *x, json_t *v)
{
    x->status = 200;
    str_clear(&x->out);
    if (v)
        json_put(&x->out, v, JSON_COMPACT);
    json_decref(v);
    if (!v || !str_ok(&x->out)) {
        api_refuse(&x->error, 500, NULL, NULL, "there is not enough memory for the answer");
        exchange_fail(x, &x->error);
    }
    return true;
}

/* As the dialect of the path has it. */
static void put_error(const exchange *x, const api_error *e, bool event, str *out)
{
    api_endpoint body = x->route ? x->route->body : 0;
    bool messages = body == API_MESSAGES || body == API_COUNT;
    bool response = event && body == API_RESPONSES;
    if (event)
        str_puts(out, messages || response ? "event: error\ndata: " : "data: ");
    if (messages)
        api_error_messages(e, x->id, out);
    else if (response)
        api_error_event(e, out);
    else
        api_error_json(e, out);
    if (event)
        str_puts(out, "\n\n");
}

void exchange_fail(exchange *x, const api_error *e)
{
    x->status = e->status;
    x->retry_after = e->retry_after;
    str_clear(&x->out);
    put_error(x, e, false, &x->out);
}

void exchange_generate(exchange *x, call *c, bool stream, int64_t prompt_tokens)
{
    exchange_enter(x, EXCHANGE_GENERATES);
    x->holders++;
    x->call = c;
    x->status = 200;
    x->stream = stream;
    x->type = stream ? "text/event-stream; charset=utf-8" : x->type;
    x->prompt_tokens = prompt_tokens;
}

void exchange_push(exchange *x, const char *bytes, size_t n, push_kind kind)
{
    bool wake = false;
    pthread_mutex_lock(&x->srv->lock);
    if (x->state == EXCHANGE_GENERATES) {
        str_add(&x->out, bytes, n);
        x->first_events += kind == PUSH_FIRST ? n : 0;
        x->pushed = clock_seconds();
        /* A reader that is too slow loses its request, and only its own. */
        if (!str_ok(&x->out) || (x->stream && x->out.n - x->sent > SEND_BUFFER + x->first_events))
            exchange_leave(x);
        else if (kind == PUSH_LAST)
            exchange_enter(x, EXCHANGE_COMPLETE);
        if (x->stream || x->state != EXCHANGE_GENERATES)
            wake = front_notify(x->srv->front, x);
    }
    pthread_mutex_unlock(&x->srv->lock);
    if (wake)
        front_wake(x->srv->front);
}

void exchange_push_error(exchange *x, const api_error *e)
{
    str event = { 0 };
    put_error(x, e, x->stream, &event);
    if (!x->stream) {
        pthread_mutex_lock(&x->srv->lock);
        x->status = e->status;
        x->retry_after = e->retry_after;
        pthread_mutex_unlock(&x->srv->lock);
    }
    if (str_ok(&event))
        exchange_push(x, event.p, event.n, PUSH_LAST);
    str_free(&event);
}

/* ---- the log ---- */

void exchange_log(const exchange *x, int status, const int64_t tokens[2])
{
    const pesc_serve_options *o = &x->srv->opt;
    double seconds = clock_seconds() - x->began;
    str line = { 0 };
    if (!o->log)
        return;
    if (o->log_json) {
        json_t *v = json_pack("{s:f, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:I}", "time", clock_wall(),
                              "id", x->id, "address", x->address, "method", x->method, "path",
                              x->path, "status", status, "seconds", seconds, "prompt_tokens",
                              (json_int_t)tokens[0], "generated_tokens", (json_int_t)tokens[1]);
        if (v)
            json_put(&line, v, JSON_COMPACT);
        json_decref(v);
    } else {
        str_printf(&line, "%s %s %s %d %.3fs %lld+%lld %s", x->address, x->method, x->path, status,
                   seconds, (long long)tokens[0], (long long)tokens[1], x->id);
    }
    if (str_ok(&line) && line.n)
        o->log(o->ud, line.p);
    str_free(&line);
}
