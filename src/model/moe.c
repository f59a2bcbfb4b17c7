#include "model/moe.h"

#include "model/pass.h"
#include "model/routes.h"

#include <string.h>

/* LoRA experts: the widest input and output of the three linears. */
static int64_t widest(const config *c)
{
    const int32_t inner = config_widest_ffn(c);
    return c->dim > inner ? c->dim : inner;
}

void moe_layout_partial(moe_acts *a, arena *mem, const acts_plan *plan)
{
    const moe_rule *r = &plan->c->moe;
    int64_t n = plan->n, k = r->topk.k, rows = n * k;
    a->logits = tensor_take2(mem, DT_F32, n, r->topk.n_experts);
    a->ids = tensor_take2(mem, DT_I32, n, k);
    a->gates = tensor_take2(mem, DT_F32, n, k);
    if (r->beside_ffn) {
        a->router_rstd = tensor_take1(mem, DT_F32, n);
        a->chosen = tensor_take2(mem, DT_F32, n, k);
        a->factor = tensor_take2(mem, DT_F32, n, k);
    }
    a->order = tensor_take1(mem, DT_I32, rows);
    a->inverse = tensor_take1(mem, DT_I32, rows);
    tensor offsets = tensor_take1(mem, DT_I32, (int64_t)r->topk.n_experts + plan->extra + 1);
    a->offsets = tensor_slice(&offsets, 0, (int64_t)r->topk.n_experts + 1);
    if (plan->extra) {
        a->extra_offsets = tensor_slice(&offsets, r->topk.n_experts, (int64_t)plan->extra + 1);
        a->remapped = tensor_take2(mem, DT_I32, n, k);
    }
    if (r->kind == EXPERT_ADAPTER)
        a->up = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    if (r->shared_dim)
        a->shared_logit = tensor_take2(mem, DT_F32, n, 1);
}

void moe_layout(moe_acts *a, arena *mem, const acts_plan *plan)
{
    const moe_rule *r = &plan->c->moe;
    int64_t n = plan->n, rows = n * r->topk.k, dim = plan->c->dim;
    bool mixed = r->kind == EXPERT_LORA, adapter = r->kind == EXPERT_ADAPTER;
    *a = (moe_acts){ 0 };
    const moe_acts *share = plan->share ? &plan->share->moe : NULL;
    bool small = r->kind != EXPERT_FFN; /* recomputing the output costs less than keeping it */
    int64_t width = mixed ? widest(plan->c) : dim;
    a->in = share && !adapter ? share->in : tensor_take2(mem, plan->dt, rows, width);
    a->out = share && small ? share->out : tensor_take2(mem, plan->dt, rows, width);
    a->mid = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    if (!adapter) {
        a->gate = tensor_take2(mem, plan->dt, rows, r->expert_dim);
        a->up = tensor_take2(mem, plan->dt, rows, r->expert_dim);
    }
    if (plan->expert_rank && share) {
        memcpy(a->lora_mid, share->lora_mid, sizeof a->lora_mid);
        a->lora_wide = share->lora_wide;
    } else if (plan->expert_rank) {
        for (int i = 0; i < 2; i++)
            a->lora_mid[i] = tensor_take2(mem, plan->dt, rows, plan->expert_rank);
        a->lora_wide = tensor_take2(mem, plan->dt, rows, dim > r->expert_dim ? dim : r->expert_dim);
    }
    if (r->shared_dim) {
        ffn_layout(&a->shared, mem, plan, r->shared_dim, share ? &share->shared : NULL);
        a->shared_out = tensor_take2(mem, plan->dt, n, dim);
    }
    moe_layout_partial(a, mem, plan);
}

void moe_grads_layout(moe_grads *g, arena *mem, const acts_plan *plan)
{
    const moe_rule *r = &plan->c->moe;
    int64_t k = r->topk.k;
    *g = (moe_grads){ 0 };
    g->mid = tensor_take2(mem, plan->dt, plan->n * k, r->expert_dim);
    g->gates = tensor_take2(mem, DT_F32, plan->n, k);
    g->logits = tensor_take2(mem, DT_F32, plan->n, r->topk.n_experts);
    if (r->kind == EXPERT_LORA)
        g->more = tensor_take2(mem, DT_F32, plan->n, k);
    if (r->shared_gate)
        g->shared_logit = tensor_take2(mem, DT_F32, plan->n, 1);
}

/* The experts of served adapters in this layer, where a row may use them; NULL: none. */
static const extra_experts *extra_of(const pass *p, const block *b)
{
    return p->host.any_adapter ? b->moe.extra : NULL;
}

/* a->ids stay the router's choices, whichever copies of these experts a row computes with. */
void moe_route(const pass *p, const block *b)
{
    const moe_acts *a = &p->acts.moe;
    const moe_rule *r = &p->m->cfg.moe;
    const extra_experts *extra = extra_of(p, b);
    const ops *op = p->dev->op;
    int32_t n = r->topk.n_experts;
    if (b->moe.logit_bias.data)
        op->add_bias(p->dev, a->logits, b->moe.logit_bias, (tensor){ 0 });
    if (!routes_choose(p, b))
        op->topk_fwd(p->dev, a->ids, a->gates, a->logits, &r->topk, b->moe.router_bias);
    moe_scale_gates(p, b);
    if (extra) {
        op->expert_remap(p->dev, a->remapped, a->ids, extra->table, p->adapter_of_row);
        n += (int32_t)extra->gate.ne[0];
    }
    op->expert_sort(p->dev, a->order, a->inverse, a->offsets, extra ? a->remapped : a->ids, n);
}

/* A row of x for each token and choice, sorted by expert. */
static void gather_choices(const pass *p, tensor out, tensor x)
{
    p->dev->op->gather_rows(p->dev, out, x, p->acts.moe.order, p->m->cfg.moe.topk.k);
}

/* Whether the tokens of this pass, which are all of one domain, if of any, are for the i-th. */
static bool takes_tokens(const pass *p, const expert_list *own, int32_t i)
{
    return !own->domains || own->domains[i] & p->train->domain;
}

/* A product of a stack that holds some of the experts: one for each run of adjacent ones. Rows of
 * other experts are neither read nor written. out absent: not wanted. */
static void own_product(const pass *p, grouped_mm a, const expert_list *own)
{
    tensor *stack = a.layout == MM_TN ? &a.out : &a.b;
    const tensor all = *stack, offsets = p->acts.moe.offsets;
    a.offsets = offsets;
    if (a.out.data && !own->ids)
        p->dev->op->grouped_matmul(p->dev, &a);
    for (int32_t i = 0, n; a.out.data && own->ids && i < own->n; i += n) {
        n = 1;
        if (!takes_tokens(p, own, i))
            continue;
        while (i + n < own->n && own->ids[i + n] == own->ids[i] + n && takes_tokens(p, own, i + n))
            n++;
        *stack = tensor_slice(&all, i, n);
        a.offsets = tensor_slice(&offsets, own->ids[i], n + 1);
        p->dev->op->grouped_matmul(p->dev, &a);
    }
}

/* The same of all experts of the layer: out = x w. */
static void grouped_product(const pass *p, mm_layout layout, tensor out, tensor x, tensor w)
{
    own_product(p, (grouped_mm){ .layout = layout, .out = out, .a = x, .b = w, .scale = 1 },
                &(expert_list){ 0 });
}

/* Which rows of a layer a dropout mask is for: it names the mask. */
typedef enum dropout_rows { DROPOUT_ADAPTER, DROPOUT_GATE, DROPOUT_UP, DROPOUT_DOWN } dropout_rows;

/* Dropout of rows that experts read: each choice of a token has a mask of its own. */
static void drop_rows(const pass *p, const block *b, tensor rows, dropout_rows which)
{
    uint64_t layer = (uint64_t)(b - p->m->w.blocks);
    if (!pass_has_dropout(p))
        return;
    const backward_facts *f = &p->train->mirror->facts;
    float rate = which == DROPOUT_ADAPTER ? f->adapter_dropout : f->lora_dropout;
    if (rate > 0)
        p->dev->op->dropout(p->dev, rows, rows, pass_key(p, rng_stream(layer, which, 0)), rate);
}

/* Gates are applied on the narrow side, before U: backward then needs no output of an expert. */
static row_gates adapter_gates(const pass *p)
{
    const moe_acts *a = &p->acts.moe;
    return (
        row_gates){ .gates = a->gates, .order = a->order, .scale = p->m->cfg.moe.adapter_scale };
}

void moe_adapter_fwd(const pass *p, const block *b, tensor f)
{
    const moe_acts *a = &p->acts.moe;
    row_gates gates = adapter_gates(p);
    gather_choices(p, a->in, f);
    drop_rows(p, b, a->in, DROPOUT_ADAPTER);
    if (!pass_has_partial(p))
        grouped_product(p, MM_NT, a->up, a->in, b->moe.down);
    p->dev->op->act_fwd(p->dev, a->mid, a->up, p->m->cfg.moe.adapter_act, &gates);
    if (!pass_recomputes(p) || b->ffn_post.data) /* whose backward reads the sum with f */
        grouped_product(p, MM_NT, a->out, a->mid, b->moe.up);
}

bool moe_adapters_few(const pass *p)
{
    const moe_rule *r = &p->m->cfg.moe;
    bool paper = r->adapter_act == ACT_GELU && r->topk.score_after_topk; /* what the op computes */
    return r->kind == EXPERT_ADAPTER && paper && !r->has_bias && !p->train &&
           p->m->act_dt == DT_BF16 && (int64_t)p->n * r->topk.k <= p->dev->few_choices;
}

void moe_adapters_add(const pass *p, const block *b, tensor x, tensor f)
{
    const moe_acts *a = &p->acts.moe;
    const moe_rule *r = &p->m->cfg.moe;
    p->dev->op->adapters_fwd(p->dev, &(adapters_fwd){ .x = x,
                                                      .f = f,
                                                      .logits = a->logits,
                                                      .down = b->moe.down,
                                                      .up = b->moe.up,
                                                      .mid = a->mid,
                                                      .k = r->topk.k,
                                                      .scale = r->adapter_scale });
}

void moe_restore(const pass *p, tensor h)
{
    const ffn_acts *f = &p->acts.ffn;
    if (p->m->cfg.moe.kind == EXPERT_FFN)
        gather_choices(p, p->acts.moe.in, h);
    else if (p->m->cfg.moe.kind == EXPERT_LORA)
        p->dev->op->glu_fwd(p->dev, f->glu, f->gate, f->up, p->m->cfg.act);
}

static void shared_fwd(const pass *p, const block *b, tensor x, tensor h)
{
    const moe_acts *a = &p->acts.moe;
    ffn_fwd(p, &b->moe.shared, &a->shared, a->shared_out, h);
    if (p->m->cfg.moe.shared_gate)
        p->dev->op->add_gated(p->dev, x, a->shared_out, a->shared_logit);
    else
        p->dev->op->add(p->dev, x, a->shared_out, 1);
}

/* out [T*k,O] = x times the layer's experts w, and for the rows after them the extra experts. */
static void expert_product(const pass *p, tensor out, tensor x, tensor w, const tensor *extra)
{
    grouped_product(p, MM_NT, out, x, w);
    if (extra)
        p->dev->op->grouped_matmul(
            p->dev,
            &(grouped_mm){ .out = out,
                           .a = x,
                           .b = *extra,
                           .offsets = tensor_slice(&p->acts.moe.extra_offsets, 0, extra->ne[0] + 1),
                           .scale = 1 });
}

/* The start of a scratch tensor, cut to the width of this linear. */
static tensor narrow(tensor t, int64_t cols)
{
    t.ne[1] = cols;
    return t;
}

/* One matrix of the full experts, and its LoRA if it has one. */
typedef struct expert_part {
    const lora_stack *s;
    tensor w, bias;      /* bias [E,O], or absent */
    const tensor *extra; /* of the extra experts; NULL: there are none */
    int mid;             /* which of the two of the pass its A x uses */
    dropout_rows which;
} expert_part;

typedef struct expert_parts {
    expert_part gate, up, down;
} expert_parts;

static expert_parts expert_parts_of(const moe *m, const extra_experts *x)
{
    const tensor *gate = x ? &x->gate : NULL, *up = x ? &x->up : NULL, *down = x ? &x->down : NULL;
    expert_parts e = { { &m->lora_gate, m->gate, m->gate_bias, gate, 0, DROPOUT_GATE },
                       { &m->lora_up, m->up, m->up_bias, up, 1, DROPOUT_UP },
                       { &m->lora_down, m->down, m->down_bias, down, 0, DROPOUT_DOWN } };
    if (x) {
        e.gate.bias = x->gate_bias;
        e.up.bias = x->up_bias;
        e.down.bias = x->down_bias;
    }
    return e;
}

/* What A reads: x, or in training x with dropout. */
static tensor expert_lora_in(const pass *p, const block *b, const expert_part *e, tensor x)
{
    if (!pass_has_dropout(p) || p->train->mirror->facts.lora_dropout <= 0)
        return x;
    tensor in = narrow(p->acts.moe.lora_wide, x.ne[1]);
    p->dev->op->copy(p->dev, in.data, x.data, tensor_bytes(&x));
    drop_rows(p, b, in, e->which);
    return in;
}

/* scale A x, x [T*k,I], in the rows of experts that have a LoRA. */
static tensor expert_lora_mid(const pass *p, const expert_part *e, tensor in)
{
    tensor mid = narrow(p->acts.moe.lora_mid[e->mid], e->s->a.ne[1]);
    own_product(
        p, (grouped_mm){ .layout = MM_NT, .out = mid, .a = in, .b = e->s->a, .scale = e->s->scale },
        &e->s->own);
    return mid;
}

/* y [T*k,N] += x times w, A or B, of the experts that have them, by way of scratch; going back (NN)
 * it is the gradient of a LoRA's input and goes through its dropout. */
static void expert_lora_add(const pass *p, const block *b, const expert_part *e, mm_layout layout,
                            tensor y, tensor x, tensor w)
{
    const tensor more = narrow(p->acts.moe.lora_wide, y.ne[1]);
    if (e->s->own.ids)
        p->dev->op->zero(p->dev, more.data, tensor_bytes(&more));
    own_product(p, (grouped_mm){ .layout = layout, .out = more, .a = x, .b = w, .scale = 1 },
                &e->s->own);
    if (layout == MM_NN)
        drop_rows(p, b, more, e->which);
    p->dev->op->add(p->dev, y, more, 1);
}

static void expert_part_fwd(const pass *p, const block *b, const expert_part *e, tensor y, tensor x)
{
    expert_product(p, y, x, e->w, e->extra);
    tensor offsets = p->acts.moe.offsets; /* and, after them, those of the extra experts */
    offsets.ne[0] = e->bias.ne[0] + 1;
    if (e->bias.data)
        p->dev->op->add_bias(p->dev, y, e->bias, offsets);
    if (!e->s->a.data)
        return;
    tensor mid = expert_lora_mid(p, e, expert_lora_in(p, b, e, x));
    expert_lora_add(p, b, e, MM_NT, y, mid, e->s->b);
}

/* Experts as the model has them, in inference: one op. */
static void plain_experts_fwd(const pass *p, const block *b, tensor x, tensor h)
{
    const moe_acts *a = &p->acts.moe;
    p->dev->op->experts_fwd(p->dev, &(experts_fwd){ .x = x,
                                                    .h = h,
                                                    .gate = b->moe.gate,
                                                    .up = b->moe.up,
                                                    .down = b->moe.down,
                                                    .gates = a->gates,
                                                    .order = a->order,
                                                    .inverse = a->inverse,
                                                    .offsets = a->offsets,
                                                    .in = a->in,
                                                    .out = a->out,
                                                    .gate_out = a->gate,
                                                    .up_out = a->up,
                                                    .mid = a->mid,
                                                    .act = p->m->cfg.act });
}

/* Experts with LoRA, experts beside the model's, or training, which reads the parts again. */
static void expert_parts_fwd(const pass *p, const block *b, tensor x, tensor h)
{
    const moe_acts *a = &p->acts.moe;
    expert_parts e = expert_parts_of(&b->moe, extra_of(p, b));
    gather_choices(p, a->in, h);
    expert_part_fwd(p, b, &e.gate, a->gate, a->in);
    expert_part_fwd(p, b, &e.up, a->up, a->in);
    p->dev->op->glu_fwd(p->dev, a->mid, a->gate, a->up, p->m->cfg.act);
    expert_part_fwd(p, b, &e.down, a->out, a->mid);
    p->dev->op->scatter_add(p->dev, x, a->out, a->gates, a->inverse, 1);
}

void moe_expert_fwd(const pass *p, const block *b, tensor x, tensor h)
{
    const moe *m = &b->moe;
    bool tuned = m->lora_gate.a.data || m->lora_up.a.data || m->lora_down.a.data;
    if (p->train || tuned || m->down_bias.data || extra_of(p, b)) /* the one op has no biases */
        expert_parts_fwd(p, b, x, h);
    else
        plain_experts_fwd(p, b, x, h);
    if (p->m->cfg.moe.shared_dim)
        shared_fwd(p, b, x, h);
}

/* ---- LoRA experts ---- */

/* One of the FFN's linears and its experts. */
typedef struct lora_part {
    const linear *w;
    const lora_stack *s; /* of the model, or of the gradients */
    tensor mid;          /* [T*k,R] */
    dropout_rows which;
} lora_part;

/* The rows of x that the experts of this linear read. */
static tensor lora_rows(const pass *p, const block *b, const lora_part *l, tensor x)
{
    tensor in = narrow(p->acts.moe.in, x.ne[1]);
    gather_choices(p, in, x);
    drop_rows(p, b, in, l->which);
    return in;
}

static void lora_part_fwd(const pass *p, const block *b, const lora_part *l, tensor y, tensor x)
{
    const moe_acts *a = &p->acts.moe;
    tensor out = narrow(a->out, y.ne[1]);
    linear_fwd(p, l->w, y, x);
    grouped_product(p, MM_NT, l->mid, lora_rows(p, b, l, x), l->s->a);
    grouped_product(p, MM_NT, out, l->mid, l->s->b);
    p->dev->op->scatter_add(p->dev, y, out, a->gates, a->inverse, p->m->cfg.moe.adapter_scale);
}

typedef struct lora_parts {
    lora_part gate, up, down;
} lora_parts;

static lora_parts lora_parts_of(const pass *p, const block *b)
{
    const moe_acts *a = &p->acts.moe;
    return (lora_parts){ .gate = { &b->ffn.gate, &b->moe.lora_gate, a->gate, DROPOUT_GATE },
                         .up = { &b->ffn.up, &b->moe.lora_up, a->up, DROPOUT_UP },
                         .down = { &b->ffn.down, &b->moe.lora_down, a->mid, DROPOUT_DOWN } };
}

void moe_lora_fwd(const pass *p, const block *b, tensor y, tensor h)
{
    const ffn_acts *f = &p->acts.ffn;
    lora_parts l = lora_parts_of(p, b);
    lora_part_fwd(p, b, &l.gate, f->gate, h);
    lora_part_fwd(p, b, &l.up, f->up, h);
    p->dev->op->glu_fwd(p->dev, f->glu, f->gate, f->up, p->m->cfg.act);
    lora_part_fwd(p, b, &l.down, y, f->glu);
}

/* ---- backward ---- */

/* a->out becomes the gradient of the experts' outputs. */
static void scatter_bwd_rows(const pass *p, tensor out, tensor dgates, tensor dy, float scale)
{
    const moe_acts *a = &p->acts.moe;
    p->dev->op->scatter_add_bwd(p->dev, &(scatter_bwd){ .dx = out,
                                                        .dgates = dgates,
                                                        .dy = dy,
                                                        .x = out,
                                                        .gates = a->gates,
                                                        .inverse = a->inverse,
                                                        .scale = scale });
}

static void gather_bwd(const pass *p, tensor dx, tensor drows, bool accumulate)
{
    p->dev->op->gather_rows_bwd(p->dev, dx, drows, p->acts.moe.inverse, p->m->cfg.moe.topk.k,
                                accumulate);
}

static void adapter_dw(const pass *p, tensor dw, tensor dy, tensor x)
{
    const bool fresh = p->train->first_micro_batch;
    own_product(
        p, (grouped_mm){ .layout = MM_TN, .out = dw, .a = dy, .b = x, .scale = 1, .fresh = fresh },
        &(expert_list){ 0 });
}

void moe_adapter_bwd(const pass *p, const block *b, const block *g, tensor dy)
{
    const moe_acts *a = &p->acts.moe;
    tensor dmid = p->train->grads.moe.mid;
    row_gates gates = adapter_gates(p);
    gates.dgates = p->train->grads.moe.gates;
    gather_choices(p, a->out, dy);
    adapter_dw(p, g->moe.up, a->out, a->mid);
    grouped_product(p, MM_NN, dmid, a->out, b->moe.up);
    p->dev->op->act_bwd(p->dev, dmid, dmid, a->up, p->m->cfg.moe.adapter_act, &gates);
    adapter_dw(p, g->moe.down, dmid, a->in);
    grouped_product(p, MM_NN, a->in, dmid, b->moe.down);
    drop_rows(p, b, a->in, DROPOUT_ADAPTER);
    gather_bwd(p, dy, a->in, true);
}

static void shared_bwd(const pass *p, const block *b, const block *g, moe_flow f)
{
    const moe_acts *a = &p->acts.moe;
    const ops *op = p->dev->op;
    tensor dy = p->train->grads.dy, dlogit = p->train->grads.moe.shared_logit;
    if (p->m->cfg.moe.shared_gate) {
        op->add_gated_bwd(p->dev, dy, dlogit, f.dx, a->shared_out, a->shared_logit);
        if (g->moe.shared_gate.data)
            op->rmsnorm_bwd(p->dev, &(norm_bwd){ .x = p->acts.middle,
                                                 .w = b->ffn_norm,
                                                 .rstd = p->acts.ffn_rstd,
                                                 .dlogits = dlogit,
                                                 .drouter = g->moe.shared_gate,
                                                 .shift = p->m->cfg.norm_shift });
        if (f.dh.data)
            op->matmul(p->dev, &(mm){ .layout = MM_NN,
                                      .out = f.dh,
                                      .a = dlogit,
                                      .b = b->moe.shared_gate,
                                      .scale = 1,
                                      .accumulate = true });
    }
    ffn_bwd(p, &b->moe.shared, &g->moe.shared, &a->shared,
            (linear_flow){ f.dh, dy, f.h, .accumulate = true });
}

/* dw of the experts that train += dy^T x, from the rows that chose them. */
static void expert_dw(const pass *p, const expert_list *own, tensor dw, tensor dy, tensor x)
{
    own_product(p, (grouped_mm){ .layout = MM_TN, .out = dw, .a = dy, .b = x, .scale = 1 }, own);
}

static void expert_bias_bwd(const pass *p, tensor dbias, tensor dy)
{
    if (dbias.data)
        p->dev->op->add_bias_bwd(p->dev, dbias, dy, p->acts.moe.offsets);
}

/* Gradients of A and B, from dy [T*k,O] and x [T*k,I]; scale B^T dy stays in the pass, for
 * expert_lora_dx(). */
static void expert_lora_bwd(const pass *p, const block *b, const expert_part *e,
                            const lora_stack *g, tensor dy, tensor x)
{
    if (!e->s->a.data)
        return;
    tensor in = expert_lora_in(p, b, e, x), mid = expert_lora_mid(p, e, in);
    expert_dw(p, &g->own, g->b, dy, mid);
    own_product(
        p, (grouped_mm){ .layout = MM_NN, .out = mid, .a = dy, .b = e->s->b, .scale = e->s->scale },
        &e->s->own);
    expert_dw(p, &g->own, g->a, mid, in);
}

/* dx = dy W + what comes through the LoRA. */
static void expert_part_dx(const pass *p, const block *b, const expert_part *e, tensor dx,
                           tensor dy)
{
    grouped_product(p, MM_NN, dx, dy, e->w);
    if (!e->s->a.data)
        return;
    tensor mid = narrow(p->acts.moe.lora_mid[e->mid], e->s->a.ne[1]);
    expert_lora_add(p, b, e, MM_NN, dx, mid, e->s->a);
}

/* Activations are overwritten by gradients after their last use. */
void moe_expert_bwd(const pass *p, const block *b, const block *g, moe_flow f)
{
    const moe_acts *a = &p->acts.moe;
    tensor dmid = p->train->grads.moe.mid;
    expert_parts e = expert_parts_of(&b->moe, NULL);
    scatter_bwd_rows(p, a->out, p->train->grads.moe.gates, f.dx, 1);
    expert_dw(p, &g->moe.own, g->moe.down, a->out, a->mid);
    expert_bias_bwd(p, g->moe.down_bias, a->out);
    expert_lora_bwd(p, b, &e.down, &g->moe.lora_down, a->out, a->mid);
    expert_part_dx(p, b, &e.down, dmid, a->out);
    p->dev->op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dmid,
                                            .dup = a->up,
                                            .dy = dmid,
                                            .gate = a->gate,
                                            .up = a->up,
                                            .act = p->m->cfg.act });
    expert_dw(p, &g->moe.own, g->moe.gate, dmid, a->in);
    expert_dw(p, &g->moe.own, g->moe.up, a->up, a->in);
    expert_bias_bwd(p, g->moe.gate_bias, dmid);
    expert_bias_bwd(p, g->moe.up_bias, a->up);
    expert_lora_bwd(p, b, &e.gate, &g->moe.lora_gate, dmid, a->in);
    expert_lora_bwd(p, b, &e.up, &g->moe.lora_up, a->up, a->in);
    if (f.dh.data) {
        expert_part_dx(p, b, &e.gate, a->in, dmid);
        expert_part_dx(p, b, &e.up, a->out, a->up);
        gather_bwd(p, f.dh, a->in, false);
        gather_bwd(p, f.dh, a->out, true);
    }
    if (p->m->cfg.moe.shared_dim)
        shared_bwd(p, b, g, f);
}

/* dx (absent: not wanted) and dgates of one linear. The experts' outputs are recomputed, because
 * they are wide; A v is kept. */
static void lora_part_bwd(const pass *p, const block *b, const lora_part *l, const lora_part *g,
                          linear_flow f, tensor dgates)
{
    tensor out = narrow(p->acts.moe.out, f.dy.ne[1]), dmid = p->train->grads.moe.mid;
    linear_bwd(p, l->w, g->w, f);
    grouped_product(p, MM_NT, out, l->mid, l->s->b);
    scatter_bwd_rows(p, out, dgates, f.dy, p->m->cfg.moe.adapter_scale);
    grouped_product(p, MM_TN, g->s->b, out, l->mid);
    grouped_product(p, MM_NN, dmid, out, l->s->b);
    tensor in = lora_rows(p, b, l, f.x);
    grouped_product(p, MM_TN, g->s->a, dmid, in);
    if (!f.dx.data)
        return;
    grouped_product(p, MM_NN, in, dmid, l->s->a);
    drop_rows(p, b, in, l->which);
    gather_bwd(p, f.dx, in, true);
}

void moe_lora_bwd(const pass *p, const block *b, const block *g, tensor dy, moe_flow f)
{
    const ffn_acts *a = &p->acts.ffn;
    const moe_grads *d = &p->train->grads.moe;
    const ops *op = p->dev->op;
    lora_parts l = lora_parts_of(p, b), w = lora_parts_of(p, g);
    tensor dglu = narrow(p->train->grads.glu, a->glu.ne[1]);
    lora_part_bwd(p, b, &l.down, &w.down, (linear_flow){ .dx = dglu, .dy = dy, .x = a->glu },
                  d->gates);
    op->glu_bwd(p->dev, &(glu_bwd){ .dgate = dglu,
                                    .dup = a->up,
                                    .dy = dglu,
                                    .gate = a->gate,
                                    .up = a->up,
                                    .act = p->m->cfg.act });
    lora_part_bwd(p, b, &l.gate, &w.gate, (linear_flow){ .dx = f.dh, .dy = dglu, .x = f.h },
                  d->more);
    op->add(p->dev, d->gates, d->more, 1);
    lora_part_bwd(p, b, &l.up, &w.up,
                  (linear_flow){ .dx = f.dh, .dy = a->up, .x = f.h, .accumulate = true }, d->more);
    op->add(p->dev, d->gates, d->more, 1);
}
