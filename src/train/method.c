#include "train/method.h"

#include "base/log.h"
#include "train/domains.h"

#include <math.h>
#include <string.h>

#define AUX_COEF 0.01 /* of the balance loss, by default where routers train */

/* Which kind of experts the model must have. */
typedef enum need { NEED_ANY, NEED_ADAPTERS, NEED_EXPERTS, NEED_DENSE, NEED_ROUTERS } need;

static const struct method {
    const char *name;
    need need;
    bool adapters, routers, experts, base, lora, mixture;
    bool own; /* the experts that experts_config names */
    bool biases;
} methods[] = {
    { .name = "pesc", .need = NEED_ADAPTERS, .adapters = true, .routers = true, .lora = true },
    { .name = "qlora", .lora = true },
    { .name = "lora", .lora = true },
    { .name = "full", .adapters = true, .routers = true, .experts = true, .base = true },
    { .name = "upcycle", .need = NEED_EXPERTS, .routers = true, .experts = true, .lora = true },
    { .name = "molora", .need = NEED_DENSE, .lora = true, .mixture = true },
    { .name = "esft", .need = NEED_EXPERTS, .own = true },
    { .name = "router", .need = NEED_ROUTERS, .routers = true },
    { .name = "bias", .biases = true },
};

static const struct method *find(const char *name)
{
    size_t i = 0;
    while (strcmp(methods[i].name, name) != 0)
        i++; /* settings_take() has checked the name */
    return &methods[i];
}

static pesc_status check_need(const struct method *m, const config *c)
{
    static const struct {
        expert_kind kind;
        const char *trains;
    } needs[] = {
        [NEED_ADAPTERS] = { EXPERT_ADAPTER,
                            "trains adapters, but the model has none: run `pesc craft MODEL -o "
                            "SPARSE` first and train SPARSE, or give --method lora" },
        [NEED_EXPERTS] = { EXPERT_FFN,
                           "trains full experts, but the model has none: run `pesc craft MODEL -o "
                           "SPARSE --kind upcycle` first and train SPARSE" },
        [NEED_DENSE] = { EXPERT_NONE, "makes experts of its own, but the model has some already: "
                                      "give a dense model" },
    };
    if (m->need == NEED_ROUTERS && c->moe.kind == EXPERT_NONE)
        return fail(PESC_USAGE,
                    "method %s trains routers, but the model has none: run `pesc craft "
                    "MODEL -o SPARSE` first and train SPARSE",
                    m->name);
    if (m->need == NEED_EXPERTS && config_adapters_on_experts(c))
        return fail(PESC_USAGE,
                    "method %s trains full experts, but the model has adapters beside them: train "
                    "the mixture before `pesc craft` puts adapters there, or give --method full",
                    m->name);
    if (m->need == NEED_ANY || m->need == NEED_ROUTERS || c->moe.kind == needs[m->need].kind)
        return PESC_OK;
    return fail(PESC_USAGE, "method %s %s", m->name, needs[m->need].trains);
}

/* ---- LoRA targets ---- */

static pesc_status read_targets(uint32_t *out, const char *text)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } rows[] = {
        { "all", TARGET_ALL },    { "q_proj", TARGET_Q },       { "k_proj", TARGET_K },
        { "v_proj", TARGET_V },   { "o_proj", TARGET_O },       { "gate_proj", TARGET_GATE },
        { "up_proj", TARGET_UP }, { "down_proj", TARGET_DOWN }, { "experts", TARGET_EXPERTS },
        { "in_proj", TARGET_IN }, { "out_proj", TARGET_O },
    };
    *out = 0;
    for (const char *p = text + strspn(text, " "); *p;) {
        size_t n = strcspn(p, ", "), i = 0, count = sizeof rows / sizeof *rows;
        while (i < count && (strlen(rows[i].name) != n || strncmp(rows[i].name, p, n) != 0))
            i++;
        if (i == count)
            return fail(PESC_USAGE,
                        "lora_targets: found \"%.*s\", expected all, or some of q_proj,k_proj,"
                        "v_proj,o_proj,gate_proj,up_proj,down_proj,in_proj,out_proj, and experts",
                        (int)n, p);
        *out |= rows[i].bits;
        p += n + strspn(p + n, ", ");
    }
    return PESC_OK;
}

/* With a choice of experts, all is all that it names. */
static pesc_status chosen_targets(uint32_t *targets, const pesc_train_options *o)
{
    if (*targets == TARGET_ALL)
        *targets |= TARGET_EXPERTS;
    if (!(*targets & TARGET_EXPERTS))
        return fail(
            PESC_USAGE,
            "lora_targets: found %s with experts_from, which puts LoRA on experts; expected "
            "experts among them",
            o->lora_targets);
    return o->lora_r ? PESC_OK
                     : fail(PESC_USAGE, "lora_r: found 0 with experts_from, expected a rank");
}

/* LoRA on experts needs full ones, that do not train themselves. */
static pesc_status check_targets(const struct method *m, const config *c, uint32_t targets)
{
    if (!(targets & TARGET_EXPERTS))
        return PESC_OK;
    if (config_experts(c)->kind != EXPERT_FFN)
        return fail(PESC_USAGE, "lora_targets: found experts, but the model has no full experts");
    if (m->experts)
        return fail(PESC_USAGE,
                    "lora_targets: found experts, but method %s trains the experts' own weights; "
                    "method lora puts LoRA on them instead",
                    m->name);
    return PESC_OK;
}

/* ---- experts ---- */

static void take_experts(pesc_train_options *o, const config *c, bool mixture)
{
    bool adapters = c->moe.kind == EXPERT_ADAPTER;
    if (mixture) {
        o->adapter_dim = 0;
        o->adapter_scale = 0;
        return;
    }
    bool sparse = c->moe.kind != EXPERT_NONE;
    o->experts = sparse ? c->moe.topk.n_experts : 0;
    o->top_k = sparse ? c->moe.topk.k : 0;
    o->adapter_dim = adapters ? c->moe.expert_dim : 0;
    o->adapter_scale = adapters ? (double)c->moe.adapter_scale : 0;
}

static const char *given(const char *s)
{
    return s && *s ? s : NULL;
}

/* lora and qlora. */
static bool is_plain_lora(const struct method *m)
{
    return m->lora && m->need == NEED_ANY;
}

/* Experts with LoRA are some of a model's full ones. */
static pesc_status check_lora_experts(const expertcfg *own, const char *file, const config *c)
{
    if (config_experts(c)->kind != EXPERT_FFN)
        return fail(PESC_USAGE, "experts_from: found %s, but the model has no full experts", file);
    if (!own->n_domains)
        TRY(param_check_chosen(own, c, file));
    return expertcfg_total(own)
               ? PESC_OK
               : fail(PESC_USAGE, "experts_from: %s chooses no expert; leave it out", file);
}

/* The choices of several domains, each with its records. */
static pesc_status read_domains(expertcfg *own, const struct method *m, const pesc_train_options *o,
                                const config *c)
{
    const bool on_lora = is_plain_lora(m);
    if (!m->own && !on_lora)
        return fail(
            PESC_USAGE,
            "domain_experts: method %s does not look at it; methods esft, lora and qlora do",
            m->name);
    if (given(o->experts_config) || given(o->experts_from))
        return fail(PESC_USAGE,
                    "domain_experts: is given with %s, which is one choice for all "
                    "records; leave one of them out",
                    given(o->experts_config) ? "experts_config" : "experts_from");
    if (strcmp(o->objective, "sft") != 0)
        return fail(PESC_USAGE, "domain_experts: found objective %s, expected sft", o->objective);
    TRY(domains_read(own, o->domain_experts, c));
    return on_lora ? check_lora_experts(own, "domain_experts", c) : PESC_OK;
}

/* Reads the file of chosen experts: experts_config, which method esft needs, or experts_from, which
 * methods lora and qlora take. No other method looks at either. */
static pesc_status read_own(expertcfg *own, const struct method *m, const pesc_train_options *o,
                            const config *c)
{
    const char *file = given(o->experts_config), *from = given(o->experts_from);
    const bool on_lora = is_plain_lora(m);
    if (given(o->domain_experts))
        return read_domains(own, m, o, c);
    if (file && !m->own)
        return fail(PESC_USAGE, "experts_config: method %s does not look at it; method esft does%s",
                    m->name, on_lora ? ", and lora and qlora take experts_from" : "");
    if (from && !on_lora)
        return fail(PESC_USAGE,
                    "experts_from: method %s does not look at it; methods lora and qlora do%s",
                    m->name, m->own ? ", and method esft takes experts_config" : "");
    if (m->own && !file)
        return fail(PESC_USAGE, "experts_config: is missing; give the expert_cfg.json that `pesc "
                                "esft select` writes");
    if (!file && !from)
        return PESC_OK;
    TRY(expertcfg_read(own, file ? file : from));
    return file ? param_check_chosen(own, c, file) : check_lora_experts(own, from, c);
}

/* ---- routers ---- */

/* Whether routers train: with `train_router`, or as the method has it. */
static bool trains_routers(const struct method *m, const pesc_train_options *o)
{
    return strcmp(o->train_router, "auto") == 0 ? m->routers || m->mixture
                                                : strcmp(o->train_router, "true") == 0;
}

/* Options of routers that were given, and the model or the method has no place for. */
static pesc_status check_routers(const struct method *m, const pesc_train_options *o,
                                 const config *c)
{
    const bool sparse = c->moe.kind != EXPERT_NONE || m->mixture;
    const bool dense = strcmp(o->router_gradient, "dense") == 0;
    const bool biased = strcmp(o->balance, "bias") == 0;
    const bool given = strcmp(o->train_router, "true") == 0;
    const bool step = strcmp(o->aux_over, "step") == 0;
    if (!sparse && (dense || biased || given || step || o->router_z_coef > 0))
        return fail(PESC_USAGE, "%s: is given, but the model has no routers; leave it out",
                    dense    ? "router_gradient"
                    : biased ? "balance"
                    : given  ? "train_router"
                    : step   ? "aux_over"
                             : "router_z_coef");
    if (!sparse && o->aux_coef > 0)
        log_notice("aux_coef: the model has no routers, so it has no effect");
    if (m->mixture && strcmp(o->train_router, "false") == 0)
        return fail(PESC_USAGE,
                    "train_router: found false with method %s, whose routers are new "
                    "and know nothing; leave it out",
                    m->name);
    if (dense && c->moe.beside_ffn)
        return fail(PESC_USAGE,
                    "router_gradient: found dense, but the gates of this model's experts "
                    "have numbers of their own; expected chosen");
    if (dense && (m->mixture || c->moe.kind == EXPERT_LORA))
        return fail(PESC_USAGE,
                    "router_gradient: found dense with a mixture of LoRA, whose experts "
                    "are inside the FFN; expected chosen");
    if (dense && !trains_routers(m, o))
        return fail(PESC_USAGE,
                    "router_gradient: found dense, but routers do not train with method "
                    "%s; give --train-router true, or leave it out",
                    m->name);
    if (m->own && (biased || given))
        return fail(PESC_USAGE,
                    "%s: found %s with method %s, whose result is a patch of experts, which has no "
                    "place for routers; leave it out",
                    biased ? "balance" : "train_router", biased ? "bias" : "true", m->name);
    if (!biased && o->bias_rate != pesc_train_defaults().bias_rate)
        return fail(
            PESC_USAGE,
            "bias_rate: found %g with balance %s, which has no biases; give --balance bias, "
            "or leave it out",
            o->bias_rate, o->balance);
    if (m->routers && !m->adapters && !m->experts && !m->base && !trains_routers(m, o))
        return fail(PESC_USAGE,
                    "train_router: found false with method %s, which trains nothing else; leave it "
                    "out",
                    m->name);
    if (strcmp(o->balance, "none") == 0 && o->aux_coef > 0)
        return fail(PESC_USAGE, "aux_coef: found %g with balance none; leave one of them out",
                    o->aux_coef);
    return PESC_OK;
}

const char *method_routers(const train_spec *s, const config *c)
{
    const bool train = s->own ? s->own->non_expert_modules : s->routers;
    return c->moe.kind == EXPERT_NONE && !s->molora_experts ? "" : train ? "train" : "frozen";
}

static pesc_status check_biases(const struct method *m, const config *c)
{
    bool some = false;
    for (slot s = slot_first(); m->biases && !some && slot_next(c, &s);)
        some = param_linear_bias(s.rule);
    if (m->biases && !some)
        return fail(PESC_USAGE,
                    "method %s trains the biases of linears, but the model has none: "
                    "its family is %s",
                    m->name, c->family);
    return PESC_OK;
}

/* The weight of the balance loss where none is given. */
static double usual_aux(const struct method *m, const pesc_train_options *o)
{
    return strcmp(o->balance, "aux") == 0 && trains_routers(m, o) ? AUX_COEF : 0;
}

static pesc_status check_base_grads(const struct method *m, const pesc_train_options *o)
{
    if (strcmp(o->base_grad_dtype, "fp8") != 0)
        return PESC_OK;
    if (m->base)
        return fail(PESC_USAGE,
                    "base_grad_dtype: found fp8, but method %s freezes no weights; leave it out",
                    m->name);
    if (strcmp(o->compute_dtype, "bf16") != 0)
        return fail(PESC_USAGE, "base_grad_dtype: found fp8 with compute_dtype %s, expected bf16",
                    o->compute_dtype);
    return PESC_OK;
}

/* ---- a LoRA that the model brings ---- */

static pesc_status take_number(const char *key, double *asked, double has, double usual)
{
    if (*asked != usual && fabs(*asked - has) > 1e-6 * has)
        return fail(PESC_USAGE,
                    "%s: found %g, but the model has a LoRA with %g, which is trained as it is; "
                    "leave %s out, or give %g",
                    key, *asked, has, key, has);
    *asked = has;
    return PESC_OK;
}

pesc_status method_take_lora(pesc_train_options *o, const model_shape *m)
{
    const pesc_train_options usual = pesc_train_defaults();
    const lora *l = m->loras;
    for (size_t i = 1; i < m->n_loras; i++)
        if (l[i].a.ne[0] != l->a.ne[0] || l[i].scale != l->scale)
            return PESC_OK; /* one number does not tell them */
    if (!m->n_loras || !o->lora_r)
        return PESC_OK;
    double rank = (double)o->lora_r, has = (double)l->a.ne[0];
    double alpha = round(1e6 * (double)l->scale * has) / 1e6;
    TRY(take_number("lora_r", &rank, has, (double)usual.lora_r));
    o->lora_r = (int64_t)rank;
    return take_number("lora_alpha", &o->lora_alpha, alpha, usual.lora_alpha);
}

pesc_status method_spec(train_spec *out, expertcfg *own, pesc_train_options *o, const config *c)
{
    const struct method *m = find(o->method);
    TRY(check_need(m, c));
    TRY(check_base_grads(m, o));
    TRY(read_own(own, m, o, c));
    TRY(check_routers(m, o, c));
    TRY(check_biases(m, c));
    take_experts(o, c, m->mixture);
    if (o->aux_coef < 0)
        o->aux_coef = usual_aux(m, o);
    if (strcmp(o->aux_over, "step") == 0 && o->aux_coef == 0)
        return fail(PESC_USAGE,
                    "aux_over: found step, but there is no balance loss; give --aux-coef, or leave "
                    "it out");
    *out =
        (train_spec){ .adapters = m->adapters,
                      .routers = trains_routers(m, o),
                      .biases = m->biases,
                      .dense_router = strcmp(o->router_gradient, "dense") == 0,
                      .step_shares = strcmp(o->aux_over, "step") == 0,
                      .balance_bias = strcmp(o->balance, "bias") == 0,
                      .experts = m->experts,
                      .base = m->base,
                      .own = m->own ? own : NULL,
                      .lora_r = m->lora ? (int32_t)o->lora_r : 0,
                      .lora_alpha = (float)o->lora_alpha,
                      .lora_dropout = m->lora ? (float)o->lora_dropout : 0,
                      .adapter_dropout = m->adapters || m->mixture ? (float)o->adapter_dropout : 0,
                      .molora_experts = m->mixture ? (int32_t)o->experts : 0,
                      .molora_k = m->mixture ? (int32_t)o->top_k : 0,
                      .fp8_grads = strcmp(o->base_grad_dtype, "fp8") == 0,
                      .seed = (uint64_t)o->seed };
    if (!m->lora)
        return PESC_OK;
    TRY(layers_read(&out->lora_layers, "lora_layers", o->lora_layers, c->n_layers));
    TRY(read_targets(&out->lora_targets, o->lora_targets));
    if (given(o->experts_from) || own->n_domains) {
        out->lora_own = own;
        TRY(chosen_targets(&out->lora_targets, o));
    }
    return check_targets(m, c, out->lora_targets);
}
