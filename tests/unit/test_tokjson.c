/* tokenizer.json as the world may send it: each fault has its sentence, or a defined answer. */
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/torture.h"
#include "tokenizer/tokopen.h"

#include <stdio.h>
#include <time.h>

static pesc_status build(const char *json)
{
    tokenizer *t = NULL;
    pesc_status s = tokjson_build(&t, json, strlen(json), "t.json");
    assert_true((s == PESC_OK) == (t != NULL));
    tokenizer_close(t);
    return s;
}

#define ADD(id, text) "{\"id\":" #id ",\"content\":\"" text "\"}"
#define BPE(vocab, merges)                                                                         \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}}"
#define WITH(parts)                                                                                \
    "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a "           \
    "b\"]}," parts "}"
#define OPTION(option) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]," option "}}"

static void refuses_what_is_no_tokenizer(void **state)
{
    (void)state;
    must_fail(build(""), PESC_FORMAT, "expected a JSON object");
    must_fail(build("null"), PESC_FORMAT, "expected a JSON object");
    must_fail(build("[]"), PESC_FORMAT, "expected a JSON object");
    must_fail(build("{}"), PESC_FORMAT, "t.json: model: expected an object");
    must_fail(build("{\"model\":null}"), PESC_FORMAT, "model: expected an object");
    must_fail(build("{\"model\":{}}"), PESC_UNSUPPORTED, "model.type: found ''");
    must_fail(build("{\"model\":{\"type\":\"WordPiece\"}}"), PESC_UNSUPPORTED, "'WordPiece'");
    must_fail(build("{\"model\":{\"type\":\"BPE\"}}"), PESC_FORMAT, "model.vocab");
    must_fail(build("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}"), PESC_FORMAT, "merges");
    must_fail(build("{\"model\":{},\"model\":{}}"), PESC_FORMAT, "appears twice");
    must_fail(build(BPE("\"a\":0", "") " x"), PESC_FORMAT, "expected nothing more");
    must_fail(build("{\"version\":tru,\"model\":{}}"), PESC_FORMAT, "is not JSON");
}

static void checks_the_vocabulary(void **state)
{
    (void)state;
    must(build(BPE("\"a\":0,\"b\":1", "")));
    must(build(BPE("\"a\":0,\"b\":65000", ""))); /* a gap */
    must_fail(build(BPE("", "")), PESC_FORMAT, "has no token");
    must_fail(build(BPE("\"a\":0,\"b\":0", "")), PESC_FORMAT, "which another token has too");
    must_fail(build(BPE("\"a\":0,\"a\":1", "")), PESC_FORMAT, "");
    must_fail(build(BPE("\"a\":0,\"\\u0061\":1", "")), PESC_FORMAT, "");
    must_fail(build(BPE("\"a\":-1", "")), PESC_FORMAT, "'a' has id -1");
    must_fail(build(BPE("\"a\":2147483648", "")), PESC_FORMAT, "has id 2147483648");
    must_fail(build(BPE("\"a\":1000000000", "")), PESC_FORMAT, "has id 1000000000");
    must_fail(build(BPE("\"a\":\"0\"", "")), PESC_FORMAT, "found a string");
    must_fail(build(BPE("\"a\":0.0", "")), PESC_FORMAT, "found a fraction");
    must_fail(build(BPE("\"\\ud800\":0", "")), PESC_FORMAT, "is not JSON");
    must_fail(build(BPE("\"\xff\":0", "")), PESC_FORMAT, "is not JSON");
}

static void checks_merges(void **state)
{
    (void)state;
#define V "\"a\":0,\"b\":1,\"ab\":2,\"aa\":3"
    must(build(BPE(V, "\"a b\",\"a a\"")));
    must(build(BPE(V, "[\"a\",\"b\"],\"a a\"")));
    must(build(BPE(V, "\"a b\",\"a b\""))); /* twice: the last counts */
    must(build(BPE(V, "\"#version: 0.2\",\"a b\"")));
    must_fail(build(BPE(V, "\"a c\"")), PESC_FORMAT, "merges[0]: 'c' is not in the vocabulary");
    must_fail(build(BPE(V, "\"a b\",\"b b\"")), PESC_FORMAT, "merges[1]: 'bb' is not in");
    must_fail(build(BPE(V, "\"a b c\"")), PESC_FORMAT, "found 'a b c', expected two tokens");
    must_fail(build(BPE(V, "\"a \"")), PESC_FORMAT, "merges[0]: '' is not in the vocabulary");
    must_fail(build(BPE(V, "\"ab\"")), PESC_FORMAT, "found 'ab', expected two tokens");
    must_fail(build(BPE(V, "[\"a\"]")), PESC_FORMAT, "merges[0]: found an array");
    must_fail(build(BPE(V, "[\"a\",1]")), PESC_FORMAT, "merges[0]: found an array");
    must_fail(build(BPE(V, "7")), PESC_FORMAT, "merges[0]: found an integer");
#undef V
}

static void refuses_options_it_cannot_honour(void **state)
{
    (void)state;
    must(build(OPTION("\"dropout\":null,\"continuing_subword_prefix\":\"\"")));
    must_fail(build(OPTION("\"dropout\":0.1")), PESC_UNSUPPORTED, "dropout");
    must_fail(build(OPTION("\"continuing_subword_prefix\":\"##\"")), PESC_UNSUPPORTED, "'##'");
    must_fail(build(OPTION("\"end_of_word_suffix\":\"</w>\"")), PESC_UNSUPPORTED, "'</w>'");
    must_fail(build(OPTION("\"unk_token\":\"?\"")), PESC_FORMAT, "unk_token: '?'");
    must_fail(build(OPTION("\"fuse_unk\":1")), PESC_FORMAT, "fuse_unk");
    must_fail(build(WITH("\"normalizer\":{\"type\":\"X\"}")), PESC_UNSUPPORTED, "'X'");
    must_fail(build(WITH("\"pre_tokenizer\":{\"type\":\"X\"}")), PESC_UNSUPPORTED, "'X'");
    must_fail(build(WITH("\"post_processor\":{\"type\":\"X\"}")), PESC_UNSUPPORTED, "'X'");
    must_fail(build(WITH("\"decoder\":{\"type\":\"X\"}")), PESC_UNSUPPORTED, "'X'");
    must(build(WITH("\"truncation\":{\"max_length\":1},\"padding\":{}")));
}

/* A byte whose letter is no token would be spelled by tokens of the letter's own bytes. */
static void byte_fallback_needs_the_whole_alphabet(void **state)
{
    (void)state;
#define FALLBACK(vocab)                                                                            \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"byte_fallback\":"   \
    "true,"                                                                                        \
    "\"vocab\":{" vocab "},\"merges\":[]}}"
    must(build(FALLBACK("\"a\":0,\"<0xC4>\":1"))); /* no letter has all its bytes */
    must(build(FALLBACK("\"a\":0,\"<0x61>\":1")));
    must_fail(build(FALLBACK("\"a\":0,\"<0x62>\":1")), PESC_UNSUPPORTED,
              "byte_fallback is not supported with ByteLevel and an alphabet without 'b'");
    must_fail(build(FALLBACK("\"a\":0,\"<0xC4>\":1,\"<0xA0>\":2")), PESC_UNSUPPORTED,
              "without '\xc4\xa0'");
#undef FALLBACK
}

static void checks_added_tokens(void **state)
{
    (void)state;
    must(build(WITH("\"added_tokens\":[]")));
    must(build(WITH("\"added_tokens\":null")));
    must(build(WITH("\"added_tokens\":[" ADD(3, "x") "," ADD(3, "x") "," ADD(0, "a") "]")));
    must(build(WITH("\"added_tokens\":[" ADD(3, "") "]"))); /* left out, as Hugging Face does */
    must(build(WITH("\"added_tokens\":[" ADD(3, "x") "," ADD(4, "xy") "," ADD(5, "y") "]")));
    must_fail(build(WITH("\"added_tokens\":{}")), PESC_FORMAT, "expected an array");
    must_fail(build(WITH("\"added_tokens\":[7]")), PESC_FORMAT,
              "added_tokens[0]: found an integer");
    must_fail(build(WITH("\"added_tokens\":[{\"content\":\"x\"}]")), PESC_FORMAT, "id");
    must_fail(build(WITH("\"added_tokens\":[{\"id\":3}]")), PESC_FORMAT, "content");
    must_fail(build(WITH("\"added_tokens\":[" ADD(1, "x") "]")), PESC_FORMAT,
              "which the vocabulary gives to 'b'");
    must_fail(build(WITH("\"added_tokens\":[" ADD(9, "a") "]")), PESC_FORMAT, "but id 0 in");
    must_fail(build(WITH("\"added_tokens\":[" ADD(3, "x") "," ADD(3, "y") "]")), PESC_FORMAT,
              "contradicts another");
    must_fail(build(WITH("\"added_tokens\":[" ADD(3, "x") "," ADD(4, "x") "]")), PESC_FORMAT,
              "contradicts another");
    must_fail(build(WITH("\"added_tokens\":[" ADD(1000000000, "x") "]")), PESC_FORMAT, "ids are");
    must_fail(build(WITH("\"added_tokens\":[" ADD(-1, "x") "]")), PESC_FORMAT, "found -1");
    must_fail(build(WITH("\"added_tokens\":[" ADD(3, "\xff") "]")), PESC_FORMAT, "is not JSON");
}

#define TEMPLATE(single, special)                                                                  \
    WITH("\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" single                 \
         "],\"special_tokens\":{" special "}}")
#define TEXT "{\"Sequence\":{\"id\":\"A\"}}"
#define BOS "{\"SpecialToken\":{\"id\":\"a\"}}"

static void checks_templates(void **state)
{
    (void)state;
    must(build(TEMPLATE(BOS "," TEXT, "\"a\":{\"ids\":[0]}")));
    must_fail(build(TEMPLATE(BOS, "\"a\":{\"ids\":[0]}")), PESC_UNSUPPORTED, "found 0 times");
    must_fail(build(TEMPLATE(TEXT "," TEXT, "")), PESC_UNSUPPORTED, "found 2 times");
    must_fail(build(TEMPLATE(BOS "," TEXT, "")), PESC_FORMAT, "no ids for 'a'");
    must_fail(build(TEMPLATE(BOS "," TEXT, "\"a\":{\"ids\":[\"0\"]}")), PESC_FORMAT, "not token");
    must_fail(build(TEMPLATE(BOS "," TEXT, "\"a\":{\"ids\":[77]}")), PESC_FORMAT,
              "id 77 is not in the vocabulary");
    must_fail(build(TEMPLATE("7," TEXT, "")), PESC_FORMAT, "single[0]");
}

static void reads_unigram(void **state)
{
    (void)state;
#define UNI(vocab, rest) "{\"model\":{\"type\":\"Unigram\",\"vocab\":[" vocab "]" rest "}}"
    must(build(UNI("[\"<unk>\",0],[\"a\",-1.5]", ",\"unk_id\":0")));
    must_fail(build(UNI("", "")), PESC_FORMAT, "has no piece");
    must_fail(build(UNI("[\"a\"]", "")), PESC_FORMAT, "vocab[0]: found an array");
    must_fail(build(UNI("[\"a\",\"x\"]", "")), PESC_FORMAT, "vocab[0]");
    must_fail(build(UNI("[\"a\",0],[\"a\",0]", "")), PESC_FORMAT, "appears twice");
    must_fail(build(UNI("[\"a\",0]", ",\"unk_id\":1")), PESC_FORMAT, "unk_id");
    must_fail(build("{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}"), PESC_FORMAT, "an array");
#undef UNI
}

static const char sample[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"added_tokens\":[{\"id\":3,\"content\":\"<s>\","
    "\"special\":true,\"normalized\":false},{\"id\":4,\"content\":\"X\"}],\"normalizer\":{\"type\":"
    "\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]},\"pre_tokenizer\":"
    "{"
    "\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\d\"}"
    ","
    "\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":"
    "false}]},\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{"
    "\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[3]}}},"
    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
    "\"ab\":2},\"merges\":[\"a b\"]}}";

static pesc_status open_file(const char *path)
{
    tokenizer *t;
    pesc_status s = tokenizer_open_file(&t, path);
    tokenizer_close(t);
    return s;
}

static void survives_cuts_flips_and_failed_allocations(void **state)
{
    (void)state;
    must(build(sample));
    torture_cuts("tokenizer.json", sample, strlen(sample), open_file);
    assert_true(torture_flips("tokenizer.json", sample, strlen(sample), 0, strlen(sample),
                              open_file) > strlen(sample));
    torture_memory(files_text("tokenizer.json", sample), open_file);
}

/* A JSON text with `n` times `item` between `head` and `tail`. */
static str repeat(const char *head, const char *item, size_t n, const char *tail)
{
    str s = { 0 };
    str_puts(&s, head);
    for (size_t i = 0; i < n; i++)
        str_printf(&s, "%s%s", i ? "," : "", item);
    str_puts(&s, tail);
    return s;
}

static void large_and_deep_files_end_soon(void **state)
{
    (void)state;
    clock_t begin = clock();
    str s = repeat("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[",
                   "\"a a\"", 1100000, "]}}");
    must_fail(build(s.p), PESC_UNSUPPORTED, "more than 1048576 merges");
    str_free(&s);
    s = repeat("{\"normalizer\":[", "[]", 1000000,
               "],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}");
    must_fail(build(s.p), PESC_UNSUPPORTED, "a value of");
    str_free(&s);
    for (int i = 0; i < 100000; i++)
        str_puts(&s, "[");
    must_fail(build(s.p), PESC_FORMAT, "expected a JSON object");
    str_clear(&s);
    str_puts(&s, "{\"added_tokens\":");
    for (int i = 0; i < 100000; i++)
        str_puts(&s, "[");
    must_fail(build(s.p), PESC_FORMAT, "is not JSON");
    str_clear(&s);
    str_puts(&s, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[");
    for (int i = 0; i < 100000; i++)
        str_printf(&s, "%s{\"id\":%d,\"content\":\"<|%d|>\",\"special\":true}", i ? "," : "", i + 1,
                   i);
    str_puts(&s, "]}");
    must(build(s.p));
    str_clear(&s);
    str_puts(&s, "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"id\":1,"
                 "\"content\":\"");
    for (int i = 0; i < 1000000; i++)
        str_putc(&s, 'a');
    str_puts(&s, "\"}]}");
    must(build(s.p));
    str_free(&s);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_is_no_tokenizer),
        cmocka_unit_test(checks_the_vocabulary),
        cmocka_unit_test(checks_merges),
        cmocka_unit_test(refuses_options_it_cannot_honour),
        cmocka_unit_test(byte_fallback_needs_the_whole_alphabet),
        cmocka_unit_test(checks_added_tokens),
        cmocka_unit_test(checks_templates),
        cmocka_unit_test(reads_unigram),
        cmocka_unit_test(survives_cuts_flips_and_failed_allocations),
        cmocka_unit_test(large_and_deep_files_end_soon),
    };
    return cmocka_run_group_tests_name("tokjson", tests, NULL, NULL);
}
