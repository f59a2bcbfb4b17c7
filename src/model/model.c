#include "model/model.h"

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/options.h"
#include "model/block.h"
#include "model/fold.h"
#include "model/info.h"
#include "model/layer_shards.h"
#include "model/load.h"
#include "backend/memory.h"
#include "model/pass.h"
#include "arch/rope.h"
#include "model/routes.h"
#include "model/specialists.h"
#include "model/swap.h"
#include "model/traffic.h"
#include "run/runmodel.h"

#include <string.h>

/* ---- opening ---- */

/* A device with memory of its own multiplies bf16 many times faster than f32. */
static bool prefers_bf16(const device *dev)
{
    return dev->memory && dev->has_bf16;
}

static void read_options(bind_source *src, pesc_model *m, const pesc_load_options *opt)
{
    static const dtype known[] = { DT_F32, DT_BF16, DT_NF4 };
    bool chosen = !opt->compute_dtype && prefers_bf16(m->dev);
    src->as_stored = !opt->base_dtype || strcmp(opt->base_dtype, "stored") == 0;
    src->quantised = !opt->base_dtype && m->dev->has_bf16 ? DT_BF16 : DT_F32;
    src->blocks = !opt->base_dtype && m->dev->op->host_memory(m->dev);
    src->floats = !opt->base_dtype && chosen ? DT_BF16 : DT_F32;
    src->double_quant = opt->double_quant;
    src->whole_experts = opt->whole_experts || (src->blocks && opt->patch);
    for (size_t i = 0; opt->base_dtype && i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype_name(known[i]), opt->base_dtype) == 0)
            src->base = known[i];
    bool bf16 = chosen || (opt->compute_dtype && strcmp(opt->compute_dtype, "bf16") == 0);
    if (chosen)
        log_notice("%s: computes in bf16; --compute-dtype f32 is exact and slower", m->dev->name);
    m->shape.act_dt = bf16 ? DT_BF16 : DT_F32;
    m->double_quant = opt->double_quant;
    src->lora_bf16 = opt->merge_lora && bf16 && src->base == DT_NF4;
    src->lora_merged = opt->merge_lora && bf16;
}

static bool same_numbers(const weight *a, const weight *b)
{
    return a->dt == b->dt && a->bytes == b->bytes && a->dt != DT_NF4 &&
           (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
}

/* A configuration may say tied where the file holds a head of its own: the file is believed, as
 * transformers does. */
static void untie(config *c, const hfdir *dir)
{
    const weight *embed = weights_find(dir->ws, "model.embed_tokens.weight");
    const weight *head = weights_find(dir->ws, "lm_head.weight");
    if (!c->tie_embeddings || !embed || !head || same_numbers(embed, head))
        return;
    c->tie_embeddings = false;
    log_notice("%s: tie_word_embeddings is true, but the file has an lm_head.weight that differs "
               "from the embeddings; it is used",
               dir->config_file);
}

static pesc_status open_blocks(pesc_model *m)
{
    const config *c = &m->shape.cfg;
    m->shape.w.blocks = mem_zalloc((size_t)c->n_layers, sizeof *m->shape.w.blocks);
    if (!m->shape.w.blocks)
        return fail_nomem("a model", (size_t)c->n_layers * sizeof *m->shape.w.blocks);
    for (int32_t i = 0; i < c->n_layers; i++) {
        m->shape.w.blocks[i].sparse = config_layer_sparse(c, i);
        m->shape.w.blocks[i].window = config_layer_window(c, i);
    }
    m->shape.rope_scale = rope_table_scale(c);
    m->shape.attn_scale = rope_attention_scale(c);
    return PESC_OK;
}

static const memory_need model_need = { "the model", "base_dtype bf16 or nf4 needs less" };

/* The memory that the weights take; with a hook, what it keeps. */
static void measure_weights(pesc_model *m, bind_source *src, bind_memory *to)
{
    size_t *layers = to->layers;
    src->copy = true;
    bind_layout(&m->shape, src, to);
    if (to->base.used > memory_available(m->dev) / 2) {
        *to = (bind_memory){ .layers = layers };
        src->copy = false;
        bind_layout(&m->shape, src, to);
    }
    if (m->hook)
        m->hook->layout(m->hook, &to->base);
}

static pesc_status open_hook(pesc_model *m, bind_memory *to)
{
    TRY(layer_shards_open(&m->hook, m));
    to->layers = m->hook->bytes;
    return PESC_OK;
}

/* A patch replaces what the base stores, and a LoRA stands on both: it is folded in last. */
static pesc_status open_weights(pesc_model *m, bind_source *src, const pesc_load_options *opt)
{
    bind_memory to = { 0 };
    TRY(bind_loras(&m->shape, src));
    if (opt->shard_base && m->dev->comm)
        TRY(open_hook(m, &to));
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
    if (opt->patch)
        TRY(swap_in(m, opt->patch));
    bool own = src->copy || !m->dev->op->host_memory(m->dev);
    return src->lora_merged && own ? fold_loras(m) : PESC_OK;
}

/* A run is held as it was trained, so that it computes what it computed then, except where the
 * options say otherwise. `as` owns the texts. */
static pesc_status use_run(pesc_load_options *opt, const hfdir *d, runbase_held *as)
{
    if (strcmp(d->top, d->root) == 0) /* no run */
        return PESC_OK;
    TRY(runbase_read_held(as, d->top));
    bool base = !opt->base_dtype && as->base_dtype[0];
    bool compute = !opt->compute_dtype && strcmp(as->compute_dtype, "bf16") == 0;
    if (base) {
        opt->base_dtype = as->base_dtype;
        opt->double_quant = as->double_quant;
        opt->whole_experts = as->whole_experts;
    }
    if (!opt->compute_dtype)
        opt->compute_dtype = compute ? as->compute_dtype : "f32";
    if (base || compute)
        log_notice("%s: is opened as it was trained, with%s%s%s%s; --base-dtype and "
                   "--compute-dtype change it",
                   d->path, base ? " base_dtype " : "", base ? opt->base_dtype : "",
                   compute ? " compute_dtype " : "", compute ? opt->compute_dtype : "");
    return PESC_OK;
}

static pesc_status open_files(pesc_model *m, const char *path, const char *base)
{
    runstate_chain chain;
    TRY(runmodel_open(&m->dir, &chain, (runmodel_where){ path, base }, 0));
    pesc_status s = runmodel_chain_tokenizer(&m->tok, &chain);
    runstate_chain_free(&chain);
    return s;
}

static pesc_status open_all(pesc_model *m, const char *path, pesc_load_options *opt, bool replacing)
{
    bind_source src = { .dev = m->dev, .path = path, .base = DT_F32 };
    runbase_held as;
    peft *adapter = NULL;
    TRY(open_files(m, path, opt->base));
    const hfdir *d = m->dir;
    const char *lora_dir = opt->lora;
    if (!replacing || !opt->lora)
        TRY(hfdir_lora(d, opt->lora, &lora_dir));
    TRY(use_run(opt, d, &as));
    read_options(&src, m, opt);
    TRY(config_read(&m->shape.cfg,
                    &(config_source){ d->config, d->generation, d->config_file, d->ws }));
    untie(&m->shape.cfg, d);
    TRY(bind_check(&m->shape.cfg, d->ws, path));
    TRY(info_fill(&m->shape.cfg, d, &m->info));
    m->chat = info_chat(&m->shape.cfg, m->tok);
    info_text(&m->info, m->tok, m->chat);
    if (!m->chat)
        TRY(info_stop(m->tok, m->stop_text, sizeof m->stop_text));
    m->stop[0] = m->stop_text[0] ? m->stop_text : NULL;
    TRY(open_blocks(m));
    if (lora_dir)
        TRY(peft_open(&adapter, lora_dir));
    if (adapter)
        peft_hash(adapter, m->lora_hash);
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
    pesc_status s = open_all(m, path, &o, replacing);
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

void model_keep(pesc_model *m)
{
    __atomic_fetch_add(&m->users, 1, __ATOMIC_RELAXED);
}

static void release(pesc_model *m)
{
    DEVICE_CALL(m->dev);
    traffic_close(m->traffic);
    if (m->hook)
        m->hook->close(m->hook);
    swap_close(m);
    specialists_close(m);
    if (m->memory)
        m->dev->op->free(m->dev, m->memory);
    if (m->mixture)
        m->dev->op->free(m->dev, m->mixture);
    if (m->trained)
        m->dev->op->free(m->dev, m->trained);
    mem_free(m->shape.w.blocks);
    mem_free(m->shape.loras);
    mem_free(m->trained_loras);
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
    release(m);
    pesc_device_close(dev); /* after its lock was released */
}

pesc_status pesc_model_describe(const pesc_model *m, pesc_model_info *out)
{
    status_clear();
    NEED(m);
    NEED_SIZED(out);
    ARGS_WRITE(out, &m->info);
    return PESC_OK;
}

const pesc_tokenizer *pesc_model_tokenizer(const pesc_model *m)
{
    return m ? m->tok : NULL;
}

/* ---- running ---- */

static void rope_tables(const pass *p)
{
    const ops *op = p->dev->op;
    if (p->m->cfg.rope != ROPE_DYNAMIC) {
        op->rope_table(p->dev, p->cos, p->sin, p->pos, p->inv_freq, p->m->rope_scale);
        return;
    }
    for (int32_t s = 0; s < p->n_spans; s++) {
        int32_t at = p->host.spans[s].first, n = p->host.spans[s + 1].first - at;
        op->rope_table(p->dev, tensor_slice(&p->cos, at, n), tensor_slice(&p->sin, at, n),
                       tensor_slice(&p->pos, at, n), tensor_slice(&p->inv_freq, s, 1),
                       p->m->rope_scale);
    }
}

void model_embed(pass *p)
{
    p->dev->op->embed(p->dev, p->x, p->m->w.embed, p->ids);
    p->stream = (residual){ .x = p->x };
    rope_tables(p);
}

tensor model_head(const pass *p, tensor rows, tensor rstd)
{
    const model_shape *m = p->m;
    const ops *op = p->dev->op;
    int64_t n = rows.ne[0];
    tensor last = tensor_slice(&p->last, 0, n), last_h = tensor_slice(&p->last_h, 0, n);
    tensor logits = tensor_slice(&p->logits, 0, n);
    op->gather_rows(p->dev, last, p->x, rows, 1);
    op->rmsnorm_fwd(
        p->dev,
        &(norm_fwd){
            .out = last_h, .x = last, .w = m->w.final_norm, .rstd = rstd, .eps = m->cfg.norm_eps });
    op->matmul(p->dev, &(mm){ .out = logits, .a = last_h, .b = m->w.head, .scale = 1 });
    return logits;
}

static void layers_and_head_fwd(pass *p)
{
    model_embed(p);
    for (int32_t i = 0; i < p->m->cfg.n_layers; i++) {
        block_fwd(p, i, p->x);
        routes_record_layer(p, i);
    }
    if (!p->n_out)
        return;
    block_flush(p);
    model_head(p, p->rows, (tensor){ 0 });
}

/* One token of each sequence: the next forward will be the same work in the same memory. */
static bool decoding(const pass *p)
{
    return p->kv && p->n == p->n_seqs;
}

static uint64_t graph_name(const pass *p)
{
    uint64_t more = p->routes != NULL; /* the copies of the routers' choices */
    uint64_t name = rng_stream(p->id, (uint64_t)p->n, (uint64_t)p->n_out << 1 | more);
    for (int32_t s = 0; p->host.specialists && s < p->n_seqs; s++)
        name = rng_stream(name, (uint64_t)p->host.specialist[s], 1); /* they choose the products */
    return name;
}

void model_start(pesc_model *m, pass *p, tensor *logits)
{
    ASSERT(p->m == &m->shape && p->n > 0 && !p->train);
    if (!decoding(p)) {
        layers_and_head_fwd(p);
    } else if (m->dev->op->begin(m->dev, graph_name(p))) {
        layers_and_head_fwd(p);
        m->dev->op->end(m->dev);
    }
    *logits = p->logits;
}

pesc_status model_finish(pesc_model *m, pass *p)
{
    TRY(m->dev->op->sync(m->dev));
    TRY(routes_fetch(p));
    TRY(weights_check(m->dir->ws)); /* a mapped file may have been truncated meanwhile */
    for (int32_t s = 0; p->kv && s < p->n_seqs; s++)
        kvcache_advance(p->kv, p->host.kv_seq[s], p->host.starts[s + 1] - p->host.starts[s]);
    if (p->kv)
        p->n = 0; /* the tokens are spent: a second forward would store them twice */
    return PESC_OK;
}

pesc_status model_fwd(pesc_model *m, pass *p, tensor *logits)
{
    model_start(m, p, logits);
    return model_finish(m, p);
}
