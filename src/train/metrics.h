/* metrics: the logs of a run: metrics.jsonl (one object a step), routing.jsonl
 * (shares of the experts, layer by layer), eval.jsonl and tb/ (TensorBoard).
 *
 * The JSON files only grow; a checkpoint records their lengths and a resumed run truncates them to
 * these, so no step is in them twice. A line that cannot be written (the disk is full) is kept in
 * memory and written with the next one: training continues. */
#ifndef PESC_TRAIN_METRICS_H
#define PESC_TRAIN_METRICS_H

#include "base/io.h"
#include "base/str.h"

typedef enum metrics_file {
    METRICS_STEPS,
    METRICS_ROUTING,
    METRICS_EVAL,
    METRICS_FILES
} metrics_file;

typedef struct metrics_lengths {
    uint64_t bytes[METRICS_FILES];
} metrics_lengths;

typedef struct metrics metrics;

pesc_status metrics_open(metrics **out, const char *run, const metrics_lengths *keep);
void metrics_close(metrics *m); /* NULL is allowed */

/* The functions below do nothing where m is NULL: a process that writes no logs. */

/* The part of all choices that fell on each expert in each layer; layers 0: no experts. */
typedef struct metrics_shares {
    const float *share; /* [layers, experts] */
    int32_t layers, experts;
} metrics_shares;

/* entropy: 1 when all experts of a layer are chosen equally often, 0 when one gets every choice;
 * the mean over layers. dead: experts of all layers that no token chose. */
void metrics_balance(const metrics_shares *r, double *entropy, int64_t *dead);

/* The losses of one domain: their weighted sum, and that of the weights. */
typedef struct metrics_domain {
    const char *name;
    double sum, weight;
    int64_t targets;
} metrics_domain;

/* Those of a run with domain_experts; n 0: it has none. */
typedef struct metrics_domains {
    const metrics_domain *list; /* [n] */
    size_t n;
} metrics_domains;

void metrics_step(metrics *m, const pesc_step *s, metrics_domains d);
void metrics_routing(metrics *m, int64_t step, const metrics_shares *r);
void metrics_eval(metrics *m, const pesc_step *s, int64_t targets, metrics_domains d);

/* A measure of a validation by its name (option metric_for_best_model), and whether a lower one is
 * better. */
double metrics_eval_value(const char *name, const pesc_step *s);
bool metrics_lower_is_better(const char *name);

/* Flushes everything to the disk; *out receives the lengths of the files then. */
pesc_status metrics_sync(metrics *m, metrics_lengths *out);

#endif
