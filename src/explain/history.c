/* history: load, entropy and dead experts over the steps of a run, from its routing.jsonl. */
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/runlog.h"

#include <math.h>

enum { MOST_STEPS = 2000 };
static const double dead_share = 0.01; /* of an even share */

typedef struct reader {
    pesc_routes_history *out;
    size_t cap; /* steps that the arrays have room for */
} reader;

static pesc_status open_arrays(reader *r)
{
    pesc_routes_history *h = r->out;
    size_t n = r->cap * h->n_layers;
    h->steps = mem_alloc(r->cap, sizeof *h->steps);
    h->load = mem_alloc(n, sizeof *h->load);
    h->entropy = mem_alloc(n, sizeof *h->entropy);
    h->dead = mem_alloc(n, sizeof *h->dead);
    return h->steps && h->load && h->entropy && h->dead
               ? PESC_OK
               : fail_nomem("the history of routing", 3 * n * sizeof *h->load);
}

/* Rows are `cap` long until all steps are read. */
static void add_layer(const reader *r, json_where w, size_t layer)
{
    const pesc_routes_history *h = r->out;
    double n = (double)h->experts, most = 0, entropy = 0, dead = 0;
    for (size_t e = 0; e < h->experts; e++) {
        double share = runlog_share(w, layer, e);
        most = fmax(most, share);
        entropy -= share > 0 ? share * log(share) : 0;
        dead += share < dead_share / n;
    }
    size_t at = layer * r->cap + h->n_steps;
    h->load[at] = most * n;
    h->entropy[at] = h->experts > 1 ? entropy / log(n) : 1;
    h->dead[at] = dead;
}

static pesc_status add_step(void *ud, json_where w)
{
    reader *r = ud;
    pesc_routes_history *h = r->out;
    TRY(runlog_shape(w, &h->n_layers, &h->experts));
    if (!h->steps)
        TRY(open_arrays(r));
    if (h->n_steps == r->cap)
        return PESC_OK;
    TRY(json_get_f64(w, "step", true, &h->steps[h->n_steps]));
    for (size_t l = 0; l < h->n_layers; l++)
        add_layer(r, w, l);
    h->n_steps++;
    return PESC_OK;
}

/* Rows of `cap` become rows of n_steps. */
static void close_ranks(const reader *r)
{
    const pesc_routes_history *h = r->out;
    double *const rows[] = { h->load, h->entropy, h->dead };
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < h->n_layers * h->n_steps; i++)
            rows[k][i] = rows[k][i / h->n_steps * r->cap + i % h->n_steps];
}

static pesc_status read_all(reader *r, const char *run_dir)
{
    runlog l;
    pesc_status s = runlog_open(&l, run_dir, "routing.jsonl");
    size_t stride = l.n / MOST_STEPS + 1;
    r->cap = l.n / stride + 2;
    if (s == PESC_OK)
        s = runlog_each(&l, 0, stride, add_step, r);
    runlog_close(&l);
    if (s == PESC_OK && r->out->n_steps == 0)
        s = fail(PESC_FORMAT,
                 "%s: routing.jsonl has no steps; expected the directory of a run that trains a "
                 "model with experts",
                 run_dir);
    if (s == PESC_OK)
        close_ranks(r);
    return s;
}

pesc_status pesc_routes_over_time(const char *run_dir, const pesc_events *ev,
                                  pesc_routes_history *out)
{
    status_clear();
    NEED(run_dir);
    NEED_SIZED(out);
    LOG_EVENTS(ev);
    ARGS_CLEAR(out);
    pesc_routes_history h = { 0 };
    pesc_status s = read_all(&(reader){ .out = &h }, run_dir);
    ARGS_WRITE(out, &h);
    return s;
}

void pesc_routes_history_free(pesc_routes_history *h)
{
    if (!h)
        return;
    mem_free(h->steps);
    mem_free(h->load);
    mem_free(h->entropy);
    mem_free(h->dead);
    ARGS_CLEAR(h);
}
