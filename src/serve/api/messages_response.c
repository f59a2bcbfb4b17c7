/* Answers of POST /v1/messages, whole and as events. */
#include "serve/api/response.h"

#include <string.h>

/* ---- parts ---- */

/* Why the answer ends, and by which of the stop strings of the request. */
static const char *stop_reason(const choice *c, const char **stop)
{
    *stop = NULL;
    if (strcmp(c->finish, "length") == 0)
        return "max_tokens";
    for (size_t i = 0; c->answer.stop && i < c->of->api.n_stop; i++)
        if (strcmp(c->answer.stop, c->of->api.stop[i]) == 0)
            *stop = c->answer.stop;
    size_t n;
    const turn_part *p = chat_turn_parts(c->turn, &n);
    for (size_t i = 0; i < n; i++)
        if (p[i].kind == TURN_CALL)
            return "tool_use";
    return *stop ? "stop_sequence" : "end_turn";
}

static json_t *usage_of(const call *c, json_int_t out)
{
    json_int_t cached = (json_int_t)c->cached_tokens;
    return json_pack("{s:I, s:I, s:I, s:I}", "input_tokens", (json_int_t)c->prompt_tokens - cached,
                     "cache_read_input_tokens", cached, "cache_creation_input_tokens",
                     (json_int_t)0, "output_tokens", out);
}

static json_t *message_of(const call *c, json_t *content, const char *reason, const char *stop,
                          json_int_t out)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:o}", "id", c->id, "type", "message",
                     "role", "assistant", "model", c->model->name, "content", content,
                     "stop_reason", reason, "stop_sequence", stop, "usage", usage_of(c, out));
}

/* A block with the first n bytes of its text. */
static json_t *block_of(const choice *c, size_t i, bool whole)
{
    size_t parts;
    char id[CALL_ID_ROOM];
    const turn_part *p = &chat_turn_parts(c->turn, &parts)[i];
    const char *text = whole && p->text.p ? p->text.p : "";
    size_t n = whole ? p->text.n : 0;
    if (p->kind == TURN_THOUGHT)
        return json_pack("{s:s, s:s%, s:s}", "type", "thinking", "thinking", text, n, "signature",
                         "");
    if (p->kind == TURN_CONTENT)
        return json_pack("{s:s, s:s%}", "type", "text", "text", text, n);
    json_t *input = NULL;
    choice_call_id(c, i, id);
    if (n && json_parse_loose(&input, text, n, "arguments") != PESC_OK)
        status_clear();
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", id, "name", p->name, "input",
                     input ? input : json_object());
}

void messages_whole(const call *c, str *out)
{
    const choice *h = &c->choices[0];
    size_t n;
    const turn_part *p = chat_turn_parts(h->turn, &n);
    const char *stop, *reason = stop_reason(h, &stop);
    json_t *content = json_array();
    for (size_t i = 0; i < n; i++)
        if (response_shows(h, &p[i]))
            json_array_append_new(content, block_of(h, i, true));
    if (json_array_size(content) == 0)
        json_array_append_new(content, json_pack("{s:s, s:s}", "type", "text", "text", ""));
    json_t *v = message_of(c, content, reason, stop, (json_int_t)call_generated(c));
    if (v)
        json_put(out, v, JSON_COMPACT);
    json_decref(v);
}

/* ---- events ---- */

static void put_event(json_t *v, str *out)
{
    str_printf(out, "event: %s\ndata: ", json_string_value(json_object_get(v, "type")));
    json_put(out, v, JSON_COMPACT);
    str_puts(out, "\n\n");
    json_decref(v);
}

static void put_start(const choice *c, json_t *opened, str *out)
{
    put_event(json_pack("{s:s, s:I, s:o}", "type", "content_block_start", "index",
                        (json_int_t)c->blocks, "content_block", opened),
              out);
}

static void put_stop(choice *c, str *out)
{
    put_event(
        json_pack("{s:s, s:I}", "type", "content_block_stop", "index", (json_int_t)c->blocks++),
        out);
}

static void put_delta(const choice *c, const char *type, const char *key, const char *text,
                      size_t n, str *out)
{
    put_event(json_pack("{s:s, s:I, s:{s:s, s:s%}}", "type", "content_block_delta", "index",
                        (json_int_t)c->blocks, "delta", "type", type, key, text, n),
              out);
}

/* What is new of a part; ends: nothing more will be. */
static void put_part(choice *c, const turn_part *p, bool ends, str *out)
{
    static const char *const types[][2] = { [TURN_THOUGHT] = { "thinking_delta", "thinking" },
                                            [TURN_CONTENT] = { "text_delta", "text" },
                                            [TURN_CALL] = { "input_json_delta", "partial_json" } };
    if (!c->part_begun)
        put_start(c, block_of(c, c->part, false), out);
    c->part_begun = true;
    if (p->text.n > c->part_sent)
        put_delta(c, types[p->kind][0], types[p->kind][1], p->text.p + c->part_sent,
                  p->text.n - c->part_sent, out);
    c->part_sent = p->text.n;
    if (ends && p->kind == TURN_THOUGHT)
        put_delta(c, "signature_delta", "signature", "", 0, out);
    if (ends)
        put_stop(c, out);
}

static void put_end(choice *c, str *out)
{
    const char *stop, *reason = stop_reason(c, &stop);
    if (c->blocks == 0) {
        put_start(c, json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
        put_stop(c, out);
    }
    put_event(json_pack("{s:s, s:{s:s, s:s?}, s:o}", "type", "message_delta", "delta",
                        "stop_reason", reason, "stop_sequence", stop, "usage",
                        usage_of(c->of, (json_int_t)c->answer.ids.n)),
              out);
    put_event(json_pack("{s:s}", "type", "message_stop"), out);
}

void messages_events(choice *c, str *out)
{
    if (!c->begun) {
        put_event(json_pack("{s:s, s:o}", "type", "message_start", "message",
                            message_of(c->of, json_array(), NULL, NULL, 0)),
                  out);
        put_event(json_pack("{s:s}", "type", "ping"), out);
    }
    c->begun = true;
    if (response_parts(c, put_part, out))
        put_end(c, out);
}
