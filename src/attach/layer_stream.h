/* layer_stream: a base in the host's memory: the layer_hook of a model whose device has a memory of
 * its own (`shard: host`).
 *
 * A layer is copied to the device before it computes, one layer ahead of the computation, into one
 * of two buffers: layers with an even number use the first, the others the second. So no tensor
 * ever moves, and the numbers are those of a base on the device. */
#ifndef PESC_ATTACH_LAYER_STREAM_H
#define PESC_ATTACH_LAYER_STREAM_H

#include "arch/model.h"

/* Closed by the hook's close() even when it failed. */
pesc_status layer_stream_open(layer_hook **out, const pesc_model *m);

#endif
