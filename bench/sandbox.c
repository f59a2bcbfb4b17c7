/* What the sandbox adds to a program: a trivial program is judged many times, and as often Python
 * is started without a sandbox as many times as a program needs it. Medians, so that a busy machine
 * does not matter much.
 *
 *   build/bench/sandbox [PROGRAMS] */
#include "base/clock.h"
#include "sandbox/sandbox.h"

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { MAX_RUNS = 10000, PROCESSES = 3 }; /* tests, solution, plain program */

extern char **environ;

static double cpu_of(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double cpu_seconds(void)
{
    return cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare);
    return v[n / 2];
}

/* Starts Python for an empty program and waits for its end. */
static double time_python(void)
{
    char *argv[] = { "/usr/bin/python3", "-s", "-S", "-c", "pass", NULL };
    double began = clock_seconds();
    pid_t pid;
    if (posix_spawn(&pid, argv[0], NULL, NULL, argv, environ))
        return 0;
    waitpid(pid, NULL, 0);
    return clock_seconds() - began;
}

static double time_program(sandbox *s)
{
    const char *tests[] = { "assert f(1) == 2" };
    sandbox_program p = {
        .kind = SANDBOX_MBPP, .completion = "def f(x): return x + 1", .tests = tests, .n_tests = 1
    };
    sandbox_verdict v;
    double began = clock_seconds();
    if (sandbox_run(s, &p, &v) != PESC_OK || !v.passed || !v.reference)
        fprintf(stderr, "sandbox: %s%s\n", pesc_last_error(), v.reason);
    return clock_seconds() - began;
}

static void print_line(const char *time, double with, double without)
{
    printf(
        "  %-4s %6.1f ms a program, %6.1f ms of them for %d starts of Python: overhead %.1f ms\n",
        time, with, without, PROCESSES, with - without);
}

static void time_mode(sandbox_mode mode, int n)
{
    static double with[MAX_RUNS], without[MAX_RUNS];
    sandbox *s;
    if (sandbox_open(&s, &(sandbox_options){ .mode = mode }) != PESC_OK) {
        printf("%s\n", pesc_last_error());
        return;
    }
    double cpu[2] = { 0 };
    for (int i = 0; i < n; i++) {
        without[i] = 0;
        cpu[0] -= cpu_seconds();
        for (int k = 0; k < PROCESSES; k++)
            without[i] += time_python();
        cpu[0] += cpu_seconds();
        cpu[1] -= cpu_seconds();
        with[i] = time_program(s);
        cpu[1] += cpu_seconds();
    }
    printf("%s\n", sandbox_describe(s));
    print_line("wall", 1e3 * median(with, n), 1e3 * median(without, n));
    print_line("CPU", 1e3 * cpu[1] / n, 1e3 * cpu[0] / n);
    sandbox_close(s);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 100;
    n = n < 1 ? 1 : n > MAX_RUNS ? MAX_RUNS : n;
    time_mode(SANDBOX_NAMESPACES, n);
    time_mode(SANDBOX_LANDLOCK, n);
    return 0;
}
