#include "infer/sampler.h"

#include "base/mem.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tokens by their depth, (largest logit - logit) / temperature: those of a bucket are less likely
 * than those of the buckets before it. Deeper tokens than DEPTH are never drawn: all of them
 * together have less than 1e-11 of the probability. */
enum { DEPTH = 40, BUCKETS = 2560 };

enum { LANES = 16 }; /* tokens of a vector */

typedef struct choice {
    float logit;
    int32_t id;
} choice;

struct sampler {
    pesc_sample_options opt;
    const sampler_terms *terms; /* borrowed; NULL: none */
    int32_t vocab;
    float scale;                /* 1 / temperature */
    float *logits;              /* [vocab + LANES] with penalties and terms */
    unsigned char *was;         /* [vocab] whether a token was seen, for the penalty */
    uint16_t *bucket_of;        /* [vocab + LANES] */
    int32_t count[BUCKETS + 1]; /* tokens of a bucket; the last one has some of the deeper ones, */
    double mass[BUCKETS + 1];   /* and their weights, which are not used. The largest is 1. */
    double first[BUCKETS];      /* the weight at which a bucket begins */
    choice *choices; /* [vocab] of the bucket that was opened last, the likeliest first */
    double *weights; /* [vocab] theirs */
    int32_t n_open;
};

pesc_status sampler_open(sampler **out, const pesc_sample_options *opt, int32_t vocab)
{
    *out = NULL;
    sampler *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("a sampler", sizeof *s);
    s->opt = *opt;
    s->vocab = vocab;
    s->logits = mem_zalloc((size_t)vocab + LANES, sizeof *s->logits);
    s->was = mem_zalloc((size_t)vocab, 1);
    s->bucket_of = mem_zalloc((size_t)vocab + LANES, sizeof *s->bucket_of);
    s->choices = mem_alloc((size_t)vocab, sizeof *s->choices);
    s->weights = mem_alloc((size_t)vocab, sizeof *s->weights);
    if (!s->logits || !s->was || !s->bucket_of || !s->choices || !s->weights) {
        sampler_close(s);
        return fail_nomem("a sampler", (size_t)vocab * sizeof(choice));
    }
    for (int b = 0; b < BUCKETS; b++)
        s->first[b] = exp(-b * (double)DEPTH / BUCKETS);
    *out = s;
    return PESC_OK;
}

void sampler_close(sampler *s)
{
    if (!s)
        return;
    mem_free(s->logits);
    mem_free(s->was);
    mem_free(s->bucket_of);
    mem_free(s->choices);
    mem_free(s->weights);
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
        float *l = &s->logits[id];
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
        s->logits[id] -= (float)(t->frequency + (s->was[id] ? 0 : t->presence));
        s->was[id] = 1;
    }
    for (size_t i = 0; i < n; i++)
        s->was[generated[i]] = 0;
    for (size_t i = 0; i < t->n_bias; i++)
        s->logits[t->bias[i].id] += t->bias[i].add;
    for (size_t i = 0; (int64_t)n < t->min_tokens && i < t->n_ends; i++)
        s->logits[t->ends[i]] = -INFINITY;
}

/* ---- passes over all tokens, LANES at a time: the compiler makes vectors of the inner loops ----
 */

/* Copies the row. The first token whose logit is not finite; -1: all are. */
static int32_t copy_finite(float *restrict to, const float *restrict from, int32_t n)
{
    uint32_t worst[LANES] = { 0 };
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) {
            uint32_t bits;
            memcpy(&bits, from + i + k, sizeof bits);
            bits &= 0x7f800000; /* the exponent, which has all bits where it is not finite */
            worst[k] = bits > worst[k] ? bits : worst[k];
            to[i + k] = from[i + k];
        }
    bool good = true;
    for (int k = 0; k < LANES; k++)
        good &= worst[k] != 0x7f800000;
    for (i = good ? i : 0; i < n; i++) {
        if (!isfinite(from[i]))
            return i;
        to[i] = from[i];
    }
    return -1;
}

/* The lowest id of the largest logits. */
static int32_t likeliest(const sampler *s)
{
    float top[LANES], best = s->logits[0];
    int32_t i = 0, n = s->vocab;
    for (int k = 0; k < LANES; k++)
        top[k] = best;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            top[k] = s->logits[i + k] > top[k] ? s->logits[i + k] : top[k];
    for (; i < n; i++)
        best = s->logits[i] > best ? s->logits[i] : best;
    for (int k = 0; k < LANES; k++)
        best = top[k] > best ? top[k] : best;
    for (i = 0; s->logits[i] != best; i++)
        continue;
    return i;
}

/* ---- drawing ----
 *
 * The tokens are ordered from the most likely on, equal ones by id. top_k, top_p and min_p each
 * keep a head of this order, and the draw walks along it. Only the buckets in which a rule or the
 * draw ends need to be sorted. */

/* Buckets of LANES tokens, and by what part of the weight at which its bucket begins a token is
 * lighter: e^-x for x below DEPTH / BUCKETS, to the third power, which leaves less than 3e-9.
 * False: all are too deep, as where a grammar excludes them. */
static bool find_buckets(const float *restrict logits, float best, float scale,
                         int32_t *restrict bucket, float *restrict part)
{
    const float deepest = DEPTH, wide = deepest / BUCKETS, narrow = 1 / wide;
    int32_t most, bits, some = 0;
    memcpy(&most, &deepest, sizeof most);
    for (int k = 0; k < LANES; k++) {
        float depth = (best - logits[k]) * scale;
        memcpy(&bits, &depth, sizeof bits); /* of positive numbers, they are in the same order */
        bits = bits < most ? bits : most;
        memcpy(&depth, &bits, sizeof depth);
        bucket[k] = (int32_t)(depth * narrow);
        some |= BUCKETS - bucket[k];
        float x = depth - (float)bucket[k] * wide;
        part[k] = 1 - x * (1 - x * (0.5f - x * (1.0f / 6)));
    }
    return some != 0;
}

static void fill_buckets(sampler *s, float best)
{
    memset(s->count, 0, sizeof s->count);
    memset(s->mass, 0, sizeof s->mass);
    for (int32_t i = 0; i < s->vocab; i += LANES) {
        int32_t bucket[LANES], n = s->vocab - i < LANES ? s->vocab - i : LANES;
        float part[LANES];
        bool some = find_buckets(s->logits + i, best, s->scale, bucket, part);
        for (int k = 0; !some && k < LANES; k++)
            s->bucket_of[i + k] = BUCKETS;
        for (int k = 0; some && k < n; k++) {
            s->bucket_of[i + k] = (uint16_t)bucket[k];
            s->count[bucket[k]]++;
            s->mass[bucket[k]] += (double)part[k];
        }
    }
    for (int b = 0; b < BUCKETS; b++)
        s->mass[b] *= s->first[b];
}

static int likelier_first(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Sorts the tokens of a bucket into s->choices. */
static void open_bucket(sampler *s, int32_t bucket, float best)
{
    s->n_open = 0;
    for (int32_t i = 0; s->n_open < s->count[bucket]; i += LANES) {
        uint16_t some = 0;
        for (int k = 0; k < LANES; k++)
            some |= s->bucket_of[i + k] == bucket;
        for (int32_t k = i; some && k < i + LANES && k < s->vocab; k++)
            if (s->bucket_of[k] == bucket)
                s->choices[s->n_open++] = (choice){ s->logits[k], k };
    }
    qsort(s->choices, (size_t)s->n_open, sizeof *s->choices, likelier_first);
    for (int32_t i = 0; i < s->n_open; i++)
        s->weights[i] = (double)expf((s->choices[i].logit - best) * s->scale);
}

/* The first tokens of the order: all of the buckets before `bucket`, and n of this one. */
typedef struct head {
    int32_t bucket, n;
    double mass;
} head;

/* The head that ends with the token at which the mass reaches `target`, at most h. */
static head head_of_mass(sampler *s, head h, double target, float best)
{
    double before = 0;
    int32_t b = 0;
    while (b < h.bucket && before + s->mass[b] < target)
        before += s->mass[b++];
    if (b == BUCKETS)
        return h;
    open_bucket(s, b, best);
    int32_t end = b == h.bucket ? h.n : s->n_open, n = 0;
    while (n < end && before < target)
        before += s->weights[n++];
    return (head){ b, n, before };
}

static head head_of_count(sampler *s, int64_t most, float best)
{
    head h = { 0 };
    int64_t left = most;
    while (h.bucket < BUCKETS && left >= s->count[h.bucket]) {
        left -= s->count[h.bucket];
        h.mass += s->mass[h.bucket++];
    }
    if (h.bucket == BUCKETS || !left)
        return h;
    open_bucket(s, h.bucket, best);
    while (h.n < left)
        h.mass += s->weights[h.n++];
    return h;
}

/* The head without the tokens whose weight is below `least`, but not without its first token. */
static head head_of_weight(sampler *s, head h, double least, float best)
{
    head to = { 0 };
    while (to.bucket < h.bucket && (to.bucket + 1) * (double)DEPTH / BUCKETS < -log(least))
        to.mass += s->mass[to.bucket++];
    if (to.bucket == BUCKETS)
        return to;
    open_bucket(s, to.bucket, best);
    int32_t end = to.bucket == h.bucket ? h.n : s->n_open;
    while (to.n < end && (s->weights[to.n] >= least || (!to.bucket && !to.n)))
        to.mass += s->weights[to.n++];
    return to;
}

static int32_t draw(sampler *s, float best, double u)
{
    const pesc_sample_options *o = &s->opt;
    s->scale = (float)fmin(1 / o->temperature, FLT_MAX); /* times 0 it must be 0 */
    fill_buckets(s, best);
    head h = head_of_count(s, o->top_k ? o->top_k : s->vocab, best);
    if (o->top_p < 1)
        h = head_of_mass(s, h, o->top_p * h.mass, best);
    if (o->min_p > 0)
        h = head_of_weight(s, h, o->min_p, best);
    /* The token drawn is the one that carries the mass beyond u of it. */
    double target = u * h.mass, before = 0;
    int32_t b = 0, last = h.n ? h.bucket : h.bucket - 1;
    while (b < last && before + s->mass[b] <= target)
        before += s->mass[b++];
    while (b > 0 && !s->count[b]) /* rounding may have led beyond the last token */
        b--;
    open_bucket(s, b, best);
    int32_t end = b == h.bucket ? h.n : s->n_open, at = 0;
    while (at + 1 < end && before + s->weights[at] <= target)
        before += s->weights[at++];
    return s->choices[at].id;
}

/* Where the tokens stand among others, from `from` on; n: nowhere. */
static size_t find_tokens(const int32_t *ids, size_t from, size_t n, const int32_t *what,
                          size_t n_what)
{
    for (size_t i = from; n_what > 0 && i + n_what <= n; i++)
        if (memcmp(ids + i, what, n_what * sizeof *what) == 0)
            return i;
    return n;
}

/* The next token of the end of a thought that has used up its budget; -1: none. */
static int32_t thought_end(const thought_budget *b, const int32_t *generated, size_t n)
{
    enum { BLANKS = 2 }; /* tokens that may stand before a thought */
    size_t from = 0;
    if (b->n_begin > 0) {
        size_t at = find_tokens(generated, 0, n, b->begin, b->n_begin);
        if (at > BLANKS || at == n)
            return -1;
        from = at + b->n_begin;
    }
    size_t limit = from + (size_t)b->tokens;
    if (n < limit || n - limit >= b->n_end ||
        find_tokens(generated, from, limit, b->end, b->n_end) < limit)
        return -1;
    return b->end[n - limit];
}

pesc_status sampler_pick(sampler *s, const float *logits, const int32_t *seen, size_t n_seen,
                         uint64_t step, int32_t *id)
{
    int32_t bad = copy_finite(s->logits, logits, s->vocab);
    if (bad >= 0)
        return fail(PESC_NUMERIC,
                    "the logit of token %d is not finite: the model's weights or "
                    "its input are damaged",
                    bad);
    if (s->opt.repetition_penalty != 1)
        penalise(s, seen, n_seen);
    if (s->terms) {
        size_t n = step < n_seen ? (size_t)step : n_seen;
        *id = thought_end(&s->terms->thought, seen + (n_seen - n), n);
        if (*id >= 0)
            return PESC_OK;
        add_terms(s, seen + (n_seen - n), n);
        if (s->terms->matcher && !matcher_exclude(s->terms->matcher, seen + (n_seen - n), n,
                                                  s->terms->ends, s->terms->n_ends, s->logits)) {
            *id = -1;
            return PESC_OK;
        }
    }
    *id = likeliest(s);
    if (s->logits[*id] == -INFINITY && s->terms && s->terms->matcher)
        *id = -1; /* only ends may follow, and min_tokens excludes them */
    if (*id < 0 || s->opt.temperature == 0 || s->logits[*id] == -INFINITY)
        return PESC_OK;
    rng_key key = { (uint64_t)s->opt.seed, rng_stream(1, 0, 0) };
    *id = draw(s, s->logits[*id], (double)rng_u32(key, step) * 0x1p-32);
    return PESC_OK;
}
