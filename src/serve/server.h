/* server: the inside of a pesc_server, which the files of this room share.
 *
 * Three threads. The front's (http/front.h) accepts connections, reads requests and writes answers;
 * it runs the handlers (routes.h), which parse, tokenise and put generations into the engine's
 * inbox. Where the body is large a second thread runs the handler, because that would delay the
 * other connections. The engine's thread owns the scheduler (engine.h): it takes the inbox, runs
 * forwards, and adds to answers.
 *
 * `lock` protects everything that two threads use. */
#ifndef PESC_SERVE_SERVER_H
#define PESC_SERVE_SERVER_H

#include "base/json.h"
#include "infer/scheduler.h"
#include "serve/apierror.h"
#include "serve/prometheus.h"
#include "serve/pace.h"

#include <pthread.h>

typedef struct exchange exchange;
typedef struct call call;
struct front;
struct served_model;

/* How often the routers have chosen each expert. Dense models: all zeros. */
typedef struct expert_load {
    int32_t n_layers; /* that have a router */
    int32_t *layers;  /* their numbers */
    int32_t n_experts, k;
    uint64_t tokens;  /* that were counted */
    uint64_t *counts; /* [n_layers, n_experts] */
} expert_load;

enum { KEY_BYTES = 32 }; /* SHA-256 of a key: comparing digests hides lengths and contents */

struct pesc_server {
    pesc_model *m; /* kept */
    pesc_serve_options opt;
    chat_writer *chat; /* of conversations: the model's, or of the format that was asked for */
    struct served_model *models; /* [n_models], see models.h */
    size_t n_models;
    char fingerprint[24]; /* system_fingerprint */
    int64_t created;      /* seconds since 1970 */
    int32_t context;
    unsigned char (*keys)[KEY_BYTES];
    size_t n_keys;
    bool loopback; /* the address is of this machine alone */
    int32_t port;
    const char **hosts; /* names that the Host field may have; NULL: any */
    size_t n_hosts;

    struct front *front;
    int stop_event; /* eventfd that ends pesc_server_run() */

    pthread_mutex_t lock;
    /* ---- under the lock ---- */
    bool draining;  /* no new requests */
    exchange *live; /* all exchanges, a list */
    metrics metrics;
    expert_load load;
    /* ---- the engine ---- */
    bool engine_runs, engine_stops;
    pthread_t engine;
    pthread_cond_t wake;
    call *inbox, **inbox_end;
    int32_t n_inbox;
    int32_t waiting, running; /* requests of the scheduler after its last step */
    int32_t pages, pages_used;
    pesc_status engine_status; /* why it ended, with the sentence */
    char engine_error[512];
    /* ---- the engine's thread alone ---- */
    scheduler *sched;
    pace pace;
    uint64_t n_warm; /* requests of its own that warmed it up */
    call *calls;     /* those that the scheduler has */
};

#endif
