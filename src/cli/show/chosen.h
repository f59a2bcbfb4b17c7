/* chosen: prints and draws the experts that were selected for tasks. */
#ifndef PESC_CLI_CHOSEN_H
#define PESC_CLI_CHOSEN_H

#include "cli/opt/opt.h"

typedef struct chosen {
    const options *o;
    const char *metric;
    const pesc_esft_choice *all;   /* what was written */
    const pesc_esft_choice *tasks; /* one for each summary, over the same layers */
    size_t n;
    const pesc_esft_counts *counts; /* NULL: no model was given */
} chosen;

/* Prints the choice (as JSON with --json) and draws it next to the output: OUT.svg and OUT.png, the
 * scores of all experts with the chosen ones framed; of several tasks also OUT.overlap.svg and
 * .png. */
pesc_status chosen_show(const chosen *c);

#endif
