/* swap.c: patches go in and out of a loaded model. Patches are made by writing other numbers under
 * the names of chosen tensors; what the model must then compute is what a model computes whose
 * files hold those numbers. */
#include "attach/patched.h"

#include "arch/bind.h"
#include "attach/served_adapters.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/patches.h"
#include "support/tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 9, VOCAB = 31 };

#define COMMON                                                                                     \
    "\"hidden_size\":24,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":28,\"vocab_size\":31,\"max_position_embeddings\":64"
#define MIXTRAL                                                                                    \
    "{\"model_type\":\"mixtral\",\"num_local_experts\":3,\"num_key_value_heads\":2," COMMON
#define DEEPSEEK                                                                                   \
    "{\"model_type\":\"deepseek_v2\",\"n_routed_experts\":4,\"num_experts_per_tok\":2,"            \
    "\"moe_intermediate_size\":12,\"n_shared_experts\":2,\"first_k_dense_replace\":1,"             \
    "\"kv_lora_rank\":8,\"q_lora_rank\":null,\"qk_nope_head_dim\":6,\"qk_rope_head_dim\":4,"       \
    "\"v_head_dim\":5," COMMON

#define MIX_A "{\"experts\": {\"0\": [2], \"1\": [0, 1]}}"
#define MIX_B "{\"experts\": {\"0\": [], \"1\": [2]}}"
#define DEEP "{\"experts\": {\"1\": [3]}, \"shared_experts\": true}"
#define DEEP_ALL                                                                                   \
    "{\"experts\": {\"1\": [3, 1]}, \"shared_experts\": true, \"non_expert_modules\": true}"

static pesc_device *dev;

static void make(const char *name, const char *json, const char *stored, uint64_t seed)
{
    char file[64];
    snprintf(file, sizeof file, "%s.json", name);
    must(pesc_new(files_text(file, json), files_path(name), NULL, stored, seed, NULL));
}

static int open_all(void **state)
{
    (void)state;
    must(pesc_device_open(&dev, "cpu:2"));
    make("mixtral", MIXTRAL "}", "f32", 3);
    make("mixtral-bf16", MIXTRAL "}", "bf16", 3);
    make("mixtral-like", MIXTRAL "}", "f32", 4);
    make("tied", MIXTRAL ",\"tie_word_embeddings\":true}", "f32", 3);
    make("deepseek", DEEPSEEK "}", "f32", 5);
    make("dense", "{\"model_type\":\"llama\",\"num_key_value_heads\":2," COMMON "}", "f32", 3);
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    pesc_device_close(dev);
    return 0;
}

static pesc_model *open_model(const char *name, const char *base, const char *patch_dir)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = base;
    opt.patch = patch_dir;
    pesc_model *m;
    must(pesc_model_open(&m, dev, files_path(name), &opt));
    return m;
}

/* Random numbers for what cfg names of a model, under `dir`. */
static void make_patch(const char *model, const char *cfg, const char *dir, uint64_t seed)
{
    pesc_model *m = open_model(model, NULL, NULL);
    patches_put(m, cfg, dir, seed);
    pesc_model_close(m);
}

/* ---- what a model computes ---- */

typedef struct logits {
    float at[N * VOCAB];
} logits;

static logits run(pesc_model *m)
{
    static const int32_t ids[N] = { 3, 9, 4, 17, 30, 2, 8, 8, 21 };
    logits l;
    must(pesc_logits(m, ids, N, l.at));
    return l;
}

static void same(const logits *a, const logits *b)
{
    assert_memory_equal(a->at, b->at, sizeof a->at);
}

static void differ(const logits *a, const logits *b)
{
    assert_memory_not_equal(a->at, b->at, sizeof a->at);
}

/* Every tensor of a model as bytes, one behind the other, for free(). */
static char *bytes_of(pesc_model *m, size_t *n)
{
    char *all = NULL;
    *n = 0;
    for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
        tensor t = bind_tensor(&m->shape.w, &s);
        all = realloc(all, *n + tensor_bytes(&t));
        memcpy(all + *n, t.data, tensor_bytes(&t));
        *n += tensor_bytes(&t);
    }
    return all;
}

/* ---- tests ---- */

static const struct {
    const char *model, *cfg;
} rows[] = {
    { "mixtral", MIX_A },
    { "mixtral-bf16", MIX_A },
    { "deepseek", DEEP },
    { "deepseek", DEEP_ALL },
    { "tied", "{\"experts\": {\"0\": [1], \"1\": []}, "
              "\"non_expert_modules\": true}" },
};

static void in_and_out_is_nothing(void **state)
{
    (void)state;
    static const char *const dtypes[] = { NULL, "f32", "bf16", "nf4" };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            make_patch(rows[i].model, rows[i].cfg, "patch", i);
            pesc_model *m = open_model(rows[i].model, dtypes[d], NULL);
            pesc_model *loaded = open_model(rows[i].model, dtypes[d], files_path("patch"));
            size_t n, back, with;
            char *before = bytes_of(m, &n), *want = bytes_of(loaded, &with);
            logits plain = run(m);
            must(pesc_model_patch(m, files_path("patch")));
            logits patched = run(m), opened = run(loaded);
            differ(&patched, &plain);
            same(&patched, &opened);
            char *now = bytes_of(m, &back);
            assert_int_equal(back, with);
            assert_memory_equal(now, want, with);
            free(now);
            must(pesc_model_unpatch(m));
            now = bytes_of(m, &back);
            assert_int_equal(back, n);
            assert_memory_equal(now, before, n);
            logits again = run(m);
            same(&again, &plain);
            must(pesc_model_unpatch(m)); /* none is in: nothing happens */
            free(now);
            free(before);
            free(want);
            pesc_model_close(m);
            pesc_model_close(loaded);
        }
}

/* Only what the file names has changed, and to what the patch holds. */
static void the_others_are_the_bases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        make_patch(rows[i].model, rows[i].cfg, "patch", 1);
        pesc_model *base = open_model(rows[i].model, "f32", NULL);
        pesc_model *m = open_model(rows[i].model, "f32", files_path("patch"));
        patch *p;
        must(patch_open(&p, files_path("patch"), NULL));
        size_t changed = 0;
        for (slot s = slot_first(); slot_next(&m->shape.cfg, &s);) {
            tensor a = bind_tensor(&base->shape.w, &s), b = bind_tensor(&m->shape.w, &s);
            const weight *w = weights_find(p->ws, s.name);
            assert_memory_equal(b.data, w ? w->data : a.data, tensor_bytes(&b));
            changed += w && memcmp(a.data, b.data, tensor_bytes(&a)) != 0;
        }
        assert_int_equal(changed, weights_count(p->ws));
        assert_true(!m->shape.cfg.tie_embeddings || m->shape.w.head.data == m->shape.w.embed.data);
        patch_close(p);
        pesc_model_close(base);
        pesc_model_close(m);
    }
}

static void another_takes_its_place(void **state)
{
    (void)state;
    make_patch("mixtral", MIX_A, "a", 1);
    make_patch("mixtral", MIX_B, "b", 2);
    pesc_model *m = open_model("mixtral", NULL, files_path("a"));
    pesc_model *other = open_model("mixtral", NULL, files_path("b"));
    logits a = run(m), b = run(other);
    must(pesc_model_patch(m, files_path("b")));
    logits now = run(m);
    same(&now, &b);
    /* one that does not fit leaves the one that is in */
    must_fail(pesc_model_patch(m, files_path("dense")), PESC_IO, "has no expert_cfg.json");
    now = run(m);
    same(&now, &b);
    must(pesc_model_patch(m, files_path("a")));
    now = run(m);
    same(&now, &a);
    pesc_model_close(m);
    pesc_model_close(other);
}

static void misfits_are_told(void **state)
{
    (void)state;
    pesc_model *m = open_model("mixtral", NULL, NULL), *dense = open_model("dense", NULL, NULL);
    make_patch("mixtral", MIX_A, "patch", 1);
    must_fail(pesc_model_patch(dense, files_path("patch")), PESC_SHAPE, "has none");
    /* expert_cfg.json and the tensors must say the same */
    files_text("patch/expert_cfg.json", MIX_B);
    must_fail(pesc_model_patch(m, files_path("patch")), PESC_SHAPE,
              "3 missing: model.layers.1.block_sparse_moe.experts.2.w1.weight");
    must_fail(pesc_model_patch(m, files_path("patch")), PESC_SHAPE, "9 left over");
    files_text("patch/expert_cfg.json", "{\"experts\": {\"0\": [2], \"1\": [0, 7]}}");
    must_fail(pesc_model_patch(m, files_path("patch")), PESC_FORMAT, "expert 7");
    make_patch("deepseek", DEEP, "patch", 1);
    must_fail(pesc_model_patch(m, files_path("patch")), PESC_FORMAT, "expected 0 to 2");
    pesc_model_close(m);
    pesc_model_close(dense);
}

static void the_base_is_known_again(void **state)
{
    (void)state;
    char id[4][17];
    static const char *const names[] = { "mixtral", "mixtral-like", "tied", "mixtral" };
    for (int i = 0; i < 4; i++) {
        pesc_model *m = open_model(names[i], i == 3 ? "nf4" : NULL, NULL);
        patched_base_hash(&m->shape.cfg, m->dir->ws, id[i]);
        pesc_model_close(m);
    }
    assert_string_equal(id[0], id[3]); /* how it is held does not matter */
    assert_string_not_equal(id[0], id[1]);
    assert_string_not_equal(id[0], id[2]);
    make_patch("mixtral", MIX_A, "patch", 1);
    must(patch_describe(files_path("patch"), id[0]));
    pesc_model *m = open_model("mixtral", NULL, files_path("patch"));
    pesc_model *like = open_model("mixtral-like", NULL, NULL);
    must_fail(pesc_model_patch(like, files_path("patch")), PESC_SHAPE,
              "was made for another model");
    pesc_model_close(m);
    pesc_model_close(like);
    must(io_remove(files_path("patch/patch.json")));
}

/* A number that is not finite is found where numbers are converted, and the base is back. */
static void a_bad_patch_leaves_the_base(void **state)
{
    (void)state;
    make_patch("mixtral", MIX_A, "patch", 1);
    char path[512];
    snprintf(path, sizeof path, "%s", files_path("patch/x.safetensors"));
    size_t n;
    char *bytes = files_get(path, &n);
    memset(bytes + n - 4, 0xff, 4);
    files_put("patch/x.safetensors", bytes, n);
    free(bytes);
    pesc_model *m = open_model("mixtral", "bf16", NULL);
    logits plain = run(m);
    must_fail(pesc_model_patch(m, files_path("patch")), PESC_FORMAT, "is not finite");
    logits now = run(m);
    same(&now, &plain);
    pesc_model_close(m);
}

static void memory_may_end_anywhere(void **state)
{
    (void)state;
    make_patch("deepseek", DEEP, "patch", 1);
    pesc_model *m = open_model("deepseek", NULL, NULL);
    logits plain = run(m);
    pesc_status st = PESC_NOMEM;
    for (uint64_t at = 1; st != PESC_OK; at++) {
        mem_fail_at(at);
        st = pesc_model_patch(m, files_path("patch"));
        mem_fail_at(0);
        logits now = run(m);
        if (st != PESC_OK) {
            assert_int_equal(st, PESC_NOMEM);
            same(&now, &plain);
        } else {
            differ(&now, &plain);
        }
    }
    pesc_model_close(m);
}

/* ---- with a LoRA ---- */

/* A LoRA on one linear and on one matrix of the experts of a layer of mixtral. */
static const char *make_lora(void)
{
    enum { LORAS = 4, RANK = 2, MOST = 28 * RANK };
    static const char *const on[LORAS] = { "0.self_attn.q_proj", "1.block_sparse_moe.experts.0.w1",
                                           "1.block_sparse_moe.experts.1.w1",
                                           "1.block_sparse_moe.experts.2.w1" };
    static float x[2 * LORAS][MOST];
    char names[2 * LORAS][128];
    test_tensor list[2 * LORAS];
    for (int i = 0; i < 2 * LORAS; i++) {
        int64_t wide = i % 2 && i / 2 ? 28 : 24;
        for (int64_t j = 0; j < wide * RANK; j++)
            x[i][j] = 0.2F * rng_normal((rng_key){ 7, (uint64_t)i }, (uint64_t)j);
        snprintf(names[i], sizeof names[i], "base_model.model.model.layers.%s.lora_%c.weight",
                 on[i / 2], "AB"[i % 2]);
        list[i] = (test_tensor){ names[i],
                                 "F32",
                                 i % 2 ? wide : RANK,
                                 i % 2 ? RANK : wide,
                                 x[i],
                                 (size_t)wide * RANK * sizeof(float) };
    }
    files_text("lora/adapter_config.json",
               "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":4,\"target_modules\":[\"q_proj\","
               "\"w1\"]}");
    tensors_put("lora/adapter_model.safetensors", list, 2 * LORAS);
    return files_path("lora");
}

static pesc_model *open_tuned(const char *lora_dir, const char *patch_dir, bool merge)
{
    pesc_load_options opt = pesc_load_defaults();
    opt.base_dtype = "f32";
    opt.compute_dtype = "bf16";
    opt.lora = lora_dir;
    opt.patch = patch_dir;
    opt.merge_lora = merge;
    pesc_model *m;
    must(pesc_model_open(&m, dev, files_path("mixtral"), &opt));
    return m;
}

static double distance(const logits *a, const logits *b)
{
    double most = 0;
    for (int i = 0; i < N * VOCAB; i++)
        most = fmax(most, fabs((double)a->at[i] - (double)b->at[i]));
    return most;
}

static void a_lora_stands_on_a_patch(void **state)
{
    (void)state;
    char lora_dir[512], patch_dir[512];
    snprintf(lora_dir, sizeof lora_dir, "%s", make_lora());
    make_patch("mixtral",
               "{\"experts\": {\"0\": [2], \"1\": [0, 1]}, \"non_expert_modules\": true}", "patch",
               1);
    snprintf(patch_dir, sizeof patch_dir, "%s", files_path("patch"));
    pesc_model *plain = open_tuned(NULL, patch_dir, true);
    pesc_model *apart = open_tuned(lora_dir, patch_dir, false);
    pesc_model *merged = open_tuned(lora_dir, patch_dir, true);
    logits without = run(plain), want = run(apart), got = run(merged);
    assert_true(distance(&got, &want) < 0.1 * distance(&without, &want));
    assert_true(apart->shape.expert_rank == 2 && merged->shape.expert_rank == 0);
    /* what is in no file cannot be loaded again */
    must_fail(pesc_model_unpatch(merged), PESC_USAGE, "its LoRA was added to the weights");
    must_fail(pesc_model_patch(merged, patch_dir), PESC_USAGE, "or with merge_lora false");
    must(pesc_model_unpatch(apart));
    must(pesc_model_patch(apart, patch_dir));
    got = run(apart);
    same(&got, &want);
    pesc_model_close(plain);
    pesc_model_close(apart);
    pesc_model_close(merged);
}

/* The experts of a patch that is a model of its own would be without the LoRA. */
static void patches_by_name_need_experts_without_lora(void **state)
{
    (void)state;
    char lora_dir[512];
    snprintf(lora_dir, sizeof lora_dir, "%s", make_lora());
    make_patch("mixtral", MIX_A, "patch", 1);
    for (int merge = 0; merge < 2; merge++) {
        pesc_model *m = open_tuned(lora_dir, NULL, merge);
        must_fail(
            served_adapters_open(m, &(served_adapter){ ADAPTER_PATCH, files_path("patch") }, 1),
            PESC_UNSUPPORTED, "has LoRA on its experts");
        pesc_model_close(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_and_out_is_nothing),
        cmocka_unit_test(the_others_are_the_bases),
        cmocka_unit_test(another_takes_its_place),
        cmocka_unit_test(misfits_are_told),
        cmocka_unit_test(the_base_is_known_again),
        cmocka_unit_test(a_bad_patch_leaves_the_base),
        cmocka_unit_test(memory_may_end_anywhere),
        cmocka_unit_test(a_lora_stands_on_a_patch),
        cmocka_unit_test(patches_by_name_need_experts_without_lora),
    };
    return cmocka_run_group_tests_name("swap", tests, open_all, close_all);
}
