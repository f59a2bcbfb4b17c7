#include "tokenizer/pairqueue.h"

#include "base/mem.h"

#include <string.h>

static bool grow_ring(pairqueue *q)
{
    size_t cap = q->ring_cap ? q->ring_cap * 2 : 1024;
    uint64_t *ring = mem_grow(q->ring, cap, sizeof *ring);
    if (!ring)
        return false;
    /* The part before head had wrapped round the old end: it continues there now. */
    if (q->head)
        memcpy(ring + q->ring_cap, ring, q->head * sizeof *ring);
    q->ring = ring;
    q->ring_cap = cap;
    return true;
}

static bool push_heap(pairqueue *q, uint64_t key)
{
    if (!mem_room((void **)&q->heap, &q->heap_cap, q->heap_n, sizeof *q->heap))
        return false;
    size_t i = q->heap_n++;
    while (i > 0 && q->heap[(i - 1) / 2] > key) {
        q->heap[i] = q->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->heap[i] = key;
    return true;
}

bool pairqueue_push(pairqueue *q, uint64_t key)
{
    size_t mask = q->ring_cap - 1;
    if (q->ring_n && q->ring[(q->head + q->ring_n - 1) & mask] > key)
        return push_heap(q, key);
    if (q->ring_n == q->ring_cap && !grow_ring(q))
        return false;
    q->ring[(q->head + q->ring_n++) & (q->ring_cap - 1)] = key;
    return true;
}

static uint64_t pop_heap(pairqueue *q)
{
    uint64_t top = q->heap[0], last = q->heap[--q->heap_n];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < q->heap_n) {
        if (child + 1 < q->heap_n && q->heap[child + 1] < q->heap[child])
            child++;
        if (q->heap[child] >= last)
            break;
        q->heap[i] = q->heap[child];
        i = child;
    }
    q->heap[i] = last;
    return top;
}

bool pairqueue_pop(pairqueue *q, uint64_t *key)
{
    if (q->heap_n && (!q->ring_n || q->heap[0] < q->ring[q->head])) {
        *key = pop_heap(q);
        return true;
    }
    if (!q->ring_n)
        return false;
    *key = q->ring[q->head];
    q->head = (q->head + 1) & (q->ring_cap - 1);
    q->ring_n--;
    return true;
}

void pairqueue_clear(pairqueue *q)
{
    q->head = q->ring_n = q->heap_n = 0;
}

void pairqueue_free(pairqueue *q)
{
    mem_free(q->ring);
    mem_free(q->heap);
    *q = (pairqueue){ 0 };
}
