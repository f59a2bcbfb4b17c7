#include "support/check.h"
#include "support/files.h"
#include "support/xml.h"

#include <stdio.h>
#include <stdlib.h>

static const char metrics[] =
    "{\"step\":1,\"ce\":3.5,\"loss\":3.6}\n{\"step\":2,\"ce\":null,\"loss\":null}\n"
    "{\"step\":3,\"ce\":2.5,\"loss\":2.6}\n";
static const char routing[] = "{\"step\":1,\"layers\":[[0.5,0.5,0,0],[0.25,0.25,0.25,0.25]]}\n"
                              "{\"step\":3,\"layers\":[[1,0,0,0],[0,0,0,1]]}\n";

static const char *const pictures[] = { "run/plots/loss.svg", "run/plots/loss.png",
                                        "run/plots/experts.svg", "run/plots/experts.png" };

static void put_run(const char *m, const char *r, const char *e)
{
    files_clear();
    if (m)
        files_text("run/metrics.jsonl", m);
    if (r)
        files_text("run/routing.jsonl", r);
    if (e)
        files_text("run/eval.jsonl", e);
}

static void a_run_has_two_pictures_in_two_formats(void **state)
{
    (void)state;
    put_run(metrics, routing, "{\"step\":3,\"eval_loss\":2.4}\n");
    must(pesc_plot_run(files_path("run")));
    for (int i = 0; i < 4; i++)
        assert_true(files_there(pictures[i]));
    for (int i = 0; i < 4; i += 2) {
        size_t n;
        char *svg = files_get(files_path(pictures[i]), &n);
        assert_true(xml_well_formed(svg, n));
        free(svg);
    }
}

static void a_dense_run_has_no_experts(void **state)
{
    (void)state;
    put_run(metrics, "", "");
    must(pesc_plot_run(files_path("run")));
    assert_true(files_there(pictures[0]));
    assert_false(files_there(pictures[2]));
}

static void a_run_that_has_not_begun_has_no_pictures(void **state)
{
    (void)state;
    files_clear();
    files_text("run/run.yaml", "");
    must(pesc_plot_run(files_path("run")));
    assert_false(files_there(pictures[0]));
}

/* A line that is still being written is not read. */
static void half_a_line_does_no_harm(void **state)
{
    (void)state;
    put_run("{\"step\":1,\"ce\":3}\n{\"step\":2,\"c", NULL, NULL);
    must(pesc_plot_run(files_path("run")));
    put_run("{\"ste", NULL, NULL);
    must(pesc_plot_run(files_path("run")));
    assert_false(files_there(pictures[0]));
}

static void lines_that_are_no_metrics_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *metrics, *routing, *part;
    } rows[] = {
        { "nonsense\n", NULL, "metrics.jsonl" },
        { "{\"ce\":1}\n", NULL, "metrics.jsonl: step" },
        { "{\"step\":1,\"ce\":\"x\"}\n", NULL, "metrics.jsonl: ce: found a string" },
        { metrics, "{\"step\":1}\n", "routing.jsonl: layers" },
        { metrics, "{\"step\":1,\"layers\":[]}\n", "routing.jsonl: layers" },
        { metrics, "{\"step\":1,\"layers\":[[1,2],[3]]}\n", "routing.jsonl: layers" },
        { metrics, "{\"step\":1,\"layers\":[[1]]}\n{\"step\":2,\"layers\":[[1],[1]]}\n",
          "routing.jsonl: layers" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_run(rows[i].metrics, rows[i].routing, NULL);
        must_fail(pesc_plot_run(files_path("run")), PESC_FORMAT, rows[i].part);
    }
}

/* Every n-th line of a long log is read, and its last one. */
static void a_long_run_is_thinned_out(void **state)
{
    (void)state;
    enum { STEPS = 30000 };
    char *text = malloc(STEPS * 40), *svg[2];
    size_t n = 0, bytes[2];
    for (int i = 1; i <= STEPS; i++)
        n += (size_t)snprintf(text + n, 40, "{\"step\":%d,\"ce\":%.3f}\n", i, 1.0 + 1.0 / i);
    for (int i = 0; i < 2; i++) {
        put_run(text, NULL, NULL);
        must(pesc_plot_run(files_path("run")));
        svg[i] = files_get(files_path(pictures[0]), &bytes[i]);
        text[n - 4] = '9'; /* the second time the last loss is another one */
    }
    assert_in_range(bytes[0], 20000, 400000);
    assert_true(bytes[0] != bytes[1] || memcmp(svg[0], svg[1], bytes[0]) != 0);
    free(svg[0]);
    free(svg[1]);
    free(text);
}

static void a_file_in_the_way_is_said(void **state)
{
    (void)state;
    put_run(metrics, NULL, NULL);
    files_text("run/plots", "a file");
    assert_true(pesc_plot_run(files_path("run")) != PESC_OK);
    assert_non_null(strstr(pesc_last_error(), "plots"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_has_two_pictures_in_two_formats),
        cmocka_unit_test(a_dense_run_has_no_experts),
        cmocka_unit_test(a_run_that_has_not_begun_has_no_pictures),
        cmocka_unit_test(half_a_line_does_no_harm),
        cmocka_unit_test(lines_that_are_no_metrics_are_refused),
        cmocka_unit_test(a_long_run_is_thinned_out),
        cmocka_unit_test(a_file_in_the_way_is_said),
    };
    return cmocka_run_group_tests_name("plot", tests, NULL, NULL);
}
