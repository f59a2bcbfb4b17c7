/* tokconfig: what the files beside a tokenizer say.
 *
 * tokenizer_config.json and special_tokens_map.json name the begin and end tokens;
 * chat_template.jinja, else the configuration, gives the chat template. For a tokenizer.model the
 * configuration also says whether BOS and EOS frame a text, and which tokens were added later
 * (added_tokens_decoder, added_tokens.json): a tokenizer.json says these things itself. */
#ifndef PESC_TOKENIZER_TOKCONFIG_H
#define PESC_TOKENIZER_TOKCONFIG_H

#include "tokenizer/tokenizer.h"

pesc_status tokconfig_read(tokenizer *t, const char *dir);

#endif
