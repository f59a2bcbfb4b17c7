#include "train/router_bias.h"

#include "base/mem.h"

#include <string.h>

static const param *find(const params *p, int32_t layer, const char *name)
{
    for (size_t i = 0; i < p->n_list; i++)
        if (p->list[i].ready == layer && strcmp(p->list[i].name, name) == 0)
            return &p->list[i];
    return NULL;
}

pesc_status router_bias_open(router_bias *b, params *p)
{
    const config *c = &p->m->shape.cfg;
    const size_t layers = (size_t)c->n_layers, experts = (size_t)c->moe.topk.n_experts;
    *b = (router_bias){ .experts = c->moe.topk.n_experts };
    if (!p->spec.balance_bias)
        return PESC_OK;
    b->list = mem_alloc(layers, sizeof *b->list);
    b->layer = mem_alloc(layers, sizeof *b->layer);
    b->now = mem_alloc(layers * experts, sizeof *b->now);
    if (!b->list || !b->layer || !b->now)
        return fail_nomem("the biases of experts", layers * experts * sizeof *b->now);
    for (slot s = slot_first(); slot_next(c, &s);)
        if (param_router_bias(s.rule) && !s.in_ffn) {
            b->layer[b->layers] = s.layer;
            b->list[b->layers] = find(p, s.layer, s.name);
            ASSERT(b->list[b->layers]);
            b->layers++;
        }
    return p->m->dev->op->alloc(p->m->dev, experts * sizeof *b->now, &b->memory);
}

void router_bias_close(router_bias *b, device *dev)
{
    if (b->memory)
        dev->op->free(dev, b->memory);
    mem_free(b->list);
    mem_free(b->layer);
    mem_free(b->now);
    *b = (router_bias){ 0 };
}

pesc_status router_bias_read(router_bias *b, const pesc_model *m)
{
    for (int32_t l = 0; l < b->layers; l++) {
        const tensor *t = &m->shape.w.blocks[b->layer[l]].moe.router_bias;
        TRY(m->dev->op->download(m->dev, b->now + (ptrdiff_t)l * b->experts, t->data,
                                 tensor_bytes(t)));
    }
    return PESC_OK;
}

/* Exact: counts are compared, not their quotients. */
static void move_layer(float *bias, const int64_t *chosen, int32_t n, float rate)
{
    int64_t sum = 0;
    for (int32_t e = 0; e < n; e++)
        sum += chosen[e];
    for (int32_t e = 0; e < n; e++)
        bias[e] += chosen[e] * n < sum ? rate : chosen[e] * n > sum ? -rate : 0;
}

pesc_status router_bias_move(router_bias *b, params *p, const step_totals *r, double rate)
{
    device *dev = p->m->dev;
    tensor t = { .data = b->memory, .dt = DT_F32, .nd = 1, .ne = { b->experts } };
    for (int32_t l = 0; l < b->layers; l++) {
        float *bias = b->now + (ptrdiff_t)l * b->experts;
        move_layer(bias, r->chosen + (ptrdiff_t)l * b->experts, b->experts, (float)rate);
        dev->op->upload(dev, b->memory, bias, tensor_bytes(&t));
        params_put(p, b->list[l], 0, t);
        TRY(dev->op->sync(dev)); /* the next layer uses the same memory */
    }
    return dev->op->sync(dev);
}
