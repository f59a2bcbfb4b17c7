/* GGUF's names in Hugging Face's words: one row a tensor. */
#include "format/gguf_file.h"
#include "format/gguf_write.h"

#include <stdio.h>
#include <string.h>

enum {
    MOE_MLP = ARCH_QWEN2MOE | ARCH_QWEN3MOE | ARCH_OLMOE | ARCH_DEEPSEEK2,
    ANY = 0xFFFF,
};

static const gguf_arch archs[] = {
    { "llama", ARCH_LLAMA, "llama", false, true },
    { "llama", ARCH_MIXTRAL, "mixtral", true, true },
    { "qwen2", ARCH_QWEN2, "qwen2", false, false },
    { "qwen3", ARCH_QWEN3, "qwen3", false, false },
    { "qwen2moe", ARCH_QWEN2MOE, "qwen2_moe", true, false },
    { "qwen3moe", ARCH_QWEN3MOE, "qwen3_moe", true, false },
    { "olmoe", ARCH_OLMOE, "olmoe", true, false },
    { "deepseek2", ARCH_DEEPSEEK2, "deepseek_v2", true, false },
    { "camelidae", ARCH_PESC, "camelidae", true, true },
    { "pesc", ARCH_PESC, "camelidae", true, true }, /* an older name of the same */
};

/* # is the number of a layer, * that of an expert. A star on the right alone: the tensor holds all
 * experts of the layer. The last part, ".weight" or ".bias", is the same on both sides. */
static const struct row {
    const char *gguf, *hf;
    uint32_t archs, flags;
} rows[] = {
    { "token_embd", "model.embed_tokens", ANY, 0 },
    { "output_norm", "model.norm", ANY, 0 },
    { "output", "lm_head", ANY, 0 },
    { "rope_freqs", NULL, ANY, NAME_SKIP }, /* gguf_rope.c makes rope_scaling of it */
    { "blk.#.attn_norm", "model.layers.#.input_layernorm", ANY, 0 },
    { "blk.#.ffn_norm", "model.layers.#.post_attention_layernorm", ANY, 0 },
    { "blk.#.attn_q", "model.layers.#.self_attn.q_proj", ANY, NAME_QUERY },
    { "blk.#.attn_k", "model.layers.#.self_attn.k_proj", ANY, NAME_KEY },
    { "blk.#.attn_v", "model.layers.#.self_attn.v_proj", ANY, 0 },
    { "blk.#.attn_output", "model.layers.#.self_attn.o_proj", ANY, 0 },
    { "blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", ANY, 0 },
    { "blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", ANY, 0 },
    { "blk.#.attn_q_a", "model.layers.#.self_attn.q_a_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_q_a_norm", "model.layers.#.self_attn.q_a_layernorm", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_q_b", "model.layers.#.self_attn.q_b_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_kv_a_mqa", "model.layers.#.self_attn.kv_a_proj_with_mqa", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_kv_a_norm", "model.layers.#.self_attn.kv_a_layernorm", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_kv_b", "model.layers.#.self_attn.kv_b_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_k_b", "model.layers.#.self_attn.k_b_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.attn_v_b", "model.layers.#.self_attn.v_b_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.ffn_gate", "model.layers.#.mlp.gate_proj", ANY, 0 },
    { "blk.#.ffn_up", "model.layers.#.mlp.up_proj", ANY, 0 },
    { "blk.#.ffn_down", "model.layers.#.mlp.down_proj", ANY, 0 },
    { "blk.#.ffn_gate_inp", "model.layers.#.mlp.gate", MOE_MLP, NAME_ROUTER },
    { "blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.*.gate_proj", MOE_MLP, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.mlp.experts.*.up_proj", MOE_MLP, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.mlp.experts.*.down_proj", MOE_MLP, 0 },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj", ARCH_QWEN2MOE, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj", ARCH_QWEN2MOE, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj", ARCH_QWEN2MOE, 0 },
    { "blk.#.ffn_gate_inp_shexp", "model.layers.#.mlp.shared_expert_gate", ARCH_QWEN2MOE,
      NAME_ROW },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_experts.gate_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_experts.up_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_experts.down_proj", ARCH_DEEPSEEK2, 0 },
    { "blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.*.w1", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.*.w2", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.*.w3", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_gate.*", "model.layers.#.block_sparse_moe.experts.*.w1", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_down.*", "model.layers.#.block_sparse_moe.experts.*.w2", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_up.*", "model.layers.#.block_sparse_moe.experts.*.w3", ARCH_MIXTRAL, 0 },
    { "blk.#.ffn_adapter_inp", "model.layers.#.mlp.moe_adapter.router", ARCH_PESC, NAME_ROUTER },
    { "blk.#.ffn_adapter_down_exps", "model.layers.#.mlp.moe_adapter.experts.expert_*.adapter_down",
      ARCH_PESC, 0 },
    { "blk.#.ffn_adapter_up_exps", "model.layers.#.mlp.moe_adapter.experts.expert_*.adapter_up",
      ARCH_PESC, 0 },
};

pesc_status gguf_arch_of(const gguf_arch **out, const gguf *g)
{
    gguf_text name = { 0 }, kind = { "model", 5 };
    const size_t n = sizeof archs / sizeof *archs;
    TRY(gguf_get_text(g, "general.type", false, &kind));
    if (!gguf_text_is(kind, "model"))
        return fail(PESC_UNSUPPORTED, "%s: general.type: is '%.*s', expected 'model'", g->path,
                    (int)(kind.n < 64 ? kind.n : 64), kind.p);
    TRY(gguf_get_text(g, "general.architecture", true, &name));
    for (size_t i = 0; i < n; i++) {
        int64_t experts = 0;
        if (!gguf_text_is(name, archs[i].name))
            continue;
        *out = &archs[i];
        if (i + 1 == n || strcmp(archs[i].name, archs[i + 1].name) != 0)
            return PESC_OK;
        gguf_key key = gguf_arch_key(&archs[i], "expert_count");
        TRY(gguf_get_int(g, key.text, (gguf_range){ .max = INT32_MAX }, &experts));
        *out = &archs[experts > 0 ? i + 1 : i];
        return PESC_OK;
    }
    return fail(PESC_UNSUPPORTED,
                "%s: general.architecture: is '%.*s'; pesc reads llama, qwen2, qwen3, qwen2moe, "
                "qwen3moe, olmoe, deepseek2 and camelidae",
                g->path, (int)(name.n < 64 ? name.n : 64), name.p);
}

gguf_key gguf_arch_key(const gguf_arch *a, const char *key)
{
    gguf_key k;
    snprintf(k.text, sizeof k.text, "%s.%s", a->name, key);
    return k;
}

/* A number without leading zeros at *p, at most six digits. */
static bool digits(const char **p, const char *end, int64_t *out)
{
    const char *s = *p;
    int64_t n = 0;
    while (s < end && *s >= '0' && *s <= '9' && s - *p < 6)
        n = n * 10 + (*s++ - '0');
    if (s == *p || (**p == '0' && s - *p > 1))
        return false;
    *p = s;
    *out = n;
    return true;
}

static bool match(const char *pattern, gguf_text name, gguf_name *n)
{
    const char *s = name.p, *end = name.p + name.n;
    for (; *pattern; pattern++) {
        if (*pattern == '#'   ? !digits(&s, end, &n->layer)
            : *pattern == '*' ? !digits(&s, end, &n->expert)
                              : s == end || *s++ != *pattern)
            return false;
    }
    return s == end;
}

/* Splits off ".weight" or ".bias"; false when the name has neither. */
static bool split(gguf_text name, gguf_text *stem, gguf_text *suffix)
{
    const char *dot = memrchr(name.p, '.', name.n);
    if (!dot)
        return false;
    *stem = (gguf_text){ name.p, (size_t)(dot - name.p) };
    *suffix = (gguf_text){ dot, name.n - stem->n };
    return gguf_text_is(*suffix, ".weight") || gguf_text_is(*suffix, ".bias");
}

bool gguf_name_of(gguf_name *out, gguf_text name, const gguf_arch *a)
{
    gguf_text stem, suffix;
    if (!split(name, &stem, &suffix))
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *out = (gguf_name){ .layer = -1, .expert = -1, .suffix = suffix };
        if (!(rows[i].archs & a->bit) || !match(rows[i].gguf, stem, out))
            continue;
        out->pattern = rows[i].hf;
        out->flags = rows[i].flags;
        if (out->pattern && strchr(out->pattern, '*') && out->expert < 0)
            out->flags |= NAME_STACKED;
        return true;
    }
    return false;
}

void gguf_name_write(char *out, size_t cap, const gguf_name *n, int64_t expert)
{
    size_t at = 0;
    for (const char *p = n->pattern; *p && at < cap; p++) {
        int wrote;
        if (*p == '#' || *p == '*')
            wrote =
                snprintf(out + at, cap - at, "%lld", (long long)(*p == '#' ? n->layer : expert));
        else
            wrote = snprintf(out + at, cap - at, "%c", *p);
        at += (size_t)wrote;
    }
    if (at < cap)
        snprintf(out + at, cap - at, "%.*s", (int)n->suffix.n, n->suffix.p);
}

/* ---- writing ---- */

const gguf_arch *gguf_arch_written(const char *model_type, bool adapters)
{
    const char *wanted = adapters                             ? "camelidae"
                         : strcmp(model_type, "mistral") == 0 ? "llama"
                                                              : model_type;
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i].model_type, wanted) == 0)
            return &archs[i];
    return NULL;
}

const char *gguf_arch_name(const gguf_arch *a)
{
    return a->name;
}

bool gguf_place_of(gguf_place *out, const gguf_arch *a, const char *hf_name)
{
    gguf_text name = { hf_name, strlen(hf_name) }, stem, suffix;
    if (!split(name, &stem, &suffix))
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        gguf_name n = { .layer = -1, .expert = -1, .pattern = r->gguf, .suffix = suffix };
        if (!(r->archs & a->bit) || !r->hf || strchr(r->gguf, '*') || !match(r->hf, stem, &n))
            continue;
        *out = (gguf_place){ .stacked = n.expert >= 0, .row = r->flags & NAME_ROW };
        gguf_name_write(out->name, sizeof out->name, &n, 0);
        if (a->permuted)
            out->permuted = r->flags & NAME_QUERY ? 'q' : r->flags & NAME_KEY ? 'k' : 0;
        return true;
    }
    return false;
}
