/* gradient: the gradient of a step as a sum that does not depend on the number of processes.
 *
 * The micro-batches of a step are `groups` runs of neighbours, group g having those from
 * g * micros / groups on. Within a group gradients are accumulated one after another; the groups
 * are added by a binary tree over their numbers. A process has an aligned subtree of the groups:
 * what it adds on its own, and what processes then add of each other's sums, are the same
 * additions in any case, so 1, 2, 4 ... `groups` processes give the same bits. A group without a
 * micro-batch is left out of the tree.
 *
 * One process needs memory for a partial sum on each level of the tree that is in use, in addition
 * to the gradient itself. Between processes the sum is a reduce-scatter: each receives its slice of
 * the others' sums, a piece at a time, and adds them in the order of the tree. */
#ifndef PESC_TRAIN_GRADIENT_H
#define PESC_TRAIN_GRADIENT_H

#include "model/params.h"
#include "train/shards.h"

enum { GRADIENT_LEVELS = 10 }; /* log2 of the largest number of groups */

typedef struct gradient {
    params *p;       /* borrowed */
    shards shards;   /* of p's flat buffers */
    int32_t groups;  /* a power of two, at least the number of processes */
    int32_t partial; /* levels */
    tensor sums[GRADIENT_LEVELS];
    tensor pieces; /* f32 [size, piece]: of the other processes */
    int64_t piece; /* elements */
    shard_wire wire;
    comm_part *send, *recv; /* [size] */
    void *memory;
    size_t bytes;
} gradient;

/* How many partial sums one of `processes` needs for a step of up to `micros` micro-batches. */
int32_t gradient_partial(int64_t groups, int64_t micros, int64_t processes);

/* Among the processes that the device of p has joined. micros: of a step at most; a step that has
 * more may fail. */
pesc_status gradient_open(gradient **out, params *p, int32_t groups, int64_t micros);
void gradient_close(gradient *g); /* NULL is allowed */

/* The micro-batches of a process, as a run of neighbours. */
typedef struct micro_range {
    int32_t first, end;
} micro_range;
micro_range gradient_micros(const gradient *g, int32_t micros, int32_t rank);

/* Computes the gradients of a run of micro-batches, accumulated in p->grad. */
typedef pesc_status (*gradient_fn)(void *ctx, micro_range range);

/* The sum over all micro-batches: after it this process' slice of p->grad holds it (in one process
 * that is everything); the rest is not defined. */
pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx);

#endif
