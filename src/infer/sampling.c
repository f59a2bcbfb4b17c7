#include "infer/sampler.h"

#include "base/mem.h"
#include "base/thread.h"

struct sampling {
    device *dev; /* borrowed */
    int32_t vocab;
    thread_pool *pool;
    sampler **samplers; /* [threads of the pool] */
    float *copy; /* logits in pinned host memory; NULL where the device has them in the host's */
    size_t cap_rows;    /* of the copy */
    sampling_row *rows; /* [n_rows]: the current draws */
    size_t n_rows;
};

pesc_status sampling_open(sampling **out, device *dev, int32_t vocab, int threads)
{
    *out = NULL;
    sampling *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("samplers", sizeof *s);
    s->dev = dev;
    s->vocab = vocab;
    pesc_sample_options opt = pesc_sample_defaults();
    pesc_status st = thread_pool_open(&s->pool, threads);
    size_t n = st == PESC_OK ? (size_t)thread_pool_size(s->pool) : 0;
    if (st == PESC_OK && !(s->samplers = mem_zalloc(n, sizeof(sampler *))))
        st = fail_nomem("samplers", n * sizeof(sampler *));
    for (size_t i = 0; st == PESC_OK && i < n; i++)
        st = sampler_open(&s->samplers[i], &opt, vocab);
    if (st == PESC_OK)
        *out = s;
    else
        sampling_close(s);
    return st;
}

void sampling_close(sampling *s)
{
    if (!s)
        return;
    for (int i = 0; s->samplers && i < thread_pool_size(s->pool); i++)
        sampler_close(s->samplers[i]);
    thread_pool_close(s->pool);
    mem_free(s->samplers);
    s->dev->op->free(s->dev, s->copy);
    mem_free(s);
}

/* Where the logits of each row are in host memory. Of a device's own memory only the rows that are
 * drawn from are copied, neighbours together. */
static pesc_status fetch(sampling *s, tensor logits, sampling_row *rows, size_t n)
{
    device *dev = s->dev;
    size_t vocab = (size_t)s->vocab;
    const float *from = logits.data;
    bool here = dev->op->host_memory(dev);
    if (!here && n > s->cap_rows) {
        void *more = NULL;
        TRY(dev->op->alloc_host(dev, n * vocab * sizeof *s->copy, &more));
        dev->op->free(dev, s->copy);
        s->copy = more;
        s->cap_rows = n;
    }
    for (size_t i = 0, run; i < n; i += run) {
        const float *row = from + (size_t)rows[i].row * vocab;
        for (run = 1; i + run < n && rows[i + run].row == rows[i].row + (int32_t)run; run++)
            continue;
        for (size_t k = 0; k < run; k++)
            rows[i + k].logits = (here ? row : s->copy + i * vocab) + k * vocab;
        if (!here)
            dev->op->copy(dev, s->copy + i * vocab, row, run * vocab * sizeof *row);
    }
    return here ? PESC_OK : dev->op->sync(dev);
}

static pesc_status draw(sampling *s, sampling_row *r, int worker)
{
    sampler *with = s->samplers[worker];
    sampler_use(with, r->opt, r->terms);
    return sampler_pick(with, r->logits, r->seen, r->n_seen, r->step, &r->id);
}

/* A row and those after its guesses, one after the other: each knows the token before it, and a
 * matcher goes from one to the next. */
static void draw_chunk(void *ctx, int64_t chunk, int worker)
{
    sampling *s = ctx;
    sampling_row *r = &s->rows[chunk], *end = s->rows + s->n_rows;
    bool right = !r->after_guess;
    for (; right; r++) {
        r->failed = draw(s, r, worker) != PESC_OK;
        right =
            !r->failed && r + 1 < end && r[1].after_guess && r[1].seen[r[1].n_seen - 1] == r->id;
    }
}

pesc_status sampling_draw(sampling *s, tensor logits, sampling_row *rows, size_t n)
{
    TRY(fetch(s, logits, rows, n));
    s->rows = rows;
    s->n_rows = n;
    thread_for(s->pool, (int64_t)n, draw_chunk, s);
    for (size_t i = 0; i < n; i++)
        if (rows[i].failed) /* again, because the sentence of an error belongs to its thread */
            TRY(draw(s, &rows[i], 0));
    return PESC_OK;
}
