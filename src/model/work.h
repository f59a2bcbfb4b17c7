/* work: the largest shapes that the ops of a pass meet, by which a device plans its scratch. */
#ifndef PESC_MODEL_WORK_H
#define PESC_MODEL_WORK_H

#include "model/loss.h"

/* Of a pass over m within these limits. `cached`: positions that a sequence of its cache can have,
 * 0 without one; `train`: of a pass with backward, else NULL. Without
 * blocks its weights count as being in the type of the activations. */
work_limits work_of_pass(const model_shape *m, pass_limits lim, int64_t cached,
                         const train_plan *train);

#endif
