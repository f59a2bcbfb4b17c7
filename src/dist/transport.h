/* transport: how bytes travel between the processes of a run; one file for each. */
#ifndef PESC_DIST_TRANSPORT_H
#define PESC_DIST_TRANSPORT_H

#include "dist/comm.h"
#include "dist/heartbeat.h"

typedef struct comm_transport {
    const char *name;
    /* As comm_all_to_all(), without the own part. */
    pesc_status (*exchange)(void *self, const peer_part *send, const peer_part *recv);
    /* All processes close at the same time; `orderly` false: one of them is lost. */
    void (*close)(void *self, bool orderly);
} comm_transport;

extern const comm_transport tcp_transport, mpi_transport;
extern const comm_transport nccl_transport; /* of device memory */

/* Connects all pairs. */
pesc_status tcp_open(void **self, const rendezvous *m, const launch *l, heartbeat *beat);

/* Loads the MPI library and initialises it; sets rank and size. `broadcast` below works from here
 * on; exchange after mpi_watch(). PESC_DEVICE: there is no library, or one of another kind. */
pesc_status mpi_open(void **self, launch *l);
pesc_status mpi_broadcast(void *self, void *at, int32_t bytes);
void mpi_watch(void *self, heartbeat *beat);

/* The version text of the MPI library that would be loaded; false: none. */
bool mpi_version(char *out, size_t cap);

/* NCCL, in three steps: load it, rank 0 makes an id, all join with it. */
typedef struct nccl_id {
    char bytes[128];
} nccl_id;
pesc_status nccl_load(void **self); /* PESC_DEVICE: it is not there */
pesc_status nccl_make_id(void *self, nccl_id *out);
pesc_status nccl_join(void *self, const launch *l, nccl_id id);
bool nccl_version(int *out); /* 22809 is 2.28.9; false: it is not there */

#endif
