/* scheduler_state: the inside of a scheduler, which its files share: scheduler.c runs forwards,
 * admission.c decides what is in them, results.c chooses tokens and tells requests,
 * batchinvariant.c gives forwards all the same number of rows where that is asked for, details.c
 * reports log-probabilities. */
#ifndef PESC_INFER_SCHEDULER_STATE_H
#define PESC_INFER_SCHEDULER_STATE_H

#include "infer/rowscores.h"
#include "infer/job.h"
#include "infer/prefix.h"
#include "infer/sampling.h"

/* A sequence of a forward, and what came of it. */
typedef struct placed {
    job *j; /* NULL: it needs to know nothing */
    int32_t slot;
    size_t first, n; /* scores of its rows */
    int32_t chosen;  /* the token that was generated; -1: none */
    size_t details;  /* of its rows, in `details` */
    bool complete;   /* the request has all its tokens or scores: it has left its slot, and is freed
                        when its results are delivered */
} placed;

/* The sequences of a forward and their results, until these are delivered. */
typedef struct results {
    placed *placed; /* [n_slots] */
    int32_t n;
    row_scores scores; /* the owner is a job */
    /* what requests with `row` want to know of rows: the token, then the most likely ones */
    row_scores details;
} results;

struct scheduler {
    pesc_model *m; /* borrowed */
    int32_t n_slots, context, max_tokens, max_out;
    int32_t same_rows;    /* of every forward; 0: as many as there are tokens (batchinvariant.h) */
    int32_t *filling;     /* [same_rows]: filling tokens, which slot n_slots has */
    int32_t prompt_limit; /* of tokens beside those that continue a generation; -1: none */
    kvcache *kv;
    prefix_cache *prefixes;
    pass *pass;
    routes *routes; /* NULL until a request wants them */
    int32_t routes_every;
    sampling *sampling;  /* NULL until a request needs it */
    sampling_row *draws; /* [n_slots]: tokens that it draws after a forward */
    float *logits;       /* [V]: a row; NULL until a request needs it */
    job_queue queue;
    job **slots;    /* [n_slots]: what a slot runs, or NULL */
    int32_t *order; /* [n_running]: slots, the longest running first */
    int32_t *share; /* [n_running]: of the limit of tokens */
    int32_t n_running;
    int32_t *pages;  /* [max_pages]: those of the prefix that was found last */
    bool cancelled;  /* a request may be */
    bool over;       /* the same of job.over */
    bool overlap;    /* see scheduler_options */
    results pending; /* of the forward before; without `overlap` none is left after a step */
    uint64_t tickets;
    scheduler_counters count;
    /* the next forward */
    token_seq *seqs; /* [n_slots + 1], the last for filling tokens */
    int32_t *rows;   /* [max_out] */
    int32_t n_tokens, n_rows;
    bool routed; /* it tells its routes */
    results now;
    tensor head;       /* logits [n_rows, V] of the forward, on the device */
    sched_choice *top; /* [cap_top]: of a row */
    size_t cap_top;
};

static inline int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static inline int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* A row of logits of the last forward into s->logits. */
pesc_status scheduler_download_row(scheduler *s, int32_t row);

/* Asks for the log-probability of the token and of the most likely ones in a row of the last
 * forward (details.c). */
pesc_status scheduler_ask_details(scheduler *s, const job *j, int32_t row, int32_t token);
/* Passes details[at...] to the callback of the request; returns how many they were in *n. */
pesc_status scheduler_deliver_details(scheduler *s, job *j, size_t at, size_t *n);

/* Frees the slot; its tokens stay cached. The request is the caller's. */
job *scheduler_leave_slot(scheduler *s, int32_t slot);
/* Tokens of the slot that fill pages go into the prefix cache. */
void scheduler_cache_prefix(scheduler *s, int32_t slot);
/* How many of its first tokens a request may share with others, see rope_shareable(). */
int32_t scheduler_shareable(const scheduler *s, const job *j);

/* After a forward: chooses the next tokens and makes the results pending. */
pesc_status scheduler_take_results(scheduler *s);
/* Calls the callbacks for the pending results. */
pesc_status scheduler_deliver(scheduler *s);
/* Calls `done` of the request and of those joined to it. */
pesc_status scheduler_deliver_end(scheduler *s, const job *j, sched_finish finish);

/* Gives free slots to waiting requests. */
pesc_status scheduler_admit(scheduler *s);

/* Divides the limit of tokens among the running requests, in the order of s->order, into s->share.
 */
void scheduler_share(scheduler *s);

/* Whether the request at place i of s->order has a prompt that is fed but for its last token, and
 * generates. */
bool scheduler_generates(const scheduler *s, int32_t i);

#endif
