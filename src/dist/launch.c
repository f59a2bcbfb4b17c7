#include "dist/launch.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 20, FIRST_PORT = 20000, PORTS = 20000 };

/* In this order: what a user sets by hand wins over what a batch system sets for every job. */
static const struct {
    launch_kind kind;
    const char *rank, *size, *local;
} rows[] = {
    { LAUNCH_ENVIRONMENT, "RANK", "WORLD_SIZE", "LOCAL_RANK" },
    { LAUNCH_MPI, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK" },
    { LAUNCH_SLURM, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID" },
};

static const char *value_of(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* Absent: `*out` stays as it is. */
static pesc_status read_number(const char *name, long long least, long long most, int32_t *out)
{
    const char *text = value_of(name);
    long long v;
    if (!text)
        return PESC_OK;
    if (!str_to_i64(text, least, most, &v))
        return fail(PESC_USAGE, "%s: found \"%s\", expected a number from %lld to %lld", name, text,
                    least, most);
    *out = (int32_t)v;
    return PESC_OK;
}

bool launch_first_host(const char *list, char *out, size_t cap)
{
    size_t stem = strcspn(list, "[,");
    const char *number = list[stem] == '[' ? list + stem + 1 : "";
    size_t digits = strcspn(number, "-,]");
    if (stem + digits == 0 || stem + digits >= cap || (list[stem] == '[' && !digits))
        return false;
    memcpy(out, list, stem);
    memcpy(out + stem, number, digits);
    out[stem + digits] = '\0';
    return true;
}

/* torchrun's own store listens on MASTER_PORT; the next port is ours. */
static pesc_status find_master(launch *l)
{
    const char *master = value_of("MASTER_ADDR"), *nodes = value_of("SLURM_STEP_NODELIST");
    const char *store = value_of("TORCHELASTIC_USE_AGENT_STORE");
    int32_t job = 0;
    if (master && strlen(master) < sizeof l->master)
        snprintf(l->master, sizeof l->master, "%s", master);
    else if (l->kind != LAUNCH_SLURM || !nodes ||
             !launch_first_host(nodes, l->master, sizeof l->master))
        return fail(PESC_USAGE, "MASTER_ADDR: is missing; it is the host of rank 0, and "
                                "MASTER_PORT a port that is free there");
    TRY(read_number("MASTER_PORT", 1, 65534, &l->port));
    if (l->port) {
        l->port += store && strcmp(store, "True") == 0;
        return PESC_OK;
    }
    if (l->kind != LAUNCH_SLURM)
        return fail(PESC_USAGE, "MASTER_PORT: is missing; it is a port that is free on the host of "
                                "rank 0");
    TRY(read_number("SLURM_JOB_ID", 0, INT32_MAX, &job));
    l->port = FIRST_PORT + job % PORTS;
    return PESC_OK;
}

pesc_status launch_find(launch *out)
{
    *out = (launch){ .size = 1, .gate = -1 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!value_of(rows[i].rank) || !value_of(rows[i].size))
            continue;
        out->kind = rows[i].kind;
        TRY(read_number(rows[i].size, 1, MOST, &out->size));
        TRY(read_number(rows[i].rank, 0, out->size - 1, &out->rank));
        TRY(read_number(rows[i].local, 0, out->size - 1, &out->local_rank));
        break;
    }
    if (out->size == 1) {
        *out = (launch){ .size = 1, .gate = -1 };
        return PESC_OK;
    }
    if (out->rank == 0)
        TRY(read_number("PESC_GATE", 0, 1 << 20, &out->gate));
    return out->kind == LAUNCH_MPI ? PESC_OK : find_master(out);
}
