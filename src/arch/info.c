#include "arch/info.h"

#include "arch/bind.h"
#include "arch/family.h"

#include <stdio.h>
#include <string.h>

pesc_status info_count(const config *c, const char *file, info_counts *out)
{
    *out = (info_counts){ 0 };
    const uint64_t most = (uint64_t)1 << 62;
    for (slot s = slot_first(); slot_next(c, &s);) {
        uint64_t n = (uint64_t)slot_count(&s), all = n, active = n;
        if (s.expert == 0) { /* counts for the whole stack */
            const topk_rule *of = &slot_moe(c, &s)->topk;
            if (__builtin_mul_overflow(n, (uint64_t)of->n_experts, &all))
                all = most;
            active = n * (uint64_t)of->k;
            s.expert = of->n_experts - 1;
        }
        if (all >= most || out->total + all >= most)
            return fail(PESC_FORMAT, "%s: describes a model of more than 2^62 parameters", file);
        out->total += all;
        out->activated += active;
        out->trainable += s.rule->flags & RULE_TRAIN ? all : 0;
    }
    return PESC_OK;
}

/* The dtype that most bytes are stored in. */
static dtype usual_dtype(const weights *ws)
{
    uint64_t bytes[DT_COUNT] = { 0 };
    int best = DT_F32;
    for (size_t i = 0; i < weights_count(ws); i++)
        bytes[weights_at(ws, i)->dt] += weights_at(ws, i)->bytes;
    for (int i = 0; i < DT_COUNT; i++)
        if (bytes[i] > bytes[best])
            best = i;
    return (dtype)best;
}

static void fill_router(const config *c, pesc_model_info *out)
{
    const topk_rule *t = &c->moe.topk;
    bool one = t->score_after_topk || t->renormalise; /* the gates of a token sum to 1 */
    const char *router = t->score == SCORE_SIGMOID ? "sigmoid"
                         : one                     ? "softmax-after"
                                                   : "softmax-before";
    snprintf(out->router, sizeof out->router, "%s", router);
    if (c->moe.kind == EXPERT_ADAPTER)
        snprintf(out->adapter_act, sizeof out->adapter_act, "%s",
                 config_act_name(c->moe.adapter_act));
    for (int32_t i = 0; i < c->n_layers; i++)
        out->sparse_layers += config_layer_sparse(c, i);
}

pesc_status info_fill(const config *c, const hfdir *dir, pesc_model_info *out)
{
    info_counts n;
    const moe_rule *r = &c->moe, *full = config_experts(c);
    bool adapters = r->kind == EXPERT_ADAPTER;
    TRY(info_count(c, dir->config_file, &n));
    *out = (pesc_model_info){
        .dim = c->dim,
        .layers = c->n_layers,
        .heads = c->n_heads,
        .kv_heads = config_kv_heads(c),
        .head_dim = config_qk_dim(c),
        .ffn_dim = c->ffn_dim,
        .vocab = c->vocab,
        .context = c->context,
        .params_total = n.total,
        .params_activated = n.activated,
        .params_trainable = n.trainable,
    };
    snprintf(out->family, sizeof out->family, "%s", c->family);
    snprintf(out->format, sizeof out->format, "%s", dir->format);
    if (r->kind != EXPERT_NONE) {
        out->experts = r->topk.n_experts;
        out->top_k = r->topk.k;
        out->shared_experts = full->n_shared;
        out->adapter_dim = adapters ? r->expert_dim : 0;
        out->expert_dim = full->kind == EXPERT_ADAPTER ? 0 : full->expert_dim;
        out->ffn_experts = c->ffn_moe.topk.n_experts;
        out->ffn_top_k = c->ffn_moe.topk.k;
        out->adapter_scale = adapters ? (double)r->adapter_scale : 0;
        fill_router(c, out);
    }
    if (dir->ws) {
        snprintf(out->dtype, sizeof out->dtype, "%s", dtype_name(usual_dtype(dir->ws)));
        out->n_tensors = weights_count(dir->ws);
        out->n_files = weights_files(dir->ws);
        out->bytes = weights_bytes(dir->ws);
    }
    return PESC_OK;
}

const chat_format *info_chat(const config *c, const pesc_tokenizer *tok)
{
    const char *jinja = tok ? tokenizer_chat_template(tok) : NULL;
    if (jinja)
        return chat_recognise(jinja);
    bool camelidae =
        c->moe.kind == EXPERT_ADAPTER && !c->fam->adapters && !config_adapters_on_experts(c);
    const char *name = camelidae ? "camelidae" : c->fam->chat;
    return name ? chat_find(name) : NULL;
}

pesc_status info_stop(const chat_writer *w, const pesc_tokenizer *tok, char *text, size_t cap)
{
    size_t n = 0;
    int32_t id = -1;
    text[0] = '\0';
    TRY(chat_stop_token(w, &id));
    const char *token = id >= 0 ? tokenizer_token(tok, id, &n) : NULL;
    if (token && n < cap) {
        memcpy(text, token, n);
        text[n] = '\0';
    }
    return PESC_OK;
}

void info_text(pesc_model_info *out, const pesc_tokenizer *tok, const chat_writer *w)
{
    snprintf(out->tokenizer, sizeof out->tokenizer, "%s", tok ? tokenizer_kind(tok) : "");
    const chat_format *like = chat_otherwise(w);
    snprintf(out->chat, sizeof out->chat, "%s",
             like             ? chat_name(like)
             : chat_is_own(w) ? CHAT_OWN
                              : "");
}
