#include "cli/opt/sse.h"

#include <jansson.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void sse_open(sse *s)
{
    *s = (sse){ .tokens = -1, .in_head = true, .left = -1, .size = -1 };
}

void sse_close(sse *s)
{
    free(s->line);
    *s = (sse){ 0 };
}

static bool add(sse *s, char c)
{
    if (s->n + 1 >= s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 256;
        char *more = realloc(s->line, cap);
        if (!more)
            return false;
        s->line = more;
        s->cap = cap;
    }
    s->line[s->n++] = c;
    s->line[s->n] = '\0';
    return true;
}

static void take_head_line(sse *s)
{
    static const char chunked[] = "transfer-encoding: chunked";
    if (s->status == 0 && s->n > 12)
        s->status = (int)strtod(s->line + 9, NULL);
    else if (strncasecmp(s->line, chunked, sizeof chunked - 1) == 0)
        s->chunked = true;
    else if (s->n == 0)
        s->in_head = false;
}

static void take_event(sse *s, const char *data)
{
    json_t *v = json_loads(data, 0, NULL);
    const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    const json_t *text = json_object_get(choice, "text");
    const json_t *count = json_object_get(json_object_get(v, "usage"), "completion_tokens");
    if (!text)
        text = json_object_get(json_object_get(choice, "delta"), "content");
    s->token = json_string_length(text) > 0;
    if (json_is_integer(count))
        s->tokens = json_integer_value(count);
    json_decref(v);
}

/* A line of the body without its end; true: it was an event. */
static bool take_line(sse *s)
{
    static const char mark[] = "data: ";
    if (strncmp(s->line ? s->line : "", mark, sizeof mark - 1) != 0)
        return false;
    if (strcmp(s->line + sizeof mark - 1, "[DONE]") == 0)
        s->done = true;
    else
        take_event(s, s->line + sizeof mark - 1);
    return true;
}

/* A byte of the line with the size of the next chunk; an empty line ends the chunk before. A line
 * of the body may be cut by it, so it has no buffer. */
static void take_size(sse *s, char c)
{
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit >= 0 && !s->extension && s->size < INT32_MAX)
        s->size = 16 * (s->size < 0 ? 0 : s->size) + digit;
    s->extension |= c == ';';
    if (c != '\n' || s->size < 0)
        return;
    s->left = s->size;
    s->done |= s->size == 0;
    s->size = -1;
    s->extension = false;
}

/* A byte of a line of the head or of the body; true: it ends an event. */
static bool take_byte(sse *s, char c)
{
    bool event = false;
    if (c != '\n') {
        if (c != '\r' && !add(s, c))
            s->done = true;
        return false;
    }
    if (s->in_head)
        take_head_line(s);
    else
        event = take_line(s);
    s->n = 0;
    if (s->line)
        s->line[0] = '\0';
    return event;
}

size_t sse_feed(sse *s, const char *bytes, size_t n)
{
    s->token = false;
    for (size_t i = 0; i < n && !s->done; i++) {
        bool in_body = !s->in_head;
        if (in_body && s->chunked && s->left < 0) {
            take_size(s, bytes[i]);
            continue;
        }
        bool event = take_byte(s, bytes[i]);
        if (in_body && s->chunked && --s->left == 0)
            s->left = -1;
        if (event)
            return i + 1;
    }
    return n;
}
