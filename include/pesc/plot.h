/* plot: pictures, written as .svg, .png or .pdf by the ending of the path. The same values give the
 * same bytes. Numbers that are not finite leave a gap. A name that is NULL is "". Part of pesc.h.
 */
#ifndef PESC_PLOT_H
#define PESC_PLOT_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_series {
    const char *name;
    const double *x, *y; /* n points, x ascending */
    size_t n;
    bool faint; /* thin, and in the colour of the next series in the list */
    bool dots;  /* a dot at each point */
} pesc_series;
typedef struct pesc_lines {
    size_t size;
    const char *title, *note; /* note: a smaller line under the title */
    const char *x_label, *y_label;
    const pesc_series *series;
    size_t n_series;
} pesc_lines;
pesc_status pesc_plot_lines(const char *path, const pesc_lines *lines);

/* Matrices as coloured cells, with their values if there is space. */
typedef struct pesc_heat {
    size_t size;
    const char *title, *note;
    const char *x_label, *y_label;
    const char *const *panels; /* names of n_panels matrices that share one scale; NULL: none */
    size_t n_panels, rows, cols;
    const char *const *row_names, *const *col_names; /* NULL: numbered from 0 */
    const double *cells;                             /* [n_panels, rows, cols], not negative */
    const bool *marked;                              /* cells with a frame; NULL: none */
    double max;                                      /* the darkest value; 0: the largest cell */
} pesc_heat;
pesc_status pesc_plot_heat(const char *path, const pesc_heat *heat);

/* Groups of horizontal bars, one bar for each series, from 0; with lines for errors. */
typedef struct pesc_bars {
    size_t size;
    const char *title, *note;
    const char *const *groups, *const *series; /* names */
    size_t n_groups, n_series;
    const double *values, *errors; /* [n_series, n_groups], not negative; errors NULL: none */
    /* Several charts of the same groups and series side by side, on one scale: values and errors
     * are [n_panels, n_series, n_groups]. 0: one chart without a name. */
    const char *const *panels; /* names */
    size_t n_panels;
} pesc_bars;
pesc_status pesc_plot_bars(const char *path, const pesc_bars *bars);

/* Draws the logs of a run (metrics.jsonl, eval.jsonl, routing.jsonl) to run_dir/plots: loss.svg and
 * loss.png and, if the model has experts, experts.svg and experts.png. */
pesc_status pesc_plot_run(const char *run_dir);
/* Which experts each domain chooses, one panel per domain. */
pesc_status pesc_plot_routes(const char *path, const pesc_routes_report *report);
/* The same of one of its layers, as bars: a panel for all choices, one for the first choice, one
 * for the second and so on. `layer` is an index into report->layers. */
pesc_status pesc_plot_routes_layer(const char *path, const pesc_routes_report *report,
                                   size_t layer);
/* What a run's routers did over its steps: "load", "entropy" or "dead". */
pesc_status pesc_plot_routes_history(const char *path, const pesc_routes_history *history,
                                     const char *what);

#endif
