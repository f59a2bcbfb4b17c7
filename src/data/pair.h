/* pair: records of preferences, read as ordinary ones.
 *
 * A pair is one prompt with a chosen and a rejected answer, a labelled record one answer that is
 * desirable or not. Each answer with its prompt becomes a record of a format that instruction
 * tuning reads ("messages", "sharegpt", "completion" or "ids"), in which the last turn alone is
 * trained; so nothing else needs to know the shapes that preferences are written in. */
#ifndef PESC_DATA_PAIR_H
#define PESC_DATA_PAIR_H

#include "base/json.h"

/* What an answer is to the record it is from. */
typedef enum answer_role { ANSWER_ONLY, ANSWER_CHOSEN, ANSWER_REJECTED } answer_role;

/* The answers of a record, as records of instruction tuning. */
typedef struct pair_answers {
    json_t *record[2]; /* owned */
    answer_role role[2];
    size_t n;
} pair_answers;

/* How the answers are written. */
typedef enum pair_form { PAIR_CHAT, PAIR_HUMAN, PAIR_TEXT, PAIR_IDS } pair_form;

/* Whether a record has this form: with a pair of answers, or with one and its label. */
bool pair_fits(const json_t *v, pair_form form);
bool pair_labelled_fits(const json_t *v, pair_form form);

/* Fails with a sentence that begins with the field. Free *out even after a failure. */
pesc_status pair_read(pair_answers *out, const json_t *v, pair_form form);
pesc_status pair_labelled_read(pair_answers *out, const json_t *v, pair_form form);
void pair_free(pair_answers *a);

#endif
