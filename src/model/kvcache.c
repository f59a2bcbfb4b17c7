#include "model/kvcache.h"

#include "base/mem.h"
#include "model/memory.h"

struct kvcache {
    device *dev; /* borrowed */
    void *memory;
    tensor k, v; /* [layers * n_pages, KV_PAGE_TOKENS, K]; a layer is a slice */
    int32_t n_layers, n_seqs, max_tokens;
    int32_t n_pages;   /* of a layer */
    int32_t max_pages; /* of a timeline */
    int32_t *lengths;  /* n_seqs */
    int32_t *held;     /* n_seqs: pages a timeline has */
    int32_t *table;    /* n_seqs * max_pages */
    int32_t *unused;   /* a stack of page numbers */
    int32_t n_unused;
};

static int32_t pages_for(int64_t tokens)
{
    return (int32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

static void layout(kvcache *c, arena *a, const config *cfg, dtype dt)
{
    int64_t heads = config_kv_heads(cfg), rows = (int64_t)c->n_layers * c->n_pages;
    c->k = tensor_take3(a, dt, rows, KV_PAGE_TOKENS, heads * config_qk_dim(cfg));
    c->v = tensor_take3(a, dt, rows, KV_PAGE_TOKENS, heads * config_v_dim(cfg));
}

static pesc_status open_tables(kvcache *c)
{
    size_t seqs = (size_t)c->n_seqs;
    c->lengths = mem_zalloc(seqs, sizeof *c->lengths);
    c->held = mem_zalloc(seqs, sizeof *c->held);
    c->table = mem_zalloc(seqs * (size_t)c->max_pages, sizeof *c->table);
    c->unused = mem_alloc((size_t)c->n_pages, sizeof *c->unused);
    if (!c->lengths || !c->held || !c->table || !c->unused)
        return fail_nomem("the key-value cache", seqs * (size_t)c->max_pages * sizeof *c->table);
    c->n_unused = c->n_pages;
    for (int32_t i = 0; i < c->n_pages; i++) /* page 0 is handed out first */
        c->unused[i] = c->n_pages - 1 - i;
    return PESC_OK;
}

static const memory_need cache_need = { "the key-value cache", "a shorter context needs less" };

pesc_status kvcache_open(kvcache **out, device *dev, const config *cfg, dtype dt, int32_t n_seqs,
                         int32_t max_tokens, int64_t total_tokens)
{
    ASSERT(n_seqs > 0 && max_tokens > 0 && total_tokens > 0 && (dt == DT_F32 || dt == DT_BF16));
    *out = NULL;
    /* Every timeline may have begun a page it does not fill. */
    int64_t pages = total_tokens / KV_PAGE_TOKENS + n_seqs;
    double width = (double)config_kv_heads(cfg) * (config_qk_dim(cfg) + config_v_dim(cfg));
    double bytes = width * KV_PAGE_TOKENS * (double)pages * cfg->n_layers * 4;
    if (pages > INT32_MAX / cfg->n_layers || bytes > 0x1p60)
        return fail(PESC_NOMEM, "a key-value cache of %lld tokens is too large",
                    (long long)total_tokens);
    kvcache *c = mem_zalloc(1, sizeof *c);
    if (!c)
        return fail_nomem("the key-value cache", sizeof *c);
    *c = (kvcache){ .dev = dev,
                    .n_layers = cfg->n_layers,
                    .n_seqs = n_seqs,
                    .max_tokens = max_tokens,
                    .n_pages = (int32_t)pages,
                    .max_pages = pages_for(max_tokens) };
    arena a = { 0 };
    layout(c, &a, cfg, dt);
    pesc_status s = open_tables(c);
    if (s == PESC_OK)
        s = memory_take(&a, dev, &cache_need, &c->memory);
    if (s == PESC_OK) {
        layout(c, &a, cfg, dt);
        *out = c;
    } else {
        kvcache_close(c);
    }
    return s;
}

void kvcache_close(kvcache *c)
{
    if (!c)
        return;
    if (c->memory)
        c->dev->op->free(c->dev, c->memory);
    mem_free(c->lengths);
    mem_free(c->held);
    mem_free(c->table);
    mem_free(c->unused);
    mem_free(c);
}

int32_t kvcache_length(const kvcache *c, int32_t seq)
{
    ASSERT(seq >= 0 && seq < c->n_seqs);
    return c->lengths[seq];
}

pesc_status kvcache_reserve(kvcache *c, int32_t seq, int32_t n)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && n >= 0);
    int64_t length = (int64_t)c->lengths[seq] + n;
    if (length > c->max_tokens)
        return fail(PESC_NOMEM,
                    "the context is full: %lld tokens, but the key-value cache holds %d; open the "
                    "session with a larger context",
                    (long long)length, c->max_tokens);
    int32_t more = pages_for(length) - c->held[seq];
    if (more > c->n_unused)
        return fail(PESC_NOMEM, "the key-value cache is full: %d pages are needed, %d are free",
                    more, c->n_unused);
    for (; more > 0; more--)
        c->table[(int64_t)seq * c->max_pages + c->held[seq]++] = c->unused[--c->n_unused];
    return PESC_OK;
}

void kvcache_advance(kvcache *c, int32_t seq, int32_t n)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && n >= 0);
    c->lengths[seq] += n;
    ASSERT(pages_for(c->lengths[seq]) <= c->held[seq]);
}

void kvcache_truncate(kvcache *c, int32_t seq, int32_t length)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && length >= 0 && length <= c->lengths[seq]);
    c->lengths[seq] = length;
    while (c->held[seq] > pages_for(length))
        c->unused[c->n_unused++] = c->table[(int64_t)seq * c->max_pages + --c->held[seq]];
}

tensor kvcache_keys(const kvcache *c, int32_t layer)
{
    return tensor_slice(&c->k, (int64_t)layer * c->n_pages, c->n_pages);
}

tensor kvcache_values(const kvcache *c, int32_t layer)
{
    return tensor_slice(&c->v, (int64_t)layer * c->n_pages, c->n_pages);
}

const int32_t *kvcache_table(const kvcache *c, int32_t seq)
{
    ASSERT(seq >= 0 && seq < c->n_seqs);
    return c->table + (int64_t)seq * c->max_pages;
}

int32_t kvcache_max_pages(const kvcache *c)
{
    return c->max_pages;
}
