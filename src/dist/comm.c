#include "dist/comm.h"

#include "base/args.h"
#include "base/mem.h"
#include "dist/transport.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct pesc_comm {
    peers peers; /* first: the rooms below know the run by it */
    launch at;
    rendezvous all;
    heartbeat *beat;
    const comm_transport *link;
    void *self;             /* of the transport */
    void *nccl;             /* NULL: not joined, or not there */
    peer_part *send, *recv; /* [size]: scratch */
};

/* ---- opening ---- */

/* MPI has connected the processes; rank 0 tells where its heartbeat is. */
static pesc_status open_mpi(comm *c, int *gate)
{
    struct {
        char host[sizeof c->at.master];
        int32_t port;
    } where = { 0 };
    char own[sizeof where.host] = "";
    c->link = &mpi_transport;
    TRY(mpi_open(&c->self, &c->at));
    if (gethostname(own, sizeof own - 1) != 0)
        own[0] = '\0';
    if (c->at.rank == 0) {
        memcpy(where.host, own, sizeof own);
        TRY(socket_listen(gate, NULL, &where.port));
    }
    TRY(mpi_broadcast(c->self, &where, sizeof where));
    bool here = strcmp(own, where.host) == 0;
    snprintf(c->at.master, sizeof c->at.master, "%s", here ? "127.0.0.1" : where.host);
    c->at.port = where.port;
    return PESC_OK;
}

/* The address of rank 0 may be one that only the others know (a gateway's). */
static pesc_status open_gate(comm *c, int *gate)
{
    *gate = c->at.gate;
    if (c->at.rank != 0 || *gate >= 0 || socket_listen(gate, c->at.master, &c->at.port) == PESC_OK)
        return PESC_OK;
    return socket_listen(gate, NULL, &c->at.port);
}

static pesc_status open_all(comm *c, const pesc_comm_options *opt)
{
    int gate = -1;
    c->send = mem_zalloc((size_t)c->at.size, sizeof *c->send);
    c->recv = mem_zalloc((size_t)c->at.size, sizeof *c->recv);
    pesc_status s = c->send && c->recv ? PESC_OK : fail_nomem("processes", (size_t)c->at.size);
    bool by_mpi = c->at.kind == LAUNCH_MPI;
    if (s == PESC_OK)
        s = by_mpi ? open_mpi(c, &gate) : open_gate(c, &gate);
    if (s == PESC_OK)
        s = rendezvous_open(&c->all, &c->at, gate);
    socket_close(gate);
    TRY(s);
    TRY(heartbeat_open(&c->beat, &c->all, &c->at, opt));
    if (by_mpi) {
        mpi_watch(c->self, c->beat);
        return PESC_OK;
    }
    c->link = &tcp_transport;
    return tcp_open(&c->self, &c->all, &c->at, c->beat);
}

pesc_status pesc_comm_open(pesc_comm **out, const pesc_comm_options *opt)
{
    status_clear();
    NEED(out);
    *out = NULL;
    pesc_comm_options o = { .size = sizeof o };
    ARGS_READ(&o, opt);
    launch at;
    TRY(launch_find(&at));
    if (at.size == 1)
        return PESC_OK;
    comm *c = mem_zalloc(1, sizeof *c);
    if (!c)
        return fail_nomem("the processes of a run", sizeof *c);
    c->at = at;
    c->all.listening = -1;
    pesc_status s = open_all(c, &o);
    if (s == PESC_OK)
        *out = c;
    else
        pesc_comm_close(c, pesc_last_error());
    return s;
}

void pesc_comm_close(pesc_comm *c, const char *failure)
{
    if (!c)
        return;
    heartbeat_close(c->beat, failure);
    if (c->nccl)
        nccl_transport.close(c->nccl, !failure);
    if (c->self)
        c->link->close(c->self, !failure);
    rendezvous_close(&c->all, c->at.size);
    mem_free(c->send);
    mem_free(c->recv);
    mem_free(c);
}

peers *comm_peers(comm *c)
{
    return c ? &c->peers : NULL;
}

int32_t comm_rank(const comm *c)
{
    return c ? c->at.rank : 0;
}

int32_t comm_size(const comm *c)
{
    return c ? c->at.size : 1;
}

int32_t comm_beside(const comm *c)
{
    int32_t n = 0;
    for (int32_t i = 0; i < comm_size(c); i++)
        n += strcmp(c->all.members[i].host, c->all.members[c->at.rank].host) == 0;
    return n;
}

int32_t pesc_comm_rank(const pesc_comm *c)
{
    return comm_rank(c);
}

int32_t pesc_comm_size(const pesc_comm *c)
{
    return comm_size(c);
}

int32_t pesc_comm_local_rank(const pesc_comm *c)
{
    return c ? c->at.local_rank : 0;
}

const char *pesc_comm_host(const pesc_comm *c)
{
    return c ? c->all.members[c->at.rank].host : "";
}

/* ---- collectives ---- */

pesc_status comm_all_to_all(comm *c, const char *what, const peer_part *send, const peer_part *recv)
{
    if (!c)
        return PESC_OK;
    const peer_part *from = &send[c->at.rank], *to = &recv[c->at.rank];
    if (from->bytes && from->at != to->at)
        memmove(to->at, from->at, from->bytes);
    TRY(heartbeat_check(c->beat));
    heartbeat_enter(c->beat, what);
    pesc_status s = c->link->exchange(c->self, send, recv);
    heartbeat_leave(c->beat);
    return s;
}

pesc_status comm_all_gather(comm *c, const char *what, const peer_part *all)
{
    for (int32_t r = 0; c && r < c->at.size; r++)
        c->send[r] = all[c->at.rank];
    return c ? comm_all_to_all(c, what, c->send, all) : PESC_OK;
}

pesc_status comm_broadcast(comm *c, const char *what, void *at, size_t bytes, int32_t root)
{
    if (!c)
        return PESC_OK;
    for (int32_t r = 0; r < c->at.size; r++) {
        c->send[r] = (peer_part){ at, c->at.rank == root ? bytes : 0 };
        c->recv[r] = (peer_part){ at, r == root ? bytes : 0 };
    }
    return comm_all_to_all(c, what, c->send, c->recv);
}

pesc_status comm_agree(comm *c, const char *what, int64_t *flag)
{
    if (!c)
        return PESC_OK;
    int64_t *all = mem_zalloc((size_t)c->at.size, sizeof *all);
    if (!all)
        return fail_nomem(what, (size_t)c->at.size * sizeof *all);
    all[c->at.rank] = *flag;
    for (int32_t r = 0; r < c->at.size; r++)
        c->recv[r] = (peer_part){ &all[r], sizeof *all };
    pesc_status s = comm_all_gather(c, what, c->recv);
    for (int32_t r = 0; s == PESC_OK && r < c->at.size; r++)
        *flag = all[r] > *flag ? all[r] : *flag;
    mem_free(all);
    return s;
}

static pesc_status join_nccl(comm *c)
{
    nccl_id id = { { 0 } };
    pesc_status s = c->at.rank == 0 ? nccl_make_id(c->nccl, &id) : PESC_OK;
    TRY(comm_agree_status(c, "joining GPUs", s));
    TRY(comm_broadcast(c, "joining GPUs", &id, sizeof id, 0));
    return comm_agree_status(c, "joining GPUs", nccl_join(c->nccl, &c->at, id));
}

pesc_status comm_join_gpus(comm *c, bool *out)
{
    *out = c && c->nccl;
    if (!c || c->nccl)
        return PESC_OK;
    int64_t missing = nccl_load(&c->nccl) != PESC_OK;
    TRY(comm_agree(c, "joining GPUs", &missing));
    if (missing) {
        if (c->nccl)
            nccl_transport.close(c->nccl, false);
        c->nccl = NULL;
        return PESC_OK;
    }
    *out = true;
    return join_nccl(c);
}

pesc_status comm_all_to_all_gpus(comm *c, const char *what, const peer_part *send,
                                 const peer_part *recv)
{
    TRY(heartbeat_check(c->beat));
    heartbeat_enter(c->beat, what);
    pesc_status s = nccl_transport.exchange(c->nccl, send, recv);
    heartbeat_leave(c->beat);
    return s;
}

pesc_status comm_barrier(comm *c, const char *what)
{
    int64_t flag = 0;
    return comm_agree(c, what, &flag);
}

/* What a process tells of its failure. */
typedef struct outcome {
    int32_t status;
    char text[1020];
} outcome;

pesc_status comm_agree_status(comm *c, const char *what, pesc_status own)
{
    if (!c)
        return own;
    outcome *all = mem_zalloc((size_t)c->at.size, sizeof *all);
    if (!all)
        return fail_nomem(what, (size_t)c->at.size * sizeof *all);
    outcome *mine = &all[c->at.rank];
    mine->status = (int32_t)own;
    if (own != PESC_OK)
        snprintf(mine->text, sizeof mine->text, "%.1000s", pesc_last_error());
    for (int32_t r = 0; r < c->at.size; r++)
        c->recv[r] = (peer_part){ &all[r], sizeof *all };
    pesc_status s = comm_all_gather(c, what, c->recv);
    for (int32_t r = 0; s == PESC_OK && r < c->at.size; r++)
        if (all[r].status != PESC_OK)
            s = own != PESC_OK ? fail(own, "%s", mine->text)
                               : fail((pesc_status)all[r].status, "rank %d (%.63s): %.1019s", r,
                                      c->all.members[r].host, all[r].text);
    mem_free(all);
    return s;
}
