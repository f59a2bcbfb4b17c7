#include "base/io.h"

#include "base/fault.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void removes_trees_but_not_what_they_link_to(void **state)
{
    (void)state;
    files_clear();
    files_text("tree/a/b/c.txt", "x");
    files_text("tree/d.txt", "x");
    files_text("outside/keep.txt", "x");
    assert_int_equal(symlink(files_path("outside"), files_path("tree/link")), 0);
    must(io_remove(files_path("tree")));
    assert_false(files_there("tree"));
    assert_true(files_there("outside/keep.txt"));
    must(io_remove(files_path("tree"))); /* gone already */
    files_text("tree/d.txt", "x");
    assert_true(fault_arm("unlink:1:EIO"));
    must_fail(io_remove(files_path("tree")), PESC_DISK, "cannot be removed");
    fault_arm(NULL);
    assert_true(files_there("tree/d.txt"));
}

static void links_are_replaced_in_one_step(void **state)
{
    (void)state;
    files_clear();
    char target[64] = "";
    must(io_make_dir(files_path("")));
    must(io_link("one", files_path("latest")));
    must(io_link("two", files_path("latest")));
    assert_int_equal(readlink(files_path("latest"), target, sizeof target), 3);
    assert_memory_equal(target, "two", 3);
    for (int i = 0; i < 2; i++) { /* a failure leaves the old one */
        assert_true(fault_arm(i ? "link:1:EIO" : "rename:1:EIO"));
        must_fail(io_link("three", files_path("latest")), PESC_DISK, "latest");
        fault_arm(NULL);
        assert_int_equal(readlink(files_path("latest"), target, sizeof target), 3);
        assert_memory_equal(target, "two", 3);
    }
}

static void one_holder_of_a_lock(void **state)
{
    (void)state;
    files_clear();
    io_lock *a, *b;
    must(io_make_dir(files_path("")));
    must(io_lock_take(&a, files_path("lock")));
    must_fail(io_lock_take(&b, files_path("lock")), PESC_USAGE, "is at work in this directory");
    io_lock_release(a);
    must(io_lock_take(&a, files_path("lock")));
    io_lock_release(a);
    pid_t child = fork();
    if (child == 0) { /* dies with the lock in its hands */
        if (io_lock_take(&b, files_path("lock")) == PESC_OK)
            _exit(0);
        _exit(1);
    }
    int how;
    waitpid(child, &how, 0);
    assert_int_equal(how, 0);
    must(io_lock_take(&a, files_path("lock")));
    io_lock_release(a);
}

/* What a lock or a log would be written through is left alone. */
static void locks_and_logs_do_not_follow_links(void **state)
{
    (void)state;
    io_lock *lock;
    io_log *log;
    size_t n;
    files_clear();
    files_text("precious", "untouched");
    assert_int_equal(symlink("precious", files_path("link")), 0);
    assert_int_equal(mkfifo(files_path("fifo"), 0600), 0);
    const char *const names[] = { "link", "fifo" };
    for (int i = 0; i < 2; i++) {
        must_fail(io_lock_take(&lock, files_path(names[i])), PESC_DISK, "is not a regular file");
        must_fail(io_log_open(&log, files_path(names[i]), 0), PESC_DISK, "is not a regular file");
    }
    char *got = files_get(files_path("precious"), &n);
    assert_string_equal(got, "untouched");
    free(got);
}

static void make_pair(void)
{
    files_clear();
    files_text("old/a", "old");
    files_text("new/a", "new");
}

static bool is_new_at(const char *name)
{
    size_t n;
    char *got = files_get(files_path(name), &n);
    bool fresh = strcmp(got, "new") == 0;
    free(got);
    return fresh;
}

/* With and without a file system that exchanges names. */
static void directories_change_places(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        make_pair();
        files_text("old" IO_SWAPPED "/a", "left by one that died");
        assert_true(fault_arm(i ? "exchange:1:EINVAL" : NULL));
        must(io_swap(files_path("new"), files_path("old")));
        fault_arm(NULL);
        assert_true(is_new_at("old/a"));
        assert_false(is_new_at("new/a"));
        assert_int_equal(files_there("old" IO_SWAPPED), i == 0);
    }
    for (int i = 1; i <= 3; i++) { /* a rename that fails leaves both */
        char spec[64];
        make_pair();
        snprintf(spec, sizeof spec, "exchange:1:EINVAL,rename:%d:EIO", i);
        assert_true(fault_arm(spec));
        must_fail(io_swap(files_path("new"), files_path("old")), PESC_DISK, "cannot be renamed");
        fault_arm(NULL);
        assert_true(is_new_at(i == 3 ? "old/a" : "new/a"));
        assert_false(is_new_at(i == 3 ? "old" IO_SWAPPED "/a" : "old/a"));
    }
}

/* A process that dies between two renames leaves both directories whole. */
static void dying_between_renames_loses_nothing(void **state)
{
    (void)state;
    for (int i = 1; i <= 3; i++) {
        make_pair();
        pid_t child = fork();
        if (child == 0) {
            char spec[64];
            snprintf(spec, sizeof spec, "exchange:1:EINVAL,rename:%d:kill", i);
            fault_arm(spec);
            (void)io_swap(files_path("new"), files_path("old"));
            _exit(0);
        }
        int how;
        waitpid(child, &how, 0);
        assert_true(WIFSIGNALED(how));
        assert_true(is_new_at(i == 3 ? "old/a" : "new/a"));
        assert_false(is_new_at(i == 1 ? "old/a" : "old" IO_SWAPPED "/a"));
    }
}

static void logs_grow_and_are_cut_back(void **state)
{
    (void)state;
    files_clear();
    io_log *l;
    size_t n;
    must(io_make_dir(files_path("")));
    must(io_log_open(&l, files_path("log"), 0));
    assert_true(fault_arm("write:1:short"));
    must(io_log_append(l, "one\n", 4));
    assert_true(fault_fired());
    assert_true(fault_arm("write:1:ENOSPC"));
    must_fail(io_log_append(l, "two\n", 4), PESC_DISK, "No space left");
    fault_arm(NULL);
    must(io_log_append(l, "three\n", 6));
    assert_int_equal(io_log_size(l), 10);
    must(io_log_sync(l));
    io_log_close(l);
    must(io_log_open(&l, files_path("log"), 4));
    must(io_log_append(l, "2\n", 2));
    io_log_close(l);
    char *got = files_get(files_path("log"), &n);
    assert_string_equal(got, "one\n2\n");
    free(got);
    must_fail(io_log_open(&l, files_path("log"), 100), PESC_FORMAT, "is 6 bytes, but 100");
}

static void reserves_space(void **state)
{
    (void)state;
    files_clear();
    io_writer *w;
    uint64_t bytes = 0;
    must(io_make_dir(files_path("")));
    must(io_writer_open(&w, files_path("file")));
    must(io_reserve(w, 100));
    char block[100] = { 7 };
    must(io_write(w, block, sizeof block));
    must(io_publish(w));
    must(io_size(files_path("file"), &bytes));
    assert_int_equal(bytes, 100);
    must(io_writer_open(&w, files_path("other")));
    assert_true(fault_arm("reserve:1:ENOSPC"));
    must_fail(io_reserve(w, 100), PESC_DISK, "cannot take 100 bytes of disk: No space left");
    fault_arm(NULL);
    io_writer_abort(w);
    must(io_free_bytes(files_path(""), &bytes));
    assert_true(bytes > 0);
}

static void counts_all_operations_together(void **state)
{
    (void)state;
    files_clear();
    must(io_make_dir(files_path("")));
    int n = 0;
    pesc_status s;
    do { /* each operation of the call fails once */
        char spec[32];
        snprintf(spec, sizeof spec, "any:%d:EIO", ++n);
        assert_true(fault_arm(spec));
        s = io_write_file(files_path("file"), "x", 1);
        if (!fault_fired())
            break;
        assert_int_equal(s, PESC_DISK);
    } while (n < 100);
    fault_arm(NULL);
    assert_int_equal(s, PESC_OK);
    assert_true(n > 5); /* open, write, fsync, close, rename, fsync of the directory */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(removes_trees_but_not_what_they_link_to),
        cmocka_unit_test(links_are_replaced_in_one_step),
        cmocka_unit_test(one_holder_of_a_lock),
        cmocka_unit_test(locks_and_logs_do_not_follow_links),
        cmocka_unit_test(directories_change_places),
        cmocka_unit_test(dying_between_renames_loses_nothing),
        cmocka_unit_test(logs_grow_and_are_cut_back),
        cmocka_unit_test(reserves_space),
        cmocka_unit_test(counts_all_operations_together),
    };
    return cmocka_run_group_tests_name("io_dir", tests, NULL, NULL);
}
