/* The comparison of a written model with what it was made from: its numbers on logits made by hand,
 * and what it says of models: rounding passes, damage fails, and a mixture that chooses other
 * experts after rounding is not called rounding. */
#include "craft/verify.h"

#include "base/rng.h"
#include "format/safetensors.h"
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- logits made by hand ---- */

enum { POSITIONS = 16, VOCAB = 50, N = POSITIONS * VOCAB };

static pesc_device *dev;

static float from[N], made[N];

/* `made` is `from` with noise of this size. */
static void fill(float noise)
{
    for (int i = 0; i < N; i++) {
        from[i] = 3 * rng_normal((rng_key){ 1, 1 }, (uint64_t)i) + 20;
        made[i] = from[i] + noise * rng_normal((rng_key){ 1, 2 }, (uint64_t)i);
    }
}

static pesc_logit_check compared(verify_rounding r)
{
    pesc_logit_check c;
    verify_compare(&(verify_logit_pair){ from, made, POSITIONS, VOCAB }, r, &c);
    return c;
}

static void equal_logits(void **state)
{
    (void)state;
    fill(0);
    pesc_logit_check c = compared(ROUNDING_NONE);
    assert_int_equal(c.logits, N);
    assert_int_equal(c.positions, POSITIONS);
    assert_int_equal(c.greedy_same, POSITIONS);
    assert_true(c.differ == 0 && c.max_diff == 0 && c.error == 0 && c.kl == 0);
    assert_int_equal(c.beyond_rounding, 0);
    assert_true(verify_passes(&c, ROUNDING_NONE) && c.max_logit > 20);
    made[7] = nextafterf(made[7], 99);
    c = compared(ROUNDING_NONE);
    assert_int_equal(c.differ, 1);
    assert_false(verify_passes(&c, ROUNDING_NONE));
    assert_true(verify_passes(&c, ROUNDING_F32));
}

/* A constant on all logits of a position is no change: softmax ignores it. */
static void a_constant_is_no_error(void **state)
{
    (void)state;
    fill(0);
    for (int i = 0; i < VOCAB; i++)
        made[i] += 2;
    pesc_logit_check c = compared(ROUNDING_F32);
    assert_true(c.error < 1e-6 && c.kl < 1e-9 && c.max_diff > 1.9);
    assert_true(verify_passes(&c, ROUNDING_F32));
}

static void divergence_by_hand(void **state)
{
    (void)state;
    float a[2] = { 0, logf(3) }, b[2] = { logf(3), 0 }; /* 1/4, 3/4 and 3/4, 1/4 */
    pesc_logit_check c;
    verify_compare(&(verify_logit_pair){ a, b, 1, 2 }, ROUNDING_16, &c);
    assert_true(fabs(c.kl - 0.5 * log(3)) < 1e-6);
    assert_true(fabs(c.error - 2) < 1e-6); /* the vectors are opposite */
    assert_int_equal(c.greedy_same, 0);
}

static void noise_passes_up_to_a_limit(void **state)
{
    (void)state;
    static const struct {
        float noise;
        verify_rounding rounding;
        bool passes;
    } rows[] = {
        { 1e-5F, ROUNDING_F32, true },  { 2e-3F, ROUNDING_F32, true },
        { 0.01F, ROUNDING_F32, false }, { 0.02F, ROUNDING_16, true },
        { 0.1F, ROUNDING_16, true },    { 0.4F, ROUNDING_16, false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill(rows[i].noise);
        pesc_logit_check c = compared(rows[i].rounding);
        if (verify_passes(&c, rows[i].rounding) != rows[i].passes || c.beyond_rounding)
            fail_msg("noise %g: error %g, KL %g, greedy %d", (double)rows[i].noise, c.error, c.kl,
                     (int)c.greedy_same);
    }
}

/* Two tokens are nearly as likely, and the other one is the greedy one in half of the positions. */
static void a_near_tie_is_no_other_prediction(void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        fill(0);
        for (int p = 0; p < POSITIONS; p += 2) {
            float *a = from + p * VOCAB, *b = made + p * VOCAB;
            a[0] = b[1] = 40;
            a[1] = b[0] = tie ? 39.95F : 39.85F;
        }
        pesc_logit_check c = compared(ROUNDING_16);
        assert_int_equal(c.greedy_same, tie ? POSITIONS : POSITIONS / 2);
        assert_true(verify_passes(&c, ROUNDING_16) == (bool)tie);
    }
}

/* What another choice of an expert looks like: one position changes, the others round. */
static void one_position_is_counted_and_passes(void **state)
{
    (void)state;
    fill(0.01F);
    for (int i = 0; i < VOCAB; i++)
        made[3 * VOCAB + i] += 0.4F * rng_normal((rng_key){ 1, 3 }, (uint64_t)i);
    pesc_logit_check c = compared(ROUNDING_16);
    assert_int_equal(c.beyond_rounding, 1);
    assert_true(verify_passes(&c, ROUNDING_16));
}

/* The median does not see damage that few positions see; the predictions do. */
static void a_few_wrong_positions_fail(void **state)
{
    (void)state;
    fill(0);
    for (int i = 0; i < 2 * VOCAB; i++)
        made[i] = from[(i + 17) % (2 * VOCAB)];
    pesc_logit_check c = compared(ROUNDING_16);
    assert_true(c.error == 0 && c.kl > 0.1);
    assert_int_equal(c.beyond_rounding, 2);
    assert_false(verify_passes(&c, ROUNDING_16));
    assert_false(verify_passes(&c, ROUNDING_F32));
}

static void not_a_number_fails(void **state)
{
    (void)state;
    fill(0);
    made[5] = NAN;
    pesc_logit_check c = compared(ROUNDING_16);
    assert_false(verify_passes(&c, ROUNDING_16));
    assert_true(isinf(c.max_diff));
    assert_int_equal(c.beyond_rounding, 1);
}

/* ---- models ---- */

/* Turns the sign of every number of one tensor in a model directory of this test's. */
static void damage(const char *dir, const char *tensor)
{
    char file[64];
    size_t n;
    snprintf(file, sizeof file, "%s/model.safetensors", dir);
    hfdir *h = modeldirs_open(files_path(dir));
    const weight *w = modeldirs_tensor(h, tensor);
    char *bytes = files_get(files_path(file), &n);
    char *at = memmem(bytes, n, w->data, w->bytes);
    assert_non_null(at);
    size_t each = dtype_block_bytes(w->dt), count = w->bytes / each;
    for (size_t i = 0; i < count; i++)
        at[i * each + each - 1] ^= (char)0x80;
    hfdir_close(h);
    files_put(file, bytes, n);
    free(bytes);
}

static pesc_status verified(const char *model, const char *lora, verify_rounding r)
{
    pesc_logit_check c;
    verify_pair v = { .dev = dev,
                      .made_from = model,
                      .made = files_path("out"),
                      .written = "out",
                      .rounding = r,
                      .from_opt = pesc_load_defaults(),
                      .made_opt = pesc_load_defaults() };
    v.from_opt.lora = lora;
    v.from_opt.base_dtype = lora ? "" : "bf16";
    return verify_logits(&v, &c);
}

static void upcycling_bf16_passes_and_damage_fails(void **state)
{
    (void)state;
    char dense[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_craft_options o = pesc_craft_defaults();
    o.kind = "upcycle";
    o.experts = 4;
    o.dtype = "bf16";
    files_clear();
    must(pesc_craft(dev, modeldirs_golden(dense, "llama"), files_path("out"), &o, &check));
    assert_int_equal(check.beyond_rounding, 0);
    assert_int_equal(check.greedy_same, check.positions);
    assert_true(check.kl < 1e-9);
    must(verified(dense, NULL, ROUNDING_F32));
    damage("out", "model.layers.1.block_sparse_moe.experts.2.w1.weight");
    must_fail(verified(dense, NULL, ROUNDING_F32), PESC_NUMERIC,
              "out: was written, but does not compute what");
}

static void merging_to_bf16_passes_and_damage_fails(void **state)
{
    (void)state;
    char base[512], lora[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_export_options o = pesc_export_defaults();
    o.lora = modeldirs_golden(lora, "peft/adapter");
    o.dtype = "bf16";
    files_clear();
    must(pesc_merge(dev, modeldirs_golden(base, "peft/base"), files_path("out"), &o, &check));
    assert_int_equal(check.beyond_rounding, 0);
    assert_true(check.differ > 0);
    must(verified(base, lora, ROUNDING_16));
    damage("out", "model.layers.0.self_attn.v_proj.weight");
    must_fail(verified(base, lora, ROUNDING_16), PESC_NUMERIC, "greedy tokens are the same");
}

/* A LoRA of random numbers on one linear of every layer of a model. */
static const char *random_lora(const char *linear, int layers, int dim, int kv)
{
    enum { R = 4, MOST = 64 };
    static char names[MOST][128], config[128];
    safetensors_spec specs[MOST];
    safetensors_writer *w = NULL;
    for (int i = 0; i < 2 * layers; i++) {
        snprintf(names[i], sizeof names[i],
                 "base_model.model.model.layers.%d.self_attn.%s.lora_%c.weight", i / 2, linear,
                 i % 2 ? 'B' : 'A');
        specs[i] = (safetensors_spec){ names[i], DT_F32, 2, { i % 2 ? kv : R, i % 2 ? R : dim } };
    }
    snprintf(config, sizeof config,
             "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":4,\"target_modules\":[\"%s\"]}",
             linear);
    files_text("lora/adapter_config.json", config);
    must(safetensors_writer_open(&w, &(safetensors_plan){ .dir = files_path("lora"),
                                                          .stem = "adapter_model",
                                                          .specs = specs,
                                                          .n = 2 * (size_t)layers }));
    for (int i = 0; i < 2 * layers; i++)
        for (int64_t j = 0; j < specs[i].ne[0] * specs[i].ne[1]; j++) {
            float x = 0.1F * rng_normal((rng_key){ 4, (uint64_t)i }, (uint64_t)j);
            must(safetensors_write(w, &x, sizeof x));
        }
    must(safetensors_writer_finish(w));
    return files_path("lora");
}

static void another_choice_of_experts_is_not_rounding(void **state)
{
    (void)state;
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_export_options o = pesc_export_defaults();
    files_clear();
    const char *config =
        files_text("mixtral.json",
                   "{\"model_type\":\"mixtral\",\"num_local_experts\":8,\"hidden_size\":64,"
                   "\"num_hidden_layers\":6,\"num_attention_heads\":4,\"num_key_value_heads\":4,"
                   "\"intermediate_size\":96,\"vocab_size\":200,\"max_position_embeddings\":128,"
                   "\"initializer_range\":0.12}");
    must(pesc_new(config, files_path("mixture"), NULL, "bf16", 3, NULL));
    o.lora = random_lora("v_proj", 6, 64, 64);
    must(pesc_merge(dev, files_path("mixture"), files_path("out"), &o, &check));
    assert_true(check.beyond_rounding > 0 && check.beyond_rounding < check.positions / 2);
}

/* Two layers of two tokens with two experts each: one of eight is another; then a layer's all. */
static void choices_alike_in_every_layer(void **state)
{
    (void)state;
    const int32_t a[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int32_t b[8] = { 1, 0, 2, 3, 4, 5, 6, 0 };
    verify_choices c = { a, b, 2, 2, 8, 2 };
    assert_true(verify_chooses_alike(&c));
    memset(b + 4, 0, 4 * sizeof *b);
    assert_false(verify_chooses_alike(&c));
}

/* In this model the predictions change with the choice of an expert; with the same choices they do
 * not. Damage that few positions see is found all the same. */
static void merging_a_mixture_of_large_experts(void **state)
{
    (void)state;
    static const char *const tensors[] = { "model.layers.2.mlp.experts.1.up_proj.weight",
                                           "model.layers.1.mlp.gate.weight" };
    char base[512];
    for (size_t i = 0; i < 2; i++) {
        pesc_logit_check check = PESC_INIT(pesc_logit_check);
        pesc_export_options o = pesc_export_defaults();
        files_clear();
        modeldirs_golden(base, "glm4_moe_lite");
        o.lora = random_lora("kv_b_proj", 3, 16, 44);
        o.dtype = "bf16";
        must(pesc_merge(dev, base, files_path("out"), &o, &check));
        assert_true(check.kl > 0.03 && check.beyond_rounding > 0);
        must(verified(base, o.lora, ROUNDING_16));
        damage("out", tensors[i]);
        must_fail(verified(base, o.lora, ROUNDING_16), PESC_NUMERIC, "does not compute what");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_logits),
        cmocka_unit_test(a_constant_is_no_error),
        cmocka_unit_test(divergence_by_hand),
        cmocka_unit_test(noise_passes_up_to_a_limit),
        cmocka_unit_test(a_near_tie_is_no_other_prediction),
        cmocka_unit_test(one_position_is_counted_and_passes),
        cmocka_unit_test(a_few_wrong_positions_fail),
        cmocka_unit_test(not_a_number_fails),
        cmocka_unit_test(upcycling_bf16_passes_and_damage_fails),
        cmocka_unit_test(merging_to_bf16_passes_and_damage_fails),
        cmocka_unit_test(another_choice_of_experts_is_not_rounding),
        cmocka_unit_test(choices_alike_in_every_layer),
        cmocka_unit_test(merging_a_mixture_of_large_experts),
    };
    must(pesc_device_open(&dev, "cpu"));
    int failed = cmocka_run_group_tests_name("verify", tests, NULL, NULL);
    pesc_device_close(dev);
    return failed;
}
