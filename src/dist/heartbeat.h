/* heartbeat: how a process learns that another one is gone.
 *
 * A thread of each process sends a heartbeat every second: rank 0 to all, the others to rank 0.
 * Rank 0 decides who is lost, so that all name the same process: one whose connection closed
 * without a shutdown message (it died), one that is silent for HEARTBEAT_SILENCE (it was stopped,
 * or its machine is gone), one that said it failed, or one that keeps all others waiting in a
 * collective for HEARTBEAT_LATE although it lives. The others learn it from rank 0, or notice that
 * rank 0 itself is gone. A process that merely computes for a long time is not lost: its thread
 * answers.
 */
#ifndef PESC_DIST_HEARTBEAT_H
#define PESC_DIST_HEARTBEAT_H

#include "dist/rendezvous.h"

enum {
    HEARTBEAT_SILENCE = 30, /* seconds; PESC_SILENCE in the environment sets another value */
    HEARTBEAT_LATE = 1800,  /* seconds */
    HEARTBEAT_GRACE = 3, /* seconds in which the others may fail on their own by the same cause */
};

typedef struct heartbeat heartbeat;

/* Borrows the rendezvous, whose connections belong to the thread from now on. `lost` as in
 * pesc_comm_options. */
pesc_status heartbeat_open(heartbeat **out, const rendezvous *m, const launch *l,
                           const pesc_comm_options *opt);

/* failure: why this process ends, NULL: it is done. Waits until the others know. NULL is allowed.
 */
void heartbeat_close(heartbeat *l, const char *failure);

/* Around each collective. `what` names it in sentences; it must be a literal. */
void heartbeat_enter(heartbeat *l, const char *what);
void heartbeat_leave(heartbeat *l);

/* Whether a process is lost; then PESC_LOST with the sentence. Cheap. */
pesc_status heartbeat_check(heartbeat *l);

/* After a connection to another process broke: waits until the heartbeat says why. Always fails. */
pesc_status heartbeat_explain(heartbeat *l, int32_t rank);

#endif
