#include "arch/holding.h"

#include "arch/shape.h"
#include "tensor/quants.h"

#include <string.h>

static bool is_auto(const char *compute_dtype)
{
    return compute_dtype && strcmp(compute_dtype, "auto") == 0;
}

dtype holding_compute(const device *dev, const char *compute_dtype)
{
    bool bf16 = is_auto(compute_dtype) ? dev->has_bf16
                : compute_dtype        ? strcmp(compute_dtype, "bf16") == 0
                                       : dev->memory && dev->has_bf16;
    return bf16 ? DT_BF16 : DT_F32;
}

void holding_read(holding *h, device *dev, const pesc_load_options *o)
{
    static const dtype known[] = { DT_F32, DT_BF16, DT_NF4 };
    bool open = !o->base_dtype && (!o->compute_dtype || is_auto(o->compute_dtype));
    bool chosen = open && holding_compute(dev, o->compute_dtype) == DT_BF16;
    bool stored = !o->base_dtype || strcmp(o->base_dtype, "stored") == 0;
    *h = (holding){ .dev = dev,
                    .base = stored ? DT_COUNT : DT_F32,
                    .floats = chosen ? DT_BF16 : DT_F32,
                    .quantised = !o->base_dtype && dev->has_bf16 ? DT_BF16 : DT_F32,
                    .blocks = !o->base_dtype && dev->op->host_memory(dev) };
    h->whole_experts = o->whole_experts || (h->blocks && o->patch);
    for (size_t i = 0; !stored && i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype_name(known[i]), o->base_dtype) == 0)
            h->base = known[i];
}

static bool is_matrix(const holding *h, const tensor_rule *r)
{
    return r->flags & RULE_QUANT && !(h->whole_experts && r->flags & RULE_EXPERT);
}

/* Whether what a GGUF has quantised stays in the file's blocks: what products and the embedding
 * read. Experts that may train, one by one, do not. */
static bool stays_in_blocks(const holding *h, const tensor_rule *r, const weight *w)
{
    bool table = r->flags & RULE_GLOBAL && (r->offset == offsetof(transformer, embed) ||
                                            r->offset == offsetof(transformer, inputs.embed) ||
                                            r->offset == offsetof(transformer, head));
    return h->base == DT_COUNT && h->blocks && (table || is_matrix(h, r)) && !w->read;
}

static dtype as_stored(const holding *h, const tensor_rule *r, const weight *w)
{
    if (quants_is(w->dt))
        return stays_in_blocks(h, r, w) ? w->dt : h->quantised;
    bool stays = w->dt == DT_BF16 || (w->dt == DT_NF4 && r->flags & RULE_QUANT);
    return stays ? w->dt : h->floats;
}

dtype holding_of_trained(const holding *h, const tensor_rule *r, const weight *w)
{
    if (r->flags & RULE_F32)
        return DT_F32;
    return w->dt == DT_F32 && h->work == DT_BF16 ? DT_BF16 : as_stored(h, r, w);
}

dtype holding_dtype(const holding *h, const tensor_rule *r, const weight *w)
{
    weight before = *w;
    before.dt = w->before;
    if (w->patched && r->flags & RULE_EXPERT) { /* the stack stays what it was */
        before.patched = before.trained = false;
        return holding_dtype(h, r, &before);
    }
    bool stored = h->base == DT_COUNT || (h->base == DT_NF4 && !is_matrix(h, r));
    if (r->flags & RULE_F32)
        return DT_F32;
    if (h->trained && w->trained)
        return holding_of_trained(h, r, w);
    return stored ? as_stored(h, r, w) : h->base;
}

/* Experts are stored one by one and held in a stack. */
static bool usable_in_file(const holding *h, const slot *s, const weight *w, dtype dt)
{
    if (!h->dev->op->host_memory(h->dev) || s->rule->flags & RULE_EXPERT)
        return false;
    bool aligned = (uintptr_t)w->data % dtype_block_bytes(dt) == 0;
    bool readable = dt == DT_F32 || dt == DT_BF16 ? aligned : quants_is(dt);
    return readable && w->dt == dt && !w->unpermute_heads;
}

held_as holding_of(const holding *h, const slot *s, const weight *w)
{
    dtype dt = holding_dtype(h, s->rule, w);
    bool stays = !h->copy || quants_is(dt);
    return (held_as){ dt, stays && usable_in_file(h, s, w, dt) };
}

static dtype without_blocks(const holding *h, dtype dt)
{
    return quants_is(dt) ? h->quantised : dt;
}

dtype holding_join(const holding *h, dtype a, dtype b)
{
    if (a == b)
        return a;
    a = without_blocks(h, a);
    b = without_blocks(h, b);
    if (a == DT_NF4 || b == DT_NF4)
        return DT_NF4;
    return a == DT_BF16 || b == DT_BF16 ? DT_BF16 : DT_F32;
}

dtype holding_of_lora(const holding *h, const weight *w)
{
    static const tensor_rule plain = { .name = "" };
    return h->lora_bf16 ? DT_BF16 : as_stored(h, &plain, w);
}
