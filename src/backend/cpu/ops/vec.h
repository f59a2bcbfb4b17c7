/* vec: SIMD vectors as wide as those of the instruction set.
 *
 * A vf holds VEC_LANES floats. Loads and stores take `left`, the number of values that remain: the
 * last vector of a row is padded with zeros on load and stored only as far as the row goes. So a
 * loop needs no second body for its tail, and a value does not depend on its lane. bf16 becomes f32
 * on load and is rounded to nearest even on store.
 *
 * A file for each architecture has the primitives:
 *
 *   vec_fma(a, b, c)               a b + c, rounded once where the instruction set has it
 *   vec_min(a, b), vec_max(a, b)   a where it is smaller (larger), else b: b where one is NaN
 *   vec_less, vec_equal,           lanes of all ones where it holds, else zeros; false of a NaN
 *   vec_int_less
 *   vec_sqrt(x)
 *   vec_widen(h)                   bf16 as f32
 *   vec_round(x)                   f32 to bf16, exactly, for numbers that are only copied
 *   vec_narrow(x)                  the same for results, which the CPU's own conversion, where it
 *                                  has one, may flush to 0 below 2^-126
 *   vec_sum(x), vec_top(x)         the sum and the largest of the lanes: the upper half is combined
 *                                  with the lower until one value is left
 *   vec_multiply_words(a, b)       products of the low 32 bits of 64-bit lanes
 *   vec_unpack_low, _high          in each 128 bits the low (high) 64 of a, then those of b
 *
 * Sums are kept as VEC_LANES (times the unrolling) partial sums and reduced in a fixed tree. */
#ifndef PESC_BACKEND_CPU_OPS_VEC_H
#define PESC_BACKEND_CPU_OPS_VEC_H

#include "tensor/dtype.h"

#include <string.h>

#if defined(__aarch64__)
#include "backend/cpu/ops/vec_aarch64.h"
#else
#include "backend/cpu/ops/vec_x86_64.h"
#endif

typedef float vf_any __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(VEC_BYTES / 2), aligned(2), may_alias));

static inline vf vec_set(float x)
{
    return x - (vf){ 0 }; /* x - 0, not x + 0: keeps the sign of a zero */
}

static inline vi vec_set_int(int32_t x)
{
    return x - (vi){ 0 };
}

/* 0, 1, 2, ... */
static inline vi vec_numbers(void)
{
    vi n = { 0 };
    for (int i = 0; i < VEC_LANES; i++)
        n[i] = i;
    return n;
}

/* m ? a : b; lanes of m are all ones or all zeros, as comparisons return. */
static inline vf vec_select(vi m, vf a, vf b)
{
    return (vf)((m & (vi)a) | (~m & (vi)b));
}

/* ---- memory ---- */

static inline vf vec_load(const void *p, int64_t i, int64_t left, dtype dt)
{
    if (dt == DT_F32) {
        const float *x = (const float *)p + i;
        if (left >= VEC_LANES)
            return *(const vf_any *)x;
        vf v = { 0 };
        memcpy(&v, x, (size_t)left * 4);
        return v;
    }
    const uint16_t *x = (const uint16_t *)p + i;
    if (left >= VEC_LANES)
        return vec_widen(*(const vh_any *)x);
    vh h = { 0 };
    memcpy(&h, x, (size_t)left * 2);
    return vec_widen(h);
}

static inline void vec_store_half(void *p, int64_t i, int64_t left, vh h)
{
    uint16_t *x = (uint16_t *)p + i;
    if (left >= VEC_LANES)
        *(vh_any *)x = h;
    else
        memcpy(x, &h, (size_t)left * 2);
}

static inline void vec_store(void *p, int64_t i, int64_t left, dtype dt, vf v)
{
    if (dt == DT_F32) {
        float *x = (float *)p + i;
        if (left >= VEC_LANES)
            *(vf_any *)x = v;
        else
            memcpy(x, &v, (size_t)left * 4);
        return;
    }
    vec_store_half(p, i, left, vec_narrow(v));
}

/* Copies n numbers, converting where the types differ. */
static inline void vec_copy(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n)
{
    if (dst_dt == src_dt) {
        memcpy(dst, src, (size_t)n * (dst_dt == DT_F32 ? 4 : 2));
        return;
    }
    for (int64_t i = 0; i < n; i += VEC_LANES)
        if (dst_dt == DT_F32)
            vec_store(dst, i, n - i, DT_F32, vec_load(src, i, n - i, src_dt));
        else
            vec_store_half(dst, i, n - i, vec_round(vec_load(src, i, n - i, src_dt)));
}

/* The address of element i of a row of f32 or bf16. */
static inline void *vec_at(void *p, int64_t i, dtype dt)
{
    return (char *)p + i * (dt == DT_F32 ? 4 : 2);
}

static inline const void *vec_at_const(const void *p, int64_t i, dtype dt)
{
    return (const char *)p + i * (dt == DT_F32 ? 4 : 2);
}

/* sum of a[i] b[i] over n numbers. Four vectors of partial sums hide the latency of an add. */
static inline float vec_dot(const void *a, dtype a_dt, const void *b, dtype b_dt, int64_t n)
{
    vf s[4] = { 0 };
    for (int64_t i = 0; i < n; i += 4 * VEC_LANES)
        for (int j = 0; j < 4 && i + j * VEC_LANES < n; j++) {
            int64_t at = i + j * VEC_LANES;
            s[j] = vec_fma(vec_load(a, at, n - at, a_dt), vec_load(b, at, n - at, b_dt), s[j]);
        }
    return vec_sum((s[0] + s[1]) + (s[2] + s[3]));
}

#endif
