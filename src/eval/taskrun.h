/* taskrun: one model on a set of tasks.
 *
 * All requests of all tasks go through one scheduler in the order of their tokens, so that what
 * they share is computed once. A document is judged as soon as its last request is answered;
 * programs are judged in the background, while the model goes on. With a directory, its samples are
 * on disk from then on (samples.h), and a run that was interrupted goes on from there; what is in
 * the directory of a run with another model, other options or other data is replaced. The files of
 * a finished run are the same bytes however often it was interrupted. */
#ifndef PESC_EVAL_TASKRUN_H
#define PESC_EVAL_TASKRUN_H

#include "eval/samples.h"
#include "sandbox/sandbox.h"
#include "eval/webclient.h"
#include "infer/scheduler.h"

typedef struct taskrun_options {
    const char *dir;          /* for results.json and samples_*.jsonl; NULL: nothing is written */
    const char *model;        /* how the model was opened: its name in results.json */
    task_options tasks;       /* as the set was opened */
    int32_t slots;            /* of the scheduler; 0: 64 */
    int32_t max_length;       /* tokens that the model is fed at most; 0: its context */
    bool chat;                /* prompts in the model's chat format (chatprompt.h) */
    bool samples;             /* their lines hold documents and requests too */
    sandbox_options code;     /* for tasks whose answers are programs */
    web_options server;       /* who answers instead of a model that is open; url NULL: none */
    const char *served_model; /* of the server; NULL: the one that it lists */
    web_options judge;        /* who scores answers of tasks with a rubric; url NULL: none does */
    const char *judge_model;  /* of the judge; NULL: the one that it lists */
} taskrun_options;

typedef struct taskrun {
    samples *tasks; /* [n], like the tasks of the set */
    size_t n;
    char sandbox[160];        /* what programs were run in; "": none was asked for */
    scheduler_counters count; /* 0 where everything was known already, and of a server */
    json_t *model, *chat;     /* who answers, and how prompts are written, in results.json */
} taskrun;

/* m has a tokenizer; for `chat`, PESC_UNSUPPORTED: and no chat format that is known. *out is for
 * taskrun_close(), also after a failure. */
pesc_status taskrun_evaluate(taskrun *out, pesc_model *m, const task_set *set,
                             const taskrun_options *opt);
/* The same of the model behind opt->server. */
pesc_status taskrun_evaluate_server(taskrun *out, const task_set *set, const taskrun_options *opt);
void taskrun_close(taskrun *r); /* also one that is all zeros */

/* The score of a group: the mean over the documents of its tasks, which have the same values. */
metric_score taskrun_group_score(const taskrun *r, const task_group *g, size_t value);

#endif
