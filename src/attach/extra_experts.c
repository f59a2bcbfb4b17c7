#include "attach/extra_experts.h"

#include "arch/load.h"
#include "attach/attached.h"
#include "attach/patched.h"
#include "backend/memory.h"
#include "base/mem.h"
#include "tensor/quants.h"

enum { MOST_EXPERTS = 4096 }; /* of a layer, with its own: what sorting by expert has room for */

struct extra {
    patch *const *patches; /* [n], borrowed while it is opened */
    int32_t n;
    extra_experts *layers; /* [n_layers] */
    void *memory;
};

/* Experts of layer l in the patches before the i-th; i = n: in all. */
static int32_t count_before(const struct extra *x, int32_t layer, int32_t i)
{
    int32_t sum = 0;
    for (int32_t j = 0; j < i; j++) {
        const expertcfg_layer *l =
            x->patches[j] ? expertcfg_find(&x->patches[j]->cfg, layer) : NULL;
        sum += l ? l->n : 0;
    }
    return sum;
}

/* The place of an expert of the i-th patch among the extra experts of its layer; -1: the patch
 * leaves it as it is. */
static int32_t place_of(const struct extra *x, int32_t i, int32_t layer, int32_t expert)
{
    const expertcfg_layer *l = x->patches[i] ? expertcfg_find(&x->patches[i]->cfg, layer) : NULL;
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

/* Also one that is in the weights: the experts of a patch would be without it. */
static bool has_expert_lora(const pesc_model *m)
{
    for (size_t i = 0; i < m->shape.n_loras; i++)
        if (m->shape.loras[i].stack)
            return true;
    return false;
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
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++)
        if (m->shape.w.blocks[l].moe.down_bias.data)
            return fail(PESC_UNSUPPORTED,
                        "%s: its experts have biases, which patches that are models of their own "
                        "do not support; put one into the base: pesc esft apply",
                        m->dir->path);
    for (int32_t i = 0; i < x->n; i++)
        TRY(x->patches[i] ? check_patch(m, x->patches[i]) : PESC_OK);
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++) {
        int32_t n = count_before(x, l, x->n);
        if (n > MOST_EXPERTS - m->shape.cfg.moe.topk.n_experts)
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

/* Run twice, like every layout. */
static void lay_out(const struct extra *x, const pesc_model *m, arena *a)
{
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++) {
        const moe *own = &m->shape.w.blocks[l].moe;
        int32_t n = count_before(x, l, x->n);
        if (!n)
            continue;
        extra_experts *to = &x->layers[l];
        to->gate = take_copies(a, &own->gate, n);
        to->up = take_copies(a, &own->up, n);
        to->down = take_copies(a, &own->down, n);
        to->table = tensor_take2(a, DT_I32, x->n + 1, m->shape.cfg.moe.topk.n_experts);
    }
}

/* The stack that holds the copies of what a slot is an expert of. */
static tensor copies_of(const struct extra *x, pesc_model *m, const slot *s)
{
    const moe *own = &m->shape.w.blocks[s->layer].moe;
    const tensor *field = bind_field(&m->shape.w, s);
    const extra_experts *to = &x->layers[s->layer];
    return field == &own->gate ? to->gate : field == &own->up ? to->up : to->down;
}

/* Appends what every patch has for a slot. */
static size_t add_items(const struct extra *x, pesc_model *m, const slot *s, load_item *items)
{
    size_t n = 0;
    for (int32_t i = 0; i < x->n; i++) {
        int32_t at = place_of(x, i, s->layer, s->expert);
        if (at < 0)
            continue;
        tensor stack = copies_of(x, m, s), one = tensor_slice(&stack, at, 1);
        items[n++] = (load_item){ bind_find(&m->shape.cfg, x->patches[i]->ws, s),
                                  tensor_view2(&one, stack.ne[1], stack.ne[2]) };
    }
    return n;
}

static pesc_status load_copies(const struct extra *x, pesc_model *m)
{
    size_t n = 0, most = 0;
    for (int32_t i = 0; i < x->n; i++)
        most += x->patches[i] ? weights_count(x->patches[i]->ws) : 0;
    load_item *items = mem_alloc(most + 1, sizeof *items);
    if (!items)
        return fail_nomem("the experts of patches", most * sizeof *items);
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);)
        if (s.rule->flags & RULE_EXPERT)
            n += add_items(x, m, &s, items + n);
    pesc_status st = load_items(m->dev, items, n, m->double_quant);
    mem_free(items);
    for (int32_t i = 0; st == PESC_OK && i < x->n; i++)
        st = x->patches[i] ? weights_check(x->patches[i]->read) : PESC_OK;
    return st;
}

static pesc_status load_table(const struct extra *x, const pesc_model *m, int32_t layer)
{
    int32_t experts = m->shape.cfg.moe.topk.n_experts;
    tensor to = x->layers[layer].table;
    int32_t *table = mem_alloc((size_t)tensor_count(&to), sizeof *table);
    if (!table)
        return fail_nomem("the experts of patches", tensor_bytes(&to));
    for (int32_t row = 0; row <= x->n; row++)
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
        m->shape.w.blocks[l].moe.extra = &x->layers[l];
    }
    return PESC_OK;
}

pesc_status extra_open(struct extra **out, pesc_model *m, patch *const *patches, int32_t n)
{
    bool any = false;
    *out = NULL;
    for (int32_t i = 0; i < n; i++)
        any |= patches[i] != NULL;
    if (!any)
        return PESC_OK;
    struct extra *x = *out = mem_zalloc(1, sizeof *x);
    extra_experts *layers = mem_zalloc((size_t)m->shape.cfg.n_layers, sizeof *layers);
    if (!x || !layers) {
        mem_free(layers);
        return fail_nomem("the experts of patches", (size_t)m->shape.cfg.n_layers * sizeof *layers);
    }
    *x = (struct extra){ .patches = patches, .n = n, .layers = layers };
    pesc_status s = fill_experts(x, m);
    x->patches = NULL;
    return s;
}

void extra_close(struct extra *x, pesc_model *m)
{
    if (!x)
        return;
    for (int32_t l = 0; l < m->shape.cfg.n_layers; l++)
        m->shape.w.blocks[l].moe.extra = NULL;
    m->shape.extra_experts = 0;
    if (x->memory)
        m->dev->op->free(m->dev, x->memory);
    mem_free(x->layers);
    mem_free(x);
}
