/* The steps of a run: data, gradients, the update, and what is due after it. */
#include "base/args.h"
#include "train/domains.h"
#include "train/trainer.h"

#include "backend/memory.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/rundir.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BAD_STEPS = 3 }; /* consecutive skipped steps that end the run */

static bool stop_asked(const pesc_trainer *t)
{
    return t->opt.stop && *t->opt.stop;
}

/* Whether the validation loss has stopped falling. */
static bool out_of_patience(const pesc_trainer *t)
{
    return t->opt.patience && t->state.worse_evals >= t->opt.patience;
}

/* Whether the last step was made. */
static bool is_finished(const pesc_trainer *t)
{
    return t->state.step >= t->length.steps || out_of_patience(t);
}

bool pesc_trainer_done(const pesc_trainer *t)
{
    return !t || (is_finished(t) && !t->state.eval_due && t->files.saved_step >= t->state.step);
}

/* The current step is the run's last. */
static bool is_last(const pesc_trainer *t)
{
    return t->state.step + 1 >= t->length.steps;
}

/* The losses by domain; none where all domains train the same. */
static metrics_domains domains_of(const pesc_trainer *t)
{
    return (metrics_domains){ t->domains, t->own.n_domains };
}

/* ---- gradients ---- */

static train_input input_of(const micro_batch *b)
{
    return (train_input){ .seqs = b->seqs,
                          .n_seqs = b->n_seqs,
                          .rows = b->rows,
                          .targets = b->targets,
                          .weights = b->weights,
                          .n_targets = b->n_targets };
}

/* Records of the batch that begins at `first` of `n`. */
static int32_t batch_at(const pesc_trainer *t, uint64_t first, uint64_t n)
{
    uint64_t left = n > first ? n - first : 0, most = (uint64_t)t->opt.batch;
    return (int32_t)(left < most ? left : most);
}

/* How many records a step has, and which is its first. */
static int32_t records_of(const pesc_trainer *t, int64_t step, uint64_t *first)
{
    *first = (uint64_t)(step * t->opt.batch + t->state.data_offset);
    return batch_at(t, *first, t->length.records);
}

/* Reads the records of the next step, while the device computes this one. */
static void read_ahead(void *trainer)
{
    pesc_trainer *t = trainer;
    uint64_t first;
    int32_t count = records_of(t, t->state.step + 1, &first);
    if (t->state.step + 1 < t->length.steps && count > 0)
        batch_read_ahead(t->batch, first, count);
}

/* The weight of the mean over layers of the balance loss. */
static double balance_weight(const pesc_trainer *t)
{
    bool sum = strcmp(t->opt.aux_reduction, "sum") == 0;
    return t->opt.aux_coef * (sum ? t->totals.layers : 1);
}

/* ---- preferences ---- */

static bool learns_preferences(const pesc_trainer *t)
{
    return t->objective.rule.kind != PREFERENCE_NONE;
}

/* The micro-batch that objective_measure() is to look at. */
static void look_at(pesc_trainer *t, const batch *b, const micro_batch *m)
{
    objective *o = &t->objective;
    o->batch = b;
    o->ref = b == t->batch ? &t->reference : &t->eval_reference;
    o->micro = *m;
    o->sums = (preference_sums){ 0 };
}

static void weigh(void *trainer, const float *losses)
{
    objective_measure(&((pesc_trainer *)trainer)->objective, losses, true);
}

/* kto: how far the model has moved, by the mean log-ratio of mismatched answers. */
static pesc_status estimate_kl(pesc_trainer *t, batch *b)
{
    int32_t micros = batch_mismatched_micros(b);
    batch_counts n = batch_count(b);
    gradient_time time;
    micro_range own;
    double sum = 0;
    t->objective.kl = 0;
    if (!micros)
        return PESC_OK;
    TRY(totals_begin(&t->totals, micros));
    TRY(gradient_begin(t->gradient, micros, false, &own));
    for (int32_t i = own.first; i < own.end; i += own.step) {
        const micro_batch m = batch_mismatched(b, i);
        const train_input in = input_of(&m);
        train_output got = { 0 };
        look_at(t, b, &m);
        TRY(model_loss(t->m, t->pass, &in, &got));
        t->objective.sums.moved = objective_moved(&t->objective, got.losses);
        totals_put(&t->totals, i, &got, &t->objective.sums);
    }
    TRY(gradient_finish(t->gradient, &t->totals.records, &time));
    for (int32_t i = 0; i < micros; i++)
        sum += totals_preferences(&t->totals, i)->moved;
    t->objective.kl = fmax(0, sum / (double)(n.chosen + n.rejected));
    return PESC_OK;
}

/* ---- the gradient of a step ---- */

static void layer_done(void *trainer, int32_t layer)
{
    gradient_layer_done(((pesc_trainer *)trainer)->gradient, layer);
}

/* f of all tokens of the step, by a forward of each micro-batch with the dropout that its gradient
 * will have; *out is NULL where the micro-batches are to take their own. */
static pesc_status step_shares(pesc_trainer *t, const float **out)
{
    const int32_t micros = batch_micros(t->batch);
    const bool wanted = strcmp(t->opt.aux_over, "step") == 0 && balance_weight(t) > 0;
    gradient_time time;
    micro_range own;
    *out = NULL;
    if (!wanted || micros < 2)
        return PESC_OK;
    TRY(totals_begin(&t->totals, micros));
    TRY(gradient_begin(t->gradient, micros, false, &own));
    for (int32_t i = own.first; i < own.end; i += own.step) {
        const micro_batch b = batch_micro(t->batch, i);
        const preference_sums none = { 0 };
        train_input in = input_of(&b);
        train_output got = { 0 };
        in.step = (uint64_t)t->state.step;
        in.micro = (uint64_t)i;
        TRY(model_choose(t->m, t->pass, &in, &got));
        totals_put(&t->totals, i, &got, &none);
    }
    TRY(gradient_finish(t->gradient, &t->totals.records, &time));
    totals_add(&t->totals, t->batch);
    *out = t->totals.shares;
    return PESC_OK;
}

/* The loss of the step and its gradients. By default the balance loss is differentiated for each
 * micro-batch with its own f, weighted by its tokens: f of the whole step is known only after the
 * last one. */
static pesc_status gradients(pesc_trainer *t, pesc_step *out)
{
    double tokens = (double)batch_tokens(t->batch);
    int32_t micros = batch_micros(t->batch);
    gradient_time time;
    micro_range own;
    const float *shares;
    TRY(estimate_kl(t, t->batch));
    TRY(step_shares(t, &shares));
    TRY(totals_begin(&t->totals, micros));
    TRY(gradient_begin(t->gradient, micros, true, &own));
    for (int32_t i = own.first; i < own.end; i += own.step) {
        const micro_batch b = batch_micro(t->batch, i);
        train_input in = input_of(&b);
        train_output got = { 0 };
        TRY(gradient_start(t->gradient, i, &in.first_micro_batch));
        in.aux_weight = (float)(balance_weight(t) * ((double)b.n_tokens / tokens));
        in.z_weight = (float)(t->opt.router_z_coef * ((double)b.n_tokens / tokens));
        in.domain = domains_bit(&b);
        in.shares = shares;
        in.step = (uint64_t)t->state.step;
        in.micro = (uint64_t)i;
        in.layer_done = layer_done;
        in.meanwhile = i + own.step >= own.end ? read_ahead : NULL;
        in.ctx = t;
        in.weigh = learns_preferences(t) ? weigh : NULL;
        look_at(t, t->batch, &b);
        TRY(model_train(t->m, t->pass, &in, &got));
        gradient_layer_done(t->gradient, -1);
        totals_put(&t->totals, i, &got, &t->objective.sums);
    }
    TRY(gradient_finish(t->gradient, &t->totals.records, &time));
    totals_add(&t->totals, t->batch);
    domains_clear(t->domains, &t->own);
    domains_add(t->domains, &t->totals, t->batch);
    out->comm_seconds = time.seconds;
    out->comm_hidden = time.hidden;
    out->ce = t->totals.ce;
    if (learns_preferences(t))
        out->ce = objective_value(&t->objective, &t->totals.preferences, &out->preference);
    out->aux = totals_aux(&t->totals);
    out->loss = out->ce + balance_weight(t) * out->aux + t->opt.router_z_coef * t->totals.z;
    return optimizer_norm(t->optim, &out->grad_norm);
}

/* Computes every verify_every-th step twice. All sums have a fixed order, so a different result is
 * silent data corruption, which must not reach a checkpoint. */
static pesc_status verify(pesc_trainer *t, const pesc_step *first)
{
    pesc_step again = { 0 };
    int64_t step = t->state.step + 1;
    if (!t->opt.verify_every || step % t->opt.verify_every)
        return PESC_OK;
    TRY(gradients(t, &again));
    if (again.loss == first->loss && again.grad_norm == first->grad_norm)
        return PESC_OK;
    return fail(
        PESC_NUMERIC,
        "step %lld: computed twice, the loss is %.9g and %.9g, the gradient's norm %.9g and "
        "%.9g; the same was expected, so memory or a core of this machine is damaged (the "
        "newest checkpoint is from step %lld)",
        (long long)step, first->loss, again.loss, first->grad_norm, again.grad_norm,
        (long long)save_newest(t));
}

/* ---- the update ---- */

static pesc_status refuse_step(pesc_trainer *t, pesc_step *out)
{
    checkpoint_state *s = &t->state;
    out->skipped = true;
    s->skipped++;
    s->bad_in_row++;
    log_notice("step %lld: the loss or its gradient is not finite; the step is not applied (%lld "
               "so far)",
               (long long)(s->step + 1), (long long)s->skipped);
    if (s->bad_in_row < BAD_STEPS && !(is_last(t) && s->applied == 0))
        return PESC_OK;
    return fail(PESC_NUMERIC,
                "step %lld: the loss or its gradient was not finite %lld times in a row; a smaller "
                "lr may help, or the data of these steps (the newest checkpoint is from step %lld)",
                (long long)(s->step + 1), (long long)s->bad_in_row, (long long)save_newest(t));
}

static pesc_status update(pesc_trainer *t, pesc_step *out)
{
    if (!t->totals.finite || !isfinite(out->loss) || !isfinite(out->grad_norm))
        return refuse_step(t, out);
    TRY(verify(t, out));
    t->state.bad_in_row = 0;
    TRY(router_bias_read(&t->router_bias, t->m));
    TRY(optimizer_step(t->optim, out->lr, ++t->state.applied));
    return router_bias_move(&t->router_bias, t->params, &t->totals, t->opt.bias_rate);
}

static void measure(pesc_trainer *t, pesc_step *out)
{
    double seconds = out->step_seconds;
    t->speed.step = t->speed.step > 0 ? 0.9 * t->speed.step + 0.1 * seconds : seconds;
    out->tok_s = (double)batch_tokens(t->batch) / (seconds > 0 ? seconds : 1e-9);
    out->utilisation = out->tok_s * t->speed.token_flops / (t->speed.peak_flops + 1);
    double beside = t->speed.beside / (double)(t->state.step - t->length.first_step);
    out->seconds_left = (t->speed.step + beside) * (double)(t->length.steps - t->state.step);
    out->mem_bytes = t->bytes.total;
    out->mem_total = memory_total(t->m->dev);
}

/* The step is over. The last of all epochs may have fewer records: a run that is made longer goes
 * on with the one after them. */
static void advance(pesc_trainer *t)
{
    checkpoint_state *s = &t->state;
    uint64_t first;
    s->data_offset -= t->opt.batch - records_of(t, s->step, &first);
    s->step++;
    s->tokens += batch_tokens(t->batch);
}

static pesc_status train_one(pesc_trainer *t, pesc_step *out)
{
    checkpoint_state *s = &t->state;
    double began = clock_seconds();
    uint64_t first;
    out->lr =
        schedule_lr(t->length.schedule, t->opt.lr, s->step, t->length.warmup, t->length.steps);
    int32_t count = records_of(t, s->step, &first);
    TRY(batch_load(t->batch, first, count));
    s->epoch = (double)(first + (uint64_t)count) / (double)dataset_used(t->data);
    TRY(gradients(t, out));
    pesc_status st = update(t, out);
    advance(t);
    out->step = s->step;
    out->epoch = s->epoch;
    out->tokens = s->tokens;
    out->step_seconds = clock_seconds() - began;
    measure(t, out);
    metrics_shares shares = totals_shares(&t->totals);
    metrics_balance(&shares, &out->expert_entropy, &out->dead_experts);
    int32_t worst;
    out->worst_entropy = watch_worst(&shares, &worst);
    out->worst_layer = shares.layers ? t->totals.sparse[worst] : 0;
    if (!out->skipped)
        watch_step(&t->watch, &shares, out->aux, t->opt.aux_coef);
    metrics_step(t->files.log, out, domains_of(t));
    if (t->opt.log_every && (s->step % t->opt.log_every == 0 || s->step == t->length.steps))
        metrics_routing(t->files.log, s->step, &shares);
    return st;
}

/* ---- validation ---- */

static void read_validation_ahead(void *trainer)
{
    pesc_trainer *t = trainer;
    int32_t count = batch_at(t, t->eval_next, dataset_used(t->eval_data));
    if (count)
        batch_read_ahead(t->eval_batch, t->eval_next, count);
}

/* What validation adds up: losses of targets, or of preferences. */
typedef struct validation {
    double sum;
    int64_t targets;
    preference_sums preferences;
} validation;

/* The losses of the micro-batches of eval_batch, divided among the processes as in training. */
static pesc_status validate_batch(pesc_trainer *t, validation *v)
{
    int32_t micros = batch_micros(t->eval_batch);
    micro_range own;
    gradient_time time;
    TRY(estimate_kl(t, t->eval_batch));
    TRY(totals_begin(&t->totals, micros));
    TRY(gradient_begin(t->gradient, micros, false, &own));
    for (int32_t i = own.first; i < own.end; i += own.step) {
        const micro_batch b = batch_micro(t->eval_batch, i);
        train_input in = input_of(&b);
        train_output got = { 0 };
        in.meanwhile = i + own.step >= own.end ? read_validation_ahead : NULL;
        in.ctx = t;
        if (!t->peers && stop_asked(t)) /* several processes agree on it after the batch */
            return PESC_STOPPED;
        look_at(t, t->eval_batch, &b);
        TRY(model_loss(t->m, t->pass, &in, &got));
        if (learns_preferences(t))
            objective_measure(&t->objective, got.losses, false);
        totals_put(&t->totals, i, &got, &t->objective.sums);
    }
    TRY(gradient_finish(t->gradient, &t->totals.records, &time));
    for (int32_t i = 0; i < micros; i++) {
        v->sum += totals_loss(&t->totals, i) * (double)batch_targets(t->eval_batch);
        preference_sums_add(&v->preferences, totals_preferences(&t->totals, i));
    }
    v->targets += batch_targets(t->eval_batch);
    domains_add(t->domains, &t->totals, t->eval_batch);
    return PESC_OK;
}

/* Mean loss of a target, or of preferences, over all validation data; PESC_STOPPED when asked to
 * stop meanwhile. */
static pesc_status validate(pesc_trainer *t, pesc_step *out, int64_t *targets)
{
    uint64_t n = dataset_used(t->eval_data);
    validation v = { 0 };
    domains_clear(t->domains, &t->own);
    for (uint64_t first = 0; first < n; first += (uint64_t)t->opt.batch) {
        int64_t stop = stop_asked(t);
        TRY(peers_most(t->peers, "validation", &stop));
        if (stop)
            return PESC_STOPPED;
        t->eval_next = first + (uint64_t)t->opt.batch;
        TRY(batch_load(t->eval_batch, first, batch_at(t, first, n)));
        TRY(validate_batch(t, &v));
        log_progress("validation", first, n);
    }
    log_progress("validation", n, n);
    *targets = v.targets;
    out->eval_loss = NAN;
    if (v.targets && learns_preferences(t))
        out->eval_loss = objective_value(&t->objective, &v.preferences, &out->eval_preference);
    else if (v.targets)
        out->eval_loss = v.sum / (double)v.targets;
    return PESC_OK;
}

/* The losses of a validation by domain, where experts train by domain. */
static void tell_domains(const pesc_trainer *t)
{
    str line = { 0 };
    for (size_t i = 0; i < t->own.n_domains; i++) {
        const metrics_domain *d = &t->domains[i];
        if (d->targets)
            str_printf(&line, "%s%s %.4f", line.n ? ", " : "", d->name, d->sum / d->weight);
    }
    if (line.n && str_ok(&line))
        log_notice("step %lld: validation loss by domain: %s", (long long)t->state.step, line.p);
    str_free(&line);
}

/* Whether a validation is the best so far, by the measure that was chosen. */
static bool is_best(const pesc_trainer *t, double value)
{
    const checkpoint_state *s = &t->state;
    bool lower = metrics_lower_is_better(t->opt.metric_for_best_model);
    return isfinite(value) && s->step > 0 && /* before the first step there is nothing to save */
           (!s->best_step || (lower ? value < s->best_loss : value > s->best_loss));
}

static pesc_status evaluate(pesc_trainer *t, pesc_step *out, bool *best)
{
    checkpoint_state *s = &t->state;
    int64_t targets = 0;
    s->eval_due = 1;
    pesc_status st = validate(t, out, &targets);
    if (st == PESC_STOPPED)
        return PESC_OK; /* the next step, or the resumed run, validates first */
    TRY(st);
    s->eval_due = 0;
    metrics_eval(t->files.log, out, targets, domains_of(t));
    tell_domains(t);
    if (!targets)
        log_notice(
            "step %lld: no record of eval_data has an answer within seq_len %lld: there is no "
            "validation loss",
            (long long)s->step, (long long)t->opt.seq_len);
    const char *name = t->opt.metric_for_best_model;
    double value = metrics_eval_value(name, out);
    *best = is_best(t, value);
    s->worse_evals = *best || s->step == 0 ? 0 : s->worse_evals + 1;
    if (*best) {
        s->best_loss = value;
        s->best_step = s->step;
    }
    if (out_of_patience(t) && s->step < t->length.steps)
        log_notice("step %lld: the validation %s has not %s for %lld validations: the run "
                   "ends here; its %s was %.4f at step %lld",
                   (long long)s->step, name, metrics_lower_is_better(name) ? "fallen" : "risen",
                   (long long)s->worse_evals, metrics_lower_is_better(name) ? "lowest" : "highest",
                   s->best_loss, (long long)s->best_step);
    return PESC_OK;
}

/* ---- one step ---- */

/* What the user asks for meanwhile; a stop saves too. */
typedef enum request { REQUEST_NONE, REQUEST_SAVE, REQUEST_STOP } request;

/* A signal may reach any process; rank 0 looks for the files. */
static pesc_status find_request(const pesc_trainer *t, request *out)
{
    const char *run = t->opt.output;
    bool save = peers_lead(t->peers) && rundir_asked(run, "SAVE");
    bool stop = (peers_lead(t->peers) && rundir_asked(run, "STOP")) || stop_asked(t);
    int64_t asked = stop ? REQUEST_STOP : save ? REQUEST_SAVE : REQUEST_NONE;
    TRY(peers_most(t->peers, "the end of a step", &asked));
    *out = (request)asked;
    return PESC_OK;
}

static pesc_status step(pesc_trainer *t, pesc_step *out)
{
    const pesc_train_options *o = &t->opt;
    checkpoint_state *s = &t->state;
    bool best = false, pending = s->eval_due;
    if (!pending && !is_finished(t))
        TRY(train_one(t, out));
    out->step = s->step;
    bool last = s->step >= t->length.steps;
    bool eval = t->eval_data && (last || (o->eval_every && s->step % o->eval_every == 0));
    double began = clock_seconds();
    if (pending || eval)
        TRY(evaluate(t, out, &best));
    out->eval_seconds = clock_seconds() - began;
    request asked = REQUEST_NONE;
    TRY(find_request(t, &asked));
    bool stop = asked == REQUEST_STOP;
    bool must = stop || (is_finished(t) && !s->eval_due); /* a failure ends the run */
    bool save = must || best || asked == REQUEST_SAVE ||
                (s->step && o->save_every && s->step % o->save_every == 0);
    out->saved = save_settle(t, save);
    if (save) {
        bool saved = false;
        pesc_status st = save_step(t, must, &saved);
        out->saved = out->saved || saved;
        if (st != PESC_OK && must)
            return st;
        if (st != PESC_OK)
            log_notice("step %lld: could not be saved: %s; the run goes on and tries again",
                       (long long)s->step, pesc_last_error());
    }
    double beside = clock_seconds() - began;
    out->save_seconds = beside - out->eval_seconds;
    t->speed.beside += beside;
    return stop && !pesc_trainer_done(t) ? PESC_STOPPED : PESC_OK;
}

pesc_status pesc_trainer_step(pesc_trainer *t, pesc_step *out)
{
    status_clear();
    NEED(t);
    NEED_SIZED(out);
    DEVICE_CALL(t->m->dev);
    pesc_step r = { .steps = t->length.steps, .expert_entropy = NAN, .eval_loss = NAN };
    pesc_status s = step(t, &r);
    ARGS_WRITE(out, &r);
    return s;
}
