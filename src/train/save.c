#include "train/trainer.h"

#include "backend/memory.h"
#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>

enum { COPIED = 5 }; /* buffers of a checkpoint */

/* The thread, and the checkpoint that it writes. */
struct save_thread {
    thread_job job; /* first: the queue knows the struct by it */
    thread_queue *queue;
    bool busy;
    bool touching;    /* the job is to touch the memory of the copies for the first time */
    checkpoint files; /* the run's, but of the copies */
    params params;
    optimizer optim;
    void *memory; /* of the copies */
    size_t bytes;
    checkpoint_state state;
    rundir *dir;
    pesc_status status;
    char why[1024]; /* it failed */
    str notices;    /* one a line */
};

/* ---- writing ---- */

/* dir: NULL unless this process leads. */
static pesc_status write_files(checkpoint *c, const checkpoint_state *s, rundir *dir)
{
    TRY(checkpoint_save(c, s));
    pesc_status st = dir ? rundir_saved(dir) : PESC_OK;
    return peers_agree(c->p->m->dev->peers, "ending a checkpoint", st);
}

/* ---- the thread ---- */

/* The callbacks of a run are called on the caller's thread only. */
static void keep_notice(void *thread, const char *sentence)
{
    str_printf(&((struct save_thread *)thread)->notices, "%s\n", sentence);
}

static void write_copy(thread_job *job)
{
    struct save_thread *s = (struct save_thread *)(void *)job;
    if (s->touching) {
        memset(s->memory, 0, s->bytes);
        return;
    }
    const pesc_events events = { .size = sizeof events, .ud = s, .notice = keep_notice };
    const pesc_events *outer = log_swap(&events);
    s->status = write_files(&s->files, &s->state, s->dir);
    snprintf(s->why, sizeof s->why, "%s", s->status == PESC_OK ? "" : pesc_last_error());
    log_swap(outer);
}

static size_t copied_bytes(const params *p, const optimizer *o)
{
    const tensor *all[COPIED] = { &p->master, &o->m, &o->v, &o->m_scale, &o->v_scale };
    size_t bytes = 0;
    for (int i = 0; i < COPIED; i++)
        bytes += all[i]->data ? tensor_bytes(all[i]) : 0;
    return bytes;
}

static void begin(struct save_thread *s)
{
    s->busy = true;
    thread_queue_add(s->queue, &s->job);
}

/* Makes the thread and room for the copies, once; false where there is none. */
static bool open_thread(pesc_trainer *t)
{
    size_t bytes = copied_bytes(t->params, t->optim);
    if (t->files.saving)
        return true;
    if (t->peers || bytes > memory_host_available() / 4)
        return false;
    struct save_thread *s = mem_zalloc(1, sizeof *s);
    if (!s)
        return false;
    t->files.saving = s;
    s->bytes = bytes;
    s->memory = mem_alloc(bytes, 1);
    if (s->memory && thread_queue_open(&s->queue, 1, write_copy) == PESC_OK)
        return true;
    save_close(t);
    return false;
}

void save_open(pesc_trainer *t)
{
    bool early = t->opt.save_every || t->eval_data;
    if (!early || !open_thread(t))
        return;
    t->files.saving->touching = true;
    begin(t->files.saving);
}

/* Points the checkpoint of the thread to copies of the weights and moments. */
static pesc_status copy(struct save_thread *s, const pesc_trainer *t)
{
    device *dev = t->m->dev;
    s->params = *t->params;
    s->optim = *t->optim;
    s->files = t->files.saver;
    s->files.p = &s->params;
    s->files.opt = &s->optim;
    s->files.on_host = true;
    s->state = t->state;
    s->dir = t->files.dir;
    tensor *all[COPIED] = { &s->params.master, &s->optim.m, &s->optim.v, &s->optim.m_scale,
                            &s->optim.v_scale };
    char *to = s->memory;
    for (int i = 0; i < COPIED; i++) {
        size_t n = all[i]->data ? tensor_bytes(all[i]) : 0;
        if (n)
            TRY(dev->op->download(dev, to, all[i]->data, n));
        all[i]->data = n ? to : NULL;
        to += n;
    }
    return PESC_OK;
}

static void tell_notices(str *all)
{
    char *rest = NULL;
    for (char *line = all->n ? strtok_r(all->p, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest))
        log_notice("%s", line);
    str_free(all);
}

bool save_settle(pesc_trainer *t, bool wait)
{
    struct save_thread *s = t->files.saving;
    if (!s || !s->busy || !thread_queue_take(s->queue, wait))
        return false;
    s->busy = false;
    if (s->touching) {
        s->touching = false;
        return false;
    }
    t->files.saver.whole = s->files.whole;
    t->files.saver.n_whole = s->files.n_whole;
    tell_notices(&s->notices);
    if (s->status != PESC_OK) {
        log_notice("step %lld: could not be saved: %s; the run goes on and tries again",
                   (long long)s->state.step, s->why);
        return false;
    }
    t->files.saved_step = s->state.step;
    return true;
}

int64_t save_newest(pesc_trainer *t)
{
    save_settle(t, true);
    return t->files.saved_step;
}

static void drop(thread_job *job)
{
    (void)job; /* save_close() frees it */
}

void save_close(pesc_trainer *t)
{
    struct save_thread *s = t->files.saving;
    if (!s)
        return;
    save_settle(t, true);
    thread_queue_close(s->queue, drop);
    mem_free(s->memory);
    mem_free(s);
    t->files.saving = NULL;
}

/* ---- saving ---- */

/* The last update of a run can overflow, and no later loss would show it. */
static pesc_status check_weights(pesc_trainer *t)
{
    bool finite;
    TRY(optimizer_finite(t->optim, &finite));
    return finite ? PESC_OK
                  : fail(PESC_NUMERIC,
                         "step %lld: the weights are not finite; a smaller lr may help (the newest "
                         "checkpoint is from step %lld)",
                         (long long)t->state.step, (long long)save_newest(t));
}

pesc_status save_step(pesc_trainer *t, bool wait, bool *saved)
{
    metrics_lengths at;
    ASSERT(!t->files.saving || !t->files.saving->busy);
    *saved = false;
    TRY(check_weights(t));
    TRY(peers_agree(t->peers, "flushing the logs", metrics_sync(t->files.log, &at)));
    t->state.metrics_bytes = at.bytes[METRICS_STEPS];
    t->state.routing_bytes = at.bytes[METRICS_ROUTING];
    t->state.eval_bytes = at.bytes[METRICS_EVAL];
    if (!wait && open_thread(t)) {
        TRY(copy(t->files.saving, t));
        begin(t->files.saving);
        return PESC_OK;
    }
    TRY(write_files(&t->files.saver, &t->state, t->files.dir));
    t->files.saved_step = t->state.step;
    *saved = true;
    return PESC_OK;
}

pesc_status pesc_trainer_save(pesc_trainer *t)
{
    bool saved;
    status_clear();
    NEED(t);
    DEVICE_CALL(t->m->dev);
    save_settle(t, true);
    return save_step(t, true, &saved);
}
