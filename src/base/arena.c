#include "base/arena.h"

#include "base/mem.h"
#include "base/status.h"

void *arena_take(arena *a, size_t bytes)
{
    size_t rounded, end;
    if (!ckd_add_size(&rounded, bytes, 63) || !ckd_add_size(&end, a->used, rounded & ~(size_t)63)) {
        ASSERT(!a->base);
        a->used = SIZE_MAX;
        return NULL;
    }
    size_t at = a->used;
    a->used = end;
    if (!a->base)
        return NULL;
    ASSERT(end <= a->size);
    return a->base + at;
}
