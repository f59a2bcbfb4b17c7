/* nccl: bytes in the memory of GPUs travel by NCCL. It is loaded when it is needed, and so is the
 * driver, for the one call that waits for a stream; both are declared here, so that pesc is built
 * without them. The GPU is the one that is current on the calling thread. */
#include "dist/transport.h"

#include "base/mem.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { UINT8 = 1 }; /* ncclUint8 */

typedef void *nccl_comm, *nccl_stream; /* stream NULL: the default one */

typedef struct nccl_library {
    void *dl, *driver;
    int (*version)(int *out);
    int (*unique_id)(nccl_id *out);
    int (*init_rank)(nccl_comm *out, int size, nccl_id id, int rank);
    int (*group_start)(void);
    int (*group_end)(void);
    int (*send)(const void *at, size_t n, int type, int to, nccl_comm c, nccl_stream s);
    int (*recv)(void *at, size_t n, int type, int from, nccl_comm c, nccl_stream s);
    int (*destroy)(nccl_comm c);
    int (*abort)(nccl_comm c);
    const char *(*error)(int code);
    int (*wait)(nccl_stream s); /* of the driver */
} nccl_library;

typedef struct nccl {
    nccl_library lib;
    nccl_comm comm;
    int32_t rank, size;
} nccl;

/* ---- the library ---- */

static void *open_first(const char *const *names, size_t n)
{
    void *dl = NULL;
    for (size_t i = 0; i < n && !dl; i++)
        dl = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return dl;
}

static bool load(nccl_library *m)
{
    static const char *const names[] = { "libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                         "/usr/local/cuda/lib/libnccl.so.2" };
    static const char *const drivers[] = { "libcuda.so.1" };
    m->dl = open_first(names, sizeof names / sizeof *names);
    m->driver = open_first(drivers, 1);
    const struct {
        void *from;
        const char *name;
        void *to;
    } rows[] = {
        { m->dl, "ncclGetVersion", &m->version },
        { m->dl, "ncclGetUniqueId", &m->unique_id },
        { m->dl, "ncclCommInitRank", &m->init_rank },
        { m->dl, "ncclGroupStart", &m->group_start },
        { m->dl, "ncclGroupEnd", &m->group_end },
        { m->dl, "ncclSend", &m->send },
        { m->dl, "ncclRecv", &m->recv },
        { m->dl, "ncclCommDestroy", &m->destroy },
        { m->dl, "ncclCommAbort", &m->abort },
        { m->dl, "ncclGetErrorString", &m->error },
        { m->driver, "cuStreamSynchronize", &m->wait },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *found = rows[i].from ? dlsym(rows[i].from, rows[i].name) : NULL;
        memcpy(rows[i].to, &found, sizeof found);
    }
    return m->dl && m->version;
}

bool nccl_version(int *out)
{
    nccl_library m = { 0 };
    return load(&m) && m.version(out) == 0;
}

/* ---- the processes ---- */

static pesc_status check(const nccl *n, int code, const char *what)
{
    return code == 0 ? PESC_OK
                     : fail(PESC_DEVICE, "NCCL: %s failed: %s", what,
                            n->lib.error ? n->lib.error(code) : "");
}

pesc_status nccl_load(void **self)
{
    *self = NULL;
    nccl *n = mem_zalloc(1, sizeof *n);
    if (!n)
        return fail_nomem("NCCL", sizeof *n);
    *self = n;
    return load(&n->lib) && n->lib.wait && n->lib.init_rank
               ? PESC_OK
               : fail(PESC_DEVICE, "libnccl.so.2 was not found");
}

pesc_status nccl_make_id(void *self, nccl_id *out)
{
    nccl *n = self;
    return check(n, n->lib.unique_id(out), "ncclGetUniqueId");
}

pesc_status nccl_join(void *self, const launch *l, nccl_id id)
{
    nccl *n = self;
    n->rank = l->rank;
    n->size = l->size;
    return check(n, n->lib.init_rank(&n->comm, l->size, id, l->rank), "ncclCommInitRank");
}

static void nccl_close(void *self, bool orderly)
{
    nccl *n = self;
    if (n->comm)
        (orderly ? n->lib.destroy : n->lib.abort)(n->comm);
    mem_free(n);
}

static pesc_status nccl_exchange(void *self, const peer_part *send, const peer_part *recv)
{
    nccl *n = self;
    const nccl_library *lib = &n->lib;
    int bad = lib->group_start();
    for (int32_t i = 0; !bad && i < n->size; i++) {
        if (i == n->rank)
            continue;
        if (send[i].bytes)
            bad = lib->send(send[i].at, send[i].bytes, UINT8, i, n->comm, NULL);
        if (!bad && recv[i].bytes)
            bad = lib->recv(recv[i].at, recv[i].bytes, UINT8, i, n->comm, NULL);
    }
    int ended = lib->group_end();
    TRY(check(n, bad ? bad : ended, "an exchange"));
    int waited = lib->wait(NULL);
    return waited == 0
               ? PESC_OK
               : fail(PESC_DEVICE, "NCCL: the GPU failed with code %d in an exchange", waited);
}

const comm_transport nccl_transport = { "nccl", nccl_exchange, nccl_close };
