#include "format/strtab.h"

#include "base/mem.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

enum { BLOCK_BYTES = 1 << 16, FIRST_BLOCK = 1 << 11, FIRST_SLOTS = 64, FIRST_NAMES = 32 };

struct strtab_block {
    struct strtab_block *next;
    size_t used, cap;
    char bytes[];
};

struct strtab_slot {
    uint32_t hash;
    uint32_t id; /* number + 1; 0: free */
};

static uint32_t hash_of(const strtab *t, const char *s, size_t n)
{
    return (uint32_t)XXH3_64bits_withSeed(s, n, t->seed);
}

/* The slot of the string, or the free one where it would go. */
static struct strtab_slot *probe(const strtab *t, const char *s, size_t n, uint32_t hash)
{
    size_t mask = t->n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct strtab_slot *slot = &t->slots[i];
        if (slot->id == 0)
            return slot;
        const char *name = t->names[slot->id - 1];
        if (slot->hash == hash && strncmp(name, s, n) == 0 && name[n] == '\0')
            return slot;
    }
}

static void place_id(strtab *t, uint32_t hash, size_t id)
{
    size_t mask = t->n_slots - 1, i = hash & mask;
    while (t->slots[i].id)
        i = (i + 1) & mask;
    t->slots[i] = (struct strtab_slot){ hash, (uint32_t)id + 1 };
}

static bool grow_slots(strtab *t)
{
    size_t n = t->n_slots ? t->n_slots * 2 : FIRST_SLOTS;
    struct strtab_slot *bigger = mem_zalloc(n, sizeof *bigger), *old = t->slots;
    if (!bigger)
        return false;
    if (!old && getrandom(&t->seed, sizeof t->seed, GRND_NONBLOCK) < 0)
        t->seed = (uint64_t)(uintptr_t)bigger;
    size_t n_old = t->n_slots;
    t->slots = bigger;
    t->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].id)
            place_id(t, old[i].hash, old[i].id - 1);
    mem_free(old);
    return true;
}

static bool grow_names(strtab *t)
{
    size_t cap = t->cap ? t->cap * 2 : FIRST_NAMES;
    const char **p = mem_grow(t->names, cap, sizeof *p);
    if (!p)
        return false;
    t->names = p;
    t->cap = cap;
    return true;
}

static char *take_bytes(strtab *t, size_t n)
{
    struct strtab_block *b = t->blocks;
    if (!b || b->cap - b->used < n) {
        size_t usual = b ? BLOCK_BYTES : FIRST_BLOCK, cap = n > usual ? n : usual;
        b = mem_alloc(sizeof *b + cap, 1);
        if (!b)
            return NULL;
        *b = (struct strtab_block){ .next = t->blocks, .cap = cap };
        t->blocks = b;
    }
    b->used += n;
    return b->bytes + b->used - n;
}

int64_t strtab_find(const strtab *t, const char *s, size_t n)
{
    if (t->n == 0)
        return -1;
    return (int64_t)probe(t, s, n, hash_of(t, s, n))->id - 1;
}

int64_t strtab_add(strtab *t, const char *s, size_t n)
{
    if ((t->n + 1) * 2 > t->n_slots && !grow_slots(t))
        return -1;
    if (t->n == t->cap && !grow_names(t))
        return -1;
    char *copy = take_bytes(t, n + 1);
    if (!copy)
        return -1;
    memcpy(copy, s, n);
    copy[n] = '\0';
    t->names[t->n] = copy;
    place_id(t, hash_of(t, s, n), t->n);
    return (int64_t)t->n++;
}

void strtab_drop(strtab *t, const unsigned char *drop)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (!drop[i])
            t->names[kept++] = t->names[i];
    t->n = kept;
    if (t->n_slots)
        memset(t->slots, 0, t->n_slots * sizeof *t->slots);
    for (size_t i = 0; i < kept; i++)
        place_id(t, hash_of(t, t->names[i], strlen(t->names[i])), i);
}

void strtab_free(strtab *t)
{
    for (struct strtab_block *b = t->blocks, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    mem_free(t->names);
    mem_free(t->slots);
    *t = (strtab){ 0 };
}
