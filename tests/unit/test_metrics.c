#include "train/metrics.h"

#include "base/fault.h"
#include "support/check.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const metrics_lengths nothing;

static char *text_of(const char *name)
{
    char path[64];
    size_t n;
    snprintf(path, sizeof path, "run/%s", name);
    return files_get(files_path(path), &n);
}

static metrics *start(const metrics_lengths *keep)
{
    metrics *m = NULL;
    must(io_make_dir(files_path("run")));
    must(metrics_open(&m, files_path("run"), keep));
    return m;
}

static pesc_step step_of(int64_t i)
{
    return (pesc_step){ .step = i,
                        .steps = 9,
                        .epoch = 0.5,
                        .tokens = 10 * i,
                        .loss = 1.25,
                        .ce = 1,
                        .aux = 25,
                        .grad_norm = 0.125,
                        .lr = 2e-4,
                        .tok_s = 3.5,
                        .mem_bytes = 1 << 20,
                        .expert_entropy = 0.75,
                        .dead_experts = 2 };
}

static void writes_the_agreed_keys(void **state)
{
    (void)state;
    files_clear();
    metrics *m = start(&nothing);
    pesc_step a = step_of(1), b = step_of(2);
    b.skipped = true; /* its gradient was not finite */
    b.ce = NAN;
    b.expert_entropy = NAN;
    metrics_step(m, &a, (metrics_domains){ 0 });
    metrics_step(m, &b, (metrics_domains){ 0 });
    const float share[] = { 0.5f, 0.5f, 1.0f, 0.0f };
    metrics_routing(m, 2, &(metrics_shares){ share, 2, 2 });
    metrics_close(m);
    char *got = text_of("metrics.jsonl");
    assert_string_equal(
        got, "{\"step\":1,\"epoch\":0.5,\"tokens\":10,\"loss\":1.25,\"ce\":1,\"aux\":25,"
             "\"grad_norm\":0.125,\"lr\":0.0002,\"tok_s\":3.5,\"mem_bytes\":1048576,"
             "\"expert_entropy\":0.75,\"dead_experts\":2}\n"
             "{\"step\":2,\"epoch\":0.5,\"tokens\":20,\"loss\":null,\"ce\":null,\"aux\":25,"
             "\"grad_norm\":0.125,\"lr\":0.0002,\"tok_s\":3.5,\"mem_bytes\":1048576,"
             "\"expert_entropy\":null,\"dead_experts\":2}\n");
    free(got);
    got = text_of("routing.jsonl");
    assert_string_equal(got, "{\"step\":2,\"layers\":[[0.5,0.5],[1,0]]}\n");
    free(got);
}

/* A run on preferences has TRL's names; what was not measured is left out. */
static void writes_preferences(void **state)
{
    (void)state;
    files_clear();
    metrics *m = start(&nothing);
    pesc_step a = step_of(1);
    a.eval_loss = 0.5;
    a.preference = a.eval_preference = (pesc_preference){ .answers = 8,
                                                          .reward_chosen = 0.25,
                                                          .reward_rejected = -0.5,
                                                          .margin = 0.75,
                                                          .accuracy = 1,
                                                          .logp_chosen = -3,
                                                          .logp_rejected = -4,
                                                          .kl = NAN };
    metrics_step(m, &a, (metrics_domains){ 0 });
    metrics_eval(m, &a, 40, (metrics_domains){ 0 });
    metrics_close(m);
    char *got = text_of("metrics.jsonl");
    assert_non_null(strstr(got, ",\"rewards/chosen\":0.25,\"rewards/rejected\":-0.5,"
                                "\"rewards/margins\":0.75,\"rewards/accuracies\":1,"
                                "\"logps/chosen\":-3,\"logps/rejected\":-4,\"expert_entropy\""));
    free(got);
    got = text_of("eval.jsonl");
    assert_string_equal(
        got, "{\"step\":1,\"eval_loss\":0.5,\"eval_answers\":8,"
             "\"eval_rewards/chosen\":0.25,\"eval_rewards/rejected\":-0.5,"
             "\"eval_rewards/margins\":0.75,\"eval_rewards/accuracies\":1,"
             "\"eval_logps/chosen\":-3,\"eval_logps/rejected\":-4,\"eval_tokens\":40}\n");
    free(got);
    assert_true(metrics_eval_value("rewards/margins", &a) == 0.75);
    assert_true(metrics_eval_value("loss", &a) == 0.5);
    assert_true(metrics_lower_is_better("loss") && metrics_lower_is_better("logps/rejected"));
    assert_false(metrics_lower_is_better("rewards/accuracies"));
}

/* Cut back to what a checkpoint knew: no step is there twice. */
static void cuts_back(void **state)
{
    (void)state;
    files_clear();
    metrics_lengths at = nothing;
    metrics *m = start(&nothing);
    pesc_step a = step_of(1), b = step_of(2);
    metrics_step(m, &a, (metrics_domains){ 0 });
    must(metrics_sync(m, &at));
    metrics_step(m, &b, (metrics_domains){ 0 });
    metrics_close(m);
    m = start(&at);
    metrics_step(m, &b, (metrics_domains){ 0 });
    metrics_close(m);
    char *got = text_of("metrics.jsonl");
    assert_non_null(strstr(got, "{\"step\":1,"));
    assert_non_null(strstr(got, "}\n{\"step\":2,"));
    assert_null(strstr(strstr(got, "{\"step\":2,") + 1, "{\"step\":2,"));
    free(got);
    at.bytes[METRICS_STEPS] = 1 << 20; /* a log that lost bytes is noticed */
    must_fail(metrics_open(&m, files_path("run"), &at), PESC_FORMAT, "metrics.jsonl: is ");
}

/* A disk that is full for a while loses no line. */
static void waits_for_the_disk(void **state)
{
    (void)state;
    files_clear();
    metrics *m = start(&nothing);
    pesc_step a = step_of(1), b = step_of(2);
    metrics_lengths at;
    assert_true(fault_arm("write:1:ENOSPC"));
    metrics_step(m, &a, (metrics_domains){ 0 });
    assert_true(fault_fired());
    metrics_step(m, &b, (metrics_domains){ 0 });
    must(metrics_sync(m, &at));
    assert_true(fault_arm("fsync:1:EIO"));
    must_fail(metrics_sync(m, &at), PESC_DISK, "cannot be flushed to disk");
    fault_arm(NULL);
    metrics_close(m);
    char *got = text_of("metrics.jsonl");
    assert_memory_equal(got, "{\"step\":1,", 10);
    assert_non_null(strstr(got, "}\n{\"step\":2,"));
    free(got);
}

static void measures_balance(void **state)
{
    (void)state;
    double h;
    int64_t dead;
    const float even[] = { 0.25f, 0.25f, 0.25f, 0.25f };
    metrics_balance(&(metrics_shares){ even, 1, 4 }, &h, &dead);
    assert_float_equal(h, 1, 1e-12);
    assert_int_equal(dead, 0);
    const float two[] = { 0.5f, 0.5f, 0, 0, 1, 0, 0, 0 };
    metrics_balance(&(metrics_shares){ two, 2, 4 }, &h, &dead);
    assert_float_equal(h, 0.25, 1e-12); /* half, and none */
    assert_int_equal(dead, 5);
    metrics_balance(&(metrics_shares){ NULL, 0, 0 }, &h, &dead);
    assert_true(isnan(h));
    assert_int_equal(dead, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_agreed_keys),
        cmocka_unit_test(writes_preferences),
        cmocka_unit_test(cuts_back),
        cmocka_unit_test(waits_for_the_disk),
        cmocka_unit_test(measures_balance),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
