#include "craft/verify.h"

#include "attach/open_model.h"
#include "base/mem.h"
#include "model/forward.h"
#include "model/next_token.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The error that rounding alone may cause, and the error of the probe that fails. Measured: merging
 * real models into bf16 gives 0.006, tiny random ones 0.03, equal experts in f32 2e-6; one damaged
 * tensor gives 0.12 and more. */
static const struct {
    double rounding, probe;
} limits[] = {
    [ROUNDING_NONE] = { 0, 0 },
    [ROUNDING_F32] = { 1e-5, 1e-3 },
    [ROUNDING_16] = { 2e-3, 0.06 },
    [ROUNDING_BLOCKS] = { 0.1, 0.7 },
};

/* A position is beyond rounding when its error is so many times the median, or the smallest that
 * rounding causes. */
static const double beyond = 8;

/* Predictions are the same up to this mean KL divergence (nats) and from this part of greedy tokens
 * on. Damage that few positions see, that of one expert, shows here. Which of two tokens that are
 * as likely to `near_tie` nats is the greedy one says nothing. */
static const double most_kl = 0.03, least_greedy = 0.9, near_tie = 0.1;

/* ---- logits of one model ---- */

/* Ids spread over the vocabulary, the same for every model of that size. */
static void probe_ids(int32_t *ids, size_t n, int64_t vocab)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((1 + i * 7919) % (uint64_t)vocab);
}

typedef struct probe {
    float *logits; /* [positions, vocab], for mem_free() */
    size_t positions, vocab;
} probe;

static pesc_status probe_run(pesc_model *m, probe *out)
{
    int32_t ids[VERIFY_POSITIONS];
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_model_describe(m, &info));
    size_t n = info.context < VERIFY_POSITIONS ? (size_t)info.context : VERIFY_POSITIONS;
    size_t bytes = n * (size_t)info.vocab * sizeof *out->logits;
    probe_ids(ids, n, info.vocab);
    *out = (probe){ .logits = mem_alloc(bytes, 1), .positions = n, .vocab = (size_t)info.vocab };
    return out->logits ? pesc_logits(m, ids, n, out->logits) : fail_nomem("the logits", bytes);
}

static pesc_status probe_model(const verify_pair *v, const char *path, const pesc_load_options *opt,
                               probe *out)
{
    pesc_model *m = NULL;
    pesc_load_options load = *opt;
    load.compute_dtype = "f32";
    pesc_status s = model_open_replacing(&m, v->dev, path, &load);
    if (s == PESC_OK)
        s = probe_run(m, out);
    pesc_model_close(m);
    return s;
}

/* ---- comparing ---- */

typedef struct position_diff {
    double error, kl; /* |a - b| / |a| around the means; KL divergence of b from a */
} position_diff;

static position_diff compare_position(const float *a, const float *b, size_t n,
                                      pesc_logit_check *out)
{
    next_token p = next_token_of(a, n), q = next_token_of(b, n);
    double diff2 = 0, norm2 = 0;
    for (size_t i = 0; i < n; i++) {
        double x = (double)a[i], y = (double)b[i], d = (x - p.mean) - (y - q.mean);
        diff2 += d * d;
        norm2 += (x - p.mean) * (x - p.mean);
        out->differ += memcmp(&a[i], &b[i], sizeof *a) != 0;
        out->max_diff = fmax(out->max_diff, isfinite(y) ? fabs(x - y) : INFINITY);
        out->max_logit = fmax(out->max_logit, fabs(x));
    }
    out->greedy_same += (double)a[p.best] - (double)a[q.best] <= near_tie;
    /* logits that are all equal have no length */
    return (position_diff){ .error = diff2 == 0 ? 0 : sqrt(diff2 / norm2),
                            .kl = next_token_kl(&p, a, &q, b, n) };
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Not a number is the largest of all. */
static double median(const double *x, size_t n)
{
    double sorted[VERIFY_POSITIONS];
    for (size_t i = 0; i < n; i++)
        sorted[i] = isnan(x[i]) ? INFINITY : x[i];
    qsort(sorted, n, sizeof *sorted, by_size);
    return sorted[n / 2];
}

void verify_compare(const verify_logit_pair *l, verify_rounding r, pesc_logit_check *out)
{
    double errors[VERIFY_POSITIONS], kl = 0;
    ASSERT(l->positions > 0 && l->positions <= VERIFY_POSITIONS);
    *out = (pesc_logit_check){ .logits = l->positions * l->vocab, .positions = l->positions };
    for (size_t i = 0; i < l->positions; i++) {
        size_t at = i * l->vocab;
        position_diff d = compare_position(l->from + at, l->made + at, l->vocab, out);
        errors[i] = d.error;
        kl += d.kl;
    }
    out->error = median(errors, l->positions);
    out->kl = kl < 0 ? 0 : kl / (double)l->positions; /* -1e-17 is rounding of this sum */
    for (size_t i = 0; i < l->positions; i++)
        out->beyond_rounding += !(errors[i] <= beyond * fmax(out->error, limits[r].rounding));
}

/* Written so that a value that is not a number fails. */
bool verify_passes(const pesc_logit_check *c, verify_rounding r)
{
    bool same = c->error <= limits[r].probe && c->kl <= most_kl &&
                (double)c->greedy_same >= least_greedy * (double)c->positions;
    return r == ROUNDING_NONE     ? c->differ == 0
           : r == ROUNDING_BLOCKS ? c->error <= limits[r].probe
                                  : same;
}

static pesc_status judge_logits(const verify_pair *v, const pesc_logit_check *c)
{
    if (!isfinite(c->max_logit))
        return fail(PESC_NUMERIC, "%s: its logits are not finite", v->made_from);
    if (verify_passes(c, v->rounding))
        return PESC_OK;
    return fail(PESC_NUMERIC,
                "%s: was written, but does not compute what %s computes: %llu of %llu logits "
                "differ, by up to %.3g where the largest is %.3g; KL divergence %.2g, %llu of %llu "
                "greedy tokens are the same; do not use it",
                v->written, v->made_from, (unsigned long long)c->differ,
                (unsigned long long)c->logits, c->max_diff, c->max_logit, c->kl,
                (unsigned long long)c->greedy_same, (unsigned long long)c->positions);
}

pesc_status verify_logits(const verify_pair *v, pesc_logit_check *out)
{
    probe from = { 0 }, made = { 0 };
    pesc_status s = probe_model(v, v->made_from, &v->from_opt, &from);
    if (s == PESC_OK)
        s = probe_model(v, v->made, &v->made_opt, &made);
    if (s == PESC_OK) {
        ASSERT(from.positions == made.positions && from.vocab == made.vocab);
        verify_compare(&(verify_logit_pair){ from.logits, made.logits, from.positions, from.vocab },
                       v->rounding, out);
        s = judge_logits(v, out);
    }
    mem_free(from.logits);
    mem_free(made.logits);
    return s;
}
