/* answer: greedy answers to many questions at once, by continuous batching.
 *
 * A slot is a sequence of the KV cache and holds one question. Every forward has the next tokens of
 * each slot: the rest of its prompt, or the token it chose last. A slot whose answer is complete
 * takes the next question, so a long answer does not delay the others. On the CPU results do not
 * depend on the number of slots. */
#ifndef PESC_EVAL_ANSWER_H
#define PESC_EVAL_ANSWER_H

#include "model/model.h"

typedef struct question {
    uint64_t record;
    id_list ids;        /* the prompt; its answer is appended */
    size_t n_prompt;    /* at least 1 */
    int32_t max_tokens; /* of the answer */
    int32_t end;        /* a token that ends it besides the model's own; -1: none */
} question;

typedef struct answer_source {
    /* Fills in the next question, whose ids are empty but may have memory; false in *more: none. */
    pesc_status (*next)(void *ud, question *q, bool *more);
    /* The answer is ids[n_prompt..], without the end token. */
    pesc_status (*done)(void *ud, const question *q);
    void *ud;
} answer_source;

/* n_ctx: tokens of a prompt and its answer. */
pesc_status answer_all(pesc_model *m, int32_t slots, int32_t n_ctx, const answer_source *from);

#endif
