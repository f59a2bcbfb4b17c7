/* run_cpu: the CPU against the oracle, on every instruction set this machine has; and the same bits
 * from any number of threads. */
#include "backend/cpu/cpu.h"
#include "ops/harness.h"
#include "ops/run.h"
#include "support/check.h"

#include <math.h>
#include <string.h>

/* The tolerance is that of the op, and half a unit of bf16 where results are stored in bf16. Ops
 * that only copy numbers have none: they must store exactly the rounded expected value. */
static void compare(const trial *t, double **expected, int number, const char *device_name)
{
    for (int k = 0; k < t->n; k++) {
        const slot *s = &t->slots[k];
        bool whole = s->dt == DT_I32 || s->dt == DT_U8;
        for (i64 i = 0; i < trial_count(t, k) && s->role >= SLOT_OUT; i++) {
            double got = trial_result(t, k, i), want = expected[k][i];
            double allowed = whole ? 0 : t->test->tolerance * (1 + fabs(want));
            if (t->test->tolerance == 0)
                want = round_to(s->dt, want);
            else if (s->dt == DT_BF16)
                allowed += fabs(want) * 0x1p-8 + t->test->bf16_tolerance * (1 + fabs(want));
            if (got != want && !(fabs(got - want) <= allowed) && !(isnan(got) && isnan(want)))
                fail_msg("%s case %d on %s: %s[%lld] is %.9g, expected %.9g (allowed %.3g)",
                         t->test->name, number, device_name, s->name, (long long)i, got, want,
                         allowed);
        }
    }
}

static void against_oracle(void **state)
{
    const op_test *test = *state;
    for (int number = 0; number < n_cases(test); number++)
        for (cpu_isa isa = CPU_BASE; isa <= cpu_isa_best(); isa++) {
            trial t;
            device *d;
            assert_int_equal(cpu_open_isa(&d, 2, isa), PESC_OK);
            trial_init(&t, test, number);
            trial_run(&t, d);
            test->oracle(t.p, t.value);
            compare(&t, t.value, number, d->name);
            trial_free(&t);
            d->op->close(d);
        }
}

static void any_threads(void **state)
{
    static const int counts[] = { 1, 2, 3, 7 };
    const op_test *test = *state;
    for (int number = 0; number < n_cases(test); number++) {
        trial first;
        for (int i = 0; i < 4; i++) {
            trial t;
            device *d;
            assert_int_equal(cpu_open(&d, counts[i]), PESC_OK);
            trial_init(&t, test, number);
            trial_run(&t, d);
            d->op->close(d);
            if (i == 0) {
                first = t;
                continue;
            }
            for (int k = 0; k < t.n; k++)
                if (memcmp(t.result[k], first.result[k], t.bytes[k]) != 0)
                    fail_msg("%s case %d: %s differs between 1 and %d threads", test->name, number,
                             t.slots[k].name, counts[i]);
            trial_free(&t);
        }
        trial_free(&first);
    }
}

int run_cpu(void)
{
    enum { MAX_TESTS = 128 };
    struct CMUnitTest oracle[MAX_TESTS] = { 0 }, threads[MAX_TESTS] = { 0 };
    assert_true(n_op_tests <= MAX_TESTS);
    for (int i = 0; i < n_op_tests; i++) {
        void *test = (void *)(uintptr_t)op_tests[i];
        oracle[i] = (struct CMUnitTest){ op_tests[i]->name, against_oracle, NULL, NULL, test };
        threads[i] = (struct CMUnitTest){ op_tests[i]->name, any_threads, NULL, NULL, test };
    }
    size_t n = (size_t)n_op_tests;
    return _cmocka_run_group_tests("cpu against the oracle", oracle, n, NULL, NULL) +
           _cmocka_run_group_tests("any number of threads, the same bits", threads, n, NULL, NULL);
}
