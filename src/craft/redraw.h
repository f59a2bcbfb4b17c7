/* redraw: a part of the hidden units of an expert is drawn anew (Drop-Upcycling, arXiv 2502.19261),
 * so that experts that are copies of one FFN differ from the start.
 *
 * A unit is a row of gate and up and a column of down: the same units in the three matrices of an
 * expert. Their numbers are normal, with the mean and the variance of the matrix they are taken
 * from. */
#ifndef PESC_CRAFT_REDRAW_H
#define PESC_CRAFT_REDRAW_H

#include "base/rng.h"
#include "format/weights.h"

typedef struct redraw_rule {
    rng_key units;   /* chooses them: one key for an expert */
    rng_key numbers; /* of the tensor */
    int64_t n;       /* so many units are drawn anew; 0: nothing is */
    bool columns;    /* a unit is a column of the tensor, else a row */
} redraw_rule;

/* How many units of `width` a share of them is. */
int64_t redraw_count(double share, int64_t width);

/* Which units of `width`: one byte each, for mem_free(); *out NULL where the rule draws none. */
pesc_status redraw_units(uint8_t **out, const redraw_rule *r, int64_t width);

typedef struct redraw_moments {
    double mean, deviation;
} redraw_moments;
pesc_status redraw_measure(redraw_moments *out, const weight *w);

/* Rows [first, first + n) of the tensor, [n,cols] at x. */
typedef struct redraw_rows {
    float *x;
    int64_t first, n, cols;
} redraw_rows;
void redraw_apply(const redraw_rule *r, const uint8_t *units, redraw_moments m, redraw_rows rows);

#endif
