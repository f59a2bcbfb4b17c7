#include "model/routes.h"

#include "backend/memory.h"
#include "base/mem.h"
#include "model/block.h"
#include "model/pass.h"

static const memory_need routes_need = { "the choices of the routers",
                                         "fewer tokens at a time need less" };

/* Where ids and gates lie in a span for n tokens. */
static void layout(const routes *r, arena *a, int64_t n, tensor *ids, tensor *gates)
{
    int64_t rows = (int64_t)r->n_layers * n;
    *ids = tensor_take2(a, DT_I32, rows, r->k);
    *gates = tensor_take2(a, DT_F32, rows, r->k);
}

static pesc_status open_all(routes *r)
{
    const config *c = &r->m->shape.cfg;
    r->k = c->moe.topk.k;
    r->layers = mem_alloc((size_t)c->n_layers, sizeof *r->layers);
    if (!r->layers)
        return fail_nomem("routes", (size_t)c->n_layers * sizeof *r->layers);
    for (int32_t i = 0; i < c->n_layers; i++)
        if (r->m->shape.w.blocks[i].sparse)
            r->layers[r->n_layers++] = i;
    if (r->n_layers == 0)
        return fail(PESC_UNSUPPORTED,
                    "the model is dense: it has no experts to choose from; a mixture is needed");
    arena a = { 0 };
    tensor ids, gates;
    layout(r, &a, r->max_tokens, &ids, &gates);
    r->bytes = a.used;
    r->host = mem_aligned(a.used);
    if (!r->host)
        return fail_nomem("routes", a.used);
    return memory_take(&a, r->m->dev, &routes_need, &r->device);
}

pesc_status routes_open(routes **out, pesc_model *m, int32_t max_tokens)
{
    *out = NULL;
    routes *r = mem_zalloc(1, sizeof *r);
    if (!r)
        return fail_nomem("routes", sizeof *r);
    r->m = m;
    r->max_tokens = max_tokens;
    pesc_status s = open_all(r);
    if (s == PESC_OK)
        *out = r;
    else
        routes_close(r);
    return s;
}

void routes_close(routes *r)
{
    if (!r)
        return;
    r->m->dev->op->free(r->m->dev, r->device);
    r->m->dev->op->free(r->m->dev, r->choosing);
    mem_free(r->host);
    mem_free(r->layers);
    mem_free(r);
}

/* Copies the choices of a layer that has run; at: which of the layers with a router it is. Gates
 * are the router's shares, without a number that each expert has in them. */
static void keep_choices(const routes *r, const pass *p, int32_t at)
{
    const ops *op = p->dev->op;
    const moe_acts *a = &p->acts.moe;
    const tensor shares = a->chosen.data ? a->chosen : a->gates;
    arena there = { .base = r->device, .size = r->bytes };
    tensor ids, gates;
    int64_t first = (int64_t)at * p->n;
    layout(r, &there, p->n, &ids, &gates);
    op->copy(p->dev, tensor_slice(&ids, first, p->n).data, a->ids.data, tensor_bytes(&a->ids));
    op->copy(p->dev, tensor_slice(&gates, first, p->n).data, shares.data, tensor_bytes(&shares));
}

static pesc_status fetch(routes *r, const pass *p)
{
    const ops *op = p->dev->op;
    arena there = { .base = r->device, .size = r->bytes };
    arena here = { .base = r->host, .size = r->bytes };
    tensor ids, gates, host_ids, host_gates;
    layout(r, &there, p->n, &ids, &gates);
    layout(r, &here, p->n, &host_ids, &host_gates);
    TRY(op->download(p->dev, host_ids.data, ids.data, tensor_bytes(&ids)));
    TRY(op->download(p->dev, host_gates.data, gates.data, tensor_bytes(&gates)));
    r->n = p->n;
    r->ids = host_ids.data;
    r->gates = host_gates.data;
    return PESC_OK;
}

pesc_status routes_fwd(routes *r, pass *p)
{
    ASSERT(p->m == &r->m->shape && p->n > 0 && p->n <= r->max_tokens && !p->kv && !p->train);
    int32_t last = r->layers[r->n_layers - 1];
    model_embed(p);
    for (int32_t i = 0, at = 0; i <= last; i++) {
        const block *b = &r->m->shape.w.blocks[i];
        if (i == last)
            block_route(p, i, p->x);
        else
            block_fwd(p, i, p->x);
        if (!b->sparse)
            continue;
        if (i < last && moe_adapters_few(p))
            moe_route(p, b); /* the op that serves a few tokens does not leave its choice */
        keep_choices(r, p, at++);
    }
    TRY(fetch(r, p));
    return weights_check(r->m->dir->ws); /* a mapped file may have been truncated meanwhile */
}

/* ---- beside another forward ---- */

void routes_record(routes *r, pass *p)
{
    ASSERT(!r || (p->m == &r->m->shape && p->lim.max_tokens <= r->max_tokens));
    p->routes = r;
}

static int32_t nth_router(const routes *r, int32_t layer)
{
    int32_t at = 0;
    while (r->layers[at] != layer)
        at++;
    return at;
}

void routes_record_layer(pass *p, int32_t layer)
{
    const block *b = &p->m->w.blocks[layer];
    if (!p->routes || !b->sparse)
        return;
    if (moe_adapters_few(p))
        moe_route(p, b); /* as in routes_fwd() */
    keep_choices(p->routes, p, nth_router(p->routes, layer));
}

pesc_status routes_fetch(pass *p)
{
    return p->routes ? fetch(p->routes, p) : PESC_OK;
}

/* ---- the choices of another model ---- */

pesc_status routes_follow(routes *r, pass *p, const int32_t *ids, int32_t n)
{
    const int32_t n_experts = r->m->shape.cfg.moe.topk.n_experts;
    const size_t rows = (size_t)r->n_layers * (size_t)n;
    const size_t bytes = rows * (size_t)n_experts * sizeof(float);
    const float far_below = -1e30F;
    float *choosing = mem_alloc(bytes, 1);
    if (!choosing)
        return fail_nomem("routes", bytes);
    for (size_t i = 0; i < rows * (size_t)n_experts; i++)
        choosing[i] = far_below;
    for (size_t i = 0; i < rows * (size_t)r->k; i++)
        choosing[i / (size_t)r->k * (size_t)n_experts + (size_t)ids[i]] = 0;
    ASSERT(!r->choosing);
    pesc_status s = r->m->dev->op->alloc(r->m->dev, bytes, &r->choosing);
    if (s == PESC_OK) {
        r->m->dev->op->upload(r->m->dev, r->choosing, choosing, bytes);
        s = r->m->dev->op->sync(r->m->dev);
    }
    mem_free(choosing);
    routes_record(r, p);
    return s;
}

/* A token at a time: the op adds one row to the scores of all its tokens. */
bool routes_choose(const pass *p, const block *b)
{
    const routes *r = p->routes;
    const moe_acts *a = &p->acts.moe;
    topk_rule rule = p->m->cfg.moe.topk;
    if (!r || !r->choosing)
        return false;
    const int64_t first = (int64_t)nth_router(r, (int32_t)(b - p->m->w.blocks)) * p->n;
    rule.n_groups = rule.k_groups = 1; /* the choice was made within them */
    for (int32_t t = 0; t < p->n; t++)
        p->dev->op->topk_fwd(p->dev, tensor_slice(&a->ids, t, 1), tensor_slice(&a->gates, t, 1),
                             tensor_slice(&a->logits, t, 1), &rule,
                             (tensor){ .data = (float *)r->choosing + (first + t) * rule.n_experts,
                                       .dt = DT_F32,
                                       .nd = 1,
                                       .ne = { rule.n_experts } });
    return true;
}
