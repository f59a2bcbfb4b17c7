#include "infer/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct choice {
    float logit;
    int32_t id;
} choice;

struct sampler {
    pesc_sample_options opt;
    const sampler_terms *terms; /* borrowed; NULL: none */
    int32_t vocab;
    choice *choices;    /* [vocab] */
    double *weights;    /* [vocab] */
    unsigned char *was; /* [vocab] whether a token was seen, for the penalty */
};

pesc_status sampler_open(sampler **out, const pesc_sample_options *opt, int32_t vocab)
{
    *out = NULL;
    sampler *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a sampler", sizeof *s);
    s->opt = *opt;
    s->vocab = vocab;
    s->choices = mem_alloc((size_t)vocab, sizeof *s->choices);
    s->weights = mem_alloc((size_t)vocab, sizeof *s->weights);
    s->was = mem_zalloc((size_t)vocab, 1);
    if (!s->choices || !s->weights || !s->was) {
        sampler_close(s);
        return fail_nomem("a sampler", (size_t)vocab * sizeof(choice));
    }
    *out = s;
    return PESC_OK;
}

void sampler_close(sampler *s)
{
    if (!s)
        return;
    mem_free(s->choices);
    mem_free(s->weights);
    mem_free(s->was);
    mem_free(s);
}

void sampler_use(sampler *s, const pesc_sample_options *opt, const sampler_terms *terms)
{
    s->opt = *opt;
    s->terms = terms;
}

static void penalise(sampler *s, const int32_t *seen, size_t n_seen)
{
    float p = (float)s->opt.repetition_penalty;
    for (size_t i = 0; i < n_seen; i++) {
        int32_t id = seen[i];
        if (s->was[id])
            continue;
        s->was[id] = 1;
        float *l = &s->choices[id].logit;
        *l = *l < 0 ? *l * p : *l / p;
    }
    for (size_t i = 0; i < n_seen; i++)
        s->was[seen[i]] = 0;
}

/* generated: the tokens that this request has so far. */
static void add_terms(sampler *s, const int32_t *generated, size_t n)
{
    const sampler_terms *t = s->terms;
    for (size_t i = 0; i < n; i++) {
        int32_t id = generated[i];
        s->choices[id].logit -= (float)(t->frequency + (s->was[id] ? 0 : t->presence));
        s->was[id] = 1;
    }
    for (size_t i = 0; i < n; i++)
        s->was[generated[i]] = 0;
    for (size_t i = 0; i < t->n_bias; i++)
        s->choices[t->bias[i].id].logit += t->bias[i].add;
    for (size_t i = 0; (int64_t)n < t->min_tokens && i < t->n_ends; i++)
        s->choices[t->ends[i]].logit = -INFINITY;
}

static int likelier_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static int32_t likeliest(const sampler *s)
{
    int32_t best = 0;
    for (int32_t i = 1; i < s->vocab; i++)
        if (s->choices[i].logit > s->choices[best].logit)
            best = i;
    return s->choices[best].id;
}

/* How many of the sorted choices stay; their weights, largest 1, are left in s->weights. */
static int32_t keep(sampler *s)
{
    int32_t n = s->opt.top_k && s->opt.top_k < s->vocab ? (int32_t)s->opt.top_k : s->vocab;
    double sum = 0, t = s->opt.temperature;
    for (int32_t i = 0; i < n; i++) {
        s->weights[i] = exp(((double)s->choices[i].logit - (double)s->choices[0].logit) / t);
        sum += s->weights[i];
    }
    /* top_p keeps the shortest head whose mass reaches top_p: the one that crosses it included */
    double head = 0;
    for (int32_t i = 0; i < n && s->opt.top_p < 1; i++) {
        head += s->weights[i];
        if (head >= s->opt.top_p * sum)
            n = i + 1;
    }
    while (n > 1 && s->weights[n - 1] < s->opt.min_p)
        n--;
    return n;
}

pesc_status sampler_pick(sampler *s, const float *logits, const int32_t *seen, size_t n_seen,
                         uint64_t step, int32_t *id)
{
    for (int32_t i = 0; i < s->vocab; i++) {
        if (!isfinite(logits[i]))
            return fail(PESC_NUMERIC,
                        "the logit of token %d is not finite: the model's weights or "
                        "its input are damaged",
                        i);
        s->choices[i] = (choice){ logits[i], i };
    }
    if (s->opt.repetition_penalty != 1)
        penalise(s, seen, n_seen);
    if (s->terms) {
        size_t n = step < n_seen ? (size_t)step : n_seen;
        add_terms(s, seen + (n_seen - n), n);
    }
    if (s->opt.temperature == 0) {
        *id = likeliest(s);
        return PESC_OK;
    }
    qsort(s->choices, (size_t)s->vocab, sizeof *s->choices, likelier_first);
    int32_t n = keep(s), i = 0;
    double sum = 0, at = 0;
    for (int32_t j = 0; j < n; j++)
        sum += s->weights[j];
    double u = (double)rng_u32((rng_key){ (uint64_t)s->opt.seed, rng_stream(1, 0, 0) }, step) *
               0x1p-32 * sum;
    for (; i < n - 1; i++) {
        at += s->weights[i];
        if (u < at)
            break;
    }
    *id = s->choices[i].id;
    return PESC_OK;
}
