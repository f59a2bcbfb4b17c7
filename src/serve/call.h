/* call: what one request wants generated: prompts, n choices of each, and the texts as they grow.
 *
 * A call is made by the thread that reads requests and then belongs to the engine's thread, which
 * frees it. */
#ifndef PESC_SERVE_CALL_H
#define PESC_SERVE_CALL_H

#include "infer/stops.h"
#include "serve/exchange.h"
#include "serve/prompts.h"

/* A token whose log-probability is reported. */
typedef struct note {
    int32_t id;
    int32_t before; /* the token before it; -1: none */
    bool none;      /* the first token of a prompt has no log-probability */
    float logprob;
    size_t offset; /* code points of the text before it */
    size_t top;    /* its most likely tokens, in choice.top; there are call.api.top */
} note;

typedef struct choice {
    call *of;
    int32_t index; /* of the answer */
    prompt *prompt;
    pesc_sample_options sample;
    uint64_t ticket;
    bool begun, done; /* begun: a stream has its first event */
    decode_stream *decode;
    stop_text text; /* that is generated */
    size_t sent;    /* bytes of it that are in events */
    size_t chars;   /* code points so far, with those of an echo */
    id_list ids;    /* generated */
    size_t ids_sent;
    const char *finish; /* NULL: it is not done */
    note *notes;
    size_t n_notes, cap_notes, notes_sent;
    sched_choice *top;
    size_t n_top, cap_top;
    double last; /* when it got a token; 0: none yet */
} choice;

struct call {
    exchange *x;
    call *next;
    api_request api;
    prompt_list prompts;
    choice *choices; /* [n_choices]: those of prompt 0, then of prompt 1... */
    size_t n_choices, n_left;
    int32_t max_tokens; /* of the longest choice; 0: prompts are scored only */
    sampler_terms terms;
    bool has_terms;
    int32_t *ends; /* tokens that end a text */
    size_t n_ends;
    const char *const *stops; /* texts that end it: the request's, then the chat format's */
    size_t n_stops;
    uint64_t scope;
    char id[48];
    int64_t created;
    double queued;   /* clock_seconds() */
    bool started;    /* one of its choices has a slot */
    bool cancelled;  /* under the server's lock */
    bool told;       /* the scheduler knows that it is cancelled */
    api_error error; /* status 0: none */
    int64_t prompt_tokens, cached_tokens;
};

/* From a parsed request, which it takes; NULL: *e says why, and the request is closed. */
call *call_open(exchange *x, api_request *api, api_error *e);
void call_free(call *c); /* NULL is allowed */

/* ---- choice.c: the text of a choice ---- */

pesc_status choice_open(choice *c);
void choice_close(choice *c);
/* A token with its log-probability, in the order of the text. */
pesc_status choice_note(choice *c, const sched_row *r);
/* A generated token. *more: false: the text ends with it. */
pesc_status choice_token(choice *c, int32_t id, bool *more);
/* Nothing follows. `finish` holds unless the text has ended otherwise. */
pesc_status choice_finish(choice *c, const char *finish);

/* ---- answer.c: what is sent ---- */

/* The answer to a request that is not streamed. */
void answer_whole(const call *c, str *out);
/* Events for what is new of a choice; with its end, where it is done. */
void answer_events(choice *c, str *out);
/* The events after all choices. */
void answer_last_events(const call *c, str *out);

#endif
