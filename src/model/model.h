/* model: a loaded language model and the one forward over it.
 *
 * Shapes stand at the fields; letters as in backend.h. Every tensor lives in the model's arena on
 * the device, or in a mapped file when device memory is host memory and the stored bytes can be
 * used as they are. */
#ifndef PESC_MODEL_MODEL_H
#define PESC_MODEL_MODEL_H

#include "backend/backend.h"
#include "base/rng.h"
#include "format/hfdir.h"
#include "arch/layer_hook.h"
#include "arch/shape.h"
#include "model/kvcache.h"
#include "chat/chat.h"
#include "tokenizer/tokens.h"

struct pesc_model {
    model_shape shape;
    device *dev;      /* kept */
    int32_t users;    /* sessions and trainers that are open, see model_keep */
    bool in_training; /* a trainer is open; it needs the model alone */
    hfdir *dir;       /* keeps mapped files alive */
    void *memory;     /* the arena's span on the device */
    size_t memory_bytes;
    void *mixture; /* adapters and their routers: training moves them and gives the span back */
    size_t mixture_bytes;
    void *trained;              /* what training moved (params.h); NULL: it never was trained */
    struct lora *trained_loras; /* those it attached */
    struct swap *swap;          /* the expert patch that is in; NULL: none */
    char patch_hash[17];        /* of its contents; "": none */
    char lora_hash[17];         /* of the LoRA that was loaded (peft_hash); "": none */
    struct specialists *specialists; /* NULL: none */
    struct traffic *traffic;         /* exchanges beside the computation (traffic.h); NULL: none */
    layer_hook *hook;        /* of a base of which this process has a part; NULL: it is whole */
    bool double_quant;       /* how weights are quantised, with nf4 */
    bool folded;             /* some of them are in the weights (fold.h) */
    pesc_tokenizer *tok;     /* NULL: none */
    const chat_format *chat; /* NULL: none recognised */
    char stop_text[64];  /* the token that ends an answer of a template that is not recognised */
    const char *stop[1]; /* the same; NULL: none */
    pesc_model_info info;
};

/* pesc_model_open(), except that opt->lora takes the place of a LoRA that the model has, which
 * otherwise is refused. */
pesc_status model_open_replacing(pesc_model **out, device *dev, const char *path,
                                 const pesc_load_options *opt);

/* Keeps the model until one pesc_model_close() more, so that a caller may close its handle before
 * the sessions and trainers that use it. */
void model_keep(pesc_model *m);

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
