/* Mapped files, and the answer to a file that shrinks while it is mapped (see io.h). */
#include "base/io.h"

#include "base/fault.h"
#include "base/io_own.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_MAPS = 4096 };

/* Read by the signal handler: only atomics, never freed. A slot is free when begin is 0. */
static struct {
    _Atomic uintptr_t begin, end;
    _Atomic bool lost;
} maps[MAX_MAPS];

static struct sigaction before_us;

static void on_bus(int sig, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    for (int i = 0; i < MAX_MAPS; i++) {
        uintptr_t begin = atomic_load(&maps[i].begin);
        if (begin == 0 || at < begin || at >= atomic_load(&maps[i].end))
            continue;
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        void *p = mmap((void *)(at & ~(page - 1)), page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (p == MAP_FAILED)
            break;
        atomic_store(&maps[i].lost, true);
        return;
    }
    if (before_us.sa_flags & SA_SIGINFO) {
        before_us.sa_sigaction(sig, info, context);
    } else if (before_us.sa_handler != SIG_DFL && before_us.sa_handler != SIG_IGN) {
        before_us.sa_handler(sig);
    } else {
        signal(sig, SIG_DFL);
        raise(sig);
    }
}

/* At every open, since the program may have set its own handler in between. */
static void install_handler(void)
{
    struct sigaction now;
    if (sigaction(SIGBUS, NULL, &now) != 0 || now.sa_sigaction == on_bus)
        return;
    before_us = now;
    struct sigaction sa = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigemptyset(&sa.sa_mask);
    sigaction(SIGBUS, &sa, NULL);
}

static int take_slot(const void *data, size_t size)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    int slot = -1;
    pthread_mutex_lock(&lock);
    install_handler();
    for (int i = 0; i < MAX_MAPS && slot < 0; i++)
        if (atomic_load(&maps[i].begin) == 0)
            slot = i;
    if (slot >= 0) {
        atomic_store(&maps[slot].lost, false);
        atomic_store(&maps[slot].end, (uintptr_t)data + size);
        atomic_store(&maps[slot].begin, (uintptr_t)data);
    }
    pthread_mutex_unlock(&lock);
    return slot;
}

/* Maps the file behind fd, which the caller closes. */
static pesc_status map_file(io_map **out, int fd, const char *path)
{
    io_map *m = mem_zalloc(1, sizeof *m);
    pesc_status s = PESC_OK;
    struct stat st;
    *out = NULL;
    if (!m || !(m->path = mem_strdup(path))) {
        s = fail_nomem(path, sizeof *m);
    } else if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        s = fail(PESC_IO, "%s: is not a regular file", path);
    } else if (st.st_size > 0) {
        int err = fault_check(FAULT_MMAP, NULL);
        void *p = err ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            s = fail_errno(PESC_IO, err ? err : errno, "%s: cannot be mapped", path);
        } else {
            m->data = p;
            m->size = (size_t)st.st_size;
            m->device = st.st_dev;
            m->inode = st.st_ino;
            m->slot = take_slot(p, m->size);
            if (m->slot < 0)
                s = fail(PESC_IO, "%s: more than %d files are mapped at once", path, MAX_MAPS);
        }
    }
    if (s != PESC_OK)
        io_map_close(m);
    else
        *out = m;
    return s;
}

pesc_status io_map_open(io_map **out, const char *path)
{
    *out = NULL;
    int err = fault_check(FAULT_OPEN, NULL);
    int fd = err ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(PESC_IO, err ? err : errno, "%s: cannot be opened", path);
    pesc_status s = map_file(out, fd, path);
    close(fd);
    return s;
}

/* ---- files without a name ---- */

static const char *temp_dir(void)
{
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/var/tmp";
}

pesc_status io_spool_open(int *fd)
{
    int err = fault_check(FAULT_OPEN, NULL);
    char *path = io_join(temp_dir(), "pesc-XXXXXX");
    if (!path)
        return fail_nomem("the path of a temporary file", 0);
    *fd = err ? -1 : mkostemp(path, O_CLOEXEC);
    err = err ? err : errno;
    if (*fd >= 0)
        unlink(path);
    mem_free(path);
    return *fd >= 0 ? PESC_OK
                    : fail_errno(PESC_IO, err,
                                 "%s: no temporary file can be made in this directory; TMPDIR "
                                 "names another",
                                 temp_dir());
}

pesc_status io_spool_write(int fd, uint64_t at, const void *bytes, size_t n)
{
    int err = io_put(fd, bytes, n, at);
    return err ? fail_errno(PESC_IO, err,
                            "%s: a temporary file cannot be written after %llu bytes; "
                            "TMPDIR names another directory",
                            temp_dir(), (unsigned long long)at)
               : PESC_OK;
}

pesc_status io_map_spool(io_map **out, int fd, const char *path)
{
    TRY(map_file(out, fd, path));
    (*out)->inode = 0;
    return PESC_OK;
}

void io_map_drop(const void *data, size_t n)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)data, end = begin + n;
    begin = (begin + page - 1) & ~(page - 1); /* whole pages only: the others have other users */
    end &= ~(page - 1);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

/* What is lost of the last page that is left reads as zeros, without a signal. */
static bool is_shorter(const io_map *m)
{
    struct stat st;
    return m->inode != 0 && stat(m->path, &st) == 0 && st.st_dev == m->device &&
           st.st_ino == m->inode && (uint64_t)st.st_size < m->size;
}

pesc_status io_map_check(const io_map *m)
{
    if (m->data && (atomic_load(&maps[m->slot].lost) || is_shorter(m)))
        return fail(PESC_IO,
                    "%s: the file became shorter while it was in use; nothing computed "
                    "from it can be trusted",
                    m->path);
    return PESC_OK;
}

void io_map_close(io_map *m)
{
    if (!m)
        return;
    if (m->data) {
        if (m->slot >= 0)
            atomic_store(&maps[m->slot].begin, 0);
        munmap((void *)m->data, m->size);
    }
    mem_free(m->path);
    mem_free(m);
}
