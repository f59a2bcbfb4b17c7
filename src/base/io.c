#include "base/io.h"

#include "base/fault.h"
#include "base/mem.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *io_join(const char *dir, const char *name)
{
    str s = { 0 };
    str_puts(&s, dir);
    if (s.n && s.p[s.n - 1] != '/')
        str_putc(&s, '/');
    str_puts(&s, name);
    if (str_ok(&s))
        return s.p;
    str_free(&s);
    return NULL;
}

io_kind io_kind_of(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return IO_NONE;
    return S_ISREG(st.st_mode) ? IO_FILE : S_ISDIR(st.st_mode) ? IO_DIR : IO_OTHER;
}

pesc_status io_look(const char *path, io_kind *out)
{
    struct stat st;
    *out = io_kind_of(path);
    if (*out == IO_NONE && stat(path, &st) != 0 && errno != ENOENT && errno != ENOTDIR)
        return fail_errno(PESC_IO, errno, "%s: cannot be reached", path);
    return PESC_OK;
}

pesc_status io_find(char **out, const char *dir, const char *name)
{
    io_kind kind = IO_NONE;
    *out = io_join(dir, name);
    if (!*out)
        return fail_nomem(dir, strlen(name));
    pesc_status s = io_look(*out, &kind);
    if (kind == IO_NONE) {
        mem_free(*out);
        *out = NULL;
    }
    return s;
}

pesc_status io_size(const char *path, uint64_t *bytes)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return fail_errno(PESC_IO, errno, "%s: cannot be read", path);
    *bytes = (uint64_t)st.st_size;
    return PESC_OK;
}

/* Opened without blocking first, so that a FIFO is refused instead of waited for. */
static pesc_status open_regular(const char *path, int *fd, uint64_t *size)
{
    int err = fault_check(FAULT_OPEN, NULL);
    int f = err ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f < 0)
        return fail_errno(PESC_IO, err ? err : errno, "%s: cannot be opened", path);
    struct stat st;
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(f);
        return fail(PESC_IO, "%s: is not a regular file", path);
    }
    *fd = f;
    *size = (uint64_t)st.st_size;
    return PESC_OK;
}

static ssize_t read_some(int fd, void *buf, size_t n)
{
    size_t limit = n;
    int err = fault_check(FAULT_READ, &limit);
    if (err) {
        errno = err;
        return -1;
    }
    for (;;) {
        ssize_t got = read(fd, buf, limit);
        if (got >= 0 || errno != EINTR)
            return got;
    }
}

/* Reads until the end of fd, at most max bytes, growing from `expect`. */
static pesc_status read_all(int fd, const char *path, size_t expect, size_t max, char **out,
                            size_t *n)
{
    size_t cap = expect + 1, used = 0;
    char *buf = mem_alloc(cap, 1);
    if (!buf)
        return fail_nomem(path, cap);
    for (;;) {
        if (used + 1 == cap) {
            size_t bigger = cap < 4096 ? 8192 : cap * 2;
            char *p = mem_grow(buf, bigger, 1);
            if (!p) {
                mem_free(buf);
                return fail_nomem(path, bigger);
            }
            buf = p;
            cap = bigger;
        }
        ssize_t got = read_some(fd, buf + used, cap - 1 - used);
        if (got < 0) {
            int err = errno;
            mem_free(buf);
            return fail_errno(PESC_IO, err, "%s: byte %zu: cannot be read", path, used);
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > max) {
            mem_free(buf);
            return fail(PESC_FORMAT, "%s: is larger than %zu bytes, the most pesc reads here", path,
                        max);
        }
    }
    buf[used] = '\0';
    *out = buf;
    *n = used;
    return PESC_OK;
}

pesc_status io_read_file(const char *path, size_t max, char **out, size_t *n)
{
    int fd = -1;
    uint64_t size = 0;
    TRY(open_regular(path, &fd, &size));
    pesc_status s;
    if (size > max)
        s = fail(PESC_FORMAT, "%s: is %llu bytes; at most %zu are read here", path,
                 (unsigned long long)size, max);
    else
        s = read_all(fd, path, (size_t)size, max, out, n);
    close(fd);
    return s;
}

pesc_status io_read_stream(const char *path, size_t max, char **out, size_t *n)
{
    if (strcmp(path, "-") == 0)
        return read_all(STDIN_FILENO, "standard input", 65536, max, out, n);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno(PESC_IO, errno, "%s: cannot be opened", path);
    pesc_status s = read_all(fd, path, 65536, max, out, n);
    close(fd);
    return s;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void io_list_free(char **names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(names[i]);
    mem_free(names);
}

pesc_status io_list(const char *dir, char ***names, size_t *n)
{
    DIR *d = opendir(dir);
    if (!d)
        return fail_errno(PESC_IO, errno, "%s: cannot be listed", dir);
    char **list = NULL;
    size_t used = 0, cap = 0;
    pesc_status s = PESC_OK;
    for (;;) {
        errno = 0; /* a failure looks like the end of the directory */
        const struct dirent *e = readdir(d);
        if (!e && errno)
            s = fail_errno(PESC_IO, errno, "%s: cannot be listed", dir);
        if (!e)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        char *name =
            mem_room((void **)&list, &cap, used, sizeof *list) ? mem_strdup(e->d_name) : NULL;
        if (!name) {
            s = fail_nomem(dir, strlen(e->d_name));
            break;
        }
        list[used++] = name;
    }
    closedir(d);
    if (s != PESC_OK) {
        io_list_free(list, used);
        return s;
    }
    if (used)
        qsort(list, used, sizeof *list, by_name);
    *names = list;
    *n = used;
    return PESC_OK;
}

pesc_status io_make_dir(const char *path)
{
    char *copy = mem_strdup(path);
    if (!copy)
        return fail_nomem(path, strlen(path));
    pesc_status s = PESC_OK;
    for (char *p = copy + 1; s == PESC_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char kept = *p;
        *p = '\0';
        int err = fault_check(FAULT_MKDIR, NULL);
        if (!err && mkdir(copy, 0777) != 0)
            err = errno;
        if (err && !(err == EEXIST && io_kind_of(copy) == IO_DIR))
            s = fail_errno(PESC_DISK, err, "%s: cannot be made a directory", copy);
        *p = kept;
        if (kept == '\0')
            break;
    }
    mem_free(copy);
    return s;
}
