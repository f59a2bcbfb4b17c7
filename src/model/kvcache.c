#include "model/kvcache.h"

#include "backend/memory.h"
#include "base/mem.h"

struct kvcache {
    device *dev; /* borrowed */
    void *memory;
    tensor *k, *v; /* [n_pages, KV_PAGE_TOKENS, K] of each layer that has keys */
    tensor delta;  /* like conv: S of all heads; absent: no layer has a delta net */
    tensor conv;   /* f32 [recurrent layers * n_seqs, rows before the next]; a layer is a slice */
    bool has_state;
    int32_t n_layers, /* with keys */
        n_seqs, max_tokens;
    int32_t n_pages;   /* of a layer */
    int32_t max_pages; /* of a timeline */
    int32_t *lengths;  /* n_seqs */
    int32_t *held;     /* n_seqs: pages a timeline has */
    int32_t *table;    /* n_seqs * max_pages */
    int32_t *unused;   /* a stack of page numbers */
    int32_t n_unused;
    int32_t *users; /* n_pages: timelines that have a page */
    bool *retained; /* n_pages */
    int32_t n_idle; /* pages that are retained and have no users */
};

int32_t kvcache_pages_for(int64_t tokens)
{
    return (int32_t)((tokens + KV_PAGE_TOKENS - 1) / KV_PAGE_TOKENS);
}

/* A layer that shares the keys and values of an earlier one has none here. */
static bool has_keys(const config *cfg, int32_t layer)
{
    return config_layer_mixer(cfg, layer) == MIXER_ATTENTION &&
           config_layer_kv(cfg, layer) == layer;
}

static void layout(kvcache *c, arena *a, const config *cfg, dtype dt)
{
    for (int value = 0; value < 2; value++)
        for (int32_t i = 0, place = 0; i < cfg->n_layers; i++) {
            const head_widths w = config_layer_widths(cfg, i);
            if (has_keys(cfg, i))
                (value ? c->v : c->k)[place++] =
                    tensor_take3(a, dt, c->n_pages, KV_PAGE_TOKENS, value ? w.v : w.k);
        }
    if (!c->has_state)
        return;
    int64_t rows = (int64_t)config_mixers(cfg, cfg->n_layers, cfg->recurrent) * c->n_seqs;
    c->conv = tensor_take2(a, DT_F32, rows, config_conv_state(cfg));
    if (cfg->recurrent == MIXER_DELTA)
        c->delta = tensor_take2(a, DT_F32, rows, config_delta_state(cfg));
}

static pesc_status open_tables(kvcache *c)
{
    size_t seqs = (size_t)c->n_seqs;
    c->lengths = mem_zalloc(seqs, sizeof *c->lengths);
    c->held = mem_zalloc(seqs, sizeof *c->held);
    c->table = mem_zalloc(seqs * (size_t)c->max_pages, sizeof *c->table);
    c->unused = mem_alloc((size_t)c->n_pages, sizeof *c->unused);
    c->users = mem_zalloc((size_t)c->n_pages, sizeof *c->users);
    c->retained = mem_zalloc((size_t)c->n_pages, sizeof *c->retained);
    c->k = mem_zalloc((size_t)c->n_layers + 1, sizeof *c->k);
    c->v = mem_zalloc((size_t)c->n_layers + 1, sizeof *c->v);
    if (!c->k || !c->v || !c->lengths || !c->held || !c->table || !c->unused || !c->users ||
        !c->retained)
        return fail_nomem("the key-value cache", seqs * (size_t)c->max_pages * sizeof *c->table);
    c->n_unused = c->n_pages;
    for (int32_t i = 0; i < c->n_pages; i++) /* page 0 is handed out first */
        c->unused[i] = c->n_pages - 1 - i;
    return PESC_OK;
}

uint64_t kvcache_token_bytes(const config *cfg, dtype dt)
{
    int64_t width = 0;
    for (int32_t i = 0; i < cfg->n_layers; i++) {
        const head_widths w = config_layer_widths(cfg, i);
        width += has_keys(cfg, i) ? w.k + w.v : 0;
    }
    return (uint64_t)width * dtype_block_bytes(dt);
}

uint64_t kvcache_state_bytes(const config *cfg)
{
    if (!config_has_state(cfg))
        return 0;
    int64_t n = config_mixers(cfg, cfg->n_layers, cfg->recurrent);
    return (uint64_t)(n * (config_conv_state(cfg) + config_delta_state(cfg))) * sizeof(float);
}

static const memory_need cache_need = { "the key-value cache", "a shorter context needs less" };

pesc_status kvcache_open(kvcache **out, device *dev, const config *cfg, dtype dt, int32_t n_seqs,
                         int32_t max_tokens, int64_t total_tokens)
{
    ASSERT(n_seqs > 0 && max_tokens > 0 && total_tokens > 0 && (dt == DT_F32 || dt == DT_BF16));
    *out = NULL;
    /* Every timeline may have begun a page it does not fill. */
    int64_t pages = total_tokens / KV_PAGE_TOKENS + n_seqs;
    double bytes = (double)kvcache_token_bytes(cfg, DT_F32) * KV_PAGE_TOKENS * (double)pages +
                   (double)kvcache_state_bytes(cfg) * n_seqs;
    if (pages > INT32_MAX / cfg->n_layers || bytes > 0x1p60)
        return fail(PESC_NOMEM, "a key-value cache of %lld tokens is too large",
                    (long long)total_tokens);
    kvcache *c = mem_zalloc(1, sizeof *c);
    if (!c)
        return fail_nomem("the key-value cache", sizeof *c);
    *c = (kvcache){ .dev = dev,
                    .has_state = config_has_state(cfg),
                    .n_layers =
                        config_mixers(cfg, cfg->n_layers - cfg->n_kv_shared, MIXER_ATTENTION),
                    .n_seqs = n_seqs,
                    .max_tokens = max_tokens,
                    .n_pages = (int32_t)pages,
                    .max_pages = kvcache_pages_for(max_tokens) };
    arena a = { 0 };
    pesc_status s = open_tables(c);
    if (s == PESC_OK) {
        layout(c, &a, cfg, dt);
        s = memory_take(&a, dev, &cache_need, &c->memory);
    }
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
    mem_free(c->users);
    mem_free(c->retained);
    mem_free(c->k);
    mem_free(c->v);
    mem_free(c);
}

int32_t kvcache_length(const kvcache *c, int32_t seq)
{
    ASSERT(seq >= 0 && seq < c->n_seqs);
    return c->lengths[seq];
}

/* ---- pages ---- */

/* The timeline's next page is one of the pool's. */
static void take_page(kvcache *c, int32_t seq)
{
    int32_t page = c->unused[--c->n_unused];
    c->users[page] = 1;
    c->table[(int64_t)seq * c->max_pages + c->held[seq]++] = page;
}

static void share_page(kvcache *c, int32_t seq, int32_t page)
{
    ASSERT(page >= 0 && page < c->n_pages && (c->users[page] || c->retained[page]));
    c->n_idle -= c->users[page] == 0;
    c->users[page]++;
    c->table[(int64_t)seq * c->max_pages + c->held[seq]++] = page;
}

static void leave_page(kvcache *c, int32_t page)
{
    if (--c->users[page] > 0)
        return;
    if (c->retained[page])
        c->n_idle++;
    else
        c->unused[c->n_unused++] = page;
}

/* Copies the first n tokens of a page, in every layer. */
static void copy_tokens(kvcache *c, int32_t to, int32_t from, int32_t n)
{
    for (int i = 0; i < 2; i++)
        for (int32_t layer = 0; layer < c->n_layers; layer++) {
            const tensor *t = i ? &c->v[layer] : &c->k[layer];
            size_t page = tensor_bytes(t) / (size_t)t->ne[0];
            char *pages = t->data;
            c->dev->op->copy(c->dev, pages + (size_t)to * page, pages + (size_t)from * page,
                             page / KV_PAGE_TOKENS * (size_t)n);
        }
}

/* Whether the page that the timeline's next token belongs in is begun and not its own. */
static bool must_copy(const kvcache *c, int32_t seq)
{
    int32_t length = c->lengths[seq];
    if (length % KV_PAGE_TOKENS == 0)
        return false;
    int32_t page = c->table[(int64_t)seq * c->max_pages + length / KV_PAGE_TOKENS];
    return c->users[page] > 1 || c->retained[page];
}

static void copy_last_page(kvcache *c, int32_t seq)
{
    int32_t length = c->lengths[seq];
    int32_t *at = &c->table[(int64_t)seq * c->max_pages + length / KV_PAGE_TOKENS];
    int32_t page = c->unused[--c->n_unused];
    c->users[page] = 1;
    copy_tokens(c, page, *at, length % KV_PAGE_TOKENS);
    leave_page(c, *at);
    *at = page;
}

/* ---- timelines ---- */

pesc_status kvcache_reserve(kvcache *c, int32_t seq, int32_t n)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && n >= 0);
    int64_t length = (int64_t)c->lengths[seq] + n;
    if (length > c->max_tokens)
        return fail(PESC_NOMEM,
                    "the context is full: %lld tokens, but the key-value cache holds %d; open the "
                    "session with a larger context",
                    (long long)length, c->max_tokens);
    int32_t more = kvcache_pages_for(length) - c->held[seq];
    more = more > 0 ? more : 0;
    bool copy = n > 0 && must_copy(c, seq);
    if (more + copy > c->n_unused)
        return fail(PESC_NOMEM, "the key-value cache is full: %d pages are needed, %d are free",
                    more + copy, c->n_unused);
    if (copy)
        copy_last_page(c, seq);
    for (; more > 0; more--)
        take_page(c, seq);
    return PESC_OK;
}

void kvcache_advance(kvcache *c, int32_t seq, int32_t n)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && n >= 0);
    c->lengths[seq] += n;
    ASSERT(kvcache_pages_for(c->lengths[seq]) <= c->held[seq]);
}

void kvcache_truncate(kvcache *c, int32_t seq, int32_t length)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && length >= 0 && length <= c->lengths[seq]);
    c->lengths[seq] = length;
    while (c->held[seq] > kvcache_pages_for(length))
        leave_page(c, c->table[(int64_t)seq * c->max_pages + --c->held[seq]]);
}

pesc_status kvcache_fork(kvcache *c, int32_t seq, const int32_t *pages, int32_t n)
{
    ASSERT(seq >= 0 && seq < c->n_seqs && n >= 0 && n <= c->max_tokens);
    ASSERT(c->lengths[seq] == 0 && (n == 0 || !c->has_state));
    int32_t full = n / KV_PAGE_TOKENS, rest = n % KV_PAGE_TOKENS;
    kvcache_truncate(c, seq, 0); /* pages that were reserved for an empty timeline */
    if (rest && c->n_unused == 0)
        return fail(PESC_NOMEM, "the key-value cache is full: 1 page is needed, none is free");
    for (int32_t i = 0; i < full; i++)
        share_page(c, seq, pages[i]);
    if (rest) {
        take_page(c, seq);
        copy_tokens(c, kvcache_table(c, seq)[full], pages[full], rest);
    }
    c->lengths[seq] = n;
    return PESC_OK;
}

void kvcache_retain(kvcache *c, int32_t page)
{
    ASSERT(page >= 0 && page < c->n_pages && c->users[page] > 0 && !c->retained[page]);
    c->retained[page] = true;
}

void kvcache_release(kvcache *c, int32_t page)
{
    ASSERT(page >= 0 && page < c->n_pages && c->retained[page]);
    c->retained[page] = false;
    if (c->users[page] > 0)
        return;
    c->n_idle--;
    c->unused[c->n_unused++] = page;
}

bool kvcache_idle(const kvcache *c, int32_t page)
{
    return c->retained[page] && c->users[page] == 0;
}

int32_t kvcache_pages(const kvcache *c)
{
    return c->n_pages;
}

int32_t kvcache_unused(const kvcache *c)
{
    return c->n_unused;
}

int32_t kvcache_idle_pages(const kvcache *c)
{
    return c->n_idle;
}

tensor kvcache_keys(const kvcache *c, int32_t place)
{
    return c->k[place];
}

tensor kvcache_values(const kvcache *c, int32_t place)
{
    return c->v[place];
}

tensor kvcache_conv_state(const kvcache *c, int32_t place)
{
    return tensor_slice(&c->conv, (int64_t)place * c->n_seqs, c->n_seqs);
}

tensor kvcache_delta_state(const kvcache *c, int32_t place)
{
    return tensor_slice(&c->delta, (int64_t)place * c->n_seqs, c->n_seqs);
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
