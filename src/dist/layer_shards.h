/* layer_shards: a base of which each process keeps an equal part (ZeRO-3 for what is frozen): the
 * layer_hook of a model whose device has joined other processes.
 *
 * A whole layer is gathered before it computes, one layer ahead of the computation, into one of two
 * buffers: layers with an even number use the first, the others the second. So no tensor ever
 * moves. A gather is a collective: all processes must use layers in the same order. */
#ifndef PESC_DIST_LAYER_SHARDS_H
#define PESC_DIST_LAYER_SHARDS_H

#include "arch/model.h"
#include "dist/comm.h"
#include "dist/traffic.h"

/* As peers.hook. Closed by the hook's close() even when it failed. */
pesc_status layer_shards_open(layer_hook **out, pesc_model *m, comm *c);

/* Of its gathers; what else the model's processes exchange meanwhile goes the same way. */
traffic *layer_shards_traffic(layer_hook *h);

#endif
