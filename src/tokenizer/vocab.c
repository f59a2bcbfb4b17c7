#include "tokenizer/vocab.h"

#include "base/mem.h"

#include <string.h>
#include <xxhash.h>

int64_t vocab_id_limit(size_t count)
{
    int64_t limit = count < INT32_MAX / 16 ? (int64_t)count * 16 + 65536 : INT32_MAX;
    return limit < INT32_MAX ? limit : INT32_MAX;
}

/* The slot that holds this text, or the empty one where it would go. */
static size_t find_slot(const vocab *v, const char *text, size_t n)
{
    size_t i = XXH3_64bits(text, n) & v->mask;
    while (v->slot[i]) {
        const vocab_entry *e = &v->entry[v->slot[i] - 1];
        if (e->n == n && memcmp(v->text + e->at, text, n) == 0)
            break;
        i = (i + 1) & v->mask;
    }
    return i;
}

static bool grow_slots(vocab *v)
{
    if (v->slot && v->count < (v->mask + 1) / 2)
        return true;
    size_t slots = v->slot ? (v->mask + 1) * 2 : 64;
    uint32_t *old = v->slot, *fresh = mem_zalloc(slots, sizeof *fresh);
    if (!fresh)
        return false;
    v->slot = fresh;
    v->mask = slots - 1;
    mem_free(old);
    for (size_t id = 0; id < v->n; id++) {
        const vocab_entry *e = &v->entry[id];
        if (e->n != VOCAB_HOLE)
            fresh[find_slot(v, v->text + e->at, e->n)] = (uint32_t)id + 1;
    }
    return true;
}

static bool grow_entries(vocab *v, size_t need)
{
    if (need > v->cap) {
        size_t cap = v->cap * 2 > need ? v->cap * 2 : need + 64;
        vocab_entry *e = mem_grow(v->entry, cap, sizeof *e);
        if (!e)
            return false;
        v->entry = e;
        v->cap = cap;
    }
    while (v->n < need)
        v->entry[v->n++] = (vocab_entry){ 0, VOCAB_HOLE };
    return true;
}

static bool grow_text(vocab *v, size_t more)
{
    size_t need;
    if (!ckd_add_size(&need, v->n_text, more) || need > UINT32_MAX)
        return false;
    if (v->text && need <= v->cap_text)
        return true;
    size_t cap = v->cap_text * 2 > need ? v->cap_text * 2 : need + 1024;
    char *text = mem_grow(v->text, cap, 1);
    if (!text)
        return false;
    v->text = text;
    v->cap_text = cap;
    return true;
}

vocab_result vocab_add(vocab *v, const char *text, size_t n, int32_t id)
{
    ASSERT(id >= 0 && n < VOCAB_HOLE);
    if ((size_t)id < v->n && v->entry[id].n != VOCAB_HOLE)
        return VOCAB_ID_TAKEN;
    if (!grow_slots(v))
        return VOCAB_NOMEM;
    size_t i = find_slot(v, text, n);
    if (v->slot[i])
        return VOCAB_TEXT_TAKEN;
    if (!grow_entries(v, (size_t)id + 1) || !grow_text(v, n))
        return VOCAB_NOMEM;
    if (n)
        memcpy(v->text + v->n_text, text, n);
    v->entry[id] = (vocab_entry){ (uint32_t)v->n_text, (uint32_t)n };
    v->n_text += n;
    v->slot[i] = (uint32_t)id + 1;
    v->count++;
    if (n > v->longest)
        v->longest = (uint32_t)n;
    return VOCAB_OK;
}

int32_t vocab_find(const vocab *v, const char *text, size_t n)
{
    if (!v->slot || n > v->longest)
        return -1;
    return (int32_t)v->slot[find_slot(v, text, n)] - 1;
}

const char *vocab_text(const vocab *v, int64_t id, size_t *n)
{
    if (id < 0 || (uint64_t)id >= v->n || v->entry[id].n == VOCAB_HOLE)
        return NULL;
    *n = v->entry[id].n;
    return v->text + v->entry[id].at;
}

void vocab_free(vocab *v)
{
    mem_free(v->entry);
    mem_free(v->text);
    mem_free(v->slot);
    *v = (vocab){ 0 };
}
