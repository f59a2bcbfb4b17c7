/* training: a golden model with the parameters that train, for the tests of what a step does. */
#ifndef TESTS_SUPPORT_TRAINING_H
#define TESTS_SUPPORT_TRAINING_H

#include "train/params.h"

typedef struct training {
    pesc_device *dev;
    pesc_model *model;
    params *ps;
} training;

/* Opens tests/golden/<model> on the device `where` ("cpu:1"); what cannot be opened fails the test.
 */
training training_open(const char *where, const char *model, const train_spec *spec);
void training_close(training *t);

void training_zero_grads(params *p); /* all of them */

/* The options of a run of four short steps, which a test may change. */
pesc_train_options training_options(const char *const *data, const char *output);

#endif
