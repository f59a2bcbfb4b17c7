#include "plot/canvas.h"

#include "base/io.h"
#include "base/utf8.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <string.h>

enum { PNG_SCALE = 2 }; /* pixels a point: sharp on dense screens */

const colour canvas_ink = { 0.13, 0.14, 0.16 };
const colour canvas_grey = { 0.42, 0.44, 0.48 };
const colour canvas_rule = { 0.88, 0.89, 0.91 };

const canvas_font canvas_title = { 16, true };
const canvas_font canvas_body = { 12, false };
const canvas_font canvas_small = { 10, false };

/* ---- surfaces ---- */

static cairo_status_t write_bytes(void *ud, const unsigned char *bytes, unsigned n)
{
    str *out = ud;
    str_add(out, (const char *)bytes, n);
    return str_ok(out) ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_NO_MEMORY;
}

static cairo_surface_t *open_png(double width, double height)
{
    cairo_surface_t *s = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)(width * PNG_SCALE),
                                                    (int)(height * PNG_SCALE));
    cairo_surface_set_device_scale(s, PNG_SCALE, PNG_SCALE);
    return s;
}

/* A fixed date, so that the same drawing gives the same bytes. */
static cairo_surface_t *open_pdf(str *out, double width, double height)
{
    cairo_surface_t *s = cairo_pdf_surface_create_for_stream(write_bytes, out, width, height);
    cairo_pdf_surface_set_metadata(s, CAIRO_PDF_METADATA_CREATE_DATE, "2000-01-01T00:00:00Z");
    return s;
}

static bool kind_of(const char *path, canvas_kind *out)
{
    static const char *const endings[] = {
        [CANVAS_SVG] = ".svg", [CANVAS_PNG] = ".png", [CANVAS_PDF] = ".pdf"
    };
    for (int i = 0; i < 3; i++)
        if (str_ends(path, endings[i])) {
            *out = (canvas_kind)i;
            return true;
        }
    return false;
}

pesc_status canvas_open(canvas *out, const char *path, double width, double height)
{
    *out = (canvas){ .path = path };
    if (!kind_of(path, &out->kind))
        return fail(PESC_USAGE, "%s: a picture is written as .svg, .png or .pdf", path);
    cairo_surface_t *s =
        out->kind == CANVAS_PNG ? open_png(width, height)
        : out->kind == CANVAS_PDF
            ? open_pdf(&out->bytes, width, height)
            : cairo_svg_surface_create_for_stream(write_bytes, &out->bytes, width, height);
    out->c = cairo_create(s);
    cairo_surface_destroy(s); /* the context keeps it */
    canvas_ink_set(out, (colour){ 1, 1, 1 });
    cairo_paint(out->c);
    canvas_ink_set(out, canvas_ink);
    return PESC_OK;
}

void canvas_open_measure(canvas *out)
{
    cairo_surface_t *s = open_png(1, 1);
    *out = (canvas){ .path = "", .c = cairo_create(s) };
    cairo_surface_destroy(s);
}

void canvas_drop(canvas *v)
{
    if (v->c)
        cairo_destroy(v->c);
    str_free(&v->bytes);
    *v = (canvas){ 0 };
}

/* cairo numbers the surfaces of a process and writes the number as an id to which nothing refers.
 * It is overwritten, so that the same drawing gives the same bytes whenever it is made. */
static void blank_id(str *svg)
{
    static const char mark[] = "<g id=\"surface";
    char *at = svg->n ? memmem(svg->p, svg->n, mark, sizeof mark - 1) : NULL;
    char *end = at ? memchr(at, '>', svg->n - (size_t)(at - svg->p)) : NULL;
    if (!end)
        return;
    memmove(at + 2, end, svg->n - (size_t)(end - svg->p) + 1);
    svg->n -= (size_t)(end - at) - 2;
}

pesc_status canvas_publish(canvas *v)
{
    cairo_surface_t *s = cairo_surface_reference(cairo_get_target(v->c));
    cairo_status_t st = cairo_status(v->c);
    if (st == CAIRO_STATUS_SUCCESS && v->kind == CANVAS_PNG)
        st = cairo_surface_write_to_png_stream(s, write_bytes, &v->bytes);
    cairo_surface_finish(s);
    if (st == CAIRO_STATUS_SUCCESS)
        st = cairo_surface_status(s);
    cairo_surface_destroy(s);
    if (v->kind == CANVAS_SVG)
        blank_id(&v->bytes);
    pesc_status out =
        !str_ok(&v->bytes) || st == CAIRO_STATUS_NO_MEMORY ? fail_nomem("a picture", v->bytes.n)
        : st != CAIRO_STATUS_SUCCESS
            ? fail(PESC_DEVICE, "%s: cairo cannot draw it: %s", v->path, cairo_status_to_string(st))
            : io_write_file(v->path, v->bytes.p, v->bytes.n);
    canvas_drop(v);
    return out;
}

/* ---- strokes ---- */

/* Colours that colour-blind eyes tell apart (Okabe and Ito), dark enough on white. */
colour canvas_series(size_t i)
{
    static const colour palette[] = { { 0.00, 0.45, 0.70 }, { 0.84, 0.37, 0.00 },
                                      { 0.00, 0.62, 0.45 }, { 0.80, 0.47, 0.65 },
                                      { 0.90, 0.62, 0.00 }, { 0.34, 0.71, 0.91 },
                                      { 0.35, 0.35, 0.35 } };
    return palette[i % (sizeof palette / sizeof *palette)];
}

void canvas_ink_set(canvas *v, colour c)
{
    cairo_set_source_rgb(v->c, c.r, c.g, c.b);
}

void canvas_line(canvas *v, double x0, double y0, double x1, double y1)
{
    cairo_move_to(v->c, x0, y0);
    cairo_line_to(v->c, x1, y1);
    cairo_stroke(v->c);
}

void canvas_box(canvas *v, double x, double y, double w, double h)
{
    cairo_rectangle(v->c, x, y, w, h);
    cairo_fill(v->c);
}

/* ---- text ---- */

typedef char shown[192];

static void choose(canvas *v, canvas_font f, const char *s, shown out)
{
    utf8_visible(out, sizeof(shown), s ? s : "", s ? strlen(s) : 0);
    cairo_select_font_face(v->c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           f.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(v->c, f.size);
}

static double advance(canvas *v, const char *text)
{
    cairo_text_extents_t e;
    cairo_text_extents(v->c, text, &e);
    return e.x_advance;
}

double canvas_width(canvas *v, canvas_font f, const char *s)
{
    shown text;
    choose(v, f, s, text);
    return advance(v, text);
}

void canvas_text(canvas *v, double x, double y, canvas_align a, canvas_font f, const char *s)
{
    shown text;
    choose(v, f, s, text);
    cairo_move_to(v->c, x - advance(v, text) * 0.5 * (double)a, y);
    cairo_show_text(v->c, text);
    cairo_new_path(v->c);
}

void canvas_text_up(canvas *v, double x, double y, canvas_font f, const char *s)
{
    cairo_save(v->c);
    cairo_translate(v->c, x, y);
    cairo_rotate(v->c, -1.57079632679489661923);
    canvas_text(v, 0, 0, ALIGN_MIDDLE, f, s);
    cairo_restore(v->c);
}

void canvas_heading(canvas *v, double x, const char *title, const char *note)
{
    canvas_ink_set(v, canvas_ink);
    canvas_text(v, x, 30, ALIGN_LEFT, canvas_title, title);
    canvas_ink_set(v, canvas_grey);
    canvas_text(v, x, 49, ALIGN_LEFT, canvas_body, note);
    canvas_ink_set(v, canvas_ink);
}

double canvas_heading_height(const char *note)
{
    return note && *note ? 66 : 48;
}
