/* made: reports a model that was written: what it is, and how its logits compare. */
#ifndef PESC_CLI_MADE_H
#define PESC_CLI_MADE_H

#include "cli/opt/opt.h"

typedef struct made {
    const pesc_logit_check *check; /* logits 0: nothing was compared */
    bool exact;                    /* the logits are expected to be equal bit for bit */
    const char *dtype;             /* that was asked for; NULL: as stored */
} made;

pesc_status made_report(const options *o, const made *m);
/* The line of the comparison alone, or with --json its object; nothing when there was none. */
void made_compare(const options *o, const made *m);

#endif
