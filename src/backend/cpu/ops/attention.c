/* attention: causal attention of packed sequences, with or without pages of past keys.
 *
 * A query row meets the keys it sees in blocks of 64 positions, counted from position 0 of its
 * sequence, and keeps a running maximum m, sum l and weighted sum of values (online softmax):
 *     s_j = scale q.k_j;  m' = max(m, max s);  p_j = e^(s_j - m');  c = e^(m - m')
 *     l = c l + sum p_j;  acc = c acc + sum p_j v_j
 * Everything a row's bits depend on is its own position: which blocks, which keys of a block, and
 * the order in which they are added. Rows are computed many at a time only because a block of keys
 * and values, packed once, then serves all of them: a tile is some tokens by the query heads that
 * share a key head. So decode equals prefill, and packed sequences equal single ones, bit for bit.
 *
 * Both products are the engine's (matmul.h), which keeps that promise; keys a row does not see
 * have weight 0. In bf16 the weights p_j are rounded to bf16 for the product, not for the sum. */
#include "backend/cpu/matmul.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/vmath.h"
#include "backend/cpu/pack.h"

#include <math.h>

enum { BLOCK = 64, MAX_ROWS = 96, MAX_DIM = 2048 };

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

typedef struct span {
    int64_t low, high;
} span;

/* A block of keys (or values): some of its rows, `dim` numbers from `column` on. */
typedef struct block {
    int64_t base;
    span keys;
    int64_t column, dim;
} block;

/* n vectors of k numbers, one after the other. */
static mm_side side_of(const void *data, dtype dt, int64_t n, int64_t k)
{
    return (mm_side){ .data = data, .dt = dt, .k_last = true, .ld = k, .n = n, .k = k };
}

/* The rows of a block, from its first to keys.high - 1: as they lie, if they lie side by side; else
 * copied, with zeros for those before keys.low, so that no stale number meets the arithmetic. */
static mm_side block_rows(const source *s, const tensor *from, block b, void *room)
{
    const attention *a = s->a;
    int64_t page = a->kv ? a->kv->k.ne[1] : BLOCK, width = tensor_cols(from), run;
    size_t bytes = (size_t)b.dim * (from->dt == DT_F32 ? 4 : 2);
    mm_side side = side_of(room, from->dt, b.keys.high, b.dim);
    char *out = room;
    for (int64_t j = b.keys.low; j < b.keys.high; j += run) {
        int64_t pos = b.base + j;
        int64_t row = a->kv ? paged_row(a, s->seq, pos) : s->starts[s->seq] + pos - s->origin;
        const char *at = vec_at_const(from->data, row * width + b.column, from->dt);
        run = a->kv && page - pos % page < b.keys.high - j ? page - pos % page : b.keys.high - j;
        if (run == b.keys.high) { /* all of them */
            side.data = at;
            side.ld = width;
            return side;
        }
        for (int64_t i = 0; i < run; i++)
            memcpy(out + (size_t)(j + i) * bytes, vec_at_const(at, i * width, from->dt), bytes);
    }
    memset(out, 0, (size_t)b.keys.low * bytes);
    return side;
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
    const mm_engine *engine;
    int64_t n_tiles;              /* of tokens, over all sequences */
    int32_t tokens, heads, parts; /* of a tile; parts: chunks of a group of heads */
    int64_t v_pad;                /* rounded up to whole panels */
    int64_t k_words, p_words;     /* of a key, and of the weights of a block */
} plan;

typedef struct rows {
    source src;
    int64_t first, n_tokens;      /* rows of q */
    int32_t kv_head, head, heads; /* query heads head .. head + heads - 1 */
    int64_t n;                    /* n_tokens * heads; row = token * heads + head */
    mm_word *q, *p; /* packed rows: [words / MM_K][MAX_ROWS][MM_K], [MAX_ROWS][MM_K] */
    mm_word *k, *v; /* packed lanes: panels of keys [k_words][32], of columns [p_words][32] */
    float *s, *acc; /* [MAX_ROWS][64] [MAX_ROWS][v_pad] */
    void *room;     /* 64 or MAX_ROWS numbers by dim, before they are packed */
    float max[MAX_ROWS], sum[MAX_ROWS];
} rows;

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

/* Rows and words of q are packed in blocks, as mm_tile wants them. */
static void load_queries(rows *w, const plan *p)
{
    const attention *a = p->a;
    const mm_engine *e = p->engine;
    size_t bytes = (size_t)a->qk_dim * (a->q.dt == DT_F32 ? 4 : 2);
    for (int64_t r = 0; r < w->n; r++) {
        int64_t t = w->first + r / w->heads, h = w->head + r % w->heads;
        const void *q = vec_at_const(a->q.data, (t * a->n_heads + h) * a->qk_dim, a->q.dt);
        memcpy((char *)w->room + (size_t)r * bytes, q, bytes);
        w->max[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
    mm_side q = side_of(w->room, a->q.dt, w->n, a->qk_dim);
    for (int64_t at = 0; at < p->k_words; at += MM_K) {
        int64_t nw = p->k_words - at < MM_K ? p->k_words - at : MM_K;
        for (int64_t r = 0; r < w->n; r += 16)
            e->pack_rows(w->q + (at / MM_K * MAX_ROWS + r) * MM_K, &q, e->words,
                         (mm_box){ r, w->n - r < 16 ? w->n - r : 16, at, nw });
    }
    memset(w->acc, 0, (size_t)(MAX_ROWS * p->v_pad) * sizeof *w->acc);
}

static void load_block(rows *w, const plan *p, int64_t base, span keys)
{
    const attention *a = p->a;
    const mm_engine *e = p->engine;
    block b = { base, keys, (int64_t)w->kv_head * a->qk_dim, a->qk_dim };
    mm_side k = block_rows(&w->src, a->kv ? &a->kv->k : &a->k, b, w->room);
    for (int64_t j = 0; j < k.n; j += MM_LANES)
        for (int64_t at = 0; at < p->k_words; at += MM_K)
            e->pack_lanes(w->k + (j * p->k_words + at * MM_LANES), &k, e->words,
                          (mm_box){ j, k.n - j < MM_LANES ? k.n - j : MM_LANES, at,
                                    p->k_words - at < MM_K ? p->k_words - at : MM_K });
    b.column = (int64_t)w->kv_head * a->v_dim;
    b.dim = a->v_dim;
    mm_side v = block_rows(&w->src, a->kv ? &a->kv->v : &a->v, b, w->room);
    v.k_last = false;
    v.k = v.n;
    v.n = a->v_dim;
    for (int64_t c = 0; c < v.n; c += MM_LANES)
        e->pack_lanes(w->v + c * p->p_words, &v, e->words,
                      (mm_box){ c, v.n - c < MM_LANES ? v.n - c : MM_LANES, 0, p->p_words });
}

/* sums [n][ld], columns [0, n_columns), (+)= packed rows times packed panels of nw words. */
static void multiply(const plan *p, mm_tile t, int64_t n, int64_t n_columns)
{
    const mm_engine *e = p->engine;
    const mm_word *lanes = t.lanes, *packed = t.rows;
    int64_t words = t.nw;
    bool add = t.add;
    float *sums = t.sums;
    t.words = e->words;
    for (int64_t c = 0; c < n_columns; c += MM_LANES)
        for (int64_t at = 0; at < words; at += MM_K)
            for (int64_t r = 0; r < n; r += e->rows) {
                t.sums = sums + r * t.ld + c;
                t.rows = packed + (at / MM_K * MAX_ROWS + r) * MM_K;
                t.lanes = lanes + (c * words + at * MM_LANES);
                t.n_rows = n - r < e->rows ? n - r : e->rows;
                t.nw = words - at < MM_K ? words - at : MM_K;
                t.add = add || at > 0;
                e->tile(&t);
            }
}

/* Scores of one row become weights; its maximum, sum and accumulator follow. */
static void softmax_row(rows *w, const plan *p, int64_t r, span seen)
{
    float *s = w->s + r * BLOCK, *acc = w->acc + r * p->v_pad;
    if (seen.low >= seen.high) {
        memset(s, 0, BLOCK * sizeof *s);
        return;
    }
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

static void meet_block(rows *w, const plan *p, int64_t base, span keys)
{
    const mm_engine *e = p->engine;
    multiply(p,
             (mm_tile){ .sums = w->s, .ld = BLOCK, .rows = w->q, .lanes = w->k, .nw = p->k_words },
             w->n, keys.high);
    for (int64_t r = 0; r < w->n; r++)
        softmax_row(w, p, r, visible(w, r, base));
    mm_side weights = side_of(w->s, DT_F32, w->n, BLOCK);
    for (int64_t r = 0; r < w->n; r += 16)
        e->pack_rows(w->p + r * MM_K, &weights, e->words,
                     (mm_box){ r, w->n - r < 16 ? w->n - r : 16, 0, p->p_words });
    multiply(p,
             (mm_tile){ .sums = w->acc,
                        .ld = p->v_pad,
                        .rows = w->p,
                        .lanes = w->v,
                        .nw = p->p_words,
                        .add = true },
             w->n, p->v_pad);
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

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static void tile_range(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* one tile a range */
    const plan *p = ctx;
    int64_t parts = (int64_t)p->a->n_kv_heads * p->parts;
    rows w = find_rows(p, begin / parts, begin % parts);
    w.q = scratch;
    w.p = w.q + round_up(p->k_words, MM_K) * MAX_ROWS;
    w.k = w.p + MM_K * MAX_ROWS;
    w.v = w.k + p->k_words * BLOCK;
    w.s = (float *)(w.v + p->p_words * p->v_pad);
    w.acc = w.s + MAX_ROWS * BLOCK;
    w.room = w.acc + MAX_ROWS * p->v_pad;
    load_queries(&w, p);
    int64_t last = w.src.pos[w.first + w.n_tokens - 1];
    int64_t first = visible(&w, 0, 0).low;
    for (int64_t base = first / BLOCK * BLOCK; base <= last; base += BLOCK) {
        span keys = { visible(&w, 0, base).low, visible(&w, w.n - 1, base).high };
        load_block(&w, p, base, keys);
        meet_block(&w, p, base, keys);
    }
    store_out(&w, p);
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
    plan p = { .a = a,
               .engine = mm_engine_of(c->isa, a->q.dt),
               .heads = group < MAX_ROWS ? group : MAX_ROWS };
    /* few tokens (decode): spread a group's heads over threads that would have nothing to do */
    int64_t units = count_tiles(a, MAX_ROWS / p.heads) * kv_heads;
    while (units > 0 && p.heads > 1 && units * ((group + p.heads - 1) / p.heads) < c->n_threads)
        p.heads = (p.heads + 1) / 2;
    p.parts = (group + p.heads - 1) / p.heads;
    p.tokens = MAX_ROWS / p.heads;
    p.n_tiles = count_tiles(a, p.tokens);
    int64_t per_word = pack_per_word(p.engine->words);
    p.v_pad = round_up(a->v_dim, MM_LANES);
    p.k_words = round_up((a->qk_dim + per_word - 1) / per_word, MM_WORDS);
    p.p_words = BLOCK / per_word;
    cpu_for(c, p.n_tiles * kv_heads * p.parts, 1, tile_range, &p);
}
