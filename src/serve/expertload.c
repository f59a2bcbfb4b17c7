/* What the routers choose: counted over all requests, and reported to requests that ask for it. */
#include "serve/api/call.h"

#include "base/mem.h"
#include "serve/api/endpoints.h"
#include "serve/api/response.h"

#include <math.h>

pesc_status expertload_open(pesc_server *s)
{
    const config *c = &s->m->shape.cfg;
    expert_load *l = &s->load;
    l->layers = mem_alloc((size_t)c->n_layers, sizeof *l->layers);
    if (!l->layers)
        return fail_nomem("layers", (size_t)c->n_layers * sizeof *l->layers);
    for (int32_t i = 0; i < c->n_layers; i++)
        if (s->m->shape.w.blocks[i].sparse)
            l->layers[l->n_layers++] = i;
    if (l->n_layers == 0)
        return PESC_OK;
    l->n_experts = c->moe.topk.n_experts;
    l->k = c->moe.topk.k;
    size_t n = (size_t)l->n_layers * (size_t)l->n_experts;
    l->counts = mem_zalloc(n, sizeof *l->counts);
    return l->counts ? PESC_OK : fail_nomem("counts of experts", n * sizeof *l->counts);
}

void expertload_close(pesc_server *s)
{
    mem_free(s->load.layers);
    mem_free(s->load.counts);
}

void expertload_count(call *c, const sched_routes *r)
{
    const routes *all = r->all;
    expert_load *load = &c->x->srv->load;
    size_t each = (size_t)r->n * (size_t)all->k;
    pthread_mutex_lock(&c->x->srv->lock);
    for (int32_t l = 0; l < all->n_layers; l++) {
        const int32_t *ids = all->ids + ((int64_t)l * all->n + r->first) * all->k;
        size_t row = (size_t)l * (size_t)load->n_experts;
        for (size_t i = 0; i < each; i++) {
            load->counts[row + (size_t)ids[i]]++;
            c->expert_counts[row + (size_t)ids[i]]++;
        }
    }
    load->tokens += (uint64_t)r->n;
    pthread_mutex_unlock(&c->x->srv->lock);
}

/* ---- answers ---- */

json_t *expertload_counts(const expert_load *load, const uint64_t *counts)
{
    if (!counts)
        return json_null();
    json_t *all = json_array();
    for (int32_t l = 0; l < load->n_layers; l++) {
        json_t *row = json_array();
        for (int32_t i = 0; i < load->n_experts; i++)
            json_array_append_new(row, json_integer((json_int_t)*counts++));
        json_array_append_new(all, row);
    }
    return all;
}

bool handle_experts(exchange *x)
{
    pesc_server *s = x->srv;
    const expert_load *load = &s->load;
    pthread_mutex_lock(&s->lock);
    json_t *v = json_pack("{s:s, s:i, s:i, s:o, s:I, s:o}", "object", "expert_load", "experts",
                          (int)load->n_experts, "experts_per_token", (int)load->k, "layers",
                          response_ids(load->layers, (size_t)load->n_layers), "tokens",
                          (json_int_t)load->tokens, "counts",
                          load->counts ? expertload_counts(load, load->counts) : json_array());
    pthread_mutex_unlock(&s->lock);
    return exchange_reply(x, v);
}

/* One figure a layer, whatever the number of experts: how far the busiest expert is above its share
 * of the choices. */
void expertload_metrics(const pesc_server *s, str *out)
{
    const expert_load *l = &s->load;
    if (l->n_layers == 0 || l->tokens == 0)
        return;
    str_puts(out, "# HELP pesc_expert_load Choices of the busiest expert of a layer, as a multiple "
                  "of an even share.\n# TYPE pesc_expert_load gauge\n");
    for (int32_t i = 0; i < l->n_layers; i++) {
        const uint64_t *row = l->counts + (size_t)i * (size_t)l->n_experts;
        uint64_t most = 0;
        for (int32_t k = 0; k < l->n_experts; k++)
            most = row[k] > most ? row[k] : most;
        double even = (double)l->tokens * l->k / l->n_experts;
        str_printf(out, "pesc_expert_load{layer=\"%d\"} %.6g\n", l->layers[i], (double)most / even);
    }
}

/* To a multiple of 1/1024, which is precise enough and has a short exact decimal form. */
static json_t *gate_json(float g)
{
    return json_real(isfinite(g) ? round((double)g * 1024) / 1024 : 0);
}

json_t *expertload_of(const choice *c, size_t from)
{
    const expert_load *load = &c->of->x->srv->load;
    json_t *experts = json_array(), *gates = json_array();
    const routed *r = c->routes + from * (size_t)load->n_layers * (size_t)load->k;
    for (size_t i = from; i < c->n_routed; i++) {
        json_t *token_experts = json_array(), *token_gates = json_array();
        for (int32_t l = 0; l < load->n_layers; l++) {
            json_t *ids = json_array(), *shares = json_array();
            for (int32_t k = 0; k < load->k; k++, r++) {
                json_array_append_new(ids, json_integer(r->expert));
                json_array_append_new(shares, gate_json(r->gate));
            }
            json_array_append_new(token_experts, ids);
            json_array_append_new(token_gates, shares);
        }
        json_array_append_new(experts, token_experts);
        json_array_append_new(gates, token_gates);
    }
    return json_pack("{s:o, s:o, s:o}", "layers",
                     response_ids(load->layers, (size_t)load->n_layers), "experts", experts,
                     "gates", gates);
}
