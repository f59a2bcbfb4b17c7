/* exchange: one HTTP request and its answer. */
#ifndef PESC_SERVE_EXCHANGE_H
#define PESC_SERVE_EXCHANGE_H

#include "serve/server.h"

struct MHD_Connection;
typedef struct route route;

/* Bytes of events that may wait for a slow reader, beside those with which choices begin: no reader
 * takes a long echo as fast as it is there. */
enum { SEND_BUFFER = 256 << 10 };

struct exchange {
    pesc_server *srv;
    struct MHD_Connection *conn; /* NULL: the client has left, or has its answer */
    int fd;
    uint64_t number; /* names it to other threads */
    exchange *prev, *next;
    const route *route; /* NULL: there is none for this path and method */
    char id[24];        /* x-request-id */
    char method[12];
    char path[256];     /* for the log; cut where it is longer */
    char argument[256]; /* what a path with {id} has there */
    char address[64];   /* of the client */
    size_t key;         /* that it has, from 1; 0: none is needed */
    str body;
    double began;   /* clock_seconds() */
    double pushed;  /* when something was last added to the answer */
    bool checked;   /* the head was */
    bool too_large; /* the body is */
    bool started;   /* the handler ran */
    /* ---- the answer; under the lock while a call is not done ---- */
    int status;
    const char *type; /* Content-Type */
    str out;          /* the body; or events that are not sent yet, from `sent` on */
    size_t sent;
    size_t first_events; /* bytes of those with which choices begin, which may have long echoes */
    const char *allow;   /* of 405 */
    int retry_after;
    str ignored;   /* x-pesc-ignored */
    bool page;     /* the answer is a file of the page */
    bool stream;   /* the answer is a stream of events */
    bool finished; /* nothing is added to `out` any more */
    bool broken;   /* a stream ends without its last event */
    bool suspended, queued, watched;
    bool preparing;                          /* its handler runs on the thread for large bodies */
    call *call;                              /* NULL: nothing is generated */
    int64_t prompt_tokens, generated_tokens; /* for the log */
};

/* Sets the whole answer. */
void exchange_json(exchange *x, int status, const json_t *v);
void exchange_fail(exchange *x, const api_error *e);

/* ---- from the engine's thread ---- */

/* Appends to the answer, and lets it be sent. Takes the lock. */
typedef enum push_kind {
    PUSH_FIRST, /* a choice begins with it */
    PUSH_MORE,
    PUSH_LAST /* the answer is complete */
} push_kind;
void exchange_push(exchange *x, const char *bytes, size_t n, push_kind kind);
/* The answer is an error: a whole one, or the last event of a stream. Takes the lock. */
void exchange_push_error(exchange *x, const api_error *e);
/* Resumes the connection if it is suspended, and not while its handler runs. Under the lock. */
void exchange_resume(exchange *x);
/* Takes it out of the list and frees it. Under the lock. */
void exchange_free(exchange *x);

/* ---- routes.c ---- */

typedef void (*route_handler)(exchange *x);
struct route {
    const char *method, *path; /* a path that ends in / has an argument there, except / itself */
    route_handler handle;      /* sets the answer, or x->call */
    bool open;                 /* needs no key */
    int endpoint;              /* in metrics */
};
/* HEAD is found as GET; OPTIONS is found for every path. NULL: *e says why. */
const route *route_find(exchange *x, const char *method, const char *path, api_error *e);
/* Names of the endpoints in metrics. */
const char *const *route_endpoints(size_t *n);

/* ---- handlers ---- */

void handle_health(exchange *x);
void handle_models(exchange *x);
void handle_model(exchange *x);
void handle_version(exchange *x);
void handle_requests(exchange *x);
void handle_slots(exchange *x);
void handle_props(exchange *x);
void handle_metrics(exchange *x);
void handle_tokenize(exchange *x);
void handle_detokenize(exchange *x);
void handle_tokenizer_info(exchange *x);
void handle_template(exchange *x);
void handle_completion(exchange *x);
void handle_native(exchange *x);
void handle_chat(exchange *x);
void handle_unsupported(exchange *x);
void handle_page(exchange *x);
void handle_experts(exchange *x);

#endif
