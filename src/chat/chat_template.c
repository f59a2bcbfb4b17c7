#include "chat/chat_template.h"

#include "base/mem.h"
#include "chat/chat.h"
#include "jinja/jinja_python.h"
#include "tokenizer/pipeline.h"

#include <stdio.h>
#include <string.h>

bool chat_template_runs(const tokenizer *t)
{
    return t->own.jinja && !chat_jinja_named(t->chat_template);
}

bool chat_template_takes_tools(const tokenizer *t)
{
    return t->own.with_tools || jinja_uses(t->own.jinja, "tools");
}

const char *chat_template_problem(const tokenizer *t)
{
    return t->own.problem;
}

/* ---- rendering ---- */

static pesc_status make_variables(json_t **out, const chat_request *r)
{
    json_t *v = json_object();
    bool fine = v && json_object_set(v, "messages", (json_t *)r->messages) == 0;
    fine = fine && json_object_set_new(v, "documents", json_null()) == 0;
    fine =
        fine && json_object_set_new(v, "add_generation_prompt", json_boolean(r->generation)) == 0;
    fine = fine && json_object_set_new(
                       v, "tools", r->tools ? json_incref((json_t *)r->tools) : json_null()) == 0;
    fine = fine && (!r->variables || json_object_update(v, (json_t *)r->variables) == 0);
    *out = v;
    if (fine)
        return PESC_OK;
    json_decref(v);
    *out = NULL;
    return fail_nomem("a conversation", 0);
}

static const jinja_template *template_for(const tokenizer *t, const chat_request *r)
{
    return r->tools && t->own.with_tools ? t->own.with_tools : t->own.jinja;
}

/* `messages` instead of those of the request, which counts for the rest. */
static pesc_status render(const tokenizer *t, const chat_request *r, const json_t *messages,
                          bool generation, jinja_text *out)
{
    chat_request part = *r;
    part.messages = messages;
    part.generation = generation;
    json_t *variables;
    *out = (jinja_text){ 0 };
    TRY(make_variables(&variables, &part));
    jinja_input in = { .variables = variables, .trusted = t->own.tokens, .now = r->now };
    pesc_status s = jinja_render(template_for(t, r), &in, out);
    json_decref(variables);
    return s;
}

pesc_status chat_template_render(const tokenizer *t, const chat_request *r, jinja_text *out)
{
    return render(t, r, r->messages, r->generation, out);
}

/* ---- encoding ---- */

/* Pieces of equal origin and flag. trained: one byte for each of the text, or NULL. */
static pesc_status encode(const tokenizer *t, const jinja_text *text, const unsigned char *flags,
                          id_list *ids, unsigned char **trained)
{
    tok_piece *pieces = NULL;
    size_t n = 0, cap = 0;
    for (size_t i = 0, end; i < text->n; i = end) {
        bool control = (text->origin[i] & ~JINJA_GENERATED) == JINJA_TEMPLATE;
        bool flag = flags && flags[i];
        for (end = i + 1; end < text->n; end++)
            if (((text->origin[end] & ~JINJA_GENERATED) == JINJA_TEMPLATE) != control ||
                (flags && flags[end]) != flag)
                break;
        if (!mem_room((void **)&pieces, &cap, n, sizeof *pieces)) {
            mem_free(pieces);
            return fail_nomem("encoding a conversation", cap * sizeof *pieces);
        }
        pieces[n++] = (tok_piece){ text->text + i, end - i, control, flag };
    }
    pesc_status s = tokenizer_encode_pieces(t, pieces, n, ids, trained);
    mem_free(pieces);
    return s;
}

/* Drops what follows the last byte of the last message; what the message says must end there. A
 * template may write it in other words, or write its calls after it. */
static pesc_status open_last_turn(const json_t *messages, jinja_text *text)
{
    size_t i = json_array_size(messages) - 1, n = text->n;
    const json_t *content = json_object_get(json_array_get(messages, i), "content");
    jslice said = { 0 };
    if (json_is_string(content) && i < JINJA_DATA - JINJA_MESSAGE)
        said = jpython_strip(json_string_value(content), json_string_length(content), JPYTHON_BOTH,
                             NULL);
    while (n > 0 && (text->origin[n - 1] & ~JINJA_GENERATED) != (int)(JINJA_MESSAGE + i))
        n--;
    size_t end = jpython_strip(text->text, n, JPYTHON_RIGHT, NULL).n;
    if (said.n == 0 || said.n > end ||
        memcmp(text->text + end - said.n, json_string_value(content) + said.at, said.n) != 0)
        return fail(PESC_USAGE, "the last message cannot be continued: it is empty, or the chat "
                                "template does not write its text as it is");
    text->n = n;
    return PESC_OK;
}

pesc_status chat_template_encode(const tokenizer *t, const chat_request *r, id_list *ids)
{
    jinja_text text;
    TRY(chat_template_render(t, r, &text));
    pesc_status s = r->open ? open_last_turn(r->messages, &text) : PESC_OK;
    if (s == PESC_OK)
        s = encode(t, &text, NULL, ids, NULL);
    jinja_text_free(&text);
    return s;
}

/* ---- what is trained ---- */

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
    const tokenizer *t;
    const chat_request *r;
    const unsigned char *masked;
    jinja_text whole;
    unsigned char *flags; /* [whole.n] */
    /* By prefix difference: */
    size_t *first, *last; /* [messages]: of its bytes; SIZE_MAX and 0: it has none */
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
    return is_answer(w, i) && !(w->masked && w->masked[i]);
}

/* The message that a byte is copied from; SIZE_MAX: none, or one that has no number. */
static size_t message_of(const training *w, size_t byte)
{
    unsigned origin = w->whole.origin[byte] & ~(unsigned)JINJA_GENERATED;
    return origin >= JINJA_MESSAGE && origin < JINJA_DATA ? origin - JINJA_MESSAGE : SIZE_MAX;
}

static pesc_status refuse(size_t i, const char *why)
{
    return fail(PESC_USAGE,
                "message %zu: %s, so it cannot be told which tokens are the answer; mark them with "
                "{%% generation %%} in the chat template, or name a built-in format with "
                "--template",
                i + 1, why);
}

/* The parts inside {% generation %}. With messages that are not trained, each part must tell which
 * message it is. */
static pesc_status mark_generation(training *w)
{
    const jinja_text *text = &w->whole;
    for (size_t i = 0, end; i < text->n; i = end) {
        bool inside = text->origin[i] & JINJA_GENERATED;
        size_t message = SIZE_MAX;
        for (end = i; end < text->n && ((text->origin[end] & JINJA_GENERATED) != 0) == inside;
             end++)
            message = message == SIZE_MAX ? message_of(w, end) : message;
        bool skip = inside && message != SIZE_MAX && w->masked && w->masked[message];
        memset(w->flags + i, inside && !skip, end - i);
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
    pesc_status s = render(w->t, w->r, part, generation, &text);
    json_decref(part);
    *n = common_prefix(&text, &w->whole);
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
    extent e = { SIZE_MAX, from, w->whole.n };
    for (size_t k = from; k < w->whole.n; k++) {
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
    TRY(tokenizer_find_control(w->t, w->whole.text + e.end, e.next - e.end, &start, &stop, &found));
    if (found)
        *end = e.end + stop;
    if (prefix && (!found || *end > alone))
        *end = alone; /* what follows belongs to the next turn */
    if ((!found && !prefix) || *end < e.end)
        return refuse(i, "the chat template does not close its turn");
    return PESC_OK;
}

/* Whether the text from `from` to `to` ends with a control token. */
static pesc_status ends_with_control(const training *w, size_t from, size_t to, bool *ends)
{
    bool found = from < to;
    for (size_t start, stop; from < to && found; from += found ? stop : 0)
        TRY(tokenizer_find_control(w->t, w->whole.text + from, to - from, &start, &stop, &found));
    *ends = found && from == to;
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
    TRY(ends_with_control(w, before, *begin > before ? *begin : before, &clean));
    if (*begin < before || (!all && !clean && *begin != text))
        return refuse(i, "the chat template begins its turn in another way than the prompt for it");
    return PESC_OK;
}

static pesc_status measure_answer(training *w, size_t i, size_t *begin, size_t *end)
{
    size_t before;
    bool prefix;
    w->n_measured++;
    w->rendered += 3 * i;
    if (w->rendered > RENDERED)
        return refuse(i, "the conversation is long and its turns do not look alike");
    TRY(measure_prefix(w, i, false, &before, &prefix));
    if (!prefix)
        return refuse(i, "the chat template writes the conversation before it in another way when "
                         "it is there");
    extent e = find_extent(w, i, before);
    TRY(find_begin(w, i, before, e.begin, begin));
    if (is_elsewhere(w, i, *begin, e.next))
        return refuse(i, "the chat template writes its text in more than one place");
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
    return before > 0 && message_of(w, before - 1) == i - 1 && e.next < w->whole.n &&
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
           same_bytes(&w->whole, a->before, b->before, left) &&
           same_bytes(&w->whole, a->end, b->end, right);
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
    w->first = mem_alloc(n + 1, sizeof *w->first);
    w->last = mem_zalloc(n + 1, sizeof *w->last);
    if (!w->first || !w->last)
        return fail_nomem("a conversation", n * sizeof *w->first);
    memset(w->first, 0xff, n * sizeof *w->first);
    for (size_t k = 0; k < w->whole.n; k++) {
        size_t i = message_of(w, k);
        if (i >= n)
            continue;
        w->first[i] = w->first[i] == SIZE_MAX ? k : w->first[i];
        w->last[i] = k;
    }
    for (size_t i = 0; i < n; i++)
        if (is_trained(w, i))
            TRY(mark_answer(w, i));
    return PESC_OK;
}

static pesc_status mark_all(training *w)
{
    if (jinja_has_generation(template_for(w->t, w->r)))
        return mark_generation(w);
    if (json_array_size(w->r->messages) >= JINJA_DATA - JINJA_MESSAGE)
        return fail(PESC_FORMAT, "the conversation has more than %d messages",
                    JINJA_DATA - JINJA_MESSAGE);
    return mark_answers(w);
}

pesc_status chat_template_train(const tokenizer *t, const chat_request *r,
                                const unsigned char *masked, id_list *ids, unsigned char **trained)
{
    training w = { .t = t, .r = r, .masked = masked };
    TRY(render(t, r, r->messages, false, &w.whole));
    w.flags = mem_zalloc(w.whole.n ? w.whole.n : 1, 1);
    pesc_status s = w.flags ? mark_all(&w) : fail_nomem("encoding a conversation", w.whole.n);
    if (s == PESC_OK)
        s = encode(t, &w.whole, w.flags, ids, trained);
    mem_free(w.flags);
    mem_free(w.first);
    mem_free(w.last);
    jinja_text_free(&w.whole);
    return s;
}

/* ---- where an answer ends ---- */

pesc_status chat_template_stop(const tokenizer *t, int32_t *id)
{
    json_t *talk = json_pack("[{ssss}{ssss}]", "role", "user", "content", "Hello", "role",
                             "assistant", "content", "Hello.");
    chat_request r = { .messages = talk };
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    pesc_status s =
        talk ? chat_template_train(t, &r, NULL, &ids, &trained) : fail_nomem("a conversation", 0);
    *id = -1;
    for (size_t i = 0; s == PESC_OK && i < ids.n; i++)
        if (trained[i] && tokenizer_is_special(t, ids.ids[i]))
            *id = ids.ids[i];
    mem_free(ids.ids);
    mem_free(trained);
    json_decref(talk);
    if (s == PESC_NOMEM)
        return s;
    status_clear();
    return PESC_OK;
}
