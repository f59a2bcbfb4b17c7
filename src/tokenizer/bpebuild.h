/* bpebuild: tokens, then merges, one at a time -> the BPE model of a tokenizer. */
#ifndef PESC_TOKENIZER_BPEBUILD_H
#define PESC_TOKENIZER_BPEBUILD_H

#include "base/str.h"
#include "tokenizer/pipeline.h"

#define BPE_TOKENS_MAX (1 << 20) /* several times the largest in use */
#define BPE_MERGES_MAX (1 << 20)

/* Zero-initialise but for t, whose pre-tokeniser is open (it says whether words are bytes), and
 * n_tokens, at least the number of tokens that will come: ids are bounded by it. */
typedef struct bpe_build {
    tokenizer *t;
    size_t n_tokens;
    bpe_spec spec;
    bpe_merge *merges;
    size_t n, cap;
    str text;
} bpe_build;

pesc_status bpe_build_token(bpe_build *b, const char *text, size_t n, int64_t id);

/* After the last token, before the first merge. */
pesc_status bpe_build_symbols(bpe_build *b);

/* The merge of that line; `i` is its rank and its place in messages. */
pesc_status bpe_build_merge(bpe_build *b, size_t i, const char *left, size_t left_n,
                            const char *right, size_t right_n);
pesc_status bpe_build_line(bpe_build *b, size_t i, const char *line, size_t n); /* "left right" */

pesc_status bpe_build_end(bpe_build *b); /* the model is in t */
void bpe_build_free(bpe_build *b);

#endif
