#include "format/textpart.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <string.h>

/* Whose text is computed as a language model of its own is. */
static const char *const kinds[] = { "gemma3", "gemma4", "mistral3", "qwen3_5", "qwen3_5_moe" };

/* What is said of the whole model, and holds for its text unless that says otherwise. */
static const char *const shared[] = { "tie_word_embeddings", "dtype",        "torch_dtype",
                                      "bos_token_id",        "eos_token_id", "pad_token_id",
                                      "quantization_config", "auto_map" };

static bool is_kind(const char *type)
{
    bool known = false;
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        known |= strcmp(type, kinds[i]) == 0;
    return known;
}

pesc_status textpart_take(json_t **config, const char *file, bool *found)
{
    const char *type = json_string_value(json_object_get(*config, "model_type"));
    json_t *text = json_object_get(*config, "text_config");
    *found = is_kind(type) && json_is_object(text);
    if (!*found)
        return PESC_OK;
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        json_t *v = json_object_get(*config, shared[i]);
        bool whole = i == 0; /* transformers ties by what the whole says */
        if (v && (whole || !json_has(text, shared[i])) && json_object_set(text, shared[i], v) != 0)
            return fail_nomem(file, 64);
    }
    log_notice("%s: is a %s model; its text part alone is read", file, type);
    json_incref(text);
    json_decref(*config);
    *config = text;
    return PESC_OK;
}

pesc_status textpart_keep(weights *ws)
{
    static const char *const others[] = {
        "vision_tower.",          "model.vision_tower.",          "model.visual.",
        "model.embed_vision.",    "model.audio_tower.",           "model.embed_audio.",
        "multi_modal_projector.", "model.multi_modal_projector.",
    };
    size_t n = weights_count(ws);
    unsigned char *drop = mem_zalloc(n + 1, 1);
    if (!drop)
        return fail_nomem("a table of weights", n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            drop[i] |= str_starts(weights_at(ws, i)->name, others[k]);
    weights_drop(ws, drop);
    mem_free(drop);
    return PESC_OK;
}
