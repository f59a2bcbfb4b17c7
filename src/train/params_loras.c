#include "train/params_walk.h"

#include "arch/bind.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

/* ---- on linears ---- */

/* The last of the list is its A, or with `second` its B. */
static void place_lora(params_walk *w, const slot *s, lora *l, bool second)
{
    params *p = w->p;
    const param *q = &p->list[w->n_list - 1];
    linear *to = bind_linear(&w->m->shape.w, s);
    linear *grad = bind_linear(&p->mirror.of, s);
    lora *g = &p->lora_grads[w->n_loras];
    tensor *t = second ? &l->b : &l->a;
    walk_init(w, q, *t, second ? INIT_ZERO : INIT_UNIFORM);
    *t = walk_working(p, q);
    *(second ? &g->b : &g->a) = params_grad(p, q);
    l->dropout = p->spec.lora_dropout;
    l->stream = XXH64(s->name, strlen(s->name), 0);
    to->lora = l;
    grad->lora = g;
}

/* Name and shape of the A, or with `second` the B, of rank r. */
static void name_lora(param *q, const slot *s, int64_t r, bool second)
{
    int module = (int)(strlen(s->name) - strlen(".weight"));
    q->ne[0] = second ? s->ne[0] : r;
    q->ne[1] = second ? r : s->ne[1];
    snprintf(q->name, sizeof q->name, "%.*s.lora_%c.weight", module, s->name, "AB"[second]);
}

void walk_add_lora(params_walk *w, const slot *s, bool second)
{
    params *p = w->p;
    lora *l = w->m ? bind_linear(&w->m->shape.w, s)->lora : NULL;
    bool ours = l && p->loras && l == &p->loras[w->n_attached]; /* attached the first time */
    bool attach = (!l || ours) && params_lora_rank(&p->spec, w->c, s);
    if (!p->spec.lora_r || !(l || attach))
        return;
    int64_t r = l && !ours ? l->a.ne[0] : p->spec.lora_r;
    param q = { .group = PARAM_LORA, .nd = 2, .ready = s->layer };
    name_lora(&q, s, r, second);
    walk_take(w, &q, false, false);
    walk_reach(w, s);
    p->flat = true;
    if (p->memory) {
        if (attach) {
            l = &p->loras[w->n_attached];
            l->scale = p->spec.lora_alpha / (float)r;
            w->m->shape.lora_rank = w->m->shape.lora_rank > r ? w->m->shape.lora_rank : (int32_t)r;
        }
        place_lora(w, s, l, second);
    }
    w->n_attached += attach;
    w->n_loras++;
}

/* ---- on experts ---- */

/* The LoRA of one matrix of a layer's experts: the A of those that have one lie side by side, and
 * so do the B. */
typedef struct expert_loras {
    lora_stack *of; /* the model's; NULL: only a configuration is known */
    bool there;     /* it has them already */
    expert_list own;
    int32_t n, at; /* how many experts, and which of them the slot is; at -1: none */
} expert_loras;

static expert_loras expert_loras_of(const params_walk *w, const slot *s)
{
    const train_spec *spec = &w->p->spec;
    const expertcfg *chosen = w->m ? &w->m->trained_experts : spec->lora_own;
    const expertcfg_layer *layer = spec->lora_own ? expertcfg_find(chosen, s->layer) : NULL;
    expert_loras e = { .of = w->m ? bind_lora_stack(&w->m->shape.w, s) : NULL };
    e.there = e.of && e.of->a.data;
    if (layer)
        e.own = (expert_list){ layer->ids, layer->n, NULL };
    else if (e.there)
        e.own = e.of->own;
    e.n = e.own.ids ? e.own.n : slot_moe(w->c, s)->topk.n_experts;
    e.at = expert_list_at(&e.own, s->expert);
    return e;
}

/* The last of the list is the A (`second`: the B) of an expert. When the last expert's is there,
 * the stack moves. */
static void place_expert_lora(params_walk *w, const slot *s, const expert_loras *e, bool second)
{
    params *p = w->p;
    const param *q = &p->list[w->n_list - 1];
    tensor *t = second ? &e->of->b : &e->of->a, from = *t;
    if (from.data) {
        from = tensor_slice(&from, e->at, 1);
        from = (tensor){ .data = from.data, .dt = from.dt, .nd = 2, .ne = { q->ne[0], q->ne[1] } };
    }
    walk_init(w, q, from, second ? INIT_ZERO : INIT_UNIFORM);
    if (e->at + 1 < e->n)
        return;
    param all = walk_stack(q, e->n);
    lora_stack *g = bind_lora_stack(&p->mirror.of, s);
    *t = walk_working(p, &all);
    *(second ? &g->b : &g->a) = params_grad(p, &all);
    e->of->own = g->own = e->own;
    if (p->spec.lora_own)
        g->own.domains = expertcfg_find(p->spec.lora_own, s->layer)->domains;
}

/* A LoRA that the model brings is trained as it is, so it must be on all that was asked for, and
 * where experts were chosen on no other. */
static void check_brought(params_walk *w, const slot *s, const expert_loras *e, bool wanted)
{
    const bool has = expert_list_at(&e->of->own, s->expert) >= 0;
    if (w->status == PESC_OK && (wanted ? !has : has && w->p->spec.lora_own))
        w->status = fail(PESC_USAGE,
                         "%s: %s, but the LoRA that the model brings %s it; give the choice of "
                         "experts that it was made with (experts_from), or merge it first",
                         s->name, wanted ? "is to get LoRA" : "is not chosen",
                         wanted ? "leaves out" : "is on");
}

void walk_add_expert_lora(params_walk *w, const slot *s, bool second)
{
    params *p = w->p;
    const expert_loras e = expert_loras_of(w, s);
    const int32_t wanted = params_lora_rank(&p->spec, w->c, s);
    if (e.there && !p->memory)
        check_brought(w, s, &e, wanted);
    if (!p->spec.lora_r || e.at < 0 || !(e.there || wanted))
        return;
    int64_t r = e.there ? e.of->a.ne[1] : p->spec.lora_r;
    param q = { .group = PARAM_LORA, .nd = 2, .ready = s->layer };
    name_lora(&q, s, r, second);
    walk_take(w, &q, e.at + 1 < e.n, false);
    walk_reach(w, s);
    p->flat = true;
    if (!p->memory)
        return;
    if (!e.there)
        e.of->scale = p->spec.lora_alpha / (float)r;
    place_expert_lora(w, s, &e, second);
}
