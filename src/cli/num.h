/* num: numbers a user wrote, read strictly: the whole text, in range, nothing around it. */
#ifndef PESC_CLI_NUM_H
#define PESC_CLI_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool num_int(const char *text, size_t n, int64_t min, int64_t max, int64_t *out);
/* A decimal with an optional exponent; finite. */
bool num_real(const char *text, double min, double max, double *out);

#endif
