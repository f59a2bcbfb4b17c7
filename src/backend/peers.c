#include "backend/peers.h"

#include "base/mem.h"

#include <string.h>

pesc_status peers_most(peers *p, const char *what, int64_t *v)
{
    if (!p)
        return PESC_OK;
    size_t size = (size_t)p->size;
    int64_t *all = mem_zalloc(size, sizeof *all);
    peer_part *parts = mem_alloc(size, sizeof *parts);
    pesc_status s = all && parts ? PESC_OK : fail_nomem(what, size * sizeof *parts);
    for (size_t r = 0; s == PESC_OK && r < size; r++)
        parts[r] = (peer_part){ &all[r], sizeof *all };
    if (s == PESC_OK) {
        all[p->rank] = *v;
        s = p->gather(p, what, parts);
    }
    for (size_t r = 0; s == PESC_OK && r < size; r++)
        *v = all[r] > *v ? all[r] : *v;
    mem_free(parts);
    mem_free(all);
    return s;
}

pesc_status peers_least(peers *p, const char *what, int64_t *v)
{
    int64_t negative = -*v;
    TRY(peers_most(p, what, &negative));
    *v = -negative;
    return PESC_OK;
}

pesc_status peers_add(peers *p, const char *what, float *x, size_t n)
{
    if (!p)
        return PESC_OK;
    size_t size = (size_t)p->size;
    float *all = mem_alloc(size * n, sizeof *all);
    peer_part *parts = mem_alloc(size, sizeof *parts);
    pesc_status s = all && parts ? PESC_OK : fail_nomem(what, size * n * sizeof *all);
    for (size_t r = 0; s == PESC_OK && r < size; r++)
        parts[r] = (peer_part){ all + r * n, n * sizeof *all };
    if (s == PESC_OK) {
        memcpy(parts[p->rank].at, x, n * sizeof *x);
        s = p->gather(p, what, parts);
    }
    for (size_t i = 0; s == PESC_OK && i < n; i++) {
        x[i] = 0;
        for (size_t r = 0; r < size; r++)
            x[i] += all[r * n + i];
    }
    mem_free(parts);
    mem_free(all);
    return s;
}

pesc_status peers_follow(peers *p, const char *what, void *at, size_t bytes)
{
    if (!p)
        return PESC_OK;
    peer_part *parts = mem_zalloc((size_t)p->size, sizeof *parts);
    if (!parts)
        return fail_nomem(what, (size_t)p->size * sizeof *parts);
    parts[0] = (peer_part){ at, bytes };
    pesc_status s = p->gather(p, what, parts);
    mem_free(parts);
    return s;
}

/* Gathers texts of these sizes, one after another in *all, which is the caller's to free. */
static pesc_status gather_texts(peers *p, const char *what, const str *own, const uint64_t *sizes,
                                char **all)
{
    size_t size = (size_t)p->size, n = 0;
    for (size_t r = 0; r < size; r++)
        n += sizes[r];
    peer_part *parts = mem_alloc(size, sizeof *parts);
    *all = mem_alloc(n + 1, 1);
    pesc_status s = parts && *all ? PESC_OK : fail_nomem(what, n);
    char *at = *all;
    for (size_t r = 0; s == PESC_OK && r < size; at += sizes[r++]) {
        parts[r] = (peer_part){ at, sizes[r] };
        if ((int32_t)r == p->rank && own->n)
            memcpy(at, own->p, own->n);
    }
    if (s == PESC_OK) {
        *at = '\0';
        s = p->gather(p, what, parts);
    }
    mem_free(parts);
    return s;
}

pesc_status peers_texts(peers *p, const char *what, const str *own, peers_take take, void *ctx)
{
    if (!p)
        return PESC_OK;
    size_t size = (size_t)p->size, at = 0;
    char *all = NULL;
    uint64_t *sizes = mem_zalloc(size, sizeof *sizes);
    peer_part *parts = mem_alloc(size, sizeof *parts);
    pesc_status s = sizes && parts ? PESC_OK : fail_nomem(what, size * sizeof *parts);
    for (size_t r = 0; s == PESC_OK && r < size; r++)
        parts[r] = (peer_part){ &sizes[r], sizeof *sizes };
    if (s == PESC_OK) {
        sizes[p->rank] = own->n;
        s = p->gather(p, what, parts);
    }
    if (s == PESC_OK)
        s = gather_texts(p, what, own, sizes, &all);
    for (size_t r = 0; s == PESC_OK && r < size; at += sizes[r++])
        if ((int32_t)r != p->rank)
            s = take(ctx, all + at, sizes[r]);
    mem_free(all);
    mem_free(parts);
    mem_free(sizes);
    return s;
}
