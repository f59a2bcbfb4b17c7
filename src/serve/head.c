#include "serve/head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

typedef struct text {
    const char *p;
    size_t n;
} text;

/* What the fields say that must agree with each other. */
typedef struct facts {
    bool old; /* HTTP/1.0 */
    int hosts, lengths, codings;
    const head_rules *rules;
} facts;

static bool bad(api_error *e, int status, const char *why)
{
    return api_refuse(e, status, "bad_request", NULL, "%s", why);
}

static bool is_token(text t)
{
    for (size_t i = 0; i < t.n; i++)
        if (!isalnum((unsigned char)t.p[i]) && !memchr("!#$%&'*+-.^_`|~", t.p[i], 15))
            return false;
    return t.n > 0;
}

static bool is(text t, const char *word)
{
    return t.n == strlen(word) && strncasecmp(t.p, word, t.n) == 0;
}

/* ---- the request line ---- */

static text take_word(text *line)
{
    const char *space = memchr(line->p, ' ', line->n);
    size_t n = space ? (size_t)(space - line->p) : line->n;
    text word = { line->p, n };
    size_t skip = space ? n + 1 : n;
    line->p += skip;
    line->n -= skip;
    return word;
}

static bool check_target(text method, text target, api_error *e)
{
    if (target.n == 0)
        return bad(e, 400, "the request line has no target");
    for (size_t i = 0; i < target.n; i++)
        if (target.p[i] <= ' ' || target.p[i] == 0x7f || (target.p[i] & 0x80))
            return bad(e, 400, "the target has a character that is not allowed in a URL");
    if (target.p[0] == '/' || (is(target, "*") && is(method, "OPTIONS")))
        return true;
    return bad(e, 421, "the target must be a path: this server is no proxy");
}

static bool check_line(text line, facts *f, api_error *e)
{
    text rest = line, method = take_word(&rest), target = take_word(&rest), version = rest;
    if (!is_token(method))
        return bad(e, 400, "the request does not begin with a method");
    if (is(method, "CONNECT"))
        return bad(e, 405, "CONNECT is not supported: this server is no proxy");
    if (version.n == 0)
        return bad(e, 400, "the request line names no version of HTTP");
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0 || version.p[6] != '.' ||
        !isdigit((unsigned char)version.p[5]) || !isdigit((unsigned char)version.p[7]))
        return bad(e, 400, "the request line is malformed");
    if (version.p[5] != '1' || version.p[7] > '1')
        return bad(e, 505, "the version of HTTP must be 1.1 or 1.0");
    f->old = version.p[7] == '0';
    return check_target(method, target, e);
}

/* ---- fields ---- */

/* The name in Host without its port. */
static text host_name(text v)
{
    const char *colon = memrchr(v.p, ':', v.n), *bracket = memrchr(v.p, ']', v.n);
    if (colon && (!bracket || colon > bracket))
        v.n = (size_t)(colon - v.p);
    return v;
}

static bool check_host(text v, facts *f, api_error *e)
{
    if (f->hosts++)
        return bad(e, 400, "found two Host fields, expected one");
    if (!f->rules->hosts)
        return true;
    text name = host_name(v);
    for (size_t i = 0; i < f->rules->n_hosts; i++)
        if (is(name, f->rules->hosts[i]))
            return true;
    return api_refuse(e, 421, "host_not_allowed", NULL,
                      "Host \"%.*s\" is not a name of this server; --allow-host adds one",
                      (int)(name.n < 100 ? name.n : 100), name.p);
}

static bool check_length(text v, facts *f, api_error *e)
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
    if (length > API_MAX_BODY)
        return api_refuse(e, 413, "body_too_large", NULL,
                          "the body has %llu bytes, expected at most %d", length, API_MAX_BODY);
    return true;
}

static bool check_coding(text v, facts *f, api_error *e)
{
    if (f->codings++)
        return bad(e, 400, "found two Transfer-Encoding fields, expected one");
    if (f->old)
        return bad(e, 400, "Transfer-Encoding needs HTTP/1.1");
    return is(v, "chunked") || bad(e, 501, "Transfer-Encoding must be chunked");
}

static bool check_content_coding(text v, facts *f, api_error *e)
{
    (void)f;
    return is(v, "identity") || bad(e, 415, "Content-Encoding is not supported: send plain JSON");
}

static bool check_expect(text v, facts *f, api_error *e)
{
    (void)f;
    return is(v, "100-continue") || bad(e, 417, "Expect must be 100-continue");
}

static const struct {
    const char *name;
    bool (*check)(text v, facts *f, api_error *e);
} checked[] = {
    { "Host", check_host },
    { "Content-Length", check_length },
    { "Transfer-Encoding", check_coding },
    { "Content-Encoding", check_content_coding },
    { "Expect", check_expect },
};

static bool check_field(text line, facts *f, api_error *e)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return bad(e, 400, "a header field is folded over two lines");
    if (!colon)
        return bad(e, 400, "a header field has no colon");
    text name = { line.p, (size_t)(colon - line.p) };
    text v = { colon + 1, line.n - name.n - 1 };
    if (!is_token(name))
        return bad(e, 400, "the name of a header field has a character that is not allowed");
    for (size_t i = 0; i < v.n; i++)
        if ((unsigned char)v.p[i] < ' ' ? v.p[i] != '\t' : v.p[i] == 0x7f)
            return bad(e, 400, "a header field has a control character");
    while (v.n && (v.p[0] == ' ' || v.p[0] == '\t'))
        v.p++, v.n--;
    while (v.n && (v.p[v.n - 1] == ' ' || v.p[v.n - 1] == '\t'))
        v.n--;
    for (size_t i = 0; i < sizeof checked / sizeof *checked; i++)
        if (is(name, checked[i].name))
            return checked[i].check(v, f, e);
    return true;
}

/* ---- the whole ---- */

/* The next line without its CRLF; false: it is not complete, or *e has an error. */
static bool next_line(text *rest, text *line, api_error *e)
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
    *line = (text){ rest->p, (size_t)(end - rest->p) - 1 };
    rest->n -= line->n + 2;
    rest->p += line->n + 2;
    return true;
}

static bool check_agreement(const facts *f, api_error *e)
{
    if (f->hosts == 0 && !f->old)
        return bad(e, 400, "the request has no Host field");
    if (f->lengths && f->codings)
        return bad(e, 400, "found both Content-Length and Transfer-Encoding, expected one");
    return true;
}

static head_state state_of(const api_error *e)
{
    return e->status ? HEAD_BAD : HEAD_PARTIAL;
}

head_state head_check(const char *bytes, size_t n, const head_rules *rules, api_error *e)
{
    text rest = { bytes, n }, line;
    facts f = { .rules = rules };
    *e = (api_error){ 0 };
    bool whole = next_line(&rest, &line, e);
    if ((whole ? line.n : n) > HEAD_MAX_LINE) {
        bad(e, 414, "the request line is too long");
        return HEAD_BAD;
    }
    if (!whole || !check_line(line, &f, e))
        return state_of(e);
    size_t begin = n - rest.n;
    for (int count = 0;; count++) {
        whole = next_line(&rest, &line, e);
        if (count > HEAD_MAX_COUNT || n - begin - (whole ? rest.n : 0) > HEAD_MAX_FIELDS) {
            api_refuse(e, 431, "headers_too_large", NULL,
                       "the header fields are too many or too long: at most %d of %d bytes",
                       HEAD_MAX_COUNT, HEAD_MAX_FIELDS);
            return HEAD_BAD;
        }
        if (!whole)
            return state_of(e);
        if (line.n == 0)
            return check_agreement(&f, e) ? HEAD_GOOD : HEAD_BAD;
        if (!check_field(line, &f, e))
            return HEAD_BAD;
    }
}
