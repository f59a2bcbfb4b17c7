/* merge and export against the numbers in the files: what is folded in is B A summed in doubles,
 * what is written elsewhere computes the same. */
#include "format/peft.h"
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- merge ---- */

/* W + scale B A of one linear, by hand. */
static void is_folded(const hfdir *base, const hfdir *merged, const peft_lora *l)
{
    char name[256];
    snprintf(name, sizeof name, "%s.weight", l->module);
    float *w = modeldirs_numbers(modeldirs_tensor(base, name)),
          *got = modeldirs_numbers(modeldirs_tensor(merged, name));
    float *a = modeldirs_numbers(l->a), *b = modeldirs_numbers(l->b);
    int64_t rows = l->b->ne[0], cols = l->a->ne[1], rank = l->a->ne[0];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double sum = 0;
            for (int64_t k = 0; k < rank; k++)
                sum += (double)b[i * rank + k] * (double)a[k * cols + j];
            double want = (double)w[i * cols + j] + (double)l->scale * sum;
            assert_true(fabs((double)got[i * cols + j] - want) <= 1e-6 * (1 + fabs(want)));
        }
    free(w);
    free(got);
    free(a);
    free(b);
}

typedef struct merging {
    char base[512], lora[512]; /* paths */
    pesc_export_options o;
} merging;

/* Merges the golden adapter into its base at "out"; the logits change by less than `bound` of the
 * largest. */
static void merge_golden(merging *m, const char *merge_base, double bound)
{
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    m->o = pesc_export_defaults();
    m->o.lora = modeldirs_golden(m->lora, "peft/adapter");
    m->o.merge_base = merge_base;
    files_clear();
    must(pesc_merge(modeldirs_device(), modeldirs_golden(m->base, "peft/base"), files_path("out"),
                    &m->o, &check));
    assert_true(check.logits > 0 && check.max_diff < bound * check.max_logit);
}

static void merges(void **state)
{
    (void)state;
    merging m;
    merge_golden(&m, pesc_export_defaults().merge_base, 5e-5);
    hfdir *base = modeldirs_open(m.base), *merged = modeldirs_open(files_path("out"));
    peft *p = NULL;
    must(peft_open(&p, m.lora));
    assert_true(p->n > 0);
    for (size_t i = 0; i < p->n; i++)
        is_folded(base, merged, &p->loras[i]);
    const char *const untouched[] = { "model.embed_tokens.weight", "model.norm.weight" };
    for (size_t i = 0; i < 2; i++)
        modeldirs_same(base, untouched[i], merged, untouched[i]);
    peft_close(p);
    hfdir_close(base);
    hfdir_close(merged);
}

static void merges_into_what_nf4_made(void **state)
{
    (void)state;
    merging m;
    /* the adapter's part is summed beside W x there, inside of it here: roundings of f32 differ */
    merge_golden(&m, "nf4-dequant", 2e-5);
    /* and that is another model than the one folded into the original */
    m.o.merge_base = "original";
    must(pesc_merge(modeldirs_device(), m.base, files_path("plain"), &m.o, NULL));
    hfdir *a = modeldirs_open(files_path("out")), *b = modeldirs_open(files_path("plain"));
    const weight *x = modeldirs_tensor(a, "model.layers.0.mlp.up_proj.weight");
    const weight *y = modeldirs_tensor(b, "model.layers.0.mlp.up_proj.weight");
    assert_memory_not_equal(x->data, y->data, x->bytes);
    modeldirs_same(a, "model.embed_tokens.weight", b, "model.embed_tokens.weight");
    hfdir_close(a);
    hfdir_close(b);
}

static void copy_file(const char *from_dir, const char *name)
{
    char from[600], to[64];
    size_t n;
    snprintf(from, sizeof from, "%s/%s", from_dir, name);
    snprintf(to, sizeof to, "tuned/%s", name);
    char *bytes = files_get(from, &n);
    files_put(to, bytes, n);
    free(bytes);
}

/* An adapter that a run of pesc left says what it was trained on. */
static void merges_into_what_it_was_trained_on(void **state)
{
    (void)state;
    char base_dir[512], lora_dir[512];
    pesc_export_options o = pesc_export_defaults();
    files_clear();
    modeldirs_golden(base_dir, "peft/base");
    modeldirs_golden(lora_dir, "peft/adapter");
    copy_file(lora_dir, "adapter_config.json");
    copy_file(lora_dir, "adapter_model.safetensors");
    files_text("tuned/run.yaml", "model: \"x\"\nbase_dtype: \"nf4\"\nseed: 1\n");
    o.check = false;
    o.lora = files_path("tuned");
    must(pesc_merge(modeldirs_device(), base_dir, files_path("found"), &o, NULL));
    o.merge_base = "nf4-dequant";
    must(pesc_merge(modeldirs_device(), base_dir, files_path("said"), &o, NULL));
    hfdir *a = modeldirs_open(files_path("found")), *b = modeldirs_open(files_path("said"));
    modeldirs_same_all(a, b);
    hfdir_close(a);
    hfdir_close(b);
}

/* ---- export ---- */

static void exports_round(const char *from_name, const char *to, const char *type)
{
    char from[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_export_options o = pesc_export_defaults();
    files_clear();
    must(pesc_export(modeldirs_device(), modeldirs_golden(from, from_name), to, files_path("out"),
                     &o, &check));
    assert_true(check.logits > 0 && check.differ == 0);
    hfdir *h = modeldirs_open(files_path("out"));
    assert_string_equal(modeldirs_text(h, "model_type"), type);
    assert_string_equal(h->format, "safetensors");
    assert_int_equal(json_array_size(json_object_get(h->config, "architectures")), 1);
    hfdir_close(h);
}

static void exports(void **state)
{
    (void)state;
    exports_round("gguf/llama-square-q8_0.gguf", "hf", "llama");
    exports_round("gguf/qwen3_moe-f16.gguf", "hf", "qwen3_moe");
    exports_round("gguf/deepseek_v2-f16.gguf", "hf", "deepseek_v2");
    exports_round("bnb", "hf", "llama");
    exports_round("mixtral", "hf", "mixtral");
    exports_round("camelidae-bin", "camelidae", "camelidae");
    exports_round("sparsetral", "camelidae", "camelidae");
    exports_round("qwen2idae", "camelidae", "qwen2idae");
    exports_round("gguf/camelidae-f16.gguf", "camelidae", "camelidae");
}

static void exports_a_lora(void **state)
{
    (void)state;
    char base_dir[512], lora_dir[512];
    pesc_logit_check check = PESC_INIT(pesc_logit_check);
    pesc_export_options o = pesc_export_defaults();
    o.lora = modeldirs_golden(lora_dir, "peft/adapter");
    files_clear();
    must(pesc_export(modeldirs_device(), modeldirs_golden(base_dir, "peft/base"), "peft",
                     files_path("out"), &o, &check));
    assert_true(check.logits > 0 && check.differ == 0);
    peft *a = NULL, *b = NULL;
    must(peft_open(&a, lora_dir));
    must(peft_open(&b, files_path("out")));
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        assert_string_equal(a->loras[i].module, b->loras[i].module);
        assert_true(a->loras[i].scale == b->loras[i].scale);
        assert_memory_equal(a->loras[i].a->data, b->loras[i].a->data, a->loras[i].a->bytes);
        assert_memory_equal(a->loras[i].b->data, b->loras[i].b->data, a->loras[i].b->bytes);
    }
    assert_string_equal(b->base, base_dir);
    size_t n;
    char *bytes = files_get(files_path("out/adapter_model.safetensors"), &n);
    const char *name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    assert_non_null(memmem(bytes, n, name, strlen(name)));
    free(bytes);
    peft_close(a);
    peft_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges),
        cmocka_unit_test(merges_into_what_nf4_made),
        cmocka_unit_test(merges_into_what_it_was_trained_on),
        cmocka_unit_test(exports),
        cmocka_unit_test(exports_a_lora),
    };
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
