/* partition: how the flat buffers of params are divided among the processes of a run (ZeRO).
 *
 * Each segment (flat.h) has one process that owns it: that process alone has the moments of these
 * parameters (and where forward reads a copy in bf16 their master weights) and updates them.
 *
 * Segments are owned in turn, in the order in which backward completes their gradients: rank r owns
 * those at the places r, r + size, r + 2 size ... of that order. A round is one segment of each
 * rank, so every round, and with it every bucket of gradients, is divided evenly. A process keeps
 * what it has of its segments (moments, master weights) in the order of the rounds. */
#ifndef PESC_DIST_PARTITION_H
#define PESC_DIST_PARTITION_H

#include "train/params.h"
#include "dist/wire.h"

enum { PARTITION_PIECE = 1 << 20 }; /* elements that a process sends to another at a time */

typedef struct partition {
    comm *comm; /* borrowed */
    int64_t n;  /* elements of a flat buffer */
    int64_t segment;
    int32_t n_segments;
    uint16_t order[FLAT_SEGMENTS]; /* segments as backward completes them */
    uint16_t place[FLAT_SEGMENTS]; /* of each segment in it */
    int32_t ready[FLAT_SEGMENTS];  /* param.ready of the segment at each place, the lowest */
} partition;

partition partition_of(const params *p, comm *c); /* p has its list */

/* Fills in what this process owns of p: peers.divide. */
pesc_status partition_divide(const partition *s, params *p);

flat_range partition_segment(const partition *s, int64_t i); /* elements of one segment */

int32_t partition_rounds(const partition *s);

/* The segment that a rank owns in a round, -1: none; and its elements. */
int32_t partition_own(const partition *s, int32_t rank, int32_t round);
flat_range partition_own_range(const partition *s, int32_t rank, int32_t round);

/* The rank that owns a segment, and where the segment begins in that rank's own buffers. */
int32_t partition_owner(const partition *s, int64_t segment);
int64_t partition_at(const partition *s, int64_t segment);

/* Every process has its segments of `flat`, f32 or bf16; then all of it. */
pesc_status partition_gather(const partition *s, wire *w, const char *what, tensor flat);

#endif
