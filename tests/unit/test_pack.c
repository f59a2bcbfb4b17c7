#include "data/pack.h"

#include "support/check.h"

static packer *open_pack(int32_t tokens, int32_t seqs)
{
    packer *p = NULL;
    must(pack_open(&p, (pack_limits){ .max_tokens = tokens, .max_seqs = seqs }));
    return p;
}

/* A sequence of n tokens first, first + 1, ..., each of which predicts the one after it. */
static void add(packer *p, int32_t first, int32_t n, uintptr_t tag)
{
    int32_t ids[64];
    for (int32_t i = 0; i < n; i++)
        ids[i] = first + i;
    must(pack_add(
        p, &(pack_item){ .ids = ids, .n = n, .next = ids + 1, .n_next = n - 1, .tag = tag }));
}

static void next_fit_in_order(void **state)
{
    (void)state;
    packer *p = open_pack(10, 8);
    add(p, 100, 6, 1);
    assert_int_equal(pack_room(p), 4);
    add(p, 200, 5, 2);  /* begins the second micro-batch */
    add(p, 300, 4, 3);  /* would have fitted the first: order is kept */
    add(p, 400, 12, 4); /* longer than a micro-batch may be: alone in one */
    assert_int_equal(pack_count(p), 3);
    assert_int_equal(pack_tokens(p), 27);
    assert_int_equal(pack_targets(p), 23);
    assert_int_equal(pack_seqs(p), 4);
    micro_batch m = pack_at(p, 1);
    assert_int_equal(m.n_seqs, 2);
    assert_int_equal(m.n_tokens, 9);
    assert_int_equal(m.n_targets, 7);
    assert_int_equal(m.seqs[1].ids[3], 303);
    assert_int_equal(m.spans[1].first, 5);
    assert_int_equal(m.spans[1].first_target, 4);
    assert_int_equal(m.spans[1].n_targets, 3);
    assert_int_equal(m.spans[1].tag, 3);
    const int32_t rows[] = { 0, 1, 2, 3, 5, 6, 7 };
    const int32_t targets[] = { 201, 202, 203, 204, 301, 302, 303 };
    assert_memory_equal(m.rows, rows, sizeof rows);
    assert_memory_equal(m.targets, targets, sizeof targets);
    assert_int_equal(pack_at(p, 2).seqs[0].n, 12);
    pack_close(p);
}

static void as_many_sequences_as_allowed(void **state)
{
    (void)state;
    packer *p = open_pack(100, 2);
    for (int i = 0; i < 5; i++)
        add(p, i, 3, 0);
    assert_int_equal(pack_count(p), 3);
    assert_int_equal(pack_at(p, 0).n_seqs, 2);
    assert_int_equal(pack_at(p, 2).n_seqs, 1);
    pack_close(p);
    p = open_pack(100, 1); /* no packing */
    add(p, 1, 3, 0);
    assert_int_equal(pack_room(p), 0);
    add(p, 5, 3, 0);
    assert_int_equal(pack_count(p), 2);
    pack_close(p);
}

/* Targets below 0 are left out, and a sequence may have none at all. */
static void only_targets_have_rows(void **state)
{
    (void)state;
    packer *p = open_pack(100, 8);
    const int32_t ids[] = { 7, 8, 9 }, next[] = { -1, 9, -100 };
    must(pack_add(p, &(pack_item){ .ids = ids, .n = 3 }));
    must(pack_add(
        p, &(pack_item){ .ids = ids, .n = 3, .next = next, .n_next = 3, .past = 4, .kv_seq = 2 }));
    micro_batch m = pack_at(p, 0);
    assert_int_equal(m.n_targets, 1);
    assert_int_equal(m.rows[0], 4);
    assert_int_equal(m.targets[0], 9);
    assert_int_equal(m.spans[0].n_targets, 0);
    assert_int_equal(m.seqs[1].past, 4);
    assert_int_equal(m.seqs[1].kv_seq, 2);
    pack_close(p);
}

/* The arrays grow while sequences are added; what was added first is still where it is said to be.
 */
static void grows_and_starts_again(void **state)
{
    (void)state;
    packer *p = open_pack(50, 1000);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i++)
            add(p, i * 10, 1 + i % 7, (uintptr_t)i);
        int seq = 0;
        for (int32_t k = 0; k < pack_count(p); k++) {
            micro_batch m = pack_at(p, k);
            assert_true(m.n_tokens <= 50);
            for (int32_t s = 0; s < m.n_seqs; s++, seq++) {
                assert_int_equal(m.spans[s].tag, seq);
                assert_int_equal(m.seqs[s].n, 1 + seq % 7);
                assert_int_equal(m.seqs[s].ids[0], seq * 10);
            }
        }
        assert_int_equal(seq, 300);
        pack_clear(p);
        assert_int_equal(pack_count(p), 0);
        assert_int_equal(pack_tokens(p), 0);
        assert_int_equal(pack_room(p), 50);
    }
    pack_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_fit_in_order),
        cmocka_unit_test(as_many_sequences_as_allowed),
        cmocka_unit_test(only_targets_have_rows),
        cmocka_unit_test(grows_and_starts_again),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
