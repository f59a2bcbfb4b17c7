/* tokgguf: the vocabulary inside a GGUF file -> a pipeline (tokenizer_from_gguf() in tokenizer.h),
 * or the files that Hugging Face has for it (tokgguf_write.c). What both need is here. */
#ifndef PESC_TOKENIZER_TOKGGUF_H
#define PESC_TOKENIZER_TOKGGUF_H

#include "base/str.h"
#include "tokenizer/ggufpre.h"
#include "tokenizer/tokenizer.h"

/* Appends the pre-tokenizer of a byte-level vocabulary as tokenizer.json has it. */
void tokgguf_put_pretokenizer(str *out, const ggufpre *row);

/* The split of a vocabulary whose model is "gpt2", or a refusal. */
pesc_status tokgguf_find_pre(const gguf_vocab *v, const ggufpre **row);

#endif
