/* settings: what holds for the options of a run as a whole: presets, values that the method
 * decides, and the record of a run. The options themselves are rows of <pesc/options.h>. */
#ifndef PESC_TRAIN_SETTINGS_H
#define PESC_TRAIN_SETTINGS_H

#include "base/status.h"
#include "base/str.h"
#include "tensor/dtype.h"

/* A caller's options, checked and whole (see options_take()), with what the method decides filled
 * in (qlora: base_dtype nf4). PESC_USAGE also where options contradict each other. */
pesc_status settings_take(pesc_train_options *out, const pesc_train_options *given);

/* How a model is opened to train it, or laid out for a plan. */
void settings_load(const pesc_train_options *o, pesc_load_options *out);

/* compute_dtype in place of "auto": that of the model. */
void settings_compute(pesc_train_options *o, dtype act);

/* run.yaml: every key with its value, readable by `pesc train -c`. */
void settings_yaml(const pesc_train_options *o, const char *model, str *out);

/* Of everything that decides the numbers of a run. The number of steps is part of it only where
 * the schedule depends on it: a run with a constant learning rate may be made longer. */
uint64_t settings_hash(const pesc_train_options *o);

/* Of two run.yaml, what settings_hash() covers and differs: "lr 0.1, now 0.2"; "" where nothing
 * does. */
void settings_changed(const char *then, const char *now, str *out);

#endif
