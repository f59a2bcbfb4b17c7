/* norm: root mean square normalisation of rows, and its backward, fused with the residual sum
 * before it and the router after it. BAND rows are computed together, so that a row of the router
 * is read once for all of them; the sums of a row do not depend on its band. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"

enum { BAND = 4 };

/* The row that is normalised: x, or the residual sum, which is written to p->sum. */
static const void *input_row(const norm_fwd *p, int64_t r, int64_t n)
{
    if (!p->sum.data)
        return vec_at_const(p->x.data, r * n, p->x.dt);
    int64_t k = p->rows.data ? tensor_count(&p->inverse) / tensor_rows(&p->x) : 0;
    const int32_t *from = (const int32_t *)p->inverse.data + (p->rows.data ? r * k : 0);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf v = vec_load(p->x.data, r * n + i, n - i, p->x.dt), rows = { 0 };
        if (p->add.data)
            v += vec_load(p->add.data, r * n + i, n - i, p->add.dt);
        for (int64_t slot = 0; slot < k; slot++)
            rows += vec_load(p->rows.data, from[slot] * n + i, n - i, p->rows.dt);
        if (k)
            v += rows;
        vec_store(p->sum.data, r * n + i, n - i, p->sum.dt, v);
    }
    return vec_at_const(p->sum.data, r * n, p->sum.dt);
}

/* h: receives the row in f32 for the router; NULL: not wanted. */
static void norm_row(const norm_fwd *p, int64_t r, int64_t n, float *h)
{
    const void *x = input_row(p, r, n);
    dtype dt = p->sum.data ? p->sum.dt : p->x.dt;
    if (!p->out.data && !h && !p->rstd.data)
        return;
    float rstd = 1.0f / __builtin_sqrtf(vec_dot(x, dt, x, dt, n) / (float)n + p->eps);
    if (p->rstd.data)
        ((float *)p->rstd.data)[r] = rstd;
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf v =
            vec_load(x, i, n - i, dt) * rstd * (vec_load(p->w.data, i, n - i, p->w.dt) + p->shift);
        if (p->out.data)
            vec_store(p->out.data, r * n + i, n - i, p->out.dt, v);
        if (h)
            vec_store(h, i, n - i, DT_F32, v);
    }
}

/* out[i * stride] = the product of row i of h with w. */
static inline __attribute__((always_inline)) void
dot_rows(float *out, int64_t stride, int m, const float *h, const float *w, int64_t n)
{
    vf s[BAND][2] = { 0 };
    for (int64_t i = 0; i < n; i += 2 * VEC_LANES)
        for (int j = 0; j < 2 && i + j * VEC_LANES < n; j++) {
            int64_t at = i + j * VEC_LANES;
            vf v = vec_load(w, at, n - at, DT_F32);
            for (int r = 0; r < m; r++)
                s[r][j] = vec_fma(vec_load(h + r * n, at, n - at, DT_F32), v, s[r][j]);
        }
    for (int r = 0; r < m; r++)
        out[r * stride] = vec_sum(s[r][0] + s[r][1]);
}

static void router_logits(const norm_fwd *p, int64_t first, int64_t rows, const float *h)
{
    int64_t n = tensor_cols(&p->w), experts = tensor_cols(&p->logits);
    float *out = (float *)p->logits.data + first * experts;
    const float *w = p->router.data;
    for (int64_t e = 0; e < experts; e++)
        if (rows == BAND)
            dot_rows(out + e, experts, BAND, h, w + e * n, n);
        else
            for (int64_t r = 0; r < rows; r++)
                dot_rows(out + r * experts + e, experts, 1, h + r * n, w + e * n, n);
}

static void norm_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const norm_fwd *p = ctx;
    int64_t n = tensor_cols(&p->w);
    float *h = p->logits.data ? scratch : NULL;
    for (int64_t r = begin; r < end; r += BAND) {
        int64_t rows = end - r < BAND ? end - r : BAND;
        for (int64_t i = 0; i < rows; i++)
            norm_row(p, r + i, n, h ? h + i * n : NULL);
        if (h)
            router_logits(p, r, rows, h);
    }
}

void OP(rmsnorm_fwd)(device *d, const norm_fwd *a)
{
    int64_t n = tensor_cols(&a->w);
    ASSERT(n <= CPU_SCRATCH / 4 / BAND && (a->sum.data || (!a->add.data && !a->rows.data)));
    int64_t step = (cpu_step(n * 8) + BAND - 1) / BAND * BAND;
    cpu_for(cpu_of(d), tensor_count(&a->x) / n, step, norm_rows, a);
}

/* ---- backward ---- */

/* The gradient of the norm's output in row r, for the columns from i on. */
static vf output_gradient(const norm_bwd *p, int64_t r, int64_t i, int64_t left)
{
    int64_t n = tensor_cols(&p->w), experts = p->dlogits.data ? tensor_cols(&p->dlogits) : 0;
    const float *dl = (const float *)p->dlogits.data + (experts ? r * experts : 0);
    vf d = vec_load(p->dy.data, r * n + i, left, p->dy.dt);
    for (int64_t e = 0; e < experts; e++)
        d = vec_fma(vec_set(dl[e]), vec_load(p->router.data, e * n + i, left, DT_F32), d);
    return d;
}

/* g [m][n] = (w + shift) d of `m` rows from r on. */
static inline __attribute__((always_inline)) void scaled_gradients(const norm_bwd *p, int64_t r,
                                                                   int m, float *g)
{
    int64_t n = tensor_cols(&p->w), experts = p->dlogits.data ? tensor_cols(&p->dlogits) : 0;
    const float *dl = (const float *)p->dlogits.data + (experts ? r * experts : 0);
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf d[BAND], w = vec_load(p->w.data, i, n - i, p->w.dt) + p->shift;
        for (int j = 0; j < m; j++)
            d[j] = vec_load(p->dy.data, (r + j) * n + i, n - i, p->dy.dt);
        for (int64_t e = 0; e < experts; e++) {
            vf v = vec_load(p->router.data, e * n + i, n - i, DT_F32);
            for (int j = 0; j < m; j++)
                d[j] = vec_fma(vec_set(dl[j * experts + e]), v, d[j]);
        }
        for (int j = 0; j < m; j++)
            vec_store(g + j * n, i, n - i, DT_F32, w * d[j]);
    }
}

/* Row r of dx from g = w d of that row. */
static void dx_row(const norm_bwd *p, int64_t r, const float *g)
{
    int64_t n = tensor_cols(&p->w);
    const void *x = vec_at_const(p->x.data, r * n, p->x.dt);
    void *dx = vec_at(p->dx.data, r * n, p->dx.dt);
    float rstd = ((const float *)p->rstd.data)[r];
    float pull = vec_dot(g, DT_F32, x, p->x.dt, n) * rstd * rstd / (float)n;
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        vf v = vec_load(x, i, n - i, p->x.dt), w = vec_load(g, i, n - i, DT_F32);
        vf out = (w - v * pull) * rstd;
        if (p->accumulate)
            out += vec_load(dx, i, n - i, p->dx.dt);
        vec_store(dx, i, n - i, p->dx.dt, out);
        if (p->copy.data)
            vec_store(p->copy.data, r * n + i, n - i, p->copy.dt, out);
    }
}

static void dx_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const norm_bwd *p = ctx;
    int64_t n = tensor_cols(&p->w);
    float *g = scratch;
    for (int64_t r = begin; r < end; r += BAND) {
        int64_t rows = end - r < BAND ? end - r : BAND;
        if (rows == BAND)
            scaled_gradients(p, r, BAND, g);
        for (int64_t j = 0; j < rows; j++) {
            if (rows < BAND)
                scaled_gradients(p, r + j, 1, g + j * n);
            dx_row(p, r + j, g + j * n);
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
            sum = vec_fma(output_gradient(p, r, i, end - i),
                          vec_load(p->x.data, r * n + i, end - i, p->x.dt) * rstd[r], sum);
        vec_store(p->dw.data, i, end - i, DT_F32, vec_load(p->dw.data, i, end - i, DT_F32) + sum);
    }
}

enum { EXPERTS = 8 }; /* rows of drouter computed together */

/* Columns from i on of m rows of drouter, from expert e on: sums over all rows of dlogits times the
 * router's input. */

static inline __attribute__((always_inline)) void drouter_experts(const norm_bwd *p, int64_t e,
                                                                  int m, int64_t i, int64_t left)
{
    int64_t n = tensor_cols(&p->w), rows = tensor_count(&p->x) / n;
    int64_t experts = tensor_cols(&p->dlogits);
    const float *rstd = p->rstd.data, *dl = (const float *)p->dlogits.data + e;
    vf w = vec_load(p->w.data, i, left, p->w.dt) + p->shift, sum[EXPERTS] = { 0 };
    for (int64_t r = 0; r < rows; r++) {
        vf h = vec_load(p->x.data, r * n + i, left, p->x.dt) * rstd[r] * w;
        for (int j = 0; j < m; j++)
            sum[j] = vec_fma(vec_set(dl[r * experts + j]), h, sum[j]);
    }
    for (int j = 0; j < m; j++) {
        int64_t at = (e + j) * n + i;
        vec_store(p->drouter.data, at, left, DT_F32,
                  vec_load(p->drouter.data, at, left, DT_F32) + sum[j]);
    }
}

static void drouter_columns(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const norm_bwd *p = ctx;
    int64_t experts = tensor_cols(&p->dlogits);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        int64_t e = 0;
        for (; e + EXPERTS <= experts; e += EXPERTS)
            drouter_experts(p, e, EXPERTS, i, end - i);
        for (; e < experts; e++)
            drouter_experts(p, e, 1, i, end - i);
    }
}

void OP(rmsnorm_bwd)(device *d, const norm_bwd *a)
{
    enum { COLUMNS = 64 };
    int64_t n = tensor_cols(&a->w);
    int64_t step = (cpu_step(n * 16) + BAND - 1) / BAND * BAND;
    ASSERT(n <= CPU_SCRATCH / 4 / BAND);
    if (a->drouter.data)
        cpu_for(cpu_of(d), n, COLUMNS, drouter_columns, a);
    if (a->dw.data) /* before dx, which may overwrite dy */
        cpu_for(cpu_of(d), n, COLUMNS, dw_columns, a);
    if (a->dx.data)
        cpu_for(cpu_of(d), tensor_count(&a->x) / n, step, dx_rows, a);
}
