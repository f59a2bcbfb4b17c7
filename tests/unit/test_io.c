#include "base/fault.h"
#include "base/io.h"
#include "base/mem.h"
#include "support/check.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/pesc-io-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void writes_and_reads_back(void **state)
{
    (void)state;
    static char big[100000];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7);
    must(io_write_file(in_dir("a"), big, sizeof big));
    char *back;
    size_t n;
    must(io_read_file(in_dir("a"), sizeof big, &back, &n));
    assert_int_equal(n, sizeof big);
    assert_memory_equal(back, big, n);
    assert_int_equal(back[n], 0);
    mem_free(back);
    must_fail(io_read_file(in_dir("a"), 10, &back, &n), PESC_FORMAT, "at most 10");
    io_map *m;
    must(io_map_open(&m, in_dir("a")));
    assert_memory_equal(m->data, big, sizeof big);
    io_map_close(m);
    char **names;
    must(io_list(dir, &names, &n));
    assert_int_equal(n, 1);
    assert_string_equal(names[0], "a");
    io_list_free(names, n);
    unlink(in_dir("a"));
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    char *text;
    size_t n;
    io_map *m;
    must_fail(io_read_file(dir, 10, &text, &n), PESC_IO, "is not a regular file");
    must_fail(io_map_open(&m, dir), PESC_IO, "is not a regular file");
    must_fail(io_map_open(&m, "/dev/zero"), PESC_IO, "is not a regular file");
    must_fail(io_map_open(&m, in_dir("none")), PESC_IO, "No such file");
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    must_fail(io_map_open(&m, in_dir("pipe")), PESC_IO, "is not a regular file");
    must_fail(io_read_file(in_dir("pipe"), 10, &text, &n), PESC_IO, "is not a regular file");
    unlink(in_dir("pipe"));
    assert_int_equal(symlink("loop", in_dir("loop")), 0);
    must_fail(io_map_open(&m, in_dir("loop")), PESC_IO, "symbolic link");
    unlink(in_dir("loop"));
}

/* The old file stays whole whatever call fails; nothing temporary is left behind. */
static void publishes_all_or_nothing(void **state)
{
    (void)state;
    static const char *const faults[] = { "open:1:ENOSPC", "write:1:ENOSPC", "write:2:EIO",
                                          "fsync:1:EIO",   "close:1:EIO",    "rename:1:EDQUOT" };
    must(io_write_file(in_dir("f"), "old", 3));
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        io_writer *w = NULL;
        assert_true(fault_arm(faults[i]));
        pesc_status s = io_writer_open(&w, in_dir("f"));
        if (s == PESC_OK)
            s = io_write(w, "new ", 4);
        if (s == PESC_OK)
            s = io_write(w, "text", 4);
        if (s == PESC_OK)
            s = io_publish(w);
        else
            io_writer_abort(w);
        assert_true(fault_fired());
        assert_int_equal(s, PESC_DISK);
        assert_true(strstr(pesc_last_error(), "/f: cannot"));
        fault_arm(NULL);
        char *back;
        size_t n;
        must(io_read_file(in_dir("f"), 100, &back, &n));
        assert_string_equal(back, "old");
        mem_free(back);
        char **names;
        must(io_list(dir, &names, &n));
        assert_int_equal(n, 1);
        io_list_free(names, n);
    }
    unlink(in_dir("f"));
}

/* Another process removes what dead ones left: a file that is complete and is about to get its name
 * is none of these. */
static void no_sweep_takes_what_is_being_published(void **state)
{
    (void)state;
    pid_t writer = fork();
    if (writer == 0) {
        pesc_status s = PESC_OK;
        for (int i = 0; s == PESC_OK && i < 200; i++)
            s = io_write_file(in_dir("swept"), "x", 1);
        _exit(s != PESC_OK);
    }
    int how;
    while (waitpid(writer, &how, WNOHANG) == 0)
        io_sweep(dir);
    assert_int_equal(how, 0);
    unlink(in_dir("swept"));
}

/* A rename would replace the device or pipe itself, and a link instead of what it leads to. */
static void replaces_only_regular_files(void **state)
{
    (void)state;
    struct stat st;
    char *back;
    size_t n;
    assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
    must_fail(io_write_file(in_dir("pipe"), "x", 1), PESC_USAGE, "is not a regular file");
    assert_int_equal(lstat(in_dir("pipe"), &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    assert_int_equal(symlink("pipe", in_dir("link")), 0);
    must_fail(io_write_file(in_dir("link"), "x", 1), PESC_USAGE, "is not a regular file");
    must_fail(io_write_file("/dev/null", "x", 1), PESC_USAGE, "/dev/null: is not a regular file");
    unlink(in_dir("link"));
    must(io_write_file(in_dir("file"), "old", 3));
    assert_int_equal(symlink("file", in_dir("link")), 0);
    must(io_write_file(in_dir("link"), "new", 3));
    assert_int_equal(lstat(in_dir("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    must(io_read_file(in_dir("file"), 100, &back, &n));
    assert_string_equal(back, "new");
    mem_free(back);
    unlink(in_dir("pipe"));
    unlink(in_dir("link"));
    unlink(in_dir("file"));
}

static void goes_on_after_short_transfers(void **state)
{
    (void)state;
    char *back;
    size_t n;
    assert_true(fault_arm("write:1:short"));
    must(io_write_file(in_dir("s"), "0123456789", 10));
    assert_true(fault_fired());
    assert_true(fault_arm("read:1:short"));
    must(io_read_file(in_dir("s"), 100, &back, &n));
    assert_true(fault_fired());
    fault_arm(NULL);
    assert_string_equal(back, "0123456789");
    mem_free(back);
    unlink(in_dir("s"));
    assert_false(fault_arm("write:0:EIO"));
    assert_false(fault_arm("write:1"));
    assert_false(fault_arm("dance:1:EIO"));
}

static void survives_a_shrinking_file(void **state)
{
    (void)state;
    static char big[3 * 4096];
    memset(big, 'x', sizeof big);
    must(io_write_file(in_dir("m"), big, sizeof big));
    io_map *m;
    must(io_map_open(&m, in_dir("m")));
    must(io_map_check(m));
    assert_int_equal(truncate(in_dir("m"), sizeof big - 100), 0); /* gives no signal */
    assert_int_equal(m->data[sizeof big - 1], 0);
    must_fail(io_map_check(m), PESC_IO, "became shorter");
    assert_int_equal(truncate(in_dir("m"), 100), 0);
    assert_int_equal(m->data[2 * 4096 + 5], 0);
    must_fail(io_map_check(m), PESC_IO, "became shorter");
    io_map_close(m);
    unlink(in_dir("m"));
}

static void makes_directories(void **state)
{
    (void)state;
    must(io_make_dir(in_dir("x/y/z")));
    must(io_make_dir(in_dir("x/y/z")));
    assert_int_equal(io_kind_of(in_dir("x/y/z")), IO_DIR);
    must(io_write_file(in_dir("x/file"), "", 0));
    must_fail(io_make_dir(in_dir("x/file/sub")), PESC_DISK, "x/file");
    unlink(in_dir("x/file"));
    rmdir(in_dir("x/y/z"));
    rmdir(in_dir("x/y"));
    rmdir(in_dir("x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads_back),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(publishes_all_or_nothing),
        cmocka_unit_test(replaces_only_regular_files),
        cmocka_unit_test(no_sweep_takes_what_is_being_published),
        cmocka_unit_test(goes_on_after_short_transfers),
        cmocka_unit_test(survives_a_shrinking_file),
        cmocka_unit_test(makes_directories),
    };
    if (!mkdtemp(dir))
        return 1;
    int failed = cmocka_run_group_tests_name("io", tests, NULL, NULL);
    rmdir(dir);
    return failed;
}
