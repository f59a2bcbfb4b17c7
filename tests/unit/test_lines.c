#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/xml.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const double xs[] = { 1, 2, 3, 4, 5 }, ys[] = { 3, 2, 1.5, 1.25, 1.2 };
static const pesc_series curves[] = {
    { .x = xs, .y = ys, .n = 5, .faint = true },
    { .name = "training", .x = xs, .y = ys, .n = 5 },
    { .name = "held out <&\">", .x = xs, .y = ys, .n = 3, .dots = true },
};
static const pesc_lines picture = { .size = sizeof picture,
                                    .title = "Loss",
                                    .note = "a note",
                                    .x_label = "step",
                                    .y_label = "nats",
                                    .series = curves,
                                    .n_series = 3 };

static char *drawn(const char *name, const pesc_lines *p, size_t *n)
{
    must(pesc_plot_lines(files_path(name), p));
    return files_get(files_path(name), n);
}

static void every_ending_gives_its_format(void **state)
{
    (void)state;
    const struct {
        const char *name, *begins;
    } rows[] = { { "a.svg", "<?xml" }, { "a.png", "\x89PNG\r\n\x1a\n" }, { "a.pdf", "%PDF-" } };
    for (size_t i = 0; i < 3; i++) {
        size_t n;
        char *bytes = drawn(rows[i].name, &picture, &n);
        assert_true(n > 1000);
        assert_memory_equal(bytes, rows[i].begins, strlen(rows[i].begins));
        if (i == 2) /* not today's date: it would be in the way of equal bytes */
            assert_non_null(memmem(bytes, n, "CreationDate (20000101", 22));
        free(bytes);
    }
}

static void svg_is_well_formed(void **state)
{
    (void)state;
    size_t n;
    char *svg = drawn("a.svg", &picture, &n);
    assert_true(xml_well_formed(svg, n));
    assert_false(xml_well_formed(svg, n - 3)); /* the check can fail */
    free(svg);
}

static void the_same_values_give_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = { "a.svg", "b.svg", "a.png", "b.png", "a.pdf", "b.pdf" };
    for (int i = 0; i < 6; i += 2) {
        size_t n, m;
        char *a = drawn(names[i], &picture, &n), *b = drawn(names[i + 1], &picture, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
}

static void other_values_give_other_bytes(void **state)
{
    (void)state;
    const double other[] = { 3, 2, 1.5, 1.25, 1.0 };
    pesc_series c = { .name = "training", .x = xs, .y = other, .n = 5 };
    pesc_series d = { .name = "training", .x = xs, .y = ys, .n = 5 };
    size_t n, m;
    char *a = drawn("a.svg",
                    &(pesc_lines){ .size = sizeof(pesc_lines), .series = &c, .n_series = 1 }, &n);
    char *b = drawn("b.svg",
                    &(pesc_lines){ .size = sizeof(pesc_lines), .series = &d, .n_series = 1 }, &m);
    assert_true(n != m || memcmp(a, b, n) != 0);
    free(a);
    free(b);
}

static void values_of_any_kind_are_drawn(void **state)
{
    (void)state;
    static const double sets[][4] = {
        { NAN, NAN, NAN, NAN },
        { INFINITY, -INFINITY, NAN, 1 },
        { DBL_MAX, -DBL_MAX, 0, 1 },
        { DBL_TRUE_MIN, 0, 0, 0 },
        { 1, 1, 1, 1 },
        { 0, 0, 0, 0 },
        { 1e15, 1e15 + 1, 1e15, 1 },
        { -1e-300, 1e-300, 0, 0 },
        { 1e149, -1e149, 0, 5 },
        { 1, 1 + DBL_EPSILON, 1, 1 },
    };
    for (size_t a = 0; a < sizeof sets / sizeof *sets; a++)
        for (size_t b = 0; b < sizeof sets / sizeof *sets; b++) {
            pesc_series s = { .name = "s", .x = sets[a], .y = sets[b], .n = 4, .dots = true };
            size_t n;
            char *svg =
                drawn("h.svg",
                      &(pesc_lines){ .size = sizeof(pesc_lines), .series = &s, .n_series = 1 }, &n);
            assert_true(xml_well_formed(svg, n));
            assert_null(strstr(svg, "nan"));
            assert_null(strstr(svg, "inf"));
            free(svg);
        }
}

static void points_that_cannot_be_drawn_change_nothing(void **state)
{
    (void)state;
    const double bad[] = { NAN, INFINITY, -INFINITY, DBL_MAX };
    pesc_series three = { .name = "s", .x = xs, .y = ys, .n = 3 };
    size_t n, m;
    char *want = drawn(
        "w.svg", &(pesc_lines){ .size = sizeof(pesc_lines), .series = &three, .n_series = 1 }, &n);
    for (int i = 0; i < 8; i++) {
        double x[] = { 1, 2, 3, i < 4 ? bad[i] : 2 }, y[] = { 3, 2, 1.5, i < 4 ? 2 : bad[i - 4] };
        pesc_series four = { .name = "s", .x = x, .y = y, .n = 4 };
        char *have =
            drawn("h.svg",
                  &(pesc_lines){ .size = sizeof(pesc_lines), .series = &four, .n_series = 1 }, &m);
        assert_int_equal(n, m);
        assert_memory_equal(want, have, n);
        free(have);
    }
    free(want);
}

static void nothing_at_all_is_drawn(void **state)
{
    (void)state;
    size_t n;
    pesc_series empty = { .name = NULL };
    char *svg = drawn("e.svg", &PESC_INIT(pesc_lines), &n);
    assert_true(xml_well_formed(svg, n));
    free(svg);
    svg = drawn("e.svg",
                &(pesc_lines){ .size = sizeof(pesc_lines), .series = &empty, .n_series = 1 }, &n);
    assert_true(xml_well_formed(svg, n));
    free(svg);
}

static void names_of_any_bytes_are_drawn(void **state)
{
    (void)state;
    char long_name[5000];
    memset(long_name, 'w', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const char *const names[] = { "\xff\xfe", "a\nb\x1b[31m", "\xe4\xb8\xad\xe6\x96\x87", long_name,
                                  "" };
    for (size_t i = 0; i < 5; i++) {
        pesc_series s = { .name = names[i], .x = xs, .y = ys, .n = 5 };
        pesc_lines p = { sizeof p, names[i], names[i], names[i], names[i], &s, 1 };
        size_t n;
        char *svg = drawn("n.svg", &p, &n);
        assert_true(xml_well_formed(svg, n));
        free(svg);
    }
}

static void many_series_have_a_legend_of_several_rows(void **state)
{
    (void)state;
    pesc_series many[40];
    for (size_t i = 0; i < 40; i++)
        many[i] = (pesc_series){ .name = "a series with a name", .x = xs, .y = ys, .n = 5 };
    size_t n, m;
    char *few = drawn(
        "f.png", &(pesc_lines){ .size = sizeof(pesc_lines), .series = many, .n_series = 1 }, &n);
    char *all = drawn(
        "m.png", &(pesc_lines){ .size = sizeof(pesc_lines), .series = many, .n_series = 40 }, &m);
    assert_true((unsigned char)all[22] >
                (unsigned char)few[22]); /* height, its second lowest byte */
    free(few);
    free(all);
}

static void what_cannot_be_written_is_said(void **state)
{
    (void)state;
    must_fail(pesc_plot_lines("x.gif", &picture), PESC_USAGE,
              "x.gif: a picture is written as .svg, .png or .pdf");
    must_fail(pesc_plot_lines("/nowhere/at/all/x.svg", &picture), PESC_DISK,
              "/nowhere/at/all/x.svg");
}

/* Or the picture is whole: memory was lacking for what is optional, removing what dead processes
 * left. */
static void running_out_of_memory_is_said(void **state)
{
    (void)state;
    for (uint64_t at = 1; at < 100; at++) {
        files_clear();
        mem_fail_at(at);
        pesc_status s = pesc_plot_lines(files_path("oom.svg"), &picture);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_true(s == PESC_OK || (fired && (s == PESC_NOMEM || s == PESC_DISK)));
        assert_true(s != PESC_OK || files_there("oom.svg"));
        if (!fired)
            return;
    }
    fail_msg("the failures do not end");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ending_gives_its_format),
        cmocka_unit_test(svg_is_well_formed),
        cmocka_unit_test(the_same_values_give_the_same_bytes),
        cmocka_unit_test(other_values_give_other_bytes),
        cmocka_unit_test(values_of_any_kind_are_drawn),
        cmocka_unit_test(points_that_cannot_be_drawn_change_nothing),
        cmocka_unit_test(nothing_at_all_is_drawn),
        cmocka_unit_test(names_of_any_bytes_are_drawn),
        cmocka_unit_test(many_series_have_a_legend_of_several_rows),
        cmocka_unit_test(what_cannot_be_written_is_said),
        cmocka_unit_test(running_out_of_memory_is_said),
    };
    return cmocka_run_group_tests_name("lines", tests, NULL, NULL);
}
