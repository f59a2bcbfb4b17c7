#include "train/optimizer.h"

#include "support/check.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>

/* CPU tensors are host memory, so the test looks into them. */
static training on;
static params *ps;

static const optimizer_options usual = { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };

static void set_grad(int turn, float scale)
{
    float *g = ps->grad.data;
    for (int64_t i = 0; i < ps->n; i++)
        g[i] = scale * sinf((float)(i * 7 + turn * 13));
}

static double norm_of(const float *x)
{
    double sum = 0;
    for (int64_t i = 0; i < ps->n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* AdamW as its paper writes it, in double. */
static void reference(double *w, double *m, double *v, double factor, const optimizer_options *o,
                      double lr, int t)
{
    const float *g = ps->grad.data;
    for (int64_t i = 0; i < ps->n; i++) {
        double gi = (double)g[i] * factor;
        m[i] = o->beta1 * m[i] + (1 - o->beta1) * gi;
        v[i] = o->beta2 * v[i] + (1 - o->beta2) * gi * gi;
        w[i] -= lr * o->weight_decay * w[i];
        w[i] -=
            lr * (m[i] / (1 - pow(o->beta1, t))) / (sqrt(v[i] / (1 - pow(o->beta2, t))) + o->eps);
    }
}

static double worst_after(optimizer_options o, int steps)
{
    optimizer *opt;
    size_t n = (size_t)ps->n;
    double *w = calloc(n, sizeof *w), *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v);
    float *master = ps->master.data;
    double worst = 0, norm;
    must(optimizer_open(&opt, ps, &o));
    for (size_t i = 0; i < n; i++)
        w[i] = (double)master[i];
    for (int t = 1; t <= steps; t++) {
        set_grad(t, 0.1f);
        must(optimizer_norm(opt, &norm));
        assert_float_equal(norm, norm_of(ps->grad.data), 1e-5 * norm);
        double factor = o.clip > 0 && norm > o.clip ? o.clip / (norm + 1e-6) : 1;
        reference(w, m, v, factor, &o, 1e-2, t);
        optimizer_step(opt, 1e-2, t);
    }
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)master[i] - w[i]));
    optimizer_close(opt);
    free(w);
    free(m);
    free(v);
    return worst;
}

static void follows_adamw(void **state)
{
    (void)state;
    optimizer_options clipped = usual, decayed = usual;
    clipped.clip = 0.5;
    decayed.weight_decay = 0.1;
    assert_true(worst_after(usual, 5) < 2e-6);
    assert_true(worst_after(clipped, 5) < 2e-6);
    assert_true(worst_after(decayed, 5) < 2e-6);
}

/* 8-bit moments stray by a part of a step, not more. */
static void eight_bits_are_near(void **state)
{
    (void)state;
    optimizer_options eight = usual;
    eight.eight_bit = true;
    double worst = worst_after(eight, 10);
    assert_true(worst > 0);
    assert_true(worst < 10 * 1e-2 * 0.5);
    assert_true(optimizer_bytes(1 << 20, true) < optimizer_bytes(1 << 20, false) / 3);
}

static void does_nothing_when_not_finite(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    optimizer *opt;
    optimizer_options o = usual;
    size_t bytes = tensor_bytes(&ps->master);
    o.clip = 1;
    must(optimizer_open(&opt, ps, &o));
    set_grad(1, 1);
    double norm;
    must(optimizer_norm(opt, &norm));
    optimizer_step(opt, 1e-2, 1);
    void *w = malloc(bytes), *m = malloc(bytes), *v = malloc(bytes);
    memcpy(w, ps->master.data, bytes);
    memcpy(m, opt->m.data, bytes);
    memcpy(v, opt->v.data, bytes);
    for (int i = 0; i < 3; i++) {
        set_grad(2, 1);
        ((float *)ps->grad.data)[ps->n / 2 + i] = bad[i];
        must(optimizer_norm(opt, &norm));
        assert_false(isfinite(norm));
        optimizer_step(opt, 1e-2, 2);
        assert_memory_equal(w, ps->master.data, bytes);
        assert_memory_equal(m, opt->m.data, bytes);
        assert_memory_equal(v, opt->v.data, bytes);
    }
    free(w);
    free(m);
    free(v);
    optimizer_close(opt);
}

static int open_all(void **state)
{
    (void)state;
    train_spec spec = { .lora_r = 4, .lora_alpha = 8, .lora_targets = TARGET_ALL, .seed = 3 };
    on = training_open("cpu:2", "train/lora/model", &spec);
    ps = on.ps;
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    training_close(&on);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_adamw),
        cmocka_unit_test(eight_bits_are_near),
        cmocka_unit_test(does_nothing_when_not_finite),
    };
    return cmocka_run_group_tests_name("optimizer", tests, open_all, close_all);
}
