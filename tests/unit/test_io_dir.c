#include "base/io.h"

#include "base/fault.h"
#include "base/mem.h"
#include "support/check.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
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
        cmocka_unit_test(logs_grow_and_are_cut_back),
        cmocka_unit_test(reserves_space),
        cmocka_unit_test(counts_all_operations_together),
    };
    return cmocka_run_group_tests_name("io_dir", tests, NULL, NULL);
}
