#include "base/mem.h"
#include "train/params.h"

bool params_trains(const train_spec *s, const slot *t)
{
    const tensor_rule *r = t->rule;
    if (r->flags & RULE_FIXED)
        return false;
    if (param_router_bias(r))
        return s->balance_bias && !t->in_ffn;
    if (r->need & FACT_MOLORA)
        return s->molora_experts > 0 || (s->routers && param_group_of(r) == PARAM_ROUTER);
    if (s->biases && param_linear_bias(r))
        return true;
    if (s->own)
        return param_chosen(s->own, t);
    const bool by_group[PARAM_GROUPS] = { [PARAM_ADAPTER] = s->adapters,
                                          [PARAM_ROUTER] = s->routers && (!t->in_ffn || s->experts),
                                          [PARAM_EXPERT] = s->experts,
                                          [PARAM_SHARED] = s->base,
                                          [PARAM_BASE] = s->base };
    return by_group[param_group_of(r)];
}

/* Which target bits a linear or an expert answers to: any of them. */
static uint32_t target_of(const tensor_rule *r)
{
    if (param_full_expert(r))
        return TARGET_EXPERTS;
    static const struct {
        size_t offset;
        uint32_t bits;
    } rows[] = {
        { offsetof(block, q.w), TARGET_Q },
        { offsetof(block, k.w), TARGET_K },
        { offsetof(block, v.w), TARGET_V },
        { offsetof(block, o.w), TARGET_O },
        { offsetof(block, out_gate.w), TARGET_GATE },
        { offsetof(block, mix.in.w), TARGET_IN },
        { offsetof(block, mix.z.w), TARGET_IN },
        { offsetof(block, mix.b.w), TARGET_IN },
        { offsetof(block, mix.a.w), TARGET_IN },
        { offsetof(block, mix.out.w), TARGET_O },
        { offsetof(block, mla.q.w), TARGET_Q },
        { offsetof(block, mla.q_a.w), TARGET_Q },
        { offsetof(block, mla.q_b.w), TARGET_Q },
        { offsetof(block, mla.kv_a.w), TARGET_K | TARGET_V },
        { offsetof(block, mla.kv_b.w), TARGET_K | TARGET_V },
        { offsetof(block, ffn.gate.w), TARGET_GATE },
        { offsetof(block, ffn.up.w), TARGET_UP },
        { offsetof(block, ffn.down.w), TARGET_DOWN },
        { offsetof(block, moe.shared.gate.w), TARGET_GATE },
        { offsetof(block, moe.shared.up.w), TARGET_UP },
        { offsetof(block, moe.shared.down.w), TARGET_DOWN },
    };
    for (size_t i = 0; r->flags & RULE_LINEAR && i < sizeof rows / sizeof *rows; i++)
        if (rows[i].offset == r->offset)
            return rows[i].bits;
    return 0;
}

/* Whether LoRA is to be attached to a linear that has none. A mixture of LoRA takes the place of
 * plain LoRA in the FFN. */
static bool wants_lora(const train_spec *s, const config *c, const slot *t)
{
    bool in_ffn = t->rule->offset >= offsetof(block, ffn);
    bool mixed = c->moe.kind == EXPERT_LORA && in_ffn;
    if (s->lora_own && !param_chosen(s->lora_own, t))
        return false;
    return s->lora_r > 0 && !mixed && target_of(t->rule) & s->lora_targets &&
           layers_has(&s->lora_layers, t->layer);
}

int32_t params_lora_rank(const train_spec *s, const config *c, const slot *t)
{
    return wants_lora(s, c, t) ? s->lora_r : 0;
}

void params_set_ranks(model_shape *m, const train_spec *s)
{
    bool experts = s->lora_targets & TARGET_EXPERTS && config_experts(&m->cfg)->kind == EXPERT_FFN;
    m->lora_rank = m->lora_rank > s->lora_r ? m->lora_rank : s->lora_r;
    if (experts && s->lora_r > m->expert_rank)
        m->expert_rank = s->lora_r;
}

backward_facts params_facts(const train_spec *s, int32_t first_layer)
{
    return (backward_facts){ .first_layer = first_layer,
                             .fp8 = s->fp8_grads,
                             .dense_router = s->dense_router,
                             .step_shares = s->step_shares,
                             .lora_dropout = s->lora_dropout,
                             .adapter_dropout = s->adapter_dropout,
                             .seed = s->seed };
}

static void configure_mixture(config *c, const train_spec *s)
{
    c->first_sparse = c->sparse_shift = 0;
    c->sparse_step = 1;
    c->moe = (moe_rule){ .kind = EXPERT_LORA,
                         .topk = { .n_experts = s->molora_experts,
                                   .k = s->molora_k,
                                   .score_after_topk = true,
                                   .scale = 1,
                                   .n_groups = 1,
                                   .k_groups = 1 },
                         .expert_dim = s->lora_r,
                         .adapter_scale = s->lora_alpha / (float)s->lora_r };
}

void params_configure(config *c, const train_spec *s)
{
    if (s->molora_experts)
        configure_mixture(c, s);
    c->moe.added_bias = c->moe.added_bias || (s->balance_bias && !c->moe.has_bias);
    c->moe.has_bias = c->moe.has_bias || s->balance_bias;
}

int64_t params_bytes(const params_size *z, dtype act_dt, int64_t processes)
{
    bool divided = params_divides_master(z->own, act_dt, processes);
    int64_t master = divided ? flat_most(z->n, processes) + z->n_exact : z->n;
    return (master + z->n_grad) * 4 + (z->flat && act_dt == DT_BF16 ? z->n_work * 2 : 0);
}

static bool cost_trains(const void *spec, const slot *s)
{
    return params_trains(spec, s);
}

static int32_t cost_lora_rank(const void *spec, const config *c, const slot *s)
{
    return params_lora_rank(spec, c, s);
}

void params_cost(cost_counts *out, const model_shape *m, const train_spec *spec, cost_work w)
{
    config c = m->cfg;
    params_configure(&c, spec);
    const cost_method how = { &c, spec, cost_trains, cost_lora_rank };
    cost_of_training(out, m, &how, w);
}
