/* scheduler_state: the inside of a scheduler, which its files share: scheduler.c runs forwards,
 * admission.c decides what is in them, results.c chooses tokens and tells requests,
 * batchinvariant.c gives forwards all the same number of rows where that is asked for, details.c
 * reports log-probabilities. */
#ifndef PESC_INFER_SCHEDULER_STATE_H
#define PESC_INFER_SCHEDULER_STATE_H

#include "infer/drafter.h"
#include "infer/prefix.h"
#include "infer/scheduler.h"
#include "model/forward.h"

/* ---- job.c: the inside of scheduler.h's requests, and the queue they wait in ---- */

typedef enum job_state {
    JOB_WAITS,     /* has had no slot */
    JOB_STARTED,   /* has a slot, or waits for one again */
    JOB_CANCELLED, /* leaves slot or queue with the step */
    JOB_OVER,      /* `done` was called; likewise */
} job_state;

typedef struct job job;
struct job {
    sched_request r; /* its ids are not used after the copy */
    id_list ids;     /* the tokens of the request, then those generated */
    pesc_sample_options sample;
    bool on_device; /* generation: the most likely token is taken, as the device finds it */
    job_state state;
    int32_t prompt_delivered; /* generation with `first`: the first of the prompt that is not */
    uint64_t ticket;
    int32_t delivered; /* generated tokens */
    int32_t fed;       /* tokens in the timeline */
    int32_t whole;     /* by this length they rotate, see rope_outgrown() */
    int32_t cached;    /* full pages of it that were added to the prefix cache */
    double logprob;    /* of the rows so far */
    bool greedy;
    uint64_t placed_in; /* the number of the last forward that it is in */
    guess_record guesses;
    job *next;   /* in the queue */
    job *joined; /* the next score that reads the same rows */
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

/* ---- rowscores.c ----
 *
 * Of rows of logits of a forward, the log-probability of a token and which token is the most
 * likely. The device computes both, so that no row of logits is downloaded. */

typedef struct row_score {
    int32_t row, token;
    float logprob; /* of the token */
    int32_t best;  /* the most likely one; ties: the lowest id */
    int32_t rank;  /* the caller's, like owner */
    void *owner;   /* the caller's */
} row_score;

typedef struct row_scores {
    device *dev; /* borrowed */
    row_score *all;
    size_t n, cap;
    int32_t chunk; /* rows on the device at a time */
    void *memory;
    tensor pairs, logprobs, best; /* [chunk,2], [chunk], [chunk] */
    int32_t *host; /* [chunk,2]: memory that the device can write to, for pairs, then results */
} row_scores;

pesc_status rowscores_open(row_scores *a, device *dev, int32_t chunk);
void rowscores_close(row_scores *a); /* also one that is all zeros */
pesc_status rowscores_add(row_scores *a, int32_t row, int32_t token, void *owner);
/* Fills in logprob and best of all from logits f32 [rows,V]. PESC_NUMERIC: one is not finite. */
pesc_status rowscores_compute(row_scores *a, tensor logits);
/* The same in two parts: rowscores_start() does not wait for the device, rowscores_finish() is
 * called after the device has been waited for. */
void rowscores_start(row_scores *a, tensor logits);
pesc_status rowscores_finish(row_scores *a, tensor logits);

/* ---- the scheduler ---- */

/* A sequence of a forward, and what came of it. */
typedef struct placed {
    job *j; /* NULL: it needs to know nothing */
    int32_t slot;
    size_t first, n; /* scores of its rows */
    int32_t guessed; /* the last rows are those of so many guessed tokens, which follow its ids */
    int32_t chosen[1 + GUESS_MOST]; /* the tokens that were generated */
    int32_t n_chosen;
    bool ended;     /* its terms leave no token that could follow */
    size_t details; /* of its rows, in `details` */
    bool complete;  /* the request has all its tokens or scores: it has left its slot, and is freed
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
    int32_t same_rows;    /* of every forward; 0: as many as there are tokens (batchinvariant.c) */
    int32_t *filling;     /* [same_rows]: filling tokens, which slot n_slots has */
    int32_t prompt_limit; /* of tokens beside those that continue a generation; -1: none */
    kvcache *kv;
    prefix_cache *prefixes;
    pass *pass;
    routes *routes; /* NULL until a request wants them */
    int32_t routes_every;
    sampling *sampling;  /* NULL until a request needs it */
    sampling_row *draws; /* [max_out]: tokens that it draws after a forward */
    float *logits;       /* [V]: a row; NULL until a request needs it */
    job_queue queue;
    job **slots;    /* [n_slots]: what a slot runs, or NULL */
    int32_t *order; /* [n_running]: slots, the longest running first */
    int32_t *share; /* [n_running]: of the limit of tokens */
    int32_t n_running;
    int32_t *pages;    /* [max_pages]: those of the prefix that was found last */
    bool some_end;     /* a request may be cancelled or over */
    bool overlap;      /* see scheduler_options */
    int64_t guess;     /* likewise; 0 also where there are none */
    guess_pace pace;   /* of forwards that only continue generations */
    drafter *drafters; /* [n_slots]; NULL: the model has no draft */
    results pending;   /* of the forward before; without `overlap` none is left after a step */
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

/* ---- batchinvariant.c ----
 *
 * Forwards that all have the same number of rows, so that on a GPU a request gets
 * the same bits alone and among others (scheduler_options.batch_invariant).
 *
 * There the number of rows chooses the kernel of a product, and with it the order of its sums; in
 * the attention it is whether a sequence has one new row or more. So in this mode
 *   - a sequence of filling tokens brings every forward to the same number of rows, which all meet
 *     the head;
 *   - the prompt but for its last token is fed in pieces of at least two tokens, everything after
 *     it token by token, also when it is fed again after a preemption;
 *   - only full pages of the prompt are cached. */

/* Rows of every forward for that many slots: a token of each and the shortest piece of a prompt
 * always fit beside the filling tokens. */
int32_t batchinvariant_rows(int32_t slots);
/* Tokens that requests have in a forward at most. */
int32_t batchinvariant_tokens(const scheduler *s);

/* How many tokens the request feeds next, where a forward has room for that many. */
int32_t batchinvariant_piece(const job *j, int32_t room);
/* How many of the n tokens that were found in the cache the request uses. */
int32_t batchinvariant_found(const job *j, int32_t n);
/* How many of the first n tokens of the request the cache may hold. */
int32_t batchinvariant_cacheable(const job *j, int32_t n);

/* The pages of the filling tokens; before the first forward and after each. */
pesc_status batchinvariant_reserve(scheduler *s);
/* Adds the filling tokens after the s->now.n sequences of the next forward; s->rows are all. */
void batchinvariant_fill(scheduler *s);

#endif
