/* attention_bwd: gradients of attention, from the log-sum-exp that forward kept.
 *
 * With P_ij = e^(scale q_i.k_j - lse_i), D_i = dO_i.O_i and dS_ij = scale P_ij (dO_i.v_j - D_i):
 *     dq_i = sum_j dS_ij k_j      dk_j = sum_i dS_ij q_i      dv_j = sum_i P_ij dO_i
 * P is computed twice: once by the owners of query rows, once by the owners of keys. So every
 * gradient has one owner that sums it in a fixed order, with all threads busy and nothing shared.
 *
 * Within a key head, the query rows of all heads that share it are numbered token by token: row
 * r is head r % group of token r / group. Both passes work on tiles of 64 rows by 64 keys; in the
 * second the roles are swapped (keys are the rows of the products), so that tile.h serves both. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/tile.h"
#include "backend/cpu/ops/vmath.h"

enum { TILE = 64, MAX_DIM = 1024 };

/* One sequence and key head. */
typedef struct view {
    const attention_bwd *b;
    int64_t first, tokens; /* rows of the pass */
    int32_t group, kv_head;
    int64_t k_pad, v_pad;
} view;

/* 64 rows, as they are and transposed; f32. */
typedef struct pair {
    float *rows, *columns; /* [64][pad] [pad][64] */
} pair;

static const float zeros[MAX_DIM];

/* Query-like rows [r, r + n) of x [T, heads*dim]. */
static void query_rows(const view *w, const tensor *x, int32_t dim, int64_t r, int64_t n,
                       const void *out[TILE])
{
    const attention *a = &w->b->fwd;
    for (int64_t i = 0; i < TILE; i++) {
        int64_t t = w->first + (r + i) / w->group, h = w->kv_head * w->group + (r + i) % w->group;
        out[i] = i < n ? vec_at_const(x->data, (t * a->n_heads + h) * dim, x->dt) : zeros;
    }
}

/* Key-like rows: tokens [t, t + n) of x [T, kv_heads*dim]. */
static void key_rows(const view *w, const tensor *x, int32_t dim, int64_t t, int64_t n,
                     const void *out[TILE])
{
    int64_t kv = w->b->fwd.n_kv_heads;
    for (int64_t i = 0; i < TILE; i++)
        out[i] = i < n ? vec_at_const(x->data, ((w->first + t + i) * kv + w->kv_head) * dim, x->dt)
                       : zeros;
}

static void load_pair(pair p, const void *const from[TILE], int64_t dim, int64_t pad, dtype dt)
{
    for (int64_t i = 0; i < TILE && p.rows; i++)
        for (int64_t j = 0; j < dim; j += VEC_LANES)
            *(vf *)(p.rows + i * pad + j) = vec_load(from[i], j, dim - j, dt);
    for (int64_t i = 0; i < TILE && p.columns; i += 4)
        if (dt == DT_F32)
            tile_transpose4(p.columns + i, TILE, from + i, dim, DT_F32);
        else
            tile_transpose4(p.columns + i, TILE, from + i, dim, DT_BF16);
}

/* out [rows][cols] (+)= a [rows][n] b [n][cols] */
static void product(float *out, int64_t out_stride, const float *a, int64_t a_stride,
                    const float *b, int64_t b_stride, tile shape)
{
    shape.out = out;
    shape.a = a;
    shape.b = b;
    shape.out_stride = out_stride;
    shape.a_stride = a_stride;
    shape.b_stride = b_stride;
    tile_product(&shape);
}

/* P and dS of one query against a vector of keys, or one key against a vector of queries; nothing
 * where `seen` is not set. */
static void weigh(float *s, float *dp, vi seen, vf lse, vf delta, float scale)
{
    vf p = vmath_exp(*(vf *)s * scale - lse), none = { 0 };
    p = vec_select(seen, p, none);
    *(vf *)dp = vec_select(seen, p * (*(vf *)dp - delta) * scale, none);
    *(vf *)s = p;
}

static vi lane_numbers(int64_t first)
{
    int32_t n[VEC_LANES];
    vi v;
    for (int i = 0; i < VEC_LANES; i++)
        n[i] = (int32_t)first + i;
    memcpy(&v, n, sizeof v);
    return v;
}

static void store_rows(const float *rows, int64_t pad, int64_t n, int64_t dim, const tensor *to,
                       const void *const at[TILE])
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < dim; j += VEC_LANES)
            vec_store((void *)(uintptr_t)at[i], j, dim - j, to->dt,
                      *(const vf *)(rows + i * pad + j));
}

/* ---- dq: 64 query rows against all keys they see ---- */

static void dq_tile(const view *w, int64_t r, int64_t n, float *room)
{
    const attention_bwd *b = w->b;
    const attention *a = &b->fwd;
    float *s = room, *dp = s + TILE * TILE, *dq = dp + TILE * TILE;
    pair q = { dq + TILE * w->k_pad, NULL }, out = { q.rows + TILE * w->k_pad, NULL };
    pair k = { out.rows + TILE * w->v_pad, out.rows + TILE * (w->v_pad + w->k_pad) };
    pair v = { NULL, k.columns + TILE * w->k_pad };
    const void *from[TILE];
    query_rows(w, &a->q, a->qk_dim, r, n, from);
    load_pair(q, from, a->qk_dim, w->k_pad, a->q.dt);
    query_rows(w, &b->dout, a->v_dim, r, n, from);
    load_pair(out, from, a->v_dim, w->v_pad, b->dout.dt);
    memset(dq, 0, (size_t)(TILE * w->k_pad) * sizeof *dq);
    int64_t first_token = r / w->group, last_token = (r + n - 1) / w->group;
    int64_t low =
        a->window > 0 && first_token - a->window + 1 > 0 ? first_token - a->window + 1 : 0;
    for (int64_t base = low / TILE * TILE; base <= last_token; base += TILE) {
        int64_t keys = w->tokens - base < TILE ? w->tokens - base : TILE;
        key_rows(w, &a->k, a->qk_dim, base, keys, from);
        load_pair(k, from, a->qk_dim, w->k_pad, a->k.dt);
        key_rows(w, &a->v, a->v_dim, base, keys, from);
        load_pair(v, from, a->v_dim, w->v_pad, a->v.dt);
        product(s, TILE, q.rows, w->k_pad, k.columns, TILE,
                (tile){ .rows = n, .n = a->qk_dim, .cols = TILE, .fresh = true });
        product(dp, TILE, out.rows, w->v_pad, v.columns, TILE,
                (tile){ .rows = n, .n = a->v_dim, .cols = TILE, .fresh = true });
        for (int64_t i = 0; i < n; i++) {
            int64_t t = (r + i) / w->group, h = w->kv_head * w->group + (r + i) % w->group;
            int64_t at = (w->first + t) * a->n_heads + h;
            int32_t from_key = (int32_t)(a->window > 0 ? t - a->window - base : -1);
            for (int64_t j = 0; j < TILE; j += VEC_LANES) {
                vi key = lane_numbers(j);
                weigh(s + i * TILE + j, dp + i * TILE + j,
                      (key <= (int32_t)(t - base)) & (key > from_key),
                      vec_set(((const float *)a->lse.data)[at]),
                      vec_set(((const float *)b->delta.data)[at]), a->scale);
            }
        }
        product(dq, w->k_pad, dp, TILE, k.rows, w->k_pad,
                (tile){ .rows = n, .n = keys, .cols = w->k_pad });
    }
    query_rows(w, &b->dq, a->qk_dim, r, n, from);
    store_rows(dq, w->k_pad, n, a->qk_dim, &b->dq, from);
}

/* ---- dk, dv: 64 keys against all query rows that see them ---- */

static void load_queries(const view *w, int64_t r, int64_t n, pair q, pair out, float *lse,
                         float *delta)
{
    const attention_bwd *b = w->b;
    const attention *a = &b->fwd;
    const void *from[TILE];
    query_rows(w, &a->q, a->qk_dim, r, n, from);
    load_pair(q, from, a->qk_dim, w->k_pad, a->q.dt);
    query_rows(w, &b->dout, a->v_dim, r, n, from);
    load_pair(out, from, a->v_dim, w->v_pad, b->dout.dt);
    for (int64_t i = 0; i < TILE; i++) {
        int64_t t = w->first + (r + i) / w->group, h = w->kv_head * w->group + (r + i) % w->group;
        lse[i] = i < n ? ((const float *)a->lse.data)[t * a->n_heads + h] : 0.0f;
        delta[i] = i < n ? ((const float *)b->delta.data)[t * a->n_heads + h] : 0.0f;
    }
}

static void dkv_tile(const view *w, int64_t base, int64_t keys, float *room)
{
    const attention_bwd *b = w->b;
    const attention *a = &b->fwd;
    float *s = room, *dp = s + TILE * TILE, *lse = dp + TILE * TILE, *delta = lse + TILE;
    float *dk = delta + TILE, *dv = dk + TILE * w->k_pad;
    pair k = { dv + TILE * w->v_pad, NULL }, v = { k.rows + TILE * w->k_pad, NULL };
    pair q = { v.rows + TILE * w->v_pad, v.rows + TILE * (w->v_pad + w->k_pad) };
    pair out = { q.columns + TILE * w->k_pad, q.columns + TILE * (w->k_pad + w->v_pad) };
    const void *from[TILE];
    key_rows(w, &a->k, a->qk_dim, base, keys, from);
    load_pair(k, from, a->qk_dim, w->k_pad, a->k.dt);
    key_rows(w, &a->v, a->v_dim, base, keys, from);
    load_pair(v, from, a->v_dim, w->v_pad, a->v.dt);
    memset(dk, 0, (size_t)(TILE * (w->k_pad + w->v_pad)) * sizeof *dk);
    int64_t end = a->window > 0 && base + keys - 1 + a->window < w->tokens
                      ? base + keys - 1 + a->window
                      : w->tokens;
    for (int64_t r = base * w->group; r < end * w->group; r += TILE) {
        int64_t n = end * w->group - r < TILE ? end * w->group - r : TILE;
        load_queries(w, r, n, q, out, lse, delta);
        product(s, TILE, k.rows, w->k_pad, q.columns, TILE,
                (tile){ .rows = keys, .n = a->qk_dim, .cols = TILE, .fresh = true });
        product(dp, TILE, v.rows, w->v_pad, out.columns, TILE,
                (tile){ .rows = keys, .n = a->v_dim, .cols = TILE, .fresh = true });
        for (int64_t i = 0; i < keys; i++)
            for (int64_t j = 0; j < TILE; j += VEC_LANES) {
                /* token >= key and token < key + window, in rows, which are group for a token */
                vi row = lane_numbers(r + j);
                vi seen = row >= (int32_t)((base + i) * w->group);
                if (a->window > 0)
                    seen &= row < (int32_t)((base + i + a->window) * w->group);
                weigh(s + i * TILE + j, dp + i * TILE + j, seen, *(vf *)(lse + j),
                      *(vf *)(delta + j), a->scale);
            }
        product(dv, w->v_pad, s, TILE, out.rows, w->v_pad,
                (tile){ .rows = keys, .n = n, .cols = w->v_pad });
        product(dk, w->k_pad, dp, TILE, q.rows, w->k_pad,
                (tile){ .rows = keys, .n = n, .cols = w->k_pad });
    }
    key_rows(w, &b->dk, a->qk_dim, base, keys, from);
    store_rows(dk, w->k_pad, keys, a->qk_dim, &b->dk, from);
    key_rows(w, &b->dv, a->v_dim, base, keys, from);
    store_rows(dv, w->v_pad, keys, a->v_dim, &b->dv, from);
}

/* ---- cutting the work ---- */

typedef struct plan {
    const attention_bwd *b;
    bool keys; /* the pass over keys; else over query rows */
} plan;

static int64_t units_of(const plan *p, int32_t seq)
{
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t rows = starts[seq + 1] - starts[seq];
    if (!p->keys)
        rows *= a->n_heads / a->n_kv_heads;
    return (rows + TILE - 1) / TILE;
}

static void unit_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* one unit a range */
    const plan *p = ctx;
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t unit = begin / a->n_kv_heads;
    int32_t seq = 0;
    while (unit >= units_of(p, seq))
        unit -= units_of(p, seq++);
    view w = { .b = p->b,
               .first = starts[seq],
               .tokens = starts[seq + 1] - starts[seq],
               .group = a->n_heads / a->n_kv_heads,
               .kv_head = (int32_t)(begin % a->n_kv_heads),
               .k_pad = (a->qk_dim + 15) / 16 * 16,
               .v_pad = (a->v_dim + 15) / 16 * 16 };
    int64_t first = unit * TILE, rows = p->keys ? w.tokens : w.tokens * w.group;
    int64_t n = rows - first < TILE ? rows - first : TILE;
    (p->keys ? dkv_tile : dq_tile)(&w, first, n, scratch);
}

static void delta_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const attention_bwd *b = ctx;
    int64_t dim = b->fwd.v_dim;
    float *delta = b->delta.data;
    for (int64_t i = begin; i < end; i++)
        delta[i] =
            vec_dot(vec_at_const(b->dout.data, i * dim, b->dout.dt), b->dout.dt,
                    vec_at_const(b->fwd.out.data, i * dim, b->fwd.out.dt), b->fwd.out.dt, dim);
}

void OP(attention_bwd)(device *d, const attention_bwd *b)
{
    const attention *a = &b->fwd;
    ASSERT(!a->kv && a->n_heads % a->n_kv_heads == 0);
    ASSERT(a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM);
    cpu_for(cpu_of(d), tensor_rows(&a->q) * a->n_heads, cpu_step((int64_t)a->v_dim * 8), delta_rows,
            b);
    for (int pass = 0; pass < 2; pass++) {
        plan p = { b, pass == 1 };
        int64_t units = 0;
        for (int32_t s = 0; s + 1 < a->starts.ne[0]; s++)
            units += units_of(&p, s);
        cpu_for(cpu_of(d), units * a->n_kv_heads, 1, unit_range, &p);
    }
}
