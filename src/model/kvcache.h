/* kvcache: keys and values of past tokens, in pages.
 *
 * A timeline is a list of pages; pages come from one pool, so many sequences of different lengths
 * share memory without moving. All memory is taken at open. */
#ifndef PESC_MODEL_KVCACHE_H
#define PESC_MODEL_KVCACHE_H

#include "backend/backend.h"
#include "model/config.h"

enum { KV_PAGE_TOKENS = 64 };

typedef struct kvcache kvcache;

/* n_seqs timelines of at most max_tokens each, total_tokens together. dt: f32 or bf16. Keeps
 * dev. */
pesc_status kvcache_open(kvcache **out, device *dev, const config *cfg, dtype dt, int32_t n_seqs,
                         int32_t max_tokens, int64_t total_tokens);
void kvcache_close(kvcache *c); /* NULL is allowed */
int32_t kvcache_length(const kvcache *c, int32_t seq);
/* Makes room for n more tokens; PESC_NOMEM when the pool or the timeline is full, and then nothing
 * has changed. */
pesc_status kvcache_reserve(kvcache *c, int32_t seq, int32_t n);
void kvcache_advance(kvcache *c, int32_t seq, int32_t n);       /* into reserved room */
void kvcache_truncate(kvcache *c, int32_t seq, int32_t length); /* keeps the first `length` */
tensor kvcache_keys(const kvcache *c, int32_t layer);           /* [n_pages, KV_PAGE_TOKENS, K] */
tensor kvcache_values(const kvcache *c, int32_t layer);
const int32_t *kvcache_table(const kvcache *c, int32_t seq); /* host: page numbers */
int32_t kvcache_max_pages(const kvcache *c);

#endif
