/* The scratch of a GPU's ops, planned: pure functions, so no GPU is needed. */
#include "backend/cuda_scratch.h"
#include "support/check.h"

enum { N_SM = 132 };

static const work_limits limits = { .act = DT_BF16,
                                    .tokens = 8192,
                                    .seqs = 64,
                                    .dim = 4096,
                                    .widest = 14336,
                                    .heads = 32,
                                    .v_dim = 128,
                                    .cached = 4096,
                                    .experts = 8,
                                    .k = 2,
                                    .converted = 2 * 4096 * 14336,
                                    .trained = 50000000,
                                    .quantised = 8,
                                    .train = true };

static int64_t up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* What an op asks for at `part` of 8 of every limit. */
static void each_op_fits(int64_t part, size_t bytes)
{
    const work_limits *w = &limits;
    int64_t tokens = up(w->tokens * part, 8), seqs = up(w->seqs * part, 8);
    int64_t widest = up(w->widest * part, 8), experts = up(w->experts * part, 8);
    assert_true(scratch_converted(w->converted * part / 8, DT_BF16) <= bytes);
    assert_true(scratch_converted(w->converted / 2, DT_BF16) * 2 <= bytes);
    assert_true(scratch_sort(tokens * w->k, experts) <= bytes);
    assert_true(scratch_balance(experts) <= bytes);
    assert_true(scratch_columns(tokens, widest) <= bytes);
    assert_true(scratch_columns(tokens * w->heads, w->v_dim) <= bytes);
    assert_true(scratch_router(w->dim) <= bytes);
    assert_true(scratch_tiles(tokens, seqs) + scratch_attention_stats(tokens, w->heads) <= bytes);
    assert_true(scratch_tiles(tokens, seqs) + scratch_decode(seqs, w->heads, w->v_dim, w->cached) <=
                bytes);
    assert_true(scratch_tiles(tokens, seqs) +
                    scratch_tile_parts(N_SM, tokens, w->heads, w->v_dim, w->cached) <=
                bytes);
    assert_true(scratch_squares(w->trained * part / 8) <= bytes);
    assert_true(scratch_codes() <= bytes && scratch_expert_order() <= bytes);
    assert_true(scratch_means(experts) <= bytes);
}

static void limits_bound_every_op(void **state)
{
    (void)state;
    size_t bytes = scratch_for_work(N_SM, &limits);
    for (int64_t part = 1; part <= 8; part++)
        each_op_fits(part, bytes);
    for (int64_t n = 1; n <= limits.widest; n += 61)
        for (int64_t k = 64; k <= 14336; k *= 2) {
            int64_t sums = scratch_split_k(N_SM, n, k) * n;
            assert_true((size_t)(32 * sums) * sizeof(float) <= scratch_split_k_bytes(N_SM, 32, n));
            assert_true(scratch_split_k_bytes(N_SM, 32, n) <= bytes);
        }
}

/* Each kind of work alone is bounded too: nothing hides below the largest. */
static void each_kind_of_work_counts(void **state)
{
    (void)state;
    work_limits w = { .act = DT_BF16, .tokens = 4096, .seqs = 4, .heads = 8, .v_dim = 64 };
    size_t least = scratch_for_work(N_SM, &w);
    assert_true(least >= scratch_tiles(4096, 4) && least < 1 << 20);
    w.train = true;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_attention_stats(4096, 8));
    w.widest = 11008;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_columns(4096, 11008));
    w.train = false;
    w.cached = 8192;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_decode(4, 8, 64, 8192));
    w.converted = 1 << 24;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_converted(1 << 24, DT_BF16));
    w = (work_limits){ .tokens = 4096, .fp8_weights = 1 << 24, .fp8_columns = 8192 };
    assert_true(scratch_for_work(N_SM, &w) >= (4096 << 13) + (1 << 24) + 4096 * sizeof(float));
    w = (work_limits){ .trained = (int64_t)1 << 40 };
    assert_true(scratch_for_work(N_SM, &w) >= scratch_squares((int64_t)1 << 40));
    w = (work_limits){ .trained = 1 };
    assert_true(scratch_for_work(N_SM, &w) >= scratch_codes());
    w = (work_limits){ .quantised = 1 << 20 };
    assert_true(scratch_for_work(N_SM, &w) >= scratch_means(1 << 20));
    w = (work_limits){ .tokens = 1 << 20, .experts = 512, .k = 8 };
    assert_true(scratch_for_work(N_SM, &w) >= scratch_sort(8 << 20, 512));
    w.train = true;
    w.experts = 1 << 20;
    w.tokens = 1;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_balance(1 << 20));
    w = (work_limits){ .tokens = 1, .experts = 1, .k = 1 };
    assert_true(scratch_for_work(N_SM, &w) >= scratch_expert_order());
    w.train = true;
    w.dim = 1 << 16;
    assert_true(scratch_for_work(N_SM, &w) >= scratch_router(1 << 16));
}

/* Tiles of which there are few: their parts fill the GPU once, and fit what is planned. */
static void tiles_are_cut_into_parts(void **state)
{
    (void)state;
    for (int64_t tokens = 2; tokens < 3000; tokens += 63)
        for (int64_t heads = 1; heads <= 128; heads += 9)
            for (int64_t keys = 64; keys <= 32768; keys *= 2) {
                int64_t each = scratch_tile_keys(N_SM, tokens, heads, keys), n = up(keys, each);
                size_t bytes = (size_t)(tokens * heads * n) * (2 + 128) * sizeof(float);
                assert_true(each % 64 == 0 && each >= TILE_LEAST && n <= TILE_PARTS);
                assert_true(n == 1 || up(tokens, 128) * heads * n <= TILE_BLOCKS * N_SM);
                assert_true(n == 1 || bytes <= scratch_tile_parts(N_SM, tokens, heads, 128, keys));
            }
    assert_int_equal(scratch_tile_keys(N_SM, 128, 32, 9024), 1152);
    assert_int_equal(scratch_tile_keys(N_SM, 1024, 32, 9024), 9024);
}

/* A router of many experts: its part of dy passes through f32. Of few, only for few tokens. */
static void routers_are_planned(void **state)
{
    (void)state;
    work_limits w = {
        .act = DT_BF16, .tokens = 8192, .dim = 2048, .experts = 64, .k = 6, .train = true
    };
    size_t all = (size_t)8192 * 2048 * sizeof(float);
    assert_true(scratch_for_work(N_SM, &w) >= all);
    w.experts = 16;
    assert_true(scratch_for_work(N_SM, &w) < all);
    assert_true(scratch_for_work(N_SM, &w) >= (size_t)255 * 2048 * sizeof(float));
    w.experts = 64;
    w.act = DT_F32;
    assert_true(scratch_for_work(N_SM, &w) < all);
}

/* The number of partial sums stays within what is planned for. */
static void parts_are_bounded(void **state)
{
    (void)state;
    assert_int_equal(scratch_sort(SORT_ALONE, 8), 0);
    assert_int_equal(scratch_sort(SORT_ALONE + 1, 8), 5 * 8 * 4);
    assert_int_equal(scratch_columns(64, 10), 0);
    assert_int_equal(scratch_columns(65, 10), 2 * 10 * 4);
    assert_int_equal(scratch_columns(1 << 20, 10), 256 * 10 * 4);
    assert_int_equal(scratch_split_k(132, 4096, 4096), 8);
    assert_int_equal(scratch_split_k(132, 256, 4096), 16);
    assert_int_equal(scratch_split_k(132, 256, 256), 2);
    assert_int_equal(scratch_split_k(132, 1 << 20, 4096), 1);
    for (int64_t keys = 1; keys < 300000; keys += 997) {
        int64_t each = scratch_decode_keys(keys);
        assert_true(each % 64 == 0 && each >= 256 && up(keys, each) <= DECODE_PARTS);
    }
    assert_int_equal(scratch_squares(0), sizeof(double));
    assert_int_equal(scratch_squares(16385), 2 * sizeof(double));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_bound_every_op),    cmocka_unit_test(each_kind_of_work_counts),
        cmocka_unit_test(tiles_are_cut_into_parts), cmocka_unit_test(routers_are_planned),
        cmocka_unit_test(parts_are_bounded),
    };
    return cmocka_run_group_tests_name("cuda_scratch", tests, NULL, NULL);
}
