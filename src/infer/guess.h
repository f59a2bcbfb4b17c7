/* guess: tokens that may come next, so that one forward checks several (speculative decoding).
 *
 * Where the bits of a row do not depend on what else is in the forward, a guess changes no token:
 * the forward computes the rows of the guessed tokens, too, the next token is chosen from its row
 * as always, with the same random numbers, and the first one that differs from the guess ends what
 * is used of the forward. What was computed after it leaves the KV cache. So greedy and sampled
 * texts are the same with and without, and only their time differs.
 *
 * A guess is what a grammar lets follow alone, else what followed the last time the text ended as
 * it does now, as far as a grammar permits it. Whether to check it is decided by what is expected
 * of it: how often such guesses were right, which is learned from every token, also while none is
 * checked, and how long forwards of more rows took. */
#ifndef PESC_INFER_GUESS_H
#define PESC_INFER_GUESS_H

#include "arch/model.h"
#include "grammar/grammar.h"

enum {
    GUESS_MOST = 8,  /* tokens that a sequence has checked at a time */
    GUESS_ROWS = 64, /* rows of the largest forward in which guesses are */
};

/* Whether rows of this model's forwards depend on their own tokens alone, and tokens can be taken
 * back from its cache. */
bool guess_possible(const pesc_model *m);

/* Up to `most` tokens that followed the last occurrence of the longest end of ids[0,n), at most 8
 * tokens long, that occurs before; 0: none of at least 2 does. */
int32_t guess_lookup(const int32_t *ids, size_t n, int32_t *out, int32_t most);

/* How right the guesses of one kind were. */
typedef struct guess_rate {
    double right; /* of the first tokens of guesses, a moving average */
    int32_t next; /* the first token of the last guess */
    bool waits;   /* for the token that comes */
} guess_rate;

/* The guesses of a text. */
typedef struct guess_record {
    guess_rate lookups, foreseen;
    int64_t checked, accepted; /* tokens */
} guess_record;

/* Of a text that begins: what a grammar foresees is taken for right, what is looked up for wrong.
 */
static inline guess_record guess_begin(void)
{
    return (guess_record){ .foreseen.right = 1 };
}

/* How long forwards of 1 to GUESS_ROWS rows took. All zeros: nothing is known. */
typedef struct guess_pace {
    double seconds[GUESS_ROWS + 1];
} guess_pace;

void guess_timed(guess_pace *p, int32_t rows, double seconds);

/* A text that goes on in a forward. */
typedef struct guess_text {
    const int32_t *ids; /* [n] */
    size_t n;
    int32_t rows;     /* of the forward without guesses for it */
    int32_t most;     /* guesses there is room for */
    matcher *matcher; /* NULL: no grammar */
    size_t generated; /* the last of ids, which the matcher follows */
} guess_text;

/* The tokens to check after a text, into out[GUESS_MOST]. wanted: up to so many, whether they pay
 * or not; PESC_AUTO: as many as pay. */
int32_t guess_next(guess_record *r, const guess_pace *p, const guess_text *t, int64_t wanted,
                   int32_t *out);

/* How many of up to t->most tokens to check pay, of which so many are right and each takes `each`
 * seconds to guess. */
int32_t guess_worth(double right, const guess_pace *p, const guess_text *t, double each);
/* How many of n tokens, guessed after a text, its grammar lets follow. */
int32_t guess_permitted(const guess_text *t, const int32_t *guess, int32_t n);

/* The guess out[0,n) was made, whether it is checked or not. */
void guess_made(guess_rate *r, const int32_t *out, int32_t n);
/* The token that came after a guess. */
void guess_came(guess_rate *r, int32_t id);
/* The token that came after guess_next() was called. */
void guess_learn(guess_record *r, int32_t id);

#endif
