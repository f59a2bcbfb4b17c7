#include "attach/extra_experts.h"

#include "arch/load.h"
#include "arch/param_group.h"
#include "attach/attached.h"
#include "attach/fold.h"
#include "attach/patched.h"
#include "backend/memory.h"
#include "base/mem.h"
#include "tensor/quants.h"

#include <string.h>

enum { MOST_EXPERTS = 4096 }; /* of a layer, with its own: what sorting by expert has room for */

struct extra {
    const extra_source *from; /* while it is opened */
    expertcfg *lora_experts;  /* [from->n]: those that LoRAs are on; while it is opened */
    extra_experts *layers;    /* [n_layers] */
    void *memory;
};

/* The experts of a layer that the i-th replaces; NULL: none. */
static const expertcfg_layer *replaced(const struct extra *x, int32_t i, int32_t layer)
{
    const patch *p = x->from->patches[i];
    return expertcfg_find(p ? &p->cfg : &x->lora_experts[i], layer);
}

/* Experts of layer l in the patches before the i-th; i = n: in all. */
static int32_t count_before(const struct extra *x, int32_t layer, int32_t i)
{
    int32_t sum = 0;
    for (int32_t j = 0; j < i; j++) {
        const expertcfg_layer *l = replaced(x, j, layer);
        sum += l ? l->n : 0;
    }
    return sum;
}

/* The place of an expert of the i-th patch among the extra experts of its layer; -1: the patch
 * leaves it as it is. */
static int32_t place_of(const struct extra *x, int32_t i, int32_t layer, int32_t expert)
{
    const expertcfg_layer *l = replaced(x, i, layer);
    for (int32_t j = 0; l && j < l->n; j++)
        if (l->ids[j] == expert)
            return count_before(x, layer, i) + j;
    return -1;
}

static pesc_status check_patch(const pesc_model *m, const patch *p)
{
    TRY(patched_check(p, &m->shape.cfg, m->dir->ws, m->dir->path));
    if (p->cfg.shared_experts || p->cfg.non_expert_modules)
        return fail(PESC_UNSUPPORTED,
                    "%s: replaces %s, which all requests of a batch share; such a patch can only "
                    "be applied to the whole model",
                    p->dir, p->cfg.shared_experts ? "shared experts" : "modules without experts");
    return PESC_OK;
}

/* ---- LoRA on experts ---- */

/* The experts of a layer that have a LoRA: of one matrix or more. has: room, [n_experts]. */
static pesc_status add_layer(expertcfg *out, const peft *from, const config *c, int32_t layer,
                             int32_t *has)
{
    int32_t n = 0;
    memset(has, 0, (size_t)config_experts(c)->topk.n_experts * sizeof *has);
    slot s = { .layer = layer, .expert = -1, .row = -1 };
    while (slot_next(c, &s) && s.layer == layer)
        if (param_full_expert(s.rule) && peft_find(from, s.name))
            has[s.expert] = 1;
    for (int32_t e = 0; e < config_experts(c)->topk.n_experts; e++)
        if (has[e])
            has[n++] = e;
    return n ? expertcfg_add(out, layer, has, n) : PESC_OK;
}

static pesc_status find_lora_experts(struct extra *x, const config *c)
{
    int32_t *has = mem_alloc((size_t)config_experts(c)->topk.n_experts + 1, sizeof *has);
    pesc_status s = has ? PESC_OK : fail_nomem("the experts of LoRAs", sizeof *has);
    for (int32_t i = 0; i < x->from->n; i++)
        for (int32_t l = 0; s == PESC_OK && x->from->loras[i] && l < c->n_layers; l++)
            if (config_layer_sparse(c, l))
                s = add_layer(&x->lora_experts[i], x->from->loras[i], c, l, has);
    mem_free(has);
    return s;
}

/* A matrix of numbers on the device. */
static pesc_status upload(device *dev, const weight *w, tensor *out)
{
    const int64_t n = weights_elements(w);
    float *x = mem_alloc((size_t)n, sizeof *x);
    *out = (tensor){ .dt = DT_F32, .nd = 2, .ne = { w->ne[0], w->ne[1] } };
    pesc_status s = x ? weights_read_f32(w, 0, n, x) : fail_nomem(w->name, (size_t)n * sizeof *x);
    if (s == PESC_OK)
        s = dev->op->alloc(dev, (size_t)n * sizeof *x, &out->data);
    if (s == PESC_OK)
        dev->op->upload(dev, out->data, x, (size_t)n * sizeof *x);
    if (s == PESC_OK)
        s = dev->op->sync(dev);
    mem_free(x);
    return s;
}

static pesc_status add_lora(device *dev, const tensor *copy, const peft_lora *from)
{
    lora l = { .scale = from->scale };
    pesc_status s = upload(dev, from->a, &l.a);
    if (s == PESC_OK)
        s = upload(dev, from->b, &l.b);
    if (s == PESC_OK) {
        fold_lora(dev, copy, &l);
        s = dev->op->sync(dev);
    }
    if (l.a.data)
        dev->op->free(dev, l.a.data);
    if (l.b.data)
        dev->op->free(dev, l.b.data);
    return s;
}

/* ---- checks ---- */

/* Also one that is in the weights: the experts of a patch would be without it. */
static bool has_expert_lora(const pesc_model *m)
{
    for (size_t i = 0; i < m->shape.n_loras; i++)
        if (m->shape.loras[i].stack)
            return true;
    return false;
}

/* A LoRA is added to copies of experts, which blocks of 4 bits do not allow. */
static pesc_status check_lora(const struct extra *x, const pesc_model *m, int32_t i)
{
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++)
        if (replaced(x, i, l) && shape_experts(&m->shape, l)->gate.dt == DT_NF4)
            return fail(PESC_UNSUPPORTED,
                        "%s: is a LoRA on experts, which %s holds in nf4; as a model of its own it "
                        "needs them in --base-dtype bf16 or f32",
                        x->from->loras[i]->dir, m->dir->path);
    return PESC_OK;
}

static pesc_status check_all(const struct extra *x, pesc_model *m)
{
    if (m->attached->patch)
        return fail(PESC_USAGE,
                    "%s: has a patch already, and patches that are models of their own need the "
                    "base without one",
                    m->dir->path);
    if (has_expert_lora(m))
        return fail(
            PESC_UNSUPPORTED,
            "%s: has LoRA on its experts; patches that are models of their own need experts "
            "without it, so merge it first (`pesc merge`)",
            m->dir->path);
    for (int32_t i = 0; i < x->from->n; i++)
        TRY(x->from->patches[i] ? check_patch(m, x->from->patches[i]) : check_lora(x, m, i));
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++) {
        int32_t n = count_before(x, l, x->from->n);
        if (n > MOST_EXPERTS - config_experts(&m->shape.cfg)->topk.n_experts)
            return fail(PESC_UNSUPPORTED,
                        "the patches hold %d experts of layer %d; with the model's own at most %d "
                        "are supported",
                        n, l, MOST_EXPERTS);
        if (n > m->shape.extra_experts)
            m->shape.extra_experts = n;
    }
    return PESC_OK;
}

/* n experts of the shape and dtype of a stack; f32 where that is in a GGUF's blocks. */
static tensor take_copies(arena *a, const tensor *stack, int32_t n)
{
    dtype dt = quants_is(stack->dt) ? DT_F32 : stack->dt;
    return tensor_take3(a, dt, n, stack->ne[1], stack->ne[2]);
}

/* Biases of the layer's experts, and of n more. */
static tensor take_biases(arena *a, const tensor *bias, int32_t n)
{
    return bias->data ? tensor_take2(a, DT_F32, bias->ne[0] + n, bias->ne[1]) : (tensor){ 0 };
}

/* Run twice, like every layout. */
static void lay_out(const struct extra *x, const pesc_model *m, arena *a)
{
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++) {
        const moe *own = shape_experts(&m->shape, l);
        int32_t n = count_before(x, l, x->from->n);
        if (!n)
            continue;
        extra_experts *to = &x->layers[l];
        to->gate = take_copies(a, &own->gate, n);
        to->up = take_copies(a, &own->up, n);
        to->down = take_copies(a, &own->down, n);
        to->gate_bias = take_biases(a, &own->gate_bias, n);
        to->up_bias = take_biases(a, &own->up_bias, n);
        to->down_bias = take_biases(a, &own->down_bias, n);
        to->table =
            tensor_take2(a, DT_I32, x->from->n + 1, config_experts(&m->shape.cfg)->topk.n_experts);
    }
}

/* The stack that holds the copies of what a slot is an expert of. */
static tensor copies_of(const struct extra *x, pesc_model *m, const slot *s)
{
    const moe *own = shape_experts(&m->shape, s->layer);
    const tensor *field = bind_field(&m->shape.w, s);
    const extra_experts *to = &x->layers[s->layer];
    return field == &own->gate ? to->gate : field == &own->up ? to->up : to->down;
}

/* The copy of a slot's matrix for the i-th; absent: it has none. */
static tensor copy_of(const struct extra *x, pesc_model *m, const slot *s, int32_t i)
{
    const int32_t at = place_of(x, i, s->layer, s->expert);
    if (at < 0)
        return (tensor){ 0 };
    tensor stack = copies_of(x, m, s), one = tensor_slice(&stack, at, 1);
    return tensor_view2(&one, stack.ne[1], stack.ne[2]);
}

/* Appends what every patch has for a slot, and of a LoRA what it is added to. */
static size_t add_items(const struct extra *x, pesc_model *m, const slot *s, load_item *items)
{
    size_t n = 0;
    for (int32_t i = 0; i < x->from->n; i++) {
        const patch *p = x->from->patches[i];
        const tensor to = copy_of(x, m, s, i);
        if (to.data)
            items[n++] = (load_item){ bind_find(&m->shape.cfg, p ? p->ws : m->dir->ws, s), to };
    }
    return n;
}

static pesc_status add_loras(const struct extra *x, pesc_model *m)
{
    const config *c = &m->shape.cfg;
    const int32_t width = config_experts(c)->expert_dim;
    TRY(fold_reserve(m->dev, c->dim > width ? c->dim : width));
    for (slot s = slot_first(); slot_next(c, &s);)
        for (int32_t i = 0; param_full_expert(s.rule) && i < x->from->n; i++) {
            const peft *from = x->from->loras[i];
            const peft_lora *l = from ? peft_find(from, s.name) : NULL;
            const tensor to = copy_of(x, m, &s, i);
            if (l)
                TRY(add_lora(m->dev, &to, l));
        }
    return PESC_OK;
}

/* A copy of an expert has its biases, which no patch replaces. */
static void copy_biases(const struct extra *x, pesc_model *m, int32_t layer)
{
    const moe *own = shape_experts(&m->shape, layer);
    const extra_experts *to = &x->layers[layer];
    const struct {
        const tensor *from, *to;
    } rows[] = { { &own->gate_bias, &to->gate_bias },
                 { &own->up_bias, &to->up_bias },
                 { &own->down_bias, &to->down_bias } };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const tensor from = *rows[k].from, all = *rows[k].to;
        const int32_t n = (int32_t)from.ne[0];
        if (!all.data)
            continue;
        m->dev->op->convert(m->dev, tensor_slice(&all, 0, n), from);
        for (int32_t i = 0; i < x->from->n; i++)
            for (int32_t e = 0; e < n; e++) {
                const int32_t at = place_of(x, i, layer, e);
                if (at >= 0)
                    m->dev->op->convert(m->dev, tensor_slice(&all, n + at, 1),
                                        tensor_slice(&from, e, 1));
            }
    }
}

static pesc_status load_copies(const struct extra *x, pesc_model *m)
{
    size_t n = 0, most = 0;
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++)
        most += 3 * (size_t)count_before(x, l, x->from->n);
    load_item *items = mem_alloc(most + 1, sizeof *items);
    if (!items)
        return fail_nomem("the experts of patches", most * sizeof *items);
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        if (param_full_expert(s.rule))
            n += add_items(x, m, &s, items + n);
    pesc_status st = load_items(m->dev, items, n, m->double_quant);
    mem_free(items);
    for (int32_t i = 0; st == PESC_OK && i < x->from->n; i++)
        st = x->from->patches[i] ? weights_check(x->from->patches[i]->read) : PESC_OK;
    return st == PESC_OK ? add_loras(x, m) : st;
}

static pesc_status load_table(const struct extra *x, const pesc_model *m, int32_t layer)
{
    int32_t experts = config_experts(&m->shape.cfg)->topk.n_experts;
    tensor to = x->layers[layer].table;
    int32_t *table = mem_alloc((size_t)tensor_count(&to), sizeof *table);
    if (!table)
        return fail_nomem("the experts of patches", tensor_bytes(&to));
    for (int32_t row = 0; row <= x->from->n; row++)
        for (int32_t e = 0; e < experts; e++) {
            int32_t at = row ? place_of(x, row - 1, layer, e) : -1;
            table[row * experts + e] = at < 0 ? e : experts + at;
        }
    m->dev->op->upload(m->dev, to.data, table, tensor_bytes(&to));
    pesc_status s = m->dev->op->sync(m->dev);
    mem_free(table);
    return s;
}

static pesc_status fill_experts(struct extra *x, pesc_model *m)
{
    static const memory_need need = { "the experts of patches", "fewer patches need less" };
    arena a = { 0 };
    TRY(check_all(x, m));
    lay_out(x, m, &a);
    TRY(memory_take(&a, m->dev, &need, &x->memory));
    lay_out(x, m, &a);
    TRY(load_copies(x, m));
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++) {
        if (!x->layers[l].table.data)
            continue;
        TRY(load_table(x, m, l));
        copy_biases(x, m, l);
        shape_experts(&m->shape, l)->extra = &x->layers[l];
    }
    return PESC_OK;
}

/* Whether any of them replaces an expert. */
static bool any_replaced(const struct extra *x)
{
    bool any = false;
    for (int32_t i = 0; i < x->from->n; i++)
        any |= x->from->patches[i] || x->lora_experts[i].n_layers;
    return any;
}

static pesc_status open_all(struct extra *x, pesc_model *m)
{
    const size_t layers = (size_t)m->shape.cfg.n_layers, n = (size_t)x->from->n;
    x->layers = mem_zalloc(layers, sizeof *x->layers);
    x->lora_experts = mem_zalloc(n, sizeof *x->lora_experts);
    if (!x->layers || !x->lora_experts)
        return fail_nomem("the experts of patches", layers * sizeof *x->layers);
    TRY(find_lora_experts(x, &m->shape.cfg));
    return any_replaced(x) ? fill_experts(x, m) : PESC_OK;
}

pesc_status extra_open(struct extra **out, pesc_model *m, const extra_source *from)
{
    struct extra *x = *out = mem_zalloc(1, sizeof *x);
    if (!x)
        return fail_nomem("the experts of patches", sizeof *x);
    x->from = from;
    pesc_status s = open_all(x, m);
    for (int32_t i = 0; x->lora_experts && i < from->n; i++)
        expertcfg_free(&x->lora_experts[i]);
    mem_free(x->lora_experts);
    x->lora_experts = NULL;
    x->from = NULL;
    return s;
}

void extra_close(struct extra *x, pesc_model *m)
{
    if (!x)
        return;
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++)
        shape_experts(&m->shape, l)->extra = NULL;
    m->shape.extra_experts = 0;
    if (x->memory)
        m->dev->op->free(m->dev, x->memory);
    mem_free(x->layers);
    mem_free(x);
}
