/* libraries: those that processes communicate by, for `pesc doctor`. */
#include "dist/transport.h"

#include <stdio.h>

static pesc_doctor_row mpi_row(void)
{
    char version[96];
    bool there = mpi_version(version, sizeof version);
    pesc_doctor_row r = { .name = "mpi" };
    snprintf(r.state, sizeof r.state, "%s", there ? "ok" : "note");
    if (there)
        snprintf(r.detail, sizeof r.detail, "%s: mpirun can start pesc", version);
    else
        snprintf(r.detail, sizeof r.detail,
                 "OpenMPI was not found: --gpus, srun and torchrun start several processes, mpirun "
                 "does not");
    return r;
}

static pesc_doctor_row nccl_row(void)
{
    int v = 0;
    bool there = nccl_version(&v);
    pesc_doctor_row r = { .name = "nccl" };
    snprintf(r.state, sizeof r.state, "%s", there ? "ok" : "note");
    if (there)
        snprintf(r.detail, sizeof r.detail, "version %d.%d.%d: GPUs exchange their memory",
                 v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(r.detail, sizeof r.detail,
                 "libnccl.so.2 cannot be loaded: several GPUs exchange through the host's memory");
    return r;
}

size_t pesc_comm_doctor(pesc_doctor_row *rows, size_t cap)
{
    if (rows && cap > 0)
        rows[0] = mpi_row();
    if (rows && cap > 1)
        rows[1] = nccl_row();
    return 2;
}
