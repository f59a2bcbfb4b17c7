/* shards: how the flat buffers of params are divided among the processes of a run (ZeRO).
 *
 * A flat buffer has 64 segments of equal length, more where it is large (one for each 2^16
 * elements, up to SHARD_SEGMENTS) and fewer where it is tiny, whatever the number of processes.
 * Each segment has one process that owns it: that process alone has the moments of these parameters
 * (and where forward reads a copy in bf16 their master weights) and updates them. Segments begin at
 * multiples of 256, the block of 8-bit moments. Sums over a buffer (the gradient's norm) are made
 * segment by segment, so they do not depend on the number of processes either. One process owns
 * everything.
 *
 * Segments are owned in turn, in the order in which backward completes their gradients: rank r owns
 * those at the places r, r + size, r + 2 size ... of that order. A round is one segment of each
 * rank, so every round, and with it every bucket of gradients, is divided evenly. A process keeps
 * what it has of its segments (moments, master weights) in the order of the rounds. */
#ifndef PESC_MODEL_SHARDS_H
#define PESC_MODEL_SHARDS_H

#include "model/wire.h"

typedef struct params params;

enum {
    SHARD_SEGMENTS = 1024,
    SHARD_LEAST = 256,    /* elements of a segment, at least */
    SHARD_PIECE = 1 << 20 /* elements that a process sends to another at a time */
};

typedef struct shards {
    comm *comm; /* borrowed; NULL: one process */
    int64_t n;  /* elements of a flat buffer */
    int64_t segment;
    int32_t n_segments;
    uint16_t order[SHARD_SEGMENTS]; /* segments as backward completes them */
    uint16_t place[SHARD_SEGMENTS]; /* of each segment in it */
    int32_t ready[SHARD_SEGMENTS];  /* param.ready of the segment at each place, the lowest */
} shards;

/* Of the processes that the device of p has joined; p has its list. */
shards shards_of(const params *p);

typedef struct shard_range {
    int64_t first, end;
} shard_range;
shard_range shards_segment(const shards *s, int64_t i); /* elements of one segment */

int32_t shards_rounds(const shards *s);

/* Elements that a process has at most in its own buffers, of n among so many processes. */
int64_t shards_most(int64_t n, int64_t processes);

/* Segments of a rank, and the elements that all of them take in its own buffers. */
int32_t shards_count(const shards *s, int32_t rank);
int64_t shards_elements(const shards *s, int32_t rank);

/* The segment that a rank owns in a round, -1: none; and its elements. */
int32_t shards_own(const shards *s, int32_t rank, int32_t round);
shard_range shards_own_range(const shards *s, int32_t rank, int32_t round);

/* The rank that owns a segment, and where the segment begins in that rank's own buffers. */
int32_t shards_owner(const shards *s, int64_t segment);
int64_t shards_at(const shards *s, int64_t segment);

/* The longest run of elements that lies in one piece both in the flat buffers and in this process'
 * own, which begins with its segment of round `*round`; sets *round to the one after it. The run
 * begins at element `*round * segment` of its own buffers. */
shard_range shards_run(const shards *s, int32_t *round);

/* The part of a flat buffer; `per` elements of the flat buffers have one element of it (256 for
 * the scales of 8-bit moments, else 1). */
tensor shards_part(tensor flat, shard_range r, int64_t per);

/* The part of segment `i` that is in [first, end) of the flat buffers. */
shard_range shards_within(const shards *s, int64_t i, shard_range of);

/* Every process has its segments of `flat`, f32 or bf16; then all of it. */
pesc_status shards_gather(const shards *s, wire *w, const char *what, tensor flat);

#endif
