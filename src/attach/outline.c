#include "attach/outline.h"

#include "arch/bind.h"
#include "arch/fused.h"
#include "arch/info.h"
#include "base/mem.h"
#include "run/runmodel.h"

#include <string.h>

pesc_status outline_open(outline *s, device *dev, const char *path, const char *base)
{
    model_shape *m = &s->shape;
    s->dev = dev;
    TRY(runmodel_open(&s->dir, NULL, (runmodel_where){ path, base }, HFDIR_CONFIG));
    const hfdir *d = s->dir;
    TRY(config_read(&m->cfg, &(config_source){ d->config, d->generation, d->config_file, d->ws }));
    bind_settle_head(&m->cfg, d->ws, d->config_file);
    if (d->ws)
        TRY(bind_check(&m->cfg, d->ws, path));
    TRY(info_fill(&m->cfg, d, &s->info));
    m->w.blocks = mem_zalloc((size_t)m->cfg.n_layers, sizeof *m->w.blocks);
    return m->w.blocks ? PESC_OK
                       : fail_nomem("a plan", (size_t)m->cfg.n_layers * sizeof *m->w.blocks);
}

void outline_close(outline *s)
{
    mem_free(s->shape.w.blocks);
    mem_free(s->layers);
    mem_free(s->shape.loras);
    mem_free(s->shape.lora_experts);
    peft_close(s->lora);
    config_free(&s->shape.cfg);
    hfdir_close(s->dir);
}

static void count_bytes(outline *s, const bind_source *src, int64_t processes)
{
    bind_memory to = { .layers = s->layers };
    bind_layout(&s->shape, src, &to);
    for (slot at = slot_first(); slot_next(&s->shape.cfg, &at);) {
        const tensor *t = bind_field(&s->shape.w, &at);
        s->in_place += t->data ? tensor_bytes(t) : 0;
    }
    s->mixture = to.mixture.used;
    s->copied = to.base.used;
    if (s->in_host)
        s->copied += 2 * layer_hook_largest(s->layers, s->shape.cfg.n_layers);
    else if (s->layers)
        s->copied += layer_hook_bytes(s->layers, s->shape.cfg.n_layers, processes);
}

pesc_status outline_bind(outline *s, const pesc_load_options *o, int64_t processes)
{
    model_shape *m = &s->shape;
    const hfdir *d = s->dir;
    m->act_dt = holding_compute(s->dev, o->compute_dtype);
    const char *lora_dir = NULL;
    TRY(hfdir_lora(d, o->lora && *o->lora ? o->lora : NULL, &lora_dir));
    if (lora_dir)
        TRY(fused_open_lora(&s->lora, lora_dir, &m->cfg));
    bind_source src = { .ws = d->ws,
                        .stored = strcmp(m->cfg.dtype, "bfloat16") == 0 ? DT_BF16 : DT_F32,
                        .lora = s->lora,
                        .path = d->path };
    holding_read(&src.how, s->dev, o);
    src.how.copy = !d->ws;
    TRY(bind_loras(m, &src));
    s->in_host = o->host_base && !s->dev->op->host_memory(s->dev);
    if ((s->in_host || (o->shard_base && processes > 1)) &&
        !(s->layers = mem_zalloc((size_t)m->cfg.n_layers, sizeof *s->layers)))
        return fail_nomem("a plan", (size_t)m->cfg.n_layers * sizeof *s->layers);
    count_bytes(s, &src, processes);
    return PESC_OK;
}

uint64_t outline_weight_bytes(outline *s)
{
    uint64_t sum = 0;
    for (slot at = slot_first(); slot_next(&s->shape.cfg, &at);)
        sum += at.expert <= 0 ? tensor_bytes(bind_field(&s->shape.w, &at)) : 0;
    for (size_t i = 0; i < s->shape.n_loras; i++)
        sum += tensor_bytes(&s->shape.loras[i].a) + tensor_bytes(&s->shape.loras[i].b);
    return sum;
}
