/* Expert patches that are served adapters: rows of one forward with different patches compute what
 * models with these patches applied compute: bit for bit, and on a GPU (PESC_TEST_DEVICE) up to
 * rounding, because there a row may depend on the number of rows. */
#include "attach/served_adapters.h"

#include "attach/attached.h"
#include "base/mem.h"
#include "format/patch.h"
#include "model/pass.h"
#include "support/check.h"
#include "support/far.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/patches.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 6, LENGTH = 9, TOKENS = SEQS * LENGTH, VOCAB = 31, PATCHES = 3 };

#define COMMON                                                                                     \
    "\"hidden_size\":24,\"num_hidden_layers\":3,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":28,\"vocab_size\":31,\"max_position_embeddings\":64}"
#define MIXTRAL                                                                                    \
    "{\"model_type\":\"mixtral\",\"num_local_experts\":3,\"num_key_value_heads\":2," COMMON
#define DEEPSEEK                                                                                   \
    "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":4,\"num_experts_per_tok\":2,"            \
    "\"moe_intermediate_size\":12,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"             \
    "\"kv_lora_rank\":8,\"q_lora_rank\":null,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"       \
    "\"v_head_dim\":5," COMMON

/* Layers without an extra expert, experts that several patches replace, and all of a layer. */
static const struct {
    const char *name, *json, *cfg[PATCHES];
    int n_experts; /* of all patches */
} models[] = {
    { "mixtral",
      MIXTRAL,
      { "{\"experts\": {\"0\": [2], \"1\": [], \"2\": [1, 0]}}",
        "{\"experts\": {\"0\": [], \"1\": [], \"2\": [1]}}",
        "{\"experts\": {\"0\": [0, 1, 2], \"1\": [], \"2\": []}}" },
      7 },
    { "deepseek",
      DEEPSEEK,
      { "{\"experts\": {\"1\": [3], \"2\": [0, 2]}}", "{\"experts\": {\"1\": [1, 3], \"2\": []}}",
        "{\"experts\": {\"1\": [0], \"2\": [2]}}" },
      7 },
};
enum { MODELS = sizeof models / sizeof *models };

static pesc_device *dev;

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, golden_device()));
    for (int i = 0; i < MODELS; i++) {
        char file[64];
        snprintf(file, sizeof file, "%s.json", models[i].name);
        must(pesc_new(files_text(file, models[i].json), files_path(models[i].name), NULL, "f32", 3,
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

static pesc_model *open_on(pesc_device *d, const char *name, const char *base, const char *dir)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = base;
    opt.compute_dtype = "f32";
    opt.patch = dir;
    pesc_model *m;
    must(pesc_model_open(&m, d, files_path(name), &opt));
    return m;
}

typedef char path[512];

/* Writes the patches of a model; out[i] is where. */
static void put_patches(int model, path *out)
{
    pesc_model *m = open_on(dev, models[model].name, NULL, NULL);
    for (int i = 0; i < PATCHES; i++) {
        char dir[32];
        snprintf(dir, sizeof dir, "patch%d", i);
        patches_put(m, models[model].cfg[i], dir, (uint64_t)i + 5);
        snprintf(out[i], sizeof out[i], "%s", files_path(dir));
    }
    pesc_model_close(m);
}

static void tokens_of(int32_t *ids, int32_t seq)
{
    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = (seq * 11 + i * 5 + 3) % VOCAB;
}

typedef struct logits {
    float at[LENGTH * VOCAB];
} logits;

static logits alone(pesc_model *m, int32_t seq)
{
    int32_t ids[LENGTH];
    logits l;
    tokens_of(ids, seq);
    must(pesc_logits(m, ids, LENGTH, l.at));
    return l;
}

/* One forward of all sequences. */
static void together(pesc_model *m, pass *p, const int32_t *adapters, logits *out)
{
    int32_t ids[SEQS][LENGTH], rows[TOKENS];
    token_seq seqs[SEQS];
    tensor t;
    for (int32_t s = 0; s < SEQS; s++) {
        tokens_of(ids[s], s);
        seqs[s] = (token_seq){ .ids = ids[s], .n = LENGTH, .adapter = adapters[s] };
    }
    for (int32_t i = 0; i < TOKENS; i++)
        rows[i] = i;
    must(pass_set(p, seqs, SEQS, rows, TOKENS));
    must(model_fwd(m, p, &t));
    must(p->dev->op->download(p->dev, out, t.data, SEQS * sizeof *out));
}

static void same(const logits *got, const logits *want)
{
    if (dev->op->host_memory(dev))
        assert_memory_equal(got, want, sizeof *want);
    for (size_t i = 0; i < sizeof want->at / sizeof *want->at; i++)
        assert_float_equal(got->at[i], want->at[i], 1e-3);
}

static void open_adapters(pesc_model *m, path *dirs)
{
    served_adapter all[PATCHES];
    for (int i = 0; i < PATCHES; i++)
        all[i] = (served_adapter){ ADAPTER_PATCH, dirs[i] };
    must(served_adapters_open(m, all, PATCHES));
}

/* Twice with the same memory: what a forward leaves in it does not reach the next one. */
static void compare(pesc_device *d, int model, const char *base)
{
    static const int32_t adapters[2][SEQS] = { { 1, 0, 2, 3, 3, 1 }, { 0, 3, 1, 0, 2, 2 } };
    path dirs[PATCHES];
    put_patches(model, dirs);
    pesc_model *m = open_on(d, models[model].name, base, NULL), *with[PATCHES + 1];
    open_adapters(m, dirs);
    for (int i = 0; i <= PATCHES; i++)
        with[i] = open_on(d, models[model].name, base, i ? dirs[i - 1] : NULL);
    pass *p;
    must(pass_open(&p, m, (pass_limits){ TOKENS, SEQS, TOKENS }, NULL));
    for (int round = 0; round < 2; round++) {
        logits got[SEQS];
        together(m, p, adapters[round], got);
        for (int32_t s = 0; s < SEQS; s++) {
            int32_t w = adapters[round][s];
            logits want = alone(with[w], s), plain = alone(with[0], s);
            same(&got[s], &want);
            assert_true(!w == (memcmp(&want, &plain, sizeof want) == 0));
        }
    }
    pass_close(p);
    for (int i = 0; i <= PATCHES; i++)
        pesc_model_close(with[i]);
    served_adapters_close(m);
    assert_int_equal(m->shape.extra_experts, 0);
    pesc_model_close(m);
}

static void each_row_uses_its_own_experts(void **state)
{
    (void)state;
    static const char *const dtypes[] = { "f32", "bf16", "nf4" };
    for (int i = 0; i < MODELS; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            compare(dev, i, dtypes[d]);
}

/* Nothing but ops touches the memory of a device. */
static void the_host_touches_no_device_memory(void **state)
{
    (void)state;
    pesc_device *d = far_open(0);
    compare(d, 1, "f32");
    pesc_device_close(d);
}

/* Nothing is held but the experts that differ, and tables of four bytes for each expert. */
static void only_what_differs_is_held(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        path dirs[PATCHES];
        put_patches(i, dirs);
        pesc_device *d = far_open((size_t)1 << 24);
        pesc_model *m = open_on(d, models[i].name, NULL, NULL);
        open_adapters(m, dirs); /* the first takes scratch for loading, which stays */
        served_adapters_close(m);
        const block *last = &m->shape.w.blocks[2];
        size_t n_experts = (size_t)last->moe.gate.ne[0];
        size_t experts =
            (size_t)models[i].n_experts * 3 * tensor_bytes(&last->moe.gate) / n_experts;
        size_t tables = 3 * (PATCHES + 1) * n_experts * sizeof(int32_t);
        uint64_t before = d->op->room(d);
        open_adapters(m, dirs);
        uint64_t taken = before - d->op->room(d);
        assert_in_range(taken, experts, experts + tables + 1024); /* tensors are aligned */
        served_adapters_close(m);
        assert_true(d->op->room(d) == before);
        pesc_model_close(m);
        pesc_device_close(d);
    }
}

static void refuse(pesc_model *m, const char *dir, pesc_status status, const char *why)
{
    served_adapter one = { ADAPTER_PATCH, dir };
    must_fail(served_adapters_open(m, &one, 1), status, why);
    assert_null(m->attached->served);
    assert_int_equal(m->shape.extra_experts, 0);
}

static void misfits_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *cfg, *why;
    } shared[] = {
        { "{\"experts\": {\"1\": [3], \"2\": []}, \"shared_experts\": true}",
          "replaces shared experts, which all requests of a batch share" },
        { "{\"experts\": {\"1\": [3], \"2\": []}, \"non_expert_modules\": true}",
          "replaces modules without experts, which all requests of a batch share" },
    };
    path dirs[PATCHES];
    put_patches(0, dirs);
    pesc_model *m = open_on(dev, "deepseek", NULL, NULL);
    refuse(m, dirs[0], PESC_FORMAT, "layer");
    refuse(m, files_path("none"), PESC_IO, "is not a directory");
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
        patches_put(m, shared[i].cfg, "whole", 1);
        refuse(m, files_path("whole"), PESC_UNSUPPORTED, shared[i].why);
    }
    patches_put(m, models[1].cfg[0], "own", 1);
    must(patch_describe(files_path("own"), "0123456789abcdef"));
    refuse(m, files_path("own"), PESC_SHAPE, "was made for another model");
    pesc_model_close(m);
    m = open_on(dev, "mixtral", NULL, dirs[0]);
    refuse(m, dirs[1], PESC_USAGE, "has a patch already");
    pesc_model_close(m);
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    path dirs[PATCHES];
    put_patches(1, dirs);
    pesc_model *m = open_on(dev, "deepseek", NULL, NULL);
    logits plain = alone(m, 0);
    served_adapter one = { ADAPTER_PATCH, dirs[0] };
    pesc_status st = PESC_NOMEM;
    for (uint64_t at = 1; st != PESC_OK; at++) {
        mem_fail_at(at);
        st = served_adapters_open(m, &one, 1);
        mem_fail_at(0);
        assert_true(st == PESC_OK ||
                    (st == PESC_NOMEM && !m->attached->served && !m->shape.extra_experts));
        logits now = alone(m, 0);
        same(&now, &plain);
    }
    served_adapters_close(m);
    pesc_model_close(m);
}

/* ---- recordings ---- */

static uint64_t recorded; /* the name of the last forward that may be replayed */

static bool spy_begin(device *d, uint64_t name)
{
    (void)d;
    recorded = name;
    return true;
}

/* A forward of one token of each of three sequences; returns the name of its recording. */
static uint64_t decode(pesc_model *m, pass *p, kvcache *kv, const int32_t *adapters)
{
    int32_t id = 7, rows[] = { 0, 1, 2 };
    token_seq seqs[3];
    tensor t;
    for (int32_t s = 0; s < 3; s++)
        seqs[s] = (token_seq){
            .ids = &id, .n = 1, .past = kvcache_length(kv, s), .kv_seq = s, .adapter = adapters[s]
        };
    must(pass_set(p, seqs, 3, rows, 3));
    must(model_fwd(m, p, &t));
    return recorded;
}

/* The products of a forward depend on the adapter each row belongs to, so a recording does too. */
static void recordings_are_of_one_set_of_adapters(void **state)
{
    (void)state;
    static const int32_t none[] = { 0, 0, 0 }, one[] = { 0, 1, 0 }, other[] = { 1, 0, 0 };
    path dirs[PATCHES];
    put_patches(0, dirs);
    pesc_model *m = open_on(dev, "mixtral", NULL, NULL);
    open_adapters(m, dirs);
    const ops *real = dev->op;
    ops spied = *real;
    spied.begin = spy_begin;
    kvcache *kv;
    pass *p;
    must(kvcache_open(&kv, dev, &m->shape.cfg, DT_F32, 3, 16, 48));
    must(pass_open(&p, m, (pass_limits){ 3, 3, 3 }, kv));
    dev->op = &spied;
    uint64_t a = decode(m, p, kv, none), b = decode(m, p, kv, one), c = decode(m, p, kv, other);
    uint64_t again = decode(m, p, kv, one);
    dev->op = real;
    assert_true(a != b && b != c && a != c);
    assert_true(again == b);
    pass_close(p);
    kvcache_close(kv);
    pesc_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_uses_its_own_experts),
        cmocka_unit_test(the_host_touches_no_device_memory),
        cmocka_unit_test(only_what_differs_is_held),
        cmocka_unit_test(misfits_are_told),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(recordings_are_of_one_set_of_adapters),
    };
    return cmocka_run_group_tests_name("extra_experts", tests, open_all, close_all);
}
