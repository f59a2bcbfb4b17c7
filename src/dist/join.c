/* join: how the processes of a run enter the rooms below: the doors of backend/peers.h. */
#include "backend/memory.h"
#include "base/args.h"
#include "dist/agreement.h"
#include "dist/layer_shards.h"
#include "dist/reduce.h"

static comm *comm_of(peers *p)
{
    return (comm *)(void *)p; /* its first member */
}

static pesc_status agree(peers *p, const char *what, pesc_status own)
{
    return comm_agree_status(comm_of(p), what, own);
}

static pesc_status gather(peers *p, const char *what, const peer_part *all)
{
    return comm_all_gather(comm_of(p), what, all);
}

static pesc_status same(peers *p, const char *text)
{
    return agreement_check(comm_of(p), text);
}

static pesc_status hook(peers *p, pesc_model *m, layer_hook **out)
{
    return layer_shards_open(out, m, comm_of(p));
}

static pesc_status divide(peers *p, params *what)
{
    const partition parts = partition_of(what, comm_of(p));
    return partition_divide(&parts, what);
}

static pesc_status reduce(peers *p, gradient *g, reducer **out)
{
    return reduce_open(out, g, comm_of(p));
}

pesc_status pesc_device_join(pesc_device *dev, pesc_comm *c)
{
    status_clear();
    NEED(dev);
    dev->peers = comm_peers(c);
    if (c)
        *dev->peers =
            (peers){ comm_rank(c), comm_size(c), agree, gather, same, hook, divide, reduce };
    /* processes of this host divide its memory, where they compute in it */
    memory_divide(c && dev->op->host_memory(dev) ? comm_beside(c) : 1);
    return PESC_OK;
}
