#include "grammar/intern.h"

#include "base/mem.h"

#include <string.h>
#include <xxhash.h>

static size_t slot_of(const intern *t, const uint32_t *words, size_t n)
{
    size_t mask = t->n_slots - 1;
    size_t at = (size_t)XXH3_64bits(words, n * sizeof *words) & mask;
    for (;; at = (at + 1) & mask) {
        uint32_t k = t->slots[at];
        if (k == INTERN_NONE)
            return at;
        size_t have = t->first[k + 1] - t->first[k];
        if (have == n && (!n || memcmp(t->words + t->first[k], words, n * sizeof *words) == 0))
            return at;
    }
}

static bool rehash(intern *t)
{
    size_t n = t->n_slots ? 2 * t->n_slots : 64;
    uint32_t *more = mem_alloc(n, sizeof *more);
    if (!more)
        return false;
    mem_free(t->slots);
    t->slots = more;
    t->n_slots = n;
    memset(more, 0xff, n * sizeof *more);
    for (uint32_t k = 0; k < t->n; k++)
        more[slot_of(t, t->words + t->first[k], t->first[k + 1] - t->first[k])] = k;
    return true;
}

static bool room_for(intern *t, size_t n)
{
    if (t->n_words + n > t->cap_words) {
        size_t cap = 2 * (t->n_words + n) + 64;
        uint32_t *more = mem_grow(t->words, cap, sizeof *more);
        if (!more)
            return false;
        t->words = more;
        t->cap_words = cap;
    }
    return mem_room((void **)&t->first, &t->cap, t->n + 1, sizeof *t->first);
}

uint32_t intern_add(intern *t, const uint32_t *words, size_t n)
{
    if (2 * (t->n + 1) > t->n_slots && !rehash(t))
        return INTERN_NONE;
    size_t at = slot_of(t, words, n);
    if (t->slots[at] != INTERN_NONE)
        return t->slots[at];
    if (!room_for(t, n))
        return INTERN_NONE;
    if (n)
        memcpy(t->words + t->n_words, words, n * sizeof *words);
    t->first[t->n] = t->n_words;
    t->n_words += n;
    t->first[t->n + 1] = t->n_words;
    t->slots[at] = (uint32_t)t->n;
    return (uint32_t)t->n++;
}

const uint32_t *intern_get(const intern *t, uint32_t number, size_t *n)
{
    *n = t->first[number + 1] - t->first[number];
    return t->words + t->first[number];
}

size_t intern_bytes(const intern *t)
{
    return t->cap_words * sizeof *t->words + t->cap * sizeof *t->first +
           t->n_slots * sizeof *t->slots;
}

void intern_free(intern *t)
{
    mem_free(t->words);
    mem_free(t->first);
    mem_free(t->slots);
    *t = (intern){ 0 };
}
