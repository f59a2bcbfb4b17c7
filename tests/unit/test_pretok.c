/* Words as Hugging Face `tokenizers` cuts them (tests/golden/tokenizer/steps.json), and what is
 * refused. */
#include "base/mem.h"
#include "support/check.h"
#include "support/golden.h"
#include "tokenizer/pretok.h"

typedef struct sink {
    json_t *words;
} sink;

static pesc_status add_word(void *ctx, const char *text, size_t n)
{
    sink *s = ctx;
    assert_true(n > 0);
    json_array_append_new(s->words, json_stringn(text, n));
    return PESC_OK;
}

/* The words of a text as JSON, for json_decref(). */
static json_t *split(const json_t *step, const char *text, size_t n, pesc_status *status)
{
    pretok *p = NULL;
    regex_scratch *rs = NULL;
    sink s = { json_array() };
    *status = pretok_open(&p, step, "t.json");
    if (*status == PESC_OK)
        *status = regex_scratch_open(&rs);
    budget work = { 0 };
    budget_add(&work, n);
    pretok_run r = { .p = p, .rs = rs, .work = &work, .word = add_word, .ctx = &s };
    if (*status == PESC_OK)
        *status = pretok_split(&r, text, n, true);
    pretok_run_free(&r);
    regex_scratch_close(rs);
    pretok_close(p);
    return s.words;
}

static void cuts_like_hugging_face(void **state)
{
    (void)state;
    json_t *root, *row;
    size_t i, equal = 0;
    must(json_read(&root, golden_path("tokenizer/steps.json"), 1 << 24));
    const json_t *rows = json_object_get(root, "pre_tokenizers");
    json_array_foreach(rows, i, row)
    {
        const json_t *text = json_object_get(row, "text");
        pesc_status status;
        json_t *words = split(json_object_get(row, "step"), json_string_value(text),
                              json_string_length(text), &status);
        must(status);
        if (!json_equal(words, json_object_get(row, "words"))) {
            char *got = json_dumps(words, 0), *want = json_dumps(row, 0);
            fail_msg("case %zu: got %s for %s", i, got, want);
        }
        equal++;
        json_decref(words);
    }
    assert_true(equal > 100);
    json_decref(root);
}

static void refuse(const char *json, pesc_status want, const char *part)
{
    json_t *step;
    pretok *p = NULL;
    must(json_parse(&step, json, strlen(json), "test"));
    must_fail(pretok_open(&p, step, "t.json"), want, part);
    assert_null(p);
    json_decref(step);
}

#define SPLIT(pattern, rest) "{\"type\":\"Split\",\"pattern\":" pattern rest "}"
#define REGEX(re) SPLIT("{\"Regex\":\"" re "\"}", ",\"behavior\":\"Isolated\"")

static void refuses_by_name(void **state)
{
    (void)state;
    refuse("{\"type\":\"BertPreTokenizer\"}", PESC_UNSUPPORTED, "'BertPreTokenizer'");
    refuse("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\"},{\"type\":\"New\"}]}",
           PESC_UNSUPPORTED,
           "t.json: pre_tokenizer.pretokenizers[1]: the pre_tokenizer type 'New'");
    refuse("{}", PESC_FORMAT, "pre_tokenizer: found an object, expected an object with a \"type\"");
    refuse("{\"type\":\"Sequence\"}", PESC_FORMAT, "pretokenizers: found nothing");
    refuse(SPLIT("{\"String\":\"x\"}", ",\"behavior\":\"Odd\""), PESC_UNSUPPORTED, "'Odd'");
    refuse(SPLIT("{\"String\":\"\"}", ",\"behavior\":\"Isolated\""), PESC_UNSUPPORTED, "empty");
    refuse(SPLIT("7", ",\"behavior\":\"Isolated\""), PESC_FORMAT, "found an integer");
    refuse("{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}",
           PESC_UNSUPPORTED, "'last'");
    refuse("{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":"
           "\"Digits\"}]}",
           PESC_UNSUPPORTED, "'Digits' after ByteLevel");
    refuse(REGEX("(a"), PESC_UNSUPPORTED, "cannot be compiled");
    refuse(REGEX("[a&&b]"), PESC_UNSUPPORTED, "an intersection of classes");
    refuse(REGEX("[a[b]]"), PESC_UNSUPPORTED, "a class inside a class");
    refuse(REGEX("a{2}+"), PESC_UNSUPPORTED, "an interval");
    refuse(REGEX("[\\\\W]"), PESC_UNSUPPORTED, "inside brackets");
    refuse(REGEX("[\\\\p{Mn}x]"), PESC_UNSUPPORTED, "'\\p{Mn}'");
    refuse(REGEX("\\\\pL"), PESC_UNSUPPORTED, "without braces");
    refuse(REGEX("(?s:a)"), PESC_UNSUPPORTED, "a group option");
    refuse(REGEX("(?P<n>a)"), PESC_UNSUPPORTED, "a group option");
    refuse(REGEX("\\\\p{Nope}"), PESC_UNSUPPORTED, "cannot be compiled");
}

static void nests_only_so_deep(void **state)
{
    (void)state;
    str s = { 0 };
    for (int i = 0; i < 100; i++)
        str_puts(&s, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    str_puts(&s, "{\"type\":\"Digits\"}");
    for (int i = 0; i < 100; i++)
        str_puts(&s, "]}");
    refuse(s.p, PESC_UNSUPPORTED, "nest deeper than");
    str_clear(&s);
    str_puts(&s, "{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < 100; i++)
        str_puts(&s, "{\"type\":\"Digits\"},");
    str_puts(&s, "{\"type\":\"Digits\"}]}");
    refuse(s.p, PESC_UNSUPPORTED, "more than 32 steps");
    str_free(&s);
}

/* A pattern made to explode ends in a sentence; honest ones take runs of any length. */
static void matching_is_bounded(void **state)
{
    (void)state;
    size_t n = 3000000;
    char *text = mem_alloc(n, 1);
    memset(text, 'a', n);
    text[n - 1] = '!';
    json_t *step, *words;
    pesc_status status;
    const char *bad = REGEX("(a+)+$"), *good = REGEX("\\\\s+(?!\\\\S)|\\\\s*[\\\\r\\\\n]+|\\\\S+");
    must(json_parse(&step, bad, strlen(bad), "test"));
    words = split(step, text, n, &status);
    must_fail(status, PESC_UNSUPPORTED, "takes too many steps for a text of 3000000 bytes");
    json_decref(words);
    json_decref(step);
    must(json_parse(&step, good, strlen(good), "test"));
    words = split(step, text, n, &status);
    must(status);
    assert_int_equal(json_array_size(words), 1);
    json_decref(words);
    memset(text, ' ', n);
    words = split(step, text, n, &status);
    must(status);
    assert_int_equal(json_array_size(words), 1);
    json_decref(words);
    json_decref(step);
    mem_free(text);
}

static void says_whether_words_are_bytes(void **state)
{
    (void)state;
    json_t *step;
    pretok *p = NULL;
    const char *json = "{\"type\":\"ByteLevel\"}";
    assert_false(pretok_is_bytes(NULL));
    must(json_parse(&step, json, strlen(json), "test"));
    must(pretok_open(&p, step, "t.json"));
    assert_true(pretok_is_bytes(p));
    pretok_close(p);
    json_decref(step);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_like_hugging_face),       cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(nests_only_so_deep),           cmocka_unit_test(matching_is_bounded),
        cmocka_unit_test(says_whether_words_are_bytes),
    };
    return cmocka_run_group_tests_name("pretok", tests, NULL, NULL);
}
