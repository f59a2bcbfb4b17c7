/* session: one mutable timeline over a model: the KV cache and what was fed so far. */
#ifndef PESC_INFER_SESSION_H
#define PESC_INFER_SESSION_H

#include "grammar/grammar.h"
#include "model/forward.h"

enum { SESSION_PREFILL = 512 }; /* tokens of one forward while a prompt is read */

struct pesc_session {
    pesc_model *model; /* borrowed */
    kvcache *kv;
    pass *pass;
    id_list fed; /* tokens whose keys and values are in the cache */
    size_t
        shareable; /* the first of them have keys that any longer text may use, see rope_freq.h */
    int32_t n_ctx;
    float *logits;    /* [V], host */
    grammar *grammar; /* of its answers; NULL: any text */
};

/* Brings the timeline to `ids`: keeps the common prefix with what was fed, drops the rest, feeds
 * what is new. At least the last token is always fed, so logits are there. */
pesc_status session_extend(pesc_session *s, const int32_t *ids, size_t n);

#endif
