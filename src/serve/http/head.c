#include "serve/http/head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

/* What the fields say that must agree with each other. */
typedef struct facts {
    head *h;
    int hosts, lengths, codings;
    const head_rules *rules;
} facts;

static bool bad(api_error *e, int status, const char *why)
{
    return api_refuse(e, status, "bad_request", NULL, "%s", why);
}

static bool is_token(head_text t)
{
    for (size_t i = 0; i < t.n; i++)
        if (!isalnum((unsigned char)t.p[i]) && !memchr("!#$%&'*+-.^_`|~", t.p[i], 15))
            return false;
    return t.n > 0;
}

bool head_is(head_text t, const char *word)
{
    return t.n == strlen(word) && strncasecmp(t.p, word, t.n) == 0;
}

head_text head_find(const head *h, const char *name)
{
    for (int i = 0; i < h->n_fields; i++)
        if (head_is(h->fields[i].name, name))
            return h->fields[i].value;
    return (head_text){ 0 };
}

static head_text trim(head_text t)
{
    while (t.n && (t.p[0] == ' ' || t.p[0] == '\t'))
        t.p++, t.n--;
    while (t.n && (t.p[t.n - 1] == ' ' || t.p[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* ---- the request line ---- */

static head_text take_word(head_text *line)
{
    const char *space = memchr(line->p, ' ', line->n);
    size_t n = space ? (size_t)(space - line->p) : line->n;
    head_text word = { line->p, n };
    size_t skip = space ? n + 1 : n;
    line->p += skip;
    line->n -= skip;
    return word;
}

static bool check_target(head_text method, head_text target, api_error *e)
{
    if (target.n == 0)
        return bad(e, 400, "the request line has no target");
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= ' ' || target.p[i] == 0x7f || (target.p[i] & 0x80))
            return bad(e, 400, "the target has a character that is not allowed in a URL");
    if (target.p[0] == '/' || (head_is(target, "*") && head_is(method, "OPTIONS")))
        return true;
    return bad(e, 421, "the target must be a path: this server is no proxy");
}

static bool check_line(head_text line, facts *f, api_error *e)
{
    head_text rest = line, method = take_word(&rest), target = take_word(&rest), version = rest;
    head *h = f->h;
    if (!is_token(method))
        return bad(e, 400, "the request does not begin with a method");
    h->method = method;
    h->target = target;
    if (head_is(method, "CONNECT"))
        return bad(e, 405, "CONNECT is not supported: this server is no proxy");
    if (version.n == 0)
        return bad(e, 400, "the request line names no version of HTTP");
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0 || version.p[6] != '.' ||
        !isdigit((unsigned char)version.p[5]) || !isdigit((unsigned char)version.p[7]))
        return bad(e, 400, "the request line is malformed");
    if (version.p[5] != '1' || version.p[7] > '1')
        return bad(e, 505, "the version of HTTP must be 1.1 or 1.0");
    h->old = h->close = version.p[7] == '0';
    return check_target(method, target, e);
}

/* ---- fields ---- */

static bool check_host(head_text v, facts *f, api_error *e)
{
    if (f->hosts++)
        return bad(e, 400, "found two Host fields, expected one");
    if (!f->rules->hosts)
        return true;
    /* without its port; what follows the name and is no port stays part of it */
    head_text name = v;
    while (name.n && isdigit((unsigned char)v.p[name.n - 1]))
        name.n--;
    name.n = name.n && v.p[name.n - 1] == ':' ? name.n - 1 : v.n;
    for (size_t i = 0; i < f->rules->n_hosts; i++)
        if (head_is(name, f->rules->hosts[i]))
            return true;
    return api_refuse(e, 421, "host_not_allowed", NULL,
                      "Host \"%.*s\" is not a name of this server; --allow-host adds one",
                      (int)(name.n < 100 ? name.n : 100), name.p);
}

static bool check_length(head_text v, facts *f, api_error *e)
{
    unsigned long long length = 0;
    if (f->lengths++)
        return bad(e, 400, "found two Content-Length fields, expected one");
    for (size_t i = 0; i < v.n; i++) {
        if (!isdigit((unsigned char)v.p[i]))
            return bad(e, 400, "Content-Length is not a number");
        if (length < 1ull << 58)
            length = 10 * length + (unsigned)(v.p[i] - '0');
    }
    if (v.n == 0)
        return bad(e, 400, "Content-Length is not a number");
    f->h->length = length;
    if (length > BODY_MAX)
        return api_refuse(e, 413, "body_too_large", NULL,
                          "the body has %llu bytes, expected at most %d", length, BODY_MAX);
    return true;
}

static bool check_coding(head_text v, facts *f, api_error *e)
{
    if (f->codings++)
        return bad(e, 400, "found two Transfer-Encoding fields, expected one");
    if (f->h->old)
        return bad(e, 400, "Transfer-Encoding needs HTTP/1.1");
    f->h->chunked = true;
    return head_is(v, "chunked") || bad(e, 501, "Transfer-Encoding must be chunked");
}

static bool check_content_coding(head_text v, facts *f, api_error *e)
{
    (void)f;
    return head_is(v, "identity") ||
           bad(e, 415, "Content-Encoding is not supported: send plain JSON");
}

static bool check_expect(head_text v, facts *f, api_error *e)
{
    f->h->expects = !f->h->old;
    return head_is(v, "100-continue") || bad(e, 417, "Expect must be 100-continue");
}

/* A list of words, of which only `close` matters here. */
static bool check_connection(head_text v, facts *f, api_error *e)
{
    (void)e;
    while (v.n) {
        const char *comma = memchr(v.p, ',', v.n);
        size_t n = comma ? (size_t)(comma - v.p) : v.n;
        f->h->close |= head_is(trim((head_text){ v.p, n }), "close");
        v.p += comma ? n + 1 : n;
        v.n -= comma ? n + 1 : n;
    }
    return true;
}

static const struct {
    const char *name;
    bool (*check)(head_text v, facts *f, api_error *e);
} checked[] = {
    { "Host", check_host },
    { "Content-Length", check_length },
    { "Transfer-Encoding", check_coding },
    { "Content-Encoding", check_content_coding },
    { "Expect", check_expect },
    { "Connection", check_connection },
};

static bool check_field(head_text line, facts *f, api_error *e)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return bad(e, 400, "a header field is folded over two lines");
    if (!colon)
        return bad(e, 400, "a header field has no colon");
    head_text name = { line.p, (size_t)(colon - line.p) };
    head_text v = { colon + 1, line.n - name.n - 1 };
    if (!is_token(name))
        return bad(e, 400, "the name of a header field has a character that is not allowed");
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] < ' ' ? v.p[i] != '\t' : v.p[i] == 0x7f)
            return bad(e, 400, "a header field has a control character");
    v = trim(v);
    f->h->fields[f->h->n_fields++] = (head_field){ name, v };
    for (size_t i = 0; i < sizeof checked / sizeof *checked; i++)
        if (head_is(name, checked[i].name))
            return checked[i].check(v, f, e);
    return true;
}

/* ---- the whole ---- */

/* The next line without its CRLF; false: it is not complete, or *e has an error. */
static bool next_line(head_text *rest, head_text *line, api_error *e)
{
    const char *end = memchr(rest->p, '\n', rest->n), *cr = memchr(rest->p, '\r', rest->n);
    if (memchr(rest->p, '\0', end ? (size_t)(end - rest->p) : rest->n))
        return bad(e, 400, "the head has a NUL byte");
    if (cr && cr + 1 < rest->p + rest->n && cr[1] != '\n')
        return bad(e, 400, "the head has a carriage return without a line feed");
    if (!end)
        return false;
    if (end == rest->p || end[-1] != '\r')
        return bad(e, 400, "the head has a line feed without a carriage return");
    *line = (head_text){ rest->p, (size_t)(end - rest->p) - 1 };
    rest->n -= line->n + 2;
    rest->p += line->n + 2;
    return true;
}

/* The next line; false: there is no whole one, and *e may have an error. */
static bool next_field(facts *f, head_text *rest, size_t *used, head_text *line, api_error *e)
{
    size_t before = rest->n;
    bool whole = next_line(rest, line, e);
    *used += whole ? before - rest->n : rest->n;
    bool more = whole && line->n > 0;
    if (*used <= HEAD_MAX_FIELDS && !(more && f->h->n_fields == HEAD_MAX_COUNT))
        return whole;
    return api_refuse(e, 431, "headers_too_large", NULL,
                      "the header fields are too many or too long: at most %d of %d bytes",
                      HEAD_MAX_COUNT, HEAD_MAX_FIELDS);
}

head_state head_parse(head *h, const char *bytes, size_t n, const head_rules *rules, api_error *e)
{
    head_text rest = { bytes, n }, line;
    facts f = { .h = h, .rules = rules };
    size_t used = 0;
    *e = (api_error){ 0 };
    *h = (head){ 0 };
    bool whole = next_line(&rest, &line, e);
    if ((whole ? line.n : n) > HEAD_MAX_LINE)
        whole = bad(e, 414, "the request line is too long");
    whole = whole && check_line(line, &f, e);
    while (whole && next_field(&f, &rest, &used, &line, e)) {
        if (line.n == 0) {
            h->size = n - rest.n;
            bool agree =
                !f.hosts && !h->old ? bad(e, 400, "the request has no Host field")
                : f.lengths && f.codings
                    ? bad(e, 400, "found both Content-Length and Transfer-Encoding, expected one")
                    : true;
            return agree ? HEAD_GOOD : HEAD_BAD;
        }
        if (!check_field(line, &f, e))
            break;
    }
    return e->status ? HEAD_BAD : HEAD_PARTIAL;
}
