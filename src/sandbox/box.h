/* box: starts one process of the sandbox.
 *
 * The process is created as posix_spawn() does it: clone() with shared memory, while the calling
 * thread waits, so that a program with gigabytes of weights starts one as fast as a small one. The
 * code between clone() and execve() makes system calls only; it may not allocate or take a lock.
 *
 * Every step that restricts the process comes before execve(): Python never runs unconfined. */
#ifndef PESC_SANDBOX_BOX_H
#define PESC_SANDBOX_BOX_H

#include "sandbox/sandbox.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* Descriptors of the process besides 0, 1 and 2, which are /dev/null. */
enum {
    BOX_JOB = 3,    /* what to do: sections, see driver.h */
    BOX_RESULT = 4, /* one line to us; not for a solution whose tests are in another process */
    BOX_IN = 5,     /* lines from and to the other process */
    BOX_OUT = 6,
    BOX_DRIVER = 7, /* the driver as bytecode */
    BOX_FDS = 8
};

/* Added to the limit of CPU time: Python starts, and the kernel counts in ticks. */
enum { BOX_START_SECONDS = 1 };

typedef struct box_spec {
    sandbox_mode mode; /* not SANDBOX_AUTO */
    int32_t cpu_seconds;
    size_t memory_bytes;
    int landlock;     /* ABI; 0: the kernel has none */
    int host;         /* a pidfd of this process */
    int null;         /* /dev/null, for reading and writing */
    int driver;       /* a file of bytecode; -1: none yet */
    const char *code; /* what Python runs (-c), and its argument */
    const char *role;
    const char *tmp;  /* the only writable directory, as the process will see it */
    int fds[BOX_FDS]; /* which descriptor becomes number i; -1: /dev/null */
} box_spec;

/* What happens between clone() and execve(): the step at work, for the message. */
typedef struct box_step {
    const char *doing; /* "mounting", a constant */
    const char *what;  /* "/usr"; may be NULL */
} box_step;

extern const char box_python[];   /* path of the interpreter */
extern const uint32_t box_nobody; /* uid and gid inside */

/* PESC_DEVICE: "mounting /usr: Operation not permitted"; *pid is 0 then, and no process is left.
 * The caller waits for *pid with __WALL. */
pesc_status box_start(const box_spec *spec, pid_t *pid);

/* Between clone() and execve() the C library's functions for descriptors are not used: sanitizers
 * replace them and would take the descriptors of the new process for those of the caller. */
static inline int box_open(const char *path, int flags, int mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
static inline int box_close(int fd)
{
    return (int)syscall(SYS_close, fd);
}

/* ---- the steps; each returns 0, or -1 with errno set and *at saying where ---- */

/* root.c: leaves the file system for a read-only tree with /usr, a few devices, /tmp. */
int box_enter_root(box_step *at);

/* landlock.c: the version of Landlock, 0 where there is none; and its rules. */
int box_landlock_abi(void);
int box_landlock(int abi, const char *tmp, box_step *at);

/* seccomp.c: from here on only the system calls of a table. */
int box_seccomp(box_step *at);

#endif
