/* Requests and answers over libmicrohttpd. One thread serves all connections, so nothing here
 * waits. A connection whose answer is being generated is suspended, and resumed by the engine; so
 * is one whose body is large, while a thread of its own parses and tokenises it. */
#include "serve/exchange.h"

#include "base/clock.h"
#include "base/mem.h"
#include "serve/head.h"

#include <microhttpd.h>

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    BODY_SECONDS = 30,      /* for a whole body */
    MEMORY = 64 << 10,      /* of a connection, for libmicrohttpd */
    EVENT_BLOCK = 16 << 10, /* bytes that are read from `out` at a time */
    LARGE_BODY = 16 << 10,  /* bytes above which a body would delay the other connections */
};

/* ---- answers ---- */

const char *http_reason(int status)
{
    return MHD_get_reason_phrase_for((unsigned)status);
}

void http_send_error(int fd, const api_error *e)
{
    str body = { 0 }, all = { 0 };
    api_error_json(e, &body);
    str_printf(&all,
               "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
               "Connection: close\r\n\r\n%s",
               e->status, http_reason(e->status), body.n, body.p ? body.p : "");
    if (str_ok(&all))
        (void)send(fd, all.p, all.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
    str_free(&body);
    str_free(&all);
}

static const char *header_of(const exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, name);
}

static const char *allowed_origin(const exchange *x)
{
    const pesc_serve_options *o = &x->srv->opt;
    const char *origin = header_of(x, "Origin");
    for (size_t i = 0; origin && i < o->n_cors_origin; i++)
        if (strcmp(origin, o->cors_origin[i]) == 0)
            return o->cors_origin[i];
    return NULL;
}

/* Whatever the page shows, the browser runs no other script than the page's own, and asks no other
 * server for anything. */
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

static void add_headers(const exchange *x, struct MHD_Response *r)
{
    char retry[16];
    const char *origin = allowed_origin(x);
    /* clients send headers of their own, such as X-Stainless-Lang; an origin that is listed may */
    const char *asked = header_of(x, "Access-Control-Request-Headers");
    snprintf(retry, sizeof retry, "%d", x->retry_after);
    const struct {
        bool when;
        const char *name, *value;
    } rows[] = {
        { true, "Content-Type", x->type },
        { true, "X-Request-Id", x->id },
        { true, "X-Content-Type-Options", "nosniff" },
        { x->stream || x->page, "Cache-Control", "no-cache" },
        { x->page, "Content-Security-Policy", page_policy },
        { x->page, "Referrer-Policy", "no-referrer" },
        { x->page, "Cross-Origin-Opener-Policy", "same-origin" },
        { x->stream, "X-Accel-Buffering", "no" },
        { x->allow, "Allow", x->allow },
        { x->status == 401, "WWW-Authenticate", "Bearer" },
        { x->retry_after, "Retry-After", retry },
        { x->status == 429, "X-Should-Retry", "true" },
        { x->ignored.n, "X-Pesc-Ignored", x->ignored.p },
        { x->srv->opt.n_cors_origin, "Vary", "Origin" },
        { origin, "Access-Control-Allow-Origin", origin },
        { origin && x->status == 204, "Access-Control-Allow-Methods", "GET, POST, OPTIONS" },
        { origin && x->status == 204, "Access-Control-Allow-Headers", asked },
        { origin && x->status == 204, "Access-Control-Max-Age", "600" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].when && rows[i].value)
            MHD_add_response_header(r, rows[i].name, rows[i].value);
}

static enum MHD_Result respond(exchange *x, struct MHD_Response *r)
{
    if (!r)
        return MHD_NO;
    add_headers(x, r);
    x->queued = true;
    enum MHD_Result done = MHD_queue_response(x->conn, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result respond_whole(exchange *x)
{
    return respond(x, MHD_create_response_from_buffer(x->out.n, x->out.p ? x->out.p : (char *)"",
                                                      MHD_RESPMEM_MUST_COPY));
}

/* Called by libmicrohttpd for more of a stream. */
static ssize_t read_events(void *ud, uint64_t pos, char *to, size_t max)
{
    exchange *x = ud;
    ssize_t result = 0;
    (void)pos;
    pthread_mutex_lock(&x->srv->lock);
    size_t left = x->out.n - x->sent, n = left < max ? left : max;
    if (n > 0 && !x->broken) {
        memcpy(to, x->out.p + x->sent, n);
        x->sent += n;
        if (x->sent == x->out.n) {
            str_clear(&x->out);
            x->sent = 0;
        }
        result = (ssize_t)n;
    } else if (x->broken) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (x->finished) {
        result = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->suspended = true;
        MHD_suspend_connection(x->conn);
    }
    pthread_mutex_unlock(&x->srv->lock);
    return result;
}

static enum MHD_Result respond_stream(exchange *x)
{
    return respond(
        x, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BLOCK, read_events, x, NULL));
}

/* ---- the head ---- */

static enum MHD_Result add_field(void *ud, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    (void)kind;
    str_printf(ud, "%s: %s\r\n", name, value ? value : "");
    return MHD_YES;
}

/* The rules of head.h hold for every request of a connection, not only for the first. */
static bool check_head(exchange *x, const char *method, const char *url, const char *version,
                       api_error *e)
{
    str head = { 0 };
    head_rules rules = { x->srv->hosts, x->srv->n_hosts };
    str_printf(&head, "%s %s %s\r\n", method, url, version);
    MHD_get_connection_values(x->conn, MHD_HEADER_KIND, add_field, &head);
    str_puts(&head, "\r\n");
    head_state s = str_ok(&head) ? head_check(head.p, head.n, &rules, e) : HEAD_PARTIAL;
    str_free(&head);
    if (s == HEAD_PARTIAL)
        return api_refuse(e, 500, NULL, NULL, "there is not enough memory for the request");
    return s == HEAD_GOOD;
}

static bool check_key(exchange *x, api_error *e)
{
    static const char scheme[] = "Bearer ";
    const pesc_server *s = x->srv;
    const char *key = header_of(x, "X-Api-Key"), *bearer = header_of(x, "Authorization");
    if (s->n_keys == 0 || x->route->open)
        return true;
    if (!key && bearer && strncasecmp(bearer, scheme, sizeof scheme - 1) == 0)
        key = bearer + sizeof scheme - 1;
    if (key && (x->key = apikeys_match(s, key, strlen(key))))
        return true;
    return api_refuse(e, 401, "invalid_api_key", NULL,
                      key ? "the API key is not one of this server's"
                          : "an API key is needed: Authorization: Bearer KEY");
}

static bool check_type(const exchange *x, api_error *e)
{
    static const char json[] = "application/json";
    const char *type = header_of(x, "Content-Type");
    size_t n = sizeof json - 1;
    if (strcmp(x->method, "POST") != 0)
        return true;
    if (type && strncasecmp(type, json, n) == 0 && (type[n] == '\0' || strchr("; \t", type[n])))
        return true;
    return api_refuse(e, 415, "not_json", NULL, "Content-Type must be application/json");
}

static void read_address(exchange *x)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a)->sin_addr, x->address,
                  sizeof x->address);
    else if (a && a->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, x->address,
                  sizeof x->address);
}

static exchange *new_exchange(pesc_server *s, struct MHD_Connection *c)
{
    uint64_t name;
    exchange *x = mem_zalloc(1, sizeof *x);
    if (!x)
        return NULL;
    x->srv = s;
    x->conn = c;
    x->type = "application/json";
    x->began = x->pushed = clock_seconds();
    x->fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    if (getrandom(&name, sizeof name, 0) != sizeof name)
        name = 0;
    snprintf(x->id, sizeof x->id, "req-%016llx", (unsigned long long)name);
    read_address(x);
    gate_serves(s->gate, x->fd, true);
    pthread_mutex_lock(&s->lock);
    x->number = ++s->n_exchanges;
    x->next = s->live;
    if (x->next)
        x->next->prev = x;
    s->live = x;
    pthread_mutex_unlock(&s->lock);
    return x;
}

/* The first call for a request: its head is complete, its body is not. */
static enum MHD_Result begin(exchange *x, const char *method, const char *url, const char *version)
{
    api_error e = { 0 };
    snprintf(x->method, sizeof x->method, "%s", method);
    snprintf(x->path, sizeof x->path, "%s", url);
    bool good = check_head(x, method, url, version, &e) &&
                (x->route = route_find(x, method, url, &e)) && check_key(x, &e) &&
                check_type(x, &e);
    if (good)
        return MHD_YES;
    exchange_fail(x, &e);
    return respond_whole(x);
}

/* ---- the body, and what follows ---- */

static enum MHD_Result take_body(exchange *x, const char *data, size_t *n)
{
    api_error e;
    x->too_large |= x->body.n + *n > API_MAX_BODY;
    if (!x->too_large)
        str_add(&x->body, data, *n);
    *n = 0;
    if (x->too_large)
        api_refuse(&e, 413, "body_too_large", NULL, "the body has more than %d bytes",
                   API_MAX_BODY);
    else if (clock_seconds() - x->began > BODY_SECONDS)
        api_refuse(&e, 408, "body_timeout", NULL, "the body took more than %d seconds",
                   BODY_SECONDS);
    else
        return MHD_YES;
    /* libmicrohttpd takes no answer before the end of a body */
    x->status = e.status;
    http_send_error(x->fd, &e);
    return MHD_NO;
}

static enum MHD_Result respond_now(exchange *x)
{
    return x->stream ? respond_stream(x) : respond_whole(x);
}

/* Under the lock. */
static void watch(exchange *x)
{
    x->watched = true;
    x->srv->n_active++;
    gate_watch(x->srv->gate, x->fd, x->number);
}

static void suspend(exchange *x)
{
    x->suspended = true;
    MHD_suspend_connection(x->conn);
}

/* An exchange whose handler runs on the thread for large bodies. */
typedef struct large_job {
    thread_job job;
    exchange *x; /* NULL: the handler has run */
} large_job;

/* The answer is there, or the engine makes it. */
static void end_large(large_job *j)
{
    exchange *x = j->x;
    pthread_mutex_lock(&x->srv->lock);
    j->x = NULL;
    x->preparing = false;
    x->finished |= !x->call;
    if (x->broken && x->call)
        engine_cancel(x->srv, x->call);
    if (x->finished || x->stream || x->broken)
        exchange_resume(x);
    pthread_mutex_unlock(&x->srv->lock);
}

static void run_large(thread_job *job)
{
    large_job *j = (large_job *)job;
    j->x->route->handle(j->x);
    end_large(j);
}

static void drop_large(thread_job *job)
{
    large_job *j = (large_job *)job;
    api_error e = { 0 };
    if (j->x) {
        api_refuse(&e, 503, "shutting_down", NULL, "the server is shutting down");
        exchange_fail(j->x, &e);
        end_large(j);
    }
    mem_free(j);
}

static enum MHD_Result handle_large(exchange *x, large_job *j)
{
    pesc_server *s = x->srv;
    for (thread_job *done; (done = thread_queue_take(s->large, false));)
        mem_free(done);
    j->x = x;
    pthread_mutex_lock(&s->lock);
    x->preparing = true;
    watch(x);
    suspend(x);
    pthread_mutex_unlock(&s->lock);
    thread_queue_add(s->large, &j->job);
    return MHD_YES;
}

/* Runs the handler; then the answer is there or the engine makes it. */
static enum MHD_Result handle(exchange *x)
{
    pesc_server *s = x->srv;
    large_job *j = x->body.n > LARGE_BODY ? mem_zalloc(1, sizeof *j) : NULL;
    x->started = true;
    if (j)
        return handle_large(x, j);
    x->route->handle(x);
    pthread_mutex_lock(&s->lock);
    bool waits = x->call && !x->finished && !x->stream;
    if (x->call && !x->finished)
        watch(x);
    if (waits)
        suspend(x);
    pthread_mutex_unlock(&s->lock);
    return waits ? MHD_YES : respond_now(x);
}

static enum MHD_Result on_request(void *ud, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **state)
{
    exchange *x = *state;
    if (!x) {
        *state = x = new_exchange(ud, c);
        return x ? begin(x, method, url, version) : MHD_NO;
    }
    if (x->queued)
        return MHD_YES;
    if (*n > 0)
        return take_body(x, data, n);
    if (!x->started)
        return handle(x);
    return x->broken ? MHD_NO : respond_now(x);
}

static void write_log(const exchange *x, int status)
{
    const pesc_serve_options *o = &x->srv->opt;
    double seconds = clock_seconds() - x->began;
    str line = { 0 };
    if (!o->log)
        return;
    if (o->log_json) {
        json_t *v =
            json_pack("{s:f, s:s, s:s, s:s, s:s, s:i, s:f, s:I, s:I}", "time", clock_wall(), "id",
                      x->id, "address", x->address, "method", x->method, "path", x->path, "status",
                      status, "seconds", seconds, "prompt_tokens", (json_int_t)x->prompt_tokens,
                      "generated_tokens", (json_int_t)x->generated_tokens);
        if (v)
            json_put(&line, v, JSON_COMPACT);
        json_decref(v);
    } else {
        str_printf(&line, "%s %s %s %d %.3fs %lld+%lld %s", x->address, x->method, x->path, status,
                   seconds, (long long)x->prompt_tokens, (long long)x->generated_tokens, x->id);
    }
    if (str_ok(&line) && line.n)
        o->log(o->ud, line.p);
    str_free(&line);
}

static void on_completed(void *ud, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode code)
{
    exchange *x = *state;
    pesc_server *s = ud;
    (void)c;
    *state = NULL;
    if (!x)
        return;
    bool left = x->broken || (code != MHD_REQUEST_TERMINATED_COMPLETED_OK && x->status < 400);
    int status = left ? 499 : x->status;
    write_log(x, status); /* not under the lock: the log may be slow */
    gate_serves(s->gate, x->fd, false);
    pthread_mutex_lock(&s->lock);
    x->conn = NULL;
    x->suspended = false;
    if (x->watched)
        gate_unwatch(s->gate, x->fd);
    s->n_active -= x->watched;
    s->metrics.disconnects += left;
    metrics_count(&s->metrics, x->route ? x->route->endpoint : 0, status);
    if (x->call)
        engine_cancel(s, x->call); /* which frees the exchange at the end of the call */
    else
        exchange_free(x);
    pthread_mutex_unlock(&s->lock);
}

static void on_connection(void *ud, struct MHD_Connection *c, void **state,
                          enum MHD_ConnectionNotificationCode code)
{
    pesc_server *s = ud;
    (void)state;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED)
        gate_closed(s->gate,
                    MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
}

/* ---- the daemon ---- */

/* Paths are compared as they are sent. */
static size_t keep_escapes(void *ud, struct MHD_Connection *c, char *text)
{
    (void)ud;
    (void)c;
    return strlen(text);
}

static void no_log(void *ud, const char *format, va_list args)
{
    (void)ud;
    (void)format;
    (void)args;
}

pesc_status http_open(pesc_server *s)
{
    TRY(thread_queue_open(&s->large, 1, run_large));
    unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET;
    s->daemon = MHD_start_daemon(
        flags | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, no_log,
        NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->opt.max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)HTTP_IDLE_SECONDS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)MEMORY, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    return s->daemon ? PESC_OK : fail(PESC_DEVICE, "the HTTP library cannot start its thread");
}

void http_close(pesc_server *s)
{
    thread_queue_close(s->large, drop_large);
    s->large = NULL;
    if (s->daemon)
        MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
}

void http_take(pesc_server *s, int fd, const void *address, size_t n)
{
    if (MHD_add_connection(s->daemon, fd, address, (socklen_t)n) != MHD_YES)
        gate_closed(s->gate, fd); /* the library has closed it */
}
