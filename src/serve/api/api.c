#include "serve/api/api.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- values ---- */

static bool bad_type(api_error *e, const char *param, const json_t *v, const char *expected)
{
    return api_refuse(e, 400, NULL, param, "%s: found %s, expected %s", param, json_kind(v),
                      expected);
}

bool api_is_ids(const json_t *v)
{
    size_t i, n = json_array_size(v);
    for (i = 0; i < n && json_is_integer(json_array_get(v, i)); i++)
        ;
    return json_is_array(v) && i == n;
}

bool api_ids(const json_t *v, const char *param, int64_t vocab, int32_t **ids, size_t *n,
             api_error *e)
{
    *n = json_array_size(v);
    *ids = NULL;
    if (!api_is_ids(v))
        return bad_type(e, param, v, "an array of token ids");
    if (!(*ids = mem_alloc(*n ? *n : 1, sizeof **ids)))
        return api_failed(e, fail_nomem("token ids", *n * sizeof **ids));
    for (size_t i = 0; i < *n; i++) {
        json_int_t id = json_integer_value(json_array_get(v, i));
        if (id < 0 || id >= vocab)
            return api_refuse(e, 400, NULL, param,
                              "%s: found the token id %lld, which is out of vocabulary: that has "
                              "%lld tokens",
                              param, (long long)id, (long long)vocab);
        (*ids)[i] = (int32_t)id;
    }
    return true;
}

/* ---- the table of fields ---- */

typedef enum field_kind {
    FIELD_BOOL,
    FIELD_INT,
    FIELD_REAL,   /* min is allowed unless it is marked as open */
    FIELD_TEXT,   /* const char *, of min to max bytes */
    FIELD_VALUE,  /* const json_t *, whatever it is */
    FIELD_OTHER,  /* `set` reads it */
    FIELD_UNUSED, /* accepted, and named in the header of ignored fields */
    FIELD_ABSENT, /* refused unless it is the JSON text in `only`, which says nothing */
} field_kind;

typedef struct reading {
    api_request *r;
    const api_rules *rules;
    const char *name; /* of the field */
    const json_t *v;
    api_error *e;
} reading;

typedef struct field {
    const char *name;   /* one that ends in * stands for all that begin so */
    unsigned endpoints; /* api_endpoint, several */
    field_kind kind;
    size_t at; /* in api_request */
    double min, max;
    bool (*set)(const reading *in);
    const char *only;
} field;

static bool add_stop(const reading *in, const json_t *v)
{
    size_t n = json_string_length(v);
    if (!json_is_string(v))
        return bad_type(in->e, in->name, v, "a string or an array of strings");
    if (strlen(json_string_value(v)) != n)
        return api_refuse(in->e, 400, NULL, in->name, "stop: a string has a NUL character");
    if (n < 1 || n > API_MAX_STOP_BYTES)
        return api_refuse(in->e, 400, NULL, in->name,
                          "stop: found a string of %zu bytes, expected 1 to %d", n,
                          API_MAX_STOP_BYTES);
    in->r->stop[in->r->n_stop++] = json_string_value(v);
    return true;
}

static bool set_stop(const reading *in)
{
    if (!json_is_array(in->v))
        return add_stop(in, in->v);
    size_t n = json_array_size(in->v);
    if (n > API_MAX_STOPS)
        return api_refuse(in->e, 400, NULL, in->name,
                          "stop: found %zu strings, expected at most %d", n, API_MAX_STOPS);
    for (size_t i = 0; i < n; i++)
        if (!add_stop(in, json_array_get(in->v, i)))
            return false;
    return true;
}

static bool set_stop_ids(const reading *in)
{
    return api_ids(in->v, in->name, in->rules->vocab, &in->r->stop_ids, &in->r->n_stop_ids, in->e);
}

static bool set_bias(const reading *in)
{
    const char *key;
    json_t *v;
    api_request *r = in->r;
    if (!json_is_object(in->v))
        return bad_type(in->e, in->name, in->v, "an object");
    size_t n = json_object_size(in->v);
    sampler_bias *bias = mem_alloc(n ? n : 1, sizeof *bias);
    r->terms.bias = bias;
    if (!bias)
        return api_failed(in->e, fail_nomem("logit_bias", n * sizeof *bias));
    json_object_foreach((json_t *)in->v, key, v)
    {
        long long id;
        double add = json_number_value(v);
        if (!str_to_i64(key, 0, in->rules->vocab - 1, &id))
            return api_refuse(in->e, 400, NULL, in->name,
                              "logit_bias: found the key \"%.40s\", expected the id of one of the "
                              "%lld tokens",
                              key, (long long)in->rules->vocab);
        if (!json_is_number(v) || !(add >= -100 && add <= 100))
            return api_refuse(in->e, 400, NULL, in->name,
                              "logit_bias: the value of %lld is not a number from -100 to 100", id);
        bias[r->terms.n_bias++] = (sampler_bias){ (int32_t)id, (float)add };
    }
    return true;
}

static bool set_stream_options(const reading *in)
{
    const char *key;
    json_t *v;
    bool unused; /* padding against those who measure the length of events: there is none */
    if (!json_is_object(in->v))
        return bad_type(in->e, in->name, in->v, "an object");
    json_object_foreach((json_t *)in->v, key, v)
    {
        bool *to = strcmp(key, "include_usage") == 0            ? &in->r->include_usage
                   : strcmp(key, "continuous_usage_stats") == 0 ? &in->r->continuous_usage
                   : strcmp(key, "include_obfuscation") == 0    ? &unused
                                                                : NULL;
        if (!to)
            return api_refuse(in->e, 400, NULL, in->name, "stream_options: \"%.40s\" is not known",
                              key);
        if (!json_is_boolean(v) && !json_is_null(v))
            return bad_type(in->e, in->name, v, "a boolean");
        *to = json_is_true(v);
    }
    return true;
}

static bool set_constraint(const reading *in)
{
    return constraint_take(&in->r->constraint, in->name, in->v, in->e);
}

static bool set_tools(const reading *in)
{
    return speech_tools(in->r, in->v, in->e);
}

static bool set_effort(const reading *in)
{
    return speech_effort(in->r, in->name, in->v, in->e);
}

static bool set_thinking(const reading *in)
{
    if (!json_is_boolean(in->v))
        return bad_type(in->e, in->name, in->v, "a boolean");
    return speech_thinking(in->r, json_is_true(in->v), in->e);
}

static bool set_reasoning_format(const reading *in)
{
    return speech_format(in->r, in->v, in->e);
}

static bool set_encoding(const reading *in)
{
    const char *name = json_string_value(in->v);
    in->r->base64 = name && strcmp(name, "base64") == 0;
    return in->r->base64 || (name && strcmp(name, "float") == 0) ||
           api_refuse(in->e, 400, NULL, in->name, "encoding_format: expected float or base64");
}

static bool set_parallel(const reading *in)
{
    if (!json_is_boolean(in->v))
        return bad_type(in->e, in->name, in->v, "a boolean");
    in->r->one_call = json_is_false(in->v);
    return true;
}

/* Variables of the chat template, but for those that have fields of their own. */
static bool set_variables(const reading *in)
{
    static const char *const own[] = { "messages", "tools", "add_generation_prompt",
                                       "continue_final_message" };
    if (!json_is_object(in->v))
        return bad_type(in->e, in->name, in->v, "an object");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(in->v, own[i]))
            return api_refuse(in->e, 400, NULL, in->name,
                              "chat_template_kwargs: %s is a field of the request", own[i]);
    in->r->variables = in->r->all_variables = json_object_size(in->v) ? in->v : NULL;
    return true;
}

#define TEXTS (API_COMPLETION | API_CHAT)
#define GENERATIONS (TEXTS | API_NATIVE)
#define PROMPTS (API_COMPLETION | API_NATIVE | API_TOKENIZE)
#define CONVERSATIONS (API_CHAT | API_TOKENIZE | API_TEMPLATE)
#define ALL (GENERATIONS | API_TOKENIZE | API_DETOKENIZE | API_TEMPLATE | API_EMBEDDINGS)
#define AT(field) .at = offsetof(api_request, field)
static const field fields[] = {
    { "input", API_EMBEDDINGS, FIELD_VALUE, AT(prompt) },
    { "encoding_format", API_EMBEDDINGS, FIELD_OTHER, .set = set_encoding },
    { "dimensions", API_EMBEDDINGS, FIELD_INT, AT(dimensions), 1, INT32_MAX },
    { "model", ALL, FIELD_TEXT, AT(model), 0, API_MAX_TEXT },
    { "prompt", PROMPTS, FIELD_VALUE, AT(prompt) },
    { "content", API_TOKENIZE, FIELD_VALUE, AT(prompt) },
    { "messages", CONVERSATIONS, FIELD_VALUE, AT(messages) },
    { "tokens", API_DETOKENIZE, FIELD_VALUE, AT(tokens) },
    { "max_tokens", GENERATIONS, FIELD_INT, AT(max_tokens), 0, INT32_MAX },
    { "n_predict", API_NATIVE, FIELD_INT, AT(max_tokens), -1, INT32_MAX },
    { "max_completion_tokens", TEXTS, FIELD_INT, AT(max_tokens), 0, INT32_MAX },
    { "temperature", GENERATIONS, FIELD_REAL, AT(sample.temperature), 0, 2 },
    { "top_p", GENERATIONS, FIELD_REAL, AT(sample.top_p), 1e-6, 1 },
    { "top_k", GENERATIONS, FIELD_INT, AT(sample.top_k), -1, INT32_MAX },
    { "min_p", GENERATIONS, FIELD_REAL, AT(sample.min_p), 0, 1 },
    { "repeat_penalty", API_NATIVE, FIELD_REAL, AT(sample.repetition_penalty), 0.01, 100 },
    { "repetition_penalty", TEXTS, FIELD_REAL, AT(sample.repetition_penalty), 0.01, 100 },
    { "presence_penalty", GENERATIONS, FIELD_REAL, AT(terms.presence), -2, 2 },
    { "frequency_penalty", GENERATIONS, FIELD_REAL, AT(terms.frequency), -2, 2 },
    { "n", TEXTS, FIELD_INT, AT(n), 1, API_MAX_CHOICES },
    { "best_of", API_COMPLETION, FIELD_VALUE, .at = 0 },
    { "seed", GENERATIONS, FIELD_INT, AT(sample.seed), (double)INT64_MIN, (double)INT64_MAX },
    { "stop", GENERATIONS, FIELD_OTHER, .set = set_stop },
    { "include_stop_str_in_output", TEXTS, FIELD_BOOL, AT(include_stop) },
    { "stop_token_ids", TEXTS, FIELD_OTHER, .set = set_stop_ids },
    { "ignore_eos", GENERATIONS, FIELD_BOOL, AT(ignore_eos) },
    { "min_tokens", TEXTS, FIELD_INT, AT(terms.min_tokens), 0, INT32_MAX },
    { "logit_bias", GENERATIONS, FIELD_OTHER, .set = set_bias },
    { "logprobs", API_COMPLETION, FIELD_INT, AT(top), 0, API_MAX_TOP },
    { "logprobs", API_CHAT, FIELD_BOOL, AT(logprobs) },
    { "n_probs", API_NATIVE, FIELD_INT, AT(top), 0, API_MAX_TOP },
    { "top_logprobs", API_CHAT, FIELD_INT, AT(top), 0, API_MAX_TOP },
    { "echo", API_COMPLETION, FIELD_BOOL, AT(echo) },
    { "return_tokens", API_NATIVE, FIELD_BOOL, AT(return_token_ids) },
    { "return_token_ids", TEXTS, FIELD_BOOL, AT(return_token_ids) },
    { "return_tokens_as_token_ids", TEXTS, FIELD_BOOL, AT(tokens_as_ids) },
    { "stream", GENERATIONS, FIELD_BOOL, AT(stream) },
    { "stream_options", TEXTS, FIELD_OTHER, .set = set_stream_options },
    { "response_format", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "guided_json", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "guided_regex", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "guided_choice", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "guided_grammar", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "structured_outputs", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "grammar", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "json_schema", GENERATIONS, FIELD_OTHER, .set = set_constraint },
    { "cache_prompt", API_NATIVE, FIELD_BOOL, AT(cache_prompt) },
    { "id_slot", API_NATIVE, FIELD_UNUSED, .at = 0 },
    { "n_keep", API_NATIVE, FIELD_UNUSED, .at = 0 },
    { "cache_salt", GENERATIONS, FIELD_TEXT, AT(cache_salt), 1, API_MAX_TEXT },
    { "add_special_tokens", PROMPTS, FIELD_BOOL, AT(add_special) },
    { "add_special", API_TOKENIZE, FIELD_BOOL, AT(add_special) },
    { "parse_special", API_TOKENIZE, FIELD_BOOL, AT(parse_special) },
    { "with_pieces", API_TOKENIZE, FIELD_BOOL, AT(with_pieces) },
    { "return_token_strs", API_TOKENIZE, FIELD_BOOL, AT(with_strings) },
    { "add_generation_prompt", CONVERSATIONS, FIELD_BOOL, AT(add_generation_prompt) },
    { "continue_final_message", CONVERSATIONS, FIELD_BOOL, AT(continue_final_message) },
    { "chat_template_kwargs", CONVERSATIONS, FIELD_OTHER, .set = set_variables },
    { "prompt_logprobs", TEXTS, FIELD_INT, AT(prompt_top), 0, API_MAX_TOP },
    { "return_routed_experts", TEXTS, FIELD_BOOL, AT(return_routes) },
    { "timings_per_token", GENERATIONS, FIELD_BOOL, AT(timings) },
    { "tools", CONVERSATIONS, FIELD_OTHER, .set = set_tools },
    { "tool_choice", CONVERSATIONS, FIELD_VALUE, .at = 0 },
    { "parallel_tool_calls", CONVERSATIONS, FIELD_OTHER, .set = set_parallel },
    { "reasoning_effort", CONVERSATIONS, FIELD_OTHER, .set = set_effort },
    { "enable_thinking", CONVERSATIONS, FIELD_OTHER, .set = set_thinking },
    { "thinking_token_budget", API_CHAT, FIELD_INT, AT(thought_tokens), -1, INT32_MAX },
    { "thinking_budget_tokens", API_CHAT, FIELD_INT, AT(thought_tokens), -1, INT32_MAX },
    { "reasoning_budget_tokens", API_CHAT, FIELD_INT, AT(thought_tokens), -1, INT32_MAX },
    { "reasoning_format", API_CHAT, FIELD_OTHER, .set = set_reasoning_format },
    { "include_reasoning", API_CHAT, FIELD_BOOL, AT(shows_thoughts) },
    { "suffix", TEXTS, FIELD_ABSENT, .only = "\"\"" },
    { "functions", TEXTS, FIELD_ABSENT, .only = "[]" },
    { "function_call", TEXTS, FIELD_ABSENT, .only = "\"none\"" },
    { "audio", TEXTS, FIELD_ABSENT, .at = 0 },
    { "modalities", TEXTS, FIELD_ABSENT, .only = "[\"text\"]" },
    { "prediction", TEXTS, FIELD_ABSENT, .at = 0 },
    { "web_search_options", TEXTS, FIELD_ABSENT, .at = 0 },
    /* constraints, of which an answer would be silently free: refused even where unknown fields are
     * accepted */
    { "guided_*", GENERATIONS, FIELD_ABSENT, .at = 0 },
    { "structural_tag", GENERATIONS, FIELD_ABSENT, .at = 0 },
    { "regex", GENERATIONS, FIELD_ABSENT, .only = "\"\"" },
    { "ebnf", GENERATIONS, FIELD_ABSENT, .only = "\"\"" },
    { "user", TEXTS | API_EMBEDDINGS, FIELD_UNUSED, .at = 0 },
    { "metadata", TEXTS, FIELD_UNUSED, .at = 0 },
    { "service_tier", TEXTS, FIELD_UNUSED, .at = 0 },
    { "safety_identifier", TEXTS, FIELD_UNUSED, .at = 0 },
    { "store", TEXTS, FIELD_UNUSED, .at = 0 },
    { "prompt_cache_key", TEXTS, FIELD_UNUSED, .at = 0 },
    { "prompt_cache_retention", TEXTS, FIELD_UNUSED, .at = 0 },
    { "verbosity", TEXTS, FIELD_UNUSED, .at = 0 },
};
enum { N_FIELDS = sizeof fields / sizeof *fields };

static bool set_number(const reading *in, const field *f)
{
    bool integer = f->kind == FIELD_INT;
    double x = json_number_value(in->v);
    if (integer ? !json_is_integer(in->v) : !json_is_number(in->v))
        return bad_type(in->e, in->name, in->v, integer ? "an integer" : "a number");
    if (!(x >= f->min && x <= f->max))
        return api_refuse(in->e, 400, NULL, in->name, "%s: found %.15g, expected %.15g to %.15g",
                          in->name, x, f->min, f->max);
    char *to = (char *)in->r + f->at;
    if (integer)
        *(int64_t *)(void *)to = json_integer_value(in->v);
    else
        *(double *)(void *)to = x;
    return true;
}

static bool set_text(const reading *in, const field *f)
{
    size_t n = json_string_length(in->v);
    if (!json_is_string(in->v))
        return bad_type(in->e, in->name, in->v, "a string");
    if ((double)n < f->min || (double)n > f->max || strlen(json_string_value(in->v)) != n)
        return api_refuse(in->e, 400, NULL, in->name,
                          "%s: found %zu bytes, expected %g to %.15g without a NUL character",
                          in->name, n, f->min, f->max);
    *(const char **)(void *)((char *)in->r + f->at) = json_string_value(in->v);
    return true;
}

static bool refuse_absent(const reading *in, const field *f)
{
    str text = { 0 };
    json_put(&text, in->v, JSON_COMPACT | JSON_ENCODE_ANY);
    bool fine = f->only && text.p && strcmp(text.p, f->only) == 0;
    str_free(&text);
    return fine || api_refuse(in->e, 400, "unsupported_parameter", in->name,
                              "%s: is not supported by this server", in->name);
}

static bool set_field(const reading *in, const field *f)
{
    char *to = (char *)in->r + f->at;
    switch (f->kind) {
    case FIELD_BOOL:
        if (!json_is_boolean(in->v))
            return bad_type(in->e, in->name, in->v, "a boolean");
        *(bool *)to = json_is_true(in->v);
        return true;
    case FIELD_INT:
    case FIELD_REAL:
        return set_number(in, f);
    case FIELD_TEXT:
        return set_text(in, f);
    case FIELD_VALUE:
        if (f->at)
            *(const json_t **)(void *)to = in->v;
        return true;
    case FIELD_OTHER:
        return f->set(in);
    case FIELD_ABSENT:
        return refuse_absent(in, f);
    case FIELD_UNUSED:
        break;
    }
    return true;
}

static bool is_named(const field *f, const char *name)
{
    size_t n = strlen(f->name);
    bool all = f->name[n - 1] == '*';
    return all ? strncmp(f->name, name, n - 1) == 0 : strcmp(f->name, name) == 0;
}

static bool ignore(const reading *in)
{
    char shown[64];
    utf8_visible(shown, sizeof shown, in->name, strlen(in->name));
    str_printf(&in->r->ignored, "%s%s", in->r->ignored.n ? ", " : "", shown);
    return true;
}

static bool take_field(const reading *in)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if ((fields[i].endpoints & in->r->endpoint) && is_named(&fields[i], in->name))
            return json_is_null(in->v) ||
                   (fields[i].kind == FIELD_UNUSED ? ignore(in) : set_field(in, &fields[i]));
    if (in->rules->lenient)
        return ignore(in);
    return api_refuse(in->e, 400, "unknown_parameter", in->name, "\"%.60s\" is not a known field",
                      in->name);
}

/* ---- the whole ---- */

/* What several fields together say. */
static bool check_together(api_request *r, api_error *e)
{
    const json_t *best = json_value(r->body, "best_of");
    if (best && (!json_is_integer(best) || json_integer_value(best) != r->n))
        return api_refuse(e, 400, NULL, "best_of", "best_of: expected the value of n");
    if (!r->stream && (json_has(r->body, "stream_options")))
        return api_refuse(e, 400, NULL, "stream_options", "stream_options needs stream: true");
    if (r->endpoint == API_CHAT && r->top >= 0 && !r->logprobs)
        return api_refuse(e, 400, NULL, "top_logprobs", "top_logprobs needs logprobs: true");
    if (r->endpoint != API_CHAT)
        r->logprobs = r->top > (r->endpoint == API_NATIVE ? 0 : -1);
    if (r->logprobs && r->top < 0)
        r->top = 0;
    r->has_seed = json_has(r->body, "seed") && !(r->endpoint == API_NATIVE && r->sample.seed == -1);
    if (r->stream && r->prompt_top >= 0)
        return api_refuse(e, 400, NULL, "prompt_logprobs",
                          "prompt_logprobs is not possible with stream: true");
    if (r->continue_final_message && r->add_generation_prompt) {
        if (json_has(r->body, "add_generation_prompt"))
            return api_refuse(e, 400, NULL, "continue_final_message",
                              "continue_final_message and add_generation_prompt are both true");
        r->add_generation_prompt = false;
    }
    bool own = json_has(r->body, "prompt") || json_has(r->body, "add_special_tokens") ||
               json_has(r->body, "add_special");
    if (r->endpoint == API_TOKENIZE && !own)
        r->add_special = false;
    if (r->sample.top_k < 0)
        r->sample.top_k = 0; /* -1 and 0: all tokens */
    if ((r->endpoint & TEXTS) && r->max_tokens >= 0 && r->terms.min_tokens > r->max_tokens)
        return api_refuse(e, 400, NULL, "min_tokens",
                          "min_tokens: found %lld, expected at most "
                          "max_tokens, %lld",
                          (long long)r->terms.min_tokens, (long long)r->max_tokens);
    return true;
}

static bool check_required(const api_request *r, api_error *e)
{
    static const struct {
        unsigned endpoints;
        const char *name;
        size_t at;
    } rows[] = {
        { API_COMPLETION | API_NATIVE, "prompt", offsetof(api_request, prompt) },
        { API_EMBEDDINGS, "input", offsetof(api_request, prompt) },
        { API_CHAT | API_TEMPLATE, "messages", offsetof(api_request, messages) },
        { API_DETOKENIZE, "tokens", offsetof(api_request, tokens) },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if ((rows[i].endpoints & r->endpoint) &&
            !*(const json_t *const *)(const void *)((const char *)r + rows[i].at))
            return api_refuse(e, 400, "missing_required_parameter", rows[i].name,
                              "%s: is missing, and has no default", rows[i].name);
    if (r->endpoint == API_TOKENIZE && !r->prompt == !r->messages)
        return api_refuse(e, 400, NULL, "prompt", "expected one of prompt, content and messages");
    return true;
}

void api_defaults(api_request *r, api_endpoint endpoint, const api_rules *rules)
{
    *r = (api_request){ .endpoint = endpoint,
                        .max_tokens = -1,
                        .sample = rules->sampling,
                        .n = 1,
                        .top = -1,
                        .prompt_top = -1,
                        .add_special = true,
                        .thought_tokens = -1,
                        .thoughts = true,
                        .shows_thoughts = true,
                        .parse_special = true,
                        .add_generation_prompt = true,
                        .cache_prompt = true };
}

/* The body of another dialect becomes that of a chat. */
static bool read_dialect(api_request *r, api_endpoint endpoint, api_error *e)
{
    static const struct {
        api_endpoint endpoint;
        api_dialect dialect;
        dialect_reader *read;
    } rows[] = { { API_MESSAGES, DIALECT_MESSAGES, messages_to_chat },
                 { API_COUNT, DIALECT_MESSAGES, messages_to_count },
                 { API_RESPONSES, DIALECT_RESPONSES, responses_to_chat } };
    size_t i = 0, n = sizeof rows / sizeof *rows;
    while (i < n && rows[i].endpoint != endpoint)
        i++;
    if (i == n)
        return true;
    r->endpoint = API_CHAT;
    r->dialect = rows[i].dialect;
    r->original = r->body;
    r->body = NULL;
    return rows[i].read(r->original, &r->body, r->lenient, &r->ignored, e);
}

bool api_parse(api_request *r, api_endpoint endpoint, const char *text, size_t n,
               const api_rules *rules, api_error *e)
{
    const char *key;
    json_t *v;
    *e = (api_error){ 0 };
    api_defaults(r, endpoint, rules);
    r->lenient = rules->lenient;
    char *copy = mem_strndup(text, n);
    if (!copy)
        return api_failed(e, fail_nomem("a request", n));
    int64_t seed = 0;
    bool large = false, good = bodytext_check(copy, n, &seed, &large, e);
    if (good && json_parse(&r->body, copy, n, "the request") != PESC_OK)
        good = api_refuse(e, 400, NULL, NULL, "%s", pesc_last_error());
    mem_free(copy);
    if (!good)
        return false;
    if (!json_is_object(r->body))
        return api_refuse(e, 400, NULL, NULL, "found %s, expected a JSON object",
                          json_kind(r->body));
    if (!read_dialect(r, endpoint, e))
        return false;
    json_object_foreach(r->body, key, v)
    {
        reading in = { r, rules, key, v, e };
        if (!take_field(&in))
            return false;
    }
    r->sample.seed = large ? seed : r->sample.seed;
    return check_required(r, e) && check_together(r, e) && speech_choose(r, e) &&
           speech_variables(r, e);
}

void api_close(api_request *r)
{
    json_decref(r->callable);
    json_decref(r->own_variables);
    json_decref(r->body);
    json_decref(r->original);
    mem_free(r->stop_ids);
    mem_free((void *)r->terms.bias);
    str_free(&r->ignored);
    *r = (api_request){ 0 };
}
