/* BPE against a direct reading of its rule: while a pair can merge, the lowest rank does, leftmost.
 */
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/utf8.h"
#include "support/check.h"
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <time.h>

enum { MAX_WORD = 400 };

typedef struct model {
    vocab v;
    bpe_spec spec;
    bpe_merge merges[256];
    size_t n;
    bpe *b;
} model;

static int32_t token(model *m, const char *text)
{
    int32_t id = vocab_find(&m->v, text, strlen(text));
    if (id >= 0)
        return id;
    id = (int32_t)m->v.n;
    assert_int_equal(vocab_add(&m->v, text, strlen(text), id), VOCAB_OK);
    return id;
}

static void merge(model *m, const char *left, const char *right)
{
    char both[64];
    snprintf(both, sizeof both, "%s%s", left, right);
    bpe_merge g = { token(m, left), token(m, right), token(m, both), (uint32_t)m->n };
    m->merges[m->n++] = g;
}

static void open_model(model *m)
{
    m->spec.vocab = &m->v;
    m->spec.n_tokens = INT64_MAX;
    must(bpe_open(&m->b, &m->spec, m->merges, m->n));
}

static void close_model(model *m)
{
    bpe_close(m->b);
    vocab_free(&m->v);
}

/* The rule, word for word; every character must be a token. */
static size_t naive(const model *m, const char *word, int32_t *id)
{
    size_t n = 0;
    for (const char *p = word; *p; n++) {
        int len = m->spec.bytes ? 1 : utf8_decode(p, strlen(p), NULL);
        id[n] = vocab_find(&m->v, p, (size_t)len);
        assert_true(id[n] >= 0);
        p += len;
    }
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t at = 0;
        int32_t into = -1;
        for (size_t i = 0; i + 1 < n; i++) {
            const bpe_merge *pair = NULL; /* of equal pairs the last counts */
            for (size_t k = 0; k < m->n; k++)
                if (m->merges[k].left == id[i] && m->merges[k].right == id[i + 1])
                    pair = &m->merges[k];
            if (pair && pair->rank < best) {
                best = pair->rank;
                at = i;
                into = pair->into;
            }
        }
        if (best == UINT32_MAX)
            return n;
        id[at] = into;
        n--;
        memmove(&id[at + 1], &id[at + 2], (n - at - 1) * sizeof *id);
    }
}

static void check(const model *m, bpe_scratch *s, const char *word)
{
    int32_t want[MAX_WORD];
    id_list got = { 0 };
    size_t n = naive(m, word, want);
    must(bpe_encode(m->b, s, word, strlen(word), &got));
    if (got.n != n || memcmp(got.ids, want, n * sizeof *want) != 0)
        fail_msg("'%s': got %zu ids, expected %zu, or others", word, got.n, n);
    mem_free(got.ids);
}

/* Random merges over a few letters: many ranks contradict each other, which training never gives.
 */
static void follows_the_rule(void **state)
{
    (void)state;
    static const char *const letters[] = { "a", "b", "c", "\xc3\xa9" };
    rng_key k = { 11, 0 };
    uint64_t draw = 0;
    for (int round = 0; round < 60; round++) {
        model m = { .spec = { .unk = -1 } };
        for (int i = 0; i < 4; i++)
            token(&m, letters[i]);
        while (m.n < 40) {
            char text[2][64];
            for (int side = 0; side < 2; side++) {
                size_t n;
                const char *t = vocab_text(&m.v, (int64_t)rng_below(k, draw++, m.v.n), &n);
                snprintf(text[side], sizeof text[side], "%.*s", (int)n, t);
            }
            if (strlen(text[0]) + strlen(text[1]) < 12)
                merge(&m, text[0], text[1]);
        }
        open_model(&m);
        bpe_scratch s = { 0 };
        for (int w = 0; w < 60; w++) {
            char word[MAX_WORD] = "";
            /* some words are short, some need the queue, some are runs of one letter */
            size_t len = rng_below(k, draw++, w % 3 ? 12 : 120) + 1, run = w % 5 == 0;
            uint64_t one = rng_below(k, draw++, 4);
            for (size_t i = 0; i < len; i++)
                strncat(word, letters[run ? one : rng_below(k, draw++, 4)], 2);
            check(&m, &s, word);
            check(&m, &s, word); /* again: what is a token by itself is known now */
        }
        bpe_scratch_free(&s);
        close_model(&m);
    }
}

static void encode(const model *m, const char *word, size_t n, const char *want)
{
    bpe_scratch s = { 0 };
    id_list ids = { 0 };
    str got = { 0 };
    must(bpe_encode(m->b, &s, word, n, &ids));
    for (size_t i = 0; i < ids.n; i++)
        str_printf(&got, "%s%d", i ? " " : "", ids.ids[i]);
    assert_string_equal(got.p ? got.p : "", want);
    str_free(&got);
    mem_free(ids.ids);
    bpe_scratch_free(&s);
}

static void unknown_characters(void **state)
{
    (void)state;
    for (int fuse = 0; fuse < 2; fuse++) {
        model m = { 0 };
        m.spec.unk = token(&m, "<unk>"); /* 0 */
        m.spec.fuse_unk = fuse;
        merge(&m, "a", "b"); /* 1 2 -> 3 */
        open_model(&m);
        encode(&m, "ab??ab", 6, fuse ? "3 0 3" : "3 0 0 3");
        encode(&m, "a?b?", 4, "1 0 2 0");
        close_model(&m);
    }
    model m = { .spec = { .unk = -1 } };
    merge(&m, "a", "b");
    open_model(&m);
    encode(&m, "a?b", 3, "2"); /* it vanishes, and its neighbours meet */
    encode(&m, "????????????????????????????????????????a??b", 44, "2");
    close_model(&m);
    model fused = { 0 }; /* a run is one before it is merged with what follows */
    fused.spec.unk = token(&fused, "<unk>");
    fused.spec.fuse_unk = true;
    merge(&fused, "<unk>", "a"); /* 0 1 -> 2 */
    open_model(&fused);
    encode(&fused, "??a", 3, "2");
    close_model(&fused);
}

static void byte_fallback(void **state)
{
    (void)state;
    model m = { 0 };
    m.spec.unk = token(&m, "<unk>");
    m.spec.byte_fallback = m.spec.fuse_unk = true;
    for (int c = 0; c < 256; c++)
        m.spec.byte_ids[c] = c == 0 ? -1 : 1000 + c;
    merge(&m, "a", "b");
    open_model(&m);
    encode(&m,
           "ab\xc3\xa9"
           "b",
           5, "3 1195 1169 2");
    /* a byte without a token: unknown; the next character's bytes go before it, as in HF */
    encode(&m,
           "a\0\xc3\xa9"
           "b",
           5, "1 1195 1169 0 2");
    close_model(&m);
}

static void ignore_merges(void **state)
{
    (void)state;
    model m = { .spec = { .unk = -1, .ignore_merges = true, .bytes = true } };
    merge(&m, "a", "b"); /* 0 1 -> 2 */
    token(&m, "aba");    /* 3: no merge makes it */
    open_model(&m);
    encode(&m, "aba", 3, "3");
    encode(&m, "abab", 4, "2 2");
    close_model(&m);
}

static void characters_that_are_no_tokens(void **state)
{
    (void)state;
    model m = { 0 };
    m.spec.unk = token(&m, "<unk>");
    m.spec.fuse_unk = true;
    merge(&m, "x", "y"); /* 1 2 -> 3 */
    open_model(&m);
    bpe_close(m.b);
    m.spec.n_tokens = 2; /* y and xy are only symbols now */
    must(bpe_open(&m.b, &m.spec, m.merges, m.n));
    encode(&m, "xyy", 3, "0");
    encode(&m, "xx", 2, "1 1");
    close_model(&m);
}

static void long_words_take_linear_time(void **state)
{
    (void)state;
    model m = { .spec = { .unk = -1 } };
    merge(&m, "a", "a");
    merge(&m, "aa", "aa");
    merge(&m, "aaaa", "aaaa");
    merge(&m, "a", "b");
    open_model(&m);
    size_t n = 4000000;
    char *word = mem_alloc(n, 1);
    bpe_scratch s = { 0 };
    clock_t begin = clock();
    for (int kind = 0; kind < 2; kind++) {
        id_list ids = { 0 };
        for (size_t i = 0; i < n; i++)
            word[i] = kind && i % 2 ? 'b' : 'a';
        must(bpe_encode(m.b, &s, word, n, &ids));
        assert_int_equal(ids.n, kind ? n / 2 : n / 8);
        mem_free(ids.ids);
    }
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
    bpe_scratch_trim(&s);
    assert_null(s.cell);
    mem_free(word);
    close_model(&m);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    model m = { .spec = { .unk = -1 } };
    merge(&m, "a", "b");
    m.spec.vocab = &m.v;
    m.spec.n_tokens = INT64_MAX;
    char word[200];
    memset(word, 'a', sizeof word);
    for (uint64_t k = 1;; k++) {
        bpe_scratch s = { 0 };
        id_list ids = { 0 };
        mem_fail_at(k);
        pesc_status st = bpe_open(&m.b, &m.spec, m.merges, m.n);
        if (st == PESC_OK)
            st = bpe_encode(m.b, &s, word, sizeof word, &ids);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(st, fired ? PESC_NOMEM : PESC_OK);
        bpe_close(m.b);
        bpe_scratch_free(&s);
        mem_free(ids.ids);
        if (!fired)
            break;
    }
    vocab_free(&m.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follows_the_rule),
        cmocka_unit_test(unknown_characters),
        cmocka_unit_test(byte_fallback),
        cmocka_unit_test(ignore_merges),
        cmocka_unit_test(characters_that_are_no_tokens),
        cmocka_unit_test(long_words_take_linear_time),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("bpe", tests, NULL, NULL);
}
