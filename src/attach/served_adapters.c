#include "attach/served_adapters.h"

#include "arch/bind.h"
#include "arch/fused.h"
#include "arch/param_group.h"
#include "attach/attached.h"
#include "attach/extra_experts.h"
#include "backend/memory.h"
#include "base/mem.h"
#include "format/peft.h"
#include "run/runmodel.h"
#include "tensor/bf16.h"

#include <string.h>

/* Each LoRA begins at a multiple of so many columns: a kernel that adds neighbouring products in
 * pairs or vectors then groups its columns as it would alone. */
enum { COLUMNS = 32 };

struct served_adapters {
    /* [n], while they are read; a served adapter is one or the other, which is NULL then */
    peft **adapters;
    patch **patches;
    int32_t n;
    lora_bank *banks; /* [n_banks] */
    bank_part *parts; /* [n_banks, n] */
    size_t n_banks;
    void *memory;
    struct extra *extra; /* NULL: no patches */
};

/* The LoRA of a slot; NULL: none, like an adapter that is NULL. */
static const peft_lora *find_lora(const peft *adapter, const slot *s)
{
    return adapter && s->rule->flags & RULE_LINEAR ? peft_find(adapter, s->name) : NULL;
}

static bool any_lora(const struct served_adapters *sp, const slot *s)
{
    for (int32_t i = 0; i < sp->n; i++)
        if (find_lora(sp->adapters[i], s))
            return true;
    return false;
}

static pesc_status check_loras(struct served_adapters *sp, const pesc_model *m)
{
    for (int32_t i = 0; i < sp->n; i++) {
        const peft *adapter = sp->adapters[i];
        size_t used = 0;
        if (!adapter)
            continue;
        for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
            const bool expert = param_full_expert(s.rule);
            const peft_lora *l = expert ? peft_find(adapter, s.name) : find_lora(adapter, &s);
            if (!l)
                continue;
            TRY(peft_check_fit(adapter, l, s.ne));
            used++;
        }
        if (used < adapter->n)
            return fail(PESC_SHAPE,
                        "%s: %zu of its %zu LoRAs are on no linear and no expert of this model",
                        adapter->dir, adapter->n - used, adapter->n);
    }
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        sp->n_banks += any_lora(sp, &s);
    return PESC_OK;
}

/* Places the tensors of all banks: first to measure, then in memory. */
static void layout(struct served_adapters *sp, pesc_model *m, arena *a)
{
    size_t at = 0;
    dtype dt = m->shape.act_dt;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        if (!any_lora(sp, &s))
            continue;
        lora_bank *bank = &sp->banks[at];
        int64_t columns = 0;
        bank->parts = sp->parts + at++ * (size_t)sp->n;
        for (int32_t i = 0; i < sp->n; i++) {
            const peft_lora *l = find_lora(sp->adapters[i], &s);
            if (!l)
                continue;
            bank->parts[i] = (bank_part){ .a = tensor_take2(a, dt, l->a->ne[0], l->a->ne[1]),
                                          .first = columns,
                                          .scale = l->scale };
            columns += (l->a->ne[0] + COLUMNS - 1) / COLUMNS * COLUMNS;
        }
        bank->b = tensor_take2(a, dt, s.ne[0], columns);
        if (columns > m->shape.bank_columns)
            m->shape.bank_columns = (int32_t)columns;
    }
}

/* ---- reading ---- */

static void upload(device *dev, tensor to, float *x)
{
    if (to.dt == DT_BF16) /* in place: a 16-bit number is written where none is read any more */
        for (int64_t i = 0; i < tensor_count(&to); i++) {
            uint16_t h = bf16_from_f32(x[i]);
            memcpy((char *)x + (size_t)i * sizeof h, &h, sizeof h);
        }
    dev->op->upload(dev, to.data, x, tensor_bytes(&to));
}

static pesc_status read_a(device *dev, const peft_lora *l, tensor to)
{
    int64_t n = weights_elements(l->a);
    float *x = mem_alloc((size_t)n, sizeof *x);
    pesc_status s = x ? weights_read_f32(l->a, 0, n, x) : fail_nomem(l->module, (size_t)n);
    if (s == PESC_OK)
        upload(dev, to, x);
    if (s == PESC_OK)
        s = dev->op->sync(dev);
    mem_free(x);
    return s;
}

static pesc_status read_b(const struct served_adapters *sp, device *dev, const slot *s,
                          const lora_bank *bank)
{
    int64_t columns = bank->b.ne[1];
    float *all = mem_zalloc((size_t)tensor_count(&bank->b), sizeof *all);
    pesc_status st = all ? PESC_OK : fail_nomem(s->name, (size_t)tensor_count(&bank->b));
    for (int32_t i = 0; st == PESC_OK && i < sp->n; i++) {
        const peft_lora *l = find_lora(sp->adapters[i], s);
        int64_t r = l ? l->b->ne[1] : 0;
        for (int64_t row = 0; l && st == PESC_OK && row < l->b->ne[0]; row++)
            st = weights_read_f32(l->b, row * r, r, all + row * columns + bank->parts[i].first);
    }
    if (st == PESC_OK)
        upload(dev, bank->b, all);
    if (st == PESC_OK)
        st = dev->op->sync(dev);
    mem_free(all);
    return st;
}

static pesc_status read_all(struct served_adapters *sp, pesc_model *m)
{
    size_t at = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        if (!any_lora(sp, &s))
            continue;
        const lora_bank *bank = &sp->banks[at++];
        for (int32_t i = 0; i < sp->n; i++) {
            const peft_lora *l = find_lora(sp->adapters[i], &s);
            if (l)
                TRY(read_a(m->dev, l, bank->parts[i].a));
        }
        TRY(read_b(sp, m->dev, &s, bank));
        bind_linear(&m->shape.w, &s)->bank = bank;
    }
    for (int32_t i = 0; i < sp->n; i++)
        TRY(sp->adapters[i] ? weights_check(sp->adapters[i]->ws) : PESC_OK);
    return PESC_OK;
}

/* ---- opening ---- */

static void close_files(struct served_adapters *sp)
{
    for (int32_t i = 0; sp->adapters && i < sp->n; i++)
        peft_close(sp->adapters[i]);
    for (int32_t i = 0; sp->patches && i < sp->n; i++)
        patch_close(sp->patches[i]);
    mem_free(sp->adapters);
    mem_free(sp->patches);
    sp->adapters = NULL;
    sp->patches = NULL;
}

static pesc_status open_files(pesc_model *m, struct served_adapters *sp, const served_adapter *all)
{
    size_t n = (size_t)sp->n;
    sp->adapters = mem_zalloc(n, sizeof *sp->adapters);
    sp->patches = mem_zalloc(n, sizeof *sp->patches);
    if (!sp->adapters || !sp->patches)
        return fail_nomem("the served adapters", n * sizeof(peft *));
    for (size_t i = 0; i < n; i++) {
        TRY(all[i].kind == ADAPTER_PATCH ? runmodel_patch(&sp->patches[i], all[i].dir)
                                         : runmodel_lora(&sp->adapters[i], all[i].dir, m->dir));
        if (sp->adapters[i])
            TRY(fused_split_loras(&m->shape.cfg, sp->adapters[i]));
    }
    return PESC_OK;
}

static pesc_status open_loras(pesc_model *m, struct served_adapters *sp)
{
    static const memory_need need = { "the served adapters", "fewer of them need less" };
    arena a = { 0 };
    size_t n = (size_t)sp->n;
    sp->banks = mem_zalloc(sp->n_banks + 1, sizeof *sp->banks);
    sp->parts = mem_zalloc(sp->n_banks * n + 1, sizeof *sp->parts);
    if (!sp->banks || !sp->parts)
        return fail_nomem("the served adapters", sp->n_banks * n * sizeof *sp->parts);
    layout(sp, m, &a);
    TRY(memory_take(&a, m->dev, &need, &sp->memory));
    layout(sp, m, &a);
    return read_all(sp, m);
}

static pesc_status open_all(pesc_model *m, struct served_adapters *sp, const served_adapter *all)
{
    TRY(open_files(m, sp, all));
    TRY(check_loras(sp, m));
    TRY(extra_open(&sp->extra, m, &(extra_source){ sp->patches, sp->adapters, sp->n }));
    return open_loras(m, sp);
}

pesc_status served_adapters_open(pesc_model *m, const served_adapter *all, size_t n)
{
    if (n == 0)
        return PESC_OK;
    if (m->attached->served)
        return fail(PESC_USAGE, "%s: has served adapters already", m->dir->path);
    struct served_adapters *sp = m->attached->served = mem_zalloc(1, sizeof *sp);
    if (!sp)
        return fail_nomem("the served adapters", sizeof *sp);
    sp->n = (int32_t)n;
    pesc_status s = open_all(m, sp, all);
    close_files(sp);
    if (s != PESC_OK)
        served_adapters_close(m);
    return s;
}

void served_adapters_close(pesc_model *m)
{
    struct served_adapters *sp = m->attached->served;
    if (!sp)
        return;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        if (s.rule->flags & RULE_LINEAR)
            bind_linear(&m->shape.w, &s)->bank = NULL;
    extra_close(sp->extra, m);
    if (sp->memory)
        m->dev->op->free(m->dev, sp->memory);
    mem_free(sp->banks);
    mem_free(sp->parts);
    mem_free(sp);
    m->shape.bank_columns = 0;
    m->attached->served = NULL;
}
