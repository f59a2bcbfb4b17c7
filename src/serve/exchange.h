/* exchange: one HTTP request and its answer.
 *
 * The front opens it with the head of a request, and detaches it when the answer is sent or the
 * client has left. Meanwhile its handler runs, and sets the answer, or gives a call to the engine,
 * which adds to the answer. Whoever is not done with it holds it; the last one frees it.
 *
 *     READS -> HANDLED -> GENERATES -> COMPLETE
 *       |        +-----------------------^
 *       +--------------------------------^      and from each of them, as an end: LEFT
 */
#ifndef PESC_SERVE_EXCHANGE_H
#define PESC_SERVE_EXCHANGE_H

#include "serve/api/api.h"
#include "serve/server.h"

typedef struct route route;
struct connection;

/* Bytes of events that may wait for a slow reader, beside those with which choices begin: no reader
 * takes a long echo as fast as it is there. */
enum { SEND_BUFFER = 256 << 10 };

typedef enum exchange_state {
    EXCHANGE_READS,     /* the front reads the body */
    EXCHANGE_HANDLED,   /* the handler runs */
    EXCHANGE_GENERATES, /* the engine has the call */
    EXCHANGE_COMPLETE,  /* nothing is added to the answer any more */
    EXCHANGE_LEFT,      /* the client has left or reads too slowly: no more is sent */
} exchange_state;

struct exchange {
    pesc_server *srv;
    struct connection *conn; /* NULL: detached */
    exchange *prev, *next;   /* in pesc_server.live */
    exchange *next_ready;    /* in the front's list of those that go on */
    bool ready;              /* it is in that list */
    const route *route;      /* NULL: there is none for this path and method */
    char id[24];             /* x-request-id */
    char method[12];         /* "-" where the head is malformed, as of the path */
    char path[256];          /* for the log; cut where it is longer, control characters visible */
    char argument[256];      /* what a path with {id} has there */
    char address[64];        /* of the client */
    size_t key;              /* that it has, from 1; 0: none is needed */
    const char *origin;      /* of another web page, which is allowed; NULL: none */
    char *asked_headers;     /* that such a page wants to send; NULL: none */
    str body;
    api_request request; /* what the body says, where the route reads it */
    api_error error;     /* why a handler has refused it */
    double began;        /* clock_seconds() */
    double pushed;       /* when something was last added to the answer */
    /* ---- under the server's lock from HANDLED on; the answer is its maker's until COMPLETE ----
     */
    exchange_state state;
    int holders;
    int status;
    const char *type; /* Content-Type */
    str out;          /* the body; or events that are not sent yet, from `sent` on */
    size_t sent;
    size_t first_events; /* bytes of those with which choices begin, which may have long echoes */
    const char *allow;   /* of 405 */
    int retry_after;
    str ignored;                             /* x-pesc-ignored */
    bool page;                               /* the answer is a file of the page */
    bool stream;                             /* the answer is a stream of events */
    call *call;                              /* what is generated; NULL: nothing, or no more */
    int64_t prompt_tokens, generated_tokens; /* for the log */
};

/* ---- for the front ---- */

/* Of a client; held by its connection. NULL: no memory. */
exchange *exchange_open(pesc_server *s, struct connection *conn);
/* The next state, which must be one that may follow. Under the lock. */
void exchange_enter(exchange *x, exchange_state state);
/* The client has left: nothing is generated any more. Under the lock. */
void exchange_leave(exchange *x);
/* Its connection is done with it. Under the lock. */
void exchange_detach(exchange *x);
void exchange_log(const exchange *x, int status, const int64_t tokens[2]);

/* The body is complete: the handler may run, and holds the exchange. */
void exchange_begin_handling(exchange *x);
/* Reads the body and runs it. Then the answer is there, or the engine makes it. */
void exchange_handle(exchange *x);
/* Instead: the server ends. */
void exchange_refuse_handling(exchange *x);

/* ---- for handlers: the whole answer ---- */

/* 200, with the value, which it releases; NULL: there was no memory for it. Returns true. */
bool exchange_reply(exchange *x, json_t *v);
void exchange_fail(exchange *x, const api_error *e);

/* ---- for the engine ---- */

/* It has the call, and holds the exchange. Under the lock. */
void exchange_generate(exchange *x, call *c, bool stream, int64_t prompt_tokens);

/* Appends to the answer, and lets it be sent. Takes the lock. */
typedef enum push_kind {
    PUSH_FIRST, /* a choice begins with it */
    PUSH_MORE,
    PUSH_LAST /* the answer is complete */
} push_kind;
void exchange_push(exchange *x, const char *bytes, size_t n, push_kind kind);
/* The answer is an error: a whole one, or the last event of a stream. Takes the lock. */
void exchange_push_error(exchange *x, const api_error *e);
/* One holder less. Under the lock. */
void exchange_drop(exchange *x);

#endif
