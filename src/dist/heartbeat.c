#include "dist/heartbeat.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SENTENCE = 400, BEAT_MS = 250 };

/* A heartbeat (ALIVE), a shutdown message (DONE, FAILED), or the verdict of rank 0 (LOST). */
typedef enum message_kind { ALIVE = 1, DONE, FAILED, LOST } message_kind;
typedef struct message {
    int32_t kind;
    int32_t waiting; /* ALIVE: whether it is in a collective, */
    int64_t count;   /* and how many it has entered */
    char text[SENTENCE];
} message;

typedef struct peer {
    int fd;
    size_t got; /* bytes of `in` */
    message in;
    bool gone; /* said that it shuts down */
    double heard;
    double verdict_at; /* it failed: when the others are told; 0: it has not */
    bool waiting;
    int64_t count;
    double waiting_since;
    char why[SENTENCE];
} peer;

struct heartbeat {
    const rendezvous *m;
    launch at;
    pesc_comm_options opt;
    double silence;
    peer *peers; /* [size]; rank 0 has all others, they have rank 0 alone */
    int wake[2]; /* a byte wakes the thread */
    pthread_t thread;
    bool running;
    atomic_int leaving; /* 1: done, 2: failed with `failure` */
    char failure[SENTENCE];
    _Atomic(const char *) what; /* the current collective; NULL: none */
    _Atomic double entered;     /* when it began */
    atomic_llong count;
    atomic_bool lost;
    char sentence[SENTENCE + 200]; /* written before `lost` is set */
};

/* ---- sending ---- */

static message beat(heartbeat *l)
{
    message m = { .kind = ALIVE, .waiting = l->what != NULL, .count = l->count };
    return m;
}

/* A process that does not read will be noticed as silent. */
static void send_to(const peer *p, const message *m)
{
    if (p->fd >= 0 && !p->gone)
        (void)!send(p->fd, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void send_to_all(heartbeat *l, const message *m)
{
    for (int32_t r = 0; r < l->at.size; r++)
        send_to(&l->peers[r], m);
}

/* ---- the verdict ---- */

static void report_lost(heartbeat *l, const char *text)
{
    const char *what = l->what;
    if (l->lost)
        return;
    if (what)
        snprintf(l->sentence, sizeof l->sentence, "%s (this process waits for it in: %s)", text,
                 what);
    else
        snprintf(l->sentence, sizeof l->sentence, "%s", text);
    l->lost = true;
    if (l->opt.lost)
        l->opt.lost(l->opt.ud, l->sentence);
}

/* Rank 0 tells the others first: its own callback may end the process. */
static void declare_lost(heartbeat *l, const char *text)
{
    message m = { .kind = LOST };
    snprintf(m.text, sizeof m.text, "%s", text);
    if (l->at.rank == 0 && !l->lost)
        send_to_all(l, &m);
    report_lost(l, text);
}

static void declare_rank_lost(heartbeat *l, int32_t rank, const char *how)
{
    char text[SENTENCE];
    snprintf(text, sizeof text, "rank %d (%.63s) %s", rank, l->m->members[rank].host, how);
    declare_lost(l, text);
    l->peers[rank].gone = true;
}

/* ---- receiving ---- */

static void hear(heartbeat *l, int32_t rank, const message *m)
{
    peer *p = &l->peers[rank];
    switch (m->kind) {
    case ALIVE:
        if (!p->waiting || p->count != m->count)
            p->waiting_since = clock_seconds();
        p->waiting = m->waiting;
        p->count = m->count;
        break;
    case LOST:
        report_lost(l, m->text);
        break;
    case FAILED:
        p->verdict_at = clock_seconds() + HEARTBEAT_GRACE;
        snprintf(p->why, sizeof p->why, "failed: %.380s", m->text);
        p->gone = true;
        break;
    default:
        p->gone = true;
        break;
    }
}

static void receive(heartbeat *l, int32_t rank)
{
    peer *p = &l->peers[rank];
    ssize_t n = recv(p->fd, (char *)&p->in + p->got, sizeof p->in - p->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        if (!p->gone)
            declare_rank_lost(l, rank, "has died: its connection is closed");
        p->fd = -1; /* the rendezvous closes it */
        return;
    }
    p->heard = clock_seconds();
    p->got += (size_t)n;
    if (p->got < sizeof p->in)
        return;
    p->got = 0;
    p->in.text[SENTENCE - 1] = '\0';
    hear(l, rank, &p->in);
}

/* ---- what is due ---- */

/* The one rank that all others, this one among them, have been waiting for since long; -1: none.
 * Only rank 0 knows all. */
static int32_t find_late(heartbeat *l, double now)
{
    int32_t late = -1;
    double since = l->entered;
    if (l->at.rank != 0 || !l->what)
        return -1;
    for (int32_t r = 1; r < l->at.size; r++) {
        const peer *p = &l->peers[r];
        if (p->gone || (!p->waiting && late >= 0)) /* two that compute */
            return -1;
        late = p->waiting ? late : r;
        since = p->waiting && p->waiting_since > since ? p->waiting_since : since;
    }
    return now - since >= HEARTBEAT_LATE ? late : -1;
}

static bool anyone_left(const heartbeat *l)
{
    for (int32_t r = 0; r < l->at.size; r++)
        if (l->peers[r].fd >= 0 && !l->peers[r].gone)
            return true;
    return false;
}

static void check_peers(heartbeat *l, double now)
{
    char how[SENTENCE];
    for (int32_t r = 0; r < l->at.size && !l->lost; r++) {
        const peer *p = &l->peers[r];
        if (p->verdict_at > 0 && now >= p->verdict_at) {
            snprintf(how, sizeof how, "%s", p->why);
            declare_rank_lost(l, r, how);
        } else if (p->fd >= 0 && !p->gone && now - p->heard > l->silence) {
            snprintf(how, sizeof how,
                     "has not been heard of for %.0f s: it is stopped, or its machine is down",
                     l->silence);
            declare_rank_lost(l, r, how);
        }
    }
    int32_t late = l->lost ? -1 : find_late(l, now);
    if (late >= 0) {
        snprintf(how, sizeof how, "has kept the others waiting for %d s", HEARTBEAT_LATE);
        declare_rank_lost(l, late, how);
    }
}

/* Says that this process ends; false: it must stay until the others know why it fails. */
static bool leave(heartbeat *l, double *until)
{
    message m = { .kind = l->leaving == 1 ? DONE : FAILED };
    double now = clock_seconds();
    if (*until == 0) {
        snprintf(m.text, sizeof m.text, "%.380s", l->failure);
        if (m.kind == DONE || l->at.rank != 0)
            send_to_all(l, &m);
        *until = m.kind == DONE || l->at.rank != 0 ? now : now + HEARTBEAT_GRACE;
    }
    if (now < *until && anyone_left(l))
        return false;
    if (m.kind == FAILED && l->at.rank == 0 && anyone_left(l) && !l->lost) {
        m = (message){ .kind = LOST };
        snprintf(m.text, sizeof m.text, "rank 0 (%.63s) failed: %.300s", l->m->members[0].host,
                 l->failure);
        send_to_all(l, &m);
    }
    return true;
}

static void *watch(void *arg)
{
    heartbeat *l = arg;
    struct pollfd *p = mem_alloc((size_t)l->at.size + 1, sizeof *p);
    double next = 0, until = 0;
    while (p) {
        for (int32_t r = 0; r < l->at.size; r++)
            p[r] = (struct pollfd){ l->peers[r].fd, POLLIN, 0 };
        p[l->at.size] = (struct pollfd){ l->wake[0], POLLIN, 0 };
        poll(p, (nfds_t)l->at.size + 1, BEAT_MS);
        for (int32_t r = 0; r < l->at.size; r++)
            if (p[r].revents)
                receive(l, r);
        double now = clock_seconds();
        if (l->leaving && leave(l, &until))
            break;
        if (now >= next) {
            message m = beat(l);
            send_to_all(l, &m);
            next = now + 1;
        }
        if (!l->leaving)
            check_peers(l, now);
        if (p[l->at.size].revents) {
            char byte;
            (void)!read(l->wake[0], &byte, 1);
        }
    }
    mem_free(p);
    return NULL;
}

/* ---- the interface ---- */

pesc_status heartbeat_open(heartbeat **out, const rendezvous *m, const launch *at,
                           const pesc_comm_options *opt)
{
    const char *silence = getenv("PESC_SILENCE");
    *out = NULL;
    heartbeat *l = mem_zalloc(1, sizeof *l);
    peer *peers = mem_zalloc((size_t)at->size, sizeof *peers);
    if (!l || !peers || pipe(l->wake) != 0) {
        mem_free(peers);
        mem_free(l);
        return fail_nomem("the heartbeat", (size_t)at->size * sizeof *peers);
    }
    l->m = m;
    l->at = *at;
    l->opt = *opt;
    l->peers = peers;
    if (!silence || !str_to_f64(silence, &l->silence) || l->silence < 1)
        l->silence = HEARTBEAT_SILENCE;
    for (int32_t r = 0; r < at->size; r++)
        peers[r] = (peer){ .fd = m->line[r], .heard = clock_seconds() };
    int e = thread_start(&l->thread, watch, l);
    l->running = e == 0;
    *out = l;
    return e == 0 ? PESC_OK : fail_errno(PESC_NOMEM, e, "a thread");
}

void heartbeat_close(heartbeat *l, const char *failure)
{
    if (!l)
        return;
    snprintf(l->failure, sizeof l->failure, "%.380s", failure ? failure : "");
    l->leaving = failure ? 2 : 1;
    (void)!write(l->wake[1], "", 1);
    if (l->running)
        pthread_join(l->thread, NULL);
    socket_close(l->wake[0]);
    socket_close(l->wake[1]);
    mem_free(l->peers);
    mem_free(l);
}

void heartbeat_enter(heartbeat *l, const char *what)
{
    l->count++;
    l->entered = clock_seconds();
    l->what = what;
}

void heartbeat_leave(heartbeat *l)
{
    l->what = NULL;
}

pesc_status heartbeat_check(heartbeat *l)
{
    return l->lost ? fail(PESC_LOST, "%s", l->sentence) : PESC_OK;
}

pesc_status heartbeat_explain(heartbeat *l, int32_t rank)
{
    double until = clock_seconds() + l->silence + HEARTBEAT_GRACE + 2;
    while (clock_seconds() < until) {
        TRY(heartbeat_check(l));
        poll(NULL, 0, 20);
    }
    return fail(PESC_LOST, "the connection to rank %d (%.63s) broke", rank,
                l->m->members[rank].host);
}
