/* made: what is said of a model that was written: what it is, and how its logits compare. */
#ifndef PESC_CLI_MADE_H
#define PESC_CLI_MADE_H

#include "cli/opt.h"

/* exact: what was promised is equality bit for bit. */
pesc_status made_report(const options *o, const pesc_logit_check *check, bool exact);
/* The line of the comparison alone, or with --json its object; nothing when there was none. */
void made_compare(const options *o, const pesc_logit_check *check, bool exact);

#endif
