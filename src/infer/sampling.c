#include "infer/sampling.h"

#include "base/mem.h"
#include "base/thread.h"

struct sampling {
    device *dev; /* borrowed */
    int32_t vocab;
    thread_pool *pool;
    sampler **samplers; /* [threads of the pool] */
    float *copy;      /* logits of a forward in host memory; NULL where the device has them there */
    int64_t cap_rows; /* of the copy */
    /* the draws at hand */
    const float *logits;
    sampling_row *rows;
};

static pesc_status open_samplers(sampling *s)
{
    int n = thread_pool_size(s->pool);
    pesc_sample_options opt = pesc_sample_defaults();
    s->samplers = mem_zalloc((size_t)n, sizeof(sampler *));
    if (!s->samplers)
        return fail_nomem("samplers", (size_t)n * sizeof(sampler *));
    for (int i = 0; i < n; i++)
        TRY(sampler_open(&s->samplers[i], &opt, s->vocab));
    return PESC_OK;
}

pesc_status sampling_open(sampling **out, device *dev, int32_t vocab, int threads)
{
    *out = NULL;
    sampling *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("samplers", sizeof *s);
    s->dev = dev;
    s->vocab = vocab;
    pesc_status st = thread_pool_open(&s->pool, threads);
    if (st == PESC_OK)
        st = open_samplers(s);
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
    mem_free(s->copy);
    mem_free(s);
}

/* The logits in host memory. */
static pesc_status fetch(sampling *s, tensor logits)
{
    device *dev = s->dev;
    int64_t rows = logits.ne[0];
    s->logits = logits.data;
    if (dev->op->host_memory(dev))
        return PESC_OK;
    if (rows > s->cap_rows) {
        float *more = mem_grow(s->copy, (size_t)rows, (size_t)s->vocab * sizeof *more);
        if (!more)
            return fail_nomem("logits", (size_t)rows * (size_t)s->vocab * sizeof *more);
        s->copy = more;
        s->cap_rows = rows;
    }
    s->logits = s->copy;
    return dev->op->download(dev, s->copy, logits.data, tensor_bytes(&logits));
}

static pesc_status draw(sampling *s, sampling_row *r, int worker)
{
    sampler *with = s->samplers[worker];
    sampler_use(with, r->opt, r->terms);
    return sampler_pick(with, s->logits + (int64_t)r->row * s->vocab, r->seen, r->n_seen, r->step,
                        &r->id);
}

static void draw_chunk(void *ctx, int64_t chunk, int worker)
{
    sampling *s = ctx;
    sampling_row *r = &s->rows[chunk];
    r->failed = draw(s, r, worker) != PESC_OK;
}

pesc_status sampling_draw(sampling *s, tensor logits, sampling_row *rows, size_t n)
{
    TRY(fetch(s, logits));
    s->rows = rows;
    thread_for(s->pool, (int64_t)n, draw_chunk, s);
    for (size_t i = 0; i < n; i++)
        if (rows[i].failed) /* again, because the sentence of an error belongs to its thread */
            TRY(draw(s, &rows[i], 0));
    return PESC_OK;
}
