#include "backend/cpu/tiles.h"

#include "backend/cpu/pack.h"
#include "tensor/nf4.h"

enum {
    TASKS = 128,         /* of a batch */
    ROWS = 1024,         /* most of a chunk, but for the last tile */
    COLUMNS = 128,       /* the same, of columns */
    COLUMNS_FEW = 2048,  /* the same for few rows */
    TILE_ROWS = 16,      /* most of a tile */
    LANES = 80 << 10,    /* words of lanes packed at once */
    BLOCKS = 16,         /* of them, at most */
    STRETCH = 64 * MM_K, /* most words of a sum; a longer one is carried in out */
    UNITS = 4,           /* tiles of rows packed at once */
    STEP = 32,           /* words of lanes with k first, of all panels */
    THIN = 64,           /* rows or columns of a thin product: packing is most of its work */
    ALIAS = 4096,        /* bytes: rows so far apart would share one set of L1 */
    /* scratch, in words */
    SUMS_ROOM = (ROWS + TILE_ROWS) * COLUMNS,
    ROWS_ROOM = STRETCH * MM_FEW,
    LANES_ROOM = CPU_SCRATCH / 4 - SUMS_ROOM - ROWS_ROOM
};

_Static_assert(LANES_ROOM >= LANES && LANES_ROOM * 4 >= 2 << 20, "what `few` takes");

/* Some rows and all columns of a product, cut into chunks of both. */
typedef struct task {
    int64_t product;
    bool turned;           /* sides have changed places: rows are columns of out */
    bool few;              /* for the engine's `few` */
    int64_t rows, columns; /* of a chunk */
    int64_t column_chunks;
    int64_t chunk, unit; /* its first of the batch */
    mm_word *packed;     /* rows that do not lie as words: [blocks][padded][MM_K]; NULL: by chunk */
    int64_t padded;
} task;

typedef struct batch {
    cpu_device *d;
    const mm_set *set;
    int64_t n, chunks, units, words; /* words of shared scratch taken */
    task tasks[TASKS];
} batch;

/* A block of k of one of the products that are added up: first and last of a sum. */
typedef struct block {
    const mm_side *rows, *lanes;
    mm_words kind;
    int64_t w, nw, number; /* number: in its sum */
    bool first, last;
    bool accumulate, bias; /* how the sum is stored */
    mm_word *packed;       /* lanes: [panels][words][MM_LANES] */
} block;

/* Rows [row, row + n_rows) by columns [column, column + n). */
typedef struct chunk {
    const batch *b;
    const task *t;
    mm_product q; /* as turned */
    int64_t row, n_rows, column, n;
    int64_t width; /* n in whole panels */
    block blocks[BLOCKS];
    int64_t n_blocks, words; /* words of a lane */
    float *sums;             /* [n_rows][width] */
    mm_word *lanes, *rows;
} chunk;

static void swap(mm_side *a, mm_side *b)
{
    mm_side x = *a;
    *a = *b;
    *b = x;
}

static mm_product product_of(const batch *b, const task *t)
{
    mm_product q = { 0 };
    b->set->get(b->set->ctx, t->product, &q);
    if (t->turned)
        swap(&q.a, &q.b);
    return q;
}

static mm_words kind_of(const mm_engine *e, const mm_side *lanes)
{
    if (!e->takes || !e->takes(lanes, e->words))
        return e->words;
    return lanes->dt == DT_NF4 ? e->nf4_words : e->few_words;
}

/* Blocks of one sum are about equally long, and hold whole blocks of NF4. */
static int64_t block_words(int64_t nw)
{
    int64_t blocks = pack_divide_up(nw > 0 ? nw : 1, MM_K);
    return pack_round_up(pack_divide_up(nw > 0 ? nw : 1, blocks), NF4_BLOCK);
}

static mm_out out_of(const batch *b, const mm_product *q)
{
    return (mm_out){ .out = q->out, .dt = b->set->out_dt, .ld = q->ld, .scale = b->set->scale };
}

/* ---- many rows */

/* Whether rows of a side are words where they lie. */
static bool lies(const mm_side *x, mm_words kind)
{
    int64_t bytes = x->dt == DT_F32 ? 4 : 2;
    bool words = x->dt == DT_F32 ? kind == MM_F32 : kind == MM_BF16_PAIR || kind == MM_BF16_ALONG;
    return words && x->k_last && x->k % (MM_WORDS * pack_per_word(kind)) == 0 &&
           x->ld * bytes % ALIAS != 0 && x->ld * bytes % 4 == 0 && (uintptr_t)x->data % 4 == 0;
}

/* The rows of a tile in a block: where they lie, or packed. */
static void tile_rows(const chunk *c, const block *k, int64_t row, mm_tile *t)
{
    const mm_side *x = k->rows;
    int64_t per_word = pack_per_word(k->kind);
    if (lies(x, k->kind)) {
        int64_t at = (c->row + row) * x->ld + k->w * per_word;
        t->rows = (const mm_word *)((const char *)x->data + at * (4 / per_word));
        t->row = x->ld / per_word;
        t->apart = k->kind == MM_BF16_ALONG;
        return;
    }
    t->row = MM_K;
    t->apart = false;
    if (c->t->packed && x == &c->q.a) {
        t->rows = c->t->packed + (k->number * c->t->padded + c->row + row) * MM_K;
        return;
    }
    mm_box box = { c->row + row, t->n_rows, k->w, k->nw }, next = box;
    next.i += t->n_rows;
    next.n = pack_least(t->n_rows, c->row + c->n_rows - next.i);
    pack_ahead ahead = pack_ahead_of(x, k->kind, next);
    if (x->k_last)
        pack_fetch(&ahead, next.n);
    t->rows = c->rows;
    c->b->set->engine->pack_rows(c->rows, x, k->kind, box);
}

/* The sums of a tile, to where they belong. */
static void store_tile(const chunk *c, const block *k, int64_t row, int64_t n, const float *sums)
{
    const batch *b = c->b;
    float bias[COLUMNS], turned[COLUMNS][TILE_ROWS];
    mm_out o = out_of(b, &c->q);
    o.accumulate = k->accumulate;
    o.sums = sums;
    o.sums_ld = c->width;
    o.n_rows = n;
    o.n = c->n;
    if (c->t->turned) {
        for (int64_t j = 0; j < c->n; j++)
            for (int64_t i = 0; i < n; i++)
                turned[j][i] = sums[i * c->width + j];
        o.sums = turned[0];
        o.sums_ld = TILE_ROWS;
        o.n_rows = c->n;
        o.n = n;
        o.out = mm_out_at(&o, c->column, c->row + row);
    } else {
        o.bias = k->bias ? mm_bias(&b->set->bias, c->column, c->n, bias) : NULL;
        o.out = mm_out_at(&o, c->row + row, c->column);
    }
    b->set->engine->store(&o);
}

/* Memory is read in the order it lies: panel by panel where k is last; else all panels together, a
 * few words at a time, while the next are fetched. */
static void pack_block(const chunk *c, const block *k)
{
    int64_t panel = pack_round_up(k->nw, MM_WORDS);
    int64_t step = k->lanes->k_last ? k->nw : STEP;
    mm_box box = { c->column, c->n, k->w, k->nw };
    pack_ahead next = pack_ahead_of(k->lanes, k->kind, box);
    if (step < k->nw)
        pack_fetch(&next, step * pack_per_word(k->kind));
    for (int64_t w = 0; w < k->nw; w += step) {
        if (step < k->nw)
            pack_fetch(&next, step * pack_per_word(k->kind));
        for (int64_t j = 0; j < c->n; j += MM_LANES)
            c->b->set->engine->pack_lanes(k->packed + j * panel + w * MM_LANES, k->lanes, k->kind,
                                          (mm_box){ c->column + j, pack_least(MM_LANES, c->n - j),
                                                    k->w + w, pack_least(step, k->nw - w) });
    }
}

static void pack_blocks(chunk *c)
{
    mm_word *to = c->lanes;
    for (int64_t i = 0; i < c->n_blocks; i++) {
        block *k = &c->blocks[i];
        k->packed = to;
        pack_block(c, k);
        to += pack_round_up(k->nw, MM_WORDS) * c->width;
    }
}

/* What this thread will probably pack next: the words after these, or the first of a chunk to come.
 */
static pack_ahead next_lanes(const chunk *c)
{
    const block *k = &c->blocks[c->n_blocks - 1];
    int64_t words = pack_divide_up(k->lanes->k, pack_per_word(k->kind));
    mm_box box = { .i = c->column, .w = k->w + k->nw };
    if (box.w >= words) {
        box.i += c->t->columns;
        box.w = 0;
    }
    if (box.i >= k->lanes->n)
        return (pack_ahead){ 0 };
    box.n = pack_least(c->n, k->lanes->n - box.i);
    box.nw = pack_least(c->words, words - box.w);
    return pack_ahead_of(k->lanes, k->kind, box);
}

/* All rows meet the blocks that have come together. Sums that begin and end in them need room for
 * one tile only. */
static void multiply_blocks(chunk *c)
{
    const mm_engine *e = c->b->set->engine;
    bool carried = !c->blocks[0].first || !c->blocks[c->n_blocks - 1].last;
    pack_blocks(c);
    pack_ahead next = next_lanes(c);
    int64_t tiles = pack_divide_up(c->n_rows, e->rows);
    for (int64_t row = 0; row < c->n_rows; row += e->rows) {
        pack_fetch(&next, pack_divide_up(next.rows, tiles));
        float *sums = c->sums + (carried ? row * c->width : 0);
        for (int64_t i = 0; i < c->n_blocks; i++) {
            const block *k = &c->blocks[i];
            mm_tile t = { .ld = c->width, .words = k->kind, .add = !k->first };
            t.n_rows = pack_least(e->rows, c->n_rows - row);
            t.nw = pack_round_up(k->nw, MM_WORDS);
            tile_rows(c, k, row, &t);
            for (int64_t j = 0; j < c->n; j += MM_LANES) {
                t.sums = sums + j;
                t.lanes = k->packed + j * t.nw;
                t.n_lanes = pack_least(MM_LANES, c->n - j);
                e->tile(&t);
            }
            if (k->last)
                store_tile(c, k, row, t.n_rows, sums);
        }
    }
    c->n_blocks = c->words = 0;
}

static void add_block(chunk *c, block k)
{
    int64_t words = pack_round_up(k.nw, MM_WORDS);
    if (c->n_blocks == BLOCKS || (c->n_blocks > 0 && (c->words + words) * c->width > LANES))
        multiply_blocks(c);
    c->blocks[c->n_blocks++] = k;
    c->words += words;
}

/* The sums of one product; `begun`: out holds something to add to. */
static void add_blocks(chunk *c, const mm_side *rows, const mm_side *lanes, bool begun, bool bias)
{
    const mm_engine *e = c->b->set->engine;
    block k = { .rows = rows, .lanes = lanes, .kind = kind_of(e, lanes) };
    int64_t words = pack_divide_up(rows->k, pack_per_word(k.kind)), from = 0;
    do {
        int64_t n = pack_least(STRETCH, words - from), each = block_words(n);
        k.accumulate = begun || from > 0;
        k.bias = bias && from == 0;
        for (int64_t w = 0; w == 0 || w < n; w += each) {
            k.w = from + w;
            k.nw = pack_least(each, n - w);
            k.number = w / each;
            k.first = w == 0;
            k.last = w + each >= n;
            add_block(c, k);
        }
        from += n;
    } while (from < words);
}

static void multiply_many(chunk *c)
{
    bool begun = c->b->set->accumulate;
    for (int i = 0; i < c->q.n_more; i++, begun = true)
        add_blocks(c, &c->q.more[i].a, &c->q.more[i].b, begun, false);
    add_blocks(c, &c->q.a, &c->q.b, begun, true);
    multiply_blocks(c);
}

/* ---- few rows: all words of k at once, from weights as they lie */

static void multiply_few(chunk *c)
{
    const batch *b = c->b;
    const mm_engine *e = b->set->engine;
    const mm_side *x = &c->q.b;
    mm_words kind = kind_of(e, x);
    float bias[COLUMNS_FEW];
    int64_t words = pack_divide_up(x->k, pack_per_word(kind));
    for (int64_t from = 0; from < words; from += STRETCH) {
        int64_t nw = pack_least(STRETCH, words - from), each = block_words(nw);
        for (int64_t w = 0; w < nw; w += each)
            e->pack_few(c->rows + w / each * c->n_rows * MM_K, &c->q.a, kind,
                        (mm_box){ c->row, c->n_rows, from + w, pack_least(each, nw - w) });
        mm_tile t = { .sums = c->sums,
                      .ld = c->width,
                      .rows = c->rows,
                      .words = kind,
                      .n_rows = c->n_rows,
                      .block = each,
                      .scratch = c->lanes };
        e->few(&t, x, kind, (mm_box){ c->column, c->n, from, nw });
        mm_out o = out_of(b, &c->q);
        o.out = mm_out_at(&o, c->row, c->column);
        o.accumulate = b->set->accumulate || from > 0;
        o.bias = from > 0 ? NULL : mm_bias(&b->set->bias, c->column, c->n, bias);
        o.sums = c->sums;
        o.sums_ld = c->width;
        o.n_rows = c->n_rows;
        o.n = c->n;
        e->store(&o);
    }
}

/* ---- cutting the work */

static const task *task_of(const batch *b, int64_t number)
{
    const task *t = b->tasks + b->n - 1;
    while (t->chunk > number)
        t--;
    return t;
}

static void multiply(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* one a range */
    const batch *b = ctx;
    const task *t = task_of(b, begin);
    int64_t at = begin - t->chunk;
    chunk c = { .b = b, .t = t, .q = product_of(b, t), .sums = scratch };
    c.lanes = (mm_word *)(c.sums + SUMS_ROOM);
    c.rows = c.lanes + LANES_ROOM;
    c.row = at / t->column_chunks * t->rows;
    c.n_rows = pack_least(t->rows, c.q.a.n - c.row);
    c.column = at % t->column_chunks * t->columns;
    c.n = pack_least(t->columns, c.q.b.n - c.column);
    c.width = pack_round_up(c.n, MM_LANES);
    if (t->few)
        multiply_few(&c);
    else
        multiply_many(&c);
}

/* Tiles of rows, packed for all chunks. */
static void pack_units(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const batch *b = ctx;
    const mm_engine *e = b->set->engine;
    const task *t = b->tasks + b->n - 1;
    for (int64_t u = end - 1; u >= begin; u--) {
        while (t->unit > u || !t->packed)
            t--;
        mm_product q = product_of(b, t);
        mm_words kind = kind_of(e, &q.b);
        int64_t row = (u - t->unit) * e->rows, words = pack_divide_up(q.a.k, pack_per_word(kind));
        int64_t each = block_words(words), n = pack_least(e->rows, q.a.n - row);
        for (int64_t w = 0; w < words; w += each)
            e->pack_rows(t->packed + (w / each * t->padded + row) * MM_K, &q.a, kind,
                         (mm_box){ row, n, w, pack_least(each, words - w) });
    }
}

static void flush(batch *b)
{
    if (b->units > 0)
        cpu_for(b->d, b->units, UNITS, pack_units, b);
    cpu_for(b->d, b->chunks, 1, multiply, b);
    b->n = b->chunks = b->units = b->words = 0;
}

/* Rows that several chunks would pack are packed once, if there is room. */
static void share_rows(batch *b, const mm_product *q, task *t)
{
    const mm_engine *e = b->set->engine;
    mm_words kind = kind_of(e, &q->b);
    int64_t words = pack_divide_up(q->a.k, pack_per_word(kind));
    int64_t padded = pack_round_up(q->a.n, e->rows);
    int64_t room = pack_divide_up(words, block_words(words)) * padded * MM_K;
    if (t->few || t->column_chunks == 1 || lies(&q->a, kind) || words > STRETCH ||
        room > CPU_SHARED / 4)
        return;
    if (b->words + room > CPU_SHARED / 4)
        flush(b);
    t->packed = (mm_word *)b->d->shared + b->words;
    t->padded = padded;
    t->unit = b->units;
    b->words += room;
    b->units += padded / e->rows;
}

/* Lanes with k first are copied, rows then turned; with k last it is the other way round. Where one
 * side is thin, the other goes where it costs less. */
static bool turns(const mm_set *set, const mm_product *q)
{
    int64_t thin = pack_least(q->a.n, q->b.n);
    return thin <= THIN && q->a.n > q->b.n && !q->a.k_last && !q->b.k_last && !set->bias.data;
}

/* Every thread wants several chunks; sums do not cross chunks, so they may depend on the number of
 * threads. Whole sums that stay in L2 are better than wide chunks where rows lie. */
static void cut(const batch *b, const mm_product *q, task *t)
{
    const mm_engine *e = b->set->engine;
    mm_words kind = kind_of(e, &q->b);
    int64_t chunks = b->d->n_threads * 4, words = pack_divide_up(q->a.k, pack_per_word(kind));
    int64_t columns = pack_least(pack_divide_up(q->b.n, chunks), t->few ? COLUMNS_FEW : COLUMNS);
    if (!t->few && lies(&q->a, kind) && words > LANES / COLUMNS)
        columns = pack_least(columns, words < LANES / MM_LANES ? LANES / words : COLUMNS);
    t->columns = pack_round_up(columns, MM_LANES);
    t->column_chunks = pack_divide_up(q->b.n, t->columns);
    int64_t rows = pack_divide_up(q->a.n, pack_divide_up(q->a.n, ROWS));
    if (q->b.n <= THIN)
        rows = pack_least(rows, pack_divide_up(q->a.n, chunks));
    t->rows = t->few ? q->a.n : pack_round_up(rows, e->rows);
}

static void add_task(batch *b, int64_t i)
{
    const mm_engine *e = b->set->engine;
    task t = { .product = i };
    mm_product q = { 0 };
    b->set->get(b->set->ctx, i, &q);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && b->set->accumulate))
        return;
    t.turned = turns(b->set, &q);
    t.few = q.a.n <= MM_FEW && q.a.k > 0 && e->takes && e->takes(&q.b, e->words);
    if (t.turned)
        swap(&q.a, &q.b);
    cut(b, &q, &t);
    if (b->n == TASKS)
        flush(b);
    share_rows(b, &q, &t);
    t.chunk = b->chunks;
    b->tasks[b->n++] = t;
    b->chunks += t.column_chunks * pack_divide_up(q.a.n, t.rows);
}

void tiles_run(cpu_device *d, const mm_set *set)
{
    batch b;
    b.d = d;
    b.set = set;
    b.n = b.chunks = b.units = b.words = 0;
    for (int64_t i = 0; i < set->count; i++)
        add_task(&b, i);
    flush(&b);
}
