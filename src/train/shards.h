/* shards: how the flat buffers of params are divided among the processes of a run (ZeRO-1).
 *
 * A flat buffer has 64 segments of equal length, more where it is large (one for each 2^16
 * elements, up to SHARD_SEGMENTS) and fewer where it is tiny, whatever the number of processes; a
 * process owns a run of whole segments, its slice: it alone has the moments of these parameters and
 * updates them. Segments begin at multiples of 256, the block of 8-bit moments. Sums over a buffer
 * (the gradient's norm) are made segment by segment, so they do not depend on the number of
 * processes either. One process owns everything. */
#ifndef PESC_TRAIN_SHARDS_H
#define PESC_TRAIN_SHARDS_H

#include "backend/backend.h"
#include "comm/comm.h"

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
} shards;

shards shards_of(comm *c, int64_t n);

typedef struct shard_range {
    int64_t first, end;
} shard_range;
shard_range shards_segments(const shards *s, int32_t rank); /* that a rank owns */
shard_range shards_slice(const shards *s, int32_t rank);    /* the same in elements */
shard_range shards_segment(const shards *s, int64_t i);     /* elements of one segment */

/* The part of a flat buffer; `per` elements of the flat buffers have one element of it (256 for
 * the scales of 8-bit moments, else 1). */
tensor shards_part(tensor flat, shard_range r, int64_t per);

/* ---- device memory between processes ---- */

/* How device memory is exchanged: directly where the host reads device addresses, by NCCL between
 * GPUs, and where that is not there through a buffer on the host for each direction. */
typedef struct shard_wire {
    device *dev;
    comm *comm;
    bool gpus;      /* by NCCL */
    char *out, *in; /* [size * most]; NULL: not used */
    size_t most;    /* bytes that go to or come from one rank at a time */
    comm_part *send, *recv;
} shard_wire;

/* `most`: bytes that one call sends to a rank at most. Closed by shard_wire_close() even when it
 * failed. */
pesc_status shard_wire_open(shard_wire *w, device *dev, comm *c, size_t most);
void shard_wire_close(shard_wire *w);

/* comm_all_to_all() of device memory. */
pesc_status shard_wire_exchange(shard_wire *w, const char *what, const comm_part *send,
                                const comm_part *recv);

/* Every process has its slice of `flat`, f32; then all of it. */
pesc_status shards_gather(const shards *s, shard_wire *w, const char *what, tensor flat);

#endif
