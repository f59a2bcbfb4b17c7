#include "serve/exchange.h"

#include "base/clock.h"
#include "base/mem.h"

#include <microhttpd.h>

void exchange_json(exchange *x, int status, const json_t *v)
{
    x->status = status;
    str_clear(&x->out);
    if (v)
        json_put(&x->out, v, JSON_COMPACT);
    if (v && str_ok(&x->out))
        return;
    api_error e;
    api_refuse(&e, 500, NULL, NULL, "there is not enough memory for the answer");
    exchange_fail(x, &e);
}

void exchange_fail(exchange *x, const api_error *e)
{
    x->status = e->status;
    x->retry_after = e->retry_after;
    str_clear(&x->out);
    api_error_json(e, &x->out);
}

void exchange_resume(exchange *x)
{
    if (!x->suspended || x->preparing || !x->conn)
        return;
    x->suspended = false;
    MHD_resume_connection(x->conn);
}

void exchange_push(exchange *x, const char *bytes, size_t n, push_kind kind)
{
    pthread_mutex_lock(&x->srv->lock);
    if (x->conn && !x->broken) {
        str_add(&x->out, bytes, n);
        x->finished |= kind == PUSH_LAST;
        x->first_events += kind == PUSH_FIRST ? n : 0;
        x->pushed = clock_seconds();
        /* A reader that is too slow loses its request, and only its own. */
        x->broken =
            !str_ok(&x->out) || (x->stream && x->out.n - x->sent > SEND_BUFFER + x->first_events);
        if (x->broken)
            engine_cancel(x->srv, x->call);
        exchange_resume(x);
    }
    pthread_mutex_unlock(&x->srv->lock);
}

void exchange_push_error(exchange *x, const api_error *e)
{
    str event = { 0 };
    if (x->stream)
        str_puts(&event, "data: ");
    api_error_json(e, &event);
    if (x->stream) {
        str_puts(&event, "\n\n");
    } else {
        x->status = e->status;
        x->retry_after = e->retry_after;
    }
    if (str_ok(&event))
        exchange_push(x, event.p, event.n, PUSH_LAST);
    str_free(&event);
}

void exchange_free(exchange *x)
{
    if (x->prev)
        x->prev->next = x->next;
    else
        x->srv->live = x->next;
    if (x->next)
        x->next->prev = x->prev;
    str_free(&x->body);
    str_free(&x->out);
    str_free(&x->ignored);
    mem_free(x);
}
