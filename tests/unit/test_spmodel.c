#include "base/mem.h"
#include "support/check.h"
#include "support/spwire.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/spmodel.h"
#include "tokenizer/trie.h"

#include <math.h>
#include <time.h>

typedef struct options {
    int type; /* model_type */
    bool bytes, suffix, no_dummy, keep_spaces, no_escape;
    const rule *rules;
    size_t n_rules;
} options;

static void put_pieces(str *s, bool bytes)
{
    wire_piece(s, "<unk>", 0, SP_UNKNOWN);
    wire_piece(s, "<s>", 0, SP_CONTROL);
    wire_piece(s, "</s>", 0, SP_CONTROL);
    wire_piece(s, "\xe2\x96\x81", -1.5f, SP_NORMAL);
    wire_piece(s, "a", -2, SP_NORMAL);
    wire_piece(s, "<ud>", 0, SP_USER_DEFINED);
    wire_piece(s, "gone", -3, SP_UNUSED);
    for (unsigned b = 0; bytes && b < 256; b++) {
        str name = { 0 };
        str_printf(&name, "<0x%02X>", b);
        wire_piece(s, name.p, 0, SP_BYTE);
        str_free(&name);
    }
}

static void put_specs(str *s, options o)
{
    str trainer = { 0 }, normalizer = { 0 };
    wire_bytes(&trainer, 1, "corpus.txt", 10); /* a field the reader passes over */
    wire_number(&trainer, 3, (uint64_t)(o.type ? o.type : SP_BPE));
    wire_number(&trainer, 24, o.suffix);
    wire_number(&trainer, 35, o.bytes);
    wire_message(s, 2, &trainer);
    wire_bytes(&normalizer, 1, "test", 4);
    if (o.n_rules > 0) {
        str table = { 0 };
        wire_charsmap(&table, o.rules, o.n_rules);
        wire_message(&normalizer, 2, &table);
    }
    wire_number(&normalizer, 3, !o.no_dummy);
    wire_number(&normalizer, 4, !o.keep_spaces);
    wire_number(&normalizer, 5, !o.no_escape);
    wire_message(s, 3, &normalizer);
}

static str model(options o)
{
    str s = { 0 };
    put_pieces(&s, o.bytes);
    put_specs(&s, o);
    return s;
}

static spmodel *opened(options o)
{
    str s = model(o);
    spmodel *m = NULL;
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    str_free(&s);
    return m;
}

static void reads_what_is_there(void **state)
{
    (void)state;
    spmodel *m = opened((options){ .bytes = true });
    assert_int_equal(m->kind, SP_BPE);
    assert_int_equal(m->n, 7 + 256);
    assert_string_equal(m->pieces[3].text, "\xe2\x96\x81");
    assert_int_equal(m->pieces[3].n, 3);
    assert_true(m->pieces[3].score == -1.5f);
    assert_int_equal(m->pieces[5].type, SP_USER_DEFINED);
    assert_int_equal(m->unk, 0);
    assert_int_equal(m->bos, 1);
    assert_int_equal(m->eos, 2);
    assert_int_equal(m->pad, -1);
    assert_true(m->byte_fallback);
    assert_int_equal(m->bytes[0], 7);
    assert_int_equal(m->bytes[255], 7 + 255);
    assert_true(m->add_dummy_prefix && m->remove_extra_whitespaces && m->escape_whitespaces);
    assert_int_equal(trie_find(m->user_defined, "<ud>", 4), 5);
    spmodel_close(m);
    spmodel_close(NULL);
}

/* Without specs protobuf's defaults hold: UNIGRAM, no byte fallback, all of the normaliser. */
static void defaults_hold_without_specs(void **state)
{
    (void)state;
    str s = { 0 };
    put_pieces(&s, false);
    spmodel *m = NULL;
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    assert_int_equal(m->kind, SP_UNIGRAM);
    assert_true(m->add_dummy_prefix && m->remove_extra_whitespaces && m->escape_whitespaces);
    assert_false(m->byte_fallback || m->whitespace_suffix);
    assert_null(m->map);
    spmodel_close(m);
    str trainer = { 0 }; /* a second message is merged with the first */
    wire_bytes(&trainer, 46, "</s>", 4);
    wire_message(&s, 2, &trainer);
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    assert_int_equal(m->bos, 2);
    spmodel_close(m);
    str_free(&s);
}

/* Consumes s. An exact copy on the heap, so that a sanitizer sees one byte too far. */
static void refuse(str *s, pesc_status status, const char *part)
{
    spmodel *m = NULL;
    unsigned char *exact = mem_alloc(s->n ? s->n : 1, 1);
    if (s->n > 0)
        memcpy(exact, s->p, s->n);
    must_fail(spmodel_open(&m, exact, s->n, "m"), status, part);
    assert_null(m);
    mem_free(exact);
    str_free(s);
    *s = (str){ 0 };
}

static void refuses_bad_wire(void **state)
{
    (void)state;
    static const struct {
        const char *tail;
        size_t n;
        const char *part;
    } rows[] = {
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "more than 64 bits" },
        { "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10, "more than 64 bits" },
        { "\x30\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 12, "more than 64 bits" },
        { "\x80", 1, "a number ends at" },
        { "\x32\x05xx", 4, "field 6 has 5 bytes, but its message ends after 2" },
        { "\x32\xff\xff\xff\xff\x0f", 6, "has 4294967295 bytes" },
        { "\x32\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "has 18446744073709551615 bytes" },
        { "\x33\x34", 2, "found wire type 3" },
        { "\x34", 1, "found wire type 4" },
        { "\x36", 1, "found wire type 6" },
        { "\x37", 1, "found wire type 7" },
        { "\x00\x00", 2, "found field number 0" },
        { "\x02\x00", 2, "found field number 0" },
        { "\x80\x80\x80\x80\x10\x00", 6, "found field number 536870912" },
        { "\x31\x01\x02\x03\x04\x05\x06\x07", 8, "field 6 has 8 bytes" },
        { "\x35\x01\x02\x03", 4, "field 6 has 4 bytes" },
        { "\x08\x01", 2, "a piece has wire type 0, expected 2" },
        { "\x10\x01", 2, "trainer_spec has wire type 0" },
        { "\x1d\x01\x02\x03\x04", 5, "normalizer_spec has wire type 5" },
        { "\x12\x02\x1a\x00", 4, "model_type has wire type 2, expected 0" },
        { "\x12\x03\x18\x80\x80\x30\x01", 7, "a number ends at" }, /* into the bytes behind it */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str s = model((options){ 0 });
        str_add(&s, rows[i].tail, rows[i].n);
        refuse(&s, PESC_FORMAT, rows[i].part);
        assert_memory_equal(pesc_last_error(), "m: byte ", 8);
    }
}

static void refuses_bad_pieces(void **state)
{
    (void)state;
    static const unsigned bad_type[] = { 0, 7, 1000 };
    static const float bad_score[] = { NAN, INFINITY, -INFINITY };
    static char big[SP_PIECE_MAX + 2];
    str s = { 0 };
    refuse(&s, PESC_FORMAT, "found 0 pieces");
    for (size_t i = 0; i < 3; i++) {
        s = model((options){ 0 });
        wire_piece(&s, "z", 0, bad_type[i]);
        refuse(&s, PESC_FORMAT, "expected 1 to 6");
        s = model((options){ 0 });
        wire_piece(&s, "z", bad_score[i], SP_NORMAL);
        refuse(&s, PESC_FORMAT, "the score of piece 7 is");
    }
    s = model((options){ 0 });
    wire_piece(&s, "", 0, SP_NORMAL);
    refuse(&s, PESC_FORMAT, "piece 7 has no text");
    s = model((options){ 0 });
    wire_bytes(&s, 1, "", 0);
    refuse(&s, PESC_FORMAT, "piece 7 has no text");
    s = model((options){ 0 });
    wire_piece(&s, "a\xff", 0, SP_NORMAL);
    refuse(&s, PESC_FORMAT, "not UTF-8");
    s = model((options){ 0 });
    wire_bytes(&s, 1,
               "\x0a\x03"
               "a\0b",
               5);
    refuse(&s, PESC_FORMAT, "without NUL");
    s = model((options){ 0 });
    memset(big, 'b', sizeof big - 1);
    wire_piece(&s, big, 0, SP_NORMAL);
    refuse(&s, PESC_FORMAT, "has 8000 bytes");
    s = model((options){ 0 });
    wire_piece(&s, "a", 0, SP_NORMAL);
    refuse(&s, PESC_FORMAT, "pieces 4 and 7 are both \"a\"");
    s = model((options){ 0 });
    wire_piece(&s, "[UNK]", 0, SP_UNKNOWN);
    refuse(&s, PESC_FORMAT, "both marked as unknown");
    wire_piece(&s, "a", 0, SP_NORMAL);
    refuse(&s, PESC_FORMAT, "is marked as unknown (<unk>)");
}

static void refuses_bad_byte_pieces(void **state)
{
    (void)state;
    str s = model((options){ 0 });
    wire_piece(&s, "<0x00>", 0, SP_BYTE);
    refuse(&s, PESC_FORMAT, "byte_fallback is off");
    s = model((options){ .bytes = true });
    wire_piece(&s, "<0x0g>", 0, SP_BYTE);
    refuse(&s, PESC_FORMAT, "not of the form <0xNN>");
    put_pieces(&s, false);
    put_specs(&s, (options){ .bytes = true });
    refuse(&s, PESC_FORMAT, "no piece <0x00>");
}

static void refuses_other_models(void **state)
{
    (void)state;
    str s = model((options){ .type = 3 });
    refuse(&s, PESC_UNSUPPORTED, "model_type 3 (WORD)");
    s = model((options){ .type = 4 });
    refuse(&s, PESC_UNSUPPORTED, "model_type 4 (CHAR)");
    s = model((options){ .type = 99 });
    refuse(&s, PESC_UNSUPPORTED, "model_type 99, expected");
}

static void refuses_bad_charsmaps(void **state)
{
    (void)state;
    static const char *const blobs[] = { "x", "xx", "xxx", "xxxx" };
    for (size_t i = 0; i < 4; i++) {
        str s = { 0 }, n = { 0 };
        put_pieces(&s, false);
        wire_bytes(&n, 2, blobs[i], i + 1);
        wire_message(&s, 3, &n);
        refuse(&s, PESC_FORMAT, "m: precompiled_charsmap at byte ");
    }
    str s = { 0 }, n = { 0 };
    put_pieces(&s, false);
    wire_bytes(&n, 2, "", 0);
    wire_message(&s, 3, &n);
    spmodel *m = NULL;
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    assert_null(m->map);
    spmodel_close(m);
    str_free(&s);
}

static void expect_normalised(const spmodel *m, const char *text, bool dummy, const char *expected)
{
    str out = { 0 };
    str_puts(&out, "before ");
    spmodel_normalise(m, text, strlen(text), dummy, &out);
    assert_true(str_ok(&out));
    assert_string_equal(out.p + 7, expected);
    str_free(&out);
}

#define _ "\xe2\x96\x81"

static void normalises_like_sentencepiece(void **state)
{
    (void)state;
    static const rule rules[] = { { "\t", " " },
                                  { "\xef\xac\x81", "fi" },
                                  { "\x7f", "" },
                                  { "<ud>", "changed" },
                                  { "\x01", " x " } };
    spmodel *m = opened((options){ .rules = rules, .n_rules = 5 });
    expect_normalised(m, "", true, "");
    expect_normalised(m, "   \t ", true, "");
    expect_normalised(m, " a  b\t\tc ", true, _ "a" _ "b" _ "c");
    expect_normalised(m, " a", false, "a");
    expect_normalised(m, "\xef\xac\x81<ud>", true, _ "fi<ud>");
    expect_normalised(m, "\x7f", true, "");
    expect_normalised(m,
                      "a\x01\x01"
                      "b",
                      true, _ "a" _ "x" _ "x" _ "b");
    expect_normalised(m, "a\xff\xe2\x96z", true, _ "a\xef\xbf\xbd\xef\xbf\xbdz");
    spmodel_close(m);
    m = opened((options){ .keep_spaces = true });
    expect_normalised(m, "  a  ", true, _ _ _ "a" _ _);
    expect_normalised(m, " ", true, _ _);
    expect_normalised(m, "", true, "");
    spmodel_close(m);
    m = opened((options){ .suffix = true });
    expect_normalised(m, " a b ", true, "a" _ "b" _);
    spmodel_close(m);
    m = opened((options){ .no_dummy = true, .no_escape = true });
    expect_normalised(m, " a  b ", true, "a b");
    spmodel_close(m);
}

static void tells_models_from_json(void **state)
{
    (void)state;
    str s = model((options){ 0 });
    assert_true(spmodel_is((unsigned char *)s.p, s.n));
    str_free(&s);
    static const char *const json[] = { "{\"a\":1}", "\n\n {\n \"a\": 1}", "\n{}", "[", "", "x" };
    for (size_t i = 0; i < sizeof json / sizeof *json; i++)
        assert_false(spmodel_is((const unsigned char *)json[i], strlen(json[i])));
}

/* Every cut is a refusal, or a whole number of fields; every flip a refusal or a usable model. */
static void survives_cuts_and_flips(void **state)
{
    (void)state;
    static const rule rules[] = { { "\t", " " } };
    for (int with_map = 0; with_map < 2; with_map++) {
        str s = model((options){ .rules = rules, .n_rules = (size_t)with_map });
        for (size_t n = 0; n < s.n; n++) {
            spmodel *m = NULL;
            unsigned char *exact = mem_alloc(n + 1, 1);
            memcpy(exact, s.p, n);
            pesc_status st = spmodel_open(&m, exact, n, "cut");
            assert_true(st == PESC_OK || st == PESC_FORMAT);
            assert_true((st == PESC_OK) == (m != NULL));
            spmodel_close(m);
            mem_free(exact);
        }
        size_t step = with_map ? 37 : 1; /* the table is large and has a test of its own */
        for (size_t bit = 0; bit < s.n * 8; bit += step) {
            spmodel *m = NULL;
            s.p[bit / 8] ^= (char)(1 << bit % 8);
            if (spmodel_open(&m, (unsigned char *)s.p, s.n, "flip") == PESC_OK) {
                str out = { 0 };
                spmodel_normalise(m, "a <ud> \t b", 10, true, &out);
                assert_true(str_ok(&out));
                str_free(&out);
            }
            spmodel_close(m);
            s.p[bit / 8] ^= (char)(1 << bit % 8);
        }
        str_free(&s);
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    static const rule rules[] = { { "\t", " " } };
    str s = model((options){ .bytes = true, .rules = rules, .n_rules = 1 });
    uint64_t i = 1;
    for (bool fired = true; fired; i++) {
        spmodel *m = NULL;
        mem_fail_at(i);
        pesc_status st = spmodel_open(&m, (unsigned char *)s.p, s.n, "m");
        fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(st, fired ? PESC_NOMEM : PESC_OK);
        assert_true((m != NULL) == !fired);
        spmodel_close(m);
    }
    assert_true(i > 10);
    str_free(&s);
}

/* A hundred thousand nested groups and a million tiny fields are read (or refused) at once. */
static void time_is_linear(void **state)
{
    (void)state;
    str s = { 0 };
    clock_t begin = clock();
    for (int i = 0; i < 100000; i++)
        str_putc(&s, '\x33');
    refuse(&s, PESC_FORMAT, "found wire type 3");
    put_pieces(&s, false);
    for (int i = 0; i < 1000000; i++)
        wire_number(&s, 6, 1);
    spmodel *m = NULL;
    must(spmodel_open(&m, (unsigned char *)s.p, s.n, "m"));
    spmodel_close(m);
    str_free(&s);
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_is_there),
        cmocka_unit_test(defaults_hold_without_specs),
        cmocka_unit_test(refuses_bad_wire),
        cmocka_unit_test(refuses_bad_pieces),
        cmocka_unit_test(refuses_bad_byte_pieces),
        cmocka_unit_test(refuses_other_models),
        cmocka_unit_test(refuses_bad_charsmaps),
        cmocka_unit_test(normalises_like_sentencepiece),
        cmocka_unit_test(tells_models_from_json),
        cmocka_unit_test(survives_cuts_and_flips),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(time_is_linear),
    };
    return cmocka_run_group_tests_name("spmodel", tests, NULL, NULL);
}
