/* mpi: bytes travel by MPI, which mpirun has set up. The library is loaded when it is needed, so
 * that pesc runs without it. What is declared here is the ABI of OpenMPI: its handles are addresses
 * of objects of the library. */
#include "dist/transport.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LIBRARY "libmpi.so.40"

enum { THREAD_SERIALIZED = 2, TAG = 1, MOST = 1 << 30, SPINS = 200, VERSION_TEXT = 256 };

typedef void *handle;

typedef struct mpi_library {
    void *dl;
    handle world, byte, errors_return;
    int (*init)(int *argc, char ***argv, int required, int *provided);
    int (*rank)(handle comm, int *out);
    int (*size)(handle comm, int *out);
    int (*set_errhandler)(handle comm, handle errors);
    int (*bcast)(void *at, int n, handle type, int root, handle comm);
    int (*isend)(const void *at, int n, handle type, int to, int tag, handle comm, handle *request);
    int (*irecv)(void *at, int n, handle type, int from, int tag, handle comm, handle *request);
    int (*testall)(int n, handle *requests, int *done, void *statuses);
    int (*finalize)(void);
    int (*version)(char *text, int *n);
} mpi_library;

typedef struct mpi {
    mpi_library lib;
    int32_t rank, size;
    heartbeat *beat;  /* borrowed */
    handle *requests; /* [cap] */
    size_t n, cap;
} mpi;

/* ---- the library ---- */

static bool load(mpi_library *m)
{
    const struct {
        const char *name;
        void *to;
    } rows[] = {
        { "ompi_mpi_comm_world", &m->world },
        { "ompi_mpi_byte", &m->byte },
        { "ompi_mpi_errors_return", &m->errors_return },
        { "MPI_Init_thread", &m->init },
        { "MPI_Comm_rank", &m->rank },
        { "MPI_Comm_size", &m->size },
        { "MPI_Comm_set_errhandler", &m->set_errhandler },
        { "MPI_Bcast", &m->bcast },
        { "MPI_Isend", &m->isend },
        { "MPI_Irecv", &m->irecv },
        { "MPI_Testall", &m->testall },
        { "MPI_Finalize", &m->finalize },
        { "MPI_Get_library_version", &m->version },
    };
    /* Its plugins look for the library's symbols among the global ones. */
    m->dl = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);
    for (size_t i = 0; m->dl && i < sizeof rows / sizeof *rows; i++) {
        void *found = dlsym(m->dl, rows[i].name);
        if (!found)
            return false;
        memcpy(rows[i].to, &found, sizeof found);
    }
    return m->dl != NULL;
}

bool mpi_version(char *out, size_t cap)
{
    mpi_library m = { 0 };
    char text[VERSION_TEXT * 4] = "";
    int n = 0;
    if (!load(&m))
        return false;
    m.version(text, &n);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(out, cap, "%s", text);
    return true;
}

static pesc_status check(int code, const char *what)
{
    return code == 0 ? PESC_OK : fail(PESC_LOST, "MPI: %s failed with code %d", what, code);
}

pesc_status mpi_open(void **self, launch *l)
{
    *self = NULL;
    mpi *m = mem_zalloc(1, sizeof *m);
    if (!m)
        return fail_nomem("MPI", sizeof *m);
    *self = m;
    int provided = 0, rank = 0, size = 1;
    if (!load(&m->lib))
        return fail(PESC_DEVICE,
                    "mpirun started this process, but " LIBRARY " %s; install Debian's "
                    "libopenmpi3, or start with --gpus or torchrun",
                    m->lib.dl ? "is not OpenMPI's" : "was not found");
    TRY(check(m->lib.init(NULL, NULL, THREAD_SERIALIZED, &provided), "MPI_Init_thread"));
    m->lib.set_errhandler(m->lib.world, m->lib.errors_return);
    TRY(check(m->lib.rank(m->lib.world, &rank), "MPI_Comm_rank"));
    TRY(check(m->lib.size(m->lib.world, &size), "MPI_Comm_size"));
    l->rank = m->rank = rank;
    l->size = m->size = size;
    return PESC_OK;
}

pesc_status mpi_broadcast(void *self, void *at, int32_t bytes)
{
    mpi *m = self;
    return check(m->lib.bcast(at, bytes, m->lib.byte, 0, m->lib.world), "MPI_Bcast");
}

void mpi_watch(void *self, heartbeat *beat)
{
    ((mpi *)self)->beat = beat;
}

/* MPI_Finalize() waits for all processes, so it is called only when all are there. */
static void mpi_close(void *self, bool orderly)
{
    mpi *m = self;
    if (orderly && m->lib.finalize)
        m->lib.finalize();
    mem_free(m->requests);
    mem_free(m);
}

/* ---- an exchange ---- */

/* One message for each GiB, because a count is an int. */
static pesc_status post(mpi *m, int32_t rank, peer_part p, bool out)
{
    mpi_library *lib = &m->lib;
    for (size_t at = 0; at < p.bytes; at += MOST) {
        if (!mem_room((void **)&m->requests, &m->cap, m->n, sizeof *m->requests))
            return fail_nomem("MPI", 2 * m->cap * sizeof *m->requests);
        char *from = (char *)p.at + at;
        int n = (int)(p.bytes - at < MOST ? p.bytes - at : MOST);
        handle *r = &m->requests[m->n++];
        if (out)
            TRY(check(lib->isend(from, n, lib->byte, rank, TAG, lib->world, r), "MPI_Isend"));
        else
            TRY(check(lib->irecv(from, n, lib->byte, rank, TAG, lib->world, r), "MPI_Irecv"));
    }
    return PESC_OK;
}

/* MPI has no wait with a time limit. After a short spin the thread sleeps, because processes may
 * share cores. */
static pesc_status wait_all(mpi *m)
{
    static const struct timespec nap = { 0, 100000 };
    int done = 0;
    for (int64_t i = 0; !done; i++) {
        TRY(check(m->lib.testall((int)m->n, m->requests, &done, NULL), "MPI_Testall"));
        if (!done && i < SPINS)
            sched_yield();
        else if (!done)
            nanosleep(&nap, NULL);
        TRY(heartbeat_check(m->beat));
    }
    return PESC_OK;
}

static pesc_status mpi_exchange(void *self, const peer_part *send, const peer_part *recv)
{
    mpi *m = self;
    m->n = 0;
    for (int32_t r = 0; r < m->size; r++)
        if (r != m->rank)
            TRY(post(m, r, recv[r], false));
    for (int32_t r = 0; r < m->size; r++)
        if (r != m->rank)
            TRY(post(m, r, send[r], true));
    return wait_all(m);
}

const comm_transport mpi_transport = { "mpi", mpi_exchange, mpi_close };
