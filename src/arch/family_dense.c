/* The rows of family.h, dense models. With the files of mixtures and the tables that all share, the
 * only files that know Hugging Face's names of models, keys and tensors; gguf_names.c knows GGUF's.
 */
#include "arch/family_tables.h"

/* ---- keys ---- */

static const config_key mistral_keys[] = {
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 4096),
    { 0 },
};

static const config_key qwen3_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    ATTENTION_BIAS(false),
    { 0 },
};

static const config_key seed_oss_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    FLAG("attention_bias", qkv_bias, true),
    FLAG("attention_out_bias", o_bias, false),
    FLAG("mlp_bias", mlp_bias, false),
    { 0 },
};

static const config_key ernie4_5_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    FLAG("tie_word_embeddings", tie_embeddings, true),
    FLAG("use_bias", qkv_bias, false),
    FLAG("use_bias", o_bias, false),
    FLAG("use_bias", mlp_bias, false),
    { 0 },
};

static const config_key smollm3_keys[] = {
    ATTENTION_BIAS(false),
    FLAG("mlp_bias", mlp_bias, false),
    FLAG("use_sliding_window", use_window, false),
    INT_OR_NULL("sliding_window", window, 0, MAX_CONTEXT, 0),
    INT("no_rope_layer_interval", no_rope_interval, 1, MAX_LAYERS, 4),
    FLAG("tie_word_embeddings", tie_embeddings, true),
    { 0 },
};

static const config_key ministral3_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 0),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key hunyuan_keys[] = {
    ATTENTION_BIAS(false),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    TRUE_ALWAYS("use_qk_norm"),
    { 0 },
};

static const config_key olmo2_keys[] = {
    ATTENTION_BIAS(false),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 4096),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key gemma_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 256),
    REAL("query_pre_attn_scalar", attn_width, 1e-6, 1e6, 256),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 4096),
    FLAG("tie_word_embeddings", tie_embeddings, true),
    ATTENTION_BIAS(false),
    { 0 },
};

static const config_key gemma2_keys[] = {
    REAL_OR_NULL("attn_logit_softcapping", attn_softcap, 1e-3, 1e6, 50),
    REAL_OR_NULL("final_logit_softcapping", logit_softcap, 1e-3, 1e6, 30),
    { 0 },
};

static const config_key gemma3_keys[] = {
    REAL_OR_NULL("final_logit_softcapping", logit_softcap, 1e-3, 1e6, 0),
    PERIOD("sliding_window_pattern", window_pattern, 6),
    { 0 },
};

static const config_key gemma4_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 256),
    INT("global_head_dim", full_head_dim, 1, 1 << 14, 512),
    INT("num_global_key_value_heads", full_kv_heads, 1, MAX_HEADS, 0),
    FLAG("attention_k_eq_v", k_as_v, false),
    INT("num_kv_shared_layers", n_kv_shared, 0, MAX_LAYERS, 0),
    FLAG("use_double_wide_mlp", ffn_doubled, false),
    FLAG("enable_moe_block", moe.beside_ffn, false),
    INT("num_experts", moe.topk.n_experts, 1, MAX_EXPERTS, 0),
    INT("top_k_experts", moe.topk.k, 1, MAX_EXPERTS, 0),
    INT("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN, 0),
    INT("hidden_size_per_layer_input", layer_input_dim, 0, 1 << 16, 256),
    INT("vocab_size_per_layer_input", layer_input_vocab, 1, MAX_VOCAB, 262144),
    INT("sliding_window", window, 1, MAX_CONTEXT, 512),
    FLAG("tie_word_embeddings", tie_embeddings, true),
    ATTENTION_BIAS(false),
    REAL_OR_NULL("final_logit_softcapping", logit_softcap, 1e-3, 1e6, 0),
    { 0 },
};

/* Without a rope_scaling the original context says nothing. */
static const config_key phi3_keys[] = {
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 0),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 1),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key glm4_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    FLAG("attention_bias", qkv_bias, true),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 0.5),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1.5625e-7),
    { 0 },
};

static const config_key exaone4_keys[] = {
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 4096),
    PERIOD("sliding_window_pattern", window_pattern, 4),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

/* The first Qwen. seq_length is the context that it was trained with. */
static const config_key qwen_keys[] = {
    INT("kv_channels", head_dim, 1, 1 << 14, 128),
    INT("seq_length", context, 1, MAX_CONTEXT, 2048),
    REAL("layer_norm_epsilon", norm_eps, 1e-30, 1, 1e-6),
    REAL("rotary_emb_base", ropes[0].theta, 1.001, 1e30, 10000),
    REAL("rotary_pct", rotary, 1e-3, 1, 1),
    FLAG("use_dynamic_ntk", long_ntk, true),
    FLAG("use_logn_attn", long_logn, true),
    TRUE_ALWAYS("no_bias"),
    TRUE_ALWAYS("scale_attn_weights"),
    { 0 },
};

/* ---- tensors ---- */

/* HunYuan's names of the norms, which come after the rotation. */
static const tensor_rule hunyuan_tensors[] = {
    { "self_attn.query_layernorm.weight", "D", 0, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.key_layernorm.weight", "D", 0, RULE_F32, BLOCK(k_norm), INIT_ONE },
    { 0 },
};

static const tensor_rule gemma4_tensors[] = {
    { "layer_scalar", "1", 0, RULE_F32 | RULE_FIXED, BLOCK(scale), INIT_ONE },
    { "model.embed_tokens_per_layer.weight", "UZ", FACT_LAYER_INPUTS, RULE_GLOBAL | RULE_BELOW,
      MODEL(inputs.embed), INIT_NORMAL },
    { "model.per_layer_model_projection.weight", "ZC", FACT_LAYER_INPUTS,
      RULE_GLOBAL | RULE_BELOW | RULE_QUANT, MODEL(inputs.proj), INIT_NORMAL },
    { "model.per_layer_projection_norm.weight", "Y", FACT_LAYER_INPUTS,
      RULE_GLOBAL | RULE_BELOW | RULE_F32, MODEL(inputs.norm), INIT_ONE },
    { "per_layer_input_gate.weight", "YC", FACT_LAYER_INPUTS, WEIGHT, BLOCK(input.gate.w),
      INIT_NORMAL },
    { "per_layer_projection.weight", "CY", FACT_LAYER_INPUTS, WEIGHT, BLOCK(input.proj.w),
      INIT_NORMAL },
    { "post_per_layer_input_norm.weight", "C", FACT_LAYER_INPUTS, RULE_F32, BLOCK(input.norm),
      INIT_ONE },
    { 0 },
};

/* Its experts beside the FFN. */
static const tensor_rule gemma4_expert_tensors[] = {
    { "router.proj.weight", "EC", FACT_BESIDE, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "router.scale", "C", FACT_BESIDE, RULE_F32, BLOCK(moe.router_scale), INIT_ONE },
    { "router.per_expert_scale", "E", FACT_BESIDE, RULE_F32, BLOCK(moe.gate_scale), INIT_ONE },
    { "post_feedforward_layernorm_1.weight", "C", FACT_BESIDE, RULE_F32, BLOCK(moe.ffn_post),
      INIT_ONE },
    { "pre_feedforward_layernorm_2.weight", "C", FACT_BESIDE, RULE_F32, BLOCK(moe.norm), INIT_ONE },
    { "post_feedforward_layernorm_2.weight", "C", FACT_BESIDE, RULE_F32, BLOCK(moe.post),
      INIT_ONE },
    FULL_EXPERTS("experts.{e}", "gate_proj", "up_proj", "down_proj"),
    { 0 },
};

static const fused_rule gemma4_fused[] = {
    { "experts.gate_up_proj", { "experts.{e}.gate_proj.weight", "experts.{e}.up_proj.weight" }, 0 },
    { "experts.down_proj", { "experts.{e}.down_proj.weight" }, 0 },
    { 0 },
};

/* GLM-4: norms before and after each sublayer, by names of its own. */
static const tensor_rule glm4_norm_tensors[] = {
    { "input_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_norm), INIT_ONE },
    { "post_self_attn_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_post), INIT_ONE },
    { "post_attention_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_norm), INIT_ONE },
    { "post_mlp_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_post), INIT_ONE },
    { 0 },
};

static const fused_rule phi3_fused[] = {
    { "self_attn.qkv_proj.weight",
      { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" },
      0 },
    { "mlp.gate_up_proj.weight", { "mlp.gate_proj.weight", "mlp.up_proj.weight" }, 0 },
    { 0 },
};

static const fused_rule glm4_fused[] = {
    { "mlp.gate_up_proj.weight", { "mlp.gate_proj.weight", "mlp.up_proj.weight" }, 0 },
    { 0 },
};

/* w1 is multiplied by the activation of w2. */
static const fused_rule qwen_fused[] = {
    { "ln_1.weight", { "input_layernorm.weight" }, 0 },
    { "ln_2.weight", { "post_attention_layernorm.weight" }, 0 },
    { "attn.c_attn.weight",
      { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" },
      0 },
    { "attn.c_attn.bias",
      { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" },
      0 },
    { "attn.c_proj.weight", { "self_attn.o_proj.weight" }, 0 },
    { "mlp.w2.weight", { "mlp.gate_proj.weight" }, 0 },
    { "mlp.w1.weight", { "mlp.up_proj.weight" }, 0 },
    { "mlp.c_proj.weight", { "mlp.down_proj.weight" }, 0 },
    { 0 },
};

static const name_rule qwen_names[] = {
    { "model.layers.", "transformer.h." },
    { "model.embed_tokens.", "transformer.wte." },
    { "model.norm.", "transformer.ln_f." },
    { 0 },
};

/* ---- rows ---- */

const family dense_families[] = {
    {
        .name = "llama",
        .model_type = "llama",
        .causal = "LlamaForCausalLM",
        .keys = { common_keys, llama_keys },
        .tensors = { frame_tensors, attention_tensors },
    },
    {
        .name = "mistral",
        .model_type = "mistral",
        .causal = "MistralForCausalLM",
        .keys = { common_keys, mistral_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_ALL,
        .chat = "mistral",
        .facts = { .use_window = true },
    },
    {
        .name = "qwen2",
        .model_type = "qwen2",
        .causal = "Qwen2ForCausalLM",
        .keys = { common_keys, qwen2_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_FROM,
        .chat = "chatml",
        .facts = { .qkv_bias = true },
    },
    {
        .name = "qwen3",
        .model_type = "qwen3",
        .causal = "Qwen3ForCausalLM",
        .keys = { common_keys, qwen2_keys, qwen3_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors },
        .window = WINDOW_FROM,
        .chat = "chatml",
        .facts = { .qk_norm = QK_NORM_HEAD },
    },
    {
        .name = "camelidae",
        .model_type = "camelidae",
        .keys = { common_keys, llama_keys },
        .tensors = { frame_tensors, attention_tensors },
        .adapters = true,
        .chat = "camelidae",
    },
    {
        .name = "sparsetral",
        .model_type = "sparsetral",
        .keys = { common_keys, mistral_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_ALL,
        .adapters = true,
        .chat = "chatml",
        .facts = { .use_window = true },
    },
    {
        .name = "qwen2idae",
        .model_type = "qwen2idae",
        .keys = { common_keys, qwen2_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_FROM,
        .adapters = true,
        .chat = "chatml",
        .facts = { .qkv_bias = true },
    },
    {
        .name = "seed_oss",
        .model_type = "seed_oss",
        .causal = "SeedOssForCausalLM",
        .keys = { common_keys, seed_oss_keys },
        .tensors = { frame_tensors, attention_tensors },
    },
    {
        .name = "ernie4_5",
        .model_type = "ernie4_5",
        .causal = "Ernie4_5ForCausalLM",
        .keys = { common_keys, ernie4_5_keys },
        .tensors = { frame_tensors, attention_tensors },
        .facts = { .rope_interleaved = true, .ropes = { { .theta = 5e5F } } },
    },
    {
        .name = "smollm3",
        .model_type = "smollm3",
        .causal = "SmolLM3ForCausalLM",
        .keys = { common_keys, smollm3_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_FROM,
        .facts = { .ropes = { { .theta = 2e6F } } },
    },
    {
        .name = "granite",
        .model_type = "granite",
        .causal = "GraniteForCausalLM",
        .keys = { common_keys, llama_keys, granite_keys },
        .tensors = { frame_tensors, attention_tensors },
    },
    {
        .name = "ministral3",
        .model_type = "ministral3",
        .causal = "Ministral3ForCausalLM",
        .keys = { common_keys, ministral3_keys },
        .tensors = { frame_tensors, attention_tensors },
        .window = WINDOW_ALL,
        .chat = "mistral",
        .facts = { .use_window = true, .q_scale_beta = 0.1F },
    },
    {
        .name = "hunyuan_v1_dense",
        .model_type = "hunyuan_v1_dense",
        .causal = "HunYuanDenseV1ForCausalLM",
        .keys = { common_keys, hunyuan_keys },
        .tensors = { frame_tensors, attention_tensors, hunyuan_tensors },
        .facts = { .qk_norm = QK_NORM_HEAD, .qk_norm_rotated = true },
    },
    {
        .name = "olmo2",
        .model_type = "olmo2",
        .causal = "Olmo2ForCausalLM",
        .keys = { common_keys, olmo2_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, norm_after_tensors },
        .facts = { .norms = NORM_AFTER, .qk_norm = QK_NORM_ROW },
    },
    {
        .name = "olmo3",
        .model_type = "olmo3",
        .causal = "Olmo3ForCausalLM",
        .keys = { common_keys, olmo2_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, norm_after_tensors },
        .window = WINDOW_PATTERN,
        .facts = { .norms = NORM_AFTER,
                   .qk_norm = QK_NORM_ROW,
                   .use_window = true,
                   .window_pattern = 4,
                   .n_ropes = 2,
                   .ropes = { { .theta = 5e5F }, { .theta = 5e5F } } },
    },
    {
        .name = "gemma2",
        .model_type = "gemma2",
        .causal = "Gemma2ForCausalLM",
        .keys = { common_keys, gemma_keys, gemma2_keys },
        .tensors = { frame_tensors, attention_tensors, sandwich_tensors },
        .window = WINDOW_PATTERN,
        .act_key = "hidden_activation",
        .facts = { .norms = NORM_AROUND,
                   .norm_shift = 1,
                   .act = ACT_GELU_TANH,
                   .embed_sqrt_dim = true,
                   .use_window = true,
                   .window_pattern = 2 },
    },
    {
        .name = "gemma3",
        .model_type = "gemma3_text",
        .causal = "Gemma3ForCausalLM",
        .keys = { common_keys, gemma_keys, gemma3_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, sandwich_tensors },
        .window = WINDOW_PATTERN,
        .act_key = "hidden_activation",
        .facts = { .norms = NORM_AROUND,
                   .norm_shift = 1,
                   .act = ACT_GELU_TANH,
                   .qk_norm = QK_NORM_HEAD,
                   .embed_sqrt_dim = true,
                   .use_window = true,
                   .n_ropes = 2,
                   .ropes = { { .theta = 1e6F }, { .theta = 1e4F } } },
    },
    {
        .name = "gemma4",
        .model_type = "gemma4_text",
        .causal = "Gemma4ForCausalLM",
        .keys = { common_keys, gemma4_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, sandwich_tensors,
                     gemma4_tensors, gemma4_expert_tensors },
        .fused = gemma4_fused,
        .window = WINDOW_PATTERN,
        .act_key = "hidden_activation",
        .facts = { .norms = NORM_AROUND,
                   .act = ACT_GELU_TANH,
                   .qk_norm = QK_NORM_HEAD,
                   .v_norm = true,
                   .attn_scale = 1,
                   .embed_sqrt_dim = true,
                   .use_window = true,
                   .window_pattern = 6,
                   .last_full = true,
                   .moe = { .kind = EXPERT_FFN,
                            .beside_ffn = true,
                            .topk = { .renormalise = true } },
                   .n_ropes = 2,
                   .ropes = { { .kind = ROPE_PROPORTIONAL,
                                .theta = 1e6F,
                                .part = 0.25F,
                                .factor = 1 },
                              { .theta = 1e4F } } },
    },
    {
        .name = "phi3",
        .model_type = "phi3",
        .causal = "Phi3ForCausalLM",
        .keys = { common_keys, phi3_keys },
        .tensors = { frame_tensors, attention_tensors },
        .fused = phi3_fused,
        .window = WINDOW_ALL,
        .facts = { .use_window = true, .ropes = { { .original = 4096 } } },
    },
    {
        .name = "glm4",
        .model_type = "glm4",
        .causal = "Glm4ForCausalLM",
        .keys = { common_keys, glm4_keys },
        .tensors = { frame_tensors, attention_tensors, glm4_norm_tensors },
        .fused = glm4_fused,
        .facts = { .norms = NORM_AROUND, .rope_interleaved = true },
    },
    {
        .name = "exaone4",
        .model_type = "exaone4",
        .causal = "Exaone4ForCausalLM",
        .keys = { common_keys, exaone4_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, norm_after_tensors },
        .window = WINDOW_PATTERN,
        .facts = { .norms = NORM_AFTER,
                   .qk_norm = QK_NORM_HEAD,
                   .use_window = true,
                   .rope_sliding = true },
    },
    {
        .name = "qwen",
        .model_type = "qwen",
        .keys = { common_keys, qwen_keys },
        .tensors = { frame_tensors, attention_tensors },
        .fused = qwen_fused,
        .names = qwen_names,
        .chat = "chatml",
        .facts = { .qkv_bias = true, .ffn_halved = true },
    },
    { 0 },
};
