/* linear: y = W x (+ bias) (+ scale * B (A x)), W in any working dtype. */
#ifndef PESC_MODEL_LINEAR_H
#define PESC_MODEL_LINEAR_H

#include "model/model.h"

/* out [T,O], x [T,I]. */
void linear_fwd(const pass *p, const linear *l, tensor out, tensor x);

/* What flows back through a linear: dx [T,I] = (or +=) W^T dy + scale * A^T B^T dy. */
typedef struct linear_flow {
    tensor dx;    /* absent: not wanted */
    tensor dy, x; /* [T,O] [T,I] */
    bool accumulate;
} linear_flow;

/* Gradients of what trains are added to `g`, whose absent tensors are frozen. */
void linear_bwd(const pass *p, const linear *l, const linear *g, linear_flow f);

#endif
