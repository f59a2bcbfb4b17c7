#include "eval/tasktemplate.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/taskmade.h"

static json_t *row(void)
{
    json_t *v = json_loads(
        "{\"q\": \" a_b \", \"n\": 3, \"c\": {\"t\": [\"x\", \"y'\"]}, \"l\": \"2\", \"f\": 2.5,"
        " \"s\": \"so \\\\boxed{\\\\frac12}.\", \"e\": [\" one [h] two  three\", \"[h\\n]\"]}",
        0, NULL);
    assert_non_null(v);
    return v;
}

static pesc_status render(const char *source, str *out)
{
    task_template *t;
    json_t *r = row();
    pesc_status s = task_template_open(&t, source, "x.json: question", taskmade_work());
    if (s == PESC_OK)
        s = task_template_text(t, r, out);
    if (s == PESC_OK)
        str_puts(out, "");
    task_template_close(t);
    json_decref(r);
    return s;
}

/* The results are those of jinja2 with the harness's environment. */
static void renders_as_the_harness(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "", "" },
        { "{{ n }} {{ c.t[1] }}: {{ c.t }} {{ f }}\n", "3 y': ['x', \"y'\"] 2.5\n" },
        { "<{{ q.strip() }}>{{ q | trim | replace('_', ' ') }}", "<a_b>a b" },
        { "{{ q[:q.index('_')] }}|{{ q.split('_')[-1] }}", " a|b " },
        { "  {% if n == 3 %}\n  yes\n  {% endif %}\n", "  \n  yes\n  \n" },
        { "{% for x in c.t %}{{ loop.index }}{{ x }}{% endfor %}", "1x2y'" },
        { "{{ missing | default('-') }}{{ missing is defined }}", "-False" },
        { "{{ e[0] | regex_replace('\\\\[.*?\\\\]', '') }}", " one  two  three" },
        { "{{ e | map('regex_replace', '\\\\[.*?\\\\]', '') | list }}",
          "[' one  two  three', '[h\\n]']" },
        { "{{ '2020-11' | regex_replace('(\\\\d+)-(\\\\d+)', '\\\\2/\\\\1') }}", "11/2020" },
        { "{{ s | boxed }} {{ s | boxed | minerva }}", "\\frac12 \\frac{1}{2}" },
        { "{{ '\u01C4A'.capitalize() }}{{ '\uFB01N'.capitalize() }}", "\u01C5aFin" },
        { "{{ 'a.\u03A3:'.lower() }}{{ '\u1F50'.title() }}", "a.\u03C2:\u03A5\u0313" },
        { "\\frac{1}{2} {x} {{ '{q}' }} }", "\\frac{1}{2} {x} {q} }" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        must(render(rows[i][0], &out));
        str_puts(&out, "");
        assert_string_equal(out.p, rows[i][1]);
        str_free(&out);
    }
}

static void keeps_types(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        json_type type;
    } rows[] = {
        { "{{ n }}", JSON_INTEGER },
        { "{{ l }}", JSON_STRING },
        { "{{ l | integer }}", JSON_INTEGER },
        { "{{ c.t }}", JSON_ARRAY },
        { "{{ n }} ", JSON_STRING },
        { "{{ c }}", JSON_OBJECT },
        { "{{ f }}", JSON_REAL },
        { "{{ n == 3 }}", JSON_TRUE },
        { "{{ none }}", JSON_NULL },
        { "{{ c.t | map('upper') }}", JSON_ARRAY },
    };
    json_t *r = row(), *v;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        task_template *t;
        must(task_template_open(&t, rows[i].source, "a test", taskmade_work()));
        must(task_template_value(t, r, &v));
        assert_int_equal(json_typeof(v), rows[i].type);
        json_decref(v);
        task_template_close(t);
    }
    json_decref(r);
}

static void refuses_bad_templates(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "{{ a", "an expression is not closed" },
        { "{% if a %}", "line 1" },
        { "{{ a | shout }}", "the filter \"shout\" is not supported" },
        { "{% include 'x' %}", "include" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        task_template *t;
        must_fail(task_template_open(&t, rows[i][0], "x.json: question", taskmade_work()),
                  PESC_FORMAT, rows[i][1]);
        assert_non_null(strstr(pesc_last_error(), "x.json: question"));
    }
}

/* As with jinja2's StrictUndefined: what the row lacks is no empty text. */
static void refuses_rows_without_the_column(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "{{ z }}", "'z' is undefined" },
        { "a{{ z }}", "'z' is undefined" },
        { "{{ z | trim }}", "'z' is undefined" },
        { "{% if z %}{% endif %}", "'z' is undefined" },
        { "{% for x in z %}{% endfor %}", "'z' is undefined" },
        { "{{ z == 1 }}", "'z' is undefined" },
        { "{{ z | length }}", "'z' is undefined" },
        { "{{ 'a' ~ z }}", "'z' is undefined" },
        { "{{ c.t[2] }}", "x.json: question" },
        { "{{ q.x }}", "x.json: question" },
        { "{{ q | integer }}", "found \"a_b\", expected a whole number" },
        { "{{ '12345678901234567890123' | integer }}", "expected a whole number" },
        { "{{ q.index('%') }}", "substring not found" },
        { "{{ q | boxed }}", "no answer in \\boxed" },
        { "{{ q | regex_replace('(', '') }}", "cannot be compiled" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        str out = { 0 };
        must_fail(render(rows[i][0], &out), PESC_FORMAT, rows[i][1]);
        assert_non_null(strstr(pesc_last_error(), "x.json: question: line 1"));
        str_free(&out);
    }
}

static pesc_status check(const char *source)
{
    task_template *t;
    json_t *r = row();
    must(task_template_open(&t, source, "x.json: question", taskmade_work()));
    pesc_status s = task_template_check(t, r);
    task_template_close(t);
    json_decref(r);
    return s;
}

/* Columns as they were written before Jinja are refused with what to write; braces that are no
 * columns are text. */
static void knows_the_language_before(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "Q: {q}", "found {q}, which is how columns were written before" },
        { "Q: {q}", "write {{ q }}, or {{ \"{q}\" }} for the text itself" },
        { "{{ n }} {c.t[0]}", "write {{ c.t[0] }}" },
        { "{q|strip|capitalize}", "write {{ q.strip().capitalize() }}" },
        { "{unknown|spaces}", "write {{ unknown.replace('_', ' ') }}" },
        { "{q|before:_}", "write {{ q.split('_')[0] }}" },
        { "{q|after:_|strip}", "write {{ q.split('_', 1)[1].strip() }}" },
        { "{q|after_last:####}", "write {{ q.split('####')[-1] }}" },
        { "{s|boxed|minerva}", "write {{ s | boxed | minerva }}" },
        { "{l|integer}", "write {{ l | integer }}" },
    };
    static const char *const texts[] = {
        "{{ q }}",
        "{% if q %}{q}{% endif %}",
        "\\frac{1}{2} \\boxed{x}",
        "{",
        "{}",
        "{q",
        "{ q }",
        "{{ '{q}' }}",
        "{\"q\": 1}",
        "{x|y}",
        "{# {q} #}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        must_fail(check(rows[i][0]), PESC_FORMAT, rows[i][1]);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (i == 1)
            must_fail(check(texts[i]), PESC_FORMAT, "found {q}");
        else
            must(check(texts[i]));
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    json_t *r = row();
    for (uint64_t n = 1;; n++) {
        task_template *t = NULL;
        str out = { 0 };
        mem_fail_at(n);
        pesc_status s = task_template_open(
            &t, "{{ e | map('regex_replace', 'o', 'a') | list }}{{ s | boxed | minerva }}",
            "a test", taskmade_work());
        if (s == PESC_OK)
            s = task_template_text(t, r, &out);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        task_template_close(t);
        str_free(&out);
        if (!fired) {
            must(s);
            break;
        }
        assert_int_equal(s, PESC_NOMEM);
    }
    json_decref(r);
}

/* Templates that write much more than they read, or loop for long, are refused soon. */
static void bounds_the_work(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ q * 400000000 }}",
        "{{ (q * 4000000) ~ (q * 4000000) ~ (q * 4000000) ~ (q * 4000000) ~ (q * 4000000) }}",
        "{% set x = namespace(t=q) %}{% for i in range(60) %}{% set x.t = x.t ~ x.t %}{% endfor %}",
        "{{ ('a' * 100) | regex_replace('(a+)+[bc]', '') }}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        task_template *t;
        json_t *r = row(), *v;
        must(task_template_open(&t, rows[i], "a test", taskmade_work()));
        pesc_status s = PESC_OK;
        for (int k = 0; k < 1000 && s == PESC_OK; k++) {
            s = task_template_value(t, r, &v);
            json_decref(v);
        }
        must_fail(s, PESC_FORMAT, "a test");
        task_template_close(t);
        json_decref(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renders_as_the_harness),
        cmocka_unit_test(keeps_types),
        cmocka_unit_test(refuses_bad_templates),
        cmocka_unit_test(refuses_rows_without_the_column),
        cmocka_unit_test(knows_the_language_before),
        cmocka_unit_test(bears_want_of_memory),
        cmocka_unit_test(bounds_the_work),
    };
    return cmocka_run_group_tests_name("tasktemplate", tests, NULL, NULL);
}
