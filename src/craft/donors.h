/* donors: tuned models of one dense base, each of which gives an expert of every layer: its FFN
 * (Branch-Train-MiX, arXiv 2403.07816). A LoRA of a donor is folded into its weights on the way;
 * adapters (PESC) are no part of an FFN and are left out, which a notice says. */
#ifndef PESC_CRAFT_DONORS_H
#define PESC_CRAFT_DONORS_H

#include "arch/family.h"
#include "craft/source_model.h"
#include "craft/stream.h"

typedef struct donor {
    source_model from;
    peft *lora; /* NULL: none */
    char *path;
} donor;

/* What all weights but the FFNs are: the mean of the donors', those of the base, or of the first.
 */
typedef enum donor_others { OTHERS_MEAN, OTHERS_BASE, OTHERS_FIRST } donor_others;

typedef struct donors {
    donor *list;
    int32_t n;
    donor_others others;
    stream_part *parts; /* [n] for each tensor that is a mean */
    size_t n_parts, cap_parts;
} donors;

/* `paths` are separated by commas. PESC_USAGE: one is no dense model with the tensors of `base`.
 * Closed by donors_close even when it failed. */
pesc_status donors_open(donors *d, const char *paths, const source_model *base);
void donors_close(donors *d);

/* The weight of a donor under the name of a dense tensor, and its LoRA. */
stream_part donors_part(const donor *d, const slot *s);

/* Makes the row of a tensor that is no FFN of an expert what `others` says. */
void donors_fill(donors *d, const slot *s, stream_row *row);

/* PESC_IO where a file was cut short while it was read. */
pesc_status donors_check(const donors *d);

#endif
