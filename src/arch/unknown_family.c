#include "arch/unknown_family.h"

#include "arch/family.h"
#include "base/str.h"

#include <string.h>

/* Model types whose layers were looked at: the row that comes nearest, and what that would need. */
static const struct {
    const char *model_type, *nearest, *missing;
} known[] = {
    { "apertus", "qwen3", "an FFN without a gate, whose activation (xIELU) has weights" },
    { "arcee", "llama", "an FFN without a gate (relu squared)" },
    { "bamba", "llama", "Mamba layers" },
    { "cohere", "llama", "LayerNorm, and attention and FFN beside each other" },
    { "cohere2", "llama", "LayerNorm, and attention and FFN beside each other" },
    { "dbrx", "mixtral", "LayerNorm and clipped queries, keys and values" },
    { "deepseek_v32", "deepseek_v3", "sparse attention (an indexer that chooses keys)" },
    { "deepseek_v4", "deepseek_v3", "sparse attention and hyper-connections" },
    { "exaone_moe", "exaone4", "experts" },
    { "falcon", "llama", "LayerNorm and an FFN without a gate" },
    { "falcon_h1", "llama", "Mamba layers beside attention" },
    { "gemma", "gemma2", "a block without norms after its sublayers" },
    { "gemma3n", "gemma3_text", "inputs for each layer, AltUp and sparse activations" },
    { "gemma4_unified", "gemma4", "inputs of other kinds than text" },
    { "glm_moe_dsa", "glm4_moe_lite", "sparse attention (an indexer that chooses keys)" },
    { "gpt2", "llama", "learned positions, LayerNorm and an FFN without a gate" },
    { "gpt_neox", "llama", "LayerNorm, biases everywhere and an FFN without a gate" },
    { "granite_swa", "granite", "attention sinks and a rotation for each layer" },
    { "granitemoe_swa", "granitemoe", "attention sinks and a rotation for each layer" },
    { "internlm2", "llama", "its fused matrix, in which heads are interleaved" },
    { "jamba", "mixtral", "Mamba layers" },
    { "jetmoe", "mixtral", "experts in attention" },
    { "kimi_linear", "deepseek_v3", "linear attention" },
    { "llama4", "llama", "chunked attention, and gates that multiply the input of experts" },
    { "llama4_text", "llama", "chunked attention, and gates that multiply the input of experts" },
    { "mamba", "llama", "Mamba layers" },
    { "mamba2", "llama", "Mamba layers" },
    { "mimo_v2_flash", "gpt_oss", "heads that differ from layer to layer" },
    { "minicpm3", "deepseek_v2", "scaled residuals and a dense MLA" },
    { "minimax", "mixtral", "lightning attention" },
    { "mistral4", "deepseek_v3", "queries scaled by position in MLA" },
    { "muse_glimmer", "gemma3_text", "norms of embeddings, queries and keys without weights" },
    { "nanochat", "llama", "an FFN without a gate (relu squared) and norms without weights" },
    { "nemotron", "llama", "LayerNorm and an FFN without a gate (relu squared)" },
    { "nemotron_h", "llama", "Mamba layers and experts without a gate" },
    { "olmo", "llama", "LayerNorm without weights" },
    { "opt", "llama", "learned positions, LayerNorm and an FFN without a gate" },
    { "phi", "phi3", "LayerNorm, and attention and FFN beside each other" },
    { "phimoe", "mixtral", "LayerNorm with biases, and its router (sparsemixer)" },
    { "stablelm", "llama", "LayerNorm" },
    { "starcoder2", "llama", "LayerNorm, biases everywhere and an FFN without a gate" },
    { "zamba2", "llama", "Mamba layers" },
};

/* Letters that two names begin with in common. */
static size_t common(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* The row whose model_type begins most alike; of several the one nearest in length. */
static const family *nearest_of(const char *type)
{
    const family *best = NULL, *f;
    size_t most = 0, apart = 0;
    for (size_t i = 0; (f = family_at(i)); i++) {
        size_t n = common(type, f->model_type), a = strlen(type), b = strlen(f->model_type);
        size_t off = a > b ? a - b : b - a;
        if (n > most || (n == most && best && off < apart)) {
            best = f;
            most = n;
            apart = off;
        }
    }
    return most >= 3 ? best : NULL;
}

static void add_all(str *s)
{
    const family *f;
    for (size_t i = 0; (f = family_at(i)); i++)
        str_printf(s, "%s%s", i ? ", " : "", f->model_type);
}

pesc_status unknown_family(const char *model_type, const char *file)
{
    str text = { 0 };
    const family *near = nearest_of(model_type);
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known && !found; i++) {
        found = strcmp(known[i].model_type, model_type) == 0;
        if (found)
            str_printf(&text, "; the nearest is %s, which has not its %s", known[i].nearest,
                       known[i].missing);
    }
    if (!found && near)
        str_printf(&text, "; the nearest by name is %s, but what differs is not known",
                   near->model_type);
    str_puts(&text, "; it knows ");
    add_all(&text);
    pesc_status s =
        fail(PESC_UNSUPPORTED, "%s: model_type: found \"%s\", which pesc does not know%s", file,
             model_type, str_ok(&text) ? text.p : "");
    str_free(&text);
    return s;
}
