/* Files that appear complete or not at all (see io.h). */
#include "base/io.h"

#include "base/fault.h"
#include "base/io_own.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct io_writer {
    int fd;
    char *path, *temp; /* temp NULL: the file has its name already */
    uint64_t at;
};

static void writer_free(io_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    mem_free(w->path);
    mem_free(w->temp);
    mem_free(w);
}

void io_writer_abort(io_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0 && w->temp)
        unlink(w->temp);
    writer_free(w);
}

int io_put(int fd, const void *bytes, size_t n, uint64_t offset)
{
    const char *p = bytes;
    while (n > 0) {
        size_t limit = n;
        int err = fault_check(FAULT_WRITE, &limit);
        ssize_t put = err ? -1 : pwrite(fd, p, limit, (off_t)offset);
        if (put < 0 && !err && errno == EINTR)
            continue;
        if (put <= 0)
            return err ? err : put < 0 ? errno : EIO;
        p += put;
        n -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

int io_flush(int fd)
{
    int err = fault_check(FAULT_FSYNC, NULL);
    return err ? err : fsync(fd) != 0 ? errno : 0;
}

char *io_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_strndup(path, slash == path ? 1 : (size_t)(slash - path)) : mem_strdup(".");
}

/* What the rename at the end replaces: a link to a regular file stands for that file. `real` has
 * PATH_MAX bytes. */
static pesc_status find_target(const char **path, char *real)
{
    struct stat own, st;
    if (lstat(*path, &own) != 0 || stat(*path, &st) != 0)
        return PESC_OK; /* nothing is there, or opening says why not */
    if (!S_ISREG(st.st_mode))
        return fail(PESC_USAGE, "%s: is not a regular file, and is not replaced by one", *path);
    if (S_ISLNK(own.st_mode) && realpath(*path, real))
        *path = real;
    return PESC_OK;
}

pesc_status io_writer_open(io_writer **out, const char *path)
{
    char real[PATH_MAX];
    *out = NULL;
    TRY(find_target(&path, real));
    io_writer *w = mem_zalloc(1, sizeof *w);
    if (!w)
        return fail_nomem(path, sizeof *w);
    w->fd = -1;
    char *dir = io_parent(path);
    w->path = mem_strdup(path);
    if (!w->path || !dir) {
        mem_free(dir);
        writer_free(w);
        return fail_nomem(path, strlen(path));
    }
    io_sweep(dir);
    mem_free(dir);
    int err = io_temp_file(path, &w->temp, &w->fd);
    if (err) {
        pesc_status s = fail_errno(PESC_DISK, err, "%s: cannot be written", path);
        writer_free(w);
        return s;
    }
    *out = w;
    return PESC_OK;
}

pesc_status io_writer_open_shared(io_writer **out, const char *path, bool create)
{
    io_writer *w = *out = mem_zalloc(1, sizeof *w);
    if (!w || !(w->path = mem_strdup(path))) {
        mem_free(w);
        *out = NULL;
        return fail_nomem(path, strlen(path));
    }
    int err = fault_check(FAULT_OPEN, NULL);
    int how = O_WRONLY | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0);
    w->fd = err ? -1 : open(path, how, 0666);
    if (w->fd >= 0)
        return PESC_OK;
    pesc_status s = fail_errno(PESC_DISK, err ? err : errno, "%s: cannot be written", path);
    writer_free(w);
    *out = NULL;
    return s;
}

pesc_status io_write_at(io_writer *w, uint64_t offset, const void *bytes, size_t n)
{
    int err = io_put(w->fd, bytes, n, offset);
    return err ? fail_errno(PESC_DISK, err, "%s: cannot write %zu bytes at %llu", w->path, n,
                            (unsigned long long)offset)
               : PESC_OK;
}

pesc_status io_write(io_writer *w, const void *bytes, size_t n)
{
    TRY(io_write_at(w, w->at, bytes, n));
    w->at += n;
    return PESC_OK;
}

pesc_status io_reserve(io_writer *w, uint64_t bytes)
{
    int err = fault_check(FAULT_RESERVE, NULL);
    if (!err && bytes > 0)
        err = posix_fallocate(w->fd, 0, (off_t)bytes);
    if (!err || err == EOPNOTSUPP || err == EINVAL || err == ENOSYS)
        return PESC_OK; /* a file system that cannot promise finds out while writing */
    return fail_errno(PESC_DISK, err, "%s: cannot take %llu bytes of disk", w->path,
                      (unsigned long long)bytes);
}

static int sync_parent(const char *path)
{
    char *dir = io_parent(path);
    if (!dir)
        return ENOMEM;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 ? errno : io_flush(fd);
    if (fd >= 0)
        close(fd);
    mem_free(dir);
    return err;
}

pesc_status io_publish(io_writer *w)
{
    const char *doing = "flushed to disk";
    int err = io_flush(w->fd);
    /* until it has its name, against io_sweep */
    int locked = w->temp ? fcntl(w->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (!err) {
        doing = "closed";
        err = fault_check(FAULT_CLOSE, NULL);
        if (close(w->fd) != 0 && !err)
            err = errno;
        w->fd = -1;
    }
    if (!err && w->temp) {
        doing = "renamed into place";
        err = fault_check(FAULT_RENAME, NULL);
        if (!err && rename(w->temp, w->path) != 0)
            err = errno;
    }
    if (err && w->temp)
        unlink(w->temp);
    if (locked >= 0)
        close(locked);
    if (!err && w->temp) {
        doing = "made durable";
        err = sync_parent(w->path);
    }
    pesc_status s = err ? fail_errno(PESC_DISK, err, "%s: cannot be %s", w->path, doing) : PESC_OK;
    writer_free(w);
    return s;
}

pesc_status io_write_file(const char *path, const void *bytes, size_t n)
{
    io_writer *w;
    TRY(io_writer_open(&w, path));
    pesc_status s = io_write(w, bytes, n);
    if (s != PESC_OK) {
        io_writer_abort(w);
        return s;
    }
    return io_publish(w);
}
