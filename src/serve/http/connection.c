#include "serve/http/connection.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "serve/api/endpoints.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    HEAD_SECONDS = 10, /* for a head: of the first request, from the connection on */
    BODY_SECONDS = 30,
    IDLE_SECONDS = 15, /* between requests, between parts of a body, and of a peer that reads
                          nothing of an answer */
    LINGER_SECONDS = 2,
    PARSE_EVERY = 1024,    /* bytes of a head without the end of a line */
    SEND_BLOCK = 16 << 10, /* bytes that are taken from an answer at a time */
    LARGE_BODY = 16 << 10, /* bytes above which a body would delay the other connections */
};

/* ---- the socket ---- */

static void watch(front *f, connection *c, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = c };
    if (c->watched == events)
        return;
    (void)epoll_ctl(f->epoll, EPOLL_CTL_MOD, c->fd, &e);
    c->watched = events;
}

connection *connection_open(front *f, int fd, const struct sockaddr_storage *address)
{
    connection *c = mem_zalloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (connection){ .fd = fd,
                       .address = *address,
                       .deadline = clock_seconds() + HEAD_SECONDS,
                       .watched = EPOLLIN | EPOLLRDHUP,
                       .next = f->open };
    struct epoll_event e = { .events = c->watched, .data.ptr = c };
    if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, fd, &e) != 0) {
        mem_free(c);
        return NULL;
    }
    if (c->next)
        c->next->prev = c;
    f->open = c;
    f->n_open++;
    return c;
}

/* The exchange is over. left: the client has not got all of the answer. */
static void end_exchange(connection *c, bool left)
{
    exchange *x = c->x;
    pesc_server *s = x->srv;
    c->x = NULL;
    pthread_mutex_lock(&s->lock);
    bool complete = x->state == EXCHANGE_COMPLETE;
    int status = left && !(complete && x->status >= 400) ? 499 : x->status;
    if (left)
        exchange_leave(x);
    int64_t tokens[] = { x->prompt_tokens, x->generated_tokens };
    pthread_mutex_unlock(&s->lock);
    exchange_log(x, status, tokens); /* not under the lock: the log may be slow */
    pthread_mutex_lock(&s->lock);
    s->metrics.disconnects += left;
    prometheus_count(&s->metrics, x->route ? x->route->endpoint : 0, status);
    exchange_detach(x);
    pthread_mutex_unlock(&s->lock);
}

void connection_close(front *f, connection *c)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    if (c->x)
        end_exchange(c, true);
    c->state = CONNECTION_CLOSED;
    close(c->fd);
    str_free(&c->in);
    str_free(&c->out);
    if (c->prev)
        c->prev->next = c->next;
    else
        f->open = c->next;
    if (c->next)
        c->next->prev = c->prev;
    f->n_open--;
    c->next = f->closed;
    f->closed = c;
}

/* ---- the head ---- */

static void drop_front(str *s, size_t n)
{
    if (n == 0)
        return;
    memmove(s->p, s->p + n, s->n - n);
    s->n -= n;
}

static void copy(char *to, size_t cap, head_text from)
{
    size_t n = from.n < cap - 1 ? from.n : cap - 1;
    if (n)
        memcpy(to, from.p, n);
    to[n] = '\0';
}

/* Of the head as far as it was read. False: no memory; the connection is closed. */
static bool begin_exchange(front *f, connection *c, const head *h)
{
    exchange *x = c->x = exchange_open(f->srv, c);
    if (!x) {
        connection_close(f, c);
        return false;
    }
    const char *query = h->target.p ? memchr(h->target.p, '?', h->target.n) : NULL;
    size_t n = query ? (size_t)(query - h->target.p) : h->target.n;
    (void)getnameinfo((const struct sockaddr *)(const void *)&c->address, sizeof c->address,
                      x->address, sizeof x->address, NULL, 0, NI_NUMERICHOST);
    copy(x->method, sizeof x->method, h->method.n ? h->method : (head_text){ "-", 1 });
    utf8_visible(x->path, sizeof x->path, n ? h->target.p : "-", n ? n : 1);
    c->filled = FILL_NOTHING;
    c->old = h->old;
    return true;
}

/* The answer to a request that cannot be read: an error, and the end of the connection. */
static void refuse(connection *c, const api_error *e)
{
    exchange *x = c->x;
    exchange_fail(x, e);
    pthread_mutex_lock(&x->srv->lock);
    exchange_enter(x, EXCHANGE_COMPLETE);
    pthread_mutex_unlock(&x->srv->lock);
    c->state = CONNECTION_ANSWER;
    c->keep = false;
    c->deadline = INFINITY;
}

static bool check_key(exchange *x, const head *h, api_error *e)
{
    static const char scheme[] = "Bearer ";
    const pesc_server *s = x->srv;
    head_text key = head_find(h, "X-Api-Key"), bearer = head_find(h, "Authorization");
    size_t n = sizeof scheme - 1;
    if (s->n_keys == 0 || x->route->open)
        return true;
    if (!key.p && bearer.n >= n && strncasecmp(bearer.p, scheme, n) == 0)
        key = (head_text){ bearer.p + n, bearer.n - n };
    if (key.p && (x->key = apikeys_match(s, key.p, key.n)))
        return true;
    return api_refuse(e, 401, "invalid_api_key", NULL,
                      key.p ? "the API key is not one of this server's"
                            : "an API key is needed: Authorization: Bearer KEY");
}

static bool check_type(const exchange *x, const head *h, api_error *e)
{
    static const char json[] = "application/json";
    head_text type = head_find(h, "Content-Type");
    size_t n = sizeof json - 1;
    if (strcmp(x->method, "POST") != 0)
        return true;
    if (type.n >= n && strncasecmp(type.p, json, n) == 0 &&
        (type.n == n || strchr("; \t", type.p[n])))
        return true;
    return api_refuse(e, 415, "not_json", NULL, "Content-Type must be application/json");
}

/* An origin is listed as it is, or `*` stands for all. */
static void read_origin(exchange *x, const head *h)
{
    const pesc_serve_options *o = &x->srv->opt;
    head_text origin = head_find(h, "Origin"),
              asked = head_find(h, "Access-Control-Request-Headers");
    for (size_t i = 0; origin.p && !x->origin && i < o->n_cors_origin; i++) {
        const char *listed = o->cors_origin[i];
        if (strcmp(listed, "*") == 0 ||
            (origin.n == strlen(listed) && memcmp(origin.p, listed, origin.n) == 0))
            x->origin = listed;
    }
    /* clients send fields of their own, such as X-Stainless-Lang; an origin that is listed may */
    if (x->origin && asked.p)
        x->asked_headers = mem_strndup(asked.p, asked.n);
}

/* A head is good: the request is accepted or refused. */
static void take_request(connection *c, const head *h)
{
    api_error e = { 0 };
    exchange *x = c->x;
    char path[HEAD_MAX_LINE + 1];
    const char *query = memchr(h->target.p, '?', h->target.n);
    copy(path, sizeof path,
         query ? (head_text){ h->target.p, (size_t)(query - h->target.p) } : h->target);
    read_origin(x, h);
    x->route = endpoint_find(x, x->method, path, &e);
    bool good = x->route && check_key(x, h, &e) && check_type(x, h, &e);
    bool bodiless = !h->chunked && h->length == 0;
    if (!good) {
        refuse(c, &e);
        c->keep = !h->close && bodiless; /* a body is not read */
        return;
    }
    c->keep = !h->close;
    c->state = CONNECTION_BODY;
    c->deadline = fmin(x->began + BODY_SECONDS, clock_seconds() + IDLE_SECONDS);
    body_open(&c->body, h);
    if (h->expects && !bodiless && c->in.n == h->size) {
        static const char go[] = "HTTP/1.1 100 Continue\r\n\r\n";
        (void)send(c->fd, go, sizeof go - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

/* Whether what came since the head was parsed last can make a difference. */
static bool has_news(const connection *c)
{
    const char *p = c->in.p + c->parsed;
    size_t n = c->in.n - c->parsed;
    return c->parsed == 0 || n >= PARSE_EVERY || memchr(p, '\n', n) || memchr(p, '\r', n) ||
           memchr(p, '\0', n);
}

/* False: more must come first. */
static bool take_head(front *f, connection *c)
{
    head h;
    api_error e;
    const pesc_server *s = f->srv;
    head_rules rules = { s->hosts, s->n_hosts };
    head_state state = HEAD_PARTIAL;
    if (c->in.n == 0)
        str_free(&c->in); /* a connection that is idle has no memory */
    else if (has_news(c))
        state = head_parse(&h, c->in.p, c->in.n, &rules, &e);
    c->parsed = c->in.n;
    if (state == HEAD_PARTIAL) {
        watch(f, c, EPOLLIN | EPOLLRDHUP);
        return false;
    }
    if (!begin_exchange(f, c, &h))
        return false;
    if (state == HEAD_BAD)
        refuse(c, &e);
    else
        take_request(c, &h);
    drop_front(&c->in, state == HEAD_BAD ? c->in.n : h.size);
    c->parsed = 0;
    return true;
}

/* ---- the body, and the handler ---- */

/* A request whose handler runs on the thread for large bodies. */
typedef struct large_job {
    thread_job job;
    exchange *x; /* NULL: the handler has run */
} large_job;

void connection_run_large(thread_job *job)
{
    large_job *j = (large_job *)job;
    exchange_handle(j->x);
    j->x = NULL;
}

void connection_drop_large(thread_job *job)
{
    large_job *j = (large_job *)job;
    if (j->x)
        exchange_refuse_handling(j->x);
    mem_free(j);
}

static void handle(front *f, connection *c)
{
    exchange *x = c->x;
    large_job *j = x->body.n > LARGE_BODY ? mem_zalloc(1, sizeof *j) : NULL;
    c->state = CONNECTION_ANSWER;
    c->deadline = INFINITY;
    exchange_begin_handling(x);
    if (!j) {
        exchange_handle(x);
        return;
    }
    for (thread_job *done; (done = thread_queue_take(f->large, false));)
        mem_free(done);
    j->x = x;
    thread_queue_add(f->large, &j->job);
}

/* False: more must come first. */
static bool take_body(front *f, connection *c)
{
    api_error e;
    size_t used;
    exchange *x = c->x;
    body_state state = body_take(&c->body, c->in.p ? c->in.p : "", c->in.n, &used, &x->body, &e);
    drop_front(&c->in, used);
    if (!str_ok(&x->body))
        state = api_refuse(&e, 500, NULL, NULL, "there is not enough memory for the request")
                    ? state
                    : BODY_BAD;
    switch (state) {
    case BODY_PARTIAL:
        watch(f, c, EPOLLIN | EPOLLRDHUP);
        return false;
    case BODY_BAD:
        refuse(c, &e);
        return true;
    case BODY_WHOLE:
        handle(f, c);
    }
    return true;
}

/* ---- the answer ---- */

/* Takes the next part of the answer into `out`. Under the lock. */
static filling fill(connection *c)
{
    exchange *x = c->x;
    bool complete = x->state == EXCHANGE_COMPLETE;
    str_clear(&c->out);
    c->sent = 0;
    if (x->state == EXCHANGE_LEFT)
        return FILL_BREAKS;
    if (c->filled == FILL_NOTHING && !complete && !(x->stream && x->state == EXCHANGE_GENERATES))
        return FILL_NOTHING;
    bool chunked = x->stream && !c->old,
         bodiless = x->status == 204 || strcmp(x->method, "HEAD") == 0;
    if (c->filled == FILL_NOTHING) {
        c->keep &= !(x->stream && c->old);
        respond_head(x, c->old, !c->keep, &c->out);
    }
    size_t left = bodiless ? 0 : x->out.n - x->sent, n = left < SEND_BLOCK ? left : SEND_BLOCK;
    if (n) {
        if (chunked)
            str_printf(&c->out, "%zx\r\n", n);
        str_add(&c->out, x->out.p + x->sent, n);
        if (chunked)
            str_puts(&c->out, "\r\n");
        x->sent += n;
    }
    if (x->sent == x->out.n && x->stream) {
        str_clear(&x->out);
        x->sent = 0;
    }
    if (!str_ok(&c->out))
        return FILL_BREAKS;
    if (n < left)
        return FILL_PART;
    if (!complete)
        return FILL_ALL;
    if (chunked)
        str_puts(&c->out, "0\r\n\r\n");
    return str_ok(&c->out) ? FILL_END : FILL_BREAKS;
}

/* Sends `out`; false: the socket takes no more now, or the connection is closed. */
static bool send_out(front *f, connection *c)
{
    while (c->sent < c->out.n) {
        ssize_t n =
            send(c->fd, c->out.p + c->sent, c->out.n - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN) {
            connection_close(f, c);
            return false;
        }
        if (n < 0) {
            if (c->deadline == INFINITY)
                c->deadline = clock_seconds() + IDLE_SECONDS;
            if (c->filled == FILL_ALL)
                c->filled = FILL_PART; /* more may be there before all of this is sent */
            watch(f, c, EPOLLOUT | (c->half ? 0 : EPOLLRDHUP));
            return false;
        }
        c->sent += (size_t)n;
        c->deadline = INFINITY;
    }
    return true;
}

static void end_answer(front *f, connection *c)
{
    end_exchange(c, false);
    str_free(&c->out);
    c->sent = 0;
    c->served = true;
    c->state = c->keep ? CONNECTION_HEAD : CONNECTION_LINGER;
    c->deadline = clock_seconds() + (!c->keep      ? LINGER_SECONDS
                                     : c->in.n > 0 ? HEAD_SECONDS
                                                   : IDLE_SECONDS);
    if (c->keep)
        return;
    (void)shutdown(c->fd, SHUT_WR);
    watch(f, c, EPOLLIN);
}

/* False: the rest must come first, or the client must read. */
static bool send_answer(front *f, connection *c)
{
    pesc_server *s = f->srv;
    for (;;) {
        if (!send_out(f, c))
            return false;
        if (c->filled == FILL_END)
            break;
        if (c->filled == FILL_ALL) {
            c->filled = FILL_PART; /* when it goes on */
            watch(f, c, EPOLLRDHUP);
            return false;
        }
        pthread_mutex_lock(&s->lock);
        c->filled = fill(c);
        pthread_mutex_unlock(&s->lock);
        if (c->filled == FILL_BREAKS)
            connection_close(f, c);
        else if (c->filled == FILL_NOTHING)
            watch(f, c, EPOLLRDHUP);
        if (c->filled == FILL_BREAKS || c->filled == FILL_NOTHING)
            return false;
    }
    end_answer(f, c);
    return true;
}

/* ---- events ---- */

void connection_advance(front *f, connection *c)
{
    for (bool more = true; more;)
        switch (c->state) {
        case CONNECTION_HEAD:
            more = take_head(f, c);
            break;
        case CONNECTION_BODY:
            more = take_body(f, c);
            break;
        case CONNECTION_ANSWER:
            more = send_answer(f, c);
            break;
        case CONNECTION_LINGER:
        case CONNECTION_CLOSED:
            return;
        }
}

/* Takes what has come. */
static void receive(front *f, connection *c)
{
    ssize_t n = recv(c->fd, f->buffer, sizeof f->buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        connection_close(f, c);
        return;
    }
    if (c->state == CONNECTION_LINGER)
        return;
    double now = clock_seconds();
    if (c->state == CONNECTION_BODY)
        c->deadline = fmin(c->x->began + BODY_SECONDS, now + IDLE_SECONDS);
    else if (c->in.n == 0 && c->served)
        c->deadline = now + HEAD_SECONDS;
    str_add(&c->in, f->buffer, (size_t)n);
    if (!str_ok(&c->in))
        connection_close(f, c);
    else
        connection_advance(f, c);
}

void connection_event(front *f, connection *c, uint32_t events)
{
    if (c->state == CONNECTION_CLOSED)
        return;
    if (events & (EPOLLHUP | EPOLLERR)) {
        connection_close(f, c);
    } else if (c->state != CONNECTION_ANSWER) {
        receive(f, c);
    } else if (events & EPOLLRDHUP) {
        pthread_mutex_lock(&f->srv->lock);
        bool complete = c->x->state == EXCHANGE_COMPLETE;
        pthread_mutex_unlock(&f->srv->lock);
        c->keep = false;
        c->half = true;
        if (complete)
            connection_advance(f, c);
        else /* the client has closed its side: the answer is not made any more */
            connection_close(f, c);
    } else {
        connection_advance(f, c);
    }
}

void connection_deadline(front *f, connection *c)
{
    api_error e;
    if (c->state == CONNECTION_BODY) {
        api_refuse(&e, 408, "body_timeout", NULL,
                   "the body took more than %d seconds, or none of it came for %d", BODY_SECONDS,
                   IDLE_SECONDS);
    } else if (c->state == CONNECTION_HEAD && c->in.n > 0) {
        api_refuse(&e, 408, "head_timeout", NULL,
                   "the head of the request took more than %d seconds", HEAD_SECONDS);
        if (!begin_exchange(f, c, &(head){ 0 }))
            return;
    } else {
        connection_close(f, c);
        return;
    }
    refuse(c, &e);
    connection_advance(f, c);
}
