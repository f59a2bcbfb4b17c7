#include "base/mem.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t fail_in; /* 0: disarmed */
static _Atomic bool fired;

void mem_fail_at(uint64_t n)
{
    fired = false;
    fail_in = n;
}

bool mem_fail_fired(void)
{
    return fired;
}

static bool should_fail(void)
{
    if (atomic_load_explicit(&fail_in, memory_order_relaxed) == 0)
        return false;
    if (atomic_fetch_sub(&fail_in, 1) != 1)
        return false;
    fired = true;
    return true;
}

void *mem_alloc(size_t n, size_t size)
{
    size_t bytes;
    if (!ckd_mul_size(&bytes, n, size) || should_fail())
        return NULL;
    return malloc(bytes ? bytes : 1);
}

void *mem_zalloc(size_t n, size_t size)
{
    if (should_fail())
        return NULL;
    return calloc(n ? n : 1, size ? size : 1);
}

void *mem_grow(void *p, size_t n, size_t size)
{
    size_t bytes;
    if (!ckd_mul_size(&bytes, n, size) || should_fail())
        return NULL;
    return realloc(p, bytes ? bytes : 1);
}

bool mem_room(void **array, size_t *cap, size_t n, size_t size)
{
    enum { FIRST = 16 };
    if (n < *cap)
        return true;
    size_t bigger = *cap ? *cap * 2 : FIRST;
    void *p = mem_grow(*array, bigger, size);
    if (!p)
        return false;
    *array = p;
    *cap = bigger;
    return true;
}

void *mem_aligned(size_t bytes)
{
    size_t rounded;
    if (!ckd_add_size(&rounded, bytes, 63) || should_fail())
        return NULL;
    rounded &= ~(size_t)63;
    return aligned_alloc(64, rounded ? rounded : 64);
}

void mem_trim(void)
{
    malloc_trim(0);
}

void mem_free(void *p)
{
    free(p);
}

char *mem_strndup(const char *s, size_t n)
{
    char *copy = n == SIZE_MAX ? NULL : mem_alloc(n + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_strndup(s, strlen(s));
}
