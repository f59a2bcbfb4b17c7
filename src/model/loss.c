#include "model/loss.h"

#include "model/pass.h"

#include <math.h>

enum { DROPOUT_STREAM = 3 };

static int32_t sparse_layers(const model_shape *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->cfg.n_layers; i++)
        n += m->w.blocks[i].sparse;
    return n;
}

/* ---- the tokens and the current layer ---- */

static pesc_status set_micro_batch(pass *p, const train_input *in)
{
    const ops *op = p->dev->op;
    train_state *t = p->train;
    TRY(pass_set(p, in->seqs, in->n_seqs, in->rows, in->n_targets));
    for (int32_t i = 0; i < in->n_targets; i++)
        if (in->targets[i] < 0 || in->targets[i] >= p->m->cfg.vocab)
            return fail(PESC_USAGE, "target %d: found id %d, expected 0 to %d", i, in->targets[i],
                        p->m->cfg.vocab - 1);
    op->upload(p->dev, t->targets.data, in->targets, tensor_bytes(&t->targets));
    op->upload(p->dev, t->weights.data, in->weights, tensor_bytes(&t->weights));
    t->key = (rng_key){ t->mirror->facts.seed, rng_stream(DROPOUT_STREAM, in->step, in->micro) };
    t->first_micro_batch = in->first_micro_batch;
    t->domain = in->domain;
    if (in->shares)
        op->upload(p->dev, t->shares.data, in->shares,
                   (size_t)sparse_layers(p->m) * sizeof *in->shares *
                       (size_t)p->m->cfg.moe.topk.n_experts);
    return PESC_OK;
}

/* Makes a layer the current one: its slot and what it keeps. */
static void select_layer(pass *p, int32_t layer)
{
    const layer_plan *plan = &p->train->layers[layer];
    p->acts = p->train->slots[plan->slot];
    p->train->keep = plan->keep;
    block_fit(&p->acts, &p->m->w.blocks[layer]);
    attention_grads_fit(&p->train->grads.attn, &p->m->w.blocks[layer]);
}

/* Where the input of a layer is kept: below the lowest layer that trains nowhere, so all these use
 * p->x. */
static tensor input_of(const pass *p, int32_t layer)
{
    int32_t first = p->train->plan.recompute.first;
    if (layer < first)
        return p->x;
    tensor t = tensor_slice(&p->train->inputs, layer - first, 1);
    return tensor_view2(&t, p->x.ne[0], p->x.ne[1]);
}

/* A layer's part of the balance: f and P [2,E], or aux and z [2]. */
static tensor balance_part(const pass *p, int32_t layer, bool aux)
{
    int64_t e = p->m->cfg.moe.topk.n_experts;
    tensor t = { .dt = DT_F32, .nd = aux ? 1 : 2, .ne = { 2, aux ? 0 : e } };
    t.data = (float *)p->train->balance.data + layer * (2 * e + 2) + (aux ? 2 * e : 0);
    return t;
}

/* The layers that backward visits end with this one. */
static int32_t lowest(const pass *p)
{
    return p->train->plan.recompute.first;
}

/* The weights of a layer must be there, and those of the next one on their way. */
static void use_layer(const pass *p, int32_t layer, int32_t next)
{
    if (p->hook)
        p->hook->before(p->hook, layer, next);
}

static void use_forward(const pass *p, int32_t layer)
{
    use_layer(p, layer, layer + 1 < p->m->cfg.n_layers ? layer + 1 : -1);
}

static void use_backward(const pass *p, int32_t layer)
{
    use_layer(p, layer, layer > lowest(p) ? layer - 1 : -1);
}

/* ---- forward: PHASE_FORWARD and PHASE_EVALUATE ---- */

static void layers_fwd(pass *p)
{
    const model_shape *m = p->m;
    model_embed(p);
    for (int32_t i = 0; i < m->cfg.n_layers; i++) {
        select_layer(p, i);
        use_forward(p, i);
        block_fwd(p, i, input_of(p, i));
        if (m->w.blocks[i].sparse)
            p->dev->op->balance(p->dev, balance_part(p, i, false), balance_part(p, i, true),
                                p->acts.moe.logits, p->acts.moe.ids);
    }
    block_flush(p);
}

/* ---- the head and the loss, a chunk of target rows at a time ---- */

/* dlogits: of the target rows `rows`, whose final norm had the output last_h. */
static void head_bwd(const pass *p, tensor rows, tensor dlogits)
{
    const train_state *t = p->train;
    const model_shape *m = p->m;
    const transformer *g = &t->mirror->of;
    const ops *op = p->dev->op;
    int64_t n = rows.ne[0];
    tensor dlast = tensor_slice(&t->dlast, 0, n);
    if (g->head.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g->head,
                                  .a = dlogits,
                                  .b = tensor_slice(&p->last_h, 0, n),
                                  .scale = 1 / m->cfg.logit_divisor,
                                  .accumulate = true });
    op->matmul(p->dev, &(mm){ .layout = MM_NN,
                              .out = dlast,
                              .a = dlogits,
                              .b = m->w.head,
                              .scale = 1 / m->cfg.logit_divisor });
    op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = dlast,
                                         .dy = dlast,
                                         .x = tensor_slice(&p->last, 0, n),
                                         .w = m->w.final_norm,
                                         .rstd = tensor_slice(&t->last_rstd, 0, n),
                                         .dw = g->final_norm,
                                         .shift = m->cfg.norm_shift });
    op->embed_bwd(p->dev, t->grads.dx, dlast, rows);
}

/* What is done with a chunk of target rows. */
typedef enum chunk_work {
    CHUNK_LOSS,     /* their cross-entropy */
    CHUNK_BACKWARD, /* that, and its gradient with regard to the residual stream */
    CHUNK_GRADIENT  /* the same of the chunk whose logits are there */
} chunk_work;

static void loss_chunk(const pass *p, int64_t first, int64_t n, chunk_work work)
{
    const train_state *t = p->train;
    const ops *op = p->dev->op;
    tensor rows = tensor_slice(&p->rows, first, n), targets = tensor_slice(&t->targets, first, n);
    tensor loss = tensor_slice(&t->loss, first, n);
    tensor logits = work == CHUNK_GRADIENT ? tensor_slice(&p->logits, 0, n)
                                           : model_head(p, rows, tensor_slice(&t->last_rstd, 0, n));
    if (work == CHUNK_LOSS) {
        op->xent_fwd(p->dev, loss, logits, targets);
        return;
    }
    tensor dlogits = t->dlogits.data ? tensor_slice(&t->dlogits, 0, n) : logits;
    op->xent_bwd(p->dev, loss, dlogits, logits, targets, tensor_slice(&t->weights, first, n));
    if (p->m->cfg.logit_softcap > 0)
        op->softcap_bwd(p->dev, dlogits, dlogits, logits, p->m->cfg.logit_softcap);
    head_bwd(p, rows, dlogits);
}

static void loss_chunks(const pass *p, chunk_work work)
{
    for (int64_t first = 0, n; first < p->n_out; first += n) {
        n = train_state_chunk(p, p->n_out - first);
        loss_chunk(p, first, n, work);
    }
}

/* The gradients of all chunks after their losses, from the last to the first. */
static void gradient_chunks(const pass *p)
{
    int64_t step = train_state_chunk(p, p->n_out), chunks = step ? (p->n_out + step - 1) / step : 0;
    for (int64_t i = chunks - 1; i >= 0; i--) {
        int64_t first = i * step, left = p->n_out - first;
        loss_chunk(p, first, left < step ? left : step,
                   i == chunks - 1 ? CHUNK_GRADIENT : CHUNK_BACKWARD);
    }
}

/* The losses of a micro-batch, then the weights that follow from them. */
static pesc_status weigh(const pass *p, const train_input *in)
{
    const train_state *t = p->train;
    const ops *op = p->dev->op;
    loss_chunks(p, CHUNK_LOSS);
    TRY(op->download(p->dev, t->results.loss, t->loss.data, tensor_bytes(&t->loss)));
    in->weigh(in->ctx, t->results.loss);
    op->upload(p->dev, t->weights.data, in->weights, tensor_bytes(&t->weights));
    return PESC_OK;
}

/* ---- backward: PHASE_RECOMPUTE and PHASE_BACKWARD, layer by layer ---- */

/* Completes what backward reads of the current layer, by what the layer has kept. */
static void recover_activations(pass *p, int32_t layer)
{
    p->phase = PHASE_RECOMPUTE;
    switch (p->train->keep) {
    case KEEP_LIVE:
        break;
    case KEEP_ALL:
        block_restore(p, &p->m->w.blocks[layer]);
        break;
    default:
        p->stream = (residual){ .x = input_of(p, layer) };
        block_fwd(p, layer, input_of(p, layer));
    }
}

static void zero_shared(const pass *p)
{
    const shared_kv *shared = p->train->shared;
    for (int i = 0; i < SHARED_KINDS; i++)
        if (shared[i].k.data) {
            p->dev->op->zero(p->dev, shared[i].k.data, tensor_bytes(&shared[i].k));
            p->dev->op->zero(p->dev, shared[i].v.data, tensor_bytes(&shared[i].v));
        }
}

static void layers_bwd(pass *p, const train_input *in)
{
    const ops *op = p->dev->op;
    const model_shape *m = p->m;
    train_state *t = p->train;
    int32_t sparse = sparse_layers(m);
    const float share = 1 / (float)(sparse + !sparse); /* of a layer */
    op->convert(p->dev, t->grads.dy, t->grads.dx);
    zero_shared(p);
    if (in->layer_done)
        in->layer_done(in->ctx, m->cfg.n_layers);
    for (int32_t i = m->cfg.n_layers - 1; i >= lowest(p); i--) {
        select_layer(p, i);
        use_backward(p, i);
        recover_activations(p, i);
        p->phase = PHASE_BACKWARD;
        if (m->w.blocks[i].sparse) {
            t->grads.moe.share =
                in->shares ? tensor_slice(&t->shares, --sparse, 1) : balance_part(p, i, false);
            t->grads.moe.balance = in->aux_weight * share;
            t->grads.moe.z = in->z_weight * share;
        }
        block_bwd(p, i, input_of(p, i));
        if (in->layer_done)
            in->layer_done(in->ctx, i);
    }
    layer_inputs_bwd(p);
    const float scale = shape_embed_scale(m);
    if (t->mirror->of.embed.data && scale != 1)
        op->scale_rows(p->dev, t->grads.dx, (tensor){ 0 }, scale);
    if (t->mirror->of.embed.data)
        op->embed_bwd(p->dev, t->mirror->of.embed, t->grads.dx, p->ids);
}

/* ---- results ---- */

static void read_balance(const pass *p, train_output *out)
{
    const config *c = &p->m->cfg;
    const train_results *r = &p->train->results;
    int64_t e = c->moe.topk.n_experts, choices = (int64_t)p->n * c->moe.topk.k;
    out->counts = r->counts;
    out->balance = r->balance;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const float *f = r->balance + i * (2 * e + 2);
        bool sparse = p->m->w.blocks[i].sparse;
        for (int64_t j = 0; j < e; j++)
            r->counts[i * e + j] = sparse ? llround((double)f[j] * (double)choices) : 0;
        if (sparse)
            out->aux += (double)f[2 * e] / sparse_layers(p->m);
        if (sparse)
            out->z += (double)f[2 * e + 1] / sparse_layers(p->m);
    }
}

static pesc_status read_results(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    const ops *op = p->dev->op;
    const train_state *t = p->train;
    const train_results *r = &t->results;
    *out = (train_output){ 0 };
    TRY(op->download(p->dev, r->loss, t->loss.data, tensor_bytes(&t->loss)));
    if (t->balance.data) {
        TRY(op->download(p->dev, r->balance, t->balance.data, tensor_bytes(&t->balance)));
        read_balance(p, out);
    }
    if (p->hook)
        TRY(p->hook->check(p->hook));
    TRY(weights_check(m->dir->ws)); /* a mapped file may have been truncated meanwhile */
    out->losses = r->loss;
    for (int32_t i = 0; i < in->n_targets; i++)
        out->ce += (double)in->weights[i] * (double)r->loss[i];
    out->finite = isfinite(out->ce) && isfinite(out->aux);
    return PESC_OK;
}

/* ---- the two calls ---- */

pesc_status model_train(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    ASSERT(p->m == &m->shape && p->train);
    TRY(set_micro_batch(p, in));
    tensor dx = p->train->grads.dx;
    p->phase = PHASE_FORWARD;
    layers_fwd(p);
    p->dev->op->zero(p->dev, dx.data, tensor_bytes(&dx)); /* rows without a target have none */
    if (in->weigh) {
        TRY(weigh(p, in));
        gradient_chunks(p);
    } else {
        loss_chunks(p, CHUNK_BACKWARD);
    }
    layers_bwd(p, in);
    if (in->meanwhile)
        in->meanwhile(in->ctx);
    return read_results(m, p, in, out);
}

pesc_status model_choose(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    const train_state *t = p->train;
    ASSERT(p->m == &m->shape);
    TRY(set_micro_batch(p, in));
    p->phase = PHASE_FORWARD;
    layers_fwd(p);
    *out = (train_output){ 0 };
    TRY(p->dev->op->download(p->dev, t->results.balance, t->balance.data,
                             tensor_bytes(&t->balance)));
    read_balance(p, out);
    out->finite = isfinite(out->aux);
    if (p->hook)
        TRY(p->hook->check(p->hook));
    return weights_check(m->dir->ws);
}

pesc_status model_loss(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    ASSERT(p->m == &m->shape && p->train);
    TRY(set_micro_batch(p, in));
    p->phase = PHASE_EVALUATE;
    layers_fwd(p);
    loss_chunks(p, CHUNK_LOSS);
    if (in->meanwhile)
        in->meanwhile(in->ctx);
    return read_results(m, p, in, out);
}
