/* Pages of the key-value cache: a timeline gets them as it grows and gives them back as it shrinks.
 * Timelines that are forked share full pages; a shared page is never written to. */
#include "base/json.h"
#include "model/kvcache.h"

#include "support/check.h"

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

static void grows_and_shrinks(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 1, 200, 200));
    assert_int_equal(kvcache_max_pages(c), 4);
    assert_int_equal(kvcache_length(c, 0), 0);
    must(kvcache_reserve(c, 0, 65));
    assert_int_equal(kvcache_length(c, 0), 0);
    kvcache_advance(c, 0, 65);
    assert_int_equal(kvcache_length(c, 0), 65);
    assert_int_not_equal(kvcache_table(c, 0)[0], kvcache_table(c, 0)[1]);
    must(kvcache_reserve(c, 0, 135));
    kvcache_advance(c, 0, 135);
    must_fail(kvcache_reserve(c, 0, 1), PESC_NOMEM, "the context is full: 201 tokens");
    assert_int_equal(kvcache_length(c, 0), 200);
    int32_t first = kvcache_table(c, 0)[0];
    kvcache_truncate(c, 0, 3);
    assert_int_equal(kvcache_length(c, 0), 3);
    assert_int_equal(kvcache_table(c, 0)[0], first);
    must(kvcache_reserve(c, 0, 197));
    kvcache_close(c);
}

static void timelines_never_share(void **state)
{
    (void)state;
    enum { SEQS = 5 };
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_BF16, SEQS, 640, 640));
    bool taken[64] = { false };
    for (int32_t s = 0; s < SEQS; s++) {
        must(kvcache_reserve(c, s, 100));
        kvcache_advance(c, s, 100);
        for (int i = 0; i < 2; i++) {
            int32_t page = kvcache_table(c, s)[i];
            assert_in_range(page, 0, 63);
            assert_false(taken[page]);
            taken[page] = true;
        }
    }
    must(kvcache_reserve(c, 0, 320)); /* what is left of the pool, and one page a timeline */
    must_fail(kvcache_reserve(c, 1, 64), PESC_NOMEM, "the key-value cache is full");
    kvcache_truncate(c, 3, 0);
    must(kvcache_reserve(c, 1, 64));
    kvcache_close(c);
}

/* Three timelines share 7 pages: what one gives back, another can take, to the last page. */
static void pages_are_counted_exactly(void **state)
{
    (void)state;
    enum { FOUR = 4 * KV_PAGE_TOKENS, THREE = 3 * KV_PAGE_TOKENS };
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 3, FOUR, FOUR));
    assert_int_equal(kvcache_max_pages(c), 4);
    must(kvcache_reserve(c, 0, FOUR));
    kvcache_advance(c, 0, FOUR);
    must(kvcache_reserve(c, 1, THREE));
    kvcache_advance(c, 1, THREE);
    must_fail(kvcache_reserve(c, 2, 1), PESC_NOMEM, "1 pages are needed, 0 are free");
    kvcache_truncate(c, 0, 0);
    must(kvcache_reserve(c, 2, FOUR));
    kvcache_advance(c, 2, FOUR);
    must_fail(kvcache_reserve(c, 0, 1), PESC_NOMEM, "1 pages are needed, 0 are free");
    kvcache_truncate(c, 1, 2 * KV_PAGE_TOKENS); /* a full page less */
    must(kvcache_reserve(c, 0, KV_PAGE_TOKENS));
    kvcache_close(c);
}

/* Fills the tokens [from, to) of a timeline with numbers that tell layer, position and `mark`. */
static float expected(int32_t layer, int32_t position, int mark, bool value)
{
    return (float)(mark * 10000 + layer * 1000 + position) + (value ? 0.5f : 0.0f);
}

static float *token_at(const kvcache *c, int32_t seq, int32_t layer, int32_t position, bool value)
{
    tensor t = value ? kvcache_values(c, layer) : kvcache_keys(c, layer);
    int64_t page = kvcache_table(c, seq)[position / KV_PAGE_TOKENS];
    return (float *)t.data + (page * KV_PAGE_TOKENS + position % KV_PAGE_TOKENS) * t.ne[2];
}

static void append(kvcache *c, int32_t seq, int32_t n, int mark)
{
    int32_t from = kvcache_length(c, seq);
    must(kvcache_reserve(c, seq, n));
    for (int32_t i = from; i < from + n; i++)
        for (int32_t layer = 0; layer < 3; layer++)
            for (int value = 0; value < 2; value++)
                for (int j = 0; j < 18; j++)
                    token_at(c, seq, layer, i, value)[j] = expected(layer, i, mark, value);
    kvcache_advance(c, seq, n);
}

static void holds(const kvcache *c, int32_t seq, int32_t from, int32_t to, int mark)
{
    for (int32_t i = from; i < to; i++)
        for (int32_t layer = 0; layer < 3; layer++)
            for (int value = 0; value < 2; value++)
                for (int j = 0; j < 18; j += 17)
                    assert_float_equal(token_at(c, seq, layer, i, value)[j],
                                       expected(layer, i, mark, value), 0);
}

static void a_fork_shares_full_pages_and_copies_the_last(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 3, 512, 512)); /* 11 pages */
    append(c, 0, 150, 1);
    int32_t before = kvcache_unused(c);
    must(kvcache_fork(c, 1, kvcache_table(c, 0), 140));
    assert_int_equal(kvcache_length(c, 1), 140);
    assert_int_equal(kvcache_unused(c), before - 1);
    assert_int_equal(kvcache_table(c, 1)[0], kvcache_table(c, 0)[0]);
    assert_int_equal(kvcache_table(c, 1)[1], kvcache_table(c, 0)[1]);
    assert_int_not_equal(kvcache_table(c, 1)[2], kvcache_table(c, 0)[2]);
    append(c, 1, 30, 2);
    append(c, 0, 30, 3);
    holds(c, 0, 0, 150, 1);
    holds(c, 0, 150, 180, 3);
    holds(c, 1, 0, 140, 1);
    holds(c, 1, 140, 170, 2);
    must(kvcache_fork(c, 2, kvcache_table(c, 0), 128)); /* at a page boundary: nothing is copied */
    assert_int_equal(kvcache_unused(c), before - 1);
    kvcache_close(c);
}

/* A timeline that is cut back into a page that others have must not write there. */
static void a_shared_page_is_copied_before_it_is_written(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 2, 256, 256)); /* 6 pages */
    append(c, 0, 128, 1);
    must(kvcache_fork(c, 1, kvcache_table(c, 0), 128));
    kvcache_truncate(c, 1, 70);
    assert_int_equal(kvcache_table(c, 1)[1], kvcache_table(c, 0)[1]);
    append(c, 1, 40, 2);
    assert_int_not_equal(kvcache_table(c, 1)[1], kvcache_table(c, 0)[1]);
    holds(c, 0, 0, 128, 1);
    holds(c, 1, 0, 70, 1);
    holds(c, 1, 70, 110, 2);
    kvcache_retain(c, kvcache_table(c, 1)[1]);
    int32_t retained = kvcache_table(c, 1)[1];
    append(c, 1, 2, 3);
    assert_int_not_equal(kvcache_table(c, 1)[1], retained);
    assert_true(kvcache_idle(c, retained));
    holds(c, 1, 70, 110, 2);
    kvcache_close(c);
}

static void a_page_returns_when_its_last_user_is_gone(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 3, 256, 256)); /* 7 pages */
    assert_int_equal(kvcache_pages(c), 7);
    append(c, 0, 128, 1);
    must(kvcache_fork(c, 1, kvcache_table(c, 0), 128));
    int32_t page = kvcache_table(c, 0)[0];
    kvcache_truncate(c, 0, 0);
    assert_int_equal(kvcache_unused(c), 5);
    kvcache_retain(c, page);
    kvcache_truncate(c, 1, 0);
    assert_int_equal(kvcache_unused(c), 6);
    assert_int_equal(kvcache_idle_pages(c), 1);
    assert_true(kvcache_idle(c, page));
    must(kvcache_fork(c, 2, &page, 64));
    assert_int_equal(kvcache_idle_pages(c), 0);
    holds(c, 2, 0, 64, 1);
    kvcache_release(c, page);
    assert_int_equal(kvcache_unused(c), 6);
    kvcache_truncate(c, 2, 0);
    assert_int_equal(kvcache_unused(c), 7);
    kvcache_close(c);
}

static void sharing_in_a_full_pool_changes_nothing(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 2, 256, 128)); /* 4 pages */
    append(c, 0, 256, 1);
    must_fail(kvcache_fork(c, 1, kvcache_table(c, 0), 65), PESC_NOMEM, "none is free");
    assert_int_equal(kvcache_length(c, 1), 0);
    must(kvcache_fork(c, 1, kvcache_table(c, 0), 192));
    kvcache_truncate(c, 1, 100);
    must_fail(kvcache_reserve(c, 1, 1), PESC_NOMEM, "1 pages are needed, 0 are free");
    holds(c, 1, 0, 100, 1);
    kvcache_truncate(c, 1, 64);
    kvcache_truncate(c, 0, 192);
    append(c, 1, 1, 2);
    holds(c, 0, 0, 192, 1);
    kvcache_close(c);
}

static void layers_are_apart(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must(kvcache_open(&c, dev, &cfg, DT_F32, 2, 64, 128));
    tensor k0 = kvcache_keys(c, 0), k1 = kvcache_keys(c, 1), v0 = kvcache_values(c, 0);
    assert_int_equal(k0.nd, 3);
    assert_int_equal(k0.ne[1], KV_PAGE_TOKENS);
    assert_int_equal(k0.ne[2], 18);
    assert_ptr_equal((char *)k0.data + tensor_bytes(&k0), k1.data);
    assert_ptr_not_equal(k0.data, v0.data);
    kvcache_close(c);
}

static void too_large_is_refused(void **state)
{
    (void)state;
    kvcache *c = NULL;
    must_fail(kvcache_open(&c, dev, &cfg, DT_F32, 1, INT32_MAX, (int64_t)1 << 50), PESC_NOMEM,
              "too large");
    assert_null(c);
    must_fail(kvcache_open(&c, dev, &cfg, DT_F32, 1, INT32_MAX, (int64_t)1 << 34), PESC_NOMEM,
              "the key-value cache needs");
    assert_null(c);
    kvcache_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grows_and_shrinks),
        cmocka_unit_test(timelines_never_share),
        cmocka_unit_test(pages_are_counted_exactly),
        cmocka_unit_test(layers_are_apart),
        cmocka_unit_test(too_large_is_refused),
        cmocka_unit_test(a_fork_shares_full_pages_and_copies_the_last),
        cmocka_unit_test(a_shared_page_is_copied_before_it_is_written),
        cmocka_unit_test(a_page_returns_when_its_last_user_is_gone),
        cmocka_unit_test(sharing_in_a_full_pool_changes_nothing),
    };
    return cmocka_run_group_tests_name("kvcache", tests, open_all, close_all);
}
