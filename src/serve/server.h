/* server: the inside of a pesc_server, which the files of this room share.
 *
 * Four threads. The thread of pesc_server_run() accepts connections, checks the head of the first
 * request of each (gate.c), and watches the sockets of requests that are being answered, so that a
 * client that leaves is noticed at once. The thread of libmicrohttpd reads requests and writes
 * answers (http.c); it parses, tokenises and puts generations into an inbox, except where the body
 * is large: that would delay the other connections, so a third thread does it. The engine's thread
 * owns the scheduler (engine.c): it takes the inbox, runs forwards, and appends to answers.
 *
 * `lock` protects everything that two threads use. While the engine or a client is not ready, the
 * connection is suspended; it is resumed under the lock, and only if it is suspended. */
#ifndef PESC_SERVE_SERVER_H
#define PESC_SERVE_SERVER_H

#include "base/json.h"
#include "base/thread.h"
#include "infer/scheduler.h"
#include "serve/api.h"
#include "serve/metrics.h"
#include "serve/pace.h"

#include <pthread.h>

typedef struct exchange exchange;
typedef struct call call;
typedef struct gate gate;
struct MHD_Daemon;

/* How often the routers have chosen each expert. Dense models: all zeros. */
typedef struct expert_load {
    int32_t n_layers; /* that have a router */
    int32_t *layers;  /* their numbers */
    int32_t n_experts, k;
    uint64_t tokens;  /* that were counted */
    uint64_t *counts; /* [n_layers, n_experts] */
} expert_load;

enum { KEY_BYTES = 32 }; /* SHA-256 of a key: comparing digests hides lengths and contents */

/* A name that requests may give. */
typedef struct served_model {
    char *name;
    int32_t specialist; /* of model/specialists.h; 0: the model itself */
} served_model;

struct pesc_server {
    pesc_model *m; /* kept */
    pesc_serve_options opt;
    const chat_format *chat; /* NULL: the model's own template, if that runs */
    served_model *models;    /* [n_models] */
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

    gate *gate;
    struct MHD_Daemon *daemon;
    thread_queue *large; /* runs the handlers of requests with a large body */
    int stop_event;      /* eventfd that ends pesc_server_run() */

    pthread_mutex_t lock;
    /* ---- under the lock ---- */
    bool draining;    /* no new requests */
    exchange *live;   /* all exchanges, a list */
    int32_t n_active; /* exchanges whose answer is being generated or sent */
    uint64_t n_exchanges;
    metrics metrics;
    expert_load load;
    /* ---- the engine ---- */
    bool engine_runs, engine_stops;
    pthread_t engine;
    pthread_cond_t wake;
    call *inbox, **inbox_end;
    int32_t n_inbox;
    bool has_cancelled;       /* a call may be cancelled */
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

/* ---- models.c: names of models; the only place where they are looked up ---- */

pesc_status models_open(pesc_server *s);
void models_close(pesc_server *s);
/* name NULL: the first model. NULL: there is none of that name, and *e says so. */
const served_model *models_find(const pesc_server *s, const char *name, api_error *e);

/* ---- expertload.c: what the routers choose ---- */

pesc_status expertload_open(pesc_server *s);
void expertload_close(pesc_server *s);

/* ---- engine.c ---- */

pesc_status engine_open(pesc_server *s);
/* Hands over a call, which the engine then owns. False: *e says why, and it is still the caller's.
 */
bool engine_add(pesc_server *s, call *c, api_error *e);
/* Ends running calls with an error and the thread. */
void engine_close(pesc_server *s);

/* ---- gate.c ---- */

/* Listens. */
pesc_status gate_open(pesc_server *s);
void gate_close(gate *g); /* NULL is allowed */
/* Accepts, checks and watches until s->stop_event; afterwards until no exchange is active or the
 * time of drain is over. */
void gate_run(pesc_server *s);
/* Watches the socket of an exchange while its answer is made. Under the lock. */
void gate_watch(gate *g, int fd, uint64_t number);
void gate_unwatch(gate *g, int fd);
/* A connection that was handed on begins or ends to serve a request. */
void gate_serves(gate *g, int fd, bool serves);
/* It is closed. */
void gate_closed(gate *g, int fd);

/* The client of the exchange has left: what it asked for is not generated any more. Under the lock.
 */
void engine_cancel(pesc_server *s, call *c);

/* ---- http.c ---- */

enum { HTTP_IDLE_SECONDS = 15 }; /* between requests, and of a peer that neither reads nor writes */

pesc_status http_open(pesc_server *s);
void http_close(pesc_server *s);
/* A socket whose first request has a good head. Takes the socket. */
void http_take(pesc_server *s, int fd, const void *address, size_t n);
/* Writes an error as the whole answer to a socket that libmicrohttpd is not writing to. */
void http_send_error(int fd, const api_error *e);
/* Of a status: "Not Found". */
const char *http_reason(int status);

/* ---- apikeys.c ---- */

pesc_status apikeys_read(pesc_server *s, const char *path);
/* Which of the keys the text of n bytes is, from 1; 0: none. In constant time. */
size_t apikeys_match(const pesc_server *s, const char *text, size_t n);

#endif
