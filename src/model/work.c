#include "model/work.h"

#include "model/linear.h"

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Numbers of a weight that a product reads in another type than the activations'. */
static int64_t converted(const model_shape *m, const tensor *w)
{
    return w->dt != m->act_dt ? tensor_count(w) : 0;
}

/* Of n linears that read one x: one at a time, or, backward, all in the product that makes dx. */
static int64_t linears(const model_shape *m, const linear *const *l, int n, bool train)
{
    int64_t sum = 0, largest = 0;
    for (int i = 0; i < n; i++) {
        int64_t w = converted(m, &l[i]->w);
        sum += w;
        largest = most(largest, w);
    }
    return train ? sum : largest;
}

static int64_t ffn_converted(const model_shape *m, const ffn *f, bool train)
{
    const linear *in[] = { &f->gate, &f->up };
    return most(linears(m, in, 2, train), converted(m, &f->down.w));
}

static int64_t moe_converted(const model_shape *m, const moe *x, bool train)
{
    const tensor *all[] = { &x->gate,        &x->up,          &x->down,
                            &x->lora_gate.a, &x->lora_gate.b, &x->lora_up.a,
                            &x->lora_up.b,   &x->lora_down.a, &x->lora_down.b };
    int64_t n = ffn_converted(m, &x->shared, train);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        n = most(n, converted(m, all[i]));
    return n;
}

static int64_t block_converted(const model_shape *m, const block *b, bool train)
{
    const linear *qkv[] = { &b->q, &b->k, &b->v };
    const tensor *others[] = { &b->o.w,        &b->out_gate.w, &b->input.gate.w, &b->input.proj.w,
                               &b->mla.q.w,    &b->mla.q_a.w,  &b->mix.in.w,     &b->mix.out.w,
                               &b->mix.z.w,    &b->mix.b.w,    &b->mix.a.w,      &b->mla.q_b.w,
                               &b->mla.kv_a.w, &b->mla.kv_b.w };
    int64_t n = linears(m, qkv, 3, train);
    n = most(n, ffn_converted(m, &b->ffn, train));
    n = most(n, moe_converted(m, &b->moe, train));
    n = most(n, moe_converted(m, &b->ffn_moe, train));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        n = most(n, converted(m, others[i]));
    const extra_experts *x = b->ffn_moe.router.nd ? b->ffn_moe.extra : b->moe.extra;
    return x ? most(n, most(converted(m, &x->gate), converted(m, &x->down))) : n;
}

/* Numbers of weights, and columns of gradients, of the largest product that makes dx of frozen
 * linears; those of full experts are grouped products, which have no fp8. */
static void fp8_limits(work_limits *w, const linear *const *l, int n)
{
    int64_t n_weights = 0, columns = 0;
    for (int i = 0; i < n; i++) {
        n_weights += tensor_count(&l[i]->w);
        columns += l[i]->w.ne[0];
    }
    w->fp8_weights = most(w->fp8_weights, n_weights);
    w->fp8_columns = most(w->fp8_columns, columns);
}

static void block_fp8(work_limits *w, const block *b)
{
    const linear *qkv[] = { &b->q, &b->k, &b->v };
    const linear *in[] = { &b->ffn.gate, &b->ffn.up };
    const ffn *of_all = b->ffn_moe.router.nd ? &b->ffn_moe.shared : &b->moe.shared;
    const linear *shared[] = { &of_all->gate, &of_all->up };
    const linear *others[] = { &b->o,         &b->out_gate, &b->mla.q,      &b->mla.q_a,
                               &b->mla.q_b,   &b->mla.kv_a, &b->mla.kv_b,   &b->ffn.down,
                               &of_all->down, &b->mix.in,   &b->mix.out,    &b->mix.z,
                               &b->mix.b,     &b->mix.a,    &b->input.gate, &b->input.proj };
    fp8_limits(w, qkv, 3);
    fp8_limits(w, in, 2);
    fp8_limits(w, shared, 2);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        fp8_limits(w, &others[i], 1);
}

/* The widest activation but for the logits. */
static int64_t widest(const config *c)
{
    const head_widths heads = config_widths(c);
    const int64_t widths[] = { c->dim,
                               config_widest_ffn(c),
                               heads.q,
                               heads.out,
                               (int64_t)c->n_heads * (c->qk_nope_dim + config_v_dim(c)),
                               c->moe.expert_dim,
                               c->ffn_moe.expert_dim,
                               config_experts(c)->shared_dim,
                               config_recurrent_in(c),
                               (int64_t)c->layer_input_dim * c->n_layers };
    int64_t n = 0;
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        n = most(n, widths[i]);
    return n;
}

work_limits work_of_pass(const model_shape *m, pass_limits lim, int64_t cached,
                         const train_plan *train)
{
    const config *c = &m->cfg;
    const topk_rule *r = &c->moe.topk, *full = &c->ffn_moe.topk;
    bool sparse = c->moe.kind != EXPERT_NONE;
    work_limits w = { .act = m->act_dt,
                      .tokens = lim.max_tokens,
                      .seqs = lim.max_seqs,
                      .dim = c->dim,
                      .widest = widest(c),
                      .heads = c->n_heads,
                      .v_dim = (int32_t)(config_widths(c).out / c->n_heads),
                      .cached = cached,
                      .experts =
                          sparse ? most(r->n_experts, full->n_experts) + m->extra_experts : 0,
                      .k = sparse ? most(r->k, full->k) : 0,
                      .converted = (int64_t)LINEARS * m->lora_rank * widest(c),
                      .train = train != NULL };
    for (int32_t i = 0; m->w.blocks && i < c->n_layers; i++) {
        w.converted = most(w.converted, block_converted(m, &m->w.blocks[i], w.train));
        if (train && train->fp8_grads)
            block_fp8(&w, &m->w.blocks[i]);
    }
    w.converted = most(w.converted, converted(m, &m->w.head));
    w.converted = most(w.converted, converted(m, &m->w.inputs.proj));
    return w;
}
