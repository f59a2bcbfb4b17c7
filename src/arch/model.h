/* model: a loaded language model.
 *
 * Every tensor lives in the model's memory on the device, or in a mapped file when device memory is
 * host memory and the stored bytes can be used as they are. What runs it is in src/model, what is
 * put onto it once it is open in src/attach. */
#ifndef PESC_ARCH_MODEL_H
#define PESC_ARCH_MODEL_H

#include "arch/layer_hook.h"
#include "arch/shape.h"
#include "chat/chat.h"
#include "format/expertcfg.h"
#include "format/hfdir.h"

struct pesc_model {
    model_shape shape;
    device *dev;              /* kept */
    int32_t users;            /* sessions and trainers that are open, see model_keep */
    struct pesc_model *draft; /* guesses for its sessions (infer/drafter.h); NULL: none */
    bool in_training;         /* a trainer is open; it needs the model alone */
    hfdir *dir;               /* keeps mapped files alive */
    void *memory;             /* the arena's span on the device */
    size_t memory_bytes;
    void *mixture; /* adapters and their routers: training moves them and gives the span back */
    size_t mixture_bytes;
    void *trained;             /* what training moved (params.h); NULL: it never was trained */
    lora *trained_loras;       /* those it attached */
    expertcfg trained_experts; /* to these, where not to all: their stacks' lists are in it */
    struct attached *attached; /* patches and LoRA (attach/attached.h) */
    layer_hook *hook;          /* of a base of which this process has a part; NULL: it is whole */
    bool double_quant;         /* how weights are quantised, with nf4 */
    pesc_tokenizer *tok;       /* NULL: none */
    struct piece_trie
        *pieces;         /* its tokens for grammars (infer/constrain.h); NULL: no grammar yet */
    chat_writer *chat;   /* of conversations; NULL only while the model opens */
    char stop_text[64];  /* the token that ends an answer of a template that is not recognised */
    const char *stop[1]; /* the same; NULL: none */
    pesc_model_info info;
};

/* Keeps the model until one pesc_model_close() more, so that a caller may close its handle before
 * the sessions and trainers that use it. */
void model_keep(pesc_model *m);

#endif
