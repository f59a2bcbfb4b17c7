/* wire: the memory of a device between the processes that it has joined: directly where the host
 * reads device addresses, by NCCL between GPUs, and where that is not there through a buffer on the
 * host for each direction. */
#ifndef PESC_DIST_WIRE_H
#define PESC_DIST_WIRE_H

#include "backend/backend.h"
#include "dist/comm.h"

typedef struct wire {
    device *dev; /* borrowed, like comm */
    comm *comm;
    bool gpus;      /* by NCCL */
    char *out, *in; /* [size * most]; NULL: not used */
    size_t most;    /* bytes that go to or come from one rank at a time */
    peer_part *send, *recv;
} wire;

/* Called by all processes; c NULL: one process, which exchanges nothing. `most`: bytes that one
 * call sends to a rank at most. Closed by wire_close() even when it failed. */
pesc_status wire_open(wire *w, device *dev, comm *c, size_t most);
void wire_close(wire *w);

/* comm_all_to_all() of device memory. dev's work on it is waited for, that of other devices is not.
 */
pesc_status wire_exchange(wire *w, const char *what, const peer_part *send, const peer_part *recv);

#endif
