/* trie: see trie.h.
 *
 * The build sorts the keys, then goes level by level: a node is a range of keys that share a
 * prefix, and the runs of equal next bytes in that range are its children. Each byte of each key
 * is looked at once, and only two levels of ranges are held. */
#include "tokenizer/trie.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct trie {
    uint32_t *first;      /* [nodes + 1]: children of i are first[i] .. first[i + 1] - 1 */
    int32_t *value;       /* [nodes] */
    unsigned char *label; /* [nodes]: the byte that leads here */
    uint32_t root[256];   /* the root's children by label: every walk begins here */
};

static int by_text(const void *pa, const void *pb)
{
    const trie_key *a = pa, *b = pb;
    size_t n = a->n < b->n ? a->n : b->n;
    int c = memcmp(a->text, b->text, n);
    if (c != 0)
        return c;
    if (a->n != b->n)
        return a->n < b->n ? -1 : 1;
    return (a->value > b->value) - (a->value < b->value);
}

/* The nodes the sorted keys need: one for each byte a key does not share with the key before. */
static bool count_nodes(const trie_key *keys, size_t n, size_t *nodes)
{
    size_t total = 1;
    for (size_t i = 0; i < n; i++) {
        size_t shared = 0;
        if (i > 0) {
            const trie_key *p = &keys[i - 1];
            size_t least = p->n < keys[i].n ? p->n : keys[i].n;
            while (shared < least && p->text[shared] == keys[i].text[shared])
                shared++;
        }
        if (!ckd_add_size(&total, total, keys[i].n - shared))
            return false;
    }
    *nodes = total;
    return total < TRIE_NONE && n < TRIE_NONE;
}

typedef struct range {
    uint32_t lo, hi; /* keys lo..hi-1 share their first `depth` bytes, depth being the level */
} range;

/* Gives node i its value and its children the numbers from *made on; their ranges go to `below`. */
static size_t open_node(trie *t, const trie_key *keys, range r, size_t depth, uint32_t i,
                        uint32_t *made, range *below)
{
    size_t n = 0;
    t->first[i] = *made;
    t->value[i] = -1;
    while (r.lo < r.hi && keys[r.lo].n == depth)
        t->value[i] = keys[r.lo++].value;
    while (r.lo < r.hi) {
        char c = keys[r.lo].text[depth];
        uint32_t end = r.lo + 1;
        while (end < r.hi && keys[end].text[depth] == c)
            end++;
        t->label[(*made)++] = (unsigned char)c;
        below[n++] = (range){ r.lo, end };
        r.lo = end;
    }
    return n;
}

/* `level` and `below` have room for one range a key: no level has more nodes than there are keys.
 */
static void number_nodes(trie *t, const trie_key *keys, size_t n, range *level, range *below)
{
    uint32_t node = 0, made = 1;
    size_t here = 1;
    level[0] = (range){ 0, (uint32_t)n };
    for (size_t depth = 0; here > 0; depth++) {
        size_t next = 0;
        for (size_t k = 0; k < here; k++)
            next += open_node(t, keys, level[k], depth, node++, &made, below + next);
        range *swap = level;
        level = below;
        below = swap;
        here = next;
    }
    t->first[node] = made;
    ASSERT(made == node);
    memset(t->root, 0xff, sizeof t->root);
    for (uint32_t i = t->first[0]; i < t->first[1]; i++)
        t->root[t->label[i]] = i;
}

pesc_status trie_build(trie **out, trie_key *keys, size_t n)
{
    *out = NULL;
    if (n > 0)
        qsort(keys, n, sizeof *keys, by_text);
    size_t nodes;
    if (!count_nodes(keys, n, &nodes))
        return fail(PESC_UNSUPPORTED, "a vocabulary of %zu pieces is too large for one index", n);
    trie *t = mem_zalloc(1, sizeof *t);
    range *levels = mem_alloc(n + 1, 2 * sizeof *levels);
    if (t) {
        t->first = mem_alloc(nodes + 1, sizeof *t->first);
        t->value = mem_alloc(nodes, sizeof *t->value);
        t->label = mem_zalloc(nodes, 1);
    }
    bool ok = t && levels && t->first && t->value && t->label;
    if (ok)
        number_nodes(t, keys, n, levels, levels + n + 1);
    mem_free(levels);
    if (!ok) {
        trie_close(t);
        return fail_nomem("indexing a vocabulary", nodes * 9 + n * 2 * sizeof *levels);
    }
    *out = t;
    return PESC_OK;
}

void trie_close(trie *t)
{
    if (!t)
        return;
    mem_free(t->first);
    mem_free(t->value);
    mem_free(t->label);
    mem_free(t);
}

uint32_t trie_step(const trie *t, uint32_t node, unsigned char byte)
{
    if (node == TRIE_ROOT)
        return t->root[byte];
    uint32_t lo = t->first[node], hi = t->first[node + 1];
    if (hi - lo > 8) {
        const unsigned char *p = memchr(t->label + lo, byte, hi - lo);
        return p ? (uint32_t)(p - t->label) : TRIE_NONE;
    }
    for (uint32_t i = lo; i < hi; i++)
        if (t->label[i] == byte)
            return i;
    return TRIE_NONE;
}

int32_t trie_value(const trie *t, uint32_t node)
{
    return t->value[node];
}

int32_t trie_longest(const trie *t, const char *text, size_t n, size_t *matched)
{
    int32_t best = -1;
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < n; i++) {
        node = trie_step(t, node, (unsigned char)text[i]);
        if (node == TRIE_NONE)
            break;
        if (t->value[node] >= 0) {
            best = t->value[node];
            *matched = i + 1;
        }
    }
    return best;
}

int32_t trie_find(const trie *t, const char *text, size_t n)
{
    uint32_t node = TRIE_ROOT;
    for (size_t i = 0; i < n && node != TRIE_NONE; i++)
        node = trie_step(t, node, (unsigned char)text[i]);
    return node == TRIE_NONE ? -1 : t->value[node];
}
