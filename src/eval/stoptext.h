/* stoptext: a text that is generated until a stop string, by the rules of lm-evaluation-harness.
 *
 * The text ends at an end token of the model, at a special token whose text contains a stop string,
 * or when the text contains one; it is then cut at each stop string, in the order of the list. It
 * is known in two forms. `text` is what the tokens add to the text of the prompt. `reference` is
 * the text of the tokens alone, which is what the harness takes: a SentencePiece tokenizer drops
 * the first space of it. Special tokens are left out of both. Of a turn of a conversation, which
 * ends where the model ends its turns, both are the message that it is, as JSON. */
#ifndef PESC_EVAL_STOPTEXT_H
#define PESC_EVAL_STOPTEXT_H

#include "arch/model.h"
#include "base/str.h"
#include "chat/chat_turn.h"

typedef struct stop_text stop_text;

typedef struct stop_strings {
    const char *const *strings; /* borrowed, like each of them */
    size_t n;
} stop_strings;

/* m has a tokenizer. turn: how a turn is told apart; NULL: a text. prompt: the tokens before it;
 * they are not kept. */
pesc_status stop_text_open(stop_text **out, const pesc_model *m, stop_strings stops,
                           const turn_rules *turn, const int32_t *prompt, int32_t n);
void stop_text_close(stop_text *u); /* NULL is allowed */

/* The next token; *more becomes false when the text ends with it. The form of sched_request.token,
 * where ud is the text. */
pesc_status stop_text_token(void *ud, int32_t id, bool *more);

/* Both forms of the text, cut, after the last token; appended to strs that are empty. */
pesc_status stop_text_forms(stop_text *u, str *text, str *reference);

#endif
