/* compare: two models on the same tokens, in step: after each half layer both are looked at, and
 * nothing is kept but sums. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "explain/expert_distance.h"
#include "explain/record_stream.h"
#include "model/next_token.h"

#include <math.h>

/* Squares, summed over tokens. */
typedef struct distance {
    double difference, norm;
} distance;

typedef struct layer_sums {
    distance ffn, residual;
    experts_sums experts;
} layer_sums;

/* What one thread finds at one token; parts are added in the order of the tokens, so sums do not
 * depend on the number of threads. */
typedef struct token_part {
    distance ffn, residual;
    double kl, loss_a, loss_b;
    bool greedy_same;
} token_part;

typedef struct comparison {
    pesc_compare_report *out;
    const pesc_compare_options *opt;
    side a, b;
    experts experts;
    record_stream in;
    layer_sums *layers;
    double *room; /* of the experts' sums */
    thread_pool *pool;
    token_part *parts;   /* [seq_len] */
    const int32_t *next; /* what follows each token of a chunk of logits; -1: nothing */
} comparison;

/* ---- layers ---- */

static double relative(const distance *d)
{
    return d->difference > 0 ? sqrt(d->difference / d->norm) : 0;
}

static void add_squares(distance *d, double a, double b)
{
    d->difference += (a - b) * (a - b);
    d->norm += a * a;
}

static void add_distance(distance *sum, const distance *part)
{
    sum->difference += part->difference;
    sum->norm += part->norm;
}

static void compare_stream(void *ctx, int64_t token, int worker)
{
    const comparison *c = ctx;
    size_t dim = (size_t)c->a.m->shape.cfg.dim, at = (size_t)token * dim;
    token_part part = { 0 };
    (void)worker;
    for (size_t i = at; i < at + dim; i++) {
        double xa = (double)c->a.after[i], xb = (double)c->b.after[i];
        add_squares(&part.residual, xa, xb);
        add_squares(&part.ffn, xa - (double)c->a.before[i], xb - (double)c->b.before[i]);
    }
    c->parts[token] = part;
}

static pesc_status add_layer(comparison *c, layer_sums *s, int32_t n)
{
    thread_for(c->pool, n, compare_stream, c);
    for (int32_t i = 0; i < n; i++) {
        add_distance(&s->residual, &c->parts[i].residual);
        add_distance(&s->ffn, &c->parts[i].ffn);
    }
    bool finite = isfinite(s->residual.difference + s->residual.norm);
    return finite ? PESC_OK
                  : fail(PESC_NUMERIC, "layer %d: the residual stream is not finite",
                         (int)(s - c->layers));
}

static pesc_status compare_layers(comparison *c, int32_t n)
{
    for (int32_t i = 0; i < c->a.m->shape.cfg.n_layers; i++) {
        layer_sums *s = &c->layers[i];
        side_attention(&c->a, i);
        side_attention(&c->b, i);
        if (experts_in(&c->experts, i))
            TRY(experts_add(&c->experts, &c->a, i, &s->experts));
        TRY(side_ffn(&c->a, i));
        TRY(side_ffn(&c->b, i));
        TRY(add_layer(c, s, n));
    }
    return PESC_OK;
}

/* ---- the next token ---- */

/* What follows each token in its record; -1: nothing. */
static void next_ids(const micro_batch *b, int32_t *next)
{
    for (int32_t s = 0; s < b->n_seqs; s++)
        for (int32_t i = 0; i < b->seqs[s].n; i++)
            next[b->spans[s].first + i] = i + 1 < b->seqs[s].n ? b->seqs[s].ids[i + 1] : -1;
}

static void compare_logits(void *ctx, int64_t token, int worker)
{
    const comparison *c = ctx;
    size_t vocab = (size_t)c->a.m->shape.cfg.vocab;
    const float *a = c->a.logits + (size_t)token * vocab, *b = c->b.logits + (size_t)token * vocab;
    next_token p = next_token_of(a, vocab), q = next_token_of(b, vocab);
    token_part part = { .kl = next_token_kl(&p, a, &q, b, vocab), .greedy_same = p.best == q.best };
    (void)worker;
    if (c->next[token] >= 0) {
        part.loss_a = -next_token_log(&p, a, (size_t)c->next[token]);
        part.loss_b = -next_token_log(&q, b, (size_t)c->next[token]);
    }
    c->parts[token] = part;
}

static pesc_status add_tokens(comparison *c, const int32_t *next, int32_t n)
{
    pesc_compare_report *r = c->out;
    c->next = next;
    thread_for(c->pool, n, compare_logits, c);
    for (int32_t i = 0; i < n; i++) {
        const token_part *part = &c->parts[i];
        if (!isfinite(part->kl))
            return fail(PESC_NUMERIC, "the logits of a token are not finite");
        r->kl += part->kl;
        r->greedy_same += part->greedy_same;
        r->targets += next[i] >= 0;
        r->loss_a += part->loss_a;
        r->loss_b += part->loss_b;
    }
    return PESC_OK;
}

static pesc_status compare_heads(comparison *c, const micro_batch *b)
{
    int32_t *next = mem_alloc((size_t)b->n_tokens, sizeof *next);
    if (!next)
        return fail_nomem("a comparison", (size_t)b->n_tokens * sizeof *next);
    next_ids(b, next);
    pesc_status s = PESC_OK;
    for (int32_t at = 0, n; s == PESC_OK && at < b->n_tokens; at += n) {
        n = b->n_tokens - at < c->a.chunk ? b->n_tokens - at : c->a.chunk;
        s = side_head(&c->a, at, n);
        if (s == PESC_OK)
            s = side_head(&c->b, at, n);
        if (s == PESC_OK)
            s = add_tokens(c, next + at, n);
    }
    mem_free(next);
    return s;
}

/* ---- records ---- */

static pesc_status forward(void *ud, const micro_batch *b)
{
    comparison *c = ud;
    TRY(side_start(&c->a, b));
    TRY(side_start(&c->b, b));
    TRY(compare_layers(c, b->n_tokens));
    return compare_heads(c, b);
}

static pesc_status add_record(comparison *c, uint64_t index)
{
    uint64_t n;
    TRY(record_stream_read(&c->in, index, &n));
    c->out->records += n > 0;
    c->out->tokens += n;
    return record_stream_add(&c->in, 0);
}

static void finish_report(comparison *c)
{
    pesc_compare_report *r = c->out;
    double tokens = (double)r->tokens, targets = (double)r->targets;
    for (size_t i = 0; i < r->n_layers; i++) {
        pesc_compare_layer *l = &r->layers[i];
        l->ffn = relative(&c->layers[i].ffn);
        l->residual = relative(&c->layers[i].residual);
        l->experts = l->nearest = NAN;
        if (experts_in(&c->experts, (int32_t)i))
            experts_mean(&c->experts, &c->layers[i].experts, &l->experts, &l->nearest);
    }
    r->kl = r->kl > 0 ? r->kl / tokens : 0; /* -1e-17 is rounding of the sum */
    r->loss_a = r->targets ? r->loss_a / targets : NAN;
    r->loss_b = r->targets ? r->loss_b / targets : NAN;
}

static pesc_status read_all(comparison *c)
{
    uint64_t n = dataset_count(c->in.data), most = (uint64_t)c->opt->limit;
    n = most && most < n ? most : n;
    for (uint64_t i = 0; i < n; i++) {
        TRY(add_record(c, i));
        log_progress("comparing records", i, n);
    }
    TRY(record_stream_end(&c->in));
    log_progress("comparing records", n, n);
    if (c->out->tokens == 0)
        return fail(PESC_FORMAT, "the records have no tokens to compare the models on");
    finish_report(c);
    return PESC_OK;
}

/* ---- opening ---- */

static pesc_status check_shapes(const pesc_model *a, const pesc_model *b)
{
    const config *c = &a->shape.cfg, *d = &b->shape.cfg;
    if (a->dev != b->dev)
        return fail(PESC_USAGE, "the two models are open on different devices");
    if (c->dim == d->dim && c->n_layers == d->n_layers && c->vocab == d->vocab)
        return PESC_OK;
    return fail(PESC_SHAPE,
                "the models cannot be compared: %d layers of %d and %d tokens of vocabulary in the "
                "first, %d layers of %d and %d tokens in the second; expected the same",
                c->n_layers, c->dim, c->vocab, d->n_layers, d->dim, d->vocab);
}

static pesc_status open_sums(comparison *c)
{
    pesc_compare_report *r = c->out;
    size_t n = (size_t)c->experts.n, each = n * n + n;
    r->n_layers = (size_t)c->a.m->shape.cfg.n_layers;
    r->layers = mem_zalloc(r->n_layers, sizeof *r->layers);
    c->layers = mem_zalloc(r->n_layers, sizeof *c->layers);
    c->room = mem_zalloc(r->n_layers * each + 1, sizeof *c->room);
    c->parts = mem_alloc((size_t)c->opt->seq_len, sizeof *c->parts);
    if (!r->layers || !c->layers || !c->room || !c->parts)
        return fail_nomem("a comparison", r->n_layers * each * sizeof *c->room);
    for (size_t i = 0; i < r->n_layers; i++)
        c->layers[i].experts = (experts_sums){ c->room + i * each, c->room + i * each + n * n };
    return PESC_OK;
}

static pesc_status open_all(comparison *c, pesc_model *a, pesc_model *b)
{
    const pesc_compare_options *o = c->opt;
    const int32_t most = (int32_t)o->seq_len;
    dataset_options d = { .paths = o->data,
                          .n_paths = o->n_data,
                          .seq_len = most,
                          DATASET_RECORDS(o),
                          DATASET_MODEL(a) };
    TRY(check_shapes(a, b));
    TRY(record_stream_open(&c->in, &d));
    TRY(side_open(&c->a, a, most));
    TRY(side_open(&c->b, b, most));
    TRY(thread_pool_open(&c->pool, 0));
    TRY(experts_open(&c->experts, &c->a, &c->b, c->pool));
    return open_sums(c);
}

pesc_status pesc_compare(pesc_model *a, pesc_model *b, const pesc_compare_options *opt,
                         pesc_compare_report *out)
{
    status_clear();
    NEED(a);
    NEED(b);
    NEED_SIZED(out);
    DEVICE_CALL(a->dev);
    ARGS_CLEAR(out);
    pesc_compare_report r = { 0 };
    pesc_compare_options o;
    TRY(options_take(PESC_OPTIONS_COMPARE, &o, opt));
    comparison c = { .out = &r, .opt = &o };
    c.in = (record_stream){ .run = forward, .ud = &c };
    pesc_status s = open_all(&c, a, b);
    if (s == PESC_OK)
        s = read_all(&c);
    ARGS_WRITE(out, &r);
    experts_close(&c.experts);
    side_close(&c.a);
    side_close(&c.b);
    record_stream_close(&c.in);
    mem_free(c.layers);
    mem_free(c.room);
    mem_free(c.parts);
    thread_pool_close(c.pool);
    return s;
}

void pesc_compare_free(pesc_compare_report *r)
{
    if (!r)
        return;
    mem_free(r->layers);
    ARGS_CLEAR(r);
}
