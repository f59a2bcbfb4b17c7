/* Reads a turn that is made of messages with headers, as gpt-oss writes it: the channel analysis is
 * thought, a header with to=functions.NAME is a call, all else is content. No header is an error.
 */
#include "chat/chat_turn_parts.h"

#include "base/mem.h"

#include <string.h>

static const char header[] = "a header"; /* of chat_turn.body: it is read; NULL at first */

enum { MAX_HEADER = 1000 };

static bool is_name(char c)
{
    return c != '\0' && !strchr(" \t\n<", c) && c != (char)SPEECH_OPENS;
}

static const char *mark(const chat_turn *t, channel_mark m)
{
    return t->rules.speech->marks[m];
}

/* Begins the part that the header in `raw` says. */
static void begin_body(chat_turn *t)
{
    static const char *const kinds[] = {
        [TURN_THOUGHT] = "thought", [TURN_CONTENT] = "content", [TURN_CALL] = "call"
    };
    str_puts(&t->raw, "");
    const char *to = strstr(t->raw.p, "to=");
    turn_kind kind = strstr(t->raw.p, "analysis") ? TURN_THOUGHT : TURN_CONTENT;
    str_clear(&t->r.name);
    t->r.scan = (json_scan){ 0 };
    t->r.complete = false;
    t->first_hidden = t->n;
    if (to && t->rules.tools) {
        to += str_starts(to + 3, "functions.") ? sizeof "to=functions." - 1 : 3;
        for (; is_name(*to); to++)
            str_putc(&t->r.name, *to);
        if (call_begin(t))
            kind = TURN_CALL;
    }
    if (kind == TURN_THOUGHT && !t->rules.thoughts)
        kind = TURN_CONTENT;
    t->body = kinds[kind];
    str_clear(&t->raw);
    str_clear(&t->blanks);
    t->said = false;
    t->thought = t->thought || kind == TURN_THOUGHT;
}

static turn_part *call_of(chat_turn *t)
{
    return t->body && strcmp(t->body, "call") == 0 && t->n > t->first_hidden ? &t->parts[t->n - 1]
                                                                             : NULL;
}

static void add_body(chat_turn *t, const char *text, size_t n)
{
    turn_part *call = call_of(t);
    if (!call) {
        turn_say(t, strcmp(t->body, "thought") == 0 ? TURN_THOUGHT : TURN_CONTENT, text, n);
        return;
    }
    for (size_t i = 0; i < n && !t->r.complete; i++) {
        str_putc(&t->raw, text[i]);
        if (!t->r.scan.begun && strchr(" \n", text[i]))
            continue;
        if (!json_scan_object(&t->r.scan, text[i], &t->r.complete))
            return;
        str_putc(&call->text, text[i]);
    }
}

/* The message is over: a call that is no complete object is content, unless it was shown. */
static void end_body(chat_turn *t)
{
    turn_part *call = call_of(t);
    if (call && t->r.complete) {
        call->whole = true;
    } else if (call && !t->rules.sure) {
        turn_drop(t, t->first_hidden);
        turn_say(t, TURN_CONTENT, t->raw.p, t->raw.n);
    }
    str_clear(&t->raw);
    t->first_hidden = t->n;
    t->body = header;
}

void channels_process(chat_turn *t)
{
    const char *const marks[] = {
        mark(t, MARK_MESSAGE), mark(t, MARK_END),   mark(t, MARK_CALL),
        mark(t, MARK_RETURN),  mark(t, MARK_START), mark(t, MARK_CHANNEL)
    };
    enum { MESSAGE, N = sizeof marks / sizeof *marks };
    size_t done = 0, held;
    for (int which = 0; which >= 0;) {
        bool in_header = !t->body || t->body == header;
        const char *from = t->pending.p + done;
        size_t n = turn_seek(from, t->pending.n - done, marks, N, &which, &held);
        if (!in_header)
            add_body(t, from, n);
        else if (t->raw.n + n <= MAX_HEADER || !t->body)
            str_add(&t->raw, from, n);
        done += n + (which >= 0 ? strlen(marks[which]) : 0);
        if (which < 0)
            continue;
        if (which == MESSAGE && in_header)
            begin_body(t);
        else if (!in_header)
            end_body(t);
        else if (t->raw.n)
            str_putc(&t->raw, ' ');
    }
    memmove(t->pending.p, t->pending.p + done, t->pending.n - done);
    t->pending.n -= done;
    t->visible = t->rules.sure                          ? t->n
                 : t->first_hidden < t->n && call_of(t) ? t->first_hidden
                                                        : t->n;
    if (!str_ok(&t->raw) || !str_ok(&t->pending))
        t->status = fail_nomem("an answer", t->raw.n);
}

/* A text without any header is content. */
void channels_finish(chat_turn *t)
{
    if (!t->body && t->raw.n) {
        turn_say(t, TURN_CONTENT, t->raw.p, t->raw.n);
        turn_say(t, TURN_CONTENT, t->pending.p, t->pending.n);
    } else if (t->body && t->body != header) {
        add_body(t, t->pending.p, t->pending.n);
        end_body(t);
    }
    t->visible = t->n;
}
