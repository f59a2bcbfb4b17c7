#include "arch/mixers.h"

#include "arch/layer_kinds.h"
#include "base/mem.h"

#include <string.h>

mixer_kind config_layer_mixer(const config *c, int32_t layer)
{
    return c->layer_recurrent && c->layer_recurrent[layer] ? c->recurrent : MIXER_ATTENTION;
}

int32_t config_mixers(const config *c, int32_t n, mixer_kind kind)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += config_layer_mixer(c, i) == kind;
    return count;
}

const char *mixers_name(mixer_kind kind)
{
    static const char *const names[] = {
        [MIXER_ATTENTION] = "full_attention",
        [MIXER_CONV] = "conv",
        [MIXER_DELTA] = "linear_attention",
    };
    return names[kind];
}

static pesc_status read_types(config *c, json_where w)
{
    const layer_words words = { "layer_types", mixers_name(MIXER_ATTENTION), "attention",
                                mixers_name(c->recurrent) };
    for (int32_t i = 0; i < c->n_layers; i++) {
        bool recurrent;
        TRY(layer_words_read(c, w, words, i, &recurrent));
        c->layer_recurrent[i] = recurrent;
    }
    return PESC_OK;
}

/* The layers of the list have attention. Numbers that are no layer's do nothing, as in
 * transformers. */
static pesc_status read_attention_list(config *c, json_where w, const json_t *list)
{
    size_t i;
    const json_t *v;
    if (!json_is_array(list))
        return fail(PESC_FORMAT, "%s: full_attn_idxs: found %s, expected an array", w.file,
                    json_kind(list));
    memset(c->layer_recurrent, 1, (size_t)c->n_layers);
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v))
            return fail(PESC_FORMAT, "%s: full_attn_idxs[%zu]: found %s, expected an integer",
                        w.file, i, json_kind(v));
        if (json_integer_value(v) >= 0 && json_integer_value(v) < c->n_layers)
            c->layer_recurrent[json_integer_value(v)] = 0;
    }
    return PESC_OK;
}

pesc_status mixers_read(config *c, json_where w)
{
    const json_t *types = json_value(w.object, "layer_types");
    const json_t *list = json_value(w.object, "full_attn_idxs");
    if (c->recurrent == MIXER_ATTENTION)
        return PESC_OK;
    if (c->recurrent == MIXER_DELTA && c->delta_v_heads % c->delta_k_heads)
        return fail(PESC_FORMAT,
                    "%s: linear_num_key_heads: %d does not divide linear_num_value_heads %d",
                    w.file, c->delta_k_heads, c->delta_v_heads);
    c->layer_recurrent = mem_zalloc((size_t)c->n_layers, 1);
    if (!c->layer_recurrent)
        return fail_nomem("reading a configuration", (size_t)c->n_layers);
    if (types)
        TRY(read_types(c, w));
    else if (list && !c->attention_interval)
        TRY(read_attention_list(c, w, list));
    for (int32_t i = 0; !types && c->attention_interval && i < c->n_layers; i++)
        c->layer_recurrent[i] = (i + 1) % c->attention_interval != 0;
    if (config_mixers(c, c->n_layers, c->recurrent) == 0) {
        mem_free(c->layer_recurrent);
        c->layer_recurrent = NULL;
    }
    return PESC_OK;
}
