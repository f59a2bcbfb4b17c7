#include "eval/webclient.h"

#include "base/clock.h"
#include "base/mem.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <dlfcn.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ANSWER = 64 << 20, MAX_WAIT = 300, CONNECT_SECONDS = 30, MAX_URL = 2000 };

/* ---- the library ---- */

#define FUNCTIONS(X)                                                                               \
    X(global_init)                                                                                 \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_cleanup)                                                                                \
    X(easy_strerror)                                                                               \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(multi_init)                                                                                  \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_poll)                                                                                  \
    X(multi_info_read)                                                                             \
    X(multi_cleanup)
#define FUNCTION(name) __typeof__(&curl_##name) name;
static struct {
    FUNCTIONS(FUNCTION)
} curl;
static bool loaded;

static void load(void)
{
    void *dl = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    bool all = dl != NULL;
    void *found;
#define TAKE(name)                                                                                 \
    found = all ? dlsym(dl, "curl_" #name) : NULL;                                                 \
    all = found != NULL;                                                                           \
    memcpy(&curl.name, &found, sizeof found);
    FUNCTIONS(TAKE)
    loaded = all && curl.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

/* ---- a client ---- */

typedef struct transfer {
    struct transfer *next;
    web_request ask;
    char *url, *body; /* body NULL: GET */
    str answer;
    CURL *easy; /* NULL: it waits until `due` */
    int64_t tries;
    double due;
    char why[CURL_ERROR_SIZE];
} transfer;

struct webclient {
    CURLM *multi;
    struct curl_slist *headers;
    char *base;
    bool local;  /* on this machine: a proxy of the environment is not for it */
    long status; /* of the last answer; 0: the server was never reached */
    web_options opt;
    transfer *first; /* all, in the order in which they were added */
    size_t n;
    int64_t n_active;
};

static bool is_local(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    return str_starts(host, "127.") || str_starts(host, "localhost") || str_starts(host, "[::1]");
}

static pesc_status take_address(webclient *c, const char *url)
{
    size_t n = strlen(url);
    const size_t scheme = str_starts(url, "http://") ? 7 : str_starts(url, "https://") ? 8 : 0;
    bool fine = scheme && url[scheme] && url[scheme] != '/';
    for (const char *p = url; *p; p++)
        fine = fine && (unsigned char)*p > ' ' && !strchr("@?#\\\x7f", *p);
    if (!fine || n > MAX_URL)
        return fail(PESC_USAGE, "found \"%.200s\", expected http://HOST:PORT or https://HOST/v1",
                    url);
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n > scheme + 3 && memcmp(url + n - 3, "/v1", 3) == 0)
        n -= 3;
    c->base = mem_zalloc(n + 4, 1);
    if (!c->base)
        return fail_nomem("an address", n);
    snprintf(c->base, n + 4, "%.*s/v1", (int)n, url);
    c->local = is_local(c->base);
    return PESC_OK;
}

static pesc_status add_header(webclient *c, const char *text)
{
    struct curl_slist *more = curl.slist_append(c->headers, text);
    if (!more)
        return fail_nomem("a request", strlen(text));
    c->headers = more;
    return PESC_OK;
}

static pesc_status take_key(webclient *c, const char *key)
{
    str text = { 0 };
    for (const char *p = key ? key : ""; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f)
            return fail(PESC_USAGE, "the key of %s has a character that no key has", c->base);
    TRY(add_header(c, "Content-Type: application/json"));
    TRY(add_header(c, "Expect:")); /* the body is sent at once */
    if (!key || !*key)
        return PESC_OK;
    str_printf(&text, "Authorization: Bearer %s", key);
    pesc_status s = str_ok(&text) ? add_header(c, text.p) : fail_nomem("a key", text.n);
    str_free(&text);
    return s;
}

static pesc_status prepare(webclient *c)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (!loaded)
        return fail(PESC_DEVICE, "talking to a server needs libcurl, which cannot be loaded; "
                                 "install Debian's libcurl4");
    TRY(take_address(c, c->opt.url));
    TRY(take_key(c, c->opt.key));
    c->multi = curl.multi_init();
    return c->multi ? PESC_OK : fail_nomem("requests", 0);
}

pesc_status webclient_open(webclient **out, const web_options *opt)
{
    *out = NULL;
    webclient *c = mem_zalloc(1, sizeof *c);
    if (!c)
        return fail_nomem("a client", sizeof *c);
    c->opt = *opt;
    pesc_status s = prepare(c);
    if (s == PESC_OK)
        *out = c;
    else
        webclient_close(c);
    return s;
}

static void disconnect(webclient *c, transfer *t)
{
    if (!t->easy)
        return;
    curl.multi_remove_handle(c->multi, t->easy);
    curl.easy_cleanup(t->easy);
    t->easy = NULL;
    c->n_active--;
}

static void transfer_free(transfer *t)
{
    json_decref(t->ask.body);
    mem_free(t->url);
    mem_free(t->body);
    str_free(&t->answer);
    mem_free(t);
}

static void take_out(webclient *c, transfer *t)
{
    transfer **at = &c->first;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    c->n--;
}

void webclient_close(webclient *c)
{
    if (!c)
        return;
    while (c->first) {
        transfer *t = c->first;
        disconnect(c, t);
        take_out(c, t);
        if (t->ask.drop)
            t->ask.drop(t->ask.ud);
        transfer_free(t);
    }
    if (c->multi)
        curl.multi_cleanup(c->multi);
    if (c->headers)
        curl.slist_free_all(c->headers);
    mem_free(c->base);
    mem_free(c);
}

const char *webclient_address(const webclient *c)
{
    return c->base;
}

long webclient_status(const webclient *c)
{
    return c->status;
}

size_t webclient_left(const webclient *c)
{
    return c->n;
}

/* ---- a request is sent ---- */

pesc_status webclient_add(webclient *c, web_request r)
{
    str url = { 0 }, body = { 0 };
    transfer *t = mem_zalloc(1, sizeof *t), **at = &c->first;
    str_printf(&url, "%s%s", c->base, r.path);
    if (r.body)
        json_put(&body, r.body, JSON_COMPACT);
    if (!t || !str_ok(&url) || !str_ok(&body)) {
        json_decref(r.body);
        str_free(&url);
        str_free(&body);
        mem_free(t);
        return fail_nomem("a request", body.n);
    }
    *t = (transfer){ .ask = r, .url = url.p, .body = body.p, .answer.max = MAX_ANSWER };
    while (*at)
        at = &(*at)->next;
    *at = t;
    c->n++;
    return PESC_OK;
}

static size_t receive(char *bytes, size_t size, size_t n, void *ud)
{
    str *to = ud;
    str_add(to, bytes, size * n);
    return str_ok(to) ? size * n : 0;
}

static pesc_status begin(webclient *c, transfer *t)
{
    CURL *e = t->easy = curl.easy_init();
    if (!e)
        return fail_nomem("a request", 0);
    c->n_active++;
    t->tries++;
    str_clear(&t->answer);
    t->why[0] = '\0';
    curl.easy_setopt(e, CURLOPT_URL, t->url);
    curl.easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    curl.easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(e, CURLOPT_USERAGENT, "pesc/" PESC_VERSION);
    curl.easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl.easy_setopt(e, CURLOPT_TIMEOUT_MS, (long)(1000 * c->opt.timeout));
    curl.easy_setopt(e, CURLOPT_ERRORBUFFER, t->why);
    curl.easy_setopt(e, CURLOPT_PRIVATE, t);
    curl.easy_setopt(e, CURLOPT_WRITEFUNCTION, receive);
    curl.easy_setopt(e, CURLOPT_WRITEDATA, &t->answer);
    if (c->local)
        curl.easy_setopt(e, CURLOPT_PROXY, "");
    if (t->body) {
        curl.easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
        curl.easy_setopt(e, CURLOPT_POSTFIELDS, t->body);
    }
    return curl.multi_add_handle(c->multi, e) == CURLM_OK ? PESC_OK : fail_nomem("a request", 0);
}

/* Begins what may begin; the time until the next request is due, at most `wait`. */
static pesc_status begin_all(webclient *c, double *wait)
{
    double now = clock_seconds();
    for (transfer *t = c->first; t && c->n_active < c->opt.streams; t = t->next) {
        if (t->easy)
            continue;
        if (t->due <= now)
            TRY(begin(c, t));
        else if (t->due - now < *wait)
            *wait = t->due - now;
    }
    return PESC_OK;
}

/* ---- an answer ---- */

static pesc_status refuse_status(const transfer *t, long status)
{
    char *to = NULL;
    json_t *v = NULL;
    pesc_status s;
    if (status >= 300 && status < 400) {
        curl.easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
        return fail(PESC_IO,
                    "%s: answers %ld and sends to %.300s, where the key is not sent; give the "
                    "address that is meant",
                    t->url, status, to ? to : "another address");
    }
    (void)json_parse_loose(&v, t->answer.p, t->answer.n, t->url);
    const json_t *error = json_object_get(v, "error");
    const char *text = json_string_value(json_object_get(error, "message"));
    if (!text)
        text = json_string_value(json_is_string(error) ? error : json_object_get(v, "message"));
    s = fail(PESC_IO, "%s: answers %ld%s%.300s", t->url, status, text ? ": " : "",
             text ? text : "");
    json_decref(v);
    return s;
}

static pesc_status take_answer(const transfer *t)
{
    json_t *v = NULL;
    pesc_status s = json_parse_loose(&v, t->answer.p ? t->answer.p : "", t->answer.n, t->url);
    if (s == PESC_FORMAT || (s == PESC_OK && !json_is_object(v)))
        s = fail(PESC_FORMAT, "%s: found \"%.80s\", expected a JSON object", t->url,
                 t->answer.p ? t->answer.p : "");
    if (s == PESC_OK)
        s = t->ask.done(t->ask.ud, v);
    else if (t->ask.drop)
        t->ask.drop(t->ask.ud);
    json_decref(v);
    return s;
}

/* Whether it is worth while to ask once more. */
static bool is_passing(const webclient *c, CURLcode code, long status)
{
    switch (code) {
    case CURLE_OK:
        return status == 408 || status == 429 || status >= 500;
    case CURLE_COULDNT_CONNECT: /* a server that was never reached is a wrong address */
        return c->status != 0;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
        return true;
    default:
        return false;
    }
}

static pesc_status refuse(const transfer *t, CURLcode code, long status)
{
    if (code == CURLE_OK)
        return refuse_status(t, status);
    if (t->answer.full)
        return fail(PESC_FORMAT, "%s: answers more than %d MiB", t->url, MAX_ANSWER >> 20);
    if (t->answer.failed)
        return fail_nomem("an answer", t->answer.n);
    return fail(PESC_IO, "%s: %s", t->url, t->why[0] ? t->why : curl.easy_strerror(code));
}

/* Puts a request back; false: it has been asked often enough. */
static bool put_off(webclient *c, transfer *t)
{
    curl_off_t asked = 0;
    double wait = 0.5 * (double)(1 << (t->tries < 8 ? t->tries - 1 : 7));
    if (t->tries > c->opt.retries)
        return false;
    curl.easy_getinfo(t->easy, CURLINFO_RETRY_AFTER, &asked);
    if (asked > 0)
        wait = asked < MAX_WAIT ? (double)asked : MAX_WAIT;
    t->due = clock_seconds() + wait;
    disconnect(c, t);
    return true;
}

static pesc_status finish(webclient *c, transfer *t, CURLcode code)
{
    long status = 0;
    curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    bool fine = code == CURLE_OK && status >= 200 && status < 300;
    if (code == CURLE_OK)
        c->status = status;
    if (!fine && is_passing(c, code, status) && put_off(c, t))
        return PESC_OK;
    pesc_status s = fine ? PESC_OK : refuse(t, code, status);
    disconnect(c, t);
    take_out(c, t);
    if (fine)
        s = take_answer(t);
    else if (t->ask.drop)
        t->ask.drop(t->ask.ud);
    transfer_free(t);
    return s;
}

static pesc_status finish_all(webclient *c, bool *any)
{
    int left;
    for (CURLMsg *m; (m = curl.multi_info_read(c->multi, &left));) {
        transfer *t = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode code = m->data.result; /* the message does not outlive its handle */
        curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        *any = true;
        TRY(finish(c, t, code));
    }
    return PESC_OK;
}

static pesc_status advance(webclient *c, bool *any)
{
    int running;
    CURLMcode code = curl.multi_perform(c->multi, &running);
    return code == CURLM_OK ? finish_all(c, any)
                            : fail(PESC_IO, "%s: libcurl fails with code %d", c->base, (int)code);
}

pesc_status webclient_step(webclient *c, double wait)
{
    bool any = false;
    TRY(begin_all(c, &wait));
    TRY(advance(c, &any));
    if (any || c->n == 0 || wait <= 0)
        return PESC_OK;
    if (curl.multi_poll(c->multi, NULL, 0, 1 + (int)(1000 * wait), NULL) != CURLM_OK)
        return fail(PESC_IO, "%s: libcurl cannot wait for answers", c->base);
    return advance(c, &any);
}

static pesc_status keep_answer(void *ud, const json_t *answer)
{
    *(json_t **)ud = json_incref((json_t *)(uintptr_t)answer);
    return PESC_OK;
}

pesc_status webclient_ask(webclient *c, const char *path, json_t *body, json_t **out)
{
    *out = NULL;
    TRY(webclient_add(c,
                      (web_request){ .path = path, .body = body, .done = keep_answer, .ud = out }));
    while (webclient_left(c))
        TRY(webclient_step(c, 1));
    return PESC_OK;
}
