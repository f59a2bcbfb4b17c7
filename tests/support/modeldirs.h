/* modeldirs: model directories as tests of craft, merge and export look at them: opened, one tensor
 * or one key at a time, two of them compared bit for bit. What is missing fails the test. */
#ifndef TESTS_SUPPORT_MODELDIRS_H
#define TESTS_SUPPORT_MODELDIRS_H

#include "run/runmodel.h"

/* A copy of golden_path() that holds for a whole test. */
const char *modeldirs_golden(char out[512], const char *name);

/* A CPU that stays open until the program ends. */
pesc_device *modeldirs_device(void);

hfdir *modeldirs_open(const char *path); /* for hfdir_close() */
const weight *modeldirs_tensor(const hfdir *h, const char *name);
float *modeldirs_numbers(const weight *w); /* all of them; for free() */

/* A key of config.json; "" and 0 where it is not there. */
const char *modeldirs_text(const hfdir *h, const char *key);
json_int_t modeldirs_int(const hfdir *h, const char *key);

void modeldirs_same(const hfdir *a, const char *in_a, const hfdir *b, const char *in_b);
/* Every tensor of a is in b, the same. */
void modeldirs_same_all(const hfdir *a, const hfdir *b);

#endif
