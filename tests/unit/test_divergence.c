#include "explain/divergence.h"

#include "support/check.h"

#include <math.h>

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-12;
}

static void is_jensen_shannon_over_its_maximum(void **state)
{
    (void)state;
    const divergence_shape z = { 2, 1, 2 };
    assert_true(near(divergence_of((uint64_t[]){ 3, 1, 30, 10 }, z, 0), 0));
    assert_true(near(divergence_of((uint64_t[]){ 5, 0, 0, 7 }, z, 0), 1));
    /* p = (3/4, 1/4), q = (1/4, 3/4): H(1/2, 1/2) - H(3/4, 1/4), over log 2 */
    double h = -(0.75 * log(0.75) + 0.25 * log(0.25));
    assert_true(near(divergence_of((uint64_t[]){ 3, 1, 2, 6 }, z, 0), (log(2) - h) / log(2)));
    assert_true(isnan(divergence_of((uint64_t[]){ 3, 1 }, (divergence_shape){ 1, 1, 2 }, 0)));
    const divergence_shape two = { 2, 2, 2 };
    assert_true(near(divergence_of((uint64_t[]){ 1, 0, 1, 1, 0, 1, 2, 2 }, two, 0), 1));
    assert_true(near(divergence_of((uint64_t[]){ 1, 0, 1, 1, 0, 1, 2, 2 }, two, 1), 0));
}

/* Layer 0: expert = domain. Layer 1: the same in every record. Layer 2: by the parity of the
 * record, which the domains share alike. */
static void fill(divergence_records *r, divergence_shape z, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t domain = i < n / 2 ? 0 : 1;
        must(divergence_add(r, z, domain));
        uint32_t *c = r->counts + i * z.layers * z.experts;
        c[domain] = 10;
        c[2] = c[3] = 5;
        c[4 + i % 2] = 10;
    }
}

static void tells_differences_from_chance(void **state)
{
    (void)state;
    const divergence_shape z = { 2, 3, 2 };
    divergence_records r = { 0 };
    double observed[3] = { 1, 0, 0 }, chance[3], p[3], again[3];
    fill(&r, z, 20);
    must(divergence_permute(&r, z, &(divergence_test){ 199, 7, observed, chance, p }));
    assert_true(near(p[0], 1.0 / 200)); /* 2 / C(20, 10) of the exchanges differ as much */
    assert_true(chance[0] > 0.001 && chance[0] < 0.3);
    assert_true(near(p[1], 1) && near(chance[1], 0));
    assert_true(near(p[2], 1) && chance[2] > 0);
    must(divergence_permute(&r, z, &(divergence_test){ 199, 7, observed, chance, again }));
    assert_memory_equal(p, again, sizeof p);
    must(divergence_permute(&r, z, &(divergence_test){ 0, 7, observed, chance, p }));
    assert_true(isnan(p[0]) && isnan(chance[0]));
    divergence_free(&r);
}

/* Of 2 records of 2 domains an exchange either changes both or none: whatever differs, p is 1. */
static void two_records_prove_nothing(void **state)
{
    (void)state;
    const divergence_shape z = { 2, 1, 2 };
    divergence_records r = { 0 };
    double observed[1] = { 1 }, chance[1], p[1];
    must(divergence_add(&r, z, 0));
    must(divergence_add(&r, z, 1));
    r.counts[0] = r.counts[3] = 4;
    must(divergence_permute(&r, z, &(divergence_test){ 50, 1, observed, chance, p }));
    assert_true(near(p[0], 1) && near(chance[0], 1));
    divergence_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_jensen_shannon_over_its_maximum),
        cmocka_unit_test(tells_differences_from_chance),
        cmocka_unit_test(two_records_prove_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
