/* linear: y = W x (+ bias) (+ scale * B (A x)), W in any working dtype.
 *
 * Linears that read the same x run together. Where their A are adjacent in memory, as params.h
 * places them, and dropout is off, these are multiplied as one matrix. The contribution of B is a
 * second term of the product with W (mm.more), in forward and in the gradient of x alike. */
#ifndef PESC_MODEL_LINEAR_H
#define PESC_MODEL_LINEAR_H

#include "model/forward.h"

enum { LINEARS = 3 }; /* most that run together */

/* out [T,O], x [T,I]. */
void linear_fwd(const pass *p, const linear *l, tensor out, tensor x);

/* n linears of one x, and the output of each. */
typedef struct linear_set {
    int n;
    const linear *l[LINEARS];
    tensor y[LINEARS]; /* [T,O]; absent: not wanted */
    tensor ax;         /* [T, n R or more]: scale A x, kept for backward; absent: not kept */
} linear_set;
void linears_fwd(const pass *p, const linear_set *s, tensor x);

/* The gradients at a linear: dx [T,I] = (or +=) W^T dy + scale * A^T B^T dy. */
typedef struct linear_flow {
    tensor dx;    /* absent: not wanted */
    tensor dy, x; /* [T,O] [T,I] */
    bool accumulate;
} linear_flow;

/* Gradients of what trains are added to `g`, whose absent tensors are frozen. */
void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f);

/* The same for a set: its y are the gradients, f.dy is not read, dx is the sum. */
void linears_bwd(const pass *p, const linear_set *s, const linear *const *g, linear_flow f);

#endif
