/* verify: what was written is opened like any model and must compute what it was made from: the
 * logits of both over a fixed set of token ids, in f32. One model is open at a time. */
#ifndef PESC_CRAFT_VERIFY_H
#define PESC_CRAFT_VERIFY_H

#include "base/status.h"

typedef struct verify_pair {
    const char *device; /* NULL: "cpu" */
    pesc_device *dev;   /* instead, where it is open already; NULL: it is not */
    const char *made_from, *made;
    pesc_load_options from_opt, made_opt; /* how each is opened */
} verify_pair;

/* How the logits compare, whatever the result; PESC_NUMERIC when those of `made_from` are not
 * finite. */
pesc_status verify_logits(const verify_pair *v, pesc_logit_check *out);

#endif
