#include "eval/fill.h"

#include "base/mem.h"
#include "support/check.h"

static json_t *row(void)
{
    json_t *v = json_loads(
        "{\"q\": \" a_b \", \"n\": 3, \"c\": {\"t\": [\"x\", \"y'\"]}, \"e\": [\" one [h] two  "
        "three\", \"[title] a [title] b\"], \"l\": \"2\", \"s\": \"so \\\\boxed{\\\\frac12}.\"}",
        0, NULL);
    assert_non_null(v);
    return v;
}

static void must_give(const char *template, const char *want)
{
    fill *f;
    json_t *r = row();
    str out = { 0 };
    must(fill_open(&f, template, "a test"));
    must(fill_text(f, r, &out));
    str_puts(&out, "");
    assert_string_equal(out.p, want);
    str_free(&out);
    fill_close(f);
    json_decref(r);
}

static void fills_in_columns(void **state)
{
    (void)state;
    must_give("", "");
    must_give("{{{n}}} {c.t[1]}: {c.t}", "{3} y': ['x', \"y'\"]");
    must_give("<{q|strip}> {q|spaces|strip}", "<a_b> a b");
    must_give("{q|before:_}|{q|after:_}|{q|after_last:x}", " a|b | a_b ");
    must_give("{q|strip|capitalize}", "A_b");
    must_give("{s|boxed} {s|boxed|minerva}", "\\frac12 \\frac{1}{2}");
}

static void cleans_hellaswag(void **state)
{
    (void)state;
    must_give("{e[0]|hellaswag}", "one two three");
    must_give("{e[1]|hellaswag}", " a. b"); /* the first mark has no space before it */
    must_give("{e|hellaswag}", "['one two three', ' a. b']");
}

static void keeps_types(void **state)
{
    (void)state;
    static const struct {
        const char *template, *then;
        json_type type;
    } rows[] = {
        { "{n}", NULL, JSON_INTEGER },         { "{l}", NULL, JSON_STRING },
        { "{l|integer}", NULL, JSON_INTEGER }, { "{c.t}", NULL, JSON_ARRAY },
        { "{n} ", NULL, JSON_STRING },         { " {n} ", "integer", JSON_INTEGER },
    };
    json_t *r = row(), *v;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill *f;
        must(fill_open(&f, rows[i].template, "a test"));
        if (rows[i].then)
            must(fill_then(f, rows[i].then, "a test"));
        must(fill_value(f, r, &v));
        assert_int_equal(json_typeof(v), rows[i].type);
        json_decref(v);
        fill_close(f);
    }
    json_decref(r);
}

static void refuses_bad_templates(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "{a", "partner" },
        { "a}", "partner" },
        { "{}", "names no column" },
        { "{a|shout}", "\"shout\" is not known" },
        { "{a|before}", "needs an argument" },
        { "{a|before:}", "needs an argument" },
        { "{a|strip:x}", "takes no argument" },
        { "{a|strip|strip|strip|strip|strip}", "more than 4" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill *f;
        must_fail(fill_open(&f, rows[i][0], "x.json: question"), PESC_FORMAT, rows[i][1]);
        assert_non_null(strstr(pesc_last_error(), "x.json: question"));
    }
}

static void refuses_rows_without_the_column(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "{z}", "\"z\" is missing" },      { "{c.t[2]}", "\"c.t[2]\" is missing" },
        { "{q.x}", "\"q.x\" is missing" },  { "{q|integer}", "whole number" },
        { "{q|before:%}", "has no \"%\"" }, { "{q|boxed}", "no answer in \\boxed" },
    };
    json_t *r = row(), *v;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fill *f;
        must(fill_open(&f, rows[i][0], "a test"));
        must_fail(fill_value(f, r, &v), PESC_FORMAT, rows[i][1]);
        fill_close(f);
    }
    json_decref(r);
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    json_t *r = row();
    for (uint64_t n = 1;; n++) {
        fill *f = NULL;
        str out = { 0 };
        mem_fail_at(n);
        pesc_status s = fill_open(&f, "{e|hellaswag} {q|before:_|capitalize}", "a test");
        if (s == PESC_OK)
            s = fill_text(f, r, &out);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        fill_close(f);
        str_free(&out);
        if (!fired) {
            must(s);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
    }
    json_decref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_in_columns),
        cmocka_unit_test(cleans_hellaswag),
        cmocka_unit_test(keeps_types),
        cmocka_unit_test(refuses_bad_templates),
        cmocka_unit_test(refuses_rows_without_the_column),
        cmocka_unit_test(bears_want_of_memory),
    };
    return cmocka_run_group_tests_name("fill", tests, NULL, NULL);
}
