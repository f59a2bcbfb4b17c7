/* bench/idle: how long the device has nothing to do while a model trains as `pesc train` does it:
 * data, metrics and all.
 *   idle MODEL DATA.jsonl RUN [device=cuda:0] [steps=20] [seq=2048] [batch=4]
 * The device stands inside one that watches: it is idle from the moment a wait for it ends until
 * the next work is given to it. Between two waits work is queued; that it never ran out there is
 * seen at the next wait, which takes time only if the device was still busy. */
#include "backend/opmap.h"
#include "base/clock.h"
#include "pesc/pesc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM = 4 }; /* steps that are not counted */

static void must(pesc_status s)
{
    if (s == PESC_OK)
        return;
    fprintf(stderr, "%s\n", pesc_last_error());
    exit(pesc_status_exit_code(s));
}

static char **options;

static int number_of(const char *name, int usual)
{
    size_t n = strlen(name);
    for (char **p = options; *p; p++)
        if (strncmp(*p, name, n) == 0 && (*p)[n] == '=')
            sscanf(*p + n + 1, "%d", &usual);
    return usual;
}

/* ---- the device that watches ---- */

typedef struct watch {
    device base;
    device *in;
    double dry; /* when the last wait ended; 0: work was given since */
    double idle;
    int waits, late; /* late: the device had finished before */
} watch;

static device *give(device *d)
{
    watch *w = (watch *)d;
    if (w->dry > 0)
        w->idle += clock_seconds() - w->dry;
    w->dry = 0;
    return w->in;
}

static pesc_status waited(device *d, double began, pesc_status s)
{
    watch *w = (watch *)d;
    w->dry = clock_seconds();
    w->waits++;
    w->late += w->dry - began < 20e-6;
    return s;
}

#define WATCH_OP(name, parameters, arguments)                                                      \
    static void watch_##name parameters                                                            \
    {                                                                                              \
        device *in = give(d);                                                                      \
        in->op->name arguments;                                                                    \
    }
OPMAP(WATCH_OP)

static pesc_status watch_download(device *d, void *dst, const void *src, size_t bytes)
{
    device *in = give(d);
    double began = clock_seconds();
    return waited(d, began, in->op->download(in, dst, src, bytes));
}

static pesc_status watch_sync(device *d)
{
    device *in = ((watch *)d)->in;
    double began = clock_seconds();
    return ((watch *)d)->dry > 0 ? in->op->sync(in) : waited(d, began, in->op->sync(in));
}

#define WATCH_MEMORY(type, name, parameters, arguments)                                            \
    static type watch_##name parameters                                                            \
    {                                                                                              \
        device *in = ((const watch *)d)->in;                                                       \
        return in->op->name arguments;                                                             \
    }
OPMAP_MEMORY(WATCH_MEMORY)

static bool watch_begin(device *d, uint64_t name)
{
    device *in = give(d);
    return in->op->begin(in, name);
}

static void watch_end(device *d)
{
    device *in = ((watch *)d)->in;
    in->op->end(in);
}

static void watch_open(watch *w, const char *spec)
{
    static const ops table = {
#define WATCH_ROW(name, parameters, arguments) .name = watch_##name,
#define WATCH_MEMORY_ROW(type, name, parameters, arguments) .name = watch_##name,
        OPMAP(WATCH_ROW) OPMAP_MEMORY(WATCH_MEMORY_ROW).download = watch_download,
        .sync = watch_sync,
        .begin = watch_begin,
        .end = watch_end,
    };
    must(backend_open(&w->in, spec));
    w->base = *w->in;
    w->base.op = &table;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: idle MODEL DATA.jsonl RUN [device=cuda:0] [steps=20] ...\n");
        return 2;
    }
    options = argv + 4;
    const char *data[] = { argv[2] }, *spec = "cuda:0";
    for (char **p = options; *p; p++)
        spec = strncmp(*p, "device=", 7) == 0 ? *p + 7 : spec;
    pesc_train_options o = pesc_train_defaults();
    o.data = data;
    o.n_data = 1;
    o.output = argv[3];
    o.compute_dtype = "bf16";
    o.optimizer = "adamw8";
    o.seq_len = number_of("seq", 2048);
    o.batch = number_of("batch", 4);
    int counted = number_of("steps", 20);
    o.steps = WARM + counted + 1; /* the last, which ends with a checkpoint, is not run */
    pesc_load_options load = pesc_load_defaults();
    must(pesc_train_load(&o, &load));
    watch w = { 0 };
    pesc_model *m;
    pesc_trainer *t;
    pesc_step step = PESC_INIT(pesc_step);
    watch_open(&w, spec);
    must(pesc_model_open(&m, &w.base, argv[1], &load));
    must(pesc_trainer_open(&t, m, &o));
    double began = 0;
    for (int i = 0; i < WARM + counted; i++) {
        if (i == WARM) {
            began = clock_seconds();
            w.idle = 0;
            w.waits = w.late = 0;
        }
        must(pesc_trainer_step(t, &step));
    }
    double wall = clock_seconds() - began;
    printf("%s: %d steps of %.1f ms, %.0f tokens/s, idle %.2f %%, %d waits, %d of them late\n",
           w.base.name, counted, 1e3 * wall / counted, step.tok_s, 100 * w.idle / wall, w.waits,
           w.late);
    pesc_trainer_close(t);
    pesc_model_close(m);
    w.base.op->close(&w.base);
    return 0;
}
