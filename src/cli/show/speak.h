/* speak: how `generate` and `chat` show text and results. */
#ifndef PESC_CLI_SPEAK_H
#define PESC_CLI_SPEAK_H

#include "cli/opt/opt.h"

/* A pesc_text_fn: writes and flushes the text, so that it is visible before the next token. */
bool speak_emit(void *ud, const char *text, size_t n);
void speak_json(const pesc_generation *g);

#endif
