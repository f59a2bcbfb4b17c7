/* See sandbox.h. This file turns a program into jobs of the driver, starts and supervises the
 * processes, and makes a verdict of what they said. */
#include "sandbox/sandbox.h"
#include "sandbox/box.h"
#include "sandbox/driver.h"
#include "sandbox/stage.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_BYTECODE = 32 << 10 };

struct sandbox {
    box_spec base; /* of every process */
    double wall_seconds;
    pthread_rwlock_t alone; /* written by a program that must run with no other */
    char about[160];
};

/* ---- opening ---- */

static const char *const mode_texts[] = {
    [SANDBOX_NAMESPACES] = "namespaces, seccomp and resource limits",
    [SANDBOX_LANDLOCK] = "Landlock, seccomp and resource limits, without namespaces",
    [SANDBOX_NONE] = "resource limits only (unsafe)",
};
static const char *const mode_names[] = {
    [SANDBOX_NAMESPACES] = "A", [SANDBOX_LANDLOCK] = "B", [SANDBOX_NONE] = "none"
};

/* Compiles the driver in the mode of s->base, which shows that the mode works. The bytecode spares
 * every later process the compilation. */
/* The bytecode that the process wrote, after its length: a pipe may hold less than all of it, where
 * the user has many. */
static pesc_status keep_driver(sandbox *s, const unsigned char *code, size_t n)
{
    size_t all = 0;
    for (int i = 3; i >= 0 && n >= 4; i--)
        all = all << 8 | code[i];
    if (n < 4 || n - 4 != all)
        return fail(PESC_DEVICE,
                    "a pipe holds %zu of the %zu bytes of its driver; close other pipes of this "
                    "user, or raise fs.pipe-user-pages-soft",
                    n, all + 4);
    return stage_file((const char *)code + 4, all, &s->base.driver);
}

static pesc_status compile_driver(sandbox *s)
{
    if (s->base.mode == SANDBOX_LANDLOCK && !s->base.landlock)
        return fail(PESC_DEVICE, "the kernel has no Landlock");
    unsigned char *code = mem_alloc(MAX_BYTECODE, 1);
    if (!code)
        return fail_nomem("compiling the driver", MAX_BYTECODE);
    str source = { .p = (char *)driver_source, .n = strlen(driver_source) };
    stage t = { .wall_seconds = 30 };
    pesc_status st = stage_open(&t, &s->base);
    if (st == PESC_OK)
        st = stage_start(&t, "", &source);
    if (st == PESC_OK) {
        stage_wait(&t);
        size_t n = stage_read(&t, (char *)code, MAX_BYTECODE);
        st = n ? keep_driver(s, code, n)
               : fail(PESC_DEVICE, "%s does not start in it: %s", box_python, t.reason);
    }
    stage_close(&t);
    mem_free(code);
    return st;
}

/* The first mode that works; `why` collects the reasons of those that do not. */
static pesc_status choose_mode(sandbox *s, const sandbox_options *opt)
{
    char why[2][200] = { "", "" };
    for (int m = SANDBOX_NAMESPACES; m <= SANDBOX_NONE; m++) {
        if (opt->mode != SANDBOX_AUTO && (int)opt->mode != m)
            continue;
        if (m == SANDBOX_NONE && !opt->unsafe)
            break;
        s->base.mode = (sandbox_mode)m;
        if (compile_driver(s) == PESC_OK) {
            status_clear();
            return PESC_OK;
        }
        if (m == SANDBOX_NONE)
            return PESC_DEVICE;
        snprintf(why[m - 1], sizeof why[m - 1], " Mode %s: %s.", mode_names[m], pesc_last_error());
    }
    return fail(
        PESC_DEVICE,
        "programs that a model wrote are not run, because this system allows no sandbox.%s%s "
        "--unsafe-code runs them without one",
        why[0], why[1]);
}

static pesc_status open_fds(sandbox *s)
{
    s->base.host = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (s->base.host < 0)
        return fail_errno(PESC_DEVICE, errno, "opening a descriptor of this process");
    s->base.null = openat(AT_FDCWD, "/dev/null", O_RDWR | O_CLOEXEC);
    if (s->base.null < 0)
        return fail_errno(PESC_DEVICE, errno, "opening /dev/null");
    return PESC_OK;
}

static pesc_status set_up(sandbox *s, const sandbox_options *opt)
{
    s->base.cpu_seconds = opt->cpu_seconds ? opt->cpu_seconds : 3;
    s->base.memory_bytes = opt->memory_bytes ? opt->memory_bytes : (size_t)2 << 30;
    s->wall_seconds = opt->wall_seconds > 0 ? opt->wall_seconds : 3 * s->base.cpu_seconds + 1;
    s->base.landlock = box_landlock_abi();
    if (io_kind_of(box_python) != IO_FILE)
        return fail(PESC_DEVICE, "%s: the code tasks need the system's Python; install python3",
                    box_python);
    TRY(open_fds(s));
    TRY(choose_mode(s, opt));
    snprintf(s->about, sizeof s->about, "mode %s: %s; %d s of CPU time", mode_names[s->base.mode],
             mode_texts[s->base.mode], (int)s->base.cpu_seconds);
    return PESC_OK;
}

pesc_status sandbox_open(sandbox **out, const sandbox_options *opt)
{
    *out = NULL;
    sandbox_options defaults = { 0 };
    sandbox *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return fail_nomem("opening the sandbox", sizeof *s);
    s->base.host = s->base.null = s->base.driver = -1;
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->alone, &attr);
    pthread_rwlockattr_destroy(&attr);
    pesc_status st = set_up(s, opt ? opt : &defaults);
    if (st == PESC_OK)
        *out = s;
    else
        sandbox_close(s);
    return st;
}

void sandbox_close(sandbox *s)
{
    if (!s)
        return;
    const int fds[] = { s->base.host, s->base.null, s->base.driver };
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pthread_rwlock_destroy(&s->alone);
    mem_free(s);
}

sandbox_mode sandbox_mode_of(const sandbox *s)
{
    return s->base.mode;
}

const char *sandbox_describe(const sandbox *s)
{
    return s->about;
}

/* ---- jobs ---- */

static void add_section(str *job, const char *text, size_t n)
{
    str_printf(job, "%zu\n", n);
    str_add(job, text, n);
}

static void add_tests(str *to, const sandbox_program *p)
{
    if (p->kind == SANDBOX_HUMANEVAL)
        str_printf(to, "%s\ncheck(%s)", p->test, p->entry_point);
    for (size_t i = 0; p->kind == SANDBOX_MBPP && i < p->n_tests; i++)
        str_printf(to, "%s%s", i ? "\n" : "", p->tests[i]);
}

static void add_solution(str *to, const sandbox_program *p)
{
    if (p->kind == SANDBOX_HUMANEVAL)
        str_puts(to, p->prompt);
    str_puts(to, p->completion);
}

/* The three jobs of a program. */
typedef struct jobs {
    str solution, judge, plain;
} jobs;

static pesc_status make_jobs(jobs *j, const sandbox_program *p)
{
    bool human = p->kind == SANDBOX_HUMANEVAL;
    str solution = { 0 }, tests = { 0 }, whole = { 0 };
    add_solution(&solution, p);
    if (*p->setup)
        str_printf(&solution, "\n%s", p->setup);
    add_tests(&tests, p);
    add_solution(&whole, p);
    str_putc(&whole, '\n');
    if (str_ok(&tests) && tests.n)
        str_add(&whole, tests.p, tests.n);
    bool ok = str_ok(&solution) && str_ok(&tests) && str_ok(&whole);
    if (ok) {
        add_section(&j->solution, solution.p ? solution.p : "", solution.n);
        add_section(&j->plain, whole.p, whole.n);
        add_section(&j->judge, human ? p->prompt : "", human ? strlen(p->prompt) : 0);
        add_section(&j->judge, tests.p ? tests.p : "", tests.n);
        add_section(&j->judge, human ? p->entry_point : "", human ? strlen(p->entry_point) : 0);
        add_section(&j->judge, p->setup, strlen(p->setup));
        ok = str_ok(&j->solution) && str_ok(&j->judge) && str_ok(&j->plain);
    }
    str_free(&solution);
    str_free(&tests);
    str_free(&whole);
    return ok ? PESC_OK : fail_nomem("running a program", strlen(p->completion));
}

/* ---- judging ---- */

/* What the stages of a program took. */
typedef struct spending {
    double seconds;
    bool starved;
} spending;

static void note_limits(const stage *t, sandbox_verdict *out, spending *spent)
{
    out->timed_out |= t->timed_out;
    out->cpu_limit |= t->cpu_limit;
    spent->starved |= t->timed_out && t->starved;
    spent->seconds += t->seconds;
}

static pesc_status judge_split(const sandbox *s, const jobs *j, sandbox_verdict *out,
                               spending *spent)
{
    stage t = { .wall_seconds = s->wall_seconds };
    pesc_status st = stage_open(&t, &s->base);
    if (st == PESC_OK)
        st = stage_connect(&t);
    if (st == PESC_OK)
        st = stage_start(&t, "judge", &j->judge);
    if (st == PESC_OK)
        st = stage_start(&t, "solution", &j->solution);
    if (st == PESC_OK) {
        stage_judge(&t);
        out->passed = t.verdict == STAGE_PASS;
        out->not_literal = t.converted;
        note_limits(&t, out, spent);
        if (!out->passed)
            utf8_visible(out->reason, sizeof out->reason, t.reason, strlen(t.reason));
    }
    stage_close(&t);
    return st;
}

/* A program that met the wall limit has no more of it here than it may compute. */
static pesc_status judge_plain(const sandbox *s, const jobs *j, sandbox_verdict *out,
                               spending *spent)
{
    const double computing = s->base.cpu_seconds + BOX_START_SECONDS;
    bool shorter = out->timed_out && computing < s->wall_seconds;
    stage t = { .wall_seconds = shorter ? computing : s->wall_seconds };
    pesc_status st = stage_open(&t, &s->base);
    if (st == PESC_OK)
        st = stage_start(&t, "plain", &j->plain);
    if (st == PESC_OK) {
        stage_judge(&t);
        out->reference = t.verdict == STAGE_PASS;
        note_limits(&t, out, spent);
    }
    stage_close(&t);
    return st;
}

/* The plain program, which can see the tests, runs after the solution, so that the solution cannot
 * learn of them from it. */
static pesc_status judge_jobs(const sandbox *s, const jobs *j, sandbox_verdict *out,
                              spending *spent)
{
    *out = (sandbox_verdict){ 0 };
    *spent = (spending){ 0 };
    TRY(judge_split(s, j, out, spent));
    return judge_plain(s, j, out, spent);
}

/* A program that met the limit of CPU time may have been slowed down by others, which share the
 * cores or even one core with it, and so may one that had no core: it gets a second try with no
 * other program of this sandbox. One that slept gets none. */
pesc_status sandbox_run(sandbox *s, const sandbox_program *p, sandbox_verdict *out)
{
    jobs j = { 0 };
    spending spent = { 0 };
    sandbox_program whole = *p;
    const char **texts[] = { &whole.completion, &whole.prompt, &whole.test, &whole.entry_point,
                             &whole.setup };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!*texts[i])
            *texts[i] = "";
    pesc_status st = make_jobs(&j, &whole);
    if (st == PESC_OK) {
        pthread_rwlock_rdlock(&s->alone);
        st = judge_jobs(s, &j, out, &spent);
        pthread_rwlock_unlock(&s->alone);
    }
    bool slowed = spent.starved || (out->cpu_limit && spent.seconds <= s->wall_seconds);
    if (st == PESC_OK && slowed) {
        pthread_rwlock_wrlock(&s->alone);
        st = judge_jobs(s, &j, out, &spent);
        pthread_rwlock_unlock(&s->alone);
    }
    str_free(&j.solution);
    str_free(&j.judge);
    str_free(&j.plain);
    return st;
}
