/* layer_hook: what is done before a layer is used, where a process keeps only a part of the base.
 *
 * The matrices of a layer (its linears and stacks of full experts) then lie side by side in one
 * span, and each process keeps an equal part of each span. Loading lays out and fills the span of
 * one layer after the other; forward and backward call `before`, which makes the whole layer ready.
 * Norms, biases, routers, adapters, embeddings and the head are whole in every process.
 *
 * A model that is whole has no hook. Who divides it (src/dist) implements one. */
#ifndef PESC_ARCH_LAYER_HOOK_H
#define PESC_ARCH_LAYER_HOOK_H

#include "backend/backend.h"

struct slot;
typedef struct layer_hook layer_hook;
struct layer_hook {
    size_t *bytes; /* [n_layers]: of each span; filled by the caller before `layout` */
    /* Takes the memory, which is the model's: once to measure, once to place. */
    void (*layout)(layer_hook *h, arena *a);
    /* Where the span of a layer is while it computes. */
    unsigned char *(*span)(const layer_hook *h, int32_t layer);
    /* The whole layer has been loaded into its span: keeps this process' part of it. */
    pesc_status (*keep)(layer_hook *h, int32_t layer);
    /* Makes a layer ready to compute, and begins to make `next` ready (-1: none), which will be
     * used after it. All processes make the same calls. A failure is returned by `check`, because
     * the functions of layers return nothing. */
    void (*before)(layer_hook *h, int32_t layer, int32_t next);
    pesc_status (*check)(layer_hook *h);
    void (*close)(layer_hook *h);
};

/* Whether a tensor of a model belongs to such a span. */
bool layer_hook_has(const struct slot *s);

/* Bytes that each of so many processes keeps of a span. */
size_t layer_hook_part(size_t span, int64_t processes);

/* Where the part of a layer begins in what a process keeps; with n_layers, the bytes of all. */
size_t layer_hook_kept(const size_t *bytes, int32_t layer, int64_t processes);

/* Bytes that one of so many processes takes: what it keeps, and two buffers for whole layers. */
uint64_t layer_hook_bytes(const size_t *bytes, int32_t n, int64_t processes);
size_t layer_hook_largest(const size_t *bytes, int32_t n); /* span */

#endif
