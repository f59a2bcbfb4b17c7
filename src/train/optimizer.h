/* optimizer: AdamW over the flat buffers of params: one norm, one update.
 *
 * Moments are f32, or 8-bit codes with a scale for each 256 (adamw8): a quarter of the memory. They
 * are in device memory, or, where the device has no room for them (paged), in host memory that the
 * update reads and writes directly. The gradient is clipped to a norm; when it is not finite
 * nothing changes, neither weights nor moments.
 *
 * Only what this process owns (params.own) is summed and updated, and has moments. */
#ifndef PESC_TRAIN_OPTIMIZER_H
#define PESC_TRAIN_OPTIMIZER_H

#include "train/gradient.h"

typedef struct optimizer_options {
    bool eight_bit;
    bool paged;  /* moments in the host's memory */
    double clip; /* 0: none */
    double beta1, beta2, eps, weight_decay;
    reducer *reducer; /* who learns of updates, and from whom; NULL: one process */
} optimizer_options;

typedef struct optimizer {
    params *p; /* borrowed */
    optimizer_options opt;
    tensor m, v;             /* f32 or u8 [params.n_kept] */
    tensor m_scale, v_scale; /* f32, one for each 256; absent with f32 moments */
    tensor sumsq;            /* f32 [1] */
    tensor squares;          /* f32 [FLAT_SEGMENTS]: of its own segments */
    void *memory, *paged;    /* paged: NULL where moments lie in memory too */
    size_t bytes, paged_bytes;
} optimizer;

pesc_status optimizer_open(optimizer **out, params *p, const optimizer_options *opt);
void optimizer_close(optimizer *o);                  /* NULL is allowed */
uint64_t optimizer_bytes(int64_t n, bool eight_bit); /* of the moments of n numbers */

/* The norm of the gradient, of which each process has what it owns; not finite when one of its
 * elements is not. */
pesc_status optimizer_norm(optimizer *o, double *norm);

/* Whether the weights that train are finite, and the sum of their squares too, in all processes. */
pesc_status optimizer_finite(optimizer *o, bool *finite);

/* One update with the gradient whose norm optimizer_norm() computed. `step` counts updates from 1.
 */
pesc_status optimizer_step(optimizer *o, double lr, int64_t step);

#endif
