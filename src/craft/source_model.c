#include "craft/source_model.h"

#include "arch/bind.h"
#include "base/log.h"
#include "base/mem.h"
#include "craft/stream.h"
#include "format/modeldir.h"
#include "format/peft.h"

#include <string.h>

static void look_at_dtypes(source_model *p)
{
    uint64_t bytes[DT_COUNT] = { 0 };
    for (slot s = slot_first(); slot_next(&p->cfg, &s);) {
        const weight *w = bind_find(&p->cfg, p->dir->ws, &s);
        bytes[w->dt] += w->bytes;
        p->quantised |= !stream_plain(w->dt) && !(s.rule->flags & RULE_F32);
    }
    for (int i = 0; i < DT_COUNT; i++)
        if (bytes[i] > bytes[p->usual])
            p->usual = (dtype)i;
}

pesc_status source_model_open(source_model *p, runmodel_where where)
{
    *p = (source_model){ .path = where.path, .base = where.base, .usual = DT_F32 };
    TRY(runmodel_open(&p->dir, &p->chain, where, 0));
    const hfdir *d = p->dir;
    TRY(config_read(&p->cfg, &(config_source){ d->config, d->generation, d->config_file, d->ws }));
    p->cfg.tie_embeddings = bind_head(&p->cfg, d->ws) == HEAD_TIED;
    TRY(bind_check(&p->cfg, d->ws, p->path));
    look_at_dtypes(p);
    return PESC_OK;
}

pesc_status source_model_check_no_lora(const source_model *p)
{
    if (p->dir->lora_dir)
        return fail(PESC_USAGE,
                    "%s: has a LoRA, which would be lost; fold it in first: pesc merge %s -o DIR",
                    p->path, p->path);
    return PESC_OK;
}

void source_model_close(source_model *p)
{
    config_free(&p->cfg);
    hfdir_close(p->dir);
    runstate_chain_free(&p->chain);
    *p = (source_model){ 0 };
}

/* ---- tokenizers ---- */

/* The innermost base first, so that what an outer directory has of its own wins. */
static pesc_status copy_from_chain(const runstate_chain *c, const char *dir)
{
    pesc_status s = PESC_OK;
    for (size_t i = c->n; s == PESC_OK && i-- > 0;)
        s = modeldir_copy_tokenizer(c->dirs[i], dir);
    return s;
}

/* An adapter's directory may hold nothing else: then the tokenizer is the base's. */
static pesc_status copy_from_base(const char *adapter, const char *dir)
{
    char *base = NULL;
    TRY(peft_base(&base, adapter));
    pesc_status s =
        base && io_kind_of(base) != IO_NONE ? modeldir_copy_tokenizer(base, dir) : PESC_OK;
    mem_free(base);
    return s;
}

pesc_status source_model_format(const source_model *p, const chat_format **out)
{
    pesc_run_info run = PESC_INIT(pesc_run_info);
    *out = NULL;
    if (p->chain.n < 2)
        return PESC_OK;
    TRY(pesc_run_describe(p->path, NULL, &run));
    *out = chat_find(run.chat);
    return PESC_OK;
}

pesc_status source_model_copy_tokenizer(const source_model *p, const char *tok, const char *dir)
{
    if (tok && *tok)
        return modeldir_copy_named_tokenizer(tok, dir);
    if (p->dir->lora_dir)
        TRY(copy_from_base(p->dir->lora_dir, dir));
    return copy_from_chain(&p->chain, dir);
}
