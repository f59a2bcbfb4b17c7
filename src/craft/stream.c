#include "craft/stream.h"

#include "backend/backend.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "format/modeldir.h"
#include "tensor/quants.h"
#include "tensor/bf16.h"
#include "tensor/nf4.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>
#include <xxhash.h>

enum {
    PIECE = 1 << 14, /* elements a thread takes at once */
    CHUNK = 1 << 20, /* elements converted at once */
    COPY = 8 << 20,  /* bytes copied at once */
};

rng_key stream_key(uint64_t seed, const char *name)
{
    const uint64_t craft = 2; /* what these numbers are for */
    return (rng_key){ seed, rng_stream(craft, XXH64(name, strlen(name), 0), 0) };
}

bool stream_plain(dtype dt)
{
    return dt == DT_F32 || dt == DT_BF16 || dt == DT_F16;
}

typedef struct streamer {
    stream_sink to;
    thread_pool *pool;
    device *dev;            /* for products; opened by the first LoRA */
    uint64_t done;          /* bytes */
    float *f32;             /* the piece of the tensor in hand */
    void *out;              /* the same, encoded */
    int64_t cap;            /* elements of both */
    float *head;            /* rows of one head, or one row, while they are permuted */
    atomic_bool bad;        /* a number that no block format holds was met */
    float *a, *b;           /* of its LoRA */
    float *source;          /* rows of stored matrices, before they are cut or added up */
    uint8_t *redrawn;       /* units that are drawn anew */
    const weight *measured; /* whose moments are known, which the copies of an FFN have in common */
    redraw_moments moments;
    void *nf4;  /* its span */
    float *run; /* that rows are woven into */
} streamer;

/* ---- making and encoding, by all cores ---- */

typedef struct piece_job {
    streamer *st;
    const stream_row *row;
    dtype dt;
    int64_t first, n;
    int64_t cols;
} piece_job;

static void piece_range(const piece_job *j, int64_t piece, int64_t *at, int64_t *n)
{
    *at = piece * PIECE;
    *n = j->n - *at < PIECE ? j->n - *at : PIECE;
}

/* Of the random numbers of a tensor, the one that element i has. */
static uint64_t drawn_index(const piece_job *j, int64_t i)
{
    const int64_t repeat = j->row->repeat;
    return (uint64_t)(repeat > 1 ? i / j->cols / repeat * j->cols + i % j->cols : i);
}

static void make_piece(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const piece_job *j = ctx;
    int64_t at, n;
    piece_range(j, piece, &at, &n);
    float *x = j->st->f32 + at;
    for (int64_t i = 0; i < n; i++) {
        float u = rng_uniform(j->row->key, drawn_index(j, j->first + at + i));
        x[i] = j->row->kind == STREAM_ZERO ? 0 : (2 * u - 1) * j->row->bound;
    }
}

static void encode_piece(void *ctx, int64_t piece, int worker)
{
    (void)worker;
    const piece_job *j = ctx;
    int64_t at, n;
    piece_range(j, piece, &at, &n);
    const float *x = j->st->f32 + at;
    char *out = (char *)j->st->out + (size_t)at / dtype_block(j->dt) * dtype_block_bytes(j->dt);
    if (quants_writes(j->dt)) {
        if (!quants_quantize(j->dt, x, n, out))
            j->st->bad = true;
    } else if (j->dt == DT_F32)
        memcpy(out, x, (size_t)n * sizeof *x);
    else
        (j->dt == DT_BF16 ? bf16_encode : f16_encode)(out, x, n);
}

static void by_pieces(const piece_job *j, thread_fn fn)
{
    thread_for(j->st->pool, (j->n + PIECE - 1) / PIECE, fn, (void *)(uintptr_t)j);
}

/* ---- LoRA ---- */

static pesc_status read_matrix(float **out, const weight *w)
{
    int64_t n = weights_elements(w);
    *out = mem_alloc((size_t)n, sizeof **out);
    if (!*out)
        return fail_nomem(w->name, (size_t)n * sizeof **out);
    return weights_read_f32(w, 0, n, *out);
}

static void forget_lora(streamer *st)
{
    mem_free(st->a);
    mem_free(st->b);
    st->a = st->b = NULL;
}

static pesc_status take_lora(streamer *st, const peft_lora *l)
{
    forget_lora(st);
    TRY(read_matrix(&st->a, l->a));
    return read_matrix(&st->b, l->b);
}

/* Rows [first, first + rows) of W, at x, += scale * B A. */
static pesc_status fold(streamer *st, const peft_lora *l, float *x, int64_t first, int64_t rows)
{
    int64_t r = l->a->ne[0], cols = l->a->ne[1];
    if (!st->dev)
        TRY(pesc_device_open(&st->dev, "cpu"));
    mm m = { .layout = MM_NN, .scale = l->scale, .accumulate = true };
    m.out = (tensor){ .data = x, .dt = DT_F32, .nd = 2, .ne = { rows, cols } };
    m.a = (tensor){ .data = st->b + first * r, .dt = DT_F32, .nd = 2, .ne = { rows, r } };
    m.b = (tensor){ .data = st->a, .dt = DT_F32, .nd = 2, .ne = { r, cols } };
    st->dev->op->matmul(st->dev, &m);
    return st->dev->op->sync(st->dev);
}

/* ---- one tensor ---- */

static bool as_it_is(const stream_row *r, dtype dt)
{
    return r->kind == STREAM_STORED && r->stored->dt == dt && r->stored->unpermute_heads == 0 &&
           r->through == DT_F32 && !r->lora && !r->permute_heads && !r->join && r->plus == 0 &&
           r->times == 0 && !r->cut.cols && !r->mean && !r->redraw.n && !r->picked && !r->columns &&
           !r->decay;
}

static pesc_status copy(streamer *st, const weight *w, uint64_t total)
{
    for (size_t at = 0, n; at < w->bytes; at += n) {
        n = w->bytes - at < COPY ? w->bytes - at : COPY;
        TRY(st->to.write(st->to.file, w->data + at, n));
        io_map_drop(w->data + at, n);
        st->done += n;
        log_progress("writing weights", st->done, total);
    }
    return PESC_OK;
}

/* All of it through NF4: double quantisation looks at every block of a matrix. */
static pesc_status quantise(streamer *st, const stream_row *r)
{
    float *x = NULL;
    int64_t n = weights_elements(r->stored);
    size_t bytes;
    ASSERT(dtype_bytes(DT_NF4, (uint64_t)n, &bytes));
    st->nf4 = mem_alloc(bytes, 1);
    pesc_status s = st->nf4 ? read_matrix(&x, r->stored) : fail_nomem(r->stored->name, bytes);
    if (s == PESC_OK) {
        nf4_quantize(st->nf4, x, n);
        if (r->double_quant)
            nf4_double_quantize(st->nf4, n, NULL, NULL, NULL);
    }
    mem_free(x);
    return s;
}

/* Room for a chunk that holds whole units: rows, so that a LoRA meets whole rows, or heads. */
static pesc_status prepare(streamer *st, const stream_row *r, int64_t unit, int64_t *chunk)
{
    *chunk = unit < CHUNK ? CHUNK - CHUNK % unit : unit;
    if (*chunk > st->cap) {
        mem_free(st->f32);
        mem_free(st->out);
        st->f32 = mem_aligned((size_t)*chunk * sizeof *st->f32);
        st->out = mem_alloc((size_t)*chunk, sizeof *st->f32);
        st->cap = *chunk;
        if (!st->f32 || !st->out)
            return fail_nomem("writing a model", (size_t)*chunk * sizeof *st->f32);
    }
    if ((r->permute_heads || r->columns) && !(st->head = mem_alloc((size_t)unit, sizeof *st->head)))
        return fail_nomem("writing a model", (size_t)unit * sizeof *st->head);
    if (r->through == DT_NF4)
        TRY(quantise(st, r));
    if (r->cut.cols || r->mean) {
        int64_t room = r->cut.cols > *chunk ? r->cut.cols : *chunk;
        st->source = mem_aligned((size_t)room * sizeof *st->source);
        if (!st->source)
            return fail_nomem("writing a model", (size_t)room * sizeof *st->source);
    }
    return r->lora ? take_lora(st, r->lora) : PESC_OK;
}

/* Which units are drawn anew, and from which distribution. */
static pesc_status prepare_redraw(streamer *st, const stream_row *r, int64_t rows, int64_t cols)
{
    if (!r->redraw.n)
        return PESC_OK;
    TRY(redraw_units(&st->redrawn, &r->redraw, r->redraw.columns ? cols : rows));
    if (st->measured != r->stored)
        TRY(redraw_measure(&st->moments, r->stored));
    st->measured = r->stored;
    return PESC_OK;
}

/* Elements of the stored tensor, rounded as its model holds them. */
static pesc_status read_held(streamer *st, const stream_row *r, int64_t first, int64_t n,
                             float *out)
{
    if (r->through == DT_NF4)
        nf4_dequantize(out, st->nf4, weights_elements(r->stored), first, n);
    else
        TRY(weights_read_f32(r->stored, first, n, out));
    for (int64_t i = 0; r->through == DT_BF16 && i < n; i++)
        out[i] = bf16_to_f32(bf16_from_f32(out[i]));
    return PESC_OK;
}

/* Whole rows of the stored matrix are read, with their LoRA, since blocks and LoRA have no columns.
 */
static pesc_status produce_cut(streamer *st, const piece_job *j)
{
    const stream_row *r = j->row;
    const stream_cut *c = &r->cut;
    const int64_t first = c->row + j->first / j->cols, rows = j->n / j->cols;
    const int64_t at_once = c->cols < CHUNK ? CHUNK / c->cols : 1;
    for (int64_t i = 0, n; i < rows; i += n) {
        n = rows - i < at_once ? rows - i : at_once;
        TRY(read_held(st, r, (first + i) * c->cols, n * c->cols, st->source));
        if (r->lora)
            TRY(fold(st, r->lora, st->source, first + i, n));
        for (int64_t k = 0; k < n * j->cols; k++)
            st->f32[i * j->cols + k] =
                c->scale * st->source[k / j->cols * c->cols + c->col + k % j->cols];
    }
    return PESC_OK;
}

static pesc_status produce_picked(streamer *st, const piece_job *j)
{
    const stream_row *r = j->row;
    for (int64_t at = 0; at < j->n; at += r->each) {
        int64_t from = r->picked[(j->first + at) / r->each] * r->each;
        TRY(read_held(st, r, from, r->each, st->f32 + at));
        if (r->lora)
            TRY(fold(st, r->lora, st->f32 + at, from / j->cols, r->each / j->cols));
    }
    for (int64_t i = 0; r->times != 0 && i < j->n; i++)
        st->f32[i] *= r->times;
    return PESC_OK;
}

static void pick_columns(streamer *st, const piece_job *j)
{
    for (float *x = st->f32; x < st->f32 + j->n; x += j->cols) {
        for (int64_t i = 0; i < j->cols; i++)
            st->head[i] = x[j->row->columns[i]];
        memcpy(x, st->head, (size_t)j->cols * sizeof *x);
    }
}

static pesc_status produce_mean(streamer *st, const piece_job *j)
{
    const stream_row *r = j->row;
    const float share = 1 / (float)r->n_mean;
    memset(st->f32, 0, (size_t)j->n * sizeof *st->f32);
    for (int32_t i = 0; i < r->n_mean; i++) {
        const stream_part *part = &r->mean[i];
        TRY(weights_read_f32(part->stored, j->first, j->n, st->source));
        if (part->lora) {
            TRY(take_lora(st, part->lora));
            TRY(fold(st, part->lora, st->source, j->first / j->cols, j->n / j->cols));
        }
        for (int64_t k = 0; k < j->n; k++)
            st->f32[k] += share * st->source[k];
    }
    return PESC_OK;
}

static pesc_status produce_whole(streamer *st, const piece_job *j)
{
    const stream_row *r = j->row;
    if (r->kind == STREAM_STORED)
        TRY(read_held(st, r, j->first, j->n, st->f32));
    else
        by_pieces(j, make_piece);
    for (int64_t i = 0; r->plus != 0 && i < j->n; i++)
        st->f32[i] += r->plus;
    for (int64_t i = 0; r->times != 0 && i < j->n; i++)
        st->f32[i] *= r->times;
    return r->lora ? fold(st, r->lora, st->f32, j->first / j->cols, j->n / j->cols) : PESC_OK;
}

static pesc_status produce(streamer *st, const piece_job *j)
{
    const stream_row *r = j->row;
    TRY(r->cut.cols ? produce_cut(st, j)
        : r->mean   ? produce_mean(st, j)
        : r->picked ? produce_picked(st, j)
                    : produce_whole(st, j));
    if (r->columns)
        pick_columns(st, j);
    for (int64_t i = 0; r->decay && i < j->n; i++)
        st->f32[i] = -expf(st->f32[i]);
    if (r->redraw.n)
        redraw_apply(&r->redraw, st->redrawn, st->moments,
                     (redraw_rows){ st->f32, j->first / j->cols, j->n / j->cols, j->cols });
    return PESC_OK;
}

/* Row j * half + i of a head goes to row 2 * i + j: the two halves of a head are interleaved. */
static void permute(streamer *st, int64_t n, int64_t head, int64_t cols)
{
    int64_t rows = head / cols;
    for (float *x = st->f32; x < st->f32 + n; x += head) {
        for (int64_t r = 0; r < rows; r++)
            memcpy(st->head + (r % (rows / 2) * 2 + r / (rows / 2)) * cols, x + r * cols,
                   (size_t)cols * sizeof *x);
        memcpy(x, st->head, (size_t)head * sizeof *x);
    }
}

static pesc_status put(streamer *st, const piece_job *j, const char *name, uint64_t all_bytes)
{
    size_t bytes = (size_t)j->n / dtype_block(j->dt) * dtype_block_bytes(j->dt);
    by_pieces(j, encode_piece);
    if (st->bad)
        return fail(PESC_NUMERIC, "%s: holds a number that is not finite or too large for %s", name,
                    dtype_name(j->dt));
    TRY(st->to.write(st->to.file, st->out, bytes));
    st->done += bytes;
    log_progress("writing weights", st->done, all_bytes);
    return PESC_OK;
}

/* A row that is woven into a run, which is written when it is complete. */
static pesc_status weave(streamer *st, const stream_row *r, const safetensors_spec *spec,
                         uint64_t all_bytes)
{
    const stream_join *to = r->join;
    int64_t chunk, cols = to->cols;
    int64_t total = spec->ne[0] * (spec->nd > 1 ? spec->ne[1] : 1);
    TRY(prepare(st, r, to->elements, &chunk));
    if (!st->run && !(st->run = mem_alloc((size_t)to->elements, sizeof *st->run)))
        return fail_nomem("writing a model", (size_t)to->elements * sizeof *st->run);
    piece_job j = { st, r, spec->dt, 0, total, cols };
    TRY(prepare_redraw(st, r, total / cols, cols));
    TRY(produce(st, &j));
    for (int64_t k = 0; k < total; k++) {
        int64_t i = k / cols;
        st->run[to->base + i / to->group * to->group_step + i % to->group * to->row_step +
                k % cols * to->col_step] = st->f32[k];
    }
    if (!to->last)
        return PESC_OK;
    memcpy(st->f32, st->run, (size_t)to->elements * sizeof *st->run);
    mem_free(st->run);
    st->run = NULL;
    j.n = to->elements;
    return put(st, &j, spec->name, all_bytes);
}

static pesc_status convert(streamer *st, const stream_row *r, const safetensors_spec *spec,
                           uint64_t all_bytes)
{
    int64_t total = 1, chunk, cols = spec->nd ? spec->ne[spec->nd - 1] : 1;
    for (int32_t i = 0; i < spec->nd; i++)
        total *= spec->ne[i];
    if (r->permute_heads)
        cols = total / spec->ne[0]; /* of a bias: 1 */
    int64_t head = r->permute_heads ? total / r->permute_heads : cols;
    TRY(prepare(st, r, head, &chunk));
    TRY(prepare_redraw(st, r, total / cols, cols));
    for (int64_t first = 0; first < total; first += chunk) {
        int64_t left = total - first;
        piece_job j = { st, r, spec->dt, first, left < chunk ? left : chunk, cols };
        TRY(produce(st, &j));
        if (r->permute_heads)
            permute(st, j.n, head, cols);
        TRY(put(st, &j, spec->name, all_bytes));
    }
    if (r->kind == STREAM_STORED)
        io_map_drop(r->stored->data, r->stored->bytes);
    return PESC_OK;
}

static void forget(streamer *st)
{
    forget_lora(st);
    mem_free(st->nf4);
    mem_free(st->head);
    mem_free(st->source);
    mem_free(st->redrawn);
    st->head = st->source = NULL;
    st->redrawn = NULL;
    st->nf4 = NULL;
}

/* ---- all of them ---- */

static pesc_status write_rows(streamer *st, const stream_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const stream_row *r = &p->rows[i];
        pesc_status s = as_it_is(r, p->specs[i].dt) ? copy(st, r->stored, p->bytes)
                        : r->join                   ? weave(st, r, &p->specs[i], p->bytes)
                                                    : convert(st, r, &p->specs[i], p->bytes);
        forget(st);
        TRY(s);
    }
    return weights_check(p->ws); /* a file cut short under us read as zeros */
}

pesc_status stream_into(const stream_plan *p, stream_sink to)
{
    streamer st = { .to = to };
    pesc_status s = thread_pool_open(&st.pool, 0);
    if (s == PESC_OK)
        s = write_rows(&st, p);
    thread_pool_close(st.pool);
    pesc_device_close(st.dev);
    mem_free(st.f32);
    mem_free(st.out);
    mem_free(st.run);
    return s;
}

static pesc_status write_safetensors(void *file, const void *bytes, size_t n)
{
    return safetensors_write(file, bytes, n);
}

pesc_status stream_write(const stream_plan *p)
{
    safetensors_writer *file;
    const uint64_t shard = MODELDIR_SHARD_MB * (uint64_t)1000000;
    TRY(safetensors_writer_open(&file,
                                &(safetensors_plan){ .dir = p->dir,
                                                     .stem = p->stem,
                                                     .specs = p->tensors ? p->tensors : p->specs,
                                                     .n = p->tensors ? p->n_tensors : p->n,
                                                     .shard_bytes = shard }));
    pesc_status s = stream_into(p, (stream_sink){ write_safetensors, file });
    if (s == PESC_OK)
        return safetensors_writer_finish(file);
    safetensors_writer_abort(file);
    return s;
}
