/* cost_report: what pesc_cost() and pesc_cost_measure() share: which parameters a method trains.
 * The counts themselves are in model/cost.h. */
#ifndef PESC_EXPLAIN_COST_REPORT_H
#define PESC_EXPLAIN_COST_REPORT_H

#include "train/params.h"

/* The options of a run for a model with experts of this kind. */
pesc_status cost_settings(pesc_train_options *out, const pesc_cost_options *o, expert_kind kind);

/* method_spec(), but a mixture of LoRA is accepted with method molora, too. */
pesc_status cost_spec(train_spec *out, expertcfg *own, pesc_train_options *o, const config *c);

#endif
