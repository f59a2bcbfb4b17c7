/* num: whole numbers that a user wrote, read strictly: n bytes of text, all of them digits. */
#ifndef PESC_CLI_DIGITS_H
#define PESC_CLI_DIGITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool num_int(const char *text, size_t n, int64_t min, int64_t max, int64_t *out);

#endif
