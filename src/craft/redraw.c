#include "craft/redraw.h"

#include "base/mem.h"

#include <math.h>

int64_t redraw_count(double share, int64_t width)
{
    return (int64_t)(share * (double)width + 0.5);
}

/* The first n places of a Fisher-Yates shuffle. */
pesc_status redraw_units(uint8_t **out, const redraw_rule *r, int64_t width)
{
    *out = NULL;
    if (!r->n)
        return PESC_OK;
    int64_t *order = mem_alloc((size_t)width, sizeof *order);
    *out = mem_zalloc((size_t)width, 1);
    if (!order || !*out) {
        mem_free(order);
        return fail_nomem("drawing hidden units anew", (size_t)width * sizeof *order);
    }
    for (int64_t i = 0; i < width; i++)
        order[i] = i;
    for (int64_t i = 0; i < r->n; i++) {
        int64_t at = i + (int64_t)rng_below(r->units, (uint64_t)i, (uint64_t)(width - i));
        int64_t unit = order[at];
        order[at] = order[i];
        (*out)[unit] = 1;
    }
    mem_free(order);
    return PESC_OK;
}

pesc_status redraw_measure(redraw_moments *out, const weight *w)
{
    enum { PIECE = 1 << 16 };
    float *x = mem_alloc(PIECE, sizeof *x);
    double sum = 0, squares = 0;
    const int64_t total = weights_elements(w);
    pesc_status s = x ? PESC_OK : fail_nomem(w->name, PIECE * sizeof *x);
    for (int64_t at = 0, n; s == PESC_OK && at < total; at += n) {
        n = total - at < PIECE ? total - at : PIECE;
        s = weights_read_f32(w, at, n, x);
        for (int64_t i = 0; s == PESC_OK && i < n; i++) {
            sum += (double)x[i];
            squares += (double)x[i] * (double)x[i];
        }
    }
    mem_free(x);
    out->mean = sum / (double)total;
    out->deviation = sqrt(fmax(0, squares / (double)total - out->mean * out->mean));
    return s;
}

void redraw_apply(const redraw_rule *r, const uint8_t *units, redraw_moments m, redraw_rows rows)
{
    for (int64_t i = 0; i < rows.n; i++)
        for (int64_t k = 0; k < rows.cols; k++) {
            if (!units[r->columns ? k : rows.first + i])
                continue;
            uint64_t index = (uint64_t)((rows.first + i) * rows.cols + k);
            rows.x[i * rows.cols + k] =
                (float)(m.mean + m.deviation * (double)rng_normal(r->numbers, index));
        }
}
