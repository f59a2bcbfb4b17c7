#include "train/params_walk.h"

#include "arch/bind.h"
#include "backend/memory.h"
#include "base/mem.h"
#include "tensor/quants.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { ALIGN = 16, INIT_STREAM = 2 }; /* elements; the purpose of random numbers */

static bool in_attention(const tensor_rule *r)
{
    return r->offset < offsetof(block, ffn) && r->offset != offsetof(block, ffn_norm) &&
           r->offset != offsetof(block, ffn_post);
}

/* ---- the walk: once to measure (no list yet), once to list (no memory yet), once to place ---- */

static int64_t count_of(int32_t nd, const int64_t *ne)
{
    int64_t n = 1;
    for (int32_t i = 0; i < nd; i++)
        n *= ne[i];
    return n;
}

/* The experts of this slot's layer that train; NULL: all of them. */
static const expertcfg_layer *own_of(const params_walk *w, const slot *s)
{
    const expertcfg *own = w->p->spec.own;
    return own && s->expert >= 0 ? expertcfg_find(own, s->layer) : NULL;
}

static bool more_of_stack(const params_walk *w, const slot *s)
{
    const expertcfg_layer *own = own_of(w, s);
    return s->expert >= 0 &&
           s->expert < (own ? own->ids[own->n - 1] : slot_moe(w->c, s)->topk.n_experts - 1);
}

/* Gives q the next place of the flat buffers. Experts of a stack lie side by side. */
void walk_take(params_walk *w, param *q, bool more, bool exact)
{
    params *p = w->p;
    int64_t n = count_of(q->nd, q->ne);
    q->at = p->n;
    q->work_at = p->n_work;
    q->exact_at = exact ? p->n_exact : -1;
    if (exact)
        p->n_exact += (n + ALIGN - 1) / ALIGN * ALIGN;
    if (p->memory)
        *q = p->list[w->n_list]; /* with its place in the window */
    else if (p->list)
        p->list[w->n_list] = *q;
    w->n_list++;
    p->count[q->group] += n;
    p->n += n;
    if (!more)
        p->n = (p->n + ALIGN - 1) / ALIGN * ALIGN;
    if (params_has_copy(p, q))
        p->n_work += p->n - q->at;
    if (p->stages && !p->memory)
        p->stages[params_stage(p, q)].n += p->n - q->at;
}

/* See param.ready. A head that is tied to the embeddings has their gradient. */
static int32_t ready_after(const params_walk *w, const slot *s)
{
    if (s->layer >= 0)
        return s->layer;
    return s->rule->flags & RULE_BELOW ? -1 : w->c->n_layers;
}

void walk_reach(params_walk *w, const slot *s)
{
    params *p = w->p;
    if (s->rule->flags & RULE_BELOW) { /* below everything */
        p->mirror.facts.first_layer = 0;
        p->mirror.facts.first_attn = true;
    }
    if (s->layer < 0 || s->layer > p->mirror.facts.first_layer)
        return;
    p->mirror.facts.first_attn =
        (s->layer == p->mirror.facts.first_layer && p->mirror.facts.first_attn) ||
        in_attention(s->rule);
    p->mirror.facts.first_layer = s->layer;
}

static tensor part(tensor flat, const param *q, int64_t at)
{
    tensor t = { .dt = flat.dt, .nd = q->nd };
    if (flat.data)
        t.data = (char *)flat.data + (size_t)at * dtype_block_bytes(flat.dt);
    memcpy(t.ne, q->ne, sizeof t.ne);
    return t;
}

/* What forward reads of a trained tensor. */
tensor walk_working(const params *p, const param *q)
{
    if (p->work.data && q->exact_at < 0 && params_has_copy(p, q))
        return part(p->work, q, q->work_at);
    return p->divided ? part(p->exact, q, q->exact_at) : part(p->master, q, q->at);
}

/* U(-1/sqrt(in), 1/sqrt(in)), or zeros, from the name alone: t has the elements from `first` on. */
static void initialise(params_walk *w, tensor t, const param *q, int64_t first, init_kind init)
{
    enum { CHUNK = 4096 };
    device *dev = w->m->dev;
    float chunk[CHUNK], bound = 1 / sqrtf((float)q->ne[q->nd - 1]);
    rng_key key = { w->p->spec.seed,
                    rng_stream(INIT_STREAM, XXH64(q->name, strlen(q->name), 0), 0) };
    if (init == INIT_ZERO) {
        dev->op->zero(dev, t.data, tensor_bytes(&t));
        return;
    }
    for (int64_t at = 0, total = tensor_count(&t); at < total; at += CHUNK) {
        int64_t n = total - at < CHUNK ? total - at : CHUNK;
        for (int64_t i = 0; i < n; i++)
            chunk[i] = (2 * rng_uniform(key, (uint64_t)(first + at + i)) - 1) * bound;
        dev->op->upload(dev, (float *)t.data + at, chunk, (size_t)n * sizeof *chunk);
    }
}

/* Copies what a model's tensor holds, some rows at a time; what it lacks is initialised. */
void walk_init(params_walk *w, const param *q, tensor from, init_kind init)
{
    device *dev = w->m->dev;
    int64_t cols = q->ne[q->nd - 1], rows = count_of(q->nd, q->ne) / cols, n;
    if (from.data)
        from = tensor_view2(&from, rows, cols);
    for (int64_t at = 0; at < rows; at += n) {
        tensor x = { .data = w->staging.data, .dt = DT_F32, .nd = 2 };
        n = w->staging.ne[0] / cols;
        n = n < rows - at ? n : rows - at;
        x.ne[0] = n;
        x.ne[1] = cols;
        if (from.data)
            dev->op->convert(dev, x, tensor_slice(&from, at, n));
        else
            initialise(w, x, q, at * cols, init);
        params_put(w->p, q, at * cols, x);
    }
}

static void check_weight(params_walk *w, const slot *s)
{
    dtype held = w->m ? bind_field(&w->m->shape.w, s)->dt : DT_F32;
    /* Chosen experts of a stack are written back to it, which blocks do not allow. */
    bool fixed = held == DT_NF4 || (quants_is(held) && own_of(w, s));
    if (fixed && w->status == PESC_OK)
        w->status = fail(PESC_USAGE,
                         "%s: trains, but is held in %s; load the model with base_dtype bf16 "
                         "or f32 to train it",
                         s->name, dtype_name(held));
}

/* The stack of n matrices that ends with this one. */
param walk_stack(const param *last, int64_t n)
{
    int64_t before = (n - 1) * count_of(2, last->ne);
    return (param){ .group = last->group,
                    .at = last->at - before,
                    .grad_at = last->grad_at - before,
                    .work_at = last->work_at - before,
                    .exact_at = -1,
                    .nd = 3,
                    .ne = { n, last->ne[0], last->ne[1] } };
}

/* The chosen experts of a stack that stays where it is. */
static void place_own(params_walk *w, const slot *s, const expertcfg_layer *own, const param *stack)
{
    moe *g = &w->p->mirror.of.blocks[s->layer].moe;
    *bind_field(&w->p->mirror.of, s) = params_grad(w->p, stack);
    g->own = (expert_list){ own->ids, own->n, own->domains };
}

/* One expert is filled at a time; when the last has been, the stack moves. */
static void place_weight(params_walk *w, const slot *s, param q)
{
    params *p = w->p;
    tensor *field = bind_field(&w->m->shape.w, s);
    const expertcfg_layer *own = own_of(w, s);
    walk_init(w, &q, field->data ? bind_tensor(&w->m->shape.w, s) : *field, s->rule->init);
    if (own)
        p->list[w->n_list - 1].into = bind_tensor(&w->m->shape.w, s);
    if (more_of_stack(w, s))
        return;
    if (s->expert >= 0) {
        int64_t n = own ? own->n : s->expert + 1;
        q = walk_stack(&q, n);
    }
    if (own) {
        place_own(w, s, own, &q);
        return;
    }
    *field = walk_working(p, &q);
    *bind_field(&p->mirror.of, s) = params_grad(p, &q);
}

static void add_weight(params_walk *w, const slot *s)
{
    param q = { .group = param_group_of(s->rule), .nd = s->nd, .ready = ready_after(w, s) };
    memcpy(q.name, s->name, sizeof s->name);
    memcpy(q.ne, s->ne, sizeof q.ne);
    walk_take(w, &q, more_of_stack(w, s), s->rule->flags & RULE_F32);
    if (!param_router_bias(s->rule)) /* it has no gradient */
        walk_reach(w, s);
    w->p->flat = w->p->flat || !own_of(w, s);
    if (w->p->memory)
        place_weight(w, s, q);
    else
        check_weight(w, s);
}

static params_walk walk_all(params *p, pesc_model *m, const config *c, tensor staging)
{
    params_walk w = { .p = p, .m = m, .c = c, .staging = staging };
    p->n = p->n_work = p->n_exact = 0;
    memset(p->count, 0, sizeof p->count);
    p->mirror.facts = params_facts(&p->spec, c->n_layers);
    p->flat = false;
    if (p->stages && !p->memory)
        memset(p->stages, 0, (size_t)p->n_stages * sizeof *p->stages);
    for (slot s = slot_first(); slot_next(c, &s);) {
        if (params_trains(&p->spec, &s))
            add_weight(&w, &s);
        if (s.rule->flags & RULE_LINEAR)
            walk_add_lora(&w, &s, false);
        if (param_full_expert(s.rule))
            walk_add_expert_lora(&w, &s, false);
    }
    w.n_loras = w.n_attached = 0;
    for (slot s = slot_first(); slot_next(c, &s);) {
        if (s.rule->flags & RULE_LINEAR)
            walk_add_lora(&w, &s, true);
        if (param_full_expert(s.rule))
            walk_add_expert_lora(&w, &s, true);
    }
    return w;
}

void params_measure(params_size *out, const config *c, const train_spec *spec)
{
    params p = { .spec = *spec };
    config with = *c;
    params_configure(&with, spec);
    params_take_stages(&p, &with);
    params_walk w = walk_all(&p, NULL, &with, (tensor){ 0 });
    params_place_stages(&p, &with);
    mem_free(p.stages);
    *out = (params_size){ .n = p.n,
                          .n_list = (int64_t)w.n_list,
                          .n_work = p.n_work,
                          .n_exact = p.n_exact,
                          .n_grad = p.n_grad,
                          .first_layer = p.mirror.facts.first_layer,
                          .flat = p.flat,
                          .own = spec->own != NULL };
    memcpy(out->count, p.count, sizeof out->count);
}

/* ---- opening ---- */

static const memory_need params_need = { "training", "a smaller lora_r, or fewer trained parts, "
                                                     "need less" };

static void layout(params *p, arena *a)
{
    p->master = tensor_take1(a, DT_F32, p->divided ? p->n_kept : p->n);
    if (p->flat && p->m->shape.act_dt == DT_BF16)
        p->work = tensor_take1(a, DT_BF16, p->n_work);
    if (p->divided)
        p->exact = tensor_take1(a, DT_F32, p->n_exact);
}

static pesc_status take_lists(params *p, const params_walk *w)
{
    size_t layers = (size_t)p->m->shape.cfg.n_layers;
    p->list = mem_zalloc(w->n_list, sizeof *p->list);
    p->loras = mem_zalloc(w->n_attached + 1, sizeof *p->loras);
    p->lora_grads = mem_zalloc(w->n_loras + 1, sizeof *p->lora_grads);
    p->mirror.of.blocks = mem_zalloc(layers, sizeof *p->mirror.of.blocks);
    if (!p->list || !p->loras || !p->lora_grads || !p->mirror.of.blocks)
        return fail_nomem("the list of what trains", w->n_list * sizeof *p->list);
    p->n_list = w->n_list;
    return PESC_OK;
}

static pesc_status check_spec(const pesc_model *m, const train_spec *s)
{
    if (!s->molora_experts)
        return PESC_OK;
    if (m->shape.cfg.moe.kind != EXPERT_NONE)
        return fail(PESC_USAGE, "a mixture of LoRA needs a dense model, but this one has experts");
    if (s->lora_r <= 0 || s->molora_k < 1 || s->molora_k > s->molora_experts)
        return fail(PESC_USAGE,
                    "a mixture of LoRA: found rank %d and %d of %d experts a token, expected a "
                    "rank above 0 and 1 to %d experts",
                    s->lora_r, s->molora_k, s->molora_experts, s->molora_experts);
    return PESC_OK;
}

/* The model keeps the lists of experts that its LoRA is on for as long as the LoRA. */
static pesc_status keep_choice(pesc_model *m, const expertcfg *own)
{
    expertcfg_free(&m->trained_experts);
    for (size_t i = 0; own && i < own->n_layers; i++)
        TRY(expertcfg_add(&m->trained_experts, own->layers[i].layer, own->layers[i].listed,
                          own->layers[i].n));
    return PESC_OK;
}

static void reshape(pesc_model *m, const config *c)
{
    m->shape.cfg = *c;
    for (int32_t i = 0; i < c->n_layers; i++)
        m->shape.w.blocks[i].sparse = config_layer_sparse(c, i);
}

/* Rows of a parameter that are converted at a time. */
static int64_t staging_elements(const params *p)
{
    int64_t n = 1 << 20;
    for (size_t i = 0; i < p->n_list; i++)
        n = p->list[i].ne[p->list[i].nd - 1] > n ? p->list[i].ne[p->list[i].nd - 1] : n;
    return n;
}

/* Places what trains, and points the model to it. */
static pesc_status place_all(params *p)
{
    pesc_model *m = p->m;
    tensor staging = { .dt = DT_F32, .nd = 1, .ne = { staging_elements(p) } };
    TRY(m->dev->op->alloc(m->dev, tensor_bytes(&staging), &staging.data));
    walk_all(p, m, &m->shape.cfg, staging);
    m->trained = p->memory;
    m->trained_loras = p->loras;
    if (m->shape.cfg.tie_embeddings) {
        m->shape.w.head = m->shape.w.embed;
        p->mirror.of.head = p->mirror.of.embed;
    }
    pesc_status s = m->dev->op->sync(m->dev);
    m->dev->op->free(m->dev, staging.data);
    return s;
}

static pesc_status take_memory(params *p)
{
    device *dev = p->m->dev;
    arena a = { 0 }, g = { 0 };
    layout(p, &a);
    tensor_take1(&g, DT_F32, p->n_grad);
    TRY(memory_take(&a, dev, &params_need, &p->memory));
    TRY(memory_take(&g, dev, &params_need, &p->grad_memory));
    layout(p, &a);
    p->grad = tensor_take1(&g, DT_F32, p->n_grad);
    p->memory_bytes = a.size;
    dev->op->zero(dev, p->memory, a.size);
    dev->op->zero(dev, p->grad_memory, g.size);
    return PESC_OK;
}

/* Whether a tensor of the model is still where it was loaded. */
static bool keeps_some(const params *p)
{
    bool some = p->spec.own || p->m->shape.n_loras;
    for (slot s = slot_first(); !some && slot_next(&p->m->shape.cfg, &s);)
        some = !params_trains(&p->spec, &s);
    return some;
}

/* Who updates what: one process all of it, which is one range. */
static pesc_status divide(params *p)
{
    peers *all = p->m->dev->peers;
    p->segment = flat_segment(p->n);
    if (all)
        return all->divide(all, p);
    p->own = mem_alloc(1, sizeof *p->own);
    if (!p->own)
        return fail_nomem("the list of what trains", sizeof *p->own);
    p->own[0] = (own_range){ { 0, p->n }, 0 };
    p->n_own = 1;
    p->n_kept = p->n;
    return PESC_OK;
}

static void drop(pesc_model *m, void **memory, size_t *bytes)
{
    m->dev->op->free(m->dev, *memory);
    *memory = NULL;
    *bytes = 0;
}

static pesc_status open_all(params *p)
{
    pesc_model *m = p->m;
    config with = m->shape.cfg;
    TRY(check_spec(m, &p->spec));
    TRY(keep_choice(m, p->spec.lora_own));
    params_configure(&with, &p->spec);
    reshape(m, &with);
    params_set_ranks(&m->shape, &p->spec);
    p->divided = params_divides_master(p->spec.own, m->shape.act_dt, peers_size(m->dev->peers));
    p->spec.no_adapter_copies = p->spec.no_adapter_copies && !p->divided;
    if (!params_take_stages(p, &m->shape.cfg))
        return fail_nomem("the window of gradients",
                          (size_t)m->shape.cfg.n_layers * sizeof(grad_stage));
    params_walk w = walk_all(p, m, &m->shape.cfg, (tensor){ 0 });
    TRY(w.status);
    if (!w.n_list)
        return fail(PESC_USAGE, "nothing trains: this model has no part of what is asked for");
    TRY(take_lists(p, &w));
    walk_all(p, m, &m->shape.cfg, (tensor){ 0 });
    TRY(divide(p));
    TRY(params_place_grads(p));
    TRY(take_memory(p));
    TRY(place_all(p));
    bool moved = m->shape.cfg.moe.kind == EXPERT_ADAPTER && p->spec.adapters && p->spec.routers;
    if (moved)
        drop(m, &m->mixture, &m->mixture_bytes);
    if (!keeps_some(p))
        drop(m, &m->memory, &m->memory_bytes);
    return PESC_OK;
}

pesc_status params_open(params **out, pesc_model *m, const train_spec *spec)
{
    ASSERT(!m->trained);
    *out = NULL;
    params *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("the list of what trains", sizeof *p);
    p->m = m;
    p->spec = *spec;
    config before = m->shape.cfg;
    const int32_t ranks[] = { m->shape.lora_rank, m->shape.expert_rank };
    pesc_status s = open_all(p);
    if (s == PESC_OK) {
        *out = p;
    } else {
        reshape(m, &before);
        m->shape.lora_rank = ranks[0];
        m->shape.expert_rank = ranks[1];
        params_close(p);
    }
    return s;
}

void params_close(params *p)
{
    if (!p)
        return;
    device *dev = p->m->dev;
    bool placed = p->memory && p->m->trained == p->memory; /* it is the model's */
    if (p->memory && !placed)
        dev->op->free(dev, p->memory);
    if (p->grad_memory)
        dev->op->free(dev, p->grad_memory);
    mem_free(p->list);
    mem_free(p->own);
    mem_free(p->stages);
    mem_free(p->runs);
    if (!placed)
        mem_free(p->loras);
    mem_free(p->lora_grads);
    mem_free(p->mirror.of.blocks);
    mem_free(p);
}

/* ---- using ---- */

tensor params_master(const params *p, const param *q)
{
    return part(p->divided ? (tensor){ .dt = DT_F32 } : p->master, q, q->at);
}

tensor params_grad(const params *p, const param *q)
{
    return part(p->grad, q, q->grad_at);
}
