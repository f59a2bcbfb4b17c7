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
 * to the gradient itself. Between processes the sum is a reduce-scatter: each receives its segments
 * (shards.h) of the others' sums, a piece at a time, and adds them in the order of the tree.
 *
 * That happens in buckets of a few layers, beginning with the top ones: when backward of the last
 * micro-batch has passed the layers of a bucket, another thread exchanges and adds it while
 * backward goes on. PESC_BUCKET_DELAY in the environment makes each bucket take that many
 * milliseconds more, so that the part of the time that is hidden by backward can be measured. */
#ifndef PESC_TRAIN_GRADIENT_H
#define PESC_TRAIN_GRADIENT_H

#include "model/params.h"
#include "model/traffic.h"

enum { GRADIENT_LEVELS = 10 }; /* log2 of the largest number of groups */

typedef struct gradient {
    params *p;        /* borrowed */
    comm *comm;       /* the processes; NULL: one */
    traffic *traffic; /* the model's; NULL: one process */
    int32_t groups;   /* a power of two, at least the number of processes */
    int32_t partial;  /* levels */
    tensor sums[GRADIENT_LEVELS];
    tensor pieces; /* f32 [size, piece]: of the other processes */
    int64_t piece; /* elements */
    wire wire;
    comm_part *send, *recv; /* [size] */
    void *memory;
    size_t bytes;
    double delay; /* seconds */

    /* of the step at hand */
    int32_t micros;
    int32_t level;                 /* partial sums in use */
    int32_t sent, buckets;         /* rounds and buckets that were handed over */
    int32_t ends[TRAFFIC_BUCKETS]; /* the round after each bucket's last */
    double began[TRAFFIC_BUCKETS], ended[TRAFFIC_BUCKETS]; /* clock_seconds() of its exchange */
    int64_t last;                                          /* number of the last exchange */
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

/* The sum over the micro-batches of this process but for its last additions: gradient_finish() must
 * follow. While fn computes the last micro-batch it calls gradient_layer_done(). */
pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx);

/* The device has all the work of the last micro-batch down to backward of this layer: as
 * train_input.layer_done. Without it all is exchanged at the end. */
void gradient_layer_done(gradient *g, int32_t layer);

/* How long the exchange took, from when all processes had a bucket, and the part of it that passed
 * before gradient_finish() was called, which is while backward ran. */
typedef struct gradient_time {
    double seconds, hidden;
} gradient_time;

/* After it this process' segments of p->grad (in one process that is everything) hold the sum over
 * all micro-batches; the rest is not defined. Waits for backward. */
pesc_status gradient_finish(gradient *g, gradient_time *time);

#endif
