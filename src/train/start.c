#include "train/trainer.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/utf8.h"
#include "format/modeldir.h"
#include "attach/patched.h"
#include "run/runmodel.h"
#include "train/settings.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { MAX_YAML = 1 << 20 };

static const char *given(const char *s)
{
    return s && *s ? s : NULL;
}

/* ---- how far it goes ---- */

void start_length(pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    double all = ceil(o->epochs * (double)dataset_used(t->data));
    t->length.records = o->steps ? UINT64_MAX : (uint64_t)all;
    int64_t left = (int64_t)all - t->state.data_offset;
    t->length.steps = o->steps ? o->steps : (left + o->batch - 1) / o->batch;
    t->files.saver.steps = t->length.steps;
}

pesc_status start_check_epochs(const pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    const double records = (double)dataset_used(t->data);
    const double epochs = (double)o->steps * (double)o->batch / records;
    if (!(o->max_epochs > 0) || !o->steps)
        return PESC_OK;
    if (epochs > o->max_epochs)
        return fail(PESC_USAGE,
                    "steps: %lld steps of %lld records are %.0f passes over the %.0f records that "
                    "there are, more than max_epochs %g; say how long the run is with steps or "
                    "epochs",
                    (long long)o->steps, (long long)o->batch, epochs, records, o->max_epochs);
    log_notice("%lld steps of %lld records are %.3g passes over the %.0f records that there are",
               (long long)o->steps, (long long)o->batch, epochs, records);
    return PESC_OK;
}

void start_warmup(pesc_trainer *t)
{
    pesc_train_options *o = &t->opt;
    if (o->warmup_steps < 0)
        o->warmup_steps = (int64_t)ceil(o->warmup_ratio * (double)t->length.steps);
    t->length.warmup = o->warmup_steps;
    if (t->length.warmup > t->length.steps)
        log_notice("warmup_steps: the warm-up takes %lld steps and the run has %lld: the learning "
                   "rate ends at %.3g, below lr %.3g",
                   (long long)t->length.warmup, (long long)t->length.steps,
                   schedule_lr(t->length.schedule, o->lr, t->length.steps - 1, t->length.warmup,
                               t->length.steps),
                   o->lr);
}

/* ---- what it is made from ---- */

/* Hashes the configuration and every weight, in the order of the files. */
static pesc_status hash_base(const hfdir *d, uint64_t *out)
{
    str text = { 0 };
    json_put(&text, d->config, JSON_COMPACT | JSON_SORT_KEYS);
    uint64_t h = text.n ? XXH3_64bits(text.p, text.n) : 0;
    str_free(&text);
    for (size_t i = 0; i < weights_stored_count(d->ws); i++) {
        const weight *w = weights_stored_at(d->ws, i);
        h = XXH3_64bits_withSeed(w->name, strlen(w->name), h);
        h = XXH3_64bits_withSeed(w->ne, sizeof w->ne, h + (uint64_t)w->dt);
        h = XXH3_64bits_withSeed(w->data, w->bytes, h);
        io_map_drop(w->data, w->bytes);
    }
    *out = h;
    return weights_check(d->ws);
}

/* Which domain trains which of the experts. */
static void put_domains(str *out, const expertcfg *own)
{
    for (size_t d = 0; d < own->n_domains; d++)
        str_printf(out, " %s", own->domains[d]);
    for (size_t i = 0; own->n_domains && i < own->n_layers; i++)
        for (int32_t k = 0; k < own->layers[i].n; k++)
            str_printf(out, " %llx", (unsigned long long)own->layers[i].domains[k]);
}

/* Hashes the options that decide the numbers and the content of the choices of experts. */
static uint64_t hash_options(const pesc_trainer *t)
{
    str text = { 0 };
    uint64_t h = settings_hash(&t->opt);
    if (t->spec.own || t->spec.lora_own)
        expertcfg_put(&text, &t->own);
    put_domains(&text, &t->own);
    h = text.n ? XXH3_64bits_withSeed(text.p, text.n, h) : h;
    str_free(&text);
    return h;
}

/* The chat template of the run as a Jinja text, where it is not the one that the model brings. */
static pesc_status open_template(pesc_trainer *t)
{
    str text = { 0 };
    const chat_format *f = chat_find(dataset_template(t->data));
    if (!f || f == chat_otherwise(t->m->chat) || !dataset_has_chats(t->data))
        return PESC_OK;
    const char *jinja;
    size_t n;
    chat_source(f, &jinja, &n);
    str_add(&text, jinja, n);
    str_puts(&text, "");
    t->files.saver.jinja = text.p;
    return str_ok(&text) ? PESC_OK : fail_nomem("chat_template.jinja", text.n);
}

/* What checkpoints tell: where the base is, and what later shows whether anything has changed. */
static pesc_status open_saver(pesc_trainer *t)
{
    checkpoint *c = &t->files.saver;
    uint64_t base = 0;
    char *run = NULL;
    str yaml = { 0 };
    TRY(io_absolute(&c->about.base, t->m->dir->top));
    runmodel_identify(t->m->dir, &c->about.identity);
    TRY(io_absolute(&run, t->opt.output));
    pesc_status s = runbase_relative(&c->about.base_relative, run, c->about.base);
    mem_free(run);
    TRY(s);
    TRY(hash_base(t->m->dir, &base));
    str_hex(c->about.base_hash, base);
    str_hex(c->about.data_hash, dataset_hash(t->data));
    str_hex(c->about.config_hash, hash_options(t));
    if (t->spec.own)
        patched_base_hash(&t->m->shape.cfg, t->m->dir->ws, c->patch_base);
    if (!utf8_valid(c->about.base, strlen(c->about.base)))
        return fail(PESC_USAGE, "%s: is not UTF-8; rename it", c->about.base);
    settings_yaml(&t->opt, c->about.base, &yaml);
    if (!str_ok(&yaml))
        return fail_nomem("run.yaml", yaml.n);
    c->yaml = yaml.p;
    c->run = t->opt.output;
    c->p = t->params;
    c->opt = t->optim;
    c->keep = t->opt.keep_checkpoints;
    return PESC_OK;
}

/* Whether all processes have the model, the tokenizer, the data and the options of rank 0. */
static pesc_status compare_processes(pesc_trainer *t)
{
    const runstate_manifest *m = &t->files.saver.about;
    char eval[17] = "";
    str text = { 0 };
    if (!t->peers)
        return PESC_OK;
    if (t->eval_data)
        str_hex(eval, dataset_hash(t->eval_data));
    str_printf(&text, "base_hash: %s\ntokenizer_hash: %s\ndata_hash: %s\neval_data_hash: %s\n%s",
               m->base_hash, m->tokenizer_hash, m->data_hash, eval, t->files.saver.yaml);
    str_printf(&text, "config_hash: %s\n", m->config_hash);
    pesc_status s =
        str_ok(&text) ? t->peers->same(t->peers, text.p) : fail_nomem("run.yaml", text.n);
    str_free(&text);
    return s;
}

pesc_status start_identify(pesc_trainer *t)
{
    TRY(open_saver(t));
    TRY(open_template(t));
    return compare_processes(t);
}

/* ---- a checkpoint to go on from ---- */

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
    int64_t n = (int64_t)dataset_used(t->data), epoch = (int64_t)s->epoch;
    if (restart)
        s->data_offset = epoch * n - s->step * t->opt.batch;
    log_notice("the data has changed since step %lld (%s): epoch %lld %s", (long long)s->step,
               how ? how : "its hash is another", (long long)epoch + 1,
               restart ? "starts again with the new data" : "continues in the new data");
}

/* The best validation so far is none by another measure than that of the run from now on. */
static pesc_status take_measure(pesc_trainer *t, const char *dir)
{
    checkpoint_state *s = &t->state;
    const char *now = t->opt.metric_for_best_model;
    char was[24] = "", *yaml = NULL, *path = io_join(dir, "run.yaml");
    size_t n;
    pesc_status st = path ? PESC_OK : fail_nomem(dir, 16);
    if (path && io_kind_of(path) == IO_FILE)
        st = io_read_file(path, MAX_YAML, &yaml, &n);
    if (yaml)
        options_value(PESC_OPTIONS_TRAIN, yaml, "metric_for_best_model", was, sizeof was);
    if (was[0] && strcmp(was, now) != 0 && s->best_step) {
        log_notice("metric_for_best_model: was %s and is %s: the best of the validations up to "
                   "step %lld no longer counts",
                   was, now, (long long)s->step);
        s->best_step = s->worse_evals = 0;
    }
    mem_free(path);
    mem_free(yaml);
    return st;
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
    snprintf(t->files.resumed, sizeof t->files.resumed, "%s", name);
    str how = { 0 };
    records_changed(t, &how);
    t->files.saver.data_diff = how.p;
    t->files.saver.allow_other_data = given(t->opt.data_changed);
    pesc_status s = checkpoint_load(&t->files.saver, dir, &t->state);
    t->files.saver.data_diff = NULL;
    if (s == PESC_OK)
        s = take_measure(t, dir);
    mem_free(dir);
    if (s == PESC_OK && t->state.data_changed)
        take_other_data(t, how.p);
    str_free(&how);
    start_length(t); /* the state may have another offset in the data */
    t->files.saved_step = t->length.first_step = t->state.step;
    if (s == PESC_OK && t->state.step > t->length.steps)
        return fail(PESC_USAGE,
                    "%s: is at step %lld, but %lld are asked for; steps and epochs count from the "
                    "beginning of the run",
                    t->opt.output, (long long)t->state.step, (long long)t->length.steps);
    return s;
}

/* What rank 0 does in the directory of the run before the first step. */
static pesc_status begin_logs(pesc_trainer *t)
{
    const pesc_train_options *o = &t->opt;
    const checkpoint_state *s = &t->state;
    TRY(reference_settle(t));
    TRY(records_save(t));
    TRY(rundir_options(o->output, t->files.saver.yaml));
    if (t->files.resumed[0])
        TRY(checkpoint_settle(&t->files.saver, s));
    else
        TRY(rundir_describe(o->output, &t->files.saver.about, t->m->dev->name));
    metrics_lengths keep = { { s->metrics_bytes, s->routing_bytes, s->eval_bytes } };
    return metrics_open(&t->files.log, o->output, &keep);
}

/* The weights that the run begins with, where other ones are asked for than the model's. */
static pesc_status load_start(pesc_trainer *t)
{
    return given(t->opt.init_from) ? load_from(t, t->opt.init_from) : PESC_OK;
}

pesc_status start_run(pesc_trainer *t)
{
    static const char what[] = "the start of the run";
    const pesc_train_options *o = &t->opt;
    bool leads = peers_lead(t->peers);
    pesc_status s = leads ? rundir_begin(t->files.dir) : PESC_OK;
    if (s == PESC_OK && leads)
        s = checkpoint_fits(&t->files.saver);
    TRY(peers_agree(t->peers, what, s));
    TRY(reference_open(t, load_start));
    if (o->resume)
        TRY(peers_agree(t->peers, what, resume(t)));
    if (!t->files.resumed[0] && t->eval_data && o->eval_at_start)
        t->state.eval_due = 1;
    if (!t->files.resumed[0])
        TRY(peers_agree(t->peers, what, load_start(t)));
    return peers_agree(t->peers, what, leads ? begin_logs(t) : PESC_OK);
}
