/* A model after the trainer that it had, or that was refused. */
#include "pesc/pesc.h"

#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/training.h"

#include <stdio.h>
#include <string.h>

static char data[512], output[512];
static const char *const data_list[] = { data };

static pesc_train_options options_of(const char *name)
{
    snprintf(data, sizeof data, "%s", golden_path("train/pesc-a/data.jsonl"));
    snprintf(output, sizeof output, "%s", files_path(name));
    return training_options(data_list, output);
}

typedef struct setting {
    pesc_device *dev;
    pesc_model *model;
    pesc_trainer *t;
} setting;

static void open_model(setting *s, const char *model)
{
    *s = (setting){ 0 };
    must(pesc_device_open(&s->dev, "cpu:1"));
    must(pesc_model_open(&s->model, s->dev, golden_path(model), NULL));
}

static void close_all(setting *s)
{
    pesc_trainer_close(s->t);
    pesc_model_close(s->model);
    pesc_device_close(s->dev);
}

static void run_out(pesc_trainer *t)
{
    pesc_step step = PESC_INIT(pesc_step);
    while (!pesc_trainer_done(t))
        must(pesc_trainer_step(t, &step));
}

enum { PROMPT = 5, MOST_VOCAB = 512 };
typedef float prompt_logits[PROMPT * MOST_VOCAB];

static void logits_of(pesc_model *m, float *out)
{
    static const int32_t ids[PROMPT] = { 1, 5, 9, 12, 7 };
    pesc_model_info info = PESC_INIT(pesc_model_info);
    memset(out, 0, sizeof(prompt_logits));
    must(pesc_model_describe(m, &info));
    assert_true(info.vocab <= MOST_VOCAB);
    must(pesc_logits(m, ids, PROMPT, out));
}

/* The model computes what the run does, when it is opened. */
static void the_model_keeps_what_was_trained(void **state)
{
    (void)state;
    static const char *const rows[][2] = { { "pesc", "train/pesc-a/model" },
                                           { "lora", "train/lora/model" },
                                           { "full", "train/lora/model" },
                                           { "molora", "train/lora/model" } };
    static prompt_logits before, after, reopened;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_clear();
        setting s;
        pesc_model *run;
        pesc_trainer *second = NULL;
        pesc_train_options o = options_of("a");
        o.method = rows[i][0];
        o.experts = 3;
        open_model(&s, rows[i][1]);
        logits_of(s.model, before);
        must(pesc_trainer_open(&s.t, s.model, &o));
        run_out(s.t);
        pesc_trainer_close(s.t);
        s.t = NULL;
        logits_of(s.model, after);
        must(pesc_model_open(&run, s.dev, output, NULL));
        logits_of(run, reopened);
        assert_memory_not_equal(before, after, sizeof after);
        assert_memory_equal(after, reopened, sizeof after);
        pesc_model_close(run);
        o.overwrite = true;
        must_fail(pesc_trainer_open(&second, s.model, &o), PESC_USAGE, "was trained already");
        must_fail(pesc_model_patch(s.model, "x"), PESC_USAGE, "was trained");
        assert_true(files_there("a/latest/manifest.json"));
        close_all(&s);
    }
}

/* A run that is refused when the model was prepared for it leaves a model that computes as before.
 */
static void a_refused_trainer_leaves_the_model(void **state)
{
    (void)state;
    static const char *const rows[][2] = { { "pesc", "train/pesc-a/model" },
                                           { "lora", "train/lora/model" },
                                           { "full", "train/lora/model" } };
    static prompt_logits before, after;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        files_clear();
        files_text("bad.jsonl", "{\"input_ids\": [1, 5], \"labels\": [-100, 5]}\n"
                                "{\"input_ids\": [1, 99999], \"labels\": [-100, 5]}\n");
        setting s;
        pesc_train_options o = options_of("a");
        snprintf(data, sizeof data, "%s", files_path("bad.jsonl"));
        o.method = rows[i][0];
        open_model(&s, rows[i][1]);
        logits_of(s.model, before);
        must_fail(pesc_trainer_open(&s.t, s.model, &o), PESC_FORMAT, "99999");
        logits_of(s.model, after);
        assert_memory_equal(before, after, sizeof after);
        close_all(&s);
    }
}

/* Its memory is laid out for a model without LoRA. */
static void a_session_is_closed_before_training(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_session *open;
    pesc_train_options o = options_of("a");
    o.method = "lora";
    open_model(&s, "train/lora/model");
    must(pesc_session_open(&open, s.model, 16));
    must_fail(pesc_trainer_open(&s.t, s.model, &o), PESC_USAGE, "has open sessions");
    assert_false(files_there("a"));
    pesc_session_close(open);
    must(pesc_trainer_open(&s.t, s.model, &o));
    close_all(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_model_keeps_what_was_trained),
        cmocka_unit_test(a_refused_trainer_leaves_the_model),
        cmocka_unit_test(a_session_is_closed_before_training),
    };
    return cmocka_run_group_tests_name("trained_model", tests, NULL, NULL);
}
