/* sandbox: verdicts and their reasons, and what must hold of the host: no descriptor, process or
 * memory is lost, however a program ends. tests/faults/run_sandbox.py has the attempts to leave it.
 */
#include "sandbox/sandbox.h"
#include "base/clock.h"
#include "base/mem.h"
#include "support/check.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static sandbox *box; /* NULL: this system allows none */
static int stray;    /* signals to other processes than those of a sandbox, which are not sent */

int kill(pid_t pid, int signal) /* in place of the C library's */
{
    if (pid != 0 && pid != 1 && pid != -1)
        return (int)syscall(SYS_kill, pid, signal);
    stray++;
    return 0;
}

static int open_box(void **state)
{
    (void)state;
    if (sandbox_open(&box, &(sandbox_options){ .cpu_seconds = 1, .wall_seconds = 5 }) != PESC_OK)
        print_message("SKIPPED: %s\n", pesc_last_error());
    return 0;
}

static int close_box(void **state)
{
    (void)state;
    sandbox_close(box);
    return 0;
}

static sandbox_verdict judge_mbpp(const char *completion, const char *test)
{
    const char *tests[] = { test };
    sandbox_program p = { SANDBOX_MBPP, completion, .tests = tests, .n_tests = 1 };
    sandbox_verdict v;
    must(sandbox_run(box, &p, &v));
    return v;
}

static sandbox_verdict judge_humaneval(const char *prompt, const char *completion, const char *test)
{
    sandbox_program p = { SANDBOX_HUMANEVAL, completion, prompt, test, "f", .n_tests = 0 };
    sandbox_verdict v;
    must(sandbox_run(box, &p, &v));
    return v;
}

/* ---- verdicts ---- */

typedef struct verdict_case {
    const char *completion, *test;
    bool passed, reference, not_literal;
    const char *reason; /* a part of it */
} verdict_case;

static const verdict_case cases[] = {
    { "def f(x): return x + 1", "assert f(1) == 2", true, true, false, "" },
    { "def f(x): return x", "assert f(1) == 2", false, false, false,
      "this test failed: assert f(1) == 2" },
    { "def f(x) return x", "assert f(1) == 2", false, false, false, "SyntaxError" },
    { "def f(x): return 1 / 0", "assert f(1) == 2", false, false, false, "ZeroDivisionError" },
    { "def g(x): return 2", "assert f(1) == 2", false, false, false, "name 'f' is not defined" },
    { "import os\nos._exit(0)", "assert f(1) == 2", false, false, false, "ended without a result" },
    /* values of every literal type, there and back */
    { "def f(*a): return a",
      "x = (None, True, -1, 2.5, -float('inf'), 'a\\n\\0\\u20ac', b'\\xff', 1-2j)\n"
      "assert f(*x) == x",
      true, true, false, "" },
    { "def f(*a): return list(a)", "x = [(), (1,), [[]], {}, {'a': {1}}, set()]\nassert f(*x) == x",
      true, true, false, "" },
    { "def f(**a): return a", "assert f(x=1, y=[2]) == {'x': 1, 'y': [2]}", true, true, false, "" },
    { "def f(n): return 10 ** n", "assert f(9000) == 10 ** 9000", true, true, false, "" },
    /* values of derived types become those of their base */
    { "from collections import Counter\ndef f(x): return Counter(x)",
      "assert f('aab') == {'a': 2, 'b': 1}", true, true, true, "" },
    { "def f(x): return frozenset(x)", "assert f([1]) == {1}", true, true, true, "" },
    /* others are refused, although the reference compares them */
    { "def f(x): return range(x)", "assert f(3) == range(3)", false, true, true,
      "type range is not a literal" },
    { "def f(x): return float('nan')", "assert f(1) != 1", false, true, true, "not a literal" },
    { "def f(g): return g(1)", "assert f(lambda x: x) == 1", false, true, true,
      "argument of type function" },
    /* an exception reaches the test */
    { "def f(x): raise ValueError('no')",
      "try:\n    f(1)\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'", true,
      true, false, "" },
    /* a built-in name that the solution defines again is the function under test if it is the only
     * one; otherwise it keeps its meaning */
    { "def sum(a, b): return a * b", "assert sum(3, 4) == 12", true, true, false, "" },
    { "def f(x): return 'b'\ndef set(x): return 0", "assert set(f(1)) == set('a')", false, true,
      false, "this test failed" },
};

static void judges_mbpp(void **state)
{
    (void)state;
    if (!box)
        skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const verdict_case *c = &cases[i];
        sandbox_verdict v = judge_mbpp(c->completion, c->test);
        if (v.passed != c->passed || v.reference != c->reference ||
            v.not_literal != c->not_literal || !strstr(v.reason, c->reason) || v.timed_out ||
            v.passed != !v.reason[0])
            fail_msg("%s: passed %d, reference %d, not literal %d, \"%s\"", c->completion, v.passed,
                     v.reference, v.not_literal, v.reason);
    }
}

/* The variables of set-up code are arguments of calls; the reference leaves them undefined. */
static void runs_setup_code(void **state)
{
    (void)state;
    if (!box)
        skip();
    static const struct {
        const char *completion, *test;
        bool passed;
        const char *reason;
    } with[] = {
        { "class Box:\n  def __init__(self, n): self.n = n\ndef set(x): return 0\n"
          "def f(b, more): return b.n + len(more)",
          "assert f(a, set()) == 3 and f(b, {1}) == 5", true, "" },
        { "class Box:\n  def __init__(self, n): self.n = n\ndef f(b, more): return 3",
          "assert f(a, set()) == 3 and f(b, {1}) == 5", false, "this test failed" },
        { "def f(b, more): return 3", "assert f(a, set()) == 3", false,
          "name 'Box' is not defined" },
        { "class Box:\n  def __init__(self, n): pass\n  def __eq__(self, x): return True\n"
          "def f(b, more): return b",
          "assert f(a, 1) == 3", false, "not a literal" },
    };
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        sandbox_program p = { SANDBOX_MBPP, with[i].completion, .tests = &with[i].test,
                              .n_tests = 1, .setup = "a = Box(3) \r\nb = Box(1) \r\nb.n = 4" };
        sandbox_verdict v;
        must(sandbox_run(box, &p, &v));
        if (v.passed != with[i].passed || v.reference || !strstr(v.reason, with[i].reason))
            fail_msg("case %zu: passed %d, reference %d, \"%s\"", i, v.passed, v.reference,
                     v.reason);
    }
}

static void judges_humaneval(void **state)
{
    (void)state;
    if (!box)
        skip();
    const char *prompt = "import math\ndef helper(x):\n    return x + 1\n"
                         "def f(x):\n    \"\"\"helper(x)\"\"\"\n";
    /* the tests use what the prompt defines, and the function by its name too */
    const char *test = "def check(candidate):\n    assert candidate(1) == helper(1)\n"
                       "    assert f(math.floor(2.5)) == 3\n";
    sandbox_verdict v = judge_humaneval(prompt, "    return helper(x)\n", test);
    assert_true(v.passed && v.reference);
    v = judge_humaneval(prompt, "    return x\n", test);
    assert_true(!v.passed && !v.reference);
    assert_non_null(strstr(v.reason, "assert candidate(1) == helper(1)"));
    /* a helper that the completion defines again is not the one that the tests use */
    v = judge_humaneval(prompt, "    return -1\ndef helper(x):\n    return -1\n", test);
    assert_false(v.passed);
}

static void takes_an_empty_solution(void **state)
{
    (void)state;
    if (!box)
        skip();
    sandbox_verdict v = judge_mbpp(NULL, "assert f(1) == 2");
    assert_true(!v.passed && !v.reference);
    assert_non_null(strstr(v.reason, "name 'f' is not defined"));
}

static void makes_reasons_visible(void **state)
{
    (void)state;
    if (!box)
        skip();
    sandbox_verdict v =
        judge_mbpp("def f(x): raise ValueError('\\x1b[2J\\n' + 'a' * 10000)", "assert f(1) == 2");
    assert_null(strchr(v.reason, '\x1b'));
    assert_null(strchr(v.reason, '\n'));
    assert_non_null(strstr(v.reason, "aaa"));
}

static void is_deterministic(void **state)
{
    (void)state;
    if (!box)
        skip();
    const char *program =
        "import random\ndef f(x): return [list({'a', 'b', 'c'}), random.random(), 4]";
    char first[SANDBOX_REASON];
    for (int i = 0; i < 3; i++) {
        sandbox_verdict v = judge_mbpp(program, "raise ValueError(str(f(1)))");
        if (i)
            assert_string_equal(v.reason, first);
        memcpy(first, v.reason, sizeof first);
    }
}

/* ---- limits ---- */

static void ends_programs_at_the_limits(void **state)
{
    (void)state;
    if (!box)
        skip();
    sandbox_verdict v = judge_mbpp("def f(x):\n  while True: pass", "assert f(1) == 2");
    assert_true(!v.passed && !v.reference);
    if (!v.timed_out) { /* a busy machine */
        assert_true(v.cpu_limit);
        assert_non_null(strstr(v.reason, "the program used more than 1 s of CPU time"));
    }
    v = judge_mbpp("def f(x): return len(bytearray(4 << 30))", "assert f(1) == 2");
    assert_non_null(strstr(v.reason, "MemoryError"));
}

/* Wall time counts, whatever a program does. With limits of 1 s of CPU time and 2 s of wall time
 * the solution has 2 s, and the plain program another 2 s. */
static void ends_programs_that_wait(void **state)
{
    (void)state;
    static const char *const programs[] = {
        "import time\ndef f(x): time.sleep(100)",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef f(x):\n"
        "  while True: signal.pause()",
        "import time\ndef f(x):\n  while True:\n    end = time.monotonic() + 0.02\n"
        "    while time.monotonic() < end: pass\n    time.sleep(0.2)",
        "import threading\ndef f(x): threading.Event().wait()",
        "import os\ndef f(x):\n  r, w = os.pipe()\n  os.read(r, 1)",
        "import os, time\nfor i in range(3, 20):\n  try: os.close(i)\n  except OSError: pass\n"
        "time.sleep(100)",
    };
    if (!box)
        skip();
    sandbox *s, *shared = box;
    must(sandbox_open(&s, &(sandbox_options){ .cpu_seconds = 1, .wall_seconds = 2 }));
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        box = s;
        double began = clock_seconds();
        sandbox_verdict v = judge_mbpp(programs[i], "assert f(1) == 2");
        double taken = clock_seconds() - began;
        box = shared;
        assert_true(!v.passed && !v.reference);
        if (i < 5 && (!v.timed_out || !strstr(v.reason, "longer than 2 s")))
            fail_msg("program %zu: %s", i, v.reason);
        if (taken > 9) /* twice the limits on a quiet machine */
            fail_msg("program %zu: %.1f s", i, taken);
    }
    sandbox_close(s);
}

/* ---- the host ---- */

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void loses_no_descriptor(void **state)
{
    (void)state;
    int before = count_fds();
    sandbox *s;
    if (sandbox_open(&s, NULL) == PESC_OK)
        sandbox_close(s);
    assert_int_equal(count_fds(), before);
    if (!box)
        skip();
    judge_mbpp("def f(x): return 2", "assert f(1) == 2");
    judge_mbpp("import os\nos._exit(1)", "assert f(1) == 2");
    assert_int_equal(count_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1); /* no child is left */
}

static void bears_want_of_memory(void **state)
{
    (void)state;
    if (!box)
        skip();
    const char *tests[] = { "assert f(1) == 2" };
    sandbox_program p = { SANDBOX_MBPP, "def f(x): return 2", .tests = tests, .n_tests = 1 };
    int before = count_fds();
    for (uint64_t n = 1;; n++) {
        sandbox_verdict v;
        mem_fail_at(n);
        pesc_status st = sandbox_run(box, &p, &v);
        bool fired = mem_fail_fired();
        mem_fail_at(0);
        assert_int_equal(count_fds(), before);
        if (!fired)
            break;
        assert_int_equal(st, PESC_NOMEM);
    }
}

/* A program that ignores SIGCHLD, blocks signals and has no standard input. */
static void works_in_an_unusual_process(void **state)
{
    (void)state;
    if (!box)
        skip();
    signal(SIGCHLD, SIG_IGN);
    int in = dup(0);
    close(0);
    sandbox_verdict v = judge_mbpp("def f(x): return 2", "assert f(1) == 2");
    dup2(in, 0);
    close(in);
    signal(SIGCHLD, SIG_DFL);
    assert_true(v.passed && v.reference);
}

static void *judge_some(void *arg)
{
    int *bad = arg;
    for (int i = 0; i < 4; i++) {
        char test[64];
        snprintf(test, sizeof test, "assert f(%d) == %d", i, i + 1);
        sandbox_verdict right = judge_mbpp("def f(x): return x + 1", test);
        sandbox_verdict wrong = judge_mbpp("def f(x): return x", test);
        *bad += !right.passed || !right.reference || wrong.passed || wrong.reference;
    }
    return NULL;
}

static void runs_programs_at_the_same_time(void **state)
{
    (void)state;
    if (!box)
        skip();
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    int bad[THREADS] = { 0 };
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, judge_some, &bad[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(bad[i], 0);
    }
}

/* The processes whose parent is this one, at most `cap`. */
static int children_of(pid_t parent, pid_t *out, int cap)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    if (!fgets(line, sizeof line, f))
        line[0] = '\0';
    fclose(f);
    int n = 0;
    for (char *p = strtok(line, " "); p && n < cap; p = strtok(NULL, " "))
        out[n++] = (pid_t)strtol(p, NULL, 10);
    return n;
}

static void leaves_no_process_when_killed(void **state)
{
    (void)state;
    if (!box)
        skip();
    pid_t host = fork();
    assert_true(host >= 0);
    if (host == 0) {
        judge_mbpp("import time\ndef f(x): time.sleep(100)", "assert f(1) == 2");
        _exit(0);
    }
    pid_t pids[4];
    int n = 0;
    double until = clock_seconds() + 4;
    while (n < 2 && clock_seconds() < until)
        n = children_of(host, pids, 4);
    usleep(700000); /* until the program sleeps */
    n = children_of(host, pids, 4);
    kill(host, SIGKILL);
    waitpid(host, NULL, 0);
    if (n < 2)
        skip(); /* the kernel does not list children */
    until = clock_seconds() + 10;
    for (int i = 0; i < n; i++)
        while (kill(pids[i], 0) == 0)
            assert_true(clock_seconds() < until);
}

/* A process that could not be created, as where a container limits their number, is not killed. */
static void bears_want_of_processes(void **state)
{
    (void)state;
    static const sandbox_mode modes[] = { SANDBOX_AUTO, SANDBOX_NAMESPACES, SANDBOX_NONE };
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NPROC, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NPROC, &none), 0);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        sandbox *s;
        if (sandbox_open(&s, &(sandbox_options){ .mode = modes[i], .unsafe = true }) == PESC_OK)
            sandbox_close(s);
    }
    assert_int_equal(setrlimit(RLIMIT_NPROC, &before), 0);
    assert_int_equal(stray, 0);
}

static void refuses_without_permission(void **state)
{
    (void)state;
    sandbox *s;
    must_fail(sandbox_open(&s, &(sandbox_options){ .mode = SANDBOX_NONE }), PESC_DEVICE,
              "--unsafe-code");
    assert_null(s);
    must(sandbox_open(&s, &(sandbox_options){ .mode = SANDBOX_NONE, .unsafe = true }));
    assert_int_equal(sandbox_mode_of(s), SANDBOX_NONE);
    assert_non_null(strstr(sandbox_describe(s), "unsafe"));
    sandbox_close(s);
    sandbox_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_mbpp),
        cmocka_unit_test(runs_setup_code),
        cmocka_unit_test(judges_humaneval),
        cmocka_unit_test(takes_an_empty_solution),
        cmocka_unit_test(makes_reasons_visible),
        cmocka_unit_test(is_deterministic),
        cmocka_unit_test(ends_programs_at_the_limits),
        cmocka_unit_test(ends_programs_that_wait),
        cmocka_unit_test(loses_no_descriptor),
        cmocka_unit_test(bears_want_of_memory),
        cmocka_unit_test(works_in_an_unusual_process),
        cmocka_unit_test(runs_programs_at_the_same_time),
        cmocka_unit_test(leaves_no_process_when_killed),
        cmocka_unit_test(bears_want_of_processes),
        cmocka_unit_test(refuses_without_permission),
    };
    return cmocka_run_group_tests_name("sandbox", tests, open_box, close_box);
}
