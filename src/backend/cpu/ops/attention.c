/* attention: causal attention of packed sequences, with or without pages of past keys.
 *
 * A query row meets the keys it sees in blocks of 64 positions, counted from position 0 of its
 * sequence, and keeps a running maximum m, sum l and weighted sum of values (online softmax):
 *     s_j = scale q.k_j;  m' = max(m, max s);  p_j = e^(s_j - m');  c = e^(m - m')
 *     l = c l + sum p_j;  acc = c acc + sum p_j v_j
 * Everything a row's bits depend on is its own position: which blocks, which keys of a block, and
 * the order in which they are added. Rows are computed many at a time only because a block of keys,
 * transposed once, then serves all of them: a tile is some tokens by the query heads that share a
 * key head. So decode equals prefill, and packed sequences equal single ones, bit for bit. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/tile.h"
#include "backend/cpu/ops/vmath.h"

#include <math.h>

enum { BLOCK = 64, MAX_ROWS = 48, MAX_DIM = 2048 };

/* ---- where keys and values are ---- */

typedef struct source {
    const attention *a;
    const int32_t *starts, *pos;
    int32_t seq;
    int64_t origin; /* position of the first key: 0 with pages, else of the sequence's first row */
} source;

static int64_t paged_row(const attention *a, int32_t seq, int64_t pos)
{
    int64_t tokens = a->kv->k.ne[1], max_pages = a->kv->table.ne[1];
    ASSERT(pos >= 0 && pos / tokens < max_pages);
    int64_t page = ((const int32_t *)a->kv->table.data)[seq * max_pages + pos / tokens];
    ASSERT(page >= 0 && page < a->kv->k.ne[0]);
    return page * tokens + pos % tokens;
}

/* The key (or value) of position pos, of head kv_head, `dim` wide. */
static const void *key_at(const source *s, const tensor *rows, const tensor *pages, int64_t pos,
                          int64_t column)
{
    const attention *a = s->a;
    const tensor *from = a->kv ? pages : rows;
    int64_t row = a->kv ? paged_row(a, s->seq, pos) : s->starts[s->seq] + pos - s->origin;
    return vec_at_const(from->data, row * tensor_cols(from) + column, from->dt);
}

static void store_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const attention *a = ctx;
    const int32_t *starts = a->starts.data, *pos = a->pos.data;
    int64_t k_width = tensor_cols(&a->k), v_width = tensor_cols(&a->v);
    int32_t seq = 0;
    for (int64_t t = begin; t < end; t++) {
        while (t >= starts[seq + 1])
            seq++;
        int64_t row = paged_row(a, seq, pos[t]);
        vec_copy(vec_at(a->kv->k.data, row * k_width, a->kv->k.dt), a->kv->k.dt,
                 vec_at_const(a->k.data, t * k_width, a->k.dt), a->k.dt, k_width);
        vec_copy(vec_at(a->kv->v.data, row * v_width, a->kv->v.dt), a->kv->v.dt,
                 vec_at_const(a->v.data, t * v_width, a->v.dt), a->v.dt, v_width);
    }
}

/* ---- a tile of rows ---- */

typedef struct plan {
    const attention *a;
    int64_t n_tiles;              /* of tokens, over all sequences */
    int32_t tokens, heads, parts; /* of a tile; parts: chunks of a group of heads */
    int64_t k_pad, v_pad;         /* dims rounded up to whole vectors */
} plan;

typedef struct rows {
    source src;
    int64_t first, n_tokens;      /* rows of q */
    int32_t kv_head, head, heads; /* query heads head .. head + heads - 1 */
    int64_t n;                    /* n_tokens * heads; row = token * heads + head */
    float *q, *kt, *v, *s, *acc;  /* [n][k_pad] [k_pad][64] [64][v_pad] [n][64] [n][v_pad] */
    float max[MAX_ROWS], sum[MAX_ROWS];
} rows;

typedef struct span {
    int64_t low, high;
} span;

/* Which keys of the block at `base` row r sees. */
static span visible(const rows *w, int64_t r, int64_t base)
{
    int64_t pos = w->src.pos[w->first + r / w->heads], window = w->src.a->window;
    int64_t low = window > 0 && pos - window + 1 > w->src.origin ? pos - window + 1 : w->src.origin;
    span s = { low > base ? low - base : 0, pos + 1 - base };
    if (s.high > BLOCK)
        s.high = BLOCK;
    return s;
}

static void load_queries(rows *w, const plan *p)
{
    const attention *a = p->a;
    for (int64_t r = 0; r < w->n; r++) {
        int64_t t = w->first + r / w->heads, h = w->head + r % w->heads;
        const void *q = vec_at_const(a->q.data, (t * a->n_heads + h) * a->qk_dim, a->q.dt);
        vec_copy(w->q + r * p->k_pad, DT_F32, q, a->q.dt, a->qk_dim);
        w->max[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
    memset(w->acc, 0, (size_t)(w->n * p->v_pad) * sizeof *w->acc);
}

/* Keys [keys.low, keys.high) of the block: K transposed, V as it is; both in f32. Columns of K that
 * nobody sees are zero, so that no stale number meets the arithmetic. */
static const float zeros[MAX_DIM];

static void load_block(rows *w, const plan *p, int64_t base, span keys)
{
    const attention *a = p->a;
    dtype k_dt = a->kv ? a->kv->k.dt : a->k.dt, v_dt = a->kv ? a->kv->v.dt : a->v.dt;
    for (int64_t j = 0; j < BLOCK; j += 4) {
        const void *four[4] = { zeros, zeros, zeros, zeros };
        for (int64_t i = 0; i < 4; i++)
            if (j + i >= keys.low && j + i < keys.high)
                four[i] = key_at(&w->src, &a->k, a->kv ? &a->kv->k : NULL, base + j + i,
                                 (int64_t)w->kv_head * a->qk_dim);
        if (k_dt == DT_F32)
            tile_transpose4(w->kt + j, BLOCK, four, a->qk_dim, DT_F32);
        else
            tile_transpose4(w->kt + j, BLOCK, four, a->qk_dim, DT_BF16);
    }
    for (int64_t j = keys.low; j < keys.high; j++) {
        const void *v = key_at(&w->src, &a->v, a->kv ? &a->kv->v : NULL, base + j,
                               (int64_t)w->kv_head * a->v_dim);
        for (int64_t i = 0; i < a->v_dim; i += VEC_LANES)
            *(vf *)(w->v + j * p->v_pad + i) = vec_load(v, i, a->v_dim - i, v_dt);
    }
}

/* Scores of one row become weights; its maximum, sum and accumulator follow. */
static void softmax_row(rows *w, const plan *p, int64_t r, span seen)
{
    float *s = w->s + r * BLOCK, *acc = w->acc + r * p->v_pad;
    for (int64_t j = 0; j < seen.low; j++)
        s[j] = -INFINITY;
    for (int64_t j = seen.high; j < BLOCK; j++)
        s[j] = -INFINITY;
    vf x[BLOCK / VEC_LANES], top = vec_set(-INFINITY), sum = { 0 };
    for (int i = 0; i < BLOCK / VEC_LANES; i++) {
        x[i] = *(vf *)(s + i * VEC_LANES) * p->a->scale;
        top = vec_max(x[i], top);
    }
    float max = vec_top(top), old = w->max[r];
    max = max > old ? max : old;
    for (int i = 0; i < BLOCK / VEC_LANES; i++) {
        vf weight = vmath_exp(x[i] - max);
        *(vf *)(s + i * VEC_LANES) = weight;
        sum += weight;
    }
    w->max[r] = max;
    if (max == old) { /* nothing shrinks: c is exactly 1 */
        w->sum[r] += vec_sum(sum);
        return;
    }
    vf shrink = vmath_exp(vec_set(old - max));
    w->sum[r] = w->sum[r] * shrink[0] + vec_sum(sum);
    for (int64_t i = 0; i < p->v_pad; i += VEC_LANES)
        *(vf *)(acc + i) *= shrink;
}

/* acc of rows [r, r + n) += weights [low, high) times values. */
static void add_values(rows *w, const plan *p, int64_t r, int64_t n, span keys)
{
    tile t = { .out = w->acc + r * p->v_pad,
               .a = w->s + r * BLOCK + keys.low,
               .b = w->v + keys.low * p->v_pad,
               .out_stride = p->v_pad,
               .a_stride = BLOCK,
               .b_stride = p->v_pad,
               .rows = n,
               .n = keys.high - keys.low,
               .cols = p->v_pad };
    if (keys.high > keys.low)
        tile_product(&t);
}

/* Rows [r, r + n), n <= TILE_ROWS, meet the block. Keys that all of them see are added together;
 * at the diagonal each row goes on alone, in the same order. */
static void meet_block(rows *w, const plan *p, int64_t r, int64_t n, int64_t base)
{
    tile scores = { .out = w->s + r * BLOCK,
                    .a = w->q + r * p->k_pad,
                    .b = w->kt,
                    .out_stride = BLOCK,
                    .a_stride = p->k_pad,
                    .b_stride = BLOCK,
                    .rows = n,
                    .n = p->a->qk_dim,
                    .cols = BLOCK,
                    .fresh = true };
    tile_product(&scores);
    span seen[TILE_ROWS] = { 0 }, all = { 0, BLOCK };
    bool together = true;
    for (int64_t i = 0; i < n; i++) {
        seen[i] = visible(w, r + i, base);
        if (seen[i].low < seen[i].high)
            softmax_row(w, p, r + i, seen[i]);
        together = together && seen[i].low == seen[0].low && seen[i].low < seen[i].high;
        all.high = seen[i].high < all.high ? seen[i].high : all.high;
    }
    all.low = seen[0].low;
    if (together)
        add_values(w, p, r, n, all);
    for (int64_t i = 0; i < n; i++) {
        int64_t low = together ? all.high : seen[i].low;
        add_values(w, p, r + i, 1, (span){ low, seen[i].high });
    }
}

static void store_out(const rows *w, const plan *p)
{
    const attention *a = p->a;
    float *lse = a->lse.data;
    for (int64_t r = 0; r < w->n; r++) {
        int64_t row = (w->first + r / w->heads) * a->n_heads + w->head + r % w->heads;
        void *out = vec_at(a->out.data, row * a->v_dim, a->out.dt);
        for (int64_t i = 0; i < a->v_dim; i += VEC_LANES)
            vec_store(out, i, a->v_dim - i, a->out.dt,
                      *(const vf *)(w->acc + r * p->v_pad + i) / w->sum[r]);
        if (lse)
            lse[row] = w->max[r] + vmath_log(w->sum[r]);
    }
}

/* Tile number `index`, counted from the back of all sequences: the longest work comes first. */
static rows find_rows(const plan *p, int64_t index, int64_t part)
{
    const attention *a = p->a;
    const int32_t *starts = a->starts.data, *pos = a->pos.data;
    int32_t group = a->n_heads / a->n_kv_heads, seq = (int32_t)a->starts.ne[0] - 1;
    int64_t length, before = 0, tiles = 0;
    do {
        seq--;
        before += tiles;
        length = starts[seq + 1] - starts[seq];
        tiles = (length + p->tokens - 1) / p->tokens;
    } while (index >= before + tiles);
    int64_t at = (tiles - 1 - (index - before)) * p->tokens;
    rows w = { .src = { a, starts, pos, seq, a->kv ? 0 : pos[starts[seq]] } };
    w.first = starts[seq] + at;
    w.n_tokens = length - at < p->tokens ? length - at : p->tokens;
    w.kv_head = (int32_t)(part / p->parts);
    int32_t skip = (int32_t)(part % p->parts) * p->heads;
    w.head = w.kv_head * group + skip;
    w.heads = group - skip < p->heads ? group - skip : p->heads;
    w.n = w.n_tokens * w.heads;
    return w;
}

static void tile_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* one tile a range */
    const plan *p = ctx;
    int64_t parts = (int64_t)p->a->n_kv_heads * p->parts;
    rows w = find_rows(p, begin / parts, begin % parts);
    w.q = scratch;
    w.kt = w.q + MAX_ROWS * p->k_pad;
    w.v = w.kt + p->k_pad * BLOCK;
    w.s = w.v + BLOCK * p->v_pad;
    w.acc = w.s + MAX_ROWS * BLOCK;
    load_queries(&w, p);
    int64_t last = w.src.pos[w.first + w.n_tokens - 1];
    int64_t first = visible(&w, 0, 0).low;
    for (int64_t base = first / BLOCK * BLOCK; base <= last; base += BLOCK) {
        span keys = { visible(&w, 0, base).low, visible(&w, w.n - 1, base).high };
        load_block(&w, p, base, keys);
        for (int64_t r = 0; r < w.n; r += TILE_ROWS)
            meet_block(&w, p, r, w.n - r < TILE_ROWS ? w.n - r : TILE_ROWS, base);
    }
    store_out(&w, p);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static int64_t count_tiles(const attention *a, int32_t tokens)
{
    const int32_t *starts = a->starts.data;
    int64_t n = 0;
    for (int64_t s = 0; s + 1 < a->starts.ne[0]; s++)
        n += (starts[s + 1] - starts[s] + tokens - 1) / tokens;
    return n;
}

void OP(attention_fwd)(device *d, const attention *a)
{
    cpu_device *c = cpu_of(d);
    int64_t n_tokens = tensor_rows(&a->q), kv_heads = a->n_kv_heads;
    int32_t group = a->n_heads / a->n_kv_heads;
    ASSERT(a->n_heads % a->n_kv_heads == 0 && a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM);
    if (a->kv)
        cpu_for(c, n_tokens, cpu_step((tensor_cols(&a->k) + tensor_cols(&a->v)) * 8), store_rows,
                a);
    plan p = { .a = a, .heads = group < MAX_ROWS ? group : MAX_ROWS };
    /* few tokens (decode): spread a group's heads over threads that would have nothing to do */
    int64_t units = count_tiles(a, MAX_ROWS / p.heads) * kv_heads;
    while (units > 0 && p.heads > 1 && units * ((group + p.heads - 1) / p.heads) < c->n_threads)
        p.heads = (p.heads + 1) / 2;
    p.parts = (group + p.heads - 1) / p.heads;
    p.tokens = MAX_ROWS / p.heads;
    p.n_tiles = count_tiles(a, p.tokens);
    p.k_pad = round_up(a->qk_dim, 16);
    p.v_pad = round_up(a->v_dim, 16);
    cpu_for(c, p.n_tiles * kv_heads * p.parts, 1, tile_range, &p);
}
