/* canvas: a cairo surface that becomes a file.
 *
 * The ending of the path chooses SVG, PNG or PDF; the drawing does not know which. Bytes are
 * collected in memory and published at once, so an incomplete picture is never on the disk, and the
 * same drawing gives the same bytes. */
#ifndef PESC_PLOT_CANVAS_H
#define PESC_PLOT_CANVAS_H

#include "base/status.h"
#include "base/str.h"

#include <cairo.h>

typedef enum canvas_kind { CANVAS_PNG, CANVAS_SVG, CANVAS_PDF } canvas_kind;

typedef struct canvas {
    cairo_t *c;
    const char *path;
    canvas_kind kind;
    str bytes;
} canvas;

/* A white canvas of this size in points. After success it ends with canvas_publish() or
 * canvas_drop(). */
pesc_status canvas_open(canvas *out, const char *path, double width, double height);
pesc_status canvas_publish(canvas *v);
/* A canvas that is never published: to measure texts before the size of a picture is known. */
void canvas_open_measure(canvas *out);
void canvas_drop(canvas *v);

typedef struct colour {
    double r, g, b;
} colour;
extern const colour canvas_ink, canvas_grey, canvas_rule; /* text, notes, thin lines */
/* The colour of series i; colours repeat. */
colour canvas_series(size_t i);
void canvas_ink_set(canvas *v, colour c);

typedef enum canvas_align { ALIGN_LEFT, ALIGN_MIDDLE, ALIGN_RIGHT } canvas_align;
typedef struct canvas_font {
    double size;
    bool bold;
} canvas_font;
extern const canvas_font canvas_title, canvas_body, canvas_small;

/* y is the baseline. Control characters and invalid bytes are shown escaped; NULL is "". */
void canvas_text(canvas *v, double x, double y, canvas_align a, canvas_font f, const char *s);
/* Upwards, along a vertical axis, its middle at (x, y). */
void canvas_text_up(canvas *v, double x, double y, canvas_font f, const char *s);
double canvas_width(canvas *v, canvas_font f, const char *s);

/* Title and note of a picture; a note that is NULL or "" takes no room. */
void canvas_heading(canvas *v, double x, const char *title, const char *note);
double canvas_heading_height(const char *note);

void canvas_line(canvas *v, double x0, double y0, double x1, double y1);
void canvas_box(canvas *v, double x, double y, double w, double h);

#endif
