/* What is being written, and has not its name yet (see io.h). */
#include "base/fault.h"
#include "base/io.h"
#include "base/io_own.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/stat.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPLETE ".complete" /* in a draft that is being moved out: what is moved last */

/* ---- who is alive ---- */

static bool is_at(int fd, const char *path)
{
    struct stat own, there;
    return fstat(fd, &own) == 0 && lstat(path, &there) == 0 && own.st_ino == there.st_ino &&
           own.st_dev == there.st_dev;
}

/* Takes the lock on what was just made at `path`: EBUSY when another process has it, ESTALE when
 * another has removed it since. A file system without locks gives none. */
static int lock_temp(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? EBUSY : 0;
    return is_at(fd, path) ? 0 : ESTALE;
}

/* Opens what a process may be writing still: true, with the lock, when none is. It may have its
 * name by now, and another file the temporary one. */
static bool take_abandoned(const char *path, int *fd, mode_t kind)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (*fd >= 0 && fstat(*fd, &st) == 0 && (st.st_mode & S_IFMT) == kind &&
        flock(*fd, LOCK_EX | LOCK_NB) == 0 && is_at(*fd, path))
        return true;
    if (*fd >= 0)
        close(*fd);
    return false;
}

/* ---- files ---- */

int io_temp_file(const char *path, char **temp, int *fd)
{
    int err = EBUSY;
    for (int i = 0; err == EBUSY || err == ESTALE; i += err == EBUSY) {
        str name = { 0 };
        str_printf(&name, i ? "%s" IO_TEMP "%ld-%d" : "%s" IO_TEMP "%ld", path, (long)getpid(), i);
        if (!str_ok(&name))
            return ENOMEM;
        err = fault_check(FAULT_OPEN, NULL);
        *fd = err ? -1 : open(name.p, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (*fd < 0)
            err = err ? err : errno;
        else
            err = lock_temp(*fd, name.p);
        if (!err && ftruncate(*fd, 0) != 0)
            err = errno;
        *temp = name.p;
        if (!err)
            return 0;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        *temp = NULL;
        str_free(&name);
    }
    return err;
}

void io_sweep(const char *dir)
{
    char **names = NULL, why[1024];
    size_t n = 0;
    int fd;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    if (io_list(dir, &names, &n) != PESC_OK)
        n = 0;
    for (size_t i = 0; i < n; i++) {
        char *path = strstr(names[i], IO_TEMP) ? io_join(dir, names[i]) : NULL;
        if (path && take_abandoned(path, &fd, S_IFREG)) {
            (void)io_remove(path);
            close(fd);
        }
        mem_free(path);
    }
    io_list_free(names, n);
    if (why[0])
        (void)fail(PESC_IO, "%s", why);
    else
        status_clear();
}

/* ---- directories ---- */

struct io_draft {
    char *place; /* where it goes */
    char *dir;
    int fd;       /* of dir, locked */
    bool file;    /* the place is one file; others of the draft go beside it */
    bool inside;  /* the place is a directory that cannot be replaced: the draft is in it */
    mode_t mode;  /* of the empty directory at the place; 0: there is none */
    bool settled; /* nothing is left to remove */
};

/* Moves everything from one directory to another, `last` at the end. */
static pesc_status move_out(const char *from, const char *to, const char *last)
{
    char **names = NULL;
    size_t n = 0;
    TRY(io_list(from, &names, &n));
    pesc_status s = PESC_OK;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; s == PESC_OK && i < n; i++) {
            bool is_last = strcmp(names[i], last) == 0;
            if (strcmp(names[i], COMPLETE) == 0 || is_last != (pass == 1))
                continue;
            char *a = io_join(from, names[i]), *b = io_join(to, names[i]);
            s = a && b ? io_rename(a, b) : fail_nomem(from, strlen(names[i]));
            mem_free(a);
            mem_free(b);
        }
    io_list_free(names, n);
    return s == PESC_OK ? io_sync_dir(to) : s;
}

/* A draft inside of its place that a dead process left: one that was being moved out is moved out.
 */
static pesc_status settle_inside(const char *dir, const char *place)
{
    char *last = NULL, *mark = io_join(dir, COMPLETE);
    size_t n = 0;
    pesc_status s = mark ? PESC_OK : fail_nomem(dir, sizeof COMPLETE);
    if (s == PESC_OK && io_kind_of(mark) == IO_FILE) {
        s = io_read_file(mark, NAME_MAX, &last, &n);
        if (s == PESC_OK)
            s = move_out(dir, place, last);
    }
    mem_free(last);
    mem_free(mark);
    return s == PESC_OK ? io_remove(dir) : s;
}

/* What dead processes left of drafts: entries of `dir` that begin with `prefix`. */
static pesc_status settle(const char *dir, const char *prefix, const char *place, bool inside)
{
    char **names = NULL;
    size_t n = 0;
    int fd;
    if (io_kind_of(dir) != IO_DIR)
        return PESC_OK;
    TRY(io_list(dir, &names, &n));
    pesc_status s = PESC_OK;
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        if (!str_starts(names[i], prefix))
            continue;
        char *path = io_join(dir, names[i]);
        if (!path) {
            s = fail_nomem(dir, strlen(names[i]));
        } else if (take_abandoned(path, &fd, S_IFDIR)) {
            s = inside ? settle_inside(path, place) : io_remove(path);
            close(fd);
        } else if (io_kind_of(path) == IO_DIR) {
            s = fail(PESC_USAGE, "%s: process %.20s is writing a model into it", place,
                     names[i] + strlen(prefix));
        }
        mem_free(path);
    }
    io_list_free(names, n);
    return s;
}

pesc_status io_draft_settle(const char *place)
{
    char *parent = io_parent(place);
    const char *slash = strrchr(place, '/');
    str prefix = { 0 };
    str_printf(&prefix, "%s" IO_TEMP, slash ? slash + 1 : place);
    pesc_status s = parent && str_ok(&prefix) ? settle(parent, prefix.p, place, false)
                                              : fail_nomem(place, strlen(place));
    if (s == PESC_OK && io_kind_of(place) == IO_DIR)
        s = settle(place, IO_TEMP, place, true);
    mem_free(parent);
    str_free(&prefix);
    return s;
}

/* Whether nothing can be renamed over the directory: it is a mount point, or its parent may not be
 * written. */
static bool is_fixed(const char *dir, const char *parent)
{
    struct statx x;
    bool known = statx(AT_FDCWD, dir, 0, STATX_TYPE, &x) == 0;
    return access(parent, W_OK) != 0 || !known ||
           (x.stx_attributes & x.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* The place must be free. A directory that is there and empty is no hindrance. */
static pesc_status look_at_place(io_draft *d)
{
    char **names = NULL;
    size_t n = 0;
    struct stat st;
    io_kind kind = io_kind_of(d->place);
    if (kind == IO_NONE)
        return PESC_OK;
    if (d->file)
        return fail(PESC_USAGE, "%s: exists; choose another output file", d->place);
    if (kind != IO_DIR)
        return fail(PESC_USAGE, "%s: exists and is not a directory", d->place);
    TRY(io_list(d->place, &names, &n));
    io_list_free(names, n);
    if (n > 0)
        return fail(PESC_USAGE, "%s: is not empty; choose another output directory", d->place);
    char *parent = io_parent(d->place);
    if (!parent)
        return fail_nomem(d->place, strlen(d->place));
    d->inside = is_fixed(d->place, parent);
    d->mode = stat(d->place, &st) == 0 ? st.st_mode & 07777 : 0;
    mem_free(parent);
    return PESC_OK;
}

static pesc_status make_dir(io_draft *d)
{
    char *parent = io_parent(d->place);
    pesc_status s = parent ? io_make_dir(parent) : fail_nomem(d->place, strlen(d->place));
    mem_free(parent);
    for (int i = 0, err = EEXIST; s == PESC_OK && err; i++) {
        str name = { 0 };
        str_printf(&name, i ? "%s%s" IO_TEMP "%ld-%d" : "%s%s" IO_TEMP "%ld", d->place,
                   d->inside ? "/" : "", (long)getpid(), i);
        if (!str_ok(&name))
            return fail_nomem(d->place, strlen(d->place));
        err = fault_check(FAULT_MKDIR, NULL);
        if (!err && mkdir(name.p, 0777) != 0)
            err = errno;
        if (!err) {
            d->fd = open(name.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            err = d->fd < 0 ? errno : lock_temp(d->fd, name.p);
        }
        if (!err) {
            d->dir = name.p;
            return PESC_OK;
        }
        str_free(&name);
        if (err != EEXIST && err != EBUSY && err != ESTALE)
            s = fail_errno(PESC_DISK, err, "%s: cannot be made a directory", d->place);
    }
    return s;
}

pesc_status io_draft_open(io_draft **out, const char *place, io_kind kind)
{
    size_t n = strlen(place);
    *out = NULL;
    while (n > 1 && place[n - 1] == '/')
        n--;
    io_draft *d = mem_zalloc(1, sizeof *d);
    char *path = mem_strndup(place, n), *real = NULL;
    pesc_status s = d && path ? PESC_OK : fail_nomem(place, n);
    if (s == PESC_OK && kind == IO_DIR && io_kind_of(path) == IO_DIR)
        s = io_absolute(&real, path);
    if (s != PESC_OK) {
        mem_free(d);
        mem_free(path);
        return s;
    }
    *d = (io_draft){ .place = real ? real : path, .fd = -1, .file = kind == IO_FILE };
    if (real)
        mem_free(path);
    s = io_draft_settle(d->place);
    if (s == PESC_OK)
        s = look_at_place(d);
    if (s == PESC_OK)
        s = make_dir(d);
    if (s == PESC_OK)
        *out = d;
    else
        io_draft_close(d);
    return s;
}

const char *io_draft_dir(const io_draft *d)
{
    return d->dir;
}

static pesc_status move_inside(io_draft *d, const char *last)
{
    char *mark = io_join(d->dir, COMPLETE);
    pesc_status s =
        mark ? io_write_file(mark, last, strlen(last)) : fail_nomem(d->dir, sizeof COMPLETE);
    mem_free(mark);
    if (s == PESC_OK)
        s = move_out(d->dir, d->place, last);
    return s == PESC_OK ? io_remove(d->dir) : s;
}

pesc_status io_draft_publish(io_draft *d, const char *last)
{
    char *parent = io_parent(d->place);
    pesc_status s = parent ? io_sync_dir(d->dir) : fail_nomem(d->place, strlen(d->place));
    if (s == PESC_OK && d->inside) {
        s = move_inside(d, last);
    } else if (s == PESC_OK && d->file) {
        s = move_out(d->dir, parent, last);
        if (s == PESC_OK)
            s = io_remove(d->dir);
    } else if (s == PESC_OK) {
        if (d->mode)
            (void)fchmod(d->fd, d->mode);
        s = io_rename(d->dir, d->place);
        if (s == PESC_OK)
            s = io_sync_dir(parent);
    }
    d->settled = s == PESC_OK;
    mem_free(parent);
    return s;
}

void io_draft_close(io_draft *d)
{
    char why[1024];
    if (!d)
        return;
    snprintf(why, sizeof why, "%s", pesc_last_error());
    if (d->dir && !d->settled)
        (void)io_remove(d->dir);
    if (why[0]) /* a failure of the cleaning must not hide the first */
        (void)fail(PESC_IO, "%s", why);
    if (d->fd >= 0)
        close(d->fd);
    mem_free(d->dir);
    mem_free(d->place);
    mem_free(d);
}
