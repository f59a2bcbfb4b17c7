/* backend: opens the device of a name, and the calls of the public API on devices. */
#include "backend/backend.h"
#include "backend/planned.h"
#include "backend/profile.h"

#include "base/args.h"
#include "base/log.h"

#include <dlfcn.h>
#include <string.h>

/* A kind of device and the number that may follow its name: "cpu:N" are N threads, "cuda:N" is the
 * Nth GPU, "auto:N" the first GPU or, without a usable one, N threads. Without one the number is
 * `standard`. "planned:N" is a GPU with N MiB that need not be there. */
typedef struct kind {
    const char *name, *number;
    int standard, min, max;
    pesc_status (*opener)(device **out, int number);
} kind;

/* The first GPU where it is usable, else the CPU with so many threads. Without NVIDIA's driver the
 * CUDA part, which takes 200 MiB of memory, is not loaded to find that out. */
static pesc_status open_auto(device **out, int threads)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver && cuda_open(out, 0) == PESC_OK)
        return PESC_OK;
    if (driver)
        dlclose(driver);
    status_clear();
    return cpu_open(out, threads);
}

static const kind kinds[] = {
    { "auto", "the number of threads", 0, 1, 1024, open_auto },
    { "cpu", "the number of threads", 0, 1, 1024, cpu_open },
    { "cuda", "the number of the GPU", 0, 0, 1023, cuda_open },
    { "planned", "the MiB of memory", 24576, 1, 1 << 30, planned_open },
};

static bool parse_number(const kind *k, const char *text, int *out)
{
    *out = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || *out > k->max)
            return false;
        *out = *out * 10 + (*p - '0');
    }
    return *text && *out >= k->min && *out <= k->max;
}

pesc_status backend_open(device **out, const char *spec)
{
    *out = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const kind *k = &kinds[i];
        size_t n = strlen(k->name);
        int number;
        if (strncmp(spec, k->name, n) != 0 || (spec[n] && spec[n] != ':'))
            continue;
        if (!spec[n])
            return k->opener(out, k->standard);
        if (!parse_number(k, spec + n + 1, &number))
            return fail(PESC_USAGE, "device \"%s\": found \"%s\" for %s, expected %d to %d", spec,
                        spec + n + 1, k->number, k->min, k->max);
        return k->opener(out, number);
    }
    return fail(PESC_DEVICE, "device \"%s\": this build has no such device; use auto, cpu or cuda",
                spec);
}

device_call device_enter(device *d)
{
    pthread_mutex_lock(&d->lock);
    return (device_call){ d, log_swap(&d->events) };
}

void device_leave(device_call *c)
{
    log_swap(c->outer);
    pthread_mutex_unlock(&c->dev->lock);
}

pesc_status pesc_device_open(pesc_device **out, const char *spec)
{
    status_clear();
    NEED(out);
    *out = NULL;
    NEED(spec);
    TRY(backend_open(out, spec));
    return pesc_device_events(*out, NULL);
}

const char *pesc_device_name(const pesc_device *dev)
{
    return dev ? dev->name : "";
}

const char *pesc_device_compute_dtype(const pesc_device *dev)
{
    return dev && dev->has_bf16 ? "bf16" : "f32";
}

pesc_status pesc_device_events(pesc_device *dev, const pesc_events *ev)
{
    status_clear();
    NEED(dev);
    pesc_events events;
    TRY(log_read_events(&events, ev, __func__));
    dev->events = events;
    return PESC_OK;
}

void device_keep(device *d)
{
    __atomic_fetch_add(&d->users, 1, __ATOMIC_RELAXED);
}

void pesc_device_close(pesc_device *dev)
{
    if (dev && __atomic_fetch_sub(&dev->users, 1, __ATOMIC_ACQ_REL) == 0) {
        profile_close(dev);
        dev->op->close(dev);
    }
}
