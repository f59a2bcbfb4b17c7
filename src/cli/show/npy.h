/* npy: a NumPy array file of float32, written piece by piece.
 *
 * The file is written under a temporary name in the same directory and renamed when it is complete;
 * an existing path that is not a regular file (a pipe, /dev/stdout) is written directly. */
#ifndef PESC_CLI_NPY_H
#define PESC_CLI_NPY_H

#include "cli/show/out.h"

typedef struct npy npy;

/* shape: n_dims lengths, row-major. */
pesc_status npy_open(npy **out, const char *path, const int64_t *shape, int n_dims);
pesc_status npy_write(npy *f, const float *values, size_t n);
pesc_status npy_publish(npy *f); /* also closes, whatever happens */
void npy_abort(npy *f);          /* removes what was written; NULL is allowed */

#endif
