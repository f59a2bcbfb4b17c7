/* reduce: the gradients of a step, added over the processes of a run (train/gradient.h).
 *
 * The sum is a reduce-scatter: each process receives its segments (partition.h) of the others'
 * gradients, a piece at a time, and adds them in the order of the tree. There are two ways to
 * divide the tree:
 *
 * By groups: a process has an aligned subtree of the groups, adds up whole gradients of its own,
 * with a partial sum in memory for each level of the tree that is in use, and there is one exchange
 * a step.
 *
 * By rounds: in round r process p computes micro-batch r * size + p. The micro-batches of a round
 * are an aligned subtree, and its sum joins those of the rounds before as one adds to a binary
 * counter. There is an exchange for each round, but no process ever has a whole gradient: backward
 * writes into a window (params.h) from which every stage is exchanged at once, and partial sums are
 * of the process' own segments (ZeRO-2). One process that adds by rounds makes the same additions
 * with whole gradients.
 *
 * The exchange happens in buckets, of a few layers or of a stage, beginning with the top ones: when
 * backward has passed the layers of a bucket, another thread exchanges and adds it while backward
 * goes on. PESC_BUCKET_DELAY in the environment makes each bucket take that many milliseconds more,
 * so that the part of the time that is hidden by backward can be measured. */
#ifndef PESC_DIST_REDUCE_H
#define PESC_DIST_REDUCE_H

#include "dist/partition.h"
#include "train/gradient.h"

/* As peers.reduce. */
pesc_status reduce_open(reducer **out, gradient *g, comm *c);

#endif
