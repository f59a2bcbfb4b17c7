/* intern: numbers for sequences of uint32, the same number for equal sequences.
 *
 * Sets of parser positions, subsets of a regular expression's states and sets of schemas are such
 * sequences; with them a search over sets becomes a search over numbers, which begin at 0 and grow
 * by one. */
#ifndef PESC_GRAMMAR_INTERN_H
#define PESC_GRAMMAR_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERN_NONE UINT32_MAX

typedef struct intern {
    uint32_t *words; /* all sequences, one after another */
    size_t n_words, cap_words;
    size_t *first; /* [n + 1] where each begins */
    size_t n, cap;
    uint32_t *slots; /* hash table of numbers, at most half full */
    size_t n_slots;
} intern;

/* Zero-initialise to start. The number of the sequence, which is added if it is not there;
 * INTERN_NONE: no memory. */
uint32_t intern_add(intern *t, const uint32_t *words, size_t n);
const uint32_t *intern_get(const intern *t, uint32_t number, size_t *n); /* until the next add */
size_t intern_bytes(const intern *t);
void intern_free(intern *t);

#endif
