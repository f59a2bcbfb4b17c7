/* vocabulary: a tokenizer of given tokens, without a file. */
#ifndef PESC_TESTS_VOCABULARY_H
#define PESC_TESTS_VOCABULARY_H

#include "grammar/pieces.h"

/* Token i is tokens[i]; before them stand the 256 byte tokens <0x00> to <0xFF>, so the first has id
 * 256; those that begin with <| are control tokens. n_more logits have no token. */
typedef struct vocabulary {
    tokenizer *tok;
    piece_trie *p;
} vocabulary;

void vocabulary_open(vocabulary *v, const char *const *tokens, size_t n, size_t n_more);
void vocabulary_close(vocabulary *v);

#endif
