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

#include "infer/embedding.h"
#include "infer/scheduler.h"
#include "serve/api/prompts.h"
#include "serve/pace.h"
#include "serve/prometheus.h"

#include <pthread.h>

typedef struct exchange exchange;
typedef struct call call;
struct front;

/* A name that requests may give. */
typedef struct served_model {
    char *name;
    int32_t adapter; /* of attach/served_adapters.h; 0: the model itself */
} served_model;

/* How often the routers have chosen each expert. Dense models: all zeros. */
typedef struct expert_load {
    int32_t n_layers; /* that have a router */
    int32_t *layers;  /* their numbers */
    int32_t n_experts, k;
    uint64_t tokens;  /* that were counted */
    uint64_t *counts; /* [n_layers, n_experts] */
} expert_load;

typedef enum server_state {
    SERVER_SERVES,
    SERVER_DRAINS, /* no new requests; those that are there may end */
    SERVER_STOPS,  /* the engine ends those that are left, and itself */
} server_state;

enum { KEY_BYTES = 32 }; /* SHA-256 of a key: comparing digests hides lengths and contents */

struct pesc_server {
    pesc_model *m; /* kept; NULL: the server of a page of runs, which has no engine */
    pesc_serve_options opt;
    const struct route_table *routes;
    char **folders; /* [n_folders] of runs */
    size_t n_folders;
    struct grammar_cache *grammars;
    chat_writer *chat; /* of conversations: the model's, or of the format that was asked for */
    struct responsestore *responses; /* NULL: none are kept */
    chat_speech *speech;             /* how the model writes calls and thoughts */
    prompt_maker prompts;
    api_rules rules;
    served_model *models; /* [n_models] */
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
    server_state state;
    exchange *live; /* all exchanges, a list */
    metrics metrics;
    expert_load load;
    /* ---- the engine ---- */
    bool engine_runs;
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
    struct embedder *embedder; /* NULL: none was asked for yet */
    embed_pooling pooling;
    uint64_t n_warm; /* requests of its own that warmed it up */
    call *calls;     /* those that the scheduler has */
};

/* ---- server.c ---- */

/* Locks, the socket and the keys: what a server has without a model. Closed by
 * pesc_server_close(). */
pesc_status server_open_front(pesc_server *s);

/* ---- engine.c: the thread that owns the scheduler ----
 *
 * It takes calls from the inbox, runs one forward after another, and adds what comes out to the
 * answers. A failure of a request ends the request; a failure of a forward ends the requests that
 * the scheduler has, and a new scheduler is opened. */

pesc_status engine_open(pesc_server *s);
/* Hands over a call, which the engine then owns, with its exchange. False: *e says why, and the
 * call is still the caller's. */
bool engine_add(pesc_server *s, call *c, api_error *e);
/* Ends running calls with an error and the thread. */
void engine_close(pesc_server *s);

/* ---- models.c: the only place where names of models are looked up ---- */

pesc_status models_open(pesc_server *s);
void models_close(pesc_server *s);
/* name NULL: the first model. NULL: there is none of that name, and *e says so. */
const served_model *models_find(const pesc_server *s, const char *name, api_error *e);

/* ---- runs.c: the folders of training runs that a page shows ---- */

pesc_status runs_open(pesc_server *s, const char *const *folders, size_t n); /* n 0: "." */
void runs_close(pesc_server *s);

/* ---- apikeys.c: the keys of clients ---- */

pesc_status apikeys_read(pesc_server *s, const char *path);
/* Which of the keys the text of n bytes is, from 1; 0: none. In constant time. */
size_t apikeys_match(const pesc_server *s, const char *text, size_t n);

#endif
