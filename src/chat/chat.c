#include "chat/chat.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "chat/chat_writer.h"

#include <stdint.h>
#include <string.h>

#define WHERE "the model's chat template"

/* ---- who writes ---- */

/* A template that cannot be compiled is no failure: the sentence is kept as the problem. */
static pesc_status compile_own(chat_writer *w)
{
    const char *source = tokenizer_chat_template(w->tok), *tools = tokenizer_tool_template(w->tok);
    pesc_status s = jinja_compile(&w->jinja, source, strlen(source), WHERE);
    if (s == PESC_OK && tools)
        s = jinja_compile(&w->with_tools, tools, strlen(tools), WHERE " for tools");
    if (s == PESC_OK || s == PESC_NOMEM)
        return s;
    w->problem = mem_strdup(pesc_last_error());
    jinja_free(w->jinja);
    w->jinja = NULL;
    status_clear();
    return w->problem ? PESC_OK : fail_nomem(WHERE, strlen(source));
}

/* A format names the tokens of a tokenizer whose files do not: those that the ids say. */
static pesc_status name_token(chat_writer *w, const char *name, int32_t id)
{
    size_t n = 0;
    const char *token = id >= 0 ? tokenizer_token(w->tok, id, &n) : NULL;
    if (!token || !utf8_valid(token, n))
        return PESC_OK;
    return json_object_set_new(w->tokens, name, json_stringn(token, n)) == 0 ? PESC_OK
                                                                             : fail_nomem(name, n);
}

static pesc_status compile_format(chat_writer *w)
{
    const char *source;
    size_t n;
    chat_source(w->format, &source, &n);
    w->takes_calls = memmem(source, n, "tool_calls", strlen("tool_calls"));
    TRY(jinja_compile(&w->jinja, source, n, NULL));
    w->tokens = json_object();
    if (!w->tokens)
        return fail_nomem("a chat format", 0);
    if (!w->tok)
        return PESC_OK;
    TRY(name_token(w, "bos_token", tokenizer_bos(w->tok)));
    return name_token(w, "eos_token", tokenizer_eos(w->tok));
}

static pesc_status choose(chat_writer *w, const char *name)
{
    const char *source = w->tok ? tokenizer_chat_template(w->tok) : NULL;
    if (name && *name && strcmp(name, CHAT_OWN) != 0) {
        w->format = chat_find(name);
        return w->format ? PESC_OK : chat_unknown("that chat format is not known");
    }
    if (source && !chat_named(source))
        TRY(compile_own(w));
    if (w->jinja)
        w->tokens = json_incref((json_t *)(uintptr_t)tokenizer_named_tokens(w->tok));
    else
        w->format = w->otherwise;
    return PESC_OK;
}

void chat_close(chat_writer *w)
{
    if (!w)
        return;
    jinja_free(w->jinja);
    jinja_free(w->with_tools);
    mem_free(w->problem);
    json_decref(w->tokens);
    mem_free(w);
}

bool chat_is_own(const chat_writer *w)
{
    return w->jinja && !w->format;
}

const chat_format *chat_built_in(const chat_writer *w)
{
    return w->format;
}

const chat_format *chat_otherwise(const chat_writer *w)
{
    return w->otherwise;
}

bool chat_takes_tools(const chat_writer *w)
{
    return w->with_tools || (w->jinja && jinja_uses(w->jinja, "tools"));
}

const char *chat_tool_source(const chat_writer *w)
{
    bool own = w->tok && chat_is_own(w);
    const char *tools = own ? tokenizer_tool_template(w->tok) : NULL;
    return tools || !own ? tools : tokenizer_chat_template(w->tok);
}

const char *chat_problem(const chat_writer *w)
{
    return w->problem;
}

/* ---- text ---- */

const jinja_template *chat_template(const chat_writer *w, const chat_request *r)
{
    return r->tools && w->with_tools ? w->with_tools : w->jinja;
}

pesc_status chat_render(const chat_writer *w, const chat_request *r, const json_t *messages,
                        bool generation, jinja_text *out)
{
    json_t *v = json_pack("{sO sn sb sO?}", "messages", messages, "documents",
                          "add_generation_prompt", generation, "tools", r->tools);
    *out = (jinja_text){ 0 };
    if (!v || (!r->tools && json_object_set_new(v, "tools", json_null()) != 0) ||
        (r->variables && json_object_update(v, (json_t *)(uintptr_t)r->variables) != 0)) {
        json_decref(v);
        return fail_nomem("a conversation", 0);
    }
    jinja_input in = { .variables = v, .trusted = w->tokens, .now = r->now };
    if (w->format) /* the work of a built-in format is in proportion to the conversation */
        in.limits = (jinja_limits){ UINT64_MAX, SIZE_MAX, SIZE_MAX };
    pesc_status s = jinja_render(chat_template(w, r), &in, out);
    json_decref(v);
    return s;
}

pesc_status chat_open(chat_writer **out, const tokenizer *t, const char *name,
                      const chat_format *otherwise)
{
    *out = NULL;
    chat_writer *w = mem_zalloc(1, sizeof *w);
    if (!w)
        return fail_nomem("a chat format", sizeof *w);
    w->tok = t;
    w->otherwise = otherwise;
    w->joint[0] = '\n';
    pesc_status s = choose(w, name);
    if (s == PESC_OK && w->format)
        s = compile_format(w);
    else if (s == PESC_OK && w->jinja)
        s = chat_learn(w);
    if (s == PESC_OK)
        *out = w;
    else
        chat_close(w);
    return s;
}

/* Messages as the template sees them. */
static pesc_status to_json(const chat_writer *w, const pesc_message *m, size_t n, json_t **out)
{
    *out = json_array();
    bool fine = *out != NULL;
    for (size_t i = 0; fine && i < n; i++) {
        const char *role = m[i].role ? m[i].role : "", *content = m[i].content ? m[i].content : "";
        if (w->format && !m[i].content)
            return fail(PESC_USAGE, "message %zu, from the %s, has no content", i + 1, role);
        if (!utf8_valid(role, strlen(role)) || !utf8_valid(content, strlen(content)))
            return fail(PESC_USAGE, "message %zu is not valid UTF-8", i + 1);
        fine = json_array_append_new(*out,
                                     json_pack("{ss ss}", "role", role, "content", content)) == 0;
    }
    return fine ? PESC_OK : fail_nomem("a conversation", n);
}

static pesc_status check_tokens(const chat_writer *w)
{
    const chat_format *f = w->format;
    if (!f)
        return PESC_OK;
    if (jinja_uses(w->jinja, "eos_token") && !json_has(w->tokens, "eos_token"))
        return fail(PESC_UNSUPPORTED,
                    "the chat format %s ends a turn with the end-of-sequence token, which this "
                    "tokenizer does not name; its tokenizer_config.json would, or choose another "
                    "format",
                    f->name);
    for (size_t i = 0; i < sizeof f->needs / sizeof *f->needs && f->needs[i]; i++)
        if (tokenizer_added_id(w->tok, f->needs[i]) < 0)
            return fail(PESC_UNSUPPORTED,
                        "the chat format %s needs the token %s, which this tokenizer does not have "
                        "as an added token",
                        f->name, f->needs[i]);
    return PESC_OK;
}

/* Drops what follows the last byte of the last message. The message must end there: a template may
 * write it in other words, or write its calls after it. Of a built-in format it is known that it
 * writes the text as it is, but for a beginning that it may leave out. */
static pesc_status drop_end(const chat_writer *w, const json_t *messages, jinja_text *text)
{
    size_t i = json_array_size(messages) - 1, n = text->n;
    const json_t *content = json_object_get(json_array_get(messages, i), "content");
    unsigned origin = i < JINJA_DATA - JINJA_MESSAGE ? JINJA_MESSAGE + (unsigned)i : JINJA_DATA;
    slice said = { 0 };
    if (json_is_string(content))
        said = pytext_strip((slice){ json_string_value(content), json_string_length(content) });
    while (n > 0 && (text->origin[n - 1] & ~(unsigned)JINJA_GENERATED) != origin)
        n--;
    size_t end = pytext_strip_chars((slice){ text->text, n }, PYTEXT_RIGHT, NULL).n, same = 0;
    while (same < said.n && same < end &&
           (text->origin[end - same - 1] & ~(unsigned)JINJA_GENERATED) == origin)
        same++;
    if (same == 0 || (same < said.n && !w->format) ||
        memcmp(text->text + end - same, said.p + said.n - same, same) != 0)
        return fail(PESC_USAGE,
                    "the last message cannot be continued: it is empty, or the chat %s%s does not "
                    "write its %s",
                    w->format ? "format " : "template", w->format ? w->format->name : "",
                    w->format ? "end" : "text as it is");
    text->n = n;
    return PESC_OK;
}

/* ---- ids ---- */

/* Pieces of equal origin and flag. flags: one byte for each of the text, or NULL. */
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

/* ---- all of it ---- */

static pesc_status write_json(const chat_writer *w, const chat_request *r, str *text, id_list *ids,
                              unsigned char **trained)
{
    jinja_text made;
    unsigned char *flags = NULL;
    TRY(chat_render(w, r, r->messages, r->end == CHAT_PROMPT, &made));
    pesc_status s = r->end == CHAT_GO_ON ? drop_end(w, r->messages, &made) : PESC_OK;
    if (s == PESC_OK && trained) {
        flags = mem_zalloc(made.n ? made.n : 1, 1);
        s = flags ? chat_mask(w, r, &made, flags) : fail_nomem("encoding a conversation", made.n);
    }
    if (s == PESC_OK && ids)
        s = encode(w->tok, &made, flags, ids, trained);
    if (s == PESC_OK && text) {
        str_add(text, made.text, made.n);
        s = str_ok(text) ? PESC_OK : fail_nomem("a conversation", text->n);
    }
    mem_free(flags);
    jinja_text_free(&made);
    return s;
}

pesc_status chat_write(const chat_writer *w, const chat_request *r, str *text, id_list *ids,
                       unsigned char **trained)
{
    if (!w->jinja)
        return chat_unknown(w->problem ? w->problem : "the model names no chat template");
    if (r->messages ? json_array_size(r->messages) == 0 : r->n == 0)
        return fail(PESC_USAGE, "a conversation needs at least one message");
    TRY(check_tokens(w));
    chat_request whole = *r;
    json_t *list = NULL;
    pesc_status s = r->messages ? chat_adapt(w, r, &list) : to_json(w, r->list, r->n, &list);
    whole.messages = list;
    if (s == PESC_OK)
        s = write_json(w, &whole, text, ids, trained);
    json_decref(list);
    return s;
}

/* Where the template's own words begin that follow the last text of a message; of a conversation
 * that goes on with its last message that message is among them. */
static size_t opening_of(const chat_request *r, const jinja_text *made)
{
    size_t last = json_array_size(r->messages) - 1, i = made->n;
    unsigned origin = r->end == CHAT_GO_ON && last < JINJA_DATA - JINJA_MESSAGE
                          ? JINJA_MESSAGE + (unsigned)last
                          : JINJA_TEMPLATE;
    for (; i > 0; i--) {
        unsigned from = made->origin[i - 1] & ~(unsigned)JINJA_GENERATED;
        if (from != JINJA_TEMPLATE && from != origin)
            break;
    }
    return i;
}

pesc_status chat_thought_state(const chat_writer *w, const chat_request *r, const char *begin,
                               const char *end, thought_state *out)
{
    jinja_text made = { 0 };
    json_t *list = NULL;
    const char *begins = NULL, *ends = NULL, *mark;
    *out = THOUGHT_FREE;
    if (r->end == CHAT_WHOLE)
        return PESC_OK;
    pesc_status s = chat_adapt(w, r, &list);
    if (s == PESC_OK)
        s = chat_render(w, r, list, r->end == CHAT_PROMPT, &made);
    if (s == PESC_OK) {
        const char *text = made.text + opening_of(r, &made);
        for (mark = text; (mark = strstr(mark, begin)); mark++)
            begins = mark;
        for (mark = text; (mark = strstr(mark, end)); mark++)
            ends = mark;
        if (begins || ends)
            *out = begins && !(ends && ends > begins) ? THOUGHT_OPEN : THOUGHT_CLOSED;
        jinja_text_free(&made);
    }
    json_decref(list);
    return s;
}

bool chat_reads(const chat_writer *w, const char *variable)
{
    return chat_is_own(w) && jinja_uses(w->jinja, variable);
}

pesc_status chat_stop_token(const chat_writer *w, int32_t *id)
{
    static const pesc_message talk[] = { { "user", "Hello" }, { "assistant", "Hello." } };
    id_list ids = { 0 };
    unsigned char *trained = NULL;
    *id = -1;
    if (!chat_is_own(w))
        return PESC_OK;
    pesc_status s = chat_write(w, &(chat_request){ .list = talk, .n = 2 }, NULL, &ids, &trained);
    for (size_t i = 0; s == PESC_OK && i < ids.n; i++)
        if (trained[i] && tokenizer_is_special(w->tok, ids.ids[i]))
            *id = ids.ids[i];
    mem_free(ids.ids);
    mem_free(trained);
    if (s == PESC_NOMEM)
        return s;
    status_clear();
    return PESC_OK;
}
