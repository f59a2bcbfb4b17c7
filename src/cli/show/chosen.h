/* chosen: what esft select shows of the experts that it chose: text or JSON, and pictures. */
#ifndef PESC_CLI_CHOSEN_H
#define PESC_CLI_CHOSEN_H

#include "cli/opt/opt.h"

/* The experts that were selected for tasks. */
typedef struct chosen {
    const options *o;
    const char *metric;
    const pesc_esft_choice *all;   /* what was written */
    const pesc_esft_choice *tasks; /* one for each summary, over the same layers */
    const pesc_esft_choice
        *other; /* the same by the other metric; n_layers 0: a summary has it not */
    size_t n;
    const pesc_esft_counts *counts; /* NULL: no model was given */
} chosen;

/* Prints the choice (as JSON with --json) and draws it next to the output: OUT.svg and OUT.png, the
 * scores of all experts with the chosen ones framed; OUT.counts, how many are chosen by task and
 * layer; OUT.concentration, how few experts have most of the scores; of several tasks also
 * OUT.overlap. */
pesc_status show_choice(const chosen *c);

#endif
