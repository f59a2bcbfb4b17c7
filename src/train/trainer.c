#include "train/trainer.h"

#include "arch/bind.h"
#include "arch/family.h"
#include "attach/attached.h"
#include "backend/memory.h"
#include "backend/peak.h"
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/cost.h"
#include "train/domains.h"
#include "train/method.h"
#include "train/plan.h"
#include "train/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the memory of a step ---- */

/* Bytes of the model's weights: those in its own memory, and those used in the mapped file. */
static uint64_t model_bytes(const pesc_trainer *t)
{
    pesc_model *m = t->m;
    uint64_t in_place = 0;
    const struct {
        const char *at;
        size_t bytes;
    } ours[] = { { m->memory, m->memory_bytes },
                 { m->mixture, m->mixture_bytes },
                 { t->params->memory, t->params->memory_bytes } };
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        const tensor *w = bind_field(&m->shape.w, &s);
        const char *p = w->data;
        bool held = !p || s.expert > 0;
        for (int i = 0; i < 3; i++)
            held = held || (p >= ours[i].at && p < ours[i].at + ours[i].bytes);
        in_place += held ? 0 : tensor_bytes(w);
    }
    return m->memory_bytes + m->mixture_bytes + in_place;
}

static pesc_status open_pass(pesc_trainer *t)
{
    pesc_train_options *o = &t->opt;
    plan_pass p = { t->m->dev, &t->m->shape, &t->spec, t->params->mirror.facts.first_layer,
                    plan_limits(o, t->m->dev) };
    t->keep = plan_keep(&p, o->keep, plan_room(memory_available(t->m->dev)));
    t->bytes.pass = plan_pass_bytes(&p, t->keep);
    TRY(plan_check(&p, t->keep));
    TRY(pass_open_train(&t->pass, t->m, p.lim, &t->params->mirror, t->keep));
    batch_options b = { .micro_tokens = p.lim.max_tokens,
                        .packing = o->packing,
                        .loss = strcmp(o->loss, "token") == 0 ? LOSS_TOKEN : LOSS_SEQUENCE,
                        .whole_chosen = t->objective.rule.kind == PREFERENCE_ORPO };
    if (t->own.n_domains)
        b.domains = &t->own;
    if (t->objective.rule.kind == PREFERENCE_KTO)
        b.mismatched = (uint64_t)o->batch;
    TRY(batch_open(&t->batch, t->data, b));
    b.loss = LOSS_TOKEN;
    return t->eval_data ? batch_open(&t->eval_batch, t->eval_data, b) : PESC_OK;
}

/* Called before params_open(), which moves the adapters out of the model's memory. *trained:
 * elements of a flat buffer. */
static plan_savings save_memory(pesc_trainer *t, int64_t *trained)
{
    const pesc_model *m = t->m;
    model_shape shape = m->shape;
    params_size size;
    params_configure(&shape.cfg, &t->spec);
    params_set_ranks(&shape, &t->spec);
    params_measure(&size, &shape.cfg, &t->spec);
    *trained = size.n;
    plan_pass p = {
        .dev = m->dev, .shape = &shape, .spec = &t->spec, .first_layer = size.first_layer
    };
    return plan_save(&p, &t->opt, memory_available(m->dev) + m->mixture_bytes);
}

/* Options that are chosen from memory become values that suit every process. */
static pesc_status agree_on_options(pesc_trainer *t, int64_t trained)
{
    static const char what[] = "choosing options";
    pesc_train_options *o = &t->opt;
    TRY(peers_least(t->peers, what, &o->micro_tokens));
    o->grad_groups = gradient_groups(o, t->m->dev, &t->spec, trained);
    return peers_least(t->peers, what, &o->grad_groups);
}

static bool base_in_host(const pesc_trainer *t)
{
    return strcmp(t->opt.shard, "host") == 0;
}

/* Whether the base is not whole on this device. One that computes in the host's memory has it there
 * in any case. */
static bool divides_base(const pesc_trainer *t)
{
    return base_in_host(t) ? !t->m->dev->op->host_memory(t->m->dev)
                           : strcmp(t->opt.shard, "base") == 0 && t->peers;
}

static pesc_status open_params(pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    if (t->m->attached->patch)
        return fail(PESC_USAGE, "a model with an expert patch in it cannot be trained; take it out "
                                "first, or apply it and train the result");
    if (!t->spec.lora_r && t->m->shape.n_loras)
        return fail(PESC_USAGE,
                    "method %s trains no LoRA, but the model was opened with one; merge it first",
                    o->method);
    if (divides_base(t) && !t->m->hook)
        return fail(PESC_USAGE,
                    "shard: found %s, but the model is whole; open it with the options of "
                    "pesc_train_load() on %s",
                    o->shard,
                    base_in_host(t) ? "this device" : "a device that has joined the processes");
    int64_t trained;
    plan_savings savings = save_memory(t, &trained);
    t->spec.no_adapter_copies = savings.no_adapter_copies;
    TRY(agree_on_options(t, trained));
    gradient_shape shape = gradient_shape_of(&t->opt, t->m->dev, &t->spec, trained);
    t->spec.window = t->peers && shape.rounds;
    TRY(params_open(&t->params, t->m, &t->spec));
    TRY(gradient_open(&t->gradient, t->params, &shape));
    optimizer_options a = { .eight_bit = strcmp(o->optimizer, "adamw8") == 0,
                            .paged = savings.paged,
                            .clip = o->clip,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay,
                            .reducer = t->gradient->reducer };
    const params *p = t->params;
    TRY(optimizer_open(&t->optim, t->params, &a));
    t->bytes.trained = tensor_bytes(&p->master) + tensor_bytes(&p->grad) + tensor_bytes(&p->work) +
                       tensor_bytes(&p->exact);
    t->bytes.model = model_bytes(t);
    t->bytes.trained += t->optim->bytes + t->gradient->bytes;
    return PESC_OK;
}

/* FLOP of a token, without the scores of attention, which depend on the lengths of sequences. */
static void count_flops(pesc_trainer *t)
{
    cost_counts c = { 0 };
    params_cost(&c, &t->m->shape, &t->spec, (cost_work){ .tokens = 1, .rows = 1 });
    c.part[COST_SCORES] = (cost_row){ 0 };
    cost_row all = cost_total(&c);
    t->speed.token_flops = (double)(all.forward + all.backward);
}

static pesc_status check_fp8(const pesc_trainer *t)
{
    const pesc_model *m = t->m;
    if (!t->spec.fp8_grads)
        return PESC_OK;
    if (m->shape.w.blocks[0].o.w.dt == DT_F32)
        return fail(PESC_USAGE, "base_grad_dtype: found fp8 with weights held in f32; give "
                                "base_dtype bf16 or nf4");
    if (!m->dev->has_fp8)
        return fail(PESC_DEVICE,
                    "base_grad_dtype: found fp8 on device %s, expected a GPU of compute capability "
                    "9.0 (Hopper); leave it out there",
                    m->dev->name);
    return PESC_OK;
}

static pesc_status open_all(pesc_trainer *t)
{
    pesc_train_options *o = &t->opt;
    settings_compute(o, t->m->shape.act_dt);
    pesc_status claimed =
        peers_lead(t->peers) ? rundir_claim(&t->files.dir, o, t->m->dir->path) : PESC_OK;
    TRY(peers_agree(t->peers, "claiming the directory of the run", claimed));
    TRY(method_take_lora(o, &t->m->shape));
    TRY(method_spec(&t->spec, &t->own, o, &t->m->shape.cfg));
    if (t->own.n_domains) {
        TRY(domains_absolute(&t->domain_experts, o->domain_experts));
        o->domain_experts = t->domain_experts;
    }
    TRY(check_fp8(t));
    schedule_find(o->schedule, &t->length.schedule);
    objective_take(&t->objective, o);
    TRY(records_open(t));
    TRY(records_batch(t));
    if (!o->chat_template || !*o->chat_template)
        o->chat_template = dataset_template(t->data); /* for run.yaml */
    TRY(open_params(t));
    TRY(open_pass(t));
    TRY(totals_open(&t->totals, t->m));
    TRY(router_bias_open(&t->router_bias, t->params));
    TRY(watch_open(&t->watch, t->totals.sparse, t->totals.layers, t->totals.experts));
    t->bytes.total = t->bytes.model + t->bytes.trained + t->bytes.pass;
    count_flops(t);
    TRY(peak_measure(t->m->dev, t->m->shape.act_dt, &t->speed.peak_flops));
    TRY(records_check(t)); /* it takes long: after what is refused at once */
    start_length(t);
    start_warmup(t);
    TRY(start_check_epochs(t));
    TRY(start_identify(t));
    TRY(start_run(t));
    save_open(t);
    return PESC_OK;
}

/* A session has memory laid out for the model as it was, and a run records the files of the model
 * as its base, which its weights must therefore be. */
static pesc_status check_model(const pesc_model *m)
{
    if (m->in_training)
        return fail(PESC_USAGE, "the model has a trainer already; close it first");
    if (m->trained)
        return fail(PESC_USAGE,
                    "the model was trained already, so its weights are not those of "
                    "%s any more; open the run, or the model again, for another one",
                    m->dir->path);
    if (__atomic_load_n(&m->users, __ATOMIC_RELAXED) > 0)
        return fail(PESC_USAGE, "the model has open sessions, which do not fit it once it is "
                                "trained; close them first");
    return PESC_OK;
}

pesc_status pesc_trainer_open(pesc_trainer **out, pesc_model *m, const pesc_train_options *opt)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(m);
    DEVICE_CALL(m->dev);
    TRY(check_model(m));
    pesc_trainer *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("a trainer", sizeof *t);
    t->m = m;
    t->peers = m->dev->peers;
    m->in_training = true;
    model_keep(m);
    pesc_status s = settings_take(&t->opt, opt);
    t->opt.processes = peers_size(t->peers);
    if (s == PESC_OK)
        s = open_all(t);
    if (s == PESC_OK)
        *out = t;
    else
        pesc_trainer_close(t);
    return s;
}

static void release(pesc_trainer *t)
{
    DEVICE_CALL(t->m->dev);
    save_close(t);
    metrics_close(t->files.log);
    reference_close(&t->reference);
    reference_close(&t->eval_reference);
    batch_close(t->batch);
    batch_close(t->eval_batch);
    dataset_close(t->eval_data); /* it may read through the other one */
    dataset_close(t->data);
    pass_close(t->pass);
    optimizer_close(t->optim);
    gradient_close(t->gradient);
    params_close(t->params);
    expertcfg_free(&t->own);
    mem_free(t->domain_experts);
    runstate_manifest_free(&t->files.saver.about);
    mem_free(t->files.saver.whole);
    mem_free(t->files.saver.yaml);
    mem_free(t->files.saver.jinja);
    mem_free(t->files.records);
    watch_close(&t->watch);
    totals_close(&t->totals);
    router_bias_close(&t->router_bias, t->m->dev);
    rundir_close(t->files.dir, t->state.step == 0);
    t->m->in_training = false;
    mem_free(t);
}

void pesc_trainer_close(pesc_trainer *t)
{
    if (!t)
        return;
    pesc_model *m = t->m;
    release(t);
    pesc_model_close(m);
}

pesc_status pesc_trainer_describe(const pesc_trainer *t, pesc_train_info *out)
{
    status_clear();
    NEED(t);
    NEED_SIZED(out);
    pesc_train_info r = { .params_total = t->m->info.params_total,
                          .over_length = t->over_length,
                          .records = dataset_used(t->data),
                          .first_step = (uint64_t)t->length.first_step,
                          .steps = t->length.steps,
                          .micro_tokens = t->opt.micro_tokens,
                          .kept_layers = t->keep.all + 1,
                          .bytes_model = t->bytes.model,
                          .bytes_trained = t->bytes.trained,
                          .bytes_activations = t->bytes.pass,
                          .bytes_paged = t->optim->paged_bytes,
                          .bytes_total = memory_total(t->m->dev) };
    if (t->m->hook && base_in_host(t)) {
        r.bytes_streamed = layer_hook_kept(t->m->hook->bytes, t->m->shape.cfg.n_layers, 1);
    } else if (t->m->hook) {
        r.bytes_sharded = layer_hook_kept(t->m->hook->bytes, t->m->shape.cfg.n_layers, 1);
        r.bytes_shard =
            layer_hook_kept(t->m->hook->bytes, t->m->shape.cfg.n_layers, peers_size(t->peers));
    }
    for (int g = 0; g < PARAM_GROUPS; g++)
        r.params_trained += (uint64_t)t->params->count[g];
    snprintf(r.method, sizeof r.method, "%s", t->opt.method);
    snprintf(r.routers, sizeof r.routers, "%s", method_routers(&t->spec, &t->m->shape.cfg));
    snprintf(r.optimizer, sizeof r.optimizer, "%s", t->opt.optimizer);
    snprintf(r.checkpoint, sizeof r.checkpoint, "%s", t->files.resumed);
    ARGS_WRITE(out, &r);
    return PESC_OK;
}
