/* rope: rotary position embedding. The tables are computed once per pass; the rotation is in place.
 */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

/* sin and cos of one f32 angle, correct to about half an ulp of f32: reduced by multiples of pi/2
 * and summed as Taylor series, all in double. Positions may be in the millions. */
static void sin_cos(float angle, double *sine, double *cosine)
{
    double x = angle, k = x * 0.6366197723675814;
    int64_t q = (int64_t)(k + (k < 0 ? -0.5 : 0.5));
    double r = (x - (double)q * 0x1.921fb544p0) - (double)q * 0x1.0b4611a626331p-34;
    double r2 = r * r, s = 0, c = 0;
    for (int n = 16; n >= 2; n -= 2) {
        s = (1.0 - s) * r2 / (double)(n * (n + 1));
        c = (1.0 - c) * r2 / (double)(n * (n - 1));
    }
    s = r * (1.0 - s);
    c = 1.0 - c;
    double quadrant[4][2] = { { s, c }, { c, -s }, { -s, -c }, { -c, s } };
    *sine = quadrant[q & 3][0];
    *cosine = quadrant[q & 3][1];
}

typedef struct table {
    tensor cos, sin;
    const int32_t *pos;
    const float *inv_freq;
    float scale;
} table;

static void table_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const table *p = ctx;
    int64_t n = tensor_cols(&p->cos);
    float *cosine = p->cos.data, *sine = p->sin.data;
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < n; i++) {
            double s, c;
            sin_cos((float)p->pos[t] * p->inv_freq[i], &s, &c);
            cosine[t * n + i] = (float)(c * p->scale);
            sine[t * n + i] = (float)(s * p->scale);
        }
}

void OP(rope_table)(device *d, tensor cos, tensor sin, tensor pos, tensor inv_freq, float scale)
{
    table p = { cos, sin, pos.data, inv_freq.data, scale };
    cpu_for(cpu_of(d), tensor_rows(&cos), cpu_step(tensor_cols(&cos) * 64), table_rows, &p);
}

/* (a, b) -> (a cos - b sin, b cos + a sin) for pairs (i, i + half). */
static void rotate_halves(void *x, dtype dt, const float *cos, const float *sin, int64_t half,
                          float sign)
{
    for (int64_t i = 0; i < half; i += VEC_LANES) {
        vf c = vec_load(cos, i, half - i, DT_F32), s = vec_load(sin, i, half - i, DT_F32) * sign;
        vf a = vec_load(x, i, half - i, dt), b = vec_load(x, half + i, half - i, dt);
        vec_store(x, i, half - i, dt, a * c - b * s);
        vec_store(x, half + i, half - i, dt, b * c + a * s);
    }
}

static void rotate_neighbours(void *x, dtype dt, const float *cos, const float *sin, int64_t half,
                              float sign)
{
    for (int64_t i = 0; i < half; i++) {
        float s = sin[i] * sign;
        vf pair = vec_load(x, 2 * i, 2, dt), rotated = pair;
        rotated[0] = pair[0] * cos[i] - pair[1] * s;
        rotated[1] = pair[1] * cos[i] + pair[0] * s;
        vec_store(x, 2 * i, 2, dt, rotated);
    }
}

static void rope_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const rope *p = ctx;
    int64_t half = p->rot_dim / 2, width = (int64_t)p->n_heads * p->head_dim;
    for (int64_t t = begin; t < end; t++) {
        const float *cos = (const float *)p->cos.data + t * half;
        const float *sin = (const float *)p->sin.data + t * half;
        for (int32_t h = 0; h < p->n_heads; h++) {
            void *x = vec_at(p->x.data, t * width + (int64_t)h * p->head_dim + p->offset, p->x.dt);
            (p->interleaved ? rotate_neighbours : rotate_halves)(x, p->x.dt, cos, sin, half,
                                                                 p->inverse ? -1.0f : 1.0f);
        }
    }
}

void OP(rope)(device *d, const rope *a)
{
    cpu_for(cpu_of(d), tensor_rows(&a->cos), cpu_step((int64_t)a->n_heads * a->rot_dim * 8),
            rope_rows, a);
}
