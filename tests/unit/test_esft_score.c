/* Scores of the tiny mixtures of tests/golden against those of transformers in float64, byte for
 * byte (tests/golden/make/golden_esft_score.py); and the pass that makes them against the whole
 * forward. */
#include "model/routes.h"
#include "support/check.h"
#include "support/far.h"
#include "support/files.h"
#include "support/golden.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct fixture {
    pesc_device *dev;
    pesc_model *m;
    pesc_data *d;
    char dir[512];
} fixture;

/* On `dev`, which the fixture then owns. */
static void open_on(fixture *f, pesc_device *dev, const char *name)
{
    char ids[512];
    const char *files[] = { ids };
    snprintf(f->dir, sizeof f->dir, "%s", golden_path(name));
    snprintf(ids, sizeof ids, "%s", golden_path("esft_score/ids.jsonl"));
    pesc_data_options opt = pesc_data_defaults();
    opt.data = files;
    opt.n_data = 1;
    opt.seq_len = 4096;
    f->dev = dev;
    must(pesc_model_open(&f->m, f->dev, f->dir, NULL));
    must(pesc_data_open(&f->d, f->dir, &opt, NULL));
}

static void open_fixture(fixture *f, const char *name)
{
    pesc_device *dev;
    must(pesc_device_open(&dev, "cpu:2"));
    open_on(f, dev, name);
}

static void close_fixture(fixture *f)
{
    pesc_data_close(f->d);
    pesc_model_close(f->m);
    pesc_device_close(f->dev);
}

static void check_bytes(const char *name)
{
    char path[64];
    size_t n, wanted_n;
    snprintf(path, sizeof path, "esft_score/%s.json", name);
    char *wanted = files_get(golden_path(path), &wanted_n);
    char *found = files_get(files_path("out/summary.json"), &n);
    if (n != wanted_n || memcmp(found, wanted, n) != 0)
        fail_msg("%s:\n%s\nexpected\n%s", name, found, wanted);
    free(found);
    free(wanted);
}

static void scores_as_transformers_does(void **state)
{
    (void)state;
    static const char *const families[] = { "deepseek_v2", "mixtral", "olmoe", "qwen2_moe",
                                            "qwen3_moe" };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fixture f;
        pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
        pesc_esft_score_options opt = pesc_esft_score_defaults();
        open_fixture(&f, families[i]);
        must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
        check_bytes(families[i]);
        assert_int_equal(r.records, 40);
        opt.micro_tokens = 61; /* other forwards, another order: the same scores */
        opt.seed = 3;
        must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
        check_bytes(families[i]);
        close_fixture(&f);
    }
}

/* Nothing but ops touches device memory, so a GPU scores by the same path. */
static void scores_on_a_far_device(void **state)
{
    (void)state;
    static const char *const families[] = { "deepseek_v2", "olmoe" };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        fixture f;
        pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
        pesc_esft_score_options opt = pesc_esft_score_defaults();
        open_on(&f, far_open(0), families[i]);
        must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
        check_bytes(families[i]);
        close_fixture(&f);
    }
}

static void takes_as_many_tokens_as_asked(void **state)
{
    (void)state;
    fixture f;
    pesc_esft_score_report r = PESC_INIT(pesc_esft_score_report);
    pesc_esft_score_options opt = pesc_esft_score_defaults();
    open_fixture(&f, "olmoe");
    for (opt.tokens = 1; opt.tokens < 600; opt.tokens = opt.tokens * 3 + 1) {
        must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
        assert_int_equal(r.tokens, opt.tokens);
    }
    opt.seq_len = 7; /* pieces of records */
    must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
    assert_true(r.tokens > 600 && r.gate_sum > 0.3 && r.gate_sum < 1);
    opt.metric = "gate";
    must(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r));
    char *text = files_get(files_path("out/summary.json"), &(size_t){ 0 });
    assert_memory_equal(text, "{\"gate_scores\": {\"0\"", 20);
    assert_null(strstr(text, "token"));
    free(text);
    opt.metric = "x";
    must_fail(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r), PESC_USAGE, "metric");
    opt.metric = "both";
    opt.tokens = 0;
    must_fail(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r), PESC_USAGE, "tokens");
    close_fixture(&f);
    open_fixture(&f, "llama");
    opt.tokens = 10;
    must_fail(pesc_esft_score(f.m, f.d, files_path("out"), &opt, &r), PESC_UNSUPPORTED,
              "the model is dense");
    close_fixture(&f);
}

/* What the reference code would have logged gives the same scores up to its rounding of gates. */
static void logs_give_the_same(void **state)
{
    (void)state;
    fixture f;
    pass *p;
    routes *r;
    int32_t ids[] = { 5, 9, 33, 2, 60, 7, 7, 12 };
    token_seq seqs[] = { { .ids = ids, .n = 5 }, { .ids = ids + 5, .n = 3 } };
    open_fixture(&f, "deepseek_v2");
    must(pass_open(&p, f.m, (pass_limits){ 8, 2, 1 }, NULL));
    must(routes_open(&r, f.m, 8));
    must(pass_set(p, seqs, 2, NULL, 0));
    must(routes_fwd(r, p));
    assert_int_equal(r->n_layers, 2);
    assert_int_equal(r->layers[0], 1);
    assert_int_equal(r->n, 8);
    for (int32_t l = 0; l < r->n_layers; l++) {
        char name[64], text[2048];
        size_t at = 0, row = (size_t)r->n * (size_t)r->k;
        for (size_t i = 0; i < row; i++)
            at +=
                (size_t)snprintf(text + at, sizeof text - at, "%d\t", r->ids[(size_t)l * row + i]);
        for (size_t i = 0; i < row; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "\t%.4f",
                                   (double)r->gates[(size_t)l * row + i]);
        snprintf(text + at, sizeof text - at, "\n");
        snprintf(name, sizeof name, "logs/expert_weights_%d.txt", r->layers[l]);
        files_text(name, text);
    }
    routes_close(r);
    pass_close(p);
    pesc_esft_score_report report = PESC_INIT(pesc_esft_score_report);
    pesc_esft_score_options opt = pesc_esft_score_defaults();
    opt.model = f.dir;
    must(pesc_esft_score_logs(files_path("logs"), files_path("out"), &opt, NULL, &report));
    assert_int_equal(report.tokens, 8);
    assert_int_equal(report.experts, 6);
    opt.model = NULL; /* six a token, as released: these are two */
    must_fail(pesc_esft_score_logs(files_path("logs"), files_path("out"), &opt, NULL, &report),
              PESC_FORMAT, "twice; is top_k 6?");
    files_text("logs/expert_weights_0.txt", "0\t1\t\t0.5\t0.5\n");
    opt.model = f.dir;
    must_fail(pesc_esft_score_logs(files_path("logs"), files_path("out"), &opt, NULL, &report),
              PESC_FORMAT, "the model has no experts in layer 0");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_as_transformers_does),
        cmocka_unit_test(scores_on_a_far_device),
        cmocka_unit_test(takes_as_many_tokens_as_asked),
        cmocka_unit_test(logs_give_the_same),
    };
    return cmocka_run_group_tests_name("esft_score", tests, NULL, NULL);
}
