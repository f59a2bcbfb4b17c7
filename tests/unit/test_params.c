/* What trains, as a list: names, shapes and groups, numbers that follow from name and seed, frozen
 * tensors left alone, and counts that need no model. */
#include "train/params.h"

#include "arch/bind.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "tensor/bf16.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define COMMON                                                                                     \
    "\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":28,\"vocab_size\":31,\"max_position_embeddings\":64"
#define KV ",\"num_key_value_heads\":2"
static const char *const configs[][2] = {
    { "llama", "{\"model_type\":\"llama\"," COMMON KV "}" },
    { "tied", "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," COMMON KV "}" },
    { "qwen2", "{\"model_type\":\"qwen2\"," COMMON KV "}" },
    { "camelidae", "{\"model_type\":\"camelidae\",\"num_experts\":3,\"topk\":2,\"adapter_dim\":5,"
                   "\"moe_scaling\":0.25," COMMON KV "}" },
    { "mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":3," COMMON KV "}" },
    { "deepseek_v2",
      "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
      "\"moe_intermediate_size\":12,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"
      "\"kv_lora_rank\":8,\"q_lora_rank\":12,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"
      "\"v_head_dim\":5," COMMON "}" },
};

static pesc_device *dev;

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, "cpu:2"));
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.json", configs[i][0]);
        must(pesc_new(files_text(file, configs[i][1]), files_path(configs[i][0]), NULL, "f32", 3,
                      NULL));
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_device_close(dev);
    return 0;
}

static pesc_model *open_model(const char *name, const char *base, const char *compute)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = base;
    opt.compute_dtype = compute;
    pesc_model *m;
    must(pesc_model_open(&m, dev, files_path(name), &opt));
    return m;
}

static const param *find(const params *p, const char *name)
{
    for (size_t i = 0; i < p->n_list; i++)
        if (strcmp(p->list[i].name, name) == 0)
            return &p->list[i];
    fail_msg("no parameter is called %s", name);
    return NULL;
}

static void is(const params *p, const char *name, param_group group, int64_t rows, int64_t cols)
{
    const param *q = find(p, name);
    assert_int_equal(q->group, group);
    assert_int_equal(q->ne[0], rows);
    assert_int_equal(q->nd > 1 ? q->ne[1] : 0, cols);
}

static const train_spec lora_spec = {
    .lora_r = 4, .lora_alpha = 8, .lora_targets = TARGET_ALL, .seed = 11
};

static void lora_enters_on_every_linear(void **state)
{
    (void)state;
    pesc_model *m = open_model("llama", "f32", "f32");
    tensor frozen = m->shape.w.blocks[1].q.w;
    params *p;
    must(params_open(&p, m, &lora_spec));
    assert_int_equal(p->n_list, 2 * 7 * 2);
    is(p, "model.layers.0.self_attn.q_proj.lora_A.weight", PARAM_LORA, 4, 24);
    is(p, "model.layers.1.mlp.down_proj.lora_A.weight", PARAM_LORA, 4, 28);
    is(p, "model.layers.1.mlp.down_proj.lora_B.weight", PARAM_LORA, 24, 4);
    assert_int_equal(p->mirror.facts.first_layer, 0);
    assert_true(p->mirror.facts.first_attn);
    assert_int_equal(m->shape.lora_rank, 4);
    assert_ptr_equal(m->shape.w.blocks[1].q.w.data, frozen.data);
    assert_null(p->mirror.of.blocks[1].q.w.data);
    assert_null(p->mirror.of.embed.data);
    assert_float_equal(m->shape.w.blocks[0].ffn.up.lora->scale, 2, 0);

    /* A from its name and the seed alone; B zero */
    const char *name = "model.layers.1.mlp.down_proj.lora_A.weight";
    tensor a = params_master(p, find(p, name));
    rng_key key = { 11, rng_stream(2, XXH64(name, strlen(name), 0), 0) };
    for (int64_t i = 0; i < 4 * 28; i++) {
        float want = (2 * rng_uniform(key, (uint64_t)i) - 1) * (1 / sqrtf(28));
        assert_true(((float *)a.data)[i] == want);
    }
    assert_ptr_equal(m->shape.w.blocks[1].ffn.down.lora->a.data, a.data);
    tensor b = params_master(p, find(p, "model.layers.1.mlp.down_proj.lora_B.weight"));
    for (int64_t i = 0; i < 24 * 4; i++)
        assert_true(((float *)b.data)[i] == 0);
    params_close(p);
    pesc_model_close(m);
}

static void targets_choose_linears(void **state)
{
    (void)state;
    pesc_model *m = open_model("llama", "f32", "f32");
    train_spec s = lora_spec;
    s.lora_targets = TARGET_V | TARGET_UP;
    params *p;
    must(params_open(&p, m, &s));
    assert_int_equal(p->n_list, 2 * 2 * 2);
    assert_null(m->shape.w.blocks[0].q.lora);
    assert_non_null(m->shape.w.blocks[0].v.lora);
    assert_non_null(m->shape.w.blocks[0].ffn.up.lora);
    params_close(p);
    pesc_model_close(m);

    m = open_model("deepseek_v2", "f32", "f32");
    s.lora_targets = TARGET_Q | TARGET_K | TARGET_DOWN;
    must(params_open(&p, m, &s));
    is(p, "model.layers.0.self_attn.q_a_proj.lora_A.weight", PARAM_LORA, 4, 24);
    is(p, "model.layers.0.self_attn.q_b_proj.lora_B.weight", PARAM_LORA, 4 * 10, 4);
    is(p, "model.layers.0.self_attn.kv_b_proj.lora_A.weight", PARAM_LORA, 4, 8);
    is(p, "model.layers.1.mlp.shared_experts.down_proj.lora_A.weight", PARAM_LORA, 4, 24);
    assert_null(m->shape.w.blocks[0].o.lora);
    params_close(p);
    pesc_model_close(m);
}

/* A linear outside the layers stays as it is, and backward ends at the lowest layer with LoRA. */
static void layers_choose_linears(void **state)
{
    (void)state;
    pesc_model *m = open_model("llama", "f32", "f32");
    train_spec s = lora_spec;
    s.lora_layers = (layer_ranges){ 1, { { 1, 1 } } };
    params *p;
    must(params_open(&p, m, &s));
    assert_null(m->shape.w.blocks[0].q.lora);
    assert_null(m->shape.w.blocks[0].ffn.down.lora);
    assert_non_null(m->shape.w.blocks[1].q.lora);
    assert_non_null(m->shape.w.blocks[1].ffn.down.lora);
    assert_int_equal(p->mirror.facts.first_layer, 1);
    assert_int_equal(p->n_list, 7 * 2);
    params_size size;
    params_measure(&size, &m->shape.cfg, &s);
    assert_int_equal(size.n, p->n);
    params_close(p);
    pesc_model_close(m);
}

static void experts_keep_their_names(void **state)
{
    (void)state;
    pesc_model *m = open_model("camelidae", "f32", "f32");
    tensor before = m->shape.w.blocks[1].moe.down;
    float *copy = malloc(tensor_bytes(&before));
    memcpy(copy, before.data, tensor_bytes(&before));
    train_spec s = lora_spec;
    s.adapters = s.routers = true;
    params *p;
    must(params_open(&p, m, &s));
    is(p, "model.layers.0.mlp.moe_adapter.router.weight", PARAM_ROUTER, 3, 24);
    is(p, "model.layers.1.mlp.moe_adapter.experts.expert_2.adapter_down.weight", PARAM_ADAPTER, 5,
       24);
    is(p, "model.layers.1.mlp.moe_adapter.experts.expert_0.adapter_up.weight", PARAM_ADAPTER, 24,
       5);
    /* a stack is one tensor for the model, and its numbers are those of the file */
    const param *first =
        find(p, "model.layers.1.mlp.moe_adapter.experts.expert_0.adapter_down.weight");
    tensor now = m->shape.w.blocks[1].moe.down, grad = p->mirror.of.blocks[1].moe.down;
    assert_int_equal(now.nd, 3);
    assert_int_equal(now.ne[0], 3);
    assert_ptr_equal(now.data, (float *)p->master.data + first->at);
    assert_ptr_equal(grad.data, (float *)p->grad.data + first->at);
    assert_memory_equal(now.data, copy, tensor_bytes(&before));
    params_close(p);
    pesc_model_close(m);
    free(copy);
}

static int64_t total(const params *p)
{
    int64_t n = 0;
    for (int g = 0; g < PARAM_GROUPS; g++)
        n += p->count[g];
    return n;
}

static void full_tuning_takes_everything(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        pesc_model *m = open_model(configs[i][0], "f32", "f32");
        train_spec s = { .adapters = true, .routers = true, .experts = true, .base = true };
        params *p;
        must(params_open(&p, m, &s));
        assert_int_equal(total(p), m->info.params_total);
        assert_null(m->memory); /* nothing is left in it */
        for (slot t = slot_first(); slot_next(&m->shape.cfg, &t);) {
            tensor w = *bind_field(&m->shape.w, &t), g = *bind_field(&p->mirror.of, &t);
            assert_int_equal((float *)w.data - (float *)p->master.data,
                             (float *)g.data - (float *)p->grad.data);
            assert_int_equal(tensor_count(&w), tensor_count(&g));
        }
        if (m->shape.cfg.tie_embeddings) {
            assert_ptr_equal(m->shape.w.head.data, m->shape.w.embed.data);
            assert_ptr_equal(p->mirror.of.head.data, p->mirror.of.embed.data);
        }
        params_close(p);
        pesc_model_close(m);
    }
}

static void bf16_reads_rounded_copies(void **state)
{
    (void)state;
    pesc_model *m = open_model("camelidae", "bf16", "bf16");
    train_spec s = lora_spec;
    s.adapters = s.routers = true;
    params *p;
    must(params_open(&p, m, &s));
    assert_int_equal(m->shape.w.blocks[0].moe.down.dt, DT_BF16);
    assert_int_equal(m->shape.w.blocks[0].moe.router.dt, DT_F32);
    assert_int_equal(m->shape.w.blocks[0].q.lora->a.dt, DT_BF16);
    float *w = p->master.data;
    for (int64_t i = 0; i < p->n; i++)
        w[i] = 1.0F + (float)i / 1000;
    params_refresh(p);
    const param *q = find(p, "model.layers.0.self_attn.q_proj.lora_A.weight");
    const uint16_t *a = m->shape.w.blocks[0].q.lora->a.data;
    for (int64_t i = 0; i < 4 * 24; i++)
        assert_int_equal(a[i], bf16_from_f32(w[q->at + i]));
    params_close(p);
    pesc_model_close(m);
}

static void mixture_of_lora_makes_its_experts(void **state)
{
    (void)state;
    pesc_model *m = open_model("llama", "f32", "f32");
    train_spec s = lora_spec;
    s.molora_experts = 3;
    s.molora_k = 2;
    params *p;
    must(params_open(&p, m, &s));
    is(p, "model.layers.0.mlp.molora.router.weight", PARAM_ROUTER, 3, 24);
    is(p, "model.layers.1.mlp.down_proj.experts.2.lora_A.weight", PARAM_LORA, 4, 28);
    is(p, "model.layers.1.mlp.gate_proj.experts.0.lora_B.weight", PARAM_LORA, 28, 4);
    assert_null(m->shape.w.blocks[0].ffn.gate.lora);
    assert_non_null(m->shape.w.blocks[0].o.lora);
    assert_true(m->shape.w.blocks[1].sparse);
    params_close(p);
    pesc_model_close(m);
}

/* Stored, it opens again; with B still zero it is the dense model of the same numbers. */
static void mixture_of_lora_is_a_model(void **state)
{
    (void)state;
    static const char text[] = "{\"model_type\":\"llama\",\"molora_experts\":3,\"molora_top_k\":2,"
                               "\"molora_rank\":4,\"molora_scale\":2.0," COMMON KV "}";
    must(pesc_new(files_text("molora.json", text), files_path("molora"), NULL, "f32", 3, NULL));
    pesc_model *dense = open_model("llama", "f32", "f32"), *m = open_model("molora", "f32", "f32");
    assert_int_equal(m->shape.cfg.moe.kind, EXPERT_LORA);
    assert_int_equal(m->shape.w.blocks[1].moe.lora_down.a.ne[2], 28);
    const int32_t ids[] = { 3, 9, 4, 17, 30, 2 };
    float a[6 * 31], b[6 * 31];
    must(pesc_logits(dense, ids, 6, a));
    must(pesc_logits(m, ids, 6, b));
    assert_memory_equal(a, b, sizeof a);
    tensor up = m->shape.w.blocks[0].moe.lora_up.b;
    for (int64_t i = 0; i < tensor_count(&up); i++)
        ((float *)up.data)[i] = 0.5F;
    must(pesc_logits(m, ids, 6, b));
    assert_memory_not_equal(a, b, sizeof a);
    pesc_model_close(dense);
    pesc_model_close(m);
    must_fail(pesc_new(files_text("bad.json",
                                  "{\"model_type\":\"llama\",\"molora_experts\":3," COMMON KV "}"),
                       files_path("bad"), NULL, "f32", 3, NULL),
              PESC_FORMAT, "molora_top_k");
}

static void measuring_needs_no_model(void **state)
{
    (void)state;
    static const train_spec specs[] = {
        { .adapters = true, .routers = true, .experts = true, .base = true },
        { .adapters = true, .routers = true, .experts = true, .lora_r = 4, .lora_targets = 127 },
        { .lora_r = 4, .lora_targets = 127 },
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
        for (size_t k = 0; k < 3; k++) {
            pesc_model *m = open_model(configs[i][0], "f32", "f32");
            params_size z;
            params *p;
            params_measure(&z, &m->shape.cfg, &specs[k]);
            must(params_open(&p, m, &specs[k]));
            assert_int_equal(z.n, p->n);
            assert_int_equal(z.n_list, p->n_list);
            assert_int_equal(z.first_layer, p->mirror.facts.first_layer);
            assert_memory_equal(z.count, p->count, sizeof z.count);
            params_close(p);
            pesc_model_close(m);
        }
}

/* ---- chosen experts ---- */

static expertcfg own_from(const char *text)
{
    expertcfg own;
    must(expertcfg_parse(&own, text, strlen(text), "own"));
    return own;
}

/* The list, the flat buffers and the mirror hold the chosen alone; the stack stays where it was. */
static void chosen_experts_alone(void **state)
{
    (void)state;
    pesc_model *m = open_model("mixtral", "f32", "f32");
    expertcfg own = own_from("{\"experts\": {\"0\": [], \"1\": [2, 0]}}");
    train_spec s = { .own = &own };
    tensor before = m->shape.w.blocks[1].moe.down;
    params *p;
    must(params_open(&p, m, &s));
    assert_int_equal(p->n_list, 2 * 3);
    is(p, "model.layers.1.block_sparse_moe.experts.0.w1.weight", PARAM_EXPERT, 28, 24);
    is(p, "model.layers.1.block_sparse_moe.experts.2.w2.weight", PARAM_EXPERT, 24, 28);
    assert_int_equal(p->count[PARAM_EXPERT], 2 * 3 * 24 * 28);
    assert_int_equal(total(p), p->count[PARAM_EXPERT]);
    assert_int_equal(p->mirror.facts.first_layer, 1);
    assert_false(p->mirror.facts.first_attn);
    assert_ptr_equal(m->shape.w.blocks[1].moe.down.data, before.data);
    const moe *g = &p->mirror.of.blocks[1].moe;
    assert_int_equal(g->own.n, 2);
    assert_int_equal(g->own.ids[0], 0);
    assert_int_equal(g->own.ids[1], 2);
    assert_int_equal(g->down.ne[0], 2);
    assert_null(p->mirror.of.blocks[0].moe.down.data);
    assert_null(g->router.data);

    /* what forward reads follows the master; the others stay */
    const param *q = find(p, "model.layers.1.block_sparse_moe.experts.2.w2.weight");
    float *stack = m->shape.w.blocks[1].moe.down.data, other = stack[24 * 28];
    assert_ptr_equal(g->down.data, (float *)p->grad.data + q->at - 24 * 28);
    ((float *)params_master(p, q).data)[5] = 7;
    params_write_back(p);
    assert_true(stack[2 * 24 * 28 + 5] == 7);
    assert_true(stack[24 * 28] == other);
    params_close(p);
    pesc_model_close(m);
    expertcfg_free(&own);
}

static void flags_add_the_rest(void **state)
{
    (void)state;
    pesc_model *m = open_model("deepseek_v2", "f32", "f32");
    int64_t expert = 3 * 12 * 24, shared = 3 * 24 * 24;
    const struct {
        const char *flags;
        int64_t experts, shared, others;
        int32_t first_layer;
    } rows[] = {
        { "", expert, 0, 0, 1 },
        { ", \"shared_experts\": true", expert, shared, 0, 1 },
        { ", \"non_expert_modules\": true", expert, 0,
          (int64_t)m->info.params_total - 4 * expert - shared, 0 },
        { ", \"shared_experts\": true, \"non_expert_modules\": true", expert, shared,
          (int64_t)m->info.params_total - 4 * expert - shared, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[160];
        snprintf(text, sizeof text, "{\"experts\": {\"1\": [3]}%s}", rows[i].flags);
        expertcfg own = own_from(text);
        params_size z;
        params_measure(&z, &m->shape.cfg, &(train_spec){ .own = &own });
        assert_int_equal(z.count[PARAM_EXPERT], rows[i].experts);
        assert_int_equal(z.count[PARAM_SHARED], rows[i].shared);
        assert_int_equal(z.count[PARAM_ROUTER] + z.count[PARAM_BASE], rows[i].others);
        assert_int_equal(z.first_layer, rows[i].first_layer);
        expertcfg_free(&own);
    }
    pesc_model_close(m);
}

/* Weights, gradients and what the optimiser will take grow by exactly one expert at a time, in both
 * dtypes of computing. */
static void memory_grows_with_the_chosen(void **state)
{
    (void)state;
    enum { EXPERT = 3 * 24 * 28 };
    static const char *const texts[] = {
        "{\"experts\": {\"0\": [], \"1\": [1]}}",
        "{\"experts\": {\"0\": [2], \"1\": [1]}}",
        "{\"experts\": {\"0\": [2, 0], \"1\": [1]}}",
        "{\"experts\": {\"0\": [2, 0], \"1\": [1, 0, 2]}}",
    };
    static const int64_t experts[] = { 1, 2, 3, 5 };
    for (size_t i = 0; i < 4; i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            pesc_model *m = open_model("mixtral", bf16 ? "bf16" : "f32", bf16 ? "bf16" : "f32");
            expertcfg own = own_from(texts[i]);
            train_spec s = { .own = &own };
            params_size z;
            params *p;
            params_measure(&z, &m->shape.cfg, &s);
            must(params_open(&p, m, &s));
            assert_int_equal(p->n, experts[i] * EXPERT);
            assert_int_equal(z.n, p->n);
            assert_false(z.flat);
            assert_null(p->work.data); /* the stack is what forward reads */
            assert_int_equal(params_bytes(&z, m->shape.act_dt, 1),
                             tensor_bytes(&p->master) + tensor_bytes(&p->grad));
            params_close(p);
            pesc_model_close(m);
            expertcfg_free(&own);
        }
}

static void chosen_experts_of_a_bf16_stack(void **state)
{
    (void)state;
    pesc_model *m = open_model("mixtral", "bf16", "f32");
    expertcfg own = own_from("{\"experts\": {\"0\": [1], \"1\": []}}");
    train_spec s = { .own = &own };
    params *p;
    must(params_open(&p, m, &s));
    float *w = p->master.data;
    const uint16_t *stack = m->shape.w.blocks[0].moe.gate.data;
    uint16_t first = stack[0];
    for (int64_t i = 0; i < p->n; i++)
        w[i] = 1.0F + (float)i / 1000;
    params_write_back(p);
    for (int64_t i = 0; i < 28 * 24; i++)
        assert_int_equal(stack[28 * 24 + i], bf16_from_f32(w[i]));
    assert_int_equal(stack[0], first);
    params_close(p);
    pesc_model_close(m);

    m = open_model("mixtral", "nf4", "f32");
    must_fail(params_open(&p, m, &s), PESC_USAGE, "is held in nf4; load the model with");
    pesc_model_close(m);
    expertcfg_free(&own);
}

static void a_choice_must_fit_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        { "{\"experts\": {\"0\": [3], \"1\": []}}", "found expert 3, expected 0 to 2" },
        { "{\"experts\": {\"0\": [0]}}", "layer 1 is missing" },
        { "{\"experts\": {\"0\": [], \"1\": [0], \"2\": [1]}}", "layers are 0 to 1" },
        { "{\"experts\": {\"0\": [], \"1\": [0]}, \"shared_experts\": true}",
          "shared_experts: is true, but the model has none" },
    };
    pesc_model *m = open_model("mixtral", "f32", "f32");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        expertcfg own = own_from(rows[i].text);
        must_fail(param_check_chosen(&own, &m->shape.cfg, "own"), PESC_FORMAT, rows[i].said);
        expertcfg_free(&own);
    }
    expertcfg none = own_from("{\"experts\": {\"0\": [], \"1\": []}}");
    params *p;
    must(param_check_chosen(&none, &m->shape.cfg, "own"));
    must_fail(params_open(&p, m, &(train_spec){ .own = &none }), PESC_USAGE, "nothing trains");
    expertcfg_free(&none);
    pesc_model_close(m);
}

/* Out of memory at any point: an error, and the model is as it was. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    pesc_model *m = open_model("llama", "f32", "f32");
    train_spec s = lora_spec;
    s.molora_experts = 3;
    s.molora_k = 2;
    tensor q = m->shape.w.blocks[0].q.w;
    params *p = NULL;
    pesc_status st = PESC_NOMEM;
    for (uint64_t at = 1; st != PESC_OK; at++) {
        mem_fail_at(at);
        st = params_open(&p, m, &s);
        mem_fail_at(0);
        if (st == PESC_OK)
            break;
        assert_int_equal(st, PESC_NOMEM);
        assert_null(p);
        assert_int_equal(m->shape.cfg.moe.kind, EXPERT_NONE);
        assert_false(m->shape.w.blocks[0].sparse);
        assert_null(m->shape.w.blocks[0].q.lora);
        assert_ptr_equal(m->shape.w.blocks[0].q.w.data, q.data);
    }
    assert_int_equal(m->shape.cfg.moe.kind, EXPERT_LORA);
    params_close(p);
    pesc_model_close(m);
}

static void bad_wishes_are_refused(void **state)
{
    (void)state;
    params *p;
    pesc_model *m = open_model("llama", "f32", "f32");
    must_fail(params_open(&p, m, &(train_spec){ .adapters = true }), PESC_USAGE, "nothing trains");
    pesc_model_close(m);
    m = open_model("mixtral", "nf4", "f32");
    must_fail(params_open(&p, m, &(train_spec){ .experts = true }), PESC_USAGE, "nf4");
    train_spec s = lora_spec;
    s.molora_experts = 2;
    s.molora_k = 1;
    must_fail(params_open(&p, m, &s), PESC_USAGE, "dense");
    pesc_model_close(m);
    m = open_model("llama", "f32", "f32");
    s.molora_k = 3;
    must_fail(params_open(&p, m, &s), PESC_USAGE, "3 of 2 experts");
    pesc_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lora_enters_on_every_linear),
        cmocka_unit_test(targets_choose_linears),
        cmocka_unit_test(layers_choose_linears),
        cmocka_unit_test(experts_keep_their_names),
        cmocka_unit_test(full_tuning_takes_everything),
        cmocka_unit_test(bf16_reads_rounded_copies),
        cmocka_unit_test(mixture_of_lora_makes_its_experts),
        cmocka_unit_test(mixture_of_lora_is_a_model),
        cmocka_unit_test(measuring_needs_no_model),
        cmocka_unit_test(chosen_experts_alone),
        cmocka_unit_test(flags_add_the_rest),
        cmocka_unit_test(memory_grows_with_the_chosen),
        cmocka_unit_test(chosen_experts_of_a_bf16_stack),
        cmocka_unit_test(a_choice_must_fit_the_model),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(bad_wishes_are_refused),
    };
    return cmocka_run_group_tests_name("params", tests, open_all, close_all);
}
