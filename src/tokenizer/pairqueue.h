/* pairqueue: the pairs of a long word that may merge, the lowest key first.
 *
 * A key is rank << 32 | position. Pairs mostly come in rising order: all of one rank from left to
 * right, then those they made possible. Such a run is a ring of keys, O(1) in and out; only what
 * comes out of order goes to a binary heap. So a word of one letter takes linear time, and no word
 * takes more than O(n log n). */
#ifndef PESC_TOKENIZER_PAIRQUEUE_H
#define PESC_TOKENIZER_PAIRQUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zero-initialise to start. */
typedef struct pairqueue {
    uint64_t *ring; /* [ring_cap], a power of two; ascending from head */
    size_t head, ring_n, ring_cap;
    uint64_t *heap; /* heap[0] is the lowest */
    size_t heap_n, heap_cap;
} pairqueue;

bool pairqueue_push(pairqueue *q, uint64_t key); /* false: out of memory */
bool pairqueue_pop(pairqueue *q, uint64_t *key); /* false: empty */
void pairqueue_clear(pairqueue *q);
void pairqueue_free(pairqueue *q);

#endif
