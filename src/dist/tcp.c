/* tcp: a connection between each pair of processes. */
#include "dist/transport.h"

#include "base/mem.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

enum { POLL_MS = 200 };

/* Goes before the bytes of an exchange, so that processes that are out of step are noticed. */
typedef struct header {
    uint64_t number, bytes;
} header;

/* What is left of an exchange with one rank: first the header, then the bytes. */
typedef struct stream {
    header head;
    size_t at; /* bytes done, header included */
    peer_part part;
} stream;

typedef struct tcp {
    int32_t rank, size;
    heartbeat *beat; /* borrowed */
    int *fd;         /* [size] */
    struct pollfd *poll;
    stream *in, *out;
    uint64_t number; /* of the exchange */
} tcp;

/* ---- connecting ---- */

/* Ranks below this one accept, ranks above connect. */
static pesc_status connect_all(tcp *t, const rendezvous *m)
{
    for (int32_t r = 0; r < t->rank; r++) {
        TRY(socket_connect(&t->fd[r], m->members[r].address, m->members[r].port,
                           rendezvous_seconds()));
        if (socket_send(t->fd[r], &t->rank, sizeof t->rank, 10) != PESC_OK)
            return fail(PESC_LOST, "rank %d (%s) has ended while the processes met", r,
                        m->members[r].host);
    }
    for (int32_t left = t->size - 1 - t->rank; left > 0;) {
        int fd;
        int32_t rank = -1;
        TRY(socket_accept(&fd, m->listening, rendezvous_seconds()));
        bool fine = socket_receive(fd, &rank, sizeof rank, 10) == PESC_OK && rank > t->rank &&
                    rank < t->size && t->fd[rank] < 0;
        if (fine) {
            t->fd[rank] = fd;
            left--;
        } else {
            socket_close(fd);
        }
    }
    return PESC_OK;
}

static void tcp_close(void *self, bool orderly)
{
    tcp *t = self;
    (void)orderly;
    for (int32_t i = 0; t->fd && i < t->size; i++)
        socket_close(t->fd[i]);
    mem_free(t->fd);
    mem_free(t->poll);
    mem_free(t->in);
    mem_free(t->out);
    mem_free(t);
}

pesc_status tcp_open(void **self, const rendezvous *m, const launch *l, heartbeat *beat)
{
    size_t n = (size_t)l->size;
    *self = NULL;
    tcp *t = mem_zalloc(1, sizeof *t);
    if (!t)
        return fail_nomem("connections", sizeof *t);
    *self = t;
    t->rank = l->rank;
    t->size = l->size;
    t->beat = beat;
    t->fd = mem_alloc(n, sizeof *t->fd);
    t->poll = mem_alloc(n, sizeof *t->poll);
    t->in = mem_alloc(n, sizeof *t->in);
    t->out = mem_alloc(n, sizeof *t->out);
    if (!t->fd || !t->poll || !t->in || !t->out)
        return fail_nomem("connections", n * sizeof(stream));
    for (int32_t i = 0; i < l->size; i++)
        t->fd[i] = -1;
    return connect_all(t, m);
}

/* ---- an exchange ---- */

static bool is_done(const stream *s)
{
    return s->part.bytes == 0 || s->at == sizeof s->head + s->part.bytes;
}

/* The span that is to be sent or received next. */
static char *next_span(stream *s, size_t *n)
{
    if (s->at < sizeof s->head) {
        *n = sizeof s->head - s->at;
        return (char *)&s->head + s->at;
    }
    size_t at = s->at - sizeof s->head;
    *n = s->part.bytes - at;
    return (char *)s->part.at + at;
}

static pesc_status move(tcp *t, int32_t rank, bool out)
{
    stream *s = out ? &t->out[rank] : &t->in[rank];
    while (!is_done(s)) {
        size_t left;
        char *at = next_span(s, &left);
        ssize_t n = out ? send(t->fd[rank], at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(t->fd[rank], at, left, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return PESC_OK;
        if (n <= 0)
            return heartbeat_explain(t->beat, rank);
        s->at += (size_t)n;
        if (!out && s->at == sizeof s->head &&
            (s->head.number != t->number || s->head.bytes != s->part.bytes))
            return fail(PESC_LOST,
                        "rank %d is not at the same point as rank %d: exchange %llu of %llu bytes, "
                        "and %llu of %zu",
                        rank, t->rank, (unsigned long long)s->head.number,
                        (unsigned long long)s->head.bytes, (unsigned long long)t->number,
                        s->part.bytes);
    }
    return PESC_OK;
}

/* Fills t->poll with the connections that are not done; false: all are. */
static bool prepare_poll(tcp *t)
{
    bool any = false;
    for (int32_t r = 0; r < t->size; r++) {
        short in = r != t->rank && !is_done(&t->in[r]) ? POLLIN : 0;
        short out = r != t->rank && !is_done(&t->out[r]) ? POLLOUT : 0;
        t->poll[r] = (struct pollfd){ in || out ? t->fd[r] : -1, (short)(in | out), 0 };
        any = any || in || out;
    }
    return any;
}

static pesc_status tcp_exchange(void *self, const peer_part *send, const peer_part *recv)
{
    tcp *t = self;
    t->number++;
    for (int32_t r = 0; r < t->size; r++) {
        t->out[r] = (stream){ { t->number, send[r].bytes }, 0, send[r] };
        t->in[r] = (stream){ .part = recv[r] };
    }
    while (prepare_poll(t)) {
        int n = poll(t->poll, (nfds_t)t->size, POLL_MS);
        for (int32_t r = 0; n > 0 && r < t->size; r++) {
            short got = t->poll[r].revents;
            if (got & (POLLIN | POLLERR | POLLHUP))
                TRY(move(t, r, false));
            if (got & (POLLOUT | POLLERR | POLLHUP))
                TRY(move(t, r, true));
        }
        TRY(heartbeat_check(t->beat));
    }
    return PESC_OK;
}

const comm_transport tcp_transport = { "tcp", tcp_exchange, tcp_close };
