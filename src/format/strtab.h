/* strtab: strings numbered in the order they come, found again by hash.
 *
 * The numbers are dense, so a caller keeps what belongs to a string in an array of its own. Strings
 * are copied into blocks that never move. Every table draws a seed for its hash: no file
 * can be made whose names all collide. */
#ifndef PESC_FORMAT_STRTAB_H
#define PESC_FORMAT_STRTAB_H

#include <stddef.h>
#include <stdint.h>

typedef struct strtab {
    struct strtab_block *blocks; /* the newest first */
    const char **names;          /* by number */
    size_t n, cap;
    struct strtab_slot *slots; /* a power of two of them, at most half in use */
    size_t n_slots;
    uint64_t seed;
} strtab; /* zero-initialise to start */

/* The number of a string of n bytes without NUL, or -1. */
int64_t strtab_find(const strtab *t, const char *s, size_t n);

/* Adds a string that is not there yet; -1 when out of memory. */
int64_t strtab_add(strtab *t, const char *s, size_t n);

/* Forgets every string i with drop[i] != 0; the others keep their order and move up. */
void strtab_drop(strtab *t, const unsigned char *drop);

void strtab_free(strtab *t);

#endif
