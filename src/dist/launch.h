/* launch: which process of how many this one is, as the program that started it left it in the
 * environment. */
#ifndef PESC_DIST_LAUNCH_H
#define PESC_DIST_LAUNCH_H

#include "base/status.h"

typedef enum launch_kind { LAUNCH_ALONE, LAUNCH_ENVIRONMENT, LAUNCH_MPI, LAUNCH_SLURM } launch_kind;

typedef struct launch {
    launch_kind kind;
    int32_t rank, size, local_rank;
    char master[256]; /* the host of rank 0, and the port it listens on; not with LAUNCH_MPI, */
    int32_t port;     /* where rank 0 tells the others its port */
    int gate; /* rank 0: a socket that listens on that port already, from PESC_GATE; -1: none */
} launch;

/* PESC_USAGE when variables are missing or contradict each other. */
pesc_status launch_find(launch *out);

/* The first host of a list of SLURM: "n[07-09,12],m1" is "n07". False when it does not fit. */
bool launch_first_host(const char *list, char *out, size_t cap);

#endif
