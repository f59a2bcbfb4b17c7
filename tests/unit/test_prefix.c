/* The order in which a cache of prefixes gives its pages back. What it finds: test_scheduler. */
#include "base/json.h"
#include "infer/prefix.h"

#include "support/check.h"

enum { A, B, C, STRINGS };

static device *dev;
static config cfg;

static int open_all(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\":\"llama\",\"hidden_size\":36,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"intermediate_size\":52,"
        "\"vocab_size\":67}";
    json_t *o = NULL;
    must(json_parse(&o, text, strlen(text), "test"));
    must(config_read(&cfg, &(config_source){ .json = o, .file = "test" }));
    json_decref(o);
    must(backend_open(&dev, "cpu:1"));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    config_free(&cfg);
    pesc_device_close(dev);
    return 0;
}

/* A string of two pages, which differs from the others in every token. */
static prefix_key string_of(int which, int32_t ids[2 * KV_PAGE_TOKENS])
{
    for (int32_t i = 0; i < 2 * KV_PAGE_TOKENS; i++)
        ids[i] = which;
    return (prefix_key){ 0, ids, 2 * KV_PAGE_TOKENS };
}

static int32_t cached(prefix_cache *p, int which)
{
    int32_t ids[2 * KV_PAGE_TOKENS], pages[16];
    return prefix_find(p, string_of(which, ids), pages);
}

/* Finding counts as use, and a page is given back after those that follow it. */
static void what_was_used_longest_ago_is_evicted_first(void **state)
{
    (void)state;
    kvcache *kv = NULL;
    prefix_cache *p = NULL;
    int32_t ids[2 * KV_PAGE_TOKENS];
    must(kvcache_open(&kv, dev, &cfg, DT_F32, 1, 1024, 1024));
    must(prefix_open(&p, kv));
    for (int i = 0; i < STRINGS; i++) {
        must(kvcache_reserve(kv, 0, 2 * KV_PAGE_TOKENS));
        kvcache_advance(kv, 0, 2 * KV_PAGE_TOKENS);
        prefix_add(p, string_of(i, ids), kvcache_table(kv, 0));
        kvcache_truncate(kv, 0, 0);
    }
    assert_int_equal(cached(p, A), 2 * KV_PAGE_TOKENS); /* from the oldest to B, C, A */
    assert_true(prefix_evict(p));
    assert_int_equal(cached(p, B), KV_PAGE_TOKENS); /* C, A, B */
    assert_true(prefix_evict(p));
    assert_true(prefix_evict(p));
    assert_int_equal(cached(p, C), 0);
    assert_true(prefix_evict(p));
    assert_int_equal(cached(p, B), KV_PAGE_TOKENS);
    assert_int_equal(cached(p, A), KV_PAGE_TOKENS); /* B, A */
    assert_true(prefix_evict(p));
    assert_int_equal(cached(p, B), 0);
    assert_true(prefix_evict(p));
    assert_false(prefix_evict(p));
    prefix_close(p);
    kvcache_close(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_used_longest_ago_is_evicted_first),
    };
    return cmocka_run_group_tests_name("prefix", tests, open_all, close_all);
}
