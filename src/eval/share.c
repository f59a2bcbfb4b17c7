#include "eval/share.h"

#include "base/mem.h"

#include <string.h>

static const char what[] = "the results of an evaluation";

static pesc_status share_sizes(comm *c, uint64_t *sizes, comm_part *parts, size_t own)
{
    for (int32_t r = 0; r < comm_size(c); r++)
        parts[r] = (comm_part){ &sizes[r], sizeof *sizes };
    sizes[comm_rank(c)] = own;
    return comm_all_gather(c, what, parts);
}

pesc_status share_texts(comm *c, const str *own, share_fn take, void *ctx)
{
    size_t n = (size_t)comm_size(c), at = 0;
    if (!c)
        return PESC_OK;
    uint64_t *sizes = mem_zalloc(n, sizeof *sizes);
    comm_part *parts = mem_zalloc(n, sizeof *parts);
    char *all = NULL;
    pesc_status st = sizes && parts ? PESC_OK : fail_nomem(what, n * sizeof *parts);
    if (st == PESC_OK)
        st = share_sizes(c, sizes, parts, own->n);
    for (size_t r = 0; st == PESC_OK && r < n; r++)
        at += sizes[r];
    if (st == PESC_OK && !(all = mem_alloc(at + 1, 1)))
        st = fail_nomem(what, at);
    if (st == PESC_OK)
        all[at] = '\0';
    at = 0;
    for (size_t r = 0; st == PESC_OK && r < n; at += sizes[r++])
        parts[r] = (comm_part){ all + at, sizes[r] };
    if (st == PESC_OK && own->n)
        memcpy(parts[comm_rank(c)].at, own->p, own->n);
    if (st == PESC_OK)
        st = comm_all_gather(c, what, parts);
    for (int32_t r = 0; st == PESC_OK && r < (int32_t)n; r++)
        if (r != comm_rank(c))
            st = take(ctx, parts[r].at, parts[r].bytes);
    mem_free(all);
    mem_free(parts);
    mem_free(sizes);
    return st;
}
