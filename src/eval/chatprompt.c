#include "eval/chatprompt.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* How answers in which tools are called are told apart: a short conversation shows whether the
 * template opens a thought. */
static pesc_status open_calls(chatprompt *c, const pesc_model *m)
{
    static const char why[] = "%s: tasks of the kind calls: %s";
    thought_state thought = THOUGHT_FREE;
    if (!chat_takes_tools(c->writer))
        return fail(PESC_UNSUPPORTED, why, m->dir->path, "the chat template does not take tools");
    TRY(chat_speech_open(&c->speech, m->tok, chat_tool_source(c->writer), NULL));
    if (!c->speech->calls)
        return fail(PESC_UNSUPPORTED, why, m->dir->path,
                    "how the model writes calls cannot be seen from its chat template");
    const thought_format *f = c->speech->thought;
    json_t *talk = json_pack("[{s:s, s:s}]", "role", "user", "content", "q");
    chat_request r = { .messages = talk, .end = CHAT_PROMPT };
    pesc_status s = talk ? PESC_OK : fail_nomem("a conversation", 0);
    if (s == PESC_OK && f)
        s = chat_thought_state(c->writer, &r, f->begin, f->end, &thought);
    json_decref(talk);
    c->turn = turn_rules_of(&(turn_limits){ .speech = c->speech,
                                            .thoughts = f && thought != THOUGHT_CLOSED,
                                            .inside = thought == THOUGHT_OPEN });
    return s;
}

pesc_status chatprompt_open(chatprompt *c, const pesc_model *m, bool calls)
{
    *c = (chatprompt){ .writer = m->chat };
    if (m->tok && (chat_is_own(m->chat) || chat_built_in(m->chat)))
        return calls ? open_calls(c, m) : PESC_OK;
    const char *problem = chat_problem(m->chat);
    return fail(PESC_UNSUPPORTED, "%s: %s a chat template; %s", m->dir->path,
                calls ? "tasks of the kind calls need" : "--chat needs",
                problem ? problem : "the model has none");
}

void chatprompt_close(chatprompt *c)
{
    chat_speech_close(c->speech);
    *c = (chatprompt){ 0 };
}

pesc_status chatprompt_template(const pesc_model *m, str *out)
{
    const char *text = tokenizer_chat_template(m->tok);
    size_t n = text ? strlen(text) : 0;
    if (!text)
        chat_source(chat_built_in(m->chat), &text, &n);
    str_add(out, text, n);
    str_puts(out, "");
    return str_ok(out) ? PESC_OK : fail_nomem("a chat template", out->n);
}

/* ---- one context ---- */

/* The reference leaves the system message out when the template fails. */
static pesc_status write_text(chatprompt *c, const pesc_message *messages, const task_doc *d,
                              str *out)
{
    size_t n = d->n_turns + 1;
    bool system = strcmp(messages[0].role, "system") == 0;
    chat_request r = { .list = messages, .n = n, .end = CHAT_PROMPT, .tools = d->tools };
    if (!system || !c->without_system) {
        pesc_status s = chat_write(c->writer, &r, out, NULL, NULL);
        if (!system || s != PESC_USAGE)
            return s;
        log_notice("--chat: %s; the tasks' descriptions are left out", pesc_last_error());
        c->without_system = true;
        str_clear(out);
    }
    r.list = messages + 1;
    r.n = n - 1;
    return chat_write(c->writer, &r, out, NULL, NULL);
}

static pesc_status set_context(chatprompt *c, task_doc *d, size_t i, pesc_message *messages)
{
    str text = { 0 };
    messages[d->n_turns] = (pesc_message){ "user", d->questions[i] };
    pesc_status s = write_text(c, messages, d, &text);
    str_puts(&text, "");
    if (s == PESC_OK && !str_ok(&text))
        s = fail_nomem("a prompt", text.n);
    if (s != PESC_OK) {
        str_free(&text);
        return s;
    }
    mem_free(d->contexts[i]);
    d->contexts[i] = text.p;
    return PESC_OK;
}

/* ---- a document ---- */

static void drop_delimiters(task_doc *d)
{
    for (size_t i = 0; i < d->n_requests; i++)
        if (d->continuations[i]) {
            const char *text = d->chat_continuations[i];
            memmove(d->continuations[i], text, strlen(text) + 1);
            d->chat_continuations[i] = d->continuations[i];
        }
}

pesc_status chatprompt_apply(chatprompt *c, task_doc *d)
{
    pesc_message *messages = mem_alloc(d->n_turns + 1, sizeof *messages);
    pesc_status s = messages ? PESC_OK : fail_nomem("a conversation", d->n_turns);
    for (size_t i = 0; messages && i < d->n_turns; i++)
        messages[i] = (pesc_message){ d->turns[i].role, d->turns[i].text };
    for (size_t i = 0; s == PESC_OK && i < d->n_questions; i++)
        s = set_context(c, d, i, messages);
    mem_free(messages);
    TRY(s);
    for (size_t i = d->n_questions; i < d->n_requests; i++)
        d->contexts[i] = d->contexts[0];
    drop_delimiters(d);
    digest_text(d->prompt_hash, d->contexts[0], strlen(d->contexts[0]));
    return PESC_OK;
}
