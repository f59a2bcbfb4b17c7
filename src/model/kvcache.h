/* kvcache: keys and values of past tokens, in pages, and the states of layers without attention.
 *
 * A timeline is a list of pages; pages come from one pool, so many sequences of different lengths
 * share memory without moving. All memory is taken at open.
 *
 * Timelines that begin with the same tokens can share the pages of these tokens. A page can also be
 * retained while no timeline has it, by a cache of prefixes (infer/prefix.h). A page returns to the
 * pool when no timeline has it and it is not retained. Only a page that one timeline has alone and
 * that is not retained is written to.
 *
 * A layer without attention has, instead of keys and values, one state for each timeline, which is
 * that after its last token and takes the place of the one before. Earlier states are not kept. So
 * a timeline with states can be emptied but not shortened, and pages alone do not make one: it is
 * not forked (config_has_state). An empty timeline begins with states of zero, by the ops. */
#ifndef PESC_MODEL_KVCACHE_H
#define PESC_MODEL_KVCACHE_H

#include "arch/config.h"
#include "backend/backend.h"

enum { KV_PAGE_TOKENS = 64 };

typedef struct kvcache kvcache;

/* n_seqs timelines of at most max_tokens each, total_tokens together. dt: f32 or bf16. Keeps
 * dev. */
pesc_status kvcache_open(kvcache **out, device *dev, const config *cfg, dtype dt, int32_t n_seqs,
                         int32_t max_tokens, int64_t total_tokens);
uint64_t kvcache_token_bytes(const config *cfg, dtype dt); /* of a token in all layers */
uint64_t kvcache_state_bytes(const config *cfg);           /* of a timeline's states */
void kvcache_close(kvcache *c);                            /* NULL is allowed */
int32_t kvcache_length(const kvcache *c, int32_t seq);
/* Makes room for n more tokens; PESC_NOMEM when the pool or the timeline is full, and then nothing
 * has changed. If the next token belongs in a page that is shared or retained, the timeline gets a
 * copy of that page first. */
pesc_status kvcache_reserve(kvcache *c, int32_t seq, int32_t n);
void kvcache_advance(kvcache *c, int32_t seq, int32_t n);       /* into reserved room */
void kvcache_truncate(kvcache *c, int32_t seq, int32_t length); /* keeps the first `length` */
/* place: of a layer among those with the same mixer (block.place). */
tensor kvcache_keys(const kvcache *c, int32_t place); /* [n_pages, KV_PAGE_TOKENS, K] */
tensor kvcache_values(const kvcache *c, int32_t place);
tensor kvcache_conv_state(const kvcache *c, int32_t place);  /* f32 [n_seqs, taps - 1 rows] */
tensor kvcache_delta_state(const kvcache *c, int32_t place); /* f32 [n_seqs, S of all heads] */
const int32_t *kvcache_table(const kvcache *c, int32_t seq); /* host: page numbers */
int32_t kvcache_max_pages(const kvcache *c);

/* ---- sharing ---- */

/* Begins the empty timeline `seq` with the first n tokens of `pages`, which are pages of other
 * timelines or retained ones. Full pages are shared; of a last page that is not full, the tokens
 * are copied to a page of the timeline's own. PESC_NOMEM: the pool has no page for the copy, and
 * nothing has changed. */
pesc_status kvcache_fork(kvcache *c, int32_t seq, const int32_t *pages, int32_t n);
void kvcache_retain(kvcache *c, int32_t page);     /* a page of a timeline, once */
void kvcache_release(kvcache *c, int32_t page);    /* a retained one */
bool kvcache_idle(const kvcache *c, int32_t page); /* retained, and no timeline has it */
int32_t kvcache_pages(const kvcache *c);           /* of the pool, used or not */
int32_t kvcache_unused(const kvcache *c);          /* that neither is in use nor retained */
int32_t kvcache_idle_pages(const kvcache *c);      /* see kvcache_idle() */
int32_t kvcache_pages_for(int64_t tokens);         /* that many tokens fill, the last in part */

#endif
