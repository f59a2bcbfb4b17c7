#include "train/checkpoint.h"

#include "base/fault.h"
#include "base/mem.h"
#include "run/rundir.h"
#include "support/check.h"
#include "support/files.h"
#include "support/training.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static training on;
static params *ps;
static optimizer *opt;
static char run[512];

static checkpoint saver(void)
{
    return (checkpoint){ .run = run,
                         .p = ps,
                         .opt = opt,
                         .yaml = "steps: 9\n",
                         .steps = 9,
                         .keep = 2,
                         .about = { .base = (char *)(uintptr_t) "/models/a",
                                    .base_hash = "a",
                                    .tokenizer_hash = "d",
                                    .data_hash = "b",
                                    .config_hash = "c" } };
}

/* Numbers that name their step. */
static void fill(int64_t step)
{
    float *w = ps->master.data, *m = opt->m.data, *v = opt->v.data;
    for (size_t i = 0; i < ps->n_list; i++) {
        const param *q = &ps->list[i];
        tensor t = params_master(ps, q);
        for (int64_t k = 0; k < tensor_count(&t); k++)
            w[q->at + k] = (float)(q->at + k) + (float)step * 0.125f;
    }
    for (int64_t i = 0; i < ps->n; i++) {
        m[i] = (float)step + (float)i;
        v[i] = (float)step * (float)i;
    }
}

static bool holds(int64_t step)
{
    const param *q = &ps->list[ps->n_list / 2];
    return ((float *)ps->master.data)[q->at + 1] == (float)(q->at + 1) + (float)step * 0.125f &&
           ((float *)opt->m.data)[3] == (float)step + 3 &&
           ((float *)opt->v.data)[ps->n - 1] == (float)step * (float)(ps->n - 1);
}

static void clean(void)
{
    files_clear();
    snprintf(run, sizeof run, "%s", files_path("run"));
    must(io_make_dir(run));
}

static checkpoint_state state_of(int64_t step)
{
    return (checkpoint_state){ .step = step,
                               .applied = step - 1,
                               .tokens = 100 * step,
                               .skipped = 1,
                               .epoch = 0.1,
                               .best_loss = 1.0 / 3,
                               .best_step = 0,
                               .metrics_bytes = 17,
                               .eval_due = 1 };
}

static void save(int64_t step)
{
    checkpoint c = saver();
    checkpoint_state s = state_of(step);
    fill(step);
    must(checkpoint_save(&c, &s));
    mem_free(c.whole);
}

static char *newest(void)
{
    char *dir = NULL;
    must(runstate_newest(run, RUNSTATE_HASHES, &dir));
    return dir;
}

static void gives_back_what_it_saved(void **state)
{
    (void)state;
    clean();
    save(4);
    fill(0);
    checkpoint c = saver();
    checkpoint_state s = { 0 };
    char *dir = newest();
    must(checkpoint_load(&c, dir, &s));
    assert_true(holds(4));
    assert_int_equal(s.step, 4);
    assert_int_equal(s.applied, 3);
    assert_int_equal(s.tokens, 400);
    assert_int_equal(s.skipped, 1);
    assert_int_equal(s.metrics_bytes, 17);
    assert_int_equal(s.eval_due, 1);
    assert_true(s.epoch == 0.1);
    fill(0);
    must(checkpoint_load_weights(ps, dir));
    assert_false(holds(4)); /* the moments are those of step 0 */
    mem_free(dir);
    mem_free(c.whole);
    for (int i = 0; i < 4; i++) {
        checkpoint other = saver();
        char *hashes[] = { other.about.base_hash, other.about.tokenizer_hash, other.about.data_hash,
                           other.about.config_hash };
        hashes[i][0] = 'x';
        dir = newest();
        must_fail(checkpoint_load(&other, dir, &s), PESC_USAGE, "changed since it was saved");
        mem_free(dir);
    }
}

static void keeps_the_newest_and_the_best(void **state)
{
    (void)state;
    clean();
    checkpoint c = saver();
    for (int64_t step = 1; step <= 5; step++) {
        checkpoint_state s = state_of(step);
        s.best_step = step < 2 ? step : 2;
        fill(step);
        must(checkpoint_save(&c, &s));
    }
    assert_true(files_there("run/checkpoint-2/manifest.json"));
    assert_true(files_there("run/checkpoint-4/manifest.json"));
    assert_true(files_there("run/checkpoint-5/manifest.json"));
    assert_false(files_there("run/checkpoint-1"));
    assert_false(files_there("run/checkpoint-3"));
    char target[32] = "";
    assert_true(readlink(files_path("run/latest"), target, sizeof target) > 0);
    assert_string_equal(target, "checkpoint-5");
    c.keep = 0; /* all */
    checkpoint_state s = state_of(6);
    must(checkpoint_save(&c, &s));
    assert_true(files_there("run/checkpoint-4"));
    mem_free(c.whole);
}

/* Checkpoints 15 and 20 are damaged, so a run resumed from 10 and saves 11: both must stay however
 * many newer names there are, until newer whole ones take their place. */
static void never_retires_a_whole_one_for_a_damaged_one(void **state)
{
    (void)state;
    clean();
    checkpoint first = saver();
    first.keep = 0;
    static const int64_t steps[] = { 10, 15, 20 };
    for (int i = 0; i < 3; i++) {
        checkpoint_state s = state_of(steps[i]);
        fill(steps[i]);
        must(checkpoint_save(&first, &s));
    }
    mem_free(first.whole);
    files_text("run/checkpoint-15/trained.safetensors", "damaged");
    files_text("run/checkpoint-20/trained.safetensors", "damaged");
    char *dir = newest();
    assert_non_null(strstr(dir, "checkpoint-10"));
    checkpoint c = saver();
    checkpoint_state s = { 0 };
    must(checkpoint_load(&c, dir, &s));
    mem_free(dir);
    s = state_of(11);
    must(checkpoint_save(&c, &s));
    assert_true(files_there("run/checkpoint-10/manifest.json"));
    assert_true(files_there("run/checkpoint-11/manifest.json"));
    s = state_of(12);
    must(checkpoint_save(&c, &s));
    assert_false(files_there("run/checkpoint-10"));
    assert_true(files_there("run/checkpoint-11/manifest.json"));
    mem_free(c.whole);
    dir = newest();
    assert_non_null(strstr(dir, "checkpoint-12"));
    mem_free(dir);
}

static void sweeps_what_a_killed_run_left(void **state)
{
    (void)state;
    clean();
    save(1);
    files_text("run/checkpoint-2.tmp.77/trained.safetensors", "half");
    files_text("run/.trash-checkpoint-0.77/manifest.json", "{}");
    files_text("run/mine/notes.txt", "x");
    must(rundir_sweep(run));
    assert_false(files_there("run/checkpoint-2.tmp.77"));
    assert_false(files_there("run/.trash-checkpoint-0.77"));
    assert_true(files_there("run/mine/notes.txt"));
    assert_true(files_there("run/checkpoint-1/manifest.json"));
}

/* Every file operation of a save fails once: the old one or the new one is there, never neither,
 * and the next save works. */
static void survives_any_failure(void **state)
{
    (void)state;
    static const char *const whats[] = { "EIO", "ENOSPC", "short" };
    for (int w = 0; w < 3; w++) {
        bool fired = true;
        for (int n = 1; fired && n < 400; n += w ? 13 : 5) {
            char spec[32];
            clean();
            save(1);
            fill(2);
            checkpoint c = saver();
            checkpoint_state s = state_of(2), back;
            snprintf(spec, sizeof spec, "any:%d:%s", n, whats[w]);
            assert_true(fault_arm(spec));
            pesc_status st = checkpoint_save(&c, &s);
            fired = fault_fired();
            fault_arm(NULL);
            fill(0);
            char *dir = newest();
            assert_non_null(dir);
            must(checkpoint_load(&c, dir, &back));
            assert_true(holds(back.step));
            assert_true(back.step == 2 || st != PESC_OK);
            mem_free(dir);
            mem_free(c.whole);
            save(3);
            dir = newest();
            assert_non_null(strstr(dir, "checkpoint-3"));
            mem_free(dir);
        }
    }
}

/* The only checkpoint is saved again: at no moment is there none. */
static void saves_a_step_again(void **state)
{
    (void)state;
    bool fired = true;
    for (int n = 1; fired && n < 400; n += 7) {
        char spec[32];
        clean();
        save(1);
        fill(1);
        checkpoint c = saver();
        checkpoint_state s = state_of(1), back;
        s.tokens = 7;
        snprintf(spec, sizeof spec, "any:%d:EIO", n);
        assert_true(fault_arm(spec));
        pesc_status st = checkpoint_save(&c, &s);
        fired = fault_fired();
        fault_arm(NULL);
        char *dir = newest();
        assert_non_null(dir);
        must(checkpoint_load(&c, dir, &back));
        assert_true(back.tokens == 7 || (st != PESC_OK && back.tokens == 100));
        mem_free(dir);
        mem_free(c.whole);
    }
    must(rundir_sweep(run));
    assert_true(files_there("run/checkpoint-1/manifest.json"));
}

static int open_all(void **state)
{
    (void)state;
    train_spec spec = { .adapters = true,
                        .routers = true,
                        .lora_r = 2,
                        .lora_alpha = 4,
                        .lora_targets = TARGET_Q | TARGET_DOWN };
    on = training_open("cpu:1", "train/pesc-a/model", &spec);
    ps = on.ps;
    must(optimizer_open(&opt, ps, &(optimizer_options){ .beta1 = 0.9, .beta2 = 0.999 }));
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    optimizer_close(opt);
    training_close(&on);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_what_it_saved),
        cmocka_unit_test(keeps_the_newest_and_the_best),
        cmocka_unit_test(never_retires_a_whole_one_for_a_damaged_one),
        cmocka_unit_test(sweeps_what_a_killed_run_left),
        cmocka_unit_test(survives_any_failure),
        cmocka_unit_test(saves_a_step_again),
    };
    return cmocka_run_group_tests_name("checkpoint", tests, open_all, close_all);
}
