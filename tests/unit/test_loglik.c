/* Texts of an evaluation as tokens, and generated texts: the rules of spec sections 3 and 4, with a
 * byte-level tokenizer that adds BOS and a SentencePiece one. The oracle of ids is the tokenizer.
 */
#include "base/mem.h"
#include "eval/loglik.h"
#include "eval/stoptext.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

static tokenizer *bytes, *sp, *no_bos;

/* The tokenizer of share/base, with BOS before each text. */
static void open_with_bos(void)
{
    static const char post[] =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\","
        "\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}}";
    json_t *whole = json_load_file("share/base/tokenizer.json", 0, NULL);
    json_object_set_new(whole, "post_processor", json_loads(post, 0, NULL));
    char *text = json_dumps(whole, 0);
    const char *file = files_text("bos/tokenizer.json", text);
    free(text);
    json_decref(whole);
    char dir[256];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(file, '/') - file), file);
    files_text("bos/tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    must(tokenizer_open_dir(&bytes, dir));
}

static int open_tokenizers(void **state)
{
    (void)state;
    open_with_bos();
    return tokenizer_open_dir(&no_bos, "share/base") ||
           tokenizer_open_file(&sp, golden_path("tokenizer/bpe.model"));
}

static int close_tokenizers(void **state)
{
    (void)state;
    tokenizer_close(bytes);
    tokenizer_close(sp);
    tokenizer_close(no_bos);
    return 0;
}

static size_t encode(const tokenizer *t, const char *text, bool special, int32_t *out)
{
    id_list ids = { 0 };
    must(tokenizer_encode(t, text, strlen(text),
                          PESC_PARSE_SPECIAL | (special ? PESC_ADD_SPECIAL : 0), &ids));
    assert_true(ids.n < 512);
    if (ids.n)
        memcpy(out, ids.ids, ids.n * sizeof *out);
    mem_free(ids.ids);
    return ids.n;
}

/* The pair is encoded like `whole`, and scored after as many tokens as `context` has. */
static void assert_pair(loglik *l, const char *given[2], const char *whole, const char *context)
{
    int32_t ids[512], before[512];
    loglik_tokens got;
    size_t n = encode(l->tok, whole, true, ids), first = encode(l->tok, context, true, before);
    must(loglik_pair(l, given[0], given[1], &got));
    assert_int_equal(got.n, n);
    assert_int_equal(got.first, first);
    assert_memory_equal(got.ids, ids, n * sizeof *ids);
}

static void pairs_are_encoded_as_a_whole(void **state)
{
    (void)state;
    tokenizer *const all[] = { bytes, sp, no_bos };
    for (int i = 0; i < 3; i++) {
        loglik l;
        must(loglik_open(&l, all[i], 500));
        for (int again = 0; again < 2; again++) { /* the second time the context is known */
            assert_pair(&l, (const char *[]){ "Question: a?\nAnswer:", " yes" },
                        "Question: a?\nAnswer: yes", "Question: a?\nAnswer:");
            assert_pair(&l, (const char *[]){ "Question: a?\nAnswer:", " no" },
                        "Question: a?\nAnswer: no", "Question: a?\nAnswer:");
        }
        assert_pair(&l, (const char *[]){ "the answer is \n\t ", "yes" }, "the answer is \n\t yes",
                    "the answer is");
        assert_pair(&l, (const char *[]){ "non-breaking\xc2\xa0\xe3\x80\x80\x1c", "space" },
                    "non-breaking\xc2\xa0\xe3\x80\x80\x1cspace", "non-breaking");
        loglik_close(&l);
    }
}

/* A word of one token leaves nothing to score after its first letter. */
static void the_number_of_tokens_decides_the_boundary(void **state)
{
    (void)state;
    loglik l;
    loglik_tokens got;
    int32_t ids[512];
    must(loglik_open(&l, bytes, 500));
    const char *word = NULL;
    static const char *const words[] = { "the", "is", "and", "of", "in", "er", "on" };
    for (size_t i = 0; i < sizeof words / sizeof *words && !word; i++)
        if (encode(bytes, words[i], false, ids) == 1)
            word = words[i];
    assert_non_null(word);
    char start[2] = { word[0], '\0' };
    assert_int_equal(encode(bytes, start, false, ids), 1);
    must_fail(loglik_pair(&l, start, word + 1, &got), PESC_FORMAT, "has no tokens");
    /* With more text there is something to score; before it the context has its own token. */
    char rest[16], whole[16];
    snprintf(rest, sizeof rest, "%s a b", word + 1);
    snprintf(whole, sizeof whole, "%s a b", word);
    size_t n = encode(bytes, whole, true, ids);
    encode(bytes, start, false, ids + 1);
    must(loglik_pair(&l, start, rest, &got));
    assert_int_equal(got.first, 2);
    assert_int_equal(got.n, n);
    assert_memory_equal(got.ids, ids, n * sizeof *ids);
    loglik_close(&l);
}

static void a_text_with_bos_gets_no_second_one(void **state)
{
    (void)state;
    loglik l;
    loglik_tokens got;
    int32_t ids[512];
    must(loglik_open(&l, bytes, 500));
    must(loglik_pair(&l, "<s>a b", " c", &got));
    size_t n = encode(bytes, "a b c", true, ids);
    assert_int_equal(ids[0], tokenizer_bos(bytes));
    assert_int_equal(got.n, n);
    assert_memory_equal(got.ids, ids, n * sizeof *ids);
    assert_int_equal(got.first, encode(bytes, "a b", true, ids));
    must(loglik_prompt(&l, "<s>a b", 10, &got));
    assert_int_equal(got.n, encode(bytes, "a b", true, ids));
    assert_memory_equal(got.ids, ids, (size_t)got.n * sizeof *ids);
    loglik_close(&l);
}

static void an_empty_context_is_the_prefix_token(void **state)
{
    (void)state;
    loglik l;
    loglik_tokens got;
    int32_t ids[512];
    must(loglik_open(&l, bytes, 500));
    size_t n = encode(bytes, "a b", false, ids);
    must(loglik_pair(&l, "", "a b", &got));
    assert_int_equal(got.first, 1);
    assert_int_equal(got.n, n + 1);
    assert_int_equal(got.ids[0], tokenizer_bos(bytes));
    assert_memory_equal(got.ids + 1, ids, n * sizeof *ids);
    must(loglik_pair(&l, "", "<s>a b", &got)); /* it is there already */
    assert_int_equal(got.first, 1);
    assert_int_equal(got.n, n + 1);
    assert_memory_equal(got.ids + 1, ids, n * sizeof *ids);
    must_fail(loglik_pair(&l, "", "", &got), PESC_FORMAT, "has no tokens");
    must(loglik_pair(&l, " ", "a b", &got)); /* white space goes to the continuation */
    n = encode(bytes, " a b", true, ids);
    assert_int_equal(got.n, n);
    assert_int_equal(got.first, 1);
    assert_memory_equal(got.ids, ids, n * sizeof *ids);
    loglik_close(&l);
    must(loglik_open(&l, no_bos, 500)); /* a context without tokens */
    must(loglik_pair(&l, " ", "a b", &got));
    assert_int_equal(got.n, n);
    assert_int_equal(got.first, 1);
    assert_memory_equal(got.ids, ids, n * sizeof *ids);
    loglik_close(&l);
}

static void long_texts_lose_their_beginning(void **state)
{
    (void)state;
    enum { MOST = 12 };
    loglik l;
    loglik_tokens got;
    int32_t ids[512];
    static const char text[] = "one two three four five six seven eight nine ten", more[] = " end";
    char whole[128];
    snprintf(whole, sizeof whole, "%s%s", text, more);
    must(loglik_open(&l, bytes, MOST));
    size_t n = encode(bytes, whole, true, ids), context = encode(bytes, text, true, ids + 256);
    assert_true(n > MOST + 1);
    must(loglik_pair(&l, text, more, &got));
    assert_int_equal(got.n, MOST + 1);
    assert_int_equal(got.n - got.first, n - context);
    assert_memory_equal(got.ids, ids + n - (MOST + 1), (MOST + 1) * sizeof *ids);
    must_fail(loglik_pair(&l, "a", text, &got), PESC_FORMAT, "tokens, but the model takes 12");
    must(loglik_prompt(&l, text, 5, &got));
    assert_int_equal(got.n, MOST - 5);
    assert_memory_equal(got.ids, ids + 256 + context - (MOST - 5), (MOST - 5) * sizeof *ids);
    must_fail(loglik_prompt(&l, text, MOST, &got), PESC_USAGE, "12 tokens are to be generated");
    loglik_close(&l);
    must_fail(loglik_open(&l, NULL, 5), PESC_UNSUPPORTED, "no tokenizer");
    loglik_close(&l);
}

/* ---- generated texts ---- */

typedef struct ended {
    str text, reference;
    size_t taken; /* tokens until it ended */
} ended;

/* Feeds the tokens of `text` after those of `prompt`, then the end token. */
static ended generate(tokenizer *t, const char *prompt, const char *text, stop_strings stops)
{
    pesc_model m = { .tok = t };
    int32_t before[512], ids[512];
    ended e = { 0 };
    stop_text *u;
    char whole[512];
    snprintf(whole, sizeof whole, "%s%s", prompt, text);
    size_t first = encode(t, prompt, true, before), n = encode(t, whole, true, ids);
    bool more = true;
    assert_memory_equal(before, ids, first * sizeof *ids);
    ids[n++] = tokenizer_eos(t);
    must(stop_text_open(&u, &m, stops, NULL, before, (int32_t)first));
    for (size_t i = first; i < n && more; i++, e.taken++)
        must(stop_text_token(u, ids[i], &more));
    assert_false(more);
    must(stop_text_forms(u, &e.text, &e.reference));
    stop_text_close(u);
    return e;
}

static void assert_texts(ended e, const char *text, const char *reference)
{
    assert_string_equal(e.text.p, text);
    assert_string_equal(e.reference.p, reference);
    str_free(&e.text);
    str_free(&e.reference);
}

static stop_strings list(const char *const *strings)
{
    stop_strings s = { .strings = strings };
    while (strings[s.n])
        s.n++;
    return s;
}

static void texts_are_cut_at_stop_strings(void **state)
{
    (void)state;
    const char *const none[] = { NULL }, *const some[] = { "\n", "", ".", NULL };
    const char *const overlap[] = { "Question:", "\n\nQ", NULL };
    assert_texts(generate(bytes, "Q: a\nA:", " b c", list(none)), " b c", " b c");
    assert_texts(generate(bytes, "Q: a\nA:", " b. c\nd", list(some)), " b", " b");
    assert_texts(generate(bytes, "Q: a\nA:", "", list(some)), "", "");
    size_t n;
    char spelled[64];
    const char *end = tokenizer_token(bytes, tokenizer_eos(bytes), &n);
    snprintf(spelled, sizeof spelled, " b%.*sc", (int)n, end);
    assert_texts(generate(bytes, "Q: a\nA:", spelled, list(none)), " b", " b");
    ended e = generate(bytes, "Q: a\nA:", " yes\n\nQuestion: more", list(overlap));
    assert_texts(e, " yes", " yes"); /* the text ends before "Question:" is complete */
    e = generate(bytes, "Q: a\nA:", " b c d e f g h i j",
                 list((const char *const[]){ " c", NULL }));
    assert_true(e.taken < 5);
    assert_texts(e, " b", " b");
}

/* A stop string may be the text of a special token, which the text never contains. */
static void special_tokens_end_a_text(void **state)
{
    (void)state;
    const char *const stops[] = { "<unk>", NULL }, *const none[] = { NULL };
    assert_texts(generate(bytes, "Q: a\nA:", " b<unk> c", list(stops)), " b", " b");
    assert_texts(generate(bytes, "Q: a\nA:", " b<s> c", list(stops)), " b c", " b c");
    assert_texts(generate(bytes, "Q: a\nA:", " b</s> c", list(none)), " b", " b");
}

static void the_reference_loses_a_leading_space(void **state)
{
    (void)state;
    const char *const stops[] = { "\n", NULL };
    assert_texts(generate(sp, "a", " b c", list(stops)), " b c", "b c");
    /* the prompt ends in byte tokens, which the decoder holds back */
    assert_texts(generate(sp, "x \xe2\x82\xac\xe2\x82\xac", " b c", list(stops)), " b c", "b c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_encoded_as_a_whole),
        cmocka_unit_test(the_number_of_tokens_decides_the_boundary),
        cmocka_unit_test(a_text_with_bos_gets_no_second_one),
        cmocka_unit_test(an_empty_context_is_the_prefix_token),
        cmocka_unit_test(long_texts_lose_their_beginning),
        cmocka_unit_test(texts_are_cut_at_stop_strings),
        cmocka_unit_test(special_tokens_end_a_text),
        cmocka_unit_test(the_reference_loses_a_leading_space),
    };
    return cmocka_run_group_tests_name("loglik", tests, open_tokenizers, close_tokenizers);
}
