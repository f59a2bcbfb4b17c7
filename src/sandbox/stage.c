/* See stage.h. */
#include "sandbox/stage.h"
#include "sandbox/driver.h"
#include "base/clock.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { READ, WRITE };

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static pesc_status make_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC))
        return fail_errno(PESC_DEVICE, errno, "creating a pipe");
    return PESC_OK;
}

pesc_status stage_open(stage *t, const box_spec *base)
{
    t->base = base;
    for (int i = 0; i < 2; i++)
        t->result[i] = t->calls[i] = t->answers[i] = -1;
    TRY(make_pipe(t->result));
    /* A program that writes more than one line is not waited for. */
    for (int i = 0; i < 2; i++)
        if (fcntl(t->result[i], F_SETFL, O_NONBLOCK))
            return fail_errno(PESC_DEVICE, errno, "preparing a pipe");
    return PESC_OK;
}

pesc_status stage_connect(stage *t)
{
    TRY(make_pipe(t->calls));
    return make_pipe(t->answers);
}

/* ---- starting ---- */

pesc_status stage_file(const char *bytes, size_t n, int *out)
{
    int fd = memfd_create("pesc", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fail_errno(PESC_DEVICE, errno, "creating a file in memory");
    size_t done = 0;
    while (done < n) {
        ssize_t k = write(fd, bytes + done, n - done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            int err = errno;
            close(fd);
            return fail_errno(PESC_DEVICE, err, "writing a file in memory");
        }
        done += (size_t)k;
    }
    lseek(fd, 0, SEEK_SET);
    fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
    *out = fd;
    return PESC_OK;
}

/* Modes without a mount namespace: a directory of the host, for the user of the process. */
static pesc_status make_tmp(stage_box *b)
{
    snprintf(b->tmp, sizeof b->tmp, "/tmp/pesc-XXXXXX");
    if (!mkdtemp(b->tmp)) {
        b->tmp[0] = '\0';
        return fail_errno(PESC_DEVICE, errno, "creating a directory in /tmp");
    }
    if (geteuid() == 0 && chown(b->tmp, box_nobody, box_nobody))
        return fail_errno(PESC_DEVICE, errno, "changing the owner of %s", b->tmp);
    return PESC_OK;
}

/* The judge has the result and one side of the pipes; the other process has the other side. */
static void set_fds(const stage *t, box_spec *spec, int job)
{
    bool judges = t->n == 0;
    for (int i = 0; i < BOX_FDS; i++)
        spec->fds[i] = -1;
    spec->fds[BOX_JOB] = job;
    spec->fds[BOX_DRIVER] = t->base->driver;
    spec->fds[BOX_RESULT] = judges ? t->result[WRITE] : -1;
    spec->fds[BOX_IN] = judges ? t->answers[READ] : t->calls[READ];
    spec->fds[BOX_OUT] = judges ? t->calls[WRITE] : t->answers[WRITE];
}

static pesc_status start_box(stage *t, stage_box *b, const char *role, int job)
{
    box_spec spec = *t->base;
    spec.code = t->base->driver < 0 ? driver_compile : driver_run;
    spec.role = role;
    spec.tmp = "/tmp";
    set_fds(t, &spec, job);
    if (spec.mode != SANDBOX_NAMESPACES) {
        TRY(make_tmp(b));
        spec.tmp = b->tmp;
    }
    TRY(box_start(&spec, &b->pid));
    b->pidfd = (int)syscall(SYS_pidfd_open, b->pid, 0);
    if (b->pidfd < 0)
        return fail_errno(PESC_DEVICE, errno, "opening a descriptor of a process");
    return PESC_OK;
}

pesc_status stage_start(stage *t, const char *role, const str *job)
{
    ASSERT(t->n < 2);
    stage_box *b = &t->boxes[t->n];
    b->pidfd = -1;
    int fd = -1;
    TRY(stage_file(job->p, job->n, &fd));
    pesc_status st = start_box(t, b, role, fd);
    close(fd);
    t->n++; /* counted after a failure too, so that stage_close() cleans up after it */
    return st;
}

/* ---- waiting ---- */

static void reap(stage_box *b, int flags)
{
    struct rusage use;
    pid_t got;
    while ((got = wait4(b->pid, &b->status, flags | __WALL, &use)) < 0 && errno == EINTR)
        ;
    if (got == 0)
        return;
    if (got > 0)
        b->cpu_seconds = (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                         1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
    b->pid = 0;
}

/* Modes without a pid namespace: each process leads a session of its own. */
static void kill_box(stage_box *b)
{
    if (!b->pid)
        return;
    ASSERT(b->pid > 1); /* kill(-1) is for every process of the user */
    kill(-b->pid, SIGKILL);
    kill(b->pid, SIGKILL);
    reap(b, 0);
}

/* Waits until the box has ended, or for so many seconds. */
static void wait_box(stage_box *b, double seconds)
{
    double deadline = clock_seconds() + seconds;
    while (b->pid) {
        double left = deadline - clock_seconds();
        struct pollfd p = { .fd = b->pidfd, .events = POLLIN };
        if (left > 0 && poll(&p, 1, (int)(left * 1000) + 1) == 0)
            continue;
        reap(b, WNOHANG);
        b->ended = !b->pid;
        if (left <= 0)
            return;
    }
}

/* Seconds that the box's main thread was ready to run and had no core, as the kernel counts them; 0
 * where it does not. */
static double starved_seconds(const stage_box *b)
{
    char path[48], text[96] = "";
    unsigned long long ran, waited = 0;
    if (!b->pid)
        return 0;
    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)b->pid);
    int fd = box_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    box_close(fd);
    return n > 0 && sscanf(text, "%llu %llu", &ran, &waited) == 2 ? 1e-9 * (double)waited : 0;
}

/* Wall time counts, whatever a program does: sleep, ignore signals, compute a little now and then.
 * Only the time in which the machine gave it no core does not, up to STARVED_MAX limits. */
static void wait_first(stage *t)
{
    enum { STARVED_MAX = 2 };
    const double began = clock_seconds(), most = STARVED_MAX * t->wall_seconds;
    double left = t->wall_seconds, starved = 0;
    while (t->boxes[0].pid && left > 0) {
        wait_box(&t->boxes[0], left);
        double sum = 0;
        for (int i = 0; i < t->n; i++)
            sum += starved_seconds(&t->boxes[i]);
        starved = sum > starved ? sum : starved;
        t->starved = starved > most;
        t->seconds = clock_seconds() - began - (t->starved ? most : starved);
        left = t->wall_seconds - t->seconds;
    }
}

/* ---- the verdict ---- */

/* The kernel's limit counts ticks, wait4() measures: the two differ on a busy machine. */
static void explain(stage *t, const stage_box *b, const char *who)
{
    t->cpu_limit = WIFSIGNALED(b->status) && b->cpu_seconds > 0.75 * t->base->cpu_seconds;
    if (t->cpu_limit)
        snprintf(t->reason, sizeof t->reason, "%s used more than %d s of CPU time", who,
                 (int)t->base->cpu_seconds);
    else if (WIFSIGNALED(b->status))
        snprintf(t->reason, sizeof t->reason, "%s was ended by signal %d (%s)", who,
                 WTERMSIG(b->status), strsignal(WTERMSIG(b->status)));
    else
        snprintf(t->reason, sizeof t->reason, "%s ended without a result", who);
}

size_t stage_read(const stage *t, char *to, size_t cap)
{
    ssize_t n = read(t->result[READ], to, cap);
    return n > 0 ? (size_t)n : 0;
}

/* The line "pass 0 reason"; false when there is none. */
static bool read_result(stage *t, bool *gone)
{
    char line[1024];
    line[stage_read(t, line, sizeof line - 1)] = '\0';
    char *end = strchr(line, '\n');
    if (!end || end - line < 7)
        return false;
    *end = '\0';
    t->verdict = str_starts(line, "pass ") ? STAGE_PASS : STAGE_FAIL;
    *gone = str_starts(line, "gone ");
    t->converted = line[5] == '1';
    snprintf(t->reason, sizeof t->reason, "%.*s", SANDBOX_REASON - 1, line + 7);
    return true;
}

/* A process sees the end of a pipe only when all copies of its other end are closed. */
static void close_ours(stage *t)
{
    close_end(&t->result[WRITE]);
    for (int i = 0; i < 2; i++) {
        close_end(&t->calls[i]);
        close_end(&t->answers[i]);
    }
}

bool stage_wait(stage *t)
{
    stage_box *first = &t->boxes[0];
    close_ours(t);
    wait_first(t);
    t->timed_out = first->pid != 0;
    if (t->timed_out)
        snprintf(t->reason, sizeof t->reason, "the program ran longer than %g s", t->wall_seconds);
    else
        explain(t, first, t->n > 1 ? "the process of the tests" : "the program");
    return !t->timed_out;
}

void stage_judge(stage *t)
{
    stage_box *second = &t->boxes[1];
    bool gone = false;
    if (!stage_wait(t) || !read_result(t, &gone) || !gone)
        return;
    /* Its descriptors were closed: it is ending, or it closed them to end the tests. */
    wait_box(second, 1);
    if (second->ended)
        explain(t, second, "the program");
}

void stage_close(stage *t)
{
    for (int i = 0; i < t->n; i++) {
        kill_box(&t->boxes[i]);
        close_end(&t->boxes[i].pidfd);
        /* Most directories are empty, and removing an empty one needs no memory. */
        if (t->boxes[i].tmp[0] && rmdir(t->boxes[i].tmp))
            io_remove(t->boxes[i].tmp);
    }
    close_ours(t);
    close_end(&t->result[READ]);
}
