/* Which tokens a record becomes and which of them are trained, with the tokenizer of the demo. */
#include "base/mem.h"
#include "data/template.h"
#include "support/check.h"

#include <stdio.h>

static tokenizer *tok;
static template look;
static rendering out;
static const template_how how;

static int open_all(void **state)
{
    (void)state;
    return tokenizer_open_dir(&tok, "share/base") || template_open(&look, tok, "camelidae", NULL);
}

static int close_all(void **state)
{
    (void)state;
    rendering_free(&out);
    template_close(&look);
    tokenizer_close(tok);
    return 0;
}

static void render(record_kind kind, const char *first, const char *second)
{
    record r = { .kind = kind };
    must(record_add(&r, json_pack("{ssss}", "role", "user", "content", first), false));
    if (second)
        must(record_add(&r, json_pack("{ssss}", "role", "assistant", "content", second), false));
    must(template_render(&look, &how, &r, &out));
    record_free(&r);
    assert_int_equal(out.samples, 1);
    assert_int_equal(out.ends[0], out.ids.n);
    for (size_t i = 0; i < out.ids.n; i++)
        assert_true(out.labels[i] == TEMPLATE_IGNORE || out.labels[i] == out.ids.ids[i]);
}

/* A model that never sees the end of a text never stops: the end token is trained, BOS is not. */
static void the_end_token_is_trained(void **state)
{
    (void)state;
    const int32_t bos = tokenizer_bos(tok), eos = tokenizer_eos(tok);
    assert_true(bos >= 0 && eos >= 0);
    render(RECORD_TEXT, "ab", NULL);
    assert_int_equal(out.ids.ids[0], bos);
    assert_int_equal(out.labels[0], TEMPLATE_IGNORE);
    for (size_t i = 1; i < out.ids.n; i++)
        assert_int_equal(out.labels[i], out.ids.ids[i]);
    assert_int_equal(out.ids.ids[out.ids.n - 1], eos);

    render(RECORD_COMPLETION, "ab", "cd");
    size_t n = out.ids.n, trained = 0;
    assert_int_equal(out.ids.ids[0], bos);
    assert_int_equal(out.ids.ids[n - 1], eos);
    assert_int_equal(out.labels[n - 1], eos);
    for (size_t i = 0; i < n; i++)
        trained += out.labels[i] != TEMPLATE_IGNORE;
    assert_true(trained >= 2 && trained < n - 1); /* the completion and its end, not the prompt */
    assert_true(out.labels[1] == TEMPLATE_IGNORE);
}

/* Prompt and completion are one text, also for a tokenizer that begins texts with a space; what the
 * ids of the prompt do not cover is trained. */
static void prompt_and_completion_are_one_text(void **state)
{
    (void)state;
    static const char *const files[] = { "share/base/tokenizer.json",
                                         "tests/golden/tokenizer/bpe.model",
                                         "tests/golden/tokenizer/unigram.model" };
    static const char *const pairs[][2] = { { "Q: 6*7\nA:\n", "42 is it" },
                                            { "the wor", "ld is round" },
                                            { "", "all of it" },
                                            { "nothing follows", "" } };
    tokenizer *first = tok;
    for (size_t f = 0; f < sizeof files / sizeof *files; f++)
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
            char text[128];
            id_list whole = { 0 }, alone = { 0 };
            snprintf(text, sizeof text, "%s%s", pairs[i][0], pairs[i][1]);
            must(tokenizer_open_file(&tok, files[f]));
            template_close(&look);
            must(template_open(&look, tok, "camelidae", NULL));
            must(tokenizer_encode(tok, text, strlen(text), 0, &whole));
            must(tokenizer_encode(tok, pairs[i][0], strlen(pairs[i][0]), 0, &alone));
            render(RECORD_COMPLETION, pairs[i][0], pairs[i][1]);
            size_t begin = tokenizer_bos(tok) >= 0, end = tokenizer_eos(tok) >= 0;
            assert_int_equal(out.ids.n, begin + whole.n + end);
            assert_memory_equal(out.ids.ids + begin, whole.ids, whole.n * sizeof *whole.ids);
            size_t masked = begin;
            while (masked < out.ids.n && out.labels[masked] == TEMPLATE_IGNORE)
                masked++;
            assert_true(masked - begin <= alone.n);
            assert_true(i != 0 || masked - begin == alone.n);
            for (size_t j = masked; j < out.ids.n; j++)
                assert_int_equal(out.labels[j], out.ids.ids[j]);
            mem_free(whole.ids);
            mem_free(alone.ids);
            tokenizer_close(tok);
        }
    tok = first;
    template_close(&look);
    must(template_open(&look, tok, "camelidae", NULL));
}

static void only_answers_are_trained(void **state)
{
    (void)state;
    render(RECORD_CHAT, "ab", "cd");
    size_t n = out.ids.n;
    assert_int_equal(out.labels[n - 1], tokenizer_eos(tok));
    assert_int_equal(out.labels[0], TEMPLATE_IGNORE);
    record r = { .kind = RECORD_CHAT };
    for (int i = 0; i < 4; i++)
        must(record_add(
            &r, json_pack("{ssss}", "role", i % 2 ? "assistant" : "user", "content", "b"), i == 1));
    must(template_render(&look, &how, &r, &out));
    record_free(&r);
    size_t runs = 0;
    for (size_t i = 1; i < out.ids.n; i++)
        runs += out.labels[i] != TEMPLATE_IGNORE && out.labels[i - 1] == TEMPLATE_IGNORE;
    assert_int_equal(runs, 1); /* the second answer */
}

/* What a record says is text, also where it spells a control token. */
static void control_tokens_in_a_record_stay_text(void **state)
{
    (void)state;
    static const record_kind kinds[] = { RECORD_TEXT, RECORD_COMPLETION, RECORD_CHAT };
    size_t n;
    const char *end = tokenizer_token(tok, tokenizer_eos(tok), &n);
    char text[64];
    snprintf(text, sizeof text, "a %.*s b", (int)n, end);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t ends = 0;
        render(kinds[k], text, kinds[k] == RECORD_TEXT ? NULL : text);
        for (size_t i = 0; i < out.ids.n; i++)
            ends += out.ids.ids[i] == tokenizer_eos(tok);
        assert_int_equal(ends, 1); /* the one at the end */
    }
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    template t;
    must_fail(template_open(&t, tok, "nonsense", NULL), PESC_USAGE,
              "found \"nonsense\", which is no chat format");
    must(template_open(&t, NULL, NULL, NULL));
    record r = { .kind = RECORD_TEXT };
    must(record_add(&r, json_pack("{ssss}", "role", "text", "content", "a"), false));
    must_fail(template_render(&t, &how, &r, &out), PESC_UNSUPPORTED, "has no tokenizer");
    record_free(&r);
    template_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_token_is_trained),
        cmocka_unit_test(prompt_and_completion_are_one_text),
        cmocka_unit_test(only_answers_are_trained),
        cmocka_unit_test(control_tokens_in_a_record_stay_text),
        cmocka_unit_test(unknown_names_are_refused),
    };
    return cmocka_run_group_tests_name("template", tests, open_all, close_all);
}
