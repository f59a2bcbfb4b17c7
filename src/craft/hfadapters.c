#include "craft/hfadapters.h"

#include "arch/family.h"
#include "base/embed.h"
#include "base/io.h"
#include "base/mem.h"
#include "craft/configjson.h"

#include <stdio.h>
#include <string.h>

#define CODE "modeling_pesc."

/* The classes of the modelling file, by the dense part. The type is one that transformers does not
 * have, where pesc has one: so without the file nothing opens the model as the dense one. */
static const struct layout {
    const char *families[2];
    const char *model_type, *config_class, *causal;
} layouts[] = {
    { { "llama", "camelidae" }, "camelidae", CODE "PescLlamaConfig", "PescLlamaForCausalLM" },
    { { "mistral", "sparsetral" },
      "sparsetral",
      CODE "PescMistralConfig",
      "PescMistralForCausalLM" },
    { { "qwen2", "qwen2idae" }, "qwen2idae", CODE "PescQwen2Config", "PescQwen2ForCausalLM" },
    { { "qwen3", "qwen3" }, "qwen3", CODE "PescQwen3Config", "PescQwen3ForCausalLM" },
};

static const struct layout *layout_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        for (size_t k = 0; k < 2; k++)
            if (strcmp(layouts[i].families[k], model_type) == 0)
                return &layouts[i];
    return NULL;
}

bool hfadapters_has(const char *model_type)
{
    return layout_of(model_type) != NULL;
}

static pesc_status set_names(json_t *json, const struct layout *l)
{
    char causal[64];
    snprintf(causal, sizeof causal, CODE "%s", l->causal);
    TRY(configjson_set(json, "model_type", json_string(l->model_type)));
    TRY(configjson_set(json, "architectures", json_pack("[s]", l->causal)));
    return configjson_set(
        json, "auto_map",
        json_pack("{s:s,s:s}", "AutoConfig", l->config_class, "AutoModelForCausalLM", causal));
}

pesc_status hfadapters_write_code(const target_model *p)
{
    for (size_t i = 0; i < embedded_python.n; i++) {
        char *path = io_join(p->dir, embedded_python.v[i].name);
        pesc_status s = path
                            ? io_write_file(path, embedded_python.v[i].text, embedded_python.v[i].n)
                            : fail_nomem(p->dir, 0);
        mem_free(path);
        TRY(s);
    }
    return PESC_OK;
}

pesc_status hfadapters_configure(target_model *p)
{
    const config *c = &p->from.cfg;
    const struct layout *l = layout_of(c->fam->model_type);
    const char *differs = NULL;
    if (!l)
        return fail(PESC_UNSUPPORTED,
                    "%s: has adapters on a %s model, which transformers cannot "
                    "open; pesc runs it as it is",
                    p->from.path, c->fam->name);
    TRY(target_begin(p));
    TRY(configjson_facts(p->json, c));
    TRY(set_names(p->json, l));
    TRY(target_read(p, &differs));
    if (differs)
        return fail(PESC_UNSUPPORTED, "%s: a %s model with adapters has no place for its %s",
                    p->from.path, l->model_type, differs);
    p->write_more = hfadapters_write_code;
    return PESC_OK;
}
