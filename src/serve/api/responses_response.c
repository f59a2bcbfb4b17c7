/* Answers of POST /v1/responses, whole and as events. */
#include "base/clock.h"
#include "serve/api/response.h"

#include <stdio.h>
#include <string.h>

/* ---- items ---- */

/* rs_, msg_ or fc_, the request and the number of the part. */
static void item_id(const choice *c, size_t i, char id[64])
{
    static const char *const prefixes[] = {
        [TURN_THOUGHT] = "rs", [TURN_CONTENT] = "msg", [TURN_CALL] = "fc"
    };
    size_t n;
    const turn_part *p = chat_turn_parts(c->turn, &n);
    snprintf(id, 64, "%s_%s%02zx", prefixes[p[i].kind], strchr(c->of->id, '_') + 1, i);
}

/* Log-probabilities of the tokens that begin in bytes [from, to) of the content. It stands in the
 * text where the thoughts end, white space before it left out. */
static json_t *logprobs_of(const choice *c, const turn_part *p, size_t from, size_t to)
{
    const char *text = answer_text(&c->answer);
    size_t at = c->content_at;
    json_t *all = json_array();
    if (!c->of->api.logprobs || !p->text.n)
        return all;
    while (at < c->answer.n && text[at] != p->text.p[0])
        at++;
    size_t first = prompts_chars(text, at);
    size_t begin = first + prompts_chars(p->text.p, from);
    size_t end = first + prompts_chars(p->text.p, to);
    for (size_t i = 0; i < c->logprobs.n; i++)
        if (c->logprobs.all[i].offset >= begin && c->logprobs.all[i].offset < end)
            json_array_append_new(all, response_token_logprobs(c, i));
    return all;
}

/* With the first n bytes of its text. */
static json_t *text_part(const choice *c, const turn_part *p, size_t n)
{
    const char *text = p->text.p ? p->text.p : "";
    if (p->kind == TURN_THOUGHT)
        return json_pack("{s:s, s:s%}", "type", "reasoning_text", "text", text, n);
    return json_pack("{s:s, s:s%, s:[], s:o}", "type", "output_text", "text", text, n,
                     "annotations", "logprobs", logprobs_of(c, p, 0, n));
}

/* The item that is part i; begins: as it is when nothing of its text is there. */
static json_t *item_of(const choice *c, size_t i, bool begins)
{
    size_t n;
    char id[64], call_id[CALL_ID_ROOM];
    const turn_part *p = &chat_turn_parts(c->turn, &n)[i];
    bool cut = c->finish && strcmp(c->finish, "length") == 0 && i + 1 == n;
    const char *status = begins ? "in_progress" : cut ? "incomplete" : "completed";
    json_t *content = json_array();
    item_id(c, i, id);
    if (!begins && p->kind != TURN_CALL)
        json_array_append_new(content, text_part(c, p, p->text.n));
    if (p->kind == TURN_THOUGHT)
        return json_pack("{s:s, s:s, s:s, s:[], s:o}", "type", "reasoning", "id", id, "status",
                         status, "summary", "content", content);
    if (p->kind == TURN_CONTENT)
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "type", "message", "id", id, "status", status,
                         "role", "assistant", "content", content);
    json_decref(content);
    choice_call_id(c, i, call_id);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s%}", "type", "function_call", "id", id, "status",
                     status, "call_id", call_id, "name", p->name, "arguments",
                     p->text.p && !begins ? p->text.p : "", begins ? (size_t)0 : p->text.n);
}

/* ---- the object ---- */

static json_t *usage_of(const call *c)
{
    const choice *h = &c->choices[0];
    json_int_t in = (json_int_t)c->prompt_tokens, out = (json_int_t)call_generated(c);
    return json_pack("{s:I, s:{s:I, s:I}, s:I, s:{s:I}, s:I}", "input_tokens", in,
                     "input_tokens_details", "cached_tokens", (json_int_t)c->cached_tokens,
                     "cache_write_tokens", (json_int_t)0, "output_tokens", out,
                     "output_tokens_details", "reasoning_tokens", (json_int_t)h->thought_tokens,
                     "total_tokens", in + out);
}

/* A field of the request as it was given, or else this value, which it takes. */
static void echo(const call *c, json_t *v, const char *key, json_t *otherwise)
{
    json_t *given = json_object_get(c->api.original, key);
    if (given && !json_is_null(given)) {
        json_decref(otherwise);
        otherwise = json_incref(given);
    }
    json_object_set_new(v, key, otherwise);
}

/* With the items of its parts; ended: as far as the answer is complete. */
static json_t *object_of(const choice *h, bool ended)
{
    const call *c = h->of;
    size_t n;
    const turn_part *p = chat_turn_parts(h->turn, &n);
    bool cut = ended && strcmp(h->finish, "length") == 0;
    json_t *output = json_array();
    for (size_t i = 0; ended && i < n; i++)
        if (response_shows(h, &p[i]))
            json_array_append_new(output, item_of(h, i, false));
    json_t *v = json_pack("{s:s, s:s, s:I, s:s, s:n, s:s, s:o}", "id", c->id, "object", "response",
                          "created_at", (json_int_t)c->created, "status",
                          !ended ? "in_progress"
                          : cut  ? "incomplete"
                                 : "completed",
                          "error", "model", c->model->name, "output", output);
    json_object_set_new(v, "completed_at",
                        ended && !cut ? json_integer((json_int_t)clock_wall()) : json_null());
    json_object_set_new(v, "incomplete_details",
                        cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
    json_object_set_new(v, "usage", ended ? usage_of(c) : json_null());
    echo(c, v, "instructions", json_null());
    echo(c, v, "parallel_tool_calls", json_true());
    echo(c, v, "tool_choice", json_string("auto"));
    echo(c, v, "tools", json_array());
    echo(c, v, "temperature", json_real(c->api.sample.temperature));
    echo(c, v, "top_p", json_real(c->api.sample.top_p));
    echo(c, v, "text", json_pack("{s:{s:s}}", "format", "type", "text"));
    echo(c, v, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"));
    echo(c, v, "max_output_tokens", json_null());
    echo(c, v, "previous_response_id", json_null());
    echo(c, v, "metadata", json_object());
    echo(c, v, "truncation", json_string("disabled"));
    json_object_set_new(v, "background", json_false());
    json_object_set_new(v, "store", json_boolean(responsestore_wants(c)));
    return v;
}

void responses_whole(const call *c, str *out)
{
    json_t *v = object_of(&c->choices[0], true);
    if (v)
        json_put(out, v, JSON_COMPACT);
    json_decref(v);
}

/* ---- events ---- */

/* Takes the fields of the event. */
static void put_event(choice *c, const char *type, json_t *v, str *out)
{
    json_object_set_new(v, "type", json_string(type));
    json_object_set_new(v, "sequence_number", json_integer((json_int_t)c->events++));
    str_printf(out, "event: %s\ndata: ", type);
    json_put(out, v, JSON_COMPACT);
    str_puts(out, "\n\n");
    json_decref(v);
}

/* What events about a part have in common. */
static json_t *place_of(const choice *c)
{
    size_t n;
    char id[64];
    item_id(c, c->part, id);
    json_t *v = json_pack("{s:s, s:I}", "item_id", id, "output_index", (json_int_t)c->blocks);
    if (chat_turn_parts(c->turn, &n)[c->part].kind != TURN_CALL)
        json_object_set_new(v, "content_index", json_integer(0));
    return v;
}

static json_t *with(json_t *v, const char *key, json_t *more)
{
    json_object_set_new(v, key, more);
    return v;
}

static json_t *item_event(const choice *c, bool begins)
{
    return json_pack("{s:I, s:o}", "output_index", (json_int_t)c->blocks, "item",
                     item_of(c, c->part, begins));
}

static void begin_part(choice *c, const turn_part *p, str *out)
{
    put_event(c, "response.output_item.added", item_event(c, true), out);
    if (p->kind != TURN_CALL)
        put_event(c, "response.content_part.added", with(place_of(c), "part", text_part(c, p, 0)),
                  out);
    c->part_begun = true;
}

static void end_part(choice *c, const turn_part *p, str *out)
{
    json_t *text = json_stringn(p->text.p ? p->text.p : "", p->text.n);
    json_t *v = with(place_of(c), p->kind == TURN_CALL ? "arguments" : "text", text);
    if (p->kind == TURN_CALL) {
        put_event(c, "response.function_call_arguments.done", with(v, "name", json_string(p->name)),
                  out);
    } else {
        if (p->kind == TURN_CONTENT)
            v = with(v, "logprobs", logprobs_of(c, p, 0, p->text.n));
        put_event(c,
                  p->kind == TURN_CONTENT ? "response.output_text.done"
                                          : "response.reasoning_text.done",
                  v, out);
        put_event(c, "response.content_part.done",
                  with(place_of(c), "part", text_part(c, p, p->text.n)), out);
    }
    put_event(c, "response.output_item.done", item_event(c, false), out);
    c->blocks++;
}

static void put_part(choice *c, const turn_part *p, bool ends, str *out)
{
    static const char *const types[] = { [TURN_THOUGHT] = "response.reasoning_text.delta",
                                         [TURN_CONTENT] = "response.output_text.delta",
                                         [TURN_CALL] = "response.function_call_arguments.delta" };
    if (!c->part_begun)
        begin_part(c, p, out);
    if (p->text.n > c->part_sent) {
        json_t *v = with(place_of(c), "delta",
                         json_stringn(p->text.p + c->part_sent, p->text.n - c->part_sent));
        put_event(c, types[p->kind],
                  p->kind == TURN_CONTENT
                      ? with(v, "logprobs", logprobs_of(c, p, c->part_sent, p->text.n))
                      : v,
                  out);
    }
    c->part_sent = p->text.n;
    if (ends)
        end_part(c, p, out);
}

void responses_events(choice *c, str *out)
{
    if (!c->begun) {
        put_event(c, "response.created", json_pack("{s:o}", "response", object_of(c, false)), out);
        put_event(c, "response.in_progress", json_pack("{s:o}", "response", object_of(c, false)),
                  out);
    }
    c->begun = true;
    if (response_parts(c, put_part, out))
        put_event(c,
                  strcmp(c->finish, "length") == 0 ? "response.incomplete" : "response.completed",
                  json_pack("{s:o}", "response", object_of(c, true)), out);
}
