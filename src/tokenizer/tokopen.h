/* tokopen: what makes a tokenizer of a file; tokenizer_open_file() and its kin (tokopen.c) choose.
 * `file` names the text in messages. */
#ifndef PESC_TOKENIZER_TOKOPEN_H
#define PESC_TOKENIZER_TOKOPEN_H

#include "tokenizer/spmodel.h"
#include "tokenizer/tokenizer.h"

/* Hugging Face's tokenizer.json: BPE and Unigram models with every component named in normalize.h,
 * pretok.h, postproc.h and decode.h; a type not known there is refused by name. `truncation` and
 * `padding` are ignored on purpose: they say how batches were made in training, not what the ids of
 * a text are. */
pesc_status tokjson_build(tokenizer **out, const char *text, size_t n, const char *file);

/* A SentencePiece model, which is taken over, whatever happens; GGUF vocabularies that are one,
 * too. BOS goes in front where there is one; without a BOS piece EOS goes after the text (T5's
 * habit): pipeline_frame() changes that. */
pesc_status sptok_build(tokenizer **out, spmodel *m, const char *file);

/* What the files beside a tokenizer say: tokenizer_config.json and special_tokens_map.json name the
 * begin and end tokens; chat_template.jinja, else the configuration, gives the chat template. For a
 * tokenizer.model the configuration also says whether BOS and EOS frame a text, and which tokens
 * were added later (added_tokens_decoder, added_tokens.json): a tokenizer.json says these things
 * itself. */
pesc_status tokconfig_read(tokenizer *t, const char *dir);

#endif
