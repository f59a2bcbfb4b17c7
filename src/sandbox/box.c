/* See box.h. Two processes are made one after the other. The first leaves the host: it
 * changes its user, its namespaces and its root directory. A process cannot move itself to a new
 * pid namespace, so it then makes the second one, which is process 1 of that namespace, gives up
 * everything that is left, and becomes Python. The second is a child of the caller (CLONE_PARENT);
 * the first ends at once.
 *
 * Both share the caller's memory, so an error is reported by writing it to the `child` struct. */
#include "sandbox/box.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

const char box_python[] = "/usr/bin/python3";
const uint32_t box_nobody = 65534;

/* All that Python sees of the environment. The hash seed makes the order of sets repeatable. */
static char *const environment[] = {
    "PATH=/usr/bin",
    "HOME=/nonexistent",
    "LC_ALL=C.UTF-8",
    "PYTHONHASHSEED=0",
    "PYTHONUTF8=1",
    "PYTHONSAFEPATH=1",
    "PYTHONDONTWRITEBYTECODE=1",
    NULL,
};

enum { STACK_BYTES = 64 << 10, FIRST_FREE = 32 };

typedef struct child {
    const box_spec *spec;
    box_step at; /* the step that failed, with its errno */
    int err;
    pid_t pid; /* of the process that becomes Python */
    bool was_root;
    uid_t uid; /* of the caller, for the maps of the user namespace */
    gid_t gid;
    char maps[2][32];
    char *stack[2]; /* one for each process, STACK_BYTES */
} child;

/* clone() under its other name: ThreadSanitizer takes the first for fork(), whose child has memory
 * of its own. Functions that do not return must not be counted as calls by it either. */
int __clone(int (*run)(void *), void *stack, int flags, void *arg, ...);
#define NO_RETURN __attribute__((no_sanitize("thread")))

NO_RETURN static int quit(child *c)
{
    c->err = errno;
    return (int)syscall(SYS_exit_group, 1);
}

/* ---- the first process ---- */

/* The C library's setresuid() would change all threads of the caller; the system call changes this
 * process alone. The kernel then marks the shared memory as not dumpable, which would make
 * /proc/self/uid_map unwritable, and the caller undumpable: the mark is taken back. It belongs to
 * the memory, so only one thread at a time may be here: see `starting`. */
static int leave_root(child *c)
{
    c->at = (box_step){ "changing to an unprivileged user", NULL };
    int dumpable = prctl(PR_GET_DUMPABLE);
    int bad = syscall(SYS_setgroups, 0, NULL) ||
              syscall(SYS_setresgid, box_nobody, box_nobody, box_nobody) ||
              syscall(SYS_setresuid, box_nobody, box_nobody, box_nobody);
    int err = errno;
    prctl(PR_SET_DUMPABLE, dumpable == 1, 0, 0, 0);
    errno = err;
    return bad ? -1 : 0;
}

static int put_file(const char *path, const char *text)
{
    int fd = box_open(path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    long n = syscall(SYS_write, fd, text, strlen(text));
    box_close(fd);
    return n < 0 ? -1 : 0;
}

static int enter_namespaces(child *c)
{
    c->at = (box_step){ "creating namespaces", NULL };
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                CLONE_NEWUTS | CLONE_NEWCGROUP))
        return -1;
    c->at = (box_step){ "mapping the user of the namespace", NULL };
    if (put_file("/proc/self/setgroups", "deny") || put_file("/proc/self/uid_map", c->maps[0]) ||
        put_file("/proc/self/gid_map", c->maps[1]))
        return -1;
    return box_enter_root(&c->at);
}

NO_RETURN static int become_python(void *arg);

NO_RETURN static int leave_host(void *arg)
{
    child *c = arg;
    if (c->was_root && leave_root(c))
        return quit(c);
    if (c->spec->mode == SANDBOX_NAMESPACES && enter_namespaces(c))
        return quit(c);
    c->at = (box_step){ "creating a process", NULL };
    c->pid =
        __clone(become_python, c->stack[1] + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PARENT, c);
    if (c->pid < 0)
        return quit(c);
    return (int)syscall(SYS_exit_group, 0);
}

/* ---- the second process ---- */

/* Moves the descriptors to their numbers, by way of numbers that none of them has, and closes all
 * others: those of the host, and of programs that run at the same time. */
static int place_fds(child *c)
{
    c->at = (box_step){ "passing the descriptors", NULL };
    int high[BOX_FDS];
    for (int i = 0; i < BOX_FDS; i++) {
        int from = c->spec->fds[i] >= 0 ? c->spec->fds[i] : c->spec->null;
        high[i] = (int)syscall(SYS_fcntl, from, F_DUPFD, FIRST_FREE);
        if (high[i] < 0)
            return -1;
    }
    for (int i = 0; i < BOX_FDS; i++)
        if (syscall(SYS_dup3, high[i], i, 0) < 0)
            return -1;
    return (int)syscall(SYS_close_range, BOX_FDS, ~0u, 0);
}

/* Ends with the caller. It may have ended before we said so. */
static int follow_host(child *c)
{
    c->at = (box_step){ "following the parent process", NULL };
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0))
        return -1;
    struct pollfd host = { .fd = c->spec->host, .events = POLLIN };
    if (syscall(SYS_ppoll, &host, 1, &(struct timespec){ 0 }, NULL, 0) == 0)
        return 0;
    errno = ESRCH;
    return -1;
}

static int set_limits(child *c)
{
    c->at = (box_step){ "setting the resource limits", NULL };
    const box_spec *s = c->spec;
    const struct {
        __rlimit_resource_t what;
        rlim_t value;
    } limits[] = {
        { RLIMIT_CPU, (rlim_t)s->cpu_seconds + BOX_START_SECONDS },
        { RLIMIT_AS, s->memory_bytes },
        { RLIMIT_FSIZE, 16 << 20 },
        { RLIMIT_NOFILE, 64 },
        { RLIMIT_CORE, 0 },
        { RLIMIT_STACK, 64 << 20 },
        { RLIMIT_MEMLOCK, 0 },
        { RLIMIT_MSGQUEUE, 0 },
        /* counted in this user namespace in mode A, else among all processes of the user */
        { RLIMIT_NPROC, s->mode == SANDBOX_NAMESPACES ? 64 : 4096 },
    };
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit now, r = { limits[i].value, limits[i].value };
        if (getrlimit(limits[i].what, &now))
            return -1;
        if (r.rlim_max > now.rlim_max)
            r = (struct rlimit){ now.rlim_max, now.rlim_max };
        if (setrlimit(limits[i].what, &r))
            return -1;
    }
    return 0;
}

static int drop_capabilities(child *c)
{
    c->at = (box_step){ "dropping the capabilities", NULL };
    for (int cap = 0; cap < 64; cap++)
        if (prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) && errno != EINVAL && errno != EPERM)
            return -1; /* EINVAL: past the last one; EPERM: without privileges there are none */
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } };
    if (syscall(SYS_capset, &head, none) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        return -1;
    return 0;
}

/* Handlers are reset by execve(), ignored signals are not. */
static void reset_signals(void)
{
    struct sigaction standard = { .sa_handler = SIG_DFL };
    for (int i = 1; i < NSIG; i++)
        sigaction(i, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Without a sandbox the two filters are still used as far as the kernel has them. */
static int confine(child *c)
{
    const box_spec *s = c->spec;
    bool must = s->mode != SANDBOX_NONE;
    if (s->landlock && box_landlock(s->landlock, s->tmp, &c->at) && must)
        return -1;
    return box_seccomp(&c->at) && must ? -1 : 0;
}

NO_RETURN static int become_python(void *arg)
{
    child *c = arg;
    char *argv[] = { (char *)box_python,    "-s", "-S", "-c", (char *)c->spec->code,
                     (char *)c->spec->role, NULL };
    setsid();
    if (follow_host(c) || place_fds(c) || set_limits(c) || drop_capabilities(c))
        return quit(c);
    c->at = (box_step){ "entering the directory", c->spec->tmp };
    if (chdir(c->spec->tmp))
        return quit(c);
    umask(077);
    reset_signals();
    if (confine(c))
        return quit(c);
    c->at = (box_step){ "starting", box_python };
    execve(box_python, argv, environment);
    return quit(c);
}

/* ---- the caller ---- */

static pesc_status report(const child *c)
{
    return fail_errno(PESC_DEVICE, c->err, "%s%s%s", c->at.doing, c->at.what ? " " : "",
                      c->at.what ? c->at.what : "");
}

/* Held from clone() to execve(): the processes of two threads share the memory too. */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* Both processes have ended or are Python when clone() returns. */
static pesc_status start(child *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&starting);
    c->at = (box_step){ "creating a process", NULL };
    pid_t first = __clone(leave_host, c->stack[0] + STACK_BYTES, CLONE_VM | CLONE_VFORK, c);
    int err = errno;
    pthread_mutex_unlock(&starting);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (first < 0) {
        c->err = err;
        return report(c);
    }
    while (waitpid(first, NULL, __WALL) < 0 && errno == EINTR)
        ;
    if (!c->err)
        return PESC_OK;
    if (c->pid > 0)
        while (waitpid(c->pid, NULL, __WALL) < 0 && errno == EINTR)
            ;
    return report(c);
}

pesc_status box_start(const box_spec *spec, pid_t *pid)
{
    child c = { .spec = spec, .was_root = geteuid() == 0, .uid = geteuid(), .gid = getegid() };
    char *stacks = mem_aligned(2 * STACK_BYTES);
    if (!stacks)
        return fail_nomem("starting a sandbox", 2 * STACK_BYTES);
    c.stack[0] = stacks;
    c.stack[1] = stacks + STACK_BYTES;
    unsigned outside[2] = { c.was_root ? box_nobody : c.uid, c.was_root ? box_nobody : c.gid };
    for (int i = 0; i < 2; i++)
        snprintf(c.maps[i], sizeof c.maps[i], "%u %u 1", box_nobody, outside[i]);
    pesc_status st = start(&c);
    mem_free(stacks);
    *pid = st == PESC_OK ? c.pid : 0; /* after a failure -1, or of a process that has been reaped */
    return st;
}
