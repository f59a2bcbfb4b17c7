/* From a request to what its answers may say: calls of tools, thoughts, a constrained content. */
#include "serve/api/speech.h"

#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Adds a note to the header of ignored fields. It may have names of the client's. */
static void note(call *c, const char *field, const char *text, size_t n)
{
    char shown[400];
    str *header = &c->x->ignored;
    utf8_visible(shown, sizeof shown, text, n);
    str_printf(header, "%s%s: %s", header->n ? ", " : "", field, shown);
}

/* What is left out of a schema goes into the header, too. */
static bool compile(call *c, const constraint *asked, bool lenient, api_error *e)
{
    str ignored = { 0 };
    bool good =
        constraint_compile(c->x->srv->grammars, asked, lenient ? &ignored : NULL, &c->grammar, e);
    if (good && ignored.n > 2)
        note(c, asked->field, ignored.p + 2, ignored.n - 2);
    str_free(&ignored);
    return good;
}

/* ---- tools ---- */

/* Whether a tool asks for its schema to be enforced in every word. */
static bool is_strict(const json_t *tools)
{
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_is_true(
                json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict")))
            return true;
    return false;
}

/* A template that takes tools may write calls in a way that is not known: they stay text then,
 * unless the request says what it expects of calls. */
static bool check_format(call *c, api_error *e)
{
    static const char why[] = "calls stay text";
    const api_request *r = &c->api;
    if (!r->tools || c->turn.speech->calls || r->choice == CALLS_NONE)
        return true;
    if (!r->explicit_choice) {
        note(c, "tools", why, sizeof why - 1);
        return true;
    }
    return api_refuse(e, 400, "unsupported_parameter", "tool_choice",
                      "tool_choice: how this model writes calls cannot be seen from its chat "
                      "template; start the server with --tool-format");
}

/* ---- the grammar ---- */

static bool compile_turn(call *c, turn_limits *l, api_error *e)
{
    const constraint *asked = &c->api.constraint;
    str content = { 0 }, text = { 0 };
    bool good = true;
    if (asked->field && !constraint_rule(asked, &content))
        good = api_refuse(e, 400, "unsupported_parameter", asked->field,
                          "%s: cannot be together with %s; expected a JSON Schema or choices",
                          asked->field, l->tools ? "tools" : "a thought before it");
    l->content = asked->field ? content.p : NULL;
    if (good) {
        pesc_status s = turn_grammar(l, &text);
        constraint turn = { .field = l->tools ? "tools" : asked->field,
                            .kind = PESC_GRAMMAR_GBNF,
                            .text = text.p };
        bool lenient = c->api.lenient || (!asked->field && !is_strict(l->tools));
        good = s == PESC_OK ? compile(c, &turn, lenient, e) : api_failed(e, s);
    }
    str_free(&content);
    str_free(&text);
    return good;
}

bool speech_open(call *c, api_error *e)
{
    const api_request *r = &c->api;
    const chat_speech *s = c->x->srv->speech;
    if (r->endpoint != API_CHAT)
        return compile(c, &r->constraint, r->lenient, e);
    thought_state thought = c->prompts.all[0].thought;
    c->turn = (turn_rules){ .speech = s };
    if (!check_format(c, e))
        return false;
    bool calls = r->tools && s->calls, channels = s->calls && s->calls->channels;
    bool can_think = s->think_end && thought != THOUGHT_CLOSED;
    turn_limits l = { .speech = s,
                      .tools = calls ? r->callable : NULL,
                      .choice = r->choice,
                      .one_call = r->one_call,
                      .thoughts = can_think,
                      .inside = thought == THOUGHT_OPEN };
    c->turn = turn_rules_of(&l);
    c->turn.thoughts = c->turn.thoughts && r->thoughts;
    bool before = can_think && (l.inside || r->constraint.kind == PESC_GRAMMAR_SCHEMA);
    l.content = r->constraint.field;
    if (turn_needs_grammar(&l) && (c->turn.tools || l.tools || before || channels))
        return compile_turn(c, &l, e);
    return compile(c, &r->constraint, r->lenient, e);
}
