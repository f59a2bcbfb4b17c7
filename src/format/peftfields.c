#include "format/peftfields.h"

#include "base/mem.h"
#include "tokenizer/regex.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

typedef enum field_kind {
    FIELD_READ,   /* peft.c and peftfields_selects() apply it */
    FIELD_RECORD, /* it says where the adapter is from or how it was trained */
    FIELD_OFF,    /* refused unless it is off: null, false, empty, or `off` */
    FIELD_INIT,   /* init_lora_weights */
} field_kind;

/* Every field of LoraConfig and its parents, of PEFT 0.1 to 0.21. */
static const struct {
    const char *key;
    field_kind kind;
    const char *off, *what;
} fields[] = {
    { "r", FIELD_READ, NULL, NULL },
    { "lora_alpha", FIELD_READ, NULL, NULL },
    { "use_rslora", FIELD_READ, NULL, NULL },
    { "rank_pattern", FIELD_READ, NULL, NULL },
    { "alpha_pattern", FIELD_READ, NULL, NULL },
    { "peft_type", FIELD_READ, NULL, NULL },
    { "base_model_name_or_path", FIELD_READ, NULL, NULL },
    { "target_modules", FIELD_READ, NULL, NULL },
    { "exclude_modules", FIELD_READ, NULL, NULL },
    { "layers_to_transform", FIELD_READ, NULL, NULL },
    { "layers_pattern", FIELD_READ, NULL, NULL },
    { "init_lora_weights", FIELD_INIT, NULL, NULL },
    { "task_type", FIELD_RECORD, NULL, NULL },
    { "auto_mapping", FIELD_RECORD, NULL, NULL },
    { "peft_version", FIELD_RECORD, NULL, NULL },
    { "revision", FIELD_RECORD, NULL, NULL },
    { "inference_mode", FIELD_RECORD, NULL, NULL },
    { "lora_dropout", FIELD_RECORD, NULL, NULL },
    { "megatron_core", FIELD_RECORD, NULL, NULL },
    { "runtime_config", FIELD_RECORD, NULL, NULL },
    { "qalora_group_size", FIELD_RECORD, NULL, NULL },
    /* They belong to a value of init_lora_weights, and are ignored with another. */
    { "loftq_config", FIELD_RECORD, NULL, NULL },
    { "eva_config", FIELD_RECORD, NULL, NULL },
    { "corda_config", FIELD_RECORD, NULL, NULL },
    { "lora_ga_config", FIELD_RECORD, NULL, NULL },
    { "use_dora", FIELD_OFF, NULL, "DoRA" },
    { "bias", FIELD_OFF, "none", "trained biases" },
    { "lora_bias", FIELD_OFF, NULL, "biases on LoRA" },
    { "modules_to_save", FIELD_OFF, NULL, "fully trained modules" },
    { "fan_in_fan_out", FIELD_OFF, NULL, "transposed weights" },
    { "target_parameters", FIELD_READ, NULL, NULL },
    { "layer_replication", FIELD_OFF, NULL, "replicated layers" },
    { "trainable_token_indices", FIELD_OFF, NULL, "trained tokens" },
    { "alora_invocation_tokens", FIELD_OFF, NULL, "activated LoRA" },
    { "alora_invocation_string", FIELD_OFF, NULL, "activated LoRA" },
    { "use_qalora", FIELD_OFF, NULL, "QALoRA" },
    { "use_bdlora", FIELD_OFF, NULL, "block-diagonal LoRA" },
    { "kasa_config", FIELD_OFF, NULL, "KaSA" },
    { "velora_config", FIELD_OFF, NULL, "VeLoRA" },
    { "arrow_config", FIELD_OFF, NULL, "Arrow routing" },
    { "monteclora_config", FIELD_OFF, NULL, "MonteCLoRA" },
    { "megatron_config", FIELD_OFF, NULL, "Megatron's parallel layers" },
    { "ensure_weight_tying", FIELD_OFF, NULL, "LoRA on tied weights" },
    { "enable_lora", FIELD_OFF, NULL, "LoRA on parts of a linear" },
    { "merge_weights", FIELD_RECORD, NULL, NULL },
};

static bool is_on(const json_t *v, const char *off)
{
    switch (v ? json_typeof(v) : JSON_NULL) {
    case JSON_NULL:
    case JSON_FALSE:
        return false;
    case JSON_ARRAY:
        return json_array_size(v) > 0;
    case JSON_OBJECT:
        return json_object_size(v) > 0;
    case JSON_STRING:
        return !off || strcmp(json_string_value(v), off) != 0;
    default:
        return true;
    }
}

/* ---- init_lora_weights ---- */

/* How the values of init_lora_weights begin or read. Those with `subtracts` take the initial
 * product out of the base, which PEFT repeats when it loads the adapter, so that the tensors do not
 * hold the whole change. With the others an adapter is what it is whatever it began with. */
static const struct {
    const char *value;
    bool prefix, subtracts;
} inits[] = {
    { "gaussian", false, false }, { "eva", false, false },  { "orthogonal", false, false },
    { "mica", false, false },     { "pissa", true, true },  { "corda", true, true },
    { "olora", false, true },     { "loftq", false, true }, { "lora_ga", false, true },
};

static pesc_status check_init(const json_t *v, const char *file)
{
    if (!v || json_is_null(v) || json_is_boolean(v))
        return PESC_OK;
    const char *name = json_is_string(v) ? json_string_value(v) : "";
    for (size_t i = 0; i < sizeof inits / sizeof *inits; i++) {
        size_t n = strlen(inits[i].value);
        bool is = inits[i].prefix ? strncmp(name, inits[i].value, n) == 0
                                  : strcasecmp(name, inits[i].value) == 0;
        if (is && !inits[i].subtracts)
            return PESC_OK;
        if (is)
            return fail(
                PESC_UNSUPPORTED,
                "%s: init_lora_weights: found \"%s\", with which the base model was changed "
                "before training, and pesc would add the adapter to a base that is not; save "
                "it with PEFT's path_initial_model_for_weight_conversion, or merge it into "
                "its base with PEFT",
                file, name);
    }
    return fail(PESC_UNSUPPORTED,
                "%s: init_lora_weights: found %s%s%s, expected true, false, \"gaussian\", \"eva\", "
                "\"orthogonal\" or \"mica\"; merge the adapter into its base with PEFT",
                file, json_is_string(v) ? "\"" : "", json_is_string(v) ? name : json_kind(v),
                json_is_string(v) ? "\"" : "");
}

static pesc_status check_field(const char *key, const json_t *v, const char *file)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(fields[i].key, key) != 0)
            continue;
        if (fields[i].kind == FIELD_INIT)
            return check_init(v, file);
        if (fields[i].kind == FIELD_OFF && is_on(v, fields[i].off))
            return fail(PESC_UNSUPPORTED,
                        "%s: %s: pesc does not apply %s; merge the adapter into its base with PEFT",
                        file, key, fields[i].what);
        return PESC_OK;
    }
    /* Numbers and strings of a newer PEFT are parameters of what some other field switches on. */
    if (is_on(v, NULL) && !json_is_number(v) && !json_is_string(v))
        return fail(PESC_UNSUPPORTED,
                    "%s: \"%s\": pesc does not know this field of PEFT, and it is on; merge the "
                    "adapter into its base with PEFT, or remove the field if it only concerns "
                    "training",
                    file, key);
    return PESC_OK;
}

pesc_status peftfields_check(const json_t *config, const char *file)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)config, key, v) TRY(check_field(key, v, file));
    return PESC_OK;
}

/* ---- which modules ---- */

/* Whether the name is the module or its last parts. */
static bool names(const char *name, const char *module)
{
    size_t n = strlen(name), m = strlen(module);
    return n <= m && strcmp(module + m - n, name) == 0 && (n == m || module[m - n - 1] == '.');
}

/* Whether the whole module matches a regular expression. */
static pesc_status full_match(const char *pattern, const char *module, const char *where, bool *out)
{
    size_t n = strlen(pattern);
    char *whole = mem_alloc(n + 16, 1);
    regex *r = NULL;
    regex_scratch *scratch = NULL;
    budget work = { 0 };
    if (!whole)
        return fail_nomem(where, n);
    budget_add(&work, strlen(module));
    n = (size_t)snprintf(whole, n + 16, "\\A(?:%s)\\z", pattern);
    pesc_status s = regex_open(&r, whole, n, where);
    if (s == PESC_OK)
        s = regex_scratch_open(&scratch);
    regex_walk w = {
        .r = r, .scratch = scratch, .work = &work, .text = module, .n = strlen(module)
    };
    if (s == PESC_OK)
        s = regex_next(&w, out);
    regex_scratch_close(scratch);
    regex_close(r);
    mem_free(whole);
    return s;
}

/* Whether a list of names or a regular expression has the module. */
static pesc_status listed(const json_t *v, const char *file, const char *key, const char *module,
                          bool *out)
{
    *out = false;
    if (json_is_string(v)) {
        char where[512];
        snprintf(where, sizeof where, "%s: %s", file, key);
        return full_match(json_string_value(v), module, where, out);
    }
    if (v && !json_is_null(v) && !json_is_array(v))
        return fail(PESC_FORMAT, "%s: %s: found %s, expected a list of names or a string", file,
                    key, json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name)
            return fail(PESC_FORMAT, "%s: %s: entry %zu: found %s, expected a name", file, key, i,
                        json_kind(json_array_get(v, i)));
        *out |= names(name, module);
    }
    return PESC_OK;
}

/* The number that follows the first part of the name called `list`, or with NULL the first number
 * between two dots after two parts; -1: none. */
static int64_t layer_of(const char *module, const char *list)
{
    size_t n = list ? strlen(list) : 0;
    for (const char *at = strchr(module, '.'); at; at = strchr(at + 1, '.')) {
        const char *end = at + 1;
        int64_t i = 0;
        while (*end >= '0' && *end <= '9' && i < INT32_MAX)
            i = i * 10 + (*end++ - '0');
        if (end == at + 1)
            continue;
        bool here = !list || ((size_t)(at - module) >= n && strncmp(at - n, list, n) == 0 &&
                              (at - n == module || at[-(ptrdiff_t)n - 1] == '.'));
        if (*end == '.' && here)
            return i;
    }
    return -1;
}

static bool layer_is_in(const json_t *layers, int64_t layer)
{
    bool in = json_is_integer(layers) && json_integer_value(layers) == layer;
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *v = json_array_get(layers, i);
        in |= json_is_integer(v) && json_integer_value(v) == layer;
    }
    return in;
}

/* layers_to_transform, which PEFT heeds where target_modules is a list that has the end of a name.
 */
static bool in_a_layer(const json_t *config, const char *module)
{
    const json_t *layers = json_object_get(config, "layers_to_transform");
    const json_t *pattern = json_object_get(config, "layers_pattern");
    if (!is_on(layers, NULL))
        return true;
    if (json_is_string(pattern) && *json_string_value(pattern))
        return layer_is_in(layers, layer_of(module, json_string_value(pattern)));
    for (size_t i = 0; i < json_array_size(pattern); i++) {
        const char *list = json_string_value(json_array_get(pattern, i));
        int64_t layer = list ? layer_of(module, list) : -1;
        if (layer >= 0)
            return layer_is_in(layers, layer);
    }
    return !is_on(pattern, "") && layer_is_in(layers, layer_of(module, NULL));
}

pesc_status peftfields_selects(const json_t *config, const char *file, const char *module)
{
    const json_t *target = json_object_get(config, "target_modules");
    const json_t *exclude = json_object_get(config, "exclude_modules");
    bool in = true, out = false;
    if (is_on(target, "all-linear"))
        TRY(listed(target, file, "target_modules", module, &in));
    if (is_on(exclude, ""))
        TRY(listed(exclude, file, "exclude_modules", module, &out));
    if (in && !out && in_a_layer(config, module))
        return PESC_OK;
    return fail(
        PESC_UNSUPPORTED,
        "%s: %s: the adapter has a LoRA for module %s, which PEFT would leave out; name the "
        "module there, or remove its tensors",
        file,
        !in   ? "target_modules"
        : out ? "exclude_modules"
              : "layers_to_transform",
        module);
}
