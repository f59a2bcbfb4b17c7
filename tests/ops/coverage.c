/* coverage: what the table of cases must contain. Every op of backend.h has an oracle; every op has
 * a case of one token, one of an odd size and one of each dtype its tensors may have; backward ops
 * are compared with finite differences; where rows are sorted by expert, an expert has none. */
#include "backend/opmap.h"
#include "ops/harness.h"
#include "ops/run.h"
#include "support/check.h"

#include <string.h>

static const op_test *find_test(const char *name)
{
    for (int i = 0; i < n_op_tests; i++)
        if (strcmp(op_tests[i]->name, name) == 0)
            return op_tests[i];
    return NULL;
}

static void every_op_has_an_oracle(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NAME(name, parameters, arguments) #name,
        OPMAP(NAME)
    };
    static const char *const moves_bytes[] = { "copy", "zero", "upload" }; /* test_backend.c */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bool exempt = false;
        for (size_t j = 0; j < sizeof moves_bytes / sizeof *moves_bytes; j++)
            exempt |= strcmp(names[i], moves_bytes[j]) == 0;
        if (!exempt && !find_test(names[i]))
            fail_msg("%s has no cases", names[i]);
    }
}

static bool is_backward(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, "_bwd") == 0;
}

static bool has_one_token(const op_test *test)
{
    for (int i = 0; i < n_cases(test); i++)
        if (test->cases[i].t == 1)
            return true;
    return false;
}

/* A dimension that no vector width divides. */
static bool has_odd_size(const op_test *test)
{
    for (int i = 0; i < n_cases(test); i++) {
        slot slots[MAX_SLOTS] = { 0 };
        int n = test->slots(&test->cases[i], slots);
        for (int k = 0; k < n; k++)
            for (int d = 0; d < 4; d++)
                if (slots[k].ne[d] > 8 && slots[k].ne[d] % 2)
                    return true;
    }
    return false;
}

static dtype *dtype_field(params *p, int field)
{
    return field == 0 ? &p->x : field == 1 ? &p->w : &p->o;
}

/* Whether a dtype of the parameters is the dtype of any slot. */
static bool uses_field(const op_test *test, int field)
{
    for (int i = 0; i < n_cases(test); i++) {
        slot a[MAX_SLOTS] = { 0 }, b[MAX_SLOTS] = { 0 };
        params p = test->cases[i];
        *dtype_field(&p, field) = DT_F32;
        int n = test->slots(&p, a);
        *dtype_field(&p, field) = DT_BF16;
        test->slots(&p, b);
        for (int k = 0; k < n; k++)
            if (a[k].ne[0] && a[k].dt != b[k].dt)
                return true;
    }
    return false;
}

static void check_dtypes(const op_test *test)
{
    static const char *const names[] = { "activations", "weights", "results" };
    for (int field = 0; field < 3; field++) {
        bool f32 = false, other = false;
        for (int i = 0; i < n_cases(test); i++) {
            params p = test->cases[i];
            f32 |= *dtype_field(&p, field) == DT_F32;
            other |= *dtype_field(&p, field) != DT_F32;
        }
        if (uses_field(test, field) && !(f32 && other))
            fail_msg("%s has no case with %s in %s", test->name, names[field],
                     f32 ? "another dtype than f32" : "f32");
    }
}

/* Of ops with offsets of experts: whether two of them are equal in some case. */
static bool has_empty_expert(const op_test *test)
{
    bool empty = false, offsets = false;
    for (int i = 0; i < n_cases(test); i++) {
        trial t;
        trial_init(&t, test, i);
        for (int k = 0; k < t.n; k++) {
            if (strcmp(t.slots[k].name, "offsets") != 0)
                continue;
            offsets = true;
            if (t.slots[k].role == SLOT_OUT)
                test->oracle(t.p, t.value);
            for (i64 e = 0; e < t.p->e; e++)
                empty |= t.value[k][e] == t.value[k][e + 1];
        }
        trial_free(&t);
    }
    return empty || !offsets;
}

static void has_the_cases(void **state)
{
    const op_test *test = *state;
    if (!has_one_token(test))
        fail_msg("%s has no case of one token", test->name);
    if (!has_odd_size(test))
        fail_msg("%s has no case of an odd size", test->name);
    check_dtypes(test);
    if (is_backward(test->name) && !test->loss)
        fail_msg("%s is not compared with finite differences", test->name);
    if (!has_empty_expert(test))
        fail_msg("%s has no case in which an expert has no rows", test->name);
}

int run_coverage(void)
{
    enum { MAX_TESTS = 128 };
    struct CMUnitTest tests[MAX_TESTS] = { cmocka_unit_test(every_op_has_an_oracle) };
    assert_true(n_op_tests < MAX_TESTS);
    for (int i = 0; i < n_op_tests; i++)
        tests[i + 1] = (struct CMUnitTest){ op_tests[i]->name, has_the_cases, NULL, NULL,
                                            (void *)(uintptr_t)op_tests[i] };
    return _cmocka_run_group_tests("cases of every op", tests, (size_t)n_op_tests + 1, NULL, NULL);
}
