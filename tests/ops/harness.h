/* harness: one case, with its tensors on the host (as doubles and as stored) and on a device. */
#ifndef PESC_TESTS_OPS_HARNESS_H
#define PESC_TESTS_OPS_HARNESS_H

#include "ops/cases.h"

typedef struct trial {
    const op_test *test;
    const params *p;
    int n;
    slot slots[MAX_SLOTS];
    double *value[MAX_SLOTS];         /* the numbers, exactly as the device gets them */
    unsigned char *input[MAX_SLOTS];  /* the same, stored in the slot's type */
    unsigned char *result[MAX_SLOTS]; /* after the op */
    size_t bytes[MAX_SLOTS];
} trial;

/* Fills the slots with numbers that depend on the op and the case only. Outputs start as NaN or -1,
 * so that an element that is never written is found. */
void trial_init(trial *t, const op_test *test, int number);
void trial_free(trial *t);

/* Uploads, calls, downloads into `result`. Fails the test when the device reports a failure,
 * writes outside a tensor, changes an input, or allocates host memory in the op. */
void trial_run(trial *t, device *d);

i64 trial_count(const trial *t, int k);
double trial_result(const trial *t, int k, i64 i);
int n_cases(const op_test *test);

#endif
