#include "base/mem.h"
#include "support/check.h"

/* Counts whose product with the size wraps around to something small. */
static void products_do_not_wrap(void **state)
{
    (void)state;
    enum { SIZE = 16 };
    volatile size_t n = SIZE_MAX / SIZE + 2; /* times SIZE: 16 */
    assert_null(mem_alloc(n, SIZE));
    char *p = mem_alloc(8, 1);
    assert_non_null(p);
    assert_null(mem_grow(p, n, SIZE));
    mem_free(p);
    assert_null(mem_aligned(SIZE_MAX - 8));
    assert_null(mem_strndup("a", SIZE_MAX));
}

static void nothing_is_something(void **state)
{
    (void)state;
    void *p[] = { mem_alloc(0, 8), mem_zalloc(0, 8), mem_grow(NULL, 0, 8), mem_aligned(0) };
    for (size_t i = 0; i < sizeof p / sizeof *p; i++) {
        assert_non_null(p[i]);
        mem_free(p[i]);
    }
    mem_free(NULL);
}

/* The n-th allocation fails, those before and after it do not. */
static void fails_where_told(void **state)
{
    (void)state;
    mem_fail_at(2);
    void *a = mem_alloc(1, 1), *b = mem_zalloc(1, 1), *c = mem_alloc(1, 1);
    assert_true(mem_fail_fired());
    mem_fail_at(0);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c);
    mem_free(a);
    mem_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_do_not_wrap),
        cmocka_unit_test(nothing_is_something),
        cmocka_unit_test(fails_where_told),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
