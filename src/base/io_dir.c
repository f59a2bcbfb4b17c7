/* Directories that change as a whole, locks, and files that only grow (see io.h). */
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
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

pesc_status io_free_bytes(const char *dir, uint64_t *bytes)
{
    struct statvfs v;
    if (statvfs(dir, &v) != 0)
        return fail_errno(PESC_DISK, errno, "%s: its free space cannot be read", dir);
    bool full = fault_check(FAULT_RESERVE, NULL) != 0; /* as a test would have it */
    *bytes = full ? 0 : (uint64_t)v.f_bavail * v.f_frsize;
    return PESC_OK;
}

pesc_status io_sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 ? errno : io_flush(fd);
    if (fd >= 0)
        close(fd);
    return err ? fail_errno(PESC_DISK, err, "%s: cannot be flushed to disk", dir) : PESC_OK;
}

pesc_status io_rename(const char *from, const char *to)
{
    int err = fault_check(FAULT_RENAME, NULL);
    if (!err && rename(from, to) != 0)
        err = errno;
    return err ? fail_errno(PESC_DISK, err, "%s: cannot be renamed to %s", from, to) : PESC_OK;
}

/* Three renames, of which any two adjacent states hold both directories whole. */
static pesc_status swap_by_renames(const char *from, const char *to, const char *aside)
{
    TRY(io_remove(aside)); /* left by a process that died here: `to` is there again since */
    TRY(io_rename(to, aside));
    pesc_status s = io_rename(from, to);
    if (s != PESC_OK) {
        (void)rename(aside, to); /* as it was */
        return s;
    }
    return io_rename(aside, from);
}

pesc_status io_swap(const char *from, const char *to)
{
    int err = fault_check(FAULT_EXCHANGE, NULL);
    if (!err)
        err = fault_check(FAULT_RENAME, NULL);
    if (!err && renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE) != 0)
        err = errno;
    if (err != EINVAL && err != ENOSYS && err != ENOTSUP)
        return err ? fail_errno(PESC_DISK, err, "%s: cannot take the place of %s", from, to)
                   : PESC_OK;
    str aside = { 0 };
    str_printf(&aside, "%s%s", to, IO_SWAPPED);
    pesc_status s = str_ok(&aside) ? swap_by_renames(from, to, aside.p) : fail_nomem(to, aside.n);
    str_free(&aside);
    return s;
}

pesc_status io_link_file(const char *from, const char *to)
{
    int err = fault_check(FAULT_LINK, NULL);
    if (!err && linkat(AT_FDCWD, from, AT_FDCWD, to, 0) != 0)
        err = errno;
    return err ? fail_errno(PESC_DISK, err, "%s: cannot be linked to %s", from, to) : PESC_OK;
}

/* ---- removing ---- */

static pesc_status remove_one(const char *path, bool dir)
{
    int err = fault_check(FAULT_UNLINK, NULL);
    if (!err && (dir ? rmdir(path) : unlink(path)) != 0)
        err = errno;
    return err && err != ENOENT ? fail_errno(PESC_DISK, err, "%s: cannot be removed", path)
                                : PESC_OK;
}

static bool is_dir(const char *path) /* itself, not what it links to */
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

enum { MAX_DEPTH = 32 };

/* One frame a directory that is open; its entries are taken from the end. */
typedef struct frame {
    char *path, **names;
    size_t n_all, n;
} frame;

static pesc_status push(frame *stack, int *depth, char *path)
{
    frame f = { .path = path };
    if (*depth == MAX_DEPTH) {
        pesc_status s =
            fail(PESC_DISK, "%s: is more than %d folders deep: it is not removed", path, MAX_DEPTH);
        mem_free(path);
        return s;
    }
    stack[(*depth)++] = f; /* the stack owns the path, also when listing fails */
    frame *top = &stack[*depth - 1];
    TRY(io_list(path, &top->names, &top->n_all));
    top->n = top->n_all;
    return PESC_OK;
}

static void pop(frame *stack, int *depth)
{
    frame *f = &stack[--*depth];
    io_list_free(f->names, f->n_all);
    mem_free(f->path);
}

static pesc_status remove_next(frame *stack, int *depth)
{
    frame *f = &stack[*depth - 1];
    if (f->n == 0) {
        TRY(remove_one(f->path, true));
        pop(stack, depth);
        return PESC_OK;
    }
    char *child = io_join(f->path, f->names[--f->n]);
    if (!child)
        return fail_nomem(f->path, 256);
    if (is_dir(child))
        return push(stack, depth, child);
    pesc_status s = remove_one(child, false);
    mem_free(child);
    return s;
}

pesc_status io_remove(const char *path)
{
    if (!is_dir(path))
        return remove_one(path, false);
    frame stack[MAX_DEPTH];
    int depth = 0;
    char *root = mem_strdup(path);
    pesc_status s = root ? push(stack, &depth, root) : fail_nomem(path, strlen(path));
    while (s == PESC_OK && depth > 0)
        s = remove_next(stack, &depth);
    while (depth > 0)
        pop(stack, &depth);
    return s;
}

/* ---- links and names ---- */

pesc_status io_link(const char *target, const char *path)
{
    str temp = { 0 };
    char *dir = io_parent(path);
    str_printf(&temp, "%s.tmp.%ld", path, (long)getpid());
    pesc_status s = dir && str_ok(&temp) ? PESC_OK : fail_nomem(path, strlen(path));
    if (s == PESC_OK) {
        int err = fault_check(FAULT_LINK, NULL);
        unlink(temp.p);
        if (!err && symlink(target, temp.p) != 0)
            err = errno;
        if (err)
            s = fail_errno(PESC_DISK, err, "%s: cannot be made a link", path);
    }
    if (s == PESC_OK)
        s = io_rename(temp.p, path);
    if (s == PESC_OK)
        s = io_sync_dir(dir);
    mem_free(dir);
    str_free(&temp);
    return s;
}

pesc_status io_absolute(char **out, const char *path)
{
    char full[PATH_MAX];
    if (!realpath(path, full))
        return fail_errno(PESC_IO, errno, "%s: cannot be reached", path);
    *out = mem_strdup(full);
    return *out ? PESC_OK : fail_nomem(path, strlen(full));
}

/* ---- locks ---- */

struct io_lock {
    int fd;
};

/* Opens a file of our own for writing: never through a link, never a device or a pipe. */
static pesc_status open_own(const char *path, int flags, int *fd)
{
    struct stat st;
    int err = fault_check(FAULT_OPEN, NULL);
    *fd = err ? -1
              : open(path, flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0666);
    if (*fd < 0 && !err)
        err = errno;
    if (!err && fstat(*fd, &st) != 0)
        err = errno;
    if (err == ELOOP || err == ENXIO || (!err && !S_ISREG(st.st_mode))) {
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return fail(PESC_DISK, "%s: is not a regular file; remove it", path);
    }
    if (!err)
        return PESC_OK;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return fail_errno(PESC_DISK, err, "%s: cannot be written", path);
}

pesc_status io_lock_take(io_lock **out, const char *path)
{
    *out = NULL;
    int fd, err;
    TRY(open_own(path, O_RDWR, &fd));
    char holder[24] = "";
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        ssize_t n = pread(fd, holder, sizeof holder - 1, 0);
        holder[n > 0 ? n : 0] = '\0';
        close(fd);
        return fail(PESC_USAGE,
                    "%s: process %.20s is at work in this directory; wait for it, or stop it", path,
                    holder[0] ? holder : "(unknown)");
    }
    int n = snprintf(holder, sizeof holder, "%ld", (long)getpid());
    io_lock *l = mem_alloc(1, sizeof *l);
    if (!l || ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)n, 0) != n) {
        err = errno;
        mem_free(l);
        close(fd);
        return fail_errno(PESC_DISK, err, "%s: cannot be written", path);
    }
    l->fd = fd;
    *out = l;
    return PESC_OK;
}

void io_lock_release(io_lock *l)
{
    if (!l)
        return;
    close(l->fd);
    mem_free(l);
}

/* ---- logs ---- */

struct io_log {
    int fd;
    char *path;
    uint64_t size;
};

static pesc_status cut_back(io_log *l)
{
    struct stat st;
    int err = fstat(l->fd, &st) != 0 ? errno : 0;
    if (!err && (uint64_t)st.st_size < l->size)
        return fail(PESC_FORMAT, "%s: is %llu bytes, but %llu were there when the run was saved",
                    l->path, (unsigned long long)st.st_size, (unsigned long long)l->size);
    if (!err && (uint64_t)st.st_size > l->size) {
        err = fault_check(FAULT_TRUNCATE, NULL);
        if (!err && ftruncate(l->fd, (off_t)l->size) != 0)
            err = errno;
    }
    return err ? fail_errno(PESC_DISK, err, "%s: cannot be written", l->path) : PESC_OK;
}

pesc_status io_log_open(io_log **out, const char *path, uint64_t keep)
{
    *out = NULL;
    io_log *l = mem_zalloc(1, sizeof *l);
    if (!l || !(l->path = mem_strdup(path))) {
        mem_free(l);
        return fail_nomem(path, sizeof *l);
    }
    l->size = keep;
    pesc_status s = open_own(path, O_WRONLY, &l->fd);
    if (s == PESC_OK)
        s = cut_back(l);
    if (s != PESC_OK) {
        io_log_close(l);
        return s;
    }
    *out = l;
    return PESC_OK;
}

pesc_status io_log_append(io_log *l, const void *bytes, size_t n)
{
    int err = io_put(l->fd, bytes, n, l->size);
    if (err) /* a part that was written is overwritten by the next */
        return fail_errno(PESC_DISK, err, "%s: cannot write %zu bytes", l->path, n);
    l->size += n;
    return PESC_OK;
}

pesc_status io_log_sync(io_log *l)
{
    int err = io_flush(l->fd);
    return err ? fail_errno(PESC_DISK, err, "%s: cannot be flushed to disk", l->path) : PESC_OK;
}

uint64_t io_log_size(const io_log *l)
{
    return l->size;
}

void io_log_close(io_log *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    mem_free(l->path);
    mem_free(l);
}
