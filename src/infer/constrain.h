/* constrain: grammars for the tokens of a model. */
#ifndef PESC_INFER_CONSTRAIN_H
#define PESC_INFER_CONSTRAIN_H

#include "grammar/grammar.h"
#include "model/forward.h"

/* The texts of the model's tokens, which are read when they are first asked for; the model's.
 * PESC_UNSUPPORTED: it has no tokenizer. */
pesc_status constrain_pieces(pesc_model *m, const piece_trie **out);

#endif
