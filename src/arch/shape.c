#include "arch/shape.h"

#include "arch/rope_freq.h"
#include "base/mem.h"
#include "tensor/bf16.h"

pesc_status shape_open(model_shape *s)
{
    const config *c = &s->cfg;
    s->w.blocks = mem_zalloc((size_t)c->n_layers, sizeof *s->w.blocks);
    if (!s->w.blocks)
        return fail_nomem("a model", (size_t)c->n_layers * sizeof *s->w.blocks);
    for (int32_t i = 0; i < c->n_layers; i++) {
        s->w.blocks[i].sparse = config_layer_sparse(c, i);
        s->w.blocks[i].mixer = config_layer_mixer(c, i);
        s->w.blocks[i].place = config_mixers(c, i, s->w.blocks[i].mixer);
        s->w.blocks[i].window = config_layer_window(c, i);
        s->w.blocks[i].rope = config_layer_rope(c, i);
        s->w.blocks[i].heads = config_heads(c, i);
        s->w.blocks[i].widths = config_layer_widths(c, i);
    }
    for (int32_t i = 0; i < c->n_ropes; i++)
        s->rope_scale[i] = rope_table_scale(&c->ropes[i]);
    s->attn_scale = rope_attention_scale(c);
    s->stream_eps = c->norm_eps / (c->residual_scale * c->residual_scale);
    return PESC_OK;
}

float shape_embed_scale(const model_shape *s)
{
    const config *c = &s->cfg;
    float scale = c->embed_scale / c->residual_scale;
    bool rounded = c->embed_sqrt_dim && s->act_dt == DT_BF16;
    return rounded ? bf16_to_f32(bf16_from_f32(scale)) : scale;
}
