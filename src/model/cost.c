#include "model/cost.h"

#include "arch/bind.h"

#include <stddef.h>

const char *const cost_names[COST_PARTS] = {
    [COST_EMBED] = "embedding",   [COST_ATTENTION] = "attention", [COST_SCORES] = "scores",
    [COST_FFN] = "ffn",           [COST_SHARED] = "shared",       [COST_EXPERTS] = "experts",
    [COST_ADAPTERS] = "adapters", [COST_ROUTER] = "router",       [COST_LORA] = "lora",
    [COST_NORM] = "norms",        [COST_HEAD] = "head",           [COST_INPUTS] = "layer inputs",
};

/* ---- what a tensor belongs to ---- */

static bool is_field(const tensor_rule *r, size_t offset, size_t bytes)
{
    return !(r->flags & RULE_GLOBAL) && r->offset >= offset && r->offset < offset + bytes;
}

static cost_part base_part(const tensor_rule *r)
{
    if (r->need & FACT_LAYER_INPUTS && r->init != INIT_ONE)
        return COST_INPUTS;
    if (r->flags & RULE_GLOBAL)
        return r->offset == offsetof(transformer, embed)  ? COST_EMBED
               : r->offset == offsetof(transformer, head) ? COST_HEAD
                                                          : COST_NORM;
    if (r->init == INIT_ONE)
        return COST_NORM;
    if (is_field(r, offsetof(block, ffn), sizeof(ffn)))
        return COST_FFN;
    return r->offset >= offsetof(block, moe) ? COST_ROUTER : COST_ATTENTION;
}

static cost_part part_of(const tensor_rule *r)
{
    switch (param_group_of(r)) {
    case PARAM_LORA:
        return COST_LORA;
    case PARAM_ADAPTER:
        return COST_ADAPTERS;
    case PARAM_ROUTER:
        return COST_ROUTER;
    case PARAM_EXPERT:
        return COST_EXPERTS;
    case PARAM_SHARED:
        return COST_SHARED;
    default:
        return base_part(r);
    }
}

/* ---- the order of the forward ---- */

/* Stages of a layer. Gradients flow from later to earlier ones. */
enum {
    STAGE_NORM,
    STAGE_QKV,
    STAGE_LATENT,
    STAGE_SCORES,
    STAGE_O,
    STAGE_FFN_NORM,
    STAGE_UP,
    STAGE_DOWN,
    STAGE_ADAPTER,
    STAGE_ADAPTER_UP,
    STAGE_INPUT_GATE,
    STAGE_INPUT,
    STAGES
};

static int stage_of(const tensor_rule *r)
{
    static const struct {
        size_t offset, bytes;
        int stage;
    } rows[] = {
        { offsetof(block, attn_norm), sizeof(tensor), STAGE_NORM },
        { offsetof(block, ffn_norm), sizeof(tensor), STAGE_FFN_NORM },
        { offsetof(block, attn_post), sizeof(tensor), STAGE_O },
        { offsetof(block, input.gate), sizeof(linear), STAGE_INPUT_GATE },
        { offsetof(block, input), sizeof(layer_input), STAGE_INPUT },
        { offsetof(block, ffn_post), sizeof(tensor), STAGE_DOWN },
        { offsetof(block, moe.post), sizeof(tensor), STAGE_DOWN },
        { offsetof(block, moe.ffn_post), sizeof(tensor), STAGE_DOWN },
        { offsetof(block, o), sizeof(linear), STAGE_O },
        { offsetof(block, mix.out), sizeof(linear), STAGE_O },
        { offsetof(block, mla.q_b), sizeof(linear), STAGE_LATENT },
        { offsetof(block, mla.kv_b), sizeof(linear), STAGE_LATENT },
        { offsetof(block, ffn.down), sizeof(linear), STAGE_DOWN },
        { offsetof(block, moe.shared.down), sizeof(linear), STAGE_DOWN },
        { offsetof(block, moe.lora_down), sizeof(lora_stack), STAGE_DOWN },
    };
    bool adapter = param_group_of(r) == PARAM_ADAPTER;
    if (is_field(r, offsetof(block, moe.down), sizeof(tensor)))
        return adapter ? STAGE_ADAPTER : STAGE_DOWN;
    if (adapter)
        return STAGE_ADAPTER_UP;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_field(r, rows[i].offset, rows[i].bytes))
            return rows[i].stage;
    return r->offset >= offsetof(block, ffn) ? STAGE_UP : STAGE_QKV;
}

static int64_t stage_place(int32_t layer, int stage)
{
    return (int64_t)layer * STAGES + stage;
}

static int64_t place_of(const slot *s)
{
    if (s->layer >= 0)
        return stage_place(s->layer, stage_of(s->rule));
    return s->rule->flags & RULE_BELOW ? -1 : INT64_MAX;
}

/* ---- the walk over all tensors ---- */

typedef struct walk {
    cost_counts *out;
    const model_shape *m;
    const config *c;        /* as trained, or as the model is */
    const cost_method *how; /* NULL: inference */
    cost_work work;
    int64_t lowest; /* the place of the lowest tensor that trains */
} walk;

/* The rank of the LoRA that a linear or an expert has, or gets in training; 0: none. */
static int64_t rank_of(const walk *w, const slot *s)
{
    const transformer *t = &w->m->w;
    const lora_stack *stack = t->blocks ? bind_lora_stack(t, s) : NULL;
    if (stack && stack->a.data)
        return expert_list_at(&stack->own, s->expert) < 0 ? 0 : stack->a.ne[1];
    const linear *l = t->blocks ? bind_linear(t, s) : NULL;
    if (l && l->lora)
        return l->lora->a.ne[0];
    return w->how ? w->how->lora_rank(w->how->spec, w->c, s) : 0;
}

static bool trains(const walk *w, const slot *s)
{
    return w->how && w->how->trains(w->how->spec, s);
}

static int64_t lowest_trained(const walk *w)
{
    int64_t lowest = INT64_MAX;
    for (slot s = slot_first(); slot_next(w->c, &s);)
        if ((trains(w, &s) || rank_of(w, &s)) && place_of(&s) < lowest)
            lowest = place_of(&s);
    return lowest;
}

/* A weight, or the stack of all experts. */
typedef struct weight_cost {
    uint64_t count;                   /* of one expert */
    uint64_t experts, used, training; /* 1, or those of the stack */
} weight_cost;

static weight_cost weight_of(const walk *w, slot *s)
{
    weight_cost t = { (uint64_t)slot_count(s), 1, 1, 0 };
    t.training = trains(w, s);
    if (s->expert < 0)
        return t;
    const topk_rule *of = &slot_moe(w->c, s)->topk;
    t.experts = (uint64_t)of->n_experts;
    t.used = (uint64_t)of->k;
    while (s->expert + 1 < of->n_experts && slot_next(w->c, s))
        t.training += trains(w, s);
    return t;
}

static bool is_lora_b(const tensor_rule *r)
{
    return !(r->flags & RULE_GLOBAL) && (r->offset == offsetof(block, moe.lora_gate.b) ||
                                         r->offset == offsetof(block, moe.lora_up.b) ||
                                         r->offset == offsetof(block, moe.lora_down.b));
}

/* Of the inputs of layers: their table is looked up, their projection is below the first layer. */
static bool is_input(const tensor_rule *r, size_t offset)
{
    return r->flags & RULE_BELOW && r->offset == offset;
}

/* Products of a weight in backward. Embeddings have one where they are the head, too: above all. */
static uint64_t backward_of(const walk *w, const slot *s, const weight_cost *t, uint64_t flop)
{
    uint64_t own = flop * t->training / t->experts;
    const bool first = is_input(s->rule, offsetof(transformer, inputs.proj));
    int64_t at = first ? 0 : s->layer < 0 ? INT64_MAX : place_of(s);
    if (is_lora_b(s->rule))
        return own + 2 * flop; /* its input's gradient, and its output again */
    return own + (at > w->lowest ? flop : 0);
}

static void add_weight(const walk *w, slot *s)
{
    cost_part at = part_of(s->rule);
    cost_row *r = &w->out->part[at];
    weight_cost t = weight_of(w, s);
    const bool head = s->layer < 0 && at != COST_INPUTS;
    uint64_t rows = (uint64_t)(head ? w->work.rows : w->work.tokens);
    bool product = s->nd == 2 && (at != COST_EMBED || w->c->tie_embeddings) &&
                   !is_input(s->rule, offsetof(transformer, inputs.embed));
    uint64_t flop = product ? 2 * t.count * t.used * rows : 0;
    cost_row *to = at == COST_EMBED ? &w->out->part[COST_HEAD] : r;
    if (!w->how) {
        r->params += t.count * t.experts;
        r->activated += t.count * t.used;
        to->inference += flop;
        return;
    }
    r->trained += t.count * t.training;
    to->forward += flop;
    to->backward += product ? backward_of(w, s, &t, flop) : 0;
}

/* The LoRA of a linear, or of the experts of a stack that have one: of rank `rank`. */
typedef struct lora_count {
    uint64_t rank, n, of; /* n of `of`; 1 of 1 */
} lora_count;

/* The part of x that falls on them. */
static uint64_t lora_share(uint64_t x, const lora_count *t)
{
    return x / t->of * t->n + x % t->of * t->n / t->of;
}

static lora_count count_lora(const walk *w, slot s)
{
    lora_count t = { (uint64_t)rank_of(w, &s), 1, 1 };
    if (s.expert < 0)
        return t;
    t = (lora_count){ 0 };
    do {
        uint64_t rank = (uint64_t)rank_of(w, &s);
        t.rank = rank ? rank : t.rank;
        t.n += rank > 0;
        t.of++;
    } while (s.expert + 1 < slot_moe(w->c, &s)->topk.n_experts && slot_next(w->c, &s));
    return t;
}

/* Of experts it is called for the first, and counts all; of a token's choices as many fall on those
 * with a LoRA as if all were chosen alike. */
static void add_lora(const walk *w, const slot *s)
{
    cost_row *r = &w->out->part[COST_LORA];
    const bool expert = s->expert >= 0;
    const lora_count t = count_lora(w, *s);
    uint64_t a = t.rank * (uint64_t)s->ne[1], b = t.rank * (uint64_t)s->ne[0];
    uint64_t k = expert ? (uint64_t)slot_moe(w->c, s)->topk.k : 1;
    uint64_t flop = 2 * k * (uint64_t)w->work.tokens; /* of a number of a matrix, had all a LoRA */
    uint64_t again = expert ? a : 0;                  /* A x is not kept */
    if (!t.rank)
        return;
    if (!w->how) {
        r->params += t.n * (a + b);
        r->activated += lora_share(k * (a + b), &t);
        r->inference += lora_share(flop * (a + b), &t);
        return;
    }
    r->trained += t.n * (a + b);
    r->forward += lora_share(flop * (a + b), &t);
    uint64_t down = place_of(s) > w->lowest ? a : 0;
    r->backward += lora_share(flop * (a + 2 * b + again + down), &t);
}

/* The sum over the sequence's new tokens of the keys that each meets. */
static uint64_t keys_of(cost_work w, int32_t window)
{
    uint64_t sum = 0, first = (uint64_t)w.past + 1, last = (uint64_t)(w.past + w.tokens);
    uint64_t full = window && last > (uint64_t)window ? (uint64_t)window : last;
    if (full >= first)
        sum += (first + full) * (full - first + 1) / 2;
    uint64_t limited = full >= first ? last - full : (uint64_t)w.tokens;
    return sum + limited * full;
}

static void add_scores(const walk *w, int32_t layer)
{
    const config *c = w->c;
    cost_row *r = &w->out->part[COST_SCORES];
    uint64_t heads = (uint64_t)c->n_heads, keys = keys_of(w->work, config_layer_window(c, layer));
    uint64_t qk = 2 * heads * (uint64_t)config_heads(c, layer).qk_dim * keys;
    uint64_t pv = 2 * heads * (uint64_t)config_heads(c, layer).v_dim * keys;
    if (!w->how) {
        r->inference += qk + pv;
        return;
    }
    r->forward += qk + pv;
    if (stage_place(layer, STAGE_SCORES) > w->lowest) /* scores again, dQ, dK; dP, dV */
        r->backward += 3 * qk + 2 * pv;
}

/* A delta net: S^T k, k e^T and S^T q of each token and value head. Backward computes the first two
 * three times more, and has seven of its own. */
static void add_state(const walk *w, int32_t layer)
{
    cost_row *r = &w->out->part[COST_SCORES];
    uint64_t product = 2 * (uint64_t)(config_delta_state(w->c) * w->work.tokens);
    if (!w->how) {
        r->inference += 3 * product;
        return;
    }
    r->forward += 3 * product;
    if (stage_place(layer, STAGE_SCORES) > w->lowest)
        r->backward += 13 * product;
}

static void add_all(const walk *w)
{
    for (slot s = slot_first(); slot_next(w->c, &s);) {
        add_lora(w, &s);
        add_weight(w, &s);
    }
    for (int32_t i = 0; i < w->c->n_layers; i++)
        if (config_layer_mixer(w->c, i) == MIXER_ATTENTION)
            add_scores(w, i);
        else
            add_state(w, i);
}

/* ---- the counts ---- */

pesc_status cost_check(const config *c, cost_work w)
{
    double count = 0, keys = (double)w.past + (double)w.tokens;
    for (slot s = slot_first(); slot_next(c, &s);)
        count += (double)slot_count(&s);
    const head_widths heads = config_widths(c);
    double scores = 10.0 * c->n_layers * (double)(heads.q + heads.out) * keys;
    scores += 32.0 * c->n_layers * (double)config_delta_state(c);
    double flop =
        (8 * count * (c->moe.topk.k + c->ffn_moe.topk.k + 1.0) + scores) * (double)w.tokens;
    return flop < 0x1p62 ? PESC_OK
                         : fail(PESC_USAGE,
                                "tokens: found %lld, for which the FLOP of this model exceed 2^62",
                                (long long)w.tokens);
}

void cost_of_model(cost_counts *out, const model_shape *m, cost_work work)
{
    walk w = { .out = out, .m = m, .c = &m->cfg, .work = work };
    add_all(&w);
}

void cost_of_training(cost_counts *out, const model_shape *m, const cost_method *how,
                      cost_work work)
{
    walk w = { .out = out, .m = m, .c = how->c, .how = how, .work = work };
    w.lowest = lowest_trained(&w);
    add_all(&w);
}

cost_row cost_total(const cost_counts *c)
{
    cost_row t = { 0 };
    for (int i = 0; i < COST_PARTS; i++) {
        const cost_row *r = &c->part[i];
        t.params += r->params;
        t.activated += r->activated;
        t.trained += r->trained;
        t.inference += r->inference;
        t.forward += r->forward;
        t.backward += r->backward;
    }
    return t;
}
