/* Served adapters: rows of one forward with different LoRAs compute what models opened with these
 * LoRAs alone compute, bit for bit. */
#include "attach/attached.h"
#include "attach/served_adapters.h"
#include "base/status.h"
#include "model/forward.h"
#include "support/check.h"
#include "support/files.h"
#include "support/modeldirs.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEQS = 5, LENGTH = 7, TOKENS = SEQS * LENGTH };

/* Replaces the number of a key in a JSON text, for free(). */
static char *with_number(char *text, const char *key, int from, int to)
{
    char old[64], new[64], *out = malloc(strlen(text) + sizeof new);
    snprintf(old, sizeof old, "\"%s\": %d", key, from);
    snprintf(new, sizeof new, "\"%s\": %d", key, to);
    char *at = strstr(text, old);
    assert_non_null(at);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    free(text);
    return out;
}

/* The golden adapter with other alphas than its 6, and 3 of one module: another served adapter. */
static const char *adapter_with(char out[512], int alpha, int of_down)
{
    char from[512], path[1024];
    size_t n;
    modeldirs_golden(from, "peft/adapter");
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", from);
    char *bytes = files_get(path, &n);
    files_put("other/adapter_model.safetensors", bytes, n);
    free(bytes);
    snprintf(path, sizeof path, "%s/adapter_config.json", from);
    char *text = with_number(files_get(path, &n), "lora_alpha", 6, alpha);
    text = with_number(text, "down_proj", 3, of_down);
    files_text("other/adapter_config.json", text);
    free(text);
    snprintf(out, 512, "%s", files_path("other"));
    return out;
}

static pesc_model *open_with(const char *dir)
{
    char base[512];
    pesc_model *m;
    pesc_load_options o = pesc_load_defaults();
    o.lora = dir;
    must(pesc_model_open(&m, modeldirs_device(), modeldirs_golden(base, "peft/base"), &o));
    return m;
}

static void tokens_of(int32_t *ids, int32_t seq)
{
    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = (seq * 11 + i * 5 + 3) % 67;
}

/* Logits of a sequence by a model opened with one LoRA, or none. */
static float *alone(const char *dir, int32_t seq)
{
    int32_t ids[LENGTH];
    pesc_model *m = open_with(dir);
    float *x = malloc((size_t)LENGTH * (size_t)m->shape.cfg.vocab * sizeof *x);
    assert_non_null(x);
    tokens_of(ids, seq);
    must(pesc_logits(m, ids, LENGTH, x));
    pesc_model_close(m);
    return x;
}

typedef struct fixture {
    pesc_model *m;
    pass *p;
    const char *loras[3]; /* by served adapter */
} fixture;

/* One forward of all sequences; returns how many have other logits than the base gives them. */
static int compare(const fixture *f, const int32_t *adapters)
{
    int32_t ids[SEQS][LENGTH], rows[TOKENS];
    token_seq seqs[SEQS];
    tensor logits;
    int other = 0;
    for (int32_t s = 0; s < SEQS; s++) {
        tokens_of(ids[s], s);
        seqs[s] = (token_seq){ .ids = ids[s], .n = LENGTH, .adapter = adapters[s] };
    }
    for (int32_t i = 0; i < TOKENS; i++)
        rows[i] = i;
    must(pass_set(f->p, seqs, SEQS, rows, TOKENS));
    must(model_fwd(f->m, f->p, &logits));
    size_t n = (size_t)LENGTH * (size_t)f->m->shape.cfg.vocab;
    float *got = malloc(SEQS * n * sizeof *got);
    assert_non_null(got);
    must(f->m->dev->op->download(f->m->dev, got, logits.data, SEQS * n * sizeof *got));
    for (int32_t s = 0; s < SEQS; s++) {
        float *want = alone(f->loras[adapters[s]], s), *plain = alone(NULL, s);
        assert_memory_equal(got + (size_t)s * n, want, n * sizeof *got);
        other += memcmp(want, plain, n * sizeof *got) != 0;
        free(want);
        free(plain);
    }
    free(got);
    return other;
}

/* Twice with the same memory: what a forward leaves in it does not reach the next one. */
static void each_row_uses_its_own_lora(void **state)
{
    (void)state;
    static const int32_t first[SEQS] = { 1, 0, 2, 2, 1 }, second[SEQS] = { 2, 1, 0, 1, 2 };
    char golden[512], made[512];
    const served_adapter all[] = { { ADAPTER_LORA, modeldirs_golden(golden, "peft/adapter") },
                                   { ADAPTER_LORA, adapter_with(made, 9, 3) } };
    fixture f = { .m = open_with(NULL), .loras = { NULL, all[0].dir, all[1].dir } };
    must(served_adapters_open(f.m, all, 2));
    must(pass_open(&f.p, f.m, (pass_limits){ TOKENS, SEQS, TOKENS }, NULL));
    assert_int_equal(compare(&f, first), 4);
    assert_int_equal(compare(&f, second), 4);
    pass_close(f.p);
    served_adapters_close(f.m);
    pesc_model_close(f.m);
}

/* A model with a LoRA of its own: rows without a served adapter compute what they did, bit for bit,
 * and the LoRA of a served adapter is added. Twice the same LoRA is, up to rounding, one of twice
 * the alphas.
 */
static void a_lora_of_the_model_stays(void **state)
{
    (void)state;
    char golden[512], made[512];
    const char *own = modeldirs_golden(golden, "peft/adapter");
    const served_adapter all[] = { { ADAPTER_LORA, own } };
    static const int32_t adapters[2] = { 0, 1 };
    int32_t ids[LENGTH], rows[2 * LENGTH];
    token_seq seqs[2];
    tensor t;
    pass *p;
    pesc_model *m = open_with(own);
    size_t n = (size_t)LENGTH * (size_t)m->shape.cfg.vocab;
    float *got = malloc(2 * n * sizeof *got), *plain = alone(own, 1);
    float *doubled = alone(adapter_with(made, 12, 6), 1);
    assert_non_null(got);
    must(served_adapters_open(m, all, 1));
    must(pass_open(&p, m, (pass_limits){ 2 * LENGTH, 2, 2 * LENGTH }, NULL));
    tokens_of(ids, 1);
    for (int32_t s = 0; s < 2; s++)
        seqs[s] = (token_seq){ .ids = ids, .n = LENGTH, .adapter = adapters[s] };
    for (int32_t i = 0; i < 2 * LENGTH; i++)
        rows[i] = i;
    must(pass_set(p, seqs, 2, rows, 2 * LENGTH));
    must(model_fwd(m, p, &t));
    must(m->dev->op->download(m->dev, got, t.data, 2 * n * sizeof *got));
    assert_memory_equal(got, plain, n * sizeof *got);
    assert_memory_not_equal(got + n, plain, n * sizeof *got);
    for (size_t i = 0; i < n; i++)
        assert_float_equal(got[n + i], doubled[i], 1e-4);
    pass_close(p);
    pesc_model_close(m);
    free(got);
    free(plain);
    free(doubled);
}

static void refuse(pesc_model *m, const char *dir, pesc_status status, const char *why)
{
    served_adapter one = { ADAPTER_LORA, dir };
    must_fail(served_adapters_open(m, &one, 1), status, why);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    char adapter[512], base[512];
    const served_adapter one = { ADAPTER_LORA, modeldirs_golden(adapter, "peft/adapter") };
    pesc_model *m = open_with(NULL);
    must(served_adapters_open(m, &one, 1));
    refuse(m, one.dir, PESC_USAGE, "has served adapters already");
    pesc_model_close(m);
    must(pesc_model_open(&m, modeldirs_device(), modeldirs_golden(base, "qwen2"), NULL));
    refuse(m, one.dir, PESC_SHAPE, "LoRA");
    assert_null(m->attached->served);
    refuse(m, "/none", PESC_IO, "/none");
    must(served_adapters_open(m, NULL, 0));
    pesc_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_uses_its_own_lora),
        cmocka_unit_test(a_lora_of_the_model_stays),
        cmocka_unit_test(refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests_name("served adapters", tests, NULL, NULL);
}
