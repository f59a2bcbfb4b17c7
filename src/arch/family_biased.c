/* The rows of family.h, mixtures of experts whose router has a bias that chooses and weighs
 * nothing: DeepSeek-V3 and those after it. */
#include "arch/family_tables.h"

/* ---- keys ---- */

/* The router of DeepSeek-V3 and its kin: sigmoid scores, and a bias that chooses alone. */
static const config_key deepseek_v3_keys[] = {
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 1),
    EXPERT_GROUPS(8, 4),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 3),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 2.5),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    INT("num_nextn_predict_layers|num_mtp_layers", n_prediction_layers, 0, MAX_LAYERS, 0),
    FLAG("rope_interleave", rope_interleaved, true),
    { 0 },
};

static const config_key glm4_moe_lite_keys[] = {
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 1),
    EXPERT_GROUPS(1, 1),
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
    EXPERT_GROUPS(1, 1),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    INT_OR_NULL("sliding_window", window, 0, MAX_CONTEXT, 4096),
    INT("max_window_layers", max_window_layers, 0, MAX_CONTEXT, 62),
    ATTENTION_BIAS(false),
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
    EXPERT_GROUPS(1, 1),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    FLAG("attention_bias", qkv_bias, false),
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key glm4_moe_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 0),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 1),
    SWITCH("use_qk_norm", qk_norm, false),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 0.5),
    INT("num_nextn_predict_layers|num_mtp_layers", n_prediction_layers, 0, MAX_LAYERS, 1),
    { 0 },
};

static const config_key minimax_m2_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    INT("rotary_dim", rotary_dim, 2, 1 << 14, 0),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 1),
    TRUE_ALWAYS("use_qk_norm"),
    { 0 },
};

static const config_key afmoe_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 6),
    INT("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN, 1408),
    INT("num_shared_experts", moe.n_shared, 0, 64, 2),
    INT("num_dense_layers", first_sparse, 0, MAX_LAYERS, 1),
    REAL("route_scale", moe.topk.scale, 1e-30, 1e6, 1),
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    NEED("sliding_window", window, 1, MAX_CONTEXT),
    PERIOD("global_attn_every_n_layers", window_pattern, 4),
    FLAG("mup_enabled", embed_sqrt_dim, false),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

static const config_key bailing_keys[] = {
    EXPERTS,
    NEED("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT("num_shared_experts", moe.n_shared, 0, 64, 0),
    INT("moe_shared_expert_intermediate_size", moe.shared_each, 1, MAX_FFN, 0),
    INT("n_group", moe.topk.n_groups, 1, MAX_EXPERTS, 1),
    INT("topk_group", moe.topk.k_groups, 1, MAX_EXPERTS, 1),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    TRUE_ALWAYS("moe_router_enable_expert_bias"),
    TRUE_ALWAYS("use_rmsnorm"),
    SWITCH("use_qk_norm", qk_norm, true),
    FLAG("use_qkv_bias", qkv_bias, false),
    FLAG("use_bias", o_bias, false),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 0.5),
    INT("num_nextn_predict_layers", n_prediction_layers, 0, MAX_LAYERS, 0),
    { 0 },
};

/* ---- tensors ---- */

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

static const tensor_rule minimax_m2_bias_tensors[] = {
    { "block_sparse_moe.e_score_correction_bias", "E", FACT_EXPERT | FACT_ROUTER_BIAS, RULE_F32,
      BLOCK(moe.router_bias), INIT_ZERO },
    { 0 },
};

/* AFMoE: norms around the sublayers, and a gate on the output of attention. */
static const tensor_rule afmoe_tensors[] = {
    { "input_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_norm), INIT_ONE },
    { "post_attention_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_post), INIT_ONE },
    { "pre_mlp_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_norm), INIT_ONE },
    { "post_mlp_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_post), INIT_ONE },
    { "self_attn.gate_proj.weight", "OC", 0, WEIGHT, BLOCK(out_gate.w), INIT_NORMAL },
    { 0 },
};

static const fused_rule afmoe_fused[] = {
    { "mlp.router.gate.weight", { "mlp.gate.weight" }, 0 },
    { "mlp.expert_bias", { "mlp.gate.e_score_correction_bias" }, 0 },
    { 0 },
};

static const fused_rule bailing_fused[] = {
    { "attention.query_key_value.weight",
      { "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight" },
      0 },
    { "attention.query_key_value.bias",
      { "self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias" },
      0 },
    { "attention.dense.weight", { "self_attn.o_proj.weight" }, 0 },
    { "attention.dense.bias", { "self_attn.o_proj.bias" }, 0 },
    { "attention.query_layernorm.weight", { "self_attn.q_norm.weight" }, 0 },
    { "attention.key_layernorm.weight", { "self_attn.k_norm.weight" }, 0 },
    { "mlp.gate.expert_bias", { "mlp.gate.e_score_correction_bias" }, 0 },
    { 0 },
};

static const name_rule bailing_names[] = {
    { "model.embed_tokens.", "model.word_embeddings." },
    { 0 },
};

/* ---- rows ---- */

const family biased_families[] = {
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
        .name = "glm4_moe",
        .model_type = "glm4_moe",
        .causal = "Glm4MoeForCausalLM",
        .keys = { common_keys, solar_open_keys, glm4_moe_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors,
                     deepseek_shared_tensors, router_bias_tensors },
        .facts = { .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    {
        .name = "minimax_m2",
        .model_type = "minimax_m2",
        .causal = "MiniMaxM2ForCausalLM",
        .keys = { common_keys, minimax_m2_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, mixtral_tensors,
                     minimax_m2_bias_tensors },
        .facts = { .qk_norm = QK_NORM_ROW,
                   .rotary = 1,
                   .ropes = { { .theta = 5e6F } },
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID, .renormalise = true } } },
    },
    {
        .name = "afmoe",
        .model_type = "afmoe",
        .causal = "AfmoeForCausalLM",
        .keys = { common_keys, afmoe_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, afmoe_tensors,
                     expert_tensors, deepseek_shared_tensors, router_bias_tensors },
        .fused = afmoe_fused,
        .window = WINDOW_PATTERN,
        .facts = { .norms = NORM_AROUND,
                   .qk_norm = QK_NORM_HEAD,
                   .attn_gate = true,
                   .use_window = true,
                   .rope_sliding = true,
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID, .renormalise = true } } },
    },
    {
        .name = "bailing_moe_v2",
        .model_type = "bailing_moe_v2",
        .keys = { common_keys, bailing_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors,
                     deepseek_shared_tensors, router_bias_tensors },
        .fused = bailing_fused,
        .names = bailing_names,
        .facts = { .ropes = { { .theta = 6e5F } },
                   .moe = { .kind = EXPERT_FFN,
                            .has_bias = true,
                            .topk = { .score = SCORE_SIGMOID } } },
    },
    { 0 },
};
