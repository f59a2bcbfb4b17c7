#include "train/metrics.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/tfevents.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A file and the lines that are not in it yet. */
typedef struct pending {
    io_log *log;
    str waiting;
    bool failing; /* it could not be written: a notice has said so */
} pending;

struct metrics {
    pending files[METRICS_FILES];
    pending tb;
};

static const char *const names[METRICS_FILES] = { "metrics.jsonl", "routing.jsonl", "eval.jsonl" };

/* ---- files ---- */

static pesc_status flush(pending *f)
{
    if (!str_ok(&f->waiting))
        return fail_nomem("the metrics", f->waiting.n);
    if (f->waiting.n)
        TRY(io_log_append(f->log, f->waiting.p, f->waiting.n));
    str_clear(&f->waiting);
    return PESC_OK;
}

static void flush_or_tell(pending *f)
{
    pesc_status s = flush(f);
    if (s != PESC_OK && !f->failing)
        log_notice("%s; training goes on and tries again", pesc_last_error());
    f->failing = s != PESC_OK;
}

static pesc_status open_tb(pending *f, const char *run)
{
    char host[64] = "localhost";
    str path = { 0 };
    gethostname(host, sizeof host - 1);
    str_printf(&path, "%s/tb", run);
    pesc_status s = str_ok(&path) ? io_make_dir(path.p) : fail_nomem(run, 64);
    str_printf(&path, "/events.out.tfevents.%lld.%s.%ld.0", (long long)clock_wall(), host,
               (long)getpid());
    if (s == PESC_OK)
        s = str_ok(&path) ? io_log_open(&f->log, path.p, 0) : fail_nomem(run, 64);
    str_free(&path);
    if (s == PESC_OK)
        tfevents_header(&f->waiting, clock_wall());
    return s;
}

pesc_status metrics_open(metrics **out, const char *run, const metrics_lengths *keep)
{
    *out = NULL;
    metrics *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem("the metrics", sizeof *m);
    pesc_status s = PESC_OK;
    for (int i = 0; s == PESC_OK && i < METRICS_FILES; i++) {
        char *path = io_join(run, names[i]);
        s = path ? io_log_open(&m->files[i].log, path, keep->bytes[i]) : fail_nomem(run, 64);
        mem_free(path);
    }
    if (s == PESC_OK)
        s = open_tb(&m->tb, run);
    if (s == PESC_OK)
        s = io_sync_dir(
            run); /* a checkpoint relies on these files: their names must be on the disk too */
    if (s != PESC_OK) {
        metrics_close(m);
        return s;
    }
    *out = m;
    return PESC_OK;
}

static void close_one(pending *f)
{
    io_log_close(f->log);
    str_free(&f->waiting);
}

void metrics_close(metrics *m)
{
    if (!m)
        return;
    for (int i = 0; i < METRICS_FILES; i++)
        close_one(&m->files[i]);
    close_one(&m->tb);
    mem_free(m);
}

pesc_status metrics_sync(metrics *m, metrics_lengths *out)
{
    *out = (metrics_lengths){ 0 };
    for (int i = 0; m && i < METRICS_FILES; i++) {
        TRY(flush(&m->files[i]));
        TRY(io_log_sync(m->files[i].log));
        out->bytes[i] = io_log_size(m->files[i].log);
    }
    return PESC_OK;
}

/* ---- lines ---- */

/* JSON has no NaN. */
static void put_real(str *s, const char *key, double v)
{
    if (isfinite(v))
        str_printf(s, ",\"%s\":%.9g", key, v);
    else
        str_printf(s, ",\"%s\":null", key);
}

/* ---- what is measured of preferences, by TRL's names ---- */

static const struct {
    const char *name;
    size_t at;
    bool lower_is_better;
} preference_fields[] = {
    { "rewards/chosen", offsetof(pesc_preference, reward_chosen), false },
    { "rewards/rejected", offsetof(pesc_preference, reward_rejected), true },
    { "rewards/margins", offsetof(pesc_preference, margin), false },
    { "rewards/accuracies", offsetof(pesc_preference, accuracy), false },
    { "logps/chosen", offsetof(pesc_preference, logp_chosen), false },
    { "logps/rejected", offsetof(pesc_preference, logp_rejected), true },
    { "kl", offsetof(pesc_preference, kl), true },
};
enum { N_PREFERENCE = sizeof preference_fields / sizeof *preference_fields };

static double preference_at(const pesc_preference *p, size_t i)
{
    return *(const double *)(const void *)((const char *)p + preference_fields[i].at);
}

/* Those that were measured: as fields of a line, and as scalars named prefix/NAME. */
static void put_preference(metrics *m, str *out, const pesc_step *s, bool eval)
{
    const pesc_preference *p = eval ? &s->eval_preference : &s->preference;
    tf_scalar scalars[N_PREFERENCE];
    char keys[N_PREFERENCE][32], names_tb[N_PREFERENCE][32];
    size_t n = 0;
    for (size_t i = 0; i < N_PREFERENCE && p->answers; i++) {
        double value = preference_at(p, i);
        if (isnan(value))
            continue;
        snprintf(keys[n], sizeof keys[n], "%s%s", eval ? "eval_" : "", preference_fields[i].name);
        snprintf(names_tb[n], sizeof names_tb[n], "%s/%s", eval ? "eval" : "train",
                 preference_fields[i].name);
        put_real(out, keys[n], value);
        scalars[n] = (tf_scalar){ names_tb[n], (float)value };
        n++;
    }
    if (n)
        tfevents_scalars(&m->tb.waiting, clock_wall(), s->step, scalars, n);
}

/* ,"domains":{"a":{"ce":2.1,"tokens":40},...}, and the scalars train/a/ce: of the domains that have
 * targets. */
static void put_domains(metrics *m, str *out, int64_t step, metrics_domains d, const char *what)
{
    const bool eval = strcmp(what, "eval") == 0;
    if (!d.n)
        return;
    str_puts(out, eval ? ",\"eval_domains\":{" : ",\"domains\":{");
    for (size_t i = 0, shown = 0; i < d.n; i++) {
        const metrics_domain *one = &d.list[i];
        if (!one->targets)
            continue;
        const double loss = one->sum / one->weight;
        char name[160];
        json_t *key = json_string(one->name);
        str_puts(out, shown++ ? "," : "");
        json_put(out, key, JSON_ENCODE_ANY);
        json_decref(key);
        str_printf(out, ":{\"tokens\":%lld", (long long)one->targets);
        put_real(out, eval ? "loss" : "ce", loss);
        str_putc(out, '}');
        snprintf(name, sizeof name, "%s/%s/%s", what, one->name, eval ? "loss" : "ce");
        tfevents_scalars(&m->tb.waiting, clock_wall(), step, &(tf_scalar){ name, (float)loss }, 1);
    }
    str_putc(out, '}');
}

double metrics_eval_value(const char *name, const pesc_step *s)
{
    for (size_t i = 0; i < N_PREFERENCE; i++)
        if (strcmp(preference_fields[i].name, name) == 0)
            return s->eval_preference.answers ? preference_at(&s->eval_preference, i) : NAN;
    return s->eval_loss;
}

bool metrics_lower_is_better(const char *name)
{
    for (size_t i = 0; i < N_PREFERENCE; i++)
        if (strcmp(preference_fields[i].name, name) == 0)
            return preference_fields[i].lower_is_better;
    return true;
}

/* ---- steps and validations ---- */

void metrics_step(metrics *m, const pesc_step *s, metrics_domains d)
{
    if (!m)
        return;
    str *out = &m->files[METRICS_STEPS].waiting;
    str_printf(out, "{\"step\":%lld", (long long)s->step);
    put_real(out, "epoch", s->epoch);
    str_printf(out, ",\"tokens\":%lld", (long long)s->tokens);
    double loss = s->skipped ? NAN : s->loss; /* of no update, though it may be finite itself */
    put_real(out, "loss", loss);
    put_real(out, "ce", s->ce);
    put_real(out, "aux", s->aux);
    put_real(out, "grad_norm", s->grad_norm);
    put_real(out, "lr", s->lr);
    put_real(out, "tok_s", s->tok_s);
    str_printf(out, ",\"mem_bytes\":%llu", (unsigned long long)s->mem_bytes);
    if (s->comm_seconds > 0) { /* several processes */
        put_real(out, "comm_s", s->comm_seconds);
        put_real(out, "comm_hidden", s->comm_hidden);
    }
    put_preference(m, out, s, false);
    put_domains(m, out, s->step, d, "train");
    put_real(out, "expert_entropy", s->expert_entropy);
    str_printf(out, ",\"dead_experts\":%lld}\n", (long long)s->dead_experts);
    flush_or_tell(&m->files[METRICS_STEPS]);

    const tf_scalar scalars[] = {
        { "train/loss", (float)loss },
        { "train/ce", (float)s->ce },
        { "train/aux", (float)s->aux },
        { "train/grad_norm", (float)s->grad_norm },
        { "train/learning_rate", (float)s->lr },
        { "train/tokens_per_second", (float)s->tok_s },
        { "train/expert_entropy", (float)s->expert_entropy },
        { "train/dead_experts", (float)s->dead_experts },
    };
    size_t n = sizeof scalars / sizeof *scalars - (isnan(s->expert_entropy) ? 2 : 0);
    tfevents_scalars(&m->tb.waiting, clock_wall(), s->step, scalars, n);
    flush_or_tell(&m->tb);
}

void metrics_routing(metrics *m, int64_t step, const metrics_shares *r)
{
    if (!m || !r->layers)
        return;
    str *out = &m->files[METRICS_ROUTING].waiting;
    str_printf(out, "{\"step\":%lld,\"layers\":[", (long long)step);
    for (int32_t l = 0; l < r->layers; l++) {
        for (int32_t e = 0; e < r->experts; e++)
            str_printf(out, "%s%.6g",
                       e   ? ","
                       : l ? ",["
                           : "[",
                       (double)r->share[l * r->experts + e]);
        str_putc(out, ']');
    }
    str_puts(out, "]}\n");
    flush_or_tell(&m->files[METRICS_ROUTING]);
}

void metrics_eval(metrics *m, const pesc_step *s, int64_t targets, metrics_domains d)
{
    if (!m)
        return;
    str *out = &m->files[METRICS_EVAL].waiting;
    str_printf(out, "{\"step\":%lld", (long long)s->step);
    put_real(out, "eval_loss", s->eval_loss);
    if (s->eval_preference.answers)
        str_printf(out, ",\"eval_answers\":%lld", (long long)s->eval_preference.answers);
    else
        put_real(out, "eval_perplexity", exp(s->eval_loss));
    put_preference(m, out, s, true);
    put_domains(m, out, s->step, d, "eval");
    str_printf(out, ",\"eval_tokens\":%lld}\n", (long long)targets);
    flush_or_tell(&m->files[METRICS_EVAL]);
    tf_scalar scalar = { "eval/loss", (float)s->eval_loss };
    tfevents_scalars(&m->tb.waiting, clock_wall(), s->step, &scalar, 1);
    flush_or_tell(&m->tb);
}

/* ---- experts ---- */

void metrics_balance(const metrics_shares *r, double *entropy, int64_t *dead)
{
    double sum = 0;
    *dead = 0;
    for (int32_t i = 0; i < r->layers * r->experts; i++) {
        double f = (double)r->share[i];
        sum -= f > 0 ? f * log(f) : 0;
        *dead += !(f > 0);
    }
    double most = r->experts > 1 ? log((double)r->experts) : 1;
    *entropy = r->layers ? sum / (most * (double)r->layers) : NAN;
}
