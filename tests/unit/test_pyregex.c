#include "eval/pyregex.h"

#include "base/mem.h"
#include "support/check.h"

#include <time.h>

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

/* What an evaluation begins with. */
static allowance *allowed(void)
{
    static allowance work;
    allowance_open(&work);
    return &work;
}

static void finds_groups(void **state)
{
    (void)state;
    pyregex *r;
    pyregex_match m;
    bool found;
    must(pyregex_open(&r, "(-?[$0-9.,]{2,})|(-?[0-9]+)", "a test", allowed()));
    pyregex_walk w = { .r = r, .text = text("is 7 or 12") };
    must(pyregex_next(&w, &m, &found));
    assert_true(found);
    assert_int_equal(m.start, 3);
    assert_int_equal(m.n_groups, 3);
    assert_null(m.groups[1].p);
    assert_int_equal(m.groups[2].n, 1);
    must(pyregex_next(&w, &m, &found));
    assert_int_equal(m.groups[1].n, 2);
    must(pyregex_next(&w, &m, &found));
    assert_false(found);
    pyregex_close(r);
}

/* The results are those of Python's re.sub. */
static void replaces_as_python(void **state)
{
    (void)state;
    static const char *const rows[][4] = {
        { "\\.$", "3.", "", "3" },
        { "\\.$", "3.\n", "", "3\n" },
        { "(?s).*#### ", "a\n#### b #### c", "", "c" },
        { "\\b(?:The |the |An |A |The |a |an )", "a banana The x", "", "banana x" },
        { "x*", "axb", "-", "-a--b-" },
        { "(b)(c)", "abcd", "\\2\\1\\\\", "acb\\d" },
        { "(?<!\\\\)\\bft\\b", "\\ft ft \u00e9ft 3 ft", "", "\\ft  \u00e9ft 3 " },
        { ".", "\u00e9\n", "x", "x\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pyregex *r;
        str out = { 0 };
        must(pyregex_open(&r, rows[i][0], "a test", allowed()));
        must(pyregex_sub(r, text(rows[i][1]), rows[i][2], &out));
        assert_string_equal(out.p, rows[i][3]);
        str_free(&out);
        pyregex_close(r);
    }
}

static void refuses_bad_patterns(void **state)
{
    (void)state;
    pyregex *r;
    must_fail(pyregex_open(&r, "(", "arc.json: ignore", allowed()), PESC_FORMAT,
              "arc.json: ignore");
    must_fail(pyregex_open(&r, "()()()()()()()()", "x", allowed()), PESC_FORMAT, "8 groups");
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Patterns that take much more than linear time, each on a text of up to 1 MB that it is bad for:
 * answered or refused in 2 s, however many texts there are. */
static void bounds_the_work(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *piece, *end;
        size_t n; /* pieces */
    } rows[] = {
        { "(a|aa)+x$", "a", "y xy", 60 },
        { "(a+)+[bc]", "a", "", 30 },
        { ",[^y]*[yz]", ",", "", 1000000 },
        { ",(?=[^y]*+y)", ",", "", 1000000 },
        { "(?:,[^y]*+[yz]|,)*x", ",", "", 30000 },
        { "(.+)\\1b", "a", "cb", 20000 },
        { "(?<=(.))\\1+\\1+z", "a", "", 200000 },
        { "\\w+\\s*=", "\xc3\xa9", "", 400000 },
        { "(?s).*?(a.*)?b", "a\n", "", 400000 },
        { "(x?){1,60}y", "x", "", 1000000 },
        { ",", ",", "", 100000 },
        { "", "a", "", 1000000 },
        { "\\X*q", "\xcc\x81", "", 400000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pyregex *r;
        str hard = { 0 };
        allowance *work = allowed();
        for (size_t k = 0; k < rows[i].n; k++)
            str_puts(&hard, rows[i].piece);
        str_puts(&hard, rows[i].end);
        allowance_add(work, ALLOWANCE_ANSWER_BYTE * (uint64_t)hard.n);
        must(pyregex_open(&r, rows[i].pattern, "a test", work));
        double from = cpu_seconds();
        pesc_status s = PESC_OK;
        for (int k = 0; k < 1000 && s == PESC_OK && cpu_seconds() - from < 3; k++) {
            str out = { 0 };
            s = pyregex_sub(r, slice_of(&hard), "", &out);
            str_free(&out);
        }
        double taken = cpu_seconds() - from;
        if (taken > 2)
            fail_msg("%s: %.1f s", rows[i].pattern, taken);
        if (s != PESC_OK)
            must_fail(s, PESC_FORMAT, "a test: ");
        pyregex_close(r);
        str_free(&hard);
    }
}

/* One that gives up leaves nothing for the next. */
static void shares_the_allowance(void **state)
{
    (void)state;
    pyregex *r;
    str out = { 0 };
    allowance *work = allowed();
    must(pyregex_open(&r, "(a+)+[bc]", "ignore", work));
    must_fail(pyregex_sub(r, text("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), "", &out), PESC_FORMAT,
              "ignore: the templates and regular expressions of these tasks do more work");
    must_fail(pyregex_sub(r, text("a"), "", &out), PESC_FORMAT, "do more work");
    pyregex_close(r);
    str_free(&out);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        pyregex *r = NULL;
        str out = { 0 };
        mem_fail_at(n);
        pesc_status s = pyregex_open(&r, "a(b)", "a test", allowed());
        if (s == PESC_OK)
            s = pyregex_sub(r, text("xabx"), "\\1", &out);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        pyregex_close(r);
        if (!fired) {
            must(s);
            assert_string_equal(out.p, "xbx");
            str_free(&out);
            return;
        }
        assert_int_equal(s, PESC_NOMEM);
        str_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_groups),         cmocka_unit_test(replaces_as_python),
        cmocka_unit_test(refuses_bad_patterns), cmocka_unit_test(bounds_the_work),
        cmocka_unit_test(shares_the_allowance), cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("pyregex", tests, NULL, NULL);
}
