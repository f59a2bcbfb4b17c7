/* pack: token sequences packed into micro-batches, as plain host arrays that know no model.
 *
 * Every command that runs given tokens through a model packs them here: training and validation,
 * ESFT scores, routing statistics, evaluation, perplexity. Sequences keep the order in which they
 * are added; one that does not fit begins the next micro-batch (next fit), and none is cut.
 *
 * Two ways of use. A training step adds all its sequences and then walks the micro-batches. A
 * stream has one micro-batch at a time: pack_push() runs what is there when the next sequence does
 * not fit any more, pack_flush() what is left at the end. */
#ifndef PESC_DATA_PACK_H
#define PESC_DATA_PACK_H

#include "base/status.h"
#include "tokenizer/tokens.h"

typedef struct pack_limits {
    int32_t max_tokens; /* of a micro-batch; a longer sequence gets one of its own */
    int32_t max_seqs;   /* of a micro-batch; 1: no packing */
} pack_limits;

/* A sequence to be packed. Everything is copied. */
typedef struct pack_item {
    const int32_t *ids;  /* [n] */
    const int32_t *next; /* [n_next]: the token to predict after ids[i], below 0 where none is */
    int32_t n, n_next;   /* n_next <= n; 0: nothing is predicted and next may be NULL */
    int32_t past, kv_seq, whole; /* as in token_seq */
    int32_t follows; /* tokens of the next sequence, where that must be in the same micro-batch */
    int32_t group;   /* sequences of different groups are in different micro-batches */
    uintptr_t tag;   /* the caller's: comes back in pack_span */
} pack_item;

/* Where a packed sequence lies in its micro-batch. */
typedef struct pack_span {
    int32_t first;                   /* its first token */
    int32_t first_target, n_targets; /* its part of rows, targets and weights */
    uintptr_t tag;
} pack_span;

/* The tokens of one forward. Borrowed until the packer changes. */
typedef struct micro_batch {
    const token_seq *seqs; /* [n_seqs] */
    const pack_span *spans;
    int32_t n_seqs, n_tokens;
    const int32_t *rows;    /* [n_targets], ascending: packed tokens that predict a target, */
    const int32_t *targets; /* and what they predict */
    float *weights;         /* of each target's loss; for the caller to fill in */
    int32_t n_targets;
    int32_t group; /* of its sequences */
} micro_batch;

typedef struct packer packer;
pesc_status pack_open(packer **out, pack_limits lim);
void pack_close(packer *p); /* NULL is allowed */
void pack_clear(packer *p); /* keeps the memory */

pesc_status pack_add(packer *p, const pack_item *item);
int32_t pack_room(const packer *p); /* tokens that fit the last micro-batch */

/* A stream: `run` gets the one micro-batch, which is empty afterwards. */
typedef pesc_status (*pack_run)(void *ud, const micro_batch *b);
pesc_status pack_push(packer *p, const pack_item *item, pack_run run, void *ud);
pesc_status pack_flush(packer *p, pack_run run, void *ud);

int32_t pack_count(const packer *p); /* micro-batches */
micro_batch pack_at(packer *p, int32_t i);
int64_t pack_tokens(const packer *p);  /* of all micro-batches */
int64_t pack_targets(const packer *p); /* likewise */
int64_t pack_seqs(const packer *p);    /* likewise */

#endif
