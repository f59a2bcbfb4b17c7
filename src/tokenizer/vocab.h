/* vocab: token texts by id, and ids by text.
 *
 * Texts are any bytes and are stored back to back in one block; an open-addressing table maps a
 * text to its id. Ids may have gaps, but not absurd ones: the array by id is bounded by the number
 * of tokens the file really has, so a single id of 10^9 costs nothing but a refusal. */
#ifndef PESC_TOKENIZER_VOCAB_H
#define PESC_TOKENIZER_VOCAB_H

#include "base/status.h"

typedef struct vocab_entry {
    uint32_t at; /* in vocab.text */
    uint32_t n;  /* VOCAB_HOLE: no token has this id */
} vocab_entry;
#define VOCAB_HOLE UINT32_MAX

/* Zero-initialise to start. */
typedef struct vocab {
    vocab_entry *entry; /* [n] by id */
    size_t n, cap;      /* n: largest id + 1 */
    size_t count;       /* tokens */
    char *text;
    size_t n_text, cap_text;
    uint32_t *slot; /* [mask + 1]: id + 1, 0 where empty */
    size_t mask;
    uint32_t longest; /* bytes of the longest token */
} vocab;

/* Ids of a vocabulary of `count` tokens are below this. */
int64_t vocab_id_limit(size_t count);

/* The id must be below vocab_id_limit() of what will be there in the end: the caller checks, as it
 * can name the place in the file. VOCAB_OK, or which of the two is taken already. */
typedef enum vocab_result { VOCAB_OK, VOCAB_ID_TAKEN, VOCAB_TEXT_TAKEN, VOCAB_NOMEM } vocab_result;
vocab_result vocab_add(vocab *v, const char *text, size_t n, int32_t id);

int32_t vocab_find(const vocab *v, const char *text, size_t n); /* -1: none */
const char *vocab_text(const vocab *v, int64_t id, size_t *n);  /* NULL: none */
void vocab_free(vocab *v);

#endif
