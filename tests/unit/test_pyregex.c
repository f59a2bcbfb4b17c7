#include "eval/pyregex.h"

#include "base/mem.h"
#include "support/check.h"

static slice text(const char *s)
{
    return (slice){ s, strlen(s) };
}

static void finds_groups(void **state)
{
    (void)state;
    pyregex *r;
    pyregex_match m;
    bool found;
    must(pyregex_open(&r, "(-?[$0-9.,]{2,})|(-?[0-9]+)", "a test"));
    must(pyregex_search(r, text("is 7 or 12"), 0, &m, &found));
    assert_true(found);
    assert_int_equal(m.start, 3);
    assert_int_equal(m.n_groups, 3);
    assert_null(m.groups[1].p);
    assert_int_equal(m.groups[2].n, 1);
    must(pyregex_search(r, text("is 7 or 12"), m.end, &m, &found));
    assert_int_equal(m.groups[1].n, 2);
    must(pyregex_search(r, text("none"), 0, &m, &found));
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
        must(pyregex_open(&r, rows[i][0], "a test"));
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
    must_fail(pyregex_open(&r, "(", "arc.json: ignore"), PESC_FORMAT, "arc.json: ignore");
    must_fail(pyregex_open(&r, "()()()()()()()()", "x"), PESC_FORMAT, "8 groups");
}

/* A pattern with exponential time ends with a sentence. */
static void bounds_the_work(void **state)
{
    (void)state;
    pyregex *r;
    pyregex_match m;
    bool found;
    static const char hard[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaay xy";
    must(pyregex_open(&r, "(a|aa)+x$", "a test"));
    must_fail(pyregex_search(r, text(hard), 0, &m, &found), PESC_FORMAT, "a test");
    pyregex_close(r);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        pyregex *r = NULL;
        str out = { 0 };
        mem_fail_at(n);
        pesc_status s = pyregex_open(&r, "a(b)", "a test");
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
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("pyregex", tests, NULL, NULL);
}
