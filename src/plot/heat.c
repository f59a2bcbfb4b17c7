/* heat: matrices as coloured cells: panels side by side under one heading, with one scale. */
#include "base/args.h"
#include "base/mem.h"
#include "plot/canvas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MOST_SIDE = 1024, /* rows, columns */
    MOST_PANELS = 64,
    WIDE = 1080, /* what panels side by side should not exceed, in points */
    TALL = 560,
    GAP = 26,
    NAME_ROOM = 150, /* at most, for the names of rows */
    FOOT = 44,       /* under a panel: its column names and the label */
    BAR = 70         /* the scale at the right */
};

typedef struct layout {
    double cell_w, cell_h, left, top; /* of the first panel */
    double panel_w, panel_h, head;    /* head: the room of a panel's name */
    size_t across, down;              /* panels */
    double width, height;
    double max;
    bool counts; /* cells are whole numbers */
} layout;

static double within(double v, double lo, double hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}

/* ---- colours ---- */

/* White to navy, in steps of equal perceived lightness. */
static colour shade(double v)
{
    static const colour stops[] = { { 0.970, 0.980, 0.990 },
                                    { 0.776, 0.859, 0.937 },
                                    { 0.420, 0.682, 0.839 },
                                    { 0.129, 0.443, 0.710 },
                                    { 0.031, 0.188, 0.420 } };
    enum { LAST = sizeof stops / sizeof *stops - 1 };
    double at = within(v, 0, 1) * LAST;
    int i = at < LAST ? (int)at : LAST - 1;
    double t = at - i;
    colour a = stops[i], b = stops[i + 1];
    return (colour){ a.r + t * (b.r - a.r), a.g + t * (b.g - a.g), a.b + t * (b.b - a.b) };
}

/* ---- names ---- */

typedef char label[64];

static const char *name_of(label out, const char *const *names, size_t i)
{
    snprintf(out, sizeof(label), "%zu", i);
    return names ? names[i] : out;
}

/* Where names would overlap, only every second, fourth, eighth... is drawn. */
static size_t every(double room, double cell)
{
    size_t step = 1;
    while (room > cell * (double)step)
        step *= 2;
    return step;
}

static double widest(canvas *v, const char *const *names, size_t n)
{
    double most = 0;
    label number;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, canvas_width(v, canvas_body, name_of(number, names, i)));
    return most;
}

/* ---- layout ---- */

static double largest(const pesc_heat *p)
{
    double most = 0;
    for (size_t i = 0; i < p->n_panels * p->rows * p->cols; i++)
        if (isfinite(p->cells[i]) && p->cells[i] > most)
            most = p->cells[i];
    return most;
}

/* Counts: whole numbers, some above 1. */
static bool are_counts(const pesc_heat *p)
{
    for (size_t i = 0; i < p->n_panels * p->rows * p->cols; i++)
        if (isfinite(p->cells[i]) && p->cells[i] != floor(p->cells[i]))
            return false;
    return largest(p) > 1 && largest(p) < 1e6;
}

static layout plan(canvas *v, const pesc_heat *p)
{
    layout l = { .max = p->max > 0 && isfinite(p->max) ? p->max : largest(p) };
    double beside = (double)(p->n_panels < 3 ? p->n_panels : 3);
    double room = (WIDE - GAP * (beside - 1)) / beside;
    l.counts = are_counts(p);
    l.cell_w = within(floor(room / (double)p->cols), 5, 40);
    l.cell_h = within(floor(TALL / (double)p->rows), 5, 26);
    l.panel_w = l.cell_w * (double)p->cols;
    l.panel_h = l.cell_h * (double)p->rows;
    l.across = (size_t)within(floor((WIDE + GAP) / (l.panel_w + GAP)), 1, (double)p->n_panels);
    l.down = (p->n_panels + l.across - 1) / l.across;
    l.left = fmin(widest(v, p->row_names, p->rows), NAME_ROOM) + 52;
    l.head = p->panels ? 22 : 4;
    l.top = canvas_heading_height(p->note) + l.head;
    l.width = l.left + (double)l.across * (l.panel_w + GAP) + BAR;
    double heading =
        fmax(canvas_width(v, canvas_title, p->title), canvas_width(v, canvas_body, p->note));
    l.width = ceil(fmax(l.width, l.left + heading + GAP));
    l.height = ceil(l.top + (double)l.down * (l.panel_h + FOOT + l.head) - l.head + 6);
    return l;
}

/* ---- drawing ---- */

/* A cell without a number: grey, crossed out. */
static void missing(canvas *v, double x, double y, const layout *l)
{
    canvas_ink_set(v, canvas_rule);
    canvas_box(v, x, y, l->cell_w - 1, l->cell_h - 1);
    canvas_ink_set(v, canvas_grey);
    cairo_set_line_width(v->c, 0.7);
    canvas_line(v, x, y + l->cell_h - 1, x + l->cell_w - 1, y);
}

static void cell(canvas *v, const layout *l, double x, double y, double value)
{
    double part = l->max > 0 ? value / l->max : 0;
    label text;
    if (!isfinite(value)) {
        missing(v, x, y, l);
        return;
    }
    canvas_ink_set(v, shade(part));
    canvas_box(v, x, y, l->cell_w - 1, l->cell_h - 1);
    if (l->cell_w < 32 || l->cell_h < 14)
        return;
    const char *how = l->counts ? "%.0f" : fabs(value) < 9.995 ? "%.2f" : "%.3g";
    snprintf(text, sizeof text, how, value);
    canvas_ink_set(v, part > 0.55 ? (colour){ 1, 1, 1 } : canvas_ink);
    canvas_text(v, x + (l->cell_w - 1) / 2, y + l->cell_h / 2 + 3.5, ALIGN_MIDDLE, canvas_small,
                text);
}

static void frame(canvas *v, const layout *l, double x, double y)
{
    double line = l->cell_w < 14 ? 1.2 : 2;
    canvas_ink_set(v, (colour){ 0.84, 0.37, 0.00 });
    cairo_set_line_width(v->c, line);
    cairo_rectangle(v->c, x + line / 2, y + line / 2, l->cell_w - 1 - line, l->cell_h - 1 - line);
    cairo_stroke(v->c);
}

static void column_names(canvas *v, const layout *l, const pesc_heat *p, double x, double y)
{
    label number;
    size_t step = every(widest(v, p->col_names, p->cols) + 6, l->cell_w);
    canvas_ink_set(v, canvas_grey);
    for (size_t c = 0; c < p->cols; c += step)
        canvas_text(v, x + ((double)c + 0.5) * l->cell_w, y + 15, ALIGN_MIDDLE, canvas_body,
                    name_of(number, p->col_names, c));
    canvas_text(v, x + l->panel_w / 2, y + 32, ALIGN_MIDDLE, canvas_body, p->x_label);
}

static void row_names(canvas *v, const layout *l, const pesc_heat *p, double x, double y)
{
    label number;
    size_t step = every(13, l->cell_h);
    canvas_ink_set(v, canvas_grey);
    for (size_t r = 0; r < p->rows; r += step)
        canvas_text(v, x - 8, y + ((double)r + 0.5) * l->cell_h + 4, ALIGN_RIGHT, canvas_body,
                    name_of(number, p->row_names, r));
    canvas_text_up(v, 20, y + l->panel_h / 2, canvas_body, p->y_label);
}

static void panel(canvas *v, const layout *l, const pesc_heat *p, size_t index)
{
    double x = l->left + (double)(index % l->across) * (l->panel_w + GAP);
    double y = l->top + (double)(index / l->across) * (l->panel_h + FOOT + l->head);
    const size_t all = p->rows * p->cols;
    canvas_ink_set(v, canvas_ink);
    if (p->panels)
        canvas_text(v, x, y - 8, ALIGN_LEFT, (canvas_font){ 13, true }, p->panels[index]);
    for (size_t i = 0; i < all; i++) {
        double cx = x + l->cell_w * (double)(i % p->cols);
        double cy = y + l->cell_h * (double)(i / p->cols);
        cell(v, l, cx, cy, p->cells[index * all + i]);
        if (p->marked && p->marked[index * all + i])
            frame(v, l, cx, cy);
    }
    column_names(v, l, p, x, y + l->panel_h);
    if (index % l->across == 0)
        row_names(v, l, p, x, y);
}

static void scale(canvas *v, const layout *l)
{
    enum { STEPS = 50 };
    double x = l->left + (double)l->across * (l->panel_w + GAP),
           height = within(l->panel_h, 60, 220);
    label text;
    for (int i = 0; i < STEPS; i++) {
        canvas_ink_set(v, shade(1 - (i + 0.5) / STEPS));
        canvas_box(v, x, l->top + height * i / STEPS, 12, height / STEPS + 0.5);
    }
    canvas_ink_set(v, canvas_grey);
    for (int i = 0; i <= 2; i++) {
        snprintf(text, sizeof text, "%.2g", l->max * i / 2);
        canvas_text(v, x + 18,
                    l->top + height * (1 - i / 2.0) +
                        (i == 2 ? 9
                         : i    ? 4
                                : 0),
                    ALIGN_LEFT, canvas_small, text);
    }
}

static pesc_status check(const pesc_heat *p)
{
    if (p->rows - 1 < MOST_SIDE && p->cols - 1 < MOST_SIDE && p->n_panels - 1 < MOST_PANELS)
        return PESC_OK;
    return fail(PESC_USAGE,
                "a heat map of %zu panels of %zu x %zu cells cannot be drawn; give 1 to %d panels "
                "of 1 to %d rows and columns",
                p->n_panels, p->rows, p->cols, MOST_PANELS, MOST_SIDE);
}

pesc_status pesc_plot_heat(const char *path, const pesc_heat *heat)
{
    status_clear();
    NEED(path);
    NEED(heat);
    pesc_heat full = PESC_INIT(pesc_heat);
    const pesc_heat *p = &full;
    ARGS_READ(&full, heat);
    TRY(check(p));
    NEED(p->cells);
    canvas v;
    canvas_open_measure(&v);
    layout l = plan(&v, p);
    canvas_drop(&v);
    TRY(canvas_open(&v, path, l.width, l.height));
    canvas_heading(&v, l.left, p->title, p->note);
    for (size_t i = 0; i < p->n_panels; i++)
        panel(&v, &l, p, i);
    scale(&v, &l);
    return canvas_publish(&v);
}
