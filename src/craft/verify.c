#include "craft/verify.h"

#include "attach/open_model.h"
#include "base/args.h"
#include "base/mem.h"
#include "model/next_token.h"
#include "model/pass.h"
#include "model/routes.h"

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

/* What the routers of a mixture chose. */
typedef struct choices {
    int32_t *ids; /* [n_layers, positions, k], for mem_free(); NULL: a dense model */
    int32_t n_layers, k, n_experts;
} choices;

typedef struct probe {
    float *logits; /* [positions, vocab], for mem_free() */
    size_t positions, vocab;
    choices chosen;
} probe;

static void probe_free(probe *p)
{
    mem_free(p->logits);
    mem_free(p->chosen.ids);
}

static size_t n_choices(const choices *c, size_t positions)
{
    return (size_t)c->n_layers * positions * (size_t)c->k;
}

/* The choices of the forward that has run. */
static pesc_status take_choices(const routes *r, probe *out)
{
    out->chosen = (choices){ NULL, r->n_layers, r->k, r->m->shape.cfg.moe.topk.n_experts };
    size_t n = n_choices(&out->chosen, out->positions);
    if (!(out->chosen.ids = mem_alloc(n, sizeof *out->chosen.ids)))
        return fail_nomem("the choices of the routers", n * sizeof *out->chosen.ids);
    memcpy(out->chosen.ids, r->ids, n * sizeof *r->ids);
    return PESC_OK;
}

static pesc_status forward(pesc_model *m, pass *p, routes *r, const choices *as, probe *out)
{
    int32_t ids[VERIFY_POSITIONS], rows[VERIFY_POSITIONS], n = (int32_t)out->positions;
    probe_ids(ids, out->positions, (int64_t)out->vocab);
    for (int32_t i = 0; i < n; i++)
        rows[i] = i;
    token_seq seq = { .ids = ids, .n = n, .whole = n };
    tensor logits;
    TRY(pass_set(p, &seq, 1, rows, n));
    routes_record(r, p);
    if (as)
        TRY(routes_follow(r, p, as->ids, n));
    TRY(model_fwd(m, p, &logits));
    TRY(m->dev->op->download(m->dev, out->logits, logits.data, tensor_bytes(&logits)));
    return r ? take_choices(r, out) : PESC_OK;
}

static bool is_mixture(const pesc_model *m)
{
    bool sparse = false;
    for (int32_t i = 0; i < m->shape.cfg.n_layers; i++)
        sparse = sparse || m->shape.w.blocks[i].sparse;
    return sparse;
}

static pesc_status probe_run(pesc_model *m, const choices *as, probe *out)
{
    pesc_model_info info = PESC_INIT(pesc_model_info);
    TRY(pesc_model_describe(m, &info));
    DEVICE_CALL(m->dev);
    int32_t n = info.context < VERIFY_POSITIONS ? (int32_t)info.context : VERIFY_POSITIONS;
    size_t bytes = (size_t)n * (size_t)info.vocab * sizeof *out->logits;
    *out = (probe){ mem_alloc(bytes, 1), (size_t)n, (size_t)info.vocab, { 0 } };
    pass *p = NULL;
    routes *r = NULL;
    pesc_status s = out->logits ? pass_open(&p, m, (pass_limits){ n, 1, n }, NULL)
                                : fail_nomem("the logits", bytes);
    if (s == PESC_OK && is_mixture(m))
        s = routes_open(&r, m, n);
    if (s == PESC_OK)
        s = forward(m, p, r, as, out);
    pass_close(p);
    routes_close(r);
    return s;
}

/* as: what its routers are to choose; NULL: they choose themselves. */
static pesc_status probe_model(const verify_pair *v, const char *path, const pesc_load_options *opt,
                               const choices *as, probe *out)
{
    pesc_model *m = NULL;
    pesc_load_options load = *opt;
    load.compute_dtype = "f32";
    pesc_status s = model_open_replacing(&m, v->dev, path, &load);
    if (s == PESC_OK)
        s = probe_run(m, as, out);
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

/* ---- another choice of experts ---- */

/* The experts of a token in a layer that both models chose. */
static int32_t in_common(const int32_t *a, const int32_t *b, int32_t k)
{
    int32_t n = 0;
    for (int32_t i = 0; i < k; i++)
        for (int32_t j = 0; j < k; j++)
            n += a[i] == b[j];
    return n;
}

/* Whether the routers of every layer chose alike: nearer to all the same than to chance. */
bool verify_chooses_alike(const verify_choices *c)
{
    double chance = (double)c->k / (double)c->n_experts;
    size_t rows = c->positions * (size_t)c->k;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int64_t same = 0;
        for (size_t i = (size_t)l * rows; i < (size_t)(l + 1) * rows; i += (size_t)c->k)
            same += in_common(c->from + i, c->made + i, c->k);
        if ((double)same < (1 + chance) / 2 * (double)rows)
            return false;
    }
    return true;
}

/* Near a tie rounding decides which expert is chosen, and that changes a position much. With the
 * choices of `from` nothing jumps: then every position must be within rounding. */
static pesc_status choose_as_from(const verify_pair *v, const probe *from, const probe *made,
                                  bool *same)
{
    const choices *a = &from->chosen, *b = &made->chosen;
    probe led = { 0 };
    *same = false;
    if (v->rounding != ROUNDING_16 || !a->ids || !b->ids || a->n_layers != b->n_layers ||
        a->k != b->k || a->n_experts != b->n_experts)
        return PESC_OK;
    if (!verify_chooses_alike(
            &(verify_choices){ a->ids, b->ids, a->n_layers, a->k, a->n_experts, from->positions }))
        return PESC_OK;
    pesc_status s = probe_model(v, v->made, &v->made_opt, a, &led);
    if (s == PESC_OK) {
        pesc_logit_check c;
        verify_compare(
            &(verify_logit_pair){ from->logits, led.logits, from->positions, from->vocab },
            v->rounding, &c);
        *same = verify_passes(&c, v->rounding) && c.beyond_rounding == 0;
    }
    probe_free(&led);
    return s;
}

/* ---- the two models ---- */

static pesc_status refuse(const verify_pair *v, const pesc_logit_check *c)
{
    if (!isfinite(c->max_logit))
        return fail(PESC_NUMERIC, "%s: its logits are not finite", v->made_from);
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
    bool same = false;
    pesc_status s = probe_model(v, v->made_from, &v->from_opt, NULL, &from);
    if (s == PESC_OK)
        s = probe_model(v, v->made, &v->made_opt, NULL, &made);
    if (s == PESC_OK) {
        ASSERT(from.positions == made.positions && from.vocab == made.vocab);
        verify_compare(&(verify_logit_pair){ from.logits, made.logits, from.positions, from.vocab },
                       v->rounding, out);
        same = isfinite(out->max_logit) && verify_passes(out, v->rounding);
        if (!same)
            s = choose_as_from(v, &from, &made, &same);
    }
    if (s == PESC_OK && !same)
        s = refuse(v, out);
    probe_free(&from);
    probe_free(&made);
    return s;
}
