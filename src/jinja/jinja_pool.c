#include "jinja/jinja_pool.h"

#include "base/mem.h"

#include <stddef.h>

typedef struct jpool_chunk {
    struct jpool_chunk *next;
    size_t used, size;
    max_align_t data[];
} jpool_chunk;

enum { FIRST_CHUNK = 4096, LAST_CHUNK = 1 << 18 };

static jpool_chunk *add_chunk(jpool *p, size_t bytes)
{
    size_t size = p->total < FIRST_CHUNK ? FIRST_CHUNK : p->total, all;
    size = size > LAST_CHUNK ? LAST_CHUNK : size;
    size = bytes > size ? bytes : size;
    p->full = !ckd_add_size(&all, p->total, size) || (p->max && all > p->max);
    jpool_chunk *c = p->full ? NULL : mem_zalloc(1, sizeof *c + size);
    if (!c)
        return NULL;
    *c = (jpool_chunk){ .next = p->chunks, .size = size };
    p->chunks = c;
    p->total = all;
    return c;
}

void *jpool_take(jpool *p, size_t n, size_t size)
{
    size_t bytes;
    if (!ckd_mul_size(&bytes, n, size) || bytes > (size_t)1 << 40) {
        p->full = true;
        return NULL;
    }
    bytes = (bytes + _Alignof(max_align_t) - 1) / _Alignof(max_align_t) * _Alignof(max_align_t);
    jpool_chunk *c = p->chunks;
    if (!c || c->size - c->used < bytes)
        c = add_chunk(p, bytes);
    if (!c)
        return NULL;
    void *at = (char *)c->data + c->used;
    c->used += bytes;
    return at;
}

void jpool_free(jpool *p)
{
    for (jpool_chunk *c = p->chunks, *next; c; c = next) {
        next = c->next;
        mem_free(c);
    }
    *p = (jpool){ .max = p->max };
}
