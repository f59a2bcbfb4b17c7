/* run_grad: backward ops against difference quotients of the forward they belong to, computed in
 * double from the same inputs. A few elements of every gradient are tried, the first and last among
 * them. */
#include "backend/cpu/cpu.h"
#include "ops/harness.h"
#include "ops/run.h"
#include "support/check.h"

#include <math.h>

enum { TRIED = 12 };

static double quotient(trial *t, int slot_of, i64 i)
{
    const double h = 1e-4;
    double *at = &t->value[slot_of][i], was = *at;
    *at = was + h;
    double up = t->test->loss(t->p, t->value);
    *at = was - h;
    double down = t->test->loss(t->p, t->value);
    *at = was;
    return (up - down) / (2 * h);
}

/* With bf16 a gradient carries its own rounding and that of stored results of forward (the output
 * of attention). */
static double allowed_error(const trial *t, int k, double want)
{
    bool coarse = t->slots[k].dt == DT_BF16;
    return 2e-5 * (1 + fabs(want)) + (coarse ? 0.01 * (0.2 + fabs(want)) : 0);
}

static void against_quotients(void **state)
{
    const op_test *test = *state;
    for (int number = 0; number < n_cases(test); number++) {
        trial t;
        device *d;
        must(cpu_open(&d, 2));
        trial_init(&t, test, number);
        trial_run(&t, d);
        for (int g = 0; g < 4 && (test->gradients[g].gradient || test->gradients[g].of); g++) {
            int k = test->gradients[g].gradient, of = test->gradients[g].of;
            i64 n = trial_count(&t, k);
            for (i64 j = 0; j < TRIED && n > 0; j++) {
                i64 i = j * (n - 1) / (TRIED - 1);
                double want = quotient(&t, of, i), got = trial_result(&t, k, i);
                if (t.slots[k].role == SLOT_INOUT)
                    got -= t.value[k][i];
                if (!(fabs(got - want) <= allowed_error(&t, k, want)))
                    fail_msg("%s case %d: %s[%lld] is %.9g, the difference quotient %.9g",
                             test->name, number, t.slots[k].name, (long long)i, got, want);
            }
        }
        trial_free(&t);
        d->op->close(d);
    }
}

int run_grad(void)
{
    enum { MAX_TESTS = 64 };
    struct CMUnitTest tests[MAX_TESTS] = { 0 };
    size_t n = 0;
    for (int i = 0; i < n_op_tests && n < MAX_TESTS; i++)
        if (op_tests[i]->loss)
            tests[n++] = (struct CMUnitTest){ op_tests[i]->name, against_quotients, NULL, NULL,
                                              (void *)(uintptr_t)op_tests[i] };
    return _cmocka_run_group_tests("backward against finite differences", tests, n, NULL, NULL);
}
