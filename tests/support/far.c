#include "support/far.h"

#include "backend/opmap.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, SPANS = 1024, LATE = 16 };
static const size_t MEMORY = (size_t)1 << 30; /* reserved, not taken */

typedef struct far far;
struct far {
    device base;
    far *whole;   /* of a side: the device it works beside; else this one */
    device *near; /* the CPU */
    char *memory;
    size_t used, host;  /* host: the part that was asked of the host */
    size_t limit, live; /* what the device seems to have, and what of it is taken */
    struct {
        void *at;
        size_t bytes;
    } spans[SPANS]; /* of the device alone */
    struct {
        void *to;
        const void *from;
        size_t bytes;
    } late[LATE]; /* copies of a side that have not been done */
    int n_late;
};

static far *far_of(device *d)
{
    return ((far *)d)->whole;
}

static device *enter(device *d)
{
    if (mprotect(far_of(d)->memory, far_of(d)->used + PAGE, PROT_READ | PROT_WRITE) != 0)
        abort();
    return far_of(d)->near;
}

static void leave(device *d)
{
    if (mprotect(far_of(d)->memory, far_of(d)->used + PAGE, PROT_NONE) != 0)
        abort();
}

/* Ops without a result: the CPU's, with the memory open. */
#define FAR_OP(name, parameters, arguments)                                                        \
    static void far_##name parameters                                                              \
    {                                                                                              \
        device *in = enter(d);                                                                     \
        in->op->name arguments;                                                                    \
        leave(d);                                                                                  \
    }
OPMAP(FAR_OP)

static pesc_status take(device *d, size_t bytes, void **out)
{
    far *f = far_of(d);
    if (bytes > MEMORY - PAGE - f->used)
        return fail_nomem("the far device", bytes);
    *out = f->memory + f->used;
    f->used += (bytes + 63) / 64 * 64;
    enter(d);
    memset(*out, 0xa5, bytes); /* fresh memory holds no zeros */
    leave(d);
    return PESC_OK;
}

static pesc_status far_alloc(device *d, size_t bytes, void **out)
{
    far *f = far_of(d);
    int i = 0;
    TRY(take(d, bytes, out));
    while (i < SPANS && f->spans[i].at)
        i++;
    if (i == SPANS)
        abort();
    f->spans[i].at = *out;
    f->spans[i].bytes = bytes;
    f->live += bytes;
    return PESC_OK;
}

/* Memory of the host, which both may access. */
static pesc_status far_alloc_host(device *d, size_t bytes, void **out)
{
    far_of(d)->host += bytes;
    *out = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!*out)
        return fail_nomem("the far device's host", bytes);
    memset(*out, 0xa5, bytes);
    return PESC_OK;
}

size_t far_host_bytes(device *d)
{
    return far_of(d)->host;
}

static void far_free(device *d, void *p)
{
    far *f = far_of(d);
    if (p && ((char *)p < f->memory || (char *)p >= f->memory + MEMORY))
        free(p);
    for (int i = 0; i < SPANS; i++)
        if (p && f->spans[i].at == p) {
            f->live -= f->spans[i].bytes;
            f->spans[i].at = NULL;
        }
}

static pesc_status far_download(device *d, void *dst, const void *src, size_t bytes)
{
    device *cpu = enter(d);
    pesc_status s = cpu->op->download(cpu, dst, src, bytes);
    leave(d);
    return s;
}

static void finish(device *d);

static pesc_status far_sync(device *d)
{
    finish(d);
    return far_of(d)->near->op->sync(far_of(d)->near);
}

static bool far_host_memory(const device *d)
{
    (void)d;
    return false;
}

static void finish(device *d)
{
    far *side = (far *)d;
    device *cpu = enter(d);
    for (int i = 0; i < side->n_late; i++)
        cpu->op->copy(cpu, side->late[i].to, side->late[i].from, side->late[i].bytes);
    leave(d);
    side->n_late = 0;
}

static void side_copy(device *d, void *dst, const void *src, size_t bytes)
{
    far *side = (far *)d;
    if (side->n_late == LATE)
        finish(d);
    side->late[side->n_late].to = dst;
    side->late[side->n_late].from = src;
    side->late[side->n_late++].bytes = bytes;
}

/* A side copies as late as it may: when somebody follows it or waits for it. Its other work is done
 * at once, and by the thread of the device, because its memory is open during its own ops alone. */
static pesc_status far_open_side(device *d, device **out)
{
    static ops table;
    far *side = calloc(1, sizeof *side);
    if (!side)
        abort();
    table = *d->op;
    table.copy = side_copy;
    side->base = *d;
    side->base.op = &table;
    side->whole = far_of(d);
    *out = &side->base;
    return PESC_OK;
}

static void far_follow(device *d, device *other, int i)
{
    (void)d;
    (void)i;
    finish(other);
}

static void far_mark(device *d, int i)
{
    (void)d;
    (void)i;
}

static pesc_status far_wait_mark(device *d, int i)
{
    (void)i;
    return far_sync(d);
}

static bool far_begin(device *d, uint64_t name)
{
    (void)d;
    (void)name;
    return true;
}

static void far_end(device *d)
{
    (void)d;
}

static uint64_t far_room(device *d)
{
    const far *f = far_of(d);
    return f->limit > f->live ? f->limit - f->live : 0;
}

/* The CPU's ops need none; those of this device claim to, so that a caller who forgets to reserve
 * it, or to count it, is seen. */
static size_t far_scratch_bytes(const device *d, const work_limits *w)
{
    (void)d;
    return (size_t)w->tokens * FAR_SCRATCH;
}

static pesc_status far_reserve(device *d, size_t bytes)
{
    far *f = far_of(d);
    size_t more = bytes > f->base.reserved ? bytes - f->base.reserved : 0;
    if (more > far_room(d))
        return fail_nomem("the scratch of the far device", bytes);
    f->base.reserved += more;
    f->live += more;
    return PESC_OK;
}

static void far_close(device *d)
{
    far *f = (far *)d;
    if (f->whole != f) {
        free(f);
        return;
    }
    f->near->op->close(f->near);
    munmap(f->memory, MEMORY);
    free(f);
}

device *far_open(size_t memory)
{
    static const ops table = {
#define FAR_ROW(name, parameters, arguments) .name = far_##name,
        OPMAP(FAR_ROW).alloc = far_alloc,
        .alloc_host = far_alloc_host,
        .free = far_free,
        .download = far_download,
        .sync = far_sync,
        .host_memory = far_host_memory,
        .room = far_room,
        .scratch_bytes = far_scratch_bytes,
        .reserve = far_reserve,
        .open_side = far_open_side,
        .mark = far_mark,
        .wait_mark = far_wait_mark,
        .follow = far_follow,
        .begin = far_begin,
        .end = far_end,
        .close = far_close,
    };
    far *f = calloc(1, sizeof *f);
    if (!f || backend_open(&f->near, "cpu:2") != PESC_OK)
        abort();
    f->base = *f->near;
    f->whole = f;
    f->base.op = &table;
    f->limit = memory ? memory : MEMORY;
    f->memory = mmap(NULL, MEMORY, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->memory == MAP_FAILED)
        abort();
    return &f->base;
}
