/* The rows of family.h, mixtures of experts; dense models are in family_dense.c. */
#include "arch/family_tables.h"

/* ---- keys ---- */

#define EXPERTS                                                                                    \
    NEED("num_experts|num_local_experts|n_routed_experts", moe.topk.n_experts, 1, MAX_EXPERTS),    \
        REAL("router_aux_loss_coef|aux_loss_alpha", moe.aux_coef, 0, 1e6, 0.001)

static const config_key mixtral_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 2),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    INT("sliding_window", window, 1, MAX_CONTEXT, 0),
    { 0 },
};

static const config_key qwen_moe_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT("decoder_sparse_step", sparse_step, 1, MAX_LAYERS, 1),
    { 0 },
};

static const config_key qwen2_moe_keys[] = {
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 4),
    NEED("shared_expert_intermediate_size", moe.shared_dim, 1, MAX_FFN),
    FLAG("qkv_bias", qkv_bias, true),
    { 0 },
};

static const config_key qwen3_moe_keys[] = {
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    { 0 },
};

static const config_key olmoe_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key deepseek_v2_keys[] = {
    EXPERTS,
    NEED("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    FLAG("mlp_bias", mlp_bias, false),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 2),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 0),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 0),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    INT("moe_layer_freq", sparse_step, 1, MAX_LAYERS, 1),
    INT_OR_NULL("q_lora_rank", q_lora_rank, 1, MAX_DIM, 1536),
    NEED("kv_lora_rank", kv_lora_rank, 1, MAX_DIM),
    NEED("qk_nope_head_dim", qk_nope_dim, 1, 1 << 13),
    NEED("qk_rope_head_dim", qk_rope_dim, 1, 1 << 13),
    NEED("v_head_dim", v_dim, 1, 1 << 13),
    { 0 },
};

/* The router of DeepSeek-V3 and its kin: sigmoid scores, and a bias that chooses alone. */
static const config_key deepseek_v3_keys[] = {
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 1),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 8),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 4),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 3),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 2.5),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    INT("num_nextn_predict_layers|num_mtp_layers", n_prediction_layers, 0, MAX_LAYERS, 0),
    FLAG("rope_interleave", rope_interleaved, true),
    { 0 },
};

static const config_key glm4_moe_lite_keys[] = {
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 1),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 1),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 1),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 1),
    INT_OR_NULL("q_lora_rank", q_lora_rank, 1, MAX_DIM, 768),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1.8),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    INT("num_nextn_predict_layers|num_mtp_layers", n_prediction_layers, 0, MAX_LAYERS, 0),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    FLAG("rope_interleave", rope_interleaved, true),
    { 0 },
};

static const config_key dots1_keys[] = {
    EXPERTS,
    NEED("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 0),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 1),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 1),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    INT_OR_NULL("sliding_window", window, 0, MAX_CONTEXT, 4096),
    INT("max_window_layers", max_window_layers, 0, MAX_CONTEXT, 62),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    { 0 },
};

static const config_key ernie4_5_moe_keys[] = {
    NEED("moe_num_experts|num_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    REAL("router_aux_loss_coef", moe.aux_coef, 0, 1e6, 0.001),
    INT("moe_k|num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 6),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("moe_num_shared_experts", moe.n_shared, 0, 64, 2),
    INT("moe_layer_start_index", first_sparse, 0, MAX_LAYERS, 1),
    INT("moe_layer_end_index", last_sparse, -1, MAX_LAYERS, -1),
    INT("moe_layer_interval", sparse_step, 1, MAX_LAYERS, 1),
    REAL("moe_norm_min", moe.topk.sum_floor, 0, 1e6, 1e-12),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    FLAG("tie_word_embeddings", tie_embeddings, true),
    { 0 },
};

/* What GLM-4.5 and its kin have of DeepSeek-V3's router. */
static const config_key solar_open_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 1),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 1),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 1),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    FLAG("attention_bias", qkv_bias, false),
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

/* DeepSeekMoE. Its code renormalises nothing where a token has one expert. */
static const config_key deepseek_keys[] = {
    EXPERTS,
    NEED("num_experts_per_tok", moe.topk.k, 2, MAX_EXPERTS),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 0),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    INT("moe_layer_freq", sparse_step, 1, MAX_LAYERS, 1),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    { 0 },
};

/* In the file intermediate_size is the width of an expert. */
static const config_key gpt_oss_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok|experts_per_token", moe.topk.k, 1, MAX_EXPERTS, 4),
    INT("head_dim", head_dim, 1, 1 << 14, 64),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 128),
    FLAG("attention_bias", qkv_bias, true),
    FLAG("attention_bias", o_bias, true),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

/* ---- tensors ---- */

static const tensor_rule mla_tensors[] = {
    { "self_attn.q_proj.weight", "HC", FACT_Q_FULL, WEIGHT, BLOCK(mla.q.w), INIT_NORMAL },
    { "self_attn.q_a_proj.weight", "QC", FACT_Q_LORA, WEIGHT, BLOCK(mla.q_a.w), INIT_NORMAL },
    { "self_attn.q_a_proj.bias", "Q", FACT_Q_LORA | FACT_QKV_BIAS, RULE_F32, BLOCK(mla.q_a.bias),
      INIT_ZERO },
    { "self_attn.q_a_layernorm.weight", "Q", FACT_Q_LORA, RULE_F32, BLOCK(mla.q_norm), INIT_ONE },
    { "self_attn.q_b_proj.weight", "HQ", FACT_Q_LORA, WEIGHT, BLOCK(mla.q_b.w), INIT_NORMAL },
    { "self_attn.kv_a_proj_with_mqa.weight", "PC", 0, WEIGHT, BLOCK(mla.kv_a.w), INIT_NORMAL },
    { "self_attn.kv_a_proj_with_mqa.bias", "P", FACT_QKV_BIAS, RULE_F32, BLOCK(mla.kv_a.bias),
      INIT_ZERO },
    { "self_attn.kv_a_layernorm.weight", "R", 0, RULE_F32, BLOCK(mla.kv_norm), INIT_ONE },
    { "self_attn.kv_b_proj.weight", "BR", 0, WEIGHT, BLOCK(mla.kv_b.w), INIT_NORMAL },
    { 0 },
};

static const tensor_rule mixtral_tensors[] = {
    { "block_sparse_moe.gate.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "block_sparse_moe.experts.{e}.w1.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.gate), INIT_NORMAL },
    { "block_sparse_moe.experts.{e}.w3.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.up), INIT_NORMAL },
    { "block_sparse_moe.experts.{e}.w2.weight", "CM", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.down), INIT_NORMAL },
    { 0 },
};

static const tensor_rule expert_tensors[] = {
    { "mlp.gate.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "mlp.experts.{e}.gate_proj.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.gate), INIT_NORMAL },
    { "mlp.experts.{e}.up_proj.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT, BLOCK(moe.up),
      INIT_NORMAL },
    { "mlp.experts.{e}.down_proj.weight", "CM", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.down), INIT_NORMAL },
    { 0 },
};

/* Qwen2-MoE has one shared expert with a gate, DeepSeek several without; either is one FFN. */
static const tensor_rule qwen2_shared_tensors[] = {
    { "mlp.shared_expert.gate_proj.weight", "SC", FACT_SHARED, WEIGHT, BLOCK(moe.shared.gate.w),
      INIT_NORMAL },
    { "mlp.shared_expert.up_proj.weight", "SC", FACT_SHARED, WEIGHT, BLOCK(moe.shared.up.w),
      INIT_NORMAL },
    { "mlp.shared_expert.down_proj.weight", "CS", FACT_SHARED, WEIGHT, BLOCK(moe.shared.down.w),
      INIT_NORMAL },
    { "mlp.shared_expert_gate.weight", "1C", FACT_SHARED_GATE, RULE_F32, BLOCK(moe.shared_gate),
      INIT_NORMAL },
    { 0 },
};

static const tensor_rule deepseek_shared_tensors[] = {
    { "mlp.shared_experts.gate_proj.weight", "SC", FACT_SHARED, WEIGHT, BLOCK(moe.shared.gate.w),
      INIT_NORMAL },
    { "mlp.shared_experts.up_proj.weight", "SC", FACT_SHARED, WEIGHT, BLOCK(moe.shared.up.w),
      INIT_NORMAL },
    { "mlp.shared_experts.down_proj.weight", "CS", FACT_SHARED, WEIGHT, BLOCK(moe.shared.down.w),
      INIT_NORMAL },
    { "mlp.shared_experts.gate_proj.bias", "S", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.gate.bias), INIT_ZERO },
    { "mlp.shared_experts.up_proj.bias", "S", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.up.bias), INIT_ZERO },
    { "mlp.shared_experts.down_proj.bias", "C", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.down.bias), INIT_ZERO },
    { 0 },
};

static const tensor_rule router_bias_tensors[] = {
    { "mlp.gate.e_score_correction_bias", "E", FACT_EXPERT | FACT_ROUTER_BIAS, RULE_F32,
      BLOCK(moe.router_bias), INIT_ZERO },
    { 0 },
};

static const tensor_rule ernie4_5_bias_tensors[] = {
    { "mlp.moe_statics.e_score_correction_bias", "1E", FACT_EXPERT | FACT_ROUTER_BIAS, RULE_F32,
      BLOCK(moe.router_bias), INIT_ZERO },
    { 0 },
};

static const tensor_rule gpt_oss_tensors[] = {
    { "self_attn.sinks", "N", 0, RULE_F32, BLOCK(sinks), INIT_ZERO },
    { "mlp.router.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "mlp.router.bias", "E", FACT_EXPERT, RULE_F32, BLOCK(moe.logit_bias), INIT_ZERO },
    { "mlp.experts.{e}.gate_proj.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.gate), INIT_NORMAL },
    { "mlp.experts.{e}.up_proj.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT, BLOCK(moe.up),
      INIT_NORMAL },
    { "mlp.experts.{e}.down_proj.weight", "CM", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.down), INIT_NORMAL },
    { "mlp.experts.gate_proj_bias", "EM", FACT_EXPERT, RULE_F32, BLOCK(moe.gate_bias), INIT_ZERO },
    { "mlp.experts.up_proj_bias", "EM", FACT_EXPERT, RULE_F32, BLOCK(moe.up_bias), INIT_ZERO },
    { "mlp.experts.down_proj_bias", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.down_bias), INIT_ZERO },
    { 0 },
};

/* Gate and up alternate, output by output; the matrices in MXFP4 are not transposed. */
static const fused_rule gpt_oss_fused[] = {
    { "mlp.experts.gate_up_proj",
      { "mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight" },
      FUSED_ALTERNATE | FUSED_TRANSPOSED },
    { "mlp.experts.down_proj", { "mlp.experts.{e}.down_proj.weight" }, FUSED_TRANSPOSED },
    { "mlp.experts.gate_up_proj_blocks",
      { "mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight" },
      FUSED_ALTERNATE },
    { "mlp.experts.down_proj_blocks", { "mlp.experts.{e}.down_proj.weight" }, 0 },
    { "mlp.experts.gate_up_proj_bias",
      { "mlp.experts.gate_proj_bias", "mlp.experts.up_proj_bias" },
      FUSED_ALTERNATE | FUSED_VECTORS },
    { 0 },
};

/* ---- rows ---- */

const family mixture_families[] = {
    {
        .name = "mixtral",
        .model_type = "mixtral",
        .causal = "MixtralForCausalLM",
        .keys = { common_keys, mixtral_keys },
        .tensors = { frame_tensors, attention_tensors, mixtral_tensors },
        .window = WINDOW_ALL,
        .chat = "mistral",
        .facts = { .use_window = true,
                   .ropes = { { .theta = 1e6F } },
                   .moe = { .kind = EXPERT_FFN, .topk = { .renormalise = true } } },
    },
    {
        .name = "qwen2_moe",
        .model_type = "qwen2_moe",
        .causal = "Qwen2MoeForCausalLM",
        .keys = { common_keys, qwen2_keys, qwen_moe_keys, qwen2_moe_keys },
        .tensors = { frame_tensors, attention_tensors, expert_tensors, qwen2_shared_tensors },
        .window = WINDOW_ALTERNATE,
        .chat = "chatml",
        .facts = { .sparse_shift = 1,
                   .moe = { .kind = EXPERT_FFN, .n_shared = 1, .shared_gate = true } },
    },
    {
        .name = "qwen3_moe",
        .model_type = "qwen3_moe",
        .causal = "Qwen3MoeForCausalLM",
        .keys = { common_keys, qwen2_keys, qwen_moe_keys, qwen3_moe_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors },
        .window = WINDOW_ALL,
        .chat = "chatml",
        .facts = { .qk_norm = QK_NORM_HEAD, .sparse_shift = 1, .moe = { .kind = EXPERT_FFN } },
    },
    {
        .name = "olmoe",
        .model_type = "olmoe",
        .causal = "OlmoeForCausalLM",
        .keys = { common_keys, olmoe_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors },
        .facts = { .qk_norm = QK_NORM_ROW, .moe = { .kind = EXPERT_FFN } },
    },
    {
        .name = "deepseek_v2",
        .model_type = "deepseek_v2",
        .causal = "DeepseekV2ForCausalLM",
        .keys = { common_keys, deepseek_v2_keys },
        .tensors = { frame_tensors, mla_tensors, expert_tensors, deepseek_shared_tensors },
        .chat = "deepseek",
        .facts = { .rope_interleaved = true, .mla_norm_eps = 1e-6F, .moe = { .kind = EXPERT_FFN } },
    },
    {
        .name = "deepseek_v3",
        .model_type = "deepseek_v3",
        .causal = "DeepseekV3ForCausalLM",
        .keys = { common_keys, deepseek_v2_keys, deepseek_v3_keys },
        .tensors = { frame_tensors, mla_tensors, expert_tensors, deepseek_shared_tensors,
                     router_bias_tensors },
        .chat = "deepseek-v3",
        .facts = { .mla_norm_eps = 1e-6F,
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    {
        .name = "glm4_moe_lite",
        .model_type = "glm4_moe_lite",
        .causal = "Glm4MoeLiteForCausalLM",
        .keys = { common_keys, deepseek_v2_keys, glm4_moe_lite_keys },
        .tensors = { frame_tensors, mla_tensors, expert_tensors, deepseek_shared_tensors,
                     router_bias_tensors },
        .facts = { .mla_norm_eps = 1e-6F,
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    {
        .name = "dots1",
        .model_type = "dots1",
        .causal = "Dots1ForCausalLM",
        .keys = { common_keys, dots1_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors,
                     deepseek_shared_tensors, router_bias_tensors },
        .window = WINDOW_FROM,
        .facts = { .qk_norm = QK_NORM_HEAD,
                   .use_window = true,
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    {
        .name = "ernie4_5_moe",
        .model_type = "ernie4_5_moe",
        .causal = "Ernie4_5_MoeForCausalLM",
        .keys = { common_keys, ernie4_5_moe_keys },
        .tensors = { frame_tensors, attention_tensors, expert_tensors, deepseek_shared_tensors,
                     ernie4_5_bias_tensors },
        .facts = { .rope_interleaved = true,
                   .ropes = { { .theta = 5e5F } },
                   .sparse_shift = 1,
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .renormalise = true } } },
    },
    {
        .name = "solar_open",
        .model_type = "solar_open",
        .causal = "SolarOpenForCausalLM",
        .keys = { common_keys, solar_open_keys },
        .tensors = { frame_tensors, attention_tensors, expert_tensors, deepseek_shared_tensors,
                     router_bias_tensors },
        .facts = { .ropes = { { .theta = 1e6F } },
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    {
        .name = "deepseek",
        .model_type = "deepseek",
        .causal = "DeepseekForCausalLM",
        .keys = { common_keys, deepseek_keys },
        .tensors = { frame_tensors, attention_tensors, expert_tensors, deepseek_shared_tensors },
        .chat = "deepseek",
        .facts = { .moe = { .kind = EXPERT_FFN } },
    },
    {
        .name = "gpt_oss",
        .model_type = "gpt_oss",
        .causal = "GptOssForCausalLM",
        .keys = { common_keys, gpt_oss_keys },
        .tensors = { frame_tensors, attention_tensors, gpt_oss_tensors },
        .fused = gpt_oss_fused,
        .window = WINDOW_ALTERNATE,
        .facts = { .sinks = true,
                   .act = ACT_CLAMPED,
                   .use_window = true,
                   .max_window_layers = MAX_LAYERS,
                   .ropes = { { .theta = 1.5e5F } },
                   .moe = { .kind = EXPERT_FFN, .topk = { .score_after_topk = true } } },
    },
    { 0 },
};
