/* Texts as Hugging Face `tokenizers` normalises them (tests/golden/tokenizer/steps.json). */
#include "base/mem.h"
#include "support/check.h"
#include "support/golden.h"
#include "tokenizer/normalize.h"

#include <time.h>

static void normalises_like_hugging_face(void **state)
{
    (void)state;
    json_t *root, *row;
    size_t i;
    budget work = { 0 };
    normalize_scratch s = { .work = &work };
    must(regex_scratch_open(&s.rs));
    must(json_read(&root, golden_path("tokenizer/steps.json"), 1 << 24));
    const json_t *rows = json_object_get(root, "normalizers");
    assert_true(json_array_size(rows) > 30);
    json_array_foreach(rows, i, row)
    {
        normalizer *z;
        const char *got;
        size_t n;
        const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, "result");
        must(normalizer_open(&z, json_object_get(row, "step"), "t.json"));
        budget_add(&work, json_string_length(text));
        must(normalizer_run(z, &s, json_string_value(text), json_string_length(text), &got, &n));
        if (n != json_string_length(want) || memcmp(got, json_string_value(want), n) != 0)
            fail_msg("case %zu: got '%.*s', expected '%s'", i, (int)n, got,
                     json_string_value(want));
        normalizer_close(z);
    }
    json_decref(root);
    normalize_scratch_free(&s);
    regex_scratch_close(s.rs);
}

static void refuse(const char *json, pesc_status want, const char *part)
{
    json_t *step;
    normalizer *z = NULL;
    must(json_parse(&step, json, strlen(json), "test"));
    must_fail(normalizer_open(&z, step, "t.json"), want, part);
    assert_null(z);
    json_decref(step);
}

static void refuses_by_name(void **state)
{
    (void)state;
    refuse("{\"type\":\"BertNormalizer\"}", PESC_UNSUPPORTED, "'BertNormalizer'");
    refuse("{\"type\":\"Prepend\"}", PESC_FORMAT, "prepend: found nothing");
    refuse("{\"type\":\"Strip\",\"strip_left\":true}", PESC_FORMAT, "strip_right");
    refuse("{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}", PESC_FORMAT, "content");
    refuse("{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}",
           PESC_UNSUPPORTED, "empty");
    refuse("{\"type\":\"Precompiled\",\"precompiled_charsmap\":7}", PESC_FORMAT, "an integer");
    refuse("{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", PESC_FORMAT, "t.json");
    refuse("[]", PESC_FORMAT, "found an array");
}

static void no_normaliser_changes_nothing(void **state)
{
    (void)state;
    normalizer *z = NULL;
    normalize_scratch s = { 0 };
    const char *text = "a\xcc\x81", *got;
    size_t n;
    must(normalizer_open(&z, NULL, "t.json"));
    assert_null(z);
    must(normalizer_run(NULL, &s, text, 3, &got, &n));
    assert_ptr_equal(got, text);
    assert_int_equal(n, 3);
}

/* Marks in falling order of class: sorting them pair by pair would take hours. */
static void long_runs_of_marks_are_linear(void **state)
{
    (void)state;
    size_t pairs = 2000000;
    str text = { 0 }, out = { 0 };
    normalform_scratch s = { 0 };
    str_putc(&text, 'q');
    for (size_t i = 0; i < pairs; i++)
        str_puts(&text, "\xcc\x81\xcc\xa3"); /* class 230, class 220 */
    clock_t begin = clock();
    assert_true(normalform_apply(NORMALFORM_NFC, text.p, text.n, &s, &out));
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
    assert_int_equal(out.n, text.n);
    assert_memory_equal(out.p + 1, "\xcc\xa3\xcc\xa3", 4);
    assert_memory_equal(out.p + out.n - 4, "\xcc\x81\xcc\x81", 4);
    mem_free(s.cp);
    str_free(&text);
    str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_like_hugging_face),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(no_normaliser_changes_nothing),
        cmocka_unit_test(long_runs_of_marks_are_linear),
    };
    return cmocka_run_group_tests_name("normalize", tests, NULL, NULL);
}
