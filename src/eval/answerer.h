/* answerer: who answers the documents of an evaluation: a model that is open here
 * (modelanswers.h), or a server (serveranswers.h).
 *
 * taskrun.c builds the documents, and hands each one that is not judged yet to keep(). answer()
 * then sees to all of them, and hands each back with taskrun_answered() as soon as it is complete,
 * so that it is judged and written while others wait. */
#ifndef PESC_EVAL_ANSWERER_H
#define PESC_EVAL_ANSWERER_H

#include "eval/program.h"
#include "eval/taskrun.h"

typedef struct work work; /* of taskrun.c */

/* How likely a choice is. */
typedef struct choice_score {
    double logprob;
    bool greedy; /* each token of it is the most likely one */
} choice_score;

/* A document that is not judged yet. */
typedef struct pending {
    program code; /* of a task whose answers are programs; the first member, for its queue */
    work *w;
    samples *of;
    size_t doc;
    size_t n_left;        /* requests that are not answered; the answerer sets it */
    choice_score *scores; /* [n] of choices; NULL: a text, whose forms are: */
    size_t n;
    str forms[2];     /* text and reference (stoptext.h) */
    json_t *verdicts; /* of a model that judges; NULL: none was asked */
} pending;

typedef struct answerer {
    void *own;
    peers *peers; /* each process answers every size-th document; NULL: one process */
    /* Before anything is computed: refuses what cannot be answered, and sets run->model and
     * run->chat. */
    pesc_status (*begin)(void *own, const task_set *set, taskrun *run);
    /* Changes a document as it was built to what is asked. */
    pesc_status (*prepare)(void *own, task_doc *d);
    /* Takes p, also when it fails. d is gone afterwards. */
    pesc_status (*keep)(void *own, pending *p, const task_doc *d);
    pesc_status (*answer)(void *own, work *w, taskrun *run);
    void (*close)(void *own); /* with taskrun_drop() of what is not answered */
} answerer;

/* Room for the scores of a document of choices. */
pesc_status pending_choices(pending *p);
/* The document again, as prepare() left it: for task_doc_free(). */
pesc_status pending_document(const pending *p, task_doc *out);
/* A request of the document is answered, or was not for the reason s, which is returned. With the
 * last one it takes p, also when it fails, and judges it. */
pesc_status taskrun_answered(pending *p, pesc_status s);
void taskrun_drop(pending *p); /* NULL is allowed */
/* Judges the documents whose programs have run or whose verdicts are there; with `wait`, until none
 * is left. */
pesc_status taskrun_settle(work *w, bool wait);

#endif
