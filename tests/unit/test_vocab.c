#include "base/mem.h"
#include "support/check.h"
#include "tokenizer/vocab.h"

#include <stdio.h>

static void finds_what_was_added(void **state)
{
    (void)state;
    vocab v = { 0 };
    size_t n;
    char name[16];
    assert_int_equal(vocab_find(&v, "a", 1), -1);
    assert_null(vocab_text(&v, 0, &n));
    for (int i = 0; i < 5000; i++) {
        int len = snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(vocab_add(&v, name, (size_t)len, 3 * i), VOCAB_OK);
    }
    for (int i = 0; i < 5000; i++) {
        int len = snprintf(name, sizeof name, "t%d", i);
        assert_int_equal(vocab_find(&v, name, (size_t)len), 3 * i);
        assert_memory_equal(vocab_text(&v, 3 * i, &n), name, (size_t)len);
        assert_int_equal(n, len);
        assert_null(vocab_text(&v, 3 * i + 1, &n));
    }
    assert_int_equal(vocab_find(&v, "t5000", 5), -1);
    assert_int_equal(vocab_find(&v, "longer than any", 15), -1);
    assert_int_equal(v.count, 5000);
    assert_int_equal(v.n, 3 * 4999 + 1);
    vocab_free(&v);
}

static void tells_what_is_taken(void **state)
{
    (void)state;
    vocab v = { 0 };
    size_t n;
    assert_int_equal(vocab_add(&v, "", 0, 2), VOCAB_OK); /* any bytes, none too */
    assert_int_equal(vocab_add(&v, "a\0b", 3, 1), VOCAB_OK);
    assert_int_equal(vocab_add(&v, "x", 1, 1), VOCAB_ID_TAKEN);
    assert_int_equal(vocab_add(&v, "a\0b", 3, 5), VOCAB_TEXT_TAKEN);
    assert_int_equal(vocab_find(&v, "a\0b", 3), 1);
    assert_int_equal(vocab_find(&v, "a\0c", 3), -1);
    assert_int_equal(vocab_find(&v, "", 0), 2);
    assert_non_null(vocab_text(&v, 2, &n));
    assert_int_equal(n, 0);
    assert_null(vocab_text(&v, -1, &n));
    vocab_free(&v);
}

static void bounds_ids(void **state)
{
    (void)state;
    assert_int_equal(vocab_id_limit(0), 65536);
    assert_int_equal(vocab_id_limit(1000), 16 * 1000 + 65536);
    assert_int_equal(vocab_id_limit((size_t)1 << 40), INT32_MAX);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (uint64_t k = 1;; k++) {
        vocab v = { 0 };
        mem_fail_at(k);
        vocab_result r = vocab_add(&v, "abc", 3, 7);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(r, fired ? VOCAB_NOMEM : VOCAB_OK);
        vocab_free(&v);
        if (!fired)
            break;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_was_added),
        cmocka_unit_test(tells_what_is_taken),
        cmocka_unit_test(bounds_ids),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("vocab", tests, NULL, NULL);
}
