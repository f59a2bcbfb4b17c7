#include "train/shards.h"

#include "base/mem.h"

#include <string.h>

enum { BLOCK = 256, USUAL = 64, LARGE = 1 << 16 };

/* ---- slices ---- */

shards shards_of(comm *c, int64_t n)
{
    int64_t wanted = n / LARGE < USUAL ? USUAL : n / LARGE;
    wanted = wanted < SHARD_SEGMENTS ? wanted : SHARD_SEGMENTS;
    int64_t segment = (n + wanted - 1) / wanted;
    segment = segment < SHARD_LEAST ? SHARD_LEAST : (segment + BLOCK - 1) / BLOCK * BLOCK;
    return (shards){ c, n, segment, (int32_t)((n + segment - 1) / segment) };
}

shard_range shards_segments(const shards *s, int32_t rank)
{
    int64_t size = comm_size(s->comm);
    return (shard_range){ rank * s->n_segments / size, (rank + 1) * s->n_segments / size };
}

static int64_t element_of(const shards *s, int64_t segment)
{
    int64_t at = segment * s->segment;
    return at < s->n ? at : s->n;
}

shard_range shards_segment(const shards *s, int64_t i)
{
    return (shard_range){ element_of(s, i), element_of(s, i + 1) };
}

shard_range shards_slice(const shards *s, int32_t rank)
{
    shard_range r = shards_segments(s, rank);
    return (shard_range){ element_of(s, r.first), element_of(s, r.end) };
}

tensor shards_part(tensor flat, shard_range r, int64_t per)
{
    int64_t first = r.first / per, end = (r.end + per - 1) / per;
    tensor t = { .dt = flat.dt, .nd = 1, .ne = { end > first ? end - first : 0 } };
    t.data = (char *)flat.data + (size_t)first * dtype_block_bytes(flat.dt);
    return t;
}

/* ---- device memory between processes ---- */

pesc_status shard_wire_open(shard_wire *w, device *dev, comm *c, size_t most)
{
    size_t size = (size_t)comm_size(c);
    *w = (shard_wire){ .dev = dev, .comm = c, .most = most };
    if (!c)
        return PESC_OK;
    w->send = mem_zalloc(size, sizeof *w->send);
    w->recv = mem_zalloc(size, sizeof *w->recv);
    bool fine = w->send && w->recv, host = dev->op->host_memory(dev);
    if (!host)
        TRY(comm_join_gpus(c, &w->gpus));
    if (!host && !w->gpus) {
        w->out = mem_alloc(size, most);
        w->in = mem_alloc(size, most);
        fine = fine && w->out && w->in;
    }
    return fine ? PESC_OK : fail_nomem("what processes exchange", 2 * size * most);
}

void shard_wire_close(shard_wire *w)
{
    mem_free(w->out);
    mem_free(w->in);
    mem_free(w->send);
    mem_free(w->recv);
    *w = (shard_wire){ 0 };
}

/* Through the buffers on the host. */
static pesc_status exchange_copies(shard_wire *w, const char *what, const comm_part *send,
                                   const comm_part *recv)
{
    device *dev = w->dev;
    int32_t size = comm_size(w->comm), own = comm_rank(w->comm);
    for (int32_t r = 0; r < size; r++) {
        ASSERT(send[r].bytes <= w->most && recv[r].bytes <= w->most);
        bool moves = r != own || send[r].at != recv[r].at;
        w->send[r] = (comm_part){ w->out + (size_t)r * w->most, moves ? send[r].bytes : 0 };
        w->recv[r] = (comm_part){ w->in + (size_t)r * w->most, moves ? recv[r].bytes : 0 };
        if (w->send[r].bytes)
            TRY(dev->op->download(dev, w->send[r].at, send[r].at, send[r].bytes));
    }
    TRY(comm_all_to_all(w->comm, what, w->send, w->recv));
    for (int32_t r = 0; r < size; r++)
        if (w->recv[r].bytes)
            dev->op->upload(dev, recv[r].at, w->recv[r].at, recv[r].bytes);
    return dev->op->sync(dev); /* the buffers are used again */
}

pesc_status shard_wire_exchange(shard_wire *w, const char *what, const comm_part *send,
                                const comm_part *recv)
{
    device *dev = w->dev;
    if (!w->comm)
        return PESC_OK;
    if (w->out)
        return exchange_copies(w, what, send, recv);
    TRY(dev->op->sync(dev)); /* ops have finished with what is sent and where something comes */
    return (w->gpus ? comm_all_to_all_gpus : comm_all_to_all)(w->comm, what, send, recv);
}

/* Elements of the largest slice. */
static int64_t largest_slice(const shards *s)
{
    int64_t most = 0;
    for (int32_t r = 0; r < comm_size(s->comm); r++) {
        shard_range a = shards_slice(s, r);
        most = a.end - a.first > most ? a.end - a.first : most;
    }
    return most;
}

/* The part of a rank's slice that is sent in one round. */
static comm_part piece(const shards *s, tensor flat, int32_t rank, shard_range round)
{
    shard_range a = shards_slice(s, rank);
    int64_t n = a.end - a.first, end = round.end < n ? round.end : n;
    return (comm_part){ (float *)flat.data + a.first + round.first,
                        end > round.first ? (size_t)(end - round.first) * sizeof(float) : 0 };
}

pesc_status shards_gather(const shards *s, shard_wire *w, const char *what, tensor flat)
{
    int32_t size = comm_size(s->comm), own = comm_rank(s->comm);
    int64_t most = s->comm ? largest_slice(s) : 0, step = (int64_t)(w->most / sizeof(float));
    comm_part *all = mem_alloc(2 * (size_t)size, sizeof *all);
    if (!all)
        return fail_nomem(what, (size_t)size * sizeof *all);
    pesc_status st = PESC_OK;
    for (int64_t at = 0; st == PESC_OK && at < most; at += step) {
        for (int32_t r = 0; r < size; r++) {
            all[r] = piece(s, flat, r, (shard_range){ at, at + step });
            all[size + r] = piece(s, flat, own, (shard_range){ at, at + step });
        }
        st = shard_wire_exchange(w, what, all + size, all);
    }
    mem_free(all);
    return st;
}
