/* pace: how many tokens of prompts a forward may have beside the answers that are being generated.
 *
 * A prompt is read in pieces, each in a forward that also continues the answers. A piece delays
 * them, so it is as large as fits in the time of one and a half forwards without prompts, or in 10
 * ms if these are shorter: what is measured varies, and nine of ten delays are to stay below three.
 *
 * Times are measured while the server runs, as a line: a forward of the mean number of answers
 * takes `decode` seconds, and each token beyond these, of a prompt or of one more answer, adds
 * `token`. Under load forwards without prompts are rare, while the number of answers changes. */
#ifndef PESC_SERVE_PACE_H
#define PESC_SERVE_PACE_H

#include <stdint.h>

enum { PACE_PERCENT = 150, PACE_MIN_MS = 10, PACE_MIN_TOKENS = 4 };

typedef struct pace {
    int32_t max;   /* tokens */
    double decode; /* seconds of a forward without prompts; 0: not known */
    double mean;   /* answers in such forwards */
    double token;  /* seconds that a further token adds; 0: not known */
} pace;

/* A forward took so long, with so many tokens of each kind. */
void pace_measure(pace *p, double seconds, int32_t decodes, int32_t prompt_tokens);
/* For the next forward, with so many answers: PACE_MIN_TOKENS to max; max while the times are not
 * known. */
int32_t pace_limit(const pace *p, int32_t decodes);

#endif
