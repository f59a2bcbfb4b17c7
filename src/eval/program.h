/* program: a program that a model wrote, in both forms of the generated text (stoptext.h), judged
 * in the background.
 *
 * The text form is judged by our verdict, the reference form by the rule of the reference
 * (sandbox.h). Judging runs on threads of its own, so that it does not hold up the forwards of a
 * model. */
#ifndef PESC_EVAL_PROGRAM_H
#define PESC_EVAL_PROGRAM_H

#include "base/thread.h"
#include "sandbox/sandbox.h"
#include "eval/task.h"

/* To be filled by the caller up to `out`; everything is borrowed until the job is done. */
typedef struct program {
    thread_job job; /* the first member */
    sandbox *box;
    const json_t *row;   /* the document of humaneval or mbpp */
    const char *text[2]; /* the two forms */
    bool passed[2];      /* out */
    pesc_status status;  /* out: PESC_OK, or the sandbox itself failed, and why */
    char why[512];
} program;

/* Judges one program: the function of a thread_queue. */
void program_run(thread_job *job);

/* Threads that programs are judged on. */
pesc_status program_queue_open(thread_queue **out);

#endif
