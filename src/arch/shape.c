#include "arch/shape.h"

#include "arch/rope_freq.h"
#include "base/mem.h"

pesc_status shape_open(model_shape *s)
{
    const config *c = &s->cfg;
    s->w.blocks = mem_zalloc((size_t)c->n_layers, sizeof *s->w.blocks);
    if (!s->w.blocks)
        return fail_nomem("a model", (size_t)c->n_layers * sizeof *s->w.blocks);
    for (int32_t i = 0; i < c->n_layers; i++) {
        s->w.blocks[i].sparse = config_layer_sparse(c, i);
        s->w.blocks[i].window = config_layer_window(c, i);
    }
    s->rope_scale = rope_table_scale(c);
    s->attn_scale = rope_attention_scale(c);
    return PESC_OK;
}
