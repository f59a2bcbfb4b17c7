#include "backend/cpu/panels.h"

#include "backend/cpu/pack.h"

#include <string.h>

enum {
    TASKS = 128,            /* of a batch */
    CHUNKS = 8,             /* of a task for each thread, if it has as many strips and panels */
    UNIT_PANELS = 4,        /* packed by one chunk of work */
    THIN = 2,               /* strips that are not worth sharing lanes for */
    LONG = 8192,            /* words: longer sums are cut, and carried */
    PASS = 1024,            /* words of one at a time, if all its rows and columns are carried */
    SPAN = 4096,            /* the same, if a chunk carries its own */
    LANE_BYTES = 512 << 10, /* of a chunk: they stay in L2 */
    ROWS = 512,             /* most of a chunk that packs its own lanes */
    SUMS = 64 << 10,        /* of such a chunk */
    COLUMNS = 2048,         /* most of any chunk */
    STRIP_WORDS = (LONG / MM_K + MM_TERMS) * MM_STRIP * MM_K,
    FEW_WORDS = LONG * MM_FEW,
    BIAS = 4096 /* most numbers of a bias that a chunk has */
};

_Static_assert((SUMS + BIAS + STRIP_WORDS + LANE_BYTES / 2) * 4 <= CPU_SCRATCH, "a chunk's room");
_Static_assert(LANE_BYTES / 2 >= SPAN * MM_LANES, "a panel's room");
_Static_assert((SUMS + BIAS + FEW_WORDS + MM_FEW * COLUMNS) * 4 <= CPU_SCRATCH / 2,
               "few rows' room");

/* Some columns of a product, cut into chunks of rows and columns. */
typedef struct task {
    int64_t product;
    bool turned; /* sides have changed places: rows are columns of out */
    bool few;    /* for the engine's `few` */
    bool shared; /* lanes are packed before all chunks, not by each */
    int64_t column, n_columns;
    int64_t rows, columns; /* of a chunk */
    int64_t row_chunks;
    int64_t unit_panels; /* packed together */
    int64_t unit, chunk; /* its first of the batch */
    mm_word *lanes;      /* of span after span: [panels][words][MM_LANES] */
    float *sums;         /* [rows][columns] carried from pass to pass; NULL: there is one */
} task;

typedef struct batch {
    cpu_device *d;
    const mm_set *set;
    int64_t n, units, chunks, words; /* words of shared scratch taken */
    int64_t w, pass;                 /* words of each term in this pass */
    task tasks[TASKS];
} batch;

/* Words [w, w + nw) of a term of a product. */
typedef struct span {
    mm_words kind;
    mm_side left, right;
    int64_t w, nw;
} span;

/* ---- terms */

static mm_words kind_of(const mm_engine *e, const mm_side *weights)
{
    return weights->dt == DT_NF4 && e->takes(weights, e->words) ? e->nf4_words : e->words;
}

/* The terms of a product, as much of each as belongs to this pass; returns their number. */
static int spans_of(const batch *b, const mm_product *q, bool turned, span *out)
{
    for (int i = 0; i <= q->n_more; i++) {
        const mm_side *x = i < q->n_more ? &q->more[i].a : &q->a;
        const mm_side *y = i < q->n_more ? &q->more[i].b : &q->b;
        mm_words kind = kind_of(b->set->engine, y);
        out[i] =
            (span){ .kind = kind,
                    .left = turned ? *y : *x,
                    .right = turned ? *x : *y,
                    .w = b->w,
                    .nw = pack_least(b->pass, pack_divide_up(x->k, pack_per_word(kind)) - b->w) };
    }
    return q->n_more + 1;
}

static int64_t padded_words(const span *s, int n)
{
    int64_t words = 0;
    for (int i = 0; i < n; i++)
        words += pack_round_up(s[i].nw, MM_WORDS);
    return words;
}

/* Whether vectors of a side are rows of tiles where they lie: whole words of sixteen, in order. */
static bool lies_as_tiles(const mm_side *x, mm_words kind)
{
    return kind == MM_BF16_PAIR && x->dt == DT_BF16 && x->k_last && x->k % (2 * MM_WORDS) == 0;
}

/* ---- packing */

/* Lanes [lane, lane + n) of a span to dst [panels][words][MM_LANES]. Memory is read in the order it
 * lies, what comes next is fetched meanwhile: panel by panel where k is last; else all panels
 * together, a few words at a time. */
static void pack_span(const batch *b, const span *s, int64_t lane, int64_t n, mm_word *dst)
{
    const mm_side *x = &s->right;
    int64_t panel = pack_round_up(s->nw, MM_WORDS) * MM_LANES;
    int64_t step = x->dt == DT_NF4 ? MM_K : x->k_last ? 4 * MM_WORDS : MM_WORDS;
    int64_t together = x->k_last ? MM_LANES : n;
    for (int64_t first = 0; first < n; first += together) {
        mm_box next = { lane + first + MM_LANES, pack_least(MM_LANES, n - first - MM_LANES), s->w,
                        s->nw };
        pack_ahead ahead = pack_ahead_of(x, s->kind, next);
        int64_t rows = ahead.rows * step / (s->nw + 1) + 1;
        for (int64_t w = 0; w < s->nw; w += step) {
            if (!x->k_last) {
                next = (mm_box){ lane, n, s->w + w + step, pack_least(step, s->nw - w - step) };
                ahead = pack_ahead_of(x, s->kind, next);
                rows = ahead.rows;
            }
            pack_fetch(&ahead, rows);
            for (int64_t i = first; i < pack_least(n, first + together); i += MM_LANES)
                b->set->engine->pack_lanes(dst + i / MM_LANES * panel + w * MM_LANES, x, s->kind,
                                           (mm_box){ lane + i, pack_least(MM_LANES, n - i),
                                                     s->w + w, pack_least(step, s->nw - w) });
        }
    }
}

/* The task that has chunk number `number`, or unit. */
static const task *task_of(const batch *b, int64_t number, bool unit)
{
    int64_t low = 0, high = b->n;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if ((unit ? b->tasks[mid].unit : b->tasks[mid].chunk) <= number)
            low = mid;
        else
            high = mid;
    }
    return &b->tasks[low];
}

static void pack_units(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const batch *b = ctx;
    for (int64_t u = begin; u < end; u++) {
        const task *t = task_of(b, u, true);
        mm_product q;
        span spans[MM_TERMS];
        b->set->get(b->set->ctx, t->product, &q);
        int n = spans_of(b, &q, t->turned, spans);
        int64_t panels = pack_divide_up(t->n_columns, MM_LANES),
                panel = (u - t->unit) * t->unit_panels;
        int64_t column = panel * MM_LANES;
        int64_t columns = pack_least(t->unit_panels * MM_LANES, t->n_columns - column);
        mm_word *lanes = t->lanes;
        for (int i = 0; i < n; i++) {
            int64_t words = pack_round_up(spans[i].nw, MM_WORDS) * MM_LANES;
            pack_span(b, &spans[i], t->column + column, columns, lanes + panel * words);
            lanes += panels * words;
        }
    }
}

/* n rows of a span as tiles: where they lie, or packed to *room, which moves on. */
static mm_left left_of(const batch *b, const span *s, int64_t row, int64_t n, mm_word **room)
{
    const mm_side *x = &s->left;
    if (lies_as_tiles(x, s->kind) && n % MM_TILE == 0)
        return (mm_left){ .at = (const char *)x->data + (row * x->ld + s->w * 2) * 2,
                          .row = x->ld * 2,
                          .words = MM_TILE * 4,
                          .rows = MM_TILE * x->ld * 2,
                          .block = MM_K * 4,
                          .followed = true };
    mm_word *packed = *room;
    for (int64_t w = 0; w < s->nw; w += MM_K, *room += MM_STRIP * MM_K)
        b->set->engine->pack_rows(*room, x, s->kind,
                                  (mm_box){ row, n, s->w + w, pack_least(MM_K, s->nw - w) });
    return (mm_left){ .at = (const char *)packed,
                      .row = MM_TILE * 4,
                      .words = MM_TILE * MM_TILE * 4,
                      .rows = MM_TILE * MM_K * 4,
                      .block = MM_STRIP * MM_K * 4 };
}

/* ---- multiplying */

/* Some rows and columns of a task, as the sides have them. */
typedef struct chunk {
    const task *t;
    int64_t row, n_rows;
    int64_t column, n_columns; /* from the task's first on */
    span spans[MM_TERMS];
    int n_spans;
    mm_word *strip; /* STRIP_WORDS: a strip that does not lie as tiles */
    mm_strip all;   /* what the strips have in common, and where the first begins */
} chunk;

/* All strips of a chunk; lanes [spans][`panels`][words][MM_LANES], of which it has some, from
 * `panel` on. */
static void multiply_strips(const batch *b, const chunk *c, const mm_word *lanes, int64_t panels,
                            int64_t panel)
{
    mm_strip s = c->all;
    s.n_terms = c->n_spans;
    for (int64_t row = 0; row < c->n_rows; row += MM_STRIP) {
        const mm_word *at = lanes;
        mm_word *room = c->strip;
        s.n_rows = pack_least(MM_STRIP, c->n_rows - row);
        for (int i = 0; i < c->n_spans; i++) {
            int64_t nw = pack_round_up(c->spans[i].nw, MM_WORDS);
            s.terms[i].left = left_of(b, &c->spans[i], c->row + row, s.n_rows, &room);
            s.terms[i].left.followed &= row + 2 * MM_STRIP <= c->n_rows;
            s.terms[i].lanes = at + panel * nw * MM_LANES;
            s.terms[i].nw = nw;
            at += panels * nw * MM_LANES;
        }
        b->set->engine->strip(&s);
        s.sums += MM_STRIP * s.sums_ld;
        s.to.out = s.turned ? mm_out_at(&s.to, 0, MM_STRIP) : mm_out_at(&s.to, MM_STRIP, 0);
        if (s.turned && s.to.bias)
            s.to.bias += MM_STRIP;
    }
}

/* The same with lanes that are packed here: of all terms, or of SPAN words of one at a time. */
static void multiply_own(const batch *b, chunk *c, mm_word *lanes)
{
    span terms[MM_TERMS];
    int n = c->n_spans, term = 0;
    bool cut = padded_words(c->spans, n) > SPAN;
    int64_t w = 0, panels = pack_divide_up(c->n_columns, MM_LANES);
    memcpy(terms, c->spans, sizeof terms);
    c->n_spans = cut ? 1 : n;
    do {
        if (cut) {
            c->spans[0] = terms[term];
            c->spans[0].w = w;
            c->spans[0].nw = pack_least(SPAN, terms[term].nw - w);
        }
        w = cut && w + SPAN < terms[term].nw ? w + SPAN : 0;
        term += w > 0 ? 0 : c->n_spans;
        mm_word *to = lanes;
        for (int i = 0; i < c->n_spans; i++) {
            pack_span(b, &c->spans[i], c->t->column + c->column, c->n_columns, to);
            to += panels * pack_round_up(c->spans[i].nw, MM_WORDS) * MM_LANES;
        }
        c->all.more = term < n;
        multiply_strips(b, c, lanes, panels, 0);
        c->all.add = true;
    } while (term < n);
}

/* Few rows: they are packed here, and weights multiplied where they lie. */
static void multiply_few(const batch *b, const chunk *c, mm_word *room)
{
    const mm_engine *e = b->set->engine;
    mm_tile t = { .sums = (float *)(room + FEW_WORDS),
                  .ld = COLUMNS,
                  .rows = room,
                  .n_rows = c->n_rows,
                  .block = MM_K,
                  .scratch = room + FEW_WORDS + MM_FEW * COLUMNS };
    for (int i = 0; i < c->n_spans; i++) {
        const span *s = &c->spans[i];
        int64_t w = 0;
        do {
            int64_t nw = pack_least(LONG, s->nw - w);
            for (int64_t at = 0; at < nw; at += MM_K)
                e->pack_few(room + at * MM_FEW, &s->left, s->kind,
                            (mm_box){ c->row, c->n_rows, w + at, pack_least(MM_K, nw - at) });
            e->few(&t, &s->right, s->kind, (mm_box){ c->column, c->n_columns, w, nw });
            t.add = true;
            w += nw;
        } while (w < s->nw);
    }
    mm_out to = c->all.to;
    to.sums = t.sums;
    to.sums_ld = t.ld;
    to.n_rows = c->n_rows;
    to.n = c->n_columns;
    e->store(&to);
}

static chunk chunk_of(const batch *b, int64_t number)
{
    const task *t = task_of(b, number, false);
    const mm_set *set = b->set;
    mm_product q;
    set->get(set->ctx, t->product, &q);
    chunk c = { .t = t };
    c.n_spans = spans_of(b, &q, t->turned, c.spans);
    /* Each thread has rows of its own, if it can be: it finds them in its cache. */
    int64_t groups = pack_divide_up(t->n_columns, t->columns), at = number - t->chunk;
    int64_t part = pack_divide_up(t->row_chunks, b->d->n_threads),
            first = at / (part * groups) * part;
    part = pack_least(part, t->row_chunks - first);
    at -= first * groups;
    c.row = (first + at % part) * t->rows;
    c.column = at / part * t->columns;
    c.n_rows = pack_least(t->rows, c.spans[0].left.n - c.row);
    c.n_columns = pack_least(t->columns, t->n_columns - c.column);
    c.all.turned = t->turned;
    c.all.n = c.n_columns;
    c.all.add = b->w > 0;
    c.all.more = t->sums && (b->w + b->pass) * pack_per_word(c.spans[0].kind) < c.spans[0].left.k;
    c.all.to = (mm_out){ .out = q.out,
                         .dt = set->out_dt,
                         .ld = q.ld,
                         .scale = set->scale,
                         .accumulate = set->accumulate };
    int64_t column = t->column + c.column;
    c.all.to.out =
        t->turned ? mm_out_at(&c.all.to, column, c.row) : mm_out_at(&c.all.to, c.row, column);
    return c;
}

static void multiply(const void *ctx, int64_t number, int64_t end, void *scratch)
{
    (void)end;
    const batch *b = ctx;
    const mm_engine *e = b->set->engine;
    chunk c = chunk_of(b, number);
    float *sums = scratch, *bias = sums + SUMS;
    mm_word *room = (mm_word *)bias + BIAS;
    int64_t column = c.t->column + c.column;
    c.all.to.bias = c.t->turned ? mm_bias(&b->set->bias, c.row, c.n_rows, bias)
                                : mm_bias(&b->set->bias, column, c.n_columns, bias);
    if (c.t->few) {
        multiply_few(b, &c, room);
        return;
    }
    c.strip = room;
    c.all.sums_ld = c.t->sums ? pack_round_up(c.t->n_columns, MM_LANES) : c.t->columns;
    c.all.sums = c.t->sums ? c.t->sums + c.row * c.all.sums_ld + c.column : sums;
    e->begin();
    if (c.t->shared)
        multiply_strips(b, &c, c.t->lanes, pack_divide_up(c.t->n_columns, MM_LANES),
                        c.column / MM_LANES);
    else
        multiply_own(b, &c, room + STRIP_WORDS);
    e->end();
}

static void start(batch *b)
{
    b->n = b->units = b->chunks = b->words = b->w = 0;
    b->pass = INT64_MAX / 4;
}

static void flush(batch *b)
{
    if (b->units > 0)
        cpu_for(b->d, b->units, 1, pack_units, b);
    cpu_for(b->d, b->chunks, 1, multiply, b);
}

/* ---- planning: bits depend on none of this */

/* Work of packing, in 32nds of a cycle. */
static double packing(const mm_side *left, const mm_side *right, mm_words kind)
{
    double right_each = right->k_last ? 4 : 2;
    double left_each = lies_as_tiles(left, kind) ? 0 : left->k_last ? 1 : 5;
    return (double)left->k * ((double)right->n * right_each + (double)left->n * left_each);
}

static bool turns(const span *s, int n)
{
    enum { TURN = 8 }; /* the same, of an element of out */
    const mm_side *a = &s[n - 1].left, *b = &s[n - 1].right;
    for (int i = 0; i < n; i++)
        if (s[i].right.dt == DT_NF4)
            return false;
    return packing(b, a, s->kind) + (double)a->n * (double)b->n * TURN < packing(a, b, s->kind);
}

/* How a task is cut: into chunks enough for all threads, fewer where a set has many products, and
 * where long runs of memory are to be read. Where lanes are shared rows are cut too, else columns
 * alone. */
static void cut(const batch *b, task *t, const span *s, int n)
{
    const span *last = &s[n - 1];
    bool runs = t->few || (!t->shared && !last->right.k_last);
    int64_t wanted = pack_divide_up(b->d->n_threads * (runs ? CHUNKS / 2 : CHUNKS), b->set->count);
    int64_t n_rows = s->left.n, panels = pack_divide_up(t->n_columns, MM_LANES);
    int64_t most = LANE_BYTES / 4 / (pack_least(padded_words(s, n), SPAN) + 1);
    most *= lies_as_tiles(&last->left, last->kind) ? 1 : t->shared ? 3 : 2;
    if (t->few || most > COLUMNS)
        most = COLUMNS;
    if (!t->few && !t->shared)
        most = pack_least(most, SUMS / pack_round_up(pack_least(n_rows, ROWS), MM_STRIP));
    int64_t groups = pack_divide_up(panels, most > MM_LANES ? most / MM_LANES : 1);
    int64_t parts = t->few      ? 1
                    : t->shared ? pack_divide_up(wanted, groups)
                                : pack_divide_up(n_rows, ROWS);
    if (!t->shared && groups < wanted)
        groups = wanted;
    t->columns = pack_divide_up(panels, groups) * MM_LANES;
    t->rows = pack_round_up(pack_divide_up(n_rows, parts), MM_STRIP);
    t->rows = pack_least(t->rows, t->turned ? BIAS : n_rows);
    t->row_chunks = pack_divide_up(n_rows, t->rows);
}

/* Columns from t.column on, as many as can be packed. */
static int64_t add_task(batch *b, task t, const span *s, int n)
{
    int64_t words = padded_words(s, n) * MM_LANES, n_columns = s->right.n - t.column;
    if (t.shared && words > 0)
        n_columns = pack_least(n_columns, CPU_SHARED / 4 / words * MM_LANES);
    int64_t panels = pack_divide_up(n_columns, MM_LANES), taken = t.shared ? panels * words : 0;
    if (b->n == TASKS || (b->words + taken) * 4 > CPU_SHARED) {
        flush(b);
        start(b);
    }
    t.n_columns = n_columns;
    cut(b, &t, s, n);
    t.unit_panels = pack_least(pack_divide_up(panels, b->d->n_threads * 2), UNIT_PANELS);
    t.unit = b->units;
    t.chunk = b->chunks;
    t.lanes = (mm_word *)b->d->shared + b->words;
    b->tasks[b->n++] = t;
    b->words += taken;
    b->units += t.shared ? pack_divide_up(panels, t.unit_panels) : 0;
    b->chunks += t.row_chunks * pack_divide_up(n_columns, t.columns);
    return n_columns;
}

/* Most columns of a long sum that can be packed and carried. */
static int64_t carried_columns(const span *s)
{
    return CPU_SHARED / 4 / (pack_round_up(s->left.n, MM_STRIP) + PASS) / MM_LANES * MM_LANES;
}

/* A long sum, pass by pass: all chunks of one, then of the next. */
static void run_passes(batch *b, task t, span s)
{
    int64_t most = carried_columns(&s), n_columns = s.right.n, words = s.nw;
    s.nw = PASS;
    t.sums = (float *)b->d->shared + most * PASS;
    while (t.column < n_columns) {
        start(b);
        s.right.n = pack_least(n_columns, t.column + most);
        t.column += add_task(b, t, &s, 1);
        for (b->pass = PASS; b->w < words; b->w += PASS)
            flush(b);
    }
}

static void add_product(batch *b, int64_t i)
{
    const mm_engine *e = b->set->engine;
    mm_product q;
    span spans[MM_TERMS];
    b->set->get(b->set->ctx, i, &q);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && b->set->accumulate))
        return;
    int n = spans_of(b, &q, false, spans);
    task t = { .product = i, .few = q.a.n <= MM_FEW && q.a.k > 0 };
    for (int j = 0; j < n; j++)
        t.few = t.few && e->takes(&spans[j].right, e->words);
    t.turned = !t.few && turns(spans, n);
    spans_of(b, &q, t.turned, spans);
    bool many = !t.few && spans[0].left.n > THIN * MM_STRIP, whole = padded_words(spans, n) <= LONG;
    t.shared = many && (whole || (n == 1 && carried_columns(spans) > 0));
    if (t.shared && !whole) {
        if (b->n > 0)
            flush(b);
        run_passes(b, t, spans[0]);
        start(b);
        return;
    }
    while (t.column < spans[0].right.n)
        t.column += add_task(b, t, spans, n);
}

void panels_run(cpu_device *d, const mm_set *set)
{
    batch b;
    b.d = d;
    b.set = set;
    start(&b);
    for (int64_t i = 0; i < set->count; i++)
        add_product(&b, i);
    if (b.n > 0)
        flush(&b);
}
