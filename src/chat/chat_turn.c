#include "chat/chat_turn.h"

#include "base/mem.h"
#include "chat/chat_turn_parts.h"

#include <xxhash.h>

#include <stdio.h>
#include <string.h>

enum { IN_THOUGHT, IN_TEXT, IN_CALLS, AFTER_CALLS, IN_CONTENT, IN_NOTHING };

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* ---- parts ---- */

turn_part *turn_add(chat_turn *t, turn_kind kind)
{
    if (!mem_room((void **)&t->parts, &t->cap, t->n, sizeof *t->parts)) {
        t->status = fail_nomem("an answer", t->n * sizeof *t->parts);
        return NULL;
    }
    t->parts[t->n] = (turn_part){ .kind = kind };
    return &t->parts[t->n++];
}

turn_part *turn_last(chat_turn *t, turn_kind kind)
{
    return t->n && t->parts[t->n - 1].kind == kind ? &t->parts[t->n - 1] : turn_add(t, kind);
}

void turn_drop(chat_turn *t, size_t from)
{
    while (t->n > from) {
        turn_part *p = &t->parts[--t->n];
        str_free(&p->text);
        mem_free(p->name);
        mem_free(p->id);
    }
}

/* Whether white space around the text is the format's, not the model's. */
static bool trims(const chat_turn *t, turn_kind kind)
{
    return kind == TURN_THOUGHT || t->rules.tools || t->thought;
}

void turn_say(chat_turn *t, turn_kind kind, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == (char)SPEECH_OPENS || t->in_control) {
            t->in_control = c != (char)SPEECH_CLOSES;
            continue;
        }
        if (trims(t, kind) && is_blank(c)) {
            if (t->said || (kind == TURN_CONTENT && !t->thought))
                str_putc(&t->blanks, c);
            continue;
        }
        turn_part *p = turn_last(t, kind);
        if (!p)
            return;
        str_add(&p->text, t->blanks.p, t->blanks.n);
        str_clear(&t->blanks);
        str_putc(&p->text, c);
        t->said = true;
        if (!str_ok(&p->text) || !str_ok(&t->blanks))
            t->status = fail_nomem("an answer", p->text.n);
    }
}

/* Another part begins. */
static void turn_over(chat_turn *t)
{
    str_clear(&t->blanks);
    t->said = false;
}

/* ---- marks ---- */

size_t turn_seek(const char *text, size_t n, const char *const *marks, size_t n_marks, int *which,
                 size_t *held)
{
    size_t best = n;
    *which = -1;
    *held = 0;
    for (size_t i = 0; i < n_marks; i++) {
        size_t len = marks[i] ? strlen(marks[i]) : 0;
        const char *hit = len ? memmem(text, n, marks[i], len) : NULL;
        if (hit && (size_t)(hit - text) < best) {
            best = (size_t)(hit - text);
            *which = (int)i;
        }
    }
    if (*which >= 0)
        return best;
    for (size_t i = 0; i < n_marks; i++) {
        size_t len = marks[i] ? strlen(marks[i]) : 0;
        for (size_t k = len ? len - 1 : 0; k > *held; k--)
            if (k <= n && memcmp(text + n - k, marks[i], k) == 0)
                *held = k;
    }
    return n - *held;
}

/* The text that is not decided yet. */
static const char *rest(const chat_turn *t)
{
    return t->pending.p + t->decided;
}

static size_t left(const chat_turn *t)
{
    return t->pending.n - t->decided;
}

static void consume(chat_turn *t, size_t n)
{
    t->decided += n;
}

/* ---- states ---- */

static bool reads_calls(const chat_turn *t)
{
    return t->rules.tools && t->rules.speech && t->rules.speech->calls;
}

static bool is_plain(const chat_turn *t)
{
    return t->rules.speech->calls->plain;
}

/* Each of these returns whether the next state has something to read. */
static bool read_thought(chat_turn *t)
{
    int which;
    size_t held;
    const char *marks[] = { t->rules.speech->think_end };
    size_t n = turn_seek(rest(t), left(t), marks, 1, &which, &held);
    turn_say(t, TURN_THOUGHT, rest(t), n);
    consume(t, n + (which >= 0 ? strlen(marks[0]) : 0));
    if (which < 0)
        return false;
    turn_over(t);
    t->state = IN_TEXT;
    return true;
}

static void begin_calls(chat_turn *t)
{
    str_clear(&t->raw);
    str_add(&t->raw, t->blanks.p, t->blanks.n);
    str_clear(&t->blanks);
    call_reader_restart(&t->r);
    t->first_hidden = t->n;
    t->state = IN_CALLS;
}

/* Calls that are not told by a marker begin where nothing was said before. */
static bool read_plain(chat_turn *t)
{
    size_t i = 0;
    while (i < left(t) && is_blank(rest(t)[i]))
        i++;
    if (i == left(t))
        return false;
    if (rest(t)[i] == *t->rules.speech->lead)
        begin_calls(t);
    else if (rest(t)[i] != (char)SPEECH_OPENS)
        t->state = IN_CONTENT;
    else if (memchr(rest(t), SPEECH_CLOSES, left(t)))
        consume(t, (size_t)((const char *)memchr(rest(t), SPEECH_CLOSES, left(t)) + 1 - rest(t)));
    return true;
}

static bool read_text(chat_turn *t)
{
    const chat_speech *s = t->rules.speech;
    int which;
    size_t held;
    bool thinks = t->rules.thoughts && !t->thought && !t->said;
    bool calls = reads_calls(t), plain = calls && is_plain(t);
    const char *marks[] = { calls && !plain ? s->lead : NULL, thinks ? s->think_begin : NULL };
    size_t n = turn_seek(rest(t), left(t), marks, 2, &which, &held);
    size_t first = 0;
    while (first < n && is_blank(rest(t)[first]))
        first++;
    if (which == 1 && first == n) {
        consume(t, n + strlen(marks[1]));
        t->thought = true;
        turn_over(t);
        t->state = IN_THOUGHT;
        return true;
    }
    if (plain && !held)
        return read_plain(t);
    if (which == 1) { /* a thought is one only at the beginning */
        turn_say(t, TURN_CONTENT, rest(t), n + 1);
        consume(t, n + 1);
        return true;
    }
    turn_say(t, TURN_CONTENT, rest(t), n);
    consume(t, n);
    if (which < 0)
        return false;
    begin_calls(t);
    return true;
}

/* What looked like a call is text; of a grammar that made sure of it, what there is of the call
 * stays. */
static void give_up(chat_turn *t)
{
    str raw = t->raw;
    t->raw = (str){ 0 };
    if (t->rules.sure && t->visible > t->first_hidden) {
        str_clear(&raw);
    } else {
        turn_drop(t, t->first_hidden);
        t->visible = t->n;
    }
    t->state = t->rules.sure || is_plain(t) ? IN_CONTENT : IN_TEXT;
    turn_say(t, TURN_CONTENT, raw.p, raw.n);
    str_free(&raw);
}

/* Calls that are complete count, those of plain formats at the end of the text. */
static void show_calls(chat_turn *t)
{
    if (!t->rules.sure && is_plain(t))
        return;
    t->visible = t->first_hidden = t->n;
    t->said = false;
    str_clear(&t->raw);
}

static bool read_calls(chat_turn *t)
{
    for (size_t i = 0; i < left(t); i++) {
        call_phase before = t->r.phase;
        str_putc(&t->raw, rest(t)[i]);
        if (!call_reader_take(t, rest(t)[i])) {
            consume(t, i + 1);
            give_up(t);
            return left(t) > 0;
        }
        if (t->rules.sure)
            t->visible = t->n;
        if (before == PHASE_CALL && t->r.phase != PHASE_CALL)
            show_calls(t);
        if (t->r.phase != PHASE_CLOSED)
            continue;
        consume(t, i + 1);
        t->state = t->rules.one_call ? IN_NOTHING : AFTER_CALLS;
        return left(t) > 0;
    }
    consume(t, left(t));
    return false;
}

/* Only white space and further calls may follow; where other text does, it is content, and plain
 * calls before it are none. */
static bool read_after(chat_turn *t)
{
    const char *lead = t->rules.speech->lead;
    size_t i = 0, len = strlen(lead);
    while (i < left(t) && is_blank(rest(t)[i]))
        i++;
    size_t n = left(t) - i, same = n < len ? n : len;
    if (n == 0)
        return false;
    if (is_plain(t)) {
        str_add(&t->raw, rest(t), left(t));
        consume(t, left(t));
        give_up(t);
        return false;
    }
    if (memcmp(rest(t) + i, lead, same) != 0) {
        t->state = IN_TEXT;
        return true;
    }
    if (n < len)
        return false;
    consume(t, i);
    begin_calls(t);
    return true;
}

static void process(chat_turn *t)
{
    bool more = left(t) > 0;
    if (!more)
        return;
    while (more && t->status == PESC_OK) {
        switch (t->state) {
        case IN_THOUGHT:
            more = read_thought(t);
            break;
        case IN_TEXT:
            more = read_text(t);
            break;
        case IN_CALLS:
            more = read_calls(t);
            break;
        case AFTER_CALLS:
            more = read_after(t);
            break;
        default:
            if (t->state == IN_CONTENT)
                turn_say(t, TURN_CONTENT, rest(t), left(t));
            consume(t, left(t));
        }
        more = more && left(t) > 0;
    }
    memmove(t->pending.p, rest(t), left(t));
    t->pending.n = left(t);
    t->decided = 0;
    if (t->state != IN_CALLS && t->state != AFTER_CALLS)
        t->visible = t->n;
    if (!str_ok(&t->pending) || !str_ok(&t->raw))
        t->status = fail_nomem("an answer", left(t));
}

/* ---- from outside ---- */

static bool has_channels(const chat_turn *t)
{
    return t->rules.speech && t->rules.speech->calls && t->rules.speech->calls->channels;
}

pesc_status chat_turn_open(chat_turn **out, const turn_rules *rules)
{
    chat_turn *t = *out = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("an answer", sizeof *t);
    t->rules = *rules;
    t->state = !rules->speech ? IN_CONTENT : IN_TEXT;
    t->rules.thoughts =
        rules->thoughts && (has_channels(t) || (rules->speech && rules->speech->think_end));
    if (t->rules.thoughts && rules->inside && !has_channels(t)) {
        t->state = IN_THOUGHT;
        t->thought = true;
    }
    if (reads_calls(t) && !has_channels(t))
        call_reader_open(&t->r, rules->speech);
    return PESC_OK;
}

void chat_turn_close(chat_turn *t)
{
    if (!t)
        return;
    turn_drop(t, 0);
    call_reader_close(&t->r);
    mem_free(t->parts);
    str_free(&t->pending);
    str_free(&t->raw);
    str_free(&t->blanks);
    mem_free(t);
}

pesc_status chat_turn_text(chat_turn *t, const char *text, size_t n)
{
    str_add(&t->pending, text, n);
    if (has_channels(t))
        channels_process(t);
    else
        process(t);
    return t->status;
}

pesc_status chat_turn_control(chat_turn *t, int32_t id)
{
    char token[24];
    int n = snprintf(token, sizeof token, SPEECH_CONTROL, id);
    return chat_turn_text(t, token, (size_t)n);
}

/* A call whose arguments are complete is one, even if nothing closes it. */
static void finish_calls(chat_turn *t)
{
    bool open = t->state == IN_CALLS && !(t->r.complete && !is_plain(t));
    str_add(&t->raw, t->pending.p, t->pending.n);
    if (open && t->rules.sure && t->n > t->first_hidden)
        return; /* it was cut */
    if (open && t->r.phase == PHASE_NEXT && !is_plain(t))
        return;
    if (open)
        give_up(t);
    else if (t->n > t->first_hidden)
        t->parts[t->n - 1].whole = true;
}

pesc_status chat_turn_finish(chat_turn *t)
{
    if (has_channels(t)) {
        channels_finish(t);
        return t->status;
    }
    if (t->state == IN_CALLS || t->state == AFTER_CALLS)
        finish_calls(t);
    else if (t->state != IN_NOTHING)
        turn_say(t, t->state == IN_THOUGHT ? TURN_THOUGHT : TURN_CONTENT, t->pending.p,
                 t->pending.n);
    t->pending.n = 0;
    turn_part *last = t->n ? &t->parts[t->n - 1] : NULL;
    bool content = last && last->kind == TURN_CONTENT;
    if (t->blanks.n && (content || (t->n == 0 && !t->thought)) &&
        (last = turn_last(t, TURN_CONTENT)))
        str_add(&last->text, t->blanks.p, t->blanks.n);
    t->visible = t->n;
    return t->status;
}

bool chat_turn_thinks(const chat_turn *t)
{
    return has_channels(t) ? t->body && strcmp(t->body, "thought") == 0 : t->state == IN_THOUGHT;
}

const turn_part *chat_turn_parts(const chat_turn *t, size_t *n)
{
    *n = t->visible;
    return t->parts;
}

/* ---- as a message ---- */

void chat_turn_call_id(const chat_turn *t, size_t i, const char *key, uint64_t seed,
                       char id[CALL_ID_ROOM])
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    enum { N_LETTERS = sizeof letters - 1, LONG = 24, SHORT = 9 };
    const turn_part *p = &t->parts[i];
    call_ids ids = t->rules.speech->calls->ids;
    size_t before = 0;
    for (size_t k = 0; k < i; k++)
        before += t->parts[k].kind == TURN_CALL;
    if (p->id || ids == CALL_IDS_COUNTED) {
        if (p->id)
            snprintf(id, CALL_ID_ROOM, "%s", p->id);
        else
            snprintf(id, CALL_ID_ROOM, "functions.%.128s:%zu", p->name, before);
        return;
    }
    const char *prefix = ids == CALL_IDS_NINE ? "" : "call_";
    size_t at = strlen(prefix), end = at + (ids == CALL_IDS_NINE ? SHORT : LONG);
    memcpy(id, prefix, at);
    uint64_t bits = 0;
    for (size_t k = 0; at < end; k++, bits /= N_LETTERS) {
        if (k % 8 == 0)
            bits = XXH3_64bits_withSeed(key, strlen(key), (seed | i) + (k << 20));
        id[at++] = letters[bits % N_LETTERS];
    }
    id[at] = '\0';
}

static json_t *call_message(const chat_turn *t, size_t i, const char *key, uint64_t seed)
{
    char id[CALL_ID_ROOM];
    const turn_part *p = &t->parts[i];
    chat_turn_call_id(t, i, key, seed, id);
    return json_pack("{s:s, s:s, s:{s:s, s:s%}}", "id", id, "type", "function", "function", "name",
                     p->name, "arguments", p->text.p ? p->text.p : "", p->text.n);
}

json_t *chat_turn_message(const chat_turn *t, const char *key, uint64_t seed)
{
    str said[] = { [TURN_THOUGHT] = { 0 }, [TURN_CONTENT] = { 0 } };
    json_t *calls = json_array();
    bool thought = false, content = false, good = calls != NULL;
    for (size_t i = 0; i < t->visible; i++) {
        const turn_part *p = &t->parts[i];
        thought = thought || p->kind == TURN_THOUGHT;
        content = content || p->kind == TURN_CONTENT;
        if (p->kind == TURN_CALL)
            good = json_array_append_new(calls, call_message(t, i, key, seed)) == 0 && good;
        else
            str_add(&said[p->kind], p->text.p, p->text.n);
    }
    bool called = json_array_size(calls) > 0;
    str *text = &said[TURN_CONTENT], *why = &said[TURN_THOUGHT];
    json_t *m =
        json_pack("{s:s, s:o}", "role", "assistant", "content",
                  called && !content ? json_null() : json_stringn(text->p ? text->p : "", text->n));
    if (thought)
        good = json_object_set_new(m, "reasoning_content",
                                   json_stringn(why->p ? why->p : "", why->n)) == 0 &&
               good;
    if (called)
        good = json_object_set(m, "tool_calls", calls) == 0 && good;
    json_decref(calls);
    good = good && m && str_ok(text) && str_ok(why);
    str_free(text);
    str_free(why);
    if (good)
        return m;
    json_decref(m);
    return NULL;
}

const json_t *tool_parameters(const json_t *tools, const char *name, bool *known)
{
    *known = false;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *own = json_string_value(json_object_get(f, "name"));
        if (own && strcmp(own, name) == 0) {
            *known = true;
            return json_value(f, "parameters");
        }
    }
    return NULL;
}
