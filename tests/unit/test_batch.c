#include "train/batch.h"

#include "support/check.h"
#include "support/files.h"

/* Lengths 3, 5, 4, 2; targets 2, 3, 1, 1 (the first position of each is not predicted). */
static const char lines[] = "{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n"
                            "{\"input_ids\":[4,5,6,7,8],\"labels\":[-100,-100,6,7,8]}\n"
                            "{\"input_ids\":[9,10,11,12],\"labels\":[-100,-100,-100,12]}\n"
                            "{\"input_ids\":[13,14],\"labels\":[-100,14]}\n";

static dataset *data;

static batch *load(batch_options o, uint64_t first, int32_t count)
{
    batch *b = NULL;
    must(batch_open(&b, data, o));
    must(batch_load(b, first, count));
    return b;
}

static void packs_in_order(void **state)
{
    (void)state;
    batch *b = load((batch_options){ .micro_tokens = 9, .packing = true }, 0, 4);
    assert_int_equal(batch_micros(b), 2);
    assert_int_equal(batch_tokens(b), 14);
    assert_int_equal(batch_targets(b), 7);
    micro_batch m = batch_micro(b, 0);
    assert_int_equal(m.n_seqs, 2); /* 3 + 5; 4 more would be 12 */
    assert_int_equal(m.n_tokens, 8);
    const int32_t rows[] = { 0, 1, 4, 5, 6 }, targets[] = { 2, 3, 6, 7, 8 };
    assert_int_equal(m.n_targets, 5);
    assert_memory_equal(m.rows, rows, sizeof rows);
    assert_memory_equal(m.targets, targets, sizeof targets);
    m = batch_micro(b, 1);
    assert_int_equal(m.n_seqs, 2);
    assert_int_equal(m.rows[0], 2);
    assert_int_equal(m.targets[0], 12);
    assert_int_equal(m.rows[1], 4);
    assert_int_equal(m.seqs[1].ids[0], 13);
    batch_close(b);
}

/* However a step falls into forwards, its weights are the same and add up to 1. */
static void weights_do_not_depend_on_packing(void **state)
{
    (void)state;
    const float by_token[7] = { 1 / 7.f, 1 / 7.f, 1 / 7.f, 1 / 7.f, 1 / 7.f, 1 / 7.f, 1 / 7.f };
    const float by_sequence[7] = {
        1 / 8.f, 1 / 8.f, 1 / 12.f, 1 / 12.f, 1 / 12.f, 1 / 4.f, 1 / 4.f
    };
    for (int kind = 0; kind < 2; kind++)
        for (int packing = 0; packing < 2; packing++) {
            batch *b = load((batch_options){ .micro_tokens = packing ? 64 : 5,
                                             .packing = packing,
                                             .loss = kind ? LOSS_SEQUENCE : LOSS_TOKEN },
                            0, 4);
            assert_int_equal(batch_micros(b), packing ? 1 : 4);
            int at = 0;
            for (int32_t i = 0; i < batch_micros(b); i++)
                for (int32_t k = 0; k < batch_micro(b, i).n_targets; k++, at++)
                    assert_float_equal(batch_micro(b, i).weights[k],
                                       (kind ? by_sequence : by_token)[at], 1e-7);
            assert_int_equal(at, 7);
            batch_close(b);
        }
}

static void goes_on_into_the_next_epoch(void **state)
{
    (void)state;
    batch *b = load((batch_options){ .micro_tokens = 64, .packing = true }, 3, 3);
    micro_batch m = batch_micro(b, 0);
    assert_int_equal(m.n_seqs, 3);
    assert_int_equal(m.seqs[0].ids[0], 13);
    assert_int_equal(m.seqs[1].ids[0], 1);
    must(batch_load(b, 0, 1)); /* a smaller one in the same buffers */
    assert_int_equal(batch_tokens(b), 3);
    batch_close(b);
}

static void records_read_ahead_are_those_of_the_next_load(void **state)
{
    (void)state;
    batch *b = load((batch_options){ .micro_tokens = 64, .packing = true }, 0, 1);
    int32_t now = batch_micro(b, 0).seqs[0].ids[0];
    batch_read_ahead(b, 3, 1);
    assert_int_equal(batch_micro(b, 0).seqs[0].ids[0], now); /* it stays as it is */
    must(batch_load(b, 3, 1));
    assert_int_equal(batch_micro(b, 0).seqs[0].ids[0], 13);
    assert_float_equal(batch_micro(b, 0).weights[0] * (float)batch_targets(b), 1, 1e-6);
    batch_read_ahead(b, 3, 1);
    must(batch_load(b, 0, 1)); /* others than were read */
    assert_int_equal(batch_micro(b, 0).seqs[0].ids[0], now);
    batch_close(b);
}

static int open_data(void **state)
{
    (void)state;
    const char *path = files_text("a.jsonl", lines);
    return dataset_open(
        &data, &(dataset_options){ .paths = &path, .n_paths = 1, .seq_len = 16, .vocab = 100 });
}

static int close_data(void **state)
{
    (void)state;
    dataset_close(data);
    return 0;
}

/* A pair is never split: the second does not fit what is left, so both begin a micro-batch. With
 * `whole_chosen` the prompt of the chosen answer is predicted too. */
static void pairs_stay_together(void **state)
{
    (void)state;
    static const char pairs[] =
        "{\"prompt_ids\":[1,2],\"chosen_ids\":[3],\"rejected_ids\":[4,5]}\n"
        "{\"prompt_ids\":[6,7],\"chosen_ids\":[8,9],\"rejected_ids\":[10,11,12]}\n";
    const char *path = files_text("pairs.jsonl", pairs);
    dataset *d = NULL;
    must(dataset_open(
        &d, &(dataset_options){
                .paths = &path, .n_paths = 1, .wanted = RECORD_PAIR, .seq_len = 8, .vocab = 100 }));
    for (int whole = 0; whole < 2; whole++)
        for (int packing = 0; packing < 2; packing++) {
            batch *b = NULL;
            must(batch_open(
                &b, d,
                (batch_options){ .micro_tokens = 12, .packing = packing, .whole_chosen = whole }));
            must(batch_load(b, 0, 2));
            assert_int_equal(batch_micros(b), 2);
            assert_int_equal(batch_tokens(b), 16);
            micro_batch m = batch_micro(b, 1);
            assert_int_equal(m.n_seqs, 2);
            const batch_answer *chosen = batch_answer_of(b, &m.spans[0]);
            const batch_answer *rejected = batch_answer_of(b, &m.spans[1]);
            assert_true(chosen->role == ANSWER_CHOSEN && rejected->role == ANSWER_REJECTED);
            assert_true(chosen->record == 1 && rejected->record == 1);
            assert_int_equal(chosen->first, whole);
            assert_int_equal(chosen->n, 2);
            assert_int_equal(rejected->first, 0);
            assert_int_equal(rejected->n, 3);
            assert_int_equal(m.targets[chosen->first], 8);
            batch_counts n = batch_count(b);
            assert_true(n.chosen == 2 && n.rejected == 2 && n.chosen_tokens == 3);
            assert_int_equal(n.chosen_targets, whole ? 5 : 3);
            batch_close(b);
        }
    dataset_close(d);
}

/* Each domain fills micro-batches of its own; records keep their order in them, and records of no
 * domain come first. */
static void domains_do_not_mix(void **state)
{
    (void)state;
    static const char text[] = "{\"input_ids\":[1,2],\"labels\":[1,2],\"domain\":\"b\"}\n"
                               "{\"input_ids\":[3,4],\"labels\":[3,4],\"domain\":\"a\"}\n"
                               "{\"input_ids\":[5,6],\"labels\":[5,6],\"domain\":\"c\"}\n"
                               "{\"input_ids\":[7,8],\"labels\":[7,8],\"domain\":\"b\"}\n"
                               "{\"input_ids\":[9,10],\"labels\":[9,10],\"domain\":\"a\"}\n"
                               "{\"input_ids\":[11,12],\"labels\":[11,12],\"domain\":\"a\"}\n";
    static const struct {
        int32_t group, n, first;
    } want[] = { { 0, 1, 5 }, { 1, 2, 3 }, { 1, 1, 11 }, { 2, 2, 1 } };
    char a[] = "a", b[] = "b", *names[] = { a, b };
    const expertcfg domains = { .domains = names, .n_domains = 2 };
    const char *path = files_text("domains.jsonl", text);
    dataset *d = NULL;
    batch *all = NULL;
    must(dataset_open(
        &d, &(dataset_options){ .paths = &path, .n_paths = 1, .seq_len = 8, .vocab = 100 }));
    must(batch_open(&all, d,
                    (batch_options){ .micro_tokens = 4, .packing = true, .domains = &domains }));
    must(batch_load(all, 0, 6));
    assert_int_equal(batch_micros(all), 4);
    for (int i = 0; i < 4; i++) {
        micro_batch m = batch_micro(all, i);
        assert_int_equal(m.group, want[i].group);
        assert_int_equal(m.n_seqs, want[i].n);
        assert_int_equal(m.seqs[0].ids[0], want[i].first);
    }
    batch_close(all);
    dataset_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packs_in_order),
        cmocka_unit_test(domains_do_not_mix),
        cmocka_unit_test(pairs_stay_together),
        cmocka_unit_test(weights_do_not_depend_on_packing),
        cmocka_unit_test(goes_on_into_the_next_epoch),
        cmocka_unit_test(records_read_ahead_are_those_of_the_next_load),
    };
    return cmocka_run_group_tests_name("batch", tests, open_data, close_data);
}
