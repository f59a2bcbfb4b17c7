/* bars: groups of horizontal bars with error lines, for instance tasks by model; several such
 * charts side by side. */
#include "base/args.h"
#include "plot/canvas.h"

#include <math.h>
#include <stdio.h>

enum {
    MOST = 4096, /* groups, series */
    MOST_PANELS = 16,
    BAR = 13, /* points: of a bar, and of the space between groups */
    GROUP_GAP = 9,
    LENGTH = 520, /* of the axis, of a chart alone and of one beside others */
    PANEL_LENGTH = 220,
    PANEL_NAME = 20, /* height */
    LABEL_ROOM = 220,
    RIGHT = 96, /* for the value after the longest bar */
    BOTTOM = 34,
    LEGEND_ROW = 18,
    TICKS = 5
};

typedef struct layout {
    double left, top, length, height, max; /* left: of the current chart */
} layout;

static size_t panels_of(const pesc_bars *p)
{
    return p->n_panels ? p->n_panels : 1;
}

/* `series` counts through all panels, as the rows of values do. */
static double value_of(const pesc_bars *p, size_t series, size_t group)
{
    return p->values[series * p->n_groups + group];
}

static double error_of(const pesc_bars *p, size_t series, size_t group)
{
    double e = p->errors ? p->errors[series * p->n_groups + group] : 0;
    return isfinite(e) ? e : 0;
}

/* The end of the axis: 1, 2 or 5 times a power of ten above the longest bar, times TICKS. */
static double axis_end(const pesc_bars *p)
{
    double most = 0;
    for (size_t s = 0; s < panels_of(p) * p->n_series; s++)
        for (size_t g = 0; g < p->n_groups; g++)
            if (isfinite(value_of(p, s, g)))
                most = fmax(most, value_of(p, s, g) + error_of(p, s, g));
    if (most <= 0)
        return 1;
    double unit = pow(10, floor(log10(most / TICKS)));
    for (int i = 0; i < 3; i++)
        if (TICKS * unit * (double[]){ 1, 2, 5 }[i] >= most)
            return TICKS * unit * (double[]){ 1, 2, 5 }[i];
    return TICKS * unit * 10;
}

static layout plan(const pesc_bars *p)
{
    canvas v;
    layout l = { .max = axis_end(p) };
    canvas_open_measure(&v);
    for (size_t g = 0; g < p->n_groups; g++)
        l.left = fmax(l.left, canvas_width(&v, canvas_body, p->groups[g]));
    canvas_drop(&v);
    l.left = fmin(l.left, LABEL_ROOM) + 30;
    l.top = canvas_heading_height(p->note) + LEGEND_ROW * (double)p->n_series + 8 +
            (p->n_panels ? PANEL_NAME : 0);
    l.length = p->n_panels > 1 ? PANEL_LENGTH : LENGTH;
    l.height = (double)p->n_groups * ((double)p->n_series * BAR + GROUP_GAP);
    return l;
}

static void draw_axis(canvas *v, const layout *l)
{
    char text[32];
    cairo_set_line_width(v->c, 1);
    for (int i = 0; i <= TICKS; i++) {
        double x = l->left + l->length * (double)i / TICKS;
        canvas_ink_set(v, canvas_rule);
        canvas_line(v, x, l->top, x, l->top + l->height);
        canvas_ink_set(v, canvas_grey);
        snprintf(text, sizeof text, "%g", l->max * i / TICKS);
        canvas_text(v, x, l->top + l->height + 16, ALIGN_MIDDLE, canvas_small, text);
    }
}

static void draw_bar(canvas *v, const layout *l, double y, double value, double error)
{
    char text[48];
    double scale = l->length / l->max, end = l->left + value * scale;
    canvas_box(v, l->left, y + 1, value * scale, BAR - 2);
    canvas_ink_set(v, canvas_ink);
    cairo_set_line_width(v->c, 1);
    if (error > 0)
        canvas_line(v, fmax(end - error * scale, l->left), y + BAR / 2.0, end + error * scale,
                    y + BAR / 2.0);
    snprintf(text, sizeof text, error > 0 ? "%.1f \u00B1 %.1f" : "%.1f", value, error);
    canvas_text(v, end + error * scale + 6, y + BAR - 3, ALIGN_LEFT, canvas_small, text);
}

static void draw_group(canvas *v, const layout *l, const pesc_bars *p, size_t panel, size_t g)
{
    double tall = (double)p->n_series * BAR, y = l->top + (double)g * (tall + GROUP_GAP) + 4;
    canvas_ink_set(v, canvas_ink);
    if (panel == 0)
        canvas_text(v, l->left - 8, y + tall / 2 + 4, ALIGN_RIGHT, canvas_body, p->groups[g]);
    for (size_t s = 0; s < p->n_series; s++) {
        size_t row = panel * p->n_series + s;
        canvas_ink_set(v, canvas_series(s));
        if (isfinite(value_of(p, row, g)))
            draw_bar(v, l, y + (double)s * BAR, fmax(value_of(p, row, g), 0), error_of(p, row, g));
    }
}

static void draw_panel(canvas *v, layout l, const pesc_bars *p, size_t panel)
{
    l.left += (double)panel * (l.length + RIGHT);
    canvas_ink_set(v, canvas_ink);
    if (p->n_panels)
        canvas_text(v, l.left, l.top - 8, ALIGN_LEFT, canvas_body, p->panels[panel]);
    draw_axis(v, &l);
    for (size_t g = 0; g < p->n_groups; g++)
        draw_group(v, &l, p, panel, g);
}

static void draw_legend(canvas *v, const layout *l, const pesc_bars *p)
{
    double y = canvas_heading_height(p->note) + 8;
    for (size_t s = 0; s < p->n_series; s++, y += LEGEND_ROW) {
        canvas_ink_set(v, canvas_series(s));
        canvas_box(v, l->left, y - 9, 20, 9);
        canvas_ink_set(v, canvas_ink);
        canvas_text(v, l->left + 26, y, ALIGN_LEFT, canvas_body, p->series[s]);
    }
}

pesc_status pesc_plot_bars(const char *path, const pesc_bars *bars)
{
    status_clear();
    NEED(path);
    NEED(bars);
    pesc_bars full = PESC_INIT(pesc_bars);
    const pesc_bars *p = &full;
    ARGS_READ(&full, bars);
    if (p->n_groups == 0 || p->n_series == 0 || p->n_groups > MOST || p->n_series > MOST)
        return fail(PESC_USAGE, "found %zu groups of %zu bars, expected 1 to %d of each",
                    p->n_groups, p->n_series, MOST);
    NEED(p->groups);
    NEED(p->series);
    NEED(p->values);
    NEED_ARRAY(p->panels, p->n_panels);
    if (p->n_panels > MOST_PANELS)
        return fail(PESC_USAGE, "found %zu panels, expected at most %d", p->n_panels, MOST_PANELS);
    layout l = plan(p);
    canvas v;
    TRY(canvas_open(&v, path, l.left + (double)panels_of(p) * (l.length + RIGHT),
                    l.top + l.height + BOTTOM));
    canvas_heading(&v, l.left, p->title, p->note);
    draw_legend(&v, &l, p);
    for (size_t i = 0; i < panels_of(p); i++)
        draw_panel(&v, l, p, i);
    return canvas_publish(&v);
}
