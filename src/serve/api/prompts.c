#include "serve/api/prompts.h"

#include "base/mem.h"

#include <string.h>

/* ---- text of tokens ---- */

size_t prompts_chars(const char *text, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += (text[i] & 0xc0) != 0x80;
    return chars;
}

/* A token inside a character adds nothing that can be seen; then its text alone is taken. */
pesc_status prompts_piece(decode_stream *d, const tokenizer *t, int32_t before, int32_t id,
                          str *out)
{
    str text = { 0 };
    pesc_status s = decode_restart_after(d, &before, before >= 0);
    if (s == PESC_OK)
        s = decode_add(d, t, id, &text);
    if (s == PESC_OK)
        s = decode_end(d, &text);
    bool inside = s == PESC_OK && text.n == 0 && before >= 0;
    if (s == PESC_OK)
        str_add_valid(out, text.p, text.n);
    str_free(&text);
    return inside ? prompts_piece(d, t, -1, id, out) : s;
}

/* ---- prompts ---- */

/* The field that has the prompts. */
static const char *field_of(const api_request *r)
{
    return r->endpoint == API_EMBEDDINGS ? "input" : "prompt";
}

static bool read_prompt(const prompt_maker *m, const api_request *r, const json_t *v, prompt *p,
                        api_error *e)
{
    if (!json_is_string(v)) {
        bool good = api_ids(v, field_of(r), m->vocab, &p->ids.ids, &p->ids.n, e);
        p->ids.cap = p->ids.n;
        return good;
    }
    size_t n = json_string_length(v);
    if (n == 0 && r->endpoint == API_EMBEDDINGS)
        return api_refuse(e, 400, NULL, field_of(r), "input: found an empty string");
    if (n > API_MAX_TEXT)
        return api_refuse(e, 400, "string_too_long", field_of(r),
                          "%s: has %zu bytes, expected at most %d", field_of(r), n, API_MAX_TEXT);
    if (!m->tok)
        return api_refuse(e, 400, NULL, field_of(r), "the model has no tokenizer: give token ids");
    unsigned flags =
        (r->parse_special ? PESC_PARSE_SPECIAL : 0u) | (r->add_special ? PESC_ADD_SPECIAL : 0u);
    pesc_status s = tokenizer_encode(m->tok, json_string_value(v), n, flags, &p->ids);
    return s == PESC_OK || api_failed(e, s);
}

/* The text of the ids, with the code points before each of them. */
static pesc_status decode_prompt(const tokenizer *t, unsigned flags, prompt *p)
{
    decode_stream *d;
    size_t chars = 0, counted = 0;
    TRY(decode_open(&d, t, flags));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < p->ids.n; i++) {
        p->offsets[i] = chars +=
            prompts_chars(p->text.p ? p->text.p + counted : "", p->text.n - counted);
        counted = p->text.n;
        s = decode_add(d, t, p->ids.ids[i], &p->text);
    }
    if (s == PESC_OK)
        s = decode_end(d, &p->text);
    decode_close(d);
    return s;
}

/* What an echo needs. Of a prompt of ids it shows every token. */
static bool keep_text(const prompt_maker *m, const json_t *given, prompt *p, api_error *e)
{
    if (!m->tok)
        return true;
    p->offsets = mem_alloc(p->ids.n + 1, sizeof *p->offsets);
    if (!p->offsets)
        return api_failed(e, fail_nomem("an echo", p->ids.n * sizeof *p->offsets));
    pesc_status s = decode_prompt(m->tok, json_is_string(given) ? PESC_SKIP_SPECIAL : 0, p);
    if (s == PESC_OK && json_is_string(given)) { /* as it was written */
        str_clear(&p->text);
        str_add(&p->text, json_string_value(given), json_string_length(given));
        str_puts(&p->text, "");
    }
    p->chars = prompts_chars(p->text.p ? p->text.p : "", p->text.n);
    return s == PESC_OK || api_failed(e, s);
}

/* The tokens that the tokenizer puts around any text, around a conversation: BOS and what may be
 * before it, then the others. */
static bool add_specials(const prompt_maker *m, id_list *ids, api_error *e)
{
    id_list around = { 0 }, all = { 0 };
    size_t front = 0;
    pesc_status s = tokenizer_encode(m->tok, "", 0, PESC_ADD_SPECIAL, &around);
    for (size_t i = 0; i < around.n; i++)
        if (around.ids[i] == tokenizer_bos(m->tok))
            front = i + 1;
    for (size_t i = 0; s == PESC_OK && i < around.n + ids->n; i++)
        s = id_list_add(&all, i < front            ? around.ids[i]
                              : i < front + ids->n ? ids->ids[i - front]
                                                   : around.ids[i - ids->n]);
    mem_free(around.ids);
    if (s != PESC_OK) {
        mem_free(all.ids);
        return api_failed(e, s);
    }
    mem_free(ids->ids);
    *ids = all;
    return true;
}

static bool read_all(prompt_list *p, const prompt_maker *m, const api_request *r,
                     const json_t *many, api_error *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const json_t *v = many ? json_array_get(many, i) : r->prompt;
        bool good = r->messages ? conversation_encode(m, r, &p->all[i], e)
                                : read_prompt(m, r, v, &p->all[i], e);
        if (good && r->messages && r->endpoint == API_TOKENIZE && r->add_special)
            good = add_specials(m, &p->all[i].ids, e);
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
        return api_refuse(e, 400, NULL, field_of(r),
                          "%s: found %s, expected a string, an array of strings, token ids, or "
                          "an array of arrays of token ids",
                          field_of(r), json_kind(v));
    if (p->n == 0 || p->n > API_MAX_PROMPTS)
        return api_refuse(e, 400, NULL, field_of(r), "%s: found %zu prompts, expected 1 to %d",
                          field_of(r), p->n, API_MAX_PROMPTS);
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
