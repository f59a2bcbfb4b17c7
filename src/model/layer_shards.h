/* layer_shards: a base of which each process keeps an equal part (ZeRO-3 for what is frozen).
 *
 * The matrices of a layer (its linears and stacks of full experts) lie side by side in one span. A
 * process keeps an equal part of each span; the whole is gathered before the layer computes, one
 * layer ahead of the computation, into one of two buffers: layers with an even number use the
 * first, the others the second. So no tensor ever moves. Norms, biases, routers, adapters,
 * embeddings and the head are whole in every process.
 *
 * A gather is a collective: all processes must use layers in the same order. */
#ifndef PESC_MODEL_LAYER_SHARDS_H
#define PESC_MODEL_LAYER_SHARDS_H

#include "arch/family.h"
#include "model/model.h"

typedef struct layer_shards layer_shards;

/* Whether a tensor of a model belongs to such a span. */
bool layer_shards_has(const slot *s);

/* Bytes that one of so many processes takes for layers of these sizes, buffers included. */
uint64_t layer_shards_bytes(const size_t *layers, int32_t n, int64_t processes);

/* Of a model whose device has joined other processes; closed by layer_shards_close() even when it
 * failed. The caller fills *layers, [n_layers], with the bytes of each span before it calls
 * layer_shards_layout(), which takes the memory: once to measure, once to place. */
pesc_status layer_shards_open(layer_shards **out, pesc_model *m, size_t **layers);
void layer_shards_close(layer_shards *s); /* NULL is allowed; after traffic_close() */
void layer_shards_layout(layer_shards *s, arena *a);

/* Where the span of a layer is while it computes. */
unsigned char *layer_shards_buffer(const layer_shards *s, int32_t layer);

/* The whole layer has been loaded into its buffer: keeps this process' part of it. */
pesc_status layer_shards_keep(layer_shards *s, int32_t layer);

/* Makes a layer ready to compute, and begins to gather `next` (-1: none), which will be used after
 * it, into the buffer of the layer before. All processes make the same calls. A failure is returned
 * by layer_shards_check(), because the functions of layers return nothing. */
void layer_shards_use(layer_shards *s, int32_t layer, int32_t next);
pesc_status layer_shards_check(const layer_shards *s);

/* Bytes of all spans, and what this process keeps of them. */
uint64_t layer_shards_whole(const layer_shards *s);
uint64_t layer_shards_kept(const layer_shards *s);

#endif
