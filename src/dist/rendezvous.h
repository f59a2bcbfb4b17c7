/* rendezvous: how the processes of a run find each other. Each connects to rank 0 and says who it
 * is; rank 0 refuses a process of another version, and tells all where everyone is. The connections
 * to rank 0 stay and become the heartbeat. */
#ifndef PESC_DIST_RENDEZVOUS_H
#define PESC_DIST_RENDEZVOUS_H

#include "dist/launch.h"
#include "dist/socket.h"

enum {
    RENDEZVOUS_SECONDS = 50
}; /* until all must be there; PESC_MEET in the environment is another value */

/* Seconds in which all must be there. */
double rendezvous_seconds(void);

typedef struct rendezvous_entry {
    char host[64];             /* its name */
    char address[SOCKET_HOST]; /* where it listens for the others */
    int32_t port;
} rendezvous_entry;

typedef struct rendezvous {
    rendezvous_entry *members; /* [size] */
    int *line;     /* [size]: rank 0 has a connection to each rank, the others one to rank 0 */
    int listening; /* for connections between any two ranks */
} rendezvous;

/* `gate`: the socket on which rank 0 listens, which stays the caller's; the others have none.
 * Closed by rendezvous_close() even when it failed. PESC_LOST: not all came. PESC_USAGE: this
 * process is not of the version of rank 0, or ranks are not what they should be. */
pesc_status rendezvous_open(rendezvous *m, const launch *l, int gate);
void rendezvous_close(rendezvous *m, int32_t size);

#endif
