/* options: the rows of pesc_train_options. Each gives a key of run.yaml, where the value lies, what
 * it may be, and whether it decides the numbers of a run: a resumed run must agree in those. */
#ifndef PESC_TRAIN_OPTIONS_H
#define PESC_TRAIN_OPTIONS_H

#include "base/status.h"
#include "base/str.h"

/* PESC_USAGE: "lr: found -1, expected a number from 0 to 1e+30". */
pesc_status options_check(const pesc_train_options *o);

/* Fills what the method decides and was left open (qlora: nf4). */
void options_resolve(pesc_train_options *o);

/* Whether full experts train, so that they must not be held in nf4. */
bool options_train_experts(const pesc_train_options *o);

/* run.yaml: every key with its value, readable by `pesc train -c`. */
void options_yaml(const pesc_train_options *o, const char *model, str *out);

/* Of all that decides the numbers. The number of steps counts only where the schedule looks at it:
 * a run with a constant rate may be made longer. */
uint64_t options_hash(const pesc_train_options *o);

/* Of two run.yaml, the first key that decides the numbers and differs: "lr 0.1, now 0.2"; "" where
 * there is none. */
void options_changed(const char *then, const char *now, char *out, size_t cap);

#endif
