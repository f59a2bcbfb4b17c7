#include "arch/shape.h"

#include "arch/rope_freq.h"
#include "base/mem.h"
#include "tensor/bf16.h"

#include <math.h>

pesc_status shape_open(model_shape *s)
{
    const config *c = &s->cfg;
    s->w.blocks = mem_zalloc((size_t)c->n_layers, sizeof *s->w.blocks);
    if (!s->w.blocks)
        return fail_nomem("a model", (size_t)c->n_layers * sizeof *s->w.blocks);
    for (int32_t i = 0; i < c->n_layers; i++) {
        block *b = &s->w.blocks[i];
        const int32_t kv = config_layer_kv(c, i);
        b->sparse = config_layer_sparse(c, i);
        b->mixer = config_layer_mixer(c, i);
        b->place = config_mixers(c, kv, b->mixer);
        b->window = config_layer_window(c, i);
        b->rope = config_layer_rope(c, i);
        b->heads = config_heads(c, i);
        b->widths = config_layer_widths(c, i);
        b->ffn_dim = config_layer_ffn(c, i);
        b->borrows_kv = kv != i;
        b->shared_kv = -1;
        if (b->borrows_kv) /* one lender of each kind */
            b->shared_kv = s->w.blocks[kv].shared_kv = b->window ? SHARED_WINDOWED : SHARED_FULL;
    }
    for (int32_t i = 0; i < c->n_ropes; i++)
        s->rope_scale[i] = rope_table_scale(&c->ropes[i]);
    s->attn_scale = rope_attention_scale(c);
    s->stream_eps = c->norm_eps / (c->residual_scale * c->residual_scale);
    return PESC_OK;
}

static float as_activation(const model_shape *s, float x)
{
    return s->act_dt == DT_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

int32_t expert_list_at(const expert_list *l, int32_t expert)
{
    int32_t low = 0, high = l->n;
    if (!l->ids)
        return expert;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (l->ids[middle] < expert)
            low = middle + 1;
        else
            high = middle;
    }
    return low < l->n && l->ids[low] == expert ? low : -1;
}

float shape_embed_scale(const model_shape *s)
{
    const config *c = &s->cfg;
    const float scale = c->embed_scale / c->residual_scale;
    return c->embed_sqrt_dim ? as_activation(s, scale) : scale;
}

float shape_input_scale(const model_shape *s)
{
    return as_activation(s, sqrtf((float)s->cfg.layer_input_dim));
}
