#include "dist/rendezvous.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char magic[8] = "pesc 1\n";

typedef struct hello {
    char magic[8];
    char version[24];
    int32_t rank, size, port;
    char host[64];
} hello;

typedef struct welcome {
    int32_t refused; /* a pesc_status, with a sentence, and nothing follows; 0: the entries do */
    char why[252];
} welcome;

double rendezvous_seconds(void)
{
    const char *text = getenv("PESC_MEET");
    double v;
    return text && str_to_f64(text, &v) && v >= 1 ? v : RENDEZVOUS_SECONDS;
}

static hello introduce(const launch *l, int32_t port)
{
    hello h = { .rank = l->rank, .size = l->size, .port = port };
    memcpy(h.magic, magic, sizeof magic);
    snprintf(h.version, sizeof h.version, "%s", pesc_version());
    if (gethostname(h.host, sizeof h.host - 1) != 0)
        snprintf(h.host, sizeof h.host, "this host");
    return h;
}

static void set_member(rendezvous_entry *e, const hello *h, const char *address)
{
    snprintf(e->host, sizeof e->host, "%.63s", h->host);
    snprintf(e->address, sizeof e->address, "%.63s", address);
    e->port = h->port;
}

/* What is wrong with a process that wants to join; false: nothing. */
static bool refuse(const rendezvous *m, const launch *l, const hello *h, welcome *w)
{
    *w = (welcome){ .refused = PESC_USAGE };
    if (strncmp(h->version, pesc_version(), sizeof h->version) != 0)
        snprintf(w->why, sizeof w->why, "rank %d (%.63s) runs pesc %.23s, rank 0 runs %s", h->rank,
                 h->host, h->version, pesc_version());
    else if (h->size != l->size)
        snprintf(w->why, sizeof w->why, "rank %d (%.63s) expects %d processes, rank 0 expects %d",
                 h->rank, h->host, h->size, l->size);
    else if (h->rank < 1 || h->rank >= l->size || m->line[h->rank] >= 0)
        snprintf(w->why, sizeof w->why, "two processes have rank %d: the other is on %.63s",
                 h->rank, h->host);
    else
        w->refused = 0;
    return w->refused;
}

/* A connection that is not one of ours (a port scanner) is closed and forgotten. */
static pesc_status admit(rendezvous *m, const launch *l, int fd)
{
    hello h;
    welcome w;
    char address[SOCKET_HOST];
    if (socket_receive(fd, &h, sizeof h, 5) != PESC_OK || memcmp(h.magic, magic, sizeof magic)) {
        socket_close(fd);
        return PESC_OK;
    }
    h.version[sizeof h.version - 1] = h.host[sizeof h.host - 1] = '\0';
    if (refuse(m, l, &h, &w)) {
        (void)socket_send(fd, &w, sizeof w, 5);
        socket_close(fd);
        return fail(PESC_USAGE, "%s", w.why);
    }
    socket_peer(fd, address);
    set_member(&m->members[h.rank], &h, address);
    m->line[h.rank] = fd;
    return PESC_OK;
}

/* Rank 0 gives up and sends the reason to the ranks that wait. */
static void refuse_all(const rendezvous *m, int32_t size, pesc_status st)
{
    welcome w = { .refused = (int32_t)st };
    snprintf(w.why, sizeof w.why, "%.250s", pesc_last_error());
    for (int32_t r = 1; r < size; r++)
        if (m->line[r] >= 0)
            (void)socket_send(m->line[r], &w, sizeof w, 1);
}

static bool all_here(const rendezvous *m, int32_t size, int32_t *missing)
{
    for (*missing = 1; *missing < size; ++*missing)
        if (m->line[*missing] < 0)
            return false;
    return true;
}

static pesc_status admit_all(rendezvous *m, const launch *l, int gate)
{
    double seconds = rendezvous_seconds(), until = clock_seconds() + seconds;
    int32_t missing;
    while (!all_here(m, l->size, &missing)) {
        int fd;
        if (socket_accept(&fd, gate, until - clock_seconds()) != PESC_OK)
            return fail(PESC_LOST,
                        "rank %d has not joined the %d processes of this run after %.0f s", missing,
                        l->size, seconds);
        TRY(admit(m, l, fd));
    }
    return PESC_OK;
}

static pesc_status gather(rendezvous *m, const launch *l, int gate)
{
    welcome w = { 0 };
    char address[SOCKET_HOST];
    hello me = introduce(l, 0);
    pesc_status st = admit_all(m, l, gate);
    if (st != PESC_OK) {
        refuse_all(m, l->size, st);
        return st;
    }
    socket_own(m->line[1], address);
    TRY(socket_listen(&m->listening, address, &me.port));
    set_member(&m->members[0], &me, address);
    /* One that has died since it came is for the heartbeat, which tells all who it was. */
    for (int32_t r = 1; r < l->size; r++)
        if (socket_send(m->line[r], &w, sizeof w, 10) == PESC_OK)
            (void)socket_send(m->line[r], m->members, (size_t)l->size * sizeof *m->members, 10);
    return PESC_OK;
}

static pesc_status join(rendezvous *m, const launch *l)
{
    welcome w;
    char address[SOCKET_HOST];
    double seconds = rendezvous_seconds();
    TRY(socket_connect(&m->line[0], l->master, l->port, seconds));
    socket_own(m->line[0], address);
    hello me = introduce(l, 0);
    TRY(socket_listen(&m->listening, address, &me.port));
    if (socket_send(m->line[0], &me, sizeof me, 10) != PESC_OK ||
        socket_receive(m->line[0], &w, sizeof w, seconds + 5) != PESC_OK)
        return fail(PESC_LOST, "rank 0 (%s) has not answered: it has ended or stopped", l->master);
    if (w.refused)
        return fail((pesc_status)w.refused, "%.251s", w.why);
    TRY(socket_receive(m->line[0], m->members, (size_t)l->size * sizeof *m->members, 10));
    socket_peer(m->line[0], m->members[0].address);
    return PESC_OK;
}

pesc_status rendezvous_open(rendezvous *m, const launch *l, int gate)
{
    *m = (rendezvous){ .listening = -1 };
    m->members = mem_zalloc((size_t)l->size, sizeof *m->members);
    m->line = mem_alloc((size_t)l->size, sizeof *m->line);
    if (!m->members || !m->line)
        return fail_nomem("the processes of a run", (size_t)l->size * sizeof *m->members);
    for (int32_t i = 0; i < l->size; i++)
        m->line[i] = -1;
    return l->rank == 0 ? gather(m, l, gate) : join(m, l);
}

void rendezvous_close(rendezvous *m, int32_t size)
{
    for (int32_t i = 0; m->line && i < size; i++)
        socket_close(m->line[i]);
    socket_close(m->listening);
    mem_free(m->line);
    mem_free(m->members);
    *m = (rendezvous){ .listening = -1 };
}
