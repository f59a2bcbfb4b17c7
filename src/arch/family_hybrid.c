/* The rows of family.h whose layers differ in what mixes their tokens: attention in some, in others
 * a convolution with a state. */
#include "arch/family_tables.h"

/* ---- keys ---- */

/* intermediate_size is not the FFN's width where block_auto_adjust_ff_dim is set. */
static const config_key lfm2_keys[] = {
    INT("block_ff_dim|intermediate_size", ffn_dim, 1, MAX_FFN, 0),
    REAL("norm_eps", norm_eps, 1e-30, 1, 1e-5),
    INT("conv_L_cache", conv_taps, 2, MAX_TAPS, 3),
    FLAG("conv_bias", conv_bias, false),
    FLAG("tie_embedding|tie_word_embeddings", tie_embeddings, true),
    { 0 },
};

static const config_key lfm2_dense_keys[] = {
    FLAG("block_auto_adjust_ff_dim", ffn_adjusted, true),
    INT("block_multiple_of", ffn_multiple, 1, MAX_FFN, 256),
    { 0 },
};

static const config_key lfm2_moe_keys[] = {
    NEED("num_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 4),
    NEED("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN),
    INT("num_dense_layers", first_sparse, 0, MAX_LAYERS, 2),
    FLAG("use_expert_bias", moe.has_bias, true),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    REAL("routed_scaling_factor", moe.topk.scale, 1e-30, 1e6, 1),
    REAL("router_aux_loss_coef", moe.aux_coef, 0, 1e6, 0.001),
    { 0 },
};

static const config_key delta_keys[] = {
    INT("head_dim", head_dim, 1, 1 << 14, 256),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    REAL("partial_rotary_factor", rotary, 1e-3, 1, 0.25),
    INT("full_attention_interval", attention_interval, 1, MAX_LAYERS, 4),
    INT("linear_conv_kernel_dim", conv_taps, 2, MAX_TAPS, 4),
    INT("linear_num_key_heads", delta_k_heads, 1, MAX_HEADS, 16),
    INT("linear_num_value_heads", delta_v_heads, 1, MAX_HEADS, 32),
    INT("linear_key_head_dim", delta_k_dim, 1, 256, 128),
    INT("linear_value_head_dim", delta_v_dim, 1, 256, 128),
    TRUE_ALWAYS("attn_output_gate"),
    { 0 },
};

static const config_key qwen3_5_moe_keys[] = {
    INT("num_experts", moe.topk.n_experts, 1, MAX_EXPERTS, 256),
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    INT("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN, 512),
    INT("shared_expert_intermediate_size", moe.shared_dim, 1, MAX_FFN, 512),
    REAL("router_aux_loss_coef", moe.aux_coef, 0, 1e6, 0.001),
    { 0 },
};

static const config_key qwen3_next_keys[] = {
    INT("num_experts", moe.topk.n_experts, 1, MAX_EXPERTS, 512),
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 10),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    INT("decoder_sparse_step", sparse_step, 1, MAX_LAYERS, 1),
    { 0 },
};

/* ---- tensors ---- */

static const tensor_rule lfm2_tensors[] = {
    { "model.embed_tokens.weight", "VC", 0, RULE_GLOBAL, MODEL(embed), INIT_NORMAL },
    { "model.embedding_norm.weight", "C", 0, RULE_GLOBAL | RULE_F32, MODEL(final_norm), INIT_ONE },
    { "lm_head.weight", "VC", FACT_UNTIED, RULE_GLOBAL, MODEL(head), INIT_NORMAL },
    { "operator_norm.weight", "C", 0, RULE_F32, BLOCK(attn_norm), INIT_ONE },
    { "ffn_norm.weight", "C", 0, RULE_F32, BLOCK(ffn_norm), INIT_ONE },
    { "self_attn.q_proj.weight", "HC", FACT_ATTENTION, WEIGHT, BLOCK(q.w), INIT_NORMAL },
    { "self_attn.k_proj.weight", "KC", FACT_ATTENTION, WEIGHT, BLOCK(k.w), INIT_NORMAL },
    { "self_attn.v_proj.weight", "KC", FACT_ATTENTION, WEIGHT, BLOCK(v.w), INIT_NORMAL },
    { "self_attn.out_proj.weight", "CH", FACT_ATTENTION, WEIGHT, BLOCK(o.w), INIT_NORMAL },
    { "self_attn.q_layernorm.weight", "D", FACT_ATTENTION, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.k_layernorm.weight", "D", FACT_ATTENTION, RULE_F32, BLOCK(k_norm), INIT_ONE },
    { "conv.in_proj.weight", "IC", FACT_CONV, WEIGHT, BLOCK(mix.in.w), INIT_NORMAL },
    { "conv.in_proj.bias", "I", FACT_CONV | FACT_CONV_BIAS, RULE_F32, BLOCK(mix.in.bias),
      INIT_ZERO },
    { "conv.conv.weight", "W1T", FACT_CONV, RULE_F32, BLOCK(mix.w), INIT_NORMAL },
    { "conv.conv.bias", "W", FACT_CONV | FACT_CONV_BIAS, RULE_F32, BLOCK(mix.bias), INIT_ZERO },
    { "conv.out_proj.weight", "CC", FACT_CONV, WEIGHT, BLOCK(mix.out.w), INIT_NORMAL },
    { "conv.out_proj.bias", "C", FACT_CONV | FACT_CONV_BIAS, RULE_F32, BLOCK(mix.out.bias),
      INIT_ZERO },
    { "feed_forward.w1.weight", "FC", FACT_FFN, WEIGHT, BLOCK(ffn.gate.w), INIT_NORMAL },
    { "feed_forward.w3.weight", "FC", FACT_FFN, WEIGHT, BLOCK(ffn.up.w), INIT_NORMAL },
    { "feed_forward.w2.weight", "CF", FACT_FFN, WEIGHT, BLOCK(ffn.down.w), INIT_NORMAL },
    { 0 },
};

static const tensor_rule lfm2_expert_tensors[] = {
    { "feed_forward.gate.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "feed_forward.expert_bias", "E", FACT_EXPERT | FACT_ROUTER_BIAS, RULE_F32,
      BLOCK(moe.router_bias), INIT_ZERO },
    { "feed_forward.experts.{e}.w1.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.gate), INIT_NORMAL },
    { "feed_forward.experts.{e}.w3.weight", "MC", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.up), INIT_NORMAL },
    { "feed_forward.experts.{e}.w2.weight", "CM", FACT_EXPERT, RULE_EXPERT | RULE_QUANT,
      BLOCK(moe.down), INIT_NORMAL },
    { 0 },
};

static const tensor_rule delta_tensors[] = {
    { "self_attn.q_proj.weight", "GC", FACT_ATTENTION, WEIGHT, BLOCK(q.w), INIT_NORMAL },
    { "self_attn.k_proj.weight", "KC", FACT_ATTENTION, WEIGHT, BLOCK(k.w), INIT_NORMAL },
    { "self_attn.v_proj.weight", "KC", FACT_ATTENTION, WEIGHT, BLOCK(v.w), INIT_NORMAL },
    { "self_attn.q_proj.bias", "G", FACT_ATTENTION | FACT_QKV_BIAS, RULE_F32, BLOCK(q.bias),
      INIT_ZERO },
    { "self_attn.k_proj.bias", "K", FACT_ATTENTION | FACT_QKV_BIAS, RULE_F32, BLOCK(k.bias),
      INIT_ZERO },
    { "self_attn.v_proj.bias", "K", FACT_ATTENTION | FACT_QKV_BIAS, RULE_F32, BLOCK(v.bias),
      INIT_ZERO },
    { "self_attn.q_norm.weight", "D", FACT_ATTENTION, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.k_norm.weight", "D", FACT_ATTENTION, RULE_F32, BLOCK(k_norm), INIT_ONE },
    { "linear_attn.conv1d.weight", "W1T", FACT_DELTA, RULE_F32, BLOCK(mix.w), INIT_NORMAL },
    { "linear_attn.dt_bias", "J", FACT_DELTA, RULE_F32, BLOCK(mix.dt_bias), INIT_ZERO },
    { "linear_attn.A_log", "J", FACT_DELTA, RULE_F32, BLOCK(mix.a_log), INIT_ZERO },
    { "linear_attn.norm.weight", "A", FACT_DELTA, RULE_F32, BLOCK(mix.norm), INIT_ONE },
    { "linear_attn.out_proj.weight", "CX", FACT_DELTA, WEIGHT, BLOCK(mix.out.w), INIT_NORMAL },
    { 0 },
};

static const tensor_rule qwen3_5_tensors[] = {
    { "linear_attn.in_proj_qkv.weight", "IC", FACT_DELTA, WEIGHT, BLOCK(mix.in.w), INIT_NORMAL },
    { "linear_attn.in_proj_z.weight", "XC", FACT_DELTA, WEIGHT, BLOCK(mix.z.w), INIT_NORMAL },
    { "linear_attn.in_proj_b.weight", "JC", FACT_DELTA, WEIGHT, BLOCK(mix.b.w), INIT_NORMAL },
    { "linear_attn.in_proj_a.weight", "JC", FACT_DELTA, WEIGHT, BLOCK(mix.a.w), INIT_NORMAL },
    { 0 },
};

static const tensor_rule qwen3_next_tensors[] = {
    { "linear_attn.in_proj_qkvz.weight", "IC", FACT_DELTA, WEIGHT, BLOCK(mix.in.w), INIT_NORMAL },
    { "linear_attn.in_proj_ba.weight", "LC", FACT_DELTA, WEIGHT, BLOCK(mix.b.w), INIT_NORMAL },
    { 0 },
};

static const fused_rule lfm2_moe_fused[] = {
    { "feed_forward.experts.gate_up_proj",
      { "feed_forward.experts.{e}.w1.weight", "feed_forward.experts.{e}.w3.weight" },
      FUSED_UNWRITTEN },
    { "feed_forward.experts.down_proj", { "feed_forward.experts.{e}.w2.weight" }, FUSED_UNWRITTEN },
    { 0 },
};

static const fused_rule qwen3_5_fused[] = {
    { "mlp.experts.gate_up_proj",
      { "mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight" },
      0 },
    { "mlp.experts.down_proj", { "mlp.experts.{e}.down_proj.weight" }, 0 },
    { 0 },
};

/* ---- rows ---- */

/* What all families with a delta net have. */
#define DELTA_FACTS                                                                                \
    .recurrent = MIXER_DELTA, .attn_gate = true, .attn_gate_in_q = true, .norm_shift = 1,          \
    .qk_norm = QK_NORM_HEAD

const family hybrid_families[] = {
    {
        .name = "lfm2",
        .model_type = "lfm2",
        .causal = "Lfm2ForCausalLM",
        .keys = { common_keys, lfm2_keys, lfm2_dense_keys },
        .tensors = { lfm2_tensors },
        .chat = "chatml",
        .facts = { .recurrent = MIXER_CONV,
                   .qk_norm = QK_NORM_HEAD,
                   .ropes = { { .theta = 1e6F } } },
    },
    {
        .name = "lfm2_moe",
        .model_type = "lfm2_moe",
        .causal = "Lfm2MoeForCausalLM",
        .keys = { common_keys, lfm2_keys, lfm2_moe_keys },
        .tensors = { lfm2_tensors, lfm2_expert_tensors },
        .fused = lfm2_moe_fused,
        .chat = "chatml",
        .facts = { .recurrent = MIXER_CONV,
                   .qk_norm = QK_NORM_HEAD,
                   .ropes = { { .theta = 1e6F } },
                   .moe = { .kind = EXPERT_FFN,
                            .topk = { .score = SCORE_SIGMOID, .sum_more = 1e-6F } } },
    },
    {
        .name = "qwen3_5",
        .model_type = "qwen3_5_text",
        .causal = "Qwen3_5ForCausalLM",
        .keys = { common_keys, delta_keys },
        .tensors = { frame_tensors, delta_tensors, qwen3_5_tensors },
        .chat = "chatml",
        .facts = { DELTA_FACTS },
    },
    {
        .name = "qwen3_5_moe",
        .model_type = "qwen3_5_moe_text",
        .causal = "Qwen3_5MoeForCausalLM",
        .keys = { common_keys, delta_keys, qwen3_5_moe_keys },
        .tensors = { frame_tensors, delta_tensors, qwen3_5_tensors, expert_tensors,
                     qwen2_shared_tensors },
        .fused = qwen3_5_fused,
        .chat = "chatml",
        .facts = { DELTA_FACTS, .moe = { .kind = EXPERT_FFN,
                                         .n_shared = 1,
                                         .shared_gate = true,
                                         .topk = { .renormalise = true } } },
    },
    {
        .name = "qwen3_next",
        .model_type = "qwen3_next",
        .causal = "Qwen3NextForCausalLM",
        .keys = { common_keys, delta_keys, qwen3_5_moe_keys, qwen3_next_keys },
        .tensors = { frame_tensors, delta_tensors, qwen3_next_tensors, expert_tensors,
                     qwen2_shared_tensors },
        .chat = "chatml",
        .facts = { DELTA_FACTS, .delta_grouped = true, .sparse_shift = 1,
                   .moe = { .kind = EXPERT_FFN, .n_shared = 1, .shared_gate = true } },
    },
    { 0 },
};
