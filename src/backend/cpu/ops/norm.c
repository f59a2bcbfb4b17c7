/* norm: root mean square normalisation of rows, and its backward. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

typedef struct norm {
    tensor out, x, w;
    float *rstd; /* NULL: not wanted */
    float eps;
} norm;

static void norm_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const norm *p = ctx;
    int64_t n = tensor_cols(&p->w);
    for (int64_t r = begin; r < end; r++) {
        const void *x = vec_at_const(p->x.data, r * n, p->x.dt);
        void *out = vec_at(p->out.data, r * n, p->out.dt);
        float rstd = 1.0f / __builtin_sqrtf(vec_dot(x, p->x.dt, x, p->x.dt, n) / (float)n + p->eps);
        if (p->rstd)
            p->rstd[r] = rstd;
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf v = vec_load(x, i, n - i, p->x.dt) * rstd;
            vec_store(out, i, n - i, p->out.dt, v * vec_load(p->w.data, i, n - i, p->w.dt));
        }
    }
}

void OP(rmsnorm_fwd)(device *d, tensor out, tensor x, tensor w, tensor rstd, float eps)
{
    norm p = { out, x, w, rstd.data, eps };
    int64_t n = tensor_cols(&w);
    cpu_for(cpu_of(d), tensor_count(&x) / n, cpu_step(n * 8), norm_rows, &p);
}

/* ---- backward ---- */

static void dx_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const norm_bwd *p = ctx;
    int64_t n = tensor_cols(&p->w);
    float *g = scratch; /* w dy of one row */
    for (int64_t r = begin; r < end; r++) {
        const void *x = vec_at_const(p->x.data, r * n, p->x.dt);
        const void *dy = vec_at_const(p->dy.data, r * n, p->dy.dt);
        void *dx = vec_at(p->dx.data, r * n, p->dx.dt);
        float rstd = ((const float *)p->rstd.data)[r];
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store(g, i, n - i, DT_F32,
                      vec_load(p->w.data, i, n - i, p->w.dt) * vec_load(dy, i, n - i, p->dy.dt));
        float pull = vec_dot(g, DT_F32, x, p->x.dt, n) * rstd * rstd / (float)n;
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf v = vec_load(x, i, n - i, p->x.dt), w = vec_load(g, i, n - i, DT_F32);
            vf out = (w - v * pull) * rstd;
            if (p->accumulate)
                out += vec_load(dx, i, n - i, p->dx.dt);
            vec_store(dx, i, n - i, p->dx.dt, out);
        }
    }
}

/* Columns [begin, end) of dw, over all rows in order. */
static void dw_columns(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const norm_bwd *p = ctx;
    int64_t n = tensor_cols(&p->w), rows = tensor_count(&p->x) / n;
    const float *rstd = p->rstd.data;
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf sum = { 0 };
        for (int64_t r = 0; r < rows; r++)
            sum = vec_fma(vec_load(p->dy.data, r * n + i, end - i, p->dy.dt),
                          vec_load(p->x.data, r * n + i, end - i, p->x.dt) * rstd[r], sum);
        vec_store(p->dw.data, i, end - i, DT_F32, vec_load(p->dw.data, i, end - i, DT_F32) + sum);
    }
}

void OP(rmsnorm_bwd)(device *d, const norm_bwd *a)
{
    enum { COLUMNS = 64 };
    int64_t n = tensor_cols(&a->w);
    ASSERT(n <= CPU_SCRATCH / 4);
    if (a->dw.data) /* first: dx may lie where dy does */
        cpu_for(cpu_of(d), n, COLUMNS, dw_columns, a);
    cpu_for(cpu_of(d), tensor_count(&a->x) / n, cpu_step(n * 16), dx_rows, a);
}
