/* The CPU, with memory and habits of a GPU. */
#include "backend/planned.h"

#include <stdio.h>

/* What driver, context and libraries take of a GPU before the first tensor is placed. */
#define TAKEN_BY_DRIVER ((uint64_t)768 << 20)

static bool planned_host_memory(const device *d)
{
    (void)d;
    return false;
}

static uint64_t planned_room(device *d)
{
    return d->memory > TAKEN_BY_DRIVER ? d->memory - TAKEN_BY_DRIVER : 0;
}

pesc_status planned_open(device **out, int mib)
{
    static ops table;
    TRY(cpu_open(out, 1));
    device *d = *out;
    table = *d->op;
    table.host_memory = planned_host_memory;
    table.room = planned_room;
    d->op = &table;
    d->memory = (uint64_t)mib << 20;
    d->head_rows = 2048;
    d->micro_tokens = 8192;
    d->has_bf16 = true;
    snprintf(d->name, sizeof d->name, "a GPU with %.1f GiB", mib / 1024.0);
    return PESC_OK;
}
