/* craft: a sparse model from a dense one. The door, its options and what it promises; the two kinds
 * are in camelidae.c and upcycle.c. */
#include "craft/camelidae.h"
#include "craft/upcycle.h"

#include <math.h>
#include <string.h>

/* Of the largest logit: equal experts give f back up to rounding. */
#define UPCYCLE_TOLERANCE 1e-5

pesc_craft_options pesc_craft_defaults(void)
{
    return (pesc_craft_options){
        .kind = "pesc",
        .experts = 8,
        .top_k = 2,
        .adapter_dim = 512,
        .adapter_scale = 1,
        .compare = true,
    };
}

static pesc_status check_options(const pesc_craft_options *o, bool *adapters)
{
    const int64_t most = 4096; /* experts of any family pesc reads */
    const char *kind = o->kind && *o->kind ? o->kind : "pesc";
    *adapters = strcmp(kind, "pesc") == 0;
    if (!*adapters && strcmp(kind, "upcycle") != 0)
        return fail(PESC_USAGE, "kind: found \"%s\", expected pesc or upcycle", kind);
    if (o->experts < 1 || o->experts > most)
        return fail(PESC_USAGE, "experts: found %lld, expected 1 to %lld", (long long)o->experts,
                    (long long)most);
    if (o->top_k < 1 || o->top_k > o->experts)
        return fail(PESC_USAGE, "top_k: found %lld, expected 1 to %lld, the number of experts",
                    (long long)o->top_k, (long long)o->experts);
    if (*adapters && (o->adapter_dim < 1 || o->adapter_dim > INT32_MAX))
        return fail(PESC_USAGE, "adapter_dim: found %lld, expected 1 or more",
                    (long long)o->adapter_dim);
    if (*adapters && !isfinite(o->adapter_scale))
        return fail(PESC_USAGE, "adapter_scale: found %g, expected a finite number",
                    o->adapter_scale);
    return PESC_OK;
}

static pesc_status check_dense(const parent *p)
{
    const moe_rule *m = &p->cfg.moe;
    if (m->kind != EXPERT_NONE)
        return fail(PESC_USAGE,
                    "%s: is sparse already (%s, %d experts); a sparse model is crafted from a "
                    "dense one",
                    p->path, p->cfg.family, m->topk.n_experts);
    if (p->dir->lora_dir)
        return fail(PESC_USAGE,
                    "%s: has a LoRA, which would be lost; fold it in first: pesc merge %s -o DIR",
                    p->path, p->path);
    return PESC_OK;
}

static pesc_status craft(product *p, const pesc_craft_options *o, bool adapters)
{
    TRY(check_dense(&p->from));
    camelidae_size size = { o->experts, o->top_k, o->adapter_dim, o->adapter_scale };
    TRY(adapters ? camelidae_configure(p, &size, false)
                 : upcycle_configure(p, o->experts, o->top_k));
    p->how.seed = o->seed;
    TRY(product_write(p, o->tokenizer));
    return product_compare(p, &(product_check){ .wanted = o->compare,
                                                .device = o->device,
                                                .tolerance = adapters ? 0 : UPCYCLE_TOLERANCE,
                                                .out = o->check });
}

pesc_status pesc_craft(const char *dense_dir, const char *out_dir, const pesc_craft_options *opt)
{
    status_clear();
    pesc_craft_options defaults = pesc_craft_defaults();
    const pesc_craft_options *o = opt ? opt : &defaults;
    product p = { 0 };
    bool adapters;
    TRY(check_options(o, &adapters));
    pesc_status s = product_open(&p, dense_dir, out_dir, o->dtype);
    if (s == PESC_OK)
        s = craft(&p, o, adapters);
    product_close(&p);
    return s;
}
