#include "base/mem.h"
#include "support/check.h"
#include "support/spwire.h"
#include "tokenizer/charsmap.h"

#include <stdlib.h>

static const rule rules[] = { { "\xef\xac\x81", "fi" },
                              { "A", "a" },
                              { "\t", " " },
                              { "AB", "ab!" },
                              { "\x7f", "" },
                              { "e\xcc\x81", "\xc3\xa9" },
                              { "\xc3\xa9", "E" },
                              { "\x01", "\xe2\x96\x81" } };

static str table(void)
{
    str s = { 0 };
    wire_charsmap(&s, rules, sizeof rules / sizeof *rules);
    return s;
}

static charsmap *opened(void)
{
    str s = table();
    charsmap *m = NULL;
    must(charsmap_open(&m, (unsigned char *)s.p, s.n, "test"));
    str_free(&s);
    return m;
}

static void expect_match(const charsmap *m, const char *text, size_t n, const char *to)
{
    const char *got = NULL;
    size_t got_n = 0;
    assert_int_equal(charsmap_match(m, text, strlen(text), &got, &got_n), n);
    if (n > 0) {
        assert_int_equal(got_n, strlen(to));
        assert_memory_equal(got, to, got_n);
    }
}

static void takes_the_longest_key(void **state)
{
    (void)state;
    charsmap *m = opened();
    expect_match(m, "ABC", 2, "ab!");
    expect_match(m, "AC", 1, "a");
    expect_match(m, "\xef\xac\x81x", 3, "fi");
    expect_match(m, "\xef\xac", 0, "");
    expect_match(m, "\x7f", 1, "");
    expect_match(m, "b", 0, "");
    expect_match(m, "", 0, "");
    expect_match(NULL, "A", 0, "");
    charsmap_close(m);
    charsmap_close(NULL);
}

static void expect_applied(const charsmap *m, const char *text, const char *expected)
{
    str out = { 0 };
    charsmap_apply(m, text, strlen(text), &out);
    assert_true(str_ok(&out));
    assert_string_equal(out.p ? out.p : "", expected);
    str_free(&out);
}

/* What the Precompiled normaliser gave for the same rules. */
static void applies_by_grapheme(void **state)
{
    (void)state;
    charsmap *m = opened();
    expect_applied(m, "xABx", "xaBx");             /* A and B are graphemes of their own */
    expect_applied(m, "e\xcc\x81", "\xc3\xa9");    /* a short grapheme as a whole */
    expect_applied(m, "A\xcc\x81", "a");           /* its prefix stands for all of it */
    expect_applied(m, "A\xcc\x81\xcc\x81\xcc\x81", /* a long one character by character */
                   "a\xcc\x81\xcc\x81\xcc\x81");
    expect_applied(m, "\x7f", "");
    expect_applied(m, "", "");
    expect_applied(NULL, "A\tB", "A\tB");
    charsmap_close(m);
}

static void base64_gives_the_same_table(void **state)
{
    (void)state;
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    str raw = table(), text = { 0 };
    for (size_t i = 0; i < raw.n; i += 3) {
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (i + k < raw.n ? (unsigned char)raw.p[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            str_putc(&text, i + k > raw.n ? '=' : digit[v >> (18 - 6 * k) & 63]);
    }
    charsmap *m = NULL;
    must(charsmap_open_base64(&m, text.p, text.n, "test"));
    expect_match(m, "ABC", 2, "ab!");
    charsmap_close(m);
    must_fail(charsmap_open_base64(&m, text.p, text.n - 1, "test"), PESC_FORMAT, "multiple of 4");
    text.p[5] = '-';
    must_fail(charsmap_open_base64(&m, text.p, text.n, "test"), PESC_FORMAT, "character 5");
    must_fail(charsmap_open_base64(&m, "====", 4, "test"), PESC_FORMAT, "not base64");
    must(charsmap_open_base64(&m, "", 0, "test"));
    assert_null(m);
    str_free(&raw);
    str_free(&text);
}

static void put_u32(str *s, size_t unit, uint32_t v)
{
    memcpy(s->p + 4 + 4 * unit, &v, 4);
}

static void refuse(const str *s, size_t n, const char *part)
{
    charsmap *m = NULL;
    unsigned char *exact = mem_alloc(n ? n : 1, 1); /* so that a sanitizer sees one byte too far */
    memcpy(exact, s->p, n);
    must_fail(charsmap_open(&m, exact, n, "test"), PESC_FORMAT, part);
    assert_null(m);
    mem_free(exact);
}

static void refuses_what_points_outside(void **state)
{
    (void)state;
    charsmap *m = NULL;
    must(charsmap_open(&m, NULL, 0, "test"));
    assert_null(m);
    str s = table();
    for (size_t n = 1; n < 4; n++)
        refuse(&s, n, "expected at least 4");
    uint32_t size, wrong = 0xffffffff;
    memcpy(&size, s.p, 4);
    refuse(&s, 4, "but only 0 follow");
    memcpy(s.p, &wrong, 4);
    refuse(&s, s.n, "but only");
    wrong = size - 1;
    memcpy(s.p, &wrong, 4);
    refuse(&s, s.n, "multiple of 4");
    wrong = 0;
    memcpy(s.p, &wrong, 4);
    refuse(&s, s.n, "found a trie of 0 bytes");
    memcpy(s.p, &size, 4);
    refuse(&s, s.n - 1, "do not end in NUL");
    refuse(&s, 4 + size, "past the 0 bytes of strings");
    uint32_t root;
    memcpy(&root, s.p + 4, 4);
    put_u32(&s, 0, 0x7ffffc00);
    refuse(&s, s.n, "byte 4: unit 0 of the trie points to unit");
    put_u32(&s, 0, root);
    uint32_t leaf = 256; /* some leaf: the first in the array after the root's children */
    for (uint32_t v = 0; !(v & 1u << 31); leaf++)
        memcpy(&v, s.p + 4 + 4 * leaf, 4);
    put_u32(&s, leaf - 1, 1u << 31 | 5000);
    refuse(&s, s.n, "replacement at 5000, past");
    put_u32(&s, leaf - 1, 1u << 31 | (uint32_t)(s.n - 4 - size - 2));
    refuse(&s, s.n, "inside a character");
    str_free(&s);
}

static void refuses_bad_strings(void **state)
{
    (void)state;
    static char big[2000];
    memset(big, 'b', sizeof big - 1);
    str s = { 0 };
    wire_charsmap(&s, (rule[]){ { "a", big } }, 1);
    refuse(&s, s.n, "longer than");
    str_clear(&s);
    wire_charsmap(&s, (rule[]){ { "a", "\xff" } }, 1);
    refuse(&s, s.n, "not UTF-8");
    str_free(&s);
}

/* Whatever the bytes are: a refusal, or a table that stays inside them. */
static void survives_cuts_and_flips(void **state)
{
    (void)state;
    str s = table();
    const char *text = "ABC\xef\xac\x81"
                       "e\xcc\x81\t\x7f\xff\x01";
    uint32_t size;
    memcpy(&size, s.p, 4);
    for (size_t n = 0; n < s.n; n++) {
        charsmap *m = NULL;
        assert_int_equal(charsmap_open(&m, (unsigned char *)s.p, n, "cut") == PESC_OK, n == 0);
        charsmap_close(m);
    }
    for (size_t bit = 0; bit < s.n * 8; bit++) {
        size_t at = bit / 8;
        bool unused = at >= 8 && at < 4 + size && s.p[at] == 0 && at % 1024 > 64;
        if (unused)
            continue; /* most of the array is empty; a few of its units say enough */
        charsmap *m = NULL;
        s.p[at] ^= (char)(1 << bit % 8);
        if (charsmap_open(&m, (unsigned char *)s.p, s.n, "flip") == PESC_OK) {
            str out = { 0 };
            charsmap_apply(m, text, strlen(text), &out);
            assert_true(str_ok(&out));
            str_free(&out);
            const char *to;
            size_t to_n;
            for (const char *p = text; *p; p++)
                charsmap_match(m, p, strlen(p), &to, &to_n);
        }
        charsmap_close(m);
        s.p[at] ^= (char)(1 << bit % 8);
    }
    str_free(&s);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    str s = table();
    for (uint64_t i = 1;; i++) {
        charsmap *m = NULL;
        mem_fail_at(i);
        pesc_status st = charsmap_open(&m, (unsigned char *)s.p, s.n, "test");
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        charsmap_close(m);
        assert_int_equal(st, fired ? PESC_NOMEM : PESC_OK);
        if (!fired)
            break;
    }
    charsmap *m = opened();
    str out = { 0 };
    mem_fail_at(1);
    charsmap_apply(m, "ABC", 3, &out);
    assert_false(str_ok(&out));
    mem_fail_at(0);
    str_free(&out);
    charsmap_close(m);
    str_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_the_longest_key),
        cmocka_unit_test(applies_by_grapheme),
        cmocka_unit_test(base64_gives_the_same_table),
        cmocka_unit_test(refuses_what_points_outside),
        cmocka_unit_test(refuses_bad_strings),
        cmocka_unit_test(survives_cuts_and_flips),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("charsmap", tests, NULL, NULL);
}
