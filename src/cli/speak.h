/* speak: what `generate` and `chat` share: how to sample, how text and results are shown. */
#ifndef PESC_CLI_SPEAK_H
#define PESC_CLI_SPEAK_H

#include "cli/opt.h"

pesc_sample_options speak_sampling(const options *o);
/* A pesc_text_fn: text as it comes, on the screen before the next token is computed. */
bool speak_emit(void *ud, const char *text, size_t n);
void speak_json(const pesc_generation *g);

#endif
