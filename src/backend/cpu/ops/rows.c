/* rows: gathers, scatters and sums of rows, converting where dtypes differ.
 *
 * Where several rows are added to one (embed_bwd, sum_rows), a range is some columns of all rows,
 * which it adds in order: so no synchronisation is needed and the order is fixed. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vec.h"
#include "tensor/quants.h"

typedef struct gather {
    tensor out, x;
    const int32_t *rows;
    int32_t div;
} gather;

/* out row r = row `from` of a table in a block format. */
static void unpack_row(const gather *p, int64_t r, int64_t from, int64_t n)
{
    enum { AT_ONCE = 256 };
    float values[AT_ONCE];
    int64_t bytes = n / (int64_t)dtype_block(p->x.dt) * (int64_t)dtype_block_bytes(p->x.dt);
    const char *row = (const char *)p->x.data + from * bytes;
    for (int64_t i = 0, step; i < n; i += step) {
        step = n - i < AT_ONCE ? n - i : AT_ONCE;
        quants_unpack(p->x.dt, row, i, step, values);
        vec_copy(vec_at(p->out.data, r * n + i, p->out.dt), p->out.dt, values, DT_F32, step);
    }
}

static void gather_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const gather *p = ctx;
    int64_t n = tensor_cols(&p->out), n_rows = tensor_rows(&p->x);
    for (int64_t r = begin; r < end; r++) {
        int64_t from = p->rows[r] / p->div;
        ASSERT(from >= 0 && from < n_rows);
        if (quants_is(p->x.dt))
            unpack_row(p, r, from, n);
        else
            vec_copy(vec_at(p->out.data, r * n, p->out.dt), p->out.dt,
                     vec_at_const(p->x.data, from * n, p->x.dt), p->x.dt, n);
    }
}

void OP(gather_rows)(device *d, tensor out, tensor x, tensor rows, int32_t div)
{
    gather p = { out, x, rows.data, div };
    cpu_for(cpu_of(d), tensor_count(&rows), cpu_step(tensor_cols(&out) * 8), gather_range, &p);
}

void OP(embed)(device *d, tensor out, tensor table, tensor ids)
{
    OP(gather_rows)(d, out, table, ids, 1);
}

typedef struct scaling {
    tensor y;
    const float *rows; /* NULL: ones */
    int64_t step;      /* from that of a row to the next: 0 or 1 */
    float scale;
} scaling;

static void scale_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const scaling *p = ctx;
    int64_t n = tensor_cols(&p->y);
    for (int64_t t = begin; t < end; t++) {
        float s = p->rows ? p->scale * p->rows[t * p->step] : p->scale;
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store(p->y.data, t * n + i, n - i, p->y.dt,
                      vec_load(p->y.data, t * n + i, n - i, p->y.dt) * s);
    }
}

void OP(scale_rows)(device *d, tensor y, tensor rows, float scale)
{
    scaling p = { y, rows.data, tensor_count(&rows) > 1, scale };
    cpu_for(cpu_of(d), tensor_rows(&y), cpu_step(tensor_cols(&y) * 4), scale_range, &p);
}

typedef struct scatter {
    tensor y, x;
    const float *gates;
    const int32_t *inverse;
    int64_t k;
    float scale;
} scatter;

static void scatter_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const scatter *p = ctx;
    int64_t n = tensor_cols(&p->y);
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf sum = { 0 };
            for (int64_t slot = t * p->k; slot < (t + 1) * p->k; slot++)
                sum = vec_fma(vec_set(p->gates[slot]),
                              vec_load(p->x.data, p->inverse[slot] * n + i, n - i, p->x.dt), sum);
            vf y = vec_load(p->y.data, t * n + i, n - i, p->y.dt);
            vec_store(p->y.data, t * n + i, n - i, p->y.dt, vec_fma(vec_set(p->scale), sum, y));
        }
}

void OP(scatter_add)(device *d, tensor y, tensor x, tensor gates, tensor inverse, float scale)
{
    scatter p = { y, x, gates.data, inverse.data, tensor_cols(&gates), scale };
    cpu_for(cpu_of(d), tensor_rows(&y), cpu_step(tensor_cols(&y) * 4 * (p.k + 2)), scatter_range,
            &p);
}

/* dst += src of one row; heads with the same destination (dst_head 0) are summed in f32 first. */
static void add_heads(const copy_heads *p, void *dst, const void *src)
{
    int64_t places = p->dst_head ? p->n_heads : 1, each = p->dst_head ? 1 : p->n_heads;
    for (int64_t place = 0; place < places; place++)
        for (int64_t i = 0; i < p->n; i += VEC_LANES) {
            int64_t at = p->dst_head * place + p->dst_col + i;
            vf total = vec_load(dst, at, p->n - i, p->dst.dt);
            for (int64_t h = place * each; h < (place + 1) * each; h++)
                total += vec_load(src, p->src_head * h + p->src_col + i, p->n - i, p->src.dt);
            vec_store(dst, at, p->n - i, p->dst.dt, total);
        }
}

static void copy_heads_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const copy_heads *p = ctx;
    for (int64_t t = begin; t < end; t++) {
        void *dst = vec_at(p->dst.data, t * tensor_cols(&p->dst), p->dst.dt);
        const void *src = vec_at_const(p->src.data, t * tensor_cols(&p->src), p->src.dt);
        if (p->accumulate)
            add_heads(p, dst, src);
        for (int64_t h = 0; h < p->n_heads && !p->accumulate; h++)
            vec_copy(vec_at(dst, p->dst_head * h + p->dst_col, p->dst.dt), p->dst.dt,
                     vec_at_const(src, p->src_head * h + p->src_col, p->src.dt), p->src.dt, p->n);
    }
}

void OP(copy_heads)(device *d, const copy_heads *a)
{
    cpu_for(cpu_of(d), tensor_rows(&a->dst), cpu_step((int64_t)a->n_heads * a->n * 8),
            copy_heads_range, a);
}

/* ---- backward ---- */

enum { COLUMNS = 64 }; /* of a range */

typedef struct sum {
    tensor out, x;
    const int32_t *ids; /* row of out for each row of x, or offsets of experts; NULL: row 0 */
} sum;

static void add_row(void *dst, dtype dst_dt, const void *src, dtype src_dt, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(dst, i, n - i, dst_dt,
                  vec_load(dst, i, n - i, dst_dt) + vec_load(src, i, n - i, src_dt));
}

static void embed_bwd_columns(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sum *p = ctx;
    int64_t n = tensor_cols(&p->out), rows = tensor_rows(&p->x), n_out = tensor_rows(&p->out);
    float *out = p->out.data;
    for (int64_t r = 0; r < rows; r++) {
        ASSERT(p->ids[r] >= 0 && p->ids[r] < n_out);
        add_row(out + p->ids[r] * n + begin, DT_F32,
                vec_at_const(p->x.data, r * n + begin, p->x.dt), p->x.dt, end - begin);
    }
}

void OP(embed_bwd)(device *d, tensor dtable, tensor dout, tensor ids)
{
    sum p = { dtable, dout, ids.data };
    cpu_for(cpu_of(d), tensor_cols(&dtable), COLUMNS, embed_bwd_columns, &p);
}

static void sum_rows_columns(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sum *p = ctx;
    int64_t n = tensor_cols(&p->x), rows = tensor_rows(&p->x);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        vf total = vec_load(p->out.data, i, end - i, DT_F32);
        for (int64_t r = 0; r < rows; r++)
            total += vec_load(p->x.data, r * n + i, end - i, p->x.dt);
        vec_store(p->out.data, i, end - i, DT_F32, total);
    }
}

void OP(sum_rows)(device *d, tensor out, tensor x)
{
    sum p = { out, x, NULL };
    cpu_for(cpu_of(d), tensor_cols(&x), COLUMNS, sum_rows_columns, &p);
}

/* ---- biases ---- */

/* The expert of row r. */
static int64_t expert_of(const int32_t *offsets, int64_t r)
{
    int64_t e = 0;
    while (offsets && r >= offsets[e + 1])
        e++;
    return e;
}

static void add_bias_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sum *p = ctx;
    int64_t n = tensor_cols(&p->out);
    for (int64_t r = begin; r < end; r++)
        add_row(vec_at(p->out.data, r * n, p->out.dt), p->out.dt,
                (const float *)p->x.data + expert_of(p->ids, r) * n, DT_F32, n);
}

void OP(add_bias)(device *d, tensor y, tensor bias, tensor offsets)
{
    sum p = { y, bias, offsets.data };
    cpu_for(cpu_of(d), tensor_rows(&y), cpu_step(tensor_cols(&y) * 8), add_bias_rows, &p);
}

static void add_bias_bwd_columns(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const sum *p = ctx;
    int64_t n = tensor_cols(&p->x), rows = tensor_rows(&p->x);
    float *out = p->out.data;
    for (int64_t r = 0; r < rows; r++)
        add_row(out + expert_of(p->ids, r) * n + begin, DT_F32,
                vec_at_const(p->x.data, r * n + begin, p->x.dt), p->x.dt, end - begin);
}

void OP(add_bias_bwd)(device *d, tensor dbias, tensor dy, tensor offsets)
{
    sum p = { dbias, dy, offsets.data };
    cpu_for(cpu_of(d), tensor_cols(&dy), COLUMNS, add_bias_bwd_columns, &p);
}

typedef struct gather_bwd {
    tensor dx, dout;
    const int32_t *inverse;
    int32_t k;
    bool accumulate;
} gather_bwd;

static void gather_bwd_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const gather_bwd *p = ctx;
    int64_t n = tensor_cols(&p->dx);
    for (int64_t t = begin; t < end; t++)
        for (int64_t i = 0; i < n; i += VEC_LANES) {
            vf total = { 0 };
            if (p->accumulate)
                total = vec_load(p->dx.data, t * n + i, n - i, p->dx.dt);
            for (int64_t slot = t * p->k; slot < (t + 1) * p->k; slot++)
                total += vec_load(p->dout.data, p->inverse[slot] * n + i, n - i, p->dout.dt);
            vec_store(p->dx.data, t * n + i, n - i, p->dx.dt, total);
        }
}

void OP(gather_rows_bwd)(device *d, tensor dx, tensor dout, tensor inverse, int32_t k,
                         bool accumulate)
{
    gather_bwd p = { dx, dout, inverse.data, k, accumulate };
    cpu_for(cpu_of(d), tensor_rows(&dx), cpu_step(tensor_cols(&dx) * 4 * (k + 1)), gather_bwd_range,
            &p);
}

static void scatter_bwd_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const scatter_bwd *p = ctx;
    int64_t n = tensor_cols(&p->dy), k = tensor_cols(&p->gates);
    const float *gates = p->gates.data;
    const int32_t *inverse = p->inverse.data;
    float *dgates = p->dgates.data;
    for (int64_t slot = begin * k; slot < end * k; slot++) {
        const void *dy = vec_at_const(p->dy.data, slot / k * n, p->dy.dt);
        const void *x = vec_at_const(p->x.data, inverse[slot] * n, p->x.dt);
        void *dx = vec_at(p->dx.data, inverse[slot] * n, p->dx.dt);
        dgates[slot] = p->scale * vec_dot(dy, p->dy.dt, x, p->x.dt, n);
        vf factor = vec_set(p->scale * gates[slot]);
        for (int64_t i = 0; i < n; i += VEC_LANES)
            vec_store(dx, i, n - i, p->dx.dt, factor * vec_load(dy, i, n - i, p->dy.dt));
    }
}

void OP(scatter_add_bwd)(device *d, const scatter_bwd *a)
{
    int64_t n = tensor_cols(&a->dy), k = tensor_cols(&a->gates);
    cpu_for(cpu_of(d), tensor_rows(&a->dy), cpu_step(n * k * 12), scatter_bwd_range, a);
}

typedef struct row_dots {
    float *y; /* [rows,width] */
    tensor a, b;
    int64_t width, column;
    float scale;
} row_dots;

static void dot_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const row_dots *p = ctx;
    int64_t n = tensor_cols(&p->a);
    for (int64_t t = begin; t < end; t++)
        p->y[t * p->width + p->column] +=
            p->scale * vec_dot(vec_at_const(p->a.data, t * n, p->a.dt), p->a.dt,
                               vec_at_const(p->b.data, t * n, p->b.dt), p->b.dt, n);
}

void OP(dot_rows)(device *d, tensor y, tensor a, tensor b, int32_t column, float scale)
{
    row_dots p = { y.data, a, b, tensor_cols(&y), column, scale };
    cpu_for(cpu_of(d), tensor_rows(&a), cpu_step(tensor_cols(&a) * 8), dot_range, &p);
}
