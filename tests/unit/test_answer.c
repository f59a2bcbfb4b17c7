/* Answers: where they end, what of their text is certain, and when. */
#include "infer/answer.h"
#include "base/json.h"
#include "support/check.h"
#include "tokenizer/pipeline.h"

/* Of Llama-2's tokenizer.json, and those of a SentencePiece file. */
static const char llama[] =
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":"
    "\"\xe2\x96\x81\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}";

#define REPLACED "\xef\xbf\xbd"

enum { MOST = 16 };

/* A tokenizer whose token i is tokens[i], and an answer of it. */
typedef struct fixture {
    tokenizer *tok;
    answer_ends ends;
    answer a;
} fixture;

static void open_fixture(fixture *f, const char *const *tokens, answer_rules rules, bool sp)
{
    json_t *v;
    must(pipeline_new(&f->tok, "t.json"));
    for (int32_t i = 0; i < MOST && tokens[i]; i++)
        vocab_add(&f->tok->vocab, tokens[i], strlen(tokens[i]), i);
    must(json_parse(&v, llama, strlen(llama), "test"));
    if (sp)
        must(decoder_open_sp(&f->tok->dec, true, false));
    else
        must(decoder_open(&f->tok->dec, v, "t.json"));
    must(pipeline_seal(f->tok));
    json_decref(v);
    rules.ends = &f->ends;
    must(answer_open(&f->a, f->tok, &rules, NULL, 0));
}

static void close_fixture(fixture *f)
{
    answer_close(&f->a);
    tokenizer_close(f->tok);
}

static void assert_answer(const answer *a, const char *text)
{
    assert_int_equal(a->n, strlen(text));
    assert_memory_equal(answer_text(a), text, a->n);
}

/* Fed one byte at a time, no byte of a stop string is ever certain. */
static void a_partial_match_is_held_back(void **state)
{
    (void)state;
    const char *stops[] = { "END", "" };
    static const char *const tokens[] = { "a", "E", "N", "x", "EN", "Dz", NULL };
    static const struct {
        int32_t id;
        size_t certain;
    } steps[] = { { 0, 1 }, { 1, 1 }, { 2, 1 }, { 3, 4 }, { 4, 4 }, { 4, 6 }, { 5, 6 } };
    fixture f = { .ends = { .stops = stops, .n_stops = 2 } };
    open_fixture(&f, tokens, (answer_rules){ 0 }, false);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(f.a.end, ANSWER_GROWS);
        must(answer_token(&f.a, steps[i].id));
        assert_int_equal(f.a.certain, steps[i].certain);
    }
    assert_int_equal(f.a.end, ANSWER_STOP);
    assert_string_equal(f.a.stop, "END");
    assert_answer(&f.a, "aENxEN");
    must(answer_finish(&f.a));
    assert_answer(&f.a, "aENxEN");
    assert_string_equal(answer_text(&f.a), "aENxENENDz");
    close_fixture(&f);
}

static void the_earliest_stop_counts_and_may_stay(void **state)
{
    (void)state;
    const char *stops[] = { "cd", "bc" };
    fixture f = { .ends = { .stops = stops, .n_stops = 2 } };
    open_fixture(&f, (const char *const[]){ "abcde", NULL }, (answer_rules){ .keep_stop = true },
                 false);
    must(answer_token(&f.a, 0));
    assert_int_equal(f.a.end, ANSWER_STOP);
    assert_answer(&f.a, "abc");
    assert_int_equal(f.a.certain, 3);
    close_fixture(&f);
}

/* One that begins in the first tokens and ends after them counts. */
static void a_stop_in_the_first_tokens_does_not_count(void **state)
{
    (void)state;
    const char *stops[] = { "ab", "c" };
    fixture f = { .ends = { .stops = stops, .n_stops = 2 } };
    open_fixture(&f, (const char *const[]){ "abc", "caba", "bc", NULL },
                 (answer_rules){ .min_tokens = 2 }, false);
    must(answer_token(&f.a, 0));
    must(answer_token(&f.a, 1));
    assert_int_equal(f.a.end, ANSWER_GROWS);
    assert_int_equal(f.a.certain, 6);
    must(answer_token(&f.a, 2));
    assert_int_equal(f.a.end, ANSWER_STOP);
    assert_answer(&f.a, "abccab");
    close_fixture(&f);
}

static void the_end_releases_what_was_held_back(void **state)
{
    (void)state;
    const char *stops[] = { "xyz" };
    fixture f = { .ends = { .ids = (int32_t[]){ 1 }, .n_ids = 1, .stops = stops, .n_stops = 1 } };
    open_fixture(&f, (const char *const[]){ "axy", "z", NULL }, (answer_rules){ 0 }, false);
    must(answer_token(&f.a, 0));
    assert_int_equal(f.a.certain, 1);
    must(answer_token(&f.a, 1)); /* an end token, which has no text */
    assert_int_equal(f.a.end, ANSWER_TOKEN);
    must(answer_finish(&f.a));
    assert_int_equal(f.a.certain, 3);
    assert_int_equal(f.a.end, ANSWER_TOKEN);
    assert_int_equal(f.a.ids.n, 2);
    assert_answer(&f.a, "axy");
    close_fixture(&f);
}

/* Byte tokens: a newline, and a character with its last byte, whatever may follow. */
static void bytes_that_complete_a_character_are_final(void **state)
{
    (void)state;
    static const char *const tokens[] = { "a",      "<0x0A>", "<0xE4>", "<0xBD>",
                                          "<0xA0>", "<0xFF>", NULL };
    const char *stops[] = { "\n" };
    for (int sp = 0; sp < 2; sp++) {
        fixture f = { .ends = { .stops = stops, .n_stops = 1 } };
        answer_rules rules = { .decode = DECODE_AT_ONCE };
        open_fixture(&f, tokens, rules, sp);
        static const size_t certain[] = { 1, 1, 1, 4 };
        static const int32_t ids[] = { 0, 2, 3, 4 };
        for (size_t i = 0; i < 4; i++) {
            must(answer_token(&f.a, ids[i]));
            assert_int_equal(f.a.certain, certain[i]);
        }
        must(answer_token(&f.a, 1));
        assert_int_equal(f.a.end, ANSWER_STOP);
        assert_answer(&f.a, "a\xe4\xbd\xa0");
        close_fixture(&f);
    }
}

/* What follows in the run of byte tokens is text as Hugging Face and SentencePiece have it: after a
 * byte that is no text, the one takes no later one for text, the other does. */
static void stray_bytes_are_replaced(void **state)
{
    (void)state;
    static const char *const tokens[] = { "a",      "<0x0A>", "<0xE4>", "<0xBD>",
                                          "<0xA0>", "<0xFF>", NULL };
    static const char *const want[] = { "\n" REPLACED REPLACED REPLACED "a\n",
                                        "\n" REPLACED REPLACED "\na\n" };
    static const int32_t ids[] = { 1, 2, 5, 1, 0, 1 };
    for (int sp = 0; sp < 2; sp++) {
        fixture f = { 0 };
        open_fixture(&f, tokens, (answer_rules){ .decode = DECODE_AT_ONCE }, sp);
        for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
            must(answer_token(&f.a, ids[i]));
        must(answer_finish(&f.a));
        assert_answer(&f.a, want[sp]);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_partial_match_is_held_back),
        cmocka_unit_test(the_earliest_stop_counts_and_may_stay),
        cmocka_unit_test(a_stop_in_the_first_tokens_does_not_count),
        cmocka_unit_test(the_end_releases_what_was_held_back),
        cmocka_unit_test(bytes_that_complete_a_character_are_final),
        cmocka_unit_test(stray_bytes_are_replaced),
    };
    return cmocka_run_group_tests_name("answer", tests, NULL, NULL);
}
