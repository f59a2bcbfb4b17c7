/* session: one mutable timeline over a model: the KV cache and what was fed so far. */
#ifndef PESC_INFER_SESSION_H
#define PESC_INFER_SESSION_H

#include "grammar/grammar.h"
#include "infer/drafter.h"
#include "model/forward.h"

enum { SESSION_PREFILL = 512 }; /* tokens of one forward while a prompt is read */

struct pesc_session {
    pesc_model *model; /* borrowed */
    kvcache *kv;
    pass *pass;
    id_list fed; /* tokens whose keys and values are in the cache */
    size_t
        shareable; /* the first of them have keys that any longer text may use, see rope_freq.h */
    int32_t n_ctx;
    float *logits;    /* [rows, V], host: those after `fed`, then after each token of `ahead` */
    int32_t rows;     /* 1, or with guesses 1 + GUESS_MOST */
    int32_t row;      /* of `logits` that belongs to the end of `fed` */
    grammar *grammar; /* of its answers; NULL: any text */
    /* Guessed tokens after `fed`, whose keys and values are in the cache. */
    int32_t ahead[GUESS_MOST], n_ahead;
    guess_record guesses; /* of the text that is generated */
    guess_pace pace;
    drafter draft; /* guesses where a lookup finds nothing */
};

/* Brings the timeline to `ids`: keeps the common prefix with what was fed, drops the rest, feeds
 * what is new. At least the last token is always fed, so logits are there. */
pesc_status session_extend(pesc_session *s, const int32_t *ids, size_t n);

/* What may be guessed. */
typedef struct session_guesses {
    int32_t most;     /* tokens */
    int64_t wanted;   /* see guess_next() */
    matcher *matcher; /* NULL: no grammar */
    size_t generated; /* the last tokens that were fed, and the one that is appended */
} session_guesses;

/* Appends the token that was chosen, of which the logits are there already if it was guessed. Else
 * it is fed, with guesses after it. */
pesc_status session_next(pesc_session *s, int32_t id, const session_guesses *how);

/* The logits [V] after the last token. */
static inline const float *session_logits(const pesc_session *s)
{
    return s->logits + (size_t)s->row * (size_t)s->model->shape.cfg.vocab;
}

#endif
