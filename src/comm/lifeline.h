/* lifeline: how a process learns that another one is gone.
 *
 * A thread of each process sends a sign of life every second: rank 0 to all, the others to rank 0.
 * Rank 0 decides who is lost, so that all name the same process: one whose connection closed
 * without a farewell (it died), one that is silent for LIFELINE_SILENCE (it was stopped, or its
 * machine is gone), one that said it failed, or one that keeps all others waiting in a collective
 * for LIFELINE_LATE although it lives. The others learn it from rank 0, or notice that rank 0
 * itself is gone. A process that merely computes for a long time is not lost: its thread answers.
 */
#ifndef PESC_COMM_LIFELINE_H
#define PESC_COMM_LIFELINE_H

#include "comm/rendezvous.h"

enum {
    LIFELINE_SILENCE = 30, /* seconds; PESC_SILENCE in the environment sets another value */
    LIFELINE_LATE = 1800,  /* seconds */
    LIFELINE_GRACE = 3,    /* seconds in which the others may fail on their own by the same cause */
};

typedef struct lifeline lifeline;

/* Borrows the rendezvous, whose connections belong to the thread from now on. `lost` as in
 * pesc_comm_options. */
pesc_status lifeline_open(lifeline **out, const rendezvous *m, const launch *l,
                          const pesc_comm_options *opt);

/* failure: why this process ends, NULL: it is done. Waits until the others know. NULL is allowed.
 */
void lifeline_close(lifeline *l, const char *failure);

/* Around each collective. `what` names it in sentences; it must be a literal. */
void lifeline_enter(lifeline *l, const char *what);
void lifeline_leave(lifeline *l);

/* Whether a process is lost; then PESC_LOST with the sentence. Cheap. */
pesc_status lifeline_check(lifeline *l);

/* After a connection to another process broke: waits until the lifeline says why. Always fails. */
pesc_status lifeline_explain(lifeline *l, int32_t rank);

#endif
