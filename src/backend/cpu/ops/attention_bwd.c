/* attention_bwd: gradients of attention, from the log-sum-exp that forward stored.
 *
 * With P_ij = e^(scale q_i.k_j - lse_i), D_i = dO_i.O_i and dS_ij = scale P_ij (dO_i.v_j - D_i):
 *     dq_i = sum_j dS_ij k_j      dk_j = sum_i dS_ij q_i      dv_j = sum_i P_ij dO_i
 * With a soft cap the score is cap t with t = tanh(scale q_i.k_j / cap), and dS_ij has the factor
 * 1 - t^2.
 *
 * Within a key head, the query rows of all heads that share it are numbered token by token: row r
 * is head r % group of token r / group. Query rows and keys of a sequence are divided into tiles of
 * 64, counted from its first. A gradient is the sum over its tiles in order, each a product of the
 * engine (panel.h); in bf16, P and dS are rounded to bf16 for it.
 *
 * Each gradient is summed by one thread. If whole sequences and key heads keep all threads busy,
 * one thread computes all gradients of a sequence and key head, and P once. Otherwise the tiles of
 * query rows are distributed first, then the tiles of keys, and P is computed twice. The tiles and
 * their order, and so the bits, are the same. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/panel.h"
#include "backend/cpu/ops/vmath.h"
#include "base/arena.h"

enum { TILE = 64 };

typedef struct plan {
    const attention_bwd *b;
    const mm_engine *engine;
    bool dq, dkv;                               /* what these jobs compute */
    int64_t k_elements, v_elements, t_elements; /* of a key, of a value, of TILE rows or keys */
    int64_t k_pad, v_pad;                       /* qk_dim and v_dim in whole panels */
} plan;

/* One sequence and key head. */
typedef struct head_view {
    const plan *p;
    int64_t first, tokens; /* rows of the pass */
    int32_t group, kv_head;
    float *s, *dp;       /* [64][64]: scores, then P; dO.v, then dS */
    mm_element *weights; /* P or dS, packed as rows */
    void *buffer;        /* 64 query rows, gathered before they are packed */
} head_view;

/* A tile of 64 query rows: q and dO packed, and the sum dq. */
typedef struct queries {
    int64_t r, n;
    mm_element *q, *out;                       /* rows */
    mm_element *q_transposed, *out_transposed; /* panels of q^T and dO^T */
    float *dq;                                 /* [64][k_pad] */
    float *lse, *delta;                        /* [64] */
} queries;

/* A tile of 64 keys: k and v packed, and the sums dk and dv. */
typedef struct keys {
    int64_t base, n;
    mm_element *k, *v;        /* panels */
    mm_element *k_transposed; /* panels of k^T */
    float *dk, *dv;           /* [64][k_pad], [64][v_pad] */
} keys;

/* ---- memory ---- */

static void *take_elements(arena *a, int64_t words)
{
    return arena_take(a, (size_t)words * 4);
}

static void layout_view(head_view *w, arena *a)
{
    const plan *p = w->p;
    w->s = take_elements(a, TILE * TILE);
    w->dp = take_elements(a, TILE * TILE);
    w->weights = take_elements(a, panel_rows_size(TILE, p->t_elements));
    w->buffer = take_elements(a, TILE * (p->k_pad > p->v_pad ? p->k_pad : p->v_pad));
}

static void layout_queries(const plan *p, queries *q, arena *a)
{
    *q = (queries){ .q = take_elements(a, panel_rows_size(TILE, p->k_elements)) };
    q->out = take_elements(a, panel_rows_size(TILE, p->v_elements));
    q->q_transposed = take_elements(a, panel_columns_size(p->k_pad, p->t_elements));
    q->out_transposed = take_elements(a, panel_columns_size(p->v_pad, p->t_elements));
    q->dq = take_elements(a, TILE * p->k_pad);
    q->lse = take_elements(a, TILE);
    q->delta = take_elements(a, TILE);
}

static void layout_keys(const plan *p, keys *k, arena *a)
{
    *k = (keys){ .k = take_elements(a, panel_columns_size(TILE, p->k_elements)) };
    k->v = take_elements(a, panel_columns_size(TILE, p->v_elements));
    k->k_transposed = take_elements(a, panel_columns_size(p->k_pad, p->t_elements));
    k->dk = take_elements(a, TILE * p->k_pad);
    k->dv = take_elements(a, TILE * p->v_pad);
}

/* Whether the scratch of a worker holds a tile of queries and n tiles of keys. */
static bool fits(const plan *p, int64_t n)
{
    head_view w = { .p = p };
    queries q;
    keys k;
    arena fixed = { 0 }, each = { 0 };
    layout_view(&w, &fixed);
    layout_queries(p, &q, &fixed);
    layout_keys(p, &k, &each);
    arena_take(&each, sizeof k);
    return fixed.used + each.used * (size_t)n <= CPU_SCRATCH;
}

/* ---- loading and storing ---- */

/* Query row r of x [T, heads*dim]. */
static void *query_row(const head_view *w, const tensor *x, int64_t dim, int64_t r)
{
    int64_t t = w->first + r / w->group, h = w->kv_head * w->group + r % w->group;
    return vec_at(x->data, (t * w->p->b->fwd.n_heads + h) * dim, x->dt);
}

/* Key row t of x [T, kv_heads*dim]. */
static void *key_row(const head_view *w, const tensor *x, int64_t dim, int64_t t)
{
    int64_t at = (w->first + t) * w->p->b->fwd.n_kv_heads + w->kv_head;
    return vec_at(x->data, at * dim, x->dt);
}

/* Packs the rows of a tile of x, and where needed their transpose. */
static void load_rows(const head_view *w, const tensor *x, int64_t dim, const queries *q,
                      mm_element *rows, mm_element *panels)
{
    const plan *p = w->p;
    size_t bytes = (size_t)dim * (x->dt == DT_F32 ? 4 : 2);
    for (int64_t i = 0; i < q->n; i++)
        memcpy((char *)w->buffer + (size_t)i * bytes, query_row(w, x, dim, q->r + i), bytes);
    mm_operand operand = panel_operand(w->buffer, x->dt, q->n, dim),
               transposed = panel_transposed(operand);
    panel_pack_rows(p->engine, rows, &operand, TILE, panel_elements(p->engine, dim));
    if (p->dkv)
        panel_pack_columns(p->engine, panels, &transposed, p->t_elements);
}

static void load_queries(const head_view *w, int64_t r, queries *q)
{
    const plan *p = w->p;
    const attention *a = &p->b->fwd;
    int64_t rows = w->tokens * w->group;
    q->r = r;
    q->n = rows - r < TILE ? rows - r : TILE;
    load_rows(w, &a->q, a->qk_dim, q, q->q, q->q_transposed);
    load_rows(w, &p->b->dout, a->v_dim, q, q->out, q->out_transposed);
    for (int64_t i = 0; i < q->n; i++) {
        int64_t t = w->first + (r + i) / w->group, h = w->kv_head * w->group + (r + i) % w->group;
        q->lse[i] = ((const float *)a->lse.data)[t * a->n_heads + h];
        q->delta[i] = ((const float *)p->b->delta.data)[t * a->n_heads + h];
    }
    memset(q->dq, 0, (size_t)(TILE * p->k_pad) * sizeof *q->dq);
}

static void load_keys(const head_view *w, int64_t base, keys *k)
{
    const plan *p = w->p;
    const attention *a = &p->b->fwd;
    k->base = base;
    k->n = w->tokens - base < TILE ? w->tokens - base : TILE;
    mm_operand key = panel_operand(key_row(w, &a->k, a->qk_dim, base), a->k.dt, k->n, a->qk_dim);
    mm_operand value = panel_operand(key_row(w, &a->v, a->v_dim, base), a->v.dt, k->n, a->v_dim);
    key.ld *= a->n_kv_heads;
    value.ld *= a->n_kv_heads;
    mm_operand transposed = panel_transposed(key);
    panel_pack_columns(p->engine, k->k, &key, p->k_elements);
    panel_pack_columns(p->engine, k->v, &value, p->v_elements);
    if (p->dq)
        panel_pack_columns(p->engine, k->k_transposed, &transposed, p->t_elements);
    memset(k->dk, 0, (size_t)(TILE * p->k_pad) * sizeof *k->dk);
    memset(k->dv, 0, (size_t)(TILE * p->v_pad) * sizeof *k->dv);
}

static void store_row(void *out, dtype dt, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(out, i, n - i, dt, *(const vf *)(x + i));
}

static void store_queries(const head_view *w, const queries *q)
{
    const tensor *to = &w->p->b->dq;
    int64_t dim = w->p->b->fwd.qk_dim;
    for (int64_t i = 0; i < q->n; i++)
        store_row(query_row(w, to, dim, q->r + i), to->dt, q->dq + i * w->p->k_pad, dim);
}

static void store_keys(const head_view *w, const keys *k)
{
    const attention_bwd *b = w->p->b;
    int64_t k_dim = b->fwd.qk_dim, v_dim = b->fwd.v_dim;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t t = k->base + i;
        store_row(key_row(w, &b->dk, k_dim, t), b->dk.dt, k->dk + i * w->p->k_pad, k_dim);
        store_row(key_row(w, &b->dv, v_dim, t), b->dv.dt, k->dv + i * w->p->v_pad, v_dim);
    }
}

/* ---- a tile of queries times a tile of keys ---- */

/* Whether any row of the tile at r attends to any key of the tile at base. */
static bool sees(const head_view *w, int64_t r, int64_t base)
{
    int64_t window = w->p->b->fwd.window, first = r / w->group, last = (r + TILE - 1) / w->group;
    return base <= last && base < w->tokens && (window <= 0 || base + TILE > first - window + 1);
}

/* P and dS of one row; zeros for keys outside (low, high]. */
static void weights_of_row(float *s, float *dp, int32_t low, int32_t high, float lse, float delta,
                           const attention *a)
{
    vf none = { 0 };
    for (int32_t j = 0; j < TILE; j += VEC_LANES) {
        vi key = vec_numbers() + j;
        vi seen = vec_int_less(vec_set_int(low), key) & ~vec_int_less(vec_set_int(high), key);
        vf score = *(vf *)(s + j) * a->scale, slope = vec_set(a->scale);
        if (a->softcap > 0) {
            vf t = vmath_tanh(score / a->softcap);
            score = t * a->softcap;
            slope *= 1.0f - t * t;
        }
        vf p = vmath_exp(score - lse);
        vf ds = p * (*(vf *)(dp + j) - delta) * slope;
        *(vf *)(s + j) = vec_select(seen, p, none);
        *(vf *)(dp + j) = vec_select(seen, ds, none);
    }
}

static void weights_of_tile(const head_view *w, const queries *q, const keys *k)
{
    const attention *a = &w->p->b->fwd;
    for (int64_t i = 0; i < q->n; i++) {
        int64_t t = (q->r + i) / w->group - k->base;
        int64_t low = a->window > 0 ? t - a->window : -1;
        weights_of_row(w->s + i * TILE, w->dp + i * TILE, (int32_t)(low < -1 ? -1 : low),
                       (int32_t)(t < k->n ? t : k->n - 1), q->lse[i], q->delta[i], a);
    }
}

/* out [keys][pad] += x^T y, where x [n][64] is P or dS and y is packed as `panels`. */
static void add_to_keys(const head_view *w, float *out, int64_t pad, const float *x,
                        const queries *q, const keys *k, const mm_element *panels)
{
    const plan *p = w->p;
    mm_operand operand = panel_operand(x, DT_F32, q->n, TILE),
               transposed = panel_transposed(operand);
    transposed.n = k->n;
    panel_pack_rows(p->engine, w->weights, &transposed, TILE, p->t_elements);
    panel_multiply(p->engine,
                   (mm_tile){ .sums = out,
                              .ld = pad,
                              .rows = w->weights,
                              .panel = panels,
                              .n_rows = k->n,
                              .n_elements = p->t_elements,
                              .add = true },
                   TILE, pad);
}

static void multiply_tiles(const head_view *w, const queries *q, const keys *k)
{
    const plan *p = w->p;
    const mm_engine *engine = p->engine;
    mm_tile t = { .sums = w->s, .ld = TILE, .n_rows = q->n };
    t.rows = q->q;
    t.panel = k->k;
    t.n_elements = p->k_elements;
    panel_multiply(engine, t, TILE, k->n);
    t.sums = w->dp;
    t.rows = q->out;
    t.panel = k->v;
    t.n_elements = p->v_elements;
    panel_multiply(engine, t, TILE, k->n);
    weights_of_tile(w, q, k);
    if (p->dkv) {
        add_to_keys(w, k->dv, p->v_pad, w->s, q, k, q->out_transposed);
        add_to_keys(w, k->dk, p->k_pad, w->dp, q, k, q->q_transposed);
    }
    if (p->dq) {
        mm_operand operand = panel_operand(w->dp, DT_F32, q->n, TILE);
        panel_pack_rows(engine, w->weights, &operand, TILE, p->t_elements);
        panel_multiply(engine,
                       (mm_tile){ .sums = q->dq,
                                  .ld = p->k_pad,
                                  .rows = w->weights,
                                  .panel = k->k_transposed,
                                  .n_rows = q->n,
                                  .n_elements = p->t_elements,
                                  .add = true },
                       TILE, p->k_pad);
    }
}

/* ---- jobs: gradients that one thread sums ---- */

typedef struct workspace {
    queries q;
    keys *k; /* one tile, or all of a sequence */
} workspace;

static workspace layout_all(head_view *w, int64_t key_tiles, void *scratch)
{
    arena a = { .base = scratch, .size = CPU_SCRATCH };
    workspace m;
    layout_view(w, &a);
    layout_queries(w->p, &m.q, &a);
    m.k = arena_take(&a, (size_t)key_tiles * sizeof *m.k);
    for (int64_t i = 0; i < key_tiles; i++)
        layout_keys(w->p, &m.k[i], &a);
    return m;
}

static void gradients_of_queries(head_view *w, int64_t r, void *scratch)
{
    workspace m = layout_all(w, 1, scratch);
    load_queries(w, r, &m.q);
    for (int64_t base = 0; base < w->tokens; base += TILE)
        if (sees(w, r, base)) {
            load_keys(w, base, m.k);
            multiply_tiles(w, &m.q, m.k);
        }
    store_queries(w, &m.q);
}

static void gradients_of_keys(head_view *w, int64_t base, void *scratch)
{
    workspace m = layout_all(w, 1, scratch);
    load_keys(w, base, m.k);
    for (int64_t r = 0; r < w->tokens * w->group; r += TILE)
        if (sees(w, r, base)) {
            load_queries(w, r, &m.q);
            multiply_tiles(w, &m.q, m.k);
        }
    store_keys(w, m.k);
}

static void gradients_of_sequence(head_view *w, void *scratch)
{
    int64_t n = (w->tokens + TILE - 1) / TILE;
    workspace m = layout_all(w, n, scratch);
    for (int64_t i = 0; i < n; i++)
        load_keys(w, i * TILE, &m.k[i]);
    for (int64_t r = 0; r < w->tokens * w->group; r += TILE) {
        load_queries(w, r, &m.q);
        for (int64_t i = 0; i < n; i++)
            if (sees(w, r, i * TILE))
                multiply_tiles(w, &m.q, &m.k[i]);
        store_queries(w, &m.q);
    }
    for (int64_t i = 0; i < n; i++)
        store_keys(w, &m.k[i]);
}

/* ---- dividing the work ---- */

/* The number of jobs of a sequence, for each key head. */
static int64_t jobs_of(const plan *p, int32_t seq)
{
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t rows = starts[seq + 1] - starts[seq];
    if (p->dq && p->dkv)
        return rows > 0;
    if (p->dq)
        rows *= a->n_heads / a->n_kv_heads;
    return (rows + TILE - 1) / TILE;
}

static void run_job(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* a range is one job */
    const plan *p = ctx;
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t at = begin / a->n_kv_heads;
    int32_t seq = 0;
    while (at >= jobs_of(p, seq))
        at -= jobs_of(p, seq++);
    head_view w = { .p = p,
                    .first = starts[seq],
                    .tokens = starts[seq + 1] - starts[seq],
                    .group = a->n_heads / a->n_kv_heads,
                    .kv_head = (int32_t)(begin % a->n_kv_heads) };
    panel_configure(p->engine);
    if (p->dq && p->dkv)
        gradients_of_sequence(&w, scratch);
    else
        (p->dq ? gradients_of_queries : gradients_of_keys)(&w, at * TILE, scratch);
    panel_release(p->engine);
}

static void run_jobs(cpu_device *d, plan p, bool dq, bool dkv)
{
    int64_t jobs = 0;
    p.dq = dq;
    p.dkv = dkv;
    for (int32_t s = 0; s + 1 < p.b->fwd.starts.ne[0]; s++)
        jobs += jobs_of(&p, s);
    cpu_for(d, jobs * p.b->fwd.n_kv_heads, 1, run_job, &p);
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

/* Whether jobs of whole sequences are faster. They compute 5 products where jobs of tiles compute
 * 7, but may leave threads idle while the longest sequence is computed, and must fit the scratch.
 */
static bool by_sequence(const plan *p, int n_threads)
{
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t longest = 0, work = 0;
    for (int64_t s = 0; s + 1 < a->starts.ne[0]; s++) {
        int64_t n = starts[s + 1] - starts[s];
        longest = n > longest ? n : longest;
        work += n * n * a->n_kv_heads;
    }
    return longest * longest * 5 * n_threads <= work * 2 && fits(p, (longest + TILE - 1) / TILE);
}

void OP(attention_bwd)(device *d, const attention_bwd *b)
{
    cpu_device *c = cpu_of(d);
    const attention *a = &b->fwd;
    const mm_engine *engine = mm_engine_of(c->isa, a->q.dt);
    plan p = { .b = b,
               .engine = engine,
               .k_elements = panel_elements(engine, a->qk_dim),
               .v_elements = panel_elements(engine, a->v_dim),
               .t_elements = panel_elements(engine, TILE),
               .k_pad = num_round_up(a->qk_dim, MM_NR),
               .v_pad = num_round_up(a->v_dim, MM_NR) };
    ASSERT(!a->kv && a->n_heads % a->n_kv_heads == 0 && fits(&p, 1));
    cpu_for(c, tensor_rows(&a->q) * a->n_heads, cpu_step((int64_t)a->v_dim * 8), delta_rows, b);
    if (by_sequence(&p, c->n_threads)) {
        run_jobs(c, p, true, true);
        return;
    }
    run_jobs(c, p, true, false);
    run_jobs(c, p, false, true);
}
