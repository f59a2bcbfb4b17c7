#include "backend/cpu/matmul.h"

#include "backend/cpu/kernel.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/pack.h"
#include "tensor/bf16.h"
#include "tensor/nf4.h"

#include <string.h>

enum {
    UNIT = 16,             /* rows packed at once */
    PIECES = 128,          /* of a batch */
    PIECE_K = 64 * MM_K,   /* most words of a piece along k; a longer sum is carried in `out` */
    UNIT_BYTES = 64 << 10, /* packed by one chunk of work */
    COLUMNS = 256,         /* most columns of a chunk: its sums are MM_ROWS x COLUMNS */
    COLUMNS_FEW = 2048,    /* the same for few rows */
    BLOCKS = 4,            /* of a panel at once: its lanes stay in L2 */
    THIN = 64              /* rows or columns of a thin product: packing is most of its work */
};

/* Rows [row, row + n_rows) of product number `product`, words [w, w + nw) of its k. */
typedef struct piece {
    int64_t product, row, n_rows, w, nw;
    int64_t block;   /* words of a block, the last may have fewer */
    int64_t unit;    /* of the batch, its first */
    bool few;        /* for the engine's `few` */
    bool lies;       /* as tiles: not packed */
    mm_word *packed; /* [blocks][padded rows][MM_K] */
} piece;

/* Pieces whose rows are packed together in the device's shared scratch. */
typedef struct batch {
    cpu_device *d;
    const mm_set *set;
    bool turned;                               /* sides have changed places */
    int64_t n_pieces, units, most_rows, words; /* words of shared scratch taken */
    mm_words kind;                             /* of words, of all products */
    int64_t columns;                           /* of a chunk */
    int64_t chunks;                            /* of a piece */
    piece pieces[PIECES];
} batch;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static mm_product product_of(const batch *b, int64_t i)
{
    mm_product q;
    b->set->get(b->set->ctx, i, &q);
    return b->turned ? (mm_product){ .a = q.b, .b = q.a, .out = q.out, .ld = q.ld } : q;
}

static int64_t padded_rows(const batch *b, const piece *p)
{
    return pack_round_up(p->n_rows, b->set->engine->row_pad);
}

static const mm_word *block_rows(const batch *b, const piece *p, int64_t block, int64_t row)
{
    return p->packed + (block * padded_rows(b, p) + row) * MM_K;
}

static mm_box box_of(const piece *p, int64_t block, int64_t i, int64_t n)
{
    int64_t w = block * p->block;
    return (mm_box){ .i = i, .n = n, .w = p->w + w, .nw = least(p->block, p->nw - w) };
}

static const piece *piece_of_unit(const batch *b, int64_t unit)
{
    int64_t low = 0, high = b->n_pieces;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if (b->pieces[mid].unit <= unit)
            low = mid;
        else
            high = mid;
    }
    return &b->pieces[low];
}

static void pack_units(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const batch *b = ctx;
    const mm_engine *e = b->set->engine;
    for (int64_t u = begin; u < end; u++) {
        const piece *p = piece_of_unit(b, u);
        mm_product q = product_of(b, p->product);
        int64_t row = (u - p->unit) * UNIT, n = least(UNIT, p->n_rows - row);
        for (int64_t block = 0; block * p->block < p->nw; block++)
            (p->few ? e->pack_few : e->pack_rows)((mm_word *)block_rows(b, p, block, row), &q.a,
                                                  b->kind, box_of(p, block, p->row + row, n));
    }
}

/* Memory to be fetched piece by piece while something else is computed: rows `stride` apart. */
typedef struct lookahead {
    const char *at;
    int64_t stride, bytes, rows, row;
} lookahead;

/* The memory of a box of a side. */
static lookahead lookahead_of(const mm_side *x, mm_words words, mm_box box)
{
    int64_t k = box.w * pack_per_word(words), n = box.nw * pack_per_word(words);
    int64_t bits = x->dt == DT_F32 ? 32 : x->dt == DT_BF16 ? 16 : 4;
    int64_t first = x->k_last ? box.i * x->ld + k : k * x->ld + box.i;
    return (lookahead){ .at = (const char *)x->data + first * bits / 8,
                        .stride = x->ld * bits / 8,
                        .bytes = (x->k_last ? n : box.n) * bits / 8,
                        .rows = x->k_last ? box.n : least(n, x->k - k) };
}

static void fetch_rows(lookahead *f, int64_t n)
{
    for (int64_t end = least(f->rows, f->row + n); f->row < end; f->row++)
        for (int64_t i = 0; i < f->bytes; i += 64)
            __builtin_prefetch(f->at + f->row * f->stride + i, 0, 2);
}

/* ---- tile and store */

/* sums [n_rows][ld] of one packed panel of lanes over one block; meanwhile `next` is fetched. */
static void multiply_panel(const batch *b, const piece *p, mm_tile t, lookahead *next)
{
    int64_t step = b->set->engine->rows, tiles = divide_up(p->n_rows, step);
    for (int64_t row = 0; row < p->n_rows; row += step) {
        mm_tile part = t;
        part.sums += row * t.ld;
        part.rows += row * MM_K;
        part.n_rows = least(step, p->n_rows - row);
        b->set->engine->tile(&part);
        fetch_rows(next, divide_up(next->rows, tiles));
    }
}

/* sums [n_rows][columns] of columns [column, column + n) of a piece. */
static void multiply_columns(const batch *b, const piece *p, const mm_side *lanes, int64_t column,
                             int64_t n, float *sums)
{
    const mm_engine *e = b->set->engine;
    mm_word *packed = (mm_word *)(sums + MM_ROWS * COLUMNS);
    mm_tile t = { .sums = sums,
                  .ld = b->columns,
                  .rows = p->packed,
                  .lanes = packed,
                  .words = b->kind,
                  .n_rows = p->n_rows,
                  .block = p->block,
                  .scratch = packed };
    mm_box all = { .i = column, .n = n, .w = p->w, .nw = p->nw };
    if (p->few) {
        e->few(&t, lanes, b->kind, all);
        return;
    }
    if (p->nw == 0)
        memset(sums, 0, (size_t)(p->n_rows * b->columns) * sizeof *sums);
    for (int64_t block = 0; block * p->block < p->nw; block++)
        for (int64_t j = 0; j < n; j += MM_LANES) {
            mm_box box = box_of(p, block, column + j, least(MM_LANES, n - j)), next = box;
            next.i += MM_LANES;
            next.n = least(MM_LANES, n - j - MM_LANES);
            lookahead f = lookahead_of(lanes, b->kind, next);
            e->pack_lanes(packed, lanes, b->kind, box);
            t.sums = sums + j;
            t.rows = block_rows(b, p, block, 0);
            t.add = block > 0;
            t.nw = pack_round_up(box.nw, MM_WORDS);
            multiply_panel(b, p, t, &f);
        }
}

static const float *bias_of(const tensor *bias, int64_t first, int64_t n, float *out)
{
    if (!bias->data)
        return NULL;
    const char *at = (const char *)bias->data + first * (bias->dt == DT_F32 ? 4 : 2);
    if (bias->dt == DT_F32)
        memcpy(out, at, (size_t)n * sizeof *out);
    else
        bf16_decode(out, at, n);
    return out;
}

static mm_out out_of(const batch *b, const piece *p, const mm_product *q)
{
    const mm_set *s = b->set;
    return (mm_out){ .out = q->out,
                     .dt = s->out_dt,
                     .ld = q->ld,
                     .scale = s->scale,
                     .accumulate = s->accumulate || p->w > 0 };
}

/* Where row i, column j of out is. */
static void *out_at(const mm_out *o, int64_t i, int64_t j)
{
    return (char *)o->out + (i * o->ld + j) * (o->dt == DT_F32 ? 4 : 2);
}

static void store_rows(const batch *b, const piece *p, const mm_product *q, int64_t column,
                       int64_t n, const float *sums)
{
    float bias[COLUMNS_FEW];
    mm_out o = out_of(b, p, q);
    o.out = out_at(&o, p->row, column);
    o.sums = sums;
    o.sums_ld = b->columns;
    o.n_rows = p->n_rows;
    o.n = n;
    o.bias = p->w > 0 ? NULL : bias_of(&b->set->bias, column, n, bias);
    b->set->engine->store(&o);
}

/* ---- panels */

static mm_left left_of(const batch *b, const piece *p, const mm_side *x)
{
    if (p->lies)
        return (mm_left){ .at = (const char *)x->data + (p->row * x->ld + p->w * 2) * 2,
                          .row = x->ld * 2,
                          .words = 64,
                          .rows = UNIT * x->ld * 2,
                          .block = p->block * 4 };
    return (mm_left){ .at = (const char *)p->packed,
                      .row = 64,
                      .words = UNIT * 64,
                      .rows = UNIT * MM_K * 4,
                      .block = padded_rows(b, p) * MM_K * 4 };
}

/* The rows after the last whole sixteen of a piece that lies as tiles: [blocks][16][MM_K]. */
static mm_left rest_of(const batch *b, const piece *p, const mm_side *x, mm_word *packed)
{
    int64_t n = p->n_rows % UNIT;
    if (!p->lies || n == 0)
        return (mm_left){ 0 };
    for (int64_t block = 0; block * p->block < p->nw; block++)
        b->set->engine->pack_rows(packed + block * UNIT * MM_K, x, b->kind,
                                  box_of(p, block, p->row + p->n_rows - n, n));
    return (mm_left){
        .at = (const char *)packed, .row = 64, .words = UNIT * 64, .block = UNIT * MM_K * 4
    };
}

/* One panel, some rows at a time; meanwhile `next` is fetched. */
static void panel_rows(const batch *b, const piece *p, const mm_panel *all, lookahead *next)
{
    int64_t step = b->set->engine->rows, tiles = divide_up(p->n_rows, step);
    for (int64_t row = 0; row < p->n_rows; row += step) {
        mm_panel t = *all;
        t.whole.at += row / UNIT * t.whole.rows;
        t.to.n_rows = least(step, p->n_rows - row);
        if (row + step < p->n_rows)
            t.rest.at = NULL;
        t.sums += row * t.sums_ld;
        t.to.out = out_at(&t.to, b->turned ? 0 : row, b->turned ? row : 0);
        if (t.to.bias && b->turned)
            t.to.bias += row;
        b->set->engine->panel(&t);
        fetch_rows(next, divide_up(next->rows, tiles));
    }
}

/* All panels of a chunk, BLOCKS blocks from `first` on. */
static void multiply_blocks(const batch *b, const piece *p, const mm_side *lanes, mm_box box,
                            const mm_panel *all, int64_t first)
{
    int64_t from = first * p->block, n = least(BLOCKS * p->block, p->nw - from);
    mm_panel t = *all;
    t.whole.at += first * t.whole.block;
    if (t.rest.at)
        t.rest.at += first * t.rest.block;
    t.nw = pack_round_up(n, MM_WORDS);
    t.add = first > 0;
    t.more = from + n < p->nw;
    for (int64_t j = 0; j < box.n; j += MM_LANES) {
        mm_box next = { .i = box.i + j + MM_LANES, .n = box.n - j - MM_LANES, .w = p->w + from };
        next.n = least(MM_LANES, next.n);
        next.nw = n;
        lookahead f = lookahead_of(lanes, b->kind, next);
        mm_panel one = t;
        one.sums += j;
        one.to.n = least(MM_LANES, box.n - j);
        one.to.out = b->turned ? out_at(&t.to, j, 0) : out_at(&t.to, 0, j);
        if (one.to.bias && !b->turned)
            one.to.bias += j;
        for (int64_t w = 0; w < n; w += p->block)
            b->set->engine->pack_lanes((mm_word *)t.lanes + w * MM_LANES, lanes, b->kind,
                                       box_of(p, first + w / p->block, box.i + j, one.to.n));
        panel_rows(b, p, &one, &f);
    }
}

static void multiply_panels(const batch *b, const piece *p, const mm_product *q, int64_t column,
                            int64_t n, float *sums)
{
    float bias[COLUMNS_FEW];
    mm_word *lanes = (mm_word *)(sums + MM_ROWS * COLUMNS),
            *rest = lanes + BLOCKS * MM_K * MM_LANES;
    mm_panel t = { .whole = left_of(b, p, &q->a),
                   .rest = rest_of(b, p, &q->a, rest),
                   .lanes = lanes,
                   .block = p->block,
                   .sums = sums,
                   .sums_ld = b->columns,
                   .turned = b->turned,
                   .to = out_of(b, p, q) };
    t.to.n_rows = p->n_rows;
    t.to.out = b->turned ? out_at(&t.to, column, p->row) : out_at(&t.to, p->row, column);
    t.to.bias = p->w > 0    ? NULL
                : b->turned ? bias_of(&b->set->bias, p->row, p->n_rows, bias)
                            : bias_of(&b->set->bias, column, n, bias);
    int64_t first = 0;
    do {
        multiply_blocks(b, p, &q->b, (mm_box){ .i = column, .n = n }, &t, first);
        first += BLOCKS;
    } while (first * p->block < p->nw);
}

/* One chunk: all rows of a piece, some of its columns. */
static void multiply(const void *ctx, int64_t chunk, int64_t end, void *scratch)
{
    (void)end;
    const batch *b = ctx;
    const mm_engine *e = b->set->engine;
    const piece *p = &b->pieces[chunk / b->chunks];
    mm_product q = product_of(b, p->product);
    int64_t column = chunk % b->chunks * b->columns, n = least(b->columns, q.b.n - column);
    if (e->panel && !p->few) {
        e->begin();
        multiply_panels(b, p, &q, column, n, scratch);
        e->end();
        return;
    }
    multiply_columns(b, p, &q.b, column, n, scratch);
    store_rows(b, p, &q, column, n, scratch);
}

/* Wide chunks read packed rows from L2 rather than L3, and few rows want a long run of weights; but
 * every thread wants several chunks. Sums do not cross columns, so the width may depend on the
 * number of threads. */
static int64_t chunk_columns(const batch *b, int64_t n_columns)
{
    int64_t most = b->most_rows <= MM_FEW ? COLUMNS_FEW : COLUMNS;
    int64_t share = n_columns * b->n_pieces / (b->d->n_threads * 4);
    return pack_round_up(least(share > 0 ? share : 1, most), MM_LANES);
}

static void flush(batch *b)
{
    if (b->n_pieces == 0)
        return;
    mm_product q = product_of(b, b->pieces[0].product);
    b->columns = chunk_columns(b, q.b.n);
    b->chunks = divide_up(q.b.n, b->columns);
    int64_t unit_words = divide_up(b->words, b->units > 0 ? b->units : 1);
    int64_t step = UNIT_BYTES / 4 / (unit_words > 0 ? unit_words : 1);
    if (b->units > 0)
        cpu_for(b->d, b->units, step > 0 ? step : 1, pack_units, b);
    cpu_for(b->d, b->n_pieces * b->chunks, 1, multiply, b);
    b->n_pieces = b->units = b->words = b->most_rows = 0;
}

/* Blocks of one sum are about equally long, and hold whole blocks of NF4. */
static int64_t block_words(int64_t nw)
{
    int64_t blocks = divide_up(nw > 0 ? nw : 1, MM_K);
    return pack_round_up(divide_up(nw > 0 ? nw : 1, blocks), NF4_BLOCK);
}

static void add_piece(batch *b, piece p)
{
    p.block = block_words(p.nw);
    int64_t words = p.lies ? 0 : divide_up(p.nw, p.block) * MM_K * padded_rows(b, &p);
    /* A piece that carries on a sum must find it in `out`. */
    if (b->n_pieces == PIECES || (b->words + words) * 4 > CPU_SHARED || p.w > 0)
        flush(b);
    p.unit = b->units;
    p.packed = (mm_word *)b->d->shared + b->words;
    b->pieces[b->n_pieces++] = p;
    b->words += words;
    b->units += p.lies ? 0 : divide_up(p.n_rows, UNIT);
    b->most_rows = p.n_rows > b->most_rows ? p.n_rows : b->most_rows;
}

/* Whether vectors of a side are rows of tiles where they lie: whole words of sixteen, in order. */
static bool lies_as_tiles(const batch *b, const mm_side *x)
{
    return b->set->engine->panel && b->kind == MM_BF16_PAIR && x->dt == DT_BF16 && x->k_last &&
           x->k > 0 && x->k % (2 * MM_WORDS) == 0;
}

/* Most rows of a piece: as many as can be packed; few columns want several pieces a thread. */
static int64_t piece_rows(const batch *b, const mm_product *q, int64_t nw)
{
    int64_t fit = CPU_SHARED / 4 / (divide_up(nw, MM_K) * MM_K + 1) / UNIT * UNIT;
    int64_t most = least(fit, MM_ROWS);
    if (b->set->engine->panel && q->b.n <= THIN)
        most = least(most, pack_round_up(divide_up(q->a.n, b->d->n_threads * 4), 2 * UNIT));
    int64_t parts = divide_up(q->a.n, most);
    return pack_round_up(divide_up(q->a.n, parts), UNIT);
}

static void add_product(batch *b, int64_t i)
{
    mm_product q = product_of(b, i);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && b->set->accumulate))
        return;
    const mm_engine *e = b->set->engine;
    const mm_side *weights = b->turned ? &q.a : &q.b;
    bool takes = e->takes && e->takes(weights, e->words);
    b->kind = !takes ? e->words : weights->dt == DT_NF4 ? e->nf4_words : e->few_words;
    bool few = takes && !b->turned && q.a.n <= MM_FEW;
    int64_t words = divide_up(q.a.k, pack_per_word(b->kind)), w = 0;
    do {
        int64_t nw = least(PIECE_K, words - w), rows = piece_rows(b, &q, nw);
        for (int64_t row = 0; row < q.a.n; row += rows)
            add_piece(b, (piece){ .product = i,
                                  .row = row,
                                  .n_rows = least(rows, q.a.n - row),
                                  .w = w,
                                  .nw = nw,
                                  .few = few && nw > 0,
                                  .lies = !few && lies_as_tiles(b, &q.a) });
        w += nw;
    } while (w < words);
}

/* A side with k last is free on the left and costs most on the right; one with k first the other
 * way round. Where one side is thin, the other goes where it costs less. All products of a set
 * must agree: they have as many rows as the first, or differ in their rows. */
static bool turns(const mm_set *set)
{
    mm_product q;
    if (!set->engine->panel || set->count == 0)
        return false;
    set->get(set->ctx, 0, &q);
    int64_t thin = least(q.a.n, q.b.n);
    if ((set->count > 1 && q.a.k_last) || thin > THIN || q.a.n <= MM_FEW || q.a.n == q.b.n ||
        q.b.dt == DT_NF4)
        return false;
    return q.a.n > q.b.n ? !q.a.k_last : q.b.k_last;
}

void mm_run(cpu_device *d, const mm_set *set)
{
    batch b;
    b.d = d;
    b.set = set;
    b.turned = turns(set);
    b.n_pieces = b.units = b.words = b.most_rows = 0;
    for (int64_t i = 0; i < set->count; i++)
        add_product(&b, i);
    flush(&b);
}

mm_side mm_side_of(const tensor *t, bool k_last)
{
    int64_t rows = tensor_rows(t), cols = tensor_cols(t);
    ASSERT(t->dt == DT_F32 || t->dt == DT_BF16 || t->dt == DT_NF4);
    return (mm_side){ .data = t->data,
                      .scales = t->dt == DT_NF4 ? nf4_scales(t->data, rows * cols) : NULL,
                      .dt = t->dt,
                      .k_last = k_last,
                      .ld = cols,
                      .n = k_last ? rows : cols,
                      .k = k_last ? cols : rows };
}

const mm_engine *mm_engine_of(cpu_isa isa, dtype activations)
{
    static const mm_engine *const engines[CPU_ISA_COUNT][2] = {
        [CPU_BASE] = { &kernel_base_f32, &kernel_base_bf16 },
        [CPU_AVX2] = { &kernel_avx2_f32, &kernel_avx2_bf16 },
        [CPU_AVX512] = { &kernel_avx512_f32, &kernel_avx512_bf16 },
        [CPU_AVX512_BF16] = { &kernel_avx512_f32, &kernel_avx512_pairs },
        [CPU_AMX] = { &kernel_avx512_f32, &kernel_amx },
    };
    ASSERT(activations == DT_F32 || activations == DT_BF16);
    return engines[isa][activations == DT_BF16];
}

static void whole(const void *ctx, int64_t i, mm_product *p)
{
    (void)i;
    *p = *(const mm_product *)ctx;
}

static mm_side pitched(const tensor *t, int64_t ld, bool k_last)
{
    mm_side s = mm_side_of(t, k_last);
    ASSERT(!ld || (ld >= s.ld && t->dt != DT_NF4));
    s.ld = ld ? ld : s.ld;
    return s;
}

/* One of the products that `a` is the sum of. */
static void multiply_pair(cpu_device *d, const mm *a, const mm_pair *q, tensor bias,
                          bool accumulate)
{
    mm_product p = { .a = pitched(&q->a, q->a_ld, a->layout != MM_TN),
                     .b = pitched(&q->b, q->b_ld, a->layout == MM_NT),
                     .out = a->out.data,
                     .ld = a->out_ld ? a->out_ld : tensor_cols(&a->out) };
    ASSERT(p.a.k == p.b.k && tensor_rows(&a->out) == p.a.n && tensor_cols(&a->out) == p.b.n);
    ASSERT(!bias.data || tensor_count(&bias) == p.b.n);
    mm_run(d, &(mm_set){ .engine = mm_engine_of(d->isa, q->a.dt),
                         .count = 1,
                         .get = whole,
                         .ctx = &p,
                         .bias = bias,
                         .out_dt = a->out.dt,
                         .scale = a->scale,
                         .accumulate = accumulate });
}

void cpu_matmul(device *d, const mm *a)
{
    for (int i = 0; i < a->n_more; i++)
        multiply_pair(cpu_of(d), a, &a->more[i], (tensor){ 0 }, a->accumulate || i > 0);
    multiply_pair(cpu_of(d), a, &(mm_pair){ a->a, a->b, a->a_ld, a->b_ld }, a->bias,
                  a->accumulate || a->n_more > 0);
}

void cpu_matmuls(device *d, const mm *a, int n)
{
    for (int i = 0; i < n; i++)
        cpu_matmul(d, a + i);
}
