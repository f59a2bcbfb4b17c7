/* Loss and gradients by their properties, on a tiny random model of every family: kept layers and
 * recomputed ones give the same bits, so do any number of threads; packed sequences give the
 * gradients of single ones; what is frozen stays; PESC's router and `down` start with gradients of
 * exactly zero. That the numbers are right is for tests/golden. */
#include "model/loss.h"
#include "support/training.h"
#include "train/params.h"

#include "support/check.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SIZES                                                                                      \
    "\"hidden_size\":36,\"num_attention_heads\":6,"                                                \
    "\"intermediate_size\":52,\"vocab_size\":67,\"max_position_embeddings\":256,"                  \
    "\"initializer_range\":0.2"
#define COMMON SIZES ",\"num_hidden_layers\":3"
#define FOUR SIZES ",\"num_hidden_layers\":4"
#define KV ",\"num_key_value_heads\":3"
#define MLA                                                                                        \
    ",\"n_routed_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":20,"              \
    "\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"kv_lora_rank\":16,"                      \
    "\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":8"

#define ADAPTERS "\"num_experts\":5,\"topk\":2,\"adapter_dim\":7,\"moe_scaling\":0.25,"
/* Layers 0 and 1 lend their keys to one layer each; every layer has an input of its own. */
#define GEMMA4                                                                                     \
    "\"model_type\":\"gemma4_text\",\"head_dim\":8,\"global_head_dim\":12,\"sliding_window\":9,"   \
    "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\","             \
    "\"full_attention\"],\"num_kv_shared_layers\":2,\"use_double_wide_mlp\":true,"                 \
    "\"hidden_size_per_layer_input\":6,\"vocab_size_per_layer_input\":70," FOUR KV

typedef struct row {
    const char *name, *config;
    int32_t molora;
} row;

static const row rows[] = {
    { "llama", "{\"model_type\":\"llama\"," COMMON KV "}", 0 },
    { "tied", "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," COMMON KV "}", 0 },
    { "molora", "{\"model_type\":\"llama\"," COMMON KV "}", 4 },
    { "mistral", "{\"model_type\":\"mistral\",\"sliding_window\":9," COMMON KV "}", 0 },
    { "qwen2", "{\"model_type\":\"qwen2\"," COMMON KV "}", 0 },
    { "qwen3", "{\"model_type\":\"qwen3\",\"head_dim\":10," COMMON KV "}", 0 },
    { "camelidae",
      "{\"model_type\":\"camelidae\",\"num_experts\":5,\"topk\":2,\"adapter_dim\":7,"
      "\"moe_scaling\":0.25," COMMON KV "}",
      0 },
    { "choices",
      "{\"model_type\":\"camelidae\",\"num_experts\":5,\"topk\":2,\"adapter_dim\":7,"
      "\"moe_scaling\":0.25,\"adapter_act\":\"silu\",\"adapter_router\":\"softmax-before\","
      "\"mlp_only_layers\":[1]," COMMON KV "}",
      0 },
    { "gemma3", "{\"model_type\":\"gemma3_text\",\"head_dim\":8," ADAPTERS COMMON KV "}", 0 },
    { "gemma4", "{" GEMMA4 "}", 0 },
    { "gemma4_adapters", "{" ADAPTERS GEMMA4 "}", 0 },
    { "gemma4_molora", "{" GEMMA4 "}", 4 },
    { "gemma4_moe",
      "{\"enable_moe_block\":true,\"num_experts\":5,\"top_k_experts\":2,"
      "\"moe_intermediate_size\":20," GEMMA4 "}",
      0 },
    { "beside",
      "{\"model_type\":\"qwen2_moe\",\"num_experts\":5,\"moe_intermediate_size\":20,"
      "\"shared_expert_intermediate_size\":28,\"num_experts_per_tok\":3,\"adapter_experts\":4,"
      "\"adapter_top_k\":2,\"adapter_dim\":7,\"moe_scaling\":1," COMMON KV "}",
      0 },
    { "beside_norm_after",
      "{\"model_type\":\"flex_olmo\",\"num_experts\":5,\"num_experts_per_tok\":2,"
      "\"adapter_experts\":4,\"adapter_top_k\":2,\"adapter_dim\":7,\"moe_scaling\":1," COMMON KV
      "}",
      0 },
    { "mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":5," COMMON KV "}", 0 },
    { "qwen2_moe",
      "{\"model_type\":\"qwen2_moe\",\"num_experts\":5,\"moe_intermediate_size\":20,"
      "\"shared_expert_intermediate_size\":28,\"num_experts_per_tok\":3," COMMON KV "}",
      0 },
    { "qwen3_moe",
      "{\"model_type\":\"qwen3_moe\",\"num_experts\":7,\"moe_intermediate_size\":20,"
      "\"num_experts_per_tok\":2,\"norm_topk_prob\":true," COMMON KV "}",
      0 },
    { "olmoe",
      "{\"model_type\":\"olmoe\",\"num_experts\":5,\"num_experts_per_tok\":2," COMMON KV "}", 0 },
    { "deepseek_v2", "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":24," COMMON MLA "}", 0 },
    { "deepseek_lite", "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null," COMMON MLA "}", 0 },
};
enum { N_ROWS = sizeof rows / sizeof *rows, V = 67, TOKENS = 90, SEQS = 4 };

static pesc_device *one, *three;
static uint64_t step_number = 3;
static int32_t ids[TOKENS], out_rows[TOKENS], targets[TOKENS];
static float shares[TOKENS];
static const int32_t cuts[SEQS + 1] = { 0, 7, 8, 41, TOKENS };

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&one, "cpu:1"));
    must(pesc_device_open(&three, "cpu:3"));
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (i * 31 + i * i * 7) % V;
        targets[i] = (i * 17 + 5) % V;
        shares[i] = (float)(1 + i % 3) / 200;
    }
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
    pesc_device_close(one);
    pesc_device_close(three);
    return 0;
}

/* ---- a trained model ---- */

typedef struct setup {
    const char *base, *compute;
    bool all; /* else LoRA, adapters and routers */
    float dropout;
    bool fresh; /* leave what starts at zero at zero */
    bool no_adapter_copies;
} setup;

typedef struct tuned {
    pesc_model *m;
    params *p;
} tuned;

static tuned open_tuned(pesc_device *dev, const row *r, setup s)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = s.base;
    opt.compute_dtype = s.compute;
    tuned t;
    must(pesc_model_open(&t.m, dev, files_path(r->name), &opt));
    train_spec spec = { .adapters = true,
                        .routers = true,
                        .experts = s.all,
                        .base = s.all,
                        .lora_r = 3,
                        .lora_alpha = 6,
                        .lora_targets = TARGET_ALL | TARGET_EXPERTS,
                        .lora_dropout = s.dropout,
                        .adapter_dropout = s.dropout,
                        .molora_experts = r->molora,
                        .molora_k = r->molora / 2,
                        .no_adapter_copies = s.no_adapter_copies,
                        .seed = 5 };
    must(params_open(&t.p, t.m, &spec));
    for (size_t i = 0; !s.fresh && i < t.p->n_list; i++) {
        const param *q = &t.p->list[i];
        float *w = (float *)t.p->master.data + q->at;
        if (strstr(q->name, "lora_B") || strstr(q->name, "adapter_up"))
            for (int64_t j = 0; j < q->ne[0] * q->ne[1]; j++)
                w[j] = 0.2F * rng_normal((rng_key){ 9, i }, (uint64_t)j);
    }
    params_refresh(t.p);
    return t;
}

static void close_tuned(tuned *t)
{
    params_close(t->p);
    pesc_model_close(t->m);
}

static const keep_counts nothing, one_of_each = { 1, 1 };

/* The gradients of sequences [first, first + n), added to what is there. */
static train_output run(tuned *t, int first, int n, keep_counts keep, float aux)
{
    token_seq seqs[SEQS];
    int32_t at = cuts[first], total = cuts[first + n] - at;
    for (int i = 0; i < n; i++)
        seqs[i] =
            (token_seq){ .ids = ids + cuts[first + i], .n = cuts[first + i + 1] - cuts[first + i] };
    for (int32_t i = 0; i < total; i++)
        out_rows[i] = i;
    train_input in = { .seqs = seqs,
                       .n_seqs = n,
                       .rows = out_rows,
                       .targets = targets + at,
                       .weights = shares + at,
                       .n_targets = total,
                       .aux_weight = aux,
                       .step = step_number };
    train_output out;
    pass *p;
    must(pass_open_train(&p, t->m, (pass_limits){ TOKENS, SEQS, TOKENS }, &t->p->mirror, keep));
    must(model_train(t->m, p, &in, &out));
    assert_true(out.finite);
    out.counts = NULL;
    pass_close(p);
    return out;
}

static float *gradients(tuned *t, keep_counts keep)
{
    training_zero_grads(t->p);
    run(t, 0, SEQS, keep, 0.5F);
    size_t bytes = tensor_bytes(&t->p->grad);
    float *g = malloc(bytes), most = 0;
    memcpy(g, t->p->grad.data, bytes);
    for (int64_t i = 0; i < t->p->n; i++) {
        assert_true(isfinite(g[i]));
        most = fmaxf(most, fabsf(g[i]));
    }
    assert_true(most > 1e-3F);
    return g;
}

/* ---- properties ---- */

static const setup setups[] = {
    { .base = "f32", .compute = "f32", .all = true, .dropout = 0.2F },
    { .base = "bf16", .compute = "bf16", .all = true, .dropout = 0.2F },
    { .base = "nf4", .compute = "f32", .dropout = 0.2F },
    { .base = "nf4", .compute = "bf16" },
};

static void recomputed_equals_kept(void **state)
{
    static const keep_counts keeps[] = { { 0, 0 }, { 1, 0 }, { 0, 1 }, { 0, 99 }, { 1, 1 } };
    for (size_t s = 0; s < sizeof setups / sizeof *setups; s++) {
        tuned t = open_tuned(one, *state, setups[s]);
        float *all = gradients(&t, (keep_counts){ .all = 99 });
        for (size_t i = 0; i < sizeof keeps / sizeof *keeps; i++) {
            float *some = gradients(&t, keeps[i]);
            assert_memory_equal(all, some, tensor_bytes(&t.p->grad));
            free(some);
        }
        free(all);
        close_tuned(&t);
    }
}

static void without_copies_is_the_same(void **state)
{
    setup s = { .base = "nf4", .compute = "bf16", .dropout = 0.2F };
    tuned t = open_tuned(one, *state, s);
    float *want = gradients(&t, nothing);
    bool adapters = t.p->count[PARAM_ADAPTER] > 0;
    int64_t n_work = t.p->n_work;
    assert_int_equal(n_work, t.p->n);
    close_tuned(&t);
    s.no_adapter_copies = true;
    t = open_tuned(one, *state, s);
    float *got = gradients(&t, nothing);
    assert_int_equal(adapters, t.p->n_work < n_work);
    assert_memory_equal(want, got, tensor_bytes(&t.p->grad));
    free(want);
    free(got);
    close_tuned(&t);
}

static void threads_do_not_matter(void **state)
{
    for (size_t s = 0; s < 2; s++) {
        tuned a = open_tuned(one, *state, setups[s]), b = open_tuned(three, *state, setups[s]);
        float *x = gradients(&a, one_of_each), *y = gradients(&b, one_of_each);
        assert_memory_equal(x, y, tensor_bytes(&a.p->grad));
        free(x);
        free(y);
        close_tuned(&a);
        close_tuned(&b);
    }
}

static void packed_equals_single(void **state)
{
    tuned t = open_tuned(one, *state, (setup){ .base = "f32", .compute = "f32", .all = true });
    training_zero_grads(t.p);
    double packed = run(&t, 0, SEQS, one_of_each, 0).ce, single = 0, most = 0;
    size_t bytes = tensor_bytes(&t.p->grad);
    float *want = malloc(bytes);
    memcpy(want, t.p->grad.data, bytes);
    training_zero_grads(t.p);
    for (int i = 0; i < SEQS; i++)
        single += run(&t, i, 1, one_of_each, 0).ce;
    assert_float_equal(packed, single, 1e-6 * packed);
    const float *got = t.p->grad.data;
    for (int64_t i = 0; i < t.p->n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < t.p->n; i++)
        assert_true(fabs((double)got[i] - (double)want[i]) <=
                    1e-5 * fabs((double)want[i]) + 1e-6 * most);
    free(want);
    close_tuned(&t);
}

static void loss_alone_is_the_same(void **state)
{
    tuned t = open_tuned(one, *state, (setup){ .base = "f32", .compute = "f32" });
    train_output a = run(&t, 2, 1, nothing, 0), b;
    training_zero_grads(t.p);
    token_seq seq = { .ids = ids + cuts[2], .n = cuts[3] - cuts[2] };
    for (int32_t i = 0; i < seq.n; i++)
        out_rows[i] = i;
    train_input in = { .seqs = &seq,
                       .n_seqs = 1,
                       .rows = out_rows,
                       .targets = targets + cuts[2],
                       .weights = shares + cuts[2],
                       .n_targets = seq.n };
    pass *p;
    must(pass_open_train(&p, t.m, (pass_limits){ TOKENS, SEQS, TOKENS }, &t.p->mirror, nothing));
    must(model_loss(t.m, p, &in, &b));
    assert_true(a.ce == b.ce && a.aux == b.aux && a.ce > 0);
    int64_t choices = 0, sparse = 0;
    for (int32_t l = 0; l < t.m->shape.cfg.n_layers; l++)
        sparse += t.m->shape.w.blocks[l].sparse;
    for (int64_t i = 0; b.counts && i < t.m->shape.cfg.n_layers * t.m->shape.cfg.moe.topk.n_experts;
         i++)
        choices += b.counts[i];
    assert_int_equal(choices, sparse * seq.n * t.m->shape.cfg.moe.topk.k);
    assert_true(!sparse || a.aux > 0.9);
    const float *g = t.p->grad.data;
    for (int64_t i = 0; i < t.p->n; i++)
        assert_true(g[i] == 0);
    pass_close(p);
    close_tuned(&t);
}

static uint64_t hash_of(const tensor *t, uint64_t h)
{
    const unsigned char *b = t->data;
    for (size_t i = 0; b && i < tensor_bytes(t); i++)
        h = (h ^ b[i]) * 0x100000001b3U;
    return h;
}

static uint64_t frozen_hash(const pesc_model *m)
{
    uint64_t h =
        hash_of(&m->shape.w.final_norm, hash_of(&m->shape.w.head, hash_of(&m->shape.w.embed, 1)));
    for (int32_t i = 0; i < m->shape.cfg.n_layers; i++) {
        const block *b = &m->shape.w.blocks[i];
        h = hash_of(&b->attn_norm, hash_of(&b->o.w, hash_of(&b->q.w, h)));
        h = hash_of(&b->ffn.down.w, hash_of(&b->mla.kv_b.w, hash_of(&b->ffn_norm, h)));
        if (m->shape.cfg.moe.kind == EXPERT_FFN)
            h = hash_of(&b->moe.down, h);
    }
    return h;
}

static void frozen_tensors_stay(void **state)
{
    tuned t = open_tuned(one, *state, (setup){ .base = "bf16", .compute = "bf16" });
    uint64_t before = frozen_hash(t.m);
    free(gradients(&t, nothing));
    assert_int_equal(frozen_hash(t.m), before);
    assert_null(t.p->mirror.of.embed.data);
    assert_null(t.p->mirror.of.final_norm.data);
    assert_null(t.p->mirror.of.blocks[0].o.w.data);
    close_tuned(&t);
}

/* Only LoRA on the top layer's FFN trains: everything under it need not exist. */
static void backward_ends_where_nothing_trains(void **state)
{
    const row *r = *state;
    pesc_model *m;
    params *p;
    must(pesc_model_open(&m, one, files_path(r->name), NULL));
    train_spec s = { .lora_r = 2, .lora_alpha = 2, .lora_targets = TARGET_DOWN };
    must(params_open(&p, m, &s));
    tuned t = { m, p };
    float *full = gradients(&t, nothing);
    assert_int_equal(p->mirror.facts.first_layer, 0);
    assert_false(p->mirror.facts.first_attn);
    const param *last = &p->list[p->n_list - 1];
    /* cut the lower layers out of the list */
    for (int32_t i = 0; i + 1 < m->shape.cfg.n_layers; i++)
        memset(&p->mirror.of.blocks[i], 0xFF,
               sizeof p->mirror.of.blocks[i]); /* a touch would crash */
    p->mirror.facts.first_layer = m->shape.cfg.n_layers - 1;
    float *top = gradients(&t, nothing);
    assert_memory_equal(top + last->at, full + last->at,
                        (size_t)(last->ne[0] * last->ne[1]) * sizeof *top);
    free(full);
    free(top);
    params_close(p);
    pesc_model_close(m);
}

static void pesc_starts_with_zero_gradients(void **state)
{
    (void)state;
    const row *r = rows;
    while (strcmp(r->name, "camelidae") != 0)
        r++;
    tuned t = open_tuned(one, r, (setup){ .base = "f32", .compute = "f32", .fresh = true });
    training_zero_grads(t.p);
    run(&t, 0, SEQS, nothing, 0);
    for (size_t i = 0; i < t.p->n_list; i++) {
        const param *q = &t.p->list[i];
        const float *g = (const float *)t.p->grad.data + q->at;
        float most = 0;
        for (int64_t j = 0; j < q->ne[0] * q->ne[1]; j++)
            most = fmaxf(most, fabsf(g[j]));
        bool still = strstr(q->name, "router") || strstr(q->name, "adapter_down") ||
                     strstr(q->name, "lora_A");
        if (still != (most == 0))
            fail_msg("%s: largest gradient %g", q->name, (double)most);
    }
    close_tuned(&t);
}

/* The masks are the step's: the same when it is run again, others in the next. */
static void dropout_follows_the_step(void **state)
{
    setup s = { .base = "f32", .compute = "f32", .dropout = 0.3F };
    tuned t = open_tuned(one, *state, s);
    double ce = run(&t, 0, SEQS, nothing, 0).ce;
    assert_true(run(&t, 0, SEQS, nothing, 0).ce == ce);
    step_number++;
    assert_true(run(&t, 0, SEQS, nothing, 0).ce != ce);
    close_tuned(&t);
    step_number--;
    s.dropout = 0;
    t = open_tuned(one, *state, s);
    assert_true(run(&t, 0, SEQS, nothing, 0).ce != ce);
    close_tuned(&t);
}

static void the_plan_holds(void **state)
{
    tuned t = open_tuned(one, *state, (setup){ .base = "f32", .compute = "f32", .dropout = 0.1F });
    pass_limits lim = { TOKENS, SEQS, TOKENS };
    size_t last = 0;
    for (int32_t i = 0; i <= 3; i++) {
        keep_counts keep = { i / 2, i % 2 };
        train_plan plan = train_plan_of(&t.m->shape.cfg, &t.p->mirror.facts, keep);
        size_t bytes = pass_train_bytes(one, &t.m->shape, &plan, lim);
        assert_true(bytes > last); /* and pass_open_train asserts that this is enough */
        last = bytes;
        free(gradients(&t, keep));
    }
    close_tuned(&t);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*fn)(void **);
    } properties[] = {
        { "recomputed equals kept", recomputed_equals_kept },
        { "without copies is the same", without_copies_is_the_same },
        { "threads do not matter", threads_do_not_matter },
        { "packed equals single", packed_equals_single },
        { "loss alone is the same", loss_alone_is_the_same },
        { "frozen tensors stay", frozen_tensors_stay },
        { "dropout follows the step", dropout_follows_the_step },
        { "the plan holds", the_plan_holds },
    };
    enum { P = sizeof properties / sizeof *properties };
    static struct CMUnitTest tests[N_ROWS * P + 2];
    static char names[N_ROWS * P][96];
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t p = 0; p < P; p++) {
            size_t at = i * P + p;
            snprintf(names[at], sizeof names[at], "%s: %s", rows[i].name, properties[p].name);
            tests[at] = (struct CMUnitTest){ .name = names[at],
                                             .test_func = properties[p].fn,
                                             .initial_state = (void *)(uintptr_t)&rows[i] };
        }
    tests[N_ROWS * P] = (struct CMUnitTest)cmocka_unit_test(pesc_starts_with_zero_gradients);
    tests[N_ROWS * P + 1] = (struct CMUnitTest){ .name = "backward ends where nothing trains",
                                                 .test_func = backward_ends_where_nothing_trains,
                                                 .initial_state = (void *)(uintptr_t)&rows[0] };
    return _cmocka_run_group_tests("train", tests, N_ROWS * P + 2, open_all, close_all);
}
