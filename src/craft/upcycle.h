/* upcycle: a dense model as a mixture whose experts are full copies of its FFN (Komatsuzaki et al.,
 * arXiv 2212.05055), in the layout of the family that has the same attention: Mixtral for Llama,
 * Mistral and Yi, Qwen2-MoE for Qwen2, Qwen3-MoE for Qwen3. Experts are equal and gates sum to 1,
 * so the function is the dense one; in floating point it is so up to rounding, since g f + (1-g) f
 * need not be f.
 *
 * With a granularity G each copy is cut into G experts of 1/G of its width, and G times as many are
 * chosen. The G shards of a copy have the same row of the router, so those chosen are whole copies,
 * and down is multiplied by G, since a gate is 1/G of its copy's. A shared copy takes half of the
 * output and the others the other half. */
#ifndef PESC_CRAFT_UPCYCLE_H
#define PESC_CRAFT_UPCYCLE_H

#include "arch/layers.h"
#include "craft/target.h"

typedef struct upcycle_size {
    int64_t experts, top_k; /* copies of the FFN */
    int64_t granularity;    /* experts that one copy is cut into */
    bool shared;            /* one copy more, which every token takes */
    double reinit;          /* see expert_copies */
    layer_ranges layers;    /* that become sparse */
} upcycle_size;

/* Configures the target. PESC_UNSUPPORTED when no mixture has a place for what the source is. */
pesc_status upcycle_configure(target_model *p, const upcycle_size *size);

/* Whether some layers of the mixture have no experts, though other programs' class of its family
 * has them in all layers. */
bool upcycle_only_here(const config *c);

#endif
