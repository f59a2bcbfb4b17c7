/* attention_bwd: gradients of attention, from the log-sum-exp that forward kept.
 *
 * With P_ij = e^(scale q_i.k_j - lse_i), D_i = dO_i.O_i and dS_ij = scale P_ij (dO_i.v_j - D_i):
 *     dq_i = sum_j dS_ij k_j      dk_j = sum_i dS_ij q_i      dv_j = sum_i P_ij dO_i
 * Within a key head, the query rows of all heads that share it are numbered token by token: row
 * r is head r % group of token r / group. Rows and keys of a sequence meet in tiles of 64 by 64,
 * counted from its first. A gradient is the sum of its tiles in order, each a product of the
 * engine's (panel.h); in bf16, P and dS are rounded to bf16 for it.
 *
 * Who owns a gradient sums it. Where there are enough of them for all threads, an owner has a whole
 * sequence and key head, and computes P once. Else owners are tiles of query rows first, then of
 * keys, and both compute P. The tiles and their order, and so the bits, are the same. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/panel.h"
#include "backend/cpu/ops/vmath.h"
#include "base/arena.h"

enum { TILE = 64 };

typedef struct plan {
    const attention_bwd *b;
    const mm_engine *engine;
    bool dq, dkv;                      /* what this pass computes */
    int64_t k_words, v_words, t_words; /* of a key, of a value, of what a tile has for one of it */
    int64_t k_pad, v_pad;              /* numbers, in whole panels */
} plan;

/* One sequence and key head. */
typedef struct view {
    const plan *p;
    int64_t first, tokens; /* rows of the pass */
    int32_t group, kv_head;
    float *s, *dp;    /* [64][64]: scores, then P; dO.v, then dS */
    mm_word *weights; /* one of them, packed as rows */
    void *room;       /* 64 rows of queries, side by side */
} view;

/* 64 query rows, packed, and what is summed for them. */
typedef struct queries {
    int64_t r, n;
    mm_word *q, *out;               /* rows */
    mm_word *q_across, *out_across; /* columns: one for each of their numbers */
    float *dq;                      /* [64][k_pad] */
    float *lse, *delta;             /* [64] */
} queries;

/* 64 keys. */
typedef struct keys {
    int64_t base, n;
    mm_word *k, *v;  /* columns */
    mm_word *across; /* columns: one for each number of a key */
    float *dk, *dv;  /* [64][k_pad], [64][v_pad] */
} keys;

/* ---- memory ---- */

static void *take(arena *a, int64_t words)
{
    return arena_take(a, (size_t)words * 4);
}

static void layout_view(view *w, arena *a)
{
    const plan *p = w->p;
    w->s = take(a, TILE * TILE);
    w->dp = take(a, TILE * TILE);
    w->weights = take(a, panel_rows_room(TILE, p->t_words));
    w->room = take(a, TILE * (p->k_pad > p->v_pad ? p->k_pad : p->v_pad));
}

static void layout_queries(const plan *p, queries *q, arena *a)
{
    *q = (queries){ .q = take(a, panel_rows_room(TILE, p->k_words)) };
    q->out = take(a, panel_rows_room(TILE, p->v_words));
    q->q_across = take(a, panel_lanes_room(p->k_pad, p->t_words));
    q->out_across = take(a, panel_lanes_room(p->v_pad, p->t_words));
    q->dq = take(a, TILE * p->k_pad);
    q->lse = take(a, TILE);
    q->delta = take(a, TILE);
}

static void layout_keys(const plan *p, keys *k, arena *a)
{
    *k = (keys){ .k = take(a, panel_lanes_room(TILE, p->k_words)) };
    k->v = take(a, panel_lanes_room(TILE, p->v_words));
    k->across = take(a, panel_lanes_room(p->k_pad, p->t_words));
    k->dk = take(a, TILE * p->k_pad);
    k->dv = take(a, TILE * p->v_pad);
}

/* Whether the scratch of a worker holds a tile of queries and n of keys. */
static bool fits(const plan *p, int64_t n)
{
    view w = { .p = p };
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
static void *query_row(const view *w, const tensor *x, int64_t dim, int64_t r)
{
    int64_t t = w->first + r / w->group, h = w->kv_head * w->group + r % w->group;
    return vec_at(x->data, (t * w->p->b->fwd.n_heads + h) * dim, x->dt);
}

/* Key row t of x [T, kv_heads*dim]. */
static void *key_row(const view *w, const tensor *x, int64_t dim, int64_t t)
{
    int64_t at = (w->first + t) * w->p->b->fwd.n_kv_heads + w->kv_head;
    return vec_at(x->data, at * dim, x->dt);
}

/* Rows of a tile of x, packed both ways. */
static void load_rows(const view *w, const tensor *x, int64_t dim, const queries *q, mm_word *rows,
                      mm_word *across)
{
    const plan *p = w->p;
    size_t bytes = (size_t)dim * (x->dt == DT_F32 ? 4 : 2);
    for (int64_t i = 0; i < q->n; i++)
        memcpy((char *)w->room + (size_t)i * bytes, query_row(w, x, dim, q->r + i), bytes);
    mm_side side = panel_side(w->room, x->dt, q->n, dim), turned = panel_turned(side);
    panel_rows(p->engine, rows, &side, TILE, panel_words(p->engine, dim));
    if (p->dkv)
        panel_lanes(p->engine, across, &turned, p->t_words);
}

static void load_queries(const view *w, int64_t r, queries *q)
{
    const plan *p = w->p;
    const attention *a = &p->b->fwd;
    int64_t rows = w->tokens * w->group;
    q->r = r;
    q->n = rows - r < TILE ? rows - r : TILE;
    load_rows(w, &a->q, a->qk_dim, q, q->q, q->q_across);
    load_rows(w, &p->b->dout, a->v_dim, q, q->out, q->out_across);
    for (int64_t i = 0; i < q->n; i++) {
        int64_t t = w->first + (r + i) / w->group, h = w->kv_head * w->group + (r + i) % w->group;
        q->lse[i] = ((const float *)a->lse.data)[t * a->n_heads + h];
        q->delta[i] = ((const float *)p->b->delta.data)[t * a->n_heads + h];
    }
    memset(q->dq, 0, (size_t)(TILE * p->k_pad) * sizeof *q->dq);
}

static void load_keys(const view *w, int64_t base, keys *k)
{
    const plan *p = w->p;
    const attention *a = &p->b->fwd;
    k->base = base;
    k->n = w->tokens - base < TILE ? w->tokens - base : TILE;
    mm_side key = panel_side(key_row(w, &a->k, a->qk_dim, base), a->k.dt, k->n, a->qk_dim);
    mm_side value = panel_side(key_row(w, &a->v, a->v_dim, base), a->v.dt, k->n, a->v_dim);
    key.ld *= a->n_kv_heads;
    value.ld *= a->n_kv_heads;
    mm_side across = panel_turned(key);
    panel_lanes(p->engine, k->k, &key, p->k_words);
    panel_lanes(p->engine, k->v, &value, p->v_words);
    if (p->dq)
        panel_lanes(p->engine, k->across, &across, p->t_words);
    memset(k->dk, 0, (size_t)(TILE * p->k_pad) * sizeof *k->dk);
    memset(k->dv, 0, (size_t)(TILE * p->v_pad) * sizeof *k->dv);
}

static void store_row(void *out, dtype dt, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES)
        vec_store(out, i, n - i, dt, *(const vf *)(x + i));
}

static void store_queries(const view *w, const queries *q)
{
    const tensor *to = &w->p->b->dq;
    int64_t dim = w->p->b->fwd.qk_dim;
    for (int64_t i = 0; i < q->n; i++)
        store_row(query_row(w, to, dim, q->r + i), to->dt, q->dq + i * w->p->k_pad, dim);
}

static void store_keys(const view *w, const keys *k)
{
    const attention_bwd *b = w->p->b;
    int64_t k_dim = b->fwd.qk_dim, v_dim = b->fwd.v_dim;
    for (int64_t i = 0; i < k->n; i++) {
        int64_t t = k->base + i;
        store_row(key_row(w, &b->dk, k_dim, t), b->dk.dt, k->dk + i * w->p->k_pad, k_dim);
        store_row(key_row(w, &b->dv, v_dim, t), b->dv.dt, k->dv + i * w->p->v_pad, v_dim);
    }
}

/* ---- a tile of queries meets a tile of keys ---- */

/* Whether any of these rows sees any of these keys. */
static bool sees(const view *w, int64_t r, int64_t base)
{
    int64_t window = w->p->b->fwd.window, first = r / w->group, last = (r + TILE - 1) / w->group;
    return base <= last && base < w->tokens && (window <= 0 || base + TILE > first - window + 1);
}

/* P and dS of one row; zeros for keys outside (low, high]. */
static void weigh(float *s, float *dp, int32_t low, int32_t high, float lse, float delta,
                  float scale)
{
    vf none = { 0 };
    for (int32_t j = 0; j < TILE; j += VEC_LANES) {
        vi key = vec_numbers() + j, seen = (key > low) & (key <= high);
        vf p = vmath_exp(*(vf *)(s + j) * scale - lse);
        vf ds = p * (*(vf *)(dp + j) - delta) * scale;
        *(vf *)(s + j) = vec_select(seen, p, none);
        *(vf *)(dp + j) = vec_select(seen, ds, none);
    }
}

static void weigh_tile(const view *w, const queries *q, const keys *k)
{
    const attention *a = &w->p->b->fwd;
    for (int64_t i = 0; i < q->n; i++) {
        int64_t t = (q->r + i) / w->group - k->base;
        int64_t low = a->window > 0 ? t - a->window : -1;
        weigh(w->s + i * TILE, w->dp + i * TILE, (int32_t)(low < -1 ? -1 : low),
              (int32_t)(t < k->n ? t : k->n - 1), q->lse[i], q->delta[i], a->scale);
    }
}

/* out [..][pad] += x^T across, where x [n][64] is s or dp: one row of out for each key. */
static void sum_for_keys(const view *w, float *out, int64_t pad, const float *x, const queries *q,
                         const keys *k, const mm_word *across)
{
    const plan *p = w->p;
    mm_side side = panel_side(x, DT_F32, q->n, TILE), turned = panel_turned(side);
    turned.n = k->n;
    panel_rows(p->engine, w->weights, &turned, TILE, p->t_words);
    panel_multiply(p->engine,
                   (mm_tile){ .sums = out,
                              .ld = pad,
                              .rows = w->weights,
                              .lanes = across,
                              .n_rows = k->n,
                              .nw = p->t_words,
                              .add = true },
                   TILE, pad);
}

static void meet(const view *w, const queries *q, const keys *k)
{
    const plan *p = w->p;
    const mm_engine *e = p->engine;
    mm_tile t = { .sums = w->s, .ld = TILE, .n_rows = q->n };
    t.rows = q->q;
    t.lanes = k->k;
    t.nw = p->k_words;
    panel_multiply(e, t, TILE, k->n);
    t.sums = w->dp;
    t.rows = q->out;
    t.lanes = k->v;
    t.nw = p->v_words;
    panel_multiply(e, t, TILE, k->n);
    weigh_tile(w, q, k);
    if (p->dkv) {
        sum_for_keys(w, k->dv, p->v_pad, w->s, q, k, q->out_across);
        sum_for_keys(w, k->dk, p->k_pad, w->dp, q, k, q->q_across);
    }
    if (p->dq) {
        mm_side side = panel_side(w->dp, DT_F32, q->n, TILE);
        panel_rows(e, w->weights, &side, TILE, p->t_words);
        panel_multiply(e,
                       (mm_tile){ .sums = q->dq,
                                  .ld = p->k_pad,
                                  .rows = w->weights,
                                  .lanes = k->across,
                                  .n_rows = q->n,
                                  .nw = p->t_words,
                                  .add = true },
                       TILE, p->k_pad);
    }
}

/* ---- owners ---- */

typedef struct room {
    queries q;
    keys *k; /* one, or all of a sequence */
} room;

static room layout(view *w, int64_t key_tiles, void *scratch)
{
    arena a = { .base = scratch, .size = CPU_SCRATCH };
    room m;
    layout_view(w, &a);
    layout_queries(w->p, &m.q, &a);
    m.k = arena_take(&a, (size_t)key_tiles * sizeof *m.k);
    for (int64_t i = 0; i < key_tiles; i++)
        layout_keys(w->p, &m.k[i], &a);
    return m;
}

static void own_queries(view *w, int64_t r, void *scratch)
{
    room m = layout(w, 1, scratch);
    load_queries(w, r, &m.q);
    for (int64_t base = 0; base < w->tokens; base += TILE)
        if (sees(w, r, base)) {
            load_keys(w, base, m.k);
            meet(w, &m.q, m.k);
        }
    store_queries(w, &m.q);
}

static void own_keys(view *w, int64_t base, void *scratch)
{
    room m = layout(w, 1, scratch);
    load_keys(w, base, m.k);
    for (int64_t r = 0; r < w->tokens * w->group; r += TILE)
        if (sees(w, r, base)) {
            load_queries(w, r, &m.q);
            meet(w, &m.q, m.k);
        }
    store_keys(w, m.k);
}

static void own_both(view *w, void *scratch)
{
    int64_t n = (w->tokens + TILE - 1) / TILE;
    room m = layout(w, n, scratch);
    for (int64_t i = 0; i < n; i++)
        load_keys(w, i * TILE, &m.k[i]);
    for (int64_t r = 0; r < w->tokens * w->group; r += TILE) {
        load_queries(w, r, &m.q);
        for (int64_t i = 0; i < n; i++)
            if (sees(w, r, i * TILE))
                meet(w, &m.q, &m.k[i]);
        store_queries(w, &m.q);
    }
    for (int64_t i = 0; i < n; i++)
        store_keys(w, &m.k[i]);
}

/* ---- cutting the work ---- */

/* Owners of a sequence, for each key head. */
static int64_t owners_of(const plan *p, int32_t seq)
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

static void owner_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* one a range */
    const plan *p = ctx;
    const attention *a = &p->b->fwd;
    const int32_t *starts = a->starts.data;
    int64_t at = begin / a->n_kv_heads;
    int32_t seq = 0;
    while (at >= owners_of(p, seq))
        at -= owners_of(p, seq++);
    view w = { .p = p,
               .first = starts[seq],
               .tokens = starts[seq + 1] - starts[seq],
               .group = a->n_heads / a->n_kv_heads,
               .kv_head = (int32_t)(begin % a->n_kv_heads) };
    panel_begin(p->engine);
    if (p->dq && p->dkv)
        own_both(&w, scratch);
    else
        (p->dq ? own_queries : own_keys)(&w, at * TILE, scratch);
    panel_end(p->engine);
}

static void run(cpu_device *d, plan p, bool dq, bool dkv)
{
    int64_t owners = 0;
    p.dq = dq;
    p.dkv = dkv;
    for (int32_t s = 0; s + 1 < p.b->fwd.starts.ne[0]; s++)
        owners += owners_of(&p, s);
    cpu_for(d, owners * p.b->fwd.n_kv_heads, 1, owner_range, &p);
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

/* Whether owners of whole sequences are done first. Tiles do 7 products where whole sequences do 5,
 * and whole sequences may leave threads idle for as long as the longest takes; it must also fit
 * into scratch. */
static bool many(const plan *p, int n_threads)
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
    const mm_engine *e = mm_engine_of(c->isa, a->q.dt);
    plan p = { .b = b,
               .engine = e,
               .k_words = panel_words(e, a->qk_dim),
               .v_words = panel_words(e, a->v_dim),
               .t_words = panel_words(e, TILE),
               .k_pad = pack_round_up(a->qk_dim, MM_LANES),
               .v_pad = pack_round_up(a->v_dim, MM_LANES) };
    ASSERT(!a->kv && a->n_heads % a->n_kv_heads == 0 && fits(&p, 1));
    cpu_for(c, tensor_rows(&a->q) * a->n_heads, cpu_step((int64_t)a->v_dim * 8), delta_rows, b);
    if (many(&p, c->n_threads)) {
        run(c, p, true, true);
        return;
    }
    run(c, p, true, false);
    run(c, p, false, true);
}
