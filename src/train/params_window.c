/* The window of gradients: where each stage of backward has its place. */
#include "base/mem.h"
#include "train/params.h"

bool params_take_stages(params *p, const config *c)
{
    p->n_stages = c->n_layers + 2;
    if (p->spec.window)
        p->stages = mem_zalloc((size_t)p->n_stages, sizeof *p->stages);
    return p->stages || !p->spec.window;
}

void params_place_stages(params *p, const config *c)
{
    grad_stage *s = p->stages;
    int32_t n = c->tie_embeddings ? p->n_stages - 1 : p->n_stages; /* those that share */
    int64_t most = 0;
    p->n_grad = p->n;
    if (!s)
        return;
    int64_t before = n < p->n_stages ? s[n].n : 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t two = s[i].n + (i + 1 < n ? s[i + 1].n : 0);
        most = two > most ? two : most;
    }
    for (int32_t i = 0; i < n; i++)
        s[i].at = before + (i % 2 ? most - s[i].n : 0);
    p->n_grad = before + most;
}

/* The next place of the stage of parameter i, which `used` counts by stage. */
static void place_grad(params *p, size_t i, int64_t *used)
{
    param *q = &p->list[i];
    flat_range flat = { q->at, i + 1 < p->n_list ? p->list[i + 1].at : p->n };
    int32_t stage = params_stage(p, q);
    grad_run *last = p->n_runs ? &p->runs[p->n_runs - 1] : NULL;
    q->grad_at = p->stages[stage].at + used[stage];
    used[stage] += flat.end - flat.first;
    if (last && last->stage == stage)
        last->flat.end = flat.end;
    else
        p->runs[p->n_runs++] = (grad_run){ flat, q->grad_at, stage };
}

pesc_status params_place_grads(params *p)
{
    params_place_stages(p, &p->m->shape.cfg);
    for (size_t i = 0; i < p->n_list; i++)
        p->list[i].grad_at = p->list[i].at;
    if (!p->stages)
        return PESC_OK;
    int64_t *used = mem_zalloc((size_t)p->n_stages, sizeof *used);
    p->runs = mem_alloc(p->n_list, sizeof *p->runs);
    bool fine = used && p->runs;
    for (size_t i = 0; fine && i < p->n_list; i++)
        place_grad(p, i, used);
    mem_free(used);
    return fine ? PESC_OK : fail_nomem("the window of gradients", p->n_list * sizeof *p->runs);
}

static void zero_stage(params *p, const grad_stage *s)
{
    if (s->n)
        p->m->dev->op->zero(p->m->dev, (float *)p->grad.data + s->at, (size_t)s->n * sizeof(float));
}

void params_start_stage(params *p, int32_t stage)
{
    bool tied = p->m->shape.cfg.tie_embeddings;
    int32_t last = p->n_stages - 1;
    if (stage < last || !tied)
        zero_stage(p, &p->stages[stage]);
    if (stage == 0 && tied)
        zero_stage(p, &p->stages[last]);
}
