#include "infer/embedding.h"

#include "base/io.h"
#include "base/mem.h"
#include "model/pass.h"
#include "tensor/bf16.h"

#include <math.h>
#include <string.h>

enum { ROWS = 32, MAX_CONFIG = 1 << 20 }; /* rows that are normed together */

struct embedder {
    pesc_model *m;
    pass *pass;
    void *rows; /* [ROWS, C] as the device has them */
};

pesc_status embedder_open(embedder **out, pesc_model *m, int32_t most)
{
    embedder *e = *out = mem_zalloc(1, sizeof *e);
    if (!e)
        return fail_nomem("embeddings", sizeof *e);
    e->m = m;
    pesc_status s = pass_open(&e->pass, m, (pass_limits){ most, 1, ROWS }, NULL);
    if (s == PESC_OK && !(e->rows = mem_alloc((size_t)ROWS * (size_t)m->shape.cfg.dim, 4)))
        s = fail_nomem("embeddings", ROWS);
    if (s == PESC_OK)
        return PESC_OK;
    embedder_close(e);
    *out = NULL;
    return s;
}

void embedder_close(embedder *e)
{
    if (!e)
        return;
    pass_close(e->pass);
    mem_free(e->rows);
    mem_free(e);
}

/* Adds the first n rows that were normed last. */
static pesc_status add_rows(embedder *e, int32_t n, double *sum)
{
    const pass *p = e->pass;
    size_t dim = (size_t)e->m->shape.cfg.dim;
    tensor h = tensor_slice(&p->last_h, 0, n);
    TRY(p->dev->op->download(p->dev, e->rows, h.data, tensor_bytes(&h)));
    const float *f32 = e->rows;
    const uint16_t *bf16 = e->rows;
    for (size_t i = 0; i < (size_t)n * dim; i++)
        sum[i % dim] += (double)(h.dt == DT_F32 ? f32[i] : bf16_to_f32(bf16[i]));
    return PESC_OK;
}

static pesc_status add_all(embedder *e, int32_t first, int32_t n, double *sum)
{
    pass *p = e->pass;
    int32_t rows[ROWS], k = n < ROWS ? n : ROWS;
    TRY(add_rows(e, k, sum));
    for (int32_t at = k; at < n; at += k) {
        k = n - at < ROWS ? n - at : ROWS;
        for (int32_t i = 0; i < k; i++)
            rows[i] = first + at + i;
        p->dev->op->upload(p->dev, p->rows.data, rows, (size_t)k * sizeof *rows);
        model_head(p, tensor_slice(&p->rows, 0, k), (tensor){ 0 });
        TRY(add_rows(e, k, sum));
    }
    return PESC_OK;
}

void embed_normalise(float *v, size_t n)
{
    double length = 0;
    for (size_t i = 0; i < n; i++)
        length += (double)v[i] * (double)v[i];
    for (size_t i = 0; length > 0 && i < n; i++)
        v[i] = (float)((double)v[i] / sqrt(length));
}

pesc_status embedder_run(embedder *e, const int32_t *ids, int32_t n, int32_t adapter,
                         embed_pooling pooling, float *out)
{
    size_t dim = (size_t)e->m->shape.cfg.dim;
    int32_t rows[ROWS], first = pooling == EMBED_LAST ? n - 1 : 0;
    int32_t all = pooling == EMBED_MEAN ? n : 1, k = all < ROWS ? all : ROWS;
    token_seq seq = { .ids = ids, .n = n, .adapter = adapter };
    tensor logits;
    for (int32_t i = 0; i < k; i++)
        rows[i] = first + i;
    double *sum = mem_zalloc(dim, sizeof *sum);
    if (!sum)
        return fail_nomem("an embedding", dim * sizeof *sum);
    pesc_status s = pass_set(e->pass, &seq, 1, rows, k);
    if (s == PESC_OK)
        s = model_fwd(e->m, e->pass, &logits);
    if (s == PESC_OK)
        s = add_all(e, first, all, sum);
    for (size_t i = 0; i < dim; i++)
        out[i] = (float)(sum[i] / all);
    mem_free(sum);
    embed_normalise(out, dim);
    for (size_t i = 0; s == PESC_OK && i < dim; i++)
        if (!isfinite(out[i]))
            s = fail(PESC_NUMERIC, "an embedding is not finite");
    return s;
}

pesc_status embed_pooling_of(const pesc_model *m, embed_pooling *out)
{
    static const struct {
        const char *key;
        embed_pooling pooling;
    } rows[] = { { "pooling_mode_mean_tokens", EMBED_MEAN },
                 { "pooling_mode_cls_token", EMBED_FIRST },
                 { "pooling_mode_lasttoken", EMBED_LAST } };
    json_t *v = NULL;
    char *path;
    *out = EMBED_LAST;
    TRY(io_find(&path, m->dir->root, "1_Pooling/config.json"));
    pesc_status s = path ? json_read(&v, path, MAX_CONFIG) : PESC_OK;
    for (size_t i = sizeof rows / sizeof *rows; s == PESC_OK && i > 0; i--)
        if (json_is_true(json_object_get(v, rows[i - 1].key)))
            *out = rows[i - 1].pooling;
    json_decref(v);
    mem_free(path);
    return s;
}
