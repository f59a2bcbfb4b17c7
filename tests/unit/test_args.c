/* Structs that begin with `size`, between a caller and a library of different versions. */
#include "base/args.h"
#include "support/check.h"

/* One struct as three versions of a header declare it. */
typedef struct first {
    size_t size;
    int64_t a;
} first;
typedef struct second {
    size_t size;
    int64_t a, b;
} second;
typedef struct third {
    size_t size;
    int64_t a, b, c;
} third;

static pesc_status read_second(second *to, const void *opt)
{
    *to = (second){ sizeof *to, 10, 20 }; /* the defaults */
    ARGS_READ(to, opt);
    return PESC_OK;
}

static void reads_structs_of_other_versions(void **state)
{
    (void)state;
    second s;
    must(read_second(&s, NULL));
    assert_true(s.a == 10 && s.b == 20);
    must(read_second(&s, &(second){ sizeof(second), 1, 2 }));
    assert_true(s.a == 1 && s.b == 2 && s.size == sizeof s);
    must(read_second(&s, &(first){ sizeof(first), 1 }));
    assert_true(s.a == 1 && s.b == 20 && s.size == sizeof s);
    must(read_second(&s, &(third){ sizeof(third), 1, 2, 0 }));
    assert_true(s.a == 1 && s.b == 2 && s.size == sizeof s);
    must_fail(read_second(&s, &(third){ sizeof(third), 1, 2, 3 }), PESC_USAGE,
              "read_second: opt has a field that this version of pesc");
}

static void writes_structs_of_other_versions(void **state)
{
    (void)state;
    const second from = { 0, 1, 2 };
    struct {
        first known;
        int64_t after;
    } old = { { sizeof(first), 7 }, 99 };
    ARGS_WRITE(&old.known, &from);
    assert_true(old.known.a == 1 && old.known.size == sizeof(first) && old.after == 99);
    third later = { sizeof later, 7, 7, 7 };
    ARGS_WRITE(&later, &from);
    assert_true(later.a == 1 && later.b == 2 && later.c == 0 && later.size == sizeof later);
    ARGS_CLEAR(&later);
    assert_true(later.a == 0 && later.b == 0 && later.size == sizeof later);
}

static pesc_status take(const second *out)
{
    NEED_SIZED(out);
    return PESC_OK;
}

static pesc_status take_many(const int *list, size_t n)
{
    NEED_ARRAY(list, n);
    return PESC_OK;
}

static void names_what_is_missing(void **state)
{
    (void)state;
    must_fail(take(NULL), PESC_USAGE, "take: the argument out is NULL");
    must_fail(take(&(second){ 0 }), PESC_USAGE, "take: out->size is 0; initialise the struct with");
    must_fail(take(&(second){ (size_t)-1, 0, 0 }), PESC_USAGE, "initialise the struct");
    must(take(&(second){ sizeof(second), 0, 0 }));
    must_fail(take_many(NULL, 2), PESC_USAGE, "take_many: the argument list is NULL");
    must(take_many(NULL, 0));
}

static void versions_agree(void **state)
{
    (void)state;
    assert_string_equal(pesc_version(), PESC_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_structs_of_other_versions),
        cmocka_unit_test(writes_structs_of_other_versions),
        cmocka_unit_test(names_what_is_missing),
        cmocka_unit_test(versions_agree),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}
