/* spbpe: the merges a SentencePiece BPE model implies.
 *
 * SentencePiece merges the pair whose concatenation is the piece of the highest score. So each cut
 * of a piece into two symbols is a merge, ranked by the piece's score; equal scores share a rank,
 * and then the leftmost pair goes first. Symbols are the pieces and the single characters pieces
 * are made of: those that are no piece themselves get ids after the vocabulary's. */
#ifndef PESC_TOKENIZER_SPBPE_H
#define PESC_TOKENIZER_SPBPE_H

#include "tokenizer/bpe.h"
#include "tokenizer/spmodel.h"

/* Fills `symbols` (zeroed) and *merges, for mem_free(). */
pesc_status spbpe_merges(const spmodel *m, const char *file, vocab *symbols, bpe_merge **merges,
                         size_t *n);

#endif
