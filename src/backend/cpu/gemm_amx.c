#include "backend/cpu/gemm_amx.h"

#include "backend/cpu/packing.h"
#include "tensor/quants.h"

#include <string.h>

enum {
    MAX_TASKS = 128,         /* of a plan */
    CHUNKS_PER_THREAD = 8,   /* of a task, if it has as many row panels and panels */
    UNIT_PANELS = 4,         /* most panels packed by one unit of work */
    THIN_ROW_PANELS = 2,     /* most row panels for which panels are not shared */
    MAX_ELEMENTS = 8192,     /* of k; a longer sum is divided, and its parts carried */
    PASS_ELEMENTS = 1024,    /* of k in a pass over all rows and columns */
    SLICE_ELEMENTS = 4096,   /* of k at a time where a chunk carries its own sums */
    PANEL_BYTES = 512 << 10, /* panels of a chunk, which stay in L2 */
    OWN_ROWS = 512,          /* most rows of a chunk that packs its own panels */
    OWN_SUMS = 64 << 10,     /* sums of such a chunk */
    CHUNK_COLUMNS = 2048,    /* most columns of any chunk */
    /* the parts of a worker's scratch, in elements */
    ROW_PANEL_SIZE = (MAX_ELEMENTS / MM_KC + MM_MAX_TERMS) * MM_AMX_ROWS * MM_KC,
    FEW_ROWS_SIZE = MAX_ELEMENTS * MM_FEW_ROWS,
    BIAS_SIZE = 4096
};

_Static_assert((OWN_SUMS + BIAS_SIZE + ROW_PANEL_SIZE + PANEL_BYTES / 2 + MM_UNPACKED) * 4 <=
                   CPU_SCRATCH,
               "a chunk with panels of its own fits the scratch");
_Static_assert(PANEL_BYTES / 2 >= SLICE_ELEMENTS * MM_NR, "a slice of one panel fits");
_Static_assert((OWN_SUMS + BIAS_SIZE + FEW_ROWS_SIZE + MM_FEW_ROWS * CHUNK_COLUMNS) * 4 <=
                   CPU_SCRATCH / 2,
               "few rows and their sums leave the kernel its scratch");

/* Some columns of a product, divided into chunks of rows and columns. */
typedef struct task {
    int64_t product;
    bool transposed; /* out^T = b a^T is computed: operands are swapped */
    bool few_rows;   /* by the few-rows kernel */
    bool shared;     /* panels are packed before all chunks, not by each */
    int64_t column, n_columns;
    int64_t rows, columns; /* of a chunk */
    int64_t row_chunks;
    int64_t unit_panels;             /* packed by one unit */
    int64_t first_unit, first_chunk; /* their numbers in the plan */
    mm_element *panels;              /* of each term: [panels][n_elements][MM_NR] */
    float *sums; /* [rows][columns], carried from pass to pass; NULL: there is one pass */
} task;

/* Products that are computed together: first all units of packing, then all chunks. */
typedef struct plan {
    cpu_device *d;
    const mm_group *group;
    int64_t n_tasks, n_units, n_chunks;
    int64_t shared_used;      /* elements of shared scratch */
    int64_t e, pass_elements; /* the elements of each term that this pass computes */
    task tasks[MAX_TASKS];
} plan;

/* Elements [e, e + n_elements) of k of one term. */
typedef struct k_slice {
    mm_format format;
    mm_operand left, right;
    int64_t e, n_elements;
} k_slice;

/* ---- terms */

static mm_format format_for(const mm_engine *engine, const mm_operand *weights)
{
    return weights->dt == DT_NF4 && engine->few_rows_supports(weights, engine->format)
               ? engine->nf4_format
               : engine->format;
}

/* The terms of a product, as much of each as belongs to this pass; returns their number. */
static int slices_of(const plan *p, const mm_product *q, bool transposed, k_slice *out)
{
    for (int i = 0; i <= q->n_more; i++) {
        const mm_operand *a = i < q->n_more ? &q->more[i].a : &q->a;
        const mm_operand *b = i < q->n_more ? &q->more[i].b : &q->b;
        mm_format format = format_for(p->group->engine, b);
        out[i] = (k_slice){ .format = format,
                            .left = transposed ? *b : *a,
                            .right = transposed ? *a : *b,
                            .e = p->e,
                            .n_elements =
                                num_min(p->pass_elements, packing_elements(format, a->k) - p->e) };
    }
    return q->n_more + 1;
}

static int64_t padded_elements(const k_slice *s, int n)
{
    int64_t elements = 0;
    for (int i = 0; i < n; i++)
        elements += num_round_up(s[i].n_elements, MM_K_GROUP);
    return elements;
}

/* Whether the operand's memory consists of AMX tiles: whole groups of sixteen elements, in order.
 */
static bool tiles_in_place(const mm_operand *x, mm_format format)
{
    return format == MM_BF16_PAIR && x->dt == DT_BF16 && x->k_contiguous &&
           x->k % (2 * MM_K_GROUP) == 0;
}

/* ---- packing */

/* Where weights in a block format are unpacked: the end of a worker's scratch. */
static float *unpacked_of(void *scratch)
{
    return (float *)scratch + CPU_SCRATCH / 4 - MM_UNPACKED;
}

/* Packs columns [column, column + n) of a slice to dst [panels][n_elements, padded][MM_NR]. Memory
 * is read in its own order while the next part is prefetched: panel by panel where k is contiguous,
 * else all panels together, a few elements at a time. */
static void pack_slice(const plan *p, const k_slice *s, int64_t column, int64_t n, mm_element *dst,
                       float *unpacked)
{
    const mm_operand *x = &s->right;
    int64_t panel = num_round_up(s->n_elements, MM_K_GROUP) * MM_NR;
    const mm_engine *engine = p->group->engine;
    bool blocks = x->dt == DT_NF4 || (quants_is(x->dt) && x->k_contiguous);
    int64_t step = blocks ? MM_KC : x->k_contiguous ? 4 * MM_K_GROUP : MM_K_GROUP;
    int64_t together = x->k_contiguous ? MM_NR : n;
    for (int64_t first = 0; first < n; first += together) {
        mm_block next = { column + first + MM_NR, num_min(MM_NR, n - first - MM_NR), s->e,
                          s->n_elements };
        packing_prefetch ahead = packing_prefetch_of(x, s->format, next);
        int64_t lines = ahead.n_rows * step / (s->n_elements + 1) + 1;
        for (int64_t e = 0; e < s->n_elements; e += step) {
            if (!x->k_contiguous) {
                next = (mm_block){ column, n, s->e + e + step,
                                   num_min(step, s->n_elements - e - step) };
                ahead = packing_prefetch_of(x, s->format, next);
                lines = ahead.n_rows;
            }
            packing_prefetch_rows(&ahead, lines);
            for (int64_t i = first; i < num_min(n, first + together); i += MM_NR) {
                mm_block part = { column + i, num_min(MM_NR, n - i), s->e + e,
                                  num_min(step, s->n_elements - e) };
                mm_operand b = packing_unpacked(engine, x, s->format, &part, unpacked);
                engine->pack_panel(dst + i / MM_NR * panel + e * MM_NR, &b, s->format, part);
            }
        }
    }
}

/* The task that has this unit of packing, or this chunk. */
static const task *task_of(const plan *p, int64_t number, bool unit)
{
    int64_t low = 0, high = p->n_tasks;
    while (high - low > 1) {
        int64_t mid = (low + high) / 2;
        if ((unit ? p->tasks[mid].first_unit : p->tasks[mid].first_chunk) <= number)
            low = mid;
        else
            high = mid;
    }
    return &p->tasks[low];
}

static void pack_shared_panels(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    const plan *p = ctx;
    for (int64_t unit = begin; unit < end; unit++) {
        const task *t = task_of(p, unit, true);
        mm_product q;
        k_slice slices[MM_MAX_TERMS];
        p->group->get(p->group->ctx, t->product, &q);
        int n = slices_of(p, &q, t->transposed, slices);
        int64_t panels = num_divide_up(t->n_columns, MM_NR);
        int64_t panel = (unit - t->first_unit) * t->unit_panels, column = panel * MM_NR;
        int64_t columns = num_min(t->unit_panels * MM_NR, t->n_columns - column);
        mm_element *to = t->panels;
        for (int i = 0; i < n; i++) {
            int64_t size = num_round_up(slices[i].n_elements, MM_K_GROUP) * MM_NR;
            pack_slice(p, &slices[i], t->column + column, columns, to + panel * size,
                       unpacked_of(scratch));
            to += panels * size;
        }
    }
}

/* n rows of a slice as tiles: in place, or packed to *buffer, which is advanced. */
static mm_tile_rows tile_rows_of(const plan *p, const k_slice *s, int64_t row, int64_t n,
                                 mm_element **buffer)
{
    const mm_operand *x = &s->left;
    if (tiles_in_place(x, s->format) && n % MM_AMX_TILE == 0)
        return (mm_tile_rows){ .data = (const char *)x->data + (row * x->ld + s->e * 2) * 2,
                               .row_stride = x->ld * 2,
                               .element_stride = MM_AMX_TILE * 4,
                               .tile_stride = MM_AMX_TILE * x->ld * 2,
                               .block_stride = MM_KC * 4,
                               .prefetch_next = true };
    mm_element *packed = *buffer;
    for (int64_t e = 0; e < s->n_elements; e += MM_KC, *buffer += MM_AMX_ROWS * MM_KC)
        p->group->engine->pack_rows(
            *buffer, x, s->format,
            (mm_block){ row, n, s->e + e, num_min(MM_KC, s->n_elements - e) });
    return (mm_tile_rows){ .data = (const char *)packed,
                           .row_stride = MM_AMX_TILE * 4,
                           .element_stride = MM_AMX_TILE * MM_AMX_TILE * 4,
                           .tile_stride = MM_AMX_TILE * MM_KC * 4,
                           .block_stride = MM_AMX_ROWS * MM_KC * 4 };
}

/* ---- multiplying */

/* Some rows and columns of a task, with its operands left and right. */
typedef struct chunk {
    const task *t;
    int64_t row, n_rows;
    int64_t column, n_columns; /* counted from the task's first column */
    k_slice slices[MM_MAX_TERMS];
    int n_slices;
    mm_element *packed_rows; /* ROW_PANEL_SIZE: a row panel that is not in place */
    float *unpacked;
    tensor bias;         /* of the product */
    mm_row_panel common; /* what all row panels share; sums and out of the first */
} chunk;

/* Multiplies all row panels of a chunk. panels [slices][n_panels][n_elements][MM_NR]; the chunk's
 * own begin at `panel`. */
static void multiply_row_panels(const plan *p, const chunk *c, const mm_element *panels,
                                int64_t n_panels, int64_t panel)
{
    mm_row_panel s = c->common;
    s.n_terms = c->n_slices;
    for (int64_t row = 0; row < c->n_rows; row += MM_AMX_ROWS) {
        const mm_element *at = panels;
        mm_element *buffer = c->packed_rows;
        s.n_rows = num_min(MM_AMX_ROWS, c->n_rows - row);
        for (int i = 0; i < c->n_slices; i++) {
            int64_t n = num_round_up(c->slices[i].n_elements, MM_K_GROUP);
            s.terms[i].rows = tile_rows_of(p, &c->slices[i], c->row + row, s.n_rows, &buffer);
            s.terms[i].rows.prefetch_next &= row + 2 * MM_AMX_ROWS <= c->n_rows;
            s.terms[i].panels = at + panel * n * MM_NR;
            s.terms[i].n_elements = n;
            at += n_panels * n * MM_NR;
        }
        p->group->engine->row_panel(&s);
        s.sums += MM_AMX_ROWS * s.sums_ld;
        s.epilogue.out = s.transposed ? mm_out_at(&s.epilogue, 0, MM_AMX_ROWS)
                                      : mm_out_at(&s.epilogue, MM_AMX_ROWS, 0);
        if (s.transposed && s.epilogue.bias)
            s.epilogue.bias += MM_AMX_ROWS;
    }
}

/* The same with panels that are packed here: of all terms, or SLICE_ELEMENTS of one at a time. */
static void multiply_own_panels(const plan *p, chunk *c, mm_element *panels)
{
    k_slice terms[MM_MAX_TERMS];
    int n = c->n_slices, term = 0;
    bool divided = padded_elements(c->slices, n) > SLICE_ELEMENTS;
    int64_t e = 0, n_panels = num_divide_up(c->n_columns, MM_NR);
    memcpy(terms, c->slices, sizeof terms);
    c->n_slices = divided ? 1 : n;
    do {
        if (divided) {
            c->slices[0] = terms[term];
            c->slices[0].e = e;
            c->slices[0].n_elements = num_min(SLICE_ELEMENTS, terms[term].n_elements - e);
        }
        e = divided && e + SLICE_ELEMENTS < terms[term].n_elements ? e + SLICE_ELEMENTS : 0;
        term += e > 0 ? 0 : c->n_slices;
        mm_element *to = panels;
        for (int i = 0; i < c->n_slices; i++) {
            pack_slice(p, &c->slices[i], c->t->column + c->column, c->n_columns, to, c->unpacked);
            to += n_panels * num_round_up(c->slices[i].n_elements, MM_K_GROUP) * MM_NR;
        }
        c->common.more = term < n;
        multiply_row_panels(p, c, panels, n_panels, 0);
        c->common.add = true;
    } while (term < n);
}

/* Few rows are packed here, and multiplied by weights that are not. */
static void multiply_few_rows(const plan *p, const chunk *c, mm_element *buffer)
{
    const mm_engine *engine = p->group->engine;
    mm_tile t = { .sums = (float *)(buffer + FEW_ROWS_SIZE),
                  .ld = CHUNK_COLUMNS,
                  .rows = buffer,
                  .n_rows = c->n_rows,
                  .block_elements = MM_KC,
                  .scratch = buffer + FEW_ROWS_SIZE + MM_FEW_ROWS * CHUNK_COLUMNS };
    for (int i = 0; i < c->n_slices; i++) {
        const k_slice *s = &c->slices[i];
        int64_t from = 0;
        do {
            int64_t n = num_min(MAX_ELEMENTS, s->n_elements - from);
            for (int64_t e = 0; e < n; e += MM_KC)
                engine->pack_few_rows(
                    buffer + e * MM_FEW_ROWS, &s->left, s->format,
                    (mm_block){ c->row, c->n_rows, from + e, num_min(MM_KC, n - e) });
            engine->few_rows(&t, &s->right, s->format,
                             (mm_block){ c->column, c->n_columns, from, n });
            t.add = true;
            from += n;
        } while (from < s->n_elements);
    }
    mm_epilogue to = c->common.epilogue;
    to.sums = t.sums;
    to.sums_ld = t.ld;
    to.n_rows = c->n_rows;
    to.n = c->n_columns;
    engine->epilogue(&to);
}

static chunk chunk_of(const plan *p, int64_t number)
{
    const task *t = task_of(p, number, false);
    const mm_group *group = p->group;
    mm_product q;
    group->get(group->ctx, t->product, &q);
    chunk c = { .t = t, .bias = q.bias };
    c.n_slices = slices_of(p, &q, t->transposed, c.slices);
    /* Chunks are numbered so that each thread keeps its rows as long as possible, because it finds
     * them in its cache. */
    int64_t column_chunks = num_divide_up(t->n_columns, t->columns), at = number - t->first_chunk;
    int64_t part = num_divide_up(t->row_chunks, p->d->n_threads),
            first = at / (part * column_chunks) * part;
    part = num_min(part, t->row_chunks - first);
    at -= first * column_chunks;
    c.row = (first + at % part) * t->rows;
    c.column = at / part * t->columns;
    c.n_rows = num_min(t->rows, c.slices[0].left.n - c.row);
    c.n_columns = num_min(t->columns, t->n_columns - c.column);
    c.common.transposed = t->transposed;
    c.common.n_columns = c.n_columns;
    c.common.add = p->e > 0;
    c.common.more = t->sums && (p->e + p->pass_elements) * packing_values(c.slices[0].format) <
                                   c.slices[0].left.k;
    c.common.epilogue = (mm_epilogue){ .out = q.out,
                                       .dt = group->out_dt,
                                       .ld = q.ld,
                                       .scale = group->scale,
                                       .accumulate = group->accumulate };
    int64_t column = t->column + c.column;
    c.common.epilogue.out = t->transposed ? mm_out_at(&c.common.epilogue, column, c.row)
                                          : mm_out_at(&c.common.epilogue, c.row, column);
    return c;
}

static void multiply_chunk(const void *ctx, int64_t number, int64_t end, void *scratch)
{
    (void)end; /* a range is one chunk */
    const plan *p = ctx;
    const mm_engine *engine = p->group->engine;
    chunk c = chunk_of(p, number);
    float *sums = scratch, *bias = sums + OWN_SUMS;
    mm_element *buffer = (mm_element *)bias + BIAS_SIZE;
    int64_t column = c.t->column + c.column;
    c.common.epilogue.bias = c.t->transposed ? mm_bias(&c.bias, c.row, c.n_rows, bias)
                                             : mm_bias(&c.bias, column, c.n_columns, bias);
    if (c.t->few_rows) {
        multiply_few_rows(p, &c, buffer);
        return;
    }
    c.packed_rows = buffer;
    c.unpacked = unpacked_of(scratch);
    c.common.sums_ld = c.t->sums ? num_round_up(c.t->n_columns, MM_NR) : c.t->columns;
    c.common.sums = c.t->sums ? c.t->sums + c.row * c.common.sums_ld + c.column : sums;
    engine->configure();
    if (c.t->shared)
        multiply_row_panels(p, &c, c.t->panels, num_divide_up(c.t->n_columns, MM_NR),
                            c.column / MM_NR);
    else
        multiply_own_panels(p, &c, buffer + ROW_PANEL_SIZE);
    engine->release();
}

static void reset_plan(plan *p)
{
    p->n_tasks = p->n_units = p->n_chunks = p->shared_used = p->e = 0;
    p->pass_elements = INT64_MAX / 4;
}

static void run_plan(plan *p)
{
    if (p->n_units > 0)
        cpu_for(p->d, p->n_units, 1, pack_shared_panels, p);
    cpu_for(p->d, p->n_chunks, 1, multiply_chunk, p);
}

/* ---- planning: bits depend on none of this */

/* What packing costs, in 1/32 of a cycle. */
static double packing_cost(const mm_operand *left, const mm_operand *right, mm_format format)
{
    double right_value = right->k_contiguous ? 4 : 2;
    double left_value = tiles_in_place(left, format) ? 0 : left->k_contiguous ? 1 : 5;
    return (double)left->k * ((double)right->n * right_value + (double)left->n * left_value);
}

static bool better_transposed(const k_slice *s, int n)
{
    enum { TRANSPOSE = 8 }; /* what transposing an element of out costs, likewise */
    const mm_operand *a = &s[n - 1].left, *b = &s[n - 1].right;
    for (int i = 0; i < n; i++)
        if (dtype_block(s[i].right.dt) > 1)
            return false;
    return packing_cost(b, a, s->format) + (double)a->n * (double)b->n * TRANSPOSE <
           packing_cost(a, b, s->format);
}

/* Chooses the size of a task's chunks: enough of them for all threads, fewer where the group has
 * many products or where long runs of memory are read. Rows are divided only if panels are shared.
 */
static void choose_chunks(const plan *p, task *t, const k_slice *s, int n)
{
    const k_slice *last = &s[n - 1];
    bool long_runs = t->few_rows || (!t->shared && !last->right.k_contiguous);
    int64_t wanted = num_divide_up(
        p->d->n_threads * (long_runs ? CHUNKS_PER_THREAD / 2 : CHUNKS_PER_THREAD), p->group->count);
    int64_t n_rows = s->left.n, panels = num_divide_up(t->n_columns, MM_NR);
    int64_t most = PANEL_BYTES / 4 / (num_min(padded_elements(s, n), SLICE_ELEMENTS) + 1);
    most *= tiles_in_place(&last->left, last->format) ? 1 : t->shared ? 3 : 2;
    if (t->few_rows || most > CHUNK_COLUMNS)
        most = CHUNK_COLUMNS;
    if (!t->few_rows && !t->shared)
        most = num_min(most, OWN_SUMS / num_round_up(num_min(n_rows, OWN_ROWS), MM_AMX_ROWS));
    int64_t column_chunks = num_divide_up(panels, most > MM_NR ? most / MM_NR : 1);
    int64_t row_chunks = t->few_rows ? 1
                         : t->shared ? num_divide_up(wanted, column_chunks)
                                     : num_divide_up(n_rows, OWN_ROWS);
    if (!t->shared && column_chunks < wanted)
        column_chunks = wanted;
    t->columns = num_divide_up(panels, column_chunks) * MM_NR;
    t->rows = num_round_up(num_divide_up(n_rows, row_chunks), MM_AMX_ROWS);
    t->rows = num_min(t->rows, t->transposed ? BIAS_SIZE : n_rows);
    t->row_chunks = num_divide_up(n_rows, t->rows);
}

/* Adds a task for the columns from t.column on, as many as can be packed; returns their number. */
static int64_t plan_task(plan *p, task t, const k_slice *s, int n)
{
    int64_t size = padded_elements(s, n) * MM_NR, n_columns = s->right.n - t.column;
    if (t.shared && size > 0)
        n_columns = num_min(n_columns, CPU_SHARED / 4 / size * MM_NR);
    int64_t panels = num_divide_up(n_columns, MM_NR), used = t.shared ? panels * size : 0;
    if (p->n_tasks == MAX_TASKS || (p->shared_used + used) * 4 > CPU_SHARED) {
        run_plan(p);
        reset_plan(p);
    }
    t.n_columns = n_columns;
    choose_chunks(p, &t, s, n);
    t.unit_panels = num_min(num_divide_up(panels, p->d->n_threads * 2), UNIT_PANELS);
    t.first_unit = p->n_units;
    t.first_chunk = p->n_chunks;
    t.panels = (mm_element *)p->d->shared + p->shared_used;
    p->tasks[p->n_tasks++] = t;
    p->shared_used += used;
    p->n_units += t.shared ? num_divide_up(panels, t.unit_panels) : 0;
    p->n_chunks += t.row_chunks * num_divide_up(n_columns, t.columns);
    return n_columns;
}

/* Most columns of a long sum whose panels and sums fit the shared scratch. */
static int64_t carried_columns(const k_slice *s)
{
    return CPU_SHARED / 4 / (num_round_up(s->left.n, MM_AMX_ROWS) + PASS_ELEMENTS) / MM_NR * MM_NR;
}

/* A long sum in passes over k: all chunks of one pass, then of the next. */
static void run_passes(plan *p, task t, k_slice s)
{
    int64_t most = carried_columns(&s), n_columns = s.right.n, n_elements = s.n_elements;
    s.n_elements = PASS_ELEMENTS;
    t.sums = (float *)p->d->shared + most * PASS_ELEMENTS;
    while (t.column < n_columns) {
        reset_plan(p);
        s.right.n = num_min(n_columns, t.column + most);
        t.column += plan_task(p, t, &s, 1);
        for (p->pass_elements = PASS_ELEMENTS; p->e < n_elements; p->e += PASS_ELEMENTS)
            run_plan(p);
    }
}

static void plan_product(plan *p, int64_t i)
{
    const mm_engine *engine = p->group->engine;
    mm_product q;
    k_slice slices[MM_MAX_TERMS];
    p->group->get(p->group->ctx, i, &q);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && p->group->accumulate))
        return;
    int n = slices_of(p, &q, false, slices);
    task t = { .product = i, .few_rows = q.a.n <= MM_FEW_ROWS && q.a.k > 0 };
    for (int j = 0; j < n; j++)
        t.few_rows = t.few_rows && engine->few_rows_supports(&slices[j].right, engine->format);
    t.transposed = !t.few_rows && better_transposed(slices, n);
    slices_of(p, &q, t.transposed, slices);
    bool many_rows = !t.few_rows && slices[0].left.n > THIN_ROW_PANELS * MM_AMX_ROWS;
    bool whole = padded_elements(slices, n) <= MAX_ELEMENTS;
    t.shared = many_rows && (whole || (n == 1 && carried_columns(slices) > 0));
    if (t.shared && !whole) {
        if (p->n_tasks > 0)
            run_plan(p);
        run_passes(p, t, slices[0]);
        reset_plan(p);
        return;
    }
    while (t.column < slices[0].right.n)
        t.column += plan_task(p, t, slices, n);
}

void gemm_amx(cpu_device *d, const mm_group *group)
{
    plan p;
    p.d = d;
    p.group = group;
    reset_plan(&p);
    for (int64_t i = 0; i < group->count; i++)
        plan_product(&p, i);
    if (p.n_tasks > 0)
        run_plan(&p);
}
