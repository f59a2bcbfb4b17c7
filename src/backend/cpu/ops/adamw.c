/* adamw: one optimiser step over flat buffers, and the gradient norm that clips it. */
#include "backend/code8.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

#include <math.h>

/* ---- sum of squares: parts of fixed size, each summed in f32 vectors, then in order in double
 * ----
 */

enum { PART = 1 << 16 };

typedef struct squares {
    tensor x;
    double *parts;
} squares;

static void sum_squares(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const squares *p = ctx;
    const void *x = vec_at_const(p->x.data, begin, p->x.dt);
    p->parts[begin / PART] = vec_dot(x, p->x.dt, x, p->x.dt, end - begin);
}

static float squares_of(cpu_device *c, tensor x, int64_t n)
{
    squares p = { x, (double *)(void *)c->shared };
    int64_t parts = (n + PART - 1) / PART;
    ASSERT(parts <= CPU_SHARED / 8);
    double sum = 0;
    cpu_for(c, n, PART, sum_squares, &p);
    for (int64_t i = 0; i < parts; i++)
        sum += p.parts[i];
    return (float)sum;
}

void OP(sumsq)(device *d, tensor out, tensor x)
{
    int64_t m = tensor_count(&out), n = tensor_count(&x) / m;
    float *sums = out.data;
    for (int64_t i = 0; i < m; i++) {
        sums[i] = squares_of(cpu_of(d), x, n);
        x.data = (char *)x.data + (size_t)n * dtype_block_bytes(x.dt);
    }
}

/* ---- the step ---- */

typedef struct codes codes;

typedef struct step {
    const adamw *a;
    float grad_scale;                 /* clipping */
    float rate;                       /* lr / (1 - beta1^step) */
    float root;                       /* 1 / sqrt(1 - beta2^step) */
    float keep;                       /* 1 - lr weight_decay */
    const codes *with_sign, *without; /* of 8-bit m and v */
} step;

static vf adamw_update(const step *s, vf w, vf g, vf *m, vf *v)
{
    const adamw *a = s->a;
    g *= s->grad_scale;
    *m = vec_fma(vec_set(a->beta1), *m, g * (1.0f - a->beta1));
    *v = vec_fma(vec_set(a->beta2), *v, g * g * (1.0f - a->beta2));
    vf root = vec_sqrt(*v);
    return w * s->keep - s->rate * *m / vec_fma(root, vec_set(s->root), vec_set(a->eps));
}

static void store_weights(const adamw *a, int64_t i, int64_t left, vf w)
{
    vec_store(a->w.data, i, left, DT_F32, w);
    if (a->copy.data)
        vec_store_half(a->copy.data, i, left, vec_round(w));
}

static void step_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const step *s = ctx;
    const adamw *a = s->a;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t left = end - i;
        vf m = vec_load(a->m.data, i, left, DT_F32), v = vec_load(a->v.data, i, left, DT_F32);
        vf g = vec_load(a->grad.data, i, left, DT_F32), w = vec_load(a->w.data, i, left, DT_F32);
        w = adamw_update(s, w, g, &m, &v);
        vec_store(a->m.data, i, left, DT_F32, m);
        vec_store(a->v.data, i, left, DT_F32, v);
        store_weights(a, i, left, w);
    }
}

/* ---- moments as 8-bit codes: decoded, updated, and quantised again by their new maximum ----
 *
 * The code of x is the number of midpoints between neighbouring values that are below x. The upper
 * 16 bits of x (its bucket) nearly determine it: the map is so coarse that at most one midpoint
 * falls into a bucket. So a table gives the code of the least number of the bucket, and one
 * comparison decides about the midpoint. */

enum {
    LEAST = 0x3400,               /* bucket of 2^-23; smaller numbers have the code of 0 */
    BUCKETS = 0x3F80 - LEAST + 1, /* buckets of one sign, up to 1 */
};

struct codes {
    const float *map;
    float between[256];         /* midpoint of value i and i + 1; the last is infinite */
    uint8_t least[2 * BUCKETS]; /* code of the least number of a bucket; negative numbers follow */
};

static int code_of(const codes *c, float x)
{
    int at = 0;
    for (int half = 128; half; half /= 2)
        at += x > c->between[at + half - 1] ? half : 0;
    return at;
}

static void codes_make(codes *c, code8_kind kind)
{
    c->map = code8_map(kind);
    for (int i = 0; i < 255; i++)
        c->between[i] = 0.5f * (c->map[i] + c->map[i + 1]);
    c->between[255] = INFINITY;
    for (uint32_t i = 0; i < BUCKETS; i++) {
        uint32_t bits[2] = { i ? (LEAST + i) << 16 : 0, 0x80000000 | (LEAST + i) << 16 | 0xFFFF };
        float x[2];
        memcpy(x, bits, sizeof x);
        c->least[i] = (uint8_t)code_of(c, x[0]);
        c->least[BUCKETS + i] = (uint8_t)code_of(c, x[1]);
    }
}

static void decode_block(float *out, const uint8_t *code, int64_t n, float scale, const codes *c)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = c->map[code[i]] * scale;
}

/* Writes the code nearest to each x / largest; returns the largest magnitude, the scale. A block of
 * zeros has scale 0; a NaN gets the code of 0. */
static float encode_block(uint8_t *code, float *x, int64_t n, const codes *c)
{
    vf top = { 0 };
    int32_t bucket[CODE8_BLOCK];
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf v = vec_load(x, i, n - i, DT_F32);
        top = vec_max(top, vec_max(v, -v));
    }
    float largest = vec_top(top);
    const vi zero = vec_set_int(0), buckets = vec_set_int(BUCKETS);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf unit = vec_load(x, i, n - i, DT_F32) / (largest > 0.0f ? largest : 1.0f);
        vi at = (vi)((vu)unit >> 16 & 0x7FFF) - LEAST;
        at &= ~vec_int_less(at, zero);
        at = (at & vec_int_less(at, buckets)) + (vec_int_less((vi)unit, zero) & buckets);
        vec_store(x, i, n - i, DT_F32, unit);
        *(vi *)(bucket + i) = at;
    }
    for (int64_t i = 0; i < n; i++) {
        int least = c->least[bucket[i]];
        code[i] = (uint8_t)(least + (x[i] > c->between[least]));
    }
    return largest;
}

static void step8_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const step *s = ctx;
    const adamw *a = s->a;
    float *first = scratch, *second = first + CODE8_BLOCK;
    for (int64_t base = begin; base < end; base += CODE8_BLOCK) {
        int64_t n = end - base < CODE8_BLOCK ? end - base : CODE8_BLOCK, block = base / CODE8_BLOCK;
        uint8_t *m8 = (uint8_t *)a->m.data + base, *v8 = (uint8_t *)a->v.data + base;
        float *m_scale = (float *)a->m_scale.data + block,
              *v_scale = (float *)a->v_scale.data + block;
        decode_block(first, m8, n, *m_scale, s->with_sign);
        decode_block(second, v8, n, *v_scale, s->without);
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            int64_t left = n - i;
            vf m = vec_load(first, i, left, DT_F32), v = vec_load(second, i, left, DT_F32);
            vf g = vec_load(a->grad.data, base + i, left, DT_F32);
            vf w = vec_load(a->w.data, base + i, left, DT_F32);
            w = adamw_update(s, w, g, &m, &v);
            vec_store(first, i, left, DT_F32, m);
            vec_store(second, i, left, DT_F32, v);
            store_weights(a, base + i, left, w);
        }
        *m_scale = encode_block(m8, first, n, s->with_sign);
        *v_scale = encode_block(v8, second, n, s->without);
    }
}

/* ---- the op ---- */

static double power(double x, int32_t n)
{
    double y = 1;
    for (; n > 0; n >>= 1, x *= x)
        if (n & 1)
            y *= x;
    return y;
}

void OP(adamw)(device *d, const adamw *a)
{
    enum { RANGE = 16 * CODE8_BLOCK };
    float sumsq = a->sumsq.data ? *(const float *)a->sumsq.data : 0.0f;
    if (!isfinite(sumsq))
        return;
    float clip = a->clip > 0 ? a->clip / (__builtin_sqrtf(sumsq) + 1e-6f) : 1.0f;
    step s = { .a = a,
               .grad_scale = clip < 1.0f ? clip : 1.0f,
               .rate = (float)(a->lr / (1 - power(a->beta1, a->step))),
               .root = (float)(1 / __builtin_sqrt(1 - power(a->beta2, a->step))),
               .keep = 1.0f - a->lr * a->weight_decay };
    cpu_range_fn range = step_range;
    if (a->m.dt == DT_U8) {
        codes *c = (codes *)(void *)cpu_of(d)->shared;
        codes_make(&c[0], CODE8_SIGNED);
        codes_make(&c[1], CODE8_UNSIGNED);
        s.with_sign = &c[0];
        s.without = &c[1];
        range = step8_range;
    }
    cpu_for(cpu_of(d), tensor_count(&a->w), RANGE, range, &s);
}
