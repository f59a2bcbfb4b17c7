/* tokgguf: the vocabulary inside a GGUF file -> a pipeline (tokenizer_from_gguf() in tokenizer.h),
 * or the files that Hugging Face has for it (tokgguf_write.c). What both need is here. */
#ifndef PESC_TOKENIZER_TOKGGUF_H
#define PESC_TOKENIZER_TOKGGUF_H

#include "base/str.h"
#include "tokenizer/tokenizer.h"

/* How a byte-level vocabulary cuts text into words. A GGUF file does not hold the pattern, only a
 * name for it (tokenizer.ggml.pre). Each row (ggufpre.c) gives the patterns of the tokenizer.json
 * that the name stands for. */
typedef struct ggufpre {
    const char *names; /* separated by blanks */
    bool nfc, ignore_merges;
    bool gpt2;               /* and GPT-2's own pattern last */
    const char *patterns[7]; /* each cuts out its matches; in order; NULL after the last */
} ggufpre;

const ggufpre *ggufpre_find(const char *name); /* NULL: unknown */

/* The names that are written, one for each row; NULL after the last. */
extern const char *const ggufpre_written[];

/* Appends the pre-tokenizer of a byte-level vocabulary as tokenizer.json has it. */
void tokgguf_put_pretokenizer(str *out, const ggufpre *row);

/* The split of a vocabulary whose model is "gpt2", or a refusal. */
pesc_status tokgguf_find_pre(const gguf_vocab *v, const ggufpre **row);

#endif
