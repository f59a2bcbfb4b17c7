/* doctor: what this build can do on this machine, for `pesc doctor`. */
#include "backend/backend.h"
#include "backend/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <unistd.h>

static void row(pesc_doctor_row *rows, size_t cap, size_t *n, pesc_doctor_row r)
{
    if (rows && *n < cap)
        rows[*n] = r;
    ++*n;
}

/* A device that opens, or what it lacks. */
static pesc_doctor_row device_row(const char *name)
{
    pesc_doctor_row r = { 0 };
    device *dev;
    bool open = backend_open(&dev, name) == PESC_OK;
    snprintf(r.name, sizeof r.name, "%s", name);
    snprintf(r.state, sizeof r.state, "%s", open ? "ok" : "missing");
    snprintf(r.detail, sizeof r.detail, "%s", open ? dev->name : pesc_last_error());
    if (open)
        dev->op->close(dev);
    return r;
}

size_t pesc_doctor(pesc_doctor_row *rows, size_t cap)
{
    size_t n = 0;
    pesc_doctor_row r = { .name = "pesc", .state = "ok" };
    snprintf(r.detail, sizeof r.detail, "version %s, built with gcc %s", PESC_VERSION, __VERSION__);
    row(rows, cap, &n, r);

    row(rows, cap, &n, device_row("cpu"));
    row(rows, cap, &n, device_row("cuda"));
    r = (pesc_doctor_row){ .name = "memory", .state = "ok" };
    double gib = 1 << 30, pages = (double)sysconf(_SC_PHYS_PAGES);
    snprintf(r.detail, sizeof r.detail, "%.1f of %.1f GiB free",
             (double)memory_host_available() / gib, pages * (double)sysconf(_SC_PAGESIZE) / gib);
    row(rows, cap, &n, r);
    return n;
}

size_t pesc_kernels(pesc_kernel_row *rows, size_t cap)
{
    if (!rows)
        return cpu_kernels(NULL, 0) + cuda_kernels(NULL, 0);
    size_t n = cpu_kernels(rows, cap), used = n < cap ? n : cap;
    return n + cuda_kernels(rows + used, cap - used);
}
