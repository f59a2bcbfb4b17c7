#include "dist/wire.h"

#include "base/mem.h"

pesc_status wire_open(wire *w, device *dev, comm *c, size_t most)
{
    size_t size = (size_t)comm_size(c);
    *w = (wire){ .dev = dev, .comm = c, .most = most };
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

void wire_close(wire *w)
{
    mem_free(w->out);
    mem_free(w->in);
    mem_free(w->send);
    mem_free(w->recv);
    *w = (wire){ 0 };
}

/* Through the buffers on the host. */
static pesc_status exchange_copies(wire *w, const char *what, const peer_part *send,
                                   const peer_part *recv)
{
    device *dev = w->dev;
    int32_t size = comm_size(w->comm), own = comm_rank(w->comm);
    for (int32_t r = 0; r < size; r++) {
        ASSERT(send[r].bytes <= w->most && recv[r].bytes <= w->most);
        bool moves = r != own || send[r].at != recv[r].at;
        w->send[r] = (peer_part){ w->out + (size_t)r * w->most, moves ? send[r].bytes : 0 };
        w->recv[r] = (peer_part){ w->in + (size_t)r * w->most, moves ? recv[r].bytes : 0 };
        if (w->send[r].bytes)
            TRY(dev->op->download(dev, w->send[r].at, send[r].at, send[r].bytes));
    }
    TRY(comm_all_to_all(w->comm, what, w->send, w->recv));
    for (int32_t r = 0; r < size; r++)
        if (w->recv[r].bytes)
            dev->op->upload(dev, recv[r].at, w->recv[r].at, recv[r].bytes);
    return dev->op->sync(dev); /* the buffers are used again */
}

pesc_status wire_exchange(wire *w, const char *what, const peer_part *send, const peer_part *recv)
{
    device *dev = w->dev;
    if (!w->comm)
        return PESC_OK;
    if (w->out)
        return exchange_copies(w, what, send, recv);
    TRY(dev->op->sync(dev)); /* ops have finished with what is sent and where something comes */
    return (w->gpus ? comm_all_to_all_gpus : comm_all_to_all)(w->comm, what, send, recv);
}
