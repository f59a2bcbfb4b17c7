#include "base/mem.h"
#include "support/check.h"
#include "support/spwire.h"
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#define PIECES(rows) rows, sizeof rows / sizeof *rows

static unigram *open_hf(const unigram_piece *pieces, size_t n, int64_t unk, bool bytes)
{
    unigram *u = NULL;
    unigram_spec spec = { "t", pieces, n, unk, bytes };
    must(unigram_open(&u, &spec));
    return u;
}

static void expect_ids(const unigram *u, const char *text, size_t n, const int32_t *ids)
{
    id_list got = { 0 };
    must(unigram_encode(u, text, strlen(text), &got));
    assert_int_equal(got.n, n);
    if (n > 0)
        assert_memory_equal(got.ids, ids, n * sizeof *ids);
    mem_free(got.ids);
}

#define IDS(...)                                                                                   \
    sizeof((int32_t[]){ __VA_ARGS__ }) / sizeof(int32_t), (int32_t[])                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* The example in the documentation of the `tokenizers` crate. */
static void cuts_as_documented(void **state)
{
    (void)state;
    static const unigram_piece p[] = { { "<unk>", 5, 0 }, { "a", 1, 0 },   { "b", 1, 0 },
                                       { "c", 1, 0 },     { "d", 1, 0 },   { "cd", 2, 1 },
                                       { "ab", 2, 2 },    { "abc", 3, 5 }, { "abcd", 4, 10 } };
    unigram *u = open_hf(PIECES(p), 0, false);
    expect_ids(u, "abcdacdxx", IDS(8, 1, 5, 0));
    expect_ids(u, "xxaxx", IDS(0, 1, 0));
    expect_ids(u, "x<unk>x", IDS(0)); /* the piece itself joins the run */
    expect_ids(u, "<unk>", IDS(0));
    id_list none = { 0 };
    must(unigram_encode(u, "", 0, &none));
    assert_int_equal(none.n, 0);
    unigram_close(u);
    unigram_close(NULL);
}

/* Checks against every possible cut of a short text. */
static double best_of_all(const unigram_piece *p, size_t n, const char *text)
{
    if (!*text)
        return 0;
    double best = -1000 + best_of_all(p, n, text + 1); /* unknown */
    for (size_t i = 0; i < n; i++) {
        if (strncmp(p[i].text, text, p[i].n) != 0)
            continue;
        double s = p[i].score + best_of_all(p, n, text + p[i].n);
        best = s > best ? s : best;
    }
    return best;
}

static void finds_the_best_cut(void **state)
{
    (void)state;
    srand(7);
    for (int round = 0; round < 300; round++) {
        static char texts[12][5];
        unigram_piece p[12];
        for (size_t i = 0; i < 12; i++) {
            size_t len = 1 + (size_t)(rand() % 4);
            for (size_t k = 0; k < len; k++)
                texts[i][k] = (char)('a' + rand() % 2);
            texts[i][len] = '\0';
            p[i] = (unigram_piece){ texts[i], len, -(double)(rand() % 1000) / 100 };
            for (size_t k = 0; k < i; k++) /* no text twice: a later one would win */
                if (strcmp(texts[k], texts[i]) == 0)
                    p[k].n = 0, p[k].score = p[i].score;
        }
        p[0] = (unigram_piece){ "a", 1, -20 };
        p[1] = (unigram_piece){ "b", 1, -20 };
        for (size_t i = 2; i < 12; i++)
            if (p[i].n == 1)
                p[i].n = 0;
        char text[13] = "";
        for (size_t k = 0; k < 12; k++)
            text[k] = (char)('a' + rand() % 2);
        size_t used = 0;
        unigram_piece real[12];
        for (size_t i = 0; i < 12; i++)
            if (p[i].n > 0)
                real[used++] = p[i];
        unigram *u = open_hf(p, 12, -1, false);
        id_list got = { 0 };
        must(unigram_encode(u, text, 12, &got));
        double sum = 0;
        size_t length = 0;
        for (size_t i = 0; i < got.n; i++) {
            assert_memory_equal(text + length, p[got.ids[i]].text, p[got.ids[i]].n);
            sum += p[got.ids[i]].score;
            length += p[got.ids[i]].n;
        }
        assert_int_equal(length, 12);
        assert_true(fabs(sum - best_of_all(real, used, text)) < 1e-9);
        mem_free(got.ids);
        unigram_close(u);
    }
}

static void unknown_text_becomes_bytes(void **state)
{
    (void)state;
    static const unigram_piece p[] = { { "<unk>", 5, 0 },
                                       { "a", 1, -1 },
                                       { "<0xC3>", 6, 0 },
                                       { "<0xA9>", 6, 0 },
                                       { "\xe6\x97\xa5", 3, -30 } };
    unigram *u = open_hf(PIECES(p), 0, true);
    expect_ids(u,
               "a\xc3\xa9"
               "a",
               IDS(1, 2, 3, 1));
    expect_ids(u, "a\xc3\xa8", IDS(1, 0)); /* no piece <0xA8> */
    expect_ids(u, "\xe6\x97\xa5\xc3\xa9", IDS(4, 2, 3));
    unigram_close(u);
    u = open_hf(PIECES(p), -1, true);
    id_list got = { 0 };
    must_fail(unigram_encode(u, "a\xc3\xa9", 3, &got), PESC_FORMAT, "at byte 1");
    mem_free(got.ids);
    unigram_close(u);
}

static void ties_go_to_the_path_found_first(void **state)
{
    (void)state;
    static const unigram_piece p[] = { { "<unk>", 5, 0 }, { "a", 1, -1 }, { "aa", 2, -1 } };
    unigram *u = open_hf(PIECES(p), 0, false);
    expect_ids(u, "aaa", IDS(1, 2));
    unigram_close(u);
}

/* -4 - 4 is better than (-4 - 10) - 1. */
static void unknown_costs_ten_more_than_the_worst(void **state)
{
    (void)state;
    static const unigram_piece p[] = {
        { "<unk>", 5, 0 }, { "xa", 2, -4 }, { "b", 1, -4 }, { "ab", 2, -1 }
    };
    unigram *u = open_hf(PIECES(p), 0, false);
    expect_ids(u, "xab", IDS(1, 2));
    expect_ids(u, "xyab", IDS(0, 3));
    unigram_close(u);
}

static void of_equal_pieces_the_last_wins(void **state)
{
    (void)state;
    static const unigram_piece p[] = {
        { "<unk>", 5, 0 }, { "a", 1, -1 }, { "a", 1, -5 }, { "", 0, 0 }
    };
    unigram *u = open_hf(PIECES(p), 0, false);
    expect_ids(u, "aa", IDS(2, 2));
    unigram_close(u);
}

static void refuses_bad_vocabularies(void **state)
{
    (void)state;
    unigram *u = NULL;
    unigram_piece p = { "a", 1, NAN };
    must_fail(unigram_open(&u, &(unigram_spec){ "t", &p, 1, 0, false }), PESC_FORMAT,
              "t: model.vocab[0]");
    p = (unigram_piece){ "a", SP_PIECE_MAX + 1, 0 };
    must_fail(unigram_open(&u, &(unigram_spec){ "t", &p, 1, 0, false }), PESC_FORMAT, "8000 bytes");
    p = (unigram_piece){ "a", 1, 0 };
    must_fail(unigram_open(&u, &(unigram_spec){ "t", &p, 1, 1, false }), PESC_FORMAT, "unk_id");
    must_fail(unigram_open(&u, &(unigram_spec){ "t", &p, 1, -2, false }), PESC_FORMAT, "unk_id");
    must_fail(unigram_open(&u, &(unigram_spec){ "t", &p, 0, -1, false }), PESC_FORMAT,
              "found 0 pieces");
    assert_null(u);
}

static spmodel *sp_model(void)
{
    str s = { 0 };
    wire_piece(&s, "<unk>", 0, SP_UNKNOWN);
    wire_piece(&s, "<s>", 0, SP_CONTROL);
    wire_piece(&s, "a", -1, SP_NORMAL);
    wire_piece(&s, "ab", -1.5f, SP_NORMAL);
    wire_piece(&s, "b", -1, SP_NORMAL);
    wire_piece(&s, "bab", 0, SP_USER_DEFINED);
    wire_piece(&s, "aa", 5, SP_UNUSED);
    spmodel *m = NULL;
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    str_free(&s);
    return m;
}

static void sentencepiece_has_its_own_rules(void **state)
{
    (void)state;
    spmodel *m = sp_model();
    unigram *u = NULL;
    must(unigram_open_sp(&u, m));
    spmodel_close(m);
    expect_ids(u, "aab", IDS(2, 3));  /* an unused piece is not produced */
    expect_ids(u, "abab", IDS(2, 5)); /* a user-defined one always */
    expect_ids(u, "<s>a", IDS(0, 2)); /* a control piece is not matched in text */
    expect_ids(u, "<unk>", IDS(0));
    unigram_close(u);
}

/* Longer than the buffers for words, longer than the ring of scores. */
static void long_text_in_linear_time(void **state)
{
    (void)state;
    static const unigram_piece p[] = { { "<unk>", 5, 0 }, { "a", 1, -1 }, { "aaa", 3, -1.5 } };
    unigram *u = open_hf(PIECES(p), 0, false);
    for (size_t n = 1; n <= 1000; n++) {
        char text[1000];
        memset(text, 'a', n);
        id_list got = { 0 };
        must(unigram_encode(u, text, n, &got));
        assert_int_equal(got.n, n / 3 + n % 3);
        mem_free(got.ids);
    }
    size_t n = 3000000;
    char *text = mem_alloc(n, 1);
    memset(text, 'a', n);
    id_list got = { 0 };
    clock_t begin = clock();
    must(unigram_encode(u, text, n, &got));
    assert_int_equal(got.n, n / 3);
    memset(text, 'x', n);
    got.n = 0;
    must(unigram_encode(u, text, n, &got));
    assert_int_equal(got.n, 1);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
    mem_free(got.ids);
    mem_free(text);
    unigram_close(u);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const unigram_piece p[] = { { "<unk>", 5, 0 }, { "a", 1, -1 } };
    spmodel *m = sp_model();
    char text[600];
    memset(text, 'a', sizeof text);
    for (int sp = 0; sp < 2; sp++) {
        uint64_t i = 1;
        for (bool fired = true; fired; i++) {
            unigram *u = NULL;
            id_list got = { 0 };
            mem_fail_at(i);
            pesc_status s = sp ? unigram_open_sp(&u, m)
                               : unigram_open(&u, &(unigram_spec){ "t", PIECES(p), 0, false });
            if (s == PESC_OK)
                s = unigram_encode(u, text, sizeof text, &got);
            fired = mem_fail_fired();
            mem_fail_at(0);
            assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
            mem_free(got.ids);
            unigram_close(u);
        }
        assert_true(i > 8);
    }
    spmodel_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_as_documented),
        cmocka_unit_test(finds_the_best_cut),
        cmocka_unit_test(unknown_text_becomes_bytes),
        cmocka_unit_test(ties_go_to_the_path_found_first),
        cmocka_unit_test(unknown_costs_ten_more_than_the_worst),
        cmocka_unit_test(of_equal_pieces_the_last_wins),
        cmocka_unit_test(refuses_bad_vocabularies),
        cmocka_unit_test(sentencepiece_has_its_own_rules),
        cmocka_unit_test(long_text_in_linear_time),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("unigram", tests, NULL, NULL);
}
