/* holding: how the weights of a model are held: in which dtype, and whether in memory or where they
 * lie in a mapped file.
 *
 * The options of a run and the device decide a `holding` once; holding_of() then says it for each
 * tensor, from its rule and what the file stores. A stack of experts is held in one dtype. Trainer,
 * opening, patches, merge and export all ask here, so that a run is what it was in training: its
 * base as base_dtype says, and what it trained as forward read it then: in the dtype of the
 * activations. */
#ifndef PESC_ARCH_HOLDING_H
#define PESC_ARCH_HOLDING_H

#include "arch/family.h"

typedef struct holding {
    device *dev;
    dtype base;         /* f32, bf16, or nf4: then only linears and experts are quantised; DT_COUNT,
                           as stored: bf16 and nf4 stay, f32 and f16 become `floats` */
    dtype floats;       /* f32 or bf16 */
    dtype quantised;    /* f32 or bf16: what a GGUF's quantised weights become, where as stored */
    bool blocks;        /* but matrices of the base stay in the file's blocks, where as stored */
    bool whole_experts; /* experts are neither quantised nor left in blocks */
    bool copy;          /* nothing is used where it lies in the file: memory is read faster */
    bool lora_bf16;     /* a LoRA is held in bf16, whatever it is stored in */
    dtype work;   /* f32 or bf16: what trained weights, which are stored in f32, are held in */
    bool trained; /* those of the run that is opened are, whatever `base` says */
} holding;

/* The dtype of the activations. compute_dtype "auto": bf16 where the device multiplies it faster;
 * NULL: bf16 on a device with memory of its own, which multiplies it many times faster. */
dtype holding_compute(const device *dev, const char *compute_dtype);

/* As the options of a model say, except for `copy`. base_dtype NULL: as the device likes it; then
 * dev must not be NULL. */
void holding_read(holding *h, device *dev, const pesc_load_options *o);

typedef struct held_as {
    dtype dt;
    bool in_file; /* used where it lies */
} held_as;

held_as holding_of(const holding *h, const slot *s, const weight *w);
dtype holding_dtype(const holding *h, const tensor_rule *r, const weight *w);
dtype holding_of_trained(const holding *h, const tensor_rule *r, const weight *w);

/* The one dtype of two experts of a stack: the narrower, or blocks where both have the same. Those
 * that a run trained are stored in f32, but worked in the dtype of their neighbours. */
dtype holding_join(const holding *h, dtype a, dtype b);

dtype holding_of_lora(const holding *h, const weight *w);

#endif
