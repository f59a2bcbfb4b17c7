/* job: the inside of scheduler.h's requests, and the queue they wait in. */
#ifndef PESC_INFER_JOB_H
#define PESC_INFER_JOB_H

#include "infer/scheduler.h"

typedef struct job job;
struct job {
    sched_request r; /* its ids are not used after the copy */
    id_list ids;     /* the tokens of the request, then those generated */
    pesc_sample_options sample;
    bool on_device; /* generation: the most likely token is taken, as the device finds it */
    bool cancelled;
    bool over;                /* `done` was called; it leaves at the end of the step */
    bool started;             /* had a slot */
    int32_t prompt_delivered; /* generation with `first`: the first of the prompt that is not */
    uint64_t ticket;
    int32_t delivered; /* generated tokens */
    int32_t fed;       /* tokens in the timeline */
    int32_t cached;    /* full pages of it that were added to the prefix cache */
    double logprob;    /* of the rows so far */
    bool greedy;
    uint64_t placed_in; /* the number of the last forward that it is in */
    job *next;          /* in the queue */
    job *joined;        /* the next score that reads the same rows */
    /* While it waits for the prefix that a running request computes: */
    uint64_t wait_ticket;
    int32_t wait_slot, wait_until; /* until that slot has this many tokens */
    int32_t waits;                 /* how often it did */
};

pesc_status job_open(job **out, const sched_request *r, uint64_t ticket);
void job_free(job *j); /* with those joined to it; NULL is allowed */

/* Forgets what was computed; generated tokens stay and are fed again. */
void job_reset(job *j);

static inline bool job_is_score(const job *j)
{
    return j->r.max_tokens == 0;
}

/* Tokens that are to be fed in all. */
int32_t job_feed_end(const job *j);
/* The first token whose row meets the head; what is before it may come from the cache. */
int32_t job_first_row(const job *j);
/* Whether the row of token `at`, which is not before the first, is of use. */
bool job_wants_row(const job *j, int32_t at);
int32_t job_generated(const job *j);

typedef struct job_queue {
    job *first, **last; /* last: where the next one is linked; see job_queue_init() */
} job_queue;
void job_queue_init(job_queue *q);
void job_queue_add(job_queue *q, job *j);
void job_queue_add_first(job_queue *q, job *j);
/* Takes out the job that *at links, where at is &q->first or &j->next of a job before it. */
job *job_queue_take(job_queue *q, job **at);
/* See scheduler_sort(). */
pesc_status job_queue_sort(job_queue *q);
int32_t job_queue_count(const job_queue *q); /* joined ones count each */

#endif
