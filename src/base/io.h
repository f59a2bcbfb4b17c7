/* io: all file access of pesc.
 *
 * Reads and writes are checked, interrupted calls are retried, short writes continued. Every
 * system call passes a fault hook, so a test (or PESC_FAULT=op:N:what in the environment) can make
 * the N-th call of an op fail: op is open, read, write, fsync, rename, mkdir, unlink, mmap, close,
 * truncate, link, reserve, exchange, or any (all of them counted together); what is an errno name
 * (ENOSPC, EIO, ...), `short` (half of a read or write) or `kill` (SIGKILL).
 *
 * Mapped files may shrink under us. A SIGBUS inside one of our mappings is answered with a page of
 * zeros and a mark on the mapping; a user of the mapping calls io_map_check() and reports it,
 * instead of the process dying. Signals elsewhere go to the handler that was there before. */
#ifndef PESC_BASE_IO_H
#define PESC_BASE_IO_H

#include "base/status.h"

typedef struct io_map {
    const unsigned char *data; /* NULL when size is 0 */
    size_t size;
    char *path;
    uint64_t device, inode; /* of the file that is mapped; another may take its path; 0: no name */
    int slot;               /* in the table the signal handler reads */
} io_map;

/* A regular file, mapped read-only; anything else (FIFO, directory, device) is refused by name. */
pesc_status io_map_open(io_map **out, const char *path);
void io_map_close(io_map *m); /* NULL is allowed */
/* Bytes of a map that are not needed soon: they stop counting as memory in use, and come back when
 * they are touched. */
void io_map_drop(const void *data, size_t n);
pesc_status io_map_check(const io_map *m); /* fails when part of the file was lost while in use */

/* A file without a name in the directory TMPDIR, or else /var/tmp, which is gone when it is closed
 * and unmapped: for bytes that are made from a file and are too many for memory. io_map_spool()
 * maps what was written; `path` is how messages call it, and the descriptor stays the caller's to
 * close. */
pesc_status io_spool_open(int *fd);
pesc_status io_spool_write(int fd, uint64_t at, const void *bytes, size_t n);
pesc_status io_map_spool(io_map **out, int fd, const char *path);

/* The whole regular file, NUL-terminated after its n bytes, for mem_free(). Refuses more than
 * `max` bytes. */
pesc_status io_read_file(const char *path, size_t max, char **out, size_t *n);

/* Standard input (path "-") or a file that may be a pipe, up to `max` bytes. */
pesc_status io_read_stream(const char *path, size_t max, char **out, size_t *n);

typedef enum io_kind { IO_NONE, IO_FILE, IO_DIR, IO_OTHER } io_kind;
io_kind io_kind_of(const char *path); /* follows links; IO_NONE also when not reachable */
/* The same, but fails where it is not known whether something is at `path`: a directory on the way
 * that may not be searched, a loop of links. */
pesc_status io_look(const char *path, io_kind *out);
pesc_status io_size(const char *path, uint64_t *bytes);

/* Names in a directory, sorted, without . and ..; each and the array for mem_free(). */
pesc_status io_list(const char *dir, char ***names, size_t *n);
void io_list_free(char **names, size_t n);

/* dir + "/" + name, for mem_free(); NULL when out of memory. */
char *io_join(const char *dir, const char *name);
/* The same; *out NULL when nothing is there. Fails where io_look() does. */
pesc_status io_find(char **out, const char *dir, const char *name);

/* A file that appears under its name only when it is complete: written to a temporary name beside
 * it, flushed to the disk, renamed, the directory flushed. What is at `path` must be a regular file
 * or absent: a device or a pipe is refused, since the rename would replace it. A link to a regular
 * file is followed, so the link stays. */
typedef struct io_writer io_writer;
pesc_status io_writer_open(io_writer **out, const char *path);
pesc_status io_write(io_writer *w, const void *bytes, size_t n);
pesc_status io_write_at(io_writer *w, uint64_t offset, const void *bytes, size_t n);
/* The same for a file that several processes write, in a directory that is not read yet: it has
 * its name from the start, and io_publish() only makes the bytes durable. create: it must not be
 * there, else it must. */
pesc_status io_writer_open_shared(io_writer **out, const char *path, bool create);
pesc_status io_publish(io_writer *w); /* also closes, whatever happens */
void io_writer_abort(io_writer *w);   /* removes the temporary file; NULL is allowed */
pesc_status io_write_file(const char *path, const void *bytes, size_t n);

/* Takes the disk space of a file to be written, so that a full disk is met before the first byte.
 */
pesc_status io_reserve(io_writer *w, uint64_t bytes);

pesc_status io_make_dir(const char *path); /* with parents; fine when it exists */

/* ---- what dead processes left (io_draft.c) ---- */

/* What is being written is called NAME.tmp.pesc-PID, and its process holds a lock on it (flock)
 * until it has its name. A process that is killed leaves it without the lock, and so it is known
 * whether it may be removed: the number says nothing, since another process may have it by now, as
 * the first of a container always does. */
#define IO_TEMP ".tmp.pesc-"

/* Removes the files that dead processes left half-written in a directory. io_writer_open() does so
 * for the directory of its file. Failures are ignored. */
void io_sweep(const char *dir);

/* A directory that takes its place as a whole: it is filled beside the place, in the directory that
 * io_draft_dir() names, and published by one rename. What a killed process left of such a directory
 * is removed when the place is opened again.
 *
 * The place must be absent or an empty directory; one that cannot be replaced, such as a mount
 * point, is filled from a draft inside of it, whose files are moved out one by one, `last` last.
 * kind IO_FILE: the place is a file that is not there; all files of the draft go beside it, the
 * one called `last` last. */
typedef struct io_draft io_draft;
pesc_status io_draft_open(io_draft **out, const char *place, io_kind kind);
const char *io_draft_dir(const io_draft *d);
pesc_status io_draft_publish(io_draft *d, const char *last);
void io_draft_close(io_draft *d); /* removes what was not published; NULL is allowed */

/* Removes the drafts of a place that dead processes left; PESC_USAGE when a living one has one. */
pesc_status io_draft_settle(const char *place);

/* ---- directories that change as a whole (io_dir.c) ---- */

pesc_status io_free_bytes(const char *dir, uint64_t *bytes); /* of its file system, for us */
pesc_status io_sync_dir(const char *dir);
pesc_status io_rename(const char *from, const char *to);
/* Puts `from` at `to`, and what was there at `from`: at no moment is `to` missing. Where the file
 * system cannot exchange two names (NFS), `to` is renamed first: then there is a moment at which
 * what was there is named `to` with IO_SWAPPED appended. A process that dies in that moment
 * leaves it so, and readers that care look there too. */
#define IO_SWAPPED ".swapped"
pesc_status io_swap(const char *from, const char *to);
/* A second name for the same file, in the same file system; fails where `to` exists. */
pesc_status io_link_file(const char *from, const char *to);
/* A file, a link, or a directory with everything below it; fine when it is not there. */
pesc_status io_remove(const char *path);
/* Makes `path` a symbolic link to `target`, in one step also where there is one already. */
pesc_status io_link(const char *target, const char *path);
/* An absolute path without links, for mem_free(). */
pesc_status io_absolute(char **out, const char *path);

/* A file that one process at a time can hold; it contains the holder's process id. The lock ends
 * with the process, however that ends. PESC_USAGE names the holder when there is one. Locks and
 * logs are regular files: a link in their place is refused, since it may lead anywhere. */
typedef struct io_lock io_lock;
pesc_status io_lock_take(io_lock **out, const char *path);
void io_lock_release(io_lock *l); /* NULL is allowed */

/* A file that only grows. */
typedef struct io_log io_log;
pesc_status io_log_open(io_log **out, const char *path, uint64_t keep); /* cut back to `keep` */
pesc_status io_log_append(io_log *l, const void *bytes, size_t n);
pesc_status io_log_sync(io_log *l);
uint64_t io_log_size(const io_log *l);
void io_log_close(io_log *l); /* NULL is allowed */

#endif
