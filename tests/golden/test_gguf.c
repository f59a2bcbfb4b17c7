/* GGUF files written by the `gguf` package against the Hugging Face folders they were made from:
 * the same configuration, the same tensors under the same names. */
#include "format/gguf.h"
#include "format/hfdir.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/torture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    const char *file, *folder;
    float tolerance; /* of a tensor's largest number: half a step, and what f16 rounds */
} fixture;

static const fixture fixtures[] = {
    { "gguf/llama3-f32.gguf", "llama3", 0 },
    { "gguf/llama-square-q8_0.gguf", "llama-square", 1.0f / 254 + 0x1p-11f },
    { "gguf/camelidae-f16.gguf", "camelidae", 0x1p-11f },
    { "gguf/qwen3_moe-f16.gguf", "qwen3_moe", 0x1p-11f },
    { "gguf/deepseek_v2-f16.gguf", "deepseek_v2", 0x1p-11f },
    { "gguf/qwen3_5-f16.gguf", "qwen3_5", 0x1p-11f },
    { "gguf/qwen3_next-f16.gguf", "qwen3_next", 0x1p-11f },
};

static float *numbers(const weight *w)
{
    int64_t n = weights_elements(w);
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    must(weights_read_f32(w, 0, n, x));
    return x;
}

static void compare(const weight *got, const weight *want, float tolerance)
{
    assert_int_equal(got->nd, want->nd);
    for (int32_t i = 0; i < want->nd; i++)
        assert_int_equal(got->ne[i], want->ne[i]);
    float *x = numbers(got), *y = numbers(want), most = 0;
    for (int64_t i = 0; i < weights_elements(want); i++)
        most = fmaxf(most, fabsf(y[i]));
    for (int64_t i = 0; i < weights_elements(want); i++)
        if (!(fabsf(x[i] - y[i]) <= tolerance * most))
            fail_msg("%s: element %lld is %g, expected %g", want->name, (long long)i, (double)x[i],
                     (double)y[i]);
    /* ranges that start and end anywhere */
    for (int64_t first = 0, n = weights_elements(got); first < n; first += 97) {
        float part[211];
        int64_t len = n - first < 211 ? n - first : 211;
        must(weights_read_f32(got, first, len, part));
        assert_memory_equal(part, x + first, (size_t)len * sizeof *part);
    }
    free(x);
    free(y);
}

static void tensors_equal(void **state)
{
    const fixture *f = *state;
    hfdir *file, *folder;
    must(hfdir_open(&file, golden_path(f->file), 0));
    must(hfdir_open(&folder, golden_path(f->folder), 0));
    assert_string_equal(file->format, "gguf");
    assert_int_equal(weights_count(file->ws), weights_count(folder->ws));
    for (size_t i = 0; i < weights_count(folder->ws); i++) {
        const weight *want = weights_at(folder->ws, i), *got = weights_find(file->ws, want->name);
        if (!got)
            fail_msg("%s: %s is missing", f->file, want->name);
        compare(got, want, f->tolerance);
    }
    hfdir_close(file);
    hfdir_close(folder);
}

/* Keys that only one side has are fine: Hugging Face writes many that change nothing. */
static void agree(const json_t *got, const json_t *want, const char *file)
{
    const char *key;
    json_t *mine;
    size_t both = 0;
    json_object_foreach((json_t *)got, key, mine)
    {
        const json_t *theirs = json_object_get(want, key);
        if (!theirs || (json_is_null(theirs) && strcmp(key, "rope_scaling") == 0))
            continue;
        both++;
        if (json_is_object(mine))
            agree(mine, theirs, file);
        else if (json_is_number(mine) && json_is_number(theirs))
            assert_float_equal(json_number_value(mine), json_number_value(theirs), 0);
        else if (!json_equal(mine, theirs))
            fail_msg("%s: %s differs", file, key);
    }
    assert_true(both > 2);
}

static void configurations_agree(void **state)
{
    const fixture *f = *state;
    hfdir *file, *folder;
    must(hfdir_open(&file, golden_path(f->file), HFDIR_NO_WEIGHTS));
    must(hfdir_open(&folder, golden_path(f->folder), HFDIR_NO_WEIGHTS));
    assert_null(file->ws);
    agree(file->config, folder->config, f->file);
    hfdir_close(file);
    hfdir_close(folder);
}

/* A file of a delta net whose key, a number, says something else. */
static void refuses(const char *name, const char *key, uint32_t value, pesc_status as,
                    const char *why)
{
    size_t n;
    hfdir *d;
    char *bytes = files_get(golden_path(name), &n);
    char *at = memmem(bytes, n, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + sizeof(uint32_t), &value, sizeof value); /* after its type */
    must_fail(hfdir_open(&d, files_put("changed.gguf", bytes, n), 0), as, why);
    free(bytes);
}

static void heads_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const char *five = "gguf/qwen3_5-f16.gguf", *next = "gguf/qwen3_next-f16.gguf";
    refuses(five, "qwen35.ssm.group_count", 3, PESC_FORMAT, "do not divide by 3 of keys");
    refuses(five, "qwen35.ssm.inner_size", 49, PESC_FORMAT, "or 49 numbers of values");
    refuses(five, "qwen35.ssm.state_size", 9, PESC_SHAPE,
            "has 80 rows or columns of heads, expected 84");
    refuses(five, "qwen35.ssm.inner_size", 44, PESC_SHAPE, "expected 76");
    refuses(next, "qwen3next.ssm.state_size", 9, PESC_SHAPE,
            "has 80 rows or columns of heads, expected 84");
}

/* A_log is the logarithm of what the file has with its sign turned. */
static void decays_that_are_not_below_0_are_refused(void **state)
{
    (void)state;
    static const float wrong[] = { 0, 0.5F, NAN };
    const char *name = golden_path("gguf/qwen3_5-f16.gguf");
    size_t n;
    hfdir *d;
    must(hfdir_open(&d, name, 0));
    float *a_log = numbers(weights_find(d->ws, "model.layers.0.linear_attn.A_log"));
    hfdir_close(d);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        float decay = 0, x;
        char *bytes = files_get(name, &n), *at = bytes + n;
        while (!(decay < 0) || logf(-decay) != a_log[1]) {
            assert_true(at > bytes);
            at -= sizeof decay;
            memcpy(&decay, at, sizeof decay);
        }
        memcpy(at, &wrong[i], sizeof *wrong);
        must(hfdir_open(&d, files_put("changed.gguf", bytes, n), 0));
        const weight *w = weights_find(d->ws, "model.layers.0.linear_attn.A_log");
        must(weights_read_f32(w, 0, 1, &x));
        must_fail(weights_read_f32(w, 0, 2, (float[2]){ 0 }), PESC_FORMAT,
                  "expected decays below 0");
        hfdir_close(d);
        free(bytes);
    }
    free(a_log);
}

/* In these files tensors are joined, and rows have another order. */
static void survives_every_failed_allocation(void **state)
{
    (void)state;
    torture_gguf_memory(golden_path("gguf/deepseek_v2-f16.gguf"));
    torture_gguf_memory(golden_path("gguf/qwen3_5-f16.gguf"));
    torture_gguf_memory(golden_path("gguf/qwen3_next-f16.gguf"));
}

int main(void)
{
    enum { N = sizeof fixtures / sizeof *fixtures };
    struct CMUnitTest tests[2 * N + 3];
    char names[2 * N][96];
    for (int i = 0; i < N; i++) {
        snprintf(names[2 * i], 96, "%s: tensors", fixtures[i].file);
        snprintf(names[2 * i + 1], 96, "%s: configuration", fixtures[i].file);
        tests[2 * i] = (struct CMUnitTest){ .name = names[2 * i],
                                            .test_func = tensors_equal,
                                            .initial_state = (void *)&fixtures[i] };
        tests[2 * i + 1] = (struct CMUnitTest){ .name = names[2 * i + 1],
                                                .test_func = configurations_agree,
                                                .initial_state = (void *)&fixtures[i] };
    }
    tests[2 * N] = (struct CMUnitTest)cmocka_unit_test(survives_every_failed_allocation);
    tests[2 * N + 1] = (struct CMUnitTest)cmocka_unit_test(heads_that_do_not_fit_are_refused);
    tests[2 * N + 2] = (struct CMUnitTest)cmocka_unit_test(decays_that_are_not_below_0_are_refused);
    return cmocka_run_group_tests_name("golden gguf", tests, NULL, NULL);
}
