/* What routers do, on a tiny Camelidae model: the bookkeeping of domains and shares. The choices
 * themselves are the model's. */
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static pesc_device *dev;
static pesc_model *model;

static int open_model(void **state)
{
    (void)state;
    return pesc_device_open(&dev, golden_device()) ||
           pesc_model_open(&model, dev, golden_path("train/pesc-a/model"), NULL);
}

static int close_model(void **state)
{
    (void)state;
    pesc_model_close(model);
    pesc_device_close(dev);
    return 0;
}

static const char records[] =
    "{\"domain\":\"a\",\"input_ids\":[1,2,3,4,5],\"labels\":[-100,2,3,4,5]}\n"
    "{\"domain\":\"b\",\"input_ids\":[6,7,8],\"labels\":[-100,7,8]}\n"
    "{\"domain\":\"a\",\"input_ids\":[9,10,11,12,13,14,15],\"labels\":[-100,10,11,12,13,14,15]}\n";

static pesc_routes_report route(const char *text, int64_t seq_len, int64_t limit)
{
    const char *path = files_text("r.jsonl", text);
    pesc_routes_options o = pesc_routes_defaults();
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    o.data = &path;
    o.n_data = 1;
    o.seq_len = seq_len;
    o.limit = limit;
    must(pesc_routes(model, &o, &r));
    return r;
}

static double sum_of(const double *v, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    return sum;
}

static void counts_records_and_tokens_of_each_domain(void **state)
{
    (void)state;
    pesc_routes_report r = route(records, 64, 0);
    assert_int_equal(r.n_domains, 2);
    assert_string_equal(r.domains[0].name, "a");
    assert_string_equal(r.domains[1].name, "b");
    assert_int_equal(r.domains[0].records, 2);
    assert_int_equal(r.domains[0].tokens, 12);
    assert_int_equal(r.domains[1].tokens, 3);
    for (size_t i = 0; i < r.n_domains * r.n_layers; i++)
        assert_float_equal(sum_of(r.share + i * r.experts, r.experts), 1, 1e-12);
    pesc_routes_free(&r);
}

/* A share is a whole number of choices: k a token. */
static void shares_are_whole_choices(void **state)
{
    (void)state;
    pesc_routes_report r = route(records, 64, 0);
    double choices = (double)r.domains[0].tokens * (double)r.top_k;
    for (size_t i = 0; i < r.n_layers * r.experts; i++) {
        double n = r.share[i] * choices;
        assert_float_equal(n, round(n), 1e-9);
        assert_true(n <= (double)r.domains[0].tokens); /* an expert is chosen once a token */
    }
    pesc_routes_free(&r);
}

static void packing_changes_nothing(void **state)
{
    (void)state;
    pesc_routes_report one = route(records, 7, 0), many = route(records, 512, 0);
    assert_memory_equal(one.share, many.share, 2 * one.n_layers * one.experts * sizeof *one.share);
    pesc_routes_free(&one);
    pesc_routes_free(&many);
}

/* The domains together choose as their records do in one domain. */
static void domains_add_up(void **state)
{
    (void)state;
    char text[sizeof records];
    memcpy(text, records, sizeof records);
    for (char *p = text; (p = strstr(p, "\"b\"")); p++)
        p[1] = 'a';
    pesc_routes_report r = route(records, 64, 0), all = route(text, 64, 0);
    assert_int_equal(all.n_domains, 1);
    for (size_t i = 0; i < r.n_layers * r.experts; i++)
        assert_float_equal(all.share[i],
                           (12 * r.share[i] + 3 * r.share[r.n_layers * r.experts + i]) / 15, 1e-12);
    assert_true(isnan(all.difference[0]));
    pesc_routes_free(&r);
    pesc_routes_free(&all);
}

static void difference_is_zero_for_the_same_text(void **state)
{
    (void)state;
    pesc_routes_report r = route("{\"domain\":\"a\",\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n"
                                 "{\"domain\":\"b\",\"input_ids\":[1,2,3],\"labels\":[-100,2,3]}\n",
                                 64, 0);
    for (size_t l = 0; l < r.n_layers; l++)
        assert_float_equal(r.difference[l], 0, 1e-12);
    pesc_routes_free(&r);
}

/* Two tokens that choose other experts are as different as can be. Jensen-Shannon, written out. */
static void difference_is_the_divergence(void **state)
{
    (void)state;
    pesc_routes_report r = route(records, 64, 0);
    for (size_t l = 0; l < r.n_layers; l++) {
        const double *p = r.share + l * r.experts, *q = p + r.n_layers * r.experts;
        double js = 0;
        for (size_t e = 0; e < r.experts; e++) {
            double m = (p[e] + q[e]) / 2;
            js += p[e] > 0 ? p[e] * log2(p[e] / m) / 2 : 0;
            js += q[e] > 0 ? q[e] * log2(q[e] / m) / 2 : 0;
        }
        assert_float_equal(r.difference[l], js, 1e-9);
        assert_true(js > 0.001); /* else this says nothing */
    }
    pesc_routes_free(&r);
}

static void limit_and_length_cut(void **state)
{
    (void)state;
    pesc_routes_report r = route(records, 64, 1);
    assert_int_equal(r.domains[0].records, 1);
    assert_int_equal(r.domains[0].tokens, 5);
    pesc_routes_free(&r);
    r = route(records, 4, 0);
    assert_int_equal(r.domains[0].tokens, 8);
    assert_int_equal(r.domains[1].tokens, 3);
    pesc_routes_free(&r);
}

static void the_file_names_a_domain(void **state)
{
    (void)state;
    pesc_routes_report r = route("{\"input_ids\":[1,2],\"labels\":[-100,2]}\n", 64, 0);
    assert_string_equal(r.domains[0].name, "r");
    pesc_routes_free(&r);
}

static void pictures_have_a_panel_a_domain(void **state)
{
    (void)state;
    pesc_routes_report r = route(records, 64, 0);
    must(pesc_plot_routes(files_path("r.svg"), &r));
    must(pesc_plot_routes(files_path("r.png"), &r));
    assert_true(files_there("r.svg") && files_there("r.png"));
    pesc_routes_free(&r);
}

static void refuses_what_it_cannot_do(void **state)
{
    (void)state;
    const char *path =
        files_text("bad.jsonl", "{\"input_ids\":[1,2],\"labels\":[-100,2]}\nnonsense\n");
    pesc_routes_options o = pesc_routes_defaults();
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    o.data = &path;
    o.n_data = 1;
    must_fail(pesc_routes(model, &o, &r), PESC_FORMAT, "bad.jsonl:2");
    pesc_routes_free(&r);
    o.seq_len = 1;
    must_fail(pesc_routes(model, &o, &r), PESC_USAGE, "seq_len: found 1");
    pesc_routes_free(&r);
    pesc_model *dense = NULL;
    must(pesc_model_open(&dense, dev, golden_path("train/lora/model"), NULL));
    o = pesc_routes_defaults();
    o.data = &path;
    o.n_data = 1;
    must_fail(pesc_routes(dense, &o, &r), PESC_UNSUPPORTED, "dense");
    pesc_routes_free(&r);
    pesc_model_close(dense);
}

static void too_many_domains_are_refused(void **state)
{
    (void)state;
    char *text = malloc(70 * 80);
    size_t n = 0;
    for (int i = 0; i < 70; i++)
        n += (size_t)snprintf(text + n, 80,
                              "{\"domain\":\"d%d\",\"input_ids\":[1,2],\"labels\":[-100,2]}\n", i);
    const char *path = files_text("many.jsonl", text);
    pesc_routes_options o = pesc_routes_defaults();
    o.data = &path;
    o.n_data = 1;
    pesc_routes_report r = PESC_INIT(pesc_routes_report);
    must_fail(pesc_routes(model, &o, &r), PESC_FORMAT, "many.jsonl:65: domain: is the 65th");
    pesc_routes_free(&r);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_records_and_tokens_of_each_domain),
        cmocka_unit_test(shares_are_whole_choices),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(domains_add_up),
        cmocka_unit_test(difference_is_zero_for_the_same_text),
        cmocka_unit_test(difference_is_the_divergence),
        cmocka_unit_test(limit_and_length_cut),
        cmocka_unit_test(the_file_names_a_domain),
        cmocka_unit_test(pictures_have_a_panel_a_domain),
        cmocka_unit_test(refuses_what_it_cannot_do),
        cmocka_unit_test(too_many_domains_are_refused),
    };
    return cmocka_run_group_tests_name("stats", tests, open_model, close_model);
}
