/* meter: a device that forwards to another one and measures the time of each op, with a
 * synchronisation after each. For bench/shape. */
#ifndef PESC_BENCH_METER_H
#define PESC_BENCH_METER_H

#include "backend/opmap.h"

#include <stdio.h>

typedef struct tally {
    const char *name;
    double seconds;
    int64_t calls;
} tally;

typedef struct meter {
    device base;
    device *in;
    bool on;
    tally rows[64];
    int n;
} meter;

static void count(meter *k, const char *name, double began)
{
    int i = 0;
    if (!k->on)
        return;
    k->in->op->sync(k->in);
    while (i < k->n && strcmp(k->rows[i].name, name) != 0)
        i++;
    if (i == k->n && i < 63)
        k->rows[k->n++] = (tally){ .name = name };
    k->rows[i].seconds += now() - began;
    k->rows[i].calls++;
}

#define METER_OP(name, parameters, arguments)                                                      \
    static void meter_##name parameters                                                            \
    {                                                                                              \
        device *in = ((meter *)d)->in;                                                             \
        double began = now();                                                                      \
        in->op->name arguments;                                                                    \
        count((meter *)d, #name, began);                                                           \
    }
OPMAP(METER_OP)

/* Products are counted by the dtype of their weights; thin ones are those of LoRA and routers. */
static void meter_product(device *d, const mm *a)
{
    static const char *const names[][2] = { { "matmul f32", "matmul f32, thin" },
                                            { "matmul bf16", "matmul bf16, thin" },
                                            { "matmul nf4", "matmul nf4, thin" } };
    int64_t width = a->out.ne[0] < a->out.ne[1] ? a->out.ne[0] : a->out.ne[1];
    int64_t k = tensor_count(&a->a) / a->out.ne[0];
    width = k < width ? k : width;
    device *in = ((meter *)d)->in;
    double began = now();
    in->op->matmul(in, a);
    count((meter *)d, names[a->b.dt == DT_NF4 ? 2 : a->b.dt == DT_BF16][width <= 192], began);
}

static void meter_products(device *d, const mm *a, int n)
{
    for (int i = 0; i < n; i++)
        meter_product(d, a + i);
}

#define METER_MEMORY(type, name, parameters, arguments)                                            \
    static type meter_##name parameters                                                            \
    {                                                                                              \
        device *in = ((const meter *)d)->in;                                                       \
        return in->op->name arguments;                                                             \
    }
OPMAP_MEMORY(METER_MEMORY)

static pesc_status meter_download(device *d, void *dst, const void *src, size_t bytes)
{
    device *in = ((meter *)d)->in;
    return in->op->download(in, dst, src, bytes);
}

static pesc_status meter_sync(device *d)
{
    device *in = ((meter *)d)->in;
    return in->op->sync(in);
}

/* Ops that are measured one by one are not recorded. */
static bool meter_begin(device *d, uint64_t name)
{
    const meter *k = (const meter *)d;
    return k->on || k->in->op->begin(k->in, name);
}

static void meter_end(device *d)
{
    const meter *k = (const meter *)d;
    if (!k->on)
        k->in->op->end(k->in);
}

static device *meter_open(meter *k, device *in)
{
    static const ops plain = {
#define METER_ROW(name, parameters, arguments) .name = meter_##name,
#define METER_MEMORY_ROW(type, name, parameters, arguments) .name = meter_##name,
        OPMAP(METER_ROW) OPMAP_MEMORY(METER_MEMORY_ROW).download = meter_download,
        .sync = meter_sync,
        .begin = meter_begin,
        .end = meter_end,
    };
    static ops table;
    table = plain;
    table.matmul = meter_product;
    table.matmuls = meter_products;
    *k = (meter){ .base = *in, .in = in };
    k->base.op = &table;
    return &k->base;
}

static void meter_print(const meter *k)
{
    double sum = 0;
    bool told[64] = { 0 };
    for (int i = 0; i < k->n; i++)
        sum += k->rows[i].seconds;
    printf("  a step, synchronised after each op: %.1f ms\n", sum * 1e3);
    for (int i = 0; i < k->n; i++) {
        int most = -1;
        for (int j = 0; j < k->n; j++)
            if (!told[j] && (most < 0 || k->rows[j].seconds > k->rows[most].seconds))
                most = j;
        told[most] = true;
        const tally *t = &k->rows[most];
        printf("    %-20s %5lld calls %8.2f ms  %4.1f %%\n", t->name, (long long)t->calls,
               t->seconds * 1e3, 100 * t->seconds / sum);
    }
}

static meter wrapped;

#endif
