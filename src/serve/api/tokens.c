/* Endpoints of tokens and of texts that are not generated. */
#include "serve/api/conversation.h"
#include "serve/api/response.h"
#include "serve/api/endpoints.h"

#include "base/mem.h"

#include <string.h>

static prompt_maker maker_of(const pesc_server *s)
{
    return (prompt_maker){ s->m->tok, s->chat, s->m->shape.cfg.vocab };
}

/* Parses the body; false: the answer is set. Close the request in any case. */
static bool parse(exchange *x, api_endpoint endpoint, api_request *r)
{
    api_error e = { 0 };
    api_rules rules = { x->srv->m->shape.cfg.vocab, x->srv->opt.lenient };
    if (api_parse(r, endpoint, x->body.p ? x->body.p : "", x->body.n, &rules, &e)) {
        if (r->ignored.n)
            str_add(&x->ignored, r->ignored.p, r->ignored.n);
        return true;
    }
    exchange_fail(x, &e);
    return false;
}

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
static bool reply_tokens(exchange *x, const api_request *r, const id_list *ids, api_error *e)
{
    const tokenizer *t = x->srv->m->tok;
    decode_stream *d = NULL;
    pesc_status st = r->with_pieces && t ? decode_open(&d, t, 0) : PESC_OK;
    if (st != PESC_OK)
        return api_failed(e, st);
    json_t *list = json_array(), *raw = r->with_strings ? json_array() : json_null();
    for (size_t i = 0; i < ids->n; i++) {
        json_t *id = json_integer(ids->ids[i]);
        json_array_append_new(
            list, d ? json_pack("{s:o, s:o}", "id", id, "piece", piece_json(d, t, ids, i)) : id);
        if (r->with_strings)
            json_array_append_new(raw, response_token(t, ids->ids[i]));
    }
    decode_close(d);
    exchange_reply(x, json_pack("{s:o, s:I, s:i, s:o}", "tokens", list, "count", (json_int_t)ids->n,
                                "max_model_len", (int)x->srv->context, "token_strs", raw));
    return true;
}

void handle_tokenize(exchange *x)
{
    api_request r;
    api_error e = { 0 };
    prompt_list p = { 0 };
    prompt_maker m = maker_of(x->srv);
    if (parse(x, API_TOKENIZE, &r)) {
        if (r.prompt && !json_is_string(r.prompt)) {
            api_refuse(&e, 400, NULL, "prompt", "prompt: found %s, expected a string",
                       json_kind(r.prompt));
            exchange_fail(x, &e);
        } else if (!prompts_read(&p, &m, &r, &e) || !reply_tokens(x, &r, &p.all[0].ids, &e)) {
            exchange_fail(x, &e);
        }
    }
    prompts_close(&p);
    api_close(&r);
}

void handle_detokenize(exchange *x)
{
    api_request r;
    api_error e = { 0 };
    int32_t *ids = NULL;
    size_t n;
    str text = { 0 };
    if (parse(x, API_DETOKENIZE, &r)) {
        bool good = api_ids(r.tokens, "tokens", x->srv->m->shape.cfg.vocab, &ids, &n, &e);
        if (good && !x->srv->m->tok)
            good = api_refuse(&e, 400, NULL, NULL, "the model has no tokenizer");
        pesc_status st = good ? decode_text(x->srv->m->tok, ids, n, 0, &text) : PESC_OK;
        if (st != PESC_OK)
            good = api_failed(&e, st);
        if (good)
            exchange_reply(
                x, json_pack("{s:s%, s:s%}", "prompt", text.p, text.n, "content", text.p, text.n));
        else
            exchange_fail(x, &e);
    }
    mem_free(ids);
    str_free(&text);
    api_close(&r);
}

void handle_template(exchange *x)
{
    api_request r;
    api_error e = { 0 };
    id_list ids = { 0 };
    str text = { 0 };
    prompt_maker m = maker_of(x->srv);
    if (parse(x, API_TEMPLATE, &r)) {
        bool good = conversation_encode(&m, &r, &ids, &e);
        pesc_status st = good ? decode_text(m.tok, ids.ids, ids.n, 0, &text) : PESC_OK;
        if (st != PESC_OK)
            good = api_failed(&e, st);
        if (good)
            exchange_reply(x, json_pack("{s:s%}", "prompt", text.p, text.n));
        else
            exchange_fail(x, &e);
    }
    mem_free(ids.ids);
    str_free(&text);
    api_close(&r);
}

void handle_tokenizer_info(exchange *x)
{
    api_error e;
    const pesc_server *s = x->srv;
    const tokenizer *t = s->m->tok;
    if (!t) {
        api_refuse(&e, 404, NULL, NULL, "the model has no tokenizer");
        exchange_fail(x, &e);
        return;
    }
    const chat_format *format = chat_built_in(s->chat);
    exchange_reply(x,
                   json_pack("{s:s, s:s, s:I, s:i, s:o, s:o, s:n, s:s?, s:s?}", "tokenizer_class",
                             "PreTrainedTokenizerFast", "model", tokenizer_kind(t), "vocab_size",
                             (json_int_t)tokenizer_size(t), "model_max_length", (int)s->context,
                             "bos_token", response_token(t, tokenizer_bos(t)), "eos_token",
                             response_token(t, tokenizer_eos(t)), "pad_token", "chat_template",
                             tokenizer_chat_template(t), "chat_format",
                             format ? chat_name(format) : pesc_model_chat_format(s->m)));
}
