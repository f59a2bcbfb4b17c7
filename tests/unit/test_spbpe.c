/* The merges a SentencePiece BPE model implies, against a direct search. */
#include "base/mem.h"
#include "base/rng.h"
#include "support/check.h"
#include "tokenizer/spbpe.h"

enum { PIECES = 60 };

typedef struct fixture {
    spmodel m;
    sp_piece pieces[PIECES];
    char text[PIECES][16];
} fixture;

static void add(fixture *f, const char *text, float score, sp_type type)
{
    size_t i = f->m.n++;
    size_t n = strlen(text);
    memcpy(f->text[i], text, n + 1);
    f->pieces[i] = (sp_piece){ f->text[i], (uint32_t)n, score, type };
    f->m.pieces = f->pieces;
}

static bool has(const fixture *f, const char *text)
{
    for (size_t i = 0; i < f->m.n; i++)
        if (strcmp(f->text[i], text) == 0)
            return true;
    return false;
}

/* Each cut of each piece into two symbols is there once, ranked by the score of the piece. */
static void finds_every_cut(void **state)
{
    (void)state;
    rng_key k = { 3, 0 };
    uint64_t draw = 0;
    for (int round = 0; round < 50; round++) {
        fixture f = { 0 };
        add(&f, "a", -1, SP_NORMAL); /* b is in no piece of its own: a symbol without a token */
        while (f.m.n < PIECES) {
            char text[8];
            size_t n = rng_below(k, draw++, 6) + 2;
            for (size_t i = 0; i < n; i++)
                text[i] = "ab"[rng_below(k, draw++, 2)];
            text[n] = '\0';
            if (!has(&f, text))
                add(&f, text, -(float)rng_below(k, draw++, 5), SP_NORMAL);
        }
        vocab symbols = { 0 };
        bpe_merge *merges;
        size_t n, want = 0;
        must(spbpe_merges(&f.m, "m", &symbols, &merges, &n));
        assert_int_equal(symbols.count, PIECES + 1);
        for (size_t i = 0; i < f.m.n; i++)
            for (size_t cut = 1; cut < f.pieces[i].n; cut++)
                want += vocab_find(&symbols, f.text[i], cut) >= 0 &&
                        vocab_find(&symbols, f.text[i] + cut, f.pieces[i].n - cut) >= 0;
        assert_int_equal(n, want);
        for (size_t i = 0; i < n; i++) {
            size_t ln, rn;
            const char *l = vocab_text(&symbols, merges[i].left, &ln);
            const char *r = vocab_text(&symbols, merges[i].right, &rn);
            const sp_piece *into = &f.pieces[merges[i].into];
            assert_int_equal(ln + rn, into->n);
            assert_memory_equal(l, into->text, ln);
            assert_memory_equal(r, into->text + ln, rn);
            for (size_t j = 0; j < n; j++) {
                const sp_piece *other = &f.pieces[merges[j].into];
                assert_true((into->score > other->score) == (merges[i].rank < merges[j].rank));
            }
        }
        mem_free(merges);
        vocab_free(&symbols);
    }
}

static void unused_pieces(void **state)
{
    (void)state;
    vocab symbols = { 0 };
    bpe_merge *merges;
    size_t n;
    fixture f = { 0 };
    add(&f, "a", 0, SP_NORMAL);
    add(&f, "xyz", 0, SP_UNUSED); /* nothing merges to it: harmless */
    add(&f, "<s>", 0, SP_CONTROL);
    must(spbpe_merges(&f.m, "m", &symbols, &merges, &n));
    assert_int_equal(n, 0);
    assert_int_equal(vocab_find(&symbols, "<s>", 3), -1);
    mem_free(merges);
    vocab_free(&symbols);
    add(&f, "aa", 0, SP_UNUSED);
    must_fail(spbpe_merges(&f.m, "m", &symbols, &merges, &n), PESC_UNSUPPORTED, "'aa', is unused");
    vocab_free(&symbols);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_cut),
        cmocka_unit_test(unused_pieces),
    };
    return cmocka_run_group_tests_name("spbpe", tests, NULL, NULL);
}
