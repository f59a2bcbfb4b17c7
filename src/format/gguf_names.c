/* GGUF's names in Hugging Face's words: one row a tensor. */
#include "format/gguf_file.h"
#include "format/gguf_write.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

#define ANY ARCH_ANY
#define MOE_MLP                                                                                    \
    (ARCH_QWEN2MOE | ARCH_QWEN3MOE | ARCH_OLMOE | ARCH_DEEPSEEK2 | ARCH_DEEPSEEK | ARCH_DOTS1 |    \
     ARCH_GLM4MOE | ARCH_ERNIEMOE | ARCH_HUNYUANMOE | ARCH_AFMOE | ARCH_BAILING2 |                 \
     ARCH_QWEN35MOE | ARCH_QWEN3NEXT)
#define GATED_SHARED (ARCH_QWEN2MOE | ARCH_QWEN35MOE | ARCH_QWEN3NEXT)
#define SHARED                                                                                     \
    (ARCH_DEEPSEEK2 | ARCH_DEEPSEEK | ARCH_DOTS1 | ARCH_GLM4MOE | ARCH_ERNIEMOE | ARCH_AFMOE |     \
     ARCH_BAILING2)
#define W1_W2_W3 (ARCH_MIXTRAL | ARCH_MINIMAX)
#define GATE_BIAS (ARCH_DEEPSEEK2 | ARCH_DOTS1 | ARCH_GLM4MOE | ARCH_AFMOE | ARCH_BAILING2)
#define POST_NORMS (ARCH_GEMMAS | ARCH_GEMMA4 | ARCH_OLMO2 | ARCH_EXAONE4)
#define HUNYUANS (ARCH_HUNYUAN | ARCH_HUNYUANMOE)

static const gguf_arch archs[] = {
    { "llama", ARCH_LLAMA, "llama", false, true },
    { "llama", ARCH_MIXTRAL, "mixtral", true, true },
    { "qwen2", ARCH_QWEN2, "qwen2", false, false },
    { "qwen3", ARCH_QWEN3, "qwen3", false, false },
    { "qwen2moe", ARCH_QWEN2MOE, "qwen2_moe", true, false },
    { "qwen3moe", ARCH_QWEN3MOE, "qwen3_moe", true, false },
    { "olmoe", ARCH_OLMOE, "olmoe", true, false },
    { "deepseek2", ARCH_DEEPSEEK2, "deepseek_v2", true, false },
    { "granite", ARCH_GRANITE, "granite", false, true },
    { "granitemoe", ARCH_GRANITEMOE, "granitemoe", true, true },
    { "smollm3", ARCH_SMOLLM3, "smollm3", false, true },
    { "seed_oss", ARCH_SEED, "seed_oss", false, false },
    { "ernie4_5", ARCH_ERNIE, "ernie4_5", false, false },
    { "ernie4_5-moe", ARCH_ERNIEMOE, "ernie4_5_moe", true, false },
    { "olmo2", ARCH_OLMO2, "olmo2", false, false },
    { "glm4", ARCH_GLM4, "glm4", false, false },
    { "glm4moe", ARCH_GLM4MOE, "glm4_moe", true, false },
    { "dots1", ARCH_DOTS1, "dots1", true, false },
    { "hunyuan-dense", ARCH_HUNYUAN, "hunyuan_v1_dense", false, false },
    { "hunyuan-moe", ARCH_HUNYUANMOE, "hunyuan_v1_moe", true, false },
    { "minimax-m2", ARCH_MINIMAX, "minimax_m2", true, false },
    { "exaone4", ARCH_EXAONE4, "exaone4", false, false },
    { "deepseek", ARCH_DEEPSEEK, "deepseek", true, true },
    { "mistral3", ARCH_MISTRAL3, "ministral3", false, true },
    { "gemma2", ARCH_GEMMA2, "gemma2", false, false },
    { "gemma3", ARCH_GEMMA3, "gemma3_text", false, false },
    { "gemma4", ARCH_GEMMA4, "gemma4_text", false, false },
    { "phi3", ARCH_PHI3, "phi3", false, false },
    { "gpt-oss", ARCH_GPTOSS, "gpt_oss", true, false },
    { "afmoe", ARCH_AFMOE, "afmoe", true, false },
    { "bailingmoe2", ARCH_BAILING2, "bailing_moe_v2", true, false },
    { "qwen", ARCH_QWEN, "qwen", false, false },
    { "lfm2", ARCH_LFM2, "lfm2", false, false },
    { "lfm2moe", ARCH_LFM2MOE, "lfm2_moe", true, false },
    { "qwen35", ARCH_QWEN35, "qwen3_5_text", false, false },
    { "qwen35moe", ARCH_QWEN35MOE, "qwen3_5_moe_text", true, false },
    { "qwen3next", ARCH_QWEN3NEXT, "qwen3_next", true, false },
    { "camelidae", ARCH_PESC, "camelidae", true, true },
    { "pesc", ARCH_PESC, "camelidae", true, true }, /* an older name of the same */
};

/* # is the number of a layer, * that of an expert. A star on the right alone: the tensor holds all
 * experts of the layer. The last part, ".weight" or ".bias", is the same on both sides. */
static const struct row {
    const char *gguf, *hf;
    gguf_archs archs;
    uint32_t flags;
} rows[] = {
    /* what an architecture names otherwise than the rows below */
    { "blk.#.attn_qkv", "model.layers.#.self_attn.qkv_proj", ARCH_PHI3, 0 },
    { "blk.#.attn_qkv", "model.layers.#.attention.query_key_value", ARCH_BAILING2, 0 },
    { "blk.#.attn_qkv", "model.layers.#.attn.c_attn", ARCH_QWEN, 0 },
    { "blk.#.attn_qkv", "model.layers.#.self_attn.q_proj", ARCH_PHI3 | ARCH_BAILING2 | ARCH_QWEN,
      NAME_JOINED },
    { "blk.#.attn_qkv", "model.layers.#.self_attn.k_proj", ARCH_PHI3 | ARCH_BAILING2 | ARCH_QWEN,
      NAME_JOINED },
    { "blk.#.attn_qkv", "model.layers.#.self_attn.v_proj", ARCH_PHI3 | ARCH_BAILING2 | ARCH_QWEN,
      NAME_JOINED },
    { "blk.#.ffn_up", "model.layers.#.mlp.gate_up_proj", ARCH_PHI3 | ARCH_GLM4, 0 },
    { "blk.#.ffn_up", "model.layers.#.mlp.gate_proj", ARCH_PHI3 | ARCH_GLM4, NAME_JOINED },
    { "blk.#.ffn_up", "model.layers.#.mlp.up_proj", ARCH_PHI3 | ARCH_GLM4, NAME_JOINED },
    { "blk.#.post_attention_norm", "model.layers.#.post_attention_layernorm",
      POST_NORMS | ARCH_AFMOE | ARCH_SEED | ARCH_GLM4MOE | ARCH_GPTOSS | ARCH_DELTAS, NAME_NORM },
    { "blk.#.ffn_norm", "model.layers.#.pre_feedforward_layernorm", ARCH_GEMMAS | ARCH_GEMMA4,
      NAME_NORM },
    { "blk.#.post_ffw_norm", "model.layers.#.post_feedforward_layernorm", POST_NORMS, NAME_NORM },
    { "blk.#.post_attention_norm", "model.layers.#.post_self_attn_layernorm", ARCH_GLM4, 0 },
    { "blk.#.post_ffw_norm", "model.layers.#.post_mlp_layernorm", ARCH_GLM4 | ARCH_AFMOE, 0 },
    { "blk.#.ffn_norm", "model.layers.#.pre_mlp_layernorm", ARCH_AFMOE, 0 },
    { "blk.#.attn_gate", "model.layers.#.self_attn.gate_proj", ARCH_AFMOE, 0 },
    { "blk.#.attn_q_norm", "model.layers.#.self_attn.query_layernorm", HUNYUANS, 0 },
    { "blk.#.attn_k_norm", "model.layers.#.self_attn.key_layernorm", HUNYUANS, 0 },
    { "blk.#.attn_sinks.weight", "model.layers.#.self_attn.sinks", ARCH_GPTOSS, NAME_BARE },
    { "blk.#.ffn_gate_inp", "model.layers.#.mlp.router", ARCH_GPTOSS, NAME_ROUTER },
    { "blk.#.ffn_gate_exps.bias", "model.layers.#.mlp.experts.gate_proj_bias", ARCH_GPTOSS,
      NAME_BARE },
    { "blk.#.ffn_up_exps.bias", "model.layers.#.mlp.experts.up_proj_bias", ARCH_GPTOSS, NAME_BARE },
    { "blk.#.ffn_down_exps.bias", "model.layers.#.mlp.experts.down_proj_bias", ARCH_GPTOSS,
      NAME_BARE },
    { "blk.#.exp_probs_b.bias", "model.layers.#.mlp.gate.e_score_correction_bias", GATE_BIAS,
      NAME_BARE },
    { "blk.#.exp_probs_b.bias", "model.layers.#.mlp.moe_statics.e_score_correction_bias",
      ARCH_ERNIEMOE, NAME_BARE | NAME_ROW },
    { "blk.#.exp_probs_b.bias", "model.layers.#.block_sparse_moe.e_score_correction_bias",
      ARCH_MINIMAX, NAME_BARE },
    { "blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.router", ARCH_GRANITEMOE,
      NAME_ROUTER },
    { "blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.*.gate_proj", ARCH_GRANITEMOE,
      0 },
    { "blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.*.up_proj", ARCH_GRANITEMOE,
      0 },
    { "blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.*.down_proj", ARCH_GRANITEMOE,
      0 },
    { "blk.#.ffn_gate_shexp", "model.layers.#.shared_mlp.gate_proj", ARCH_GRANITEMOE, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.shared_mlp.up_proj", ARCH_GRANITEMOE, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.shared_mlp.down_proj", ARCH_GRANITEMOE, 0 },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_mlp.gate_proj", ARCH_HUNYUANMOE, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_mlp.up_proj", ARCH_HUNYUANMOE, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_mlp.down_proj", ARCH_HUNYUANMOE, 0 },
    { "blk.#.layer_output_scale.weight", "model.layers.#.layer_scalar", ARCH_GEMMA4, NAME_BARE },
    { "blk.#.ffn_gate_inp", "model.layers.#.router.proj", ARCH_GEMMA4, NAME_ROUTER },
    { "blk.#.ffn_gate_inp.scale", "model.layers.#.router.scale", ARCH_GEMMA4, NAME_BARE },
    { "blk.#.ffn_down_exps.scale", "model.layers.#.router.per_expert_scale", ARCH_GEMMA4,
      NAME_BARE },
    { "blk.#.post_ffw_norm_1", "model.layers.#.post_feedforward_layernorm_1", ARCH_GEMMA4, 0 },
    { "blk.#.pre_ffw_norm_2", "model.layers.#.pre_feedforward_layernorm_2", ARCH_GEMMA4, 0 },
    { "blk.#.post_ffw_norm_2", "model.layers.#.post_feedforward_layernorm_2", ARCH_GEMMA4, 0 },
    { "blk.#.ffn_gate_exps", "model.layers.#.experts.*.gate_proj", ARCH_GEMMA4, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.experts.*.up_proj", ARCH_GEMMA4, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.experts.*.down_proj", ARCH_GEMMA4, 0 },
    { "blk.#.ffn_gate_up_exps.weight", "model.layers.#.experts.gate_up_proj", ARCH_GEMMA4,
      NAME_BARE },
    { "blk.#.inp_gate", "model.layers.#.per_layer_input_gate", ARCH_GEMMA4, 0 },
    { "blk.#.proj", "model.layers.#.per_layer_projection", ARCH_GEMMA4, 0 },
    { "blk.#.post_norm", "model.layers.#.post_per_layer_input_norm", ARCH_GEMMA4, 0 },
    { "per_layer_token_embd", "model.embed_tokens_per_layer", ARCH_GEMMA4, 0 },
    { "per_layer_model_proj", "model.per_layer_model_projection", ARCH_GEMMA4, 0 },
    { "per_layer_proj_norm", "model.per_layer_projection_norm", ARCH_GEMMA4, 0 },
    { "token_embd_norm", "model.embedding_norm", ARCH_LFM2S, 0 },
    { "blk.#.attn_norm", "model.layers.#.operator_norm", ARCH_LFM2S, 0 },
    { "blk.#.ffn_norm", "model.layers.#.ffn_norm", ARCH_LFM2S, 0 },
    { "blk.#.attn_q_norm", "model.layers.#.self_attn.q_layernorm", ARCH_LFM2S, 0 },
    { "blk.#.attn_k_norm", "model.layers.#.self_attn.k_layernorm", ARCH_LFM2S, 0 },
    { "blk.#.attn_output", "model.layers.#.self_attn.out_proj", ARCH_LFM2S, 0 },
    { "blk.#.shortconv.in_proj", "model.layers.#.conv.in_proj", ARCH_LFM2S, 0 },
    { "blk.#.shortconv.conv", "model.layers.#.conv.conv", ARCH_LFM2S, NAME_CONV },
    { "blk.#.shortconv.out_proj", "model.layers.#.conv.out_proj", ARCH_LFM2S, 0 },
    { "blk.#.ffn_gate", "model.layers.#.feed_forward.w1", ARCH_LFM2S, 0 },
    { "blk.#.ffn_up", "model.layers.#.feed_forward.w3", ARCH_LFM2S, 0 },
    { "blk.#.ffn_down", "model.layers.#.feed_forward.w2", ARCH_LFM2S, 0 },
    { "blk.#.ffn_gate_inp", "model.layers.#.feed_forward.gate", ARCH_LFM2MOE, NAME_ROUTER },
    { "blk.#.exp_probs_b.bias", "model.layers.#.feed_forward.expert_bias", ARCH_LFM2MOE,
      NAME_BARE },
    { "blk.#.ffn_gate_exps", "model.layers.#.feed_forward.experts.*.w1", ARCH_LFM2MOE, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.feed_forward.experts.*.w3", ARCH_LFM2MOE, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.feed_forward.experts.*.w2", ARCH_LFM2MOE, 0 },
    { "blk.#.attn_qkv", "model.layers.#.linear_attn.in_proj_qkv", ARCH_DELTAS, NAME_QKV },
    { "blk.#.attn_gate", "model.layers.#.linear_attn.in_proj_z", ARCH_DELTAS, NAME_VALUES },
    { "blk.#.ssm_in", "model.layers.#.linear_attn.in_proj_qkvz", ARCH_QWEN3NEXT, 0 },
    { "blk.#.ssm_ba", "model.layers.#.linear_attn.in_proj_ba", ARCH_QWEN3NEXT, 0 },
    { "blk.#.ssm_beta", "model.layers.#.linear_attn.in_proj_b", ARCH_TILED, NAME_HEADS },
    { "blk.#.ssm_alpha", "model.layers.#.linear_attn.in_proj_a", ARCH_TILED, NAME_HEADS },
    { "blk.#.ssm_conv1d", "model.layers.#.linear_attn.conv1d", ARCH_DELTAS, NAME_CONV | NAME_QKV },
    { "blk.#.ssm_dt.bias", "model.layers.#.linear_attn.dt_bias", ARCH_DELTAS,
      NAME_BARE | NAME_HEADS },
    { "blk.#.ssm_a", "model.layers.#.linear_attn.A_log", ARCH_DELTAS,
      NAME_BARE | NAME_HEADS | NAME_DECAY },
    { "blk.#.ssm_norm", "model.layers.#.linear_attn.norm", ARCH_DELTAS, 0 },
    { "blk.#.ssm_out", "model.layers.#.linear_attn.out_proj", ARCH_DELTAS,
      NAME_VALUES | NAME_COLUMNS },
    { "blk.#.ffn_gate_up_exps.weight", "model.layers.#.mlp.experts.gate_up_proj", ARCH_QWEN35MOE,
      NAME_BARE },
    /* what most have */
    { "token_embd", "model.embed_tokens", ANY, 0 },
    { "output_norm", "model.norm", ANY, NAME_NORM },
    { "output", "lm_head", ANY, 0 },
    { "rope_freqs", NULL, ANY, NAME_SKIP }, /* gguf_rope.c makes rope_scaling of it */
    { "blk.#.attn_norm", "model.layers.#.input_layernorm", ANY, NAME_NORM },
    { "blk.#.ffn_norm", "model.layers.#.post_attention_layernorm", ANY, 0 },
    { "blk.#.attn_q", "model.layers.#.self_attn.q_proj", ANY, NAME_QUERY },
    { "blk.#.attn_k", "model.layers.#.self_attn.k_proj", ANY, NAME_KEY },
    { "blk.#.attn_v", "model.layers.#.self_attn.v_proj", ANY, 0 },
    { "blk.#.attn_output", "model.layers.#.self_attn.o_proj", ANY, 0 },
    { "blk.#.attn_q_norm", "model.layers.#.self_attn.q_norm", ANY, NAME_NORM },
    { "blk.#.attn_k_norm", "model.layers.#.self_attn.k_norm", ANY, NAME_NORM },
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
    { "blk.#.ffn_gate_exps", "model.layers.#.mlp.experts.*.gate_proj", MOE_MLP | ARCH_GPTOSS, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.mlp.experts.*.up_proj", MOE_MLP | ARCH_GPTOSS, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.mlp.experts.*.down_proj", MOE_MLP | ARCH_GPTOSS, 0 },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_expert.gate_proj", GATED_SHARED, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_expert.up_proj", GATED_SHARED, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_expert.down_proj", GATED_SHARED, 0 },
    { "blk.#.ffn_gate_inp_shexp", "model.layers.#.mlp.shared_expert_gate", GATED_SHARED, NAME_ROW },
    { "blk.#.ffn_gate_shexp", "model.layers.#.mlp.shared_experts.gate_proj", SHARED, 0 },
    { "blk.#.ffn_up_shexp", "model.layers.#.mlp.shared_experts.up_proj", SHARED, 0 },
    { "blk.#.ffn_down_shexp", "model.layers.#.mlp.shared_experts.down_proj", SHARED, 0 },
    { "blk.#.ffn_gate_inp", "model.layers.#.block_sparse_moe.gate", W1_W2_W3, 0 },
    { "blk.#.ffn_gate_exps", "model.layers.#.block_sparse_moe.experts.*.w1", W1_W2_W3, 0 },
    { "blk.#.ffn_down_exps", "model.layers.#.block_sparse_moe.experts.*.w2", W1_W2_W3, 0 },
    { "blk.#.ffn_up_exps", "model.layers.#.block_sparse_moe.experts.*.w3", W1_W2_W3, 0 },
    { "blk.#.ffn_gate.*", "model.layers.#.block_sparse_moe.experts.*.w1", W1_W2_W3, 0 },
    { "blk.#.ffn_down.*", "model.layers.#.block_sparse_moe.experts.*.w2", W1_W2_W3, 0 },
    { "blk.#.ffn_up.*", "model.layers.#.block_sparse_moe.experts.*.w3", W1_W2_W3, 0 },
    { "blk.#.ffn_adapter_inp", "model.layers.#.mlp.moe_adapter.router", ARCH_PESC, NAME_ROUTER },
    { "blk.#.ffn_adapter_down_exps", "model.layers.#.mlp.moe_adapter.experts.expert_*.adapter_down",
      ARCH_PESC, 0 },
    { "blk.#.ffn_adapter_up_exps", "model.layers.#.mlp.moe_adapter.experts.expert_*.adapter_up",
      ARCH_PESC, 0 },
};

static pesc_status unknown_arch(const gguf *g, gguf_text name)
{
    str known = { 0 };
    for (size_t i = 0; i + 1 < sizeof archs / sizeof *archs; i++)
        if (i == 0 || strcmp(archs[i].name, archs[i - 1].name) != 0)
            str_printf(&known, "%s%s", i ? ", " : "", archs[i].name);
    pesc_status s = fail(PESC_UNSUPPORTED, "%s: general.architecture: is '%.*s'; pesc reads %s",
                         g->path, (int)(name.n < 64 ? name.n : 64), name.p,
                         str_ok(&known) ? known.p : "llama and others");
    str_free(&known);
    return s;
}

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
    return unknown_arch(g, name);
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
    gguf_text stem = { 0 }, suffix = { 0 };
    bool parts = split(name, &stem, &suffix);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool bare = rows[i].flags & NAME_BARE;
        *out = (gguf_name){ .layer = -1, .expert = -1 };
        if (!bare)
            out->suffix = suffix;
        if (!(rows[i].archs & a->bit) || rows[i].flags & NAME_JOINED || (!bare && !parts) ||
            !match(rows[i].gguf, bare ? name : stem, out))
            continue;
        out->pattern = rows[i].hf;
        out->flags = rows[i].flags;
        if (out->pattern && strchr(out->pattern, '*') && out->expert < 0)
            out->flags |= NAME_STACKED;
        return true;
    }
    return false;
}

int64_t gguf_name_layer(gguf_text name)
{
    static const char prefix[] = "blk.";
    const size_t n = sizeof prefix - 1;
    int64_t layer = -1;
    const char *at = name.p + n, *end = name.p + name.n;
    bool of_layer = name.n > n && memcmp(name.p, prefix, n) == 0 && digits(&at, end, &layer);
    return of_layer && at < end && *at == '.' ? layer : -1;
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

const gguf_arch *gguf_arch_written(const char *model_type, bool adapters, bool experts)
{
    /* those that GGUF has under another's name */
    static const struct {
        const char *model_type, *as;
    } kin[] = {
        { "mistral", "llama" },
        { "deepseek_v3", "deepseek_v2" },
        { "glm4_moe_lite", "deepseek_v2" },
        { "olmo3", "olmo2" },
        { "solar_open", "glm4_moe" },
        { "granitemoeshared", "granitemoe" },
    };
    const char *wanted = adapters ? "camelidae" : model_type;
    for (size_t i = 0; !adapters && i < sizeof kin / sizeof *kin; i++)
        if (strcmp(kin[i].model_type, model_type) == 0)
            wanted = kin[i].as;
    if (!adapters && strcmp(model_type, "granitemoehybrid") == 0)
        wanted = experts ? "granitemoe" : "granite";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (strcmp(archs[i].model_type, wanted) == 0)
            return &archs[i];
    return NULL;
}

const char *gguf_arch_name(const gguf_arch *a)
{
    return a->name;
}

bool gguf_arch_windows(const gguf_arch *a)
{
    return a->bit & (ARCH_LLAMA | ARCH_PESC | ARCH_WINDOWS | ARCH_PHI3);
}

bool gguf_place_of(gguf_place *out, const gguf_arch *a, const char *hf_name)
{
    gguf_text name = { hf_name, strlen(hf_name) }, stem = { 0 }, suffix = { 0 };
    bool parts = split(name, &stem, &suffix);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        const bool bare = r->flags & NAME_BARE;
        gguf_name n = { .layer = -1, .expert = -1, .pattern = r->gguf };
        if (!bare)
            n.suffix = suffix;
        if (!(r->archs & a->bit) || !r->hf || strchr(r->gguf, '*') || (!bare && !parts) ||
            !match(r->hf, bare ? name : stem, &n))
            continue;
        *out = (gguf_place){ .stacked = n.expert >= 0,
                             .row = r->flags & NAME_ROW,
                             .joined = r->flags & NAME_JOINED,
                             .plus_one = r->flags & NAME_NORM && a->bit & ARCH_SHIFTED,
                             .conv = r->flags & NAME_CONV,
                             .decay = r->flags & NAME_DECAY,
                             .columns = r->flags & NAME_COLUMNS,
                             .rows = a->bit & ARCH_TILED ? gguf_delta_rows_of(r->flags)
                                                         : DELTA_ROWS_PLAIN };
        gguf_name_write(out->name, sizeof out->name, &n, 0);
        if (a->permuted)
            out->permuted = r->flags & NAME_QUERY ? 'q' : r->flags & NAME_KEY ? 'k' : 0;
        return true;
    }
    return false;
}
