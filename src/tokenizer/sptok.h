/* sptok: a SentencePiece model -> a pipeline. Also serves the GGUF vocabularies that are one. */
#ifndef PESC_TOKENIZER_SPTOK_H
#define PESC_TOKENIZER_SPTOK_H

#include "tokenizer/spmodel.h"
#include "tokenizer/tokenizer.h"

/* Takes the model over, whatever happens. BOS goes in front where there is one; without a BOS piece
 * EOS goes after the text (T5's habit): pipeline_frame() changes that. */
pesc_status sptok_build(tokenizer **out, spmodel *m, const char *file);

#endif
