/* trie: a set of byte strings, walked byte by byte.
 *
 * Nodes are numbered breadth first, so the children of a node are neighbours: a node is one number
 * (where its children begin), a label and a value; a step is a search for one byte among at most
 * 256 neighbouring labels. Built once from all keys, then never changed: any number of threads may
 * walk it. Nine bytes a node. */
#ifndef PESC_TOKENIZER_TRIE_H
#define PESC_TOKENIZER_TRIE_H

#include "base/status.h"

typedef struct trie trie;

typedef struct trie_key {
    const char *text; /* any bytes, NUL too; borrowed for the build only */
    size_t n;         /* at least 1 */
    int32_t value;    /* at least 0 */
} trie_key;

#define TRIE_ROOT 0u
#define TRIE_NONE UINT32_MAX

/* Sorts `keys` in place. Of equal keys the one with the largest value stays. */
pesc_status trie_build(trie **out, trie_key *keys, size_t n);
void trie_close(trie *t); /* NULL is allowed */

uint32_t trie_step(const trie *t, uint32_t node, unsigned char byte); /* TRIE_NONE: no such key */
int32_t trie_value(const trie *t, uint32_t node);                     /* -1: no key ends here */

/* The longest key that text begins with: its value, or -1. */
int32_t trie_longest(const trie *t, const char *text, size_t n, size_t *matched);
/* The value of the key that is exactly text, or -1. */
int32_t trie_find(const trie *t, const char *text, size_t n);

#endif
