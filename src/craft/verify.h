/* verify: what was written is opened like any model and must compute what it was made from: the
 * logits of both over a fixed probe of token ids, computed in f32. One model is open at a time.
 *
 * One measure for craft, merge, export and patches. The logits of a position are compared as
 * vectors around their mean, because softmax ignores the mean: the error of a position is
 * |a - b| / |a|, that of the probe is the median of its positions. A damaged tensor disturbs every
 * position. Rounding to the stored dtype does so too, but little. In a mixture rounding can also
 * make a router choose another expert near a tie, which changes single positions much: these are
 * counted, and are no failure as long as the predictions, by KL divergence and greedy tokens, stay
 * the same, or else every position is within rounding when the written model chooses the experts
 * that the other one chose. */
#ifndef PESC_CRAFT_VERIFY_H
#define PESC_CRAFT_VERIFY_H

#include "base/status.h"

/* What writing may do to the logits. */
typedef enum verify_rounding {
    ROUNDING_NONE,   /* nothing: equal bit for bit */
    ROUNDING_F32,    /* sums in another order */
    ROUNDING_16,     /* new numbers rounded to bf16 or f16 */
    ROUNDING_BLOCKS, /* all numbers rounded to a coarser format: reported, and a failure only where
                      * they are so far off that something was written to a wrong place */
} verify_rounding;

typedef struct verify_pair {
    pesc_device *dev; /* that runs both */
    const char *made_from, *made;
    pesc_load_options from_opt, made_opt; /* how each is opened */
    const char *written;                  /* the directory that a failure names */
    verify_rounding rounding;
} verify_pair;

/* PESC_NUMERIC when the two models compute different functions, or the logits of `made_from` are
 * not finite. *out is the comparison in either case. */
pesc_status verify_logits(const verify_pair *v, pesc_logit_check *out);

enum { VERIFY_POSITIONS = 64 }; /* most that are compared */

/* The parts of it: compares logits [positions, vocab]; whether what it found passes. */
typedef struct verify_logit_pair {
    const float *from, *made;
    size_t positions, vocab;
} verify_logit_pair;
void verify_compare(const verify_logit_pair *l, verify_rounding r, pesc_logit_check *out);
bool verify_passes(const pesc_logit_check *c, verify_rounding r);

/* The experts [n_layers, positions, k] that the routers of two mixtures chose. */
typedef struct verify_choices {
    const int32_t *from, *made;
    int32_t n_layers, k, n_experts;
    size_t positions;
} verify_choices;
bool verify_chooses_alike(const verify_choices *c);

#endif
