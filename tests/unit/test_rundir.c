#include "run/rundir.h"

#include "base/fault.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What rundir takes for a run and a checkpoint, marked by whose they are. */
static void write_run(const char *dir, const char *whose)
{
    static const char *const names[] = { "run.json",
                                         "run.yaml",
                                         "metrics.jsonl",
                                         "eval.jsonl",
                                         "checkpoint-2/manifest.json",
                                         "checkpoint-2/trainer_state.json" };
    char path[256], text[128];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        snprintf(text, sizeof text, "{\"version\": \"%s\", \"argv\": [], \"config_hash\": \"%s\"}",
                 whose, whose);
        files_text(path, text);
    }
}

/* Whose run it is; '?' when files of two are there, or some are missing. */
static char whose_run(const char *dir)
{
    static const char *const names[] = { "run.json", "run.yaml", "metrics.jsonl", "eval.jsonl",
                                         "checkpoint-2/manifest.json" };
    char path[256], text[128], found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        FILE *f = fopen(files_path(path), "r");
        size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
        text[n] = '\0';
        if (f)
            fclose(f);
        const char *at = strstr(text, "hash\": \"");
        char who = at ? at[8] : '?';
        found = found && found != who ? '?' : who;
    }
    return found;
}

/* Replaces the run of a directory, as a trainer does: in a process that may be killed. `saves`: the
 * new run gets as far as a checkpoint. */
static bool replace(const char *dir, bool overwrite, bool saves, const char *fault)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        char path[512], model[512];
        pesc_train_options o = pesc_train_defaults();
        snprintf(path, sizeof path, "%s", files_path(dir));
        snprintf(model, sizeof model, "%s", files_path("model"));
        o.output = path;
        o.overwrite = overwrite;
        o.resume = !overwrite;
        rundir *d = NULL;
        fault_arm(fault);
        pesc_status s = rundir_claim(&d, &o, model);
        if (s == PESC_OK)
            s = rundir_begin(d);
        if (s == PESC_OK && overwrite && saves) {
            write_run(dir, "new");
            s = rundir_saved(d);
        }
        rundir_close(d, !saves);

        _exit(s != PESC_OK);
    }
    int how = 0;
    waitpid(pid, &how, 0);
    return WIFSIGNALED(how);
}

/* Whatever the operation at which it is killed, the next process finds one run whole: the old one,
 * or the new one where that had a checkpoint. */
static void one_run_survives(bool saves)
{
    bool killed = true, seen[2] = { false, false };
    for (int n = 1; killed && n < 200; n++) {
        char fault[32];
        files_clear();
        files_text("model/config.json", "{}");
        write_run("run", "old");
        snprintf(fault, sizeof fault, "any:%d:kill", n);
        killed = replace("run", true, saves, fault);
        /* it is killed once more while it is put in order */
        snprintf(fault, sizeof fault, "any:%d:kill", 1 + n % 7);
        replace("run", false, false, fault);
        replace("run", false, false, NULL);
        char who = whose_run("run");
        assert_true(who == 'o' || (who == 'n' && saves));
        seen[who == 'n'] = true;
        assert_false(files_there("run/.replaced") || files_there("run/.replacing") ||
                     files_there("run/.restoring") || files_there("run/.removing"));
    }
    assert_false(killed);
    assert_true(seen[0] && seen[1] == saves);
}

static void a_run_that_saves_replaces_the_old_one(void **state)
{
    (void)state;
    one_run_survives(true);
}

static void a_run_that_does_not_leaves_the_old_one(void **state)
{
    (void)state;
    one_run_survives(false);
}

static void leftovers_go_and_other_files_stay(void **state)
{
    (void)state;
    static const char *const gone[] = { "run/records.json.tmp.77",
                                        "run/best.tmp.pesc-1",
                                        "run/run.yaml.tmp.pesc-5",
                                        "run/plots/loss.svg.tmp.1",
                                        "run/checkpoint-4.tmp.9/x",
                                        "run/.trash-checkpoint-1.3/x",
                                        "run/.probe" };
    static const char *const kept[] = { "run/mine.tmp.77", "run/plots/mine.svg.tmp.1",
                                        "run/notes.tmp.pesc-3", "run/eval.jsonl" };
    files_clear();
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        files_text(gone[i], "half");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        files_text(kept[i], "whole");
    must(rundir_sweep(files_path("run")));
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        assert_false(files_there(gone[i]));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_true(files_there(kept[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_saves_replaces_the_old_one),
        cmocka_unit_test(a_run_that_does_not_leaves_the_old_one),
        cmocka_unit_test(leftovers_go_and_other_files_stay),
    };
    (void)fault_check(FAULT_MKDIR, NULL); /* reads the environment once, before it is armed */
    return cmocka_run_group_tests_name("rundir", tests, NULL, NULL);
}
