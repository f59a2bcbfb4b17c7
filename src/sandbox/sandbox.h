/* sandbox: runs Python programs that a model wrote and says whether they pass their tests.
 *
 * A program is judged twice. The reference rule runs solution and tests as one program in one
 * process, as lm-evaluation-harness does: such a program can forge its result. Our verdict splits
 * them: the solution runs alone in one process and only answers calls; the tests and the expected
 * values are in a second process, which the first cannot reach and which accepts nothing but Python
 * literals as answers. Each process runs in a sandbox of its own. docs/sandbox.md describes what is
 * allowed in it and why.
 *
 * Only the system's Python, /usr/bin/python3, and its standard library are used. */
#ifndef PESC_SANDBOX_SANDBOX_H
#define PESC_SANDBOX_SANDBOX_H

#include "base/status.h"

typedef enum sandbox_mode {
    SANDBOX_AUTO,       /* in options: the first of the next two that works */
    SANDBOX_NAMESPACES, /* mode A: own user, mount, pid, net, ipc, uts and cgroup namespaces */
    SANDBOX_LANDLOCK,   /* mode B: for containers that forbid namespaces */
    SANDBOX_NONE        /* limits only; needs `unsafe` */
} sandbox_mode;

/* Zero-initialised options are the defaults. */
typedef struct sandbox_options {
    sandbox_mode mode;
    bool unsafe;         /* where neither A nor B works, run all the same instead of failing */
    int32_t cpu_seconds; /* of a program, besides 1 s for the start of Python; 0: 3 */
    double wall_seconds; /* without those that it had no core; 0: 3 * cpu_seconds + 1 */
    size_t memory_bytes; /* of address space; 0: 2 GiB */
} sandbox_options;

typedef enum sandbox_kind { SANDBOX_HUMANEVAL, SANDBOX_MBPP } sandbox_kind;

/* All texts are UTF-8; NULL is an empty one. */
typedef struct sandbox_program {
    sandbox_kind kind;
    const char *completion;   /* what the model wrote */
    const char *prompt;       /* HumanEval: trusted text that the completion continues */
    const char *test;         /* HumanEval: source that defines check(candidate) */
    const char *entry_point;  /* HumanEval: the function under test */
    const char *const *tests; /* MBPP: assert statements */
    size_t n_tests;
    const char *setup; /* MBPP: code that makes arguments of the tests with what the completion
                          defines. The reference rule leaves it out. */
} sandbox_program;

enum { SANDBOX_REASON = 256 };

typedef struct sandbox_verdict {
    bool passed;      /* our verdict */
    bool reference;   /* the verdict of the reference rule */
    bool not_literal; /* a value was not a plain literal: it was converted, or refused */
    bool timed_out;   /* the wall limit was met */
    bool
        cpu_limit; /* the limit of CPU time was met, twice: the second time with no other program */
    char reason[SANDBOX_REASON]; /* why `passed` is false, one sentence; "" when it is true */
} sandbox_verdict;

typedef struct sandbox sandbox;

/* Runs a trivial program in each mode that `opt` allows (NULL: the defaults) and keeps the first
 * that works. PESC_DEVICE says why none does, or that there is no Python. */
pesc_status sandbox_open(sandbox **out, const sandbox_options *opt);
void sandbox_close(sandbox *s); /* NULL is allowed; no program may be running */

sandbox_mode sandbox_mode_of(const sandbox *s);

/* What protects this machine, one sentence for the result file. Valid until sandbox_close(). */
const char *sandbox_describe(const sandbox *s);

/* Judges one program and returns when all its processes are gone. A program that fails is a
 * verdict, not a status; a status means that the sandbox itself failed. Several threads may call it
 * with the same sandbox: each call runs at most two processes at a time. */
pesc_status sandbox_run(sandbox *s, const sandbox_program *p, sandbox_verdict *out);

#endif
