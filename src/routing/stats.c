/* stats: which experts the tokens of each domain are routed to, layer by layer.
 *
 * Records of all domains are packed into the same forwards; the choices of a token count for the
 * domain of its record. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "data/dataset.h"
#include "data/pack.h"
#include "model/routes.h"

#include <math.h>
#include <string.h>

typedef struct tally {
    pesc_routes_report *out;
    const pesc_routes_options *opt;
    dataset *data;
    packer *pack; /* the records of the next forward; the tag of each is its domain */
    routes *routes;
    pass *pass;
} tally;

static pesc_status domain_of(tally *t, uint64_t index, size_t *number)
{
    const char *name;
    pesc_routes_report *r = t->out;
    TRY(dataset_domain(t->data, index, number, &name));
    if (*number < r->n_domains)
        return PESC_OK;
    char *copy = mem_strdup(name);
    if (!copy)
        return fail_nomem("a domain", strlen(name));
    r->domains[r->n_domains++].name = copy;
    return PESC_OK;
}

static double *cell(const pesc_routes_report *r, size_t domain, size_t layer)
{
    return r->share + (domain * r->n_layers + layer) * r->experts;
}

/* ---- forwards ---- */

static void count(const tally *t, const micro_batch *b, int32_t seq)
{
    const routes *r = t->routes;
    size_t first = (size_t)b->spans[seq].first, k = (size_t)r->k, n = (size_t)b->seqs[seq].n * k;
    for (size_t layer = 0; layer < t->out->n_layers; layer++) {
        double *chosen = cell(t->out, b->spans[seq].tag, layer);
        const int32_t *ids = r->ids + (layer * (size_t)r->n + first) * k;
        for (size_t i = 0; i < n; i++)
            chosen[ids[i]]++;
    }
}

static pesc_status check_gates(const routes *r)
{
    size_t row = (size_t)r->n * (size_t)r->k;
    for (size_t i = 0; i < (size_t)r->n_layers * row; i++)
        if (!isfinite(r->gates[i]))
            return fail(PESC_NUMERIC, "layer %d: a gate is not finite", r->layers[i / row]);
    return PESC_OK;
}

static pesc_status forward(tally *t)
{
    if (pack_count(t->pack) == 0)
        return PESC_OK;
    const micro_batch b = pack_at(t->pack, 0);
    TRY(pass_set(t->pass, b.seqs, b.n_seqs, NULL, 0));
    TRY(routes_fwd(t->routes, t->pass));
    TRY(check_gates(t->routes));
    for (int32_t i = 0; i < b.n_seqs; i++)
        count(t, &b, i);
    pack_clear(t->pack);
    return PESC_OK;
}

static pesc_status add_record(tally *t, uint64_t index)
{
    sequence q;
    size_t domain;
    const int32_t most = (int32_t)t->opt->seq_len;
    TRY(domain_of(t, index, &domain));
    pesc_routes_domain *d = &t->out->domains[domain];
    if (t->opt->limit && d->records >= (uint64_t)t->opt->limit)
        return PESC_OK;
    TRY(dataset_whole(t->data, index, &q));
    q.n = q.n < most ? q.n : most;
    if (q.n == 0)
        return PESC_OK;
    if (!pack_fits(t->pack, q.n))
        TRY(forward(t));
    d->records++;
    d->tokens += (uint64_t)q.n;
    return pack_add(t->pack, &(pack_item){ .ids = q.ids, .n = q.n, .tag = domain });
}

/* ---- results ---- */

static void counts_to_shares(pesc_routes_report *r)
{
    if (!r)
        return;
    for (size_t row = 0; row < r->n_domains * r->n_layers; row++) {
        double *c = r->share + row * r->experts, sum = 0;
        for (size_t e = 0; e < r->experts; e++)
            sum += c[e];
        for (size_t e = 0; e < r->experts; e++)
            c[e] = sum > 0 ? c[e] / sum : 0;
    }
}

static double entropy_part(double p)
{
    return p > 0 ? -p * log(p) : 0;
}

/* Jensen-Shannon divergence of the domains' choices with equal weights, divided by its maximum
 * log(n). */
static double difference(const pesc_routes_report *r, size_t layer)
{
    double of_mean = 0, mean_of = 0, n = (double)r->n_domains;
    if (r->n_domains < 2)
        return NAN;
    for (size_t e = 0; e < r->experts; e++) {
        double sum = 0;
        for (size_t d = 0; d < r->n_domains; d++) {
            sum += cell(r, d, layer)[e];
            mean_of += entropy_part(cell(r, d, layer)[e]) / n;
        }
        of_mean += entropy_part(sum / n);
    }
    double divergence = (of_mean - mean_of) / log(n);
    return divergence > 0 ? divergence : 0;
}

/* ---- the analysis ---- */

static pesc_status open_report(tally *t)
{
    pesc_routes_report *r = t->out;
    const routes *from = t->routes;
    r->n_layers = (size_t)from->n_layers;
    r->experts = (size_t)from->m->cfg.moe.topk.n_experts;
    r->top_k = (size_t)from->k;
    r->domains = mem_zalloc(PESC_DATA_DOMAINS, sizeof *r->domains);
    r->layers = mem_alloc(r->n_layers, sizeof *r->layers);
    r->difference = mem_alloc(r->n_layers, sizeof *r->difference);
    r->share = mem_zalloc(PESC_DATA_DOMAINS * r->n_layers * r->experts, sizeof *r->share);
    if (!r->domains || !r->layers || !r->difference || !r->share)
        return fail_nomem("routing statistics", PESC_DATA_DOMAINS * r->n_layers * r->experts * 8);
    for (size_t i = 0; i < r->n_layers; i++)
        r->layers[i] = from->layers[i];
    return PESC_OK;
}

static pesc_status open_all(tally *t, pesc_model *m)
{
    const pesc_routes_options *o = t->opt;
    const int32_t most = (int32_t)o->seq_len;
    dataset_options d = { .paths = o->data,
                          .n_paths = o->n_data,
                          .format = o->format,
                          .template = o->chat_template,
                          .keep_reasoning = o->keep_reasoning,
                          .seq_len = most,
                          .tok = m->tok,
                          .chat = m->chat,
                          .vocab = m->cfg.vocab };
    TRY(routes_open(&t->routes, m, most));
    TRY(dataset_open(&t->data, &d));
    TRY(open_report(t));
    TRY(pack_open(&t->pack, (pack_limits){ .max_tokens = most, .max_seqs = most }));
    return pass_open(&t->pass, m,
                     (pass_limits){ .max_tokens = most, .max_seqs = most, .max_out = 1 }, NULL);
}

static pesc_status read_all(tally *t)
{
    uint64_t n = dataset_count(t->data);
    for (uint64_t i = 0; i < n; i++) {
        TRY(add_record(t, i));
        log_progress("routing records", i, n);
    }
    TRY(forward(t));
    log_progress("routing records", n, n);
    counts_to_shares(t->out);
    for (size_t l = 0; l < t->out->n_layers; l++)
        t->out->difference[l] = difference(t->out, l);
    return PESC_OK;
}

pesc_status pesc_routes(pesc_model *m, const pesc_routes_options *opt, pesc_routes_report *out)
{
    status_clear();
    NEED(m);
    NEED_SIZED(out);
    DEVICE_CALL(m->dev);
    ARGS_CLEAR(out);
    pesc_routes_report r = { 0 };
    pesc_routes_options o;
    TRY(options_take(PESC_OPTIONS_ROUTES, &o, opt));
    tally t = { .out = &r, .opt = &o };
    pesc_status s = open_all(&t, m);
    if (s == PESC_OK)
        s = read_all(&t);
    ARGS_WRITE(out, &r);
    pass_close(t.pass);
    routes_close(t.routes);
    dataset_close(t.data);
    pack_close(t.pack);
    return s;
}

void pesc_routes_free(pesc_routes_report *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->domains && i < r->n_domains; i++)
        mem_free(r->domains[i].name);
    mem_free(r->domains);
    mem_free(r->layers);
    mem_free(r->share);
    mem_free(r->difference);
    ARGS_CLEAR(r);
}
