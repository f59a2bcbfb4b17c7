/* prefix: a cache of prefixes, as a tree over the pages of a KV cache.
 *
 * A node is a page together with the tokens whose keys and values it holds; its parent is the page
 * before it. A path from a root is therefore the beginning of a token string, and finding the
 * longest cached prefix of a string is a walk down the tree. Tokens are compared, not hashes of
 * them, so a different string never matches. The walk may end inside a page: its first tokens are
 * of use to a timeline that copies them (kvcache_fork).
 *
 * Pages in the tree are retained. The one that was found or added longest ago, and that no timeline
 * has, is evicted first; it is always a leaf. The tree belongs to one model with one set of
 * weights; strings of different scopes share nothing. */
#ifndef PESC_INFER_PREFIX_H
#define PESC_INFER_PREFIX_H

#include "model/kvcache.h"

typedef struct prefix_cache prefix_cache;
pesc_status prefix_open(prefix_cache **out, kvcache *kv); /* kv is borrowed */
void prefix_close(prefix_cache *p);                       /* NULL is allowed */

/* A string of tokens in a scope. */
typedef struct prefix_key {
    uint64_t scope;
    const int32_t *ids;
    int32_t n;
} prefix_key;

/* How many tokens at the beginning of the string are cached; their pages into `pages`, which has
 * room for kvcache_max_pages(). */
int32_t prefix_find(prefix_cache *p, prefix_key key, int32_t *pages);

/* Adds the pages that hold the string; those whose tokens are cached already are left out. The
 * timeline that has them must not append to the last one afterwards, unless it is full. */
void prefix_add(prefix_cache *p, prefix_key key, const int32_t *pages);

/* Returns one page to the pool; false: timelines have all of them. */
bool prefix_evict(prefix_cache *p);

#endif
