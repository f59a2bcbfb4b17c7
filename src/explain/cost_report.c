#include "explain/cost_report.h"

#include "base/args.h"
#include "base/options.h"
#include "model/kvcache.h"
#include "train/method.h"
#include "train/optimizer.h"
#include "train/plan.h"
#include "train/settings.h"
#include "attach/outline.h"

#include <stdio.h>
#include <string.h>

/* ---- what trains ---- */

/* Kinds of models, and the method each is made for. */
static const struct {
    const char *name, *method;
} kinds[] = {
    [EXPERT_NONE] = { "dense", "lora" },
    [EXPERT_ADAPTER] = { "pesc", "pesc" },
    [EXPERT_FFN] = { "experts", "upcycle" },
    [EXPERT_LORA] = { "molora", "molora" },
};

pesc_status cost_settings(pesc_train_options *out, const pesc_cost_options *o, expert_kind kind)
{
    static const char *const none = "-";
    pesc_train_options t = pesc_train_defaults();
    t.output = "."; /* nothing is written or read */
    t.data = &none;
    t.n_data = 1;
    t.method = o->method ? o->method : kinds[kind].method;
    t.experts_config = o->experts_config;
    t.experts_from = o->experts_from;
    t.experts = o->experts;
    t.top_k = o->top_k;
    t.lora_r = o->lora_r;
    t.lora_targets = o->lora_targets;
    t.base_dtype = o->base_dtype;
    t.compute_dtype = o->compute_dtype;
    t.base = o->base;
    return settings_take(out, &t);
}

/* A mixture of LoRA that was trained is seen as the dense model and the method that made it. */
pesc_status cost_spec(train_spec *out, expertcfg *own, pesc_train_options *o, const config *c)
{
    config as = *c;
    if (c->moe.kind == EXPERT_LORA && strcmp(o->method, "molora") == 0) {
        o->experts = c->moe.topk.n_experts;
        o->top_k = c->moe.topk.k;
        o->lora_r = c->moe.expert_dim;
        as.moe = (moe_rule){ 0 };
    }
    return method_spec(out, own, o, &as);
}

/* ---- the report ---- */

static void fill_part(pesc_cost_part *out, const char *name, const cost_row *r)
{
    *out = (pesc_cost_part){ .params = r->params,
                             .activated = r->activated,
                             .trained = r->trained,
                             .inference = r->inference,
                             .forward = r->forward,
                             .backward = r->backward };
    snprintf(out->name, sizeof out->name, "%s", name);
}

_Static_assert((int)COST_PARTS <= (int)PESC_COST_PARTS, "the report has no room for all parts");

static void fill_parts(pesc_cost_report *r, const cost_counts *c)
{
    cost_row all = cost_total(c);
    fill_part(&r->total, "total", &all);
    for (int i = 0; i < COST_PARTS; i++)
        if (c->part[i].params || c->part[i].trained || c->part[i].forward)
            fill_part(&r->parts[r->n_parts++], cost_names[i], &c->part[i]);
}

static void fill_bytes(pesc_cost_report *r, outline *s, const train_spec *spec)
{
    model_shape *m = &s->shape;
    const config *c = &m->cfg;
    params_size size;
    int32_t n = (int32_t)r->tokens;
    r->weight_bytes = outline_weight_bytes(s);
    r->kv_bytes = kvcache_token_bytes(c, m->act_dt);
    r->inference_bytes = pass_infer_bytes(s->dev, m, (pass_limits){ n, 1, 1 });
    params_measure(&size, c, spec);
    r->trained_bytes = (uint64_t)params_bytes(&size, m->act_dt, 1) + optimizer_bytes(size.n, false);
    params_configure(&m->cfg, spec);
    params_set_ranks(m, spec);
    plan_pass p = { s->dev, m, spec, size.first_layer, { n, 1, n } };
    r->activation_bytes = plan_pass_bytes(&p, (keep_counts){ c->n_layers, 0 });
}

static pesc_status count(pesc_cost_report *r, outline *s, const pesc_cost_options *o,
                         expertcfg *own)
{
    pesc_train_options t;
    pesc_load_options load = { 0 };
    train_spec spec;
    cost_counts c = { 0 };
    const cost_work work = { .tokens = o->tokens, .rows = o->tokens };
    const expert_kind kind = s->shape.cfg.moe.kind;
    TRY(cost_settings(&t, o, kind));
    settings_load(&t, &load);
    TRY(outline_bind(s, &load, t.processes));
    if (s->shape.n_loras && t.lora_r) /* it trains as it is */
        t.lora_r = s->shape.loras->a.ne[0];
    TRY(cost_spec(&spec, own, &t, &s->shape.cfg));
    TRY(cost_check(&s->shape.cfg, work));
    r->tokens = o->tokens;
    snprintf(r->kind, sizeof r->kind, "%s", kinds[kind].name);
    snprintf(r->method, sizeof r->method, "%s", t.method);
    r->lora_r = spec.lora_r;
    cost_of_model(&c, &s->shape, work);
    params_cost(&c, &s->shape, &spec, work);
    fill_parts(r, &c);
    fill_bytes(r, s, &spec);
    return PESC_OK;
}

pesc_status pesc_cost(pesc_device *dev, const char *path, const pesc_cost_options *opt,
                      pesc_cost_report *out)
{
    status_clear();
    NEED(dev);
    NEED(path);
    NEED_SIZED(out);
    DEVICE_CALL(dev);
    outline s = { 0 };
    expertcfg own = { 0 };
    pesc_cost_options o;
    pesc_cost_report r = { 0 };
    TRY(options_take(PESC_OPTIONS_COST, &o, opt));
    pesc_status st = outline_open(&s, dev, path, o.base);
    if (st == PESC_OK)
        st = count(&r, &s, &o, &own);
    ARGS_WRITE(out, &r);
    outline_close(&s);
    expertcfg_free(&own);
    return st;
}
