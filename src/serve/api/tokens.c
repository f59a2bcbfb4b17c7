/* Endpoints of tokens and of texts that are not generated. */
#include "serve/api/response.h"
#include "serve/api/endpoints.h"

#include "base/mem.h"

#include <string.h>

/* The text of a token in its place; an array of bytes where it is not UTF-8 alone. */
static json_t *piece_json(decode_stream *d, const tokenizer *t, const id_list *ids, size_t i)
{
    static const char replaced[] = "\xef\xbf\xbd"; /* U+FFFD */
    str text = { 0 };
    if (prompts_piece(d, t, i ? ids->ids[i - 1] : -1, ids->ids[i], &text) != PESC_OK)
        str_clear(&text);
    str_puts(&text, "");
    json_t *v = text.p && strstr(text.p, replaced) ? response_bytes(t, ids->ids[i], &text)
                                                   : json_stringn(text.p, text.n);
    str_free(&text);
    return v;
}

/* with_pieces, as llama.cpp's server has it: a token is an object with its id and its text.
 * return_token_strs, as vLLM's has it: a list of their own has the tokens as the vocabulary writes
 * them. */
static bool reply_tokens(exchange *x, const id_list *ids)
{
    const api_request *r = &x->request;
    const tokenizer *t = x->srv->m->tok;
    decode_stream *d = NULL;
    pesc_status st = r->with_pieces && t ? decode_open(&d, t, 0) : PESC_OK;
    if (st != PESC_OK)
        return api_failed(&x->error, st);
    json_t *list = json_array(), *raw = r->with_strings ? json_array() : json_null();
    for (size_t i = 0; i < ids->n; i++) {
        json_t *id = json_integer(ids->ids[i]);
        json_array_append_new(
            list, d ? json_pack("{s:o, s:o}", "id", id, "piece", piece_json(d, t, ids, i)) : id);
        if (r->with_strings)
            json_array_append_new(raw, response_token(t, ids->ids[i]));
    }
    decode_close(d);
    return exchange_reply(x, json_pack("{s:o, s:I, s:i, s:o}", "tokens", list, "count",
                                       (json_int_t)ids->n, "max_model_len", (int)x->srv->context,
                                       "token_strs", raw));
}

bool handle_tokenize(exchange *x)
{
    prompt_list p = { 0 };
    const json_t *text = x->request.prompt;
    if (text && !json_is_string(text))
        return api_refuse(&x->error, 400, NULL, "prompt", "prompt: found %s, expected a string",
                          json_kind(text));
    bool good = prompts_read(&p, &x->srv->prompts, &x->request, &x->error) &&
                reply_tokens(x, &p.all[0].ids);
    prompts_close(&p);
    return good;
}

/* Answers with the text of the ids, which it frees; again: under this name, too. */
static bool reply_text(exchange *x, id_list *ids, const char *again)
{
    str text = { 0 };
    const tokenizer *t = x->srv->m->tok;
    pesc_status st = t ? decode_text(t, ids->ids, ids->n, 0, &text)
                       : fail(PESC_UNSUPPORTED, "the model has no tokenizer");
    mem_free(ids->ids);
    if (st != PESC_OK) {
        str_free(&text);
        return api_failed(&x->error, st);
    }
    json_t *v = json_pack("{s:s%}", "prompt", text.p, text.n);
    if (again)
        json_object_set_new(v, again, json_stringn(text.p, text.n));
    str_free(&text);
    return exchange_reply(x, v);
}

bool handle_detokenize(exchange *x)
{
    id_list ids = { 0 };
    if (api_ids(x->request.tokens, "tokens", x->srv->rules.vocab, &ids.ids, &ids.n, &x->error))
        return reply_text(x, &ids, "content");
    mem_free(ids.ids);
    return false;
}

bool handle_template(exchange *x)
{
    prompt p = { 0 };
    if (conversation_encode(&x->srv->prompts, &x->request, &p, &x->error))
        return reply_text(x, &p.ids, NULL);
    mem_free(p.ids.ids);
    return false;
}

bool handle_count(exchange *x)
{
    prompt p = { 0 };
    bool good = conversation_encode(&x->srv->prompts, &x->request, &p, &x->error);
    json_int_t n = (json_int_t)p.ids.n;
    mem_free(p.ids.ids);
    return good && exchange_reply(x, json_pack("{s:I}", "input_tokens", n));
}

bool handle_tokenizer_info(exchange *x)
{
    const pesc_server *s = x->srv;
    const tokenizer *t = s->m->tok;
    if (!t)
        return api_refuse(&x->error, 404, NULL, NULL, "the model has no tokenizer");
    const chat_format *format = chat_built_in(s->prompts.chat);
    return exchange_reply(
        x, json_pack("{s:s, s:s, s:I, s:i, s:o, s:o, s:n, s:s?, s:s?}", "tokenizer_class",
                     "PreTrainedTokenizerFast", "model", tokenizer_kind(t), "vocab_size",
                     (json_int_t)tokenizer_size(t), "model_max_length", (int)s->context,
                     "bos_token", response_token(t, tokenizer_bos(t)), "eos_token",
                     response_token(t, tokenizer_eos(t)), "pad_token", "chat_template",
                     tokenizer_chat_template(t), "chat_format",
                     format ? chat_name(format) : pesc_model_chat_format(s->m)));
}
