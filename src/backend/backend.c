/* backend: which device a name means. */
#include "backend/backend.h"

#include <string.h>

enum { MAX_THREADS = 1024 };

/* "cpu" is one thread a core (0), "cpu:N" N threads; false for anything else. */
static bool parse_cpu(const char *spec, int *n_threads)
{
    *n_threads = 0;
    if (strncmp(spec, "cpu", 3) != 0)
        return false;
    if (spec[3] == '\0')
        return true;
    if (spec[3] != ':' || spec[4] == '\0')
        return false;
    for (const char *p = spec + 4; *p; p++) {
        if (*p < '0' || *p > '9' || *n_threads > MAX_THREADS)
            return false;
        *n_threads = *n_threads * 10 + (*p - '0');
    }
    return *n_threads >= 1 && *n_threads <= MAX_THREADS;
}

pesc_status backend_open(device **out, const char *spec)
{
    *out = NULL;
    int n_threads;
    if (parse_cpu(spec, &n_threads))
        return cpu_open(out, n_threads);
    if (strncmp(spec, "cpu:", 4) == 0)
        return fail(PESC_USAGE,
                    "device \"%s\": found \"%s\" for the number of threads, expected 1 to %d", spec,
                    spec + 4, MAX_THREADS);
    return fail(PESC_DEVICE, "device \"%s\": this build has no such device; use cpu", spec);
}

pesc_status pesc_device_open(pesc_device **out, const char *spec)
{
    status_clear();
    return backend_open(out, spec);
}

const char *pesc_device_name(const pesc_device *dev)
{
    return dev->name;
}

void pesc_device_close(pesc_device *dev)
{
    if (dev)
        dev->op->close(dev);
}
