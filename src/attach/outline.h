/* outline: a model with shapes and types but no weights in memory: what plans and counts read. Made
 * from the configuration and the headers of the weight files, or from a config.json alone. */
#ifndef PESC_ATTACH_OUTLINE_H
#define PESC_ATTACH_OUTLINE_H

#include "arch/model.h"
#include "format/peft.h"

typedef struct outline {
    device *dev; /* borrowed */
    hfdir *dir;
    model_shape shape; /* weights have shapes and types; their data is not to be read */
    pesc_model_info info;
    peft *lora;
    size_t *layers; /* bytes of each layer's matrices, where the base is not whole on the device;
                       else NULL */
    bool in_host;   /* these are in the host's memory, and two buffers for them on the device */
    /* of the weights in memory, with padding: all that is copied to the device but adapters and
     * their routers (mixture), and those that are used in the mapped file */
    uint64_t copied, mixture, in_place;
} outline;

/* Reads the configuration of the model at `path`; base: of a run, may be NULL. Closed by
 * outline_close() even when it failed. */
pesc_status outline_open(outline *s, device *dev, const char *path, const char *base);
void outline_close(outline *s);

/* Decides how each weight is held by one of so many processes, with the LoRA of the model or of
 * the options. */
pesc_status outline_bind(outline *s, const pesc_load_options *o, int64_t processes);

/* Bytes of the weights as they are held, without padding. */
uint64_t outline_weight_bytes(outline *s);

#endif
