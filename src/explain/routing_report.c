/* routing_report: which experts the tokens of each domain are routed to, layer by layer.
 *
 * Records of all domains are packed into the same forwards; the choices of a token count for the
 * domain of its record. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "explain/divergence.h"
#include "explain/record_stream.h"
#include "explain/surplus.h"
#include "model/routes.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 10 }; /* examples of an expert */

typedef struct tally {
    pesc_routes_report *out;
    const pesc_routes_options *opt;
    record_stream in; /* the tag of a record is its number in `records` */
    routes *routes;
    pass *pass;
    divergence_records records;
    double *gates;  /* [domains, layers, k, experts]: sums */
    surplus tokens; /* of layer `close` */
    size_t close;   /* a sparse layer, by its place among them; SIZE_MAX: none */
} tally;

static divergence_shape shape_of(const pesc_routes_report *r)
{
    return (divergence_shape){ r->n_domains, r->n_layers, r->experts };
}

static pesc_status domain_of(tally *t, uint64_t index, size_t *number)
{
    const char *name;
    pesc_routes_report *r = t->out;
    TRY(dataset_domain(t->in.data, index, number, &name));
    if (*number < r->n_domains)
        return PESC_OK;
    char *copy = mem_strdup(name);
    if (!copy)
        return fail_nomem("a domain", strlen(name));
    r->domains[r->n_domains++].name = copy;
    return PESC_OK;
}

/* ---- forwards ---- */

static void count(tally *t, const micro_batch *b, int32_t seq)
{
    const routes *r = t->routes;
    const pesc_routes_report *o = t->out;
    size_t first = (size_t)b->spans[seq].first, k = (size_t)r->k, index = b->spans[seq].tag;
    size_t n = (size_t)b->seqs[seq].n * k, domain = t->records.domain[index];
    for (size_t layer = 0; layer < o->n_layers; layer++) {
        size_t from = (layer * (size_t)r->n + first) * k;
        size_t to = (domain * o->n_layers + layer) * k * o->experts;
        uint32_t *own = t->records.counts + (index * o->n_layers + layer) * o->experts;
        for (size_t i = 0; i < n; i++) {
            size_t expert = (size_t)r->ids[from + i], at = to + i % k * o->experts + expert;
            o->counts[at]++;
            t->gates[at] += (double)r->gates[from + i];
            own[expert]++;
        }
        for (size_t i = 0; layer == t->close && i < n; i += k)
            surplus_add(&t->tokens, b->seqs[seq].ids[i / k], r->ids + from + i, k);
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

static pesc_status forward(void *ud, const micro_batch *b)
{
    tally *t = ud;
    TRY(pass_set(t->pass, b->seqs, b->n_seqs, NULL, 0));
    TRY(routes_fwd(t->routes, t->pass));
    TRY(check_gates(t->routes));
    for (int32_t i = 0; i < b->n_seqs; i++)
        count(t, b, i);
    return PESC_OK;
}

static pesc_status add_record(tally *t, uint64_t index)
{
    size_t domain, tag = t->records.n;
    uint64_t n;
    TRY(domain_of(t, index, &domain));
    pesc_routes_domain *d = &t->out->domains[domain];
    if (t->opt->limit && d->records >= (uint64_t)t->opt->limit)
        return PESC_OK;
    TRY(record_stream_read(&t->in, index, &n));
    if (n == 0)
        return PESC_OK;
    d->records++;
    d->tokens += n;
    TRY(divergence_add(&t->records, shape_of(t->out), domain));
    return record_stream_add(&t->in, tag);
}

/* ---- results ---- */

/* Shares, gates, load and entropy of a domain in a layer. */
static void fill_row(const tally *t, size_t row)
{
    pesc_routes_report *r = t->out;
    size_t k = r->top_k, e_n = r->experts;
    const uint64_t *counts = r->counts + row * k * e_n;
    const double *gates = t->gates + row * k * e_n;
    double all = 0, most = 0, entropy = 0;
    for (size_t i = 0; i < k * e_n; i++)
        all += (double)counts[i];
    for (size_t e = 0; e < e_n; e++) {
        double n = 0, gate = 0;
        for (size_t s = 0; s < k; s++) {
            n += (double)counts[s * e_n + e];
            gate += gates[s * e_n + e];
        }
        double share = all > 0 ? n / all : 0;
        r->share[row * e_n + e] = share;
        r->gate[row * e_n + e] = n > 0 ? gate / n : NAN;
        most = share > most ? share : most;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    for (size_t s = 0; s < k; s++) {
        double gate = 0;
        for (size_t e = 0; e < e_n; e++)
            gate += gates[s * e_n + e];
        r->slot_gate[row * k + s] = all > 0 ? gate * (double)k / all : NAN;
    }
    r->load[row] = all > 0 ? most * (double)e_n : NAN;
    r->entropy[row] = all > 0 ? (e_n > 1 ? entropy / log((double)e_n) : 1) : NAN;
}

/* The observed divergence, and the test of it. */
static pesc_status test_domains(tally *t)
{
    pesc_routes_report *r = t->out;
    const divergence_shape z = shape_of(r);
    size_t row = z.layers * z.experts, n = z.domains * row;
    uint64_t *sums = mem_zalloc(n + 1, sizeof *sums);
    if (!sums)
        return fail_nomem("routing statistics", n * sizeof *sums);
    for (size_t i = 0; i < t->records.n; i++)
        for (size_t k = 0; k < row; k++)
            sums[t->records.domain[i] * row + k] += t->records.counts[i * row + k];
    for (size_t l = 0; l < r->n_layers; l++)
        r->difference[l] = divergence_of(sums, z, l);
    mem_free(sums);
    return divergence_permute(&t->records, z,
                              &(divergence_test){ .times = t->opt->permutations,
                                                  .seed = (uint64_t)t->opt->seed,
                                                  .observed = r->difference,
                                                  .chance = r->chance,
                                                  .p = r->p_value });
}

/* ---- the analysis ---- */

/* The arrays of a report, with the number of elements of each. */
static pesc_status open_arrays(tally *t)
{
    pesc_routes_report *r = t->out;
    size_t rows = PESC_DATA_DOMAINS * r->n_layers, cells = rows * r->experts;
    const struct {
        void **at;
        size_t n, size;
    } arrays[] = {
        { (void **)&r->domains, PESC_DATA_DOMAINS, sizeof *r->domains },
        { (void **)&r->layers, r->n_layers, sizeof *r->layers },
        { (void **)&r->difference, r->n_layers, sizeof *r->difference },
        { (void **)&r->chance, r->n_layers, sizeof *r->chance },
        { (void **)&r->p_value, r->n_layers, sizeof *r->p_value },
        { (void **)&r->share, cells, sizeof *r->share },
        { (void **)&r->gate, cells, sizeof *r->gate },
        { (void **)&r->counts, cells * r->top_k, sizeof *r->counts },
        { (void **)&t->gates, cells * r->top_k, sizeof *t->gates },
        { (void **)&r->slot_gate, rows * r->top_k, sizeof *r->slot_gate },
        { (void **)&r->load, rows, sizeof *r->load },
        { (void **)&r->entropy, rows, sizeof *r->entropy },
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        *arrays[i].at = mem_zalloc(arrays[i].n, arrays[i].size);
        if (!*arrays[i].at)
            return fail_nomem("routing statistics", arrays[i].n * arrays[i].size);
    }
    return PESC_OK;
}

/* The layer that is looked at closely. */
static pesc_status open_layer(tally *t)
{
    pesc_routes_report *r = t->out;
    t->close = SIZE_MAX;
    if (t->opt->layer < 0)
        return PESC_OK;
    for (size_t i = 0; i < r->n_layers; i++)
        if (r->layers[i] == t->opt->layer)
            t->close = i;
    if (t->close == SIZE_MAX)
        return fail(PESC_USAGE, "layer: found %lld, which has no router; expected %lld to %lld",
                    (long long)t->opt->layer, (long long)r->layers[0],
                    (long long)r->layers[r->n_layers - 1]);
    r->tokens = mem_zalloc(r->experts * TOKENS, sizeof *r->tokens);
    r->n_tokens = TOKENS;
    if (!r->tokens)
        return fail_nomem("the tokens of experts", r->experts * TOKENS * sizeof *r->tokens);
    return surplus_open(&t->tokens, r->experts, (size_t)t->routes->m->shape.cfg.vocab);
}

static pesc_status open_report(tally *t)
{
    pesc_routes_report *r = t->out;
    const routes *from = t->routes;
    r->n_layers = (size_t)from->n_layers;
    r->experts = (size_t)from->m->shape.cfg.moe.topk.n_experts;
    r->top_k = (size_t)from->k;
    TRY(open_arrays(t));
    for (size_t i = 0; i < r->n_layers; i++)
        r->layers[i] = from->layers[i];
    return open_layer(t);
}

static pesc_status open_all(tally *t, pesc_model *m)
{
    const pesc_routes_options *o = t->opt;
    const int32_t most = (int32_t)o->seq_len;
    dataset_options d = { .paths = o->data,
                          .n_paths = o->n_data,
                          .seq_len = most,
                          DATASET_RECORDS(o),
                          DATASET_MODEL(m) };
    TRY(routes_open(&t->routes, m, most));
    TRY(record_stream_open(&t->in, &d));
    TRY(open_report(t));
    return pass_open(&t->pass, m,
                     (pass_limits){ .max_tokens = most, .max_seqs = most, .max_out = 1 }, NULL);
}

static pesc_status read_all(tally *t)
{
    uint64_t n = dataset_count(t->in.data);
    for (uint64_t i = 0; i < n; i++) {
        TRY(add_record(t, i));
        log_progress("routing records", i, n);
    }
    TRY(record_stream_end(&t->in));
    log_progress("routing records", n, n);
    for (size_t row = 0; row < t->out->n_domains * t->out->n_layers; row++)
        fill_row(t, row);
    if (t->out->tokens)
        surplus_best(&t->tokens, t->out->tokens, t->out->n_tokens);
    return test_domains(t);
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
    t.in = (record_stream){ .run = forward, .ud = &t };
    pesc_status s = open_all(&t, m);
    if (s == PESC_OK)
        s = read_all(&t);
    ARGS_WRITE(out, &r);
    pass_close(t.pass);
    routes_close(t.routes);
    record_stream_close(&t.in);
    divergence_free(&t.records);
    surplus_close(&t.tokens);
    mem_free(t.gates);
    return s;
}

void pesc_routes_free(pesc_routes_report *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->domains && i < r->n_domains; i++)
        mem_free(r->domains[i].name);
    void *const arrays[] = { r->domains, r->layers, r->share,   r->difference,
                             r->counts,  r->gate,   r->load,    r->slot_gate,
                             r->entropy, r->chance, r->p_value, r->tokens };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        mem_free(arrays[i]);
    ARGS_CLEAR(r);
}
