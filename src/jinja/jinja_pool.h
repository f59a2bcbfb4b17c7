/* jinja_pool: memory that is freed as a whole, with a limit. Zero-initialise; set max. */
#ifndef PESC_JINJA_JINJA_POOL_H
#define PESC_JINJA_JINJA_POOL_H

#include <stdbool.h>
#include <stddef.h>

typedef struct jpool {
    struct jpool_chunk *chunks;
    size_t total, max; /* bytes taken from the heap; max 0: any number */
    bool full;         /* the last NULL was because of max */
} jpool;

/* Zeroed and aligned for any value; NULL when memory runs out or max would be exceeded. */
void *jpool_take(jpool *p, size_t n, size_t size);
void jpool_free(jpool *p);

#endif
