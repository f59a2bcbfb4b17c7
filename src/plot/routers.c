/* routers: which experts each domain chooses: a heat map for each domain, bars of one layer; and
 * what routers did over the steps of a run. */
#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

pesc_status pesc_plot_routes(const char *path, const pesc_routes_report *report)
{
    status_clear();
    NEED(path);
    NEED(report);
    pesc_routes_report full = PESC_INIT(pesc_routes_report);
    const pesc_routes_report *r = &full;
    ARGS_READ(&full, report);
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
                 "fraction of a domain's choices per expert (top %zu of %zu; uniform is %.3g)",
                 r->top_k, r->experts, 1 / (double)r->experts);
        s = pesc_plot_heat(path, &(pesc_heat){ .size = sizeof(pesc_heat),
                                               .title = "Which experts a domain chooses",
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

/* ---- one layer ---- */

enum { MOST_SLOTS = 8, NAME = 32 };

/* The part of the domain's tokens that choose the expert with choice `slot`; slot top_k: of all its
 * choices, those that fall on the expert. In percent. */
static double percent(const pesc_routes_report *r, size_t domain, size_t layer, size_t slot,
                      size_t expert)
{
    const uint64_t *counts = r->counts + (domain * r->n_layers + layer) * r->top_k * r->experts;
    double n = 0, all = 0;
    for (size_t s = 0; s < r->top_k; s++)
        for (size_t e = 0; e < r->experts; e++) {
            bool in = slot == r->top_k || slot == s;
            all += in ? (double)counts[s * r->experts + e] : 0;
            n += in && e == expert ? (double)counts[s * r->experts + e] : 0;
        }
    return all > 0 ? 100 * n / all : 0;
}

typedef struct layer_bars {
    const char **experts, **domains, *panels[MOST_SLOTS + 1];
    char (*numbers)[NAME], names[MOST_SLOTS + 1][NAME];
    double *values;
    size_t n_panels;
} layer_bars;

static void fill_layer(layer_bars *b, const pesc_routes_report *r, size_t layer)
{
    size_t at = 0;
    for (size_t e = 0; e < r->experts; e++) {
        snprintf(b->numbers[e], NAME, "expert %zu", e);
        b->experts[e] = b->numbers[e];
    }
    for (size_t d = 0; d < r->n_domains; d++)
        b->domains[d] = r->domains[d].name;
    for (size_t p = 0; p < b->n_panels; p++) {
        snprintf(b->names[p], NAME, p ? "choice %zu" : "all choices", p);
        b->panels[p] = b->names[p];
        for (size_t d = 0; d < r->n_domains; d++)
            for (size_t e = 0; e < r->experts; e++)
                b->values[at++] = percent(r, d, layer, p ? p - 1 : r->top_k, e);
    }
}

static pesc_status draw_layer(const char *path, const layer_bars *b, const pesc_routes_report *r,
                              size_t layer)
{
    char title[64], note[128];
    snprintf(title, sizeof title, "Experts chosen in layer %lld", (long long)r->layers[layer]);
    snprintf(note, sizeof note, "percent of a domain's tokens; uniform is %.3g",
             100 / (double)r->experts);
    return pesc_plot_bars(path, &(pesc_bars){ .size = sizeof(pesc_bars),
                                              .title = title,
                                              .note = note,
                                              .groups = b->experts,
                                              .n_groups = r->experts,
                                              .series = b->domains,
                                              .n_series = r->n_domains,
                                              .values = b->values,
                                              .panels = b->panels,
                                              .n_panels = b->n_panels });
}

pesc_status pesc_plot_routes_layer(const char *path, const pesc_routes_report *report, size_t layer)
{
    status_clear();
    NEED(path);
    NEED(report);
    pesc_routes_report full = PESC_INIT(pesc_routes_report);
    const pesc_routes_report *r = &full;
    ARGS_READ(&full, report);
    NEED(r->counts);
    if (layer >= r->n_layers)
        return fail(PESC_USAGE, "layer: found %zu, but the report has %zu layers", layer,
                    r->n_layers);
    size_t slots = r->top_k < MOST_SLOTS ? r->top_k : MOST_SLOTS;
    layer_bars b = { .n_panels = slots > 1 ? slots + 1 : 1 };
    b.experts = mem_alloc(r->experts, sizeof *b.experts);
    b.domains = mem_alloc(r->n_domains + 1, sizeof *b.domains);
    b.numbers = mem_alloc(r->experts, sizeof *b.numbers);
    b.values = mem_alloc(b.n_panels * (r->n_domains + 1) * r->experts, sizeof *b.values);
    pesc_status s = PESC_OK;
    if (b.experts && b.domains && b.numbers && b.values) {
        fill_layer(&b, r, layer);
        s = draw_layer(path, &b, r, layer);
    } else {
        s = fail_nomem("a picture", r->experts * sizeof *b.numbers);
    }
    mem_free(b.experts);
    mem_free(b.domains);
    mem_free(b.numbers);
    mem_free(b.values);
    return s;
}

/* ---- over time ---- */

static const struct measure {
    const char *what, *title, *note;
    size_t at; /* of the array in the history */
    bool high; /* the worst layer has the largest value */
    const char *axis;
} measures[] = {
    { "load", "Load of the busiest expert", "largest share of a layer / mean share; 1 is even",
      offsetof(pesc_routes_history, load), true, "times the mean" },
    { "entropy", "Entropy of the experts' shares", "1 is even, 0 when one expert has all",
      offsetof(pesc_routes_history, entropy), false, "fraction of the maximum" },
    { "dead", "Dead experts", "experts of a layer with less than 1 % of an even share",
      offsetof(pesc_routes_history, dead), true, "experts of a layer" },
};

static const struct measure *find_measure(const char *what)
{
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++)
        if (strcmp(measures[i].what, what) == 0)
            return &measures[i];
    return NULL;
}

/* The mean over layers, and the worst layer, of every step. */
static void summarise(const pesc_routes_history *h, const double *rows, bool high, double *out)
{
    for (size_t i = 0; i < h->n_steps; i++) {
        double sum = 0, worst = rows[i];
        for (size_t l = 0; l < h->n_layers; l++) {
            double v = rows[l * h->n_steps + i];
            sum += v;
            worst = high ? fmax(worst, v) : fmin(worst, v);
        }
        out[i] = sum / (double)h->n_layers;
        out[h->n_steps + i] = worst;
    }
}

pesc_status pesc_plot_routes_history(const char *path, const pesc_routes_history *history,
                                     const char *what)
{
    status_clear();
    NEED(path);
    NEED(history);
    NEED(what);
    pesc_routes_history full = PESC_INIT(pesc_routes_history);
    const pesc_routes_history *h = &full;
    ARGS_READ(&full, history);
    const struct measure *m = find_measure(what);
    if (!m || !h->n_steps || !h->n_layers)
        return fail(PESC_USAGE,
                    "what: found \"%s\" over %zu steps, expected load, entropy or dead over some",
                    what, h->n_steps);
    NEED(h->steps);
    const double *rows;
    memcpy(&rows, (const char *)h + m->at, sizeof rows);
    NEED(rows);
    double *lines = mem_alloc(2 * h->n_steps, sizeof *lines);
    if (!lines)
        return fail_nomem("a picture", 2 * h->n_steps * sizeof *lines);
    summarise(h, rows, m->high, lines);
    pesc_series series[] = {
        { .name = "mean of the layers", .x = h->steps, .y = lines, .n = h->n_steps },
        { .name = "worst layer", .x = h->steps, .y = lines + h->n_steps, .n = h->n_steps },
    };
    pesc_status s = pesc_plot_lines(path, &(pesc_lines){ .size = sizeof(pesc_lines),
                                                         .title = m->title,
                                                         .note = m->note,
                                                         .x_label = "step",
                                                         .y_label = m->axis,
                                                         .series = series,
                                                         .n_series = 2 });
    mem_free(lines);
    return s;
}
