/* pace: how many tokens of prompts a forward may have beside the answers that are being generated.
 *
 * A prompt is read in pieces, each in a forward that also continues the answers. A piece delays
 * them, so it may add the time of one forward without prompts: an answer then waits for two
 * forwards' time, and a piece may take twice as long as expected before it waits for more than
 * three.
 *
 * Times are measured while the server runs. What a piece costs depends on its size by steps, on
 * what was read before it and on what else the machine does, so there is no formula: the piece
 * grows by an eighth if it took no more than its time and shrinks by an eighth if it took more, by
 * a half where it took less than half or more than twice its time. So it is right on the average,
 * whatever single times are. The first has as many tokens as forwards of prompts alone compute in
 * that time, which are no faster; or, if there was none, as many as there are answers, because a
 * token of a prompt costs no more than one of an answer. It never has less than half as many: after
 * a long past a token costs more, but a prompt must go on. Where forwards compute tiles of rows, a
 * piece fills its tiles, and has one more only if that has the time too at the rate of the others:
 * else one would be tried, and delay the answers, again and again.
 *
 * The time without prompts must be known before a prompt enters a forward. So a forward without
 * them comes first if none was measured, if there are more than a quarter and one more or fewer
 * answers since, or if the last is PACE_EVERY forwards ago. */
#ifndef PESC_SERVE_PACE_H
#define PESC_SERVE_PACE_H

#include <stdint.h>

enum { PACE_PERCENT = 100, PACE_EVERY = 32, PACE_MIN_TOKENS = 2 };

typedef struct pace {
    int32_t max;     /* tokens */
    int32_t rows;    /* a forward takes as long as one of the next multiple of so many tokens, at
                        least; 0: fewer are faster */
    double decode;   /* seconds of a forward without prompts; 0: not known */
    int32_t answers; /* in the last such forward */
    int32_t since;   /* forwards since then */
    double token;    /* seconds of a token in forwards without answers; 0: not known */
    double piece;    /* tokens that take no more than their time, beside them; 0: not known */
} pace;

/* A forward took so long, with so many tokens of each kind. */
void pace_measure(pace *p, double seconds, int32_t decodes, int32_t prompt_tokens);
/* For the next forward, with so many answers: 0, or PACE_MIN_TOKENS to max. max where there are no
 * answers. */
int32_t pace_limit(const pace *p, int32_t decodes);

#endif
