/* vocabulary: a tokenizer of given tokens, without a file, and what tests of grammars do with it.
 */
#ifndef PESC_TESTS_VOCABULARY_H
#define PESC_TESTS_VOCABULARY_H

#include "grammar/grammar.h"
#include "grammar/pieces.h"

/* Token i is tokens[i]; before them stand the 256 byte tokens <0x00> to <0xFF>, so the first has id
 * 256; those that begin with <| are control tokens. n_more logits have no token. */
typedef struct vocabulary {
    tokenizer *tok;
    piece_trie *p;
} vocabulary;

void vocabulary_open(vocabulary *v, const char *const *tokens, size_t n, size_t n_more);
void vocabulary_close(vocabulary *v);

/* The vocabulary of a test program; words_open() and words_close() are its group's set-up and
 * tear-down where it has the byte tokens only. */
extern vocabulary words;
int words_open(void **state);
int words_close(void **state);

pesc_status open_grammar(grammar **g, pesc_grammar_kind kind, const char *text);
/* Whether the whole text is one of the grammar's. */
bool matches(grammar *g, const char *text);
/* The text number k of those over an alphabet: shorter ones first. */
void nth_text(size_t k, const char *alphabet, char *text);

#endif
