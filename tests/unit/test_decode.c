/* Text of tokens as Hugging Face `tokenizers` decodes them, fed whole and token by token. */
#include "base/mem.h"
#include "base/utf8.h"
#include "support/check.h"
#include "support/golden.h"
#include "tokenizer/pipeline.h"

/* A tokenizer whose tokens are the strings of the list, one id each, with this decoder. */
static tokenizer *make(const json_t *step, const json_t *tokens)
{
    tokenizer *t;
    must(pipeline_new(&t, "t.json"));
    size_t i;
    json_t *v;
    json_array_foreach(tokens, i, v)
        vocab_add(&t->vocab, json_string_value(v), json_string_length(v), (int32_t)i);
    must(decoder_open(&t->dec, step, "t.json"));
    must(pipeline_seal(t));
    return t;
}

/* Feeds the ids; each part handed out must be whole characters. */
static str decode(const tokenizer *t, const int32_t *ids, size_t n)
{
    str all = { 0 };
    decode_stream *d;
    const char *text;
    size_t len;
    must(decode_open(&d, t, 0));
    for (size_t i = 0; i < n; i++) {
        must(decode_feed(d, ids[i], &text, &len));
        assert_true(utf8_valid(text, len));
        str_add(&all, text, len);
    }
    must(decode_finish(d, &text, &len));
    assert_true(utf8_valid(text, len));
    str_add(&all, text, len);
    decode_close(d);
    return all;
}

static void decodes_like_hugging_face(void **state)
{
    (void)state;
    json_t *root, *row, *v;
    size_t i, k;
    must(json_read(&root, golden_path("tokenizer/steps.json"), 1 << 24));
    const json_t *rows = json_object_get(root, "decoders");
    assert_true(json_array_size(rows) > 20);
    json_array_foreach(rows, i, row)
    {
        const json_t *tokens = json_object_get(row, "tokens"),
                     *want = json_object_get(row, "result");
        tokenizer *t = make(json_object_get(row, "step"), tokens);
        int32_t ids[16];
        /* by text: a token may be there more than once, but only its first id is in the vocabulary
         */
        json_array_foreach(tokens, k, v) ids[k] = tokenizer_id(t, json_string_value(v));
        str got = decode(t, ids, json_array_size(tokens));
        if (got.n != json_string_length(want) ||
            (got.n && memcmp(got.p, json_string_value(want), got.n) != 0))
            fail_msg("case %zu: got '%s', expected '%s'", i, got.p, json_string_value(want));
        str_free(&got);
        tokenizer_close(t);
    }
    json_decref(root);
}

static json_t *parse(const char *json)
{
    json_t *v;
    must(json_parse(&v, json, strlen(json), "test"));
    return v;
}

static void holds_back_half_characters(void **state)
{
    (void)state;
    json_t *step = parse("{\"type\":\"ByteLevel\"}");
    json_t *tokens = parse("[\"\xc3\xa4\xc2\xbd\",\"\xc5\x82\",\"a\"]"); /* E4 BD, A0 */
    tokenizer *t = make(step, tokens);
    decode_stream *d;
    const char *text;
    size_t n;
    must(decode_open(&d, t, 0));
    must(decode_feed(d, 0, &text, &n));
    assert_int_equal(n, 0);
    must(decode_feed(d, 1, &text, &n));
    assert_int_equal(n, 3);
    assert_memory_equal(text, "\xe4\xbd\xa0", 3);
    must(decode_feed(d, 0, &text, &n));
    must(decode_feed(d, 2, &text, &n)); /* the half never came: one U+FFFD, then the letter */
    assert_int_equal(n, 4);
    assert_memory_equal(text,
                        "\xef\xbf\xbd"
                        "a",
                        4);
    must(decode_feed(d, 0, &text, &n));
    must(decode_finish(d, &text, &n));
    assert_int_equal(n, 3);
    decode_close(d);
    tokenizer_close(t);
    json_decref(step);
    json_decref(tokens);
}

static void ids_without_a_token_give_nothing(void **state)
{
    (void)state;
    json_t *tokens = parse("[\"a\"]");
    tokenizer *t = make(NULL, tokens);
    const int32_t ids[] = { 0, 7, -1, 0 };
    str got = decode(t, ids, 4);
    assert_string_equal(got.p, "a a"); /* no decoder: joined by blanks */
    str_free(&got);
    tokenizer_close(t);
    json_decref(tokens);
}

static void refuse(const char *json, pesc_status want, const char *part)
{
    json_t *step = parse(json);
    decoder *d = NULL;
    must_fail(decoder_open(&d, step, "t.json"), want, part);
    assert_null(d);
    json_decref(step);
}

static void refuses_by_name(void **state)
{
    (void)state;
    refuse("{\"type\":\"WordPiece\"}", PESC_UNSUPPORTED, "decoder type 'WordPiece'");
    refuse("{\"type\":\"Strip\",\"content\":\"ab\",\"start\":0,\"stop\":0}", PESC_FORMAT, "'ab'");
    refuse("{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}", PESC_FORMAT, "start");
    refuse("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}",
           PESC_UNSUPPORTED, "decoders[1]: 'ByteFallback' after Fuse");
    refuse("{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"Replace\","
           "\"pattern\":{\"Regex\":\"a\"},\"content\":\"\"}]}",
           PESC_UNSUPPORTED, "a regular expression after Fuse");
}

/* Byte tokens are held back until another kind of token follows; those of the text before must not
 * come out with what follows it. */
static void goes_on_after_a_text(void **state)
{
    (void)state;
    static const struct {
        int32_t ids[3];
        size_t n;
        const char *want;
    } rows[] = { { { 2 }, 1, "b" },
                 { { 1, 2 }, 2, "\nb" },
                 { { 0, 1, 2 }, 3, "a\nb" },
                 { { 1 }, 1, "\n" },
                 { { 0 }, 0, "" } };
    json_t *step = json_pack("{ss s[{ss}{ss}]}", "type", "Sequence", "decoders", "type",
                             "ByteFallback", "type", "Fuse");
    json_t *tokens = json_pack("[sss]", "a", "<0x0A>", "b");
    tokenizer *t = make(step, tokens);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str all = { 0 };
        decode_stream *d;
        const char *text;
        size_t len;
        must(decode_open_after(&d, t, 0, (int32_t[]){ 0, 1 }, 2));
        for (size_t k = 0; k < rows[i].n; k++) {
            must(decode_feed(d, rows[i].ids[k], &text, &len));
            str_add(&all, text, len);
        }
        must(decode_finish(d, &text, &len));
        str_add(&all, text, len);
        str_puts(&all, "");
        assert_string_equal(all.p, rows[i].want);
        str_free(&all);
        decode_close(d);
    }
    tokenizer_close(t);
    json_decref(step);
    json_decref(tokens);
}

/* The address space of this process in bytes. */
static size_t mapped(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu", &pages), 1);
    fclose(f);
    return (size_t)pages * 4096;
}

/* Thousands of texts may be decoded at the same time. */
static void streams_are_small(void **state)
{
    (void)state;
    enum { N = 4000 };
    static decode_stream *d[N];
    json_t *step = json_pack("{ss}", "type", "ByteFallback");
    json_t *tokens = json_pack("[s]", "a");
    tokenizer *t = make(step, tokens);
    size_t before = mapped();
    for (int i = 0; i < N; i++)
        must(decode_open_after(&d[i], t, 0, (int32_t[]){ 0 }, 1));
    assert_true(mapped() - before < (size_t)256 << 20);
    for (int i = 0; i < N; i++)
        decode_close(d[i]);
    tokenizer_close(t);
    json_decref(step);
    json_decref(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_like_hugging_face),
        cmocka_unit_test(holds_back_half_characters),
        cmocka_unit_test(ids_without_a_token_give_nothing),
        cmocka_unit_test(refuses_by_name),
        cmocka_unit_test(goes_on_after_a_text),
        cmocka_unit_test(streams_are_small),
    };
    return cmocka_run_group_tests_name("decode", tests, NULL, NULL);
}
