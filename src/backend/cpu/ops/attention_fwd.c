/* attention_fwd: causal attention of packed sequences, with or without a paged KV cache.
 *
 * A query row processes the keys it attends to in blocks of 64 positions, counted from position 0
 * of its sequence, and keeps a running maximum m, sum l and weighted sum of values (online
 * softmax): s_j = scale q.k_j;  m' = max(m, max s);  p_j = e^(s_j - m');  c = e^(m - m') l = c l +
 * sum p_j;  acc = c acc + sum p_j v_j The bits of a row depend on its own position only: which
 * blocks, which keys of a block, and the order of the sums. A tile computes many rows together,
 * some tokens by the query heads that share a key head, because a block of keys and values is then
 * packed once for all of them. So decode equals prefill, and packed sequences equal single ones,
 * bit for bit.
 *
 * Both products are computed by the engine of matmul.h, which keeps that guarantee; keys that a row
 * does not attend to have weight 0. In bf16 the weights p_j are rounded to bf16 for the product,
 * not for the sum. */
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/panel.h"
#include "backend/cpu/ops/vmath.h"

#include <math.h>

enum { BLOCK = 64, MAX_ROWS = 192, MAX_DIM = 2048 };

/* ---- where keys and values are ---- */

typedef struct key_source {
    const attention *a;
    const int32_t *starts, *pos;
    int32_t seq;
    int64_t origin; /* position of the first key: 0 with pages, else of the sequence's first row */
} key_source;

static int64_t paged_row(const attention *a, int32_t seq, int64_t pos)
{
    int64_t tokens = a->kv->k.ne[1], max_pages = a->kv->table.ne[1];
    ASSERT(pos >= 0 && pos / tokens < max_pages);
    int64_t page = ((const int32_t *)a->kv->table.data)[seq * max_pages + pos / tokens];
    ASSERT(page >= 0 && page < a->kv->k.ne[0]);
    return page * tokens + pos % tokens;
}

typedef struct key_range {
    int64_t low, high;
} key_range;

/* A block of keys (or values) at position `base`: its rows `keys`, `dim` values from `column` on.
 */
typedef struct key_block {
    int64_t base;
    key_range keys;
    int64_t column, dim;
} key_block;

/* The row of k or v that holds the key at a position. */
static int64_t row_of(const key_source *s, int64_t pos)
{
    return s->a->kv ? paged_row(s->a, s->seq, pos) : s->starts[s->seq] + pos - s->origin;
}

/* Rows 0 to keys.high - 1 of a block as an operand: in place if they are contiguous, else copied to
 * `buffer`. Rows below keys.low are then zeros, so that no stale number enters the arithmetic. */
static mm_operand block_operand(const key_source *s, const tensor *from, key_block b, void *buffer)
{
    const attention *a = s->a;
    int64_t page = a->kv ? a->kv->k.ne[1] : BLOCK, width = tensor_cols(from), run;
    size_t bytes = (size_t)b.dim * (from->dt == DT_F32 ? 4 : 2);
    mm_operand operand = panel_operand(buffer, from->dt, b.keys.high, b.dim);
    char *out = buffer;
    for (int64_t j = b.keys.low; j < b.keys.high; j += run) {
        int64_t pos = b.base + j;
        int64_t row = row_of(s, pos);
        const char *at = vec_at_const(from->data, row * width + b.column, from->dt);
        run = a->kv && page - pos % page < b.keys.high - j ? page - pos % page : b.keys.high - j;
        if (run == b.keys.high) { /* all rows are contiguous */
            operand.data = at;
            operand.ld = width;
            return operand;
        }
        for (int64_t i = 0; i < run; i++)
            memcpy(out + (size_t)(j + i) * bytes, vec_at_const(at, i * width, from->dt), bytes);
    }
    memset(out, 0, (size_t)b.keys.low * bytes);
    return operand;
}

/* Prefetches n rows from `row` on, `dim` values of each. */
static void prefetch_rows(const tensor *from, int64_t row, int64_t n, int64_t column, int64_t dim)
{
    int64_t width = tensor_cols(from), bytes = dim * (from->dt == DT_F32 ? 4 : 2);
    for (int64_t i = 0; i < n; i++) {
        const char *at = vec_at_const(from->data, (row + i) * width + column, from->dt);
        for (int64_t j = 0; j < bytes; j += 64)
            __builtin_prefetch(at + j, 0, 2);
    }
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

/* ---- a tile of query rows ---- */

typedef struct plan {
    const attention *a;
    const mm_engine *engine;
    int64_t n_tiles;                /* of tokens, over all sequences */
    int32_t rows;                   /* most rows of a tile */
    int32_t tokens, heads, parts;   /* of a tile; parts: chunks of a group of heads */
    int64_t v_pad;                  /* v_dim rounded up to whole panels */
    int64_t k_elements, p_elements; /* of a key, and of the weights of a block */
} plan;

typedef struct query_tile {
    key_source src;
    int64_t first, n_tokens;      /* rows of q */
    int32_t kv_head, head, heads; /* query heads head .. head + heads - 1 */
    int64_t n;                    /* n_tokens * heads; row = token * heads + head */
    mm_element *q, *p;            /* packed rows: [k blocks][rows][MM_KC], [rows][MM_KC] */
    mm_element *panel;            /* of keys [k_elements][MM_NR] or of values [p_elements][MM_NR] */
    float *s, *acc;               /* [rows][64] [rows][v_pad] */
    void *buffer;                 /* rows of keys, values or queries before they are packed */
    _Alignas(VEC_BYTES) float max[MAX_ROWS], sum[MAX_ROWS];
} query_tile;

/* The keys of the block at `base` that row r attends to. */
static key_range visible(const query_tile *w, int64_t r, int64_t base)
{
    int64_t pos = w->src.pos[w->first + r / w->heads], window = w->src.a->window;
    int64_t low = window > 0 && pos - window + 1 > w->src.origin ? pos - window + 1 : w->src.origin;
    key_range s = { low > base ? low - base : 0, pos + 1 - base };
    if (s.high > BLOCK)
        s.high = BLOCK;
    return s;
}

static void load_queries(query_tile *w, const plan *p)
{
    const attention *a = p->a;
    const mm_engine *engine = p->engine;
    size_t bytes = (size_t)a->qk_dim * (a->q.dt == DT_F32 ? 4 : 2);
    for (int64_t r = 0; r < w->n; r++) {
        int64_t t = w->first + r / w->heads, h = w->head + r % w->heads;
        const void *q = vec_at_const(a->q.data, (t * a->n_heads + h) * a->qk_dim, a->q.dt);
        memcpy((char *)w->buffer + (size_t)r * bytes, q, bytes);
    }
    for (int64_t r = 0; r < p->rows; r++) {
        w->max[r] = -INFINITY;
        w->sum[r] = 0.0f;
    }
    mm_operand q = panel_operand(w->buffer, a->q.dt, w->n, a->qk_dim);
    panel_pack_rows(engine, w->q, &q, p->rows, p->k_elements);
    memset(w->acc, 0, (size_t)(num_round_up(w->n, 16) * p->v_pad) * sizeof *w->acc);
}

static const tensor *keys_or_values(const attention *a, bool values)
{
    if (a->kv)
        return values ? &a->kv->v : &a->kv->k;
    return values ? &a->v : &a->k;
}

/* Prefetches the keys or values of the block at `base` for a decode, which reads them from memory,
 * while something else is computed. */
static void prefetch_block(const query_tile *w, bool values, int64_t base)
{
    const key_source *s = &w->src;
    const attention *a = s->a;
    int64_t page = a->kv ? a->kv->k.ne[1] : BLOCK, run, dim = values ? a->v_dim : a->qk_dim;
    int64_t end = num_min(s->pos[w->first] + 1, base + BLOCK);
    if (w->n_tokens > 1)
        return;
    for (int64_t pos = base > s->origin ? base : s->origin; pos < end; pos += run) {
        run = a->kv ? num_min(page - pos % page, end - pos) : end - pos;
        prefetch_rows(keys_or_values(a, values), row_of(s, pos), run, w->kv_head * dim, dim);
    }
}

/* The keys of a block as rows, or its values as columns. */
static mm_operand load_block(const query_tile *w, bool values, int64_t base, key_range keys)
{
    const attention *a = w->src.a;
    int64_t dim = values ? a->v_dim : a->qk_dim;
    key_block b = { base, keys, w->kv_head * dim, dim };
    mm_operand x = block_operand(&w->src, keys_or_values(a, values), b, w->buffer);
    return values ? panel_transposed(x) : x;
}

/* Scales the scores of a row and caps them. Apart from scale_row(), whose loop has no room for it.
 */
static void cap_row(float *s, float scale, float cap)
{
    for (int i = 0; i < BLOCK; i += VEC_LANES)
        *(vf *)(s + i) = vmath_tanh(*(vf *)(s + i) * scale / cap) * cap;
}

/* Scales the scores of a row, -infinity where a key is masked; returns the largest. */
static float scale_row(float *s, float scale, key_range seen)
{
    vf top = vec_set(-INFINITY);
    for (int i = 0; i < BLOCK; i += VEC_LANES) {
        vf x = *(vf *)(s + i) * scale;
        if (seen.low > 0 || seen.high < BLOCK) {
            vi key = vec_numbers() + i;
            vi before = vec_int_less(key, vec_set_int((int32_t)seen.low));
            vi in_range = ~before & vec_int_less(key, vec_set_int((int32_t)seen.high));
            x = vec_select(in_range, x, vec_set(-INFINITY));
        }
        *(vf *)(s + i) = x;
        top = vec_max(x, top);
    }
    return vec_top(top);
}

/* Replaces the scaled scores of a row by e^(s - max); returns their sum. */
static float exp_row(float *s, float max)
{
    vf sum = { 0 };
    for (int i = 0; i < BLOCK; i += VEC_LANES) {
        vf weight = vmath_exp(*(vf *)(s + i) - max);
        *(vf *)(s + i) = weight;
        sum += weight;
    }
    return vec_sum(sum);
}

/* Turns the scores of up to VEC_LANES rows, from r to `end`, into weights, and updates their
 * maxima, sums and accumulators. A row without a key in this block stays as it is: its weights are
 * 0, and c is exactly 1. */
static void online_softmax(query_tile *w, const plan *p, int64_t r, int64_t end, int64_t base)
{
    int n = end - r < VEC_LANES ? (int)(end - r) : VEC_LANES;
    vf top = vec_set(-INFINITY), sum = { 0 }, old = *(vf *)(w->max + r);
    float scale = p->a->scale, cap = p->a->softcap;
    for (int j = 0; cap > 0 && j < n; j++)
        cap_row(w->s + (r + j) * BLOCK, scale, cap);
    for (int j = 0; j < n; j++)
        top[j] = scale_row(w->s + (r + j) * BLOCK, cap > 0 ? 1.0f : scale, visible(w, r + j, base));
    top = vec_max(top, old);
    vf from = vec_select(vec_equal(top, vec_set(-INFINITY)), vec_set(0.0f), top),
       shrink = vmath_exp(old - from);
    for (int j = 0; j < n; j++)
        sum[j] = exp_row(w->s + (r + j) * BLOCK, from[j]);
    *(vf *)(w->max + r) = top;
    *(vf *)(w->sum + r) = *(vf *)(w->sum + r) * shrink + sum;
    for (int j = 0; j < n; j++)
        for (int64_t i = 0; shrink[j] != 1.0f && i < p->v_pad; i += VEC_LANES)
            *(vf *)(w->acc + (r + j) * p->v_pad + i) *= shrink[j];
}

/* The first and last row that attend to keys of the block; rows between them need not. */
static key_range attending_rows(const query_tile *w, int64_t base)
{
    int64_t first = w->src.pos[w->first], window = w->src.a->window;
    key_range s = { (base - first) * w->heads, (base + BLOCK - 1 + window - first) * w->heads };
    s.low = s.low > 0 ? s.low / 16 * 16 : 0; /* rows are packed in groups of 16 */
    if (window <= 0 || s.high > w->n)
        s.high = w->n;
    return s;
}

static void attend_block(query_tile *w, const plan *p, int64_t base, key_range keys)
{
    const mm_engine *engine = p->engine;
    key_range seen = attending_rows(w, base);
    int64_t from = seen.low, n = seen.high - from;
    mm_tile scores = { .sums = w->s + from * BLOCK,
                       .ld = BLOCK,
                       .rows = w->q + from * MM_KC,
                       .n_rows = n,
                       .n_elements = p->k_elements };
    prefetch_block(w, false, base + BLOCK);
    mm_operand k = load_block(w, false, base, keys);
    panel_product(engine, scores, p->rows, &k, w->panel);
    for (int64_t r = from; r < from + n; r += VEC_LANES)
        online_softmax(w, p, r, from + n, base);
    mm_operand weights = panel_operand(w->s + from * BLOCK, DT_F32, n, BLOCK);
    panel_pack_rows(engine, w->p + from * MM_KC, &weights, p->rows, p->p_elements);
    mm_tile values = { .sums = w->acc + from * p->v_pad,
                       .ld = p->v_pad,
                       .rows = w->p + from * MM_KC,
                       .n_rows = n,
                       .n_elements = p->p_elements,
                       .add = true };
    prefetch_block(w, true, base + BLOCK);
    mm_operand v = load_block(w, true, base, keys);
    panel_product(engine, values, p->rows, &v, w->panel);
}

static void store_out(const query_tile *w, const plan *p)
{
    const attention *a = p->a;
    _Alignas(VEC_BYTES) float lse[MAX_ROWS];
    for (int64_t r = 0; a->lse.data && r < w->n; r += VEC_LANES)
        *(vf *)(lse + r) = *(const vf *)(w->max + r) + vmath_log(*(const vf *)(w->sum + r));
    for (int64_t r = 0; r < w->n; r++) {
        int64_t row = (w->first + r / w->heads) * a->n_heads + w->head + r % w->heads;
        void *out = vec_at(a->out.data, row * a->v_dim, a->out.dt);
        float part = 1.0f / w->sum[r];
        for (int64_t i = 0; i < a->v_dim; i += VEC_LANES)
            vec_store(out, i, a->v_dim - i, a->out.dt,
                      *(const vf *)(w->acc + r * p->v_pad + i) * part);
        if (a->lse.data)
            ((float *)a->lse.data)[row] = lse[r];
    }
}

/* Tile number `index`, counted from the end of the last sequence: tiles with most keys come first.
 */
static query_tile find_tile(const plan *p, int64_t index, int64_t part)
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
    query_tile w = { .src = { a, starts, pos, seq, a->kv ? 0 : pos[starts[seq]] } };
    w.first = starts[seq] + at;
    w.n_tokens = length - at < p->tokens ? length - at : p->tokens;
    w.kv_head = (int32_t)(part / p->parts);
    int32_t skip = (int32_t)(part % p->parts) * p->heads;
    w.head = w.kv_head * group + skip;
    w.heads = group - skip < p->heads ? group - skip : p->heads;
    w.n = w.n_tokens * w.heads;
    return w;
}

static void attend_tile(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* a range is one tile */
    const plan *p = ctx;
    int64_t parts = (int64_t)p->a->n_kv_heads * p->parts;
    query_tile w = find_tile(p, begin / parts, begin % parts);
    w.q = scratch;
    w.p = w.q + panel_rows_size(p->rows, p->k_elements);
    w.panel = w.p + panel_rows_size(p->rows, p->p_elements);
    int64_t k_size = panel_columns_size(BLOCK, p->k_elements);
    int64_t v_size = panel_columns_size(p->v_pad, p->p_elements);
    w.s = (float *)(w.panel + (k_size > v_size ? k_size : v_size));
    w.acc = w.s + p->rows * BLOCK;
    w.buffer = w.acc + p->rows * p->v_pad;
    int64_t last = w.src.pos[w.first + w.n_tokens - 1];
    int64_t first = visible(&w, 0, 0).low;
    prefetch_block(&w, false, first / BLOCK * BLOCK);
    prefetch_block(&w, true, first / BLOCK * BLOCK);
    load_queries(&w, p);
    panel_configure(p->engine);
    for (int64_t base = first / BLOCK * BLOCK; base <= last; base += BLOCK) {
        key_range keys = { visible(&w, 0, base).low, visible(&w, w.n - 1, base).high };
        attend_block(&w, p, base, keys);
    }
    panel_release(p->engine);
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

/* Chooses the size of tiles. Large tiles pack keys and values less often, but every thread needs
 * some tiles; with few tokens (decode) the heads of a group are divided among idle threads. */
static void choose_tiles(plan *p, int n_threads)
{
    enum { LEAST_ROWS = 48, TILES_EACH = 6 };
    const attention *a = p->a;
    int32_t group = a->n_heads / a->n_kv_heads, wide = a->qk_dim > a->v_dim ? a->qk_dim : a->v_dim;
    p->rows = wide <= MAX_DIM / 2 ? MAX_ROWS : MAX_ROWS / 2; /* that fit the scratch */
    p->heads = group < p->rows ? group : p->rows;
    while (p->rows > LEAST_ROWS && p->rows / 2 >= p->heads &&
           count_tiles(a, p->rows / p->heads) * a->n_kv_heads < TILES_EACH * (int64_t)n_threads)
        p->rows /= 2;
    int64_t units = count_tiles(a, p->rows / p->heads) * a->n_kv_heads;
    while (units > 0 && p->heads > 1 && units * ((group + p->heads - 1) / p->heads) < n_threads)
        p->heads = (p->heads + 1) / 2;
    p->parts = (group + p->heads - 1) / p->heads;
    p->tokens = p->rows / p->heads;
    p->n_tiles = count_tiles(a, p->tokens);
}

static void rotate(device *d, const attention *a, tensor x, int32_t n_heads)
{
    rope r = { .x = x,
               .cos = a->cos,
               .sin = a->sin,
               .n_heads = n_heads,
               .head_dim = a->qk_dim,
               .rot_dim = 2 * (int32_t)tensor_cols(&a->cos),
               .interleaved = a->interleaved };
    OP(rope)(d, &r);
}

void OP(attention_fwd)(device *d, const attention *a)
{
    cpu_device *c = cpu_of(d);
    int64_t n_tokens = tensor_rows(&a->q);
    ASSERT(a->n_heads % a->n_kv_heads == 0 && a->qk_dim <= MAX_DIM && a->v_dim <= MAX_DIM);
    if (a->cos.data) {
        rotate(d, a, a->q, a->n_heads);
        rotate(d, a, a->k, a->n_kv_heads);
    }
    if (a->kv)
        cpu_for(c, n_tokens, cpu_step((tensor_cols(&a->k) + tensor_cols(&a->v)) * 8), store_rows,
                a);
    plan p = { .a = a, .engine = mm_engine_of(c->isa, a->q.dt) };
    choose_tiles(&p, c->n_threads);
    p.v_pad = num_round_up(a->v_dim, MM_NR);
    p.k_elements = panel_elements(p.engine, a->qk_dim);
    p.p_elements = panel_elements(p.engine, BLOCK);
    cpu_for(c, p.n_tiles * a->n_kv_heads * p.parts, 1, attend_tile, &p);
}
