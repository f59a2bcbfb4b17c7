/* comm: several processes that work on one run. Part of pesc.h.
 *
 *     pesc_comm *all = NULL;
 *     pesc_status st = pesc_comm_open(&all, NULL);
 *     if (!st) st = pesc_device_join(dev, all);
 *     ... pesc_trainer_open() and so on, as in one process ...
 *     pesc_comm_close(all, st ? pesc_last_error() : NULL);
 *
 * Every process makes the same calls with the same arguments. Rank 0 writes all files. */
#ifndef PESC_COMM_API_H
#define PESC_COMM_API_H
#ifndef PESC_H
#error "include <pesc/pesc.h>, which includes this file"
#endif

typedef struct pesc_comm pesc_comm;

typedef struct pesc_comm_options {
    size_t size;
    void *ud; /* passed to the callback */
    /* Another process has ended, stopped or failed. Called at most once, from a thread of the
     * library, with a sentence that names its rank and host. The calling thread may be inside a
     * collective that never ends, so a program leaves from here. NULL, or if it returns: the next
     * collective fails with PESC_LOST. */
    void (*lost)(void *ud, const char *sentence);
} pesc_comm_options;

/* Joins the processes that mpirun, srun, torchrun or `pesc --gpus N` started, as the environment
 * says. *out is NULL in a process that was started alone; every function accepts NULL and takes it
 * for rank 0 of 1. PESC_DEVICE: a library is missing. PESC_LOST: the others do not come. */
pesc_status pesc_comm_open(pesc_comm **out, const pesc_comm_options *opt);

int32_t pesc_comm_rank(const pesc_comm *c);
int32_t pesc_comm_size(const pesc_comm *c);
int32_t pesc_comm_local_rank(const pesc_comm *c); /* among the processes of this host */
const char *pesc_comm_host(const pesc_comm *c);   /* the name of this host; "" of NULL */

/* failure: why this process ends early, which the others are told; NULL: its work is done. The
 * device that joined must be closed, or not be used any more. */
void pesc_comm_close(pesc_comm *c, const char *failure);

/* The libraries that processes communicate by, as rows of pesc_doctor(). */
size_t pesc_comm_doctor(pesc_doctor_row *rows, size_t cap);

/* What runs on the device from now on is this process' part of the work of all. */
pesc_status pesc_device_join(pesc_device *dev, pesc_comm *c);

#endif
