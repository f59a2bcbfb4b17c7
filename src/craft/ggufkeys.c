/* ggufkeys: the facts of a configuration as metadata of a GGUF file. */
#include "craft/ggufkeys.h"

#include "arch/family.h"
#include "arch/rope_freq.h"
#include "base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct keys {
    gguf_writer *w;
    const char *arch;
} keys;

/* ---- one key below the architecture's name ---- */

typedef struct key_text {
    char text[96];
} key_text;

static key_text key_of(const keys *k, const char *name)
{
    key_text t;
    snprintf(t.text, sizeof t.text, "%s.%s", k->arch, name);
    return t;
}

static void put_int(const keys *k, const char *name, int64_t value)
{
    gguf_put_u32(k->w, key_of(k, name).text, value);
}

static void put_real(const keys *k, const char *name, float value)
{
    gguf_put_f32(k->w, key_of(k, name).text, (double)value);
}

/* ---- what every model has ---- */

static bool has_window(const config *c)
{
    bool any = false;
    for (int32_t l = 0; l < c->n_layers; l++)
        any |= config_layer_window(c, l) > 0;
    return any;
}

static int32_t is_windowed(const void *c, int32_t layer)
{
    return config_layer_window(c, layer) != 0;
}

/* Layers with and without a window that differ: their kinds, what only some of them have, and the
 * heads of those with one beside the usual keys, which are of the others. */
static void put_kinds(const keys *k, const config *c)
{
    gguf_put_bools(k->w, key_of(k, "attention.sliding_window_pattern").text, is_windowed, c,
                   c->n_layers);
    put_int(k, "attention.shared_kv_layers", c->n_kv_shared);
    put_int(k, "embedding_length_per_layer_input", c->layer_input_dim);
    put_int(k, "attention.key_length_swa", c->head_dim);
    put_int(k, "attention.value_length_swa", c->head_dim);
    put_int(k, "rope.dimension_count_swa", config_rot_dim(c));
}

/* What few families have. */
static void put_scales(const keys *k, const config *c)
{
    if (c->full_head_dim)
        put_kinds(k, c);
    else if (has_window(c) && c->window_pattern)
        put_int(k, "attention.sliding_window_pattern", c->window_pattern);
    if (c->n_ropes > 1)
        put_real(k, "rope.freq_base_swa", c->ropes[1].theta);
    if (c->attn_scale != 0 && !c->full_head_dim) {
        put_real(k, "attention.scale", c->attn_scale);
        put_real(k, "embedding_scale", c->embed_scale);
        put_real(k, "residual_scale", c->residual_scale);
        put_real(k, "logit_scale", c->logit_divisor);
    }
    if (c->attn_softcap != 0)
        put_real(k, "attn_logit_softcapping", c->attn_softcap);
    if (c->logit_softcap != 0)
        put_real(k, "final_logit_softcapping", c->logit_softcap);
    if (c->q_scale_beta != 0)
        put_real(k, "attention.temperature_scale", c->q_scale_beta);
}

static int32_t is_recurrent(const void *c, int32_t layer)
{
    return config_layer_mixer(c, layer) != MIXER_ATTENTION;
}

/* Which layers have attention: every so many, or a list. */
static void put_recurrent(const keys *k, const config *c)
{
    bool regular = true;
    int32_t interval = 1;
    while (interval <= c->n_layers && is_recurrent(c, interval - 1))
        interval++;
    for (int32_t l = 0; l < c->n_layers; l++)
        regular = regular && is_recurrent(c, l) == ((l + 1) % interval != 0);
    if (regular)
        put_int(k, "full_attention_interval", interval);
    else
        gguf_put_bools(k->w, key_of(k, "attention.recurrent_layers").text, is_recurrent, c,
                       c->n_layers);
}

/* Which pairs turn by time, height and width: a third each, in the order of what is left over. */
static int32_t section(const void *c, int32_t i)
{
    const int32_t pairs = config_rot_dim(c) / 2;
    return i < 3 ? (pairs + 2 - i) / 3 : 0;
}

/* A convolution or a delta net in the place of attention. llama.cpp looks for
 * rope.dimension_sections, though a text has one position. */
static void put_mixers(const keys *k, const config *c)
{
    if (c->recurrent == MIXER_CONV)
        put_int(k, "shortconv.l_cache", c->conv_taps);
    if (c->recurrent != MIXER_DELTA)
        return;
    put_int(k, "ssm.conv_kernel", c->conv_taps);
    put_int(k, "ssm.group_count", c->delta_k_heads);
    put_int(k, "ssm.time_step_rank", c->delta_v_heads);
    put_int(k, "ssm.state_size", c->delta_k_dim);
    put_int(k, "ssm.inner_size", config_delta_values(c));
    put_recurrent(k, c);
    if (!c->delta_grouped)
        gguf_put_i32s(k->w, key_of(k, "rope.dimension_sections").text, section, c, 4);
}

static int32_t kv_heads_of(const void *c, int32_t layer)
{
    return is_recurrent(c, layer) ? 0 : config_kv_heads(c);
}

static int32_t kind_heads_of(const void *c, int32_t layer)
{
    return config_heads(c, layer).kv_heads;
}

static int32_t ffn_of(const void *c, int32_t layer)
{
    return config_layer_ffn(c, layer);
}

/* One number, where layers do not differ. */
static void put_ffn(const keys *k, const config *c)
{
    const char *name = "feed_forward_length";
    if (config_widest_ffn(c) != c->ffn_dim)
        gguf_put_i32s(k->w, key_of(k, name).text, ffn_of, c, c->n_layers);
    else if (c->ffn_dim)
        put_int(k, name, c->ffn_halved ? 2 * c->ffn_dim : c->ffn_dim);
}

/* One number, or 0 for layers with a convolution. */
static void put_kv_heads(const keys *k, const config *c)
{
    if (c->full_kv_heads != 0 && c->full_kv_heads != c->n_kv_heads)
        gguf_put_i32s(k->w, key_of(k, "attention.head_count_kv").text, kind_heads_of, c,
                      c->n_layers);
    else if (c->recurrent == MIXER_CONV)
        gguf_put_i32s(k->w, key_of(k, "attention.head_count_kv").text, kv_heads_of, c, c->n_layers);
    else
        put_int(k, "attention.head_count_kv", config_kv_heads(c));
}

static void put_sizes(const keys *k, const config *c)
{
    put_int(k, "context_length", c->context);
    put_int(k, "embedding_length", c->dim);
    put_int(k, "block_count", c->n_layers);
    put_ffn(k, c);
    put_int(k, "attention.head_count", c->n_heads);
    put_kv_heads(k, c);
    put_mixers(k, c);
    put_int(k, "attention.key_length", c->full_head_dim ? c->full_head_dim : config_qk_dim(c));
    put_int(k, "attention.value_length", c->full_head_dim ? c->full_head_dim : config_v_dim(c));
    put_real(k, "attention.layer_norm_rms_epsilon", c->norm_eps);
    put_int(k, "vocab_size", c->vocab);
    put_int(k, "rope.dimension_count", config_rope_dim(c, 0));
    put_real(k, "rope.freq_base", c->ropes[0].theta);
    if (has_window(c))
        put_int(k, "attention.sliding_window", c->window);
    put_scales(k, c);
    if (!config_mla(c))
        return;
    if (c->q_lora_rank)
        put_int(k, "attention.q_lora_rank", c->q_lora_rank);
    put_int(k, "attention.kv_lora_rank", c->kv_lora_rank);
}

static void put_rope(const keys *k, const config *c)
{
    const rope_rule *r = &c->ropes[0];
    const float unit = c->q_scale_beta != 0 ? 1 : 0.1F; /* llama.cpp has it in two units */
    if (r->kind != ROPE_LINEAR && r->kind != ROPE_YARN)
        return; /* Llama 3's rule is a tensor */
    gguf_put_text(k->w, key_of(k, "rope.scaling.type").text,
                  r->kind == ROPE_LINEAR ? "linear" : "yarn");
    put_real(k, "rope.scaling.factor", r->factor);
    if (r->kind == ROPE_LINEAR)
        return;
    put_int(k, "rope.scaling.original_context_length", r->original);
    put_real(k, "rope.scaling.yarn_beta_fast", r->beta_fast);
    put_real(k, "rope.scaling.yarn_beta_slow", r->beta_slow);
    if (r->mscale_all != 0)
        put_real(k, "rope.scaling.yarn_log_multiplier", unit * r->mscale_all);
}

/* ---- mixtures ---- */

static void put_mixture(const keys *k, const config *c)
{
    enum { SOFTMAX = 1, SIGMOID = 2, SOFTMAX_OF_CHOSEN = 3 };
    const moe_rule *m = &c->moe;
    /* over what was chosen, of logits with a bias: gpt-oss; elsewhere it is said by the norm */
    int64_t gating = m->topk.score == SCORE_SIGMOID ? SIGMOID
                     : c->sinks                     ? SOFTMAX_OF_CHOSEN
                                                    : SOFTMAX;
    put_int(k, "expert_count", m->topk.n_experts);
    put_int(k, "expert_used_count", m->topk.k);
    if (m->kind == EXPERT_ADAPTER) {
        put_int(k, "adapter_length", m->expert_dim);
        put_real(k, "adapter_scale", m->adapter_scale);
        gguf_put_text(k->w, key_of(k, "adapter_act").text, config_act_name(m->adapter_act));
        gguf_put_text(k->w, key_of(k, "adapter_router").text,
                      m->topk.score_after_topk ? "softmax-after" : "softmax-before");
        return;
    }
    put_int(k, "expert_feed_forward_length", m->expert_dim);
    gguf_put_bool(k->w, key_of(k, "expert_weights_norm").text, m->topk.renormalise);
    put_int(k, "expert_gating_func", gating);
    if (m->shared_dim && !config_mla(c))
        put_int(k, "expert_shared_feed_forward_length", m->shared_dim);
    if (m->n_shared && !m->shared_gate)
        put_int(k, "expert_shared_count", m->n_shared);
    if (m->has_bias && c->sparse_shift)
        put_int(k, "interleave_moe_layer_step", c->sparse_step);
    if (config_mla(c) || m->topk.scale != 1)
        put_real(k, "expert_weights_scale", m->topk.scale);
    if (config_mla(c) || c->first_sparse)
        put_int(k, "leading_dense_block_count", c->first_sparse);
    if (m->topk.n_groups > 1) {
        put_int(k, "expert_group_count", m->topk.n_groups);
        put_int(k, "expert_group_used_count", m->topk.k_groups);
    }
}

/* ---- what GGUF cannot say ---- */

static const char *unsaid(const config *c)
{
    const rope_rule *r = &c->ropes[0];
    if (r->kind == ROPE_DYNAMIC || r->kind == ROPE_LONG || r->attention_factor != 0 ||
        (r->kind == ROPE_YARN && !r->truncate && !c->sinks))
        return "rope_scaling";
    if (c->n_ropes > 1 && c->ropes[1].kind != ROPE_PLAIN)
        return "rope_parameters.sliding_attention";
    if (r->kind == ROPE_YARN && r->mscale != r->mscale_all)
        return "rope_scaling.mscale";
    if (c->full_head_dim && r->kind != ROPE_PROPORTIONAL && r->kind != ROPE_PLAIN)
        return "rope_parameters.full_attention";
    const bool gelu = c->embed_sqrt_dim && (c->norm_shift != 0 || c->full_head_dim);
    if (c->act != (gelu ? ACT_GELU_TANH : c->sinks ? ACT_CLAMPED : ACT_SILU))
        return "hidden_act";
    if (c->conv_bias)
        return "conv_bias";
    if (config_adapters_on_experts(c))
        return "adapters beside the experts of a mixture";
    if (c->moe.kind == EXPERT_LORA)
        return "mixture of LoRA";
    return NULL;
}

pesc_status ggufkeys_check(const config *c, const struct gguf_arch *arch, const char *path)
{
    const char *what = has_window(c) && !gguf_arch_windows(arch) ? "sliding_window" : unsaid(c);
    return what ? fail(PESC_UNSUPPORTED, "%s: a GGUF file has no place for its %s", path, what)
                : PESC_OK;
}

/* llama.cpp reads the theta of layers with a window for Gemma alone. */
static void notice_thetas(const config *c, const char *path)
{
    const float all = c->ropes[0].theta, windowed = c->ropes[1].theta;
    const bool read = c->norm_shift != 0 || c->full_head_dim != 0;
    if (has_window(c) && c->n_ropes > 1 && !read && windowed != all)
        log_notice("%s: its layers with a window rotate with theta %g, and llama.cpp rotates all "
                   "layers of %s with %g",
                   path, (double)windowed, c->fam->name, (double)all);
}

/* llama.cpp knows some windows by the architecture alone. */
static void notice_windows(const config *c, const char *path)
{
    static const struct {
        const char *model_type;
        int32_t pattern, layers; /* 0: any number of layers; pattern 0: no window at all */
    } assumed[] = { { "mistral", 0, 0 }, { "sparsetral", 0, 0 },  { "phi3", 0, 0 },
                    { "gemma2", 2, 0 },  { "gemma3_text", 6, 0 }, { "exaone4", 4, 64 },
                    { "gpt_oss", 2, 0 }, { "olmo3", 4, 0 },       { "afmoe", 4, 0 } };
    for (size_t i = 0; has_window(c) && i < sizeof assumed / sizeof *assumed; i++) {
        const int32_t pattern = assumed[i].pattern;
        bool same = pattern && (!assumed[i].layers || assumed[i].layers == c->n_layers);
        if (strcmp(c->fam->model_type, assumed[i].model_type) != 0)
            continue;
        for (int32_t l = 0; pattern && l < c->n_layers; l++)
            same &= (config_layer_window(c, l) > 0) == ((l + 1) % pattern != 0);
        if (!pattern)
            log_notice("%s: llama.cpp does not limit attention to its window of %d tokens", path,
                       c->window);
        else if (!same)
            log_notice("%s: llama.cpp gives its window of %d tokens to other layers", path,
                       c->window);
    }
}

/* What llama.cpp has no key for, or does not read, in layers without attention and beside them. */
static void notice_mixers(const config *c, const char *path)
{
    if (c->recurrent == MIXER_DELTA && c->delta_k_dim != c->delta_v_dim)
        log_notice("%s: llama.cpp loads a %s model only where the heads of keys and values in its "
                   "delta nets are as wide, which are %d and %d here",
                   path, c->fam->name, c->delta_k_dim, c->delta_v_dim);
    if (c->recurrent != MIXER_CONV || c->moe.kind != EXPERT_FFN)
        return;
    if (c->moe.topk.scale != 1)
        log_notice("%s: its routed_scaling_factor is %g, and llama.cpp computes %s without one",
                   path, (double)c->moe.topk.scale, c->fam->name);
    if (!c->moe.has_bias)
        log_notice("%s: its use_expert_bias is false, and llama.cpp loads %s only with one", path,
                   c->fam->name);
}

/* Of the layers that project keys, llama.cpp takes the last for those without a window and the last
 * but one for those with one. */
static void notice_lenders(const config *c, const char *path)
{
    bool other = false;
    for (int32_t l = c->n_layers - c->n_kv_shared; l < c->n_layers; l++)
        other |= config_layer_kv(c, l) !=
                 c->n_layers - c->n_kv_shared - (config_layer_window(c, l) ? 2 : 1);
    if (other)
        log_notice(
            "%s: its last %d layers share the keys of other layers than those that llama.cpp "
            "takes",
            path, c->n_kv_shared);
}

/* What llama.cpp assumes of an architecture, whatever the file says. */
void ggufkeys_notice(const config *c, const char *path)
{
    static const struct {
        const char *model_type;
        bool renormalise;
    } assumed[] = { { "qwen2_moe", false },
                    { "olmoe", false },
                    { "qwen3_moe", true },
                    { "qwen3_next", true },
                    { "lfm2_moe", true } };
    if (c->moe.kind == EXPERT_ADAPTER) {
        log_notice("%s: has adapters (PESC): only pesc reads a GGUF file of architecture camelidae",
                   path);
        return;
    }
    for (size_t i = 0; i < sizeof assumed / sizeof *assumed; i++)
        if (strcmp(c->fam->model_type, assumed[i].model_type) == 0 &&
            c->moe.topk.renormalise != assumed[i].renormalise)
            log_notice("%s: its norm_topk_prob is %s, and llama.cpp always computes %s with %s",
                       path, c->moe.topk.renormalise ? "true" : "false", c->fam->name,
                       assumed[i].renormalise ? "true" : "false");
    bool dense = false;
    for (int32_t l = 0; l < c->n_layers; l++)
        dense |= c->moe.kind == EXPERT_FFN && l >= c->first_sparse &&
                 !(c->moe.has_bias && c->sparse_shift) && !config_layer_sparse(c, l);
    if (dense)
        log_notice("%s: some of its layers have a plain FFN, which llama.cpp does not load in %s",
                   path, c->fam->name);
    if (config_mla(c) && !c->q_lora_rank && c->n_layers != 27)
        log_notice("%s: llama.cpp loads a %s model without q_lora_rank only when it has 27 layers",
                   path, c->fam->name);
    notice_mixers(c, path);
    notice_lenders(c, path);
    notice_thetas(c, path);
    notice_windows(c, path);
}

void ggufkeys_put(gguf_writer *w, const config *c, const char *arch)
{
    keys k = { w, arch };
    put_sizes(&k, c);
    put_rope(&k, c);
    if (c->moe.kind != EXPERT_NONE)
        put_mixture(&k, c);
}

/* ---- Llama 3's rule, and the proportional one ---- */

/* Gemma 4: pairs beyond the part that rotates are divided by what leaves them where they are. */
static int32_t proportional_factors(const config *c, float *out)
{
    const rope_rule *r = &c->ropes[0];
    const int32_t dim = config_rope_dim(c, 0), turning = rope_turning(r, dim);
    for (int32_t i = 0; i < dim / 2; i++)
        out[i] = r->kind == ROPE_PLAIN ? 1 : i < turning ? r->factor : 1e30F;
    return dim / 2;
}

int32_t ggufkeys_rope_factors(const config *c, float *out)
{
    int32_t pairs = config_rot_dim(c) / 2;
    const rope_rule *r = &c->ropes[0];
    double low = (double)r->low, high = (double)r->high, old = r->original;
    if (c->full_head_dim)
        return proportional_factors(c, out);
    if (r->kind != ROPE_LLAMA3)
        return 0;
    for (int32_t i = 0; i < pairs; i++) {
        double wavelength =
            2 * 3.14159265358979323846 * pow((double)r->theta, (double)i / (double)pairs);
        double smooth = (old / wavelength - low) / (high - low);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        out[i] = (float)(1 / ((1 - smooth) / (double)r->factor + smooth));
    }
    return pairs;
}
