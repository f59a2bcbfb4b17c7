#include "model/train.h"

#include "model/pass.h"

#include <math.h>

enum { DROPOUT_STREAM = 3 };

/* ---- memory ---- */

static int32_t most(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

train_plan train_plan_of(const config *c, const train_spec *s, int32_t first_layer, train_keep keep)
{
    int32_t reached = c->n_layers - first_layer, whole = least(keep.whole, reached);
    int32_t wide = most(most(c->dim, c->ffn_dim), c->n_heads * config_v_dim(c));
    wide = most(most(wide, c->moe.shared_dim), most(c->q_lora_rank, c->kv_lora_rank));
    return (train_plan){ .on = true,
                         .first = first_layer,
                         .keep = { whole, least(keep.light, reached - whole) },
                         .dropped = s->lora_dropout > 0 ? wide : 0 };
}

/* Rows of the next chunk that meets the head, of n that are left. */
static int64_t most_rows(const pass *p, int64_t n)
{
    int64_t rows = p->m->dev->head_rows;
    return n < rows ? n : rows;
}

static int64_t balance_cols(const config *c)
{
    return 2 * (int64_t)c->moe.topk.n_experts + 1;
}

static void grads_layout(pass *p, arena *a, const acts_plan *plan)
{
    const config *c = plan->c;
    pass_grads *g = &p->grads;
    int64_t n = plan->n;
    g->dy = tensor_take2(a, plan->dt, n, c->dim);
    g->dh = tensor_take2(a, plan->dt, n, c->dim);
    if (p->m->lora_rank)
        g->mid = tensor_take2(a, plan->dt, n, LINEARS * p->m->lora_rank);
    g->glu = tensor_take2(a, plan->dt, n, most(c->ffn_dim, c->moe.shared_dim));
    attention_grads_layout(&g->attn, a, plan);
    if (c->moe.kind != EXPERT_NONE)
        moe_grads_layout(&g->moe, a, plan);
}

static void head_layout(pass *p, arena *a, int64_t rows)
{
    const config *c = &p->m->cfg;
    dtype dt = p->m->act_dt;
    p->last = tensor_take2(a, DT_F32, rows, c->dim);
    p->last_h = tensor_take2(a, dt, rows, c->dim);
    p->last_rstd = tensor_take1(a, DT_F32, rows);
    p->dlast = tensor_take2(a, DT_F32, rows, c->dim);
    p->logits = tensor_take2(a, DT_F32, rows, c->vocab);
    if (dt != DT_F32)
        p->dlogits = tensor_take2(a, dt, rows, c->vocab);
}

static int32_t slots_of(const train_plan *t)
{
    return t->keep.whole + t->keep.light + 1;
}

static void slots_layout(pass *p, arena *a, acts_plan *plan)
{
    const train_keep *keep = &p->plan.keep;
    int32_t last = slots_of(&p->plan) - 1;
    block_acts shared, own;
    block_layout(&shared, a, plan);
    plan->share = &shared;
    for (int32_t i = 0; i <= last; i++) {
        if (i == last)
            own = shared;
        else if (i < keep->whole)
            block_layout(&own, a, plan);
        else
            block_layout_light(&own, a, plan);
        if (p->slots)
            p->slots[i] = own;
    }
    plan->share = NULL;
    p->acts = shared;
}

/* The head is done before the first gradient comes down: what they work in is the same memory. */
void train_layout(pass *p, arena *a, int64_t n, int64_t n_out)
{
    const config *c = &p->m->cfg;
    dtype dt = p->m->act_dt;
    acts_plan plan = { .c = c, .dt = dt, .n = n, .train = true, .rank = p->m->lora_rank };
    slots_layout(p, a, &plan);
    p->inputs = tensor_take3(a, DT_F32, c->n_layers - p->plan.first, n, c->dim);
    if (p->plan.dropped)
        p->dropped = tensor_take2(a, dt, n, p->plan.dropped);
    p->targets = tensor_take1(a, DT_I32, n_out);
    p->weights = tensor_take1(a, DT_F32, n_out);
    p->loss = tensor_take1(a, DT_F32, n_out);
    if (c->moe.kind != EXPERT_NONE)
        p->balance = tensor_take2(a, DT_F32, c->n_layers, balance_cols(c));
    p->grads = (pass_grads){ .dx = tensor_take2(a, DT_F32, n, c->dim) };
    arena head = *a;
    head_layout(p, &head, most_rows(p, n_out));
    grads_layout(p, a, &plan);
    a->used = a->used > head.used ? a->used : head.used;
}

void train_host_layout(pass *p, arena *a)
{
    const config *c = &p->m->cfg;
    size_t layers = (size_t)c->n_layers, experts = (size_t)c->moe.topk.n_experts;
    p->slots = arena_take(a, (size_t)slots_of(&p->plan) * sizeof *p->slots);
    p->host.loss = arena_take(a, (size_t)p->lim.max_out * sizeof *p->host.loss);
    p->host.balance = arena_take(a, layers * (size_t)balance_cols(c) * sizeof *p->host.balance);
    p->host.counts = arena_take(a, layers * experts * sizeof *p->host.counts);
}

/* ---- forward ---- */

static int32_t sparse_layers(const pesc_model *m)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->cfg.n_layers; i++)
        n += m->blocks[i].sparse;
    return n;
}

/* A layer's part of the balance: f and P [2,E], or aux [1]. */
static tensor balance_part(const pass *p, int32_t layer, bool aux)
{
    int64_t e = p->m->cfg.moe.topk.n_experts;
    tensor t = { .dt = DT_F32, .nd = aux ? 1 : 2, .ne = { aux ? 1 : 2, aux ? 0 : e } };
    t.data = (float *)p->balance.data + layer * (2 * e + 1) + (aux ? 2 * e : 0);
    return t;
}

static pesc_status begin(pass *p, const train_input *in)
{
    const ops *op = p->dev->op;
    TRY(pass_set(p, in->seqs, in->n_seqs, in->rows, in->n_targets));
    for (int32_t i = 0; i < in->n_targets; i++)
        if (in->targets[i] < 0 || in->targets[i] >= p->m->cfg.vocab)
            return fail(PESC_USAGE, "target %d: found id %d, expected 0 to %d", i, in->targets[i],
                        p->m->cfg.vocab - 1);
    op->upload(p->dev, p->targets.data, in->targets, tensor_bytes(&p->targets));
    op->upload(p->dev, p->weights.data, in->weights, tensor_bytes(&p->weights));
    p->key = (rng_key){ p->params->spec.seed, rng_stream(DROPOUT_STREAM, in->step, in->micro) };
    return PESC_OK;
}

/* Where the input of a layer is kept. */
static tensor input_of(const pass *p, int32_t layer)
{
    if (layer < p->plan.first)
        return p->x;
    tensor t = tensor_slice(&p->inputs, layer - p->plan.first, 1);
    return tensor_view2(&t, p->x.ne[0], p->x.ne[1]);
}

static int32_t slot_of(const pass *p, int32_t layer)
{
    int32_t at = layer - p->plan.first, last = slots_of(&p->plan) - 1;
    return at >= 0 && at < last ? at : last;
}

/* Layer `i` into its slot, from the stream. */
static void run_layer(pass *p, int32_t i)
{
    p->acts = p->slots[slot_of(p, i)];
    block_fwd(p, i, input_of(p, i));
}

static void forward(pass *p)
{
    const pesc_model *m = p->m;
    const ops *op = p->dev->op;
    model_embed(p);
    for (int32_t i = 0; i < m->cfg.n_layers; i++) {
        run_layer(p, i);
        if (m->blocks[i].sparse)
            op->balance(p->dev, balance_part(p, i, false), balance_part(p, i, true),
                        p->acts.moe.logits, p->acts.moe.ids);
    }
    block_settle(p);
}

/* ---- the head and the loss, a chunk of target rows at a time ---- */

static void head_bwd(const pass *p, tensor rows, tensor d, tensor last_h, tensor last)
{
    const pesc_model *m = p->m, *g = &p->params->grads;
    const ops *op = p->dev->op;
    int64_t n = rows.ne[0];
    tensor dlast = tensor_slice(&p->dlast, 0, n);
    if (g->head.data)
        op->matmul(p->dev, &(mm){ .layout = MM_TN,
                                  .out = g->head,
                                  .a = d,
                                  .b = last_h,
                                  .scale = 1,
                                  .accumulate = true });
    op->matmul(p->dev, &(mm){ .layout = MM_NN, .out = dlast, .a = d, .b = m->head, .scale = 1 });
    op->rmsnorm_bwd(p->dev, &(norm_bwd){ .dx = dlast,
                                         .dy = dlast,
                                         .x = last,
                                         .w = m->final_norm,
                                         .rstd = tensor_slice(&p->last_rstd, 0, n),
                                         .dw = g->final_norm });
    op->embed_bwd(p->dev, p->grads.dx, dlast, rows);
}

static void head_chunk(const pass *p, int64_t first, int64_t n, bool train)
{
    const pesc_model *m = p->m;
    const ops *op = p->dev->op;
    tensor rows = tensor_slice(&p->rows, first, n), targets = tensor_slice(&p->targets, first, n);
    tensor loss = tensor_slice(&p->loss, first, n), last = tensor_slice(&p->last, 0, n);
    tensor last_h = tensor_slice(&p->last_h, 0, n), logits = tensor_slice(&p->logits, 0, n);
    op->gather_rows(p->dev, last, p->x, rows, 1);
    op->rmsnorm_fwd(p->dev, &(norm_fwd){ .out = last_h,
                                         .x = last,
                                         .w = m->final_norm,
                                         .rstd = tensor_slice(&p->last_rstd, 0, n),
                                         .eps = m->cfg.norm_eps });
    op->matmul(p->dev, &(mm){ .out = logits, .a = last_h, .b = m->head, .scale = 1 });
    if (!train) {
        op->xent_fwd(p->dev, loss, logits, targets);
        return;
    }
    tensor d = p->dlogits.data ? tensor_slice(&p->dlogits, 0, n) : logits;
    op->xent_bwd(p->dev, loss, d, logits, targets, tensor_slice(&p->weights, first, n));
    head_bwd(p, rows, d, last_h, last);
}

static void head(const pass *p, bool train)
{
    for (int64_t first = 0, n; first < p->n_out; first += n) {
        n = most_rows(p, p->n_out - first);
        head_chunk(p, first, n, train);
    }
}

/* ---- backward ---- */

/* What backward reads of a layer, in the pass. The shared slot still holds the top layer: with one
 * layer less than all kept, none runs again. */
static void bring_back(pass *p, int32_t i)
{
    int32_t at = slot_of(p, i);
    bool top = i == p->m->cfg.n_layers - 1, whole = at < p->plan.keep.whole;
    p->acts = p->slots[at];
    p->light = !top && !whole && at < slots_of(&p->plan) - 1;
    p->stale = !top && (whole || p->light);
    if (!top && whole) {
        block_restore(p, &p->m->blocks[i]);
    } else if (!top) {
        p->stream = (residual){ .x = input_of(p, i) };
        run_layer(p, i);
    }
    p->light = false;
}

static void backward(pass *p, float balance)
{
    const ops *op = p->dev->op;
    const pesc_model *m = p->m;
    p->again = true;
    op->convert(p->dev, p->grads.dy, p->grads.dx);
    for (int32_t i = m->cfg.n_layers - 1; i >= p->plan.first; i--) {
        bring_back(p, i);
        if (m->blocks[i].sparse) {
            p->grads.moe.share = balance_part(p, i, false);
            p->grads.moe.balance = balance;
        }
        block_bwd(p, i, input_of(p, i));
    }
    p->again = false;
    if (p->params->grads.embed.data)
        op->embed_bwd(p->dev, p->params->grads.embed, p->grads.dx, p->ids);
}

/* ---- results ---- */

static void read_balance(const pass *p, train_output *out)
{
    const config *c = &p->m->cfg;
    int64_t e = c->moe.topk.n_experts, choices = (int64_t)p->n * c->moe.topk.k;
    out->counts = p->host.counts;
    out->balance = p->host.balance;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const float *f = p->host.balance + i * (2 * e + 1);
        bool sparse = p->m->blocks[i].sparse;
        for (int64_t j = 0; j < e; j++)
            p->host.counts[i * e + j] = sparse ? llround((double)f[j] * (double)choices) : 0;
        if (sparse)
            out->aux += (double)f[2 * e] / sparse_layers(p->m);
    }
}

static pesc_status finish(pass *p, const train_input *in, train_output *out)
{
    const ops *op = p->dev->op;
    *out = (train_output){ 0 };
    TRY(op->download(p->dev, p->host.loss, p->loss.data, tensor_bytes(&p->loss)));
    if (p->balance.data) {
        TRY(op->download(p->dev, p->host.balance, p->balance.data, tensor_bytes(&p->balance)));
        read_balance(p, out);
    }
    TRY(weights_check(p->m->dir->ws)); /* weights used in place may have been cut under us */
    for (int32_t i = 0; i < in->n_targets; i++)
        out->ce += (double)in->weights[i] * (double)p->host.loss[i];
    out->finite = isfinite(out->ce) && isfinite(out->aux);
    return PESC_OK;
}

pesc_status model_train(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    ASSERT(p->m == m && p->params);
    int32_t sparse = sparse_layers(m);
    TRY(begin(p, in));
    p->drop = true;
    p->first = in->first;
    forward(p);
    p->dev->op->zero(p->dev, p->grads.dx.data, tensor_bytes(&p->grads.dx));
    head(p, true);
    backward(p, sparse ? in->aux_weight / (float)sparse : 0);
    if (in->meanwhile)
        in->meanwhile(in->ctx);
    return finish(p, in, out);
}

pesc_status model_loss(pesc_model *m, pass *p, const train_input *in, train_output *out)
{
    ASSERT(p->m == m && p->params);
    TRY(begin(p, in));
    p->drop = false;
    forward(p);
    head(p, false);
    return finish(p, in, out);
}
