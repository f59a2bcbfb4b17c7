/* Runs on preferences against float64 PyTorch, and where TRL can do them against its trainers
 * (tests/golden/make/golden_preferences.py): twelve steps of every loss, by the trainer itself from
 * a file of pairs to AdamW. */
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/training.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static pesc_device *dev;
static json_t *goldens;

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : otherwise;
}

static const char *text(const json_t *o, const char *key, const char *otherwise)
{
    const char *v = json_string_value(json_object_get(o, key));
    return v ? v : otherwise;
}

/* A path of tests/golden, which stays. */
static const char *path_of(const json_t *run, const char *key, char out[512])
{
    const char *name = text(run, key, NULL);
    snprintf(out, 512, "%s", name ? golden_path(name) : "");
    return name ? out : NULL;
}

static void near(const char *run, int step, const char *what, double got, const json_t *steps)
{
    const json_t *v = json_object_get(json_array_get(steps, (size_t)step), what);
    double want = json_number_value(v);
    bool difference = strcmp(what, "kl") == 0 || strncmp(what, "rewards/", 8) == 0;
    double least = difference ? 1 : 0.1; /* of log-probabilities of some tens */
    if (v && !(fabs(got - want) <= 1e-5 * fmax(fabs(want), least)))
        fail_msg("%s: step %d: %s is %.9g, expected %.9g", run, step + 1, what, got, want);
}

static void compare(const char *run, int i, const pesc_step *got, const json_t *steps)
{
    const pesc_preference *p = &got->preference;
    near(run, i, "loss", got->loss, steps);
    near(run, i, "ce", got->ce, steps);
    near(run, i, "aux", got->aux, steps);
    near(run, i, "grad_norm", got->grad_norm, steps);
    near(run, i, "rewards/chosen", p->reward_chosen, steps);
    near(run, i, "rewards/rejected", p->reward_rejected, steps);
    near(run, i, "rewards/margins", p->margin, steps);
    near(run, i, "rewards/accuracies", p->accuracy, steps);
    near(run, i, "logps/chosen", p->logp_chosen, steps);
    near(run, i, "logps/rejected", p->logp_rejected, steps);
    near(run, i, "kl", p->kl, steps);
}

static void take_options(pesc_train_options *o, const json_t *given)
{
    o->method = text(given, "method", NULL);
    o->objective = text(given, "objective", NULL);
    o->loss = text(given, "loss", o->loss);
    o->steps = (int64_t)number(given, "steps", 0);
    o->batch = (int64_t)number(given, "batch", 0);
    o->lr = number(given, "lr", 0);
    o->eps = number(given, "eps", 0);
    o->aux_coef = number(given, "aux_coef", 0);
    o->lora_r = (int64_t)number(given, "lora_r", 0);
    o->lora_alpha = number(given, "lora_alpha", o->lora_alpha);
    o->beta = number(given, "beta", o->beta);
    o->label_smoothing = number(given, "label_smoothing", o->label_smoothing);
    o->simpo_gamma = number(given, "simpo_gamma", o->simpo_gamma);
    o->orpo_lambda = number(given, "orpo_lambda", o->orpo_lambda);
    o->kto_desirable = number(given, "kto_desirable", o->kto_desirable);
    o->kto_undesirable = number(given, "kto_undesirable", o->kto_undesirable);
    o->sft_coef = number(given, "sft_coef", o->sft_coef);
    o->clip = 0;
    o->schedule = "constant";
    o->shuffle = false;
    o->lora_dropout = o->adapter_dropout = 0;
    o->compute_dtype = "f32";
    o->keep = 1;
}

/* micro_tokens: 512 holds all pairs of a step, 128 only some of them. */
static void trajectory(const json_t *run, int64_t micro_tokens)
{
    char model[512], adapter[512], data[512], experts[512], out[512];
    const char *files[] = { path_of(run, "data", data) }, *name = text(run, "name", "");
    const json_t *steps = json_object_get(run, "steps"), *trl = json_object_get(run, "trl");
    files_clear();
    snprintf(out, sizeof out, "%s", files_path("run"));
    pesc_train_options o = training_options(files, out);
    take_options(&o, json_object_get(run, "options"));
    o.micro_tokens = micro_tokens;
    o.lora = path_of(run, "lora", adapter);
    o.experts_config = path_of(run, "experts_config", experts);
    pesc_load_options load = pesc_load_defaults();
    pesc_model *m;
    pesc_trainer *t;
    must(pesc_train_load(&o, &load));
    must(pesc_model_open(&m, dev, path_of(run, "model", model), &load));
    must(pesc_trainer_open(&t, m, &o));
    assert_int_equal(json_array_size(steps), 12);
    for (int i = 0; i < 12; i++) {
        pesc_step got = PESC_INIT(pesc_step);
        must(pesc_trainer_step(t, &got));
        if (micro_tokens < 512)
            got.aux = number(json_array_get(steps, (size_t)i), "aux", 0); /* f is a micro-batch's */
        compare(name, i, &got, steps);
        if (trl)
            compare(name, i, &got, trl);
    }
    pesc_trainer_close(t);
    pesc_model_close(m);
}

static void equals_torch(void **state)
{
    const json_t *run = *state;
    trajectory(run, 512);
    if (number(json_object_get(run, "options"), "aux_coef", 0) == 0)
        trajectory(run, 128);
}

int main(void)
{
    enum { MOST = 64 };
    static struct CMUnitTest tests[MOST];
    static char names[MOST][64];
    goldens = json_load_file(golden_path("preference/golden.json"), 0, NULL);
    size_t n = json_array_size(goldens);
    if (!n || n > MOST || pesc_device_open(&dev, golden_device()) != PESC_OK) {
        fprintf(stderr, "no goldens, or no device: %s\n", pesc_last_error());
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        json_t *run = json_array_get(goldens, i);
        snprintf(names[i], sizeof names[i], "%s", text(run, "name", ""));
        tests[i] = (struct CMUnitTest){ .name = names[i],
                                        .test_func = equals_torch,
                                        .initial_state = run };
    }
    int failed = _cmocka_run_group_tests("preferences", tests, n, NULL, NULL);
    pesc_device_close(dev);
    json_decref(goldens);
    return failed;
}
