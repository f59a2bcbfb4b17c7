/* loglik: texts of an evaluation as tokens, by the rules of lm-evaluation-harness with its Hugging
 * Face backend.
 *
 * A pair of context and continuation becomes one string of tokens and the place where the scored
 * tokens begin. White space at the end of the context belongs to the continuation. The context and
 * the whole are encoded with the tokenizer's own special tokens, and the scored tokens are those of
 * the whole after as many as the context has alone, even where a token reaches over the boundary;
 * before them are the tokens of the context alone. Special tokens that a text spells are
 * recognised, as the reference does. */
#ifndef PESC_EVAL_LOGLIK_H
#define PESC_EVAL_LOGLIK_H

#include "base/str.h"
#include "jinja/pytext.h"
#include "tokenizer/tokenizer.h"

typedef struct loglik {
    const tokenizer *tok; /* borrowed */
    int32_t max_length;   /* tokens that the model can be fed */
    int32_t prefix;       /* the context of a continuation that has none: BOS, else EOS */
    str context;          /* that was encoded last, since the choices of a question share it */
    id_list context_ids;
    id_list whole;
} loglik;

/* PESC_UNSUPPORTED: there is no tokenizer, or it has neither BOS nor EOS. Close it in any case. */
pesc_status loglik_open(loglik *l, const tokenizer *tok, int32_t max_length);
void loglik_close(loglik *l); /* also one that is all zeros */

/* A context without the white space at its end, which belongs to the continuation. */
slice loglik_context(slice s);

/* A request for infer/scheduler.h: score ids[first..n). `ids` is borrowed until the next call. */
typedef struct loglik_tokens {
    const int32_t *ids;
    int32_t n, first;
} loglik_tokens;

/* At most max_length + 1 tokens, the last ones. PESC_FORMAT: the continuation has no tokens, or
 * more than max_length. */
pesc_status loglik_pair(loglik *l, const char *context, const char *continuation,
                        loglik_tokens *out);

/* The prompt of a generation, the last max_length - max_new tokens of it; out->first is 0.
 * PESC_USAGE: max_new leaves no room for a prompt. PESC_FORMAT: the prompt has no tokens. */
pesc_status loglik_prompt(loglik *l, const char *context, int32_t max_new, loglik_tokens *out);

#endif
