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

/* ---- rows ---- */

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
        .chat = "chatml",
        .facts = { .recurrent = MIXER_CONV,
                   .qk_norm = QK_NORM_HEAD,
                   .ropes = { { .theta = 1e6F } },
                   .moe = { .kind = EXPERT_FFN,
                            .topk = { .score = SCORE_SIGMOID, .sum_more = 1e-6F } } },
    },
    { 0 },
};
