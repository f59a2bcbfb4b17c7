/* Grammars: what regular expressions accept, against PCRE2 on all short texts; the tokens that a
 * mask allows, against trying each of them; hostile sources. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "grammar/grammar.h"
#include "support/check.h"
#include "support/vocabulary.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- regular expressions ---- */

static bool pcre_matches(const char *regex, const char *text)
{
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile(
        (PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
        PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &error, &at, NULL);
    assert_non_null(code);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(code, NULL);
    int n = pcre2_match(code, (PCRE2_SPTR)text, strlen(text), 0, 0, data, NULL);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
    return n >= 0;
}

static void regular_expressions_match_as_pcre2(void **state)
{
    (void)state;
    static const char *const all[] = { "",
                                       "a",
                                       "ab|c",
                                       "a*b",
                                       "(a|b)*c",
                                       "a+b?c{2}",
                                       "(ab){1,2}",
                                       "[^a]b",
                                       "[a-b]{2,}",
                                       "a|",
                                       "(a|ab)(c|bc)",
                                       "(a*)*",
                                       "(a?){3}",
                                       "^ab$",
                                       "^a|b$",
                                       "(^a)?b",
                                       "a($|b)",
                                       ".*b.",
                                       "\\w\\W?",
                                       "[\\d1a]\\D",
                                       "(?:a|b)+?c",
                                       "(?<n>a)b",
                                       "a{0}b",
                                       "[]a]b|c",
                                       "a{,2}",
                                       "\\x61\\u0062",
                                       "(|a)(|b)(|c)",
                                       "((a|b){2}c){0,2}",
                                       "[1\\-a]b" };
    enum { TEXTS = 1 + 4 + 16 + 64 + 256 + 1024 };
    char text[16];
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        /* written otherwise there, or meaning another thing: */
        if (strchr(all[i], 'u') || strncmp(all[i], "[]", 2) == 0 || strstr(all[i], "{,"))
            continue;
        must(open_grammar(&g, PESC_GRAMMAR_REGEX, all[i]));
        for (size_t k = 0; k < TEXTS; k++) {
            nth_text(k, "abc1", text);
            if (matches(g, text) != pcre_matches(all[i], text))
                fail_msg("%s: '%s' is %d", all[i], text, matches(g, text));
        }
        grammar_close(g);
    }
}

static void characters_are_whole(void **state)
{
    (void)state;
    static const char *const yes[] = { "\xc3\xa9", "\xe4\xbd\xa0", "\xf0\x9f\x98\x80", "x",
                                       "\x7f" };
    static const char *const no[] = {
        "\xc3", "\xa9", "\xc0\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe0\x80\x80",
        "xx",   "",     "\n"
    };
    grammar *g;
    must(open_grammar(&g, PESC_GRAMMAR_REGEX, "."));
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(matches(g, yes[i]));
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        assert_false(matches(g, no[i]));
    grammar_close(g);
    must(open_grammar(&g, PESC_GRAMMAR_REGEX, "[\\u00e8-\\u4f60]"));
    assert_true(matches(g, "\xc3\xa9") && matches(g, "\xe4\xbd\xa0") && matches(g, "\xc3\xa8"));
    assert_false(matches(g, "\xc3\xa7") || matches(g, "\xe4\xbd\xa1"));
    grammar_close(g);
    must(open_grammar(&g, PESC_GRAMMAR_REGEX, "[\\u4e00-\\ufb00]"));
    assert_true(matches(g, "\xed\x9f\xbf") && matches(g, "\xee\x80\x80"));
    assert_false(matches(g, "\xed\xa0\x80") || matches(g, "\xed\xbf\xbf"));
    grammar_close(g);
}

/* Every range of characters has exactly their bytes. */
static void ranges_have_the_bytes_of_their_characters(void **state)
{
    (void)state;
    static const uint32_t at[] = { 0x20,    0x7f,    0x80,    0xbf,     0x7ff,   0x800,
                                   0xfff,   0x1000,  0xd7ff,  0xe000,   0xffff,  0x10000,
                                   0x3ffff, 0x40000, 0xfffff, 0x100000, 0x10ffff };
    enum { N = sizeof at / sizeof *at };
    char regex[64], text[8];
    for (size_t a = 0; a < N; a++)
        for (size_t b = a; b < N; b++) {
            grammar *g;
            snprintf(regex, sizeof regex, "[\\U%08X-\\U%08X]", at[a], at[b]);
            must(open_grammar(&g, PESC_GRAMMAR_REGEX, regex));
            for (size_t k = 0; k < N; k++) {
                int n = at[k] < 0x80    ? snprintf(text, sizeof text, "%c", (int)at[k])
                        : at[k] < 0x800 ? snprintf(text, sizeof text, "%c%c", 0xc0 | at[k] >> 6,
                                                   0x80 | (at[k] & 63))
                        : at[k] < 0x10000
                            ? snprintf(text, sizeof text, "%c%c%c", 0xe0 | at[k] >> 12,
                                       0x80 | (at[k] >> 6 & 63), 0x80 | (at[k] & 63))
                            : snprintf(text, sizeof text, "%c%c%c%c", 0xf0 | at[k] >> 18,
                                       0x80 | (at[k] >> 12 & 63), 0x80 | (at[k] >> 6 & 63),
                                       0x80 | (at[k] & 63));
                assert_in_range(n, 1, 4);
                if (matches(g, text) != (k >= a && k <= b))
                    fail_msg("%s: U+%04X", regex, at[k]);
            }
            grammar_close(g);
        }
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *regex, *part;
    } all[] = { { "(a)\\1", "back reference" },  { "a(?=b)", "look-ahead" },
                { "a(?!b)", "look-ahead" },      { "(?<=a)b", "look-behind" },
                { "(?<!a)b", "look-behind" },    { "(?i)a", "flags" },
                { "\\bword", "word boundary" },  { "\\p{L}", "Unicode property" },
                { "(?>a)", "atomic group" },     { "a*+", "possessive" },
                { "a{2001}", "more than 2000" }, { "[[:alpha:]]", "named class" },
                { "\\Z", "escape of a letter" }, { "(a{2000}){2000}", "too large" },
                { "(?P=n)", "back reference" },  { "\\k<n>", "back reference" },
                { "[]", "empty set" },           { "(a|b)*a(a|b){30}", "too large" } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        grammar *g;
        must_fail(open_grammar(&g, PESC_GRAMMAR_REGEX, all[i].regex), PESC_UNSUPPORTED,
                  all[i].part);
    }
    static const char *const malformed[] = { "(a", "a)",    "[a",   "a**",  "*a",      "a{3,2}",
                                             "\\", "[b-a]", "(?<n", "\\xg", "\\ud800", "\xff" };
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        grammar *g;
        must_fail(open_grammar(&g, PESC_GRAMMAR_REGEX, malformed[i]), PESC_FORMAT,
                  "the regular expression");
    }
}

/* ---- masks ---- */

/* Whether a token may follow a text, found by trying it. */
static bool may_follow(grammar *g, const str *before, int32_t id)
{
    const piece_trie *p = words.p;
    bool whole, begins;
    str text = { 0 };
    str_add(&text, before->p ? before->p : "", before->n);
    str_add(&text, p->text + p->first[id], pieces_length(p, id));
    must(grammar_matches(g, text.p ? text.p : "", text.n, &whole, &begins));
    str_free(&text);
    return begins && pieces_length(p, id) > 0;
}

static void check_masks(grammar *g, uint64_t seed)
{
    const piece_trie *p = words.p;
    int32_t ids[64];
    str text = { 0 };
    matcher *m;
    must(matcher_open(&m, g));
    for (uint32_t n = 0; n < 40; n++) {
        bool accepts, whole, begins;
        int32_t chosen = -1;
        uint64_t seen = 0;
        const uint32_t *set = matcher_allowed(m, ids, n, &accepts);
        assert_non_null(set);
        must(grammar_matches(g, text.p ? text.p : "", text.n, &whole, &begins));
        assert_true(begins);
        assert_int_equal(accepts, whole);
        for (int32_t id = 0; id < p->vocab; id++) {
            bool allowed = set[id / 32] >> (id % 32) & 1;
            if (allowed != may_follow(g, &text, id))
                fail_msg("after '%s' token %d is %d", text.p ? text.p : "", id, allowed);
            rng_key key = { seed, rng_stream(n, (uint64_t)id, 0) };
            if (allowed && rng_below(key, 0, ++seen) == 0)
                chosen = id;
        }
        if (chosen < 0)
            break;
        ids[n] = chosen;
        str_add(&text, p->text + p->first[chosen], pieces_length(p, chosen));
    }
    matcher_close(m);
    str_free(&text);
}

static const struct {
    pesc_grammar_kind kind;
    const char *text;
} masked[] = {
    { PESC_GRAMMAR_SCHEMA, "{}" },
    { PESC_GRAMMAR_SCHEMA, "{\"type\":\"string\"}" },
    { PESC_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}" },
    { PESC_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"maxLength\":40}" },
    { PESC_GRAMMAR_SCHEMA, "{\"type\":\"string\",\"minLength\":36}" },
    { PESC_GRAMMAR_SCHEMA,
      "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[a-z ]*$\"}}" },
    { PESC_GRAMMAR_REGEX, "[^\"]*" },
    { PESC_GRAMMAR_REGEX, "([^\\n\"\\\\]{3}\\n)*" },
    { PESC_GRAMMAR_GBNF, "root ::= . root | [a-z]{2}" },
    { PESC_GRAMMAR_GBNF, "root ::= (\"(\" root \")\" | [^()]+) root | \"\"" },
    { PESC_GRAMMAR_GBNF, "root ::= %not (\"ab\" | \"))\") <[309]> %json {\"type\":\"string\"}" },
};

static void masks_have_the_tokens_that_may_follow(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        grammar *g;
        must(open_grammar(&g, masked[i].kind, masked[i].text));
        for (uint64_t seed = 0; seed < 4; seed++)
            check_masks(g, seed);
        grammar_close(g);
    }
}

static void logits_of_other_tokens_are_excluded(void **state)
{
    (void)state;
    enum { A = 'a', END = 3 };
    grammar *g;
    matcher *m;
    size_t n = (size_t)words.p->vocab;
    float *logits = mem_zalloc(n, sizeof *logits);
    const int32_t ends[] = { END, INT32_MAX, -1 }, ids[] = { A, A };
    assert_non_null(logits);
    must(open_grammar(&g, PESC_GRAMMAR_REGEX, "a{1,2}"));
    must(matcher_open(&m, g));
    for (size_t step = 0; step < 3; step++) {
        memset(logits, 0, n * sizeof *logits);
        assert_true(matcher_exclude(m, ids, step, ends, 3, logits));
        for (size_t i = 0; i < n; i++) {
            const char *text = words.p->text + words.p->first[i];
            size_t len = pieces_length(words.p, (int32_t)i);
            bool a = len > 0 && len <= 2 - step && strspn(text, "a") >= len;
            bool open = i == END ? step > 0 : a;
            assert_int_equal(isinf(logits[i]) != 0, !open);
        }
    }
    memset(logits, 0, n * sizeof *logits);
    assert_false(matcher_exclude(m, ids, 2, NULL, 0, logits)); /* complete, and no end token */
    must(matcher_status(m));
    matcher_close(m);
    grammar_close(g);
    mem_free(logits);
}

/* What a grammar allows first: the byte "<" that the token's name begins with, and the token. */
static void check_first(pesc_grammar_kind kind, const char *text, int32_t id, bool byte, bool token)
{
    grammar *g;
    matcher *m;
    float *logits = mem_zalloc((size_t)words.p->vocab, sizeof *logits);
    assert_non_null(logits);
    must(open_grammar(&g, kind, text));
    must(matcher_open(&m, g));
    assert_true(matcher_exclude(m, NULL, 0, NULL, 0, logits));
    assert_int_equal(!isinf(logits['<']), byte);
    assert_int_equal(!isinf(logits[id]), token);
    matcher_close(m);
    grammar_close(g);
    mem_free(logits);
}

static void no_text_spells_a_control_token(void **state)
{
    (void)state;
    char text[64];
    int32_t id = words.p->vocab - 1;
    while (!tokenizer_is_special(words.tok, id))
        id--;
    snprintf(text, sizeof text, "root ::= <[%d]> \"a\"", (int)id);
    check_first(PESC_GRAMMAR_REGEX, "<\\|call\\|>", id, true, false);
    check_first(PESC_GRAMMAR_GBNF, "root ::= \"<|call|>\"", id, true, false);
    check_first(PESC_GRAMMAR_GBNF, text, id, false, true);
}

/* A vocabulary that lacks bytes cannot write every text. */
static void a_dead_end_is_reported(void **state)
{
    (void)state;
    static const char *const more[] = { "x" };
    vocabulary few;
    grammar *g;
    matcher *m;
    vocabulary_open(&few, more, 1, 0);
    few.p->vocab = 'b'; /* no more tokens than those of the bytes below b */
    few.p->words = ('b' + 31) / 32;
    grammar_source from = { .kind = PESC_GRAMMAR_REGEX, .text = "ac", .n = 2 };
    must(grammar_open(&g, few.p, &from));
    must(matcher_open(&m, g));
    float logits['b'] = { 0 };
    const int32_t ids[] = { 'a' };
    assert_true(matcher_exclude(m, ids, 0, NULL, 0, logits));
    for (size_t i = 0; i < few.p->n_nodes; i++)
        few.p->byte[i] = few.p->byte[i] == 'c' ? 'C' : few.p->byte[i];
    assert_false(matcher_exclude(m, ids, 1, NULL, 0, logits));
    must_fail(matcher_status(m), PESC_UNSUPPORTED, "no token of the vocabulary");
    matcher_close(m);
    grammar_close(g);
    few.p->vocab = 257;
    vocabulary_close(&few);
}

/* ---- what will follow ---- */

/* After a text, spelled in bytes, the text `want` is foreseen, in n tokens of at most `most`. */
static void foresees(const char *schema, const char *text, int32_t most, const char *want,
                     int32_t n_want)
{
    grammar *g;
    matcher *m;
    int32_t ids[128], got[16];
    size_t n = strlen(text);
    str all = { 0 };
    must(open_grammar(&g, *schema == '{' ? PESC_GRAMMAR_SCHEMA : PESC_GRAMMAR_REGEX, schema));
    must(matcher_open(&m, g));
    for (size_t i = 0; i < n; i++)
        ids[i] = (unsigned char)text[i];
    int32_t found = matcher_foresee(m, ids, n, got, most);
    for (int32_t i = 0; i < found; i++)
        str_add(&all, words.p->text + words.p->first[got[i]], pieces_length(words.p, got[i]));
    str_puts(&all, "");
    if (found != n_want || strcmp(all.p, want) != 0)
        fail_msg("after '%s': '%s' in %d tokens", text, all.p, (int)found);
    assert_int_equal(matcher_permits(m, ids, n, got, found), found);
    str_free(&all);
    matcher_close(m);
    grammar_close(g);
}

static void the_only_text_that_can_follow_is_foreseen(void **state)
{
    (void)state;
    static const char twice[] = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyza[bc]";
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"key\":{\"type\":\"string\"},\"kez\":{\"type\":"
        "\"string\"},\"kid\":{\"type\":\"integer\"}},\"required\":[\"key\",\"kez\",\"kid\"]}";
    foresees(twice, "", 8, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyza", 2);
    foresees(twice, "", 1, "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz", 1);
    foresees("a(bc)?", "a", 8, "", 0); /* it may end */
    foresees("ab ", "ab", 8, "", 0);   /* a blank belongs to what follows it */
    foresees("ab c", "ab", 8, " c", 2);
    foresees(schema, "", 16, "{\"key\":\"", 6);
    foresees(schema, "{\"key\"", 16, ":\"", 2);
    foresees(schema, "{\"key\": \"v\"", 16, ",\"kez\": \"", 8);
    foresees(schema, "{\n  \"key\": \"a, \"", 16, ", \"kez\": \"", 8);
    foresees(schema, "{\"key\": \"v\", \"kez\": \"", 16, "", 0); /* any text */
    foresees(schema, "{\"key\":\"\",\"kez\":\"v\"", 16, ",\"kid\":", 6);
}

/* As many of the tokens as a text of the grammar can begin with. */
static void what_a_grammar_permits_is_counted(void **state)
{
    (void)state;
    grammar *g;
    matcher *m;
    const int32_t ids[] = { 'a' }, more[] = { 'b', 'b', 'c', 'b' };
    const int32_t nothing[] = { 'b', words.p->vocab - 1 };
    must(open_grammar(&g, PESC_GRAMMAR_REGEX, "ab*c"));
    must(matcher_open(&m, g));
    assert_int_equal(matcher_permits(m, ids, 1, more, 4), 3);
    assert_int_equal(matcher_permits(m, ids, 1, more, 2), 2);
    assert_int_equal(matcher_permits(m, ids, 1, more + 2, 2), 1);
    assert_int_equal(matcher_permits(m, ids, 1, nothing, 2), 1); /* a logit without a token */
    assert_int_equal(matcher_permits(m, ids, 1, ids, 1), 0);
    matcher_close(m);
    grammar_close(g);
}

/* ---- hostile sources ---- */

static void repeat(str *s, const char *text, int n)
{
    for (int i = 0; i < n; i++)
        str_puts(s, text);
}

/* It is refused, or compiled and asked for masks, in bounded time. */
static void survive(pesc_grammar_kind kind, const str *text)
{
    grammar *g = NULL;
    double began = clock_seconds();
    grammar_source from = { .kind = kind, .text = text->p, .n = text->n };
    if (grammar_open(&g, words.p, &from) == PESC_OK) {
        matcher *m;
        bool accepts;
        int32_t ids[20];
        must(matcher_open(&m, g));
        for (size_t n = 0; n < 20; n++) {
            ids[n] = 'a';
            if (!matcher_allowed(m, ids, n, &accepts))
                break;
        }
        matcher_close(m);
    } else {
        assert_true(strlen(pesc_last_error()) > 20);
    }
    grammar_close(g);
    if (clock_seconds() - began > 20) /* a busy machine; alone none takes 3 */
        fail_msg("%.60s... took %.1f s", text->p, clock_seconds() - began);
}

static void hostile_sources_are_bounded(void **state)
{
    (void)state;
    static const struct {
        pesc_grammar_kind kind;
        const char *before, *each, *middle, *after, *end;
        int n;
    } all[] = {
        { PESC_GRAMMAR_REGEX, "", "(", "a", ")", "", 60000 },
        { PESC_GRAMMAR_REGEX, "", "(", "a", ")", "", 90 },
        { PESC_GRAMMAR_REGEX, "", "(a+)+", "", "", "", 500 },
        { PESC_GRAMMAR_REGEX, "", "(a|b|ab)*c?", "", "", "", 300 },
        { PESC_GRAMMAR_REGEX, "", "(a{0,100}", "", "){0,100}", "", 5 },
        { PESC_GRAMMAR_REGEX, "", "[^a]{0,2000}", "", "", "", 300 },
        { PESC_GRAMMAR_REGEX, "(", "|\xf0\x9f\x98\x80", ")", "", "", 800 },
        { PESC_GRAMMAR_GBNF, "root ::= ", "(", "\"a\"", ")", "", 60000 },
        { PESC_GRAMMAR_GBNF, "root ::= ", "(", "\"a\"", "{1000}){1000}", "", 3 },
        { PESC_GRAMMAR_GBNF, "root ::= ", "\"a\"? ", "", "", "", 50000 },
        { PESC_GRAMMAR_GBNF, "root ::= \"a\" root root root | \"\" #", "x", "", "", "", 3 },
        { PESC_GRAMMAR_GBNF, "root ::= ", "(\"a\" | ", "\"b\"", ")*", "", 90 },
        { PESC_GRAMMAR_GBNF, "root ::= (", ". | ", ".", "", ")*", 20000 },
        { PESC_GRAMMAR_SCHEMA, "", "{\"items\":", "{}", "}", "", 100000 },
        { PESC_GRAMMAR_SCHEMA, "", "{\"items\":", "{}", "}", "", 60 },
        { PESC_GRAMMAR_SCHEMA, "{\"enum\":[", "\"aaaa\",", "1", "", "]}", 100000 },
        { PESC_GRAMMAR_SCHEMA, "", "{\"allOf\":[{\"anyOf\":[{\"type\":\"array\"},{}]},", "{}", "]}",
          "", 30 },
        { PESC_GRAMMAR_SCHEMA, "{\"pattern\":\"", "(a+)+", "b", "", "\"}", 100 },
        { PESC_GRAMMAR_SCHEMA, "{\"pattern\":\"^(a|b)*a", "(a|b)", "", "", "$\"}", 30 },
        { PESC_GRAMMAR_SCHEMA, "{\"maxLength\":1000000000,\"x\":\"", "x", "", "", "\"}", 3 },
        { PESC_GRAMMAR_SCHEMA, "{\"$ref\":\"#\",\"x\":\"", "x", "", "", "\"}", 1 },
        { PESC_GRAMMAR_SCHEMA, "{\"minimum\":1e308,\"maximum\":1.5e308,\"x\":\"", "x", "", "",
          "\"}", 1 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        str text = { 0 };
        str_puts(&text, all[i].before);
        repeat(&text, all[i].each, all[i].n);
        str_puts(&text, all[i].middle);
        repeat(&text, all[i].after, all[i].n);
        str_puts(&text, all[i].end);
        survive(all[i].kind, &text);
        str_free(&text);
    }
    str chain = { 0 }; /* rules that call each other */
    str_puts(&chain, "root ::= r0\n");
    for (int i = 0; i < 4000; i++)
        str_printf(&chain, "r%d ::= r%d r%d?\n", i, i + 1, (i * 7) % 4000);
    str_puts(&chain, "r4000 ::= \"a\"");
    survive(PESC_GRAMMAR_GBNF, &chain);
    str_free(&chain);
}

/* ---- failures of memory ---- */

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++) {
        bool fired = true;
        for (uint64_t n = 1; fired; n += 1 + n / 8) {
            grammar *g = NULL;
            matcher *m = NULL;
            bool accepts;
            const int32_t ids[] = { '"', 'a', 'b' };
            mem_fail_at(n);
            pesc_status st = open_grammar(&g, masked[i].kind, masked[i].text);
            if (st == PESC_OK)
                st = matcher_open(&m, g);
            for (size_t k = 0; st == PESC_OK && k < 3; k++)
                if (!matcher_allowed(m, ids, k, &accepts))
                    st = matcher_status(m);
            fired = mem_fail_fired();
            mem_fail_at(0);
            if (fired)
                assert_true(st == PESC_NOMEM || st == PESC_FORMAT || st == PESC_OK ||
                            st == PESC_UNSUPPORTED);
            matcher_close(m);
            grammar_close(g);
        }
    }
}

static int open_words(void **state)
{
    (void)state;
    static const char *const tokens[] = { "a",
                                          "b",
                                          "ab",
                                          "aa",
                                          "aaa",
                                          "abc",
                                          "the ",
                                          "\xe2\x96\x81word",
                                          "\"",
                                          "\":",
                                          "\",",
                                          "\"}",
                                          "{\"",
                                          "\"]",
                                          "a\"",
                                          "ab\"",
                                          "a\":",
                                          "\\n",
                                          "\\\"",
                                          "a\\",
                                          "\\u00",
                                          "\xc3\xa9",
                                          "\xc3\xa9t\xc3\xa9",
                                          "\xe4\xbd\xa0\xe5\xa5\xbd",
                                          "\n",
                                          "a\n",
                                          "\n\n",
                                          "  ",
                                          "    ",
                                          "true",
                                          "false",
                                          "null",
                                          "1",
                                          "12",
                                          "123",
                                          "0.",
                                          "-1",
                                          ": ",
                                          ", ",
                                          "(",
                                          "()",
                                          "))",
                                          "(a)",
                                          "[]",
                                          "{}",
                                          "[1,",
                                          "a, b",
                                          "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
                                          "------------------------------------",
                                          "\xf0\x9f\x98\x80",
                                          "x\"\n",
                                          "\"\"",
                                          "c",
                                          "<|call|>" };
    vocabulary_open(&words, tokens, sizeof tokens / sizeof *tokens, 7);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regular_expressions_match_as_pcre2),
        cmocka_unit_test(characters_are_whole),
        cmocka_unit_test(ranges_have_the_bytes_of_their_characters),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(masks_have_the_tokens_that_may_follow),
        cmocka_unit_test(logits_of_other_tokens_are_excluded),
        cmocka_unit_test(no_text_spells_a_control_token),
        cmocka_unit_test(a_dead_end_is_reported),
        cmocka_unit_test(the_only_text_that_can_follow_is_foreseen),
        cmocka_unit_test(what_a_grammar_permits_is_counted),
        cmocka_unit_test(hostile_sources_are_bounded),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("grammar", tests, open_words, words_close);
}
