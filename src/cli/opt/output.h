/* output: commands that write a model (-o DIR): where it goes, and the report of what it is. A
 * directory that is not empty is refused; with --overwrite the new model is complete before it
 * replaces the old one. */
#ifndef PESC_CLI_OUTPUT_H
#define PESC_CLI_OUTPUT_H

#include "cli/opt/opt.h"

typedef pesc_status (*replace_fn)(const options *o, const char *dir, void *ud);

/* Calls make with o->output, or, where that is to be replaced, with a temporary directory that then
 * replaces it (pesc_model_replace). */
pesc_status replace_dir(const options *o, replace_fn make, void *ud);

/* The same for a result that is one file, -o FILE, with what belongs to it beside it. */
pesc_status replace_file(const options *o, replace_fn make, void *ud);

typedef struct made {
    const pesc_logit_check *check; /* logits 0: nothing was compared */
    bool exact;                    /* the logits are expected to be equal bit for bit */
    const char *dtype;             /* that was asked for; NULL: as stored */
} made;

pesc_status made_report(const options *o, const made *m);
/* The line of the comparison alone, or with --json its object; nothing when there was none. */
void made_compare(const options *o, const made *m);

#endif
