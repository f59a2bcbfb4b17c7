#include "backend/cpu/gemm_simd.h"

#include "backend/cpu/packing.h"
#include "tensor/nf4.h"
#include "tensor/quants.h"

enum {
    MAX_TASKS = 128,            /* of a plan */
    CHUNK_ROWS = 1024,          /* most rows of a chunk, before rounding up to whole tiles */
    HALF_CHUNK_ROWS = 512,      /* the same where there are few chunks of columns */
    CHUNK_COLUMNS = 128,        /* most columns of a chunk */
    FEW_ROWS_COLUMNS = 2048,    /* the same for few rows, */
    FEW_TERMS_COLUMNS = 1024,   /* and for few rows of a sum of products */
    MAX_TILE_ROWS = 16,         /* of any engine */
    PANEL_ELEMENTS = 80 << 10,  /* packed at once: 320 KiB, which stay in L2 */
    MAX_BLOCKS = 16,            /* k blocks packed at once */
    PART_ELEMENTS = 64 * MM_KC, /* most elements of k of few rows that are packed at once */
    TILES_PER_UNIT = 4,         /* tiles of rows packed by one unit of work */
    PACK_STEP = 32,             /* elements packed at a time for all panels where k is strided */
    THIN = 64,                  /* rows or columns below which packing dominates a product */
    ALIAS = 4096,               /* rows this many bytes apart compete for one set of L1 */
    /* the parts of a worker's scratch, in elements */
    SUMS_SIZE = (CHUNK_ROWS + MAX_TILE_ROWS) * CHUNK_COLUMNS,
    ROWS_SIZE = PART_ELEMENTS * MM_FEW_ROWS,
    PANELS_SIZE = CPU_SCRATCH / 4 - SUMS_SIZE - ROWS_SIZE - MM_UNPACKED
};

_Static_assert(PANELS_SIZE >= PANEL_ELEMENTS && PANELS_SIZE >= FEW_TERMS_COLUMNS * MM_KC,
               "the panels of a chunk fit the scratch");
_Static_assert(PANELS_SIZE * 4 >= 2 << 20, "the few-rows kernel needs 2 MiB of scratch");

/* One product, divided into chunks of rows and columns. */
typedef struct task {
    int64_t product;
    bool transposed;       /* out^T = b a^T is computed: operands are swapped */
    bool few_rows;         /* by the few-rows kernel */
    int64_t rows, columns; /* of a chunk */
    int64_t column_chunks;
    int64_t first_chunk, first_unit; /* their numbers in the plan */
    mm_element *packed_rows; /* [blocks][padded_rows][MM_KC], packed before all chunks; NULL: not */
    int64_t padded_rows;
} task;

/* Products that are computed together: first all units of packing, then all chunks. */
typedef struct plan {
    cpu_device *d;
    const mm_group *group;
    int64_t n_tasks, n_chunks, n_units;
    int64_t shared_used; /* elements of shared scratch */
    task tasks[MAX_TASKS];
} plan;

/* One k block of one term. */
typedef struct k_block {
    mm_operand a, b;
    bool main; /* of the product itself, not of a term that is added to it */
    mm_format format;
    int64_t e, n_elements, index; /* index: of the block in its term */
    bool first, last;             /* of the sum of all terms */
    mm_element *panels;           /* [panels][n_elements, padded][MM_NR] */
} k_block;

/* Rows [row, row + n_rows) by columns [column, column + n_columns) of a product. */
typedef struct chunk {
    const plan *p;
    const task *t;
    mm_product q; /* with its operands swapped where the task is transposed */
    int64_t row, n_rows, column, n_columns;
    int64_t width; /* n_columns in whole panels */
    k_block blocks[MAX_BLOCKS];
    int64_t n_blocks, n_elements; /* queued; elements of one column in all of them */
    float *sums;                  /* [n_rows][width] */
    mm_element *panels, *rows;
    float *unpacked; /* MM_UNPACKED: weights that are stored in a block format */
} chunk;

static void swap_operands(mm_operand *a, mm_operand *b)
{
    mm_operand x = *a;
    *a = *b;
    *b = x;
}

static mm_product product_of(const plan *p, const task *t)
{
    mm_product q = { 0 };
    p->group->get(p->group->ctx, t->product, &q);
    if (t->transposed)
        swap_operands(&q.a, &q.b);
    return q;
}

static bool few_rows_suit(const mm_engine *engine, const mm_operand *b)
{
    return b->k > 0 && engine->few_rows_supports && engine->few_rows_supports(b, engine->format);
}

static bool few_rows_take(const mm_engine *engine, const mm_operand *b)
{
    return few_rows_suit(engine, b) && (!quants_is(b->dt) || engine->few_rows_blocks);
}

static mm_format format_for(const mm_engine *engine, const mm_operand *b)
{
    if (!few_rows_suit(engine, b))
        return engine->format;
    return b->dt == DT_NF4    ? engine->nf4_format
           : quants_is(b->dt) ? engine->blocks_format
                              : engine->few_rows_format;
}

/* The k blocks of a sum have about equal lengths, and hold whole blocks of NF4. */
static int64_t block_length(int64_t n_elements)
{
    int64_t blocks = num_divide_up(n_elements > 0 ? n_elements : 1, MM_KC);
    return num_round_up(num_divide_up(n_elements > 0 ? n_elements : 1, blocks), NF4_BLOCK);
}

/* Term i of a sum of products; the last is the product itself. */
static mm_operands term_of(const chunk *c, int i)
{
    mm_operands x = { c->q.a, c->q.b };
    if (i < c->q.n_more) {
        x = c->q.more[i];
        if (c->t->transposed)
            swap_operands(&x.a, &x.b);
    }
    return x;
}

static mm_epilogue epilogue_of(const chunk *c)
{
    const mm_group *group = c->p->group;
    return (mm_epilogue){ .out = c->q.out,
                          .dt = group->out_dt,
                          .ld = c->q.ld,
                          .sums_ld = c->width,
                          .scale = group->scale,
                          .accumulate = group->accumulate };
}

/* ---- many rows */

/* The micro-kernel multiplies a multiple of this many elements: a LoRA of rank 8 or 16 has few. The
 * partial sums of the split formats have equal numbers of elements. */
static int64_t k_step(mm_format format)
{
    return mm_is_split(format) ? MM_K_GROUP : MM_K_STEP;
}

/* Whether the micro-kernel can read rows from the operand's memory. */
static bool rows_in_place(const mm_operand *x, mm_format format)
{
    int64_t bytes = x->dt == DT_F32 ? 4 : 2;
    bool elements = x->dt == DT_F32 ? format == MM_F32 || format == MM_F32_SPLIT
                                    : format == MM_BF16_PAIR || format == MM_BF16_PAIR_SPLIT;
    return elements && x->k_contiguous && x->k % (k_step(format) * packing_values(format)) == 0 &&
           x->ld * bytes % ALIAS != 0 && x->ld * bytes % 4 == 0 && (uintptr_t)x->data % 4 == 0;
}

/* Sets the rows of a tile in one k block: in place, packed before all chunks, or packed now. */
static void set_tile_rows(const chunk *c, const k_block *k, int64_t row, mm_tile *t)
{
    const mm_operand *x = &k->a;
    int64_t values = packing_values(k->format);
    if (rows_in_place(x, k->format)) {
        int64_t at = (c->row + row) * x->ld + k->e * values;
        t->rows = (const mm_element *)((const char *)x->data + at * (4 / values));
        t->row_stride = x->ld / values;
        t->rows_in_order = mm_is_split(k->format);
        return;
    }
    t->row_stride = MM_KC;
    t->rows_in_order = k->format == MM_F32_SPLIT;
    if (c->t->packed_rows && k->main) {
        t->rows = c->t->packed_rows + (k->index * c->t->padded_rows + c->row + row) * MM_KC;
        return;
    }
    mm_block block = { c->row + row, t->n_rows, k->e, k->n_elements }, next = block;
    next.row += t->n_rows;
    next.n_rows = num_min(t->n_rows, c->row + c->n_rows - next.row);
    packing_prefetch ahead = packing_prefetch_of(x, k->format, next);
    if (x->k_contiguous)
        packing_prefetch_rows(&ahead, next.n_rows);
    t->rows = c->rows;
    c->p->group->engine->pack_rows(c->rows, x, k->format, block);
}

/* Stores the finished sums of n rows of tiles. */
static void store_sums(const chunk *c, int64_t row, int64_t n, const float *sums)
{
    const mm_group *group = c->p->group;
    float bias[CHUNK_COLUMNS], transposed[CHUNK_COLUMNS][MAX_TILE_ROWS];
    mm_epilogue o = epilogue_of(c);
    o.sums = sums;
    o.n_rows = n;
    o.n = c->n_columns;
    if (c->t->transposed) {
        for (int64_t j = 0; j < c->n_columns; j++)
            for (int64_t i = 0; i < n; i++)
                transposed[j][i] = sums[i * c->width + j];
        o.sums = transposed[0];
        o.sums_ld = MAX_TILE_ROWS;
        o.n_rows = c->n_columns;
        o.n = n;
        o.out = mm_out_at(&o, c->column, c->row + row);
    } else {
        o.bias = mm_bias(&c->q.bias, c->column, c->n_columns, bias);
        o.out = mm_out_at(&o, c->row + row, c->column);
    }
    group->engine->epilogue(&o);
}

/* Packs the panels of a k block in the order of memory: panel by panel where k is contiguous, else
 * all panels together, PACK_STEP elements at a time, while the next are prefetched. */
static void pack_k_block(const chunk *c, const k_block *k)
{
    const mm_engine *engine = c->p->group->engine;
    int64_t panel = num_round_up(k->n_elements, MM_K_GROUP);
    int64_t step = k->b.k_contiguous ? k->n_elements : PACK_STEP;
    mm_block block = { c->column, c->n_columns, k->e, k->n_elements };
    packing_prefetch next = packing_prefetch_of(&k->b, k->format, block);
    if (step < k->n_elements)
        packing_prefetch_rows(&next, step * packing_values(k->format));
    for (int64_t e = 0; e < k->n_elements; e += step) {
        if (step < k->n_elements)
            packing_prefetch_rows(&next, step * packing_values(k->format));
        for (int64_t j = 0; j < c->n_columns; j += MM_NR) {
            mm_block part = { c->column + j, num_min(MM_NR, c->n_columns - j), k->e + e,
                              num_min(step, k->n_elements - e) };
            mm_operand b = packing_unpacked(engine, &k->b, k->format, &part, c->unpacked);
            engine->pack_panel(k->panels + j * panel + e * MM_NR, &b, k->format, part);
        }
    }
}

static void pack_queued_blocks(chunk *c)
{
    mm_element *to = c->panels;
    for (int64_t i = 0; i < c->n_blocks; i++) {
        k_block *k = &c->blocks[i];
        k->panels = to;
        pack_k_block(c, k);
        to += num_round_up(k->n_elements, MM_K_GROUP) * c->width;
    }
}

/* What this thread will probably pack next: the elements after these, or the first ones of the next
 * chunk of columns. */
static packing_prefetch prefetch_after(const chunk *c)
{
    const k_block *k = &c->blocks[c->n_blocks - 1];
    int64_t n_elements = packing_elements(k->format, k->b.k);
    mm_block block = { .row = c->column, .e = k->e + k->n_elements };
    if (block.e >= n_elements) {
        block.row += c->t->columns;
        block.e = 0;
    }
    if (block.row >= k->b.n)
        return (packing_prefetch){ 0 };
    block.n_rows = num_min(c->n_columns, k->b.n - block.row);
    block.n_elements = num_min(c->n_elements, n_elements - block.e);
    return packing_prefetch_of(&k->b, k->format, block);
}

/* Multiplies all rows of the chunk by the queued k blocks. Sums that begin and end within them need
 * memory for one tile only. Tiles are about equally tall: a low one has too few sums to hide the
 * latency of multiply-adds. What is packed next is prefetched in small portions, so that memory is
 * read while products are computed. */
static void multiply_queued_blocks(chunk *c)
{
    const mm_engine *engine = c->p->group->engine;
    bool carried = !c->blocks[0].first || !c->blocks[c->n_blocks - 1].last;
    pack_queued_blocks(c);
    packing_prefetch next = prefetch_after(c);
    int64_t tiles = num_divide_up(c->n_rows, engine->tile_rows), row = 0, end;
    int64_t portion =
        num_divide_up(packing_prefetch_left(&next), tiles * c->n_blocks * (c->width / MM_NR));
    for (int64_t tile = 0; tile < tiles; tile++, row = end) {
        end = c->n_rows * (tile + 1) / tiles;
        float *sums = c->sums + (carried ? row * c->width : 0);
        for (int64_t i = 0; i < c->n_blocks; i++) {
            const k_block *k = &c->blocks[i];
            mm_tile t = { .ld = c->width,
                          .format = k->format,
                          .add = !k->first,
                          .next = &next,
                          .next_lines = portion };
            t.n_rows = end - row;
            t.n_elements = num_round_up(k->n_elements, k_step(k->format));
            set_tile_rows(c, k, row, &t);
            for (int64_t j = 0; j < c->n_columns; j += MM_NR) {
                t.sums = sums + j;
                t.panel = k->panels + j * num_round_up(k->n_elements, MM_K_GROUP);
                t.n_columns = num_min(MM_NR, c->n_columns - j);
                engine->micro_kernel(&t);
            }
            if (k->last)
                store_sums(c, row, t.n_rows, sums);
        }
    }
    c->n_blocks = c->n_elements = 0;
}

static void queue_block(chunk *c, k_block k)
{
    int64_t n = num_round_up(k.n_elements, MM_K_GROUP);
    if (c->n_blocks == MAX_BLOCKS ||
        (c->n_blocks > 0 && (c->n_elements + n) * c->width > PANEL_ELEMENTS))
        multiply_queued_blocks(c);
    c->blocks[c->n_blocks++] = k;
    c->n_elements += n;
}

/* Queues the k blocks of term i. */
static void queue_term(chunk *c, int i)
{
    mm_operands term = term_of(c, i);
    k_block k = { .a = term.a, .b = term.b, .main = i == c->q.n_more };
    k.format = format_for(c->p->group->engine, &k.b);
    int64_t n_elements = packing_elements(k.format, k.a.k), from = 0;
    do {
        int64_t n = num_min(PART_ELEMENTS, n_elements - from), length = block_length(n);
        for (int64_t e = 0; e == 0 || e < n; e += length) {
            k.e = from + e;
            k.n_elements = num_min(length, n - e);
            k.index = e / length;
            k.first = i == 0 && k.e == 0;
            k.last = k.main && k.e + k.n_elements == n_elements;
            queue_block(c, k);
        }
        from += n;
    } while (from < n_elements);
}

static void multiply_many_rows(chunk *c)
{
    for (int i = 0; i <= c->q.n_more; i++)
        queue_term(c, i);
    multiply_queued_blocks(c);
}

/* ---- few rows: weights that are not packed */

/* sums (+)= a term, as many elements of k at once as the scratch holds. */
static void add_few_rows(chunk *c, const mm_operands *term, bool add)
{
    const mm_engine *engine = c->p->group->engine;
    const mm_operand *x = &term->b;
    mm_format format = format_for(engine, x);
    int64_t n_elements = packing_elements(format, x->k);
    for (int64_t from = 0; from < n_elements; from += PART_ELEMENTS) {
        int64_t n = num_min(PART_ELEMENTS, n_elements - from), length = block_length(n);
        for (int64_t e = 0; e < n; e += length)
            engine->pack_few_rows(
                c->rows + e / length * c->n_rows * MM_KC, &term->a, format,
                (mm_block){ c->row, c->n_rows, from + e, num_min(length, n - e) });
        mm_tile t = { .sums = c->sums,
                      .ld = c->width,
                      .rows = c->rows,
                      .format = format,
                      .n_rows = c->n_rows,
                      .add = add || from > 0,
                      .block_elements = length,
                      .scratch = c->panels };
        mm_block block = { c->column, c->n_columns, from, n };
        if (quants_is(x->dt))
            engine->few_rows_blocks(&t, x, format, block);
        else
            engine->few_rows(&t, x, format, block);
    }
}

/* A term that the few-rows kernel does not support, such as a LoRA of small rank, is packed. */
static void multiply_few_rows(chunk *c)
{
    const mm_engine *engine = c->p->group->engine;
    float bias[FEW_ROWS_COLUMNS];
    for (int i = 0; i <= c->q.n_more; i++) {
        mm_operands term = term_of(c, i);
        if (few_rows_take(engine, &term.b)) {
            add_few_rows(c, &term, i > 0);
        } else {
            queue_term(c, i);
            multiply_queued_blocks(c);
        }
    }
    mm_epilogue o = epilogue_of(c);
    o.out = mm_out_at(&o, c->row, c->column);
    o.bias = mm_bias(&c->q.bias, c->column, c->n_columns, bias);
    o.sums = c->sums;
    o.n_rows = c->n_rows;
    o.n = c->n_columns;
    engine->epilogue(&o);
}

/* ---- running a plan */

static const task *task_of_chunk(const plan *p, int64_t number)
{
    const task *t = p->tasks + p->n_tasks - 1;
    while (t->first_chunk > number)
        t--;
    return t;
}

static void multiply_chunk(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)end; /* a range is one chunk */
    const plan *p = ctx;
    const task *t = task_of_chunk(p, begin);
    int64_t at = begin - t->first_chunk;
    chunk c = { .p = p, .t = t, .q = product_of(p, t), .sums = scratch };
    c.panels = (mm_element *)(c.sums + SUMS_SIZE);
    c.rows = c.panels + PANELS_SIZE;
    c.unpacked = (float *)(c.rows + ROWS_SIZE);
    c.row = at / t->column_chunks * t->rows;
    c.n_rows = num_min(t->rows, c.q.a.n - c.row);
    c.column = at % t->column_chunks * t->columns;
    c.n_columns = num_min(t->columns, c.q.b.n - c.column);
    c.width = num_round_up(c.n_columns, MM_NR);
    if (t->few_rows)
        multiply_few_rows(&c);
    else
        multiply_many_rows(&c);
}

/* Packs tiles of rows that several chunks will read. */
static void pack_shared_rows(const void *ctx, int64_t begin, int64_t end, void *scratch)
{
    (void)scratch;
    const plan *p = ctx;
    const mm_engine *engine = p->group->engine;
    const task *t = p->tasks + p->n_tasks - 1;
    for (int64_t unit = end - 1; unit >= begin; unit--) {
        while (t->first_unit > unit || !t->packed_rows)
            t--;
        mm_product q = product_of(p, t);
        mm_format format = format_for(engine, &q.b);
        int64_t row = (unit - t->first_unit) * engine->tile_rows;
        int64_t n_elements = packing_elements(format, q.a.k), length = block_length(n_elements);
        int64_t n = num_min(engine->tile_rows, q.a.n - row);
        for (int64_t e = 0; e < n_elements; e += length)
            engine->pack_rows(t->packed_rows + (e / length * t->padded_rows + row) * MM_KC, &q.a,
                              format, (mm_block){ row, n, e, num_min(length, n_elements - e) });
    }
}

static void run_plan(plan *p)
{
    if (p->n_units > 0)
        cpu_for(p->d, p->n_units, TILES_PER_UNIT, pack_shared_rows, p);
    cpu_for(p->d, p->n_chunks, 1, multiply_chunk, p);
    p->n_tasks = p->n_chunks = p->n_units = p->shared_used = 0;
}

/* ---- planning: bits depend on none of this */

/* Rows that several chunks would pack are packed once into the shared scratch, if they fit. */
static void plan_shared_rows(plan *p, const mm_product *q, task *t)
{
    const mm_engine *engine = p->group->engine;
    mm_format format = format_for(engine, &q->b);
    int64_t n_elements = packing_elements(format, q->a.k);
    int64_t padded = num_round_up(q->a.n, engine->tile_rows);
    int64_t size = num_divide_up(n_elements, block_length(n_elements)) * padded * MM_KC;
    if (t->few_rows || t->column_chunks == 1 || rows_in_place(&q->a, format) ||
        n_elements > PART_ELEMENTS || size > CPU_SHARED / 4)
        return;
    if (p->shared_used + size > CPU_SHARED / 4)
        run_plan(p);
    t->packed_rows = (mm_element *)p->d->shared + p->shared_used;
    t->padded_rows = padded;
    t->first_unit = p->n_units;
    p->shared_used += size;
    p->n_units += padded / engine->tile_rows;
}

/* Packing panels is cheap where k is strided (a copy), packing rows where k is contiguous; the
 * other case transposes. Where the product is thin, out^T may pack the smaller part. */
static bool better_transposed(const mm_product *q)
{
    int64_t thin = num_min(q->a.n, q->b.n);
    return thin <= THIN && q->a.n > q->b.n && !q->a.k_contiguous && !q->b.k_contiguous &&
           !q->bias.data;
}

/* Chooses the size of chunks: several for each thread. Sums do not cross chunks, so the number of
 * threads may enter here. Where rows are read in place, chunks whose sums are complete within L2
 * are better than wide ones. Few chunks of columns leave threads idle at the end, so the rows are
 * divided too, unless that would pack the columns once for every few rows. */
static void choose_chunks(const plan *p, const mm_product *q, task *t)
{
    const mm_engine *engine = p->group->engine;
    mm_format format = format_for(engine, &q->b);
    int64_t chunks = p->d->n_threads * 4, n_elements = packing_elements(format, q->a.k);
    int64_t most_columns = !t->few_rows    ? CHUNK_COLUMNS
                           : q->n_more > 0 ? FEW_TERMS_COLUMNS
                                           : FEW_ROWS_COLUMNS;
    int64_t columns = num_min(num_divide_up(q->b.n, chunks), most_columns);
    if (!t->few_rows && rows_in_place(&q->a, format) && n_elements > PANEL_ELEMENTS / CHUNK_COLUMNS)
        columns = num_min(columns, n_elements < PANEL_ELEMENTS / MM_NR ? PANEL_ELEMENTS / n_elements
                                                                       : CHUNK_COLUMNS);
    t->columns = num_round_up(columns, MM_NR);
    t->column_chunks = num_divide_up(q->b.n, t->columns);
    int64_t most = t->column_chunks < 2 * chunks ? HALF_CHUNK_ROWS : CHUNK_ROWS;
    int64_t rows = num_divide_up(q->a.n, num_divide_up(q->a.n, most));
    if (q->b.n <= THIN)
        rows = num_min(rows, num_divide_up(q->a.n, chunks));
    t->rows = t->few_rows ? q->a.n : num_round_up(rows, engine->tile_rows);
}

/* Whether a product of so many rows is one for the few-rows kernel. Terms that are added to it must
 * suit its number of rows as well. */
static bool has_few_rows(const mm_engine *engine, const mm_product *q)
{
    int64_t elements = packing_elements(format_for(engine, &q->b), q->a.k);
    int64_t k_blocks = num_divide_up(num_min(elements, PART_ELEMENTS), MM_KC);
    if (!few_rows_take(engine, &q->b))
        return false;
    if (q->n_more > 0 || !quants_is(q->b.dt))
        return q->a.n <= MM_FEW_ROWS;
    return q->a.n <= num_min(MM_FEW_ROWS_BLOCKS, ROWS_SIZE / MM_KC / k_blocks);
}

static void plan_product(plan *p, int64_t i)
{
    task t = { .product = i };
    mm_product q = { 0 };
    p->group->get(p->group->ctx, i, &q);
    if (q.a.n == 0 || q.b.n == 0 || (q.a.k == 0 && p->group->accumulate))
        return;
    t.transposed = better_transposed(&q);
    t.few_rows = has_few_rows(p->group->engine, &q);
    if (t.transposed)
        swap_operands(&q.a, &q.b);
    choose_chunks(p, &q, &t);
    if (p->n_tasks == MAX_TASKS)
        run_plan(p);
    plan_shared_rows(p, &q, &t);
    t.first_chunk = p->n_chunks;
    p->tasks[p->n_tasks++] = t;
    p->n_chunks += t.column_chunks * num_divide_up(q.a.n, t.rows);
}

void gemm_simd(cpu_device *d, const mm_group *group)
{
    plan p;
    p.d = d;
    p.group = group;
    p.n_tasks = p.n_chunks = p.n_units = p.shared_used = 0;
    for (int64_t i = 0; i < group->count; i++)
        plan_product(&p, i);
    run_plan(&p);
}
