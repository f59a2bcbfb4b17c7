/* The table of endpoints. */
#include "serve/api/endpoints.h"

#include <string.h>

/* Endpoints in metrics; 0: paths that are not known. */
enum {
    E_OTHER,
    E_COMPLETION,
    E_CHAT,
    E_TOKENS,
    E_MODELS,
    E_STATE,
    E_PAGE,
    E_RESPONSES,
    E_MESSAGES,
    E_EMBEDDINGS,
    N_ENDPOINTS
};
static const char *const endpoints[N_ENDPOINTS] = { "other",    "completions", "chat", "tokens",
                                                    "models",   "state",       "page", "responses",
                                                    "messages", "embeddings" };

static const route paths[] = {
    { "GET", "/", handle_page, true, E_PAGE, 0 },
    { "GET", "/page/", handle_page, true, E_PAGE, 0 },
    { "POST", "/v1/completions", handle_generation, false, E_COMPLETION, API_COMPLETION },
    { "POST", "/completions", handle_generation, false, E_COMPLETION, API_COMPLETION },
    { "POST", "/completion", handle_generation, false, E_COMPLETION, API_NATIVE },
    { "POST", "/v1/chat/completions", handle_generation, false, E_CHAT, API_CHAT },
    { "POST", "/chat/completions", handle_generation, false, E_CHAT, API_CHAT },
    { "GET", "/v1/models", handle_models, false, E_MODELS, 0 },
    { "GET", "/models", handle_models, false, E_MODELS, 0 },
    { "GET", "/v1/models/", handle_model, false, E_MODELS, 0 },
    { "GET", "/models/", handle_model, false, E_MODELS, 0 },
    { "GET", "/health", handle_health, true, E_STATE, 0 },
    { "GET", "/v1/health", handle_health, true, E_STATE, 0 },
    { "GET", "/version", handle_version, false, E_STATE, 0 },
    { "GET", "/metrics", handle_metrics, false, E_STATE, 0 },
    { "GET", "/v1/requests", handle_requests, false, E_STATE, 0 },
    { "GET", "/slots", handle_slots, false, E_STATE, 0 },
    { "GET", "/props", handle_props, false, E_STATE, 0 },
    { "GET", "/v1/experts", handle_experts, false, E_STATE, 0 },
    { "POST", "/tokenize", handle_tokenize, false, E_TOKENS, API_TOKENIZE },
    { "POST", "/detokenize", handle_detokenize, false, E_TOKENS, API_DETOKENIZE },
    { "GET", "/tokenizer_info", handle_tokenizer_info, false, E_TOKENS, 0 },
    { "POST", "/apply-template", handle_template, false, E_TOKENS, API_TEMPLATE },
    { "POST", "/v1/responses", handle_generation, false, E_RESPONSES, API_RESPONSES },
    { "POST", "/v1/messages", handle_generation, false, E_MESSAGES, API_MESSAGES },
    { "POST", "/v1/messages/count_tokens", handle_count, false, E_TOKENS, API_COUNT },
    { "POST", "/v1/embeddings", handle_generation, false, E_EMBEDDINGS, API_EMBEDDINGS },
    { "POST", "/embeddings", handle_generation, false, E_EMBEDDINGS, API_EMBEDDINGS },
};
enum { N_PATHS = sizeof paths / sizeof *paths };
static const char offered[] =
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/messages, /v1/embeddings, "
    "/v1/messages/count_tokens, /completion, /v1/models, /health, /tokenize, "
    "/detokenize, /tokenizer_info, /apply-template, /metrics, /version, /v1/requests, /slots, "
    "/props and /v1/experts";

const route_table api_routes = { paths, N_PATHS, offered };

static const route runs_paths[] = {
    { "GET", "/", handle_runs_page, true, E_PAGE, 0 },
    { "GET", "/page/", handle_page, true, E_PAGE, 0 },
    { "GET", "/v1/runs", handle_runs, false, E_STATE, 0 },
    { "GET", "/v1/runs/", handle_run, false, E_STATE, 0 },
    { "GET", "/health", handle_health, true, E_STATE, 0 },
};
const route_table runs_routes = { runs_paths, sizeof runs_paths / sizeof *runs_paths,
                                  "/v1/runs and /health" };

const char *const *endpoint_names(size_t *n)
{
    *n = N_ENDPOINTS;
    return endpoints;
}

static bool handle_options(exchange *x)
{
    x->status = 204;
    return true;
}
static const route preflight = { "OPTIONS", "", handle_options, true, E_OTHER, 0 };

/* Decodes %XX; false: malformed, empty or too long. */
static bool decode(const char *from, char *to, size_t cap)
{
    size_t n = 0;
    for (; *from && n + 1 < cap; from++) {
        char c = *from;
        if (c == '%') {
            if (str_hex_digit(from[1]) < 0 || str_hex_digit(from[2]) < 0)
                return false;
            c = (char)(16 * str_hex_digit(from[1]) + str_hex_digit(from[2]));
            from += 2;
        }
        if (c == '\0')
            return false;
        to[n++] = c;
    }
    to[n] = '\0';
    return !*from && n > 0;
}

static bool matches(const route *r, exchange *x, const char *path)
{
    size_t n = strlen(r->path);
    if (n == 1 || r->path[n - 1] != '/')
        return strcmp(r->path, path) == 0;
    return strncmp(r->path, path, n) == 0 && decode(path + n, x->argument, sizeof x->argument);
}

const route *endpoint_find(exchange *x, const char *method, const char *path, api_error *e)
{
    const route_table *t = x->srv->routes;
    const route *found = NULL;
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < t->n; i++) {
        if (!matches(&t->v[i], x, path))
            continue;
        found = &t->v[i];
        if (strcmp(found->method, as) == 0)
            return found;
    }
    bool whole_server = strcmp(path, "*") == 0;
    if (found || whole_server)
        x->allow =
            found && strcmp(found->method, "POST") == 0 ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
    if (x->allow && strcmp(method, "OPTIONS") == 0)
        return &preflight;
    if (found)
        api_refuse(e, 405, "method_not_allowed", NULL, "%.60s does not take %.10s", path, method);
    else
        api_refuse(e, 404, "not_found", NULL, "there is no %.100s; offered are %s", path,
                   t->offered);
    return NULL;
}
