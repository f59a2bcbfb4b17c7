/* durable: what a crash of the machine cannot take back once a call has returned.
 *
 * This program has fsync(), rename() and renameat2() of its own, which the library calls instead of
 * the C library's: they do the same and record it. Two rules are then checked on the record. The
 * content of a file, and the names in a directory, are synced before the file or directory is
 * renamed; and after each rename the directory it happened in is synced. */
#include "base/io.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"
#include "support/golden.h"
#include "train/checkpoint.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_EVENTS = 512 };

typedef struct event {
    bool is_rename;
    ino_t node;   /* what was synced or renamed */
    ino_t folder; /* rename: the directory of the new name */
    off_t size;   /* sync: of the file at that moment */
} event;

static event events[MAX_EVENTS];
static int n_events;

static struct stat of_path(const char *path)
{
    struct stat st = { 0 };
    assert_int_equal(lstat(path, &st), 0);
    return st;
}

static ino_t folder_of(const char *path)
{
    char dir[4096];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    assert_non_null(slash);
    *slash = '\0';
    return of_path(dir).st_ino;
}

static void add(event e)
{
    assert_true(n_events < MAX_EVENTS);
    events[n_events++] = e;
}

int fsync(int fd)
{
    struct stat st = { 0 };
    assert_int_equal(fstat(fd, &st), 0);
    add((event){ .node = st.st_ino, .size = st.st_size });
    return (int)syscall(SYS_fsync, fd);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    event e = { .is_rename = true, .node = of_path(from).st_ino, .folder = folder_of(to) };
    int rc = (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    if (rc == 0)
        add(e);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

/* The index of the last sync of a node in events[from..to), or -1. */
static int last_sync(ino_t node, int from, int to)
{
    for (int i = to - 1; i >= from; i--)
        if (!events[i].is_rename && events[i].node == node)
            return i;
    return -1;
}

/* Both rules for all renames since the record began. */
static void must_be_durable(void)
{
    assert_true(n_events > 0);
    for (int i = 0; i < n_events; i++) {
        if (!events[i].is_rename)
            continue;
        if (last_sync(events[i].folder, i, n_events) < 0)
            fail_msg("event %d: the directory of a renamed file is not synced", i);
        for (int j = 0; j < i; j++) /* names in a directory that is renamed itself */
            if (events[j].is_rename && events[j].folder == events[i].node &&
                last_sync(events[i].node, j, i) < 0)
                fail_msg("event %d: a directory is renamed before its names are synced", i);
    }
}

/* The file was synced as it is now, before it or its directory was renamed. */
static void must_be_synced(const char *path)
{
    struct stat st = of_path(path);
    ino_t folder = folder_of(path);
    int last = last_sync(st.st_ino, 0, n_events);
    if (last < 0)
        fail_msg("%s: was never synced", path);
    assert_int_equal(events[last].size, st.st_size);
    for (int i = 0; i < last; i++)
        if (events[i].is_rename && (events[i].node == st.st_ino || events[i].node == folder))
            fail_msg("%s: was renamed before it was synced", path);
}

static void a_published_file_is_durable(void **state)
{
    (void)state;
    const char *path = files_path("a.json");
    n_events = 0;
    must(io_write_file(path, "{}\n", 3));
    must_be_durable();
    must_be_synced(path);
    n_events = 0;
    must(io_link("a.json", files_path("link")));
    must_be_durable();
}

static void a_synced_log_is_durable(void **state)
{
    (void)state;
    io_log *l;
    const char *path = files_path("log");
    must(io_log_open(&l, path, 0));
    n_events = 0;
    must(io_log_append(l, "one\n", 4));
    must(io_log_sync(l));
    must_be_synced(path);
    io_log_close(l);
}

static void a_synced_directory_is_durable(void **state)
{
    (void)state;
    const char *dir = files_path("");
    files_text("b", "b");
    n_events = 0;
    must(io_rename(files_path("b"), files_path("c")));
    must(io_sync_dir(dir));
    must_be_durable();
}

/* A checkpoint of a model: saved, and saved once more in the same place. */
static void a_checkpoint_is_durable(void **state)
{
    (void)state;
    pesc_device *dev;
    pesc_model *model;
    params *ps;
    optimizer *opt;
    train_spec spec = {
        .adapters = true, .routers = true, .lora_r = 2, .lora_alpha = 4, .lora_targets = TARGET_Q
    };
    must(pesc_device_open(&dev, "cpu:1"));
    must(pesc_model_open(&model, dev, golden_path("train/pesc-a/model"), NULL));
    must(params_open(&ps, model, &spec));
    must(optimizer_open(&opt, ps, &(optimizer_options){ .beta1 = 0.9, .beta2 = 0.999 }));
    char run[512], saved[600];
    snprintf(run, sizeof run, "%s", files_path("run"));
    snprintf(saved, sizeof saved, "%s/checkpoint-4", run);
    must(io_make_dir(run));
    checkpoint c = { .run = run,
                     .p = ps,
                     .opt = opt,
                     .yaml = "steps: 9\n",
                     .steps = 9,
                     .about = { .base = (char *)(uintptr_t) "/a" } };
    for (int i = 0; i < 2; i++) {
        n_events = 0;
        must(checkpoint_save(&c, &(checkpoint_state){ .step = 4 }));
        must_be_durable();
        char **names;
        size_t n;
        must(io_list(saved, &names, &n));
        assert_true(n > 4);
        for (size_t k = 0; k < n; k++) {
            char *path = io_join(saved, names[k]);
            must_be_synced(path);
            mem_free(path);
        }
        io_list_free(names, n);
    }
    mem_free(c.whole);
    optimizer_close(opt);
    params_close(ps);
    pesc_model_close(model);
    pesc_device_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_published_file_is_durable),
        cmocka_unit_test(a_synced_log_is_durable),
        cmocka_unit_test(a_synced_directory_is_durable),
        cmocka_unit_test(a_checkpoint_is_durable),
    };
    return cmocka_run_group_tests_name("durable", tests, NULL, NULL);
}
