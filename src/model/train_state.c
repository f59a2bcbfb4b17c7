#include "model/train_state.h"

#include "model/pass.h"

#include <string.h>

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The widest input of a linear that can carry LoRA. */
static int32_t widest_input(const config *c)
{
    int32_t wide = larger(larger(c->dim, config_widest_ffn(c)), (int32_t)config_widths(c).out);
    wide = larger(larger(wide, config_delta_values(c)), c->layer_input_dim);
    return larger(larger(wide, config_experts(c)->shared_dim),
                  larger(c->q_lora_rank, c->kv_lora_rank));
}

train_plan train_plan_of(const config *c, const backward_facts *f, keep_counts keep)
{
    return (train_plan){ .recompute = recompute_plan_of(c->n_layers, f->first_layer, keep),
                         .dropout_width = f->lora_dropout > 0 ? widest_input(c) : 0,
                         .fp8_grads = f->fp8,
                         .dense_router = f->dense_router,
                         .step_shares = f->step_shares };
}

int64_t train_state_chunk(const pass *p, int64_t n)
{
    int64_t rows = p->dev->head_rows;
    return n < rows ? n : rows;
}

static void grads_layout(pass *p, arena *a, const acts_plan *plan)
{
    const config *c = plan->c;
    train_grads *g = &p->train->grads;
    int64_t n = plan->n;
    g->dy = tensor_take2(a, plan->dt, n, c->dim);
    g->dh = tensor_take2(a, plan->dt, n, c->dim);
    if (p->m->lora_rank)
        g->mid = tensor_take2(a, plan->dt, n, LINEARS * p->m->lora_rank);
    int32_t inner = larger(config_widest_ffn(c), config_experts(c)->shared_dim);
    g->glu = tensor_take2(a, plan->dt, n, larger(inner, c->layer_input_dim));
    if (c->moe.beside_ffn)
        g->beside = tensor_take2(a, plan->dt, n, c->dim);
    arena other = *a;
    attention_grads_layout(&g->attn, a, plan);
    recurrent_grads_layout(&g->mix, &other, plan);
    a->used = a->used > other.used ? a->used : other.used;
    if (c->moe.kind != EXPERT_NONE)
        moe_grads_layout(&g->moe, a, plan, &c->moe);
    if (config_adapters_on_experts(c))
        moe_grads_layout(&g->ffn_moe, a, plan, &c->ffn_moe);
    if (c->moe.kind != EXPERT_NONE && p->train->plan.dense_router)
        moe_dense_layout(&g->moe, a, plan);
}

static void head_layout(pass *p, arena *a, int64_t rows)
{
    const config *c = &p->m->cfg;
    dtype dt = p->m->act_dt;
    train_state *t = p->train;
    p->last = tensor_take2(a, DT_F32, rows, c->dim);
    p->last_h = tensor_take2(a, dt, rows, c->dim);
    t->last_rstd = tensor_take1(a, DT_F32, rows);
    t->dlast = tensor_take2(a, DT_F32, rows, c->dim);
    p->logits = tensor_take2(a, DT_F32, rows, c->vocab);
    if (dt != DT_F32 || c->logit_softcap > 0) /* whose backward reads the logits */
        t->dlogits = tensor_take2(a, dt, rows, c->vocab);
}

/* The shared slot comes first, because the others share its scratch. */
static void slots_layout(pass *p, arena *a, acts_plan *plan)
{
    train_state *t = p->train;
    const recompute_plan *r = &t->plan.recompute;
    int32_t shared_slot = recompute_slots(r) - 1;
    block_acts shared, own;
    block_layout(&shared, a, plan);
    plan->share = &shared;
    for (int32_t i = 0; i < shared_slot; i++) {
        if (i < r->keep.all)
            block_layout(&own, a, plan);
        else
            block_layout_partial(&own, a, plan);
        if (t->slots)
            t->slots[i] = own;
    }
    if (t->slots)
        t->slots[shared_slot] = shared;
    plan->share = NULL;
    p->acts = shared;
}

static int64_t balance_cols(const config *c)
{
    return 2 * (int64_t)c->moe.topk.n_experts + 2;
}

/* The head has done its work before the first gradient goes through a layer: both use the same
 * memory. */
void train_state_layout(pass *p, arena *a, int64_t n, int64_t n_out)
{
    const config *c = &p->m->cfg;
    train_state *t = p->train;
    dtype dt = p->m->act_dt;
    acts_plan plan = { .c = c,
                       .dt = dt,
                       .n = n,
                       .train = true,
                       .rank = p->m->lora_rank,
                       .expert_rank = p->m->expert_rank };
    slots_layout(p, a, &plan);
    t->inputs = tensor_take3(a, DT_F32, c->n_layers - t->plan.recompute.first, n, c->dim);
    if (t->plan.dropout_width)
        t->dropped = tensor_take2(a, dt, n, t->plan.dropout_width);
    t->targets = tensor_take1(a, DT_I32, n_out);
    t->weights = tensor_take1(a, DT_F32, n_out);
    t->loss = tensor_take1(a, DT_F32, n_out);
    if (c->moe.kind != EXPERT_NONE)
        t->balance = tensor_take2(a, DT_F32, c->n_layers, balance_cols(c));
    memset(t->shared, 0, sizeof t->shared);
    acts_plan sums = { .c = c, .dt = DT_F32, .n = n };
    attention_shared_layout(t->shared, a, &sums);
    if (c->moe.kind != EXPERT_NONE && t->plan.step_shares)
        t->shares = tensor_take2(a, DT_F32, c->n_layers, c->moe.topk.n_experts);
    t->grads = (train_grads){ .dx = tensor_take2(a, DT_F32, n, c->dim) };
    arena head = *a;
    head_layout(p, &head, train_state_chunk(p, n_out));
    grads_layout(p, a, &plan);
    a->used = a->used > head.used ? a->used : head.used;
}

void train_state_host_layout(pass *p, arena *a)
{
    const config *c = &p->m->cfg;
    train_state *t = p->train;
    train_results *r = &t->results;
    size_t layers = (size_t)c->n_layers, experts = (size_t)c->moe.topk.n_experts;
    t->slots = arena_take(a, (size_t)recompute_slots(&t->plan.recompute) * sizeof *t->slots);
    t->layers = arena_take(a, layers * sizeof *t->layers);
    for (int32_t i = 0; t->layers && i < c->n_layers; i++)
        t->layers[i] = recompute_layer(&t->plan.recompute, i);
    r->loss = arena_take(a, (size_t)p->lim.max_out * sizeof *r->loss);
    r->balance = arena_take(a, layers * (size_t)balance_cols(c) * sizeof *r->balance);
    r->counts = arena_take(a, layers * experts * sizeof *r->counts);
}
