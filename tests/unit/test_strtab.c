#include "base/mem.h"
#include "format/strtab.h"
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t add(strtab *t, int i)
{
    char name[32];
    int n = snprintf(name, sizeof name, "tensor.%d", i);
    assert_int_equal(strtab_find(t, name, (size_t)n), -1);
    return strtab_add(t, name, (size_t)n);
}

static int64_t find(const strtab *t, int i)
{
    char name[32];
    int n = snprintf(name, sizeof name, "tensor.%d", i);
    return strtab_find(t, name, (size_t)n);
}

static void test_numbers_strings_in_order(void **state)
{
    enum { N = 20000 };
    strtab t = { 0 };
    (void)state;
    assert_int_equal(strtab_find(&t, "x", 1), -1);
    for (int i = 0; i < N; i++)
        assert_int_equal(add(&t, i), i);
    for (int i = 0; i < N; i++)
        assert_int_equal(find(&t, i), i);
    assert_string_equal(t.names[123], "tensor.123");
    assert_int_equal(find(&t, N), -1);
    assert_int_equal(strtab_find(&t, "tensor.12345", 9), 12); /* the length counts */
    strtab_free(&t);
}

static void test_keeps_odd_strings(void **state)
{
    strtab t = { 0 };
    (void)state;
    char *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    assert_int_equal(strtab_add(&t, "", 0), 0);
    assert_int_equal(strtab_add(&t, big, 1 << 20), 1);
    assert_int_equal(strtab_add(&t, "after", 5), 2);
    assert_int_equal(strtab_find(&t, "", 0), 0);
    assert_int_equal(strtab_find(&t, big, 1 << 20), 1);
    assert_int_equal(strtab_find(&t, big, (1 << 20) - 1), -1);
    assert_int_equal(strtab_find(&t, "after", 5), 2);
    free(big);
    strtab_free(&t);
}

static void test_drops(void **state)
{
    enum { N = 1000 };
    unsigned char drop[N];
    strtab t = { 0 };
    (void)state;
    for (int i = 0; i < N; i++) {
        add(&t, i);
        drop[i] = i % 3 == 0;
    }
    strtab_drop(&t, drop);
    for (int i = 0, kept = 0; i < N; i++)
        assert_int_equal(find(&t, i), i % 3 == 0 ? -1 : kept++);
    assert_int_equal(add(&t, N), N - (N + 2) / 3);
    strtab_free(&t);
}

static void test_bears_lack_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        strtab t = { 0 };
        int i = 0;
        mem_fail_at(n);
        while (i < 200 && add(&t, i) == i)
            i++;
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        for (int k = 0; k < i; k++)
            assert_int_equal(find(&t, k), k);
        strtab_free(&t);
        if (!fired)
            break;
        assert_true(i < 200);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_strings_in_order),
        cmocka_unit_test(test_keeps_odd_strings),
        cmocka_unit_test(test_drops),
        cmocka_unit_test(test_bears_lack_of_memory),
    };
    return cmocka_run_group_tests_name("strtab", tests, NULL, NULL);
}
