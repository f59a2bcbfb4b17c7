/* embedding: a text as one vector: the final hidden state of its last token, or the mean over all,
 * with the length 1. */
#ifndef PESC_INFER_EMBEDDING_H
#define PESC_INFER_EMBEDDING_H

#include "model/forward.h"

typedef enum embed_pooling { EMBED_LAST, EMBED_MEAN, EMBED_FIRST } embed_pooling;

typedef struct embedder embedder;
/* most: tokens of a text. The model is borrowed. */
pesc_status embedder_open(embedder **out, pesc_model *m, int32_t most);
void embedder_close(embedder *e); /* NULL is allowed */

/* out: [hidden size]. adapter: see token_seq. */
pesc_status embedder_run(embedder *e, const int32_t *ids, int32_t n, int32_t adapter,
                         embed_pooling pooling, float *out);
/* Divides by the length; a vector of zeros stays one. */
void embed_normalise(float *v, size_t n);

/* What sentence-transformers' 1_Pooling/config.json in the model's directory says; the last token
 * where there is none. */
pesc_status embed_pooling_of(const pesc_model *m, embed_pooling *out);

#endif
