/* cmd_train: runs the steps of a training run, and handles signals. */
#include "cli/command.h"
#include "cli/opt/open.h"
#include "cli/opt/processes.h"
#include "cli/show/progress.h"
#include "cli/opt/tune.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- signals: the first saves and stops, the second ends at once ---- */

static volatile int stop;

static void on_signal(int sig)
{
    static const char text[] = "\npesc: stopping: this step is finished and saved first; the same "
                               "signal again ends at once\n";
    if (stop)
        _exit(128 + sig);
    stop = sig;
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1); /* a step may take minutes */
    (void)ignored;
}

static void catch_signals(void)
{
    static const int asking[] = { SIGTERM, SIGINT, SIGUSR1 };
    struct sigaction sa = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof asking / sizeof *asking; i++)
        sigaction(asking[i], &sa, NULL);
    /* closing the terminal, or the reader of our output, does not end a run */
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

/* ---- the step line ---- */

static const char *count_text(char *out, size_t cap, double v)
{
    const char *unit = v >= 1e6 ? "M" : v >= 1e3 ? "k" : "";
    snprintf(out, cap, "%.1f%s", v >= 1e6 ? v / 1e6 : v >= 1e3 ? v / 1e3 : v, unit);
    return out;
}

static const char *time_text(char *out, size_t cap, double seconds)
{
    long s = seconds > 0 && seconds < 1e9 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600)
        snprintf(out, cap, "%ldh%02ldm", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(out, cap, "%ldm%02lds", s / 60, s % 60);
    else
        snprintf(out, cap, "%lds", s);
    return out;
}

/* " | reward +0.31 -0.12 acc 71%", of a run on preferences. */
static void preference_text(char *out, size_t cap, const pesc_preference *p)
{
    size_t n = 0;
    *out = '\0';
    if (p->answers)
        n = (size_t)snprintf(out, cap, " | rewards chosen %+.3f rejected %+.3f margin %+.3f",
                             p->reward_chosen, p->reward_rejected, p->margin);
    if (p->answers && !isnan(p->accuracy) && n < cap)
        snprintf(out + n, cap - n, " accuracy %.0f%%", 100 * p->accuracy);
    else if (p->answers && !isnan(p->kl) && n < cap)
        snprintf(out + n, cap - n, " kl %.3f", p->kl);
}

static void print_step(const pesc_step *s)
{
    char speed[32], eta[32], experts[96] = "", preference[160];
    double gib = 1024.0 * 1024 * 1024;
    if (!isnan(s->expert_entropy))
        snprintf(experts, sizeof experts, " | experts H=%.2f (layer %lld: %.2f) dead %lld",
                 s->expert_entropy, (long long)s->worst_layer, s->worst_entropy,
                 (long long)s->dead_experts);
    preference_text(preference, sizeof preference, &s->preference);
    progress_clear();
    fprintf(stderr,
            "step %lld/%lld | loss %.4f (ce %.4f aux %.4f)%s | gn %.2f | lr %.1e | %s tok/s "
            "%.0f%%%s | %.1f/%.0f GiB | eta %s\n",
            (long long)s->step, (long long)s->steps, s->loss, s->ce, s->loss - s->ce, preference,
            s->grad_norm, s->lr, count_text(speed, sizeof speed, s->tok_s), 100 * s->utilisation,
            experts, (double)s->mem_bytes / gib, (double)s->mem_total / gib,
            time_text(eta, sizeof eta, s->seconds_left));
}

static void show(const options *o, const pesc_train_options *p, const pesc_step *s)
{
    bool due = p->log_every && (s->step % p->log_every == 0 || s->step == 1 || s->step == s->steps);
    if (o->quiet)
        return;
    if (due && s->tok_s > 0)
        print_step(s);
    if (!isnan(s->eval_loss)) {
        char preference[160];
        preference_text(preference, sizeof preference, &s->eval_preference);
        progress_clear();
        fprintf(stderr, "step %lld/%lld | eval loss %.4f%s\n", (long long)s->step,
                (long long)s->steps, s->eval_loss, preference);
    }
    if (isatty(STDERR_FILENO))
        progress_show_left("training", (uint64_t)s->step, (uint64_t)s->steps, s->seconds_left);
}

/* ---- the run ---- */

/* A rate above this is more likely a slip of the hand than a choice. */
static const double high_lr = 0.1;

static void announce(const options *o, const pesc_train_options *p, const pesc_train_info *i)
{
    out_number trained, total, model, train, acts, paged, shard, base, host;
    if (o->quiet)
        return;
    progress_clear();
    if (p->lr > high_lr)
        fprintf(stderr,
                "pesc: note: lr: %g is far above what AdamW learns with; 1e-5 to 1e-2 are usual\n",
                p->lr);
    fprintf(stderr, "%s: %s parameters train, the model has %s; %llu records, %lld steps\n",
            i->method, out_count(trained, i->params_trained), out_count(total, i->params_total),
            (unsigned long long)i->records, (long long)i->steps);
    if (i->routers[0])
        fprintf(stderr, "routers: %s\n", i->routers);
    fprintf(stderr,
            "memory: model %s, training %s, activations %s (%lld tokens, %lld layers kept)\n",
            out_bytes(model, i->bytes_model), out_bytes(train, i->bytes_trained),
            out_bytes(acts, i->bytes_activations), (long long)i->micro_tokens,
            (long long)i->kept_layers);
    if (i->bytes_paged)
        fprintf(stderr, "the optimiser's moments, %s, are in host memory: the device has no room\n",
                out_bytes(paged, i->bytes_paged));
    if (i->bytes_sharded)
        fprintf(stderr, "sharded base: this process keeps %s of %s\n",
                out_bytes(shard, i->bytes_shard), out_bytes(base, i->bytes_sharded));
    if (i->bytes_streamed)
        fprintf(stderr, "the matrices of the layers, %s, are in host memory\n",
                out_bytes(host, i->bytes_streamed));
    if (i->checkpoint[0])
        fprintf(stderr, "resumed from %s\n", i->checkpoint);
}

/* Where the time of the command went, in seconds. */
typedef enum run_part { START, STEPS, VALIDATION, CHECKPOINTS, PLOTS, RUN_PARTS } run_part;
typedef struct run_time {
    double began; /* progress_clock() */
    double part[RUN_PARTS];
} run_time;

static const char *const part_names[RUN_PARTS] = { "start", "steps", "validation", "checkpoints",
                                                   "plots" };

static void add_times(run_time *all, const pesc_step *s)
{
    all->part[STEPS] += s->step_seconds;
    all->part[VALIDATION] += s->eval_seconds;
    all->part[CHECKPOINTS] += s->save_seconds;
}

static void report_time(const options *o, const run_time *r)
{
    double all = progress_clock() - r->began;
    if (o->json) {
        out_measure("share_in_steps", r->part[STEPS] / all);
        out_begin("seconds", '{');
        out_measure("total", all);
        for (int i = 0; i < RUN_PARTS; i++)
            out_measure(part_names[i], r->part[i]);
        out_end();
    } else if (!o->quiet) {
        fprintf(stderr, "time: %.1f s, %.0f %% of it in steps", all, 100 * r->part[STEPS] / all);
        for (int i = 0; i < RUN_PARTS; i++)
            if (i != STEPS)
                fprintf(stderr, "%s %s %.1f s", i ? "," : ";", part_names[i], r->part[i]);
        putc('\n', stderr);
    }
}

static void report(const options *o, const pesc_train_info *i, const pesc_step *s,
                   const run_time *time, bool stopped)
{
    pesc_run_info run = PESC_INIT(pesc_run_info);
    run.best_eval_loss = run.best_metric = NAN;
    (void)pesc_run_describe(o->train.output, NULL, &run); /* nothing is said if it cannot be read */
    if (o->json) {
        out_begin(NULL, '{');
        out_fields("output=%s method=%s step=%ld steps=%ld tokens=%ld loss=%g eval_loss=%g "
                   "best_eval_loss=%g metric_for_best_model=%s best_metric=%g best_step=%ld "
                   "params_trained=%ld params_total=%ld mem_bytes=%ld tokens_per_second=%.6g",
                   o->train.output, i->method, s->step, i->steps, s->tokens, s->loss, s->eval_loss,
                   run.best_eval_loss, run.metric_for_best_model, run.best_metric, run.best_step,
                   i->params_trained, i->params_total, s->mem_bytes, s->tok_s);
        report_time(o, time);
        out_bool("stopped", stopped);
        out_end();
    } else {
        report_time(o, time);
        printf("%s: %s at step %lld of %lld", o->train.output, stopped ? "stopped" : "done",
               (long long)s->step, (long long)i->steps);
        if (!isnan(s->loss)) /* a resumed run that was complete has none */
            printf(", loss %.4f", s->loss);
        putchar('\n');
        if (run.best_step && run.best_step != s->step && !o->quiet)
            fprintf(stderr,
                    "the best validation %s is that of step %lld, %.4f: %s/best, or --checkpoint "
                    "best, opens it; %s opens the last step\n",
                    run.metric_for_best_model, (long long)run.best_step, run.best_metric,
                    o->train.output, o->train.output);
    }
}

/* What the gradients of all steps took between processes. */
typedef struct comm_time {
    double seconds, hidden;
} comm_time;

static void report_comm(const options *o, comm_time c)
{
    if (o->quiet || c.seconds <= 0)
        return;
    fprintf(stderr, "exchange of gradients: %.2f s, of which %.0f %% during backward\n", c.seconds,
            100 * c.hidden / c.seconds);
}

/* Draws the plots at the end, and at checkpoints at least SECONDS apart, because drawing takes
 * about 50 ms. A failure to draw is reported as a note and does not end the run. */
static void draw(const options *o, run_time *time, bool end)
{
    enum { SECONDS = 10 };
    static double last;
    static bool noted;
    double now = progress_clock();
    if (!end && now - last < SECONDS)
        return;
    last = now;
    pesc_status s = pesc_plot_run(o->train.output);
    time->part[PLOTS] += progress_clock() - now;
    if (s == PESC_OK || noted || o->quiet)
        return;
    noted = true;
    progress_clear();
    fprintf(stderr, "pesc: note: no plots: %s\n", pesc_last_error());
}

/* Of several processes, the one that leads prints and draws. */
static pesc_status run_training(const options *o, pesc_trainer *t, const pesc_train_options *p,
                                run_time *time, bool leads)
{
    pesc_train_info info = PESC_INIT(pesc_train_info);
    pesc_step s = { .size = sizeof s, .loss = NAN, .eval_loss = NAN };
    pesc_status st = PESC_OK;
    double eval = NAN;
    comm_time all = { 0 };
    pesc_trainer_describe(t, &info);
    announce(o, p, &info);
    s.step = (int64_t)info.first_step;
    time->part[START] = progress_clock() - time->began;
    while (st == PESC_OK && !pesc_trainer_done(t)) {
        st = pesc_trainer_step(t, &s);
        if (st == PESC_OK || st == PESC_STOPPED)
            show(o, p, &s);
        add_times(time, &s);
        all.seconds += s.comm_seconds;
        all.hidden += s.comm_seconds * s.comm_hidden;
        if (s.saved && leads)
            draw(o, time, st == PESC_STOPPED || pesc_trainer_done(t));
        eval = isnan(s.eval_loss) ? eval : s.eval_loss;
    }
    progress_clear();
    s.eval_loss = eval;
    report_comm(o, all);
    if ((st == PESC_OK || st == PESC_STOPPED) && leads)
        report(o, &info, &s, time, st == PESC_STOPPED);
    return st == PESC_STOPPED
               ? out_fail(st, "%s: stopped after saving step %lld; --resume continues",
                          o->train.output, (long long)s.step)
               : st;
}

static pesc_status train(const options *o, pesc_comm *all)
{
    open_model m = { 0 };
    run_time time = { .began = progress_clock() };
    pesc_trainer *t = NULL;
    pesc_train_options p;
    TRY(tune_options(o, &p));
    p.stop = &stop;
    catch_signals();
    pesc_status st = open_for_training(&m, o, &p, all);
    if (st == PESC_OK)
        st = tune_check_experts(o, &m.info);
    if (st == PESC_OK)
        st = pesc_trainer_open(&t, m.model, &p);
    if (st == PESC_OK)
        st = run_training(o, t, &p, &time, pesc_comm_rank(all) == 0);
    pesc_trainer_close(t);
    open_free(&m);
    return st;
}

/* Whether each of the processes that share a CPU finds the memory of the plan in its part. What
 * cannot be planned is left to the run. */
static pesc_status fits_parts(const options *o)
{
    pesc_train_options p;
    pesc_plan_report r = PESC_INIT(pesc_plan_report);
    pesc_device *dev = NULL;
    out_number need, part;
    if (strcmp(o->device, "cpu") != 0)
        return PESC_OK;
    TRY(tune_options(o, &p));
    p.processes = p.local_processes = o->gpus;
    TRY(open_device(&dev, o));
    pesc_status st = pesc_plan(dev, o->model, &p, &r);
    pesc_device_close(dev);
    if (st != PESC_OK || r.fits)
        return PESC_OK;
    return out_fail(PESC_NOMEM,
                    "train: --gpus %lld: each process needs %s, but its part of this machine's "
                    "memory is %s; start fewer, or make seq_len or micro_tokens smaller",
                    (long long)o->gpus, out_bytes(need, r.total), out_bytes(part, r.available));
}

pesc_status cmd_train(const options *o)
{
    options own = *o; /* a rank has its own device */
    pesc_comm *all = NULL;
    pesc_train_options p;
    TRY(tune_options(o, &p));
    if (!o->train.output)
        return opt_missing(o, "-o RUN");
    if (!o->train.n_data)
        return opt_missing(o, "--data FILE");
    TRY(processes_start(o, fits_parts));
    TRY(processes_join(&all, &own));
    pesc_status st = train(&own, all);
    processes_leave(all, st);
    return st;
}
