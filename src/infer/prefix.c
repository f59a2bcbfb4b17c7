#include "infer/prefix.h"

#include "base/mem.h"

#include <string.h>

enum { NONE = -1 };

/* Nodes are numbered like their pages. */
typedef struct node {
    uint64_t scope;              /* of a child of the root */
    int32_t parent, child, next; /* the first child; the next child of the same parent */
    int32_t newer, older;        /* neighbours in the order of use */
    int32_t n;                   /* tokens in the page */
    int32_t ids[KV_PAGE_TOKENS];
} node;

struct prefix_cache {
    kvcache *kv;  /* borrowed */
    node *nodes;  /* [pages] */
    int32_t root; /* the first child of the root */
    int32_t newest, oldest;
};

pesc_status prefix_open(prefix_cache **out, kvcache *kv)
{
    size_t n = (size_t)kvcache_pages(kv);
    *out = NULL;
    prefix_cache *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("a cache of prefixes", sizeof *p);
    *p = (prefix_cache){ .kv = kv, .root = NONE, .newest = NONE, .oldest = NONE };
    p->nodes = mem_alloc(n, sizeof *p->nodes);
    if (!p->nodes) {
        prefix_close(p);
        return fail_nomem("a cache of prefixes", n * sizeof *p->nodes);
    }
    *out = p;
    return PESC_OK;
}

void prefix_close(prefix_cache *p)
{
    if (!p)
        return;
    mem_free(p->nodes);
    mem_free(p);
}

/* ---- order of use ---- */

static void unlink_use(prefix_cache *p, int32_t i)
{
    node *n = &p->nodes[i];
    *(n->newer == NONE ? &p->newest : &p->nodes[n->newer].older) = n->older;
    *(n->older == NONE ? &p->oldest : &p->nodes[n->older].newer) = n->newer;
}

static void link_newest(prefix_cache *p, int32_t i)
{
    node *n = &p->nodes[i];
    n->newer = NONE;
    n->older = p->newest;
    *(p->newest == NONE ? &p->oldest : &p->nodes[p->newest].newer) = i;
    p->newest = i;
}

/* A parent becomes newer than its children, so the oldest node is always a leaf. */
static void use_path(prefix_cache *p, int32_t i)
{
    for (; i != NONE; i = p->nodes[i].parent) {
        unlink_use(p, i);
        link_newest(p, i);
    }
}

/* ---- the tree ---- */

static int32_t *children(prefix_cache *p, int32_t parent)
{
    return parent == NONE ? &p->root : &p->nodes[parent].child;
}

/* The child of `parent` that has the most tokens in common with the string from `at` on; how many
 * into *n. NONE where no child has the first one. */
static int32_t best_child(prefix_cache *p, int32_t parent, prefix_key key, int32_t at, int32_t *n)
{
    int32_t best = NONE;
    int32_t left = key.n - at < KV_PAGE_TOKENS ? key.n - at : KV_PAGE_TOKENS;
    *n = 0;
    for (int32_t i = *children(p, parent); i != NONE && *n < left; i = p->nodes[i].next) {
        const node *c = &p->nodes[i];
        if (parent == NONE && c->scope != key.scope)
            continue;
        int32_t same = 0;
        while (same < left && same < c->n && c->ids[same] == key.ids[at + same])
            same++;
        if (same > *n) {
            *n = same;
            best = i;
        }
    }
    return best;
}

int32_t prefix_find(prefix_cache *p, prefix_key key, int32_t *pages)
{
    int32_t at = 0, last = NONE, same = KV_PAGE_TOKENS;
    while (at < key.n && same == KV_PAGE_TOKENS) {
        int32_t child = best_child(p, last, key, at, &same);
        if (child == NONE)
            break;
        pages[at / KV_PAGE_TOKENS] = child;
        last = child;
        at += same;
    }
    use_path(p, last);
    return at;
}

static void add_child(prefix_cache *p, int32_t parent, int32_t page, prefix_key part)
{
    node *n = &p->nodes[page];
    int32_t *first = children(p, parent);
    n->scope = part.scope;
    n->parent = parent;
    n->child = NONE;
    n->next = *first;
    n->n = part.n;
    memcpy(n->ids, part.ids, (size_t)part.n * sizeof *part.ids);
    *first = page;
    link_newest(p, page);
    kvcache_retain(p->kv, page);
}

void prefix_add(prefix_cache *p, prefix_key key, const int32_t *pages)
{
    int32_t parent = NONE;
    for (int32_t at = 0; at < key.n; at += KV_PAGE_TOKENS) {
        int32_t same, n = key.n - at < KV_PAGE_TOKENS ? key.n - at : KV_PAGE_TOKENS;
        int32_t page = pages[at / KV_PAGE_TOKENS];
        int32_t child = best_child(p, parent, key, at, &same);
        if (same < n) {
            add_child(p, parent, page, (prefix_key){ key.scope, key.ids + at, n });
            child = page;
        }
        parent = child;
    }
    use_path(p, parent);
}

bool prefix_evict(prefix_cache *p)
{
    for (int32_t i = p->oldest; i != NONE; i = p->nodes[i].newer) {
        if (p->nodes[i].child != NONE || !kvcache_idle(p->kv, i))
            continue;
        int32_t *at = children(p, p->nodes[i].parent);
        while (*at != i)
            at = &p->nodes[*at].next;
        *at = p->nodes[i].next;
        unlink_use(p, i);
        kvcache_release(p->kv, i);
        return true;
    }
    return false;
}
