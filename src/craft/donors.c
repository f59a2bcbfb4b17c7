#include "craft/donors.h"

#include "arch/bind.h"
#include "arch/fused.h"
#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* ---- opening ---- */

static pesc_status check_kind(const donor *d)
{
    switch (d->from.cfg.moe.kind) {
    case EXPERT_NONE:
        return PESC_OK;
    case EXPERT_ADAPTER:
        log_notice("%s: its adapters (PESC) are left out: they stand behind the FFN, which its "
                   "expert is a copy of; what its LoRA has learned is kept",
                   d->path);
        return PESC_OK;
    default:
        return fail(PESC_USAGE,
                    "experts_from: %s is a mixture of experts (%s), expected models tuned from a "
                    "dense one, with full weights, LoRA or adapters",
                    d->path, d->from.cfg.family);
    }
}

/* Every tensor of the base must be there, in its shape. */
static pesc_status check_tensors(const donor *d, const source_model *base)
{
    for (slot s = slot_first(); slot_next(&base->cfg, &s);) {
        const weight *w = bind_find(&base->cfg, d->from.dir->ws, &s);
        if (!w || w->nd != s.nd || memcmp(w->ne, s.ne, (size_t)s.nd * sizeof *s.ne) != 0)
            return fail(PESC_USAGE,
                        "experts_from: %s has no %s, or of another shape than %s: it was not tuned "
                        "from that model",
                        d->path, s.name, base->path);
    }
    return PESC_OK;
}

static pesc_status open_one(donor *d, const source_model *base)
{
    const char *lora_dir = NULL;
    TRY(source_model_open(&d->from, (runmodel_where){ .path = d->path }));
    TRY(check_kind(d));
    TRY(check_tensors(d, base));
    TRY(hfdir_lora(d->from.dir, NULL, &lora_dir));
    return lora_dir ? fused_open_lora(&d->lora, lora_dir, &d->from.cfg) : PESC_OK;
}

pesc_status donors_open(donors *d, const char *paths, const source_model *base)
{
    size_t n = 1, i = 0;
    for (const char *p = paths; *p; p++)
        n += *p == ',';
    d->list = mem_zalloc(n, sizeof *d->list);
    if (!d->list)
        return fail_nomem("experts_from", n * sizeof *d->list);
    for (const char *p = paths; i < n; i++) {
        size_t length = strcspn(p, ",");
        if (!length)
            return fail(PESC_USAGE, "experts_from: found an empty name in \"%s\"", paths);
        d->list[i].path = mem_strndup(p, length);
        d->n++;
        if (!d->list[i].path)
            return fail_nomem("experts_from", length);
        TRY(open_one(&d->list[i], base));
        p += length + (p[length] == ',');
    }
    return PESC_OK;
}

void donors_close(donors *d)
{
    for (int32_t i = 0; i < d->n; i++) {
        peft_close(d->list[i].lora);
        source_model_close(&d->list[i].from);
        mem_free(d->list[i].path);
    }
    mem_free(d->list);
    mem_free(d->parts);
    *d = (donors){ 0 };
}

pesc_status donors_check(const donors *d)
{
    for (int32_t i = 0; i < d->n; i++)
        TRY(weights_check(d->list[i].from.dir->ws));
    return PESC_OK;
}

/* ---- tensors ---- */

stream_part donors_part(const donor *d, const slot *s)
{
    const bool may = s->rule->flags & RULE_LINEAR;
    return (stream_part){ .stored = bind_find(&d->from.cfg, d->from.dir->ws, s),
                          .lora = may && d->lora ? peft_find(d->lora, s->name) : NULL };
}

static bool same(const stream_part *a, const stream_part *b)
{
    return !a->lora && !b->lora && a->stored->dt == b->stored->dt &&
           a->stored->unpermute_heads == b->stored->unpermute_heads && !a->stored->read &&
           !b->stored->read && a->stored->bytes == b->stored->bytes &&
           memcmp(a->stored->data, b->stored->data, a->stored->bytes) == 0;
}

void donors_fill(donors *d, const slot *s, stream_row *row)
{
    stream_part *parts = d->parts + d->n_parts;
    if (d->others == OTHERS_BASE)
        return;
    bool equal = true;
    for (int32_t i = 0; i < d->n; i++) {
        parts[i] = donors_part(&d->list[i], s);
        equal = equal && same(&parts[i], &parts[0]);
    }
    if (d->others == OTHERS_FIRST || equal) { /* a mean of equal numbers may be rounded */
        row->stored = parts[0].stored;
        row->lora = parts[0].lora;
        return;
    }
    row->mean = parts;
    row->n_mean = d->n;
    d->n_parts += (size_t)d->n;
}
