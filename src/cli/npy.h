/* npy: a NumPy array file of float32, written piece by piece.
 *
 * It appears under its name only when it is complete (a temporary name beside it, then renamed);
 * a name that is there and is no regular file (a pipe, /dev/stdout) is written directly. */
#ifndef PESC_CLI_NPY_H
#define PESC_CLI_NPY_H

#include "cli/out.h"

typedef struct npy npy;

/* shape: n_dims lengths, row-major. */
pesc_status npy_open(npy **out, const char *path, const int64_t *shape, int n_dims);
pesc_status npy_write(npy *f, const float *values, size_t n);
pesc_status npy_publish(npy *f); /* also closes, whatever happens */
void npy_abort(npy *f);          /* leaves nothing behind; NULL is allowed */

#endif
