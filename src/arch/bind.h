/* bind: from names in files to fields of a model. The only reader of tensor names: it walks the
 * slots of the configuration, finds each in the table of weights, checks name, shape and dtype,
 * reports all misfits at once, and decides where each tensor will live. After binding no string
 * survives. */
#ifndef PESC_ARCH_BIND_H
#define PESC_ARCH_BIND_H

#include "arch/holding.h"
#include "arch/layer_hook.h"
#include "arch/shape.h"
#include "format/peft.h"

/* What a model is made of, and how its weights are held. */
typedef struct bind_source {
    holding how;
    const weights *ws; /* NULL, for a layout alone: every tensor is stored as `stored` */
    dtype stored;
    const peft *lora; /* NULL: none */
    const char *path; /* for messages */
} bind_source;

/* What files hold for the head of a model whose configuration says that it is tied to the
 * embeddings. The files are believed, as transformers does: with numbers of its own a stored head
 * is the model's, and the configuration is wrong. This is the only place that decides it. */
typedef enum head_kind {
    HEAD_TIED, /* one matrix for both ends */
    HEAD_COPY, /* two that hold the same numbers: one is used, but what is made of the files has
                  both */
    HEAD_OWN   /* the configuration says untied, or the numbers differ */
} head_kind;
head_kind bind_head(const config *c, const weights *ws);

/* Makes a configuration that was read agree with bind_head(), with a notice about `file` where that
 * changes it. ws may be NULL. */
void bind_settle_head(config *c, const weights *ws, const char *file);

/* The tensor of a slot; NULL when the file has none. A tied embedding may stand under either name.
 */
const weight *bind_find(const config *c, const weights *ws, const slot *s);

/* PESC_SHAPE with every tensor that is missing, left over, misshapen or not floating point. */
pesc_status bind_check(const config *c, const weights *ws, const char *path);

/* The same for a table that holds a part of a model, and nothing else. */
typedef struct bind_part {
    bool (*has)(const void *ctx, const slot *s);
    const void *ctx;
} bind_part;
pesc_status bind_check_part(const config *c, const weights *ws, const char *path,
                            const bind_part *part);

/* The tensors that PESC trains have an arena of their own, and so have, where the base is sharded
 * (layer_hook.h), the matrices of each layer. */
typedef struct bind_memory {
    arena base, mixture;
    size_t *layers;       /* [n_layers]: receives the bytes of each layer; NULL: not sharded */
    const layer_hook *in; /* where the layers compute; NULL while measuring */
    arena layer;          /* of the layer `at` */
    int32_t at;
} bind_memory;

/* Points every tensor of the model to its place: into the mapped file where the stored bytes can
 * be used as they are and are not to be copied, else into memory. Needs blocks and loras allocated;
 * bind_check passed. */
void bind_layout(model_shape *m, const bind_source *src, bind_memory *to);

/* The dtype in which the tensor of a slot is held; of an expert that of its stack. */
dtype bind_dtype(const config *c, const bind_source *src, const slot *s);

/* The LoRA of a matrix of the full experts of a layer; NULL: the slot is no such matrix. */
lora_stack *bind_lora_stack(const transformer *w, const slot *s);

/* The linear that the tensor of a slot is the weight of; NULL: it is none's. */
linear *bind_linear(const transformer *w, const slot *s);

/* Allocates m->loras and hangs each below its linear or expert; PESC_SHAPE names all that do not
 * fit. Where one expert of a layer has LoRA on a matrix, all have it, with one rank and scale. */
pesc_status bind_loras(model_shape *m, const bind_source *src);

/* Where the tensor of a slot is (a stack, for experts); what it holds, and of an expert its part of
 * the stack. */
tensor *bind_field(transformer *w, const slot *s);
tensor bind_tensor(const transformer *w, const slot *s);

#endif
