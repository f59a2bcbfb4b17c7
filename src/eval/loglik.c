#include "eval/loglik.h"

#include "base/mem.h"
#include "jinja/pytext.h"
#include "base/unicode.h"

#include <string.h>

pesc_status loglik_open(loglik *l, const tokenizer *tok, int32_t max_length)
{
    *l = (loglik){ .tok = tok, .max_length = max_length, .prefix = -1 };
    if (!tok)
        return fail(PESC_UNSUPPORTED, "the model has no tokenizer, so texts cannot be scored");
    l->prefix = tokenizer_bos(tok) >= 0 ? tokenizer_bos(tok) : tokenizer_eos(tok);
    if (l->prefix < 0)
        return fail(PESC_UNSUPPORTED, "the tokenizer names neither a token for the beginning of a "
                                      "text nor one for its end, so texts cannot be scored");
    return PESC_OK;
}

void loglik_close(loglik *l)
{
    str_free(&l->context);
    mem_free(l->context_ids.ids);
    mem_free(l->whole.ids);
    *l = (loglik){ 0 };
}

static bool begins_with_token(const loglik *l, slice text, int32_t id)
{
    size_t n = 0;
    const char *token = id >= 0 ? tokenizer_token(l->tok, id, &n) : NULL;
    return token && n > 0 && text.n >= n && memcmp(text.p, token, n) == 0;
}

/* No special tokens are added to a text that begins with the text of token `unless`. */
static pesc_status encode(const loglik *l, slice text, int32_t unless, id_list *out)
{
    unsigned flags = PESC_PARSE_SPECIAL;
    if (!begins_with_token(l, text, unless))
        flags |= PESC_ADD_SPECIAL;
    out->n = 0;
    return tokenizer_encode(l->tok, text.p, text.n, flags, out);
}

static pesc_status encode_context(loglik *l, slice context)
{
    if (l->context_ids.ids && l->context.n == context.n &&
        memcmp(l->context.p, context.p, context.n) == 0)
        return PESC_OK;
    mem_free(l->context_ids.ids);
    l->context_ids = (id_list){ 0 };
    str_clear(&l->context);
    str_add(&l->context, context.p, context.n);
    if (!str_ok(&l->context))
        return fail_nomem("a context", context.n);
    return encode(l, context, l->prefix, &l->context_ids);
}

slice loglik_context(slice s)
{
    size_t n;
    while (s.n > 0 && pytext_is_space(unicode_last(s.p, s.n, &n)))
        s.n -= n;
    return s;
}

/* The prefix token is the context, unless the continuation begins with it anyway. */
static pesc_status pair_without_context(loglik *l, slice continuation, int32_t *first)
{
    l->whole.n = 0;
    TRY(id_list_add(&l->whole, l->prefix));
    TRY(tokenizer_encode(l->tok, continuation.p, continuation.n, PESC_PARSE_SPECIAL, &l->whole));
    if (l->whole.n > 1 && l->whole.ids[1] == l->prefix)
        memmove(l->whole.ids, l->whole.ids + 1, --l->whole.n * sizeof *l->whole.ids);
    *first = 1;
    return PESC_OK;
}

/* A context of white space may have no tokens of its own; it is then part of the continuation.
 * Where a token of the whole reaches over the boundary, the model is fed the tokens of the context
 * alone, as the reference does. */
static pesc_status pair_with_context(loglik *l, slice context, slice both, int32_t *first)
{
    TRY(encode_context(l, loglik_context(context)));
    size_t n = l->context_ids.n;
    *first = (int32_t)n;
    if (n == 0)
        return pair_without_context(l, both, first);
    TRY(encode(l, both, l->prefix, &l->whole));
    if (l->whole.n > n)
        memcpy(l->whole.ids, l->context_ids.ids, n * sizeof *l->whole.ids);
    return PESC_OK;
}

static pesc_status encode_pair(loglik *l, slice context, const char *continuation, int32_t *first)
{
    str both = { 0 };
    str_add(&both, context.p, context.n);
    str_puts(&both, continuation);
    pesc_status s = str_ok(&both) ? PESC_OK : fail_nomem("a text", context.n);
    if (s == PESC_OK)
        s = context.n ? pair_with_context(l, context, slice_of(&both), first)
                      : pair_without_context(l, slice_of(&both), first);
    str_free(&both);
    return s;
}

pesc_status loglik_pair(loglik *l, const char *context, const char *continuation,
                        loglik_tokens *out)
{
    int32_t first;
    TRY(encode_pair(l, (slice){ context, strlen(context) }, continuation, &first));
    int64_t n = (int64_t)l->whole.n, scored = n - first, most = (int64_t)l->max_length + 1;
    if (scored < 1)
        return fail(PESC_FORMAT, "the continuation \"%.40s\" has no tokens after its context",
                    continuation);
    if (scored > l->max_length)
        return fail(PESC_FORMAT,
                    "the continuation \"%.40s\" has %lld tokens, but the model takes %d",
                    continuation, (long long)scored, l->max_length);
    int64_t kept = n < most ? n : most;
    *out = (loglik_tokens){ l->whole.ids + (n - kept), (int32_t)kept, (int32_t)(kept - scored) };
    return PESC_OK;
}

pesc_status loglik_prompt(loglik *l, const char *context, int32_t max_new, loglik_tokens *out)
{
    int64_t most = (int64_t)l->max_length - max_new;
    if (most < 1)
        return fail(PESC_USAGE,
                    "%d tokens are to be generated, but the model takes %d in all; give fewer",
                    max_new, l->max_length);
    TRY(encode(l, (slice){ context, strlen(context) }, tokenizer_bos(l->tok), &l->whole));
    int64_t n = (int64_t)l->whole.n, kept = n < most ? n : most;
    if (n == 0)
        return fail(PESC_FORMAT, "a prompt has no tokens");
    *out = (loglik_tokens){ .ids = l->whole.ids + (n - kept), .n = (int32_t)kept };
    return PESC_OK;
}
