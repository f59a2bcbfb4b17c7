/* forward: the one forward over a model's tensors.
 *
 * Shapes stand at the fields; letters as in backend.h. */
#ifndef PESC_MODEL_FORWARD_H
#define PESC_MODEL_FORWARD_H

#include "arch/model.h"
#include "base/rng.h"
#include "model/kvcache.h"
#include "tokenizer/tokens.h"

/* All one forward needs: n tokens of any number of packed sequences. Training, prefill and batched
 * decode are this same call. The pass owns its buffers; nothing is allocated after pass_open. */
typedef struct pass pass;
typedef struct pass_limits {
    int32_t max_tokens, max_seqs, max_out; /* out: rows that meet the head in one forward */
} pass_limits;
pesc_status pass_open(pass **out, pesc_model *m, pass_limits lim, kvcache *kv);
void pass_close(pass *p);

/* Sets the tokens and which rows (indices into the packed tokens, ascending) meet the head. Ids are
 * checked against the vocabulary. */
pesc_status pass_set(pass *p, const token_seq *seqs, int32_t n_seqs, const int32_t *out_rows,
                     int32_t n_out);

/* Runs it. logits: f32 [n_out, V] on the device, valid until the next forward of this pass. Grows
 * the cache's timelines. */
pesc_status model_fwd(pesc_model *m, pass *p, tensor *logits);
/* The same in two parts: model_start() returns while a device with memory of its own still
 * computes, and more ops may follow; model_finish() waits for them all. */
void model_start(pesc_model *m, pass *p, tensor *logits);
pesc_status model_finish(pesc_model *m, pass *p);

/* Its first step: the residual stream of the pass' tokens, and the rotations of their positions. */
void model_embed(pass *p);

/* Its last step: the final norm and the head over `rows` (i32 [n]) of the residual stream; logits
 * f32 [n,V]. rstd: f32 [n], what the norm's backward reads; absent: not wanted. */
tensor model_head(const pass *p, tensor rows, tensor rstd);

#endif
