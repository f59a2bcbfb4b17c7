/* The rows of family.h, mixtures of experts whose routers choose by their scores alone; those with
 * a bias that chooses are in family_biased.c. */
#include "arch/family_tables.h"

/* ---- keys ---- */

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
    ATTENTION_BIAS(false),
    { 0 },
};

static const config_key olmoe_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    ATTENTION_BIAS(false),
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
    ATTENTION_BIAS(false),
    { 0 },
};

/* In the file intermediate_size is the width of an expert. */
static const config_key gpt_oss_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok|experts_per_token", moe.topk.k, 1, MAX_EXPERTS, 4),
    INT("head_dim", head_dim, 1, 1 << 14, 64),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 128),
    ATTENTION_BIAS(true),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    { 0 },
};

/* The multipliers of granite; intermediate_size is the width of an expert. */
static const config_key granitemoe_keys[] = {
    REAL("router_aux_loss_coef", moe.aux_coef, 0, 1e6, 0.001),
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 2),
    ATTENTION_BIAS(false),
    { 0 },
};

static const config_key expert_count_keys[] = {
    NEED("num_local_experts|num_experts", moe.topk.n_experts, 1, MAX_EXPERTS),
    { 0 },
};

static const config_key granitemoeshared_keys[] = {
    INT("shared_intermediate_size", moe.shared_dim, 0, MAX_FFN, 1024),
    { 0 },
};

/* Without experts it is a dense model of the width that experts would share. */
static const config_key granitemoehybrid_keys[] = {
    INT("num_local_experts", moe.topk.n_experts, 0, MAX_EXPERTS, 8),
    INT("shared_intermediate_size", moe.shared_dim, 1, MAX_FFN, 1024),
    { 0 },
};

static const config_key hunyuan_moe_keys[] = {
    EXPERTS,
    INT_OR_LIST("moe_topk|num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 1),
    ATTENTION_BIAS(false),
    REAL("rms_norm_eps", norm_eps, 1e-30, 1, 1e-5),
    TRUE_ALWAYS("use_qk_norm"),
    { 0 },
};

static const config_key mellum_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 8),
    FLAG("norm_topk_prob", moe.topk.renormalise, true),
    INT("moe_intermediate_size", moe.expert_dim, 1, MAX_FFN, 896),
    INT("head_dim", head_dim, 1, 1 << 14, 128),
    INT_OR_NULL("sliding_window", window, 1, MAX_CONTEXT, 1024),
    ATTENTION_BIAS(false),
    INT("num_nextn_predict_layers|num_mtp_layers", n_prediction_layers, 0, MAX_LAYERS, 0),
    { 0 },
};

static const config_key flex_olmo_keys[] = {
    EXPERTS,
    INT("num_experts_per_tok", moe.topk.k, 1, MAX_EXPERTS, 5),
    FLAG("norm_topk_prob", moe.topk.renormalise, false),
    FLAG("attention_bias", qkv_bias, false),
    FLAG("attention_bias", o_bias, false),
    { 0 },
};

/* ---- tensors ---- */

/* Qwen2-MoE has one shared expert with a gate, DeepSeek several without; either is one FFN. */
const tensor_rule qwen2_shared_tensors[] = {
    SHARED_FFN("mlp.shared_expert"),
    { "mlp.shared_expert_gate.weight", "1C", FACT_SHARED_GATE, RULE_F32, BLOCK(moe.shared_gate),
      INIT_NORMAL },
    { 0 },
};

/* Experts as transformers 5 holds them; PEFT does not find those of files beside shared ones. */
static const fused_rule qwen2_moe_fused[] = {
    { "mlp.experts.gate_up_proj",
      { "mlp.experts.{e}.gate_proj.weight", "mlp.experts.{e}.up_proj.weight" },
      FUSED_UNWRITTEN },
    { "mlp.experts.down_proj", { "mlp.experts.{e}.down_proj.weight" }, FUSED_UNWRITTEN },
    { 0 },
};

static const tensor_rule granitemoe_tensors[] = {
    { "block_sparse_moe.router.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router),
      INIT_NORMAL },
    FULL_EXPERTS("block_sparse_moe.experts.{e}", "gate_proj", "up_proj", "down_proj"),
    SHARED_FFN("shared_mlp"),
    { 0 },
};

/* Newer files have gate_up_proj and down_proj. The last two are of models without experts. */
static const fused_rule granitemoe_fused[] = {
    { "block_sparse_moe.router.layer.weight", { "block_sparse_moe.router.weight" }, 0 },
    { "block_sparse_moe.input_linear.weight",
      { "block_sparse_moe.experts.{e}.gate_proj.weight",
        "block_sparse_moe.experts.{e}.up_proj.weight" },
      0 },
    { "block_sparse_moe.output_linear.weight",
      { "block_sparse_moe.experts.{e}.down_proj.weight" },
      0 },
    { "block_sparse_moe.experts.gate_up_proj",
      { "block_sparse_moe.experts.{e}.gate_proj.weight",
        "block_sparse_moe.experts.{e}.up_proj.weight" },
      0 },
    { "block_sparse_moe.experts.down_proj",
      { "block_sparse_moe.experts.{e}.down_proj.weight" },
      0 },
    { "shared_mlp.input_linear.weight",
      { "shared_mlp.gate_proj.weight", "shared_mlp.up_proj.weight" },
      0 },
    { "shared_mlp.output_linear.weight", { "shared_mlp.down_proj.weight" }, 0 },
    { "shared_mlp.input_linear.weight", { "mlp.gate_proj.weight", "mlp.up_proj.weight" }, 0 },
    { "shared_mlp.output_linear.weight", { "mlp.down_proj.weight" }, 0 },
    { 0 },
};

/* HunYuan's names of the norms, the router and the expert that all tokens share. */
static const tensor_rule hunyuan_moe_tensors[] = {
    { "self_attn.query_layernorm.weight", "D", 0, RULE_F32, BLOCK(q_norm), INIT_ONE },
    { "self_attn.key_layernorm.weight", "D", 0, RULE_F32, BLOCK(k_norm), INIT_ONE },
    SHARED_FFN("mlp.shared_mlp"),
    { 0 },
};

static const fused_rule hunyuan_moe_fused[] = {
    { "mlp.gate.wg.weight", { "mlp.gate.weight" }, 0 },
    { 0 },
};

static const tensor_rule gpt_oss_tensors[] = {
    { "self_attn.sinks", "N", 0, RULE_F32, BLOCK(sinks), INIT_ZERO },
    { "mlp.router.weight", "EC", FACT_EXPERT, RULE_F32, BLOCK(moe.router), INIT_NORMAL },
    { "mlp.router.bias", "E", FACT_EXPERT, RULE_F32, BLOCK(moe.logit_bias), INIT_ZERO },
    FULL_EXPERTS("mlp.experts.{e}", "gate_proj", "up_proj", "down_proj"),
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
        .fused = qwen2_moe_fused,
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
    {
        .name = "granitemoe",
        .model_type = "granitemoe",
        .causal = "GraniteMoeForCausalLM",
        .keys = { common_keys, granite_keys, granitemoe_keys, expert_count_keys },
        .tensors = { frame_tensors, attention_tensors, granitemoe_tensors },
        .fused = granitemoe_fused,
        .facts = { .moe = { .kind = EXPERT_FFN, .topk = { .score_after_topk = true } } },
    },
    {
        .name = "granitemoeshared",
        .model_type = "granitemoeshared",
        .causal = "GraniteMoeSharedForCausalLM",
        .keys = { common_keys, granite_keys, granitemoe_keys, expert_count_keys,
                  granitemoeshared_keys },
        .tensors = { frame_tensors, attention_tensors, granitemoe_tensors },
        .fused = granitemoe_fused,
        .facts = { .moe = { .kind = EXPERT_FFN, .topk = { .score_after_topk = true } } },
    },
    {
        .name = "granitemoehybrid",
        .model_type = "granitemoehybrid",
        .causal = "GraniteMoeHybridForCausalLM",
        .keys = { common_keys, granite_keys, granitemoe_keys, granitemoehybrid_keys },
        .tensors = { frame_tensors, attention_tensors, granitemoe_tensors },
        .fused = granitemoe_fused,
        .facts = { .rope_by_type = true,
                   .layer_types_needed = true,
                   .moe = { .kind = EXPERT_FFN, .topk = { .score_after_topk = true } } },
    },
    {
        .name = "hunyuan_v1_moe",
        .model_type = "hunyuan_v1_moe",
        .causal = "HunYuanMoEV1ForCausalLM",
        .keys = { common_keys, hunyuan_moe_keys },
        .tensors = { frame_tensors, attention_tensors, hunyuan_moe_tensors, expert_tensors },
        .fused = hunyuan_moe_fused,
        .facts = { .qk_norm = QK_NORM_HEAD,
                   .qk_norm_rotated = true,
                   .moe = { .kind = EXPERT_FFN, .n_shared = 1, .topk = { .renormalise = true } } },
    },
    {
        .name = "mellum",
        .model_type = "mellum",
        .causal = "MellumForCausalLM",
        .keys = { common_keys, mellum_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, expert_tensors },
        .window = WINDOW_FROM,
        .facts = { .qk_norm = QK_NORM_HEAD,
                   .use_window = true,
                   .max_window_layers = MAX_LAYERS,
                   .n_ropes = 2,
                   .ropes = { { .theta = 5e5F }, { .theta = 1e4F } },
                   .moe = { .kind = EXPERT_FFN } },
    },
    {
        .name = "flex_olmo",
        .model_type = "flex_olmo",
        .causal = "FlexOlmoForCausalLM",
        .keys = { common_keys, flex_olmo_keys },
        .tensors = { frame_tensors, attention_tensors, qk_norm_tensors, norm_after_tensors,
                     expert_tensors },
        .facts = { .norms = NORM_AFTER,
                   .qk_norm = QK_NORM_ROW,
                   .ropes = { { .theta = 5e5F } },
                   .moe = { .kind = EXPERT_FFN } },
    },
    { 0 },
};
