/* What routers do: which experts the tokens of each domain choose, layer by layer.
 *
 * Records are packed into forwards, whatever their domain; a token's choices count for the domain
 * of its record. */
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "model/routes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_LENGTH = 1024 };

pesc_routes_options pesc_routes_defaults(void)
{
    return (pesc_routes_options){ .seq_len = DEFAULT_LENGTH };
}

typedef struct packed {
    size_t domain;
    int32_t first, n; /* tokens of the forward */
} packed;

typedef struct tally {
    pesc_routes_report *out;
    const pesc_routes_options *opt;
    pesc_data *data;
    routes *routes;
    pass *pass;
    /* the records of the next forward */
    int32_t *ids;
    packed *seqs;
    token_seq *pass_seqs;
    int32_t n_ids, n_seqs;
} tally;

static pesc_status domain_of(tally *t, uint64_t index, size_t *number)
{
    const char *name;
    pesc_routes_report *r = t->out;
    TRY(pesc_data_domain(t->data, index, number, &name));
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

static void count(const tally *t, const packed *q)
{
    const routes *r = t->routes;
    for (size_t layer = 0; layer < t->out->n_layers; layer++) {
        double *chosen = cell(t->out, q->domain, layer);
        const int32_t *ids =
            r->ids + ((size_t)layer * (size_t)r->n + (size_t)q->first) * (size_t)r->k;
        for (int32_t i = 0; i < q->n * r->k; i++)
            chosen[ids[i]]++;
    }
}

static pesc_status forward(tally *t)
{
    if (t->n_seqs == 0)
        return PESC_OK;
    for (int32_t i = 0; i < t->n_seqs; i++)
        t->pass_seqs[i] = (token_seq){ .ids = t->ids + t->seqs[i].first, .n = t->seqs[i].n };
    TRY(pass_set(t->pass, t->pass_seqs, t->n_seqs, NULL, 0));
    TRY(routes_fwd(t->routes, t->pass));
    for (int32_t i = 0; i < t->n_seqs; i++)
        count(t, &t->seqs[i]);
    t->n_ids = t->n_seqs = 0;
    return PESC_OK;
}

static pesc_status add_record(tally *t, uint64_t index)
{
    const int32_t *ids, *labels;
    size_t domain, n, most = (size_t)t->opt->seq_len;
    TRY(domain_of(t, index, &domain));
    pesc_routes_domain *d = &t->out->domains[domain];
    if (t->opt->limit && d->records >= (uint64_t)t->opt->limit)
        return PESC_OK;
    TRY(pesc_data_record(t->data, index, &ids, &labels, &n));
    n = n < most ? n : most;
    if (n == 0)
        return PESC_OK;
    if ((size_t)t->n_ids + n > most)
        TRY(forward(t));
    memcpy(t->ids + t->n_ids, ids, n * sizeof *ids);
    t->seqs[t->n_seqs++] = (packed){ .domain = domain, .first = t->n_ids, .n = (int32_t)n };
    t->n_ids += (int32_t)n;
    d->records++;
    d->tokens += n;
    return PESC_OK;
}

/* ---- results ---- */

static void counts_to_shares(pesc_routes_report *r)
{
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

/* Jensen-Shannon divergence of the domains' choices, every domain weighing the same, divided by
 * its largest value log(n). */
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

/* ---- the whole ---- */

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
    pesc_data_options d = { .data = o->data,
                            .n_data = o->n_data,
                            .format = o->format,
                            .chat_template = o->chat_template,
                            .seq_len = o->seq_len };
    TRY(routes_open(&t->routes, m, most));
    TRY(pesc_data_open(&t->data, m->dir->path, &d));
    TRY(open_report(t));
    TRY(pass_open(&t->pass, m, (pass_limits){ .max_tokens = most, .max_seqs = most, .max_out = 1 },
                  NULL));
    t->ids = mem_alloc((size_t)most, sizeof *t->ids);
    t->seqs = mem_alloc((size_t)most, sizeof *t->seqs);
    t->pass_seqs = mem_alloc((size_t)most, sizeof *t->pass_seqs);
    return t->ids && t->seqs && t->pass_seqs ? PESC_OK
                                             : fail_nomem("routing statistics", (size_t)most * 32);
}

static pesc_status read_all(tally *t)
{
    uint64_t n = pesc_data_records(t->data);
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
    *out = (pesc_routes_report){ 0 };
    if (opt->seq_len < 2 || opt->seq_len > 1 << 20)
        return fail(PESC_USAGE, "seq_len: found %lld, expected 2 to %d", (long long)opt->seq_len,
                    1 << 20);
    tally t = { .out = out, .opt = opt };
    pesc_status s = open_all(&t, m);
    if (s == PESC_OK)
        s = read_all(&t);
    pass_close(t.pass);
    routes_close(t.routes);
    pesc_data_close(t.data);
    mem_free(t.ids);
    mem_free(t.seqs);
    mem_free(t.pass_seqs);
    return s;
}

void pesc_routes_free(pesc_routes_report *r)
{
    for (size_t i = 0; r->domains && i < r->n_domains; i++)
        mem_free(r->domains[i].name);
    mem_free(r->domains);
    mem_free(r->layers);
    mem_free(r->share);
    mem_free(r->difference);
    *r = (pesc_routes_report){ 0 };
}

/* ---- the picture ---- */

pesc_status pesc_plot_routes(const char *path, const pesc_routes_report *r)
{
    status_clear();
    char note[128];
    const char **panels = mem_alloc(r->n_domains + 1, sizeof *panels);
    const char **rows = mem_alloc(r->n_layers + 1, sizeof *rows);
    char(*numbers)[24] = mem_alloc(r->n_layers + 1, sizeof *numbers);
    pesc_status s = panels && rows && numbers ? PESC_OK : fail_nomem("a picture", r->n_layers * 32);
    if (s == PESC_OK) {
        for (size_t i = 0; i < r->n_domains; i++)
            panels[i] = r->domains[i].name;
        for (size_t i = 0; i < r->n_layers; i++) {
            snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)r->layers[i]);
            rows[i] = numbers[i];
        }
        snprintf(note, sizeof note,
                 "part of a domain's choices that fell on each expert (top %zu of %zu; even is "
                 "%.3g)",
                 r->top_k, r->experts, 1 / (double)r->experts);
        s = pesc_plot_heat(path, &(pesc_heat){ .title = "Which experts a domain chooses",
                                               .note = note,
                                               .x_label = "expert",
                                               .y_label = "layer",
                                               .panels = panels,
                                               .n_panels = r->n_domains,
                                               .rows = r->n_layers,
                                               .cols = r->experts,
                                               .row_names = rows,
                                               .cells = r->share });
    }
    mem_free(panels);
    mem_free(rows);
    mem_free(numbers);
    return s;
}
