#include "serve/prompts.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "text/chat_template.h"

#include <string.h>

/* ---- text of tokens ---- */

size_t prompts_chars(const char *text, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += (text[i] & 0xc0) != 0x80;
    return chars;
}

void prompts_repair(const char *text, size_t n, str *out)
{
    for (size_t i = 0; i < n;) {
        int good = utf8_decode(text + i, n - i, NULL);
        if (good)
            str_add(out, text + i, (size_t)good);
        else
            str_puts(out, "\xef\xbf\xbd");
        i += good ? (size_t)good : utf8_bad_length(text + i, n - i);
    }
}

/* offsets: [n], or NULL. */
static pesc_status decode_all(decode_stream *d, const tokenizer *t, const int32_t *ids, size_t n,
                              str *out, size_t *offsets)
{
    size_t chars = 0, counted = out->n;
    for (size_t i = 0; i < n; i++) {
        if (offsets)
            offsets[i] = chars += prompts_chars(out->p ? out->p + counted : "", out->n - counted);
        counted = out->n;
        TRY(decode_add(d, t, ids[i], out));
    }
    return decode_end(d, out);
}

pesc_status prompts_decode(const tokenizer *t, const int32_t *ids, size_t n, unsigned flags,
                           str *out)
{
    decode_stream *d;
    TRY(decode_open(&d, t, flags));
    pesc_status s = decode_all(d, t, ids, n, out, NULL);
    decode_close(d);
    return s;
}

/* A token inside a character adds nothing that can be seen; then its text alone is taken. */
pesc_status prompts_piece(const tokenizer *t, int32_t before, int32_t id, str *out)
{
    decode_stream *d;
    str text = { 0 };
    TRY(decode_open_after(&d, t, 0, &before, before >= 0));
    pesc_status s = decode_all(d, t, &id, 1, &text, NULL);
    decode_close(d);
    bool inside = s == PESC_OK && text.n == 0 && before >= 0;
    if (s == PESC_OK)
        prompts_repair(text.p, text.n, out);
    str_free(&text);
    return inside ? prompts_piece(t, -1, id, out) : s;
}

/* ---- conversations ---- */

/* The text of a message: a string, or the texts of its parts joined. */
static bool read_content(const json_t *v, size_t number, str *out, api_error *e)
{
    if (json_is_string(v)) {
        str_add(out, json_string_value(v), json_string_length(v));
    } else if (json_is_array(v)) {
        for (size_t i = 0; i < json_array_size(v); i++) {
            const json_t *part = json_array_get(v, i);
            const char *type = json_string_value(json_object_get(part, "type"));
            const json_t *text = json_object_get(part, "text");
            if (!type || strcmp(type, "text") != 0 || !json_is_string(text))
                return api_refuse(e, 400, NULL, "messages",
                                  "message %zu: a part of its content is not text", number);
            str_add(out, json_string_value(text), json_string_length(text));
        }
    } else if (v && !json_is_null(v)) {
        return api_refuse(e, 400, NULL, "messages",
                          "message %zu: content: found %s, expected a string or an array of parts",
                          number, json_kind(v));
    }
    str_puts(out, "");
    if (out->p && strlen(out->p) != out->n)
        return api_refuse(e, 400, NULL, "messages", "message %zu: has a NUL character", number);
    if (out->n > API_MAX_TEXT)
        return api_refuse(e, 400, "string_too_long", "messages",
                          "message %zu: has %zu bytes, expected at most %d", number, out->n,
                          API_MAX_TEXT);
    return str_ok(out) || api_failed(e, fail_nomem("a message", out->n));
}

static bool read_message(const json_t *v, size_t number, pesc_message *m, str *text, api_error *e)
{
    static const char *const roles[] = { "system", "user", "assistant", "tool" };
    const char *role = json_string_value(json_object_get(v, "role"));
    if (!json_is_object(v) || !role)
        return api_refuse(e, 400, NULL, "messages", "message %zu: expected an object with a role",
                          number);
    if (strcmp(role, "developer") == 0)
        role = "system";
    if (json_has(v, "tool_calls") || json_has(v, "function_call"))
        return api_refuse(e, 400, "unsupported_parameter", "messages",
                          "message %zu: calls of tools are not supported by this server", number);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0) {
            m->role = roles[i];
            if (!read_content(json_object_get(v, "content"), number, text, e))
                return false;
            m->content = text->p;
            return true;
        }
    return api_refuse(e, 400, NULL, "messages",
                      "message %zu: found the role \"%.40s\", expected system, developer, user, "
                      "assistant or tool",
                      number, role);
}

/* The conversation up to the last message, which is not closed. */
static bool cut_last_close(const prompt_maker *m, const pesc_message *last, id_list *ids,
                           api_error *e)
{
    str text = { 0 };
    size_t n = strlen(last->content);
    pesc_status s = PESC_OK;
    while (s == PESC_OK && ids->n > 0) { /* drops tokens until the text ends the conversation */
        str_clear(&text);
        s = prompts_decode(m->tok, ids->ids, ids->n, 0, &text);
        if (s == PESC_OK && text.n >= n && memcmp(text.p + text.n - n, last->content, n) == 0)
            break;
        ids->n--;
    }
    str_free(&text);
    if (s != PESC_OK)
        return api_failed(e, s);
    return ids->n > 0 || api_refuse(e, 400, NULL, "continue_final_message",
                                    "the last message cannot be continued in this chat format");
}

static bool encode_chat(const prompt_maker *m, const api_request *r, const pesc_message *messages,
                        id_list *out, api_error *e)
{
    size_t n = json_array_size(r->messages);
    pesc_status s = chat_encode(m->chat, m->tok, messages, n, r->add_generation_prompt, out, NULL);
    if (s != PESC_OK) {
        api_failed(e, s);
        memcpy(e->param, "messages", sizeof "messages");
        return false;
    }
    return !r->continue_final_message || cut_last_close(m, &messages[n - 1], out, e);
}

bool prompts_chat(const prompt_maker *m, const api_request *r, id_list *out, api_error *e)
{
    size_t n = json_array_size(r->messages), i = 0;
    if (!json_is_array(r->messages) || n == 0 || n > API_MAX_MESSAGES)
        return api_refuse(e, 400, NULL, "messages",
                          "messages: expected an array of 1 to %d messages", API_MAX_MESSAGES);
    if (!m->tok || (!m->chat && !chat_template_runs(m->tok)))
        return api_refuse(e, 400, "no_chat_template", "messages",
                          "the model has no chat template that is known; start the server with "
                          "--chat-format");
    pesc_message *messages = mem_zalloc(n, sizeof *messages);
    str *texts = mem_zalloc(n, sizeof *texts);
    bool good = messages && texts;
    if (!good)
        api_failed(e, fail_nomem("messages", n * sizeof *texts));
    for (; good && i < n; i++)
        good = read_message(json_array_get(r->messages, i), i + 1, &messages[i], &texts[i], e);
    good = good && encode_chat(m, r, messages, out, e);
    for (size_t k = 0; texts && k < i; k++)
        str_free(&texts[k]);
    mem_free(texts);
    mem_free(messages);
    return good;
}

/* ---- prompts ---- */

static bool encode_text(const prompt_maker *m, const api_request *r, const json_t *v, prompt *p,
                        api_error *e)
{
    size_t n = json_string_length(v);
    if (n > API_MAX_TEXT)
        return api_refuse(e, 400, "string_too_long", "prompt",
                          "prompt: has %zu bytes, expected at most %d", n, API_MAX_TEXT);
    if (!m->tok)
        return api_refuse(e, 400, NULL, "prompt", "the model has no tokenizer: give token ids");
    unsigned flags = PESC_PARSE_SPECIAL | (r->add_special ? PESC_ADD_SPECIAL : 0u);
    pesc_status s = tokenizer_encode(m->tok, json_string_value(v), n, flags, &p->ids);
    return s == PESC_OK || api_failed(e, s);
}

static bool read_prompt(const prompt_maker *m, const api_request *r, const json_t *v, prompt *p,
                        api_error *e)
{
    if (json_is_string(v))
        return encode_text(m, r, v, p, e);
    bool good = api_ids(v, "prompt", m->vocab, &p->ids.ids, &p->ids.n, e);
    p->ids.cap = p->ids.n;
    return good;
}

/* What an echo needs. */
static bool keep_text(const prompt_maker *m, const json_t *given, prompt *p, api_error *e)
{
    decode_stream *d = NULL;
    if (!m->tok)
        return true;
    p->offsets = mem_alloc(p->ids.n + 1, sizeof *p->offsets);
    pesc_status s = p->offsets ? decode_open(&d, m->tok, PESC_SKIP_SPECIAL)
                               : fail_nomem("an echo", p->ids.n * sizeof *p->offsets);
    if (s == PESC_OK)
        s = decode_all(d, m->tok, p->ids.ids, p->ids.n, &p->text, p->offsets);
    decode_close(d);
    if (s == PESC_OK && json_is_string(given)) { /* as it was written */
        str_clear(&p->text);
        str_add(&p->text, json_string_value(given), json_string_length(given));
        str_puts(&p->text, "");
    }
    p->chars = prompts_chars(p->text.p ? p->text.p : "", p->text.n);
    return s == PESC_OK || api_failed(e, s);
}

static bool read_all(prompt_list *p, const prompt_maker *m, const api_request *r,
                     const json_t *many, api_error *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const json_t *v = many ? json_array_get(many, i) : r->prompt;
        bool good = r->messages ? prompts_chat(m, r, &p->all[i].ids, e)
                                : read_prompt(m, r, v, &p->all[i], e);
        if (!good || (r->echo && !keep_text(m, v, &p->all[i], e)))
            return false;
    }
    return true;
}

bool prompts_read(prompt_list *p, const prompt_maker *m, const api_request *r, api_error *e)
{
    const json_t *v = r->prompt;
    bool many = json_is_array(v) && (!api_is_ids(v) || json_array_size(v) == 0);
    *p = (prompt_list){ .n = many ? json_array_size(v) : 1 };
    if (v && !json_is_string(v) && !json_is_array(v))
        return api_refuse(e, 400, NULL, "prompt",
                          "prompt: found %s, expected a string, an array of strings, token ids, or "
                          "an array of arrays of token ids",
                          json_kind(v));
    if (p->n == 0 || p->n > API_MAX_PROMPTS)
        return api_refuse(e, 400, NULL, "prompt", "prompt: found %zu prompts, expected 1 to %d",
                          p->n, API_MAX_PROMPTS);
    if (!(p->all = mem_zalloc(p->n, sizeof *p->all)))
        return api_failed(e, fail_nomem("prompts", p->n * sizeof *p->all));
    return read_all(p, m, r, many ? v : NULL, e);
}

void prompts_close(prompt_list *p)
{
    for (size_t i = 0; p->all && i < p->n; i++) {
        mem_free(p->all[i].ids.ids);
        mem_free(p->all[i].offsets);
        str_free(&p->all[i].text);
    }
    mem_free(p->all);
    *p = (prompt_list){ 0 };
}
