#include "serve/apierror.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_SECONDS = 5 }; /* until another server answers here */

#define REQUEST "invalid_request_error"
const http_status http_statuses[N_STATUSES] = {
    { 200, "OK", NULL },
    { 204, "No Content", NULL },
    { 400, "Bad Request", REQUEST },
    { 401, "Unauthorized", "authentication_error" },
    { 404, "Not Found", REQUEST },
    { 405, "Method Not Allowed", REQUEST },
    { 408, "Request Timeout", "timeout_error" },
    { 413, "Content Too Large", REQUEST },
    { 414, "URI Too Long", REQUEST },
    { 415, "Unsupported Media Type", REQUEST },
    { 417, "Expectation Failed", REQUEST },
    { 421, "Misdirected Request", REQUEST },
    { 429, "Too Many Requests", "rate_limit_error" },
    { 431, "Request Header Fields Too Large", REQUEST },
    { 499, NULL, NULL },
    { 500, "Internal Server Error", "server_error" },
    { 501, "Not Implemented", "server_error" },
    { 503, "Service Unavailable", "unavailable_error" },
    { 505, "HTTP Version Not Supported", "server_error" },
};

const http_status *http_status_of(int code)
{
    size_t i = 0;
    while (i < N_STATUSES && http_statuses[i].code != code)
        i++;
    ASSERT(i < N_STATUSES);
    return &http_statuses[i];
}

bool api_refuse(api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    char raw[2 * sizeof e->message];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    *e = (api_error){ .status = status, .type = http_status_of(status)->type, .code = code };
    size_t len = n < 0 ? 0 : (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1;
    utf8_visible(e->message, sizeof e->message, raw, len);
    if (param)
        utf8_visible(e->param, sizeof e->param, param, strlen(param));
    return false;
}

bool api_shutting_down(api_error *e)
{
    api_refuse(e, 503, "shutting_down", NULL, "the server is shutting down");
    e->retry_after = RETRY_SECONDS;
    return false;
}

bool api_failed(api_error *e, pesc_status s)
{
    bool ours = s != PESC_USAGE && s != PESC_FORMAT && s != PESC_UNSUPPORTED;
    return api_refuse(e, ours ? 500 : 400, NULL, NULL, "%s", pesc_last_error());
}

void api_error_json(const api_error *e, str *out)
{
    json_t *o = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", e->message, "type",
                          e->type, "param", e->param[0] ? e->param : NULL, "code", e->code);
    if (o)
        json_put(out, o, JSON_COMPACT);
    json_decref(o);
}

void api_error_messages(const api_error *e, const char *id, str *out)
{
    static const struct {
        int status;
        const char *type;
    } rows[] = { { 401, "authentication_error" }, { 403, "permission_error" },
                 { 404, "not_found_error" },      { 413, "request_too_large" },
                 { 429, "rate_limit_error" },     { 503, "overloaded_error" } };
    const char *type = e->status < 500 ? REQUEST : "api_error";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        type = rows[i].status == e->status ? rows[i].type : type;
    json_t *o = json_pack("{s:s, s:{s:s, s:s}, s:s}", "type", "error", "error", "type", type,
                          "message", e->message, "request_id", id);
    if (o)
        json_put(out, o, JSON_COMPACT);
    json_decref(o);
}

void api_error_event(const api_error *e, str *out)
{
    json_t *o = json_pack("{s:s, s:s, s:s, s:s?, s:i}", "type", "error", "code",
                          e->code ? e->code : e->type, "message", e->message, "param",
                          e->param[0] ? e->param : NULL, "sequence_number", 0);
    if (o)
        json_put(out, o, JSON_COMPACT);
    json_decref(o);
}
