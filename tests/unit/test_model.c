/* The one forward, by its properties, on a tiny random model of every family: decoding gives the
 * bits of prefill, packed sequences those of sequences alone, any thread count those of one, and
 * PESC with zero `up` those of the dense model. That the numbers are right is for tests/golden. */
#include "base/mem.h"
#include "infer/score.h"
#include "model/forward.h"
#include "model/next_token.h"
#include "tensor/bf16.h"

#include "support/check.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define COMMON                                                                                     \
    "\"hidden_size\":36,\"num_hidden_layers\":2,\"num_attention_heads\":6,"                        \
    "\"intermediate_size\":52,\"vocab_size\":67,\"max_position_embeddings\":256,"                  \
    "\"initializer_range\":0.2,\"bos_token_id\":1,\"eos_token_id\":2"
#define KV ",\"num_key_value_heads\":3"
#define MLA                                                                                        \
    ",\"n_routed_experts\":6,\"num_experts_per_tok\":2,\"moe_intermediate_size\":20,"              \
    "\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"kv_lora_rank\":16,"                      \
    "\"qk_nope_head_dim\":10,\"qk_rope_head_dim\":6,\"v_head_dim\":8"

typedef struct row {
    const char *name, *config;
} row;

static const row rows[] = {
    { "llama", "{\"model_type\":\"llama\"," COMMON KV "}" },
    { "tied", "{\"model_type\":\"llama\",\"tie_word_embeddings\":true," COMMON KV "}" },
    { "dynamic", "{\"model_type\":\"llama\"," COMMON KV
                 ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.0}}" },
    { "mistral", "{\"model_type\":\"mistral\",\"sliding_window\":70," COMMON KV "}" },
    { "qwen2", "{\"model_type\":\"qwen2\"," COMMON KV "}" },
    { "qwen3", "{\"model_type\":\"qwen3\",\"head_dim\":10," COMMON KV "}" },
    { "camelidae", "{\"model_type\":\"camelidae\",\"num_experts\":5,\"topk\":2,\"adapter_dim\":7,"
                   "\"moe_scaling\":0.25," COMMON KV "}" },
    { "mixtral", "{\"model_type\":\"mixtral\",\"num_local_experts\":5," COMMON KV "}" },
    { "qwen2_moe",
      "{\"model_type\":\"qwen2_moe\",\"num_experts\":5,\"moe_intermediate_size\":20,"
      "\"shared_expert_intermediate_size\":28,\"num_experts_per_tok\":3," COMMON KV "}" },
    { "qwen3_moe", "{\"model_type\":\"qwen3_moe\",\"num_experts\":7,\"moe_intermediate_size\":20,"
                   "\"num_experts_per_tok\":2,\"norm_topk_prob\":true," COMMON KV "}" },
    { "olmoe",
      "{\"model_type\":\"olmoe\",\"num_experts\":5,\"num_experts_per_tok\":2," COMMON KV "}" },
    { "deepseek_v2", "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":24," COMMON MLA "}" },
    { "deepseek_lite", "{\"model_type\":\"deepseek_v2\",\"q_lora_rank\":null," COMMON MLA "}" },
};
enum { N_ROWS = sizeof rows / sizeof *rows, V = 67, LONG = 150, FAR = 700, MADE = 5 };

static pesc_device *one, *three;
static int32_t ids[LONG];

static const char *dir_of(const char *name)
{
    return files_path(name);
}

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&one, "cpu:1"));
    must(pesc_device_open(&three, "cpu:3"));
    for (int i = 0; i < LONG; i++)
        ids[i] = (i * 31 + i * i * 7) % V;
    for (int i = 0; i < N_ROWS; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.json", rows[i].name);
        const char *config_path = files_text(name, rows[i].config);
        must(pesc_new(config_path, dir_of(rows[i].name), NULL, "f32", 7, NULL));
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

static pesc_model *open_row(pesc_device *dev, const char *name, const char *base,
                            const char *compute)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = base;
    opt.compute_dtype = compute;
    pesc_model *m = NULL;
    must(pesc_model_open(&m, dev, dir_of(name), &opt));
    return m;
}

/* New adapters give nothing: make these give something. */
static void stir(pesc_model *m)
{
    for (int32_t l = 0; m->shape.cfg.moe.kind == EXPERT_ADAPTER && l < m->shape.cfg.n_layers; l++) {
        tensor up = m->shape.w.blocks[l].moe.up;
        for (int64_t i = 0; i < tensor_count(&up); i++) {
            float x = (float)((i * 37 + l) % 11 - 5) / 4;
            if (up.dt == DT_F32)
                ((float *)up.data)[i] = x;
            else
                ((uint16_t *)up.data)[i] = bf16_from_f32(x);
        }
    }
}

/* Logits of every token of some sequences in one pass; for free(). */
static float *run(pesc_model *m, kvcache *kv, const token_seq *seqs, int32_t n_seqs)
{
    int32_t n = 0, out[FAR + MADE];
    for (int32_t s = 0; s < n_seqs; s++)
        n += seqs[s].n;
    for (int32_t i = 0; i < n; i++)
        out[i] = i;
    pass *p = NULL;
    tensor logits;
    must(pass_open(&p, m, (pass_limits){ n, n_seqs, n }, kv));
    must(pass_set(p, seqs, n_seqs, out, n));
    must(model_fwd(m, p, &logits));
    float *l = malloc((size_t)n * V * sizeof *l);
    must(m->dev->op->download(m->dev, l, logits.data, (size_t)n * V * sizeof *l));
    pass_close(p);
    return l;
}

static float *alone(pesc_model *m, const int32_t *tokens, int32_t n)
{
    return run(m, NULL, &(token_seq){ .ids = tokens, .n = n }, 1);
}

/* Same bits, and not because all is zero or NaN. */
static void same(const float *a, const float *b, int32_t n)
{
    assert_memory_equal(a, b, (size_t)n * V * sizeof *a);
    float most = 0;
    for (int32_t i = 0; i < n * V; i++) {
        assert_true(isfinite(a[i]));
        most = fmaxf(most, fabsf(a[i]));
    }
    assert_true(most > 0.01F);
}

static void decoding_is_prefill(void **state)
{
    const row *r = *state;
    static const int32_t steps[] = { 1, 1, 60, 1, 1, 1, 1, 64, 20 }; /* over page borders: 150 */
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pesc_model *m = open_row(three, r->name, "", bf16 ? "bf16" : "f32");
        stir(m);
        float *whole = alone(m, ids, LONG);
        kvcache *kv = NULL;
        must(kvcache_open(&kv, three, &m->shape.cfg, m->shape.act_dt, 1, LONG, LONG));
        int32_t at = 0;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            float *part = run(m, kv, &(token_seq){ .ids = ids + at, .n = steps[i], .past = at }, 1);
            same(part, whole + (size_t)at * V, steps[i]);
            free(part);
            at += steps[i];
        }
        assert_int_equal(at, LONG);
        assert_int_equal(kvcache_length(kv, 0), LONG);
        kvcache_close(kv);
        free(whole);
        pesc_model_close(m);
    }
}

static void fill_many(int32_t many[FAR + MADE])
{
    for (int i = 0; i < FAR + MADE; i++)
        many[i] = (i * 13 + i * i * 5) % V;
}

/* Beyond its context a sequence with dynamic RoPE is rotated by its own length, in whatever pieces
 * it is computed; a generated token is rotated by the length it makes, and cached keys stay. */
static void dynamic_rope_is_by_the_whole_sequence(void **state)
{
    (void)state;
    int32_t many[FAR + MADE];
    fill_many(many);
    pesc_model *m = open_row(three, "dynamic", "", "f32");
    assert_true(m->shape.cfg.context < 512); /* the prompt is read in pieces */
    float *want = alone(m, many, FAR), *got = malloc(sizeof(float[FAR * V]));
    must(pesc_logits(m, many, FAR, got));
    same(got, want, FAR);

    scorer *losses;
    score found = { 0 };
    double expected = 0;
    must(scorer_open(&losses, m, FAR));
    must(scorer_add(losses, many, many + 1, FAR - 1, &found));
    must(scorer_flush(losses));
    scorer_close(losses);
    for (int i = 0; i < FAR - 1; i++) {
        const float *here = want + (size_t)i * V;
        next_token p = next_token_of(here, V);
        expected -= next_token_log(&p, here, (size_t)many[i + 1]);
    }
    assert_true(fabs(found.sum - expected) < 1e-5 * expected);

    pesc_session *s;
    const float *last;
    kvcache *kv = NULL;
    must(kvcache_open(&kv, three, &m->shape.cfg, DT_F32, 1, FAR + MADE, FAR + MADE));
    must(pesc_session_open(&s, m, FAR + MADE));
    free(run(m, kv, &(token_seq){ .ids = many, .n = FAR }, 1));
    must(pesc_session_feed(s, many, FAR, &last));
    same(last, want + (size_t)(FAR - 1) * V, 1);
    for (int i = FAR; i < FAR + MADE; i++) {
        float *one_more = run(m, kv, &(token_seq){ .ids = many + i, .n = 1, .past = i }, 1);
        must(pesc_session_feed(s, many + i, 1, &last));
        same(last, one_more, 1);
        free(one_more);
    }
    kvcache_close(kv);

    /* Generated tokens that are fed again in one forward keep their rotations. */
    must(kvcache_open(&kv, three, &m->shape.cfg, DT_F32, 1, FAR + MADE, FAR + MADE));
    float *again = run(m, kv, &(token_seq){ .ids = many, .n = FAR + MADE, .whole = FAR }, 1);
    same(again + (size_t)(FAR + MADE - 1) * V, last, 1);
    free(again);
    kvcache_close(kv);
    pesc_session_close(s);
    free(want);
    free(got);
    pesc_model_close(m);
}

/* A text that goes on beyond the context, and one within it afterwards, use no key of before. */
static void dynamic_rope_reuses_no_key_across_the_context(void **state)
{
    (void)state;
    static const int32_t lengths[] = { FAR - 9, 600, 90, 280, 100 };
    int32_t many[FAR + MADE];
    const float *last;
    pesc_session *s;
    pesc_sample_options o = pesc_sample_defaults();
    o.temperature = 0;
    o.max_tokens = MADE;
    o.ignore_eos = true;
    fill_many(many);
    pesc_model *m = open_row(three, "dynamic", "", "f32");
    must(pesc_session_open(&s, m, FAR + MADE));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        pesc_session *both[2] = { s };
        float after[2][V];
        must(pesc_session_open(&both[1], m, FAR + MADE));
        for (int k = 0; k < 2; k++) {
            pesc_generation g = PESC_INIT(pesc_generation);
            must(pesc_session_complete(both[k], many, (size_t)lengths[i], &o, NULL, NULL, &g));
            must(pesc_session_feed(both[k], many, 1, &last));
            memcpy(after[k], last, sizeof after[k]);
            pesc_generation_free(&g);
        }
        same(after[0], after[1], 1);
        pesc_session_close(both[1]);
    }
    pesc_session_close(s);
    pesc_model_close(m);
}

static void packed_is_alone(void **state)
{
    const row *r = *state;
    pesc_model *m = open_row(three, r->name, "", "f32");
    stir(m);
    const token_seq seqs[] = { { .ids = ids, .n = 5 },
                               { .ids = ids + 9, .n = 71, .kv_seq = 1 },
                               { .ids = ids + 40, .n = 1, .kv_seq = 2 },
                               { .ids = ids + 3, .n = 33, .kv_seq = 3 } };
    kvcache *kv = NULL;
    must(kvcache_open(&kv, three, &m->shape.cfg, DT_F32, 4, LONG, LONG));
    float *plain = run(m, NULL, seqs, 4), *cached = run(m, kv, seqs, 4);
    int32_t at = 0;
    for (int s = 0; s < 4; s++) {
        float *lonely = alone(m, seqs[s].ids, seqs[s].n);
        same(plain + (size_t)at * V, lonely, seqs[s].n);
        same(cached + (size_t)at * V, lonely, seqs[s].n);
        assert_int_equal(kvcache_length(kv, s), seqs[s].n);
        at += seqs[s].n;
        free(lonely);
    }
    free(plain);
    free(cached);
    kvcache_close(kv);
    pesc_model_close(m);
}

static void threads_change_nothing(void **state)
{
    const row *r = *state;
    static const char *const bases[] = { "f32", "bf16", "nf4" };
    for (size_t i = 0; i < 3; i++) {
        pesc_model *a = open_row(one, r->name, bases[i], "f32");
        pesc_model *b = open_row(three, r->name, bases[i], "f32");
        stir(a);
        stir(b);
        float *x = alone(a, ids, 40), *y = alone(b, ids, 40);
        same(x, y, 40);
        free(x);
        free(y);
        pesc_model_close(a);
        pesc_model_close(b);
    }
}

/* pesc_new draws a tensor from its name, so the two share all dense weights; adapter_up is 0. */
static void zero_up_is_the_dense_model(void **state)
{
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        pesc_model *dense = open_row(three, "llama", "", bf16 ? "bf16" : "f32");
        pesc_model *sparse = open_row(three, "camelidae", "", bf16 ? "bf16" : "f32");
        assert_true(sparse->shape.w.blocks[0].sparse && !dense->shape.w.blocks[0].sparse);
        float *x = alone(dense, ids, 40), *y = alone(sparse, ids, 40);
        same(x, y, 40);
        free(y);
        stir(sparse);
        y = alone(sparse, ids, 40);
        assert_memory_not_equal(x, y, 40 * V * sizeof *x);
        free(x);
        free(y);
        pesc_model_close(dense);
        pesc_model_close(sparse);
    }
}

static double distance(const float *a, const float *b, int32_t n)
{
    double apart = 0, size = 0;
    for (int32_t i = 0; i < n * V; i++) {
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)a[i] * a[i];
    }
    return sqrt(apart / size);
}

/* A device may want adapters_fwd for few choices; only then is it used. */
static void adapters_in_one_op(void **state)
{
    (void)state;
    enum { FEW = 20, MORE = FEW + 1 }; /* tokens */
    pesc_model *m = open_row(three, "camelidae", "bf16", "bf16");
    stir(m);
    float *x = alone(m, ids, MORE);
    three->few_choices = FEW * 2;
    float *y = alone(m, ids, FEW), *z = alone(m, ids, MORE);
    three->few_choices = 0;
    same(x, z, MORE);
    assert_memory_not_equal(x, y, FEW * V * sizeof *x);
    assert_true(distance(x, y, FEW) < 0.02);
    free(x);
    free(y);
    free(z);
    pesc_model_close(m);
}

static void only_asked_rows_meet_the_head(void **state)
{
    (void)state;
    pesc_model *m = open_row(three, "llama", "", "f32");
    float *whole = alone(m, ids, 20), some[2 * V];
    pass *p = NULL;
    tensor logits;
    const token_seq seq = { .ids = ids, .n = 20 };
    must(pass_open(&p, m, (pass_limits){ 32, 2, 4 }, NULL));
    must(pass_set(p, &seq, 1, (int32_t[]){ 3, 19 }, 2));
    must(model_fwd(m, p, &logits));
    assert_int_equal(logits.ne[0], 2);
    must(m->dev->op->download(m->dev, some, logits.data, sizeof some));
    assert_memory_equal(some, whole + 3 * V, V * sizeof *some);
    assert_memory_equal(some + V, whole + 19 * V, V * sizeof *some);
    must(pass_set(p, &seq, 1, NULL, 0)); /* none: only the cache is wanted */
    must(model_fwd(m, p, &logits));
    pass_close(p);
    free(whole);
    pesc_model_close(m);
}

static void ids_beyond_the_vocabulary(void **state)
{
    (void)state;
    pesc_model *m = open_row(one, "llama", "", "f32");
    pass *p = NULL;
    must(pass_open(&p, m, (pass_limits){ 8, 1, 1 }, NULL));
    const int32_t high[] = { 1, V }, low[] = { -1 };
    must_fail(pass_set(p, &(token_seq){ .ids = high, .n = 2 }, 1, NULL, 0), PESC_FORMAT,
              "token 1 of a sequence: found id 67, expected 0 to 66");
    must_fail(pass_set(p, &(token_seq){ .ids = low, .n = 1 }, 1, NULL, 0), PESC_FORMAT,
              "found id -1");
    pass_close(p);
    pesc_model_close(m);
}

static void options_are_checked(void **state)
{
    (void)state;
    pesc_load_options opt = pesc_load_defaults();
    pesc_model *m = NULL;
    opt.base_dtype = "int8";
    must_fail(pesc_model_open(&m, one, dir_of("llama"), &opt), PESC_USAGE,
              "base_dtype: found \"int8\", expected f32, bf16, nf4 or stored");
    opt.base_dtype = "";
    opt.compute_dtype = "f16";
    must_fail(pesc_model_open(&m, one, dir_of("llama"), &opt), PESC_USAGE, "compute_dtype");
    opt.compute_dtype = "";
    opt.patch = "x";
    must_fail(pesc_model_open(&m, one, dir_of("llama"), &opt), PESC_IO,
              "x: is not a directory; an expert patch is one");
    assert_null(m);
    pesc_model_close(NULL);
}

/* ---- files ---- */

static char *weights_file(const char *name, size_t *n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", name);
    return files_get(files_path(path), n);
}

static void a_seed_is_a_model(void **state)
{
    (void)state;
    size_t n, k, other;
    const char *config_path = files_path("llama.json");
    must(pesc_new(config_path, dir_of("again"), NULL, "f32", 7, NULL));
    must(pesc_new(config_path, dir_of("other"), NULL, "f32", 8, NULL));
    char *a = weights_file("llama", &n), *b = weights_file("again", &k);
    char *c = weights_file("other", &other);
    assert_int_equal(n, k);
    assert_memory_equal(a, b, n);
    assert_int_equal(n, other);
    assert_int_not_equal(memcmp(a, c, n), 0);
    free(a);
    free(b);
    free(c);
    must_fail(pesc_new(config_path, dir_of("again"), NULL, "f32", 7, NULL), PESC_USAGE,
              "is not empty");
    must_fail(pesc_new(config_path, dir_of("x"), NULL, "f16", 7, NULL), PESC_USAGE, "dtype: found");
}

static void new_weights_are_distributed(void **state)
{
    (void)state;
    pesc_model *m = open_row(one, "camelidae", "", "f32");
    const float *w = m->shape.w.blocks[0].ffn.gate.w.data,
                *r = m->shape.w.blocks[0].moe.router.data;
    const float *up = m->shape.w.blocks[1].moe.up.data, *norm = m->shape.w.final_norm.data;
    double sum = 0, squares = 0, most = 0;
    int64_t n = tensor_count(&m->shape.w.blocks[0].ffn.gate.w);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    assert_true(fabs(sum / (double)n) < 0.03); /* 0.2 / sqrt(1872) is 0.005 */
    assert_true(fabs(sqrt(squares / (double)n) - 0.2) < 0.02);
    for (int64_t i = 0; i < 5 * 36; i++)
        most = fmax(most, fabs((double)r[i]));
    assert_true(most <= 1.0 / 6 && most > 0.15); /* U(-1/sqrt C, 1/sqrt C) */
    for (int64_t i = 0; i < tensor_count(&m->shape.w.blocks[1].moe.up); i++)
        assert_true(up[i] == 0);
    for (int i = 0; i < 36; i++)
        assert_true(norm[i] == 1);
    pesc_model_close(m);
}

static void info_reads_headers(void **state)
{
    (void)state;
    pesc_model_info info = PESC_INIT(pesc_model_info), opened = PESC_INIT(pesc_model_info);
    must(pesc_info(dir_of("camelidae"), NULL, NULL, &info));
    assert_string_equal(info.family, "camelidae");
    assert_string_equal(info.format, "safetensors");
    assert_string_equal(info.dtype, "f32");
    assert_int_equal(info.experts, 5);
    assert_int_equal(info.adapter_dim, 7);
    assert_int_equal(info.n_tensors, 2 * (9 + 1 + 10) + 3);
    assert_int_equal(info.bytes, info.params_total * 4);
    assert_int_equal(info.params_trainable, 2 * (5 * 36 + 5 * 2 * 36 * 7));
    assert_int_equal(info.params_total - info.params_activated, 2 * 3 * 2 * 36 * 7);
    assert_string_equal(info.chat, "camelidae");
    pesc_model *m = open_row(one, "camelidae", "", "f32");
    must(pesc_model_describe(m, &opened));
    assert_memory_equal(&info, &opened, sizeof info);
    pesc_model_close(m);
}

/* Overwrites 4 bytes at the end of the weights and opens as bf16, so that they are converted. */
static void weights_that_are_not_finite(void **state)
{
    (void)state;
    size_t n, k;
    char *bytes = weights_file("llama", &n), *config_text = files_get(files_path("llama.json"), &k);
    const float bad = INFINITY;
    memcpy(bytes + n - sizeof bad, &bad, sizeof bad);
    files_put("broken/model.safetensors", bytes, n);
    files_text("broken/config.json", config_text);
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = "bf16";
    pesc_model *m = NULL;
    must_fail(pesc_model_open(&m, one, dir_of("broken"), &opt), PESC_FORMAT,
              "holds a number that is not finite");
    free(bytes);
    free(config_text);
}

/* A tied model whose file has another head: the file is believed. */
static void a_head_of_its_own_is_used(void **state)
{
    (void)state;
    size_t n, k;
    char *bytes = weights_file("llama", &n);
    files_put("untied/model.safetensors", bytes, n);
    char *text = files_get(files_path("tied.json"), &k);
    files_text("untied/config.json", text);
    pesc_model *a = open_row(one, "llama", "", "f32"), *b = open_row(one, "untied", "", "f32");
    assert_ptr_not_equal(b->shape.w.head.data, b->shape.w.embed.data);
    float *x = alone(a, ids, 9), *y = alone(b, ids, 9);
    same(x, y, 9);
    free(x);
    free(y);
    free(bytes);
    free(text);
    pesc_model_close(a);
    pesc_model_close(b);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = "nf4";
    for (uint64_t i = 1;; i++) {
        pesc_model *m = NULL;
        mem_fail_at(i);
        pesc_status s = pesc_model_open(&m, one, dir_of("mixtral"), &opt);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (fired && s != PESC_OK)
            assert_int_equal(s, PESC_NOMEM);
        assert_true(s == PESC_OK || !m);
        pesc_model_close(m);
        if (!fired)
            break;
    }
}

int main(void)
{
    struct CMUnitTest tests[N_ROWS * 3 + 16];
    static char names[N_ROWS * 3][64];
    static const struct {
        const char *name;
        CMUnitTestFunction fn;
    } each[] = { { "decoding_is_prefill", decoding_is_prefill },
                 { "packed_is_alone", packed_is_alone },
                 { "threads_change_nothing", threads_change_nothing } };
    size_t n = 0;
    for (size_t i = 0; i < N_ROWS; i++)
        for (size_t k = 0; k < 3; k++, n++) {
            snprintf(names[n], sizeof names[n], "%s(%s)", each[k].name, rows[i].name);
            tests[n] = (struct CMUnitTest){ .name = names[n],
                                            .test_func = each[k].fn,
                                            .initial_state = (void *)(uintptr_t)&rows[i] };
        }
    const struct CMUnitTest others[] = {
        cmocka_unit_test(zero_up_is_the_dense_model),
        cmocka_unit_test(adapters_in_one_op),
        cmocka_unit_test(only_asked_rows_meet_the_head),
        cmocka_unit_test(ids_beyond_the_vocabulary),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_seed_is_a_model),
        cmocka_unit_test(new_weights_are_distributed),
        cmocka_unit_test(info_reads_headers),
        cmocka_unit_test(weights_that_are_not_finite),
        cmocka_unit_test(a_head_of_its_own_is_used),
        cmocka_unit_test(survives_want_of_memory),
        cmocka_unit_test(dynamic_rope_is_by_the_whole_sequence),
        cmocka_unit_test(dynamic_rope_reuses_no_key_across_the_context),
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        tests[n++] = others[i];
    return _cmocka_run_group_tests("model", tests, n, open_all, close_all);
}
