/* comm: collectives between the processes of a run.
 *
 * Every process calls the same collectives in the same order, with sizes that fit together; nothing
 * is sent in between. A `comm` of NULL is a process that was started alone: every function accepts
 * it and has nothing to do, so callers do not ask how many processes there are.
 *
 * There is one primitive, an all-to-all exchange of bytes; the others are written with it. None
 * adds numbers: sums over processes have a fixed order, which callers keep by receiving the parts
 * and adding them themselves.
 *
 * How bytes travel is a transport: tcp.c (sockets between all pairs) where the environment names a
 * host and a port, mpi.c where mpirun started the process; both of the host's memory. nccl.c moves
 * the memory of GPUs.
 *
 * A process that is lost (see heartbeat.h) makes the collective fail with PESC_LOST and a sentence
 * that names it; the run cannot go on. `what` names the collective in such a sentence ("the
 * gradients of a step"); it must be a literal. */
#ifndef PESC_DIST_COMM_H
#define PESC_DIST_COMM_H

#include "backend/peers.h"

typedef struct pesc_comm comm;

/* What a device points to that has joined; its functions are filled in then. */
peers *comm_peers(comm *c);

int32_t comm_rank(const comm *c);
int32_t comm_size(const comm *c);
int32_t comm_beside(const comm *c);          /* processes of this host, this one with them */
static inline bool comm_leads(const comm *c) /* rank 0: it writes files and prints */
{
    return comm_rank(c) == 0;
}

/* send[r] goes to rank r, recv[r] comes from it; both [size]. send[own rank] is copied to
 * recv[own rank] unless they are the same place. */
pesc_status comm_all_to_all(comm *c, const char *what, const peer_part *send,
                            const peer_part *recv);

/* all[r] is what rank r has: every process sends its own part and receives the others'. */
pesc_status comm_all_gather(comm *c, const char *what, const peer_part *all);

pesc_status comm_broadcast(comm *c, const char *what, void *at, size_t bytes, int32_t root);

/* Returns when all have called it. */
pesc_status comm_barrier(comm *c, const char *what);

/* *flag becomes the largest of all processes' values. */
pesc_status comm_agree(comm *c, const char *what, int64_t *flag);

/* ---- device memory ---- */

/* Prepares exchanges between the GPUs that are current on the calling threads, by NCCL; all
 * processes call it. *out false: it is not there in all of them, and device memory has to be copied
 * to the host. */
pesc_status comm_join_gpus(comm *c, bool *out);

/* comm_all_to_all() of device memory, after comm_join_gpus(). The work of the GPU on what is sent
 * and received must be finished; the own part is not copied. */
pesc_status comm_all_to_all_gpus(comm *c, const char *what, const peer_part *send,
                                 const peer_part *recv);

/* ---- outcomes ---- */

/* The outcome of something that each process did on its own: `own` where all succeeded; where some
 * failed, a process that did not fails as well, with the sentence of the first one that did and its
 * rank and host. */
pesc_status comm_agree_status(comm *c, const char *what, pesc_status own);

#endif
