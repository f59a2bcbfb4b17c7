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
    COLUMNS_FEW = 2048     /* the same for few rows */
};

/* Rows [row, row + n_rows) of product number `product`, words [w, w + nw) of its k. */
typedef struct piece {
    int64_t product, row, n_rows, w, nw;
    int64_t block;   /* words of a block, the last may have fewer */
    int64_t unit;    /* of the batch, its first */
    bool few;        /* for the engine's `few` */
    mm_word *packed; /* [blocks][padded rows][MM_K] */
} piece;

/* Pieces whose rows are packed together in the device's shared scratch. */
typedef struct batch {
    cpu_device *d;
    const mm_set *set;
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
        mm_product q;
        b->set->get(b->set->ctx, p->product, &q);
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

static void store_rows(const batch *b, const piece *p, const mm_product *q, int64_t column,
                       int64_t n, const float *sums)
{
    const mm_set *s = b->set;
    float bias[COLUMNS_FEW];
    mm_row r = { .dt = s->out_dt,
                 .bias = bias_of(&s->bias, column, n, bias),
                 .n = n,
                 .scale = s->scale,
                 .accumulate = s->accumulate || p->w > 0 };
    if (p->w > 0)
        r.bias = NULL;
    size_t bytes = s->out_dt == DT_F32 ? 4 : 2;
    for (int64_t i = 0; i < p->n_rows; i++) {
        r.out = (char *)q->out + (size_t)((p->row + i) * q->b.n + column) * bytes;
        r.sums = sums + i * b->columns;
        s->engine->store(&r);
    }
}

/* One chunk: all rows of a piece, some of its columns. */
static void multiply(const void *ctx, int64_t chunk, int64_t end, void *scratch)
{
    (void)end;
    const batch *b = ctx;
    const piece *p = &b->pieces[chunk / b->chunks];
    mm_product q;
    b->set->get(b->set->ctx, p->product, &q);
    int64_t column = chunk % b->chunks * b->columns, n = least(b->columns, q.b.n - column);
    float *sums = scratch;
    multiply_columns(b, p, &q.b, column, n, sums);
    store_rows(b, p, &q, column, n, sums);
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
    mm_product q;
    b->set->get(b->set->ctx, b->pieces[0].product, &q);
    b->columns = chunk_columns(b, q.b.n);
    b->chunks = divide_up(q.b.n, b->columns);
    int64_t unit_words = divide_up(b->words, b->units);
    int64_t step = UNIT_BYTES / 4 / (unit_words > 0 ? unit_words : 1);
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
    int64_t words = divide_up(p.nw, p.block) * MM_K * padded_rows(b, &p);
    /* A piece that carries on a sum must find it in `out`. */
    if (b->n_pieces == PIECES || (b->words + words) * 4 > CPU_SHARED || p.w > 0)
        flush(b);
    p.unit = b->units;
    p.packed = (mm_word *)b->d->shared + b->words;
    b->pieces[b->n_pieces++] = p;
    b->words += words;
    b->units += divide_up(p.n_rows, UNIT);
    b->most_rows = p.n_rows > b->most_rows ? p.n_rows : b->most_rows;
}

static void add_product(batch *b, int64_t i)
{
    mm_product q;
    b->set->get(b->set->ctx, i, &q);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && b->set->accumulate))
        return;
    const mm_engine *e = b->set->engine;
    bool takes = e->takes && e->takes(&q.b, e->words);
    b->kind = !takes ? e->words : q.b.dt == DT_NF4 ? e->nf4_words : e->few_words;
    int64_t words = divide_up(q.a.k, pack_per_word(b->kind)), w = 0;
    do {
        int64_t nw = least(PIECE_K, words - w);
        int64_t fit = CPU_SHARED / 4 / (divide_up(nw, MM_K) * MM_K + 1) / UNIT * UNIT;
        int64_t parts = divide_up(q.a.n, least(fit, MM_ROWS));
        int64_t rows = pack_round_up(divide_up(q.a.n, parts), UNIT);
        for (int64_t row = 0; row < q.a.n; row += rows)
            add_piece(b, (piece){ .product = i,
                                  .row = row,
                                  .n_rows = least(rows, q.a.n - row),
                                  .w = w,
                                  .nw = nw,
                                  .few = takes && nw > 0 && q.a.n <= MM_FEW });
        w += nw;
    } while (w < words);
}

void mm_run(cpu_device *d, const mm_set *set)
{
    batch b;
    b.d = d;
    b.set = set;
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

void cpu_matmul(device *d, const mm *a)
{
    mm_product p = { .a = mm_side_of(&a->a, a->layout == MM_NT || a->layout == MM_NN),
                     .b = mm_side_of(&a->b, a->layout == MM_NT || a->layout == MM_TT),
                     .out = a->out.data };
    ASSERT(p.a.k == p.b.k && tensor_rows(&a->out) == p.a.n && tensor_cols(&a->out) == p.b.n);
    ASSERT(!a->bias.data || tensor_count(&a->bias) == p.b.n);
    mm_run(cpu_of(d), &(mm_set){ .engine = mm_engine_of(cpu_of(d)->isa, a->a.dt),
                                 .count = 1,
                                 .get = whole,
                                 .ctx = &p,
                                 .bias = a->bias,
                                 .out_dt = a->out.dt,
                                 .scale = a->scale,
                                 .accumulate = a->accumulate });
}
