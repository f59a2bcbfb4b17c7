/* tokens: a run of tokens of one sequence, as it enters a forward. Data and model both speak of it;
 * neither includes the other. */
#ifndef PESC_TOKENIZER_TOKENS_H
#define PESC_TOKENIZER_TOKENS_H

#include <stdint.h>

/* n tokens, of which the first has position `past`. With a KV cache, kv_seq names the sequence the
 * rows are appended to, whose length must be `past`; without one both are 0. */
typedef struct token_seq {
    const int32_t *ids; /* [n], borrowed */
    int32_t n, past, kv_seq;
    int32_t whole; /* tokens of the whole sequence as far as it is known, which dynamic RoPE depends
                      on; 0: those up to the end of this run. A token beyond it, which was
                      generated, counts those up to itself. */
    int32_t adapter; /* whose LoRA or experts its rows use (attach/served_adapters.h); 0: none */
} token_seq;

#endif
