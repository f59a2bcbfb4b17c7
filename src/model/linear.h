/* linear: y = W x (+ bias) (+ scale * B (A x)), W in any working dtype.
 *
 * Linears that read the same x are run together. Where their A lie one behind the other in memory,
 * as params.h places them, and nobody drops, they are multiplied as one matrix. What B adds to
 * what W gives is one product with it (mm.more), and so is the gradient of x. */
#ifndef PESC_MODEL_LINEAR_H
#define PESC_MODEL_LINEAR_H

#include "model/model.h"

enum { LINEARS = 3 }; /* most that are run together */

/* out [T,O], x [T,I]. */
void linear_fwd(const pass *p, const linear *l, tensor out, tensor x);

/* n linears of one x, and what each gives. */
typedef struct linear_set {
    int n;
    const linear *l[LINEARS];
    tensor y[LINEARS]; /* [T,O]; absent: not wanted */
    tensor ax;         /* [T, n R or more]: what A gives, for backward to find; absent: not kept */
} linear_set;
void linears_fwd(const pass *p, const linear_set *s, tensor x);

/* What flows back through a linear: dx [T,I] = (or +=) W^T dy + scale * A^T B^T dy. */
typedef struct linear_flow {
    tensor dx;    /* absent: not wanted */
    tensor dy, x; /* [T,O] [T,I] */
    bool accumulate;
} linear_flow;

/* Gradients of what trains are added to `g`, whose absent tensors are frozen. */
void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f);

/* The same for a set: its y are the gradients, f.dy is not looked at, dx is the sum. */
void linears_bwd(const pass *p, const linear_set *s, const linear *const *g, linear_flow f);

#endif
