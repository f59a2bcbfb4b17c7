#include "backend/memory.h"

#include "base/io.h"
#include "base/mem.h"

#include <malloc.h>
#include <string.h>
#include <unistd.h>

/* The first number in a small file of /proc or /sys after `key` ("": from its start); UINT64_MAX
 * when there is none. */
static uint64_t number_after(const char *path, const char *key)
{
    char *text;
    size_t n;
    if (io_kind_of(path) != IO_FILE || io_read_stream(path, 1 << 16, &text, &n) != PESC_OK)
        return UINT64_MAX;
    uint64_t v = UINT64_MAX;
    const char *p = strstr(text, key);
    if (p) {
        p += strlen(key);
        p += strspn(p, " \t");
        for (v = *p >= '0' && *p <= '9' ? 0 : UINT64_MAX; *p >= '0' && *p <= '9'; p++)
            v = v < UINT64_MAX / 16 ? v * 10 + (uint64_t)(*p - '0') : UINT64_MAX / 16;
    }
    mem_free(text);
    return v;
}

/* What the control group of this process may still take: pages of files that it holds can be given
 * up. UINT64_MAX where there is no limit. */
static uint64_t group_available(void)
{
    uint64_t limit = number_after("/sys/fs/cgroup/memory.max", "");
    uint64_t taken = number_after("/sys/fs/cgroup/memory.current", "");
    uint64_t files = number_after("/sys/fs/cgroup/memory.stat", "inactive_file ");
    if (limit == UINT64_MAX || taken == UINT64_MAX || files == UINT64_MAX)
        return limit;
    taken = taken > files ? taken - files : 0;
    return limit > taken ? limit - taken : 0;
}

/* Memory of this process that is not part of a file. */
static uint64_t own_bytes(void)
{
    uint64_t kib = number_after("/proc/self/status", "RssAnon:");
    return kib < UINT64_MAX / 1024 ? kib * 1024 : 0;
}

static uint64_t part = UINT64_MAX; /* of the host's memory, which own_bytes() may reach */

void memory_divide(int32_t n)
{
    part = UINT64_MAX;
    if (n > 1)
        part = memory_host_available() / (uint64_t)n + own_bytes();
}

uint64_t memory_host_available(void)
{
    uint64_t kib = number_after("/proc/meminfo", "MemAvailable:");
    uint64_t host = kib < UINT64_MAX / 1024 ? kib * 1024 : UINT64_MAX;
    uint64_t group = group_available(), own = part < UINT64_MAX ? own_bytes() : 0;
    uint64_t left = part > own ? part - own : 0;
    host = host < group ? host : group;
    return host < left ? host : left;
}

uint64_t memory_available(device *dev)
{
    return dev->op->host_memory(dev) ? memory_host_available() : dev->op->room(dev);
}

uint64_t memory_total(const device *dev)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (dev->memory)
        return dev->memory;
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

uint64_t memory_used(device *dev)
{
    if (!dev->op->host_memory(dev))
        return memory_total(dev) - dev->op->room(dev);
    (void)malloc_trim(0); /* what was freed is in use no more, though libc keeps it for later */
    uint64_t kib = number_after("/proc/self/status", "VmRSS:");
    return kib < UINT64_MAX / 1024 ? kib * 1024 : 0;
}

pesc_status memory_take(arena *a, device *dev, const memory_need *need, void **span)
{
    size_t bytes = a->used;
    uint64_t there = memory_available(dev);
    if (bytes > there)
        return fail(PESC_NOMEM, "%s needs %.1f GiB, but %s has %.1f GiB left; %s", need->what,
                    (double)bytes / (1 << 30),
                    !dev->op->host_memory(dev) ? dev->name
                    : part < UINT64_MAX        ? "this process' part of the machine"
                                               : "this machine",
                    (double)there / (1 << 30), need->advice);
    TRY(dev->op->alloc(dev, bytes ? bytes : 64, span));
    *a = (arena){ .base = *span, .size = bytes };
    return PESC_OK;
}
