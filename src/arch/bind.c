#include "arch/bind.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char embed_name[] = "model.embed_tokens.weight", head_name[] = "lm_head.weight";

static bool same_numbers(const weight *a, const weight *b)
{
    return a->dt == b->dt && a->bytes == b->bytes && a->dt != DT_NF4 &&
           (a->data == b->data || memcmp(a->data, b->data, a->bytes) == 0);
}

head_kind bind_head(const config *c, const weights *ws)
{
    if (!c->tie_embeddings)
        return HEAD_OWN;
    const weight *embed = ws ? weights_find(ws, embed_name) : NULL;
    const weight *head = ws ? weights_find(ws, head_name) : NULL;
    if (!embed || !head)
        return HEAD_TIED;
    return same_numbers(embed, head) ? HEAD_COPY : HEAD_OWN;
}

void bind_settle_head(config *c, const weights *ws, const char *file)
{
    if (!c->tie_embeddings || bind_head(c, ws) != HEAD_OWN)
        return;
    c->tie_embeddings = false;
    log_notice("%s: tie_word_embeddings is true, but the file has an lm_head.weight that differs "
               "from the embeddings; it is used",
               file);
}

const weight *bind_find(const config *c, const weights *ws, const slot *s)
{
    const weight *w = weights_find(ws, s->name);
    bool embed = s->rule->flags & RULE_GLOBAL && s->rule->offset == offsetof(transformer, embed);
    return !w && embed && c->tie_embeddings ? weights_find(ws, head_name) : w;
}

/* ---- checking ---- */

enum { MISFITS_SHOWN = 64, MISFITS_MAX = 10000 };

typedef struct misfits {
    const char *kind;
    size_t n;
    str list;
} misfits;

static void add_misfit(misfits *m, const char *name, const char *detail)
{
    if (m->n++ < MISFITS_SHOWN)
        str_printf(&m->list, "%s %.100s%s", m->n > 1 ? "," : "", name, detail);
}

static void shape_text(str *s, int32_t nd, const int64_t *ne)
{
    str_putc(s, '[');
    for (int32_t i = 0; i < nd; i++)
        str_printf(s, "%s%lld", i ? "," : "", (long long)ne[i]);
    str_putc(s, ']');
}

static bool is_float(dtype dt)
{
    switch (dt) {
    case DT_I32:
    case DT_U8:
    case DT_I8:
    case DT_I16:
    case DT_I64:
    case DT_BOOL:
        return false;
    default:
        return true;
    }
}

typedef struct check {
    misfits missing, extra, shape, type;
    unsigned char *used; /* one byte a weight of the table */
    const bind_part *part;
} check;

static void check_slot(check *k, const config *c, const weights *ws, const slot *s)
{
    if (k->part && !k->part->has(k->part->ctx, s))
        return;
    const weight *w = bind_find(c, ws, s);
    if (!w) {
        add_misfit(&k->missing, s->name, "");
        return;
    }
    k->used[w - weights_at(ws, 0)] = 1;
    str detail = { 0 };
    if (w->nd != s->nd || memcmp(w->ne, s->ne, (size_t)s->nd * sizeof *s->ne) != 0) {
        str_puts(&detail, " is ");
        shape_text(&detail, w->nd, w->ne);
        str_puts(&detail, ", expected ");
        shape_text(&detail, s->nd, s->ne);
        add_misfit(&k->shape, s->name, str_ok(&detail) ? detail.p : "");
    } else if (!is_float(w->dt)) {
        str_printf(&detail, " is %s", dtype_name(w->dt));
        add_misfit(&k->type, s->name, str_ok(&detail) ? detail.p : "");
    }
    str_free(&detail);
}

/* Layers that predict further tokens stand after the model's own: "model.layers.61." of 61. */
static bool predicts_further(const config *c, const char *name)
{
    static const char prefix[] = "model.layers.";
    long long layer = 0;
    char digits[16];
    if (!c->n_prediction_layers || strncmp(name, prefix, sizeof prefix - 1) != 0)
        return false;
    name += sizeof prefix - 1;
    snprintf(digits, sizeof digits, "%.*s", (int)strcspn(name, "."), name);
    return str_to_i64(digits, 0, INT32_MAX, &layer) && layer >= c->n_layers &&
           layer < c->n_layers + c->n_prediction_layers;
}

/* Published files hold keys and values of layers that do not project their own. */
static bool borrowed(const config *c, const char *name)
{
    static const char *const parts[] = { "k_proj.weight", "v_proj.weight", "k_norm.weight",
                                         "k_proj.bias", "v_proj.bias" };
    char own[64];
    for (int32_t l = c->n_layers - c->n_kv_shared; l < c->n_layers; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            snprintf(own, sizeof own, "model.layers.%d.self_attn.%s", l, parts[i]);
            if (strcmp(own, name) == 0)
                return true;
        }
    return false;
}

/* Older files carry the rotation frequencies, and tied models the head: both are known already.
 * Qwen's "mtp." predicts further tokens. */
static bool harmless(const config *c, const char *name)
{
    return predicts_further(c, name) || borrowed(c, name) || str_starts(name, "mtp.") ||
           str_ends(name, ".rotary_emb.inv_freq") ||
           (c->tie_embeddings && strcmp(name, head_name) == 0);
}

static pesc_status report(check *k, const char *path)
{
    misfits *all[] = { &k->missing, &k->extra, &k->shape, &k->type };
    str text = { 0 };
    size_t total = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        misfits *m = all[i];
        total += m->n;
        if (!m->n)
            continue;
        str_printf(&text, "%s%zu %s:%s", text.n ? "; " : "", m->n, m->kind,
                   str_ok(&m->list) ? m->list.p : "");
        if (m->n > MISFITS_SHOWN)
            str_printf(&text, " and %zu more", m->n - MISFITS_SHOWN);
    }
    pesc_status s = PESC_OK;
    if (total)
        s = fail(PESC_SHAPE, "%s: the tensors do not fit the configuration: %s", path,
                 str_ok(&text) ? text.p : "");
    str_free(&text);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        str_free(&all[i]->list);
    return s;
}

pesc_status bind_check(const config *c, const weights *ws, const char *path)
{
    return bind_check_part(c, ws, path, NULL);
}

pesc_status bind_check_part(const config *c, const weights *ws, const char *path,
                            const bind_part *part)
{
    check k = { .missing = { .kind = "missing" },
                .extra = { .kind = "left over" },
                .shape = { .kind = "of a wrong shape" },
                .type = { .kind = "not floating point" },
                .part = part };
    size_t n = weights_count(ws);
    k.used = mem_zalloc(n + 1, 1);
    if (!k.used)
        return fail_nomem("checking the tensors", n);
    /* A configuration can ask for billions of tensors, so the search stops after MISFITS_MAX
     * errors; then it is not known which tensors of the file are unused. */
    for (slot s = slot_first(); k.missing.n < MISFITS_MAX && slot_next(c, &s);)
        check_slot(&k, c, ws, &s);
    if (k.missing.n == MISFITS_MAX)
        k.missing.kind = "or more missing";
    for (size_t i = 0; i < n && k.missing.n < MISFITS_MAX; i++)
        if (!k.used[i] && !harmless(c, weights_at(ws, i)->name))
            add_misfit(&k.extra, weights_at(ws, i)->name, "");
    mem_free(k.used);
    return report(&k, path);
}

/* ---- placing ---- */

static size_t offset_of(const slot *s)
{
    return s->rule->offset + (s->in_ffn ? offsetof(block, ffn_moe) - offsetof(block, moe) : 0);
}

tensor *bind_field(transformer *w, const slot *s)
{
    void *base = s->layer < 0 ? (void *)w : (void *)&w->blocks[s->layer];
    return (tensor *)(void *)((char *)base + offset_of(s));
}

linear *bind_linear(const transformer *w, const slot *s)
{
    if (!(s->rule->flags & RULE_LINEAR))
        return NULL;
    char *base = (char *)&w->blocks[s->layer]; /* w is a linear's first member */
    return (linear *)(void *)(base + offset_of(s));
}

static tensor expert_part(const tensor *stack, int32_t expert)
{
    tensor t = tensor_slice(stack, expert, 1);
    return (tensor){ .data = t.data, .dt = t.dt, .nd = 2, .ne = { t.ne[1], t.ne[2] } };
}

tensor bind_tensor(const transformer *w, const slot *s)
{
    transformer all = *w;
    const tensor *t = bind_field(&all, s);
    return s->expert < 0 ? *t : expert_part(t, s->expert);
}

lora_stack *bind_lora_stack(const transformer *w, const slot *s)
{
    if (s->expert < 0 || !(s->rule->need & FACT_EXPERT))
        return NULL;
    block *b = &w->blocks[s->layer];
    moe *x = s->in_ffn ? &b->ffn_moe : &b->moe;
    const size_t offset = s->rule->offset;
    return offset == offsetof(block, moe.gate) ? &x->lora_gate
           : offset == offsetof(block, moe.up) ? &x->lora_up
                                               : &x->lora_down;
}

static const weight *source_of(const config *c, const bind_source *src, const slot *s,
                               weight *plain)
{
    *plain = (weight){ .dt = src->stored };
    return src->ws ? bind_find(c, src->ws, s) : plain;
}

dtype bind_dtype(const config *c, const bind_source *src, const slot *s)
{
    weight plain;
    slot at = *s;
    dtype dt = holding_dtype(&src->how, s->rule, source_of(c, src, s, &plain));
    if (s->expert >= 0)
        at.expert = -1; /* from the first expert on */
    while (s->expert >= 0 && slot_next(c, &at) && at.rule == s->rule && at.layer == s->layer)
        dt = holding_join(&src->how, dt,
                          holding_dtype(&src->how, at.rule, source_of(c, src, &at, &plain)));
    return dt;
}

/* The arena of the matrices of a layer, which begins anew with each. */
static arena *layer_arena(bind_memory *to, int32_t layer)
{
    bool first = to->layer.used == 0 || to->at != layer;
    if (first && to->in)
        to->layer = (arena){ .base = to->in->span(to->in, layer), .size = to->layers[layer] };
    else if (first)
        to->layer = (arena){ 0 };
    to->at = layer;
    return &to->layer;
}

static void layout_slot(model_shape *m, const bind_source *src, bind_memory *to, const slot *s)
{
    arena *a = s->rule->flags & RULE_TRAIN ? &to->mixture : &to->base;
    bool sharded = to->layers && layer_hook_has(s);
    if (s->expert > 0) /* the first expert takes the stack */
        return;
    if (sharded)
        a = layer_arena(to, s->layer);
    weight plain;
    const weight *w = source_of(&m->cfg, src, s, &plain);
    held_as how = holding_of(&src->how, s, w);
    tensor *t = bind_field(&m->w, s);
    if (how.in_file && !sharded) {
        *t = (tensor){ .data = (void *)(uintptr_t)w->data, .dt = how.dt, .nd = s->nd };
        memcpy(t->ne, s->ne, sizeof t->ne);
    } else if (s->expert == 0) {
        *t = tensor_take3(a, bind_dtype(&m->cfg, src, s), slot_moe(&m->cfg, s)->topk.n_experts,
                          s->ne[0], s->ne[1]);
    } else {
        *t = tensor_take(a, how.dt, s->nd, s->ne);
    }
    if (sharded)
        to->layers[s->layer] = a->used;
}

/* The A of all linears in their order, so that those of q, k, v and of gate, up are one matrix. */
static void layout_lora_a(model_shape *m, const bind_source *src, arena *mem)
{
    for (slot s = slot_first(); slot_next(&m->cfg, &s);) {
        const linear *of = bind_linear(&m->w, &s);
        lora *l = of ? of->lora : NULL;
        if (!l)
            continue;
        const weight *a = src->lora->loras[l - m->loras].a;
        l->a = tensor_take2(mem, holding_of_lora(&src->how, a), a->ne[0], a->ne[1]);
    }
}

/* The first expert that has one takes the stacks of all. */
static void layout_lora(model_shape *m, const bind_source *src, arena *mem, size_t i)
{
    const weight *a = src->lora->loras[i].a, *b = src->lora->loras[i].b;
    lora *to = &m->loras[i];
    if (!to->stack) {
        to->b = tensor_take2(mem, holding_of_lora(&src->how, b), b->ne[0], b->ne[1]);
    } else if (expert_list_at(&to->stack->own, to->expert) == 0) {
        const expert_list *own = &to->stack->own;
        const int64_t n = own->ids ? own->n : config_experts(&m->cfg)->topk.n_experts;
        to->stack->a = tensor_take3(mem, holding_of_lora(&src->how, a), n, a->ne[0], a->ne[1]);
        to->stack->b = tensor_take3(mem, holding_of_lora(&src->how, b), n, b->ne[0], b->ne[1]);
    }
}

void bind_layout(model_shape *m, const bind_source *src, bind_memory *memory)
{
    for (slot s = slot_first(); slot_next(&m->cfg, &s);)
        layout_slot(m, src, memory, &s);
    if (m->cfg.tie_embeddings)
        m->w.head = m->w.embed;
    if (m->n_loras)
        layout_lora_a(m, src, &memory->base);
    for (size_t i = 0; i < m->n_loras; i++)
        layout_lora(m, src, &memory->base, i);
    for (size_t i = 0; i < m->n_loras; i++) {
        lora *l = &m->loras[i];
        if (l->stack) {
            const int32_t at = expert_list_at(&l->stack->own, l->expert);
            l->a = expert_part(&l->stack->a, at);
            l->b = expert_part(&l->stack->b, at);
        }
    }
}

/* ---- LoRA ---- */

typedef struct lora_name {
    const peft_lora *lora;
    bool used;
} lora_name;

static int by_module(const void *a, const void *b)
{
    return strcmp(((const lora_name *)a)->lora->module, ((const lora_name *)b)->lora->module);
}

/* The LoRA of a slot, whose name ends in ".weight"; NULL: none. */
static lora_name *lora_of(lora_name *names, size_t n, const slot *s)
{
    char module[sizeof s->name];
    size_t len = strlen(s->name) - strlen(".weight");
    memcpy(module, s->name, len);
    module[len] = '\0';
    peft_lora key = { .module = module };
    return bsearch(&(lora_name){ .lora = &key }, names, n, sizeof *names, by_module);
}

/* Adds an expert to the list of its stack: they come in ascending order, stack by stack. */
static void list_expert(model_shape *m, const lora *of)
{
    lora_stack *to = of->stack;
    if (!to->own.ids) {
        size_t used = 0;
        for (size_t i = 0; i < m->n_loras; i++)
            used += m->loras[i].stack && m->loras[i].stack != to;
        to->own.ids = m->lora_experts + used;
    }
    m->lora_experts[to->own.ids - m->lora_experts + to->own.n++] = of->expert;
}

/* A list of all experts need not be one. */
static void drop_whole_lists(model_shape *m)
{
    for (size_t i = 0; i < m->n_loras; i++) {
        lora_stack *s = m->loras[i].stack;
        if (s && s->own.n == config_experts(&m->cfg)->topk.n_experts)
            s->own = (expert_list){ 0 };
    }
}

static void attach(model_shape *m, const bind_source *src, const slot *s, const peft_lora *l)
{
    lora *of = &m->loras[l - src->lora->loras];
    const int32_t rank = (int32_t)l->a->ne[0];
    of->scale = l->scale;
    if (s->expert < 0) {
        bind_linear(&m->w, s)->lora = of;
    } else {
        of->stack = bind_lora_stack(&m->w, s);
        of->stack->scale = l->scale;
        of->expert = s->expert;
        list_expert(m, of);
        m->expert_rank = rank > m->expert_rank ? rank : m->expert_rank;
    }
    m->lora_rank = rank > m->lora_rank ? rank : m->lora_rank;
}

/* Whether the LoRA of an expert, or NULL, is as that of the stack's first. */
static bool even(const peft_lora *l, const peft_lora *first)
{
    return !l || (l->a->ne[0] == first->a->ne[0] && l->scale == first->scale);
}

static pesc_status attach_all(model_shape *m, const bind_source *src, lora_name *names, size_t n)
{
    check k = { .missing = { .kind = "missing" },
                .extra = { .kind = "on no linear of this model" },
                .shape = { .kind = "of a shape that does not fit its linear" },
                .type = { .kind = "not floating point" } };
    misfits uneven = { .kind = "" };
    const peft_lora *first = NULL;
    for (slot s = slot_first(); slot_next(&m->cfg, &s);) {
        bool expert = bind_lora_stack(&m->w, &s) != NULL;
        lora_name *found = s.rule->flags & RULE_LINEAR || expert ? lora_of(names, n, &s) : NULL;
        const peft_lora *l = found ? found->lora : NULL;
        first = s.expert <= 0 || !first ? l : first;
        if (expert && !even(l, first))
            add_misfit(&uneven, s.name, "");
        if (!l)
            continue;
        found->used = true;
        if (!peft_fits(l, s.ne))
            add_misfit(&k.shape, l->module, "");
        else if (!is_float(l->a->dt) || !is_float(l->b->dt))
            add_misfit(&k.type, l->module, "");
        else
            attach(m, src, &s, l);
    }
    for (size_t i = 0; i < n; i++)
        if (!names[i].used)
            add_misfit(&k.extra, names[i].lora->module, "");
    pesc_status s = report(&k, src->lora->dir);
    if (s == PESC_OK && uneven.n)
        s = fail(
            PESC_UNSUPPORTED,
            "%s: the experts of a layer differ in their LoRA: %zu of them,%s; expected the same "
            "rank and alpha on all experts of a layer that have one",
            src->lora->dir, uneven.n, str_ok(&uneven.list) ? uneven.list.p : "");
    str_free(&uneven.list);
    return s;
}

pesc_status bind_loras(model_shape *m, const bind_source *src)
{
    size_t n = src->lora ? src->lora->n : 0;
    if (!n)
        return PESC_OK;
    lora_name *names = mem_zalloc(n, sizeof *names);
    m->loras = mem_zalloc(n, sizeof *m->loras);
    m->lora_experts = mem_zalloc(n, sizeof *m->lora_experts);
    if (!names || !m->loras || !m->lora_experts) {
        mem_free(names);
        return fail_nomem("the adapter", n * sizeof *m->loras);
    }
    m->n_loras = n;
    for (size_t i = 0; i < n; i++)
        names[i].lora = &src->lora->loras[i];
    qsort(names, n, sizeof *names, by_module);
    pesc_status s = attach_all(m, src, names, n);
    drop_whole_lists(m);
    mem_free(names);
    return s;
}
