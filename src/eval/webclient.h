/* webclient: requests to a server with OpenAI's interface, many at the same time.
 *
 * A request is a JSON object that is posted below the server's address, and its answer a JSON
 * object. A server that cannot be reached, closes the connection, takes too long, or says that it
 * is busy (408, 429) or broken (5xx) is asked again, after the time that it asks for (Retry-After)
 * or 0.5, 1, 2... seconds. Whatever else goes wrong is one sentence with the address: a status, an
 * answer that is no JSON object or too long, a redirection, which is not followed, because the key
 * would go with it.
 *
 * The library is libcurl, which is loaded when a client is opened. */
#ifndef PESC_EVAL_WEBCLIENT_H
#define PESC_EVAL_WEBCLIENT_H

#include "base/json.h"

typedef struct webclient webclient;

typedef struct web_options {
    const char *url; /* http[s]://HOST[:PORT][/PREFIX][/v1] */
    const char *key; /* the bearer token; NULL or "": none */
    int64_t streams; /* requests under way at the same time */
    int64_t retries; /* of one request */
    double timeout;  /* seconds that an answer may take */
} web_options;

typedef struct web_request {
    const char *path; /* below the address, which ends in /v1: "/models"; borrowed */
    json_t *body;     /* webclient_add() takes it; NULL: GET */
    pesc_status (*done)(void *ud, const json_t *answer); /* may add requests */
    void (*drop)(void *ud); /* instead, where it failed or the client is closed; NULL: nothing */
    void *ud;
} web_request;

/* PESC_USAGE: the address or the key is none. PESC_DEVICE: libcurl cannot be loaded. */
pesc_status webclient_open(webclient **out, const web_options *opt);
void webclient_close(webclient *c); /* NULL is allowed */

/* The address without what ends it, for people: http://127.0.0.1:8080/v1. */
const char *webclient_address(const webclient *c);

/* Fails only for lack of memory; then `drop` is not called. */
pesc_status webclient_add(webclient *c, web_request r);
size_t webclient_left(const webclient *c); /* requests that are not answered */

/* Sends and receives, and waits up to `wait` seconds where there is nothing to do yet. Fails with
 * the first request that failed, or with the status of its `done`. */
pesc_status webclient_step(webclient *c, double wait);

/* The HTTP status of the last answer; 0: there was none. */
long webclient_status(const webclient *c);

/* One request, and what it answers: a new reference. No other is under way. */
pesc_status webclient_ask(webclient *c, const char *path, json_t *body, json_t **out);

#endif
