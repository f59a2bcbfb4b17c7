#include "craft/molora.h"

#include "arch/family.h"
#include "base/log.h"
#include "craft/configjson.h"

#include <string.h>

/* What all LoRAs on FFNs have in common. */
typedef struct shared_size {
    const char *module; /* of the first; NULL: none was seen */
    int64_t rank;
    float scale;
    bool one_scale; /* all have this one */
} shared_size;

static pesc_status look_at(shared_size *z, const donor *d, const peft_lora *l)
{
    if (!z->module)
        *z = (shared_size){ l->module, l->a->ne[0], l->scale, true };
    z->one_scale = z->one_scale && l->scale == z->scale;
    return l->a->ne[0] == z->rank
               ? PESC_OK
               : fail(PESC_USAGE,
                      "experts_from: %s has a LoRA of rank %lld on %s, but that on %s before it "
                      "has %lld; the experts of a mixture of LoRA have one rank",
                      d->path, (long long)l->a->ne[0], l->module, z->module, (long long)z->rank);
}

/* The FFN that a LoRA was trained on is the one that it is put on. */
static pesc_status check_base(const donor *d, const source_model *base, const slot *s)
{
    const weight *own = bind_find(&base->cfg, base->dir->ws, s);
    const weight *its = bind_find(&d->from.cfg, d->from.dir->ws, s);
    bool same = own->dt == its->dt && own->bytes == its->bytes &&
                memcmp(own->data, its->data, own->bytes) == 0;
    return same ? PESC_OK
                : fail(PESC_USAGE,
                       "experts_from: %s of %s is not that of %s; with kind molora models differ "
                       "in their LoRA alone, --kind upcycle takes whole FFNs",
                       s->name, d->path, base->path);
}

static pesc_status look_at_donor(shared_size *z, const donor *d, const source_model *base)
{
    bool any = false;
    for (slot s = slot_first(); slot_next(&base->cfg, &s);) {
        if (!tensor_plan_ffn(&s))
            continue;
        const peft_lora *l = d->lora ? peft_find(d->lora, s.name) : NULL;
        TRY(check_base(d, base, &s));
        if (!l)
            continue;
        any = true;
        TRY(peft_check_fit(d->lora, l, s.ne));
        TRY(look_at(z, d, l));
    }
    return any ? PESC_OK
               : fail(PESC_USAGE,
                      "experts_from: %s has no LoRA on gate, up or down of an FFN, of which its "
                      "experts would be; --kind upcycle takes whole FFNs",
                      d->path);
}

pesc_status molora_configure(target_model *p, const donors *d, int64_t top_k)
{
    shared_size z = { 0 };
    for (int32_t i = 0; i < d->n; i++)
        TRY(look_at_donor(&z, &d->list[i], &p->from));
    p->plan.copies.lora_scale = z.one_scale ? z.scale : 1;
    TRY(target_begin(p));
    TRY(configjson_own_names(p->json, &p->from.cfg));
    TRY(configjson_set(p->json, "molora_experts", json_integer(d->n)));
    TRY(configjson_set(p->json, "molora_top_k", json_integer(top_k)));
    TRY(configjson_set(p->json, "molora_rank", json_integer(z.rank)));
    TRY(configjson_set(p->json, "molora_scale", json_real((double)p->plan.copies.lora_scale)));
    log_notice("%s: only pesc opens it with its experts; other programs would read the dense model",
               p->place);
    return target_read_same(p);
}
