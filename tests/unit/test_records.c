/* The data of a run: a part held out for validation, and data that changes between two processes.
 * Record i of the files has i + 3 tokens, so the tokens of a step tell which records it had. */
#include "pesc/pesc.h"

#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>

typedef struct setting {
    pesc_device *dev;
    pesc_model *model;
    pesc_trainer *t;
} setting;

static char data[512], output[512];
static const char *const data_list[] = { data };
static char told[4096]; /* all notices of a test */

static void hear(void *ud, const char *sentence)
{
    (void)ud;
    size_t n = strlen(told);
    snprintf(told + n, sizeof told - n, "%s\n", sentence);
}

static void write_records(int count, int marker)
{
    char text[8192];
    size_t n = 0;
    for (int i = 0; i < count; i++)
        for (int field = 0; field < 2; field++) {
            n += (size_t)snprintf(text + n, sizeof text - n, "%s[%d",
                                  field ? "],\"labels\":" : "{\"input_ids\":", marker);
            for (int k = 0; k < i + 2; k++)
                n += (size_t)snprintf(text + n, sizeof text - n, ",%d", k + 1);
            if (field)
                n += (size_t)snprintf(text + n, sizeof text - n, "]}\n");
        }
    snprintf(data, sizeof data, "%s", files_put("data.jsonl", text, n));
}

static pesc_train_options options_of(int64_t steps)
{
    pesc_train_options o = pesc_train_defaults();
    snprintf(output, sizeof output, "%s", files_path("run"));
    o.output = output;
    o.data = data_list;
    o.n_data = 1;
    o.seq_len = 32;
    o.batch = 2;
    o.steps = steps;
    o.lora_r = 2;
    o.warmup_steps = 0;
    o.shuffle = false;
    return o;
}

static pesc_status start(setting *s, const pesc_train_options *o)
{
    *s = (setting){ 0 };
    told[0] = '\0';
    pesc_events ev = PESC_INIT(pesc_events);
    ev.notice = hear;
    must(pesc_device_open(&s->dev, "cpu:1"));
    must(pesc_device_events(s->dev, &ev));
    must(pesc_model_open(&s->model, s->dev, golden_path("train/pesc-a/model"), NULL));
    return pesc_trainer_open(&s->t, s->model, o);
}

static void stop(setting *s)
{
    pesc_trainer_close(s->t);
    pesc_model_close(s->model);
    pesc_device_close(s->dev);
}

/* Runs to the end; tokens[i] is what step first + i took. */
static size_t run_out(setting *s, int64_t *tokens)
{
    size_t n = 0;
    int64_t before = s->t->state.tokens;
    for (pesc_step step = PESC_INIT(pesc_step); !pesc_trainer_done(s->t); before = step.tokens) {
        must(pesc_trainer_step(s->t, &step));
        tokens[n++] = step.tokens - before;
    }
    return n;
}

static void make_run(int64_t steps)
{
    setting s;
    int64_t tokens[16];
    files_clear();
    write_records(6, 7);
    pesc_train_options o = options_of(steps);
    must(start(&s, &o));
    assert_int_equal(run_out(&s, tokens), steps);
    assert_int_equal(tokens[0], 3 + 4);
    stop(&s);
}

static void other_data_is_refused_by_name(void **state)
{
    (void)state;
    setting s;
    make_run(2);
    write_records(5, 8);
    pesc_train_options o = options_of(4);
    o.resume = true;
    must_fail(start(&s, &o), PESC_USAGE, "the data files have changed since it was saved (");
    assert_non_null(strstr(pesc_last_error(), "data.jsonl had "));
    assert_non_null(strstr(pesc_last_error(), " bytes with hash "));
    assert_non_null(strstr(pesc_last_error(), "--data-changed restart-epoch"));
    stop(&s);
}

/* Step 3 would begin at record 4 of 6: there it continues in the new data, of 5 records. */
static void continues_at_the_same_position(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    make_run(2);
    write_records(5, 8);
    pesc_train_options o = options_of(4);
    o.resume = true;
    o.data_changed = "continue";
    must(start(&s, &o));
    assert_non_null(strstr(told, "epoch 1 continues in the new data"));
    assert_int_equal(run_out(&s, tokens), 2);
    assert_int_equal(tokens[0], 7 + 3); /* positions 4 and 5 of records of 3 to 7 tokens */
    assert_int_equal(tokens[1], 4 + 5);
    stop(&s);
}

/* In the second epoch of 6 records, after 4 of them: that epoch starts again, with 5 records. */
static void starts_the_epoch_again(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    make_run(5);
    write_records(5, 8);
    pesc_train_options o = options_of(7);
    o.resume = true;
    o.data_changed = "restart-epoch";
    must(start(&s, &o));
    assert_non_null(strstr(told, "epoch 2 starts again with the new data"));
    assert_int_equal(run_out(&s, tokens), 2);
    assert_int_equal(tokens[0], 3 + 4);
    assert_int_equal(tokens[1], 5 + 6);
    stop(&s);
    o.steps = 9; /* the next process finds the same place without being told */
    o.data_changed = NULL;
    must(start(&s, &o));
    assert_null(strstr(told, "epoch"));
    assert_int_equal(run_out(&s, tokens), 2);
    assert_int_equal(tokens[0], 7 + 3);
    stop(&s);
}

/* Epochs that were asked for end where they should, though one was started again. */
static void the_length_follows_the_new_data(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    files_clear();
    write_records(6, 7);
    pesc_train_options o = options_of(0);
    volatile int end = 0;
    o.epochs = 2;
    o.stop = &end;
    must(start(&s, &o));
    assert_int_equal(s.t->length.steps, 6);
    pesc_step step = PESC_INIT(pesc_step);
    for (int i = 0; i < 3; i++)
        must(pesc_trainer_step(s.t, &step));
    end = 1;
    assert_int_equal(pesc_trainer_step(s.t, &step), PESC_STOPPED); /* step 4, in epoch 2 */
    stop(&s);
    write_records(8, 8);
    end = 0;
    o.resume = true;
    o.data_changed = "restart-epoch";
    must(start(&s, &o));
    assert_int_equal(s.t->length.steps, 8); /* 4, and one epoch of 8 records */
    assert_int_equal(run_out(&s, tokens), 4);
    assert_int_equal(tokens[3], 9 + 10);
    stop(&s);
}

static void validates_on_a_part(void **state)
{
    (void)state;
    setting s;
    files_clear();
    write_records(6, 7);
    pesc_train_options o = options_of(3);
    double loss[2];
    o.val_split = 0.34;
    o.eval_every = 3;
    for (int i = 0; i < 2; i++) {
        pesc_step step = PESC_INIT(pesc_step);
        o.resume = i > 0; /* the same records are held out again */
        o.steps = i ? 6 : 3;
        must(start(&s, &o));
        assert_int_equal(dataset_count(s.t->eval_data), 2);
        assert_int_equal(dataset_count(s.t->data), 4);
        while (!pesc_trainer_done(s.t))
            must(pesc_trainer_step(s.t, &step));
        loss[i] = step.eval_loss;
        assert_true(isfinite(loss[i]));
        stop(&s);
    }
    o.eval_data = data_list;
    o.n_eval_data = 1;
    o.overwrite = true;
    o.resume = false;
    must_fail(start(&s, &o), PESC_USAGE, "eval_data and val_split are both given");
    stop(&s);
}

/* Records of 3 to 8 tokens and seq_len 6: the last two have no place in a batch, an epoch or a
 * validation, also in a run that is resumed and need not read them. */
static void dropped_records_take_no_place(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    files_clear();
    write_records(6, 7);
    pesc_train_options o = options_of(0);
    o.epochs = 2;
    o.seq_len = 6;
    o.eval_data = data_list;
    o.n_eval_data = 1;
    for (int i = 0; i < 2; i++) {
        o.resume = i > 0;
        o.epochs = i ? 3 : 2;
        must(start(&s, &o));
        assert_int_equal(s.t->length.steps, i ? 6 : 4);
        assert_int_equal(dataset_used(s.t->eval_data), 4);
        assert_non_null(strstr(told, "training data: 2 of 6 records are longer than seq_len 6"));
        assert_int_equal(run_out(&s, tokens), i ? 2 : 4);
        for (int k = 0; k < (i ? 2 : 4); k++)
            assert_int_equal(tokens[k], k % 2 ? 5 + 6 : 3 + 4);
        assert_true(s.t->state.epoch == o.epochs);
        stop(&s);
    }
    o = options_of(1); /* the first step has what fits, wherever it is in the file */
    o.seq_len = 3;
    o.seed = 3;
    o.shuffle = true;
    o.batch = 1;
    o.overwrite = true;
    must(start(&s, &o));
    assert_int_equal(run_out(&s, tokens), 1);
    assert_int_equal(tokens[0], 3);
    stop(&s);
}

/* Where the list is not in records.json, the records are read again. */
static void dropped_records_are_found_again(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    files_clear();
    write_records(6, 7);
    pesc_train_options o = options_of(2);
    o.seq_len = 6;
    must(start(&s, &o));
    run_out(&s, tokens);
    stop(&s);
    char path[600], *text = NULL;
    size_t n = 0;
    snprintf(path, sizeof path, "%s/records.json", output);
    must(io_read_file(path, 1 << 20, &text, &n));
    char *list = strstr(text, "unused_records");
    assert_non_null(list);
    memcpy(list, "other__", 7);
    must(io_write_file(path, text, n));
    mem_free(text);
    o.resume = true;
    o.steps = 4;
    must(start(&s, &o));
    assert_int_equal(run_out(&s, tokens), 2);
    assert_int_equal(tokens[0], 3 + 4);
    stop(&s);
}

static void other_validation_data_is_told(void **state)
{
    (void)state;
    setting s;
    int64_t tokens[16];
    files_clear();
    write_records(6, 7);
    char path[512];
    const char *eval[] = { path };
    snprintf(path, sizeof path, "%s",
             files_text("eval.jsonl", "{\"input_ids\":[1,2,3],\"labels\":[1,2,3]}\n"));
    pesc_train_options o = options_of(2);
    o.eval_data = eval;
    o.n_eval_data = 1;
    must(start(&s, &o));
    run_out(&s, tokens);
    stop(&s);
    files_text("eval.jsonl", "{\"input_ids\":[1,2,4],\"labels\":[1,2,4]}\n");
    o.resume = true;
    o.steps = 3;
    must(start(&s, &o));
    assert_non_null(strstr(told, "the validation data has changed ("));
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_data_is_refused_by_name),
        cmocka_unit_test(continues_at_the_same_position),
        cmocka_unit_test(starts_the_epoch_again),
        cmocka_unit_test(the_length_follows_the_new_data),
        cmocka_unit_test(validates_on_a_part),
        cmocka_unit_test(dropped_records_take_no_place),
        cmocka_unit_test(dropped_records_are_found_again),
        cmocka_unit_test(other_validation_data_is_told),
    };
    return cmocka_run_group_tests_name("records", tests, NULL, NULL);
}
