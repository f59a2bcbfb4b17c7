/* summary: scores of experts, layer by layer, and their file, summary.json, as ESFT released it.
 *
 *     {"token_scores": {"1": {"0": 0.0101, ...}, "10": ...}, "gate_scores": {"1": ...}}
 *
 * Scores are rounded to 4 decimals when they are made, not when they are written: the choice of
 * experts is made on rounded scores, and ties depend on it. A file may lack one of the two tables.
 */
#ifndef PESC_ESFT_SUMMARY_H
#define PESC_ESFT_SUMMARY_H

#include "base/status.h"

typedef enum esft_metric { METRIC_TOKEN, METRIC_GATE, N_METRICS } esft_metric;
extern const char *const metric_names[N_METRICS]; /* "token", "gate" */

/* Zero-initialise to start; summary_free() to end, also after a failure. */
typedef struct summary {
    size_t n_layers, n_experts;
    int32_t *layers;          /* [n_layers]: numbers of decoder layers */
    double *score[N_METRICS]; /* [n_layers, n_experts]; NULL: not there */
} summary;

/* All scores are 0; the caller fills in the layers. */
pesc_status summary_init(summary *s, size_t n_layers, size_t n_experts);
void summary_free(summary *s);

/* A file, or a directory that has summary.json. Layers stay in the order of the file. Every layer
 * must have the experts 0 to E-1, each once, with a score that is a number. */
pesc_status summary_read(summary *s, const char *path);

/* One line, layers ordered as text ("1", "10", "2"), no newline at the end: the bytes as released.
 */
pesc_status summary_write(const summary *s, const char *path);

/* As Python's round(x, 4): to the nearest decimal of the exact binary value, ties to even. */
double summary_round(double x);

#endif
