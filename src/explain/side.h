/* side: one of the two models of a comparison, run a half layer at a time, so that what happens
 * inside can be looked at between. */
#ifndef PESC_EXPLAIN_SIDE_H
#define PESC_EXPLAIN_SIDE_H

#include "data/pack.h"
#include "model/forward.h"

typedef struct side {
    pesc_model *m; /* borrowed */
    pass *pass;
    void *memory;  /* of middle, on the device */
    tensor middle; /* f32 [max,C]: the residual stream before the FFN */
    float *before; /* [n,C]: the same on the host */
    float *after;  /* [n,C]: the residual stream after the layer */
    float *logits; /* [chunk,V]: of the last side_head() */
    int32_t chunk; /* rows of a side_head(), at most */
} side;

/* Forwards of at most max_tokens tokens. Closed by side_close() even when it failed. */
pesc_status side_open(side *s, pesc_model *m, int32_t max_tokens);
void side_close(side *s);

pesc_status side_start(side *s, const micro_batch *b);

/* A layer: first attention; the normed input of the FFN is then in pass->acts.h. Then the FFN or
 * the experts: sets before and after. */
void side_attention(side *s, int32_t layer);
pesc_status side_ffn(side *s, int32_t layer);

/* After the last layer: the logits of n tokens from `first` on. */
pesc_status side_head(side *s, int32_t first, int32_t n);

#endif
