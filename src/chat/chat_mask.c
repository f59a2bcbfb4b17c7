/* Which bytes of a rendered conversation are trained. */
#include "chat/chat_writer.h"

#include "base/mem.h"

#include <string.h>

/* An answer whose place was measured, for those that the template writes alike. All in bytes of
 * the whole text: the message before it ends, its own text begins and ends, the message after it
 * begins; what is trained. */
typedef struct turn {
    size_t before, begin, end, next;
    size_t from, to;
} turn;

enum {
    MEASURED = 32, /* so many answers of a conversation are measured, whatever they look like */
    TURNS = 16,    /* kept to compare with */
    RENDERED = 1 << 21, /* messages, in all renderings of a conversation together */
};

typedef struct training {
    const chat_writer *writer;
    const chat_request *r;
    const jinja_text *whole;
    unsigned char *flags; /* [whole.n] */
    size_t *first, *last; /* [messages]: of its bytes; SIZE_MAX and 0: it has none */
    /* By prefix difference: */
    turn turns[TURNS];
    size_t n_turns, n_measured, rendered;
} training;

static bool is_answer(const training *w, size_t i)
{
    const char *role =
        json_string_value(json_object_get(json_array_get(w->r->messages, i), "role"));
    return role && strcmp(role, "assistant") == 0;
}

static bool is_trained(const training *w, size_t i)
{
    return is_answer(w, i) && !(w->r->masked && w->r->masked[i]);
}

/* The message that a byte is copied from; SIZE_MAX: none, or one that has no number. */
static size_t message_of(const training *w, size_t byte)
{
    unsigned origin = w->whole->origin[byte] & ~(unsigned)JINJA_GENERATED;
    return origin >= JINJA_MESSAGE && origin < JINJA_DATA ? origin - JINJA_MESSAGE : SIZE_MAX;
}

static pesc_status refuse(const training *w, size_t i, const char *why)
{
    if (w->r->apart)
        *w->r->apart = true;
    return fail(PESC_USAGE,
                "message %zu: %s, so it cannot be told which tokens are the answer; mark them with "
                "{%% generation %%} in the chat template, or name a built-in format with "
                "--template",
                i + 1, why);
}

/* What is inside a {% generation %}, and the message it is copied from; SIZE_MAX: none that has a
 * number. */
typedef struct marked {
    size_t from, to, message;
} marked;

static bool next_marked(const training *w, marked *p)
{
    const jinja_text *text = w->whole;
    size_t i = p->to;
    while (i < text->n && !(text->origin[i] & JINJA_GENERATED))
        i++;
    *p = (marked){ i, i, SIZE_MAX };
    for (; p->to < text->n && (text->origin[p->to] & JINJA_GENERATED); p->to++)
        p->message = p->message == SIZE_MAX ? message_of(w, p->to) : p->message;
    return p->to > p->from;
}

/* Where answers are not to be trained, each part must be known to be one of them: by its text, or
 * because there are as many parts as answers. */
static pesc_status mark_generation(training *w)
{
    size_t n = json_array_size(w->r->messages), parts = 0, answers = 0, i = 0;
    for (marked p = { 0 }; next_marked(w, &p);)
        parts++;
    for (size_t k = 0; k < n; k++)
        answers += is_answer(w, k);
    for (marked p = { 0 }; next_marked(w, &p); i++) {
        while (i < n && !is_answer(w, i))
            i++;
        size_t message = p.message == SIZE_MAX && parts == answers ? i : p.message;
        bool skip = message < n && w->r->masked && w->r->masked[message];
        memset(w->flags + p.from, !skip, p.to - p.from);
    }
    return PESC_OK;
}

static size_t common_prefix(const jinja_text *a, const jinja_text *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->text[n] == b->text[n])
        n++;
    return n;
}

/* The first i messages; NULL: no memory. */
static json_t *first_messages(const json_t *all, size_t i)
{
    json_t *list = json_array();
    for (size_t k = 0; list && k < i; k++)
        if (json_array_append(list, json_array_get(all, k)) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* How much of the first i messages, rendered alone, begins the whole text; *all: whether all of it
 * does. */
static pesc_status measure_prefix(const training *w, size_t i, bool generation, size_t *n,
                                  bool *all)
{
    json_t *part = first_messages(w->r->messages, i);
    jinja_text text = { 0 };
    if (!part)
        return fail_nomem("a conversation", 0);
    pesc_status s = chat_render(w->writer, w->r, part, generation, &text);
    json_decref(part);
    *n = common_prefix(&text, w->whole);
    *all = *n == text.n;
    jinja_text_free(&text);
    return s;
}

/* Where the text of message i begins and ends in [from, to), and the first byte of another message
 * after its begin; from and to where there is none. */
typedef struct extent {
    size_t begin, end, next;
} extent;

static extent find_extent(const training *w, size_t i, size_t from)
{
    extent e = { SIZE_MAX, from, w->whole->n };
    for (size_t k = from; k < w->whole->n; k++) {
        size_t message = message_of(w, k);
        if (message == i) {
            e.begin = e.begin == SIZE_MAX ? k : e.begin;
            e.end = k + 1;
        } else if (message != SIZE_MAX) {
            e.next = k;
            break;
        }
    }
    return e;
}

/* Whether message i has text outside [from, to). */
static bool is_elsewhere(const training *w, size_t i, size_t from, size_t to)
{
    return w->first[i] != SIZE_MAX && (w->first[i] < from || w->last[i] >= to);
}

/* Where the answer that begins at `begin` ends: after the control token that closes its turn. */
static pesc_status find_end(const training *w, size_t i, extent e, size_t *end)
{
    size_t start, stop, alone;
    bool found, prefix;
    *end = 0;
    TRY(measure_prefix(w, i + 1, false, &alone, &prefix));
    TRY(tokenizer_find_control(w->writer->tok, w->whole->text + e.end, e.next - e.end, &start,
                               &stop, &found));
    if (found)
        *end = e.end + stop;
    bool calls = json_has(json_array_get(w->r->messages, i), "tool_calls");
    while (calls && prefix && found && *end < alone) { /* its calls have control tokens too */
        TRY(tokenizer_find_control(w->writer->tok, w->whole->text + *end, alone - *end, &start,
                                   &stop, &found));
        *end += found ? stop : 0;
    }
    found = found || *end > 0;
    if (prefix && (!found || *end > alone))
        *end = alone; /* what follows belongs to the next turn */
    if ((!found && !prefix) || *end < e.end)
        return refuse(w, i, "the chat template does not close its turn");
    return PESC_OK;
}

/* Whether the text from `from` to `to` ends with a control token. */
static pesc_status ends_with_control(const training *w, size_t from, size_t to, bool *ends)
{
    bool found = from < to;
    for (size_t start, stop; from < to && found; from += found ? stop : 0)
        TRY(tokenizer_find_control(w->writer->tok, w->whole->text + from, to - from, &start, &stop,
                                   &found));
    *ends = found && from == to;
    return PESC_OK;
}

/* Two control tokens may begin alike: *at, if it is inside one, becomes its begin. */
static pesc_status leave_control(const training *w, size_t from, size_t *at)
{
    bool found = from < *at;
    for (size_t start, stop; from < *at && found; from += found ? stop : 0) {
        TRY(tokenizer_find_control(w->writer->tok, w->whole->text + from, w->whole->n - from,
                                   &start, &stop, &found));
        if (found && from + start < *at && *at < from + stop)
            *at = from + start;
    }
    return PESC_OK;
}

/* Where the answer begins: after the generation prompt. Where that goes on with words that the
 * answer does not have, after the control token or literal text that both have before its own text.
 */
static pesc_status find_begin(const training *w, size_t i, size_t before, size_t text,
                              size_t *begin)
{
    bool all, clean;
    TRY(measure_prefix(w, i, true, begin, &all));
    if (*begin > text) /* equal by chance: what the message holds is never the template's */
        *begin = text;
    else if (!all)
        TRY(leave_control(w, before, begin));
    TRY(ends_with_control(w, before, *begin > before ? *begin : before, &clean));
    if (*begin < before || (!all && !clean && *begin != text))
        return refuse(w, i,
                      "the chat template begins its turn in another way than the prompt for it");
    return PESC_OK;
}

static pesc_status measure_answer(training *w, size_t i, size_t *begin, size_t *end)
{
    size_t before;
    bool prefix;
    w->n_measured++;
    w->rendered += 3 * i;
    if (w->rendered > RENDERED)
        return refuse(w, i, "the conversation is long and its turns do not look alike");
    TRY(measure_prefix(w, i, false, &before, &prefix));
    if (!prefix)
        return refuse(w, i,
                      "the chat template writes the conversation before it in another way when "
                      "it is there");
    extent e = find_extent(w, i, before);
    TRY(find_begin(w, i, before, e.begin, begin));
    if (is_elsewhere(w, i, *begin, e.next))
        return refuse(w, i, "the chat template writes its text in more than one place");
    e.end = e.end < *begin ? *begin : e.end; /* a message without text */
    return find_end(w, i, e, end);
}

/* Whether message i stands between its neighbours, with literal text alone around it. */
static bool find_turn(const training *w, size_t i, turn *t)
{
    if (i == 0 || w->first[i] == SIZE_MAX)
        return false;
    extent e = find_extent(w, i, w->first[i]);
    size_t before = e.begin;
    while (before > 0 && message_of(w, before - 1) == SIZE_MAX)
        before--;
    *t = (turn){ .before = before, .begin = e.begin, .end = e.end, .next = e.next };
    return before > 0 && message_of(w, before - 1) == i - 1 && e.next < w->whole->n &&
           message_of(w, e.next) == i + 1 && !is_elsewhere(w, i, e.begin, e.next);
}

static bool same_bytes(const jinja_text *text, size_t a, size_t b, size_t n)
{
    return memcmp(text->text + a, text->text + b, n) == 0;
}

static bool same_turn(const training *w, const turn *a, const turn *b)
{
    size_t left = a->begin - a->before, right = a->next - a->end;
    return left == b->begin - b->before && right == b->next - b->end &&
           same_bytes(w->whole, a->before, b->before, left) &&
           same_bytes(w->whole, a->end, b->end, right);
}

static const turn *known_turn(const training *w, const turn *t)
{
    for (size_t k = 0; k < w->n_turns; k++)
        if (same_turn(w, &w->turns[k], t))
            return &w->turns[k];
    return NULL;
}

/* A measurement renders all messages before an answer. Answers with the same literal text around
 * them as one that was measured are marked as that one, so that a long conversation takes time in
 * proportion to its length. */
static pesc_status mark_answer(training *w, size_t i)
{
    turn t = { 0 };
    bool usual = find_turn(w, i, &t);
    const turn *like = usual ? known_turn(w, &t) : NULL;
    if (like && w->n_measured >= MEASURED) {
        t.from = t.begin - (like->begin - like->from);
        t.to = t.end + (like->to - like->end);
    } else {
        TRY(measure_answer(w, i, &t.from, &t.to));
        usual = usual && t.before <= t.from && t.from <= t.begin && t.end <= t.to && t.to <= t.next;
        if (usual && !like && w->n_turns < TURNS)
            w->turns[w->n_turns++] = t;
    }
    if (t.to > t.from)
        memset(w->flags + t.from, 1, t.to - t.from);
    return PESC_OK;
}

static pesc_status mark_answers(training *w)
{
    size_t n = json_array_size(w->r->messages);
    if (n >= JINJA_DATA - JINJA_MESSAGE)
        return fail(PESC_FORMAT, "the conversation has more than %d messages",
                    JINJA_DATA - JINJA_MESSAGE);
    for (size_t i = 0; i < n; i++)
        if (is_trained(w, i))
            TRY(mark_answer(w, i));
    return PESC_OK;
}

/* ---- what must be there ---- */

/* Where `what` stands in the text that is copied from message i, from *at on; *at: its place. */
static bool find_copied(const training *w, size_t i, slice what, size_t *at)
{
    for (size_t k = *at; w->first[i] != SIZE_MAX && what.n > 0 && k + what.n <= w->last[i] + 1;
         k++) {
        const char *found = memmem(w->whole->text + k, w->last[i] + 1 - k, what.p, what.n);
        if (!found)
            return false;
        k = (size_t)(found - w->whole->text);
        if (message_of(w, k) == i && message_of(w, k + what.n - 1) == i) {
            *at = k;
            return true;
        }
    }
    return false;
}

/* An answer whose reasoning is left out would teach to answer without. */
static pesc_status check_reasoning(training *w, size_t i)
{
    slice thought = chat_thought(json_array_get(w->r->messages, i));
    size_t at = w->first[i];
    if (w->r->reasoning == CHAT_REASONING_GIVEN || thought.n == 0)
        return PESC_OK;
    if (!find_copied(w, i, thought, &at)) {
        if (w->r->apart)
            *w->r->apart = true;
        return fail(PESC_USAGE,
                    "message %zu: the chat template leaves out its reasoning; --reasoning drop "
                    "trains without it",
                    i + 1);
    }
    if (w->r->reasoning == CHAT_REASONING_READ)
        memset(w->flags + at, 0, thought.n);
    return PESC_OK;
}

static pesc_status check_calls(const training *w, size_t i)
{
    const json_t *calls = json_object_get(json_array_get(w->r->messages, i), "tool_calls");
    size_t at = w->first[i];
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k), *id = json_object_get(call, "id");
        const json_t *name = json_object_get(json_object_get(call, "function"), "name");
        slice what = { json_string_value(name), json_string_length(name) };
        slice alone = { json_string_value(id), json_string_length(id) }; /* it may say the name */
        if (!find_copied(w, i, what, &at) && !find_copied(w, i, alone, &at))
            return fail(PESC_USAGE,
                        "message %zu: tool_calls: the chat template does not write the call of "
                        "\"%.60s\"; --template NAME chooses another one",
                        i + 1, what.p);
        at++;
    }
    return PESC_OK;
}

/* A template may know nothing of what tools return. */
static pesc_status check_result(const training *w, size_t i)
{
    const json_t *m = json_array_get(w->r->messages, i), *content = json_object_get(m, "content");
    const char *role = json_string_value(json_object_get(m, "role"));
    slice said = { json_is_string(content) ? json_string_value(content) : "",
                   json_string_length(content) };
    bool result = role && (strcmp(role, "tool") == 0 || strcmp(role, "function") == 0);
    if (!result || w->first[i] != SIZE_MAX || pytext_strip(said).n == 0)
        return PESC_OK;
    return fail(PESC_USAGE,
                "message %zu: the chat template writes nothing of a message of the role \"%s\"; "
                "--template NAME chooses another one",
                i + 1, role);
}

static pesc_status check_written(training *w)
{
    size_t n = json_array_size(w->r->messages);
    for (size_t i = 0; i < n && i < JINJA_DATA - JINJA_MESSAGE; i++) {
        TRY(check_result(w, i));
        if (!is_answer(w, i))
            continue;
        TRY(check_calls(w, i));
        if (is_trained(w, i))
            TRY(check_reasoning(w, i));
    }
    return PESC_OK;
}

/* ---- all of it ---- */

static pesc_status find_messages(training *w)
{
    size_t n = json_array_size(w->r->messages);
    w->first = mem_alloc(n + 1, sizeof *w->first);
    w->last = mem_zalloc(n + 1, sizeof *w->last);
    if (!w->first || !w->last)
        return fail_nomem("a conversation", n * sizeof *w->first);
    memset(w->first, 0xff, n * sizeof *w->first);
    for (size_t k = 0; k < w->whole->n; k++) {
        size_t i = message_of(w, k);
        if (i >= n)
            continue;
        w->first[i] = w->first[i] == SIZE_MAX ? k : w->first[i];
        w->last[i] = k;
    }
    return PESC_OK;
}

static pesc_status mark_all(training *w)
{
    TRY(find_messages(w));
    TRY(jinja_has_generation(chat_template(w->writer, w->r)) ? mark_generation(w)
                                                             : mark_answers(w));
    return check_written(w);
}

pesc_status chat_mask(const chat_writer *w, const chat_request *r, const jinja_text *whole,
                      unsigned char *flags)
{
    training all = { .writer = w, .r = r, .whole = whole, .flags = flags };
    pesc_status s = mark_all(&all);
    mem_free(all.first);
    mem_free(all.last);
    return s;
}
