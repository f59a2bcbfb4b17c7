/* metric: means, their standard errors, and differences between two models.
 *
 * All sums run in document order, so that a score does not depend on the order of evaluation. */
#ifndef PESC_EVAL_METRIC_H
#define PESC_EVAL_METRIC_H

#include "base/str.h"

#include <stdint.h>

typedef struct metric_score {
    double mean;  /* NAN when n is 0 */
    double error; /* sample standard deviation / sqrt(n); NAN when n < 2 */
    uint64_t n;
} metric_score;

metric_score metric_mean(const double *values, size_t n);

/* A group: the mean over all documents of its tasks, and the pooled standard error. */
metric_score metric_pool(const metric_score *tasks, size_t n);

/* Mean and standard error of a[i] - b[i]: both models answered the same documents. */
metric_score metric_difference(const double *a, const double *b, size_t n);

/* The position of the largest value; of equal ones the first. With `lengths` each value is divided
 * by its length first. NaN counts as the largest, as numpy's argmax has it. n > 0. */
size_t metric_argmax(const double *values, const double *lengths, size_t n);

/* A perfect score of a metric by its name: chrf counts to 100 as in sacrebleu, a judge's to 10, all
 * others to 1. */
double metric_full(const char *name);

#endif
