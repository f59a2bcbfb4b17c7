/* batchinvariant: forwards that all have the same number of rows, so that on a GPU a request gets
 * the same bits alone and among others (scheduler_options.batch_invariant).
 *
 * There the number of rows chooses the kernel of a product, and with it the order of its sums; in
 * the attention it is whether a sequence has one new row or more. So in this mode
 *   - a sequence of filling tokens brings every forward to the same number of rows, which all meet
 *     the head;
 *   - the prompt but for its last token is fed in pieces of at least two tokens, everything after
 *     it token by token, also when it is fed again after a preemption;
 *   - only full pages of the prompt are cached. */
#ifndef PESC_INFER_BATCHINVARIANT_H
#define PESC_INFER_BATCHINVARIANT_H

#include "infer/scheduler_state.h"

/* Rows of every forward for that many slots: a token of each and the shortest piece of a prompt
 * always fit beside the filling tokens. */
int32_t batchinvariant_rows(int32_t slots);
/* Tokens that requests have in a forward at most. */
int32_t batchinvariant_tokens(const scheduler *s);

/* How many tokens the request feeds next, where a forward has room for that many. */
int32_t batchinvariant_piece(const job *j, int32_t room);
/* How many of the n tokens that were found in the cache the request uses. */
int32_t batchinvariant_found(const job *j, int32_t n);
/* How many of the first n tokens of the request the cache may hold. */
int32_t batchinvariant_cacheable(const job *j, int32_t n);

/* The pages of the filling tokens; before the first forward and after each. */
pesc_status batchinvariant_reserve(scheduler *s);
/* Adds the filling tokens after the s->now.n sequences of the next forward; s->rows are all. */
void batchinvariant_fill(scheduler *s);

#endif
