/* gradient: the gradient of a step as a sum that does not depend on the number of processes.
 *
 * The micro-batches of a step are groups, whose gradients are added by a binary tree over their
 * numbers; within a group gradients are accumulated one after another. What a process adds on its
 * own, and what processes then add of each other's sums, are the same additions in any case, so 1,
 * 2, 4 ... `groups` processes give the same bits. A group without a micro-batch is left out of the
 * tree. Between processes the sum is a reduce-scatter: each receives its segments (shards.h) of the
 * others' gradients, a piece at a time, and adds them in the order of the tree. There are two ways
 * to divide the tree:
 *
 * By groups: group g has the micro-batches from g * micros / groups on, and a process an aligned
 * subtree of the groups. It adds up whole gradients of its own, with a partial sum in memory for
 * each level of the tree that is in use, and there is one exchange a step.
 *
 * By rounds, where every micro-batch is a group of its own: in round r process p computes
 * micro-batch r * size + p. The micro-batches of a round are an aligned subtree, and its sum joins
 * those of the rounds before as one adds to a binary counter. There is an exchange for each round,
 * but no process ever has a whole gradient: backward writes into a window (params.h) from which
 * every stage is exchanged at once, and partial sums are of the process' own segments (ZeRO-2). One
 * process that adds by rounds makes the same additions with whole gradients.
 *
 * The exchange happens in buckets, of a few layers or of a stage, beginning with the top ones: when
 * backward has passed the layers of a bucket, another thread exchanges and adds it while backward
 * goes on. PESC_BUCKET_DELAY in the environment makes each bucket take that many milliseconds more,
 * so that the part of the time that is hidden by backward can be measured. */
#ifndef PESC_TRAIN_GRADIENT_H
#define PESC_TRAIN_GRADIENT_H

#include "model/params.h"
#include "model/traffic.h"

enum { GRADIENT_LEVELS = 10 }; /* log2 of the largest number of groups */

typedef struct gradient_shape {
    int64_t groups; /* a power of two, at least the number of processes */
    int64_t micros; /* micro-batches of a step at most; a step that has more may fail */
    int64_t processes;
    bool rounds; /* by rounds; then there are at least as many groups as micro-batches */
} gradient_shape;

/* What the thread of the exchanges has to do, and when it did it. */
typedef struct gradient_bucket {
    int32_t first, end;   /* by groups: rounds of segments */
    int32_t stage, round; /* by rounds */
    bool last;            /* it is the last round */
    int64_t number;       /* of the exchange */
    double began, ended;  /* clock_seconds() */
} gradient_bucket;

typedef struct gradient {
    params *p;        /* borrowed */
    comm *comm;       /* the processes; NULL: one */
    traffic *traffic; /* the model's; NULL: one process */
    gradient_shape shape;
    int32_t partial;              /* sums: one for each level of the tree */
    tensor sums[GRADIENT_LEVELS]; /* f32: [n], or with a window of this process' segments */
    tensor pieces;                /* f32 [size, piece]: of the other processes */
    int64_t piece;                /* elements */
    wire wire;
    peer_part *send, *recv; /* [size] */
    void *memory;
    size_t bytes;
    double delay; /* seconds */

    /* of the step at hand */
    int32_t micros;
    int32_t level;            /* partial sums in use */
    int32_t sent;             /* by groups: rounds of segments that were handed over */
    int32_t round, stage;     /* by rounds: at hand */
    int64_t taken[2];         /* by rounds: buckets up to the last stage with an even, odd number */
    int64_t buckets, counted; /* handed over, and those whose time was counted */
    gradient_bucket jobs[TRAFFIC_BUCKETS]; /* bucket i is in place i % TRAFFIC_BUCKETS */
    double seconds, exposed;               /* of exchanges, and while backward waited for them */
    int64_t last;                          /* number of the last exchange */
} gradient;

/* Bytes of partial sums that one process needs for n numbers. */
uint64_t gradient_bytes(const gradient_shape *s, int64_t n);

/* Among the processes that the device of p has joined. Where there are several and they add by
 * rounds, p has a window. */
pesc_status gradient_open(gradient **out, params *p, const gradient_shape *shape);
void gradient_close(gradient *g); /* NULL is allowed */

/* The micro-batches of a process: first, first + step ... below end. */
typedef struct micro_range {
    int32_t first, end, step;
} micro_range;
micro_range gradient_micros(const gradient *g, int32_t micros, int32_t rank);
static inline int32_t micro_count(micro_range r)
{
    return r.first < r.end ? (r.end - r.first + r.step - 1) / r.step : 0;
}

/* Computes the gradients of a run of micro-batches, accumulated in p->grad, which is ready. */
typedef pesc_status (*gradient_fn)(void *ctx, micro_range range);

/* The sum over the micro-batches of this process but for its last additions: gradient_finish() must
 * follow. While fn computes the last micro-batch, and with a window every one, it calls
 * gradient_layer_done(). */
pesc_status gradient_sum(gradient *g, int32_t micros, gradient_fn fn, void *ctx);

/* The device has all the work of a micro-batch down to backward of this layer: as
 * train_input.layer_done. Without it (which a window does not allow) all is exchanged at the end.
 */
void gradient_layer_done(gradient *g, int32_t layer);

/* How long the exchange took, from when all processes had a bucket, and the part of it during which
 * backward did not wait for it. */
typedef struct gradient_time {
    double seconds, hidden;
} gradient_time;

/* After it this process' segments of p->grad, or where there is a window p->own_grad, hold the sum
 * over all micro-batches; the rest is not defined. Waits for backward. */
pesc_status gradient_finish(gradient *g, gradient_time *time);

#endif
