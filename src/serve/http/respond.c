/* The head of an answer. */
#include "serve/http/connection.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Whatever the page shows, the browser runs no other script than the page's own, and asks no other
 * server for anything. */
static const char page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'";

void respond_head(const exchange *x, bool old, bool close, str *out)
{
    char date[40] = "", retry[16], length[24];
    struct tm now;
    bool sized = !x->stream && x->status != 204;
    if (gmtime_r(&(time_t){ time(NULL) }, &now))
        strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &now);
    snprintf(retry, sizeof retry, "%d", x->retry_after);
    snprintf(length, sizeof length, "%zu", x->out.n);
    const struct {
        bool when;
        const char *name, *value;
    } rows[] = {
        { true, "Date", date },
        { close, "Connection", "close" },
        { sized, "Content-Length", length },
        { x->stream && !old, "Transfer-Encoding", "chunked" },
        { x->status != 204, "Content-Type", x->type },
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
        { x->status == 501, "X-Should-Retry", "false" },
        { x->ignored.n, "X-Pesc-Ignored", x->ignored.p },
        { x->srv->opt.n_cors_origin, "Vary", "Origin" },
        { x->origin, "Access-Control-Allow-Origin", x->origin },
        { x->origin && x->status == 204, "Access-Control-Allow-Methods", "GET, POST, OPTIONS" },
        { x->origin && x->status == 204, "Access-Control-Allow-Headers", x->asked_headers },
        { x->origin && x->status == 204, "Access-Control-Max-Age", "600" },
    };
    str_printf(out, "HTTP/1.1 %d %s\r\n", x->status, http_status_of(x->status)->reason);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].when && rows[i].value)
            str_printf(out, "%s: %s\r\n", rows[i].name, rows[i].value);
    str_puts(out, "\r\n");
}
