/* drafter: a smaller model that guesses what follows a text, token by token. */
#ifndef PESC_INFER_DRAFTER_H
#define PESC_INFER_DRAFTER_H

#include "infer/guess.h"

typedef struct drafter {
    pesc_model *m;   /* kept; NULL: there is none */
    pesc_session *s; /* of m; NULL before the first guess */
    int32_t n_ctx;
    int32_t vocab; /* tokens: rows of logits may have padding behind them */
    guess_rate rate;
    double seconds; /* that a token takes */
    int32_t rested; /* how often it has not guessed since it did */
    uint64_t scope; /* see drafter_enter() */
} drafter;

/* PESC_UNSUPPORTED, PESC_USAGE: the draft cannot guess for the model, and why. */
pesc_status drafter_fits(const pesc_model *m, const pesc_model *draft);

/* Of a draft that fits the model, for texts of at most n_ctx tokens. Keeps it; NULL: none. */
drafter drafter_of(const pesc_model *m, pesc_model *draft, int32_t n_ctx);
void drafter_close(drafter *d); /* one that is all zeros, too */

/* Texts of this scope follow, which share nothing that is cached with those of another one. */
void drafter_enter(drafter *d, uint64_t scope);

/* What its model says after a text, as far as t->matcher permits it: out[0,*n), as many as pay, at
 * times two to see whether they do by now. wanted: see guess_next(). The token that comes is told
 * by guess_came(&d->rate, ...). */
pesc_status drafter_guess(drafter *d, const guess_pace *p, const guess_text *t, int64_t wanted,
                          int32_t *out, int32_t *n);

#endif
