/* A conversation as token ids, and its next turn: the public face of chat. */
#include "base/args.h"
#include "base/mem.h"
#include "base/options.h"
#include "chat/chat_callgrammar.h"
#include "infer/constrain.h"
#include "infer/generate.h"

#include <string.h>

const char *const *pesc_chat_formats(void)
{
    return chat_names();
}

const char *pesc_model_chat_format(const pesc_model *m)
{
    return m ? m->info.chat : "";
}

const char *const *pesc_model_chat_stops(const pesc_model *m, size_t *n)
{
    size_t none;
    n = n ? n : &none;
    *n = m && m->stop[0] != NULL;
    if (!m || *n)
        return m ? m->stop : NULL;
    return pesc_chat_stops(m->info.chat, n);
}

const char *const *pesc_chat_stops(const char *format, size_t *n)
{
    const chat_format *f = format ? chat_find(format) : NULL;
    size_t none;
    n = n ? n : &none;
    *n = 0;
    return f ? chat_stops(f, n) : NULL;
}

/* The writer of a format: the model's own, which stays its, or one for close_writer(). */
static pesc_status open_writer(const pesc_model *m, const char *format, chat_writer **w)
{
    *w = m->chat;
    if (!m->tok)
        return fail(PESC_UNSUPPORTED,
                    "the model has no tokenizer, so it cannot hold a conversation");
    if (!format || !*format || strcmp(format, CHAT_OWN) == 0)
        return PESC_OK;
    return chat_open(w, m->tok, format, NULL);
}

static void close_writer(const pesc_model *m, chat_writer *w)
{
    if (w != m->chat)
        chat_close(w);
}

pesc_status pesc_chat_tokenize(const pesc_model *m, const char *format,
                               const pesc_message *messages, size_t n, int32_t *ids, size_t cap,
                               size_t *count)
{
    status_clear();
    NEED(m);
    NEED_ARRAY(messages, n);
    NEED_ARRAY(ids, cap);
    NEED(count);
    *count = 0;
    for (size_t i = 0; i < n; i++) {
        NEED(messages[i].role);
        NEED(messages[i].content);
    }
    chat_writer *w;
    TRY(open_writer(m, format, &w));
    id_list list = { 0 };
    chat_request r = { .list = messages, .n = n, .end = CHAT_PROMPT };
    pesc_status s = chat_write(w, &r, NULL, &list, NULL);
    if (s == PESC_OK) {
        *count = list.n;
        if (cap > 0)
            memcpy(ids, list.ids, (list.n < cap ? list.n : cap) * sizeof *ids);
    }
    mem_free(list.ids);
    close_writer(m, w);
    return s;
}

/* ---- the next turn ---- */

typedef struct talk {
    pesc_session *s;
    chat_writer *w;
    chat_speech *speech;
    json_t *messages, *tools; /* tools NULL: none */
    id_list ids;
    turn_limits limits;
    turn_rules rules;
    grammar *grammar; /* of the turn */
} talk;

static pesc_status read_conversation(talk *t, const pesc_conversation *c)
{
    TRY(json_parse(&t->messages, c->messages, strlen(c->messages), "messages"));
    if (!json_is_array(t->messages))
        return fail(PESC_USAGE, "messages: found %s, expected an array", json_kind(t->messages));
    if (!c->tools)
        return PESC_OK;
    TRY(json_parse(&t->tools, c->tools, strlen(c->tools), "tools"));
    TRY(tools_check(t->tools, true));
    if (json_array_size(t->tools) == 0) {
        json_decref(t->tools);
        t->tools = NULL;
    }
    return PESC_OK;
}

static pesc_status check_tools(const talk *t)
{
    if (!t->tools)
        return PESC_OK;
    if (!chat_takes_tools(t->w))
        return fail(PESC_UNSUPPORTED, "tools: the chat template does not take tools");
    if (!t->speech->calls)
        return fail(PESC_UNSUPPORTED,
                    "tools: how the model writes calls cannot be seen from its chat template; name "
                    "the format of calls");
    if (t->s->grammar)
        return fail(PESC_USAGE, "tools: the session has a grammar, which leaves calls no place");
    return PESC_OK;
}

/* What of a schema cannot be enforced is left out: the tool checks its arguments itself. */
static pesc_status compile_calls(talk *t)
{
    str text = { 0 }, ignored = { 0 };
    const piece_trie *p;
    pesc_status s = turn_grammar(&t->limits, &text);
    grammar_source from = {
        .kind = PESC_GRAMMAR_GBNF, .text = text.p, .n = text.n, .ignored = &ignored
    };
    if (s == PESC_OK)
        s = constrain_pieces(t->s->model, &p);
    if (s == PESC_OK)
        s = grammar_open(&t->grammar, p, &from);
    str_free(&text);
    str_free(&ignored);
    return s;
}

/* Writes the prompt and learns what may be said after it. */
static pesc_status prepare(talk *t, const pesc_conversation *c)
{
    thought_state thought = THOUGHT_FREE;
    TRY(read_conversation(t, c));
    TRY(chat_speech_open(&t->speech, t->s->model->tok, chat_tool_source(t->w), c->tool_format));
    TRY(check_tools(t));
    chat_request r = { .messages = t->messages, .tools = t->tools, .end = CHAT_PROMPT };
    TRY(chat_write(t->w, &r, NULL, &t->ids, NULL));
    const thought_format *f = t->speech->thought;
    if (f)
        TRY(chat_thought_state(t->w, &r, f->begin, f->end, &thought));
    t->limits = (turn_limits){ .speech = t->speech,
                               .tools = t->tools,
                               .thoughts = f && thought != THOUGHT_CLOSED,
                               .inside = thought == THOUGHT_OPEN };
    t->rules = turn_rules_of(&t->limits);
    return t->tools && turn_needs_grammar(&t->limits) ? compile_calls(t) : PESC_OK;
}

pesc_status pesc_session_answer(pesc_session *s, const pesc_conversation *c,
                                const pesc_sample_options *opt, pesc_turn_fn emit, void *ud,
                                pesc_generation *out)
{
    status_clear();
    NEED(s);
    NEED_SIZED(c);
    NEED_SIZED_OR_NULL(out);
    pesc_sample_options o;
    pesc_conversation asked = PESC_INIT(pesc_conversation);
    if (out)
        ARGS_CLEAR(out);
    ARGS_READ(&asked, c);
    NEED(asked.messages);
    TRY(options_take(PESC_OPTIONS_SAMPLE, &o, opt));
    talk t = { .s = s };
    TRY(open_writer(s->model, asked.format, &t.w));
    pesc_status st = prepare(&t, &asked);
    listener to = { .turn = emit,
                    .ud = ud,
                    .rules = &t.rules,
                    .number = json_array_size(t.messages),
                    .grammar = t.grammar ? t.grammar : s->grammar };
    if (st == PESC_OK)
        st = generate(s, t.ids.ids, t.ids.n, &o, &to, out);
    grammar_close(t.grammar);
    mem_free(t.ids.ids);
    chat_speech_close(t.speech);
    json_decref(t.messages);
    json_decref(t.tools);
    close_writer(s->model, t.w);
    return st;
}
