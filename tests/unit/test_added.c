/* Added tokens against a direct search: leftmost, then longest. */
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "support/check.h"
#include "tokenizer/added.h"

#include <stdio.h>
#include <time.h>

static bool yes(void *ctx, const added_token *token, size_t start, size_t end)
{
    (void)ctx, (void)token, (void)start, (void)end;
    return true;
}

static added *open_tokens(const added_token *tokens, size_t n)
{
    added *a;
    added_key keys[64];
    for (size_t i = 0; i < n; i++)
        keys[i] = (added_key){ tokens[i].text, tokens[i].n };
    must(added_open(&a, keys, tokens, n));
    return a;
}

static void check(const added *a, const char *text, added_allow allow, const char *want)
{
    added_matches m = { 0 };
    str got = { 0 };
    must(added_find(a, text, strlen(text), allow, NULL, &m));
    for (size_t i = 0; i < m.n; i++)
        str_printf(&got, "%d@%zu-%zu ", m.at[i].id, m.at[i].start, m.at[i].end);
    assert_string_equal(got.p ? got.p : "", want);
    str_free(&got);
    mem_free(m.at);
}

static void leftmost_longest(void **state)
{
    (void)state;
    rng_key k = { 5, 0 };
    uint64_t draw = 0;
    for (int round = 0; round < 200; round++) {
        char texts[8][8];
        added_token tokens[8] = { 0 };
        for (int i = 0; i < 8; i++) {
            size_t n = rng_below(k, draw++, 6) + 1;
            for (size_t c = 0; c < n; c++)
                texts[i][c] = "ab"[rng_below(k, draw++, 2)];
            texts[i][n] = '\0';
            tokens[i] = (added_token){ .text = texts[i], .n = n, .id = (int32_t)n };
        }
        added *a = open_tokens(tokens, 8);
        char text[80];
        size_t n = rng_below(k, draw++, sizeof text - 1);
        for (size_t c = 0; c < n; c++)
            text[c] = "abc"[rng_below(k, draw++, 12) / 5];
        text[n] = '\0';
        str want = { 0 };
        for (size_t p = 0; p < n;) {
            size_t best = 0;
            for (int i = 0; i < 8; i++)
                if (tokens[i].n > best && strncmp(text + p, texts[i], tokens[i].n) == 0)
                    best = tokens[i].n;
            if (best)
                str_printf(&want, "%zu@%zu-%zu ", best, p, p + best);
            p += best ? best : 1;
        }
        check(a, text, NULL, want.p ? want.p : "");
        str_free(&want);
        added_close(a);
    }
}

static void flags(void **state)
{
    (void)state;
    const added_token tokens[] = {
        { .text = "<s>", .n = 3, .id = 1, .special = true },
        { .text = "<l>", .n = 3, .id = 2, .lstrip = true },
        { .text = "<r>", .n = 3, .id = 3, .rstrip = true },
        { .text = "word", .n = 4, .id = 4, .single_word = true },
        { .text = "s>x", .n = 3, .id = 5 },
    };
    added *a = open_tokens(tokens, 5);
    check(a, "a<s>b", NULL, "");
    check(a, "a<s>b", yes, "1@1-4 ");
    check(a, "<s>x", NULL, ""); /* the control token still hides what overlaps it */
    check(a, "s>x", NULL, "5@0-3 ");
    check(a, "a \t<l> b", NULL, "2@1-6 ");
    check(a, "a <r>\xc2\xa0 b", NULL, "3@2-8 ");
    check(a, "<r> <l>", NULL, "3@0-4 2@4-7 ");
    check(a, "word words sword word", NULL, "4@0-4 4@17-21 ");
    check(a, "\xc3\xa9word _word word\xc3\xa9 (word)", NULL, "4@21-25 ");
    check(a, "", yes, "");
    check(NULL, "<s>", yes, "");
    added_close(a);
}

/* 10^5 tokens; then one token of a megabyte whose every start looks promising. */
static void linear_whatever_the_tokens(void **state)
{
    (void)state;
    enum { MANY = 100000, LONG = 1000000 };
    added_token *tokens = mem_zalloc(MANY, sizeof *tokens);
    added_key *keys = mem_alloc(MANY, sizeof *keys);
    char *names = mem_alloc(MANY, 16), *text = mem_alloc(2 * LONG, 1);
    added *a;
    added_matches m = { 0 };
    clock_t begin = clock();
    for (int i = 0; i < MANY; i++) {
        int n = snprintf(names + 16 * i, 16, "<|%d|>", i);
        tokens[i].id = i;
        keys[i] = (added_key){ names + 16 * i, (size_t)n };
    }
    must(added_open(&a, keys, tokens, MANY));
    for (size_t i = 0; i < 2 * LONG; i++)
        text[i] = "<|1"[i % 3];
    must(added_find(a, text, 2 * LONG, NULL, NULL, &m));
    assert_int_equal(m.n, 0);
    added_close(a);
    memset(text, 'a', 2 * LONG);
    text[LONG - 1] = 'b';
    keys[0] = (added_key){ text, LONG };
    keys[1] = (added_key){ "a", 1 };
    tokens[1].special = true;
    must(added_open(&a, keys, tokens, 2));
    text[LONG - 1] = 'a';
    text[2 * LONG - 1] = 'b';
    must(added_find(a, text, 2 * LONG, NULL, NULL, &m));
    assert_int_equal(m.n, 1);
    assert_int_equal(m.at[0].start, LONG);
    added_close(a);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
    mem_free(m.at);
    mem_free(tokens);
    mem_free(keys);
    mem_free(names);
    mem_free(text);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const added_token token = { .text = "ab", .n = 2, .id = 7 };
    const added_key key = { "ab", 2 };
    for (uint64_t k = 1;; k++) {
        added *a = NULL;
        added_matches m = { 0 };
        mem_fail_at(k);
        pesc_status s = added_open(&a, &key, &token, 1);
        if (s == PESC_OK)
            s = added_find(a, "xab", 3, NULL, NULL, &m);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
        added_close(a);
        mem_free(m.at);
        if (!fired)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leftmost_longest),
        cmocka_unit_test(flags),
        cmocka_unit_test(linear_whatever_the_tokens),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("added", tests, NULL, NULL);
}
