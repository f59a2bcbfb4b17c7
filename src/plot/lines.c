/* lines: curves over one axis, with a heading, a legend and about five round tick marks per axis.
 */
#include "base/args.h"
#include "plot/canvas.h"

#include <math.h>
#include <stdio.h>

enum { WIDTH = 760, PLOT_HEIGHT = 300, LEFT = 72, RIGHT = 28, BOTTOM = 52, LEGEND_ROW = 20 };

/* ---- ranges and marks ---- */

typedef struct range {
    double lo, hi;
} range;

/* Beyond this a difference of two values would overflow. */
static bool usable(double v)
{
    return fabs(v) < 1e150;
}

static void widen(range *r, double v)
{
    if (!usable(v))
        return;
    r->lo = v < r->lo ? v : r->lo;
    r->hi = v > r->hi ? v : r->hi;
}

/* Widens a range by a margin at both ends; an empty range becomes one that is not. */
static range with_margin(range r)
{
    if (r.lo > r.hi)
        return (range){ 0, 1 };
    double size = fmax(fabs(r.lo), fabs(r.hi)), margin = 0.04 * (r.hi - r.lo);
    if (r.hi - r.lo <= 1e-9 * size || r.hi - r.lo < 1e-140)
        margin = 0.1 * size + 1e-9;
    return (range){ r.lo - margin, r.hi + margin };
}

typedef struct marks {
    double first, step;
    int n, decimals; /* decimals below 0: in exponent form */
} marks;

static marks marks_of(range r)
{
    double rough = (r.hi - r.lo) / 6, power = pow(10, floor(log10(rough))), lead = rough / power;
    marks m = { .step = power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10) };
    m.first = ceil(r.lo / m.step) * m.step;
    m.n = (int)floor((r.hi - m.first) / m.step + 1e-6) + 1;
    double digits = -floor(log10(m.step) + 1e-9);
    bool plain = digits < 6 && fmax(fabs(r.lo), fabs(r.hi)) < 1e7;
    m.decimals = !plain ? -1 : digits > 0 ? (int)digits : 0;
    return m;
}

typedef char label[32];

static void mark_text(label out, const marks *m, double v)
{
    v = fabs(v) < m->step * 1e-6 ? 0 : v;
    if (m->decimals < 0)
        snprintf(out, sizeof(label), "%.3g", v);
    else
        snprintf(out, sizeof(label), "%.*f", m->decimals, v);
}

/* ---- the picture ---- */

typedef struct frame {
    range x, y;
    double top; /* of the plot, in points */
} frame;

static double at_x(const frame *f, double v)
{
    return LEFT + (v - f->x.lo) / (f->x.hi - f->x.lo) * (WIDTH - LEFT - RIGHT);
}

static double at_y(const frame *f, double v)
{
    return f->top + PLOT_HEIGHT * (1 - (v - f->y.lo) / (f->y.hi - f->y.lo));
}

static void axes(canvas *v, const frame *f, const pesc_lines *p)
{
    label text;
    double bottom = f->top + PLOT_HEIGHT;
    marks my = marks_of(f->y), mx = marks_of(f->x);
    cairo_set_line_width(v->c, 1);
    for (int i = 0; i < my.n; i++) {
        double value = my.first + i * my.step, y = at_y(f, value);
        canvas_ink_set(v, canvas_rule);
        canvas_line(v, LEFT, y, WIDTH - RIGHT, y);
        canvas_ink_set(v, canvas_grey);
        mark_text(text, &my, value);
        canvas_text(v, LEFT - 8, y + 4, ALIGN_RIGHT, canvas_body, text);
    }
    for (int i = 0; i < mx.n; i++) {
        double value = mx.first + i * mx.step, x = at_x(f, value);
        canvas_line(v, x, bottom, x, bottom + 4);
        mark_text(text, &mx, value);
        canvas_text(v, x, bottom + 18, ALIGN_MIDDLE, canvas_body, text);
    }
    canvas_line(v, LEFT, bottom, WIDTH - RIGHT, bottom);
    canvas_text(v, (LEFT + WIDTH - RIGHT) / 2.0, bottom + 38, ALIGN_MIDDLE, canvas_body,
                p->x_label);
    canvas_text_up(v, 20, f->top + PLOT_HEIGHT / 2.0, canvas_body, p->y_label);
}

static void set_stroke(canvas *v, const pesc_series *s, size_t hue)
{
    colour c = canvas_series(hue);
    cairo_set_source_rgba(v->c, c.r, c.g, c.b, s->faint ? 0.28 : 1);
    cairo_set_line_width(v->c, s->faint ? 1 : 2);
    cairo_set_line_join(v->c, CAIRO_LINE_JOIN_ROUND);
}

static void dot(canvas *v, double x, double y)
{
    cairo_arc(v->c, x, y, 3.2, 0, 6.28318530717958647692);
    cairo_fill(v->c);
}

static void curve(canvas *v, const frame *f, const pesc_series *s, size_t hue)
{
    bool pen_down = false;
    set_stroke(v, s, hue);
    for (size_t i = 0; i < s->n; i++) {
        bool here = usable(s->x[i]) && usable(s->y[i]);
        if (here && pen_down)
            cairo_line_to(v->c, at_x(f, s->x[i]), at_y(f, s->y[i]));
        else if (here)
            cairo_move_to(v->c, at_x(f, s->x[i]), at_y(f, s->y[i]));
        pen_down = here;
    }
    cairo_stroke(v->c);
    for (size_t i = 0; (s->dots || s->n == 1) && i < s->n; i++)
        if (usable(s->x[i]) && usable(s->y[i]))
            dot(v, at_x(f, s->x[i]), at_y(f, s->y[i]));
}

/* A faint series has the colour of the next one that is not. */
typedef void (*series_fn)(canvas *v, void *ud, const pesc_series *s, size_t hue);

static void each_series(canvas *v, const pesc_lines *p, series_fn fn, void *ud)
{
    size_t hue = 0;
    for (size_t i = 0; i < p->n_series; i++) {
        fn(v, ud, &p->series[i], hue);
        hue += !p->series[i].faint;
    }
}

static void draw_curve(canvas *v, void *ud, const pesc_series *s, size_t hue)
{
    curve(v, ud, s, hue);
}

typedef struct legend {
    double x, y;
    bool draw; /* else only measure */
} legend;

static void legend_entry(canvas *v, void *ud, const pesc_series *s, size_t hue)
{
    legend *l = ud;
    if (!s->name || !*s->name)
        return;
    double width = canvas_width(v, canvas_body, s->name) + 46;
    if (l->x > LEFT && l->x + width > WIDTH - RIGHT) {
        l->x = LEFT;
        l->y += LEGEND_ROW;
    }
    if (l->draw) {
        set_stroke(v, s, hue);
        canvas_line(v, l->x, l->y - 4, l->x + 20, l->y - 4);
        if (s->dots)
            dot(v, l->x + 10, l->y - 4);
        canvas_ink_set(v, canvas_ink);
        canvas_text(v, l->x + 26, l->y, ALIGN_LEFT, canvas_body, s->name);
    }
    l->x += width;
}

/* The room that the names of the series take. */
static double legend_height(const pesc_lines *p)
{
    canvas v;
    legend l = { .x = LEFT };
    canvas_open_measure(&v);
    each_series(&v, p, legend_entry, &l);
    canvas_drop(&v);
    return l.x > LEFT || l.y > 0 ? l.y + LEGEND_ROW : 0;
}

pesc_status pesc_plot_lines(const char *path, const pesc_lines *lines)
{
    status_clear();
    NEED(path);
    NEED(lines);
    pesc_lines full = PESC_INIT(pesc_lines);
    const pesc_lines *p = &full;
    ARGS_READ(&full, lines);
    NEED_ARRAY(p->series, p->n_series);
    for (size_t i = 0; i < p->n_series; i++) {
        NEED_ARRAY(p->series[i].x, p->series[i].n);
        NEED_ARRAY(p->series[i].y, p->series[i].n);
    }
    frame f = { { INFINITY, -INFINITY }, { INFINITY, -INFINITY }, 0 };
    for (size_t s = 0; s < p->n_series; s++)
        for (size_t i = 0; i < p->series[s].n; i++) {
            widen(&f.x, p->series[s].x[i]);
            widen(&f.y, p->series[s].y[i]);
        }
    f.x = with_margin(f.x);
    f.y = with_margin(f.y);
    double head = canvas_heading_height(p->note);
    f.top = head + legend_height(p) + 8;
    canvas v;
    TRY(canvas_open(&v, path, WIDTH, f.top + PLOT_HEIGHT + BOTTOM));
    legend l = { .x = LEFT, .y = head + 8, .draw = true };
    canvas_heading(&v, LEFT, p->title, p->note);
    axes(&v, &f, p);
    each_series(&v, p, draw_curve, &f);
    each_series(&v, p, legend_entry, &l);
    return canvas_publish(&v);
}
