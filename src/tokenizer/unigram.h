/* unigram: the most probable cut of a text into pieces of a vocabulary (Kudo 2018).
 *
 * Viterbi over the characters: at each position a trie gives the pieces that begin there. A
 * position keeps one number, the piece of the best path that ends on it; scores live in a ring as
 * long as the longest piece. So time and memory are linear in the text, of any size.
 *
 * A character no piece of its own length covers costs the lowest score - 10; neighbouring unknowns
 * become one <unk>, or bytes where the vocabulary has byte pieces. */
#ifndef PESC_TOKENIZER_UNIGRAM_H
#define PESC_TOKENIZER_UNIGRAM_H

#include "tokenizer/spmodel.h"
#include "tokenizer/tokenizer.h"

typedef struct unigram unigram;

typedef struct unigram_piece {
    const char *text; /* borrowed for the call that opens */
    size_t n;         /* 0: an id that text never gives */
    double score;     /* finite */
} unigram_piece;

/* As Hugging Face `tokenizers` runs a "Unigram" model: the index in `pieces` is the id; every piece
 * takes part; of equal texts the last wins; sums are double. */
typedef struct unigram_spec {
    const char *file; /* for messages */
    const unigram_piece *pieces;
    size_t n;
    int64_t unk_id;     /* -1: none; text that would need it is then an error */
    bool byte_fallback; /* unknown text becomes "<0xNN>" pieces where all it needs are there */
} unigram_spec;
pesc_status unigram_open(unigram **out, const unigram_spec *spec);

/* As sentencepiece runs a UNIGRAM model: normal and user-defined pieces take part; sums are float.
 * Ties and user-defined scores as in its version 0.2.2. The model is not kept. */
pesc_status unigram_open_sp(unigram **out, const spmodel *m);

void unigram_close(unigram *u); /* NULL is allowed */

/* From here on pieces whose id has a 1 in `never` (one byte for each id, borrowed until the next
 * call) take no part: the text is cut into others. <unk> is then given for unknown text only. Not
 * to be called while another thread encodes. */
void unigram_forbid(unigram *u, const unsigned char *never);

/* Appends the ids of normalised text: valid UTF-8, any size, in one piece. Safe from any number of
 * threads. */
pesc_status unigram_encode(const unigram *u, const char *text, size_t n, id_list *out);

#endif
