/* Tokenizers made to explode: a few kilobytes of JSON and of text must not take minutes or
 * gigabytes. */
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/files.h"
#include "support/slower.h"
#include "tokenizer/budget.h"
#include "tokenizer/tokenizer.h"

#include <time.h>

enum { STEPS = 31 };

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\" \":1},\"merges\":[]}"
#define ADDED "\"added_tokens\":[{\"id\":2,\"content\":\"aaa\",\"normalized\":true}],"

/* A tokenizer whose component is `item` many times in a row. */
static const char *chain(const char *component, const char *list, const char *item,
                         const char *rest)
{
    str s = { 0 };
    str_printf(&s, "{\"%s\":{\"type\":\"Sequence\",\"%s\":[", component, list);
    for (int i = 0; i < STEPS; i++)
        str_printf(&s, "%s%s", i ? "," : "", item);
    str_printf(&s, "]},%s}", rest);
    const char *path = files_text("t.json", s.p);
    str_free(&s);
    return path;
}

#define DOUBLE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}"
#define BLANKS "{\"type\":\"Metaspace\",\"replacement\":\"  \",\"split\":false}"

static void normalizers_that_double_a_text(void **state)
{
    (void)state;
    tokenizer *t;
    const char *path = chain("normalizer", "normalizers", DOUBLE, ADDED MODEL);
    must_fail(tokenizer_open_file(&t, path), PESC_UNSUPPORTED,
              "the normalizer multiplies a text of 3 bytes");
    path = chain("normalizer", "normalizers", DOUBLE, MODEL);
    id_list ids = { 0 };
    must(tokenizer_open_file(&t, path));
    must_fail(tokenizer_encode(t, "aaaa", 4, 0, &ids), PESC_UNSUPPORTED,
              "the normalizer multiplies a text of 4 bytes");
    assert_int_equal(ids.n, 0);
    must(tokenizer_encode(t, "    ", 4, 0, &ids)); /* the next call has a budget of its own */
    assert_int_equal(ids.n, 4);
    mem_free(ids.ids);
    tokenizer_close(t);
}

static void pre_tokenizers_that_double_a_text(void **state)
{
    (void)state;
    tokenizer *t;
    id_list ids = { 0 };
    must(tokenizer_open_file(&t, chain("pre_tokenizer", "pretokenizers", BLANKS, MODEL)));
    must_fail(tokenizer_encode(t, "a a", 3, 0, &ids), PESC_UNSUPPORTED,
              "the pre_tokenizer multiplies a text of 3 bytes");
    mem_free(ids.ids);
    tokenizer_close(t);
}

static void decoders_that_double_a_text(void **state)
{
    (void)state;
    tokenizer *t;
    const int32_t ids[] = { 0, 0 };
    char text[8];
    size_t n;
    must(tokenizer_open_file(&t, chain("decoder", "decoders", DOUBLE, MODEL)));
    must_fail(pesc_detokenize(t, ids, 2, 0, text, sizeof text, &n), PESC_UNSUPPORTED,
              "the decoder multiplies a text of 1 bytes");
    tokenizer_close(t);
}

/* Many short texts between added tokens, each of which becomes long. */
static void many_runs_share_one_budget(void **state)
{
    (void)state;
    str json = { 0 }, text = { 0 };
    str_puts(&json, "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"");
    for (int i = 0; i < 4000; i++)
        str_putc(&json, 'a');
    str_puts(&json, "\"},\"added_tokens\":[{\"id\":2,\"content\":\"|\",\"normalized\":false}],");
    str_puts(&json, MODEL "}");
    for (int i = 0; i < 20000; i++)
        str_puts(&text, "a|");
    tokenizer *t;
    id_list ids = { 0 };
    must(tokenizer_open_file(&t, files_put("t.json", json.p, json.n)));
    must_fail(tokenizer_encode(t, text.p, text.n, 0, &ids), PESC_UNSUPPORTED,
              "the normalizer multiplies a text of 40000 bytes");
    tokenizer_close(t);
    mem_free(ids.ids);
    str_free(&json);
    str_free(&text);
}

static void long_literals_are_refused(void **state)
{
    (void)state;
    str json = { 0 };
    str_puts(&json, "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"");
    for (int i = 0; i < 4097; i++)
        str_putc(&json, 'a');
    str_puts(&json, "\"}," MODEL "}");
    tokenizer *t;
    must_fail(tokenizer_open_file(&t, files_put("t.json", json.p, json.n)), PESC_UNSUPPORTED,
              "has a text of 4097 bytes; at most 4096");
    str_free(&json);
}

/* Patterns that backtrack or scan without end, on 20 KB: all of it ends in seconds. */
static void regular_expressions(void **state)
{
    (void)state;
    static const struct {
        const char *pattern;
        size_t n;
        bool refused;
    } rows[] = {
        { "a*a*a*b", 20000, true },       { "(?:a*b|a)*!a", 2000, true },
        { "(.*)(.*)(.*)!a", 2000, true }, { "(a+)+[bc]", 20000, true },
        { "(?>a*)b", 10000, false },      { "a{1,40}b", 20000, false },
        { "a+", 20000, false },           { "\\\\s+(?!\\\\S)|a+$|a", 10000, false },
    };
    enum { N = 20000 };
    char text[N];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str json = { 0 };
        memset(text, 'a', N);
        text[rows[i].n - 1] = '!';
        str_printf(&json,
                   "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
                   "\"Regex\":\"%s\"}}," MODEL "}",
                   rows[i].pattern);
        tokenizer *t;
        id_list ids = { 0 };
        clock_t begin = clock();
        must(tokenizer_open_file(&t, files_put("t.json", json.p, json.n)));
        pesc_status s = tokenizer_encode(t, text, rows[i].n, 0, &ids);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (s != (rows[i].refused ? PESC_UNSUPPORTED : PESC_OK) || seconds > 2 * slower())
            fail_msg("%s: %s after %.1f s", rows[i].pattern, pesc_status_text(s), seconds);
        if (rows[i].refused)
            assert_non_null(strstr(pesc_last_error(), "takes too many steps"));
        tokenizer_close(t);
        mem_free(ids.ids);
        str_free(&json);
    }
}

static void budget_grows_with_its_input(void **state)
{
    (void)state;
    budget b = { 0 };
    budget_add(&b, 0);
    uint64_t steps = b.steps;
    budget_add(&b, 1000);
    assert_int_equal(b.input, 1000);
    assert_true(b.steps > steps && b.longest >= 64000);
    assert_true(budget_take_steps(&b, b.steps));
    assert_false(budget_take_steps(&b, 1));
    str s = { 0 };
    budget_open_text(&b, &s);
    str_puts(&s, "ab");
    must(budget_take_text(&b, &s, "a step"));
    b.bytes = 1;
    must_fail(budget_take_text(&b, &s, "a step"), PESC_UNSUPPORTED, "a step multiplies");
    budget_add(&b, SIZE_MAX); /* no overflow */
    assert_true(b.bytes > 1 && b.longest > 64000);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalizers_that_double_a_text),
        cmocka_unit_test(pre_tokenizers_that_double_a_text),
        cmocka_unit_test(decoders_that_double_a_text),
        cmocka_unit_test(many_runs_share_one_budget),
        cmocka_unit_test(long_literals_are_refused),
        cmocka_unit_test(regular_expressions),
        cmocka_unit_test(budget_grows_with_its_input),
    };
    return cmocka_run_group_tests_name("budget", tests, NULL, NULL);
}
