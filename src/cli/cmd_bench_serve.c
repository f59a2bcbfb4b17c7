/* cmd_bench_serve: requests on any server with OpenAI's interface, and how fast it answers. */
#include "cli/command.h"

#include "cli/show/progress.h"

#include <jansson.h>

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FIRST_ID = 100, LAST_ID = 400, READ = 1 << 16, MODELS = 1 << 20, REASON = 512 };

/* ---- an answer as it arrives: status, chunks, lines, events ---- */

typedef struct sse {
    int status;     /* of HTTP; 0: the head is not complete */
    bool done;      /* [DONE] has come, or the answer is complete */
    bool token;     /* the last event had text */
    int64_t tokens; /* that the server counted; -1: it has not said */
    /* inside */
    char *line;
    size_t n, cap;
    bool in_head, chunked;
    int64_t left; /* bytes of the chunk; -1: its size is being read */
    int64_t size; /* that has been read of it; -1: nothing */
    bool extension;
} sse;

static void sse_open(sse *s)
{
    *s = (sse){ .tokens = -1, .in_head = true, .left = -1, .size = -1 };
}

static void sse_close(sse *s)
{
    free(s->line);
    *s = (sse){ 0 };
}

static bool add(sse *s, char c)
{
    if (s->n + 1 >= s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 256;
        char *more = realloc(s->line, cap);
        if (!more)
            return false;
        s->line = more;
        s->cap = cap;
    }
    s->line[s->n++] = c;
    s->line[s->n] = '\0';
    return true;
}

static void take_head_line(sse *s)
{
    static const char chunked[] = "transfer-encoding: chunked";
    if (s->status == 0 && s->n > 12)
        s->status = (int)strtod(s->line + 9, NULL);
    else if (strncasecmp(s->line, chunked, sizeof chunked - 1) == 0)
        s->chunked = true;
    else if (s->n == 0)
        s->in_head = false;
}

static void take_event(sse *s, const char *data)
{
    json_t *v = json_loads(data, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    const json_t *text = json_object_get(choice, "text");
    const json_t *count = json_object_get(json_object_get(v, "usage"), "completion_tokens");
    if (!text)
        text = json_object_get(json_object_get(choice, "delta"), "content");
    s->token = json_string_length(text) > 0;
    if (json_is_integer(count))
        s->tokens = json_integer_value(count);
    json_decref(v);
}

/* A line of the body without its end; true: it was an event. */
static bool take_line(sse *s)
{
    static const char mark[] = "data: ";
    if (strncmp(s->line ? s->line : "", mark, sizeof mark - 1) != 0)
        return false;
    if (strcmp(s->line + sizeof mark - 1, "[DONE]") == 0)
        s->done = true;
    else
        take_event(s, s->line + sizeof mark - 1);
    return true;
}

/* A byte of the line with the size of the next chunk; an empty line ends the chunk before. A line
 * of the body may be cut by it, so it has no buffer. */
static void take_size(sse *s, char c)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit >= 0 && !s->extension && s->size < INT32_MAX)
        s->size = 16 * (s->size < 0 ? 0 : s->size) + digit;
    s->extension |= c == ';';
    if (c != '\n' || s->size < 0)
        return;
    s->left = s->size;
    s->done |= s->size == 0;
    s->size = -1;
    s->extension = false;
}

/* A byte of a line of the head or of the body; true: it ends an event. */
static bool take_byte(sse *s, char c)
{
    bool event = false;
    if (c != '\n') {
        if (c != '\r' && !add(s, c))
            s->done = true;
        return false;
    }
    if (s->in_head)
        take_head_line(s);
    else
        event = take_line(s);
    s->n = 0;
    if (s->line)
        s->line[0] = '\0';
    return event;
}

/* Takes bytes up to the end of the next event; returns how many. s->token tells about it. */
static size_t sse_feed(sse *s, const char *bytes, size_t n)
{
    s->token = false;
    for (size_t i = 0; i < n && !s->done; i++) {
        bool in_body = !s->in_head;
        if (in_body && s->chunked && s->left < 0) {
            take_size(s, bytes[i]);
            continue;
        }
        bool event = take_byte(s, bytes[i]);
        if (in_body && s->chunked && --s->left == 0)
            s->left = -1;
        if (event)
            return i + 1;
    }
    return n;
}

/* ---- the measurement ---- */

typedef struct stream {
    int fd; /* -1: free */
    char *request;
    size_t n, sent;
    sse answer;
    double began, first, last; /* first 0: no token yet */
} stream;

typedef struct samples {
    double *v;
    size_t n, cap;
} samples;

typedef struct load {
    const options *o;
    char host[256], port[8], prefix[256]; /* of the URL; an IPv6 address without its brackets */
    char headers[1024];                   /* Host, and the key if there is one */
    struct addrinfo *found, *address;     /* what the host resolves to; the one that is used */
    char *model;
    int64_t first_id, last_id; /* of the tokens of prompts; last_id is not used */
    stream *streams;
    struct pollfd *polls;
    size_t n_streams, n_active;
    int64_t started, finished, failed, tokens;
    int status;          /* of the first failure, like the server's sentence */
    char reason[REASON]; /* "": the server gave none */
    uint64_t drawn;
    samples first, between, whole;
} load;

static bool keep(samples *s, double v)
{
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 1024;
        double *more = realloc(s->v, cap * sizeof *more);
        if (!more)
            return false;
        s->v = more;
        s->cap = cap;
    }
    s->v[s->n++] = v;
    return true;
}

/* Uniform in [0, 1); the same numbers in every run. */
static double draw(load *l)
{
    l->drawn = l->drawn * 6364136223846793005u + 1442695040888963407u;
    return (double)(l->drawn >> 11) * 0x1p-53;
}

/* ---- the server ---- */

/* Cuts http://HOST[:PORT][/PREFIX][/v1] into its parts; HOST may be an IPv6 address in brackets.
 * False: it is none, or too long. */
static bool cut_url(load *l, const char *url)
{
    static const char scheme[] = "http://";
    if (strncmp(url, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *host = url + sizeof scheme - 1;
    bool brackets = *host == '[';
    host += brackets;
    size_t n_host = strcspn(host, brackets ? "]" : ":/");
    const char *rest = host + n_host + (brackets && host[n_host] == ']');
    bool has_port = *rest == ':';
    const char *port = has_port ? rest + 1 : "80";
    size_t n_port = strcspn(port, "/");
    const char *prefix = has_port ? port + n_port : rest;
    size_t n = strlen(prefix);
    while (n > 0 && prefix[n - 1] == '/')
        n--;
    if (n >= 3 && strncmp(prefix + n - 3, "/v1", 3) == 0)
        n -= 3;
    if (n_host == 0 || n_host >= sizeof l->host || n_port == 0 || n_port >= sizeof l->port ||
        n >= sizeof l->prefix || (brackets && host[n_host] != ']') || (n > 0 && *prefix != '/'))
        return false;
    snprintf(l->host, sizeof l->host, "%.*s", (int)n_host, host);
    snprintf(l->port, sizeof l->port, "%.*s", (int)n_port, port);
    snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)n, prefix);
    return true;
}

static pesc_status find_server(load *l, const char *url)
{
    if (!cut_url(l, url))
        return out_fail(PESC_USAGE, "bench serve: found \"%.100s\", expected http://HOST:PORT",
                        url);
    const struct addrinfo how = { .ai_socktype = SOCK_STREAM };
    int error = getaddrinfo(l->host, l->port, &how, &l->found);
    if (error)
        return out_fail(PESC_USAGE, "%s, port %s: %s", l->host, l->port, gai_strerror(error));
    const char *key = getenv("OPENAI_API_KEY");
    bool v6 = strchr(l->host, ':');
    int n = snprintf(l->headers, sizeof l->headers, "Host: %s%s%s:%s\r\n%s%s%s", v6 ? "[" : "",
                     l->host, v6 ? "]" : "", l->port, key ? "Authorization: Bearer " : "",
                     key ? key : "", key ? "\r\n" : "");
    return n < (int)sizeof l->headers
               ? PESC_OK
               : out_fail(PESC_USAGE, "bench serve: OPENAI_API_KEY is too long");
}

static int open_socket(const struct addrinfo *a, int flags)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0 && errno != EINPROGRESS) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Connects to the first address that answers: localhost may be ::1 first, where a server that
 * listens on 127.0.0.1 is not found. */
static int connect_first(load *l)
{
    int fd = -1;
    for (l->address = l->found; l->address; l->address = l->address->ai_next)
        if ((fd = open_socket(l->address, 0)) >= 0)
            break;
    return fd;
}

static pesc_status read_all(int fd, char *to, size_t cap, size_t *n)
{
    ssize_t got = 0;
    for (*n = 0; *n + 1 < cap && (got = recv(fd, to + *n, cap - 1 - *n, 0)) > 0;)
        *n += (size_t)got;
    to[*n] = '\0';
    return got < 0 ? out_fail(PESC_IO, "the server cannot be read: %s", strerror(errno)) : PESC_OK;
}

/* Prompts are of ids that are plain text in the vocabularies in use. A smaller vocabulary, where
 * the server says how large it is (as llama.cpp's and pesc's do), is used without its first
 * quarter. */
static void choose_ids(load *l, const json_t *model)
{
    json_int_t vocab =
        json_integer_value(json_object_get(json_object_get(model, "meta"), "n_vocab"));
    bool small = vocab > 0 && vocab < LAST_ID;
    l->first_id = small ? vocab / 4 : FIRST_ID;
    l->last_id = small ? vocab : LAST_ID;
}

/* The first model that the server lists; its answer is not chunked or has braces to look for. */
static pesc_status ask_model(load *l)
{
    char request[sizeof l->headers + sizeof l->prefix + 64];
    int fd = connect_first(l);
    if (fd < 0)
        return out_fail(PESC_IO, "%s, port %s: cannot connect: %s", l->host, l->port,
                        strerror(errno));
    int n =
        snprintf(request, sizeof request,
                 "GET %s/v1/models HTTP/1.1\r\n%sConnection: close\r\n\r\n", l->prefix, l->headers);
    char *answer = malloc(MODELS);
    size_t got = 0;
    pesc_status st = answer ? PESC_OK : out_nomem("an answer");
    if (st == PESC_OK && send(fd, request, (size_t)n, MSG_NOSIGNAL) != n)
        st = out_fail(PESC_IO, "the server cannot be written to: %s", strerror(errno));
    if (st == PESC_OK)
        st = read_all(fd, answer, MODELS, &got);
    char *body = st == PESC_OK ? strstr(answer, "\r\n\r\n") : NULL;
    body = body ? strchr(body, '{') : NULL;
    json_t *v = body ? json_loads(body, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    const json_t *first = json_array_get(json_object_get(v, "data"), 0);
    const char *id = json_string_value(json_object_get(first, "id"));
    choose_ids(l, first);
    if (st == PESC_OK && !id)
        st = out_fail(PESC_FORMAT, "the server lists no model at %s/v1/models: %.60s", l->prefix,
                      got ? answer : "(no answer)");
    if (st == PESC_OK && !(l->model = strdup(id)))
        st = out_nomem("the name of the model");
    json_decref(v);
    free(answer);
    close(fd);
    return st;
}

/* ---- requests ---- */

static char *make_body(load *l)
{
    json_t *ids = json_array();
    for (int64_t i = 0; i < l->o->prompt_tokens; i++)
        json_array_append_new(
            ids,
            json_integer(l->first_id + (json_int_t)(draw(l) * (double)(l->last_id - l->first_id))));
    json_t *v = json_pack("{s:s, s:o, s:I, s:f, s:b, s:b, s:{s:b}}", "model", l->model, "prompt",
                          ids, "max_tokens", (json_int_t)l->o->decode_tokens, "temperature", 0.0,
                          "ignore_eos", 1, "stream", 1, "stream_options", "include_usage", 1);
    char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
    json_decref(v);
    return text;
}

static pesc_status begin_request(load *l)
{
    size_t i = 0;
    while (l->streams[i].fd >= 0)
        i++;
    stream *s = &l->streams[i];
    char *body = make_body(l);
    size_t n = body ? strlen(body) : 0, cap = n + sizeof l->headers + sizeof l->prefix + 256;
    *s = (stream){ .fd = -1, .request = body ? malloc(cap) : NULL, .began = progress_clock() };
    if (s->request) {
        s->n = (size_t)snprintf(s->request, cap,
                                "POST %s/v1/completions HTTP/1.1\r\n%s"
                                "Content-Type: application/json\r\nContent-Length: %zu\r\n"
                                "Connection: close\r\n\r\n%s",
                                l->prefix, l->headers, n, body);
        s->fd = open_socket(l->address, SOCK_NONBLOCK);
    }
    free(body);
    if (!s->request)
        return out_nomem("a request");
    if (s->fd < 0) {
        pesc_status st = out_fail(PESC_IO, "cannot connect: %s", strerror(errno));
        free(s->request);
        return st;
    }
    sse_open(&s->answer);
    l->started++;
    l->n_active++;
    return PESC_OK;
}

/* Why a request failed: the status, and what the server said, which is the one line of its answer.
 */
static void keep_reason(load *l, const sse *answer)
{
    json_t *v = answer->line ? json_loads(answer->line, 0, NULL) : NULL;
    const json_t *error = json_object_get(v, "error");
    const char *text = json_string_value(json_object_get(error ? error : v, "message"));
    l->status = answer->status;
    if (answer->status == 200 && answer->done)
        text = "its answer has no text to measure";
    snprintf(l->reason, sizeof l->reason, "%s%s", text ? ": " : "", text ? text : "");
    json_decref(v);
}

static pesc_status end_request(load *l, stream *s, double now)
{
    bool good = s->answer.done && s->answer.status == 200 && s->first > 0;
    bool kept = !good || (keep(&l->first, s->first - s->began) && keep(&l->whole, now - s->began));
    l->finished++;
    l->failed += !good;
    if (!good && !l->status)
        keep_reason(l, &s->answer);
    if (good)
        l->tokens += s->answer.tokens > 0 ? s->answer.tokens : 0;
    close(s->fd);
    s->fd = -1;
    free(s->request);
    sse_close(&s->answer);
    l->n_active--;
    return kept ? PESC_OK : out_nomem("the measurements");
}

static pesc_status take_bytes(load *l, stream *s, const char *bytes, size_t n, double now)
{
    for (size_t at = 0; at < n && !s->answer.done;) {
        at += sse_feed(&s->answer, bytes + at, n - at);
        if (!s->answer.token)
            continue;
        if (s->first > 0 && !keep(&l->between, now - s->last))
            return out_nomem("the measurements");
        s->first = s->first > 0 ? s->first : now;
        s->last = now;
    }
    return PESC_OK;
}

static pesc_status serve_one(load *l, stream *s, short events)
{
    static char bytes[READ];
    double now = progress_clock();
    if ((events & POLLOUT) && s->sent < s->n) {
        ssize_t n = send(s->fd, s->request + s->sent, s->n - s->sent, MSG_NOSIGNAL);
        if (n > 0)
            s->sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN)
            return end_request(l, s, now);
    }
    if (!(events & (POLLIN | POLLHUP | POLLERR)))
        return PESC_OK;
    ssize_t n = recv(s->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n > 0)
        TRY(take_bytes(l, s, bytes, (size_t)n, now));
    bool closed = n == 0 || (n < 0 && errno != EAGAIN);
    return closed || s->answer.done ? end_request(l, s, now) : PESC_OK;
}

/* ---- the run ---- */

static pesc_status wait_and_serve(load *l, double until)
{
    double left = until - progress_clock();
    int ms = left <= 0 ? 0 : left > 1 ? 1000 : (int)ceil(left * 1000);
    for (size_t i = 0; i < l->n_streams; i++) {
        const stream *s = &l->streams[i];
        l->polls[i] = (struct pollfd){ s->fd, POLLIN | (s->sent < s->n ? POLLOUT : 0), 0 };
    }
    if (poll(l->polls, l->n_streams, ms) <= 0)
        return PESC_OK;
    for (size_t i = 0; i < l->n_streams; i++)
        if (l->polls[i].fd >= 0 && l->polls[i].revents)
            TRY(serve_one(l, &l->streams[i], l->polls[i].revents));
    return PESC_OK;
}

static pesc_status send_all(load *l)
{
    const options *o = l->o;
    double next = progress_clock();
    while (l->finished < o->requests) {
        bool more = l->started < o->requests && l->n_active < l->n_streams;
        if (more && (o->rate == 0 || progress_clock() >= next)) {
            TRY(begin_request(l));
            next += o->rate > 0 ? -log(1 - draw(l)) / o->rate : 0;
            continue;
        }
        TRY(wait_and_serve(l, more ? next : progress_clock() + 1));
        progress_show("requests", (uint64_t)l->finished, (uint64_t)o->requests);
    }
    progress_clear();
    return PESC_OK;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const samples *s, double q)
{
    return s->n ? s->v[(size_t)(q * (double)(s->n - 1) + 0.5)] : NAN;
}

static void print_times(const char *key, samples *s, bool json)
{
    double p50, p90, p99;
    if (s->n)
        qsort(s->v, s->n, sizeof *s->v, ascending);
    p50 = 1000 * quantile(s, 0.5);
    p90 = 1000 * quantile(s, 0.9);
    p99 = 1000 * quantile(s, 0.99);
    if (!json) {
        printf("%-14s p50 %.1f, p90 %.1f, p99 %.1f ms\n", key, p50, p90, p99);
        return;
    }
    out_object(key, "p50_ms=%.6g p90_ms=%.6g p99_ms=%.6g", p50, p90, p99);
}

static void print_load(load *l, double seconds)
{
    bool json = l->o->json;
    double rate = (double)l->tokens / seconds;
    double answers = (double)(l->finished - l->failed) / seconds;
    if (json) {
        out_begin(NULL, '{');
        out_fields("model=%s requests=%ld failed=%ld tokens=%ld seconds=%.6g "
                   "requests_per_second=%.6g tokens_per_second=%.6g",
                   l->model, l->finished, l->failed, l->tokens, seconds, answers, rate);
    } else {
        printf("model          %s\nrequests       %lld, %lld failed, in %.2f s: %.2f a second\n"
               "throughput     %.1f tokens/s\n",
               l->model, (long long)l->finished, (long long)l->failed, seconds, answers, rate);
    }
    print_times("first_token", &l->first, json);
    print_times("inter_token", &l->between, json);
    print_times("request", &l->whole, json);
    if (json)
        out_end();
}

static pesc_status measure(load *l)
{
    const options *o = l->o;
    TRY(find_server(l, o->url));
    TRY(ask_model(l));
    l->n_streams = (size_t)(o->rate > 0 ? o->requests : o->streams);
    l->streams = calloc(l->n_streams, sizeof *l->streams);
    l->polls = calloc(l->n_streams, sizeof *l->polls);
    if (!l->streams || !l->polls)
        return out_nomem("the requests");
    for (size_t i = 0; i < l->n_streams; i++)
        l->streams[i].fd = -1;
    double began = progress_clock();
    TRY(send_all(l));
    if (l->failed == l->finished)
        return out_fail(PESC_IO, "all %lld requests failed, the first with status %d%s",
                        (long long)l->failed, l->status, l->reason);
    print_load(l, progress_clock() - began);
    return PESC_OK;
}

pesc_status bench_serve(const options *o)
{
    load l = { .o = o, .drawn = 1 };
    pesc_status st = measure(&l);
    for (size_t i = 0; l.streams && i < l.n_streams; i++)
        if (l.streams[i].fd >= 0) {
            close(l.streams[i].fd);
            free(l.streams[i].request);
            sse_close(&l.streams[i].answer);
        }
    if (l.found)
        freeaddrinfo(l.found);
    free(l.streams);
    free(l.polls);
    free(l.model);
    free(l.first.v);
    free(l.between.v);
    free(l.whole.v);
    return st;
}
