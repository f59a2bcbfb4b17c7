/* ends: where a generated text ends: at end tokens and at stop strings (stops.h).
 *
 * Decoding leaves control tokens out of the text. So a stop string that is the name of one, as most
 * of a chat format are, is known by its id. */
#ifndef PESC_INFER_ENDS_H
#define PESC_INFER_ENDS_H

#include "model/model.h"

typedef struct text_ends {
    int32_t *ids; /* [n_ids] */
    size_t n_ids;
    const char **texts; /* [n_texts]: borrowed */
    size_t n_texts;
} text_ends;

/* Each adds to what is there; zero-initialise to start. */
pesc_status ends_add_ids(text_ends *e, const int32_t *ids, size_t n);
pesc_status ends_add_model(text_ends *e, const pesc_model *m); /* its end tokens */
/* m: whose tokenizer may have them as control tokens. */
pesc_status ends_add_stops(text_ends *e, const pesc_model *m, const char *const *stops, size_t n);
void ends_free(text_ends *e);

bool ends_with(const text_ends *e, int32_t id);

#endif
