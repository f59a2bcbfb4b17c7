/* connection: what the files of the front share: a client's socket, and what happens on it.
 *
 * Requests of a connection are served one after another, so a client that sends several at once
 * gets their answers in order. While an answer is made nothing is read; the socket is then watched
 * for the client's leaving only. */
#ifndef PESC_SERVE_HTTP_CONNECTION_H
#define PESC_SERVE_HTTP_CONNECTION_H

#include "base/thread.h"
#include "serve/http/head.h"
#include "serve/http/front.h"

#include <sys/socket.h>

typedef enum connection_state {
    CONNECTION_HEAD,   /* reads a head, or waits for one */
    CONNECTION_BODY,   /* reads the body of c->x */
    CONNECTION_ANSWER, /* waits for the answer of c->x, or sends it */
    CONNECTION_LINGER, /* has sent its last byte; what still comes is discarded, because the kernel
                          would discard the answer with it */
    CONNECTION_CLOSED  /* is freed after the events that epoll has reported */
} connection_state;

/* How much of the answer `out` has, when it is sent. */
typedef enum filling {
    FILL_NOTHING, /* not even the head */
    FILL_PART,    /* more is there */
    FILL_ALL,     /* all that is there; the engine adds more */
    FILL_END,     /* the last byte */
    FILL_BREAKS,  /* the rest is not sent */
} filling;

typedef struct connection {
    struct connection *prev, *next; /* in front.open */
    int fd;
    struct sockaddr_storage address;
    connection_state state;
    double deadline;  /* for the state; INFINITY: none */
    uint32_t watched; /* events of epoll */
    str in;           /* received, not yet used */
    size_t parsed;    /* bytes of it that are the beginning of a head */
    body body;
    exchange *x; /* NULL: no request is served */
    bool half;   /* the client sends nothing any more */
    bool old;    /* it speaks HTTP/1.0 */
    bool keep;   /* another request may follow */
    bool served; /* it has had an answer */
    filling filled;
    str out; /* a part of the answer, sent up to `sent` */
    size_t sent;
} connection;

struct front {
    pesc_server *srv;
    int listener, epoll;
    int wake;           /* eventfd: an exchange is in `ready` */
    bool full;          /* no file descriptor is left: no connection is accepted for a while */
    exchange *ready;    /* a list; under the server's lock */
    connection *open;   /* a list */
    connection *closed; /* a list, linked by `next` */
    int32_t n_open;
    thread_queue *large;   /* runs the handlers of requests with a large body */
    char buffer[64 << 10]; /* what is received */
};

/* Takes the socket; NULL: there is no memory. */
connection *connection_open(front *f, int fd, const struct sockaddr_storage *address);
void connection_close(front *f, connection *c);
/* epoll has reported these events. */
void connection_event(front *f, connection *c, uint32_t events);
/* The answer goes on. */
void connection_advance(front *f, connection *c);
void connection_deadline(front *f, connection *c);

/* Jobs of front.large. */
void connection_run_large(thread_job *job);
void connection_drop_large(thread_job *job);

/* ---- respond.c ---- */

/* Appends the head of the answer. close: no other follows on the connection. */
void respond_head(const exchange *x, bool old, bool close, str *out);

#endif
