/* host: the entry of pesc-cuda.so, and base/status.h inside it: errors go to the program that
 * loaded it. */
#include "backend/cuda/host.h"

#include "backend/cuda/cuda.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cuda_host *host;

pesc_status fail(pesc_status s, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return host->fail(s, "%s", text);
}

pesc_status fail_nomem(const char *what, size_t bytes)
{
    return fail(PESC_NOMEM, "out of memory: %s needs %zu bytes", what, bytes);
}

void status_assert(const char *cond, const char *file, int line)
{
    fprintf(stderr, "pesc: internal error: %s is false at %s:%d\n", cond, file, line);
    abort();
}

__attribute__((visibility("default"))) pesc_status pesc_cuda_open(device **out, int index,
                                                                  const cuda_host *h);

pesc_status pesc_cuda_open(device **out, int index, const cuda_host *h)
{
    *out = NULL;
    host = h;
    if (strcmp(h->version, PESC_VERSION) != 0 || h->ops_bytes != sizeof(ops))
        return fail(PESC_DEVICE,
                    "device \"cuda:%d\": pesc-cuda.so is of pesc %s and this program of %s; "
                    "build or install them together",
                    index, PESC_VERSION, h->version);
    return cuda_open_device(out, index);
}
