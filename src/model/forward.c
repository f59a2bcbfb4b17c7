#include "model/forward.h"

#include "model/block.h"
#include "model/pass.h"
#include "model/routes.h"

static void rope_tables(const pass *p)
{
    const rope_span *spans = p->host.spans;
    for (int32_t r = 0; r < p->m->cfg.n_ropes; r++)
        for (int32_t s = 0; s < p->n_spans; s++) {
            int32_t at = spans ? spans[s].first : 0;
            int32_t n = (spans ? spans[s + 1].first : p->n) - at;
            tensor freq = tensor_slice(&p->inv_freq, r * p->n_spans + s, 1);
            freq.ne[1] = p->cos[r].ne[1];
            p->dev->op->rope_table(p->dev, tensor_slice(&p->cos[r], at, n),
                                   tensor_slice(&p->sin[r], at, n), tensor_slice(&p->pos, at, n),
                                   freq, p->m->rope_scale[r]);
        }
}

void model_embed(pass *p)
{
    const model_shape *m = p->m;
    p->dev->op->embed(p->dev, p->x, m->w.embed, p->ids);
    const float scale = shape_embed_scale(m);
    if (scale != 1)
        p->dev->op->scale_rows(p->dev, p->x, (tensor){ 0 }, scale);
    p->stream = (residual){ .x = p->x };
    layer_inputs_fwd(p);
    rope_tables(p);
}

tensor model_head(const pass *p, tensor rows, tensor rstd)
{
    const model_shape *m = p->m;
    const ops *op = p->dev->op;
    int64_t n = rows.ne[0];
    tensor last = tensor_slice(&p->last, 0, n), last_h = tensor_slice(&p->last_h, 0, n);
    tensor logits = tensor_slice(&p->logits, 0, n);
    op->gather_rows(p->dev, last, p->x, rows, 1);
    op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = last_h,
                                         .x = last,
                                         .w = m->w.final_norm,
                                         .rstd = rstd,
                                         .eps = m->stream_eps,
                                         .shift = m->cfg.norm_shift });
    op->matmul(
        p->dev,
        &(mm){ .out = logits, .a = last_h, .b = m->w.head, .scale = 1 / m->cfg.logit_divisor });
    if (m->cfg.logit_softcap > 0)
        op->softcap(p->dev, logits, m->cfg.logit_softcap);
    return logits;
}

static void layers_and_head_fwd(pass *p)
{
    model_embed(p);
    for (int32_t i = 0; i < p->m->cfg.n_layers; i++) {
        block_fwd(p, i, p->x);
        routes_record_layer(p, i);
    }
    if (!p->n_out)
        return;
    block_flush(p);
    model_head(p, p->rows, (tensor){ 0 });
}

/* One token of each sequence: the next forward will be the same work in the same memory. */
static bool decoding(const pass *p)
{
    return p->kv && p->n == p->n_seqs;
}

static uint64_t graph_name(const pass *p)
{
    uint64_t more = p->routes != NULL; /* the copies of the routers' choices */
    uint64_t name = rng_stream(p->id, (uint64_t)p->n, (uint64_t)p->n_out << 1 | more);
    /* adapters choose the products */
    for (int32_t s = 0; p->host.any_adapter && s < p->n_seqs; s++)
        name = rng_stream(name, (uint64_t)p->host.adapter_of_seq[s], 1);
    return name;
}

void model_start(pesc_model *m, pass *p, tensor *logits)
{
    ASSERT(p->m == &m->shape && p->n > 0 && !p->train);
    if (!decoding(p)) {
        layers_and_head_fwd(p);
    } else if (m->dev->op->begin(m->dev, graph_name(p))) {
        layers_and_head_fwd(p);
        m->dev->op->end(m->dev);
    }
    *logits = p->logits;
}

pesc_status model_finish(pesc_model *m, pass *p)
{
    TRY(m->dev->op->sync(m->dev));
    TRY(routes_fetch(p));
    TRY(weights_check(m->dir->ws)); /* a mapped file may have been truncated meanwhile */
    for (int32_t s = 0; p->kv && s < p->n_seqs; s++)
        kvcache_advance(p->kv, p->host.kv_seq[s], p->host.starts[s + 1] - p->host.starts[s]);
    if (p->kv)
        p->n = 0; /* the tokens are spent: a second forward would store them twice */
    return PESC_OK;
}

pesc_status model_fwd(pesc_model *m, pass *p, tensor *logits)
{
    model_start(m, p, logits);
    return model_finish(m, p);
}
