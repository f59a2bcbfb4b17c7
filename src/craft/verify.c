#include "craft/verify.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 64 };

/* Ids spread over the vocabulary, the same for every model of that size. */
static void fixed_ids(int32_t *ids, size_t n, int64_t vocab)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)((1 + i * 7919) % (uint64_t)vocab);
}

/* logits[n, vocab] of one model, for mem_free(). */
typedef struct scores {
    float *logits;
    size_t n;
} scores;

static pesc_status run(pesc_model *m, scores *out)
{
    int32_t ids[TOKENS];
    pesc_model_info info;
    TRY(pesc_model_describe(m, &info));
    size_t n = info.context < TOKENS ? (size_t)info.context : TOKENS;
    fixed_ids(ids, n, info.vocab);
    out->n = n * (size_t)info.vocab;
    out->logits = mem_alloc(out->n, sizeof *out->logits);
    if (!out->logits)
        return fail_nomem("the logits", out->n * sizeof *out->logits);
    return pesc_logits(m, ids, n, out->logits);
}

static pesc_status score(const verify_pair *v, const char *path, const pesc_load_options *opt,
                         scores *out)
{
    pesc_device *own = NULL;
    pesc_model *m = NULL;
    pesc_load_options load = *opt;
    load.compute_dtype = "f32";
    pesc_status s = PESC_OK;
    if (!v->dev)
        s = pesc_device_open(&own, v->device && *v->device ? v->device : "cpu");
    if (s == PESC_OK)
        s = pesc_model_open(&m, v->dev ? v->dev : own, path, &load);
    if (s == PESC_OK)
        s = run(m, out);
    pesc_model_close(m);
    pesc_device_close(own);
    return s;
}

static pesc_status compare(const scores *a, const scores *b, const char *path,
                           pesc_logit_check *out)
{
    *out = (pesc_logit_check){ .logits = a->n };
    ASSERT(a->n == b->n);
    for (size_t i = 0; i < a->n; i++) {
        double x = (double)a->logits[i], y = (double)b->logits[i];
        double diff = isfinite(y) ? fabs(x - y) : INFINITY;
        if (!isfinite(x))
            return fail(PESC_NUMERIC, "%s: its logits are not finite", path);
        out->differ += memcmp(&a->logits[i], &b->logits[i], sizeof *a->logits) != 0;
        out->max_diff = diff > out->max_diff ? diff : out->max_diff;
        out->max_logit = fabs(x) > out->max_logit ? fabs(x) : out->max_logit;
    }
    return PESC_OK;
}

pesc_status verify_logits(const verify_pair *v, pesc_logit_check *out)
{
    scores from = { 0 }, made = { 0 };
    pesc_status s = score(v, v->made_from, &v->from_opt, &from);
    if (s == PESC_OK)
        s = score(v, v->made, &v->made_opt, &made);
    if (s == PESC_OK)
        s = compare(&from, &made, v->made_from, out);
    mem_free(from.logits);
    mem_free(made.logits);
    return s;
}
