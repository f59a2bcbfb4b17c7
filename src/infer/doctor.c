/* What this build can do on this machine, for `pesc doctor`. */
#include "backend/backend.h"
#include "base/status.h"

#include <stdio.h>
#include <unistd.h>

static void row(pesc_doctor_row *rows, size_t cap, size_t *n, pesc_doctor_row r)
{
    if (*n < cap)
        rows[*n] = r;
    ++*n;
}

size_t pesc_doctor(pesc_doctor_row *rows, size_t cap)
{
    size_t n = 0;
    pesc_doctor_row r = { .name = "pesc", .state = "ok" };
    snprintf(r.detail, sizeof r.detail, "version %s, built with gcc %s", PESC_VERSION, __VERSION__);
    row(rows, cap, &n, r);

    r = (pesc_doctor_row){ .name = "cpu" };
    device *dev;
    bool open = backend_open(&dev, "cpu") == PESC_OK;
    snprintf(r.state, sizeof r.state, "%s", open ? "ok" : "missing");
    snprintf(r.detail, sizeof r.detail, "%s", open ? dev->name : pesc_last_error());
    row(rows, cap, &n, r);
    if (open)
        dev->op->close(dev);

    r = (pesc_doctor_row){ .name = "cuda", .state = "missing" };
    snprintf(r.detail, sizeof r.detail, "this build runs on the CPU only");
    row(rows, cap, &n, r);

    r = (pesc_doctor_row){ .name = "memory", .state = "ok" };
    double pages = (double)sysconf(_SC_PHYS_PAGES), free_pages = (double)sysconf(_SC_AVPHYS_PAGES);
    double gib = (double)sysconf(_SC_PAGESIZE) / (1 << 30);
    snprintf(r.detail, sizeof r.detail, "%.1f of %.1f GiB free", free_pages * gib, pages * gib);
    row(rows, cap, &n, r);
    return n;
}
