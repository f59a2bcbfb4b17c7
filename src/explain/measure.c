/* measure: runs of a model on random tokens, timed: prefill, decode, and steps of training. */
#include "backend/memory.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "explain/cost_report.h"
#include "train/optimizer.h"
#include "train/plan.h"
#include "attach/outline.h"

#include <math.h>
#include <string.h>

enum { TIMES = 3 };

typedef struct bench {
    pesc_model *m;
    pesc_cost_run *run; /* the current one */
    uint64_t before;    /* memory in use before the model was opened */
    train_spec spec;
    expertcfg own;
    params *params; /* NULL before the first training step */
    optimizer *optim;
    /* of the current run */
    int32_t n, n_seqs; /* tokens of a sequence; sequences */
    int32_t *ids;      /* [n_seqs, n + 1] */
    token_seq *seqs;
    pass *pass;
    kvcache *kv;
} bench;

/* Random tokens: the routers see as many kinds of input as the vocabulary has. */
static pesc_status make_ids(bench *b)
{
    size_t n = (size_t)b->n_seqs * ((size_t)b->n + 1);
    b->ids = mem_alloc(n, sizeof *b->ids);
    b->seqs = mem_zalloc((size_t)b->n_seqs, sizeof *b->seqs);
    if (!b->ids || !b->seqs)
        return fail_nomem("random tokens", n * sizeof *b->ids);
    rng_key key = { 1, 0 };
    for (size_t i = 0; i < n; i++)
        b->ids[i] = (int32_t)((double)rng_uniform(key, i) * b->m->shape.cfg.vocab);
    for (int32_t i = 0; i < b->n_seqs; i++)
        b->seqs[i] =
            (token_seq){ .ids = b->ids + (size_t)i * ((size_t)b->n + 1), .n = b->n, .kv_seq = i };
    return PESC_OK;
}

static void close_run(bench *b)
{
    pass_close(b->pass);
    kvcache_close(b->kv);
    mem_free(b->ids);
    mem_free(b->seqs);
    b->pass = NULL;
    b->kv = NULL;
    b->ids = NULL;
    b->seqs = NULL;
}

/* What an earlier run or model has freed does not count. */
static uint64_t used_now(device *dev)
{
    mem_trim();
    return memory_used(dev);
}

static void note_memory(bench *b)
{
    uint64_t now = used_now(b->m->dev);
    b->run->bytes = now > b->before ? now - b->before : 0;
}

/* ---- inference ---- */

/* One forward; the last token of each sequence meets the head. */
static pesc_status forward(bench *b, double *seconds)
{
    tensor logits;
    int32_t *rows = mem_alloc((size_t)b->n_seqs, sizeof *rows);
    if (!rows)
        return fail_nomem("rows", (size_t)b->n_seqs * sizeof *rows);
    for (int32_t i = 0, at = 0; i < b->n_seqs; i++)
        rows[i] = (at += b->seqs[i].n) - 1;
    double began = clock_seconds();
    pesc_status s = pass_set(b->pass, b->seqs, b->n_seqs, rows, b->n_seqs);
    if (s == PESC_OK)
        s = model_fwd(b->m, b->pass, &logits);
    *seconds = clock_seconds() - began;
    mem_free(rows);
    return s;
}

/* Fills the cache with n tokens of each sequence, after it was emptied. */
static pesc_status prefill(bench *b, double *seconds)
{
    for (int32_t i = 0; i < b->n_seqs; i++) {
        kvcache_truncate(b->kv, i, 0);
        b->seqs[i].n = b->n;
        b->seqs[i].past = 0;
        b->seqs[i].ids = b->ids + (size_t)i * ((size_t)b->n + 1);
    }
    return forward(b, seconds);
}

static pesc_status decode(bench *b, double *seconds)
{
    for (int32_t i = 0; i < b->n_seqs; i++) {
        kvcache_truncate(b->kv, i, b->n);
        b->seqs[i].n = 1;
        b->seqs[i].past = b->n;
        b->seqs[i].ids = b->ids + (size_t)i * ((size_t)b->n + 1) + b->n;
    }
    return forward(b, seconds);
}

static pesc_status infer(bench *b)
{
    bool decodes = b->run->phase == PESC_COST_DECODE;
    double seconds;
    TRY(kvcache_open(&b->kv, b->m->dev, &b->m->shape.cfg, b->m->shape.act_dt, b->n_seqs, b->n + 1,
                     (int64_t)b->n_seqs * (kvcache_pages_for(b->n + 1) * KV_PAGE_TOKENS)));
    TRY(pass_open(&b->pass, b->m, (pass_limits){ b->n * b->n_seqs, b->n_seqs, b->n_seqs }, b->kv));
    if (decodes)
        TRY(prefill(b, &seconds));
    for (int i = 0; i <= TIMES; i++) {
        TRY(decodes ? decode(b, &seconds) : prefill(b, &seconds));
        if (i > 0 && !(seconds >= b->run->seconds))
            b->run->seconds = seconds;
    }
    note_memory(b);
    cost_counts c = { 0 };
    cost_work w = { decodes ? 1 : b->n, decodes ? b->n : 0, 1 };
    TRY(cost_check(&b->m->shape.cfg, w));
    cost_of_model(&c, &b->m->shape, w);
    b->run->flop = cost_total(&c).inference * (uint64_t)b->n_seqs;
    return PESC_OK;
}

/* ---- training ---- */

static pesc_status open_training(bench *b, const pesc_train_options *o)
{
    optimizer_options a = { .clip = o->clip,
                            .beta1 = o->beta1,
                            .beta2 = o->beta2,
                            .eps = o->eps,
                            .weight_decay = o->weight_decay };
    TRY(params_open(&b->params, b->m, &b->spec));
    return optimizer_open(&b->optim, b->params, &a);
}

typedef struct targets {
    int32_t *rows, *ids;
    float *weights;
    int32_t n;
} targets;

/* Every token predicts the one after it. */
static pesc_status make_targets(const bench *b, targets *t)
{
    t->n = b->n * b->n_seqs;
    t->rows = mem_alloc((size_t)t->n, sizeof *t->rows);
    t->ids = mem_alloc((size_t)t->n, sizeof *t->ids);
    t->weights = mem_alloc((size_t)t->n, sizeof *t->weights);
    if (!t->rows || !t->ids || !t->weights)
        return fail_nomem("targets", (size_t)t->n * sizeof *t->rows);
    for (int32_t i = 0; i < t->n; i++) {
        t->rows[i] = i;
        t->ids[i] = b->seqs[i / b->n].ids[i % b->n + 1];
        t->weights[i] = 1 / (float)t->n;
    }
    return PESC_OK;
}

static pesc_status train_step(bench *b, const train_input *in, int step)
{
    device *dev = b->m->dev;
    train_output got = { 0 };
    double norm, began = clock_seconds();
    params_start_grad(b->params);
    TRY(model_train(b->m, b->pass, in, &got));
    TRY(dev->op->sync(dev));
    double between = clock_seconds();
    TRY(optimizer_norm(b->optim, &norm));
    optimizer_step(b->optim, 0, step + 1); /* at rate 0 the weights stay finite */
    TRY(dev->op->sync(dev));
    double end = clock_seconds();
    if (step > 0 && !(end - began >= b->run->seconds)) {
        b->run->seconds = end - began;
        b->run->update_seconds = end - between;
    }
    return PESC_OK;
}

static pesc_status train_runs(bench *b, const targets *t)
{
    train_input in = { .seqs = b->seqs,
                       .n_seqs = b->n_seqs,
                       .rows = t->rows,
                       .targets = t->ids,
                       .weights = t->weights,
                       .n_targets = t->n,
                       .first_micro_batch = true };
    for (int i = 0; i <= TIMES; i++)
        TRY(train_step(b, &in, i));
    note_memory(b);
    cost_counts c = { 0 };
    cost_work w = { b->n, 0, b->n };
    TRY(cost_check(&b->m->shape.cfg, w));
    params_cost(&c, &b->m->shape, &b->spec, w);
    b->run->flop = (cost_total(&c).forward + cost_total(&c).backward) * (uint64_t)b->n_seqs;
    return PESC_OK;
}

static pesc_status train(bench *b, const pesc_train_options *o)
{
    targets t = { 0 };
    if (!b->params)
        TRY(open_training(b, o));
    plan_pass p = { b->m->dev,
                    &b->m->shape,
                    &b->spec,
                    b->params->mirror.facts.first_layer,
                    { b->n * b->n_seqs, b->n_seqs, b->n * b->n_seqs } };
    keep_counts keep = plan_keep(&p, -1, plan_room(memory_available(b->m->dev)));
    b->run->recomputed = keep.all + 1 < b->m->shape.cfg.n_layers - p.first_layer;
    TRY(plan_check(&p, keep));
    TRY(pass_open_train(&b->pass, b->m, p.lim, &b->params->mirror, keep));
    pesc_status s = make_targets(b, &t);
    if (s == PESC_OK)
        s = train_runs(b, &t);
    mem_free(t.rows);
    mem_free(t.ids);
    mem_free(t.weights);
    return s;
}

/* ---- all runs ---- */

static pesc_status measure(bench *b, const pesc_train_options *o, pesc_cost_run *run)
{
    b->run = run;
    b->n = (int32_t)run->tokens;
    b->n_seqs = (int32_t)run->sequences;
    run->seconds = run->update_seconds = NAN;
    pesc_status s = make_ids(b);
    if (s == PESC_OK)
        s = run->phase == PESC_COST_TRAIN ? train(b, o) : infer(b);
    close_run(b);
    return s == PESC_NOMEM ? PESC_OK : s;
}

/* What the runs open, and how. */
typedef struct source {
    pesc_device *dev;
    const char *path;
    char *root; /* the plain model below a run */
    bool mixture;
    pesc_train_options t;
} source;

/* Inference opens the model as `generate` does: a LoRA is merged where that is the default. A
 * mixture of LoRA is trained from the dense model, and so it is measured. */
static pesc_status open_model(bench *b, const source *from, bool training)
{
    pesc_load_options load = pesc_load_defaults();
    TRY(pesc_train_load(&from->t, &load));
    if (!training) {
        load.merge_lora = true;
        load.whole_experts = false;
    }
    const char *path = training && from->mixture ? from->root : from->path;
    return pesc_model_open(&b->m, from->dev, path, &load);
}

static pesc_status measure_all(bench *b, const source *from, pesc_cost_run *runs, size_t n)
{
    size_t done = 0;
    for (int training = 0; training < 2; training++) { /* a model in training cannot infer */
        for (size_t i = 0; i < n; i++) {
            if ((runs[i].phase == PESC_COST_TRAIN) != training)
                continue;
            log_progress("measuring", done++, n);
            if (!b->m)
                TRY(open_model(b, from, training));
            TRY(measure(b, &from->t, &runs[i]));
        }
        if (!training) {
            pesc_model_close(b->m);
            b->m = NULL;
        }
    }
    log_progress("measuring", n, n);
    return PESC_OK;
}

static pesc_status check_runs(const pesc_cost_run *runs, size_t n)
{
    enum { MOST = 1 << 24 };
    for (size_t i = 0; i < n; i++) {
        const pesc_cost_run *r = &runs[i];
        bool phase = r->phase >= PESC_COST_PREFILL && r->phase <= PESC_COST_TRAIN;
        if (!phase || r->tokens < 1 || r->sequences < 1 || r->tokens > MOST ||
            r->sequences > MOST / r->tokens)
            return fail(PESC_USAGE,
                        "run %zu: found phase %d, %lld tokens and %lld sequences, expected a phase "
                        "and at most %d tokens in all",
                        i, (int)r->phase, (long long)r->tokens, (long long)r->sequences, MOST);
    }
    return PESC_OK;
}

/* Reads the configuration: which method trains, and from which model. */
static pesc_status look(source *from, bench *b, const pesc_cost_options *o)
{
    outline shape = { 0 };
    const config *c = &shape.shape.cfg;
    pesc_status s = outline_open(&shape, from->dev, from->path, o->base);
    if (s == PESC_OK)
        s = cost_settings(&from->t, o, c->moe.kind);
    if (s == PESC_OK)
        s = cost_spec(&b->spec, &b->own, &from->t, c);
    if (s == PESC_OK) {
        from->mixture = c->moe.kind == EXPERT_LORA && b->spec.molora_experts;
        from->root = mem_strdup(shape.dir->root);
        s = from->root ? PESC_OK : fail_nomem("the path of a model", strlen(from->path));
    }
    outline_close(&shape);
    return s;
}

pesc_status pesc_cost_measure(pesc_device *dev, const char *path, const pesc_cost_options *opt,
                              pesc_cost_run *runs, size_t n)
{
    status_clear();
    NEED(dev);
    NEED(path);
    NEED_ARRAY(runs, n);
    DEVICE_CALL(dev);
    pesc_cost_options o;
    TRY(options_take(PESC_OPTIONS_COST, &o, opt));
    TRY(check_runs(runs, n));
    bench b = { .before = used_now(dev) };
    source from = { .dev = dev, .path = path };
    pesc_status s = look(&from, &b, &o);
    if (s == PESC_OK)
        s = measure_all(&b, &from, runs, n);
    optimizer_close(b.optim);
    params_close(b.params);
    expertcfg_free(&b.own);
    pesc_model_close(b.m);
    mem_free(from.root);
    return s;
}
