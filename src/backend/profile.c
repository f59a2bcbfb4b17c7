/* profile: a device's table of ops is replaced by one whose ops measure those of the first, with a
 * synchronisation after each. */
#include "backend/profile.h"

#include "backend/opmap.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROWS = 64, THIN = 192 /* rows or columns of a product of LoRA or of a router */ };

struct profile {
    const ops *op; /* what the device has without a profile */
    ops table;     /* and with one */
    pesc_profile_row rows[ROWS];
    size_t n;
};

static double now(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

static void count(device *d, const char *name, double began, size_t bytes)
{
    struct profile *p = d->profile;
    size_t i = 0;
    p->op->sync(d);
    while (i < p->n && strcmp(p->rows[i].name, name) != 0)
        i++;
    if (i == ROWS)
        i = ROWS - 1;
    if (i == p->n)
        snprintf(p->rows[p->n++].name, sizeof p->rows[i].name, "%s", name);
    p->rows[i].seconds += now() - began;
    p->rows[i].weight_bytes += bytes;
    p->rows[i].calls++;
}

#define PROFILE_OP(name, parameters, arguments)                                                    \
    static void profile_##name parameters                                                          \
    {                                                                                              \
        device *in = d;                                                                            \
        double began = now();                                                                      \
        d->profile->op->name arguments;                                                            \
        count(d, #name, began, 0);                                                                 \
    }
OPMAP(PROFILE_OP)
#undef PROFILE_OP

/* Products are told apart by the dtype of the weights of the first, and thin ones. */
static void profile_products(device *d, const mm *a, int n)
{
    char name[sizeof(pesc_profile_row){ 0 }.name];
    size_t bytes = 0;
    int64_t width = a->out.ne[0] < a->out.ne[1] ? a->out.ne[0] : a->out.ne[1];
    int64_t k = tensor_count(&a->a) / a->a.ne[0];
    bool thin = (a->out.ne[1] <= THIN || k <= THIN) && width > 1;
    double began = now();
    for (int i = 0; i < n; i++)
        bytes += tensor_bytes(&a[i].b);
    d->profile->op->matmuls(d, a, n);
    snprintf(name, sizeof name, "matmul %s%s", dtype_name(a->b.dt), thin ? ", thin" : "");
    count(d, name, began, bytes);
}

static void profile_product(device *d, const mm *a)
{
    profile_products(d, a, 1);
}

/* Ops that are measured one by one are not recorded. */
static bool profile_begin(device *d, uint64_t name)
{
    (void)d;
    (void)name;
    return true;
}

static void profile_end(device *d)
{
    (void)d;
}

static pesc_status profile_open(device *d)
{
    struct profile *p = mem_zalloc(1, sizeof *p);
    if (!p)
        return fail_nomem("a profile", sizeof *p);
    p->op = d->op;
    p->table = *d->op;
#define PROFILE_ROW(name, parameters, arguments) p->table.name = profile_##name;
    OPMAP(PROFILE_ROW)
#undef PROFILE_ROW
    p->table.matmul = profile_product;
    p->table.matmuls = profile_products;
    p->table.begin = profile_begin;
    p->table.end = profile_end;
    d->profile = p;
    return PESC_OK;
}

void profile_close(device *d)
{
    if (!d->profile)
        return;
    d->op = d->profile->op;
    mem_free(d->profile);
    d->profile = NULL;
}

pesc_status pesc_device_profile(pesc_device *dev, bool on)
{
    status_clear();
    NEED(dev);
    DEVICE_CALL(dev);
    if (on && !dev->profile)
        TRY(profile_open(dev));
    if (!dev->profile)
        return PESC_OK;
    if (on)
        dev->profile->n = 0;
    memset(dev->profile->rows, 0, on ? sizeof dev->profile->rows : 0);
    dev->op = on ? &dev->profile->table : dev->profile->op;
    return PESC_OK;
}

static int slower(const void *a, const void *b)
{
    double x = ((const pesc_profile_row *)a)->seconds, y = ((const pesc_profile_row *)b)->seconds;
    return (x < y) - (x > y);
}

size_t pesc_device_profile_rows(const pesc_device *dev, pesc_profile_row *rows, size_t cap)
{
    if (!dev || !dev->profile)
        return 0;
    size_t n = dev->profile->n, used = rows ? n < cap ? n : cap : 0;
    pesc_profile_row sorted[ROWS];
    memcpy(sorted, dev->profile->rows, sizeof sorted);
    qsort(sorted, n, sizeof *sorted, slower);
    if (used > 0)
        memcpy(rows, sorted, used * sizeof *rows);
    return n;
}
