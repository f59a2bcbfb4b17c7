#include "data/dataset.h"

#include "support/check.h"
#include "support/files.h"

#include <stdio.h>

/* Record i: ids i, 10+i, 20+i, ..., of length n; the first token is a prompt. */
static const char *records(const char *name, int count, int length)
{
    static char text[1 << 16];
    size_t n = 0;
    for (int i = 0; i < count; i++) {
        n += (size_t)snprintf(text + n, sizeof text - n, "{\"input_ids\":[%d", i);
        for (int k = 1; k < length; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, ",%d", k * 10 + i);
        n += (size_t)snprintf(text + n, sizeof text - n, "],\"labels\":[-100");
        for (int k = 1; k < length; k++)
            n += (size_t)snprintf(text + n, sizeof text - n, ",%d", k * 10 + i);
        n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
    }
    return files_put(name, text, n);
}

static dataset *open_one(const char *const *path, dataset_options o)
{
    dataset *d = NULL;
    o.paths = path;
    o.n_paths = 1;
    o.vocab = o.vocab ? o.vocab : 1000;
    must(dataset_open(&d, &o));
    return d;
}

static int32_t first_id(dataset *d, uint64_t position)
{
    const sequence *list;
    size_t n;
    must(dataset_at(d, position, &list, &n));
    assert_int_equal(n, 1);
    return list[0].ids[0];
}

static void in_order_without_shuffle(void **state)
{
    (void)state;
    const char *path = records("a.jsonl", 7, 4);
    dataset *d = open_one(&path, (dataset_options){ .seq_len = 8 });
    assert_int_equal(dataset_count(d), 7);
    assert_string_equal(dataset_format(d, 0), "ids");
    for (uint64_t p = 0; p < 20; p++) /* epochs follow each other */
        assert_int_equal(first_id(d, p), p % 7);
    const sequence *list;
    size_t n;
    must(dataset_at(d, 2, &list, &n));
    assert_int_equal(list[0].n, 4);
    assert_int_equal(list[0].ids[3], 32);
    assert_int_equal(list[0].labels[0], -100);
    assert_int_equal(list[0].labels[3], 32);
    dataset_close(d);
}

/* Every epoch is a permutation, a different one, and a position can be asked for at any time. */
static void shuffles_each_epoch(void **state)
{
    (void)state;
    enum { N = 50 };
    const char *path = records("b.jsonl", N, 3);
    dataset *d = open_one(&path, (dataset_options){ .seq_len = 8, .shuffle = true, .seed = 5 });
    int32_t order[2][N];
    for (int e = 0; e < 2; e++) {
        bool seen[N] = { 0 };
        for (int i = 0; i < N; i++) {
            order[e][i] = first_id(d, (uint64_t)(e * N + i));
            assert_false(seen[order[e][i]]);
            seen[order[e][i]] = true;
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_int_equal(first_id(d, 17), order[0][17]); /* out of order: the same */
    dataset *other = open_one(&path, (dataset_options){ .seq_len = 8, .shuffle = true, .seed = 6 });
    int same = 0;
    for (uint64_t i = 0; i < N; i++)
        same += first_id(other, i) == order[0][i];
    assert_true(same < N / 2);
    dataset_close(other);
    dataset_close(d);
}

static void cuts_what_is_too_long(void **state)
{
    (void)state;
    const char *path = records("c.jsonl", 3, 10);
    const sequence *list;
    size_t n;
    dataset *d = open_one(&path, (dataset_options){ .seq_len = 4, .over = OVER_DROP });
    must(dataset_at(d, 0, &list, &n));
    assert_int_equal(n, 0);
    dataset_close(d);

    const uint64_t unused[] = { 0, 2, 3 };
    path = records("e.jsonl", 6, 4);
    d = open_one(&path, (dataset_options){ .seq_len = 8 });
    must(dataset_leave_out(d, unused, 3));
    assert_int_equal(dataset_used(d), 3);
    assert_int_equal(dataset_count(d), 6);
    const int32_t left[] = { 1, 4, 5, 1, 4, 5 };
    for (uint64_t p = 0; p < 6; p++)
        assert_int_equal(first_id(d, p), left[p]);
    dataset_close(d);
    path = records("c.jsonl", 3, 10);

    d = open_one(&path, (dataset_options){ .seq_len = 4, .over = OVER_TRUNCATE });
    must(dataset_at(d, 1, &list, &n));
    assert_int_equal(n, 1);
    assert_int_equal(list[0].n, 4);
    assert_int_equal(list[0].ids[3], 31);
    dataset_close(d);

    d = open_one(&path, (dataset_options){ .seq_len = 4, .over = OVER_SPLIT });
    must(dataset_at(d, 0, &list, &n));
    assert_int_equal(n, 3); /* 4 + 4 + 2 */
    int32_t at = 0;
    for (size_t i = 0; i < n; i++) /* no token is lost at a cut */
        for (int32_t k = 0; k < list[i].n; k++, at++) {
            assert_int_equal(list[i].ids[k], at * 10);
            assert_int_equal(list[i].labels[k], at ? at * 10 : -100);
        }
    assert_int_equal(at, 10);
    dataset_close(d);

    d = open_one(&path, (dataset_options){ .seq_len = 4, .over = OVER_ERROR });
    must_fail(dataset_at(d, 2, &list, &n), PESC_FORMAT,
              "c.jsonl:3: is 10 tokens long, over seq_len 4");
    dataset_close(d);
}

static void names_bad_records(void **state)
{
    (void)state;
    const struct {
        const char *line, *sentence;
        pesc_status status;
    } rows[] = {
        { "{\"input_ids\":[1,2,3],\"labels\":[-100,-100,-100]}", "nothing to train on",
          PESC_FORMAT },
        { "{\"input_ids\":[1,2,3],\"labels\":[1,-100,-100]}", "nothing to train on", PESC_FORMAT },
        { "{\"input_ids\":[1,99,3],\"labels\":[1,99,3]}", "do not belong together", PESC_FORMAT },
        { "{\"input_ids\":[1,50,3],\"labels\":[-100,-100,3]}", "token 1 is 50", PESC_FORMAT },
        { "{\"input_ids\":[1,2,3],\"labels\":[1,50,3]}", "do not belong together", PESC_FORMAT },
        { "{\"instruction\":\"a\",\"output\":\"b\"}", "no tokenizer", PESC_UNSUPPORTED },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[256];
        snprintf(text, sizeof text, "%s\n", rows[i].line);
        const char *path = files_text("bad.jsonl", text);
        dataset *d = open_one(&path, (dataset_options){ .seq_len = 8, .vocab = 50 });
        const sequence *list;
        size_t n;
        must_fail(dataset_at(d, 0, &list, &n), rows[i].status, rows[i].sentence);
        assert_non_null(strstr(pesc_last_error(), "bad.jsonl:1"));
        dataset_close(d);
    }
}

/* The parts are disjoint, together all records, the same ones again, and others by another seed. */
static void splits_off_a_part(void **state)
{
    (void)state;
    enum { N = 50 };
    const char *path = records("s.jsonl", N, 3);
    const sequence *list;
    size_t n;
    bool held[3][N] = { { 0 } };
    for (int round = 0; round < 3; round++) {
        dataset *v, *d = open_one(&path, (dataset_options){ .seq_len = 8,
                                                            .shuffle = round == 1,
                                                            .seed = round == 2 ? 9 : 5 });
        int seen[N] = { 0 };
        must(dataset_split(d, 0.1, &v));
        assert_int_equal(dataset_count(v), 5);
        assert_int_equal(dataset_count(d), 45);
        int32_t last = -1;
        for (uint64_t i = 0; i < 5; i++) {
            const sequence *samples;
            size_t n_samples;
            must(dataset_samples(v, i, &samples, &n_samples));
            assert_int_equal(n_samples, 1);
            int32_t whole = samples[0].ids[0];
            must(dataset_at(v, i, &list, &n));
            assert_int_equal(list[0].ids[0], whole);
            assert_true(list[0].ids[0] > last); /* in the order of the file, never shuffled */
            last = list[0].ids[0];
            held[round][last] = true;
            seen[last]++;
        }
        last = -1;
        for (uint64_t i = 0; i < 45; i++) {
            int32_t id = first_id(d, i);
            assert_true(round == 1 || id > last);
            last = id;
            seen[id]++;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
        dataset_close(v);
        dataset_close(d);
    }
    assert_memory_equal(held[0], held[1], sizeof held[0]);
    assert_memory_not_equal(held[0], held[2], sizeof held[0]);
}

/* At least one record on each side. */
static void splits_small_data(void **state)
{
    (void)state;
    const char *path = records("t.jsonl", 2, 3);
    for (int i = 0; i < 2; i++) {
        dataset *v, *d = open_one(&path, (dataset_options){ .seq_len = 8 });
        must(dataset_split(d, i ? 0.001 : 0.999, &v));
        assert_int_equal(dataset_count(v), 1);
        assert_int_equal(dataset_count(d), 1);
        dataset_close(v);
        dataset_close(d);
    }
    path = records("t.jsonl", 1, 3);
    dataset *v, *d = open_one(&path, (dataset_options){ .seq_len = 8 });
    must_fail(dataset_split(d, 0.5, &v), PESC_USAGE, "one record");
    dataset_close(d);
}

static void hash_follows_the_bytes(void **state)
{
    (void)state;
    const char *path = records("d.jsonl", 3, 4);
    dataset *a = open_one(&path, (dataset_options){ .seq_len = 8 });
    uint64_t before = dataset_hash(a);
    dataset_close(a);
    a = open_one(&path, (dataset_options){ .seq_len = 8 });
    assert_true(dataset_hash(a) == before);
    dataset_close(a);
    path = records("d.jsonl", 3, 5);
    a = open_one(&path, (dataset_options){ .seq_len = 8 });
    assert_true(dataset_hash(a) != before);
    dataset_close(a);

    const char *two[] = { files_text("e1.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,2]}\n"),
                          files_text("e2.jsonl", "{\"input_ids\":[1,2],\"labels\":[1,2]}\n") };
    uint64_t hash[3];
    for (int i = 0; i < 3; i++) { /* as they are, then with a change in each file */
        if (i > 0)
            two[i - 1] = files_text(i == 1 ? "e1.jsonl" : "e2.jsonl",
                                    "{\"input_ids\":[1,3],\"labels\":[1,3]}\n");
        must(dataset_open(
            &a, &(dataset_options){ .paths = two, .n_paths = 2, .seq_len = 8, .vocab = 10 }));
        hash[i] = dataset_hash(a);
        dataset_close(a);
    }
    assert_true(hash[1] != hash[0] && hash[2] != hash[1]);
}

/* Labelled answers: each prompt with the answer before it in its block of used records; the first
 * of a block has that of the last. */
static void mismatched_answers(void **state)
{
    (void)state;
    static const char text[] =
        "{\"prompt_ids\":[1],\"completion_ids\":[11],\"label\":true}\n"
        "{\"prompt_ids\":[2],\"completion_ids\":[12,12,12,12,12,12],\"label\":true}\n"
        "{\"prompt_ids\":[3],\"completion_ids\":[13],\"label\":false}\n"
        "{\"prompt_ids\":[4],\"completion_ids\":[14],\"label\":true}\n"
        "{\"prompt_ids\":[5,5,5],\"completion_ids\":[15,15],\"label\":0}\n"
        "{\"prompt_ids\":[6],\"completion_ids\":[16],\"label\":1}\n";
    const char *path = files_text("labels.jsonl", text);
    dataset *d = open_one(&path, (dataset_options){ .wanted = RECORD_LABELLED, .seq_len = 4 });
    const uint64_t long_ones[] = { 1, 4 };
    must(dataset_leave_out(d, long_ones, 2));
    /* used: 0 2 3 5; blocks of 3: (0 2 3) (5) */
    static const int32_t want[][2] = { { 0, 14 }, { 2, 11 }, { 3, 13 }, { 5, 16 } };
    for (size_t i = 0; i < 4; i++) {
        sequence s;
        must(dataset_mismatched(d, (uint64_t)want[i][0], 3, &s));
        assert_int_equal(s.n, 2);
        assert_int_equal(s.ids[0], want[i][0] + 1);
        assert_int_equal(s.ids[1], want[i][1]);
        assert_int_equal(s.labels[0], -100);
        assert_int_equal(s.labels[1], want[i][1]);
    }
    dataset_close(d);
}

/* Both answers of a pair are used, cut or dropped. */
static void pairs_are_cut_together(void **state)
{
    (void)state;
    static const char text[] =
        "{\"prompt_ids\":[1,2],\"chosen_ids\":[3],\"rejected_ids\":[4,5,6]}\n";
    const char *path = files_text("pairs.jsonl", text);
    static const struct {
        over_length over;
        int32_t seq_len, n, rejected;
    } rows[] = { { OVER_DROP, 5, 2, 5 },
                 { OVER_DROP, 4, 0, 0 },
                 { OVER_TRUNCATE, 4, 2, 4 },
                 { OVER_TRUNCATE, 3, 2, 3 },
                 { OVER_TRUNCATE, 2, 0, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dataset *d = open_one(&path, (dataset_options){ .wanted = RECORD_PAIR,
                                                        .seq_len = rows[i].seq_len,
                                                        .over = rows[i].over });
        const sequence *list;
        size_t n;
        must(dataset_at(d, 0, &list, &n));
        assert_int_equal(n, rows[i].n);
        if (n) {
            assert_true(list[0].role == ANSWER_CHOSEN && list[1].role == ANSWER_REJECTED);
            assert_int_equal(list[0].n, 3);
            assert_int_equal(list[1].n, rows[i].rejected);
        }
        dataset_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_order_without_shuffle), cmocka_unit_test(mismatched_answers),
        cmocka_unit_test(pairs_are_cut_together),   cmocka_unit_test(shuffles_each_epoch),
        cmocka_unit_test(cuts_what_is_too_long),    cmocka_unit_test(names_bad_records),
        cmocka_unit_test(hash_follows_the_bytes),   cmocka_unit_test(splits_off_a_part),
        cmocka_unit_test(splits_small_data),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
