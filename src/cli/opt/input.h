/* input: texts a command reads, from a file or standard input. */
#ifndef PESC_CLI_INPUT_H
#define PESC_CLI_INPUT_H

#include "cli/show/out.h"

/* "standard input" for NULL and "-", else the path: for sentences. */
const char *input_name(const char *path);

/* All of a file or (NULL, "-") of standard input, with a NUL after its n bytes, for free(). */
pesc_status input_read(const char *path, char **text, size_t *n);

/* Calls `each` for every line of the text, without its newline; `number` counts from 1. */
typedef pesc_status (*input_line_fn)(void *ud, const char *line, size_t n, size_t number);
pesc_status input_lines(const char *text, size_t n, input_line_fn each, void *ud);

/* A whole number, read strictly: n bytes of text, all of them digits. */
bool input_int(const char *text, size_t n, int64_t min, int64_t max, int64_t *out);

#endif
