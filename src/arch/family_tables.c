/* The tables that several families share, and those that adapters or a mixture of LoRA add to any
 * dense one. */
#include "arch/family_tables.h"

/* ---- keys ---- */

const config_key common_keys[] = {
    NEED("hidden_size", dim, 1, MAX_DIM),
    NEED("num_hidden_layers", n_layers, 1, MAX_LAYERS),
    NEED("num_attention_heads", n_heads, 1, MAX_HEADS),
    INT("num_key_value_heads", n_kv_heads, 1, MAX_HEADS, 0),
    INT("head_dim", head_dim, 1, 1 << 14, 0),
    INT("intermediate_size", ffn_dim, 1, MAX_FFN, 0),
    NEED("vocab_size", vocab, 1, MAX_VOCAB),
    INT("max_position_embeddings", context, 1, MAX_CONTEXT, 2048),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-6),
    FLAG("tie_word_embeddings", tie_embeddings, false),
    REAL("initializer_range", init_range, 0, 1, 0.02),
    { 0 },
};

const config_key llama_keys[] = {
    ATTENTION_BIAS(false),
    FLAG("mlp_bias", mlp_bias, false),
    { 0 },
};

const config_key qwen2_keys[] = {
    FLAG("use_sliding_window", use_window, false),
    INT_OR_NULL("sliding_window", window, 0, MAX_CONTEXT, 4096),
    INT("max_window_layers", max_window_layers, 0, MAX_CONTEXT, 28),
    { 0 },
};

/* All four are needed: the published class' own defaults (top-1, width 64) fit no published model.
 */
const config_key adapter_keys[] = {
    NEED("num_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    NEED("topk", moe.topk.k, 1, MAX_EXPERTS),
    NEED("adapter_dim", moe.expert_dim, 1, MAX_FFN),
    { "moe_scaling", KEY_F32, KEY_REQUIRED, offsetof(config, moe.adapter_scale), 0, -1e6, 1e6 },
    { 0 },
};

/* Keys of pesc's own, of adapters beside the experts of a mixture. */
const config_key beside_keys[] = {
    NEED("adapter_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    NEED("adapter_top_k", moe.topk.k, 1, MAX_EXPERTS),
    NEED("adapter_dim", moe.expert_dim, 1, MAX_FFN),
    { "moe_scaling", KEY_F32, KEY_REQUIRED, offsetof(config, moe.adapter_scale), 0, -1e6, 1e6 },
    { 0 },
};

/* Keys of pesc's own. */
const config_key molora_keys[] = {
    NEED("molora_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    NEED("molora_top_k", moe.topk.k, 1, MAX_EXPERTS),
    NEED("molora_rank", moe.expert_dim, 1, MAX_DIM),
    { "molora_scale", KEY_F32, KEY_REQUIRED, offsetof(config, moe.adapter_scale), 0, -1e6, 1e6 },
    { 0 },
};

/* Four multipliers of the residual stream and what is around it. */
const config_key granite_keys[] = {
    REAL("embedding_multiplier", embed_scale, 1e-6, 1e6, 1),
    REAL("residual_multiplier", residual_scale, 1e-6, 1e6, 1),
    REAL("attention_multiplier", attn_scale, 1e-6, 1e6, 1),
    REAL("logits_scaling", logit_divisor, 1e-6, 1e6, 1),
    { 0 },
};

const config_key deepseek_v2_keys[] = {
    EXPERTS,
    NEED("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS),
    ATTENTION_BIAS(false),
    FLAG("mlp_bias", mlp_bias, false),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT_OR_NULL("n_shared_experts", moe.n_shared, 1, 64, 2),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    EXPERT_GROUPS(0, 0),
    INT("first_k_dense_replace", first_sparse, 0, MAX_LAYERS, 0),
    INT("moe_layer_freq", sparse_step, 1, MAX_LAYERS, 1),
    INT_OR_NULL("q_lora_rank", q_lora_rank, 1, MAX_DIM, 1536),
    NEED("kv_lora_rank", kv_lora_rank, 1, MAX_DIM),
    NEED("qk_nope_head_dim", qk_nope_dim, 1, 1 << 13),
    NEED("qk_rope_head_dim", qk_rope_dim, 1, 1 << 13),
    NEED("v_head_dim", v_dim, 1, 1 << 13),
    { 0 },
};

/* ---- tensors ---- */

const tensor_rule frame_tensors[] = {
    { "model.embed_tokens.weight", "VC", 0, RULE_GLOBAL | RULE_BELOW, MODEL(embed), INIT_NORMAL },
    { "model.norm.weight", "C", 0, RULE_GLOBAL | RULE_F32, MODEL(final_norm), INIT_ONE },
    { "lm_head.weight", "VC", FACT_UNTIED, RULE_GLOBAL, MODEL(head), INIT_NORMAL },
    { "input_layernorm.weight", "C", FACT_NORM_BEFORE, RULE_F32, BLOCK(attn_norm), INIT_ONE },
    { "post_attention_layernorm.weight", "C", FACT_NORM_BEFORE, RULE_F32, BLOCK(ffn_norm),
      INIT_ONE },
    { "self_attn.o_proj.weight", "CO", FACT_ATTENTION, WEIGHT, BLOCK(o.w), INIT_NORMAL },
    { "self_attn.o_proj.bias", "C", FACT_ATTENTION | FACT_O_BIAS, RULE_F32, BLOCK(o.bias),
      INIT_ZERO },
    { "mlp.gate_proj.weight", "FC", FACT_FFN, WEIGHT, BLOCK(ffn.gate.w), INIT_NORMAL },
    { "mlp.up_proj.weight", "FC", FACT_FFN, WEIGHT, BLOCK(ffn.up.w), INIT_NORMAL },
    { "mlp.down_proj.weight", "CF", FACT_FFN, WEIGHT, BLOCK(ffn.down.w), INIT_NORMAL },
    { "mlp.gate_proj.bias", "F", FACT_FFN | FACT_MLP_BIAS, RULE_F32, BLOCK(ffn.gate.bias),
      INIT_ZERO },
    { "mlp.up_proj.bias", "F", FACT_FFN | FACT_MLP_BIAS, RULE_F32, BLOCK(ffn.up.bias), INIT_ZERO },
    { "mlp.down_proj.bias", "C", FACT_FFN | FACT_MLP_BIAS, RULE_F32, BLOCK(ffn.down.bias),
      INIT_ZERO },
    { 0 },
};

const tensor_rule attention_tensors[] = {
    { "self_attn.q_proj.weight", "HC", 0, WEIGHT, BLOCK(q.w), INIT_NORMAL },
    { "self_attn.k_proj.weight", "KC", FACT_KEYS, WEIGHT, BLOCK(k.w), INIT_NORMAL },
    { "self_attn.v_proj.weight", "KC", FACT_VALUES, WEIGHT, BLOCK(v.w), INIT_NORMAL },
    { "self_attn.q_proj.bias", "H", FACT_QKV_BIAS, RULE_F32, BLOCK(q.bias), INIT_ZERO },
    { "self_attn.k_proj.bias", "K", FACT_KEYS | FACT_QKV_BIAS, RULE_F32, BLOCK(k.bias), INIT_ZERO },
    { "self_attn.v_proj.bias", "K", FACT_VALUES | FACT_QKV_BIAS, RULE_F32, BLOCK(v.bias),
      INIT_ZERO },
    { 0 },
};

/* Norms before and after each sublayer, by Gemma's names. */
const tensor_rule sandwich_tensors[] = {
    { "input_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_norm), INIT_ONE },
    { "post_attention_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_post), INIT_ONE },
    { "pre_feedforward_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_norm), INIT_ONE },
    { "post_feedforward_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_post), INIT_ONE },
    { 0 },
};

/* OLMo 2: norms after the sublayers alone. */
const tensor_rule norm_after_tensors[] = {
    { "post_attention_layernorm.weight", "C", 0, RULE_F32, BLOCK(attn_post), INIT_ONE },
    { "post_feedforward_layernorm.weight", "C", 0, RULE_F32, BLOCK(ffn_post), INIT_ONE },
    { 0 },
};

const tensor_rule qk_norm_tensors[] = {
    { "self_attn.q_norm.weight", "D", FACT_NORM_HEAD, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.k_norm.weight", "D", FACT_KEYS | FACT_NORM_HEAD, RULE_F32, BLOCK(k_norm),
      INIT_ONE },
    { "self_attn.q_norm.weight", "H", FACT_NORM_ROW, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.k_norm.weight", "K", FACT_NORM_ROW, RULE_F32, BLOCK(k_norm), INIT_ONE },
    { 0 },
};

const tensor_rule mla_tensors[] = {
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

const tensor_rule mixtral_tensors[] = {
    { "block_sparse_moe.gate.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    FULL_EXPERTS("block_sparse_moe.experts.{e}", "w1", "w3", "w2"),
    { 0 },
};

const tensor_rule expert_tensors[] = {
    { "mlp.gate.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    FULL_EXPERTS("mlp.experts.{e}", "gate_proj", "up_proj", "down_proj"),
    { 0 },
};

const tensor_rule deepseek_shared_tensors[] = {
    SHARED_FFN("mlp.shared_experts"),
    { "mlp.shared_experts.gate_proj.bias", "S", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.gate.bias), INIT_ZERO },
    { "mlp.shared_experts.up_proj.bias", "S", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.up.bias), INIT_ZERO },
    { "mlp.shared_experts.down_proj.bias", "C", FACT_SHARED | FACT_MLP_BIAS, RULE_F32,
      BLOCK(moe.shared.down.bias), INIT_ZERO },
    { 0 },
};

const tensor_rule adapter_tensors[] = {
    { "mlp.moe_adapter.router.weight", "EC", FACT_ADAPTER, RULE_F32 | RULE_TRAIN, BLOCK(moe.router),
      INIT_UNIFORM },
    { "mlp.moe_adapter.experts.expert_{e}.adapter_down.weight", "MC", FACT_ADAPTER,
      RULE_EXPERT | RULE_TRAIN, BLOCK(moe.down), INIT_UNIFORM },
    { "mlp.moe_adapter.experts.expert_{e}.adapter_up.weight", "CM", FACT_ADAPTER,
      RULE_EXPERT | RULE_TRAIN, BLOCK(moe.up), INIT_ZERO },
    { 0 },
};

/* M is the rank. */
const tensor_rule molora_tensors[] = {
    { "mlp.molora.router.weight", "EC", FACT_MOLORA, RULE_F32 | RULE_TRAIN, BLOCK(moe.router),
      INIT_UNIFORM },
    { "mlp.gate_proj.experts.{e}.lora_A.weight", "MC", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_gate.a), INIT_UNIFORM },
    { "mlp.gate_proj.experts.{e}.lora_B.weight", "FM", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_gate.b), INIT_ZERO },
    { "mlp.up_proj.experts.{e}.lora_A.weight", "MC", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_up.a), INIT_UNIFORM },
    { "mlp.up_proj.experts.{e}.lora_B.weight", "FM", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_up.b), INIT_ZERO },
    { "mlp.down_proj.experts.{e}.lora_A.weight", "MF", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_down.a), INIT_UNIFORM },
    { "mlp.down_proj.experts.{e}.lora_B.weight", "CM", FACT_MOLORA, RULE_EXPERT | RULE_TRAIN,
      BLOCK(moe.lora_down.b), INIT_ZERO },
    { 0 },
};

/* Of any mixture whose family has no such bias. */
const tensor_rule added_bias_tensors[] = {
    { "mlp.e_score_correction_bias", "E", FACT_SPARSE, RULE_F32, BLOCK(moe.router_bias),
      INIT_ZERO },
    { 0 },
};
