/* The FLOP that cost.h counts from a configuration are those of the products that the ops of a
 * device are asked for: every product of an inference and of a training step is counted where it is
 * called. They are equal in exact integers, but for plain LoRA in training: there backward repeats
 * a few of its small products (B^T dy of the FFN's last linear, A x where the A of several linears
 * cannot be multiplied as one), which the count leaves out. (tests/cli/cost.bats compares with a
 * count by hand.) */
#include "train/params.h"
#include "model/loss.h"

#include "support/check.h"
#include "support/files.h"

#include <stdio.h>

#define COMMON                                                                                     \
    "\"hidden_size\":36,\"num_hidden_layers\":3,\"num_attention_heads\":6,"                        \
    "\"intermediate_size\":52,\"vocab_size\":67,\"max_position_embeddings\":256,"                  \
    "\"initializer_range\":0.2"
#define KV ",\"num_key_value_heads\":3"
/* The last layer has the keys of the first; every layer has an input of its own. */
#define GEMMA4                                                                                     \
    "\"model_type\":\"gemma4_text\",\"head_dim\":8,\"global_head_dim\":12,\"sliding_window\":9,"   \
    "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\"],"               \
    "\"num_kv_shared_layers\":1,\"use_double_wide_mlp\":true,"                                     \
    "\"hidden_size_per_layer_input\":6,\"vocab_size_per_layer_input\":70," COMMON KV
#define ADAPTERS                                                                                   \
    "\"num_experts\":5,\"topk\":2,\"adapter_dim\":7,\"moe_scaling\":0.25,\"mlp_only_layers\":[1],"

typedef struct row {
    const char *name, *config;
    bool whole; /* everything trains, else LoRA, adapters and routers */
    int32_t molora;
    layer_ranges layers;
} row;

static const row rows[] = {
    { "llama", "{\"model_type\":\"llama\"," COMMON KV "}", .whole = false },
    { "upper", "{\"model_type\":\"llama\"," COMMON KV "}", .layers = { 1, { { 1, 2 } } } },
    { "full", "{\"model_type\":\"qwen2\"," COMMON KV "}", .whole = true },
    { "tied", "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," COMMON KV "}",
      .whole = true },
    { "window", "{\"model_type\":\"mistral\",\"sliding_window\":9," COMMON KV "}", .whole = false },
    { "camelidae", "{\"model_type\":\"camelidae\"," ADAPTERS COMMON KV "}", .whole = false },
    { "molora", "{\"model_type\":\"llama\"," COMMON KV "}", .molora = 4 },
    { "gemma4", "{" GEMMA4 "}", .whole = false },
    { "gemma4_full", "{" GEMMA4 "}", .whole = true },
    { "gemma4_moe",
      "{\"enable_moe_block\":true,\"num_experts\":5,\"top_k_experts\":2,"
      "\"moe_intermediate_size\":20," GEMMA4 "}",
      .whole = true },
    { "gemma4_upper", "{" GEMMA4 "}", .layers = { 1, { { 2, 2 } } } },
    { "mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":5," COMMON KV "}",
      .whole = false },
    { "qwen2_moe",
      "{\"model_type\":\"qwen2_moe\",\"num_experts\":5,\"moe_intermediate_size\":20,"
      "\"shared_expert_intermediate_size\":28,\"num_experts_per_tok\":3," COMMON KV "}",
      .whole = true },
    { "deepseek_v2",
      "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":24,\"n_routed_experts\":6,"
      "\"num_experts_per_tok\":2,\"moe_intermediate_size\":20,\"n_shared_experts\":2,"
      "\"first_k_dense_replace\":1,\"kv_lora_rank\":16,\"qk_nope_head_dim\":10,"
      "\"qk_rope_head_dim\":6,\"v_head_dim\":8," COMMON "}",
      .whole = false },
};
enum { N_ROWS = sizeof rows / sizeof *rows, TOKENS = 40, RANK = 16 };

/* ---- a device that counts ---- */

static pesc_device *dev;
static const ops *real;
static uint64_t flop;

static uint64_t product(const tensor *a, const tensor *b, mm_layout layout)
{
    int64_t other = layout == MM_NT ? tensor_rows(b) : tensor_cols(b);
    return 2 * (uint64_t)(tensor_rows(a) * tensor_cols(a) * other);
}

static void count_mm(const mm *a)
{
    flop += product(&a->a, &a->b, a->layout);
    for (int i = 0; i < a->n_more; i++)
        flop += product(&a->more[i].a, &a->more[i].b, a->layout);
}

static void matmul(device *d, const mm *a)
{
    count_mm(a);
    real->matmul(d, a);
}

static void matmuls(device *d, const mm *a, int n)
{
    for (int i = 0; i < n; i++)
        count_mm(&a[i]);
    real->matmuls(d, a, n);
}

/* The rows of the experts at hand, each with a matrix of its own. */
static void grouped_matmul(device *d, const grouped_mm *a)
{
    const int32_t *offsets = a->offsets.data;
    const tensor *w = a->layout == MM_TN ? &a->out : &a->b;
    int64_t n = offsets[a->offsets.ne[0] - 1] - offsets[0];
    flop += 2 * (uint64_t)(n * w->ne[1] * w->ne[2]);
    real->grouped_matmul(d, a);
}

static void count_scores(const attention *a, uint64_t of_keys, uint64_t of_values)
{
    uint64_t keys = 0;
    for (int32_t i = 0; i < TOKENS; i++)
        keys += (uint64_t)(a->window && i >= a->window ? a->window : i + 1);
    flop += 2 * keys * (uint64_t)a->n_heads *
            (of_keys * (uint64_t)a->qk_dim + of_values * (uint64_t)a->v_dim);
}

static void attention_fwd(device *d, const attention *a)
{
    count_scores(a, 1, 1);
    real->attention_fwd(d, a);
}

/* The scores again, dQ and dK; dP and dV. */
static void attention_bwd_counted(device *d, const attention_bwd *a)
{
    count_scores(&a->fwd, 3, 2);
    real->attention_bwd(d, a);
}

static void rmsnorm_fwd(device *d, const norm_fwd *a)
{
    if (a->logits.data)
        flop += product(&a->x, &a->router, MM_NT);
    real->rmsnorm_fwd(d, a);
}

static void rmsnorm_bwd(device *d, const norm_bwd *a)
{
    uint64_t router = 2 * (uint64_t)(tensor_rows(&a->x) * tensor_cols(&a->x));
    if (a->dlogits.data)
        flop += router * (uint64_t)tensor_cols(&a->dlogits) *
                (uint64_t)((a->dx.data != NULL) + (a->drouter.data != NULL));
    real->rmsnorm_bwd(d, a);
}

static int open_all(void **state)
{
    (void)state;
    static ops counting;
    must(pesc_device_open(&dev, "cpu:2"));
    real = dev->op;
    counting = *real;
    counting.matmul = matmul;
    counting.matmuls = matmuls;
    counting.grouped_matmul = grouped_matmul;
    counting.attention_fwd = attention_fwd;
    counting.attention_bwd = attention_bwd_counted;
    counting.rmsnorm_fwd = rmsnorm_fwd;
    counting.rmsnorm_bwd = rmsnorm_bwd;
    dev->op = &counting;
    for (int i = 0; i < N_ROWS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.json", rows[i].name);
        must(pesc_new(files_text(name, rows[i].config), files_path(rows[i].name), NULL, "f32", 7,
                      NULL));
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    dev->op = real;
    pesc_device_close(dev);
    return 0;
}

/* ---- the two counts ---- */

static int32_t ids[TOKENS], out_rows[TOKENS], targets[TOKENS];
static float weights_of[TOKENS];
static const cost_work work = { .tokens = TOKENS, .rows = TOKENS };

static token_seq sequence(void)
{
    for (int32_t i = 0; i < TOKENS; i++) {
        ids[i] = (i * 31 + i * i * 7) % 67;
        targets[i] = (i * 17 + 5) % 67;
        out_rows[i] = i;
        weights_of[i] = 0.01F;
    }
    return (token_seq){ .ids = ids, .n = TOKENS };
}

/* repeats: the part of the counted FLOP that may be asked for again. */
static void equal(const char *what, uint64_t counted, uint64_t asked, double repeats)
{
    if (asked < counted || (double)(asked - counted) > repeats * (double)counted)
        fail_msg("%s: cost counts %llu FLOP, the ops were asked for %llu", what,
                 (unsigned long long)counted, (unsigned long long)asked);
}

static void inference_is_counted(void **state)
{
    const row *r = *state;
    pesc_model *m;
    pass *p;
    tensor logits;
    cost_counts c = { 0 };
    must(pesc_model_open(&m, dev, files_path(r->name), NULL));
    cost_of_model(&c, &m->shape, work);
    must(pass_open(&p, m, (pass_limits){ TOKENS, 1, TOKENS }, NULL));
    token_seq seq = sequence();
    must(pass_set(p, &seq, 1, out_rows, TOKENS));
    flop = 0;
    must(model_fwd(m, p, &logits));
    equal("inference", cost_total(&c).inference, flop, 0);
    pass_close(p);
    pesc_model_close(m);
}

static void training_is_counted(void **state)
{
    const row *r = *state;
    pesc_model *m;
    params *p;
    pass *run;
    cost_counts c = { 0 };
    must(pesc_model_open(&m, dev, files_path(r->name), NULL));
    train_spec spec = { .adapters = true,
                        .routers = true,
                        .experts = true,
                        .base = r->whole,
                        .lora_r = r->whole ? 0 : RANK,
                        .lora_alpha = 6,
                        .lora_targets = TARGET_ALL,
                        .lora_layers = r->layers,
                        .molora_experts = r->molora,
                        .molora_k = r->molora / 2 };
    params_cost(&c, &m->shape, &spec, work);
    must(params_open(&p, m, &spec));
    must(pass_open_train(&run, m, (pass_limits){ TOKENS, 1, TOKENS }, &p->mirror,
                         (keep_counts){ .all = 99 }));
    token_seq seq = sequence();
    train_input in = { .seqs = &seq,
                       .n_seqs = 1,
                       .rows = out_rows,
                       .targets = targets,
                       .weights = weights_of,
                       .n_targets = TOKENS,
                       .aux_weight = 0.01F,
                       .first_micro_batch = true };
    train_output out;
    flop = 0;
    params_start_grad(p);
    must(model_train(m, run, &in, &out));
    bool plain = spec.lora_r && !spec.molora_experts && m->shape.cfg.moe.kind != EXPERT_FFN;
    equal("training", cost_total(&c).forward + cost_total(&c).backward, flop,
          plain || config_mla(&m->shape.cfg) ? 0.03 : 0);
    pass_close(run);
    params_close(p);
    pesc_model_close(m);
}

int main(void)
{
    static struct CMUnitTest tests[2 * N_ROWS];
    static char names[2 * N_ROWS][96];
    for (size_t i = 0; i < 2 * N_ROWS; i++) {
        const row *r = &rows[i / 2];
        bool train = i % 2;
        snprintf(names[i], sizeof names[i], "%s: %s", r->name, train ? "training" : "inference");
        tests[i] =
            (struct CMUnitTest){ .name = names[i],
                                 .test_func = train ? training_is_counted : inference_is_counted,
                                 .initial_state = (void *)(uintptr_t)r };
    }
    return _cmocka_run_group_tests("cost", tests, 2 * N_ROWS, open_all, close_all);
}
