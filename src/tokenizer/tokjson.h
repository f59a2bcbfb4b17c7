/* tokjson: Hugging Face's tokenizer.json -> a pipeline.
 *
 * BPE and Unigram models with every component named in normalize.h, pretok.h, postproc.h and
 * decode.h; a type not known there is refused by name. `truncation` and `padding` are ignored on
 * purpose: they say how batches were made in training, not what the ids of a text are. */
#ifndef PESC_TOKENIZER_TOKJSON_H
#define PESC_TOKENIZER_TOKJSON_H

#include "tokenizer/tokenizer.h"

/* `file` names the text in messages. */
pesc_status tokjson_build(tokenizer **out, const char *text, size_t n, const char *file);

#endif
