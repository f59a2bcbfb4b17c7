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
    return best;
}

/* ---- drawing ----
 *
 * A token is found by walking down the choices from the most likely on. Few of them have nearly all
 * of the probability, so they are sorted in layers: first those near the largest logit, then, if
 * the walk has not ended, the next layer. */

/* Relative to the largest weight, which is 1. */
static double weight_of(const sampler *s, float best, int32_t i)
{
    return exp(((double)s->choices[i].logit - (double)best) / s->opt.temperature);
}

/* Sorts a further layer of choices after the n that are sorted; depth: -log of the least weight.
 * Returns how many are sorted then, with their weights in s->weights. */
static int32_t sort_layer(sampler *s, int32_t n, float best, double depth)
{
    int32_t end = n;
    double least = (double)best - depth * s->opt.temperature;
    for (int32_t i = n; i < s->vocab; i++) {
        choice c = s->choices[i];
        if ((double)c.logit < least)
            continue;
        s->choices[i] = s->choices[end];
        s->choices[end++] = c;
    }
    qsort(s->choices + n, (size_t)(end - n), sizeof *s->choices, likelier_first);
    for (int32_t i = n; i < end; i++)
        s->weights[i] = weight_of(s, best, i);
    return end;
}

/* How many of the n sorted choices stay; *all: a rule ends the list here, so no further choice
 * does. `mass` is the weight of all choices; with top_k it is not used. */
static int32_t keep(const sampler *s, int32_t n, double mass, bool *all)
{
    const pesc_sample_options *o = &s->opt;
    double head = 0;
    *all = n == s->vocab || (o->top_k && o->top_k <= n);
    if (o->top_k && !*all)
        return n; /* the other rules apply to what top_k leaves */
    if (o->top_k) {
        n = o->top_k < n ? (int32_t)o->top_k : n;
        mass = 0;
        for (int32_t i = 0; i < n; i++)
            mass += s->weights[i];
    }
    /* top_p keeps the shortest head whose mass reaches top_p: the one that crosses it included */
    for (int32_t i = 0; i < n && o->top_p < 1; i++) {
        head += s->weights[i];
        if (head >= o->top_p * mass) {
            n = i + 1;
            *all = true;
        }
    }
    while (n > 1 && s->weights[n - 1] < o->min_p) {
        n--;
        *all = true;
    }
    return n;
}

/* The choice at u (0 to 1) of the weights of n choices, whose sum is `sum`; n: it is beyond. */
static int32_t walk(const sampler *s, int32_t n, double sum, double u)
{
    double at = 0;
    for (int32_t i = 0; i < n; i++) {
        at += s->weights[i];
        if (u * sum < at)
            return i;
    }
    return n;
}

static int32_t draw(sampler *s, float best, double u)
{
    static const double depths[] = { 4, 12, 40, INFINITY };
    const pesc_sample_options *o = &s->opt;
    bool cut = o->top_k || o->top_p < 1 || o->min_p > 0, all = false;
    double mass = 0, sum = 0;
    int32_t n = 0, kept = 0;
    for (int32_t i = 0; i < s->vocab && (!cut || (o->top_p < 1 && !o->top_k)); i++)
        mass += weight_of(s, best, i);
    for (size_t layer = 0; !all; layer++) {
        n = sort_layer(s, n, best, depths[layer]);
        kept = keep(s, n, mass, &all);
        int32_t found = cut ? kept : walk(s, kept, mass, u);
        if (found < kept)
            return s->choices[found].id;
    }
    for (int32_t i = 0; i < kept; i++)
        sum += s->weights[i];
    int32_t found = walk(s, kept, sum, u);
    return s->choices[found < kept ? found : kept - 1].id;
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
    *id = likeliest(s);
    if (s->opt.temperature == 0)
        return PESC_OK;
    rng_key key = { (uint64_t)s->opt.seed, rng_stream(1, 0, 0) };
    *id = draw(s, s->choices[*id].logit, (double)rng_u32(key, step) * 0x1p-32);
    return PESC_OK;
}
