/* test_backend: names of devices and their memory. */
#include "backend/backend.h"
#include "base/mem.h"
#include "support/check.h"

static void names(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *name;
    } good[] = { { "cpu:1", "cpu (1 thread, " },
                 { "cpu:3", "cpu (3 threads, " },
                 { "cpu", "cpu (" } };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        pesc_device *d;
        must(pesc_device_open(&d, good[i].spec));
        assert_memory_equal(pesc_device_name(d), good[i].name, strlen(good[i].name));
        pesc_device_close(d);
    }
    pesc_device_close(NULL);
}

/* The GPU where one can be opened, else the CPU with the threads that are wanted. */
static void automatic(void **state)
{
    (void)state;
    pesc_device *d, *gpu;
    bool has_gpu = pesc_device_open(&gpu, "cuda") == PESC_OK;
    must(pesc_device_open(&d, "auto:3"));
    const char *name = has_gpu ? "cuda:0 (" : "cpu (3 threads, ";
    assert_memory_equal(pesc_device_name(d), name, strlen(name));
    assert_string_equal(pesc_last_error(), "");
    pesc_device_close(d);
    if (has_gpu)
        pesc_device_close(gpu);
    must_fail(pesc_device_open(&d, "auto:0"), PESC_USAGE, "expected 1 to 1024");
}

static void unknown_devices(void **state)
{
    (void)state;
    static const char *const missing[] = { "", "gpu", "cpux", "CPU", "cudax" };
    static const char *const bad_gpus[] = { "cuda:", "cuda:-1", "cuda:x", "cuda:1024" };
    static const char *const bad_threads[] = { "cpu:",   "cpu:0",    "cpu:-1",
                                               "cpu:1x", "cpu:1025", "cpu:99999999999999999999" };
    pesc_device *d;
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        must_fail(pesc_device_open(&d, missing[i]), PESC_DEVICE, "this build has no such device");
    for (size_t i = 0; i < sizeof bad_threads / sizeof *bad_threads; i++)
        must_fail(pesc_device_open(&d, bad_threads[i]), PESC_USAGE, "expected 1 to 1024");
    for (size_t i = 0; i < sizeof bad_gpus / sizeof *bad_gpus; i++)
        must_fail(pesc_device_open(&d, bad_gpus[i]), PESC_USAGE, "expected 0 to 1023");
    assert_null(d);
}

/* A GPU, or one sentence that says what it lacks. */
static void gpu_or_sentence(void **state)
{
    (void)state;
    pesc_device *d;
    pesc_status s = pesc_device_open(&d, "cuda");
    if (s == PESC_OK) {
        assert_memory_equal(pesc_device_name(d), "cuda:0 (", 8);
        pesc_device_close(d);
        return;
    }
    assert_int_equal(s, PESC_DEVICE);
    assert_null(d);
    assert_memory_equal(pesc_last_error(), "device \"cuda:0\": ", 17);
}

static void no_memory(void **state)
{
    (void)state;
    device *d;
    for (uint64_t n = 1;; n++) {
        mem_fail_at(n);
        pesc_status s = backend_open(&d, "cpu:2");
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        if (!fired) {
            must(s);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
        assert_null(d);
    }
    d->op->close(d);
}

static void memory(void **state)
{
    (void)state;
    enum { BIG = 3 << 20 };
    device *d;
    void *p, *q;
    must(backend_open(&d, "cpu:2"));
    must(d->op->alloc(d, BIG, &p));
    must(d->op->alloc(d, BIG, &q));
    assert_true((uintptr_t)p % 64 == 0 && d->op->host_memory(d));
    d->op->zero(d, p, BIG);
    memset(q, 7, BIG);
    d->op->copy(d, (char *)q + 1, p, BIG - 2);
    assert_int_equal(((char *)q)[0], 7);
    assert_int_equal(((char *)q)[1], 0);
    assert_int_equal(((char *)q)[BIG - 2], 0);
    assert_int_equal(((char *)q)[BIG - 1], 7);
    d->op->free(d, p);
    d->op->free(d, q);
    d->op->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),           cmocka_unit_test(automatic),
        cmocka_unit_test(unknown_devices), cmocka_unit_test(gpu_or_sentence),
        cmocka_unit_test(no_memory),       cmocka_unit_test(memory),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
