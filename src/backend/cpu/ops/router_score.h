/* router_score: router logits to scores, in place, for forward and backward. */
#ifndef PESC_BACKEND_CPU_OPS_ROUTER_SCORE_H
#define PESC_BACKEND_CPU_OPS_ROUTER_SCORE_H

#include "backend/cpu/ops/vmath.h"

#include <math.h>

/* The softmax; returns the logarithm of the sum of the exponentials. */
static inline float score_softmax_lse(float *x, int32_t n)
{
    float max = -INFINITY, sum = 0.0f;
    for (int32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int32_t i = 0; i < n; i += VEC_LANES)
        vec_store(x, i, n - i, DT_F32, vmath_exp(vec_load(x, i, n - i, DT_F32) - max));
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    for (int32_t i = 0; i < n; i++)
        x[i] /= sum;
    return max + logf(sum);
}

static inline void score_softmax(float *x, int32_t n)
{
    score_softmax_lse(x, n);
}

static inline void score_sigmoid(float *x, int32_t n)
{
    vf rest;
    for (int32_t i = 0; i < n; i += VEC_LANES)
        vec_store(x, i, n - i, DT_F32, vmath_sigmoid(vec_load(x, i, n - i, DT_F32), &rest));
}

#endif
