#include "base/mem.h"
#include "support/check.h"
#include "tokenizer/trie.h"

#include <stdlib.h>

static void finds_exactly_its_keys(void **state)
{
    (void)state;
    trie_key keys[] = { { "a", 1, 0 },   { "abc", 3, 1 }, { "abd", 3, 2 },
                        { "b", 1, 3 },   { "\0x", 2, 4 }, { "\xff", 1, 5 },
                        { "abc", 3, 6 }, { "zz", 2, 7 },  { "abcdef", 6, 8 } };
    trie *t;
    must(trie_build(&t, keys, sizeof keys / sizeof *keys));
    assert_int_equal(trie_find(t, "a", 1), 0);
    assert_int_equal(trie_find(t, "ab", 2), -1);
    assert_int_equal(trie_find(t, "abc", 3), 6); /* the later of two */
    assert_int_equal(trie_find(t, "abd", 3), 2);
    assert_int_equal(trie_find(t, "\0x", 2), 4);
    assert_int_equal(trie_find(t, "\xff", 1), 5);
    assert_int_equal(trie_find(t, "zz", 2), 7);
    assert_int_equal(trie_find(t, "zzz", 3), -1);
    assert_int_equal(trie_find(t, "", 0), -1);
    size_t n = 0;
    assert_int_equal(trie_longest(t, "abcdeg", 6, &n), 6);
    assert_int_equal(n, 3);
    assert_int_equal(trie_longest(t, "abcdef", 6, &n), 8);
    assert_int_equal(n, 6);
    assert_int_equal(trie_longest(t, "c", 1, &n), -1);
    trie_close(t);
}

static void an_empty_trie_finds_nothing(void **state)
{
    (void)state;
    trie *t;
    must(trie_build(&t, NULL, 0));
    assert_int_equal(trie_find(t, "a", 1), -1);
    assert_int_equal(trie_step(t, TRIE_ROOT, 'a'), TRIE_NONE);
    trie_close(t);
}

/* Nodes with 256 children, and keys that differ only at their end. */
static void agrees_with_a_linear_search(void **state)
{
    (void)state;
    enum { N = 3000 };
    static char text[N][12];
    static size_t len[N];
    static trie_key keys[N];
    srand(1);
    for (int i = 0; i < N; i++) {
        len[i] = 1 + (size_t)(rand() % 11);
        for (size_t k = 0; k < len[i]; k++)
            text[i][k] = (char)(k < 2 ? rand() % 256 : 'a' + rand() % 2);
        keys[i] = (trie_key){ text[i], len[i], i };
    }
    trie *t;
    must(trie_build(&t, keys, N));
    for (int i = 0; i < N; i++) {
        int expected = -1;
        for (int k = 0; k < N; k++)
            if (len[k] == len[i] && memcmp(text[k], text[i], len[i]) == 0)
                expected = k;
        assert_int_equal(trie_find(t, text[i], len[i]), expected);
    }
    trie_close(t);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t i = 1;; i++) {
        trie_key keys[] = { { "one", 3, 1 }, { "two", 3, 2 } };
        trie *t = NULL;
        mem_fail_at(i);
        pesc_status s = trie_build(&t, keys, 2);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        trie_close(t);
        if (!fired) {
            assert_int_equal(s, PESC_OK);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
        assert_null(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_exactly_its_keys),
        cmocka_unit_test(an_empty_trie_finds_nothing),
        cmocka_unit_test(agrees_with_a_linear_search),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("trie", tests, NULL, NULL);
}
