/* stage: processes that run at the same time, from their start to their end.
 *
 * A stage has one process that judges (started first) and may have a second one that it talks to.
 * It ends when the first has ended; the second is then killed. stage_close() leaves no process, no
 * descriptor and no file. */
#ifndef PESC_SANDBOX_STAGE_H
#define PESC_SANDBOX_STAGE_H

#include "sandbox/box.h"
#include "base/str.h"

typedef enum stage_verdict { STAGE_FAIL, STAGE_PASS } stage_verdict;

typedef struct stage_box {
    pid_t pid; /* 0: not started, or reaped */
    int pidfd;
    bool ended; /* by itself or by a limit of the kernel, not because we killed it */
    int status; /* as of waitpid(), once it has been reaped */
    double cpu_seconds;
    char tmp[32]; /* mode B: its directory; "": none */
} stage_box;

typedef struct stage {
    double wall_seconds; /* set by the caller; the rest by the functions */
    const box_spec *base;
    stage_box boxes[2];
    int n;
    int result[2], calls[2], answers[2]; /* pipes: read end, write end; -1: closed */
    double seconds;                      /* of wall time, without those that had no core */
    stage_verdict verdict;
    bool converted, timed_out, cpu_limit;
    bool starved; /* the machine was so busy that the wall limit says nothing about the program */
    char reason[SANDBOX_REASON];
} stage;

/* Makes the pipe for the result. After a failure too the stage must be closed. */
pesc_status stage_open(stage *t, const box_spec *base);
pesc_status stage_connect(stage *t); /* the pipes between two processes */

/* Starts a process in a role of the driver. Where the base has no driver yet, the job is its source
 * and the process answers with its bytecode. */
pesc_status stage_start(stage *t, const char *role, const str *job);

/* Waits for the end; false when it was the wall limit. `reason` then says what happened. */
bool stage_wait(stage *t);
size_t stage_read(const stage *t, char *to, size_t cap); /* what the first process wrote */

/* Waits and reads a verdict: fills in verdict, converted, timed_out, cpu_limit, reason. */
void stage_judge(stage *t);
void stage_close(stage *t);

/* A file in memory that cannot be changed. */
pesc_status stage_file(const char *bytes, size_t n, int *out);

#endif
