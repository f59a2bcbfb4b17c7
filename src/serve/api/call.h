/* call: what one request wants generated: prompts, n choices of each, and the texts as they grow.
 *
 * A call is made by the thread that reads requests and then belongs to the engine's thread, which
 * frees it. */
#ifndef PESC_SERVE_API_CALL_H
#define PESC_SERVE_API_CALL_H

#include "chat/chat_turn.h"
#include "infer/answer.h"
#include "serve/exchange.h"
#include "serve/api/prompts.h"

/* The log-probability of a token, which is reported. */
typedef struct token_logprob {
    int32_t id;
    int32_t before; /* the token before it; -1: none */
    bool none;      /* the first token of a prompt has no log-probability */
    float value;
    int32_t rank;  /* 0: not asked for */
    size_t offset; /* code points of the text before it */
    size_t top;    /* its most likely tokens, in choice.top; there are call.n_top */
} token_logprob;

typedef struct logprob_list {
    token_logprob *all;
    size_t n, cap;
} logprob_list;

/* A choice of a router. */
typedef struct routed {
    int32_t expert;
    float gate;
} routed;

typedef struct choice {
    call *of;
    int32_t index; /* of the answer */
    prompt *prompt;
    pesc_sample_options sample;
    sampler_terms terms;
    matcher *matcher; /* NULL: no grammar */
    uint64_t ticket;
    int64_t limit; /* tokens that it may have */
    bool runs;     /* it has a slot */
    bool begun;    /* a stream has its first event */
    answer answer;
    chat_turn *turn; /* of a chat: what the answer says; NULL otherwise */
    size_t part,
        part_sent;         /* of the turn: the part that events go on with, and its bytes in them */
    size_t blocks, events; /* of other dialects: parts that are over, events so far */
    int64_t thought_tokens;       /* tokens of its thoughts */
    size_t content_at;            /* bytes of the text before what follows the thoughts */
    bool part_begun;              /* a call: its name is in an event */
    size_t sent;                  /* bytes of its text that are in events */
    size_t ids_sent;              /* of its tokens */
    size_t chars;                 /* code points so far, with those of an echo */
    const char *finish;           /* NULL: it is not done */
    logprob_list logprobs;        /* what the field of that name reports */
    logprob_list prompt_logprobs; /* likewise */
    size_t logprobs_sent;
    sched_choice *top;
    size_t n_top, cap_top;
    routed *routes; /* [n_routed, layers with a router, k]: of generated tokens, from the first */
    size_t n_routed, cap_routes, routes_sent;
    double last; /* when it got a token; 0: none yet */
} choice;

typedef enum call_state {
    CALL_WAITS,
    CALL_RUNS,   /* one of its choices has, or had, a slot */
    CALL_LEAVES, /* its client has left, or it has failed: the scheduler knows */
} call_state;

struct call {
    exchange *x;
    call *next;
    api_request api;
    const served_model *model;
    prompt_list prompts;
    choice *choices; /* [n_choices]: those of prompt 0, then of prompt 1... */
    size_t n_choices, n_left;
    int32_t n_top;      /* most likely tokens that each log-probability has */
    int32_t max_tokens; /* of the longest choice; 0: prompts are scored only */
    bool has_terms;
    float *vectors;                 /* embeddings: [prompts, hidden size]; NULL otherwise */
    size_t n_vectors;               /* that are computed */
    grammar *grammar;               /* of the answers; NULL: any text */
    turn_rules turn;                /* how the answers of a chat are taken apart */
    id_list think_begin, think_end; /* tokens of a thought that has a budget */
    decode_stream *pieces; /* of single tokens; NULL: none are reported, or there is no tokenizer */
    answer_ends ends;      /* those of the request, the model and the chat format */
    uint64_t scope;
    char id[48];
    int64_t created;
    double queued;    /* clock_seconds(), like the next three, which are 0 before that moment */
    double began;     /* its first choice got a slot */
    double first;     /* its first token came */
    double last;      /* its last one so far */
    bool begun;       /* a stream has its first event */
    call_state state; /* under the server's lock */
    api_error error;  /* status 0: none */
    int64_t prompt_tokens, cached_tokens;
    int64_t guessed, guesses_kept; /* tokens, see infer/guess.h */
    uint64_t *expert_counts; /* as in expert_load, of this call; under the lock; dense: NULL */
};

void call_free(call *c);               /* NULL is allowed */
int64_t call_generated(const call *c); /* tokens, of all choices */

/* ---- embeddings.c ---- */

/* Makes room. False: *e says why not. */
bool embeddings_open(call *c, api_error *e);
/* The vector of the next prompt; *more: others are left. For the engine's thread. */
pesc_status embeddings_next(call *c, bool *more);

/* ---- choice.c: the text of a choice ---- */

pesc_status choice_open(choice *c);
void choice_close(choice *c);
/* A token with its log-probability, in the order of the text. */
pesc_status choice_logprob(choice *c, const sched_row *r);
/* The experts of tokens that were fed. */
pesc_status choice_routed(choice *c, const sched_routes *r);
/* A generated token. *more: false: the text ends with it. */
pesc_status choice_token(choice *c, int32_t id, bool *more);
/* The id of the call that is part i of its turn. */
void choice_call_id(const choice *c, size_t i, char id[CALL_ID_ROOM]);
/* Nothing follows. `finish` holds unless the text has ended otherwise. */
pesc_status choice_finish(choice *c, const char *finish);

/* ---- expertload.c: what the routers choose, counted over all requests ---- */

pesc_status expertload_open(pesc_server *s);
void expertload_close(pesc_server *s);

/* Counts what the routers chose for tokens of the call. Takes the lock. */
void expertload_count(call *c, const sched_routes *r);
/* A row of counts for each layer; null where there are none. Under the lock. */
json_t *expertload_counts(const expert_load *load, const uint64_t *counts);
/* Appends the load of each layer for /metrics. Under the lock. */
void expertload_metrics(const pesc_server *s, str *out);
/* The experts and gates of generated tokens [from, n_routed). */
json_t *expertload_of(const choice *c, size_t from);

#endif
