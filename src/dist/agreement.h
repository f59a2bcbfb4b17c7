/* agreement: what the processes of a run must have the same before its first step. */
#ifndef PESC_DIST_AGREEMENT_H
#define PESC_DIST_AGREEMENT_H

#include "dist/comm.h"

/* As peers.same. */
pesc_status agreement_check(comm *c, const char *text);

#endif
