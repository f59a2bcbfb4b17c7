#include "craft/camelidae.h"

#include "arch/family.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "craft/configjson.h"
#include "craft/hfadapters.h"

#include <stdio.h>
#include <string.h>

/* Tried in order: the first whose facts are the source's is taken. */
static const struct layout {
    const char *source; /* model_type */
    configjson_class names;
    bool bare_experts;
    bool fixed_theta; /* its modelling file does not read rope_theta */
} layouts[] = {
#define CAMELIDAE                                                                                  \
    {                                                                                              \
        "camelidae", "modeling_camelidae.LlamaForCausalLM",                                        \
            "configuration_camelidae.CamelidaeConfig", "modeling_camelidae.LlamaModel"             \
    }
    { "llama", CAMELIDAE, false, true },
    { "mistral", CAMELIDAE, false, true },
    { "mistral",
      { "sparsetral", "modeling_sparsetral.MistralForCausalLM",
        "configuration_sparsetral.SparsetralConfig", "modeling_sparsetral.MistralModel" },
      true,
      false },
    { "qwen2",
      { "qwen2idae", "modeling_qwen2idae.Qwen2ForCausalLM",
        "configuration_qwen2idae.Qwen2idaeConfig", "modeling_qwen2idae.Qwen2Model" },
      false,
      false },
};

/* Keys of pesc's own, which are written only where the value is not the published code's. */
static pesc_status set_choices(json_t *json, const camelidae_size *z, int32_t n_layers)
{
    if (strcmp(z->activation, "gelu") != 0)
        TRY(configjson_set(json, "adapter_act", json_string(z->activation)));
    if (strcmp(z->router, "softmax-after") != 0)
        TRY(configjson_set(json, "adapter_router", json_string(z->router)));
    return configjson_sparse_layers(json, &z->layers, n_layers);
}

/* The first of these keys that is there; NULL: none. */
static const char *own_key(const json_t *json)
{
    static const char *const keys[] = { "adapter_act", "adapter_router", "mlp_only_layers" };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_has(json, keys[i]))
            return keys[i];
    return NULL;
}

static pesc_status set_size(json_t *json, const camelidae_size *z, const config *c)
{
    const bool beside =
        config_experts(c)->kind == EXPERT_FFN; /* of a mixture, which has the keys */
    if (!z)
        return PESC_OK;
    TRY(set_choices(json, z, c->n_layers));
    TRY(configjson_set(json, beside ? "adapter_experts" : "num_experts", json_integer(z->experts)));
    TRY(configjson_set(json, beside ? "adapter_top_k" : "topk", json_integer(z->top_k)));
    TRY(configjson_set(json, "adapter_dim", json_integer(z->adapter_dim)));
    return configjson_set(json, "moe_scaling", json_real(z->scale));
}

/* Keys that the published classes have bad defaults for. */
static pesc_status begin_config(target_model *p, const camelidae_size *size)
{
    TRY(target_begin(p));
    TRY(set_size(p->json, size, &p->from.cfg));
    TRY(configjson_facts(p->json, &p->from.cfg));
    const json_t *dt = json_object_get(p->json, "torch_dtype");
    TRY(configjson_set(p->json, "moe_dtype", json_string(json_string_value(dt))));
    return configjson_set(p->json, "output_router_logits", json_false());
}

static bool may_hold(const struct layout *l, const family *f)
{
    return strcmp(l->source, f->model_type) == 0 || strcmp(l->names.model_type, f->model_type) == 0;
}

static void warn_of_theta(const target_model *p, const struct layout *l)
{
    if (l->fixed_theta && (p->cfg.ropes[0].theta != 10000 || p->cfg.ropes[0].kind != ROPE_PLAIN))
        log_notice("%s: the published modelling file of %s rotates with theta 10000, whatever "
                   "the configuration says; pesc keeps the model's own %g",
                   p->file, l->names.model_type, (double)p->cfg.ropes[0].theta);
}

/* ---- the classes that auto_map names ---- */

/* dir/MODULE.py of "MODULE.Class", and the class. */
static const char *split(const json_t *map, const char *key, char module[64])
{
    const char *text = json_string_value(json_object_get(map, key));
    const char *dot = text ? strchr(text, '.') : NULL;
    snprintf(module, 64, "%.*s", dot ? (int)(dot - text) : 0, text ? text : "");
    return dot ? dot + 1 : NULL;
}

static pesc_status write_module(const char *dir, const char *module, const str *text)
{
    char name[80];
    snprintf(name, sizeof name, "%s.py", module);
    char *path = io_join(dir, name);
    pesc_status s = path && str_ok(text) ? io_write_file(path, text->p, text->n)
                                         : fail_nomem(dir, strlen(name));
    mem_free(path);
    return s;
}

/* The published names, as classes over those of the modelling file of pesc: so a crafted model
 * opens in transformers by itself. What is merged or exported in this layout is for the authors'
 * files. */
static pesc_status write_classes(const target_model *p)
{
    char configuration[64], modeling[64], dense[32];
    const json_t *map = json_object_get(p->json, "auto_map");
    const char *config_class = split(map, "AutoConfig", configuration);
    const char *causal = split(map, "AutoModelForCausalLM", modeling);
    const char *headless = split(map, "AutoModel", modeling);
    ASSERT(config_class && causal && headless);
    snprintf(dense, sizeof dense, "%.*s", (int)(strstr(headless, "Model") - headless), headless);
    str text = { 0 };
    str_printf(&text,
               "\"\"\"The configuration that config.json names. Written by pesc.\"\"\"\n"
               "from .modeling_pesc import Pesc%sConfig\n\n\n"
               "class %s(Pesc%sConfig):\n    expert_prefix = \"%s\"\n",
               dense, config_class, dense, p->plan.bare_experts ? "" : "expert_");
    pesc_status s = write_module(p->dir, configuration, &text);
    str_clear(&text);
    str_printf(&text,
               "\"\"\"The models that config.json names. Written by pesc.\"\"\"\n"
               "from .%s import %s\n"
               "from .modeling_pesc import Pesc%sForCausalLM, Pesc%sModel\n\n\n"
               "class %s(Pesc%sModel):\n    config_class = %s\n\n\n"
               "class %s(Pesc%sForCausalLM):\n    config_class = %s\n",
               configuration, config_class, dense, dense, headless, dense, config_class, causal,
               dense, config_class);
    if (s == PESC_OK)
        s = write_module(p->dir, modeling, &text);
    str_free(&text);
    return s == PESC_OK ? hfadapters_write_code(p) : s;
}

pesc_status camelidae_configure(target_model *p, const camelidae_size *size, bool published)
{
    const char *differs = "model_type";
    const family *f = p->from.cfg.fam;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!may_hold(&layouts[i], f))
            continue;
        TRY(begin_config(p, size));
        TRY(configjson_name(p->json, &layouts[i].names));
        TRY(target_read(p, &differs));
        p->plan.bare_experts = layouts[i].bare_experts;
        differs = differs ? differs : own_key(p->json);
        if (!differs) {
            p->write_more = size ? write_classes : NULL;
            warn_of_theta(p, &layouts[i]);
            return PESC_OK;
        }
    }
    const bool opens = hfadapters_has(f->model_type);
    if (published)
        return fail(PESC_UNSUPPORTED,
                    "%s: no published layout of models with adapters has a place for its %s (a %s "
                    "model); %s",
                    p->from.path, differs, f->name,
                    opens ? "--to hf writes it for transformers" : "pesc runs it as it is");
    p->plan.bare_experts = false;
    TRY(begin_config(p, size));
    json_object_del(p->json, "auto_map");
    log_notice("%s: no published layout of models with adapters has a place for its %s (a %s "
               "model): only pesc opens the result with its adapters%s",
               p->from.path, differs, f->name,
               opens ? ", and transformers after pesc export --to hf" : "");
    return target_read_same(p);
}
