/* surplus: the tokens that experts of one layer take more often than others do. */
#ifndef PESC_EXPLAIN_SURPLUS_H
#define PESC_EXPLAIN_SURPLUS_H

#include "base/status.h"

typedef struct surplus {
    size_t experts, vocab;
    uint32_t *chosen; /* [experts, vocab]: occurrences of a token that chose the expert */
    uint32_t *seen;   /* [vocab] */
} surplus;

pesc_status surplus_open(surplus *s, size_t experts, size_t vocab);
void surplus_close(surplus *s);

/* A token with the k experts it chose. */
void surplus_add(surplus *s, int32_t id, const int32_t *experts, size_t k);

/* out [experts, n]: for each expert the tokens with the most choices above what its part of all
 * tokens gives, the most first; equal ones by id. */
void surplus_best(const surplus *s, pesc_routes_token *out, size_t n);

#endif
