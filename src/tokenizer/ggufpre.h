/* ggufpre: how byte-level vocabularies in GGUF files cut text into words.
 *
 * Such a file does not hold the pattern, only a name for it (tokenizer.ggml.pre). Each row gives
 * the patterns of the tokenizer.json that the name stands for. */
#ifndef PESC_TOKENIZER_GGUFPRE_H
#define PESC_TOKENIZER_GGUFPRE_H

#include <stdbool.h>

typedef struct ggufpre {
    const char *names; /* separated by blanks */
    bool nfc, ignore_merges;
    bool gpt2;               /* and GPT-2's own pattern last */
    const char *patterns[7]; /* each cuts out its matches; in order; NULL after the last */
} ggufpre;

const ggufpre *ggufpre_find(const char *name); /* NULL: unknown */

/* The names that are written, one for each row; NULL after the last. */
extern const char *const ggufpre_written[];

#endif
