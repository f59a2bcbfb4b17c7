/* The JSON of answers. A value that memory does not suffice for is NULL, which jansson passes up:
 * the whole is then NULL, and the answer an error. */
#include "serve/api/response.h"

#include "base/utf8.h"
#include "tokenizer/bytetoken.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_LOGPROB = -9999 }; /* JSON has no infinity */

static const tokenizer *tokenizer_of(const choice *c)
{
    return c->of->x->srv->m->tok;
}

static double finite_logprob(float x)
{
    return isfinite(x) && x > LEAST_LOGPROB ? (double)x : LEAST_LOGPROB;
}

/* ---- log-probabilities ---- */

/* How many of the most likely tokens `logprobs` reports. */
static int64_t reported(const choice *c)
{
    return c->of->api.top < c->of->n_top ? c->of->api.top : c->of->n_top;
}

/* The text of a token in its place; its id where that is asked for, or without a tokenizer. */
static void piece_text(const choice *c, int32_t before, int32_t id, str *out)
{
    const tokenizer *t = tokenizer_of(c);
    str_clear(out);
    if (!t || c->of->api.tokens_as_ids ||
        prompts_piece(c->of->pieces, t, before, id, out) != PESC_OK)
        str_printf(out, "token_id:%d", id);
    str_puts(out, "");
}

json_t *response_token(const tokenizer *t, int32_t id)
{
    size_t n;
    const char *text = t && id >= 0 ? tokenizer_token(t, id, &n) : NULL;
    return text ? json_stringn(text, n) : json_null();
}

json_t *response_bytes(const tokenizer *t, int32_t id, const str *text)
{
    size_t n = 0;
    str bytes = { 0 };
    const char *raw = t ? tokenizer_token(t, id, &n) : NULL;
    int byte = raw ? bytetoken_value(raw, n) : -1;
    if (byte >= 0)
        str_putc(&bytes, (char)byte);
    else if (!raw || !strstr(text->p, "\xef\xbf\xbd") || !bytelevel_bytes(raw, n, &bytes))
        str_add(&bytes, text->p, text->n);
    json_t *list = json_array();
    for (size_t i = 0; list && i < bytes.n; i++)
        json_array_append_new(list, json_integer((unsigned char)bytes.p[i]));
    str_free(&bytes);
    return list;
}

/* {"text": value} of the most likely tokens and the token itself. Of two tokens with the same text
 * the larger value stays: a client that looks for the largest value finds it. */
static json_t *top_by_text(const choice *c, const token_logprob *n)
{
    str text = { 0 };
    json_t *all = json_object();
    for (int64_t i = -1; all && i < reported(c); i++) {
        const sched_choice *t = i < 0 ? NULL : &c->top[n->top + (size_t)i];
        double value = finite_logprob(t ? t->logprob : n->value);
        piece_text(c, n->before, t ? t->id : n->id, &text);
        const json_t *had = json_object_get(all, text.p);
        if (!had || json_real_value(had) < value)
            json_object_set_new(all, text.p, json_real(value));
    }
    str_free(&text);
    return all;
}

/* Four arrays, for /v1/completions. */
static json_t *logprob_arrays(const choice *c, size_t from, size_t to)
{
    json_t *tokens = json_array(), *values = json_array(), *top = json_array(),
           *offsets = json_array();
    str text = { 0 };
    for (size_t i = from; i < to; i++) {
        const token_logprob *n = &c->logprobs.all[i];
        piece_text(c, n->before, n->id, &text);
        json_array_append_new(tokens, json_stringn(text.p, text.n));
        json_array_append_new(values, n->none ? json_null() : json_real(finite_logprob(n->value)));
        json_array_append_new(top, n->none ? json_null() : top_by_text(c, n));
        json_array_append_new(offsets, json_integer((json_int_t)n->offset));
    }
    str_free(&text);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", top, "text_offset", offsets);
}

json_t *response_logprob(const choice *c, const token_logprob *n, int32_t id, float value)
{
    str text = { 0 };
    piece_text(c, n->before, id, &text);
    json_t *v =
        json_pack("{s:s%, s:f, s:o}", "token", text.p, text.n, "logprob", finite_logprob(value),
                  "bytes", response_bytes(tokenizer_of(c), id, &text));
    str_free(&text);
    return v;
}

json_t *response_token_logprobs(const choice *c, size_t i)
{
    const token_logprob *n = &c->logprobs.all[i];
    json_t *entry = response_logprob(c, n, n->id, n->value), *top = json_array();
    for (size_t k = 0; k < (size_t)reported(c); k++) {
        const sched_choice *t = &c->top[n->top + k];
        json_array_append_new(top, response_logprob(c, n, t->id, t->logprob));
    }
    json_object_set_new(entry, "top_logprobs", top);
    return entry;
}

/* A list of objects, for /v1/chat/completions. */
static json_t *chat_logprobs(const choice *c, size_t from, size_t to)
{
    json_t *list = json_array();
    for (size_t i = from; i < to; i++)
        json_array_append_new(list, response_token_logprobs(c, i));
    return json_pack("{s:o, s:n}", "content", list, "refusal");
}

static json_t *logprobs_of(const choice *c, size_t from, size_t to)
{
    if (!c->of->api.logprobs)
        return json_null();
    return c->of->api.endpoint == API_CHAT ? chat_logprobs(c, from, to)
                                           : logprob_arrays(c, from, to);
}

/* ---- log-probabilities of a prompt, in the form of vLLM ---- */

static void put_ranked(const choice *c, const token_logprob *n, sched_choice t, int32_t rank,
                       json_t *to)
{
    str text = { 0 };
    char id[16];
    piece_text(c, n->before, t.id, &text);
    snprintf(id, sizeof id, "%d", t.id);
    json_object_set_new(to, id,
                        json_pack("{s:f, s:i, s:s%}", "logprob", finite_logprob(t.logprob), "rank",
                                  (int)rank, "decoded_token", text.p, text.n));
    str_free(&text);
}

/* One object a token: the token itself, then the most likely ones, by their ids. */
static json_t *prompt_logprobs_of(const choice *c)
{
    json_t *list = json_array();
    json_array_append_new(list, json_null()); /* nothing is before the first token */
    for (size_t i = 0; i < c->prompt_logprobs.n; i++) {
        const token_logprob *n = &c->prompt_logprobs.all[i];
        json_t *one = json_object();
        put_ranked(c, n, (sched_choice){ n->id, n->value }, n->rank, one);
        for (int32_t k = 0; k < c->of->n_top && k < c->of->api.prompt_top; k++)
            if (c->top[n->top + (size_t)k].id != n->id)
                put_ranked(c, n, c->top[n->top + (size_t)k], k + 1, one);
        json_array_append_new(list, one);
    }
    return list;
}

/* ---- parts that whole answers and events share ---- */

json_t *response_ids(const int32_t *ids, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(ids[i]));
    return list;
}

static json_t *usage_of(const call *c, json_int_t out)
{
    json_int_t in = c->prompt_tokens, thought = 0;
    for (size_t i = 0; i < c->n_choices; i++)
        thought += c->choices[i].thought_tokens;
    json_t *v = json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", in, "completion_tokens", out,
                          "total_tokens", in + out, "prompt_tokens_details", "cached_tokens",
                          (json_int_t)c->cached_tokens);
    if (c->turn.thoughts)
        json_object_set_new(v, "completion_tokens_details",
                            json_pack("{s:I}", "reasoning_tokens", thought));
    return v;
}

/* Everything but choices and usage. */
static json_t *frame(const call *c, json_t *choices)
{
    const pesc_server *s = c->x->srv;
    bool chat = c->api.endpoint == API_CHAT, events = c->x->stream;
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object",
                     !chat    ? "text_completion"
                     : events ? "chat.completion.chunk"
                              : "chat.completion",
                     "created", (json_int_t)c->created, "model", c->model->name,
                     "system_fingerprint", s->fingerprint, "choices", choices);
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

/* Forwards between the first token and the last: each choice's first token came with its prompt. */
static double steps(const call *c)
{
    double n = 0;
    for (size_t i = 0; i < c->n_choices; i++)
        n += c->choices[i].answer.ids.n > 1 ? (double)(c->choices[i].answer.ids.n - 1) : 0;
    return n;
}

json_t *response_timings(const call *c)
{
    double before = c->first > c->began ? 1000 * (c->first - c->began) : 0;
    double after = 1000 * (c->last - c->first);
    json_int_t read = c->prompt_tokens - c->cached_tokens, made = call_generated(c);
    json_t *t = json_pack("{s:I, s:I, s:f, s:f, s:f, s:I, s:f, s:f, s:f}", "cache_n",
                          (json_int_t)c->cached_tokens, "prompt_n", read, "prompt_ms", before,
                          "prompt_per_token_ms", per(before, (double)read), "prompt_per_second",
                          per(1000 * (double)read, before), "predicted_n", made, "predicted_ms",
                          after, "predicted_per_token_ms", per(after, steps(c)),
                          "predicted_per_second", per(1000 * steps(c), after));
    if (c->guessed > 0) { /* as llama.cpp, only where there were any */
        json_object_set_new(t, "draft_n", json_integer(c->guessed));
        json_object_set_new(t, "draft_n_accepted", json_integer(c->guesses_kept));
        double passes = steps(c) - (double)c->guesses_kept; /* in which its tokens were computed */
        json_object_set_new(t, "predicted_per_pass", json_real(per(steps(c), passes)));
    }
    return t;
}

/* What is reported of a choice beside its text, from what was sent already on. A whole answer has
 * null for token_ids and prompt_logprobs that were not asked for, as vLLM's do. */
static void add_reports(const choice *c, json_t *v)
{
    const id_list *p = &c->prompt->ids;
    const api_request *api = &c->of->api;
    bool chat = api->endpoint == API_CHAT; /* there the prompt belongs to the whole answer */
    if (api->return_token_ids) {
        if (c->ids_sent == 0 && !chat)
            json_object_set_new(v, "prompt_token_ids", response_ids(p->ids, p->n));
        json_object_set_new(
            v, "token_ids",
            response_ids(c->answer.ids.ids + c->ids_sent, c->answer.ids.n - c->ids_sent));
    } else if (!c->of->x->stream) {
        json_object_set_new(v, "token_ids", json_null());
    }
    if (api->prompt_top >= 0 && !chat)
        json_object_set_new(v, "prompt_logprobs", prompt_logprobs_of(c));
    else if (!chat && !c->of->x->stream)
        json_object_set_new(v, "prompt_logprobs", json_null());
    if (api->return_routes)
        json_object_set_new(v, "routed_experts", expertload_of(c, c->routes_sent));
}

/* The same of a whole answer or of an event; of the prompt only with_prompt. */
static void add_call_reports(const call *c, json_t *v, bool with_prompt)
{
    const choice *first = &c->choices[0];
    bool chat = c->api.endpoint == API_CHAT, whole = !c->x->stream;
    if (chat && with_prompt && (whole || c->api.return_token_ids))
        json_object_set_new(v, "prompt_token_ids",
                            c->api.return_token_ids
                                ? response_ids(first->prompt->ids.ids, first->prompt->ids.n)
                                : json_null());
    if (chat && with_prompt && (whole || c->api.prompt_top >= 0))
        json_object_set_new(v, "prompt_logprobs",
                            c->api.prompt_top >= 0 ? prompt_logprobs_of(first) : json_null());
    if (c->api.timings && (whole || !chat || !with_prompt)) /* the role comes without a token */
        json_object_set_new(v, "timings", response_timings(c));
}

/* ---- whole answers ---- */

/* A choice of an answer or of an event: what it says under `key`, with log-probabilities from
 * `from` on. */
static json_t *choice_json(const choice *c, const char *key, json_t *says, size_t from,
                           const char *finish)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, key, says, "logprobs",
                     logprobs_of(c, from, c->logprobs.n), "finish_reason", finish);
}

bool response_shows(const choice *c, const turn_part *p)
{
    return p->kind != TURN_THOUGHT || c->of->api.shows_thoughts;
}

bool response_parts(choice *c, void (*put)(choice *c, const turn_part *p, bool ends, str *out),
                    str *out)
{
    size_t n;
    const turn_part *p = chat_turn_parts(c->turn, &n);
    while (c->part < n) {
        bool ends = c->part + 1 < n || c->finish;
        if (response_shows(c, &p[c->part]))
            put(c, &p[c->part], ends, out);
        if (!ends)
            return false;
        c->part++;
        c->part_sent = 0;
        c->part_begun = false;
    }
    return c->finish != NULL;
}

/* The message of a chat. */
json_t *response_message(const choice *c)
{
    json_t *m = chat_turn_message(c->turn, c->of->id, (uint64_t)c->index << 32);
    json_t *thought = json_object_get(m, "reasoning_content");
    json_object_set_new(m, "refusal", json_null());
    if (!c->of->api.shows_thoughts)
        json_object_del(m, "reasoning_content");
    else if (thought)
        json_object_set(m, "reasoning", thought);
    return m;
}

static json_t *whole_text(const choice *c)
{
    str all = { 0 };
    if (c->of->api.echo && c->prompt->text.p)
        str_add(&all, c->prompt->text.p, c->prompt->text.n);
    str_add(&all, answer_text(&c->answer), c->answer.n);
    str_puts(&all, "");
    json_t *text = json_stringn(all.p ? all.p : "", all.n);
    str_free(&all);
    return text;
}

static json_t *whole_choice(const choice *c)
{
    bool chat = c->of->api.endpoint == API_CHAT;
    json_t *v = choice_json(c, chat ? "message" : "text",
                            chat ? response_message(c) : whole_text(c), 0, c->finish);
    add_reports(c, v);
    return v;
}

static void chat_whole(const call *c, str *out)
{
    json_t *choices = json_array();
    for (size_t i = 0; i < c->n_choices; i++)
        json_array_append_new(choices, whole_choice(&c->choices[i]));
    json_t *v = frame(c, choices);
    add_call_reports(c, v, true);
    if (json_array_size(choices) == c->n_choices && v &&
        json_object_set_new(v, "usage", usage_of(c, call_generated(c))) == 0)
        json_put(out, v, JSON_COMPACT);
    json_decref(v);
}

void response_whole(const call *c, str *out)
{
    static void (*const dialects[])(const call *c, str *out) = {
        [DIALECT_CHAT] = chat_whole,
        [DIALECT_MESSAGES] = messages_whole,
        [DIALECT_RESPONSES] = responses_whole,
    };
    if (c->api.endpoint == API_NATIVE)
        native_whole(c, out);
    else if (c->vectors)
        embeddings_whole(c, out);
    else
        dialects[c->api.dialect](c, out);
}

/* ---- events ---- */

/* part: the choice of the event; NULL: the event has none. */
static void put_event(call *c, json_t *part, json_t *usage, str *out)
{
    json_t *v = frame(c, part ? json_pack("[o]", part) : json_array());
    add_call_reports(c, v, !c->begun);
    c->begun = true;
    if (c->api.include_usage)
        json_object_set_new(v, "usage", usage ? usage : json_null());
    else
        json_decref(usage);
    str_puts(out, "data: ");
    if (v)
        json_put(out, v, JSON_COMPACT);
    str_puts(out, "\n\n");
    json_decref(v);
}

/* Of the tokens that are in events. */
static json_t *running_usage(const call *c)
{
    json_int_t sent = 0;
    for (size_t i = 0; i < c->n_choices; i++)
        sent += (json_int_t)c->choices[i].ids_sent;
    return c->api.include_usage && c->api.continuous_usage ? usage_of(c, sent) : NULL;
}

/* An event with what the choice says and the log-probabilities that have come since the last.
 * finish: why the choice ends with it; NULL: it does not. */
static void put_says(choice *c, json_t *says, const char *finish, str *out)
{
    bool chat = c->of->api.endpoint == API_CHAT;
    json_t *v = choice_json(c, chat ? "delta" : "text", says, c->logprobs_sent, finish);
    add_reports(c, v);
    c->logprobs_sent = c->logprobs.n;
    c->ids_sent = c->answer.ids.n;
    c->routes_sent = c->n_routed;
    put_event(c->of, v, running_usage(c->of), out);
}

/* Chat: the role. An echo: the text of the prompt. */
static void put_begin(choice *c, str *out)
{
    call *of = c->of;
    if (c->begun)
        return;
    c->begun = true;
    if (of->api.endpoint == API_CHAT)
        put_event(of,
                  json_pack("{s:i, s:{s:s, s:n}, s:n, s:n}", "index", c->index, "delta", "role",
                            "assistant", "content", "logprobs", "finish_reason"),
                  running_usage(of), out);
    else if (of->api.echo && c->prompt->text.n)
        put_says(c, json_stringn(c->prompt->text.p, c->prompt->text.n), NULL, out);
}

static json_t *call_delta(size_t index, json_t *more)
{
    json_t *one = json_pack("{s:I}", "index", (json_int_t)index);
    if (more)
        json_object_update(one, more);
    json_decref(more);
    return json_pack("{s:[o]}", "tool_calls", one);
}

/* What is new of a part: of a call first its name, then its arguments. */
static void put_part(choice *c, const turn_part *p, size_t index, str *out)
{
    const char *text = (p->text.p ? p->text.p : "") + c->part_sent;
    size_t n = p->text.n - c->part_sent;
    char id[CALL_ID_ROOM];
    if (p->kind == TURN_CALL && !c->part_begun) {
        choice_call_id(c, c->part, id);
        put_says(
            c,
            call_delta(index, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                        "function", "name", p->name, "arguments", "")),
            NULL, out);
        c->part_begun = true;
    }
    c->part_sent = p->text.n;
    if (n == 0)
        return;
    if (p->kind == TURN_CALL)
        put_says(c, call_delta(index, json_pack("{s:{s:s%}}", "function", "arguments", text, n)),
                 NULL, out);
    else if (p->kind == TURN_CONTENT)
        put_says(c, json_pack("{s:s%}", "content", text, n), NULL, out);
    else if (c->of->api.shows_thoughts)
        put_says(c, json_pack("{s:s%, s:s%}", "reasoning_content", text, n, "reasoning", text, n),
                 NULL, out);
}

/* What is new of the turn. */
static void put_turn(choice *c, str *out)
{
    size_t n, calls = 0;
    const turn_part *p = chat_turn_parts(c->turn, &n);
    for (size_t i = 0; i < c->part && i < n; i++)
        calls += p[i].kind == TURN_CALL;
    while (c->part < n) {
        put_part(c, &p[c->part], calls, out);
        if (c->part + 1 == n)
            return;
        calls += p[c->part++].kind == TURN_CALL;
        c->part_sent = 0;
        c->part_begun = false;
    }
}

/* The end of a chat is an event of its own, without content; that of a completion comes with its
 * last text, as clients of OpenAI's API and of vLLM meet it. */
static void chat_events(choice *c, str *out)
{
    call *of = c->of;
    bool chat = of->api.endpoint == API_CHAT;
    put_begin(c, out);
    if (chat)
        put_turn(c, out);
    bool more = !chat && c->answer.certain > c->sent;
    bool rest = c->finish && (c->logprobs_sent < c->logprobs.n || c->routes_sent < c->n_routed ||
                              (of->api.return_token_ids && c->ids_sent < c->answer.ids.n));
    bool ends = c->finish && !chat;
    if (rest && chat)
        put_says(c, json_pack("{s:s}", "content", ""), NULL, out);
    else if (more || ends)
        put_says(c, json_stringn(answer_text(&c->answer) + c->sent, c->answer.certain - c->sent),
                 ends ? c->finish : NULL, out);
    c->sent = c->answer.certain;
    if (c->finish)
        c->ids_sent = c->answer.ids.n;
    if (c->finish && chat)
        put_event(of,
                  json_pack("{s:i, s:{}, s:n, s:s}", "index", c->index, "delta", "logprobs",
                            "finish_reason", c->finish),
                  running_usage(of), out);
}

void response_events(choice *c, str *out)
{
    static void (*const dialects[])(choice * c, str * out) = {
        [DIALECT_CHAT] = chat_events,
        [DIALECT_MESSAGES] = messages_events,
        [DIALECT_RESPONSES] = responses_events,
    };
    if (c->of->api.endpoint == API_NATIVE)
        native_events(c, out);
    else
        dialects[c->of->api.dialect](c, out);
}

void response_last_events(call *c, str *out)
{
    if (c->api.endpoint == API_NATIVE || c->api.dialect != DIALECT_CHAT)
        return;
    if (c->api.include_usage)
        put_event(c, NULL, usage_of(c, call_generated(c)), out);
    str_puts(out, "data: [DONE]\n\n");
}
