#include "support/check.h"
#include "support/files.h"
#include "support/xml.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { PANELS = 3, ROWS = 4, COLS = 8, CELLS = PANELS * ROWS * COLS };
static const char *const panels[] = { "general", "code", "maths" };

static char *drawn(const char *name, const pesc_heat *p, size_t *n)
{
    must(pesc_plot_heat(files_path(name), p));
    return files_get(files_path(name), n);
}

static pesc_heat simple(const double *cells)
{
    return (pesc_heat){ .size = sizeof(pesc_heat),
                        .title = "Experts",
                        .note = "share",
                        .x_label = "expert",
                        .y_label = "layer",
                        .panels = panels,
                        .n_panels = PANELS,
                        .rows = ROWS,
                        .cols = COLS,
                        .cells = cells };
}

static size_t count(const char *text, const char *part)
{
    size_t n = 0;
    for (; (text = strstr(text, part)); text++)
        n++;
    return n;
}

static void draws_the_same_bytes_again(void **state)
{
    (void)state;
    double cells[CELLS];
    for (int i = 0; i < CELLS; i++)
        cells[i] = i / 100.0;
    pesc_heat p = simple(cells);
    static const char *const names[] = { "a.svg", "b.svg", "a.png", "b.png", "a.pdf", "b.pdf" };
    for (int i = 0; i < 6; i += 2) {
        size_t n, m;
        char *a = drawn(names[i], &p, &n), *b = drawn(names[i + 1], &p, &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        if (i == 0)
            assert_true(xml_well_formed(a, n));
        free(a);
        free(b);
    }
}

/* The darkest colour is the scale's end and the largest cell's: 0.031 0.188 0.42 of red, green,
 * blue. */
static void the_largest_cell_is_the_darkest(void **state)
{
    (void)state;
    double cells[CELLS] = { 0 };
    size_t n;
    cells[5] = 0.5;
    pesc_heat p = simple(cells);
    char *svg = drawn("a.svg", &p, &n);
    assert_int_equal(count(svg, "fill:rgb(3.1%,18.8%,42%)"), 1);
    free(svg);
    cells[6] = 0.5;
    svg = drawn("a.svg", &p, &n);
    assert_int_equal(count(svg, "fill:rgb(3.1%,18.8%,42%)"), 2);
    free(svg);
    p.max = 1;
    svg = drawn("a.svg", &p, &n);
    assert_int_equal(count(svg, "fill:rgb(3.1%,18.8%,42%)"), 0);
    free(svg);
}

static void marked_cells_have_a_frame(void **state)
{
    (void)state;
    double cells[CELLS] = { 0 };
    bool marked[CELLS] = { [3] = true, [40] = true };
    size_t n;
    pesc_heat p = simple(cells);
    p.marked = marked;
    char *svg = drawn("a.svg", &p, &n);
    assert_int_equal(count(svg, "stroke:rgb(84%,37%,0%)"), 2);
    free(svg);
}

static void values_of_any_kind_are_drawn(void **state)
{
    (void)state;
    const double values[] = {
        NAN, INFINITY, -INFINITY, DBL_MAX, -DBL_MAX, DBL_TRUE_MIN, -1, 0, 1e9
    };
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        double cells[CELLS];
        for (int i = 0; i < CELLS; i++)
            cells[i] = i % 3 ? values[v] : 0.1;
        size_t n;
        pesc_heat p = simple(cells);
        p.max = v % 2 ? values[v] : 0;
        char *svg = drawn("h.svg", &p, &n);
        assert_true(xml_well_formed(svg, n));
        assert_null(strstr(svg, "nan"));
        assert_null(strstr(svg, "inf"));
        free(svg);
    }
}

static void any_shape_is_drawn(void **state)
{
    (void)state;
    const size_t shapes[][3] = {
        { 1, 1, 1 }, { 1, 1, 512 }, { 1, 200, 1 }, { 5, 3, 3 }, { 64, 2, 2 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double *cells = calloc(shapes[i][0] * shapes[i][1] * shapes[i][2], sizeof *cells);
        pesc_heat p = { .size = sizeof(pesc_heat),
                        .n_panels = shapes[i][0],
                        .rows = shapes[i][1],
                        .cols = shapes[i][2],
                        .cells = cells };
        size_t n;
        char *svg = drawn("s.svg", &p, &n);
        assert_true(xml_well_formed(svg, n));
        free(svg);
        free(cells);
    }
}

static void shapes_that_cannot_be_drawn_are_refused(void **state)
{
    (void)state;
    double cell = 0;
    const size_t shapes[][3] = {
        { 0, 1, 1 }, { 1, 0, 1 }, { 1, 1, 0 }, { 1, 1, 1025 }, { 65, 1, 1 }
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        pesc_heat p = { .size = sizeof(pesc_heat),
                        .n_panels = shapes[i][0],
                        .rows = shapes[i][1],
                        .cols = shapes[i][2],
                        .cells = &cell };
        must_fail(pesc_plot_heat(files_path("r.svg"), &p), PESC_USAGE, "cannot be drawn");
    }
    pesc_heat p = {
        .size = sizeof(pesc_heat), .n_panels = 1, .rows = 1, .cols = 1, .cells = &cell
    };
    must_fail(pesc_plot_heat("x.jpg", &p), PESC_USAGE, ".svg, .png or .pdf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_the_same_bytes_again),
        cmocka_unit_test(the_largest_cell_is_the_darkest),
        cmocka_unit_test(marked_cells_have_a_frame),
        cmocka_unit_test(values_of_any_kind_are_drawn),
        cmocka_unit_test(any_shape_is_drawn),
        cmocka_unit_test(shapes_that_cannot_be_drawn_are_refused),
    };
    return cmocka_run_group_tests_name("heat", tests, NULL, NULL);
}
