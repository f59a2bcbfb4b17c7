/* demo: the results of the demonstration for each model, and their table. */
#ifndef PESC_CLI_DEMO_TABLE_H
#define PESC_CLI_DEMO_TABLE_H

#include "cli/show/out.h"

#include <stdio.h>

typedef struct demo_row {
    const char *title; /* what the model is */
    const char *path;
    pesc_model_info info;
    pesc_eval_report report;
    bool tuned; /* then these: */
    uint64_t params_trained, mem_bytes;
    int64_t steps;
    double first_loss, last_loss, tokens_per_second;
} demo_row;

/* By domain: exact match and loss; then the cost of each. */
void demo_print(FILE *f, const demo_row *rows, size_t n);
void demo_json(const demo_row *rows, size_t n); /* the value of "models" */

#endif
