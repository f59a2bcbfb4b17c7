#include "attach/open_model.h"

#include "arch/fused.h"
#include "arch/info.h"
#include "arch/load.h"
#include "attach/attached.h"
#include "attach/fold.h"
#include "attach/layer_stream.h"
#include "attach/patched.h"
#include "attach/served_adapters.h"
#include "backend/memory.h"
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "grammar/pieces.h"
#include "run/runmodel.h"

#include <string.h>

/* ---- opening ---- */

/* How the options want weights to be held, and in which dtype the model computes. */
static void read_options(holding *how, pesc_model *m, const pesc_load_options *opt)
{
    bool bf16 = holding_compute(m->dev, opt->compute_dtype) == DT_BF16;
    bool open = !opt->compute_dtype || strcmp(opt->compute_dtype, "auto") == 0;
    holding_read(how, m->dev, opt);
    how->work = bf16 ? DT_BF16 : DT_F32;
    how->lora_bf16 = opt->merge_lora && bf16 && how->base == DT_NF4;
    if (open && bf16)
        log_notice("%s: computes in bf16; --compute-dtype f32 is exact and slower", m->dev->name);
    m->shape.act_dt = bf16 ? DT_BF16 : DT_F32;
    m->double_quant = opt->double_quant;
}

static const memory_need model_need = { "the model", "base_dtype bf16 or nf4 needs less" };

/* The memory that the weights take; with a hook, what it keeps. */
static void measure_weights(pesc_model *m, bind_source *src, bind_memory *to)
{
    size_t *layers = to->layers;
    src->how.copy = true;
    bind_layout(&m->shape, src, to);
    if (to->base.used > memory_available(m->dev) / 2) {
        *to = (bind_memory){ .layers = layers };
        src->how.copy = false;
        bind_layout(&m->shape, src, to);
    }
    if (m->hook)
        m->hook->layout(m->hook, &to->base);
}

/* Of a base that is not whole in the device's memory. */
static pesc_status open_hook(pesc_model *m, const pesc_load_options *opt, bind_memory *to)
{
    if (opt->host_base && !m->dev->op->host_memory(m->dev))
        TRY(layer_stream_open(&m->hook, m));
    else if (opt->shard_base && m->dev->peers)
        TRY(m->dev->peers->hook(m->dev->peers, m, &m->hook));
    to->layers = m->hook ? m->hook->bytes : NULL;
    return PESC_OK;
}

/* A patch replaces what the base stores, and a LoRA stands on both: it is folded in last. */
static pesc_status open_weights(pesc_model *m, bind_source *src, const pesc_load_options *opt)
{
    bind_memory to = { 0 };
    TRY(bind_loras(&m->shape, src));
    TRY(open_hook(m, opt, &to));
    measure_weights(m, src, &to);
    TRY(memory_take(&to.base, m->dev, &model_need, &m->memory));
    if (to.mixture.used)
        TRY(memory_take(&to.mixture, m->dev, &model_need, &m->mixture));
    m->memory_bytes = to.base.size;
    m->mixture_bytes = to.mixture.size;
    if (m->hook)
        m->hook->layout(m->hook, &to.base);
    to.in = m->hook;
    to.layer = (arena){ 0 };
    bind_layout(&m->shape, src, &to);
    TRY(load_weights(m, src));
    m->attached->how = src->how;
    if (opt->patch)
        TRY(patched_apply(m, opt->patch));
    bool own = src->how.copy || !m->dev->op->host_memory(m->dev);
    bool merged = opt->merge_lora && m->shape.act_dt == DT_BF16;
    return merged && own ? fold_loras(m) : PESC_OK;
}

/* A run is opened as it was trained, so that it computes what it computed then, except where the
 * options say otherwise. `as` owns their texts. *trained: see holding.trained. */
static void use_run(pesc_load_options *opt, const hfdir *d, const runbase_held *as, bool *trained)
{
    *trained = false;
    if (strcmp(d->top, d->root) == 0) /* no run */
        return;
    bool compute = !opt->compute_dtype || strcmp(opt->compute_dtype, "auto") == 0;
    opt->compute_dtype = compute ? NULL : opt->compute_dtype;
    bool base = !opt->base_dtype;
    *trained = base || runmodel_is_patch(d->top);
    runbase_load(as, opt);
    base = base && as->base_dtype[0];
    compute = compute && strcmp(as->compute_dtype, "bf16") == 0;
    if (base || compute)
        log_notice("%s: is opened as it was trained, with%s%s%s%s; --base-dtype and "
                   "--compute-dtype change it",
                   d->path, base ? " base_dtype " : "", base ? opt->base_dtype : "",
                   compute ? " compute_dtype " : "", compute ? opt->compute_dtype : "");
}

/* With the run's own base_dtype, experts that a run trained are held as they were then: with nf4
 * none of its stack is quantised. */
static pesc_status use_patch(pesc_load_options *opt)
{
    runbase_held as;
    if (!opt->patch || !opt->base_dtype)
        return PESC_OK;
    TRY(runmodel_patch_held(&as, opt->patch));
    if (as.found && strcmp(opt->base_dtype, as.base_dtype) == 0)
        opt->whole_experts = as.whole_experts;
    return PESC_OK;
}

static pesc_status open_files(pesc_model *m, const char *path, const char *base, runbase_held *as)
{
    runstate_chain chain;
    TRY(runmodel_open(&m->dir, &chain, (runmodel_where){ path, base }, 0));
    pesc_status s = runmodel_chain_tokenizer(&m->tok, &chain);
    if (s == PESC_OK)
        s = runmodel_chain_held(as, &chain);
    runstate_chain_free(&chain);
    return s;
}

static pesc_status open_all(pesc_model *m, const char *path, pesc_load_options *opt, bool replacing)
{
    bind_source src = { .path = path };
    runbase_held as;
    peft *adapter = NULL;
    TRY(open_files(m, path, opt->base, &as));
    const hfdir *d = m->dir;
    const char *lora_dir = opt->lora;
    if (!replacing || !opt->lora)
        TRY(hfdir_lora(d, opt->lora, &lora_dir));
    bool trained;
    use_run(opt, d, &as, &trained);
    TRY(use_patch(opt));
    read_options(&src.how, m, opt);
    src.how.trained = trained;
    TRY(config_read(&m->shape.cfg,
                    &(config_source){ d->config, d->generation, d->config_file, d->ws }));
    bind_settle_head(&m->shape.cfg, d->ws, d->config_file);
    TRY(bind_check(&m->shape.cfg, d->ws, path));
    TRY(info_fill(&m->shape.cfg, d, &m->info));
    TRY(chat_open(&m->chat, m->tok, NULL, info_chat(&m->shape.cfg, m->tok)));
    info_text(&m->info, m->tok, m->chat);
    if (!chat_otherwise(m->chat))
        TRY(info_stop(m->chat, m->tok, m->stop_text, sizeof m->stop_text));
    m->stop[0] = m->stop_text[0] ? m->stop_text : NULL;
    TRY(shape_open(&m->shape));
    if (lora_dir)
        TRY(fused_open_lora(&adapter, lora_dir, &m->shape.cfg));
    if (adapter)
        peft_hash(adapter, m->attached->lora_hash);
    src.ws = d->ws;
    src.lora = adapter;
    pesc_status s = open_weights(m, &src, opt);
    peft_close(adapter);
    return s;
}

static pesc_status open_model(pesc_model **out, device *dev, const char *path,
                              const pesc_load_options *opt, bool replacing)
{
    pesc_load_options o;
    DEVICE_CALL(dev);
    TRY(options_take(PESC_OPTIONS_LOAD, &o, opt));
    pesc_model *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem("a model", sizeof *m);
    m->dev = dev;
    device_keep(dev);
    m->attached = mem_zalloc(1, sizeof *m->attached);
    pesc_status s =
        m->attached ? open_all(m, path, &o, replacing) : fail_nomem("a model", sizeof *m->attached);
    if (s == PESC_OK)
        *out = m;
    else
        pesc_model_close(m);
    return s;
}

pesc_status pesc_model_open(pesc_model **out, pesc_device *dev, const char *path,
                            const pesc_load_options *opt)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(dev);
    NEED(path);
    return open_model(out, dev, path, opt, false);
}

pesc_status model_open_replacing(pesc_model **out, device *dev, const char *path,
                                 const pesc_load_options *opt)
{
    return open_model(out, dev, path, opt, true);
}

static void release(pesc_model *m)
{
    DEVICE_CALL(m->dev);
    if (m->hook)
        m->hook->close(m->hook);
    if (m->attached) {
        patched_close(m);
        served_adapters_close(m);
        mem_free(m->attached);
    }
    if (m->memory)
        m->dev->op->free(m->dev, m->memory);
    if (m->mixture)
        m->dev->op->free(m->dev, m->mixture);
    if (m->trained)
        m->dev->op->free(m->dev, m->trained);
    mem_free(m->shape.w.blocks);
    mem_free(m->shape.loras);
    mem_free(m->shape.lora_experts);
    mem_free(m->trained_loras);
    expertcfg_free(&m->trained_experts);
    chat_close(m->chat);
    pieces_close(m->pieces);
    tokenizer_close(m->tok);
    config_free(&m->shape.cfg);
    hfdir_close(m->dir);
    mem_free(m);
}

void pesc_model_close(pesc_model *m)
{
    if (!m || __atomic_fetch_sub(&m->users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    device *dev = m->dev;
    pesc_model_close(m->draft);
    release(m);
    pesc_device_close(dev); /* after its lock was released */
}
