#include "train/plan.h"

#include "backend/memory.h"
#include "base/args.h"
#include "train/gradient.h"
#include "train/method.h"
#include "train/objective.h"
#include "train/optimizer.h"
#include "train/settings.h"
#include "attach/outline.h"

#include <stdio.h>
#include <string.h>

pass_limits plan_limits(pesc_train_options *o, const device *dev)
{
    int32_t sequences = objective_answers(o);
    int64_t longest = sequences * o->seq_len, usual = dev->micro_tokens;
    int64_t most = o->batch_tokens ? o->batch_tokens : o->batch * longest;
    if (!o->micro_tokens)
        o->micro_tokens = longest > usual ? longest : most < usual ? most : usual;
    int64_t n = o->packing && o->micro_tokens > longest ? o->micro_tokens : longest;
    return (pass_limits){ .max_tokens = (int32_t)n,
                          .max_seqs = o->packing ? (int32_t)(n / 2 + 1) : sequences,
                          .max_out = (int32_t)n };
}

uint64_t plan_pass_bytes(const plan_pass *p, keep_counts keep)
{
    backward_facts facts = params_facts(p->spec, p->first_layer);
    train_plan plan = train_plan_of(&p->shape->cfg, &facts, keep);
    return pass_train_bytes(p->dev, p->shape, &plan, p->lim);
}

/* `asked` layers below the top one keep all activations, -1 being all of them, and the others a
 * partial activation checkpoint. */
static keep_counts wish(const plan_pass *p, int64_t asked)
{
    int32_t reached = p->shape->cfg.n_layers - p->first_layer,
            below = reached > 0 ? reached - 1 : 0;
    int32_t all = asked >= 0 && asked < below ? (int32_t)asked : below;
    return (keep_counts){ all, below - all };
}

keep_counts plan_keep(const plan_pass *p, int64_t asked, uint64_t room)
{
    keep_counts keep = wish(p, asked);
    int32_t least = asked >= 0 ? keep.all : 0;
    while (keep.all > least && plan_pass_bytes(p, keep) > room) {
        keep.all--;
        keep.partial++;
    }
    while (keep.partial > 0 && plan_pass_bytes(p, keep) > room)
        keep.partial--;
    return keep;
}

/* The largest pass that fits when every layer is recomputed. */
static int64_t largest_forward(plan_pass p, uint64_t room)
{
    int64_t low = 0, high = 1 << 20;
    while (high - low > 64) {
        int64_t n = (low + high) / 2;
        p.lim = (pass_limits){ (int32_t)n, (int32_t)(n / 2 + 1), (int32_t)n };
        if (plan_pass_bytes(&p, (keep_counts){ 0 }) <= room)
            low = n;
        else
            high = n;
    }
    return low;
}

pesc_status plan_check(const plan_pass *p, keep_counts keep)
{
    device *dev = p->dev;
    uint64_t need = plan_pass_bytes(p, keep), left = memory_available(dev);
    if (need <= left)
        return PESC_OK;
    return fail(PESC_NOMEM,
                "a forward of %d tokens needs %.1f GiB, but %s has %.1f GiB left; at most %lld "
                "tokens fit (micro_tokens, seq_len)",
                p->lim.max_tokens, (double)need / (1 << 30),
                dev->op->host_memory(dev) ? "this machine" : dev->name, (double)left / (1 << 30),
                (long long)largest_forward(*p, left));
}

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* Of one process. */
static uint64_t moment_bytes(const pesc_train_options *o, int64_t n)
{
    return optimizer_bytes(flat_most(n, o->processes), strcmp(o->optimizer, "adamw8") == 0);
}

/* Of one process: what trains, its gradients and their partial sums; spec->window is set. */
static uint64_t trained_bytes(const plan_pass *p, const pesc_train_options *o, train_spec *spec,
                              params_size *size)
{
    device *dev = p->dev;
    params_measure(size, &p->shape->cfg, spec);
    gradient_shape shape = gradient_shape_of(o, dev, spec, size->n);
    spec->window = o->processes > 1 && shape.rounds;
    params_measure(size, &p->shape->cfg, spec);
    return (uint64_t)params_bytes(size, p->shape->act_dt, o->processes) +
           gradient_bytes(&shape, size->n);
}

plan_savings plan_save(plan_pass *p, pesc_train_options *o, uint64_t available)
{
    enum { LEAST = 2048 }; /* tokens of a forward; fewer leave a GPU idle */
    device *dev = p->dev;
    bool open = !o->micro_tokens && o->packing;
    int64_t least = objective_answers(o) * o->seq_len;
    train_spec spec = *p->spec;
    params_size size;
    plan_savings s = { 0 };
    p->lim = plan_limits(o, dev);
    spec.no_adapter_copies = false;
    uint64_t trained = trained_bytes(p, o, &spec, &size);
    available = minus(available, moment_bytes(o, size.n));
    uint64_t room = plan_room(minus(available, trained));
    s.no_adapter_copies = plan_pass_bytes(p, wish(p, o->keep)) > room &&
                          !params_divides_master(size.own, p->shape->act_dt, o->processes);
    spec.no_adapter_copies = s.no_adapter_copies;
    if (s.no_adapter_copies)
        room = plan_room(minus(available, trained_bytes(p, o, &spec, &size)));
    while (open && o->micro_tokens / 2 >= LEAST && o->micro_tokens / 2 >= least &&
           plan_pass_bytes(p, wish(p, 0)) > room) {
        o->micro_tokens /= 2;
        p->lim = plan_limits(o, dev);
    }
    s.paged = !dev->op->host_memory(dev) && plan_pass_bytes(p, (keep_counts){ 0 }) > room;
    return s;
}

/* ---- without a model: configuration and headers only ---- */

/* Of gradients and weights, in a step: by rounds each has an exchange of its own. */
static uint64_t exchanged_bytes(const plan_pass *p, const pesc_train_options *o,
                                const params_size *size, uint64_t trained)
{
    gradient_shape s = gradient_shape_of(o, p->dev, p->spec, size->n);
    bool copies = params_divides_master(size->own, p->shape->act_dt, o->processes);
    int64_t times = p->spec->window ? (s.micros + s.processes - 1) / s.processes : 1;
    return trained * ((uint64_t)times * sizeof(float) + (copies ? 2 : 4));
}

/* That are on the disk at a time, at most: those that are kept, and one that is written; of a run
 * that keeps all, those of save_every and the last. 0: they depend on the length of the data. */
static uint64_t checkpoints_of(const pesc_train_options *o)
{
    if (o->keep_checkpoints)
        return (uint64_t)(1 + (o->keep_checkpoints < 2 ? 2 : o->keep_checkpoints));
    int64_t every = o->save_every ? o->save_every : o->steps;
    return o->steps ? (uint64_t)((o->steps + every - 1) / every) : 0;
}

/* Of training a token in a sequence of the longest length; 0: more than can be counted. */
static double training_flop(const model_shape *m, const train_spec *spec, int64_t tokens)
{
    const cost_work work = { .tokens = tokens, .rows = tokens };
    cost_counts c = { 0 };
    if (cost_check(&m->cfg, work) != PESC_OK)
        return 0;
    params_cost(&c, m, spec, work);
    cost_row all = cost_total(&c);
    return (double)(all.forward + all.backward) / (double)tokens;
}

/* Weights that are copied to the device, without adapters that train, which params holds, and
 * frozen weights that are used in the mapped file. */
static uint64_t model_bytes(const outline *s, const char *method)
{
    bool frozen = strcmp(method, "full") != 0, moved = !frozen || strcmp(method, "pesc") == 0;
    return s->copied + (moved ? 0 : s->mixture) + (frozen ? s->in_place : 0);
}

static void fill_report(pesc_plan_report *out, outline *s, train_spec *spec, pesc_train_options *o)
{
    params_size size;
    bool eight = strcmp(o->optimizer, "adamw8") == 0;
    params_measure(&size, &s->shape.cfg, spec);
    uint64_t all_moments = optimizer_bytes(size.n, eight);
    for (int g = 0; g < PARAM_GROUPS; g++)
        out->params_trained += (uint64_t)size.count[g];
    out->params_total = s->info.params_total;
    snprintf(out->routers, sizeof out->routers, "%s", method_routers(spec, &s->shape.cfg));
    out->model = model_bytes(s, o->method);
    for (int32_t i = 0; s->layers && i < s->shape.cfg.n_layers; i++)
        *(s->in_host ? &out->streamed : &out->sharded) += s->layers[i];
    out->optimizer = moment_bytes(o, size.n);
    out->available = memory_available(s->dev);
    if (s->dev->op->host_memory(s->dev))
        out->available /= (uint64_t)o->local_processes;
    out->layers = s->shape.cfg.n_layers;
    out->checkpoint_bytes = (uint64_t)size.n * 4 + all_moments + (uint64_t)size.n_list * 256;
    out->run_bytes = out->checkpoint_bytes * checkpoints_of(o);
    out->flop = training_flop(&s->shape, spec, o->seq_len);
    params_configure(&s->shape.cfg, spec);
    params_set_ranks(&s->shape, spec);
    plan_pass p = {
        .dev = s->dev, .shape = &s->shape, .spec = spec, .first_layer = size.first_layer
    };
    plan_savings savings = plan_save(&p, o, minus(out->available, out->model));
    spec->no_adapter_copies = savings.no_adapter_copies;
    out->trained = trained_bytes(&p, o, spec, &size);
    out->exchanged = exchanged_bytes(&p, o, &size, out->params_trained);
    out->paged = savings.paged;
    uint64_t fixed = out->model + out->trained + (out->paged ? 0 : out->optimizer);
    uint64_t room = plan_room(minus(out->available, fixed));
    keep_counts keep = plan_keep(&p, o->keep, room);
    out->kept_layers = keep.all + 1;
    out->activations = plan_pass_bytes(&p, keep);
    out->micro_tokens = o->micro_tokens;
    out->largest_micro_tokens = largest_forward(p, room);
    out->total = fixed + out->activations;
    out->fits = out->total <= out->available;
}

pesc_status pesc_plan(pesc_device *dev, const char *path, const pesc_train_options *opt,
                      pesc_plan_report *out)
{
    status_clear();
    NEED(dev);
    NEED(path);
    NEED_SIZED(out);
    DEVICE_CALL(dev);
    outline s = { 0 };
    train_spec spec;
    expertcfg own = { 0 };
    pesc_train_options o;
    pesc_load_options load = { 0 };
    pesc_plan_report r = { 0 };
    pesc_status st = settings_take(&o, opt);
    if (st == PESC_OK)
        st = outline_open(&s, dev, path, o.base);
    if (st == PESC_OK) {
        settings_load(&o, &load);
        st = outline_bind(&s, &load, o.processes);
        settings_compute(&o, s.shape.act_dt);
    }
    if (st == PESC_OK)
        st = method_take_lora(&o, &s.shape);
    if (st == PESC_OK)
        st = method_spec(&spec, &own, &o, &s.shape.cfg);
    if (st == PESC_OK)
        fill_report(&r, &s, &spec, &o);
    ARGS_WRITE(out, &r);
    outline_close(&s);
    expertcfg_free(&own);
    return st;
}
