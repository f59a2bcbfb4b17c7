/* scheduler: many requests over one model, in forwards that are filled with tokens (continuous
 * batching).
 *
 * A request is one of two kinds. Scoring: the log-probability of the last tokens of a string.
 * Generation: tokens after a prompt, one after another; the prompt may be scored on the way.
 * Requests wait in a queue until one of a
 * fixed number of slots is free; a slot is a timeline of the KV cache. Each step is one forward: a
 * token of every slot that generates, then pieces of prompts, oldest request first, up to a limit
 * of tokens; one slot takes at most half of what is left while other prompts wait. Only rows that
 * are needed meet the head.
 *
 * What is cached is not computed again. Pages of the KV cache stay in a prefix tree (prefix.h)
 * after their request is done, until the pool needs them. A request whose beginning is just being
 * computed by another slot waits for that slot. So after scheduler_sort() each shared prefix of a
 * set of requests is computed once.
 *
 * Pages. A request is admitted if the next forward has tokens left for it and its prompt fits the
 * pool beside those of the running slots and a further page for each of these: without that, it
 * would be preempted soon after, and much be computed again and again. If the pool is exhausted
 * while tokens are generated, the youngest slot is preempted: its request returns to the head of
 * the queue with the tokens it has, which are fed again later. The oldest request is never
 * preempted, so every request ends.
 *
 * Results do not depend on the order of requests, the number of slots, the limit of tokens, what is
 * cached or preempted: bit for bit on a CPU, and on a GPU with `batch_invariant`; else as far as
 * backend.h says. With dynamic RoPE a request whose prompt, or string to be scored, is longer than
 * the model's context shares no prefix, since its keys depend on its length (rope_freq.h).
 *
 * A scheduler is used by one thread, which holds the device (DEVICE_CALL) during each call. */
#ifndef PESC_INFER_SCHEDULER_H
#define PESC_INFER_SCHEDULER_H

#include "infer/sampler.h"
#include "model/routes.h"

typedef struct scheduler scheduler;

typedef struct scheduler_options {
    int32_t slots;        /* requests that run at a time, at least 1 */
    int32_t context;      /* tokens of the longest request, with those generated */
    int32_t max_tokens;   /* of a forward; 0: by the device. At least `slots` are used. */
    int64_t cache_tokens; /* in the KV cache; 0: room for all slots, on a CPU with at most 512
                             tokens each beside one request of any length, on a GPU in at most three
                             quarters of its free memory. At least `context` are used. */
    bool batch_invariant; /* every forward has the same number of rows, which is the least that
                        `slots` allow: results are then as independent on a GPU as they always
                        are on a CPU, and max_tokens is not used */
    bool overlap;         /* results of a forward are delivered while the device computes
                             the next one. A request that its callback ends is in that one, too;
                             what it computes there is dropped. */
    int64_t guesses;      /* tokens of a text that are guessed and checked at a time: PESC_AUTO as
                             many as pay, 0 none (guess.h). On a CPU. */
} scheduler_options;

pesc_status scheduler_open(scheduler **out, pesc_model *m, const scheduler_options *opt);
void scheduler_close(scheduler *s); /* NULL is allowed; no callback of an open request is called */

typedef enum sched_finish {
    FINISH_SCORED,    /* a score is complete */
    FINISH_STOPPED,   /* the callback ended the generation */
    FINISH_LENGTH,    /* max_tokens or the context was reached */
    FINISH_CANCELLED, /* by scheduler_cancel() */
} sched_finish;

typedef struct sched_result {
    sched_finish finish;
    double logprob;     /* scoring: the sum over the continuation, in nats */
    bool greedy;        /* scoring: each token of it is the most likely; ties: the lowest id */
    const int32_t *ids; /* generation: the tokens, borrowed for the call */
    int32_t n;
    int64_t guessed, guesses_kept; /* tokens that were guessed and checked; that were right */
} sched_result;

/* A token, scored or generated, with its log-probability in nats as the model has it: before
 * penalties, temperature and so on. */
typedef struct sched_choice {
    int32_t id;
    float logprob;
} sched_choice;
typedef struct sched_row {
    int32_t at; /* index of the token; below sched_request.n it belongs to the prompt */
    sched_choice token;
    const sched_choice *top; /* [n_top]: the most likely first; ties: the lowest id first */
    int32_t n_top;
    int32_t rank; /* of the token, from 1: how many are not less likely; 0: not asked for */
} sched_row;

/* The experts of tokens [at, at + n) of a request: rows [first, first + n) of `all`, which is
 * borrowed for the call. A token is routed when it is fed, so the last one that is generated
 * never is; one that is fed again after a preemption is delivered again. */
typedef struct sched_routes {
    int32_t at, n, first;
    const routes *all;
} sched_routes;

typedef struct sched_request {
    const int32_t *ids; /* [n], copied */
    int32_t n;
    /* Scoring: ids[first..n) is the continuation, 1 <= first < n. Generation: `row` is called
     * for these tokens too; 0: for none of the prompt. */
    int32_t first;
    int32_t max_tokens;                /* to generate; 0: scoring */
    const pesc_sample_options *sample; /* NULL: greedy. Copied; of it the sampler's options count */
    /* NULL: none; borrowed until the end. Needs `sample`. The request ends as if its callback
     * had ended it where they leave no token. */
    const sampler_terms *terms;
    uint64_t scope;  /* requests of different scopes share no cached prefix */
    int32_t adapter; /* whose LoRA it uses (attach/served_adapters.h); 0: none. Requests of
                      * different served adapters must have different scopes. */
    /* The request has a slot for the first time; the first `cached` tokens of it are not
     * computed. NULL: not wanted. */
    void (*started)(void *ud, int32_t cached);
    /* Each token that is scored or generated, once, in order, before `token`. NULL: not wanted.
     */
    pesc_status (*row)(void *ud, const sched_row *r);
    int32_t n_top; /* of each row, at most the vocabulary */
    bool rank;     /* whether rows have the rank of their token */
    /* The experts that tokens were fed to, before `row` of the same forward. Dense models never
     * call it. NULL: not wanted. all_routed: of every forward. */
    void (*routed)(void *ud, const sched_routes *r);
    bool all_routed;
    /* Each token that is generated, also one that ends a text: the scheduler knows no end
     * tokens. *more is true; false ends the request. NULL: only max_tokens ends it. */
    pesc_status (*token)(void *ud, int32_t id, bool *more);
    pesc_status (*done)(void *ud, const sched_result *r); /* once, at the end */
    void *ud;
} sched_request;

/* Adds a request to the end of the queue. The ticket (may be NULL) names it to
 * scheduler_cancel(); each is one more than that of the request added before. PESC_USAGE: it is
 * longer than the context, or an id is outside the vocabulary. Callbacks may add and cancel
 * requests; a callback that fails ends scheduler_step() with its status. */
pesc_status scheduler_add(scheduler *s, const sched_request *r, uint64_t *ticket);

/* The requests with tickets from first to last end, waiting or running: with the step that
 * runs, or at the beginning of the next one. Tickets of requests that are done are ignored. One
 * pass over all requests, whatever the number of tickets. */
void scheduler_cancel(scheduler *s, uint64_t first, uint64_t last);

/* Puts the waiting requests in the order of their tokens, so that those with the same prefix
 * follow each other, and joins scores whose tokens differ in the last one only: one row serves
 * them. */
pesc_status scheduler_sort(scheduler *s);

/* One of that many forwards tells its routes to all requests with `routed`. 0, as at first:
 * only forwards with a request that has `all_routed` do. */
void scheduler_route_every(scheduler *s, int32_t forwards);

/* At most that many tokens of prompts, or none, are in a forward that also continues a
 * generation: so much does a prompt slow the generations down. -1, as at first: no such limit.
 */
void scheduler_limit_prompts(scheduler *s, int32_t tokens);
/* How many generations the next forward continues. */
int32_t scheduler_generating(const scheduler *s);

/* One forward. *more: requests are left, waiting, running, or with pending results. */
pesc_status scheduler_step(scheduler *s, bool *more);
pesc_status scheduler_run(scheduler *s); /* steps until none is left */

typedef struct scheduler_counters {
    uint64_t requested; /* tokens that would be fed if each request were computed alone */
    uint64_t computed;  /* tokens fed */
    uint64_t forwards, preempted;
    int32_t decodes,
        prompt_tokens;         /* of the last step: tokens that continue a generation, others */
    int32_t waiting, running;  /* requests now; joined scores count each */
    int32_t pages, pages_used; /* of the KV cache; pages_used: by running requests */
} scheduler_counters;
scheduler_counters scheduler_count(const scheduler *s);

#endif
