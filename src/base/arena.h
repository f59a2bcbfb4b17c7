/* arena: memory with one lifetime, planned before it is taken.
 *
 * A layout function is written once and run twice: first on a measuring arena (base NULL), where
 * arena_take() only counts, then on a real one of exactly that size, where it returns pieces.
 * So the peak is known before anything is allocated, and nothing can run out of memory half way.
 * Every piece is 64-byte aligned. There is no per-piece free: the arena goes as a whole. The arena
 * does not own its span: the caller that allocated it (heap, device) frees it. */
#ifndef PESC_BASE_ARENA_H
#define PESC_BASE_ARENA_H

#include <stddef.h>

typedef struct arena {
    unsigned char *base; /* NULL while measuring */
    size_t size;         /* of the span at base; ignored while measuring */
    size_t used;
} arena;

/* NULL while measuring, else the piece. Asserts that a real arena is not overrun: the measuring
 * run promised that. A wrapped sum saturates `used` at SIZE_MAX, which no allocation satisfies. */
void *arena_take(arena *a, size_t bytes);

#endif
