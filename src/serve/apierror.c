#include "serve/apierror.h"

#include "base/json.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { RETRY_SECONDS = 5 }; /* until another server answers here */

static const char *type_of(int status)
{
    static const struct {
        int status;
        const char *type;
    } rows[] = {
        { 401, "authentication_error" }, { 403, "permission_error" },  { 408, "timeout_error" },
        { 429, "rate_limit_error" },     { 503, "unavailable_error" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            return rows[i].type;
    return status >= 500 ? "server_error" : "invalid_request_error";
}

bool api_refuse(api_error *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    char raw[2 * sizeof e->message];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    *e = (api_error){ .status = status, .type = type_of(status), .code = code };
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
