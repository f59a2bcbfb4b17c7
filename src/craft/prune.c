/* prune: a mixture with some of its experts alone, the others left out: their matrices, and their
 * rows of the router and of whatever else has a number for each expert. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "craft/configjson.h"
#include "craft/target.h"

#include <string.h>

static pesc_status set_count(target_model *p, int64_t keep)
{
    static const char *const keys[] = { "num_experts", "num_local_experts", "n_routed_experts",
                                        "moe_num_experts" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_has(p->json, keys[i]))
            TRY(configjson_set(p->json, keys[i], json_integer(keep)));
    return PESC_OK;
}

/* The choice as a map from the target's experts to the source's, ascending; for mem_free(). */
static pesc_status read_choice(int32_t **out, const pesc_esft_choice *c, const config *cfg,
                               const char *path)
{
    const int32_t keep = c->n_layers ? c->counts[0] : 0;
    size_t sparse = 0;
    *out = mem_zalloc((size_t)cfg->n_layers * (size_t)(keep + 1), sizeof **out);
    if (!*out)
        return fail_nomem(path, (size_t)cfg->n_layers * (size_t)keep * sizeof **out);
    for (int32_t l = 0; l < cfg->n_layers; l++)
        sparse += config_layer_sparse(cfg, l);
    if (sparse != c->n_layers || (int64_t)c->n_experts != cfg->moe.topk.n_experts)
        return fail(PESC_USAGE,
                    "%s: has %zu layers of %d experts, but the scores are of %zu layers "
                    "of %zu: they are of another model",
                    path, sparse, cfg->moe.topk.n_experts, c->n_layers, c->n_experts);
    for (size_t i = 0; i < c->n_layers; i++) {
        int32_t layer = c->layers[i], *to = *out + (ptrdiff_t)layer * keep;
        if (layer < 0 || layer >= cfg->n_layers || !config_layer_sparse(cfg, layer))
            return fail(PESC_USAGE, "%s: layer %d has no experts, but the scores have it", path,
                        layer);
        if (c->counts[i] != keep)
            return fail(PESC_USAGE,
                        "%s: layer %d would keep %d experts and layer %d %d; a model has "
                        "as many in each layer",
                        path, c->layers[0], keep, layer, c->counts[i]);
        for (size_t e = 0; e < c->n_experts; e++)
            if (c->chosen[i * c->n_experts + e])
                *to++ = (int32_t)e;
    }
    return PESC_OK;
}

static pesc_status check_model(const target_model *p, int32_t keep)
{
    const topk_rule *r = &p->from.cfg.moe.topk;
    if (p->from.cfg.moe.kind != EXPERT_FFN)
        return fail(PESC_USAGE, "%s: has no full experts, so none can be dropped", p->from.path);
    TRY(source_model_check_no_lora(&p->from));
    if (keep < r->k)
        return fail(PESC_USAGE, "keep: found %d, but a token gets %d experts of %s", keep, r->k,
                    p->from.path);
    if (r->n_groups > 1)
        return fail(PESC_UNSUPPORTED,
                    "%s: its router chooses among %d groups of as many experts; "
                    "with some of them left out the groups would differ",
                    p->from.path, r->n_groups);
    return PESC_OK;
}

static uint64_t count(const config *c)
{
    uint64_t n = 0;
    for (slot s = slot_first(); slot_next(c, &s);)
        n += (uint64_t)slot_count(&s);
    return n;
}

/* What of the scores of a layer its dropped experts had, the mean over layers. */
static double lost_share(const pesc_esft_choice *c)
{
    double lost = 0;
    for (size_t l = 0; l < c->n_layers; l++) {
        double all = 0, kept = 0;
        for (size_t e = 0; e < c->n_experts; e++) {
            double score = c->scores[l * c->n_experts + e];
            all += score;
            kept += c->chosen[l * c->n_experts + e] ? score : 0;
        }
        lost += all > 0 ? (1 - kept / all) / (double)c->n_layers : 0;
    }
    return lost;
}

static pesc_status prune(target_model *p, const pesc_esft_choice *c, pesc_esft_prune_report *r)
{
    int32_t *picked = NULL;
    const int32_t keep = c->n_layers ? c->counts[0] : 0;
    const char *differs = NULL;
    TRY(check_model(p, keep));
    pesc_status s = read_choice(&picked, c, &p->from.cfg, p->from.path);
    if (s == PESC_OK)
        s = target_begin(p);
    if (s == PESC_OK)
        s = configjson_own_names(p->json, &p->from.cfg);
    if (s == PESC_OK)
        s = set_count(p, keep);
    if (s == PESC_OK)
        s = target_read(p, &differs);
    if (s == PESC_OK && differs)
        s = fail(PESC_UNSUPPORTED,
                 "%s: its %s would be another one in the config.json that is "
                 "written",
                 p->from.path, differs);
    p->plan.picked = picked;
    if (s == PESC_OK)
        s = target_write(p, NULL);
    mem_free(picked);
    r->layers = (int64_t)c->n_layers;
    r->experts = (int64_t)c->n_experts;
    r->kept = keep;
    r->params_before = count(&p->from.cfg);
    r->params_after = s == PESC_OK ? count(&p->cfg) : 0;
    r->lost = lost_share(c);
    return s;
}

pesc_status pesc_esft_prune(const char *model, const pesc_esft_choice *choice, const char *out_dir,
                            const pesc_events *ev, pesc_esft_prune_report *out)
{
    status_clear();
    NEED(model);
    NEED(choice);
    NEED(out_dir);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    target_model p = { 0 };
    pesc_esft_prune_report r = { 0 };
    pesc_esft_choice c = PESC_INIT(pesc_esft_choice);
    TRY(args_read(&c, sizeof c, choice, __func__, "choice"));
    pesc_status s = target_open(&p, (runmodel_where){ .path = model }, out_dir, NULL);
    if (s == PESC_OK)
        s = target_publish(&p, prune(&p, &c, &r));
    ARGS_WRITE(out, &r);
    target_close(&p);
    return s;
}
