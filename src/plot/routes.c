/* routes: which experts each domain chooses, a heat map for each domain. */
#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"

#include <stdio.h>

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
