/* relevance: how much a task uses each expert: counted while the task's records run through the
 * model, or read from logs of the reference code. */
#include "base/args.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "base/rng.h"
#include "backend/peers.h"
#include "data/data.h"
#include "data/pack.h"
#include "esft/full_experts.h"
#include "esft/logs.h"
#include "model/routes.h"
#include "run/runmodel.h"

#include <math.h>
#include <string.h>

enum { DEFAULT_PASS = 4096, MAX_SEQS = 1024 };

/* ---- writing ---- */

/* Writes summary.json of a tally over these layers, unless out_dir is NULL, and fills in the
 * report.
 */
static pesc_status publish(const tally *t, const int32_t *layers, const char *out_dir,
                           const char *metric, pesc_esft_score_report *r)
{
    summary s = { 0 };
    double gates = 0, tokens = 0;
    char *path = out_dir ? io_join(out_dir, "summary.json") : NULL;
    pesc_status st =
        path || !out_dir ? summary_init(&s, t->n_layers, t->n_experts) : fail_nomem(out_dir, 0);
    if (st == PESC_OK && out_dir) {
        memcpy(s.layers, layers, t->n_layers * sizeof *layers);
        tally_scores(t, &s);
        for (int m = 0; m < N_METRICS; m++)
            if (strcmp(metric, "both") != 0 && strcmp(metric, metric_names[m]) != 0) {
                mem_free(s.score[m]);
                s.score[m] = NULL;
            }
        st = io_make_dir(out_dir);
    }
    if (st == PESC_OK && out_dir)
        st = summary_write(&s, path);
    for (size_t i = 0; i < t->n_layers * t->n_experts; i++) {
        gates += t->gates[i];
        tokens += t->hits[i];
    }
    r->layers = (int64_t)t->n_layers;
    r->experts = (int64_t)t->n_experts;
    r->top_k = (int64_t)t->k;
    r->gate_sum = gates / tokens;
    summary_free(&s);
    mem_free(path);
    return st;
}

/* ---- from a model ---- */

/* The routes of one forward: ids i32 [layers, tokens, k], then gates f32 of the same shape. */
typedef struct forward {
    int32_t tokens;
    char *at;
} forward;

/* Forwards are divided among the processes in rounds, of which each process runs one forward. After
 * a round all have its routes and add them in the order of the forwards, so the sums do not depend
 * on the number of processes. */
typedef struct scorer {
    pesc_model *m;
    peers *peers; /* that of m's device; NULL: one process */
    dataset *data;
    packer *pack; /* the records of the next forward */
    pass *p;
    routes *r;
    tally t;
    int32_t seq_len;
    uint64_t wanted, tokens, records; /* tokens: packed so far */
    forward *round;                   /* [processes] */
    peer_part *parts;                 /* [processes] */
    int32_t n_round;                  /* forwards of the round so far */
    char *memory;                     /* what they point to */
} scorer;

static size_t forward_count(const scorer *s, int32_t tokens)
{
    return (size_t)s->r->n_layers * (size_t)tokens * (size_t)s->r->k;
}

static pesc_status add_forward(scorer *s, const forward *f)
{
    const routes *r = s->r;
    size_t row = (size_t)f->tokens * (size_t)r->k;
    const int32_t *ids = (const int32_t *)(const void *)f->at;
    const float *gates = (const float *)(ids + forward_count(s, f->tokens));
    for (int32_t l = 0; l < r->n_layers; l++)
        for (size_t i = (size_t)l * row; i < ((size_t)l + 1) * row; i++) {
            if (!isfinite(gates[i]))
                return fail(PESC_NUMERIC, "layer %d: a gate is not finite", r->layers[l]);
            tally_add(&s->t, (size_t)l, ids[i], (double)gates[i]);
        }
    return PESC_OK;
}

static pesc_status end_round(scorer *s)
{
    for (int32_t i = 0; i < peers_size(s->peers); i++) {
        int32_t tokens = i < s->n_round ? s->round[i].tokens : 0;
        s->parts[i] = (peer_part){ s->round[i].at,
                                   forward_count(s, tokens) * (sizeof(int32_t) + sizeof(float)) };
    }
    TRY(peers_gather(s->peers, "the routes of a round", s->parts));
    for (int32_t i = 0; i < s->n_round; i++)
        TRY(add_forward(s, &s->round[i]));
    s->n_round = 0;
    return PESC_OK;
}

static pesc_status run_forward(scorer *s, const micro_batch *b, const forward *f)
{
    size_t n = forward_count(s, f->tokens);
    TRY(pass_set(s->p, b->seqs, b->n_seqs, NULL, 0));
    TRY(routes_fwd(s->r, s->p));
    memcpy(f->at, s->r->ids, n * sizeof(int32_t));
    memcpy(f->at + n * sizeof(int32_t), s->r->gates, n * sizeof(float));
    return PESC_OK;
}

/* Runs what has been packed, if it is this process' turn. */
static pesc_status run_packed(void *ud, const micro_batch *b)
{
    scorer *s = ud;
    forward *f = &s->round[s->n_round];
    f->tokens = b->n_tokens;
    if (s->n_round++ == peers_rank(s->peers))
        TRY(run_forward(s, b, f));
    if (s->n_round == peers_size(s->peers))
        TRY(end_round(s));
    log_progress("scoring", s->tokens, s->wanted);
    return PESC_OK;
}

static pesc_status open_round(scorer *s, int32_t most)
{
    size_t size = (size_t)peers_size(s->peers);
    size_t each = forward_count(s, most) * (sizeof(int32_t) + sizeof(float));
    s->round = mem_zalloc(size, sizeof *s->round);
    s->parts = mem_zalloc(size, sizeof *s->parts);
    s->memory = mem_alloc(size, each);
    if (!s->round || !s->parts || !s->memory)
        return fail_nomem("routes", size * each);
    for (size_t i = 0; i < size; i++)
        s->round[i].at = s->memory + i * each;
    return PESC_OK;
}

/* One sequence, cut where the tokens that were asked for are complete. */
static pesc_status add_sequence(scorer *s, const int32_t *ids, int32_t n)
{
    uint64_t left = s->wanted - s->tokens;
    n = (uint64_t)n < left ? n : (int32_t)left;
    if (n == 0)
        return PESC_OK;
    TRY(pack_push(s->pack, &(pack_item){ .ids = ids, .n = n }, run_packed, s));
    s->tokens += (uint64_t)n;
    return PESC_OK;
}

static pesc_status add_record(scorer *s, uint64_t index)
{
    const sequence *samples;
    size_t n;
    TRY(dataset_samples(s->data, index, &samples, &n));
    for (const sequence *q = samples; q < samples + n; q++)
        for (int32_t at = 0; at < q->n; at += s->seq_len)
            TRY(add_sequence(s, q->ids + at, q->n - at < s->seq_len ? q->n - at : s->seq_len));
    s->records++;
    return PESC_OK;
}

/* Draws records without replacement until they have the tokens that were asked for, or there are no
 * more: then all that there are are wanted. *n: records before, and how many are drawn. */
static pesc_status draw_records(scorer *s, uint64_t seed, uint32_t *order, uint64_t *n)
{
    const uint64_t all = *n;
    rng_key key = { seed, rng_stream(5, 0, 0) };
    uint64_t tokens = 0, i = 0;
    for (uint64_t k = 0; k < all; k++)
        order[k] = (uint32_t)k;
    for (; i < all && tokens < s->wanted; i++) {
        const sequence *samples;
        size_t n_samples;
        uint64_t j = i + rng_below(key, i, all - i);
        uint32_t drawn = order[j];
        order[j] = order[i];
        order[i] = drawn;
        TRY(dataset_samples(s->data, drawn, &samples, &n_samples));
        for (size_t k = 0; k < n_samples; k++)
            tokens += (uint64_t)samples[k].n;
    }
    *n = i;
    if (tokens == 0)
        return fail(PESC_FORMAT, "the data has no tokens");
    if (tokens < s->wanted)
        log_notice("the data has %llu tokens, %llu were asked for: all are scored",
                   (unsigned long long)tokens, (unsigned long long)s->wanted);
    s->wanted = tokens < s->wanted ? tokens : s->wanted;
    return PESC_OK;
}

static pesc_status score_records(scorer *s, uint64_t seed)
{
    uint64_t n = dataset_count(s->data);
    if (n > UINT32_MAX)
        return fail(PESC_UNSUPPORTED, "the data has more than 2^32 records");
    uint32_t *order = mem_alloc(n, sizeof *order);
    if (!order)
        return fail_nomem("the order of records", n * sizeof *order);
    pesc_status st = draw_records(s, seed, order, &n);
    for (uint64_t i = 0; st == PESC_OK && i < n; i++)
        st = add_record(s, order[i]);
    mem_free(order);
    TRY(st);
    TRY(pack_flush(s->pack, run_packed, s));
    return end_round(s);
}

static pesc_status open_scorer(scorer *s, const pesc_esft_score_options *o)
{
    const config *c = &s->m->shape.cfg;
    s->wanted = (uint64_t)o->tokens;
    s->seq_len = (int32_t)o->seq_len;
    if (s->seq_len == 0)
        s->seq_len = c->context < DEFAULT_PASS ? c->context : DEFAULT_PASS;
    int32_t most = o->micro_tokens ? (int32_t)o->micro_tokens : DEFAULT_PASS;
    most = most < s->seq_len ? s->seq_len : most;
    if ((uint64_t)most > s->wanted)
        most = (int32_t)s->wanted;
    TRY(routes_open(&s->r, s->m, most));
    TRY(open_round(s, most));
    TRY(tally_init(&s->t, (size_t)s->r->n_layers, (size_t)c->moe.topk.n_experts, (size_t)s->r->k));
    TRY(pack_open(&s->pack, (pack_limits){ .max_tokens = most, .max_seqs = MAX_SEQS }));
    pass_limits lim = { .max_tokens = most, .max_seqs = MAX_SEQS, .max_out = 1 };
    return pass_open(&s->p, s->m, lim, NULL);
}

pesc_status pesc_esft_score(pesc_model *m, pesc_data *d, const char *out_dir,
                            const pesc_esft_score_options *opt, pesc_esft_score_report *out)
{
    status_clear();
    NEED(m);
    NEED(d);
    NEED(out_dir);
    NEED_SIZED(out);
    DEVICE_CALL(m->dev);
    ARGS_CLEAR(out);
    pesc_esft_score_report r = { 0 };
    pesc_esft_score_options o;
    TRY(options_take(PESC_OPTIONS_ESFT_SCORE, &o, opt));
    TRY(full_experts_check(&m->shape.cfg, m->dir->path));
    scorer s = { .m = m, .peers = m->dev->peers, .data = d->set };
    pesc_status st = open_scorer(&s, &o);
    double start = clock_seconds();
    if (st == PESC_OK)
        st = score_records(&s, (uint64_t)o.seed);
    r.seconds = clock_seconds() - start;
    r.tokens = s.tokens;
    r.records = s.records;
    if (st == PESC_OK)
        st = publish(&s.t, s.r->layers, peers_lead(s.peers) ? out_dir : NULL, o.metric, &r);
    st = peers_agree(s.peers, "writing the scores", st);
    ARGS_WRITE(out, &r);
    mem_free(s.round);
    mem_free(s.parts);
    mem_free(s.memory);
    pass_close(s.p);
    routes_close(s.r);
    tally_free(&s.t);
    pack_close(s.pack);
    return st;
}

/* ---- from logs ---- */

static bool has_layer(const int32_t *layers, size_t n, int32_t layer)
{
    for (size_t i = 0; i < n; i++)
        if (layers[i] == layer)
            return true;
    return false;
}

/* The layers must be those that have experts; without a model, which would tell, they must be
 * consecutive. */
static pesc_status check_layers(const int32_t *layers, size_t n, const config *c, const char *dir)
{
    int32_t first = layers[0], last = layers[0];
    for (size_t i = 0; i < n; i++) {
        first = layers[i] < first ? layers[i] : first;
        last = layers[i] > last ? layers[i] : last;
        if (c && (layers[i] >= c->n_layers || !config_layer_sparse(c, layers[i])))
            return fail(PESC_FORMAT,
                        "%s: the model has no experts in layer %d (layers are counted "
                        "from 0)",
                        dir, layers[i]);
    }
    if (c) {
        first = 0;
        last = c->n_layers - 1;
    } else if ((size_t)(last - first) < n) {
        return PESC_OK;
    }
    for (int32_t l = first; l <= last; l++)
        if ((!c || config_layer_sparse(c, l)) && !has_layer(layers, n, l))
            return fail(PESC_FORMAT, "%s: the log of layer %d is missing: expert_weights_%d.txt%s",
                        dir, l, l, c ? "" : "; give MODEL too if that layer has no experts");
    return PESC_OK;
}

static pesc_status score_logs(const char *log_dir, const char *out_dir, const config *c,
                              const pesc_esft_score_options *opt, pesc_esft_score_report *out)
{
    int64_t experts = c ? c->moe.topk.n_experts : opt->experts, k = c ? c->moe.topk.k : opt->top_k;
    if (c && c->moe.kind == EXPERT_NONE)
        return fail(PESC_UNSUPPORTED, "%s: is dense: it has no experts", opt->model);
    if (c)
        TRY(full_experts_check(c, opt->model));
    if (experts < 1 || k < 1 || k > experts || experts > UINT16_MAX)
        return fail(PESC_USAGE,
                    "found %lld experts, top_k %lld; expected 1 to 65535 and at most "
                    "as many",
                    (long long)experts, (long long)k);
    tally t = { 0 };
    int32_t *layers = NULL;
    double start = clock_seconds();
    pesc_status st = logs_read(&t, &layers, log_dir, (size_t)experts, (size_t)k);
    if (st == PESC_OK)
        st = check_layers(layers, t.n_layers, c, log_dir);
    if (st == PESC_OK) {
        out->tokens = (uint64_t)(tally_tokens(&t, 0) + 0.5);
        out->seconds = clock_seconds() - start;
        st = publish(&t, layers, out_dir, opt->metric, out);
    }
    mem_free(layers);
    tally_free(&t);
    return st;
}

pesc_status pesc_esft_score_logs(const char *log_dir, const char *out_dir,
                                 const pesc_esft_score_options *opt, const pesc_events *ev,
                                 pesc_esft_score_report *out)
{
    status_clear();
    NEED(log_dir);
    NEED(out_dir);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    ARGS_CLEAR(out);
    pesc_esft_score_report r = { 0 };
    pesc_esft_score_options o;
    TRY(options_take(PESC_OPTIONS_ESFT_SCORE, &o, opt));
    hfdir *dir = NULL;
    config c = { 0 };
    pesc_status st =
        o.model ? runmodel_open(&dir, NULL, (runmodel_where){ .path = o.model }, 0) : PESC_OK;
    if (st == PESC_OK && dir)
        st = config_read(
            &c, &(config_source){ dir->config, dir->generation, dir->config_file, dir->ws });
    if (st == PESC_OK)
        st = score_logs(log_dir, out_dir, dir ? &c : NULL, &o, &r);
    ARGS_WRITE(out, &r);
    config_free(&c);
    hfdir_close(dir);
    return st;
}
