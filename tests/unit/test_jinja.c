/* Templates as jinja2 renders them (tests/golden/jinja.json, made by
 * tests/golden/make/golden_jinja.py), and what pesc adds: origins, limits, sentences with the line.
 */
#include "jinja/jinja.h"
#include "jinja/jinja_builtin.h"

#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "support/check.h"
#include "support/slower.h"

#include <stdio.h>

static const struct tm saturday = { .tm_year = 124,
                                    .tm_mon = 6,
                                    .tm_mday = 6,
                                    .tm_hour = 9,
                                    .tm_min = 30,
                                    .tm_sec = 15,
                                    .tm_wday = 6,
                                    .tm_yday = 187,
                                    .tm_isdst = 0 };

static pesc_status run(const char *source, const json_t *variables, jinja_text *out)
{
    json_t *tokens = json_pack("{ssss}", "bos_token", "<s>", "eos_token", "</s>");
    jinja_input in = { .variables = variables, .trusted = tokens, .now = &saturday };
    jinja_template *t = NULL;
    *out = (jinja_text){ 0 };
    pesc_status s = jinja_compile(&t, source, strlen(source), "t");
    if (s == PESC_OK)
        s = jinja_render(t, &in, out);
    jinja_free(t);
    json_decref(tokens);
    return s;
}

/* ---- against jinja2 ---- */

static void check_generation(const jinja_text *text, const json_t *spans)
{
    unsigned char *want = mem_zalloc(text->n + 1, 1);
    for (size_t i = 0; i < json_array_size(spans); i++) {
        const json_t *span = json_array_get(spans, i);
        for (json_int_t k = json_integer_value(json_array_get(span, 0));
             k < json_integer_value(json_array_get(span, 1)); k++)
            want[k] = 1;
    }
    for (size_t i = 0; i < text->n; i++)
        assert_int_equal((text->origin[i] & JINJA_GENERATED) != 0, want[i]);
    mem_free(want);
}

static bool agrees(const json_t *row, const json_t *variables)
{
    const char *source = json_string_value(json_object_get(row, "template"));
    const json_t *error = json_object_get(row, "error"), *text = json_object_get(row, "text");
    jinja_text out;
    pesc_status s = run(source, variables, &out);
    bool same;
    if (error)
        same = s != PESC_OK && s != PESC_NOMEM && (s == PESC_USAGE) == json_is_true(error);
    else
        same = s == PESC_OK && out.n == json_string_length(text) &&
               memcmp(out.text, json_string_value(text), out.n) == 0;
    if (same && text)
        check_generation(&out, json_object_get(row, "generation"));
    if (!same)
        fprintf(stderr, "%s\n  found    %s\n  expected %s\n", source,
                s == PESC_OK ? out.text : pesc_last_error(),
                text ? json_string_value(text) : "a failure");
    jinja_text_free(&out);
    return same;
}

static void agrees_with_jinja2(void **state)
{
    (void)state;
    json_t *golden;
    size_t wrong = 0;
    must(json_read(&golden, "tests/golden/jinja.json", 1 << 24));
    const json_t *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) > 600);
    for (size_t i = 0; i < json_array_size(cases); i++)
        wrong += !agrees(json_array_get(cases, i), json_object_get(golden, "variables"));
    assert_int_equal(wrong, 0);
    json_decref(golden);
}

/* ---- failures ---- */

static void expect_failure(const char *source, pesc_status status, const char *part)
{
    jinja_text out;
    must_fail(run(source, NULL, &out), status, part);
    assert_null(out.text);
}

static void names_the_line(void **state)
{
    (void)state;
    expect_failure("a\n{{ x | nofilter }}", PESC_UNSUPPORTED,
                   "t: line 2: the filter \"nofilter\" is not supported");
    expect_failure("\n\n{% if x is nosuch %}{% endif %}", PESC_UNSUPPORTED,
                   "t: line 3: the test \"nosuch\" is not supported");
    expect_failure("{% if x %}{{ x | wordwrap }}{% endif %}", PESC_UNSUPPORTED,
                   "the filter \"wordwrap\" is not supported");
    expect_failure("{% if 1 %}\n{{ x | from_json }}{% endif %}", PESC_FORMAT,
                   "t: line 2: there is no filter \"from_json\"");
    expect_failure("{% include 'x' %}", PESC_UNSUPPORTED, "the tag \"include\" is not supported");
    expect_failure("{% for x in y recursive %}{% endfor %}", PESC_UNSUPPORTED, "recursive");
    expect_failure("\n{{ cycler(1) }}", PESC_UNSUPPORTED, "line 2: the function cycler()");
    expect_failure("\n{{ 'x'.encode('utf8') }}", PESC_UNSUPPORTED, "line 2: the method encode()");
    expect_failure("{% if 1 %}\n\n", PESC_FORMAT, "the template ends inside a block");
    expect_failure("a\n{{ 'x", PESC_FORMAT, "t: line 2: a string is not closed");
    expect_failure("{{ 1 +\n }}", PESC_FORMAT, "found the end of the tag, expected an expression");
    expect_failure("{{ x y }}", PESC_FORMAT, "found \"y\", expected the end of the expression");
    expect_failure("a\n\n{{ x.y }}", PESC_FORMAT, "t: line 3: 'x' is undefined");
    expect_failure("{{ {'a': 1}.b.c }}", PESC_FORMAT, "'dict object' has no attribute 'b'");
    expect_failure("{{ [1].append(2) }}", PESC_FORMAT,
                   "access to attribute 'append' of 'list' object is unsafe");
    expect_failure("\n{{ raise_exception('not so') }}", PESC_USAGE,
                   "t: line 2: the chat template refuses the conversation: not so");
    expect_failure("\xff", PESC_FORMAT, "t: is not UTF-8 text");
    expect_failure("{{ 9223372036854775807 + 1 }}", PESC_FORMAT, "beyond 64 bits");
    expect_failure("{{ 1e22 | int }}", PESC_FORMAT, "beyond 64 bits");
    expect_failure("{{ '99999999999999999999' | int(3) }}", PESC_FORMAT, "beyond 64 bits");
    expect_failure("{{ 1e22 | round(none) }}", PESC_FORMAT, "beyond 64 bits");
}

/* ---- limits ---- */

static void expect_limit(const char *source, jinja_limits limits, const char *part)
{
    jinja_template *t;
    jinja_text out;
    jinja_input in = { .limits = limits };
    must(jinja_compile(&t, source, strlen(source), "t"));
    must_fail(jinja_render(t, &in, &out), PESC_FORMAT, part);
    jinja_free(t);
}

static void stops_at_its_limits(void **state)
{
    (void)state;
    expect_limit("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
                 (jinja_limits){ .steps = 100000 }, "too many steps");
    expect_limit("{% set ns = namespace(s='x') %}{% for a in range(99) %}{% set ns.s = ns.s * 2 %}"
                 "{% endfor %}",
                 (jinja_limits){ .memory = 1 << 20 }, "more than 1 MiB");
    expect_limit("{% for a in range(100) %}{{ 'x' * 100 }}{% endfor %}",
                 (jinja_limits){ .output = 1000 }, "longer than 1000 bytes");
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", (jinja_limits){ 0 },
                 "nested deeper than");
    expect_limit("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", (jinja_limits){ 0 },
                 "nested deeper than");
    expect_limit(
        "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] "
        "%}{% endfor %}{{ ns.l == ns.l + [] or ns.l | tojson }}",
        (jinja_limits){ .steps = 1000000 }, "too many steps");
}

/* Every filter, method, test and function on what takes it longest, in a loop that one step for
 * each call would not end for minutes: a tenth of a rendering's steps, so a tenth of its two
 * seconds. */
static double seconds_of(const char *call)
{
    char source[600];
    jinja_template *t = NULL;
    jinja_text out;
    jinja_input in = { .limits = { .steps = 2000000 } };
    clock_t begin = clock();
    snprintf(
        source, sizeof source,
        "{%% set ns = namespace(s='ab \u00e9 ') %%}{%% for i in range(17) %%}"
        "{%% set ns.s = ns.s ~ ns.s %%}{%% endfor %%}{%% set s = ns.s %%}{%% set l = [s] * 9 %%}"
        "{%% set w = s[:9999] | list %%}{%% set d = {s: s, 'a': s} %%}"
        "{%% for i in range(99999) %%}{%% set x = %s %%}{%% endfor %%}",
        call);
    if (jinja_compile(&t, source, strlen(source), "t") == PESC_OK) {
        jinja_render(t, &in, &out);
        jinja_text_free(&out);
        jinja_free(t);
    }
    return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

static void expect_quick(const char *call)
{
    double seconds = seconds_of(call);
    if (seconds > slower())
        fail_msg("%s takes %.1f seconds", call, seconds);
}

static void counts_the_bytes_of_its_work(void **state)
{
    (void)state;
    static const struct {
        const jbuiltin *rows;
        const char *form, *selves;
    } tables[] = {
        { jinja_filters_text, "%c | %s(%s)", "slwd" }, { jinja_filters_seq, "%c | %s(%s)", "slwd" },
        { jinja_filters_value, "%c | %s(%s)", "sl" },  { jinja_tests, "%c is %s(%s)", "sld" },
        { jinja_methods_str, "%c.%s(%s)", "s" },       { jinja_methods_dict, "%c.%s(%s)", "d" },
        { jinja_methods_list, "%c.%s(%s)", "lw" },     { jinja_functions, "[%c, %s(%s)]", "s" },
    };
    static const char *const args[] = { "",       "s",       "s, s",        "9",
                                        "9, s",   "s, 3",    "'upper'",     "attribute='a'",
                                        "'a', s", "'eq', s", "'a', 'eq', s" };
    static const char *const operations[] = {
        "{s: 1}[s]",   "s == s ~ ''",  "s < s ~ ''",     "'zz' in s", "s ~ s",
        "s * 9",       "s[::2]",       "s[3:]",          "s[9]",      "d[s]",
        "l == l + []", "w + w",        "w[::-1]",        "'%s' % s",  "s % s",
        "d == d",      "s | safe + s", "'{}'.format(s)", "s in w",    "w | join(s) | count",
    };
    char call[128];
    for (size_t k = 0; k < sizeof tables / sizeof *tables; k++)
        for (const jbuiltin *row = tables[k].rows; row->name; row++)
            for (const char *self = tables[k].selves; *self; self++)
                for (size_t i = 0; i < sizeof args / sizeof *args; i++) {
                    snprintf(call, sizeof call, tables[k].form, *self, row->name, args[i]);
                    expect_quick(call);
                }
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        expect_quick(operations[i]);
}

/* Sources whose variables were looked for one by one. */
static void large_sources_take_linear_time(void **state)
{
    (void)state;
    static const char *const rows[] = { "{%% set v%d = 1 %%}",
                                        "{%% macro v%d() %%}{%% endmacro %%}", "{{ v%d }}" };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        str source = { 0 };
        jinja_text text;
        clock_t begin = clock();
        for (int i = 0; source.n < 1000000; i++) {
            char row[64];
            snprintf(row, sizeof row, rows[k], i);
            str_puts(&source, row);
        }
        pesc_status s = run(source.p, NULL, &text);
        assert_int_equal(s, k < 2 ? PESC_FORMAT : PESC_OK);
        assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 10);
        jinja_text_free(&text);
        str_free(&source);
    }
}

static void repeat(str *s, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        str_puts(s, text);
}

/* Nesting of the source is refused when compiling, whatever it consists of. */
static void refuses_deep_nesting(void **state)
{
    (void)state;
    static const char *const parts[][3] = {
        { "{{ ", "(", "1 }}" },           { "{{ ", "[", "1 }}" },    { "{{ ", "{1:", "1 }}" },
        { "{{ ", "-", "1 }}" },           { "{{ ", "not ", "1 }}" }, { "{{ 1", "+1", "}}" },
        { "{{ 1", ".a", "}}" },           { "{{ 1", "|abs", "}}" },  { "{{ 1", "[0]", "}}" },
        { "{{ 1", " if 1 else 1", "}}" }, { "{{ 1", " or 1", "}}" }, { "", "{% if 1 %}", "" },
        { "", "{% for a in b %}", "" },   { "{{ 1", "()", "}}" },
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        str s = { 0 };
        jinja_template *t;
        str_puts(&s, parts[i][0]);
        repeat(&s, parts[i][1], 20000);
        str_puts(&s, parts[i][2]);
        assert_int_not_equal(jinja_compile(&t, s.p, s.n, "t"), PESC_OK);
        if (!strstr(pesc_last_error(), "nested"))
            fail_msg("%s: %s", parts[i][1], pesc_last_error());
        str_free(&s);
    }
}

/* Long chains that are not nested are fine. */
static void allows_long_templates(void **state)
{
    (void)state;
    str s = { 0 };
    jinja_text out;
    str_puts(&s, "{% if 0 %}");
    repeat(&s, "{% elif 0 %}x", 5000);
    str_puts(&s, "{% else %}y{% endif %}{{ 0");
    repeat(&s, " ~ 1", 5000);
    str_puts(&s, " }}");
    repeat(&s, "{% set a = 1 %}", 5000);
    must(run(s.p, NULL, &out));
    assert_int_equal(out.n, 5002);
    jinja_text_free(&out);
    str_free(&s);
}

/* ---- origins ---- */

/* The origin of each byte as a character: . template, 0-9 messages, d other data. */
static void expect_origins(const char *source, const char *text, const char *origins)
{
    json_t *v = json_pack("{s[{ssss}{ssss}]s{ss}}", "messages", "role", "user", "content", " <a> ",
                          "role", "x y", "content", "b", "d", "k", "v");
    jinja_text out;
    must(run(source, v, &out));
    assert_string_equal(out.text, text);
    for (size_t i = 0; i < out.n; i++) {
        unsigned o = out.origin[i] & 0x7fffu;
        char got = o == JINJA_TEMPLATE ? '.'
                   : o == JINJA_DATA   ? 'd'
                                       : (char)('0' + o - JINJA_MESSAGE);
        if (got != origins[i])
            fail_msg("%s: byte %zu is %c, expected %c", source, i, got, origins[i]);
    }
    jinja_text_free(&out);
    json_decref(v);
}

static void tracks_origins(void **state)
{
    (void)state;
    expect_origins("x{{ messages[0].content }}y{{ bos_token }}", "x <a> y<s>", ".00000....");
    expect_origins("{{ '[' + messages[0].content.strip() + ']' }}", "[<a>]", ".000.");
    expect_origins("{{ messages | map(attribute='content') | join('-') }}", " <a> -b", "00000.1");
    expect_origins("{{ messages[0].content | upper | replace('A', 'zz') }}", " <zz> ", "00..00");
    expect_origins("{{ messages[0].content[1:4] | tojson }}", "\"<a>\"", ".000.");
    expect_origins("{{ '<|' ~ messages[0].role ~ '|>' }}", "<|user|>", "........");
    expect_origins("{{ messages[1].role }}{{ d.k }}", "x yv", "111d");
    expect_origins("{% set x %}{{ messages[1].content }}!{% endset %}{{ x * 2 }}", "b!b!", "1.1.");
    expect_origins("{{ '%s|%s' % (d.k, messages[1].content) }}{{ '{}'.format(d.k) }}", "v|bv",
                   "d.1d");
    expect_origins("{{ d }}{{ messages[0].content.split()[0] | e }}", "{'k': 'v'}&lt;a&gt;",
                   "..d....d......0....");
    expect_origins("{% macro m(a) %}({{ a | indent }}){% endmacro %}{{ m(d.k) }}", "(v)", ".d.");
    expect_origins("{{ messages[0].content | title | trim | reverse }}", ">A<", "000");
}

static void tells_what_it_uses(void **state)
{
    (void)state;
    jinja_template *t;
    const char *source = "{{ tools }}{% generation %}{% endgeneration %}";
    must(jinja_compile(&t, source, strlen(source), "t"));
    assert_true(jinja_uses(t, "tools"));
    assert_false(jinja_uses(t, "tool"));
    assert_true(jinja_has_generation(t));
    jinja_free(t);
    must(jinja_compile(&t, "", 0, "t"));
    assert_false(jinja_has_generation(t));
    jinja_free(t);
    jinja_free(NULL);
}

static void shows_the_current_time(void **state)
{
    (void)state;
    jinja_template *t;
    jinja_text out;
    const char *source = "{{ strftime_now('%Y') | int > 2020 }}";
    must(jinja_compile(&t, source, strlen(source), "t"));
    must(jinja_render(t, &(jinja_input){ 0 }, &out));
    assert_string_equal(out.text, "True");
    jinja_text_free(&out);
    jinja_free(t);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    const char *source =
        "{% macro m(a, b=1) %}{{ a ~ b }}{% endmacro %}{% for k, v in d | dictsort %}"
        "{{ m(k, b=v | tojson(indent=1)) | indent }}{% endfor %}{{ '%5s' % d.k }}"
        "{{ (d | list)[::-1] | map('upper') | join(',') }}{{ 'x' * 70000 }}";
    json_t *v = json_pack("{s{ssss}}", "d", "k", "v", "l", "w");
    uint64_t i = 1;
    for (bool fired = true; fired; i++) {
        jinja_template *t = NULL;
        jinja_text out = { 0 };
        jinja_input in = { .variables = v };
        mem_fail_at(i);
        pesc_status s = jinja_compile(&t, source, strlen(source), "t");
        if (s == PESC_OK)
            s = jinja_render(t, &in, &out);
        fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(s, fired ? PESC_NOMEM : PESC_OK);
        jinja_text_free(&out);
        jinja_free(t);
    }
    assert_true(i > 5);
    json_decref(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_jinja2),
        cmocka_unit_test(names_the_line),
        cmocka_unit_test(stops_at_its_limits),
        cmocka_unit_test(counts_the_bytes_of_its_work),
        cmocka_unit_test(large_sources_take_linear_time),
        cmocka_unit_test(refuses_deep_nesting),
        cmocka_unit_test(allows_long_templates),
        cmocka_unit_test(tracks_origins),
        cmocka_unit_test(tells_what_it_uses),
        cmocka_unit_test(shows_the_current_time),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
