#include "train/trainer.h"

#include "arch/bind.h"
#include "arch/family.h"
#include "attach/attached.h"
#include "attach/patched.h"
#include "backend/memory.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "format/modeldir.h"
#include "model/cost.h"
#include "run/rundir.h"
#include "run/runmodel.h"
#include "train/method.h"
#include "train/plan.h"
#include "train/records.h"
#include "train/save.h"
#include "train/settings.h"
#include "train/together.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- data ---- */

static const char *given(const char *s)
{
    return s && *s ? s : NULL;
}

/* How far the run goes: in positions of the data, and in steps. */
static void set_length(pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    double all = ceil(o->epochs * (double)dataset_count(t->data));
    t->records = o->steps ? UINT64_MAX : (uint64_t)all;
    int64_t left = (int64_t)all - t->state.data_offset;
    t->steps = o->steps ? o->steps : (left + o->batch - 1) / o->batch;
    t->saver.steps = t->steps;
}

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
    t->bytes_pass = plan_pass_bytes(&p, t->keep);
    TRY(plan_check(&p, t->keep));
    TRY(pass_open_train(&t->pass, t->m, p.lim, &t->params->mirror, t->keep));
    batch_options b = { .micro_tokens = p.lim.max_tokens,
                        .packing = o->packing,
                        .loss = strcmp(o->loss, "token") == 0 ? LOSS_TOKEN : LOSS_SEQUENCE };
    TRY(batch_open(&t->batch, t->data, b));
    TRY(batch_open(&t->ahead, t->data, b));
    b.loss = LOSS_TOKEN;
    if (t->eval_data)
        TRY(batch_open(&t->eval_batch, t->eval_data, b));
    return t->eval_data ? batch_open(&t->eval_ahead, t->eval_data, b) : PESC_OK;
}

/* Called before params_open(), which moves the adapters out of the model's memory. *trained:
 * elements of a flat buffer. */
static plan_spared spare(pesc_trainer *t, int64_t *trained)
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
    return plan_spare(&p, &t->opt, memory_available(m->dev) + m->mixture_bytes);
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
    if (strcmp(o->shard, "base") == 0 && t->peers && !t->m->hook)
        return fail(PESC_USAGE,
                    "shard: found base, but the model is whole; open it with the options "
                    "of pesc_train_load() on a device that has joined the processes");
    int64_t trained;
    plan_spared spared = spare(t, &trained);
    t->spec.lean = spared.lean;
    TRY(together_choose(t, trained));
    gradient_shape shape = together_shape(o, t->m->dev, &t->spec, trained);
    together_notice(t, &shape);
    t->spec.window = t->peers && shape.rounds;
    TRY(params_open(&t->params, t->m, &t->spec));
    TRY(gradient_open(&t->gradient, t->params, &shape));
    optimizer_options a = { .eight_bit = strcmp(o->optimizer, "adamw8") == 0,
                            .paged = spared.paged,
                            .clip = o->clip,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay };
    const params *p = t->params;
    TRY(optimizer_open(&t->optim, t->params, &a));
    t->bytes_trained = tensor_bytes(&p->master) + tensor_bytes(&p->grad) + tensor_bytes(&p->work) +
                       tensor_bytes(&p->exact);
    t->bytes_model = model_bytes(t);
    t->bytes_trained += t->optim->bytes + t->gradient->bytes;
    return PESC_OK;
}

/* ---- what the model is and how fast it could be ---- */

/* Measures the device's rate in large products, of which the step line prints a percentage. */
static pesc_status measure_peak(pesc_trainer *t)
{
    enum { TIMES = 5 };
    device *dev = t->m->dev;
    int64_t rows = dev->head_rows / 2, side = dev->head_rows * 2;
    size_t each = (size_t)(side * side) * sizeof(float);
    void *memory = NULL;
    TRY(dev->op->alloc(dev, 3 * each, &memory));
    dev->op->zero(dev, memory, 3 * each);
    tensor a = { memory, t->m->shape.act_dt, 2, { rows, side } }, b = a, out = a;
    b.data = (char *)memory + each;
    b.ne[0] = side;
    out.data = (char *)memory + 2 * each;
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < TIMES; i++) {
        double began = clock_seconds();
        dev->op->matmul(dev, &(mm){ .out = out, .a = a, .b = b, .scale = 1 });
        s = dev->op->sync(dev);
        double speed = 2.0 * (double)(rows * side * side) / (clock_seconds() - began + 1e-9);
        t->peak_flops = speed > t->peak_flops ? speed : t->peak_flops;
    }
    dev->op->free(dev, memory);
    return s;
}

/* FLOP of a token, without the scores of attention, which depend on the lengths of sequences. */
static void count_flops(pesc_trainer *t)
{
    cost_counts c = { 0 };
    cost_of_training(&c, &t->m->shape, &t->spec, (cost_work){ .tokens = 1, .rows = 1 });
    c.part[COST_SCORES] = (cost_row){ 0 };
    cost_row all = cost_total(&c);
    t->token_flops = (double)(all.forward + all.backward);
}

static uint64_t hash_text(uint64_t h, const char *s)
{
    return XXH3_64bits_withSeed(s, strlen(s), h);
}

/* Hashes the configuration and every weight, in the order of the files. */
static pesc_status hash_base(const hfdir *d, uint64_t *out)
{
    str text = { 0 };
    json_put(&text, d->config, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t h = text.n ? XXH3_64bits(text.p, text.n) : 0;
    str_free(&text);
    for (size_t i = 0; i < weights_count(d->ws); i++) {
        const weight *w = weights_at(d->ws, i);
        h = hash_text(h, w->name);
        h = XXH3_64bits_withSeed(w->ne, sizeof w->ne, h + (uint64_t)w->dt);
        h = XXH3_64bits_withSeed(w->data, w->bytes, h);
        io_map_drop(w->data, w->bytes);
    }
    *out = h;
    return weights_check(d->ws);
}

/* Hashes the options that decide the numbers and the content of experts_config. */
static uint64_t hash_options(const pesc_trainer *t)
{
    str text = { 0 };
    uint64_t h = settings_hash(&t->opt);
    if (t->spec.own)
        expertcfg_put(&text, t->spec.own);
    h = text.n ? XXH3_64bits_withSeed(text.p, text.n, h) : h;
    str_free(&text);
    return h;
}

/* The chat template of the run as a Jinja text, where it is not the one that the model brings. */
static pesc_status open_template(pesc_trainer *t)
{
    str text = { 0 };
    const chat_format *f = chat_find(dataset_template(t->data));
    if (!f || f == t->m->chat || !dataset_has_chats(t->data))
        return PESC_OK;
    chat_jinja(f, &text);
    t->jinja = text.p;
    t->saver.jinja = t->jinja;
    return str_ok(&text) ? PESC_OK : fail_nomem("chat_template.jinja", text.n);
}

/* Where the base is, and what later shows whether it has changed. */
static pesc_status describe_base(const pesc_trainer *t, runstate_manifest *about)
{
    char *run = NULL;
    TRY(io_absolute(&about->base, t->m->dir->top));
    runmodel_identify(t->m->dir, &about->identity);
    TRY(io_absolute(&run, t->opt.output));
    pesc_status s = runbase_relative(&about->base_relative, run, about->base);
    mem_free(run);
    return s;
}

static pesc_status open_saver(pesc_trainer *t)
{
    checkpoint *c = &t->saver;
    uint64_t base = 0, tok = 0;
    str yaml = { 0 };
    TRY(describe_base(t, &c->about));
    TRY(hash_base(t->m->dir, &base));
    TRY(modeldir_hash_tokenizer(t->m->dir->root, &tok));
    str_hex(c->about.base_hash, base);
    str_hex(c->about.tokenizer_hash, tok);
    str_hex(c->about.data_hash, dataset_hash(t->data));
    str_hex(c->about.config_hash, hash_options(t));
    if (t->spec.own)
        patched_base_hash(&t->m->shape.cfg, t->m->dir->ws, c->patch_base);
    if (!utf8_valid(c->about.base, strlen(c->about.base)))
        return fail(PESC_USAGE, "%s: is not UTF-8; rename it", c->about.base);
    settings_yaml(&t->opt, c->about.base, &yaml);
    if (!str_ok(&yaml))
        return fail_nomem("run.yaml", yaml.n);
    t->yaml = yaml.p;
    c->run = t->opt.output;
    c->p = t->params;
    c->opt = t->optim;
    c->yaml = t->yaml;
    c->keep = t->opt.keep_checkpoints;
    return PESC_OK;
}

/* ---- the start ---- */

static pesc_status load_from(pesc_trainer *t, const char *path)
{
    char *dir = NULL;
    runstate_manifest m = { 0 };
    runstate_kind kind = runstate_kind_of(path);
    if (kind == RUNSTATE_RUN)
        TRY(runstate_newest(path, RUNSTATE_HASHES, &dir));
    else if (kind == RUNSTATE_CHECKPOINT && !(dir = mem_strdup(path)))
        return fail_nomem(path, strlen(path));
    pesc_status s = dir ? runstate_check(dir, kind == RUNSTATE_CHECKPOINT, &m)
                        : fail(PESC_IO,
                               "%s: init_from: is neither a run with a checkpoint nor a "
                               "checkpoint",
                               path);
    runstate_manifest_free(&m);
    if (s == PESC_OK)
        s = checkpoint_load_weights(t->params, dir);
    mem_free(dir);
    return s;
}

/* Goes on with data that is not what the run began with. */
static void take_other_data(pesc_trainer *t, const char *how)
{
    checkpoint_state *s = &t->state;
    bool restart = strcmp(t->opt.data_changed, "restart-epoch") == 0;
    int64_t n = (int64_t)dataset_count(t->data), epoch = (int64_t)s->epoch;
    if (restart)
        s->data_offset = epoch * n - s->step * t->opt.batch;
    log_notice("the data has changed since step %lld (%s): epoch %lld %s", (long long)s->step,
               how ? how : "its hash is another", (long long)epoch + 1,
               restart ? "starts again with the new data" : "continues in the new data");
}

/* Rank 0 reads and verifies what there is; the others receive its choice. *dir NULL: none. */
static pesc_status find_newest(pesc_trainer *t, char **dir)
{
    char name[64] = "";
    const char *run = t->opt.output;
    bool leads = peers_lead(t->peers);
    pesc_status s = PESC_OK;
    if (leads)
        s = runstate_newest(run, t->opt.strict ? RUNSTATE_STRICT : RUNSTATE_HASHES, dir);
    TRY(peers_agree(t->peers, "finding a checkpoint", s));
    if (*dir)
        snprintf(name, sizeof name, "%s", strrchr(*dir, '/') ? strrchr(*dir, '/') + 1 : *dir);
    TRY(peers_follow(t->peers, "finding a checkpoint", name, sizeof name));
    if (!leads && name[0] && !(*dir = io_join(run, name)))
        return fail_nomem(run, sizeof name);
    return PESC_OK;
}

static pesc_status resume(pesc_trainer *t)
{
    char *dir = NULL;
    TRY(find_newest(t, &dir));
    if (!dir) {
        log_notice("%s: has no checkpoint yet: the run begins at step 1", t->opt.output);
        return PESC_OK;
    }
    const char *name = strrchr(dir, '/') ? strrchr(dir, '/') + 1 : dir;
    snprintf(t->resumed, sizeof t->resumed, "%s", name);
    str how = { 0 };
    records_changed(t, &how);
    t->saver.data_diff = how.p;
    t->saver.allow_other_data = given(t->opt.data_changed);
    pesc_status s = checkpoint_load(&t->saver, dir, &t->state);
    t->saver.data_diff = NULL;
    mem_free(dir);
    if (s == PESC_OK && t->state.data_changed)
        take_other_data(t, how.p);
    str_free(&how);
    set_length(t); /* the state may have another offset in the data */
    t->saved_step = t->first_step = t->state.step;
    if (s == PESC_OK && t->state.step > t->steps)
        return fail(PESC_USAGE,
                    "%s: is at step %lld, but %lld are asked for; steps and epochs count from the "
                    "beginning of the run",
                    t->opt.output, (long long)t->state.step, (long long)t->steps);
    return s;
}

/* What rank 0 does in the directory of the run before anything is read from it, */
static pesc_status begin_dir(pesc_trainer *t)
{
    TRY(rundir_begin(t->dir));
    return checkpoint_fits(&t->saver);
}

/* and before the first step. */
static pesc_status begin_logs(pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    const checkpoint_state *s = &t->state;
    TRY(records_check(t));
    TRY(rundir_options(o->output, t->yaml));
    if (!t->resumed[0])
        TRY(rundir_describe(o->output, &t->saver.about, t->m->dev->name));
    metrics_lengths keep = { { s->metrics_bytes, s->routing_bytes, s->eval_bytes } };
    return metrics_open(&t->log, o->output, &keep);
}

static pesc_status begin_run(pesc_trainer *t)
{
    static const char what[] = "the start of the run";
    const pesc_train_options *o = &t->opt;
    bool leads = peers_lead(t->peers);
    TRY(peers_agree(t->peers, what, leads ? begin_dir(t) : PESC_OK));
    if (o->resume)
        TRY(peers_agree(t->peers, what, resume(t)));
    if (!t->resumed[0] && t->eval_data && o->eval_at_start)
        t->state.eval_due = 1;
    if (given(o->init_from) && !t->resumed[0])
        TRY(peers_agree(t->peers, what, load_from(t, o->init_from)));
    return peers_agree(t->peers, what, leads ? begin_logs(t) : PESC_OK);
}

static pesc_status open_shares(pesc_trainer *t)
{
    const config *c = &t->m->shape.cfg;
    t->sparse = mem_alloc((size_t)c->n_layers, sizeof *t->sparse);
    if (!t->sparse)
        return fail_nomem("routing shares", (size_t)c->n_layers * sizeof *t->sparse);
    for (int32_t l = 0; l < c->n_layers; l++)
        if (t->m->shape.w.blocks[l].sparse)
            t->sparse[t->sparse_layers++] = l;
    size_t n = (size_t)t->sparse_layers * (size_t)c->moe.topk.n_experts + 1;
    t->shares = mem_zalloc(n, sizeof *t->shares);
    t->chosen = mem_zalloc(n, sizeof *t->chosen);
    t->balance = mem_zalloc(2 * n, sizeof *t->balance);
    if (!t->shares || !t->chosen || !t->balance)
        return fail_nomem("routing shares", n * 8);
    micros_open(&t->micros, t->sparse, t->sparse_layers, c->moe.topk.n_experts);
    return watch_open(&t->watch, t->sparse, t->sparse_layers, c->moe.topk.n_experts);
}

static void set_warmup(pesc_trainer *t)
{
    pesc_train_options *o = &t->opt;
    if (o->warmup_steps < 0)
        o->warmup_steps = (int64_t)ceil(o->warmup_ratio * (double)t->steps);
    t->warmup = o->warmup_steps;
    if (t->warmup > t->steps)
        log_notice("warmup_steps: the warm-up takes %lld steps and the run has %lld: the learning "
                   "rate ends at %.3g, below lr %.3g",
                   (long long)t->warmup, (long long)t->steps,
                   schedule_lr(t->schedule, o->lr, t->steps - 1, t->warmup, t->steps), o->lr);
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
    pesc_status claimed =
        peers_lead(t->peers) ? rundir_claim(&t->dir, o, t->m->dir->path) : PESC_OK;
    TRY(peers_agree(t->peers, "claiming the directory of the run", claimed));
    TRY(method_take_lora(o, t->m));
    TRY(method_spec(&t->spec, &t->own, o, &t->m->shape.cfg));
    TRY(check_fp8(t));
    schedule_find(o->schedule, &t->schedule);
    TRY(records_open(t));
    TRY(records_batch(t));
    set_length(t);
    if (!given(o->chat_template))
        o->chat_template = dataset_template(t->data); /* for run.yaml */
    set_warmup(t);
    TRY(open_params(t));
    TRY(open_pass(t));
    TRY(open_shares(t));
    t->bytes_total = t->bytes_model + t->bytes_trained + t->bytes_pass;
    count_flops(t);
    TRY(measure_peak(t));
    TRY(open_saver(t));
    TRY(open_template(t));
    TRY(together_check(t));
    TRY(begin_run(t));
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
    metrics_close(t->log);
    batch_close(t->batch);
    batch_close(t->ahead);
    batch_close(t->eval_batch);
    batch_close(t->eval_ahead);
    dataset_close(t->eval_data); /* it may read through the other one */
    dataset_close(t->data);
    pass_close(t->pass);
    optimizer_close(t->optim);
    gradient_close(t->gradient);
    micros_close(&t->micros);
    params_close(t->params);
    expertcfg_free(&t->own);
    runstate_manifest_free(&t->saver.about);
    mem_free(t->saver.whole);
    mem_free(t->yaml);
    mem_free(t->jinja);
    watch_close(&t->watch);
    mem_free(t->sparse);
    mem_free(t->shares);
    mem_free(t->chosen);
    mem_free(t->balance);
    rundir_close(t->dir, t->state.step == 0);
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
                          .records = dataset_count(t->data),
                          .first_step = (uint64_t)t->first_step,
                          .steps = t->steps,
                          .micro_tokens = t->opt.micro_tokens,
                          .kept_layers = t->keep.all + 1,
                          .bytes_model = t->bytes_model,
                          .bytes_trained = t->bytes_trained,
                          .bytes_activations = t->bytes_pass,
                          .bytes_paged = t->optim->paged_bytes,
                          .bytes_total = memory_total(t->m->dev) };
    if (t->m->hook) {
        r.bytes_sharded = layer_hook_kept(t->m->hook->bytes, t->m->shape.cfg.n_layers, 1);
        r.bytes_shard =
            layer_hook_kept(t->m->hook->bytes, t->m->shape.cfg.n_layers, peers_size(t->peers));
    }
    for (int g = 0; g < PARAM_GROUPS; g++)
        r.params_trained += (uint64_t)t->params->count[g];
    snprintf(r.method, sizeof r.method, "%s", t->opt.method);
    snprintf(r.optimizer, sizeof r.optimizer, "%s", t->opt.optimizer);
    snprintf(r.checkpoint, sizeof r.checkpoint, "%s", t->resumed);
    ARGS_WRITE(out, &r);
    return PESC_OK;
}
