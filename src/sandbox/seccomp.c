/* The system calls that a program may make: an allow-list, by hand, as a seccomp filter.
 *
 * A call that is not in a table fails with EPERM. A call of another architecture (32-bit, x32) ends
 * the process. What is missing is what matters: no call makes a process, a socket, a namespace or a
 * mount, sends a signal, looks at or changes another process, changes the mode or owner of a file,
 * or reaches the kernel's larger interfaces (bpf, io_uring, perf, keyctl, userfaultfd). execve() is
 * allowed because Python itself is started after the filter is; Landlock limits it to Python. */
#include "sandbox/box.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the tables below are those of x86-64 and 64-bit Arm"
#endif

/* Allowed with any arguments. */
static const uint16_t calls[] = {
    /* files that are open */
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_pwrite64,
    SYS_lseek,
    SYS_close,
    SYS_fstat,
    SYS_ftruncate,
    SYS_fsync,
    SYS_dup,
    SYS_dup3,
    SYS_pipe2,
    SYS_getdents64,
    SYS_ppoll,
    SYS_pselect6,
    /* paths */
    SYS_openat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_faccessat2,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_chdir,
    SYS_unlinkat,
    /* memory */
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_brk,
    /* this process and its threads */
    SYS_execve,
    SYS_exit,
    SYS_exit_group,
    SYS_futex,
    SYS_set_tid_address,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    /* questions */
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getgroups,
    SYS_getrusage,
    SYS_getrlimit,
    SYS_uname,
    SYS_sysinfo,
    SYS_umask,
    SYS_getrandom,
    /* time */
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_times,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_getitimer,
    SYS_setitimer,
#if defined(__x86_64__)
    /* older forms of the calls above, which later architectures do not have */
    SYS_dup2,
    SYS_pipe,
    SYS_poll,
    SYS_select,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_unlink,
    SYS_arch_prctl,
    SYS_getpgrp,
    SYS_time,
    SYS_alarm,
    SYS_pause,
#endif
};
enum { N_CALLS = sizeof calls / sizeof *calls };

/* Allowed with these values of one argument, of which the kernel reads 32 bits. */
typedef struct conditional {
    uint16_t call, argument;
    uint32_t values[6];
    int n;
} conditional;

static const conditional conditionals[] = {
    /* the flags of pthread_create(): a thread, never a process or a namespace */
    { SYS_clone, 0, { 0x003d0f00 }, 1 },
    /* its own limits only; they are hard ones, so they can only become lower */
    { SYS_prlimit64, 0, { 0 }, 1 },
    /* no F_SETOWN, which would let the kernel send signals to other processes */
    { SYS_fcntl, 1, { F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC }, 6 },
    { SYS_ioctl, 1, { TCGETS, FIOCLEX, FIONCLEX }, 3 },
};
enum { N_CONDITIONALS = sizeof conditionals / sizeof *conditionals };

enum { X32_BIT = 0x40000000, MAX_CODE = 256 };

typedef struct program {
    struct sock_filter code[MAX_CODE];
    unsigned short n;
} program;

static void emit(program *p, struct sock_filter f)
{
    ASSERT(p->n < MAX_CODE);
    p->code[p->n++] = f;
}

static void load(program *p, size_t offset)
{
    emit(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void answer(program *p, uint32_t action)
{
    emit(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* Goes on when the loaded value is k, else skips so many instructions. */
static void unless_equal(program *p, uint32_t k, int skip)
{
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, k, 0, (uint8_t)skip));
}

static void answer_conditional(program *p, const conditional *c)
{
    unless_equal(p, c->call, 2 + 2 * c->n);
    load(p, offsetof(struct seccomp_data, args) + 8u * c->argument);
    for (int i = 0; i < c->n; i++) {
        unless_equal(p, c->values[i], 1);
        answer(p, SECCOMP_RET_ALLOW);
    }
    answer(p, SECCOMP_RET_ERRNO | EPERM);
}

static void build(program *p)
{
    load(p, offsetof(struct seccomp_data, arch));
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0));
    answer(p, SECCOMP_RET_KILL_PROCESS);
    load(p, offsetof(struct seccomp_data, nr));
    emit(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1));
    answer(p, SECCOMP_RET_KILL_PROCESS);
    for (int i = 0; i < N_CALLS; i++) {
        unless_equal(p, calls[i], 1);
        answer(p, SECCOMP_RET_ALLOW);
    }
    for (int i = 0; i < N_CONDITIONALS; i++)
        answer_conditional(p, &conditionals[i]);
    unless_equal(p, SYS_clone3, 1); /* the C library then tries clone(), whose flags can be read */
    answer(p, SECCOMP_RET_ERRNO | ENOSYS);
    answer(p, SECCOMP_RET_ERRNO | EPERM);
}

int box_seccomp(box_step *at)
{
    *at = (box_step){ "installing the seccomp filter", NULL };
    program p = { .n = 0 };
    build(&p);
    struct sock_fprog f = { .len = p.n, .filter = p.code };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &f);
}
