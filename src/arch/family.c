#include "arch/family.h"

#include "arch/shape.h"
#include "arch/unknown_family.h"

#include <stdio.h>
#include <string.h>

const family *family_at(size_t i)
{
    const family *const lists[] = { dense_families, mixture_families, biased_families,
                                    hybrid_families };
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++)
        for (const family *f = lists[l]; f->name; f++)
            if (i-- == 0)
                return f;
    return NULL;
}

pesc_status family_find(const family **out, const char *model_type, const char *file)
{
    for (size_t i = 0; (*out = family_at(i)); i++)
        if (strcmp((*out)->model_type, model_type) == 0)
            return PESC_OK;
    return unknown_family(model_type, file);
}

uint32_t family_facts(const config *c, int32_t layer)
{
    uint32_t f = c->tie_embeddings ? 0 : FACT_UNTIED;
    f |= c->layer_input_dim ? FACT_LAYER_INPUTS : 0;
    if (layer < 0)
        return f;
    bool sparse = config_layer_sparse(c, layer);
    const moe_rule *full = config_experts(c);
    bool experts = sparse && full->kind == EXPERT_FFN;
    f |= config_layer_mixer(c, layer) == MIXER_ATTENTION ? FACT_ATTENTION : 0;
    const bool keys = config_layer_kv(c, layer) == layer;
    f |= keys ? FACT_KEYS : 0;
    f |= keys && (!c->k_as_v || config_layer_window(c, layer)) ? FACT_VALUES : 0;
    f |= config_layer_mixer(c, layer) == MIXER_CONV ? FACT_CONV : 0;
    f |= config_layer_mixer(c, layer) == MIXER_DELTA ? FACT_DELTA : 0;
    f |= c->conv_bias ? FACT_CONV_BIAS : 0;
    f |= c->norms == NORM_BEFORE ? FACT_NORM_BEFORE : 0;
    f |= c->qkv_bias ? FACT_QKV_BIAS : 0;
    f |= c->o_bias ? FACT_O_BIAS : 0;
    f |= c->mlp_bias ? FACT_MLP_BIAS : 0;
    f |= c->qk_norm == QK_NORM_HEAD ? FACT_NORM_HEAD : 0;
    f |= c->qk_norm == QK_NORM_ROW ? FACT_NORM_ROW : 0;
    f |= c->q_lora_rank > 0 ? FACT_Q_LORA : FACT_Q_FULL;
    f |= sparse ? FACT_SPARSE : 0;
    f |= sparse && c->moe.kind == EXPERT_ADAPTER ? FACT_ADAPTER : 0;
    f |= sparse && c->moe.kind == EXPERT_LORA ? FACT_MOLORA : 0;
    f |= experts ? FACT_EXPERT : FACT_FFN;
    f |= experts && full->beside_ffn ? FACT_BESIDE | FACT_FFN : 0;
    f |= experts && full->has_bias && !full->added_bias ? FACT_ROUTER_BIAS : 0;
    f |= experts && full->shared_dim ? FACT_SHARED : 0;
    f |= experts && full->shared_dim && full->shared_gate ? FACT_SHARED_GATE : 0;
    return f;
}

const moe_rule *slot_moe(const config *c, const slot *s)
{
    return s->in_ffn ? &c->ffn_moe : &c->moe;
}

static int64_t letter(const config *c, const slot *s, char l)
{
    const moe_rule *experts = slot_moe(c, s);
    const int32_t layer = s->layer;
    const head_widths heads = config_layer_widths(c, layer < 0 ? 0 : layer);
    switch (l) {
    case 'V':
        return c->vocab;
    case 'C':
        return c->dim;
    case 'F':
        return config_layer_ffn(c, layer < 0 ? 0 : layer);
    case 'H':
        return heads.q;
    case 'K':
        return heads.k;
    case 'O':
        return heads.out;
    case 'D':
        return config_heads(c, layer).qk_dim;
    case 'N':
        return c->n_heads;
    case 'E':
        return experts->topk.n_experts;
    case 'M':
        return experts->expert_dim;
    case 'S':
        return experts->shared_dim;
    case 'Q':
        return c->q_lora_rank;
    case 'R':
        return c->kv_lora_rank;
    case 'P':
        return (int64_t)c->kv_lora_rank + c->qk_rope_dim;
    case 'W':
        return config_conv_width(c);
    case 'T':
        return c->conv_taps;
    case 'I':
        return config_recurrent_in(c);
    case 'G':
        return heads.q * (c->attn_gate_in_q ? 2 : 1);
    case 'J':
        return c->delta_v_heads;
    case 'L':
        return 2 * (int64_t)c->delta_v_heads;
    case 'A':
        return c->delta_v_dim;
    case 'X':
        return config_delta_values(c);
    case 'U':
        return c->layer_input_vocab;
    case 'Y':
        return c->layer_input_dim;
    case 'Z':
        return (int64_t)c->layer_input_dim * c->n_layers;
    case 'B':
        return (int64_t)c->n_heads * (c->qk_nope_dim + c->v_dim);
    default:
        ASSERT(l == '1');
        return 1;
    }
}

/* Whether a table is the family's own, and none that adapters add. */
static bool from_family(const config *c, int32_t i)
{
    return i < FAMILY_MAX_TABLES && c->fam->tensors[i];
}

/* The tables of a configuration in order; NULL after the last. */
static const tensor_rule *table_at(const config *c, int32_t i)
{
    int32_t n = 0;
    while (n < FAMILY_MAX_TABLES && c->fam->tensors[n])
        n++;
    if (from_family(c, i))
        return c->fam->tensors[i];
    const tensor_rule *kind = c->moe.kind == EXPERT_ADAPTER ? adapter_tensors
                              : c->moe.kind == EXPERT_LORA  ? molora_tensors
                                                            : NULL;
    const tensor_rule *more[] = { kind, c->moe.added_bias ? added_bias_tensors : NULL };
    for (size_t k = 0; k < sizeof more / sizeof *more; k++)
        if (more[k] && n++ == i)
            return more[k];
    return NULL;
}

static bool in_moe(const tensor_rule *r)
{
    return !(r->flags & RULE_GLOBAL) && r->offset >= offsetof(block, moe) &&
           r->offset < offsetof(block, moe) + sizeof(moe);
}

static void name_slot(slot *s)
{
    const char *name = s->rule->name;
    const char *e = strstr(name, "{e}");
    int at = s->layer < 0 ? 0 : snprintf(s->name, sizeof s->name, "model.layers.%d.", s->layer);
    size_t room = sizeof s->name - (size_t)at;
    int n = e ? snprintf(s->name + at, room, "%.*s%d%s", (int)(e - name), name, s->expert, e + 3)
              : snprintf(s->name + at, room, "%s", name);
    ASSERT(n >= 0 && (size_t)n < room);
}

static void fill_slot(const config *c, slot *s)
{
    const char *shape = s->rule->shape;
    s->nd = (int32_t)strlen(shape);
    for (int32_t i = 0; i < s->nd; i++)
        s->ne[i] = letter(c, s, shape[i]);
    name_slot(s);
}

slot slot_first(void)
{
    return (slot){ .layer = -1, .expert = -1, .row = -1 };
}

bool slot_next(const config *c, slot *s)
{
    if (s->rule && s->rule->flags & RULE_EXPERT && s->expert + 1 < slot_moe(c, s)->topk.n_experts) {
        s->expert++;
        name_slot(s);
        return true;
    }
    uint32_t facts = family_facts(c, s->layer);
    for (;;) {
        const tensor_rule *table = table_at(c, s->table);
        if (!table) {
            if (++s->layer >= c->n_layers)
                return false;
            s->table = 0;
            s->row = -1;
            facts = family_facts(c, s->layer);
            continue;
        }
        const tensor_rule *r = &table[++s->row];
        if (!r->name) {
            s->table++;
            s->row = -1;
            continue;
        }
        bool global = r->flags & RULE_GLOBAL;
        if (global != (s->layer < 0) || (r->need & facts) != r->need)
            continue;
        s->rule = r;
        s->in_ffn = config_adapters_on_experts(c) && from_family(c, s->table) && in_moe(r);
        s->expert = r->flags & RULE_EXPERT ? 0 : -1;
        fill_slot(c, s);
        return true;
    }
}

void slot_set_expert(slot *s, int32_t expert)
{
    s->expert = expert;
    name_slot(s);
}

bool slot_of_rule(const config *c, int32_t layer, const char *rule, slot *out)
{
    *out = (slot){ .layer = layer, .expert = -1, .row = -1 };
    while (slot_next(c, out) && out->layer == layer)
        if (strcmp(out->rule->name, rule) == 0)
            return true;
    return false;
}

int64_t slot_count(const slot *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->nd; i++)
        n *= s->ne[i];
    return n;
}
