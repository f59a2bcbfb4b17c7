/* schedule: the learning rate of a step. */
#ifndef PESC_TRAIN_SCHEDULE_H
#define PESC_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_COSINE, SCHEDULE_LINEAR } schedule_kind;

bool schedule_find(const char *name, schedule_kind *out); /* "constant" "cosine" "linear" */

/* Step 0 is the first update. During warm-up the rate is lr * (step + 1) / warmup, so that the
 * first step learns as well (the schedulers of transformers have 0 there: theirs lag by one step);
 * after it the rate is constant, a half cosine to 0, or a line to 0 at `total`. */
double schedule_lr(schedule_kind kind, double lr, int64_t step, int64_t warmup, int64_t total);

#endif
