/* craft: a sparse model from a dense one. The door, its options and what it promises; the kinds are
 * in camelidae.c, upcycle.c and molora.c. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "craft/camelidae.h"
#include "craft/molora.h"
#include "craft/upcycle.h"

#include <math.h>
#include <string.h>

/* Options that concern full experts alone. */
static pesc_status check_upcycling(const pesc_craft_options *o)
{
    const struct {
        const char *key;
        bool given;
    } rows[] = { { "experts_from", o->experts_from && strcmp(o->kind, "pesc") == 0 },
                 { "granularity", o->granularity != 1 },
                 { "shared", o->shared != 0 },
                 { "reinit", o->reinit > 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return fail(PESC_USAGE,
                        "%s: is given with kind %s, whose experts are no copies of the FFN; leave "
                        "it out, or give --kind upcycle",
                        rows[i].key, o->kind);
    return PESC_OK;
}

static bool is_kind(const pesc_craft_options *o, const char *kind)
{
    return strcmp(o->kind, kind) == 0;
}

/* A mixture of LoRA has its experts from elsewhere, in every layer. */
static pesc_status check_molora(const pesc_craft_options *o)
{
    if (!o->experts_from)
        return fail(PESC_USAGE,
                    "experts_from: is missing; kind molora makes experts of LoRAs that are there; "
                    "a new mixture of LoRA is pesc train DENSE --method molora");
    if (strcmp(o->layers, "all") != 0)
        return fail(PESC_USAGE,
                    "layers: found %s, but a mixture of LoRA has experts in all layers; leave it "
                    "out",
                    o->layers);
    return PESC_OK;
}

/* The models that give experts say how many there are. */
static pesc_status check_donors(const upcycle_size *z, const pesc_craft_options *o)
{
    if (o->experts != z->experts && o->experts != pesc_craft_defaults().experts)
        return fail(PESC_USAGE,
                    "experts: found %lld, but experts_from names %lld models, each of which gives "
                    "one; leave it out",
                    (long long)o->experts, (long long)z->experts);
    return z->top_k <= z->experts
               ? PESC_OK
               : fail(PESC_USAGE,
                      "top_k: found %lld, expected 1 to %lld, the models of experts_from",
                      (long long)z->top_k, (long long)z->experts);
}

static pesc_status check_options(const pesc_craft_options *o)
{
    const bool adapters = is_kind(o, "pesc");
    if (o->experts < 1)
        return fail(PESC_USAGE, "experts: found 0, expected at least 1");
    if (o->top_k < 1 || (!o->experts_from && o->top_k > o->experts))
        return fail(PESC_USAGE, "top_k: found %lld, expected 1 to %lld, the number of experts",
                    (long long)o->top_k, (long long)o->experts);
    if (adapters && o->adapter_dim < 1)
        return fail(PESC_USAGE, "adapter_dim: found 0, expected at least 1");
    if (!is_kind(o, "upcycle"))
        TRY(check_upcycling(o));
    if (is_kind(o, "molora"))
        TRY(check_molora(o));
    if (!adapters && strcmp(o->activation, "gelu") != 0)
        return fail(PESC_USAGE,
                    "activation: found %s, but with kind %s there are no adapters: experts "
                    "are copies of the FFN, with its activation",
                    o->activation, o->kind);
    if (!adapters && strcmp(o->router, "softmax-after") != 0)
        return fail(PESC_USAGE,
                    "router: found %s, but with kind %s the gates must sum to 1: the output "
                    "of equal experts would else be smaller than that of the FFN they copy",
                    o->router, o->kind);
    return PESC_OK;
}

/* Adapters may be beside the experts of a mixture; all else is made of a dense model. */
static pesc_status check_source(const source_model *p, const pesc_craft_options *o)
{
    const moe_rule *m = &p->cfg.moe;
    const bool beside = m->kind == EXPERT_FFN && is_kind(o, "pesc");
    if (m->kind != EXPERT_NONE && !beside)
        return fail(PESC_USAGE,
                    "%s: is sparse already (%s, %d experts); a sparse model is crafted from a "
                    "dense one%s",
                    p->path, p->cfg.family, m->topk.n_experts,
                    m->kind == EXPERT_FFN ? ", and --kind pesc puts adapters beside the experts of "
                                            "a mixture"
                                          : "");
    if (beside && strcmp(o->layers, "all") != 0)
        return fail(PESC_USAGE,
                    "layers: found %s, but adapters are beside the experts of every layer that has "
                    "some; leave it out",
                    o->layers);
    if (beside && m->beside_ffn)
        return fail(PESC_UNSUPPORTED,
                    "%s: its experts have a plain FFN beside them (%s); adapters beside both are "
                    "not supported",
                    p->path, p->cfg.family);
    if (beside && m->added_bias)
        return fail(PESC_UNSUPPORTED,
                    "%s: its experts are chosen with a bias of pesc's own (%s), for which a model "
                    "with adapters beside them has no place",
                    p->dir->config_file, CONFIG_ADDED_BIAS);
    return source_model_check_no_lora(p);
}

/* What the logits of copies may differ by: the sum of their shards is rounded, and so is a factor
 * on down that is no power of two, where down is stored in 16 bits. */
static verify_rounding upcycle_rounding(const target_model *p)
{
    int exponent;
    verify_rounding r = target_rounding(p);
    bool exact = frexpf(p->plan.copies.down, &exponent) == 0.5F || p->plan.dt == DT_F32 ||
                 (p->plan.dt == DT_COUNT && p->from.usual == DT_F32);
    r = r == ROUNDING_NONE ? ROUNDING_F32 : r;
    return r == ROUNDING_F32 && !exact ? ROUNDING_16 : r;
}

/* Units that are drawn anew change the function, as they are to, and so do experts of tuned models.
 */
static bool changes_function(const target_model *p)
{
    if (p->plan.copies.from)
        log_notice("%s: its experts are the %s of %d models, and its routers know nothing of them "
                   "yet: the logits are not compared; pesc train --method router trains routers "
                   "alone",
                   p->place, p->cfg.moe.kind == EXPERT_LORA ? "LoRAs" : "FFNs",
                   p->plan.copies.from->n);
    if (p->plan.copies.from)
        return true;
    bool changes = redraw_count(p->plan.copies.reinit, p->cfg.moe.expert_dim) > 0;
    if (changes)
        log_notice("%s: %lld of the %d hidden units of each expert are drawn anew (reinit): the "
                   "model does not compute what %s computes, and the logits are not compared",
                   p->place, (long long)redraw_count(p->plan.copies.reinit, p->cfg.moe.expert_dim),
                   p->cfg.moe.expert_dim, p->from.path);
    return changes;
}

/* The models that give the experts, where there are such. */
static pesc_status open_donors(donors *d, target_model *p, const pesc_craft_options *o)
{
    static const char *const others[] = {
        [OTHERS_MEAN] = "mean", [OTHERS_BASE] = "base", [OTHERS_FIRST] = "first"
    };
    size_t i = 0, tensors = 0;
    if (!o->experts_from)
        return PESC_OK;
    while (strcmp(others[i], o->others) != 0)
        i++;
    d->others = (donor_others)i;
    TRY(donors_open(d, o->experts_from, &p->from));
    for (slot s = slot_first(); slot_next(&p->from.cfg, &s);)
        tensors++;
    d->parts = mem_alloc(tensors * (size_t)d->n, sizeof *d->parts);
    return d->parts ? PESC_OK : fail_nomem("experts_from", tensors * sizeof *d->parts);
}

static pesc_status craft(target_model *p, const pesc_craft_options *o, donors *from)
{
    const bool adapters = is_kind(o, "pesc");
    TRY(check_source(&p->from, o));
    TRY(open_donors(from, p, o));
    upcycle_size full = { .experts = from->n ? from->n : o->experts,
                          .top_k = o->top_k,
                          .granularity = o->granularity,
                          .shared = o->shared != 0,
                          .reinit = o->reinit };
    if (from->n)
        TRY(check_donors(&full, o));
    TRY(layers_read(&full.layers, "layers", o->layers, p->from.cfg.n_layers));
    camelidae_size size = { .experts = o->experts,
                            .top_k = o->top_k,
                            .adapter_dim = o->adapter_dim,
                            .scale = o->adapter_scale,
                            .activation = o->activation,
                            .router = o->router,
                            .layers = full.layers };
    TRY(adapters               ? camelidae_configure(p, &size, false)
        : is_kind(o, "molora") ? molora_configure(p, from, o->top_k)
                               : upcycle_configure(p, &full));
    p->plan.seed = (uint64_t)o->seed;
    p->plan.copies.from = from->n ? from : NULL;
    if (from->n)
        p->plan.held = NULL; /* what the files hold */
    TRY(target_write(p, o->tokenizer));
    TRY(donors_check(from));
    return target_compare(
        p, &(target_check){ .wanted = o->check && !changes_function(p),
                            .rounding = adapters ? target_rounding(p) : upcycle_rounding(p) });
}

pesc_status pesc_craft(pesc_device *dev, const char *dense_dir, const char *out_dir,
                       const pesc_craft_options *opt, pesc_logit_check *check)
{
    status_clear();
    NEED(dev);
    NEED(dense_dir);
    NEED(out_dir);
    NEED_SIZED_OR_NULL(check);
    LOG_EVENTS(&dev->events);
    pesc_craft_options o;
    target_model p = { 0 };
    TRY(options_take(PESC_OPTIONS_CRAFT, &o, opt));
    donors from = { 0 };
    TRY(check_options(&o));
    pesc_status s = target_open(&p, (runmodel_where){ dense_dir, o.base }, out_dir, o.dtype);
    p.dev = dev;
    if (s == PESC_OK)
        s = target_publish(&p, craft(&p, &o, &from));
    if (check)
        ARGS_WRITE(check, &p.check);
    target_close(&p);
    donors_close(&from);
    return s;
}
