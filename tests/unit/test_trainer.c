#include "pesc/pesc.h"

#include "base/fault.h"
#include "base/io.h"
#include "train/trainer.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The library's own face: a run without the command. */
typedef struct setting {
    pesc_device *dev;
    pesc_model *model;
    pesc_trainer *t;
} setting;

static char data[512], output[512];
static const char *const data_list[] = { data };

static pesc_train_options options_of(const char *name)
{
    snprintf(data, sizeof data, "%s", golden_path("train/pesc-a/data.jsonl"));
    snprintf(output, sizeof output, "%s", files_path(name));
    return training_options(data_list, output);
}

static pesc_status start(setting *s, const pesc_train_options *o, const char *model)
{
    *s = (setting){ 0 };
    pesc_load_options load = pesc_load_defaults();
    (void)pesc_train_load(o, &load); /* refuses what the trainer is to refuse */
    must(pesc_device_open(&s->dev, "cpu:1"));
    must(pesc_model_open(&s->model, s->dev, golden_path(model), &load));
    return pesc_trainer_open(&s->t, s->model, o);
}

static void stop(setting *s)
{
    pesc_trainer_close(s->t);
    pesc_model_close(s->model);
    pesc_device_close(s->dev);
}

static void run_out(setting *s, pesc_step *steps)
{
    for (int i = 0; !pesc_trainer_done(s->t); i++) {
        steps[i] = PESC_INIT(pesc_step);
        must(pesc_trainer_step(s->t, &steps[i]));
    }
}

static void trains_and_describes(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step[4];
    pesc_train_info info = PESC_INIT(pesc_train_info);
    pesc_train_options o = options_of("a");
    must(start(&s, &o, "train/pesc-a/model"));
    pesc_trainer_describe(s.t, &info);
    assert_int_equal(info.steps, 4);
    assert_int_equal(info.records, 48);
    assert_string_equal(info.method, "pesc");
    run_out(&s, step);
    assert_int_equal(step[3].step, 4);
    assert_true(step[3].saved);
    assert_true(step[3].tokens > step[0].tokens);
    assert_true(step[0].grad_norm > 0 && isfinite(step[0].loss));
    assert_float_equal(step[0].loss, step[0].ce + 0.01 * step[0].aux, 1e-9);
    assert_true(step[0].mem_bytes >= info.bytes_model + info.bytes_activations);
    assert_true(files_there("a/latest/manifest.json"));
    stop(&s);
}

/* One forward of eight records, or eight of one: the same loss and the same step. Without the
 * balance loss, which is one of a forward. */
static void accumulation_changes_nothing(void **state)
{
    (void)state;
    files_clear();
    static const char *const losses[] = { "token", "sequence" };
    for (int l = 0; l < 2; l++) {
        pesc_step a[4], b[4];
        setting s;
        pesc_train_options o = options_of("one");
        o.overwrite = true;
        o.aux_coef = o.adapter_dropout = o.lora_dropout = 0;
        o.loss = losses[l];
        must(start(&s, &o, "train/pesc-a/model"));
        run_out(&s, a);
        stop(&s);
        o.packing = false;
        must(start(&s, &o, "train/pesc-a/model"));
        run_out(&s, b);
        stop(&s);
        for (int i = 0; i < 4; i++) {
            assert_float_equal(a[i].loss, b[i].loss, 1e-6 * a[i].loss);
            assert_float_equal(a[i].grad_norm, b[i].grad_norm, 1e-5 * a[i].grad_norm);
        }
    }
}

/* The balance loss that is told is that of the step's tokens, in however many forwards. */
static void balance_is_of_the_step(void **state)
{
    (void)state;
    files_clear();
    pesc_step one[4], many[4];
    setting s;
    pesc_train_options o = options_of("one");
    o.overwrite = true;
    o.adapter_dropout = o.lora_dropout = 0;
    must(start(&s, &o, "train/pesc-a/model"));
    run_out(&s, one);
    stop(&s);
    o.packing = false;
    must(start(&s, &o, "train/pesc-a/model"));
    run_out(&s, many);
    stop(&s);
    assert_true(one[0].aux > 1);
    assert_float_equal(one[0].aux, many[0].aux, 1e-6);
    assert_float_equal(one[0].loss, many[0].loss, 1e-6 * one[0].loss);
}

/* The balance loss of each micro-batch is weighted by its share of the tokens: with almost nothing
 * else in the loss, eight micro-batches give a gradient of the size that one gives. */
static void balance_gradient_is_weighted_by_tokens(void **state)
{
    (void)state;
    files_clear();
    pesc_step one = PESC_INIT(pesc_step), many = one;
    setting s;
    pesc_train_options o = options_of("one");
    o.overwrite = true;
    o.steps = 1;
    o.aux_coef = 1e5;
    o.adapter_dropout = o.lora_dropout = 0;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &one));
    stop(&s);
    o.packing = false;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &many));
    stop(&s);
    assert_true(many.grad_norm < 3 * one.grad_norm);
}

/* While the device computes a step, the next one's records are read; after the last there are
 * none. */
static void reads_ahead(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("ahead");
    must(start(&s, &o, "train/pesc-a/model"));
    for (int64_t i = 1; i <= o.steps; i++) {
        must(pesc_trainer_step(s.t, &step));
        assert_int_equal(batch_ahead(s.t->batch) > 0, i < o.steps);
    }
    stop(&s);
}

static const ops *usual_ops;
static int norms, wrong_norm; /* computed, and the one that comes out wrong */

static void sometimes_wrong(device *d, const norm_fwd *n)
{
    usual_ops->rmsnorm_fwd(d, n);
    if (++norms == wrong_norm)
        *(uint32_t *)n->out.data ^= 1 << 20;
}

/* Every second step is computed twice; a wrong bit of one norm in it ends the run. */
static void damage_is_seen(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("damage");
    o.verify_every = 2;
    o.overwrite = true;
    for (int wrong = 0; wrong < 2; wrong++) {
        must(start(&s, &o, "train/pesc-a/model"));
        device *dev = s.model->dev;
        ops table = *dev->op;
        usual_ops = dev->op;
        table.rmsnorm_fwd = sometimes_wrong;
        dev->op = &table;
        must(pesc_trainer_step(s.t, &step));
        wrong_norm = wrong ? norms + 2 : 0;
        if (wrong)
            must_fail(pesc_trainer_step(s.t, &step), PESC_NUMERIC, "step 2: computed twice");
        else
            must(pesc_trainer_step(s.t, &step));
        dev->op = usual_ops;
        stop(&s);
    }
}

static void write_same_records(void)
{
    char records[1024] = "";
    for (int i = 0; i < 8; i++)
        strcat(records, "{\"input_ids\": [1, 5, 9, 12, 7], \"labels\": [-100, 5, 9, 12, 7]}\n");
    files_text("same.jsonl", records);
}

/* The gradient of so many records that are all the same, each in a forward of its own, at two steps
 * between which nothing changes. */
static void gradients_of_one_record(int64_t records, double norms_of_steps[2])
{
    setting s;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("drop");
    snprintf(data, sizeof data, "%s", files_path("same.jsonl"));
    o.overwrite = true;
    o.packing = o.shuffle = false;
    o.batch = records;
    o.lr = o.aux_coef = 0;
    o.adapter_dropout = o.lora_dropout = 0.5;
    must(start(&s, &o, "train/pesc-a/model"));
    for (int i = 0; i < 2; i++) {
        must(pesc_trainer_step(s.t, &step));
        norms_of_steps[i] = step.grad_norm;
    }
    stop(&s);
}

static void every_micro_batch_has_its_own_dropout_mask(void **state)
{
    (void)state;
    files_clear();
    write_same_records();
    double one[2], two[2];
    gradients_of_one_record(1, one);
    gradients_of_one_record(2, two);
    assert_true(fabs(one[0] - one[1]) > 1e-3 * one[0]); /* of the step */
    assert_true(fabs(one[0] - two[0]) > 1e-3 * one[0]); /* of the micro-batch */
}

/* Records that are all the same have the same balance in one forward or in eight: so has its
 * gradient, which each micro-batch adds by its part of the tokens. */
static void balance_gradient_counts_by_tokens(void **state)
{
    (void)state;
    files_clear();
    write_same_records();
    double norm[2];
    for (int packed = 0; packed < 2; packed++) {
        setting s;
        pesc_step step = PESC_INIT(pesc_step);
        pesc_train_options o = options_of("balance");
        snprintf(data, sizeof data, "%s", files_path("same.jsonl"));
        o.overwrite = true;
        o.packing = packed;
        o.adapter_dropout = o.lora_dropout = 0;
        o.aux_coef = 10;
        must(start(&s, &o, "train/pesc-a/model"));
        must(pesc_trainer_step(s.t, &step));
        norm[packed] = step.grad_norm;
        stop(&s);
    }
    assert_float_equal(norm[0], norm[1], 1e-5 * norm[0]);
}

static bool infinite_norm; /* of the next gradient */

static void norm_or_infinity(device *d, tensor out, tensor x)
{
    usual_ops->sumsq(d, out, x);
    if (infinite_norm)
        *(float *)out.data = INFINITY;
}

/* The loss is finite, the norm of its gradient is not: the step does not count as applied. */
static void an_infinite_gradient_is_not_applied(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("infinite");
    must(start(&s, &o, "train/pesc-a/model"));
    device *dev = s.model->dev;
    ops table = *dev->op;
    usual_ops = dev->op;
    table.sumsq = norm_or_infinity;
    dev->op = &table;
    infinite_norm = true;
    must(pesc_trainer_step(s.t, &step));
    assert_true(step.skipped && isfinite(step.loss));
    assert_int_equal(s.t->state.applied, 0);
    infinite_norm = false;
    must(pesc_trainer_step(s.t, &step));
    assert_false(step.skipped);
    assert_int_equal(s.t->state.applied, 1);
    assert_int_equal(s.t->state.skipped, 1);
    dev->op = usual_ops;
    stop(&s);
}

static void stops_on_request(void **state)
{
    (void)state;
    files_clear();
    setting s;
    volatile int flag = 0;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("a");
    o.stop = &flag;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    flag = 1;
    assert_int_equal(pesc_trainer_step(s.t, &step), PESC_STOPPED);
    assert_true(step.saved);
    assert_int_equal(step.step, 2);
    stop(&s);
    flag = 0;
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    assert_int_equal(step.step, 3);
    stop(&s);
}

/* A stop during validation: the step is saved, and the validation comes first when it goes on. */
static void stops_before_validation(void **state)
{
    (void)state;
    files_clear();
    setting s;
    volatile int flag = 1;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("a");
    o.stop = &flag;
    o.eval_data = data_list;
    o.n_eval_data = 1;
    o.eval_every = 1;
    must(start(&s, &o, "train/pesc-a/model"));
    assert_int_equal(pesc_trainer_step(s.t, &step), PESC_STOPPED);
    assert_true(isnan(step.eval_loss));
    stop(&s);
    flag = 0;
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    assert_int_equal(step.step, 1);
    assert_true(isfinite(step.eval_loss));
    must(pesc_trainer_step(s.t, &step));
    assert_int_equal(step.step, 2);
    stop(&s);
}

/* A stop in the validation before the first step, or a save: that checkpoint stays, and takes the
 * place of the run that is replaced. */
static void a_checkpoint_before_the_first_step_stays(void **state)
{
    (void)state;
    files_clear();
    setting s;
    volatile int flag = 0;
    pesc_step steps[4], step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("a");
    o.stop = &flag;
    must(start(&s, &o, "train/pesc-a/model"));
    run_out(&s, steps);
    stop(&s);
    o.overwrite = o.eval_at_start = true;
    o.eval_data = data_list;
    o.n_eval_data = 1;
    for (flag = 0; flag < 2; flag++) {
        must(start(&s, &o, "train/pesc-a/model"));
        if (flag)
            assert_int_equal(pesc_trainer_step(s.t, &step), PESC_STOPPED);
        else
            must(pesc_trainer_save(s.t));
        stop(&s);
        assert_true(files_there("a/checkpoint-0/manifest.json"));
        assert_false(files_there("a/checkpoint-4"));
    }
    flag = 0;
    o.overwrite = false;
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    assert_true(step.step == 0 && isfinite(step.eval_loss));
    stop(&s);
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    files_clear();
    setting s;
    const struct {
        const char *field, *sentence;
        size_t at;
        double value;
    } rows[] = {
        { "lr", "lr: found -1, expected a number from 0", offsetof(pesc_train_options, lr), -1 },
        { "beta2", "beta2: found 1, expected", offsetof(pesc_train_options, beta2), 1 },
        { "clip", "clip: found nan, expected", offsetof(pesc_train_options, clip), NAN },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        pesc_train_options o = options_of("a");
        *(double *)(void *)((char *)&o + rows[i].at) = rows[i].value;
        must_fail(start(&s, &o, "train/pesc-a/model"), PESC_USAGE, rows[i].sentence);
        stop(&s);
    }
    pesc_train_options o = options_of("a");
    o.method = "magic";
    must_fail(start(&s, &o, "train/pesc-a/model"), PESC_USAGE,
              "method: found \"magic\", expected pesc, qlora, lora");
    stop(&s);
    o = options_of("a");
    must_fail(start(&s, &o, "train/lora/model"), PESC_USAGE,
              "run `pesc craft MODEL -o SPARSE` first");
    stop(&s);
    assert_false(files_there("a")); /* nothing was made */
    o = options_of("a");
    assert_true(fault_arm("write:2:EROFS")); /* the probe: the first is the lock's */
    o.output = output;
    pesc_status st = start(&s, &o, "train/pesc-a/model");
    fault_arm(NULL);
    assert_true(st == PESC_OK || st == PESC_DISK);
    stop(&s);
}

/* With rate 0 the loss never falls: the first validation is the best, two more end the run. A
 * resumed run finds it finished. */
static void patience_ends_a_run(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step[8];
    pesc_train_options o = options_of("a");
    const char *held[] = { o.data[0] };
    o.eval_data = held;
    o.n_eval_data = 1;
    o.eval_every = 1;
    o.steps = 8;
    o.lr = 0;
    o.patience = 2;
    o.eval_at_start = true;
    must(start(&s, &o, "train/pesc-a/model"));
    run_out(&s, step);
    stop(&s);
    assert_int_equal(step[0].step, 0);
    assert_true(isfinite(step[0].eval_loss) && !step[0].saved);
    assert_int_equal(step[3].step, 3);
    assert_true(step[3].saved);
    assert_true(files_there("a/checkpoint-3/manifest.json"));
    assert_false(files_there("a/checkpoint-0"));
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    assert_true(pesc_trainer_done(s.t));
    stop(&s);
}

/* The time left is that of the steps which are left, with a share of the validations and saves that
 * this process made; a resumed run counts its own steps only. */
static void time_left_goes_on(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("a");
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    s.t->speed.step = 1000;
    s.t->speed.beside = 400; /* of two steps */
    must(pesc_trainer_step(s.t, &step));
    assert_true(step.seconds_left >= 2 * (900 + 200) && step.seconds_left < 2 * (900 + 200) + 100);
    must(pesc_trainer_save(s.t));
    stop(&s);
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    s.t->speed.beside = 700; /* of one step */
    must(pesc_trainer_step(s.t, &step));
    assert_int_equal(step.step, 3);
    assert_true(step.seconds_left >= 700 && step.seconds_left < 800);
    stop(&s);
}

/* While a thread writes a checkpoint, the next step may change the weights and moments. */
static void a_checkpoint_is_of_its_step(void **state)
{
    (void)state;
    files_clear();
    setting s;
    bool saved;
    pesc_step step = PESC_INIT(pesc_step);
    pesc_train_options o = options_of("a");
    must(start(&s, &o, "train/pesc-a/model"));
    must(pesc_trainer_step(s.t, &step));
    const tensor *buffers[] = { &s.t->params->master, &s.t->optim->m, &s.t->optim->v };
    char *before[3];
    save_settle(s.t, true);
    must(save_step(s.t, false, &saved));
    assert_false(saved);
    for (int i = 0; i < 3; i++) {
        size_t n = tensor_bytes(buffers[i]);
        before[i] = malloc(n);
        memcpy(before[i], buffers[i]->data, n);
        memset(buffers[i]->data, 0, n);
    }
    assert_true(save_settle(s.t, true));
    assert_int_equal(save_newest(s.t), 1);
    stop(&s);
    o.resume = true;
    must(start(&s, &o, "train/pesc-a/model"));
    const tensor *after[] = { &s.t->params->master, &s.t->optim->m, &s.t->optim->v };
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(before[i], after[i]->data, tensor_bytes(after[i]));
        free(before[i]);
    }
    stop(&s);
}

/* Saving after every step: each waits for the one before, and the last for itself. */
static void one_checkpoint_at_a_time(void **state)
{
    (void)state;
    files_clear();
    setting s;
    pesc_step step[4];
    pesc_train_options o = options_of("a");
    o.save_every = 1;
    o.keep_checkpoints = 0;
    must(start(&s, &o, "train/pesc-a/model"));
    run_out(&s, step);
    assert_true(step[1].saved && step[2].saved && step[3].saved);
    for (int i = 1; i <= 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "a/checkpoint-%d/manifest.json", i);
        assert_true(files_there(name));
    }
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_of_its_step),
        cmocka_unit_test(one_checkpoint_at_a_time),
        cmocka_unit_test(time_left_goes_on),
        cmocka_unit_test(trains_and_describes),
        cmocka_unit_test(accumulation_changes_nothing),
        cmocka_unit_test(balance_is_of_the_step),
        cmocka_unit_test(balance_gradient_is_weighted_by_tokens),
        cmocka_unit_test(reads_ahead),
        cmocka_unit_test(damage_is_seen),
        cmocka_unit_test(every_micro_batch_has_its_own_dropout_mask),
        cmocka_unit_test(balance_gradient_counts_by_tokens),
        cmocka_unit_test(an_infinite_gradient_is_not_applied),
        cmocka_unit_test(stops_on_request),
        cmocka_unit_test(stops_before_validation),
        cmocka_unit_test(a_checkpoint_before_the_first_step_stays),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(patience_ends_a_run),
    };
    return cmocka_run_group_tests_name("trainer", tests, NULL, NULL);
}
