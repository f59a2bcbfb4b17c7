/* sketch: a model with shapes and types but no weights in memory: what plans and counts read. Made
 * from the configuration and the headers of the weight files, or from a config.json alone. */
#ifndef PESC_TRAIN_SKETCH_H
#define PESC_TRAIN_SKETCH_H

#include "arch/model.h"
#include "format/peft.h"

typedef struct sketch {
    device *dev; /* borrowed */
    hfdir *dir;
    model_shape shape; /* weights have shapes and types; their data is not to be read */
    pesc_model_info info;
    peft *lora;
    size_t *layers; /* bytes of each layer's matrices, where the base is sharded; else NULL */
    uint64_t bytes; /* of the weights in memory, with padding, without adapters that train */
} sketch;

/* Reads the configuration of the model at `path`; base: of a run, may be NULL. Closed by
 * sketch_close() even when it failed. */
pesc_status sketch_open(sketch *s, device *dev, const char *path, const char *base);
void sketch_close(sketch *s);

/* Decides how each weight is held, with the LoRA of the model or of the options. */
pesc_status sketch_bind(sketch *s, const pesc_train_options *o);

/* Bytes of the weights as they are held, without padding. */
uint64_t sketch_weight_bytes(sketch *s);

#endif
