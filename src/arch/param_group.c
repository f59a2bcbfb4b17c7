#include "arch/param_group.h"

#include "arch/shape.h"
#include "base/mem.h"
#include "base/str.h"

static bool is_shared(const tensor_rule *r)
{
    return !(r->flags & RULE_GLOBAL) && r->offset >= offsetof(block, moe.shared) &&
           r->offset < offsetof(block, moe.shared) + sizeof(ffn);
}

param_group param_group_of(const tensor_rule *r)
{
    if (r->need & FACT_MOLORA)
        return r->flags & RULE_EXPERT ? PARAM_LORA : PARAM_ROUTER;
    if (r->flags & RULE_EXPERT)
        return r->need & FACT_ADAPTER ? PARAM_ADAPTER : PARAM_EXPERT;
    if (!(r->flags & RULE_GLOBAL) &&
        (r->offset == offsetof(block, moe.router) || r->offset == offsetof(block, moe.logit_bias) ||
         r->offset == offsetof(block, moe.router_scale) ||
         r->offset == offsetof(block, moe.gate_scale) ||
         r->offset == offsetof(block, moe.router_bias)))
        return PARAM_ROUTER;
    return is_shared(r) ? PARAM_SHARED : PARAM_BASE;
}

bool param_full_expert(const tensor_rule *r)
{
    return r->flags & RULE_EXPERT && r->need & FACT_EXPERT;
}

/* By the last word of its name: ".bias", or "_bias" of a stack. */
bool param_linear_bias(const tensor_rule *r)
{
    return str_ends(r->name, "bias") && !param_router_bias(r) && param_group_of(r) != PARAM_ROUTER;
}

bool param_router_bias(const tensor_rule *r)
{
    return !(r->flags & RULE_GLOBAL) && r->offset == offsetof(block, moe.router_bias);
}

/* ESFT: a shared expert's own gate is, like the router, no part of it. */
bool param_chosen(const expertcfg *own, const slot *s)
{
    if (param_router_bias(s->rule) || s->rule->need & FACT_MOLORA)
        return false;
    switch (param_group_of(s->rule)) {
    case PARAM_EXPERT:
        return expertcfg_has(own, s->layer, s->expert);
    case PARAM_SHARED:
        return own->shared_experts;
    default:
        return own->non_expert_modules;
    }
}

pesc_status param_check_chosen(const expertcfg *own, const config *c, const char *where)
{
    bool *sparse = mem_alloc((size_t)c->n_layers, sizeof *sparse);
    if (!sparse)
        return fail_nomem(where, (size_t)c->n_layers);
    for (int32_t i = 0; i < c->n_layers; i++)
        sparse[i] = config_layer_sparse(c, i);
    expertcfg_shape shape = { sparse, c->n_layers, config_experts(c)->topk.n_experts };
    pesc_status s = expertcfg_check(own, shape, where);
    mem_free(sparse);
    if (s == PESC_OK && own->shared_experts && !config_experts(c)->shared_dim)
        s = fail(PESC_FORMAT, "%s: shared_experts: is true, but the model has none", where);
    return s;
}
