/* averages: the five groups of the PESC paper's benchmarks (its Table 3 and Figure 1) as text, JSON
 * and a picture. A group's value is the mean of its tasks, each by the metric that the paper means:
 * acc_norm of HellaSwag and ARC challenge, the flexible answer of GSM8K, of the others the first.
 * Groups with a task missing are left out; the average is that of all five. */
#ifndef PESC_CLI_AVERAGES_H
#define PESC_CLI_AVERAGES_H

#include "cli/opt/opt.h"

/* Nothing where no group is complete. */
void averages_print(const pesc_benchmark_report *models, size_t n);

/* The report's JSON, with "paper_averages" in percent where a group is complete. */
void averages_json(const pesc_benchmark_report *r);

/* dir/groups.svg and .png; nothing where no group is complete in all models. */
pesc_status averages_draw(const char *dir, const pesc_benchmark_report *models,
                          const char *const *names, size_t n);

/* Whether a row has the name, with or without "?" after it. */
bool averages_named(const pesc_benchmark_score *s, const char *task);

/* A cell of a table, in percent of a perfect score. */
void averages_value(double mean, double error, const char *sign, double full);

#endif
